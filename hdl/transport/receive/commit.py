"""The commit stage of the receive side: what a packet brings about becomes true, or is undone."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.common.contract import require
from hdl.common.drain import Drain
from hdl.common.fifo import StreamFifo
from hdl.common.tables import TableWrite
from hdl.config import NicConfig
from hdl.ports.activations import ReceiveFlags
from hdl.ports.context import ContextRead
from hdl.ports.jobs import LINE_USES, Activation, Effects, ReplyFlags, ScatterChecked
from hdl.ports.numbers import QpNumber
from hdl.ports.regions import RegionKeyPort, by_peer
from hdl.ports.rows import QpAck, QpRx, ReadSink
from hdl.ports.shared import ex

from .ack_coalescer import AckCoalescer
from .commit_outcome import CommitOutcome
from .failed_qps import FailedQps
from .types import Counted, Part, Pending

__all__ = ["FAILED", "LINES", "PENDING", "Commit"]

#: Jobs whose checks are pending: one comes in 3 cycles or more, a check of a page list takes 140.
PENDING = 32
#: QPs that have failed and whose later packets are still on their way: each of the pending jobs may
#: be another's, and so may the packet that each part of Receive has.
FAILED = PENDING + len(Part)
#: Cycles from a job that reads a line to the ``rest`` that it causes: count, comparison.
COUNTING = 2
#: Lines that jobs read, from which on Receive rests. When it is one fewer, a job may be made in
#: each cycle of the counting and by each part of Receive before the rest begins.
LINES = LINE_USES + 1 - COUNTING - len(Part)
#: Flags of a packet that is acknowledged and nothing else.
ACK_ONLY = ReplyFlags.const({"ack": 1}).as_value()


class Commit(wiring.Component):
    """Commits each ``pending`` record when its check is good, and rolls back when it is not.

    Responder and completer work speculatively: they take each check for good, hand over a record of
    what the packet then brings about, and go on with rows of their own. This stage takes the
    records in order, each with its check. A good one is committed: the row becomes the QP's
    (``rx_write``), then effects and events leave. A bad one discards the payload and becomes what
    the failure asks for: a NAK of the responder, or the end of the completer's WQE with the check's
    status. From then on the stage is ``stalled``, and Receive must rest. Everything of the same QP
    that is still on its way is rolled back: it counts as received by a QP in error, and no row is
    written. A WQE that it would have finished ends flushed, and so does a receive WQE that it has
    taken: its source has moved on, and takes nothing back. When nothing is on its way any more
    (``front_idle``), the speculative rows are replaced by the committed ones with the error set,
    and ``repoke`` has the QP's queues flushed.
    A record may ``invalidate`` a key, which is done when its check is good and nothing before it
    has failed. A key that cannot be invalidated is like a check that is not good: the request is
    refused as a remote access error, and the receive WQE, like the READ of the completer, ends in
    error. Whoever hands over such a record makes no job before it is ``decided``, so that no access
    with that key is committed behind it (IBTA vol 1, 9.4.1.1.3 and 10.6.3).
    A request of a service without answers that its key does not allow is dropped instead: its QP
    goes on, and loses what is on its way behind it. A receive WQE that it has taken is held for the
    next message; none of those behind it has taken one (``Intake``).
    An ACK is left out while a record behind it, of the same QP, brings an answer, too
    (``AckCoalescer``).
    Spec: IBTA vol 1, 9.7.4.1.5 and 9.9.3: nothing is executed behind a request that failed; 9.8.2.2
    (UC).

    Members: ``pending`` one per job in their order, and those without one; ``checked``; ``effects``
    one per job. ``committed``, ``rx_write``: committed rows, which all others see. ``ahead_write``,
    ``context``, ``ack_write``: rows that Receive works with; used only while it rests.
    ``line_taken``, ``line_done``: a job with ``line`` has been made, has been answered.
    ``sink_back``: a sink that nobody reads any more. ``rest``:
    Receive takes nothing new. ``stalled``: there are rows to roll back. ``idle``: nothing pending,
    nothing to roll back. ``decided``: nothing pending. ``settle``, held until ``settled``: what was
    handed over before is decided. ``keys``: the owner of the regions' keys. ``counted``: events as
    they become true.
    Latency: 4 cycles from ``pending`` to the effects, if the check was there. Throughput: one in 2
    cycles; while QPs have failed, 3 more for each of them that is looked at.
    Errors: as above. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._depth = config, min(PENDING, config.packets_ahead)
        super().__init__(
            {
                "pending": In(stream.Signature(Pending)),
                "checked": In(stream.Signature(ScatterChecked)),
                "effects": Out(stream.Signature(Effects)),
                "committed": Out(ContextRead("commit")),
                "rx_write": Out(TableWrite(QpNumber, QpRx)),
                "ahead_write": Out(TableWrite(QpNumber, QpRx)),
                "context": Out(ContextRead("receive")),
                "ack_write": Out(TableWrite(QpNumber, QpAck)),
                "repoke": Out(stream.Signature(Activation)),
                "counted": Out(stream.Signature(Counted, always_ready=True)),
                "front_idle": In(1),
                "rest": Out(1),
                "stalled": Out(1),
                "idle": Out(1),
                "decided": Out(1, init=1),
                "settle": In(1),
                "settled": Out(1),
                "keys": Out(RegionKeyPort()),
                "line_taken": In(1),
                "line_done": Out(1),
                "sink_back": Out(stream.Signature(ReadSink)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        entry = data.StructLayout({"record": Pending, "generation": 1})  # of the drain
        m.submodules.queue = queue = StreamFifo(shape=entry, depth=self._depth)
        m.d.comb += [
            queue.i.valid.eq(self.pending.valid),
            queue.i.payload.record.eq(self.pending.payload),
            self.pending.ready.eq(queue.i.ready),
        ]
        m.submodules.failed = failed = FailedQps(depth=FAILED)
        record = queue.o.payload.record
        status, bad = Signal(8, reset_less=True), Signal()  # of the record's check
        undo = Signal()  # the record's QP has failed: it is rolled back
        keyed = Signal()  # its check is that of its key
        gone = Signal()  # the record is done with
        committed = self.committed
        m.submodules.coalescer = coalescer = AckCoalescer(depth=PENDING)
        covered = Signal()  # the record's ACK
        full = Signal()  # the last sink has not been taken back; a register, as that is known late
        m.d.sync += full.eq(self.sink_back.valid & ~self.sink_back.ready)

        with m.FSM(name="commit"):
            # LOOK: reads the committed row of the oldest record's QP; ends when its check is
            # there, or with a roll-back when nothing is on its way any more.
            with m.State("LOOK"):
                m.d.comb += [
                    committed.enable.eq(queue.o.valid),
                    committed.number.eq(record.qp),
                    self.checked.ready.eq(queue.o.valid & ~record.jobless),
                ]
                m.d.sync += [
                    status.eq(self.checked.payload.status),
                    bad.eq(self.checked.payload.status != 0),
                    keyed.eq(0),
                    undo.eq(0),
                    covered.eq(
                        coalescer.covered
                        & (record.effects.flags.as_value() == ACK_ONLY)
                        & ~self.stalled
                    ),
                ]
                with m.If(queue.o.valid & (record.jobless | self.checked.valid)):
                    m.next = "ACT"
                    with m.If(~record.jobless & (self.checked.payload.status != 0)):
                        m.next = "ROW"
                    with m.Elif(record.invalidate):
                        m.next = "KEY"
                    with m.If(self.stalled & (record.part != Part.FRONT)):
                        m.d.comb += failed.search.eq(1)
                        m.next = "SEARCH"
                with m.Elif(self.stalled & self.front_idle & (queue.level == 0)):
                    m.d.comb += failed.newest.eq(1)
                    m.next = "NEWEST"
            # SEARCH: looks for the record's QP among those that have failed; ends when the list
            # has been looked through.
            with m.State("SEARCH"):
                m.d.sync += undo.eq(failed.found)
                with m.If(failed.done):
                    m.next = "ROW"
                    with m.If(record.invalidate & ~failed.found & ~bad):
                        m.next = "KEY"
            self._invalidate(m, record, (status, bad, keyed))
            # ROW: waits for the committed row, and a cycle for its sums; ends with it.
            with m.State("ROW"), m.If(committed.valid):
                # A QP that is not in error goes on: it has dropped a request.
                goes_on = record.silent & ~committed.rows.rx.error
                m.d.sync += undo.eq(undo & ~(goes_on & (record.part == Part.COMPLETER)))
                m.next = "ACT"
            # ACT: commits the record, or what has become of it; ends when the effects are taken,
            # and the row is here that it replaces.
            with m.State("ACT"), m.If(committed.valid):
                m.d.comb += self.effects.valid.eq(~record.jobless & ~full)
                with m.If(~full & (record.jobless | self.effects.ready)):
                    m.d.comb += gone.eq(1)
                    m.next = "LOOK"
            self._roll_back(m, failed)
        m.d.comb += [
            queue.o.ready.eq(gone),
            failed.qp.eq(record.qp),
            self.stalled.eq(failed.any),
            self.idle.eq(self.front_idle & (queue.level == 0) & ~self.stalled),
            self.line_done.eq(gone & record.line),
        ]
        with m.If(gone & record.reads):  # whatever becomes of it: its job is done
            m.d.sync += [self.sink_back.valid.eq(1), self.sink_back.payload.eq(record.sink)]
        with m.Elif(self.sink_back.ready):
            m.d.sync += self.sink_back.valid.eq(0)
        m.submodules.outcome = outcome = CommitOutcome(config=self._config)
        fate = outcome.fate
        m.d.comb += [
            fate.undo.eq(undo),
            fate.fails.eq(~undo & bad & ~record.jobless),
            fate.drops.eq(fate.fails & record.silent & ~record.send),
            fate.status.eq(status),
            fate.key.eq(keyed),
            fate.failed.eq(failed.row),
            fate.covered.eq(covered),
            fate.ack_pending.eq(coalescer.ack_pending),
        ]
        self._settle(m, gone)
        self._limit_lines(m, platform)
        self._restore(m, failed.row)
        self._commit(m, outcome, record, gone)
        self._coalesce(m, coalescer, record, fate, gone)
        self._remember(m, failed, record, fate, gone)
        return m

    def _roll_back(self, m, failed):
        """Nothing is on its way any more: the QP that failed last gets its committed rows."""
        committed = self.committed
        # NEWEST: takes the QP that failed last from the list; ends when it has been read.
        with m.State("NEWEST"):
            with m.If(failed.done):
                m.next = "READ"
        # READ: asks for its committed rows; ends by itself.
        with m.State("READ"):
            m.d.comb += [
                committed.enable.eq(1),
                committed.number.eq(failed.row.qp),
                self.context.enable.eq(1),
            ]
            m.next = "RESTORE"
        # RESTORE: makes them the rows that Receive works with; ends when they are here.
        with m.State("RESTORE"), m.If(committed.valid & self.context.valid):
            m.d.comb += [
                self.ahead_write.enable.eq(1),
                self.ack_write.enable.eq(failed.row.requester),
            ]
            m.next = "POKE"
        # POKE: has its queues flushed; ends when the poke is taken.
        with m.State("POKE"):
            m.d.comb += self.repoke.valid.eq(1)
            with m.If(self.repoke.ready):
                m.d.comb += failed.remove.eq(1)
                m.next = "LOOK"

    def _invalidate(self, m, record, verdict):
        """The key of the record becomes invalid, or that is its ``verdict``."""
        status, bad, keyed = verdict
        asked, done = self.keys.req.payload, record.effects.completion
        m.d.comb += [
            asked.function.eq(done.function),
            asked.pd.eq(record.pd),
            asked.key.eq(ex(done).invalidate_rkey),
            asked.qp.eq(record.qp),
        ]
        if self._config.mkeys:
            m.d.comb += by_peer(asked).eq(record.send)
        # KEY: asks for the key to become invalid; ends when that is taken.
        with m.State("KEY"):
            m.d.comb += self.keys.req.valid.eq(1)
            with m.If(self.keys.req.ready):
                m.next = "KEY-ANSWER"
        # KEY-ANSWER: waits for it; ends with the answer.
        with m.State("KEY-ANSWER"):
            m.d.sync += [
                bad.eq(~self.keys.rsp.payload),
                keyed.eq(1),
                status.eq(Mux(record.send, WcStatus.REM_INV_REQ_ERR, WcStatus.LOC_PROT_ERR)),
            ]
            with m.If(self.keys.rsp.valid):
                m.next = "ROW"

    def _settle(self, m, gone):
        """Nothing is pending; or nothing that was handed over before a moment."""
        queue = m.submodules.queue
        enters = Signal()
        m.d.comb += enters.eq(self.pending.valid & self.pending.ready)
        m.d.sync += self.decided.eq(~enters & ((queue.level == 0) | ((queue.level == 1) & gone)))
        if not self._config.fast_registration:
            return
        m.submodules.drain = drain = Drain()
        begun = Signal()
        # A record that waits to be taken is older than the moment: it must be in first.
        starts = self.settle & ~begun & (~self.pending.valid | self.pending.ready)
        m.d.sync += begun.eq(self.settle & (begun | starts))
        m.d.comb += [
            drain.start.eq(starts),
            drain.enter.eq(enters),
            queue.i.payload.generation.eq(drain.epoch),
            drain.leave0.eq(gone),
            drain.epoch0.eq(queue.o.payload.generation),
            self.settled.eq(begun & drain.done),
        ]

    def _limit_lines(self, m, platform):
        """Receive rests while so many lines are read that more might be too many."""
        lines, full = Signal(range(LINE_USES + 1)), Signal()
        m.d.sync += [
            lines.eq(lines + self.line_taken - self.line_done),
            full.eq(lines >= LINES),
        ]
        m.d.comb += self.rest.eq(self.stalled | full)
        require(m, platform, ~self.line_taken | (lines != LINE_USES), "no line too many is read")
        require(m, platform, ~self.line_done | (lines != 0), "no line ends that was not read")

    def _restore(self, m, failed):
        """The speculative rows of a failed QP become the committed ones, in error."""
        ack = Signal(QpAck, name="restored_ack")
        m.d.comb += [
            ack.eq(self.context.rows.ack),
            ack.error.eq(1),
            ack.status.eq(Mux(failed.unreported, failed.status, 0)),
            self.ahead_write.index.eq(failed.qp),
            self.ahead_write.row.eq(self.committed.rows.rx),
            self.context.number.eq(failed.qp),
            self.ack_write.index.eq(failed.qp),
            self.ack_write.row.eq(ack),
            self.repoke.payload.qp.eq(failed.qp),
            self.repoke.payload.flags.eq(ReceiveFlags.FLUSH | ReceiveFlags.FINISH),
        ]

    def _commit(self, m, outcome, record, gone):
        """What has become of the record is written, and leaves."""
        m.d.comb += [
            outcome.record.eq(record),
            outcome.committed.eq(self.committed.rows.rx),
            self.effects.payload.eq(outcome.effects),
            self.rx_write.index.eq(record.qp),
            self.rx_write.row.eq(outcome.row),
            self.rx_write.enable.eq(gone & outcome.writes),
            self.counted.valid.eq(gone & (outcome.events.as_value() != 0)),
            self.counted.payload.qp.eq(record.qp),
            self.counted.payload.events.eq(outcome.events),
        ]

    def _coalesce(self, m, coalescer, record, fate, gone):
        """Tells the coalescer of the records that come and go, and of what they are answered."""
        pushed, flags = self.pending.payload, self.effects.payload.flags
        m.d.comb += [
            coalescer.pushed.eq(self.pending.valid & self.pending.ready),
            coalescer.pushed_qp.eq(pushed.qp),
            coalescer.pushed_answers.eq(pushed.effects.flags.ack | pushed.effects.flags.nak),
            coalescer.popped.eq(gone),
            coalescer.qp.eq(record.qp),
            coalescer.skip.eq(gone & fate.covered & ~fate.fails),
            coalescer.answer.eq(gone & (flags.ack | flags.nak)),
        ]

    def _remember(self, m, failed, record, fate, gone):
        """A record whose check is not good adds its QP to the list; the first WQE of the QP that
        ends takes the status that is not reported yet."""
        requester = record.part == Part.COMPLETER
        m.d.comb += [
            failed.add.eq(gone & fate.fails),
            failed.added.qp.eq(record.qp),
            failed.added.requester.eq(requester),
            failed.added.status.eq(fate.status),
            failed.added.unreported.eq(requester & ~record.effects.complete),
            failed.report.eq(gone & fate.undo & requester & record.effects.complete),
        ]
