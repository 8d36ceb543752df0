"""The host side: everything between the card's host port and the engines that use it."""

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.enums import RdmaFeature
from hdl.common.arbiter import StreamArbiter
from hdl.common.contract import keeps_offers
from hdl.common.count import COUNT
from hdl.common.skid import Register
from hdl.common.tables import CsrBus, TableProgram
from hdl.config import NicConfig
from hdl.ports.boxes import (
    ENGINES,
    INTERRUPTING,
    BrokenQueue,
    ContextHost,
    Dropped,
    FunctionStatus,
    MemoryHost,
    PushInput,
    engine_port,
)
from hdl.ports.counter_names import COUNTER_INDEX, COUNTERS, PORT_COUNTERS, QP_COUNTER_INDEX
from hdl.ports.host import HostPort
from hdl.ports.jobs import Doorbell, Interrupt, QueueError, QueueErrorCause
from hdl.ports.network_boxes import (
    HOST_READS,
    HOST_WRITES,
    NARROW,
    PLACED,
    NetworkHost,
    NetworkStatus,
)
from hdl.ports.rows import QueueRow

from .fence import Fence
from .guest_functions import GuestFunctions
from .mmio import MmioRouter
from .network_face import CLIENTS, NetworkFace
from .queue_errors import QueueErrors
from .read import ReadEngine
from .read_merge import ReadMerge
from .reset import ResetSequence
from .write import WriteEngine

__all__ = ["HostSide"]


class HostSide(wiring.Component):
    """Host reads and writes, the guest functions, register accesses, interrupts and reset.

    Members: ``host``: the card's edge; ``intx`` Out (levels, of each function without MSI-X).
    ``recv``, ``send``, ``completion``, ``control``: one port for each virtqueue engine; ``memory``:
    the memory box's host reads and writes; ``context``: those of the QPs' rows, if there are such.
    ``doorbell`` Out. ``queue_reset`` Out: queues that the
    driver resets, taken when it is done. ``csr`` Out: the management function's registers.
    ``queue_rows`` In: the firmware's view of the virtqueues. ``counters``, ``qp_counters`` Out:
    what the guest's driver reads. ``status0``..: of each guest function, see ``FunctionStatus``.
    ``room_reset`` Out: a device reset of the only function holds the other boxes in reset;
    ``tables_ready`` In: their tables are cleared. ``broken`` In, of a card with parity: a table has
    had a wrong row; each function gets DEVICE_NEEDS_RESET, and ``halted`` Out: the rooms stand
    still until the only function is reset. A card with more is to be loaded anew.
    Payload to send has a read engine of its own, with half of the tags: what a room waits for does
    not queue behind payload in bulk.
    Of a card with events: ``dropped`` In: virtqueues of which nothing is under way any more;
    ``broken_queue`` Out: one that the firmware is to see to (``QueueErrors``). ``counts``: by name.
    Of a card with push windows: ``push`` Out: what is written there.
    Of a card with a network function: ``network``: what it does; ``network_status``: its state.
    ``flr`` In, ``flr_clean``, ``flr_over`` Out, a bit for each function that has a driver
    (``NicConfig.driven``): a function-level
    reset, see ``VirtioFunction``. From ``flr_clean`` on the host sees no DMA of before, however
    long the device reset takes that belongs to it: ``Fence`` keeps it back.
    Latency and throughput: see the parts. Reset: see ``ResetSequence``.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {name: In(engine_port(config, name)) for name in ENGINES}
            | {f"status{n}": Out(FunctionStatus()) for n in range(config.functions)}
            | {
                "host": Out(HostPort(config.width, push=config.push)),
                "intx": Out(config.driven),
                "flr": In(config.driven),
                "flr_clean": Out(config.driven),
                "flr_over": Out(config.driven),
                "memory": In(MemoryHost(config)),
                "doorbell": Out(stream.Signature(Doorbell)),
                "queue_reset": Out(stream.Signature(16)),
                "csr": Out(CsrBus()),
                "queue_rows": In(TableProgram(16, QueueRow)),
                "counters": Out(TableProgram(COUNTER_INDEX, 32)),
                "qp_counters": Out(TableProgram(QP_COUNTER_INDEX, 32)),
                "room_reset": Out(1),
                "tables_ready": In(1),
                "counts": Out(data.StructLayout({"queue_errors": COUNT})),
            }
            | (
                {"dropped": In(Dropped()), "broken_queue": Out(BrokenQueue())}
                if config.events
                else {}
            )
            | ({"broken": In(1), "halted": Out(1)} if config.parity else {})
            | ({"context": In(ContextHost(config))} if config.hot_qps else {})
            | ({"push": Out(PushInput(config))} if config.push else {})
            | (
                {"network": In(NetworkHost(config)), "network_status": Out(NetworkStatus())}
                if config.network
                else {}
            )
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.mmio = mmio = MmioRouter(config=config)
        m.submodules.guests = guests = GuestFunctions(
            config=config, reads=len(ENGINES) - 1, counters=len(PORT_COUNTERS + COUNTERS)
        )
        connect(m, flipped(self.host.mmio), mmio.mmio)
        for n in range(config.functions):
            connect(m, getattr(mmio, f"guest{n}"), getattr(guests, f"bus{n}"))
        connect(m, mmio.csr, flipped(self.csr))
        connect(m, guests.doorbell, flipped(self.doorbell))
        connect(m, guests.counters, flipped(self.counters))
        connect(m, guests.qp_counters, flipped(self.qp_counters))
        connect(m, flipped(self.queue_rows), guests.program)
        if config.push:
            connect(m, flipped(self.host.push), flipped(self.push.beats))
            m.d.comb += self.push.pushes.eq(guests.pushes)
        told = {"intx": guests.intx, "flr_over": guests.flr_over, "fenced": guests.fenced}
        told["flr_clean"] = guests.flr_clean
        if config.network:
            face = self._network(m, mmio)
            told = {name: Cat(value, getattr(face, name)) for name, value in told.items()}
        self._told = told
        m.d.comb += [
            self.intx.eq(told["intx"]),
            guests.flr.eq(self.flr),
            self.flr_over.eq(told["flr_over"]),
        ]
        room_reset = Signal()
        self._engines(m, guests, room_reset)
        self._bus(m, guests, room_reset)
        keeps_offers(m, platform, self)
        return m

    def _network(self, m, mmio) -> NetworkFace:
        """The face of the network function."""
        m.submodules.network_face = face = NetworkFace(config=self._config)
        connect(m, mmio.network, face.bus)
        connect(m, face.status, flipped(self.network_status))
        for name, member in self.network.signature.members.items():
            if name in CLIENTS:
                continue
            mine, its = getattr(self.network, name), getattr(face.function, name)
            if member.is_port:
                m.d.comb += mine.eq(its) if member.flow == Out else its.eq(mine)
            else:
                connect(m, flipped(mine), its)
        m.d.comb += face.flr.eq(self.flr[-1])
        return face

    def _engines(self, m, guests, room_reset) -> None:
        """Rows, resets, errors and interrupts of the virtqueue engines."""

        def room(name: str, component):
            m.submodules[name] = ResetInserter(room_reset)(component)
            return component

        interrupts = room("interrupts", StreamArbiter(shape=Interrupt, inputs=len(INTERRUPTING)))
        errors = room("error_arbiter", StreamArbiter(shape=QueueError, inputs=len(ENGINES)))
        broken = room("queue_errors", QueueErrors(config=self._config))
        connect(m, guests.queue_reset, flipped(self.queue_reset))
        connect(m, errors.o, broken.i)
        connect(m, broken.o, guests.queue_error)
        m.d.comb += self.counts.queue_errors.eq(broken.errors)
        if self._config.events:
            connect(m, flipped(self.dropped), broken.dropped)
            connect(m, broken.broken, flipped(self.broken_queue))
            m.d.comb += broken.isolates.eq(
                Cat(
                    getattr(guests, f"status{n}").features[RdmaFeature.QUEUE_ERROR]
                    for n in range(self._config.functions)
                )
            )
        connect(m, interrupts.o, guests.interrupt)
        for number, name in enumerate(ENGINES):
            engine = getattr(self, name)
            rows = "control_read" if name == "control" else f"queue_read{number}"
            connect(m, flipped(engine.queue_read), getattr(guests, rows))
            # In a register: what goes on behind an error is long, and so is the choice among them.
            error = room(f"{name}_error", Register(shape=QueueError))
            connect(m, flipped(engine.error), error.i)
            connect(m, error.o, getattr(errors, f"i{number}"))
        for number, name in enumerate(INTERRUPTING):
            # In a register: whose turn it is, and whether a function takes one, is known late.
            interrupt = room(f"{name}_interrupt", Register(shape=Interrupt))
            connect(m, flipped(getattr(self, name).interrupt), interrupt.i)
            connect(m, interrupt.o, getattr(interrupts, f"i{number}"))

    def _bus(self, m, guests, room_reset) -> None:
        """Host reads and writes."""
        config, memory = self._config, self.memory
        reads = {
            "recv": self.recv.read_client,
            "scatter_pages": memory.scatter_pages,
            "completion": self.completion.read_client,
            "control": self.control.read_client,
            "send": self.send.read_client,
            "gather_pages": memory.gather_pages,
        }
        writes = {
            "scatter": memory.scatter,
            "completion": self.completion.write_client,
            "control": self.control.write_client,
            "interrupts": guests.write,
            "send": self.send.write_client,
            "recv": self.recv.write_client,
        }
        narrow, placed = ["interrupts", "send", "recv"], ["scatter"]
        if config.atomics:
            reads["atomics"], writes["atomics"] = memory.atomic_reads, memory.atomic_writes
            narrow.append("atomics")
        if config.hot_qps:
            reads["context"], writes["context"] = self.context.reads, self.context.writes
        bulky = {"gather": memory.gather}
        if config.network:
            face = m.submodules.network_face
            reads |= {name: getattr(self.network, name) for name in HOST_READS}
            writes |= {name: getattr(self.network, name) for name in HOST_WRITES}
            writes["network_interrupts"] = face.write
            narrow += ["network_interrupts", *NARROW]
            placed += PLACED
            bulky["frames_read"] = self.network.frames_read
        half = config.read_tags // 2
        m.submodules.reads = small = ReadEngine(
            config=config, clients=tuple(reads), tags=half, direct=ENGINES
        )
        m.submodules.bulk_reads = bulk = ReadEngine(
            config=config, clients=tuple(bulky), tags=half, first_tag=half, address_lanes=True
        )
        m.submodules.read_port = port = ReadMerge(config=config)
        m.submodules.writes = engine = WriteEngine(
            config=config,
            clients=tuple(writes),
            placed=tuple(placed),
            narrow=tuple(narrow),
        )
        for name, client in reads.items():
            connect(m, flipped(client), getattr(small, name))
        for name, client in bulky.items():
            connect(m, flipped(client), getattr(bulk, name))
        for name, client in writes.items():
            own = name.endswith("interrupts")
            connect(m, client if own else flipped(client), getattr(engine, name))
        connect(m, small.rd_req, port.req0)
        connect(m, bulk.rd_req, port.req1)
        connect(m, port.rsp0, small.rd_rsp)
        connect(m, port.rsp1, bulk.rd_rsp)
        m.submodules.fence = fence = Fence(config=config)
        connect(m, port.rd_req, fence.reads)
        connect(m, fence.beats, port.rd_rsp)
        connect(m, engine.wr, fence.writes)
        connect(m, fence.rd_req, flipped(self.host.rd_req))
        connect(m, flipped(self.host.rd_rsp), fence.rd_rsp)
        connect(m, fence.wr, flipped(self.host.wr))
        m.d.comb += [
            fence.fenced.eq(self._told["fenced"]),
            self.flr_clean.eq(self._told["flr_clean"] & (fence.settled | ~self._told["fenced"])),
        ]
        for one in (small, bulk):
            m.d.comb += [
                one.writes_accepted.eq(engine.accepted),
                one.writes_issued.eq(engine.issued),
            ]
        if config.network:
            m.d.comb += [face.accepted.eq(engine.accepted), face.issued.eq(engine.issued)]
        self._resets(m, guests, room_reset, (small, bulk), engine)

    def _resets(self, m, guests, room_reset, readers, writer) -> None:
        """State of the functions, and their device resets. The only function of a card may stop all
        rooms at once; where several share it, the firmware resets each, object by object."""
        several = self._config.shared
        resetting = [getattr(guests, f"status{n}").resetting for n in range(self._config.functions)]
        m.d.comb += self.control.resetting.eq(Cat(resetting))
        if self._config.parity:
            self._report(m, guests)
        for n in range(self._config.functions):
            status, own = getattr(self, f"status{n}"), getattr(guests, f"status{n}")
            for name, member in FunctionStatus().members.items():
                if member.flow == Out:
                    m.d.comb += getattr(status, name).eq(getattr(own, name))
            m.d.comb += own.mac.eq(status.mac)
            if several:
                m.d.comb += own.reset_done.eq(self._behind_writes(m, status.reset_done, writer))
        if several and not self._config.parity:
            return
        m.submodules.reset = reset = ResetSequence(breaks=self._config.parity)
        if not several:
            m.d.comb += [
                reset.request.eq(guests.status0.reset_request),
                guests.status0.reset_done.eq(reset.done),
            ]
        if self._config.parity:
            m.d.comb += [reset.broken.eq(self.broken), self.halted.eq(reset.halted)]
        m.d.comb += [
            reset.reads_idle.eq(readers[0].idle & readers[1].idle),
            reset.writes_idle.eq(writer.idle),
            reset.tables_ready.eq(self.tables_ready),
            room_reset.eq(reset.room_reset),
            self.room_reset.eq(room_reset),
            writer.abort.eq(reset.abort),
        ]
        m.d.comb += [one.hold.eq(reset.hold) for one in readers]

    def _behind_writes(self, m, done, writer) -> Signal:
        """A cycle, when all bursts that the writer had accepted at ``done`` are with the host: what
        the function had written is not to come behind the end of its reset."""
        waits, last, left = Signal(), Signal.like(writer.accepted), Signal.like(writer.accepted)
        passed = Signal()
        m.d.comb += [
            left.eq(last - writer.issued),  # fewer than 128 are on their way
            passed.eq(waits & ((left == 0) | left[-1])),
        ]
        with m.If(done):
            m.d.sync += [waits.eq(1), last.eq(writer.accepted)]
        with m.Elif(passed):
            m.d.sync += waits.eq(0)
        return passed

    def _report(self, m, guests) -> None:
        """DEVICE_NEEDS_RESET for one function after the other, in the name of its control queue."""
        functions, low = self._config.functions, self._config.number_bits["queues"]
        ordinal, reports = Signal(range(functions)), Signal()
        with m.If(self.broken & ~self.halted):  # it stays while somebody reads the row
            m.d.sync += [ordinal.eq(0), reports.eq(1)]
        with m.Elif(reports):
            m.d.sync += [ordinal.eq(ordinal + 1), reports.eq(ordinal != functions - 1)]
        with m.If(reports):
            m.d.comb += [
                guests.queue_error.valid.eq(1),
                guests.queue_error.payload.queue.eq(ordinal << low),
                guests.queue_error.payload.cause.eq(QueueErrorCause.PARITY),
            ]
