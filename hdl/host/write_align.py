"""Moves a burst from "byte 0 in lane 0" to the lanes of its address."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.count import raised
from hdl.common.shift import keep_mask, shifted

__all__ = ["WriteAlign", "aligned_beat", "arriving_beat"]


def arriving_beat(width: int) -> data.StructLayout:
    """One beat of a client. ``count``: its bytes, from lane 0 on, to be moved up by ``up`` lanes.

    ``placed``: of a ``placed_beat``: the bytes for lanes ``start`` to ``count`` - 1 of one aligned
    beat. ``drop`` ends a burst that was cut off, and carries no data."""
    lanes = ceil_log2(width // 8)
    return data.StructLayout(
        {
            "stream_id": 4,
            "function": 8,
            "line": 64 - lanes,
            "data": width,
            "up": lanes,
            "start": lanes,
            "count": lanes + 1,
            "placed": 1,
            "first": 1,
            "last": 1,
            "drop": 1,
        }
    )


def aligned_beat(width: int) -> data.StructLayout:
    """One beat in address lanes. ``drop`` ends a burst that was cut off, and carries no data."""
    return data.StructLayout(
        {
            "stream_id": 4,
            "function": 8,
            "addr": 64,  # of lane 0
            "data": width,
            "strb": width // 8,
            "bytes": range(width // 8 + 1),  # number of bits set in strb
            "last": 1,  # of the burst
            "drop": 1,
        }
    )


class WriteAlign(wiring.Component):
    """Moves each beat by the burst's address and joins it with the rest of the beat before.

    Latency: 2 cycles. Throughput: one beat per cycle; a burst whose last beat does not fit into one
    aligned beat takes one more cycle, unless it was ``placed``. ``drop`` entries (the burst's
    client was reset) pass through in order. Reset: empty.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "i": In(stream.Signature(arriving_beat(width))),
                "o": Out(stream.Signature(aligned_beat(width))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, count = self._width, self._width // 8
        lanes = ceil_log2(count)
        beat, out = self.i.payload, self.o.payload

        # The pipeline moves as one: ``move`` is low while the output waits. A burst's last beat
        # stays at the input for a second time when its bytes do not fit into one aligned beat.
        move, spills, spilling = Signal(), Signal(), Signal()
        total = Signal(lanes + 1)  # one past the last lane, the next aligned beat's counted on
        begins = beat.first & ~spilling
        m.d.comb += [
            move.eq(~self.o.valid | self.o.ready),
            total.eq(beat.count + beat.up),
            # Whether there is a byte for the first lane of the next aligned beat.
            spills.eq(
                beat.last
                & ~(beat.drop | beat.placed | spilling)
                & total[lanes]
                & total[:lanes].any()
            ),
            self.i.ready.eq(move & ~spills),
        ]

        # First cycle: coarse shift over two beats, and what the entry is. One digit of the shift
        # in a cycle, because Yosys makes half as many tables more of two.
        before = Signal(width, reset_less=True)
        # By 0 to size - 1 bytes less than a beat, and one: so a shift by 0 needs no bit more.
        window = shifted(m, Cat(before, beat.data)[8:], ~beat.up[4:], 8 << 4, "window")
        coarse = Signal(len(window), reset_less=True)
        shift = Signal(min(4, lanes), reset_less=True)
        valid = Signal()
        facts = data.StructLayout(
            {
                "stream_id": 4,
                "function": 8,
                "line": 64 - lanes,
                "start": lanes,  # first lane with a byte of the burst
                "stop": lanes + 1,  # one past the last
                "last": 1,
                "drop": 1,
            }
        )
        now = Signal(facts, reset_less=True)
        with m.If(move):
            m.d.sync += [
                valid.eq(self.i.valid),
                spilling.eq(self.i.valid & spills),
                coarse.eq(window),
                shift.eq(~beat.up[:4]),
                now.start.eq(Mux(beat.placed, beat.start, Mux(begins, beat.up, 0))),
                now.last.eq(beat.last & ~spills),
                now.drop.eq(beat.drop),
            ]
            with m.If(beat.placed):
                m.d.sync += now.stop.eq(beat.count)
            with m.Else():
                m.d.sync += now.stop.eq(Mux(total[lanes] & ~spilling, count, total[:lanes]))
        with m.If(move & self.i.valid):
            m.d.sync += before.eq(beat.data)
            with m.If(begins):
                m.d.sync += [
                    now.stream_id.eq(beat.stream_id),
                    now.function.eq(beat.function),
                    now.line.eq(beat.line),
                ]
            with m.Else():
                m.d.sync += now.line.eq(raised(now.line, Const(1)))

        # Second cycle; the last digit comes behind the register.
        middle = shifted(m, coarse, shift[2:], 8 << 2, "middle")
        fine, last_shift = Signal(len(middle), reset_less=True), Signal(2, reset_less=True)
        with m.If(move):
            m.d.sync += [
                self.o.valid.eq(valid),
                out.stream_id.eq(now.stream_id),
                out.function.eq(now.function),
                out.addr.eq(Cat(Const(0, lanes), now.line)),
                fine.eq(middle),
                last_shift.eq(shift),
                out.strb.eq(keep_mask(now.stop, count) & ~keep_mask(now.start, count)),
                out.bytes.eq(now.stop - now.start),
                out.last.eq(now.last),
                out.drop.eq(now.drop),
            ]
        m.d.comb += [
            out.data.eq(shifted(m, fine, last_shift, 8, "data")),
            self.busy.eq(valid | self.o.valid),
        ]
        return m
