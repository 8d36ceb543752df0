"""Moves a burst from "byte 0 in lane 0" to the lanes of its address."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.count import raised
from hdl.common.shift import keep_count, keep_mask, shifted
from hdl.ports.host import write_beat

__all__ = ["WriteAlign", "aligned_beat"]


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
    """Moves every beat by the burst's address and joins it with what the one before left over.

    Latency: 2 cycles. Throughput: one beat per cycle; a burst whose last beat does not fit into one
    aligned beat takes one more cycle. ``drop`` entries (the burst's client was reset) pass through
    in order. Reset: empty.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "i": In(
                    stream.Signature(data.StructLayout({"beat": write_beat(width), "drop": 1}))
                ),
                "o": Out(stream.Signature(aligned_beat(width))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, count = self._width, self._width // 8
        lanes = ceil_log2(count)
        fine = 2  # bits of the shift that are left to the second cycle
        # The pipeline moves as one: ``move`` is low while the output waits.
        move, step = Signal(), Signal()
        spilling = Signal()  # the burst's input is over, ``before`` holds its last bytes
        beat, drop = self.i.payload.beat, self.i.payload.drop
        out = self.o.payload
        m.d.comb += [
            move.eq(~self.o.valid | self.o.ready),
            step.eq(move & ~spilling),
            self.i.ready.eq(step),
        ]

        # Where the burst's bytes lie. The address lanes of its first beat serve all of it.
        burst_lanes, offset = Signal(lanes, reset_less=True), Signal(lanes)
        first = beat.first & ~spilling
        total = Signal(lanes + 1)  # one past the last lane, the next aligned beat's counted on
        over = Signal(lanes, reset_less=True)  # bytes that did not fit into this aligned beat
        spills = Signal()
        m.d.comb += [
            offset.eq(Mux(first, beat.addr[:lanes], burst_lanes)),
            total.eq(keep_count(beat.keep) + offset),
            spills.eq(beat.last & ~drop & total[lanes] & (total[:lanes] != 0)),
        ]

        # First cycle: coarse shift over two beats, and what the entry is.
        before = Signal(width, reset_less=True)
        window = Cat(before, beat.data)[8:]  # a shift by nothing would leave ``before`` alone out
        coarse = Signal(width + (8 << fine) - 8, reset_less=True)
        shift = Signal(fine, reset_less=True)
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
                valid.eq(self.i.valid | spilling),
                spilling.eq(self.i.valid & step & spills),
                coarse.eq(shifted(window, ~offset[fine:], 8 << fine)),
                shift.eq(~offset[:fine]),
                now.start.eq(Mux(first, offset, 0)),
                now.last.eq(spilling | (beat.last & ~spills)),
                now.drop.eq(drop & ~spilling),
            ]
            with m.If(spilling):
                m.d.sync += now.stop.eq(over)
            with m.Elif(total[lanes]):
                m.d.sync += now.stop.eq(count)
            with m.Else():
                m.d.sync += now.stop.eq(total)
            # The address stays here between a burst's beats.
            with m.If(self.i.valid | spilling):
                m.d.sync += now.line.eq(raised(now.line, Const(1)))
        with m.If(step & self.i.valid):
            m.d.sync += [before.eq(beat.data), over.eq(total)]
            with m.If(beat.first):
                m.d.sync += [
                    burst_lanes.eq(beat.addr),
                    now.stream_id.eq(beat.stream_id),
                    now.function.eq(beat.function),
                    now.line.eq(beat.addr[lanes:]),
                ]

        # Second cycle: the rest of the shift.
        with m.If(move):
            m.d.sync += [
                self.o.valid.eq(valid),
                out.stream_id.eq(now.stream_id),
                out.function.eq(now.function),
                out.addr.eq(Cat(Const(0, lanes), now.line)),
                out.data.eq(shifted(coarse, shift, 8)),
                out.strb.eq(keep_mask(now.stop, count) & ~keep_mask(now.start, count)),
                out.bytes.eq(now.stop - now.start),
                out.last.eq(now.last),
                out.drop.eq(now.drop),
            ]
        m.d.comb += self.busy.eq(valid | spilling | self.o.valid)
        return m
