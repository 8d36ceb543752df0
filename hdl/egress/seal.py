"""Computes each frame's ICRC and puts it in its place."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.crc import CrcBeats, CrcUnfill, IcrcMask
from hdl.common.delay import Delay, delayed
from hdl.ports.packet import packet_beat

from .rows import sealed_beat

__all__ = ["Seal"]


class Seal(wiring.Component):
    """Frames with zeros in place of the ICRC -> frames with it.

    Spec: RoCE v2 (IBTA Annex A17), A17.3.3. The ICRC starts 2 modulo 4 bytes into a frame: in the
    beat of the last byte that it covers, and it may end in the next one.
    Members: ``valid``, ``i`` In; ``o_valid``, ``o`` Out. Latency: ``latency`` cycles. Throughput:
    one beat per cycle, no stall. Errors: a frame with ``error`` gets a wrong ICRC. Reset: nothing
    in flight.
    """

    def __init__(self, *, width: int):
        self._width = width
        # The ICRC starts 2 modulo 4, so what fills its beat is that as well.
        self._unfill = CrcUnfill(width=width, step=4, least=2)
        self._wait = 1 + CrcBeats.LATENCY + CrcUnfill.LATENCY
        self.latency = self._wait + 1
        super().__init__(
            {
                "valid": In(1),
                "i": In(sealed_beat(width)),
                "o_valid": Out(1),
                "o": Out(packet_beat(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, size = self._width, self._width // 8
        m.submodules.mask = mask = IcrcMask(width=width)
        m.submodules.crc = crc = CrcBeats(width=width)
        m.submodules.unfill = unfill = self._unfill
        m.submodules.waiting = waiting = Delay(shape=sealed_beat(width), cycles=self._wait)
        valid = Signal(self._wait)
        fill = Signal.like(self.i.place, reset_less=True)
        m.d.sync += [
            valid.eq(valid << 1 | self.valid),
            crc.data.eq(mask.masked),
            crc.first.eq(self.i.first),
            crc.skip.eq(self.i.skip),
            fill.eq(-self.i.place),
        ]
        m.d.comb += [
            mask.data.eq(self.i.data),
            mask.number.eq(Mux(self.i.number >= mask.beats, mask.beats, self.i.number)),
            mask.vlan.eq(self.i.vlan),
            mask.ipv6.eq(self.i.ipv6),
            crc.valid.eq(valid[0]),
            unfill.state.eq(crc.state),
            unfill.fill.eq(delayed(m, fill, CrcBeats.LATENCY, name="fill")),
            waiting.i.eq(self.i),
            waiting.i_valid.eq(self.valid),
        ]

        # Into one of the places 2, 6, 10, ...; the last one reaches into the next beat.
        beat = waiting.o
        spoiled = unfill.crc ^ beat.error.replicate(32)
        upper = Signal(16, reset_less=True)
        with m.If(valid[-1]):
            m.d.sync += upper.eq(spoiled[16:])
        slots = [Mux(beat.ends & (beat.place == at), spoiled, 0) for at in range(2, size, 4)]
        tail = Mux(beat.tail, upper, 0)
        placed = Cat(tail, *slots)[:width]
        tail_bytes = beat.frame[: ceil_log2(size)]
        keep = Cat(Const(1), (tail_bytes > lane for lane in range(1, size)))
        m.d.sync += [
            self.o_valid.eq(valid[-1]),
            self.o.data.eq(beat.data | placed),
            self.o.keep.eq(Mux(beat.last & (tail_bytes != 0), keep, Const(-1, size))),
            self.o.first.eq(beat.first),
            self.o.last.eq(beat.last),
            self.o.error.eq(beat.error & beat.last),
        ]
        return m
