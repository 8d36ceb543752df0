"""Between the data path of the network function and the rest of the card; see ``Network``."""

from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, Signature

from hdl.abi.virtio_net import HASH_KEY_BYTES, HASH_TYPES, RSS_TABLE
from hdl.common.count import BYTES, COUNT
from hdl.common.packet import packet_stream
from hdl.common.tables import TableRead
from hdl.config import NET_ADDRESSES, NicConfig

from .host import PlacedWriteClient, ReadClient, WriteClient
from .jobs import Doorbell, Interrupt, QueueError
from .rows import QueueRow
from .trace import FrameTap, Verdict

__all__ = [
    "NETWORK_FEATURES",
    "NETWORK_READS",
    "NETWORK_ROWS",
    "PAIR_BITS",
    "FilterAddress",
    "NetworkCounts",
    "NetworkPort",
    "NetworkSettings",
    "Steering",
]

#: Bits of the number of a pair of queues.
PAIR_BITS = 3
#: Feature bits of the device type that the data path looks at (Virtio 1.2, 5.1.3): 0 to 23.
NETWORK_FEATURES = 24
#: Clients of the small read engine: rings, descriptors and what the driver says of interrupts.
NETWORK_READS = ("rings_receive", "rings_transmit")
#: Read ports of the function's queue rows, by the function's own queue numbers.
NETWORK_ROWS = ("rows_receive", "rows_receive_used", "rows_transmit", "rows_transmit_used")


class FilterAddress(data.Struct):
    """An Ethernet address that the driver wants frames of; raw bytes, the first one lowest."""

    valid: 1
    address: 48


class Steering(data.Struct):
    """Which pair a frame goes to (Virtio 1.2, 5.1.6.5.7). ``types``: what has a hash, see
    ``HashType``; ``key`` of the hash, raw bytes. ``table``: the pair of each value of a hash, of
    which ``mask`` leaves the lowest bits. ``other``: the pair of frames that have none."""

    types: HASH_TYPES
    key: 8 * HASH_KEY_BYTES
    mask: range(RSS_TABLE)
    table: data.ArrayLayout(PAIR_BITS, RSS_TABLE)
    other: PAIR_BITS


class NetworkSettings(data.Struct):
    """What driver and firmware say of the function (Virtio 1.2, 5.1.6.5.1 to 5.1.6.5.7).

    ``mac``: the function's address, raw bytes. ``running``: the driver is there (DRIVER_OK), and
    there is neither an error nor a reset.
    """

    mac: 48
    promiscuous: 1
    all_multicast: 1
    all_unicast: 1
    no_multicast: 1
    no_unicast: 1
    no_broadcast: 1
    running: 1
    steering: Steering
    table: data.ArrayLayout(FilterAddress, NET_ADDRESSES)


class NetworkCounts(data.Struct):
    """What ``NET_COUNTERS`` of ``counter_names.py`` add up: events in ``COUNT`` bits, bytes of
    frames without FCS in ``BYTES`` bits. They wrap."""

    net_rx_frames: COUNT
    net_rx_drops_buffer: COUNT
    net_rx_drops_queue: COUNT
    net_rx_filtered: COUNT
    net_tx_frames: COUNT
    net_tx_errors: COUNT
    net_rx_bytes: BYTES
    net_tx_bytes: BYTES


class NetworkPort(Signature):
    """The data path of the network function, seen from it.

    Host: each of ``NETWORK_READS`` is a client of the small read engine; ``frames_read`` one of the
    bulk engine, in address lanes; ``frames_write`` a placed write client; ``used`` a
    narrow one. Each of ``NETWORK_ROWS`` reads rows of the function's queues.
    ``doorbell``: of receive and transmit queues. ``queue_reset``: a queue to forget; taken when
    nothing of it is under way. ``interrupt``, ``error``: as an engine's, of FUNCTION_NET.
    ``features``: those negotiated, 0 before FEATURES_OK.
    ``hold``: nothing new is begun; ``idle``: nothing is under way, no access of the host either.
    Then ``restart`` (at least a cycle, with ``hold``) forgets all of the function; the room is not
    to be reset in another way, as it keeps step with the ingress.
    ``received``: the beats that the ingress takes, and ``verdict``: what it has decided of each
    frame, in order; ``core_reset``: the ingress is in reset, and forgets its frames.
    ``sent``: frames to send, each without a gap; they go to ``network`` of the border.
    """

    def __init__(self, config: NicConfig):
        width = config.width
        super().__init__(
            {name: Out(ReadClient(width)) for name in NETWORK_READS}
            | {name: Out(TableRead(16, QueueRow)) for name in NETWORK_ROWS}
            | {
                "frames_read": Out(ReadClient(width)),
                "frames_write": Out(PlacedWriteClient(width)),
                "used": Out(WriteClient(width)),
                "doorbell": In(stream.Signature(Doorbell)),
                "queue_reset": In(stream.Signature(16)),
                "interrupt": Out(stream.Signature(Interrupt)),
                "error": Out(stream.Signature(QueueError)),
                "features": In(NETWORK_FEATURES),
                "settings": In(NetworkSettings),
                "hold": In(1),
                "idle": Out(1),
                "restart": In(1),
                "received": In(FrameTap(width)),
                "verdict": In(Verdict),
                "core_reset": In(1),
                "sent": Out(packet_stream(width)),
                "counts": Out(NetworkCounts),
            }
        )
