"""Moves a burst from "byte 0 in lane 0" to the lanes of its address."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.count import raised
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


def rotate_left(m: Module, value, amount, stages: range, unit: int, name: str):
    """``value`` rotated left by ``unit`` bits times what bits ``stages`` of ``amount`` mean."""
    for k in stages:
        shifted = Signal(len(value), name=f"{name}{k}")
        m.d.comb += shifted.eq(Mux(amount[k], value.rotate_left(unit << k), value))
        value = shifted
    return value


class WriteAlign(wiring.Component):
    """Rotates every beat by the burst's address and joins it with what the one before left over.

    Latency: 3 cycles. Throughput: one beat per cycle; a burst whose last beat does not fit into one
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
        split = lanes // 2
        facts = data.StructLayout(
            {
                "stream_id": 4,
                "function": 8,
                "addr": 64,
                "size": range(count + 1),
                "first": 1,
                "last": 1,
                "drop": 1,
            }
        )
        # The pipeline moves as one: ``step`` is low while the output waits or a spill goes out.
        step = Signal()
        m.d.comb += self.i.ready.eq(step)

        # First half of the rotation. The address lanes of the burst's first beat serve all of it.
        beat = self.i.payload.beat
        burst_lanes, offset = Signal(lanes), Signal(lanes)
        m.d.comb += offset.eq(Mux(beat.first, beat.addr[:lanes], burst_lanes))
        half_valid, half = Signal(), Signal(facts, reset_less=True)
        half_data, half_keep = Signal(width, reset_less=True), Signal(count, reset_less=True)
        half_lanes = Signal(lanes, reset_less=True)
        tops = beat.keep & ~(beat.keep >> 1)  # one bit: the last byte
        size = Cat(
            (tops & Const(sum(1 << i for i in range(count) if (i + 1) >> bit & 1), count)).any()
            for bit in range(lanes + 1)
        )
        with m.If(step):
            m.d.sync += [
                half_valid.eq(self.i.valid),
                half_lanes.eq(offset),
                half_data.eq(
                    rotate_left(m, beat.data, offset, range(split, lanes), 8, "coarse_data")
                ),
                half_keep.eq(
                    rotate_left(m, beat.keep, offset, range(split, lanes), 1, "coarse_keep")
                ),
                half.stream_id.eq(beat.stream_id),
                half.function.eq(beat.function),
                half.addr.eq(beat.addr),
                half.size.eq(size),
                half.first.eq(beat.first),
                half.last.eq(beat.last),
                half.drop.eq(self.i.payload.drop),
            ]
            with m.If(self.i.valid & beat.first):
                m.d.sync += burst_lanes.eq(beat.addr[:lanes])

        # Second half.
        valid, now = Signal(), Signal(facts, reset_less=True)
        rotated, keep = Signal(width, reset_less=True), Signal(count, reset_less=True)
        low = Signal(count, reset_less=True)  # lanes below the burst's first: the next beat's
        shift = Signal(lanes, reset_less=True)
        with m.If(step):
            m.d.sync += [
                valid.eq(half_valid),
                now.eq(half),
                rotated.eq(rotate_left(m, half_data, half_lanes, range(split), 8, "fine_data")),
                keep.eq(rotate_left(m, half_keep, half_lanes, range(split), 1, "fine_keep")),
                low.eq(Cat((half_lanes > lane for lane in range(count - 1)), Const(0, 1))),
                shift.eq(half_lanes),
            ]

        # Join. What was rotated past the top waits in ``left``.
        left, left_keep = Signal(width, reset_less=True), Signal(count, reset_less=True)
        left_size = Signal(lanes + 1, reset_less=True)
        line = Signal(64 - lanes, reset_less=True)  # next aligned beat
        stream_id, function = Signal(4, reset_less=True), Signal(8, reset_less=True)
        spilling = Signal()  # the burst's input is over, ``left`` is its last beat
        move, spills = Signal(), Signal()
        over = Signal(lanes + 1)  # bytes that do not fit into this aligned beat
        total = Signal(lanes + 2)
        out = self.o.payload
        mask = Cat(bit.replicate(8) for bit in low)
        here = Signal(aligned_beat(width))
        first = now.first
        m.d.comb += [
            move.eq(~self.o.valid | self.o.ready),
            step.eq(move & ~spilling),
            total.eq(now.size + shift),
            over.eq(Mux(total > count, total - count, 0)),
            spills.eq(now.last & ~now.drop & (over != 0)),
            here.drop.eq(now.drop & ~spilling),
        ]
        with m.If(spilling):
            m.d.comb += [
                here.stream_id.eq(stream_id),
                here.function.eq(function),
                here.addr.eq(Cat(Const(0, lanes), line)),
                here.data.eq(left),
                here.strb.eq(left_keep),
                here.bytes.eq(left_size),
                here.last.eq(1),
            ]
        with m.Else():
            m.d.comb += [
                here.stream_id.eq(Mux(first, now.stream_id, stream_id)),
                here.function.eq(Mux(first, now.function, function)),
                here.addr.eq(Cat(Const(0, lanes), Mux(first, now.addr[lanes:], line))),
                here.data.eq((rotated & ~mask) | (left & mask)),
                here.strb.eq((keep & ~low) | Mux(first, 0, left_keep & low)),
                here.bytes.eq(now.size - over + Mux(first, 0, left_size)),
                here.last.eq(now.last & ~spills),
            ]
        with m.If(move):
            m.d.sync += [
                self.o.valid.eq(valid | spilling),
                out.eq(here),
                spilling.eq(valid & ~spilling & spills),
            ]
            with m.If(valid & ~spilling):
                m.d.sync += [
                    left.eq(rotated),
                    left_keep.eq(keep & low),
                    left_size.eq(over),
                    line.eq(raised(Mux(first, now.addr[lanes:], line), Const(1))),
                    stream_id.eq(here.stream_id),
                    function.eq(here.function),
                ]
        m.d.comb += self.busy.eq(half_valid | valid | spilling | self.o.valid)
        return m
