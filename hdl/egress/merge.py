"""Joins headers and payload to frames."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.packet import packet_stream
from hdl.common.shift import shifted
from hdl.config import NicConfig
from hdl.ports.headers import Departure
from hdl.wire.constants import ip_offset
from hdl.wire.headers import IPV4

from .rows import beat_number, head, head_bytes, sealed_beat

__all__ = ["Merge"]


class Merge(wiring.Component):
    """One beat of a frame in each cycle: header bytes, payload moved behind them, zeros.

    A packet's beats follow the last one of the packet before without a gap. A frame has at least as
    many beats as its payload, so one payload beat at most is needed for each.
    Members: ``heads``, ``headers`` (bytes of these packets, no later), ``payload`` In; ``go``:
    there is room for one more beat; ``stepped``: it was begun; ``sent``: it is the last one of a
    packet whose sender wants to be told, which goes out ``spoiled``; ``departed``: likewise, of a
    packet that has something to be noted, a cycle later; ``o_valid``, ``o`` Out: frames
    with zeros in place of the ICRC.
    Latency: 1 cycle, and one level of shifter. Throughput: one beat per cycle.
    Waits: a beat that needs payload waits for it, also in the middle of a frame.
    Errors: ``error`` of the head or of the payload goes to the frame's last beat. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._width = config, (width := config.width)
        super().__init__(
            {
                "heads": In(stream.Signature(head(width))),
                "headers": In(stream.Signature(8 * head_bytes(config))),
                "payload": In(packet_stream(width)),
                "go": In(1),
                "stepped": Out(1),
                "sent": Out(1),
                "spoiled": Out(1),
                "departed": Out(stream.Signature(Departure, always_ready=True)),
                "o_valid": Out(1),
                "o": Out(sealed_beat(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, size = self._width, self._width // 8
        lane_bits = ceil_log2(size)
        counts = beat_number(width)

        # The packet being sent: its lengths stay at the input until its last beat.
        now, failed = self.heads.p.lengths, Signal()
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
            self.sent.eq(step & last & now.told),
            self.spoiled.eq(now.error | failed | failing),
        ]
        m.d.sync += [
            self.departed.valid.eq(step & last & (now.departure.counts | now.departure.answer)),
            self.departed.payload.eq(now.departure),
        ]
        with m.If(step):
            m.d.sync += [
                number.eq(Mux(last, 0, number + 1)),
                wanted.eq(Mux(needs, remaining - 1, remaining)),  # ``needs`` comes late
                failed.eq((failed | failing) & ~last),
            ]

        # The beat that this step makes.
        valid, facts = Signal(), Signal(sealed_beat(width), reset_less=True)
        m.d.sync += [
            valid.eq(step),
            facts.first.eq(first),
            facts.last.eq(last),
            # Final from the last payload beat on, and the ICRC never starts before that.
            facts.error.eq(self.spoiled),
            facts.frame.eq(now.frame),
            facts.number.eq(number),
            facts.vlan.eq(now.vlan),
            facts.ipv6.eq(now.ipv6),
            facts.ends.eq(number == end_beat),
            facts.skip.eq(number > end_beat),
            facts.tail.eq((number == end_beat + 1) & (place == size - 2)),
            facts.place.eq(place),
        ]

        # Payload moves up by the headers' length, which is 2 modulo 4: the bytes of this beat and
        # the one before, from a word on, and with each whether it is payload at all.
        words = lane_bits - 2
        fine = min(2, words)  # bits of the shift that are left to the next cycle
        before, before_keep = Signal(width, reset_less=True), Signal(size)
        keep = Mux(needs, self.payload.p.keep, 0)
        with m.If(step):
            m.d.sync += [
                before.eq(self.payload.p.data),
                before_keep.eq(Mux(last, 0, keep)),
            ]
        reach = 4 << fine  # bytes of which the next cycle takes a beat are that less one word more
        moved = Signal(width + 8 * (reach - 4), reset_less=True)
        shift = Signal(fine, reset_less=True)
        coarse = ~now.size[2 + fine : lane_bits]
        window = Cat(before, self.payload.p.data)[16:-16]
        window_keep = Cat(before_keep, keep)[2:-2]
        bytes_ = shifted(m, window, coarse, 8 * reach, "bytes")
        kept = shifted(m, window_keep, coarse, reach, "kept")
        m.d.sync += [
            # Byte by byte: a register's reset instead of a table for each bit.
            moved.eq(Cat(Mux(kept[n], bytes_.word_select(n, 8), 0)[:8] for n in range(len(kept)))),
            shift.eq(~now.size[2 : 2 + fine]),
        ]

        # Headers, then payload, then zeros. The headers' bytes leave their FIFO a cycle late.
        parts = -(-head_bytes(self._config) // size)
        headers = Signal(parts * width)
        # Behind the tag or without it; of an IPv6 header there is none.
        checksum = Signal(16, reset_less=True)
        with m.If(now.ipv6):
            m.d.sync += checksum.eq(0)
        with m.Else():
            m.d.sync += checksum.eq(self.heads.p.checksum)
        m.d.comb += headers.eq(self.headers.p)
        for vlan in (False, True):
            at = ip_offset(vlan=vlan) + IPV4["checksum"].byte
            with m.If(facts.vlan == vlan):
                m.d.comb += headers[8 * at :][:16].eq(self.headers.p[8 * at :][:16] | checksum)
        header = headers.word_select(facts.number[: ceil_log2(parts)], width)
        payload = shifted(m, moved, shift, 32, "payload")
        m.d.comb += [
            self.headers.ready.eq(valid & facts.last),
            self.o_valid.eq(valid),
            self.o.eq(facts),
            self.o.data.eq(payload | (header & (facts.number < parts).replicate(width))),
        ]
        return m
