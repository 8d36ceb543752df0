"""What joins the network function to the other boxes, as ``hdl/ports/boxes.py`` has it for RDMA."""

from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, Signature

from hdl.abi.virtio_net import TYPE_FEATURES
from hdl.common.tables import TableRead
from hdl.config import NicConfig

from .host import PlacedWriteClient, ReadClient, WriteClient
from .jobs import Doorbell, Interrupt, QueueError, QueueErrorCause
from .network import NETWORK_READS, NETWORK_ROWS, NetworkCounts, NetworkSettings
from .rows import QueueRow

__all__ = [
    "HOST_READS",
    "HOST_ROWS",
    "HOST_WRITES",
    "NARROW",
    "PLACED",
    "NetworkHost",
    "NetworkStatus",
    "NetworkTables",
]

#: Clients of the small read engine, and read ports of the queues' rows, with the control queue's.
HOST_READS = (*NETWORK_READS, "control_read")
HOST_ROWS = (*NETWORK_ROWS, "rows_control")
#: Clients of the write engine; those that place bytes themselves, and those that write few at a
#: time.
HOST_WRITES = ("frames_write", "used", "control_write")
PLACED, NARROW = ("frames_write",), ("used",)


class NetworkHost(Signature):
    """Between the network function and the host side, seen from the function.

    ``HOST_READS``, ``frames_read`` (bulk, in address lanes), ``HOST_WRITES``: host memory.
    ``HOST_ROWS``: rows of the function's virtqueues. ``doorbell``, ``queue_reset``: of all of them,
    by the function's own numbers; the latter is taken when it is done. ``interrupt``, ``error``.
    ``features``: those negotiated. ``hold``: nothing new begins; ``idle``: nothing is under way;
    ``restart``, then: forget all of the function.
    """

    def __init__(self, config: NicConfig):
        width = config.width
        super().__init__(
            {name: Out(ReadClient(width)) for name in (*HOST_READS, "frames_read")}
            | {
                name: Out((PlacedWriteClient if name in PLACED else WriteClient)(width))
                for name in HOST_WRITES
            }
            | {name: Out(TableRead(16, QueueRow)) for name in HOST_ROWS}
            | {
                "doorbell": In(stream.Signature(Doorbell)),
                "queue_reset": In(stream.Signature(16)),
                "interrupt": Out(stream.Signature(Interrupt)),
                "error": Out(stream.Signature(QueueError)),
                "features": In(TYPE_FEATURES),
                "hold": In(1),
                "idle": Out(1),
                "restart": In(1),
            }
        )


class NetworkStatus(Signature):
    """What the registers show of the network function, seen from the host side.

    ``mac`` (raw bytes), ``link``, ``mtu``: for the device configuration. ``reset_request``: a
    device reset waits for the firmware, until ``reset_done``. Others: as in ``FunctionStatus``.
    """

    def __init__(self):
        super().__init__(
            {
                "mac": In(48),
                "link": In(1),
                "mtu": In(16),
                "reset_request": Out(1),
                "reset_done": In(1),
                "reset_count": Out(32),
                "status": Out(8),
                "driver_ok": Out(1),
                "features": Out(TYPE_FEATURES),
                "resetting": Out(1),
                "needs_reset": Out(1),
                "needs_reset_cause": Out(QueueErrorCause),
                "needs_reset_queue": Out(16),
            }
        )


class NetworkTables(Signature):
    """Between the registers and the network function, seen from the registers."""

    def __init__(self):
        super().__init__({"settings": Out(NetworkSettings), "counts": In(NetworkCounts)})
