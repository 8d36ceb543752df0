"""Work requests that give an indirect key a layout: MKEY_LIST and MKEY_INTERLEAVED."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.mkeys import LayoutFlags
from hdl.common.sums import wide_sum
from hdl.config import NicConfig
from hdl.ports.boxes import SpareLinesPort
from hdl.ports.jobs import Destination, SendWqe, Sge
from hdl.ports.keys import GENERATION, LayoutWrite, layout_place
from hdl.ports.regions import RegionKeyPort, asked_layout
from hdl.ports.rows import QpCfg
from hdl.ports.shared import operands

__all__ = ["RequestLayout"]

#: Bits of the bytes of a layout, with a carry. An indirect key is shorter than 2**47 bytes, as any
#: region with pages is.
TOTAL = 48
#: Bits of the bytes of a row of 32 entries, of 2**31 bytes at most.
ROW = 37


class LayoutSlots(wiring.Component):
    """Reads the entries of a layout from the slots of its work request, one after the other.

    Members: ``run`` is held until ``ended``, a cycle; ``slots`` of the line ``line``, two of an
    entry if it ``repeats``; ``lines``: reads them. ``told``, a cycle: ``sge`` is the entry ``nth``,
    with ``stride``; ``odd``: bytes that must be 0 are not.
    Latency: 3 cycles for each slot, and more as others read lines first, and 1 for each entry.
    Reset: idle.
    """

    def __init__(self):
        super().__init__(
            {
                "run": In(1),
                "ended": Out(1),
                "slots": In(6),
                "line": In(8),
                "repeats": In(1),
                "lines": Out(SpareLinesPort()),
                "told": Out(1),
                "nth": Out(5),
                "sge": Out(Sge),
                "stride": Out(33),
                "odd": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        at, second = Signal(6), Signal()  # the slot to read, and whether it is an entry's second
        kept = Signal(128, reset_less=True)  # the slot that was read: it comes out of a RAM
        m.d.comb += [self.lines.slot.line.eq(self.line), self.lines.slot.slot.eq(at)]
        stride = wide_sum(m, self.sge.length, kept[:32])
        with m.FSM(name="slots"):
            # READ: reads a slot and keeps what it holds; ends when it is read.
            with m.State("READ"):
                m.d.comb += self.lines.slot_enable.eq(self.run)
                m.d.sync += kept.eq(self.lines.slot_data)
                with m.If(self.lines.taken):
                    m.d.sync += at.eq(at + 1)
                    m.next = "SORT"
            # SORT: takes it for the entry's first slot, or its second; one cycle.
            with m.State("SORT"):
                m.d.sync += second.eq(self.repeats & ~second)
                m.next = "TELL"
                with m.If(second):
                    m.d.sync += [self.stride.eq(stride), self.odd.eq(kept[32:].any())]
                with m.Else():
                    length = kept[64:96]  # of an Sge
                    m.d.sync += [self.sge.eq(kept), self.stride.eq(length), self.odd.eq(0)]
                    with m.If(self.repeats):
                        m.next = "READ"
            # TELL: tells of the entry; one cycle.
            with m.State("TELL"):
                m.d.comb += self.told.eq(1)
                m.d.sync += self.nth.eq(self.nth + 1)
                with m.If(at == self.slots):
                    m.d.comb += self.ended.eq(1)
                    m.d.sync += [at.eq(0), self.nth.eq(0)]
                m.next = "READ"
        return m


class RequestLayout(wiring.Component):
    """Gives an indirect key the layout that the slots of a work request hold.

    Spec: docs/extensions.md (indirect keys). It asks whether the key may have it, weighs all
    entries, sets them, and at last has the key's row name them. So a request that is refused leaves
    the layout that there was. The entries are of a new generation: an access that has found the row
    as it was, and finds one of them, fails.
    Members: ``start`` is held until ``done``, a cycle, with ``good``; ``wqe``, ``destination``,
    ``cfg`` and ``line`` meanwhile; ``lines``: reads its slots; ``port``: the owner of the regions'
    keys; ``entry``: an entry is set.
    Latency: 21 cycles and 8 for each slot, and as many as ``repeat`` has bits. Throughput: one at
    a time.
    Errors: ``good`` is 0. Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "wqe": In(SendWqe),
                "destination": In(Destination),
                "cfg": In(QpCfg),
                "line": In(8),
                "done": Out(1),
                "good": Out(1),
                "lines": Out(SpareLinesPort()),
                "port": Out(RegionKeyPort()),
                "entry": Out(LayoutWrite),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.slots = slots = LayoutSlots()
        connect(m, slots.lines, flipped(self.lines))
        named, repeats = operands(self.wqe, self.destination).mkey, self.wqe.operation.by_length
        generation, sets = Signal(GENERATION), Signal()  # sets: all entries have been weighed
        row, bad = Signal(ROW, reset_less=True), Signal()
        total, times = Signal(TOTAL, reset_less=True), Signal(32, reset_less=True)
        part, over = Signal(2 * ROW, reset_less=True), Signal()  # what ``times`` counts
        m.d.comb += [
            slots.slots.eq(self.wqe.num_sge),
            slots.line.eq(self.line),
            slots.repeats.eq(repeats),
        ]
        self._ask(m, named, row, total, generation, sets)
        longer = wide_sum(m, row, slots.sge.length)[:ROW]
        more = wide_sum(m, total[: TOTAL - 1], part[: TOTAL - 1])
        # Of the operands, which come out of a RAM: kept before they are weighed.
        empty, unknown, again = Signal(), Signal(), Signal()
        m.d.sync += [
            empty.eq(named.num_entries == 0),
            unknown.eq((named.flags & ~int(LayoutFlags.CHECK_FREE)) != 0),
            again.eq(named.repeat != 0),
        ]
        with m.FSM(name="layout"):
            # IDLE: nothing is executed; ``start`` ends it.
            with m.State("IDLE"):
                m.d.sync += [self.good.eq(0), sets.eq(0)]
                m.d.sync += [row.eq(0), total.eq(0), over.eq(0)]
                with m.If(self.start):
                    m.d.sync += generation.eq(generation + 1)
                    m.next = "OPERANDS"
            # OPERANDS: weighs the operands; one cycle.
            with m.State("OPERANDS"):
                m.d.sync += bad.eq(empty | unknown | (~repeats & again))
                m.next = "ASK"
            # ASK: asks whether the key may have a layout, and at last that it has it; ends when
            # that is taken, and at once if something is wrong.
            with m.State("ASK"):
                m.d.comb += self.port.req.valid.eq(~bad)
                with m.If(bad):
                    m.next = "DONE"
                with m.Elif(self.port.req.ready):
                    m.next = "ANSWER"
            # ANSWER: waits for the answer; ends with it.
            with m.State("ANSWER"), m.If(self.port.rsp.valid):
                m.d.sync += self.good.eq(self.port.rsp.payload & sets)
                m.next = "DONE"
                with m.If(self.port.rsp.payload & ~sets):
                    m.next = "SLOTS"
            # SLOTS: weighs all entries, or sets them; ends with the last of them.
            with m.State("SLOTS"):
                m.d.comb += slots.run.eq(1)
                with m.If(slots.told & ~sets):
                    wrong = slots.odd | slots.stride[32]
                    wrong |= slots.sge.length[31] & slots.sge.length[:31].any()
                    m.d.sync += [row.eq(longer), bad.eq(bad | wrong)]
                with m.If(slots.ended):
                    m.next = "ROW"
                    with m.If(sets):
                        m.next = "ASK"
            # ROW: knows the bytes of all entries; one cycle.
            with m.State("ROW"):
                m.d.sync += [part.eq(row), times.eq(Mux(repeats, named.repeat, 1))]
                m.d.sync += bad.eq(bad | (repeats & row[32:].any()))
                m.next = "MULTIPLY"
            # MULTIPLY: works out the bytes of the layout; ends when they are known.
            with m.State("MULTIPLY"):
                with m.If(times[0]):
                    m.d.sync += total.eq(more)
                # The carry of the sum before: that of this one is late.
                too_long = total[TOTAL - 1] | (times[0] & part[TOTAL - 1 :].any())
                m.d.sync += over.eq(over | too_long)
                m.d.sync += [times.eq(times[1:]), part.eq(Cat(0, part))]
                with m.If(times == 0):
                    m.next = "JUDGE"
            # JUDGE: has the entries set if they are good; one cycle.
            with m.State("JUDGE"):
                m.d.sync += [sets.eq(1), bad.eq(bad | over)]
                m.next = "SLOTS"
                with m.If(bad | over):
                    m.next = "DONE"
            # DONE: tells of the end; one cycle.
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        entry = self.entry
        m.d.sync += [
            entry.valid.eq(slots.told & sets),
            entry.place.eq(layout_place(self._config, self.cfg.function, named.key, slots.nth)),
            entry.entry.addr.eq(slots.sge.addr),
            entry.entry.count.eq(slots.sge.length),
            entry.entry.stride.eq(slots.stride),
            entry.entry.key.eq(slots.sge.lkey),
            entry.entry.generation.eq(generation),
        ]
        return m

    def _ask(self, m: Module, named, row: Signal, total: Signal, generation, sets) -> None:
        """What is asked of the owner of the keys."""
        request, asked = self.port.req.payload, asked_layout(self.port.req.payload)
        m.d.comb += [
            request.register.eq(1),
            request.bind.eq(1),
            request.function.eq(self.cfg.function),
            request.pd.eq(self.cfg.pd),
            request.key.eq(named.key),
            request.mrn.eq(named.mrn),
            request.access.eq(named.access),
            request.length.eq(total),
            asked.layout.row_bytes.eq(Mux(self.wqe.operation.by_length, row, 0)),
            asked.layout.entries.eq(named.num_entries),
            asked.layout.generation.eq(generation),
            asked.look.eq(~sets),
            asked.check_free.eq(named.flags[0]),
        ]
