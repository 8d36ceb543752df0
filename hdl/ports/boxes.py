"""What the boxes of the NIC are joined by: bundles of the rooms' streams and table ports.

``hdl/nic.py`` joins the boxes host side, queues, transport, memory and tables. Each signature here
is one connection between two of them, seen from the box that its docstring names.
"""

from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, Signature

from hdl.abi.virtio_rdma import TYPE_FEATURES
from hdl.common.tables import TableRead, TableWrite
from hdl.config import NicConfig

from .atomics import AtomicRequest, AtomicResult
from .context import QP_MACHINES, QP_PINS, QP_TABLES, ContextPin, ContextRead
from .host import PlacedWriteClient, ReadClient, WriteClient, push_beat
from .jobs import (
    PACKET_GENERATION,
    Copied,
    Destination,
    Effects,
    FetchRequest,
    Interrupt,
    LineUse,
    QueueError,
    QueueErrorCause,
    RecvFetched,
    RecvRequest,
    ScatterChecked,
    ScatterJob,
    SendFetched,
    TxChecked,
    TxJob,
    Upcoming,
    WqeRead,
)
from .keys import LayoutWrite
from .numbers import QpNumber
from .rows import MrRow, QueueRow, ReadResource

__all__ = [
    "ContextHost",
    "ENGINES",
    "EnginePort",
    "FunctionStatus",
    "INTERRUPTING",
    "LinesPort",
    "MemoryDrain",
    "MemoryHost",
    "MemoryTables",
    "PushInput",
    "QpTables",
    "RESOURCE_READERS",
    "RecvFetchPort",
    "RxPort",
    "SendFetchPort",
    "SpareLinesPort",
    "TxPort",
    "BrokenQueue",
    "Dropped",
    "engine_port",
    "layout_setter_members",
]


class EnginePort(Signature):
    """Between a virtqueue engine and the host side, seen from the engine.

    ``queue_read``: rows of the virtqueues. ``error``: broken rings. ``interrupt``: of an engine
    that has ``interrupts``. ``resetting``: functions in a device reset, for the ``control`` engine.
    """

    def __init__(self, config: NicConfig, *, interrupts: bool = False, control: bool = False):
        width = config.width
        members = {
            "queue_read": Out(TableRead(16, QueueRow)),
            "error": Out(stream.Signature(QueueError)),
            "read_client": Out(ReadClient(width)),
            "write_client": Out(WriteClient(width)),
        }
        if interrupts:
            members["interrupt"] = Out(stream.Signature(Interrupt))
        if control:
            members["resetting"] = In(config.functions)
        super().__init__(members)


#: Who reads the pool of READs and atomics; the first one writes it.
RESOURCE_READERS = ("receive", "replier")
#: The virtqueue engines, and those of them that raise interrupts.
ENGINES = ("recv", "send", "completion", "control")
INTERRUPTING = ("completion", "control")


def engine_port(config: NicConfig, name: str) -> EnginePort:
    """The port of the engine of that name."""
    return EnginePort(config, interrupts=name in INTERRUPTING, control=name == "control")


class BrokenQueue(Signature):
    """A virtqueue that has been found broken, seen from the hardware: ``valid`` is held, with
    ``queue`` and ``cause``, until ``done`` (one cycle)."""

    def __init__(self):
        super().__init__(
            {"valid": Out(1), "queue": Out(16), "cause": Out(QueueErrorCause), "done": In(1)}
        )


class Dropped(Signature):
    """A virtqueue that has been dropped, seen from the queues: with ``valid`` (a cycle) nothing of
    ``queue`` is under way in any engine, and each has handed over the errors that it has found."""

    def __init__(self):
        super().__init__({"valid": Out(1), "queue": Out(16)})


class MemoryHost(Signature):
    """Between the memory box and the host side, seen from the memory box.

    ``gather``: payload to send. ``gather_pages``, ``scatter_pages``: page lists. ``scatter``:
    payload that came. ``atomic_reads``, ``atomic_writes``: words of atomics, if the card has them.
    """

    def __init__(self, config: NicConfig):
        width, atomics = config.width, {}
        if config.atomics:
            atomics["atomic_reads"] = Out(ReadClient(width))
            atomics["atomic_writes"] = Out(WriteClient(width))
        super().__init__(
            atomics
            | {
                "gather": Out(ReadClient(width)),
                "gather_pages": Out(ReadClient(width)),
                "scatter_pages": Out(ReadClient(width)),
                "scatter": Out(PlacedWriteClient(width)),
            }
        )


class ContextHost(Signature):
    """Between the tables and the host side, if rows of the QPs lie in host memory: their reads and
    writes, seen from the tables."""

    def __init__(self, config: NicConfig):
        super().__init__(
            {"reads": Out(ReadClient(config.width)), "writes": Out(WriteClient(config.width))}
        )


class PushInput(Signature):
    """Between the host side and the queues, if the card has push windows, seen from the host side:
    ``beats``: what is written there; ``pushes``: the functions that may push, a bit for each."""

    def __init__(self, config: NicConfig):
        super().__init__(
            {
                "beats": Out(stream.Signature(push_beat(config.width))),
                "pushes": Out(config.functions),
            }
        )


class MemoryTables(Signature):
    """Reads of the memory regions' rows, seen from the memory box."""

    def __init__(self):
        read = Out(TableRead(16, MrRow))
        super().__init__({"gather": read, "scatter": read})


class MemoryDrain(Signature):
    """The memory box's part of a drain, seen from the transport; see ``Quiesce``."""

    def __init__(self):
        super().__init__({"start": Out(1), "gather_done": In(1), "scatter_done": In(1)})


class FunctionStatus(Signature):
    """What the management registers show of a guest function, seen from the host side.

    ``mac``: the port's address, raw bytes, for the device configuration. ``reset_request``: the
    driver resets the device; held until ``reset_done``. ``features``: those negotiated of the
    device type's own.
    """

    def __init__(self):
        super().__init__(
            {
                "mac": In(48),
                "reset_request": Out(1),
                "reset_done": In(1),
                "reset_count": Out(32),
                "status": Out(8),
                "features": Out(TYPE_FEATURES),
                "resetting": Out(1),
                "needs_reset": Out(1),
                "needs_reset_cause": Out(QueueErrorCause),
                "needs_reset_queue": Out(16),
            }
        )


class SendFetchPort(Signature):
    """Between the transport and the fetching of send WQEs, seen from the transport.

    ``release``: lines whose WQE has been used. ``destination``: reads that of the WQE in a line.
    """

    def __init__(self):
        super().__init__(
            {
                "req": Out(stream.Signature(FetchRequest)),
                "rsp": In(stream.Signature(SendFetched)),
                "release": Out(stream.Signature(8)),
                "destination": Out(TableRead(8, Destination)),
            }
        )


class RecvFetchPort(Signature):
    """Between the transport and the fetching of receive WQEs, seen from the transport."""

    def __init__(self):
        super().__init__(
            {
                "req": Out(stream.Signature(RecvRequest)),
                "rsp": In(stream.Signature(RecvFetched)),
                "line_use": Out(LineUse()),
                "upcoming": Out(Upcoming()),
            }
        )


class LinesPort(Signature):
    """Reads the lines of decoded WQEs, seen from the reader. Latency 1 cycle."""

    def __init__(self):
        super().__init__({"slot": Out(WqeRead), "slot_enable": Out(1), "slot_data": In(128)})


class SpareLinesPort(Signature):
    """Reads the lines of send WQEs in cycles in which nobody else does, seen from the reader:
    ``slot_enable`` is held until ``taken``, with which ``slot_data`` is there, for a cycle."""

    def __init__(self):
        super().__init__(
            {"slot": Out(WqeRead), "slot_enable": Out(1), "taken": In(1), "slot_data": In(128)}
        )


def layout_setter_members(config: NicConfig) -> dict:
    """Members of who sets the layouts of indirect keys, on cards that have these: ``layout``: an
    entry is set; ``layout_lines``: reads its slots."""
    if not config.mkeys:
        return {}
    return {"layout": Out(LayoutWrite), "layout_lines": Out(SpareLinesPort())}


class TxPort(Signature):
    """Packets to send, seen from the transport: a job, and an answer to each in order;
    ``generation``: the latest one of a QP, for those that wait; ``copied``: a MEMCPY has ended."""

    def __init__(self):
        super().__init__(
            {
                "job": Out(stream.Signature(TxJob)),
                "checked": In(stream.Signature(TxChecked)),
                "generation": In(TableRead(QpNumber, PACKET_GENERATION)),
                "copied": In(stream.Signature(Copied)),
            }
        )


class RxPort(Signature):
    """Packets that came, seen from the transport: a job, its answer, then what comes of it.

    ``atomic``: what the jobs of atomics do; ``result``: what they have found, each before its
    effects; ``landed``: the place of a READ or an atomic in the pool, when its effects are
    released: all in front of it has been written."""

    def __init__(self):
        super().__init__(
            {
                "job": Out(stream.Signature(ScatterJob)),
                "checked": In(stream.Signature(ScatterChecked)),
                "effects": Out(stream.Signature(Effects)),
                "atomic": Out(stream.Signature(AtomicRequest, always_ready=True)),
                "result": In(TableWrite(16, AtomicResult)),
                "landed": In(stream.Signature(16, always_ready=True)),
            }
        )


class QpTables(Signature):
    """The transport's ports to its tables, seen from the transport.

    ``<machine>``: the look of each of ``QP_MACHINES`` at a QP; ``<table>_write``: the port of each
    table's owner; ``resources_receive``, ``resources_replier``, ``resources_write``: the pool of
    READs and atomics. With ``pins``, ``<name>_pin``: of each of ``QP_PINS``.
    """

    def __init__(self, *, pins: bool = False):
        members = {machine: Out(ContextRead(machine)) for machine in QP_MACHINES}
        if pins:
            members |= {f"{name}_pin": Out(ContextPin()) for name in QP_PINS}
        for name, table in QP_TABLES.items():
            if table.owner:
                members[f"{name}_write"] = Out(TableWrite(QpNumber, table.row))
        for reader in RESOURCE_READERS:
            members[f"resources_{reader}"] = Out(TableRead(16, ReadResource))
        members["resources_write"] = Out(TableWrite(16, ReadResource))
        super().__init__(members)
