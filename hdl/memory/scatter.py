"""The receiving side's memory: payload to its place, then the packet's effects."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.drain import Drain
from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_stream
from hdl.common.ram import BLOCK_ROWS
from hdl.common.skid import Stage
from hdl.config import NicConfig
from hdl.ports.host import PlacedWriteClient
from hdl.ports.jobs import (
    Activation,
    Completion,
    Effects,
    ScatterChecked,
    ScatterJob,
    ScatterKind,
    WqeRead,
)
from hdl.ports.numbers import QpNumber
from hdl.ports.shared import flush_job

from .check import Checker, named_bytes, pass_translate, translate_members
from .cut import Cutter, PayloadUse, payload_plan, word_use
from .order import PacketOrder
from .types import (
    ACCESS_LOCAL_WRITE,
    ACCESS_REMOTE_ATOMIC,
    ACCESS_REMOTE_READ,
    ACCESS_REMOTE_WRITE,
    AtomicWord,
    CheckSource,
    WordUse,
)

__all__ = ["Scatter"]

#: Effects that wait for their packets, and packets without their effects.
EFFECTS = 32


def _taken(config: NicConfig) -> data.StructLayout:
    """A job that has not been answered; ``check``: the checker decides it; the rest as in
    ``payload_plan``."""
    fields = {"check": 1, "use": PayloadUse, "function": 8, "epoch": 1}
    return data.StructLayout(fields | word_use(config))


class Release(wiring.Component):
    """Keeps the effects of packets until their payload is written, then lets them out, in order.

    Parameters: ``depth``: effects that may wait for their packet.
    Members: ``effects`` In: a stream; ``written`` In pulse: the next packet is complete, before or
    after its effects come; ``completion``, ``reply`` Out: streams, which do not wait for each
    other; ``landed`` Out: the place of a READ or an atomic, with its ``reply``; ``done`` Out pulse:
    the effects of one packet have left.
    Latency: 3 cycles. Throughput: one packet's effects in two cycles, one per cycle when they have
    none. At most ``EFFECTS`` packets are complete or have effects here. Reset: empty.
    """

    def __init__(self, *, depth: int):
        self._depth = depth
        super().__init__(
            {
                "effects": In(stream.Signature(Effects)),
                "written": In(1),
                "completion": Out(stream.Signature(Completion)),
                "reply": Out(stream.Signature(Activation)),
                "landed": Out(stream.Signature(16, always_ready=True)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.effects = effects = StreamFifo(shape=Effects, depth=self._depth)
        m.submodules.next = following = Stage(shape=Effects)
        connect(m, flipped(self.effects), effects.i)
        connect(m, effects.o, following.i)
        complete = Signal(range(EFFECTS + 1))  # packets that are complete and still have effects
        # ``ready`` of the outputs arrives late in the cycle, so it is used a cycle later.
        completed, replied = Signal(), Signal()
        effect, due = following.o.payload, Signal()
        m.d.comb += [
            due.eq(following.o.valid & (complete != 0)),
            self.completion.valid.eq(due & effect.complete & ~completed),
            self.completion.payload.eq(effect.completion),
            self.reply.valid.eq(due & effect.reply & ~replied),
            self.reply.payload.qp.eq(effect.qp),
            self.reply.payload.flags.eq(effect.flags),
            self.landed.valid.eq(self.reply.valid & self.reply.ready & effect.saved),
            self.landed.payload.eq(effect.completion.head),
            self.done.eq(due & (~effect.complete | completed) & (~effect.reply | replied)),
            following.o.ready.eq(self.done),
        ]
        with m.If(self.done):
            m.d.sync += [completed.eq(0), replied.eq(0)]
        with m.Else():
            with m.If(self.completion.valid & self.completion.ready):
                m.d.sync += completed.eq(1)
            with m.If(self.reply.valid & self.reply.ready):
                m.d.sync += replied.eq(1)
        m.d.sync += complete.eq(complete + self.written - self.done)
        return m


class Scatter(wiring.Component):
    """Checks each packet's place, answers, writes the payload, then releases its effects.

    Spec: IBTA vol 1, 10.6.3 (protection of local and remote access), 9.7.4.1.3 (R_Key). Members:
    ``job``, ``checked`` (one per job, in order, before anything is written); ``payload`` from
    ingress: a packet per job with ``length`` not 0; ``write_client``; ``effects`` one per job, in
    order, each after its ``checked``: payload is written from then on (or not: ``discard``). When
    the write engine has accepted the packet's last beat, and those in front are released, they are
    released as ``completion`` and ``reply`` (flags as in ReplyFlags) with ``landed``, and behind
    that ``released`` tells so for a cycle, for each job; ``slot``,
    ``slot_enable``, ``slot_data``: read port of the lines of all stores (latency 1);
    ``table_client`` page lists; ``mr`` regions; ``word``: places that atomics change, when all in
    front of them is issued; ``word_done`` (a cycle): the next of those not dropped has been
    executed, with ``word_changed`` one that is no FLUSH; ``word_qp``, ``word_busy``: whether such a
    one of that QP is at work (``AtomicUnit``);
    ``invalidate_*`` see Translate; ``drain_start`` (pulse), ``drain_done`` (see Drain): writes of
    all jobs taken before are issued; counters (``COUNT`` bits, wrap) ``hits``, ``misses``,
    ``key_errors``. Latency, with cached pages: ``checked`` 13 cycles after a job with one SGE, 11
    with KEY (12 when ``offset`` is not ``length``), one more per further page and per SGE passed
    over; others 2. First write beat 7 cycles after the effects. Throughput: as Checker; a job that
    misses the cache of pages does not hold up the checks of those behind it. Payload one beat per
    cycle, no gap between packets. Errors: LINE: LOC_PROT_ERR, or LOC_LEN_ERR when the packet runs
    past the SGEs; KEY, CHECK_READ, ATOMIC: REM_ACCESS_ERR. The payload is discarded then, and the
    effects follow as usual. Reset: empty; the write engine must end its burst by itself.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._plan = config, payload_plan(config)
        super().__init__(
            {
                "job": In(stream.Signature(ScatterJob)),
                "checked": Out(stream.Signature(ScatterChecked)),
                "payload": In(packet_stream(config.width)),
                "effects": In(stream.Signature(Effects)),
                "completion": Out(stream.Signature(Completion)),
                "reply": Out(stream.Signature(Activation)),
                "landed": Out(stream.Signature(16, always_ready=True)),
                "released": Out(1),
                "write_client": Out(PlacedWriteClient(config.width)),
                "word": Out(stream.Signature(AtomicWord)),
                "word_done": In(1),
                "word_changed": In(1),
                "word_qp": Out(QpNumber),
                "word_busy": In(1),
                "slot": Out(WqeRead),
                "slot_enable": Out(1),
                "slot_data": In(128),
                **translate_members(config),
                "drain_start": In(1),
                "drain_done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.checker = checker = Checker(config=self._config, access=ACCESS_LOCAL_WRITE)
        m.submodules.cutter = cutter = Cutter(config=self._config)
        m.submodules.release = release = Release(depth=min(BLOCK_ROWS, self._config.packets_ahead))
        m.submodules.jobs = jobs = StreamFifo(shape=_taken(self._config), depth=EFFECTS)
        m.submodules.verdicts = verdicts = StreamFifo(shape=self._plan, depth=EFFECTS)
        m.submodules.drain = drain = Drain()
        pass_translate(m, self, checker)
        connect(m, checker.table_client, flipped(self.table_client))
        connect(m, checker.chunks, cutter.chunks)
        connect(m, flipped(self.payload), cutter.payload)
        connect(m, release.completion, flipped(self.completion))
        connect(m, release.reply, flipped(self.reply))
        connect(m, release.landed, flipped(self.landed))
        m.d.comb += [
            self.slot.eq(checker.slot),
            self.slot_enable.eq(checker.slot_enable),
            checker.slot_data.eq(self.slot_data),
            drain.start.eq(self.drain_start),
            self.drain_done.eq(drain.done),
        ]

        # Take a job: the checker takes its jobs at the same time.
        job, taken, check = self.job.payload, Signal(), Signal()
        line = job.kind == ScatterKind.LINE
        read, atomic = job.kind == ScatterKind.CHECK_READ, job.kind == ScatterKind.ATOMIC
        bears = (job.kind != ScatterKind.NONE) & ~read  # the kind says so of length 0
        unpaired = Signal(range(EFFECTS + 1))  # jobs without their effects: all queues have room
        taking = jobs.i.payload
        m.d.comb += [
            self.job.ready.eq(checker.job.ready & (unpaired != EFFECTS)),
            taken.eq(self.job.valid & self.job.ready),
            check.eq(read | (bears & (job.kind != ScatterKind.DISCARD))),
            checker.job.valid.eq(taken & check),
            checker.key_access.eq(Mux(read, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE)),
            checker.job.payload.source.eq(Mux(line, CheckSource.LINE, CheckSource.KEY)),
            *named_bytes(checker.job.payload, job),
            checker.job.payload.store.eq(job.store),
            checker.job.payload.length.eq(Mux(read, 0, job.length)),
            jobs.i.valid.eq(taken),
            taking.check.eq(check),
            taking.use.eq(Mux(bears, PayloadUse.WRITE, PayloadUse.NONE)),
            taking.function.eq(job.function),
            taking.epoch.eq(drain.epoch),
            drain.enter.eq(taken),
        ]
        with m.If(job.kind == ScatterKind.DISCARD):
            m.d.comb += taking.use.eq(Mux(bears, PayloadUse.DISCARD, PayloadUse.NONE))
        if self._config.atomics:
            with m.If(atomic):
                m.d.comb += [
                    checker.key_access.eq(ACCESS_REMOTE_ATOMIC),
                    taking.use.eq(PayloadUse.ATOMIC),
                ]
        self._place(m)
        m.d.sync += unpaired.eq(unpaired + taken - release.done)

        # Answer, and keep the decision about the payload until the effects come.
        oldest, result, answered = jobs.o.payload, checker.result.payload, Signal()
        verdict = verdicts.i.payload
        m.d.comb += [
            self.checked.valid.eq(jobs.o.valid & (~oldest.check | checker.result.valid)),
            self.checked.payload.status.eq(Mux(oldest.check, result.status, 0)),
            answered.eq(self.checked.valid & self.checked.ready),
            jobs.o.ready.eq(answered),
            checker.result.ready.eq(answered & oldest.check),
            verdicts.i.valid.eq(answered),
            verdict.use.eq(oldest.use),
            verdict.listed.eq(oldest.check & result.listed),
            verdict.drop.eq(oldest.check & (result.status != 0)),
            verdict.function.eq(oldest.function),
            verdict.epoch.eq(oldest.epoch),
        ]
        with m.If(oldest.check & (result.status != 0) & (oldest.use == PayloadUse.WRITE)):
            m.d.comb += verdict.use.eq(PayloadUse.DISCARD)

        # Effects decide on the payload, then wait for it.
        plan = cutter.plan.payload
        m.d.comb += [
            release.effects.valid.eq(self.effects.valid & verdicts.o.valid),
            release.effects.payload.eq(self.effects.payload),
            self.effects.ready.eq(release.effects.ready & verdicts.o.valid),
            verdicts.o.ready.eq(release.effects.valid & release.effects.ready),
            cutter.plan.valid.eq(verdicts.o.ready),
            plan.eq(verdicts.o.payload),
            plan.drop.eq(verdicts.o.payload.drop | self.effects.payload.discard),
            plan.qp.eq(self.effects.payload.qp),
        ]
        with m.If(self.effects.payload.discard & (verdicts.o.payload.use == PayloadUse.WRITE)):
            m.d.comb += plan.use.eq(PayloadUse.DISCARD)

        self._write(m)
        return m

    def _write(self, m: Module) -> None:
        """Writes; a packet is complete when its last beat was accepted. An atomic leaves when all
        in front of it has been accepted, so that its read comes behind that."""
        cutter, release, drain = (m.submodules[name] for name in ("cutter", "release", "drain"))
        m.submodules.order = order = PacketOrder(depth=EFFECTS)
        through, changes = Signal(), cutter.o.p.atomic
        m.d.comb += [
            self.write_client.beat.valid.eq(cutter.o.valid & ~cutter.o.p.void),
            self.write_client.beat.payload.eq(cutter.o.p.beat),
            self.word.valid.eq(cutter.o.valid & changes),
            self.word.payload.function.eq(cutter.o.p.beat.function),
            self.word.payload.addr.eq(cutter.o.p.beat.addr),
            self.word.payload.qp.eq(cutter.o.p.qp),
            self.word.payload.drop.eq(cutter.o.p.drop),
            self.word_qp.eq(cutter.qp),
            cutter.busy.eq(self.word_busy),
            cutter.changed.eq(self.word_changed),
            cutter.o.ready.eq(
                Mux(changes, self.word.ready, cutter.o.p.void | self.write_client.beat.ready)
            ),
            through.eq(cutter.o.valid & cutter.o.ready & cutter.o.p.end),
            order.through.eq(through),
            order.atomic.eq(changes & ~cutter.o.p.drop),
            order.epoch.eq(cutter.o.p.epoch),
            order.executed.eq(self.word_done),
            release.written.eq(order.written),
            self.released.eq(release.done),
            drain.leave0.eq(order.written),
            drain.epoch0.eq(order.written_epoch),
        ]

    def _place(self, m: Module) -> None:
        """FLUSH and ATOMIC WRITE: what they do with the word at their place. A FLUSH reads a byte
        of those that it is about, since a read on the way of the writes before pushes them."""
        if not self._config.placement:
            return
        checker, cutter, jobs = m.submodules.checker, m.submodules.cutter, m.submodules.jobs
        job, taking = self.job.payload, jobs.i.payload
        stores, reads = job.kind == ScatterKind.ATOMIC_WRITE, job.kind == ScatterKind.FLUSH
        flush = flush_job(job)
        m.d.comb += [
            m.submodules.verdicts.i.payload.word.eq(jobs.o.payload.word),
            self.word.payload.use.eq(cutter.o.p.word),
        ]
        with m.If(stores | reads):
            m.d.comb += taking.use.eq(PayloadUse.ATOMIC)
        with m.If(stores):
            m.d.comb += [checker.key_word.eq(1), taking.word.eq(WordUse.STORE)]
        with m.If(reads):
            m.d.comb += [
                checker.key_access.eq(0),
                checker.key_flush.eq(flush.type),
                checker.key_whole.eq(flush.whole),
                checker.job.payload.length.eq(1),
                taking.word.eq(WordUse.READ),
            ]
