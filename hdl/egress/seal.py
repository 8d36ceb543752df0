"""Computes each frame's ICRC and puts it in its place."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.crc import CrcBeats, CrcUnfill, IcrcMask
from hdl.common.delay import delayed
from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_beat, packet_stream
from hdl.common.ram import WIDE_BITS
from hdl.common.skid import Stage

from .rows import sealed_beat

__all__ = ["Seal"]

#: Cycles from a beat to the ICRC of all bytes up to it.
WAIT = 1 + CrcBeats.LATENCY + CrcUnfill.LATENCY


class Seal(wiring.Component):
    """Puts the ICRC into frames that have zeros in its place; holds a FIFO of ``depth`` beats.

    Spec: RoCE v2 (IBTA Annex A17), A17.3.3. The ICRC starts 2 modulo 4 bytes into a frame: in the
    beat of the last byte that it covers, and it may end in the next one.
    Members: ``valid``, ``i`` In: at most ``depth`` beats that have not left yet; ``o`` Out.
    How: a beat waits in the FIFO while its ICRC is computed in a pipeline beside it.
    Latency: ``WAIT`` + 3 cycles. Throughput: one beat per cycle. Errors: a frame with ``error``
    gets a wrong ICRC. Reset: empty.
    """

    def __init__(self, *, width: int, depth: int):
        self._width, self._depth = width, depth
        super().__init__(
            {"valid": In(1), "i": In(sealed_beat(width)), "o": Out(packet_stream(width))}
        )

    def elaborate(self, platform):
        m = Module()
        width, size = self._width, self._width // 8
        lane_bits = ceil_log2(size)
        waiting = data.StructLayout(
            {
                "data": width,
                "first": 1,
                "last": 1,
                "error": 1,
                "bytes": lane_bits,  # of the frame's last beat, 0 when it is full
                "ends": 1,
                "tail": 1,
                "place": lane_bits,
            }
        )
        m.submodules.mask = mask = IcrcMask(width=width)
        m.submodules.crc = crc = CrcBeats(width=width)
        # The ICRC starts 2 modulo 4, so what fills its beat is that as well.
        m.submodules.unfill = unfill = CrcUnfill(width=width, step=4, least=2)
        m.submodules.beats = beats = StreamFifo(
            shape=waiting, depth=self._depth, block="data" if width >= WIDE_BITS else False
        )
        m.submodules.crcs = crcs = StreamFifo(shape=32, depth=self._depth)
        m.submodules.out = out = Stage(shape=packet_beat(width))
        valid = Signal(WAIT)
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
            beats.i.valid.eq(self.valid),
            *(beats.i.p[name].eq(self.i[name]) for name, _ in waiting if name != "bytes"),
            beats.i.p.bytes.eq(self.i.frame),
            crcs.i.valid.eq(valid[-1]),
            crcs.i.payload.eq(unfill.crc),
        ]

        # Into one of the places 2, 6, 10, ...; the last one reaches into the next beat.
        beat = beats.o.p
        taken = crcs.o.valid & out.i.ready  # the beat is there for longer
        spoiled = crcs.o.payload ^ beat.error.replicate(32)
        upper = Signal(16, reset_less=True)
        with m.If(taken):
            m.d.sync += upper.eq(spoiled[16:])
        slots = [Mux(beat.ends & (beat.place == at), spoiled, 0) for at in range(2, size, 4)]
        tail = Mux(beat.tail, upper, 0)
        placed = Cat(tail, *slots)[:width]
        keep = Cat(Const(1), (beat.bytes > lane for lane in range(1, size)))
        m.d.comb += [
            beats.o.ready.eq(taken),
            crcs.o.ready.eq(out.i.ready),
            out.i.valid.eq(crcs.o.valid),
            out.i.p.data.eq(beat.data | placed),
            out.i.p.keep.eq(Mux(beat.last & (beat.bytes != 0), keep, Const(-1, size))),
            out.i.p.first.eq(beat.first),
            out.i.p.last.eq(beat.last),
            out.i.p.error.eq(beat.error & beat.last),
        ]
        connect(m, out.o, flipped(self.o))
        return m
