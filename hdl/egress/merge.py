"""Joins headers and payload to frames."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.delay import delayed
from hdl.common.rotate import pipelined_rotate
from hdl.ports.packet import packet_stream

from .rows import head, sealed_beat

__all__ = ["Merge"]


class Merge(wiring.Component):
    """One beat of a frame in each cycle: header bytes, payload moved behind them, zeros.

    A packet's beats follow the last one of the packet before without a gap. A frame has at least as
    many beats as its payload, so one payload beat at most is needed for each.
    Members: ``heads``, ``payload`` In; ``go``: there is room for one more beat, ``stepped``: it was
    begun; ``o_valid``, ``o`` Out: frames with zeros in place of the ICRC. Latency: 3 cycles.
    Throughput: one beat per cycle.
    Who waits: a beat that needs payload waits for it, also in mid-frame. Errors: ``error`` of the
    head or of the payload goes to the frame's last beat. Reset: empty.
    """

    ROTATE = 2

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "heads": In(stream.Signature(head(width))),
                "payload": In(packet_stream(width)),
                "go": In(1),
                "stepped": Out(1),
                "o_valid": Out(1),
                "o": Out(sealed_beat(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, size = self._width, self._width // 8
        lane_bits = ceil_log2(size)
        beat = Signal(sealed_beat(width), reset_less=True)
        counts = beat.number.shape()

        # The packet being sent: its headers stay at the input until its last beat.
        now, failed = self.heads.p, Signal()
        number, end_beat = Signal(counts), Signal(counts)
        first = number == 0
        wanted = Signal(14 - lane_bits)  # payload beats not yet taken, from the second beat on
        place = now.check[:lane_bits]
        remaining = Signal.like(wanted)
        reached, needs, step, last = Signal(), Signal(), Signal(), Signal()
        failing = needs & self.payload.p.error & self.payload.p.last
        m.d.comb += [
            reached.eq(number >= now.size[lane_bits:]),
            remaining.eq(Mux(first, now.beats, wanted)),
            needs.eq(reached & (remaining != 0)),
            step.eq(self.heads.valid & self.go & (~needs | self.payload.valid)),
            self.stepped.eq(step),
            last.eq(number == now.last_beat),
            end_beat.eq(now.check >> lane_bits),
            self.payload.ready.eq(self.heads.valid & self.go & needs),
            self.heads.ready.eq(step & last),
        ]
        with m.If(step):
            m.d.sync += [
                number.eq(Mux(last, 0, number + 1)),
                wanted.eq(Mux(needs, remaining - 1, remaining)),  # ``needs`` comes late
                failed.eq((failed | failing) & ~last),
            ]
        # Headers, then zeros.
        parts = len(now.bytes) // width
        header = now.bytes.word_select(number[: ceil_log2(parts)], width)

        # What this step makes of it.
        taken = Signal(width, reset_less=True)
        bits = Cat(self.payload.p.keep[lane].replicate(8) for lane in range(size))
        facts = Signal(sealed_beat(width), reset_less=True)
        carries, carry = Signal(reset_less=True), Signal()
        m.d.comb += carry.eq(reached & (number != now.size[lane_bits:]))
        m.d.sync += [
            taken.eq(Mux(needs, self.payload.p.data & bits, 0)),
            carries.eq(carry),
            facts.data.eq(Mux(number < parts, header, 0)),
            facts.first.eq(first),
            facts.last.eq(last),
            # Final from the last payload beat on, and the ICRC never starts before that.
            facts.error.eq(now.error | failed | failing),
            facts.frame.eq(now.frame),
            facts.number.eq(number),
            facts.vlan.eq(now.vlan),
            facts.ipv6.eq(now.ipv6),
            facts.ends.eq(number == end_beat),
            facts.skip.eq(number > end_beat),
            facts.tail.eq((number == end_beat + 1) & (place == size - 2)),
            facts.place.eq(place),
        ]
        shift = Signal(lane_bits, reset_less=True)
        m.d.sync += shift.eq(now.size[:lane_bits])

        # Rotate the payload; a beat's upper bytes go into the frame's next beat.
        rotated = pipelined_rotate(m, taken, shift, left=True, stages=self.ROTATE, name="payload")
        valid = Signal(1 + self.ROTATE)
        m.d.sync += valid.eq(valid << 1 | step)
        facts_late = data.View(
            sealed_beat(width), delayed(m, Value.cast(facts), self.ROTATE, name="facts")
        )
        carries_late = delayed(m, carries, self.ROTATE, name="carries")
        shift_late = delayed(m, shift, self.ROTATE, name="shift")
        before = Signal(width, reset_less=True)
        own = Signal(width)
        m.d.comb += own.eq(Cat((shift_late <= lane).replicate(8) for lane in range(size)))
        with m.If(valid[-1]):
            m.d.sync += before.eq(rotated)
        m.d.comb += [
            self.o_valid.eq(valid[-1]),
            self.o.eq(facts_late),
            self.o.data.eq(facts_late.data | (rotated & own) | Mux(carries_late, before & ~own, 0)),
        ]
        return m
