"""The records of the QPs on their way: beats to rows, and rows to beats."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RecordIn", "RecordOut", "beats_of"]


def beats_of(bits: int, width: int) -> int:
    """Return the beats of ``width`` bits that a record of ``bits`` has."""
    return -(-bits // width)


class RecordIn(wiring.Component):
    """Gathers the beats of a record, then offers it until each table has taken its row.

    Members: ``i``: beats; ``fill``: places of the records in their order; ``clear``: a place that
    gets zeros, which goes first. ``record`` Out, or ``zeros`` Out: what goes to ``place`` Out;
    ``left`` Out: tables (a bit each) that are still to take it, ``taken`` In: they do in this
    cycle. ``done`` Out: all have. ``lost`` Out: in that cycle, the record could not be read, and
    was taken for zeros.
    Latency: 2 cycles from the last beat, or from ``clear``, to ``left``; ``done`` a cycle behind
    the last table. Throughput: a beat a cycle, and a record in its beats and 4 cycles.
    Errors: ``lost``. Reset: empty.
    """

    def __init__(self, *, bits: int, width: int, places: int, tables: int):
        self._beats = beats_of(bits, width)
        beat = data.StructLayout({"data": width, "last": 1, "error": 1})
        super().__init__(
            {
                "i": In(stream.Signature(beat)),
                "fill": In(stream.Signature(range(places))),
                "clear": In(stream.Signature(range(places))),
                "record": Out(bits),
                "zeros": Out(1),
                "place": Out(range(places)),
                "left": Out(tables),
                "taken": In(tables),
                "done": Out(1),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat = self.i.payload
        width, count = len(beat.data), Signal(range(self._beats + 1))
        whole, bad = Signal(), Signal()  # a record is complete; it is lost
        stored = Signal(width * self._beats, reset_less=True)
        m.d.comb += [self.record.eq(stored), self.i.ready.eq(~whole)]
        with m.If(self.i.valid & ~whole):
            m.d.sync += [count.eq(count + 1), whole.eq(beat.last)]
            with m.If(beat.last):
                m.d.sync += [count.eq(0), bad.eq(beat.error)]
            for n in range(self._beats):
                with m.If(count == n):
                    m.d.sync += stored[n * width : (n + 1) * width].eq(beat.data)
        with m.FSM(name="record"):
            # WAIT: nothing is to be written; ends with a place to clear or a complete record.
            with m.State("WAIT"):
                m.d.sync += self.zeros.eq(self.clear.valid | bad)
                m.d.comb += self.clear.ready.eq(1)
                with m.If(self.clear.valid):
                    m.d.sync += [self.place.eq(self.clear.payload), self.left.eq(~0)]
                    m.next = "CLEAR"
                with m.Elif(whole & self.fill.valid):
                    m.d.sync += [self.place.eq(self.fill.payload), self.left.eq(~0)]
                    m.next = "FILL"
            # CLEAR: each table's row gets zeros; ends when all have.
            with m.State("CLEAR"):
                m.d.sync += self.left.eq(self.left & ~self.taken)
                with m.If(self.left == 0):
                    m.d.comb += self.done.eq(1)
                    m.next = "WAIT"
            # FILL: each table takes its row; ends when all have.
            with m.State("FILL"):
                m.d.sync += self.left.eq(self.left & ~self.taken)
                with m.If(self.left == 0):
                    m.d.comb += [self.done.eq(1), self.fill.ready.eq(1), self.lost.eq(bad)]
                    m.d.sync += whole.eq(0)
                    m.next = "WAIT"
        return m


class RecordOut(wiring.Component):
    """Hands the beats of a record over, which stays until ``done``.

    Members: ``record`` In; ``start`` In: it is here from the next cycle on; ``o``: its beats;
    ``done`` Out: the last one is taken. Latency: 2 cycles from ``start`` to the first beat.
    Throughput: a beat in 2 cycles. Errors: none. Reset: idle.
    """

    def __init__(self, *, bits: int, width: int):
        self._beats, self._bits = beats_of(bits, width), bits
        beat = data.StructLayout({"data": width, "last": 1})
        super().__init__(
            {
                "record": In(bits),
                "start": In(1),
                "o": Out(stream.Signature(beat)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat, busy = self.o.payload, Signal()
        width, count = len(beat.data), Signal(range(self._beats))
        padded = Cat(self.record, Const(0, width * self._beats - self._bits))
        last = count == self._beats - 1
        with m.If(self.start):
            m.d.sync += [busy.eq(1), count.eq(0)]
        # A RAM's output is late: the beat is chosen in a cycle of its own.
        with m.If(busy & ~self.o.valid):
            m.d.sync += [
                self.o.valid.eq(1),
                beat.data.eq(padded.word_select(count, width)),
                beat.last.eq(last),
            ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [self.o.valid.eq(0), count.eq(count + 1)]
            with m.If(beat.last):
                m.d.sync += busy.eq(0)
                m.d.comb += self.done.eq(1)
        return m
