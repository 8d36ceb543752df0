"""Cuts the payload of received packets into bursts, one per chunk of host memory."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_stream
from hdl.common.skid import Stage
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, placed_beat
from hdl.ports.numbers import QpNumber

from .cursor import ChunkCursor, PayloadBeats
from .types import Chunk, WordUse

__all__ = ["Cutter", "PayloadUse", "cut_beat", "payload_plan", "word_use"]

#: Packets checked and not yet written.
PLANS = 64


class PayloadUse(enum.Enum, shape=2):
    """What becomes of a packet's payload."""

    NONE = 0  # it has none
    DISCARD = 1
    WRITE = 2
    ATOMIC = 3  # none, but for ATOMIC WRITE: its word in host memory is at work


def word_use(config: NicConfig) -> dict:
    """The field of a row that says what an operation does with its word, if the card has more than
    one that does something else."""
    return {"word": WordUse} if config.placement else {}


def payload_plan(config: NicConfig) -> data.StructLayout:
    """One packet. ``listed``: it has chunks (that are thrown away with DISCARD); ``drop``: it is an
    atomic that is not executed; ``word``: what it does with its word."""
    fields = {"use": PayloadUse, "listed": 1, "drop": 1, "qp": QpNumber, "function": 8, "epoch": 1}
    return data.StructLayout(fields | word_use(config))


def cut_beat(config: NicConfig) -> data.StructLayout:
    """A beat to write, or none (``void``); ``end``: the packet is complete, in either case, unless
    it is an ``atomic``, whose word begins at the beat's address (``drop``: it is not executed;
    ``word``: what it does with it)."""
    fields = {"beat": placed_beat(config.width), "void": 1, "end": 1, "epoch": 1}
    return data.StructLayout(fields | {"atomic": 1, "drop": 1, "qp": QpNumber} | word_use(config))


class Cutter(wiring.Component):
    """Re-cuts packets: every chunk becomes a burst of aligned beats (``placed_beat``).

    Nothing is shifted here. Each beat takes its bytes from one payload beat and the beat before.
    The next payload beat comes when its bytes are needed; otherwise the current one is used again.

    Members: ``plan`` stream of ``payload_plan``, one per packet; ``chunks`` stream of Chunk;
    ``payload`` packet stream; ``o`` stream of ``cut_beat``. A packet with DISCARD or without
    payload gives one void beat with ``end``, and so does an atomic. The payload of an ATOMIC WRITE
    is thrown away, as its word goes another way. ``changed`` In (a cycle): an atomic that was not
    dropped has been executed; until then packets of its QP are not written, and no FLUSH begins:
    ``qp`` Out, ``busy`` In: whether an atomic of that QP is at work. Nobody waits for a FLUSH: it
    changes nothing, and what is written behind it does it no harm.
    A packet's chunks hold as many bytes as its payload.
    Latency: 2 cycles. Throughput: one beat per cycle, of payload or of a burst, whichever are more;
    no gap between chunks or packets.
    Errors: none. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._width, self._atomics = config, config.width, config.atomics
        super().__init__(
            {
                "plan": In(stream.Signature(payload_plan(config))),
                "chunks": In(stream.Signature(Chunk)),
                "payload": In(packet_stream(config.width)),
                "o": Out(stream.Signature(cut_beat(config))),
                "qp": Out(QpNumber),
                "busy": In(1),
                "changed": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, lanes = self._width, self._width // 8
        bits = ceil_log2(lanes)
        m.submodules.plans = plans = StreamFifo(shape=payload_plan(self._config), depth=PLANS)
        m.submodules.cursor = cursor = ChunkCursor(width=width)
        m.submodules.payload = payload = PayloadBeats(width=width)
        m.submodules.output = output = Stage(shape=cut_beat(self._config))
        wiring.connect(m, wiring.flipped(self.plan), plans.i)
        wiring.connect(m, wiring.flipped(self.chunks), cursor.chunks)
        wiring.connect(m, wiring.flipped(self.payload), payload.payload)
        wiring.connect(m, output.o, wiring.flipped(self.o))
        plan, cut, beat = plans.o.payload, output.i, output.i.p.beat

        # One aligned beat of the chunk takes its bytes from lane ``place`` of the payload on. In
        # front of that lane, the current payload beat is used up (all of it when ``place`` is 0).
        start, ends, rest = cursor.start, cursor.ends, cursor.rest
        place, until, left = Signal(bits), Signal(bits), Signal(bits)
        crosses = Signal(bits + 1)  # its upper bit: a byte of them is behind the payload beat
        needs, through = Signal(), Signal()
        m.d.comb += [
            cursor.close.eq(ends),
            until.eq(place + rest),
            crosses.eq(place + cursor.rest_less),
            left.eq(Mux(ends, until, place - start)),  # the next ``place``
            needs.eq((place == 0) | Mux(ends, crosses[bits], place > start)),
            beat.stream_id.eq(STREAM_DATA),
            beat.function.eq(plan.function),
            beat.addr.eq(cursor.chunk.addr),
            beat.data.eq(payload.data),
            beat.up.eq(start - place),
            beat.start.eq(start),
            beat.stop.eq(Mux(ends, cursor.stop, lanes)),
            beat.first.eq(cursor.fresh),
            beat.last.eq(ends),
            beat.more.eq((left != 0) & ~cursor.chunk.end),
            cut.p.epoch.eq(plan.epoch),
            cut.p.drop.eq(plan.drop),
            cut.p.qp.eq(plan.qp),
            self.qp.eq(plan.qp),
        ]

        may_write = self._order(m, plans, through) if self._atomics else Const(1)
        gone, unlisted = Signal(), Signal()  # while discarding: payload, chunks are thrown away
        # The cursor goes on: once the cut is taken, which is known late, or whatever becomes of it.
        follows, skips = Signal(), Signal()
        m.d.comb += cursor.used.eq((follows & cut.ready) | skips)
        with m.If(plans.o.valid):
            with m.Switch(plan.use):
                with m.Case(PayloadUse.WRITE):
                    m.d.comb += [
                        payload.again.eq(~needs),
                        cut.valid.eq(cursor.valid & (~needs | payload.valid) & may_write),
                        follows.eq(cut.valid),
                        payload.consume.eq(cursor.used & needs),
                        cut.p.end.eq(cursor.chunk.end & ends),
                        through.eq(cursor.used & cursor.chunk.end & ends),
                    ]
                with m.Case(PayloadUse.DISCARD):
                    m.d.comb += [
                        payload.consume.eq(payload.valid & ~gone),
                        skips.eq(cursor.valid & plan.listed & ~unlisted),
                        cursor.close.eq(1),
                        cut.valid.eq(gone & (unlisted | ~plan.listed)),
                        cut.p.void.eq(1),
                        cut.p.end.eq(1),
                        through.eq(cut.valid & cut.ready),
                    ]
                    with m.If(payload.consume & payload.last):
                        m.d.sync += gone.eq(1)
                    with m.If(cursor.used & cursor.chunk.end):
                        m.d.sync += unlisted.eq(1)
                with m.Case(PayloadUse.ATOMIC):
                    m.d.comb += [
                        follows.eq(cut.valid & plan.listed),
                        cursor.close.eq(1),
                        cut.valid.eq(cursor.valid | ~plan.listed),
                        cut.p.void.eq(1),
                        cut.p.end.eq(1),
                        cut.p.atomic.eq(1),
                        through.eq(cut.valid & cut.ready),
                    ]
                    if self._config.placement:
                        self._place(m, plan, payload, cut, may_write)
                with m.Default():
                    m.d.comb += [
                        cut.valid.eq(1),
                        cut.p.void.eq(1),
                        cut.p.end.eq(1),
                        through.eq(cut.ready),
                    ]
        m.d.comb += plans.o.ready.eq(through)
        with m.If(cursor.used & (plan.use == PayloadUse.WRITE)):
            m.d.sync += place.eq(left)
        with m.If(through):
            m.d.sync += [place.eq(0), gone.eq(0), unlisted.eq(0)]
        return m

    def _place(self, m: Module, plan, payload: PayloadBeats, cut, may_write: Value) -> None:
        """An ATOMIC WRITE has a beat of payload, which goes with it. A FLUSH begins when its QP has
        no operation at work that has still to be written."""
        stores, reads = plan.word == WordUse.STORE, plan.word == WordUse.READ
        cursor = m.submodules.cursor
        m.d.comb += [
            cut.p.word.eq(plan.word),
            cut.valid.eq(
                (cursor.valid | ~plan.listed) & (payload.valid | ~stores) & (may_write | ~reads)
            ),
            payload.consume.eq(stores & cut.valid & cut.ready),
        ]

    def _order(self, m: Module, plans: StreamFifo, through: Signal) -> Signal:
        """Whether the packet at hand may be written: no atomic in front of it is at work, or, a
        cycle later, none of its QP (IBTA vol 1, 10.8.3.3: one QP's requests, in their order)."""
        plan = plans.o.payload
        count, quiet, free = Signal(range(2 * PLANS)), Signal(init=1), Signal()
        changes = (plan.use == PayloadUse.ATOMIC) & ~plan.drop
        if self._config.placement:
            changes &= plan.word != WordUse.READ
        begins, begun = through & changes, Signal()
        m.d.sync += [
            begun.eq(begins),
            count.eq(count + begun - self.changed),  # those that began before the last cycle
            free.eq(plans.o.valid & ~through & (free | ~self.busy)),
        ]
        with m.If(begins):
            m.d.sync += quiet.eq(0)
        with m.Elif(self.changed):
            m.d.sync += quiet.eq((count == 1) & ~begun)
        may_write = Signal()
        m.d.comb += may_write.eq(quiet | free)
        return may_write
