"""Cuts the payload of received packets into bursts, one per chunk of host memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.shift import Rotator, byte_mask, keep_mask
from hdl.common.skid import Skid
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, write_beat
from hdl.ports.packet import packet_beat, packet_stream

from .types import Chunk

__all__ = ["Cutter", "PayloadUse", "PayloadPlan", "cut_beat"]

#: Packets checked and not yet written.
PLANS = 64


class PayloadUse(enum.Enum, shape=2):
    """What becomes of a packet's payload."""

    NONE = 0  # it has none
    DISCARD = 1
    WRITE = 2


class PayloadPlan(data.Struct):
    """One packet. ``listed``: it has chunks (that are thrown away with DISCARD)."""

    use: PayloadUse
    listed: 1
    function: 8
    epoch: 1


def cut_beat(width: int) -> data.StructLayout:
    """A beat to write, or (``void``) none; ``end``: the packet is through, in either case."""
    return data.StructLayout({"beat": write_beat(width), "void": 1, "end": 1, "epoch": 1})


class Cutter(wiring.Component):
    """Re-cuts packets: every chunk becomes a burst whose byte 0 is in lane 0.

    Members: ``plan`` stream of PayloadPlan, one per packet; ``chunks`` stream of Chunk; ``payload``
    packet stream; ``o`` stream of ``cut_beat``. A packet with DISCARD or without payload gives one
    void beat with ``end``.
    A packet's chunks hold as many bytes as its payload.
    Latency: 3 cycles at 64 bit, 4 at 512. Throughput: one beat per cycle, of payload or of a burst,
    whichever are more; no gap between chunks or packets.
    Errors: none. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._width = config.width
        super().__init__(
            {
                "plan": In(stream.Signature(PayloadPlan)),
                "chunks": In(stream.Signature(Chunk)),
                "payload": In(packet_stream(config.width)),
                "o": Out(stream.Signature(cut_beat(config.width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, lanes = self._width, self._width // 8
        bits = ceil_log2(lanes)
        side = data.StructLayout(
            {
                "count": bits + 1,
                "addr": 64,
                "function": 8,
                "first": 1,
                "last": 1,
                "void": 1,
                "end": 1,
                "epoch": 1,
            }
        )
        m.submodules.plans = plans = StreamFifo(shape=PayloadPlan, depth=PLANS)
        m.submodules.rotator = rotator = Rotator(width=width, side=side, left=False)
        wiring.connect(m, wiring.flipped(self.plan), plans.i)
        m.submodules.beats = beats = Skid(shape=packet_beat(width))
        wiring.connect(m, wiring.flipped(self.payload), beats.i)
        plan, piece, payload = plans.o.payload, rotator.i, beats.o

        # The chunk being cut; the next one is loaded as it ends.
        chunk, chunk_valid = Signal(Chunk, reset_less=True), Signal()
        fresh = Signal()  # nothing of it was cut yet
        used, closing = Signal(), Signal()
        with m.If(~chunk_valid | (used & closing)):
            m.d.comb += self.chunks.ready.eq(1)
            m.d.sync += [chunk.eq(self.chunks.payload), chunk_valid.eq(self.chunks.valid)]
            m.d.sync += fresh.eq(1)
        with m.Elif(used):
            m.d.sync += [chunk.length.eq(chunk.length - lanes), fresh.eq(0)]

        # ``held`` is the payload beat before; from lane ``place`` on it is not used up (0: it is).
        held, place = Signal(width, reset_less=True), Signal(bits)
        count, until = Signal(bits + 1), Signal(bits + 1)
        ends, needs, consume, through = Signal(), Signal(), Signal(), Signal()
        newer, wide = Signal(lanes), Signal(width)
        whole, more = chunk.length[bits:], chunk.length[:bits].any()
        m.d.comb += [
            ends.eq((whole[1:] == 0) & ~(whole[0] & more)),
            closing.eq(ends),
            count.eq(Mux(ends, chunk.length, lanes)),
            until.eq(place + count),
            needs.eq((place == 0) | (until[bits] & until[:bits].any())),
            newer.eq(keep_mask(Mux(place == 0, lanes, place), lanes)),
            wide.eq(byte_mask(newer)),
            piece.p.data.eq((payload.p.data & wide) | (held & ~wide)),
            piece.p.amount.eq(place),
            piece.p.side.count.eq(count),
            piece.p.side.addr.eq(chunk.addr),
            piece.p.side.function.eq(plan.function),
            piece.p.side.first.eq(fresh),
            piece.p.side.last.eq(ends),
            piece.p.side.epoch.eq(plan.epoch),
        ]
        with m.If(payload.valid & payload.ready):
            m.d.sync += held.eq(payload.p.data)

        gone, unlisted = Signal(), Signal()  # while discarding: payload, chunks are thrown away
        with m.If(plans.o.valid):
            with m.Switch(plan.use):
                with m.Case(PayloadUse.WRITE):
                    m.d.comb += [
                        piece.valid.eq(chunk_valid & (~needs | payload.valid)),
                        used.eq(piece.valid & piece.ready),
                        consume.eq(used & needs),
                        piece.p.side.end.eq(chunk.end & ends),
                        through.eq(used & chunk.end & ends),
                    ]
                with m.Case(PayloadUse.DISCARD):
                    m.d.comb += [
                        consume.eq(~gone),
                        used.eq(chunk_valid & plan.listed & ~unlisted),
                        closing.eq(1),
                        piece.valid.eq(gone & (unlisted | ~plan.listed)),
                        piece.p.side.void.eq(1),
                        piece.p.side.end.eq(1),
                        through.eq(piece.valid & piece.ready),
                    ]
                    with m.If(payload.valid & payload.ready & payload.p.last):
                        m.d.sync += gone.eq(1)
                    with m.If(used & chunk.end):
                        m.d.sync += unlisted.eq(1)
                with m.Default():
                    m.d.comb += [
                        piece.valid.eq(1),
                        piece.p.side.void.eq(1),
                        piece.p.side.end.eq(1),
                        through.eq(piece.ready),
                    ]
        m.d.comb += [payload.ready.eq(consume), plans.o.ready.eq(through)]
        with m.If(used & (plan.use == PayloadUse.WRITE)):
            m.d.sync += place.eq(until[:bits])
        with m.If(through):
            m.d.sync += [place.eq(0), gone.eq(0), unlisted.eq(0)]

        turned, facts = rotator.o.p.data, rotator.o.p.side
        beat = self.o.p.beat
        m.d.comb += [
            self.o.valid.eq(rotator.o.valid),
            rotator.o.ready.eq(self.o.ready),
            beat.stream_id.eq(STREAM_DATA),
            beat.function.eq(facts.function),
            beat.addr.eq(facts.addr),
            beat.data.eq(turned),
            beat.keep.eq(keep_mask(facts.count, lanes)),
            beat.first.eq(facts.first),
            beat.last.eq(facts.last),
            self.o.p.void.eq(facts.void),
            self.o.p.end.eq(facts.end),
            self.o.p.epoch.eq(facts.epoch),
        ]
        return m
