"""The sinks of READs as SendFetch has reported them, so that responses need not fetch them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.jobs import WQE_LINE_BITS, ReadSink, RecvWqe, WqeRead
from hdl.ports.numbers import QpNumber

from ..wqe.types import REPORTED_SGES
from .sink_ages import SinkAges

__all__ = ["ReadSinks", "REPORTED_LINE"]

#: Set in the line number of a sink that was reported.
REPORTED_LINE = 1 << (WQE_LINE_BITS - 1)
#: Slots of a sink: a power of two that holds what is reported.
SLOTS = 4


class Wanted(data.Struct):
    """Whose WQE it is."""

    qp: QpNumber
    position: 16


class SinkTag(data.Struct):
    """Whose sink it is, and the answer for it."""

    wanted: Wanted
    head: 16
    wqe: RecvWqe


class ReadSinks(wiring.Component):
    """``read_sinks`` sinks; position and QP select one, later ones replace earlier ones.

    Twice ``max_rd_atomic`` positions in a row of one QP have places of their own, and so have as
    many QPs in a row as that leaves room for; farther ones share them, shifted, last bit first,
    by what is left of their numbers.
    Members: ``i``: what is reported; left out while the line that it would get (``line``) is
    ``held``, or all are being cleared. ``wanted``: what is asked for; ``look`` (a cycle) reads it,
    ``found``, ``tag`` and ``found_line`` hold from the next cycle until the next ``look``; while
    ``asking``, from the cycle behind it on, nothing is written to that place; what is written there
    with ``look`` is not found. ``touch`` (a cycle): it was asked for. ``slot``, ``slot_enable``,
    ``slot_data``: SGEs, a cycle later. ``clear`` (a cycle): forget all. ``tick``: an age ends (at
    least ``2 * read_sinks`` cycles after the last one); what nobody asked for during a whole one is
    forgotten.
    Latency: 2 cycles. Throughput: a sink in 3 cycles. Errors: none; what is not found is fetched.
    Nothing waits but ``i``, for ``asking``. Reset: as ``clear``, which takes ``read_sinks`` cycles
    in which nothing is found.
    """

    def __init__(self, *, config: NicConfig):
        self._sinks = config.read_sinks
        self._positions = min(2 << ceil_log2(config.max_rd_atomic), self._sinks)
        flags = ("held", "look", "asking", "touch", "slot_enable", "clear", "tick")
        super().__init__(
            {name: In(1) for name in flags}
            | {
                "i": In(stream.Signature(ReadSink)),
                "line": Out(WQE_LINE_BITS),
                "wanted": In(Wanted),
                "found": Out(1),
                "found_line": Out(WQE_LINE_BITS),
                "tag": Out(SinkTag),
                "slot": In(WqeRead),
                "slot_data": Out(128),
            }
        )

    def elaborate(self, platform):
        m = Module()
        count, bits = self._sinks, ceil_log2(self._sinks)
        # A slot is read long after it was written, and never written while it may be read.
        m.submodules.slots = slots = Ram(shape=128, depth=SLOTS * count, forward=False)
        # A tag is not written either while it is asked for.
        m.submodules.tags = tags = Ram(shape=SinkTag, depth=count, forward=False)
        m.submodules.ages = ages = SinkAges(sinks=count)

        low = ceil_log2(self._positions)
        high = bits - low

        def place(one):
            rest = Cat(reversed(one.qp[high : high + low]))
            return Cat(one.position[:low] ^ rest, one.qp[:high])

        reported, reported_place, asked_place = self.i.payload, Signal(bits), Signal(bits)
        number, clearing = Signal(range(REPORTED_SGES)), ages.clearing
        begins, tag = Signal(), tags.write.row
        # Whether the line is held comes late, so it is looked at a cycle later.
        steady, held = Signal(), Signal()
        m.d.sync += [steady.eq(self.i.valid & ~self.i.ready), held.eq(self.held)]
        # The place that is asked for is late too; it stays while ``asking``.
        stays, begun, begun_place = Signal(bits), Signal(), Signal(bits, reset_less=True)
        replaced = Signal()  # the tag was written as it was read, or cleared
        cleared = Signal()
        m.d.sync += [
            stays.eq(asked_place),
            begun.eq(begins),
            begun_place.eq(reported_place),
            cleared.eq(clearing),
            replaced.eq((begun & (begun_place == stays)) | cleared),
        ]
        m.d.comb += [
            reported_place.eq(place(reported)),
            asked_place.eq(place(self.wanted)),
            self.line.eq(REPORTED_LINE | reported_place),
            self.found_line.eq(REPORTED_LINE | asked_place),
            begins.eq(
                self.i.valid
                & (number == 0)
                & ~clearing
                & steady
                & ~held
                & ~(self.asking & (reported_place == stays))
            ),
            tags.write.enable.eq(begins),
            tags.write.index.eq(reported_place),
            tag.wanted.qp.eq(reported.qp),
            tag.wanted.position.eq(reported.position),
            tag.head.eq(reported.head),
        ]
        for name in ("num_sge", "wr_id", "length"):
            m.d.comb += tag.wqe[name].eq(reported[name])

        # The tag first: nobody reads the slots within two cycles of it.
        written = slots.write
        m.d.comb += [
            written.enable.eq(begins | (number != 0)),
            written.index.eq(Cat(number, reported_place)),
            written.row.eq(reported.slots.word_select(number, 128)),
            slots.read0.index.eq(Cat(self.slot.slot[: ceil_log2(SLOTS)], self.slot.line[:bits])),
            slots.read0.enable.eq(self.slot_enable),
            self.slot_data.eq(slots.read0.row),
        ]
        with m.If(number != 0):
            last = number == REPORTED_SGES - 1
            m.d.comb += self.i.ready.eq(last)
            m.d.sync += number.eq(Mux(last, 0, number + 1))
        with m.Elif(begins):
            m.d.sync += number.eq(1)
        with m.Else():
            m.d.comb += self.i.ready.eq(clearing | (steady & held))

        # What is asked for.
        same = Signal(-(-len(self.wanted.as_value()) // 3))
        m.d.comb += [
            tags.read0.index.eq(asked_place),
            tags.read0.enable.eq(self.look),
            ages.asked.eq(asked_place),
            ages.look.eq(self.look),
            ages.touch.eq(self.touch),
            ages.reported.eq(reported_place),
            ages.begins.eq(begins),
            ages.clear.eq(self.clear),
            ages.tick.eq(self.tick),
            self.tag.eq(tags.read0.row),
            self.found.eq(ages.young & same.all() & ~clearing & ~replaced),
        ]
        # Compared in pieces: a RAM's output is late.
        mine, asked = self.tag.wanted.as_value(), self.wanted.as_value()
        m.d.sync += [
            same[n].eq(mine[3 * n : 3 * n + 3] == asked[3 * n : 3 * n + 3])
            for n in range(len(same))
        ]

        return m
