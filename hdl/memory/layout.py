"""Walks the layouts of indirect keys, whose entries lie on the card."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.count import raised
from hdl.common.ram import Ram
from hdl.common.sums import wide_difference, wide_sum
from hdl.config import NicConfig
from hdl.ports.keys import LayoutEntry, LayoutWrite, layout_of, layout_place

from .types import KeyedRequest, KeyEntry

__all__ = ["LayoutWalk"]

#: Bits of an offset in a layout: its length has one less.
OFFSET = 48
#: Bits of an offset in the entries of a layout: 32 of them have 2**31 bytes each, at most.
PLACE = 37
#: Bits of the bytes of a row of entries that repeats, and of the number of a row.
ROW = 32


class LayoutReader(wiring.Component):
    """Reads the entries of an indirect key, from the first on, behind the last one again.

    Members: ``restart`` In, a cycle: begin with the first one; ``i``: the request that names the
    key, and its row, stable from then on; ``valid`` with ``entry`` Out: the next entry, which is
    ``stale`` if it is of another layout; ``take`` In: it is taken; ``ends`` Out: it is the last of
    its row; ``write`` In: an entry is set.
    Latency: 3 cycles. Throughput: an entry per cycle. Reset: nothing is read, entries are kept.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "restart": In(1),
                "i": In(KeyedRequest),
                "write": In(LayoutWrite),
                "valid": Out(1),
                "entry": Out(LayoutEntry),
                "stale": Out(1),
                "ends": Out(1),
                "take": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, layout = self._config, layout_of(self.i.row)
        slots = (config.max_sge - 1).bit_length()
        places = config.layouts << config.ordinal_bits + slots
        # An entry that is being set is stale or fresh: its generation is read with it.
        m.submodules.entries = entries = Ram(shape=LayoutEntry, depth=max(2, places), forward=False)
        nth, last = Signal(6), Signal()  # to be read, and whether it is the last of its row
        read, read_last = Signal(), Signal(reset_less=True)  # the RAM shows the next entry
        fetch, move = Signal(), Signal()
        m.d.comb += [
            last.eq(nth == (layout.entries - 1)[:6]),
            move.eq(read & (~self.valid | self.take)),
            fetch.eq(~self.restart & (~read | move)),
            entries.read0.index.eq(
                layout_place(config, self.i.request.function, self.i.request.key, nth)
            ),
            entries.read0.enable.eq(fetch),
            entries.write.enable.eq(self.write.valid),
            entries.write.index.eq(self.write.place),
            entries.write.row.eq(self.write.entry),
            # Behind a register: the RAM is late.
            self.stale.eq(self.entry.generation != layout.generation),
        ]
        with m.If(self.take):
            m.d.sync += self.valid.eq(0)
        with m.If(move):
            m.d.sync += [
                self.valid.eq(1),
                read.eq(0),
                self.entry.eq(entries.read0.row),
                self.ends.eq(read_last),
            ]
        with m.If(fetch):
            m.d.sync += [read.eq(1), read_last.eq(last), nth.eq(Mux(last, 0, nth + 1))]
        with m.If(self.restart):
            m.d.sync += [nth.eq(0), read.eq(0), self.valid.eq(0)]
        return m


class LayoutWalk(wiring.Component):
    """Gives the ranges that a request's bytes are under an indirect key of CREATE_MKEY.

    Spec: docs/extensions.md (indirect keys): entry i has ``count`` bytes at ``addr``; an offset
    counts through the entries in their order, of a layout that repeats in row r at ``addr`` plus r
    times ``stride``. Entries of no bytes are passed over.
    Members: those of ``walk_members`` (hdl/memory/resolve.py) but for ``read_client``; ``layout``:
    an entry is set.
    Latency: 5 cycles to the first range, and one for each entry that is passed over; ``OFFSET``
    more behind the first row of a layout that repeats, for the division, and with each range there
    as many as its row's number has bits. Throughput: a range in 3 cycles, and these.
    Errors: ``refused`` for an entry of another layout than the row's, and for a row in which no
    entry has a byte. Reset: idle; entries are kept.
    """

    #: The entries are not in host memory.
    ON_CARD = True

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(KeyedRequest)),
                "o": Out(stream.Signature(KeyEntry)),
                "layout": In(LayoutWrite),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = LayoutReader(config=self._config)
        walked = Signal(KeyedRequest, reset_less=True)
        m.d.comb += [reader.write.eq(self.layout), reader.i.eq(walked)]
        entry, range_ = reader.entry, self.o.payload
        place = Signal(PLACE, reset_less=True)  # in the entries that follow
        left = Signal(32, reset_less=True)  # bytes of the request
        row = Signal(ROW, reset_less=True)
        barren = Signal(7, reset_less=True)  # entries passed over, one after the other
        # A range, and what is to be added to its address: the entry's stride for each row.
        span, times = Signal(32, reset_less=True), Signal(ROW, reset_less=True)
        stride = Signal(64, reset_less=True)
        behind = wide_difference(m, place, entry.count)
        address = wide_sum(m, entry.addr, place)[:64]
        moved = wide_sum(m, range_.va, stride)[:64]
        # Of an entry that has the place, which then has as few bits as its bytes.
        rest_of_entry = wide_difference(m, entry.count, place[:32])[:32]
        fits = wide_difference(m, span, left)
        # A register: a row that has a byte does not end in the cycle in which another has begun.
        next_row = Signal(ROW, reset_less=True)
        m.d.sync += next_row.eq(raised(row, Const(1)))
        rest_left = wide_difference(m, left, range_.length)[:32]

        with m.FSM(name="walk"):
            # IDLE: takes a request; ends with one.
            with m.State("IDLE"):
                m.d.comb += [self.i.ready.eq(1), reader.restart.eq(1)]
                m.d.sync += [walked.eq(self.i.payload), barren.eq(0), row.eq(0)]
                m.d.sync += left.eq(self.i.p.request.length)
                with m.If(self.i.valid):
                    m.next = "BEGIN"
            self._find_row(m, walked, place, row)
            # SEEK: passes over entries until one has the place; ends with it, or when the entries
            # are not those of the row.
            with m.State("SEEK"):
                m.d.sync += [
                    span.eq(rest_of_entry),
                    range_.va.eq(address),
                    range_.key.eq(entry.key),
                    stride.eq(entry.stride),
                    times.eq(row),
                ]
                with m.If(reader.valid):
                    with m.If(reader.stale | barren[6]):
                        m.next = "REFUSE"
                    with m.Elif(behind[PLACE]):
                        m.d.comb += reader.take.eq(1)
                        m.d.sync += [place.eq(behind[:PLACE]), barren.eq(barren + 1)]
                        with m.If(reader.ends):
                            m.d.sync += row.eq(next_row)
                    with m.Else():
                        m.next = "RANGE"
            # RANGE: takes as much of the entry as the request has; one cycle.
            with m.State("RANGE"):
                m.d.comb += reader.take.eq(1)
                m.d.sync += [
                    range_.length.eq(Mux(fits[32], left, span)),
                    range_.last.eq(fits[32]),
                    range_.refused.eq(0),
                    place.eq(0),
                    barren.eq(0),
                ]
                with m.If(reader.ends):
                    m.d.sync += row.eq(next_row)
                m.next = "OFFER"
                with m.If(times != 0):
                    m.next = "MOVE"
            # MOVE: adds the strides of the rows before; ends when all have been added.
            with m.State("MOVE"):
                with m.If(times[0]):
                    m.d.sync += range_.va.eq(moved)
                m.d.sync += [times.eq(times[1:]), stride.eq(Cat(0, stride))]
                with m.If(times[1:] == 0):
                    m.next = "OFFER"
            # OFFER: gives the range; ends when it is taken.
            with m.State("OFFER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += left.eq(rest_left)
                    m.next = "SEEK"
                    with m.If(range_.last):
                        m.next = "IDLE"
            # REFUSE: makes the next range one that is refused; one cycle.
            with m.State("REFUSE"):
                m.d.sync += [range_.refused.eq(1), range_.last.eq(1), range_.length.eq(1)]
                m.next = "OFFER"
        return m

    def _find_row(self, m: Module, walked, place: Signal, row: Signal) -> None:
        """The row that the offset lies in, and its place there: of an interleaved layout the offset
        is divided by the bytes of a row."""
        row_bytes = layout_of(walked.row).row_bytes
        offset, rest = Signal(OFFSET, reset_less=True), Signal(ROW, reset_less=True)
        steps = Signal(range(OFFSET + 1), reset_less=True)
        later = Signal(reset_less=True)  # behind the first row
        next_rest = Cat(offset[-1], rest)
        taken_off = wide_difference(m, next_rest, row_bytes)
        # Less one: the first byte behind the row is not in it.
        within = wide_sum(m, row_bytes, ~walked.request.va[:ROW])
        # BEGIN: looks whether the offset lies in the first row; one cycle.
        with m.State("BEGIN"):
            va = walked.request.va
            m.d.sync += [
                place.eq(va),
                offset.eq(va),
                rest.eq(0),
                steps.eq(OFFSET - 1),
                later.eq((row_bytes != 0) & (va[ROW:OFFSET].any() | ~within[ROW])),
            ]
            m.next = "CHOOSE"
        # CHOOSE: has the row worked out if it is not the first; one cycle.
        with m.State("CHOOSE"):
            m.next = "SEEK"
            with m.If(later):
                m.next = "DIVIDE"
        # DIVIDE: divides the offset by the bytes of a row, a bit in a cycle; ends with the last
        # one.
        with m.State("DIVIDE"):
            fits_in = taken_off[ROW + 1]
            m.d.sync += [
                offset.eq(Cat(0, offset)),
                row.eq(Cat(fits_in, row)),
                rest.eq(Mux(fits_in, taken_off[:ROW], next_rest[:ROW])),
                place.eq(Mux(fits_in, taken_off[:ROW], next_rest[:ROW])),
                steps.eq(steps - 1),
            ]
            with m.If(steps == 0):
                m.next = "SEEK"
