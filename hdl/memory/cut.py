"""Cuts the payload of received packets into bursts, one per chunk of host memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.skid import Skid, Stage
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, placed_beat
from hdl.ports.packet import packet_stream

from .types import Chunk

__all__ = ["Cutter", "PayloadUse", "PayloadPlan", "cut_beat"]

#: Packets checked and not yet written.
PLANS = 64
#: Payload beats that are stored here, with the current one.
BEATS = 8


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
    """A beat to write, or none (``void``); ``end``: the packet is complete, in either case."""
    return data.StructLayout({"beat": placed_beat(width), "void": 1, "end": 1, "epoch": 1})


class Cutter(wiring.Component):
    """Re-cuts packets: every chunk becomes a burst of aligned beats (``placed_beat``).

    Nothing is shifted here. Each beat takes its bytes from one payload beat and the beat before.
    The next payload beat comes when its bytes are needed; otherwise the current one is used again.

    Members: ``plan`` stream of PayloadPlan, one per packet; ``chunks`` stream of Chunk; ``payload``
    packet stream; ``o`` stream of ``cut_beat``. A packet with DISCARD or without payload gives one
    void beat with ``end``.
    A packet's chunks hold as many bytes as its payload.
    Latency: 2 cycles. Throughput: one beat per cycle, of payload or of a burst, whichever are more;
    no gap between chunks or packets.
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
        m.submodules.plans = plans = StreamFifo(shape=PayloadPlan, depth=PLANS)
        m.submodules.next = chunks = Skid(shape=Chunk)
        m.submodules.output = output = Stage(shape=cut_beat(width))
        wiring.connect(m, wiring.flipped(self.plan), plans.i)
        wiring.connect(m, wiring.flipped(self.chunks), chunks.i)
        wiring.connect(m, output.o, wiring.flipped(self.o))
        plan, cut, beat = plans.o.payload, output.i, output.i.p.beat

        # The chunk that is cut; the next is loaded when it ends. ``start``: lane of its next byte;
        # ``total``: how far it reaches from lane 0 of that beat on; ``ends``: no further than that
        # beat, in which it has ``rest`` bytes.
        chunk, chunk_valid = Signal(Chunk, reset_less=True), Signal()
        start, total = Signal(bits, reset_less=True), Signal(14, reset_less=True)
        ends, rest = Signal(reset_less=True), Signal(bits + 1, reset_less=True)
        fresh = Signal()  # nothing of it was cut yet
        used, closing, reach = Signal(), Signal(), Signal(14)
        whole, tail = total[bits:], total[:bits]
        m.d.comb += reach.eq(chunks.o.p.length + chunks.o.p.addr[:bits])
        with m.If(~chunk_valid | (used & closing)):
            m.d.comb += chunks.o.ready.eq(1)
            m.d.sync += [
                chunk.eq(chunks.o.payload),
                chunk_valid.eq(chunks.o.valid),
                start.eq(chunks.o.p.addr),
                total.eq(reach),
                ends.eq(reach <= lanes),
                rest.eq(chunks.o.p.length),
                fresh.eq(1),
            ]
        with m.Elif(used):
            m.d.sync += [
                start.eq(0),
                whole.eq(whole - 1),
                ends.eq((whole[2:] == 0) & ~(whole[1] & (whole[0] | tail.any()))),
                rest.eq(Cat(tail, ~whole[0])),
                fresh.eq(0),
            ]

        # Payload. The beat before ``read`` is the current one: from lane ``place`` on it is unused
        # (0: it is), and stays where it is stored.
        row = data.StructLayout({"data": width, "last": 1})
        m.submodules.beats = beats = memory.Memory(shape=row, depth=BEATS, init=[])
        put, get = beats.write_port(), beats.read_port(domain="comb")
        read, stored = Signal(range(BEATS)), Signal(range(BEATS))
        push, consume, again, payload_valid = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.payload.ready.eq(stored != BEATS - 1),
            push.eq(self.payload.valid & self.payload.ready),
            put.en.eq(push),
            put.data.data.eq(self.payload.p.data),
            put.data.last.eq(self.payload.p.last),
            get.addr.eq(read - again),
            payload_valid.eq(stored != 0),
        ]
        m.d.sync += [put.addr.eq(put.addr + push), read.eq(read + consume)]
        with m.If(push != consume):
            m.d.sync += stored.eq(Mux(push, stored + 1, stored - 1))

        # One aligned beat: lanes ``start`` to ``stop``, from lane ``place`` of the payload on.
        place, until, left = Signal(bits), Signal(bits + 1), Signal(bits)
        needs, through = Signal(), Signal()
        m.d.comb += [
            closing.eq(ends),
            until.eq(place + rest),
            left.eq(Mux(ends, until[:bits], place - start)),  # the next ``place``
            needs.eq((place == 0) | Mux(ends, until[bits] & until[:bits].any(), place > start)),
            beat.stream_id.eq(STREAM_DATA),
            beat.function.eq(plan.function),
            beat.addr.eq(chunk.addr),
            beat.data.eq(get.data.data),
            beat.up.eq(start - place),
            beat.start.eq(start),
            beat.stop.eq(Mux(ends, total, lanes)),
            beat.first.eq(fresh),
            beat.last.eq(ends),
            beat.more.eq((left != 0) & ~chunk.end),
            cut.p.epoch.eq(plan.epoch),
        ]

        gone, unlisted = Signal(), Signal()  # while discarding: payload, chunks are thrown away
        with m.If(plans.o.valid):
            with m.Switch(plan.use):
                with m.Case(PayloadUse.WRITE):
                    m.d.comb += [
                        again.eq(~needs),
                        cut.valid.eq(chunk_valid & (~needs | payload_valid)),
                        used.eq(cut.valid & cut.ready),
                        consume.eq(used & needs),
                        cut.p.end.eq(chunk.end & ends),
                        through.eq(used & chunk.end & ends),
                    ]
                with m.Case(PayloadUse.DISCARD):
                    m.d.comb += [
                        consume.eq(payload_valid & ~gone),
                        used.eq(chunk_valid & plan.listed & ~unlisted),
                        closing.eq(1),
                        cut.valid.eq(gone & (unlisted | ~plan.listed)),
                        cut.p.void.eq(1),
                        cut.p.end.eq(1),
                        through.eq(cut.valid & cut.ready),
                    ]
                    with m.If(consume & get.data.last):
                        m.d.sync += gone.eq(1)
                    with m.If(used & chunk.end):
                        m.d.sync += unlisted.eq(1)
                with m.Default():
                    m.d.comb += [
                        cut.valid.eq(1),
                        cut.p.void.eq(1),
                        cut.p.end.eq(1),
                        through.eq(cut.ready),
                    ]
        m.d.comb += plans.o.ready.eq(through)
        with m.If(used & (plan.use == PayloadUse.WRITE)):
            m.d.sync += place.eq(left)
        with m.If(through):
            m.d.sync += [place.eq(0), gone.eq(0), unlisted.eq(0)]
        return m
