"""ICRC and UDP checksum of the cut beats."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.checksum import BeatSum, plus
from hdl.common.crc import CrcBeats, residues
from hdl.common.delay import delayed

from .decoder import trimmed

__all__ = ["IcrcCheck", "UdpSum"]


class IcrcCheck(wiring.Component):
    """Tells whether the beats since ``first`` are a packet with a good ICRC at its end.

    Spec: RoCE v2 (IBTA Annex A17), A17.3.3. The ICRC is part of the CRC, which then is a
    constant, moved on by the zero bytes that fill the last beat. No fill has to be removed.
    Latency: ``LATENCY`` cycles from a beat to the ``ok`` that includes it. Throughput: one beat per
    cycle, gaps allowed. Reset: nothing in flight.
    """

    LATENCY = CrcBeats.LATENCY + 1

    def __init__(self, *, width: int):
        self._width = width
        super().__init__({"valid": In(1), "i": In(trimmed(width)), "ok": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.crc = crc = CrcBeats(width=self._width)
        stages = CrcBeats.LATENCY - 1
        taken = delayed(m, self.valid & (self.i.first | ~self.i.skip), stages, name="taken")
        staged = delayed(m, self.i.fill, stages, name="fill")
        fill = Signal.like(self.i.fill, reset_less=True)
        with m.If(taken):
            m.d.sync += fill.eq(staged)
        m.d.comb += [
            crc.valid.eq(self.valid),
            crc.first.eq(self.i.first),
            crc.skip.eq(self.i.skip),
            crc.data.eq(self.i.masked),
        ]
        m.d.sync += self.ok.eq(crc.state == Array(residues(self._width // 8))[fill])
        return m


class UdpSum(wiring.Component):
    """Tells whether the words since ``first`` and the rest of the pseudo header sum up to FFFFh.

    Spec: RFC 768, "Checksum"; RFC 8200, 8.1. Members: ``valid``, ``i``; ``pseudo``: the sum
    that the packet's words do not hold (protocol and UDP length, raw words), needed
    ``BeatSum.LATENCY`` cycles after the last beat. Latency: ``LATENCY`` cycles from a beat to the
    ``ok`` that includes it. Throughput: one beat per cycle. Reset: nothing in flight.
    """

    LATENCY = BeatSum.LATENCY + 3

    def __init__(self, *, width: int):
        self._width = width
        super().__init__({"valid": In(1), "i": In(trimmed(width)), "pseudo": In(17), "ok": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = BeatSum(width=self._width)
        total = Signal(32, reset_less=True)
        folded = Signal(17, reset_less=True)
        m.d.comb += [
            words.valid.eq(self.valid),
            words.first.eq(self.i.first),
            words.data.eq(self.i.words),
        ]
        m.d.sync += [
            total.eq(plus(words.sum, self.pseudo)),
            folded.eq(total[:16] + total[16:]),
            # Folded once more, FFFFh comes out of these two.
            self.ok.eq((folded == 0xFFFF) | (folded == 0x1FFFE)),
        ]
        return m
