"""The virtqueues' registers: one row per queue, and the reset of a single queue.

Spec: Virtio 1.2, 2.6.1 (queue reset), 4.1.4.3 (common configuration), 4.1.5.1.3 (set-up).
"""

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_rdma import CONTROL_QUEUE
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.common.tables import TableProgram, TableRead
from hdl.config import NicConfig
from hdl.ports.rows import QueueRow, RingRules, kept_bits

from .kind import FunctionKind
from .kinds import rdma_kind
from .local import LocalPort, lanes, merge

__all__ = ["VirtioQueues"]

#: Queue resets that may wait for their turn.
RESETS = 16
COMMON = abi.COMMON_CFG.offset


class VirtioQueues(wiring.Component):
    """Serves the ``queue_*`` registers of the common configuration for the queue in ``select``.

    Parameters: ``kind``: what the function is, an RDMA function if nothing is said; ``reads``:
    copies of the rows.
    Members: ``port`` (offsets of the common configuration); ``select`` In; ``ring_reset`` In: the
    feature was negotiated; ``rules`` In: of all rings, as each row says; ``hidden`` In, while the
    device is reset: accesses of the driver read the reset values and write nothing; ``clear`` In,
    held until ``cleared`` (one cycle): every row back to its reset value; ``clearing`` Out;
    ``misaligned`` Out, one cycle, with ``misaligned_queue``; ``queue_reset`` Out, stream of queue
    numbers, each answered by ``queue_reset_done`` (one cycle) when it is taken or later, before the
    next; ``program`` In (``TableProgram``): the firmware's view, whose writes change ``fresh``
    only; ``queue_read0``.. In (``TableRead``): copies for the engines; ``control_read`` In
    (``TableRead``), of a kind that has it: the rows of control and event queue; at any other index
    the row that the firmware has read last.
    Latency: 6 cycles from ``port.start`` to ``port.done``, a few more behind a firmware access;
    engines' reads 1 cycle, always. Clearing takes a cycle per queue; accesses meanwhile are
    answered at once with 0.
    Errors: a queue that does not exist has size 0. A size that is no power of two, is 0 or is above
    the maximum, and any change of size or addresses of an enabled queue, is ignored. A vector that
    does not exist becomes 0xFFFF. Enabling a queue with a misaligned ring is refused and reported
    (``misaligned``). A queue reset of a queue that is not enabled is ignored, and so is one while
    16 others wait.
    Reset: rows are cleared as with ``clear``.
    """

    def __init__(self, *, config: NicConfig, kind: FunctionKind | None = None, reads: int = 1):
        if reads < 1:
            raise ValueError(f"Reads must be at least 1 port, not {reads!r}")
        self._config, self._reads = config, reads
        self._kind = kind = kind or rdma_kind(config)
        super().__init__(
            {
                "port": In(LocalPort(12)),
                "select": In(16),
                "ring_reset": In(1),
                "rules": In(RingRules),
                "hidden": In(1),
                "clear": In(1),
                "cleared": Out(1),
                "clearing": Out(1),
                "misaligned": Out(1),
                "misaligned_queue": Out(16),
                "queue_reset": Out(stream.Signature(16)),
                "queue_reset_done": In(1),
                "program": In(TableProgram(16, QueueRow)),
            }
            | ({"control_read": In(TableRead(16, QueueRow))} if kind.control else {})
            | {f"queue_read{i}": In(TableRead(16, QueueRow)) for i in range(reads)}
        )

    def elaborate(self, platform):
        m = Module()
        queues = self._kind.queues
        stored = data.StructLayout({"row": QueueRow, "resetting": 1})
        # Engines are told of a queue after its row has changed; before, they may read the old row.
        m.submodules.rows = rows = Ram(
            shape=stored, depth=queues, reads=self._reads + 1, earlier=range(self._reads + 1)
        )
        m.submodules.resets = resets = StreamFifo(shape=16, depth=RESETS)
        self._copies(m, rows)
        own = getattr(rows, f"read{self._reads}")
        row = Signal(stored, reset_less=True)  # the one that is accessed
        # What of it is stored: an address keeps the bits that the card has.
        kept = row.as_value() & (
            kept_bits(self._config)["queues"] | 1 << Shape.cast(QueueRow).width
        )
        empty = Signal(stored)
        m.d.comb += [
            empty.row.size_log2.eq(self._config.queue_size.bit_length() - 1),
            empty.row.vector.eq(abi.NO_VECTOR),
            empty.row.fresh.eq(1),
        ]

        waiting = Signal()  # an access has begun and is not answered
        exists = Signal()
        index = Signal(range(queues))
        m.d.comb += exists.eq(self.select < queues)
        m.d.sync += self.port.done.eq(0)
        with m.If(self.port.start):
            m.d.sync += waiting.eq(1)

        offered, under_reset, reset_done = self._resets(m, resets)
        changed = Signal(stored)
        value = Signal(32, reset_less=True)  # the word that is accessed, as it was
        self._registers(m, row, changed, value)
        acting = Signal()  # the row of the access is there
        with m.FSM(name="rows", init="CLEAR"):
            # CLEAR: writes an empty row for one queue after the other, and forgets resets; ends
            # with the last one.
            with m.State("CLEAR"):
                m.d.comb += [
                    self.clearing.eq(1),
                    rows.write.index.eq(index),
                    rows.write.row.eq(empty),
                    rows.write.enable.eq(1),
                    resets.o.ready.eq(1),
                ]
                m.d.sync += [offered.eq(0), under_reset.eq(0), reset_done.eq(0)]
                with m.If(index != queues - 1):
                    m.d.sync += index.eq(index + 1)
                with m.Elif(resets.level == 0):
                    m.d.comb += self.cleared.eq(1)
                    m.next = "IDLE"
                with m.If(waiting):
                    m.d.sync += [
                        waiting.eq(0),
                        self.port.done.eq(1),
                        self.port.read_data.eq(0),
                    ]
            # IDLE: takes an access, the end of a reset, or the firmware's program; ends with one.
            with m.State("IDLE"):
                m.d.sync += index.eq(0)
                with m.If(self.clear):
                    m.next = "CLEAR"
                with m.Elif(waiting):
                    m.d.comb += [own.index.eq(self.select), own.enable.eq(1)]
                    m.next = "LOAD"
                with m.Elif(reset_done):
                    m.d.comb += [
                        rows.write.index.eq(resets.o.payload),
                        rows.write.row.eq(empty),
                        rows.write.enable.eq(1),
                        resets.o.ready.eq(1),
                    ]
                    m.d.sync += reset_done.eq(0)
                with m.Elif((self.program.read | self.program.write) & ~self.program.done):
                    m.d.comb += [own.index.eq(self.program.index), own.enable.eq(1)]
                    m.next = "LOAD-PROGRAM"
            # LOAD: keeps the row of the queue that is accessed; one cycle.
            with m.State("LOAD"):
                m.d.sync += row.eq(Mux(self.hidden, empty.as_value(), own.row.as_value()))
                m.next = "SHOW"
            # SHOW: the word that is read becomes known; one cycle.
            with m.State("SHOW"):
                m.next = "ACCESS"
            # LOAD-PROGRAM: keeps the row that the firmware asks for; one cycle.
            with m.State("LOAD-PROGRAM"):
                m.d.sync += row.eq(own.row)
                m.next = "PROGRAM"
            # ACCESS: reads the word and changes the row; one cycle.
            with m.State("ACCESS"):
                m.d.comb += acting.eq(self.port.write & exists & ~self.hidden)
                m.d.sync += [row.eq(changed), self.port.read_data.eq(Mux(exists, value, 0))]
                m.next = "STORE"
            # STORE: writes the row and answers; one cycle.
            with m.State("STORE"):
                m.d.comb += [
                    rows.write.index.eq(self.select),
                    rows.write.row.eq(kept),
                    rows.write.enable.eq(self.port.write & exists & ~self.hidden),
                ]
                m.d.sync += [waiting.eq(0), self.port.done.eq(1)]
                m.next = "IDLE"
            # PROGRAM: answers the firmware, and writes what it may write; one cycle.
            with m.State("PROGRAM"):
                m.d.comb += [
                    self.program.done.eq(1),
                    rows.write.index.eq(self.program.index),
                    rows.write.row.eq(kept),
                    rows.write.row.row.fresh.eq(self.program.row.fresh),
                    rows.write.enable.eq(self.program.write),
                ]
                m.next = "IDLE"
        m.d.comb += [
            self.program.read_row.eq(row.row),
            self.program.read_row.rules.eq(self.rules),
        ]

        self._effects(m, resets, row, changed, acting)
        return m

    def _copies(self, m: Module, rows) -> None:
        """The rows as the engines read them."""
        for i in range(self._reads):
            port, copy = getattr(self, f"queue_read{i}"), getattr(rows, f"read{i}")
            m.d.comb += [
                copy.index.eq(port.index),
                copy.enable.eq(port.enable),
                port.row.eq(copy.row.row),
                port.row.rules.eq(self.rules),
            ]
        if self._kind.control:
            self._control_rows(m, rows)

    def _control_rows(self, m: Module, rows) -> None:
        """The rows as the engine of control and event queue reads them."""
        # Its engine reads few rows, so it needs no copy of tens of thousands of rows.
        events = self._config.events
        m.submodules.control = control = Ram(shape=QueueRow, depth=3 if events else 1, earlier=(0,))
        m.d.comb += [
            control.write.row.eq(rows.write.row.row),
            control.write.enable.eq(rows.write.enable & (rows.write.index == CONTROL_QUEUE)),
            control.read0.enable.eq(self.control_read.enable),
            self.control_read.row.eq(control.read0.row),
            self.control_read.row.rules.eq(self.rules),
        ]
        if events:
            self._more_rows(m, rows, control)

    def _more_rows(self, m: Module, rows, control) -> None:
        """The control engine's rows beside that of the control queue."""
        own, of_events, of_any = 0, 1, 2
        for index, place in (
            (rows.write.index, control.write.index),
            (self.control_read.index, control.read0.index),
        ):
            m.d.comb += place.eq(of_any)
            with m.If(index == CONTROL_QUEUE):
                m.d.comb += place.eq(own)
            with m.Elif(index == self._config.event_queue):
                m.d.comb += place.eq(of_events)
        with m.If(rows.write.enable & (rows.write.index == self._config.event_queue)):
            m.d.comb += control.write.enable.eq(1)
        # The row that the firmware reads passes here.
        with m.If(self.program.done & self.program.read):
            m.d.comb += [control.write.index.eq(of_any), control.write.enable.eq(1)]

    def _resets(self, m: Module, resets) -> tuple[Signal, Signal, Signal]:
        """One queue at a time is reset; the next one waits in the FIFO.

        Returns whether a reset is offered to the engines, is being done, and has been done."""
        offered, under_reset, reset_done = Signal(), Signal(), Signal()
        m.d.comb += [
            self.queue_reset.valid.eq(offered),
            self.queue_reset.payload.eq(resets.o.payload),
            resets.i.payload.eq(self.select),
        ]
        with m.If(offered & self.queue_reset.ready):
            m.d.sync += [offered.eq(0), under_reset.eq(1)]
        with m.Elif(resets.o.valid & ~offered & ~under_reset & ~reset_done):
            m.d.sync += offered.eq(1)
        # The engine that takes it may have done it already.
        with m.If((under_reset | (offered & self.queue_reset.ready)) & self.queue_reset_done):
            m.d.sync += [under_reset.eq(0), reset_done.eq(1)]
        return offered, under_reset, reset_done

    def _effects(self, m: Module, resets, row, changed, acting: Signal) -> None:
        """What an access does beside changing the row."""
        enabling, restarting = Signal(), Signal()
        m.d.comb += [
            enabling.eq(acting & self._written(COMMON("queue_enable"), 1) & ~row.row.enabled),
            restarting.eq(
                acting
                & self._written(COMMON("queue_reset"), 1)
                & self.ring_reset
                & row.row.enabled
                & ~row.resetting
            ),
            resets.i.valid.eq(restarting),
            self.misaligned.eq(enabling & self._misaligned(row.row)),
            self.misaligned_queue.eq(self.select),
        ]
        with m.If(restarting & resets.i.ready):
            m.d.comb += changed.resetting.eq(1)
        with m.If(enabling & ~self._misaligned(row.row)):
            m.d.comb += changed.row.enabled.eq(1)

    def _written(self, offset: int, value: int):
        """The access writes ``value`` to the 16-bit field at ``offset``."""
        word, low = lanes(offset)
        return (
            (self.port.addr == word)
            & self.port.strb[low // 8]
            & self.port.strb[low // 8 + 1]
            & (self.port.data[low : low + 16] == value)
        )

    def _misaligned(self, row):
        """A ring of the queue does not start where its layout demands (2.7, 2.8)."""
        rings = (
            (abi.DESC_ALIGN, row.desc),
            (abi.AVAIL_ALIGN, row.driver),
            (abi.USED_ALIGN, row.device),
        )
        misaligned = Cat(address[: align.bit_length() - 1] for align, address in rings).any()
        # The event suppression structures lie where the rings of a split queue do.
        ends = range(abi.AVAIL_ALIGN.bit_length() - 1, abi.EVENT_ALIGN.bit_length() - 1)
        return misaligned | (self.rules.packed & Cat(row.driver[bit] for bit in ends).any())

    def _registers(self, m: Module, old, changed, value) -> None:
        """``value`` becomes the word read, a cycle later; ``changed`` the row after a write."""
        row, port = old.row, self.port
        halves = {
            "queue_size": Const(1, 16) << row.size_log2,
            "queue_msix_vector": row.vector,
            "queue_enable": row.enabled,
            "queue_notify_off": self.select,
            "queue_notify_data": 0,
            "queue_reset": old.resetting,
        }
        words: dict[int, dict[int, Signal]] = {}
        for name, half in halves.items():
            word, low = lanes(COMMON(name))
            part = Signal(16, name=f"{name}_shown")
            m.d.comb += part.eq(half)
            words.setdefault(word, {})[low] = part
        addresses = {"queue_desc": row.desc, "queue_driver": row.driver, "queue_device": row.device}
        with m.Switch(port.addr):
            for word, parts in words.items():
                with m.Case(word):
                    m.d.sync += value.eq(Cat(parts[low] for low in sorted(parts)))
            for name, address in addresses.items():
                for half in range(2):
                    with m.Case(COMMON(name) + 4 * half):
                        m.d.sync += value.eq(address[32 * half : 32 * half + 32])
            with m.Default():
                m.d.sync += value.eq(0)

        merged = Signal(32)
        m.d.comb += [merged.eq(merge(value, port)), changed.eq(old)]
        size_word, size_low = lanes(COMMON("queue_size"))
        vector_word, vector_low = lanes(COMMON("queue_msix_vector"))
        touched = port.strb[vector_low // 8 : vector_low // 8 + 2].any()
        with m.If((port.addr == vector_word) & touched):
            vector = merged[vector_low : vector_low + 16]
            m.d.comb += changed.row.vector.eq(
                Mux(vector < self._kind.vectors, vector, abi.NO_VECTOR)
            )
        with m.If(~row.enabled):
            with m.If(port.addr == size_word):
                with m.Switch(merged[size_low : size_low + 16]):
                    for log2 in range(self._config.queue_size.bit_length()):
                        with m.Case(1 << log2):
                            m.d.comb += changed.row.size_log2.eq(log2)
            for name in addresses:
                field = getattr(changed.row, name.removeprefix("queue_"))
                for half in range(2):
                    low, high = 32 * half, min(32 * half + 32, self._config.address_bits)
                    with m.If(port.addr == COMMON(name) + 4 * half):
                        m.d.comb += field[low : max(low, high)].eq(merged)
