"""The receive side of the transport: received packets to scatter jobs, effects and QP state."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require
from hdl.common.count import COUNT, increment
from hdl.common.skid import Register
from hdl.common.tables import TableRead, TableWrite
from hdl.config import NicConfig
from hdl.ports.atomics import AtomicRequest
from hdl.ports.boxes import Dropped
from hdl.ports.context import ContextPin, ContextRead
from hdl.ports.headers import RxHeader
from hdl.ports.jobs import (
    Activation,
    Effects,
    LineStore,
    LineUse,
    Oldest,
    RecvFetched,
    RecvRequest,
    ScatterChecked,
    ScatterJob,
    ScatterKind,
    Upcoming,
)
from hdl.ports.numbers import QpNumber
from hdl.ports.regions import RegionKeyPort
from hdl.ports.rows import QpAck, QpRx, ReadResource, ReadSink

from ..outstanding.types import Foreseen, Look, Pop
from ..recovery.go_back_n import GO_BACK_N
from ..recovery.policy import Recovery
from ..recovery.qp_timers import TimerRow, TimerSet
from .commit import Commit
from .completer import Completer
from .dropper import Dropper
from .intake import Intake
from .job_turns import JobTurns
from .pieces import OpenRequests
from .responder import Responder
from .types import (
    Counted,
    Counters,
    Part,
)

__all__ = ["Receive"]


class Receive(wiring.Component):
    """Received packets, and pokes, become scatter jobs, effects and rows; wiring of its parts.

    ``Intake`` takes packets and pokes in turn, reads the QP's rows and checks that the packet
    belongs to it. ``Responder`` (requests, flushes), ``Completer`` (responses, finishes) or
    ``Dropper`` (what is nobody's) then works out what it brings about, with speculative rows that
    take each check by the scatter for good. ``Commit`` makes it true when the check has come, or
    rolls back.
    Spec: IBTA vol 1, 9.6.1 (checks of a packet against its QP), Annex A17 (addresses).

    Members: ``header`` In, one row per packet, and exactly one ``scatter_job`` for each of them in
    the same order (the payload itself goes from ingress to scatter). ``poke`` In: flags of
    ``ReceiveFlags`` per QP; ``repoke`` Out asks for another one. ``scatter_checked`` In and
    ``effects`` Out: one for each job. Jobs of pokes, and of further WQEs that one ACK finishes,
    have no payload (NONE). ``fetch_req``/``fetch_rsp``: receive WQEs; ``sink_back``: see
    ``Commit``; ``upcoming``: see ``Intake``. ``line_use``: which of RecvFetch's lines jobs still
    read. ``head_req``/``head_rsp``, ``foreseen``, ``pop``: the outstanding table. ``wake`` Out: a
    QP whose operation has finished, with or after ``ack_write`` (``QpAck.wake_generation``).
    ``restart`` Out: a QP goes back; ``timer`` Out, ``running``: its timer. ``context``: a QP's
    rows, with the responder's speculative one, which ``ahead_write`` writes; ``completer_pin``, if
    rows may be elsewhere: the QP that the completer is at; ``committed``, ``rx_write``: the
    committed ones, which all others see; ``ack_write``: the completer's; ``resource_read``,
    ``resource_write``: the pool of READs and atomics; ``atomic`` Out: what an atomic does, one for
    each job of that kind. ``turned``: see ``Quiesce``; ``hold``: it is waited for, so nothing is
    taken before the completer has ended. ``idle``: nothing taken is unfinished here.
    ``rolling_back``: rows of a QP whose check was not good are still to be restored. ``keys``,
    ``dropped``, ``ready``, of a card with MP WR: see ``OpenRequests``.
    ``settle``, ``settled``: see ``Commit``. ``counters``: see ``COUNTERS``; ``counted`` Out: the
    same as it happens, by QP.

    Latency: 3 cycles to the responder or completer; see there for the rest. Throughput: one packet
    in 3 cycles for a WRITE, 6 for a SEND, 8 for an ACK of one WQE, 6 when another QP's comes next,
    each with the waits for fetch and table, but not for checks: up to 32 are pending, of them 16
    that read a line. Of ACKs that wait the last one counts (``merged_acks``). Packets and pokes
    alternate when both wait. Errors: a packet that is not for a QP in the right state is dropped
    and counted by cause. Reset: idle, counters 0.
    """

    def __init__(self, *, config: NicConfig, recovery: Recovery = GO_BACK_N):
        self._config, self._recovery = config, recovery
        super().__init__(
            {
                "header": In(stream.Signature(RxHeader)),
                "poke": In(stream.Signature(Activation)),
                "repoke": Out(stream.Signature(Activation)),
                "context": Out(ContextRead("receive")),
                "ahead_write": Out(TableWrite(QpNumber, QpRx)),
                "committed": Out(ContextRead("commit")),
                "rx_write": Out(TableWrite(QpNumber, QpRx)),
                "ack_write": Out(TableWrite(QpNumber, QpAck)),
                "resource_read": Out(TableRead(16, ReadResource)),
                "resource_write": Out(TableWrite(16, ReadResource)),
                "atomic": Out(stream.Signature(AtomicRequest, always_ready=True)),
                "fetch_req": Out(stream.Signature(RecvRequest)),
                "fetch_rsp": In(stream.Signature(RecvFetched)),
                "sink_back": Out(stream.Signature(ReadSink)),
                "upcoming": Out(Upcoming()),
                "line_use": Out(LineUse()),
                "head_req": Out(stream.Signature(Look)),
                "head_rsp": In(stream.Signature(Oldest)),
                "foreseen": In(Foreseen),
                "pop": Out(stream.Signature(Pop)),
                "scatter_job": Out(stream.Signature(ScatterJob)),
                "scatter_checked": In(stream.Signature(ScatterChecked)),
                "effects": Out(stream.Signature(Effects)),
                "wake": Out(stream.Signature(QpNumber)),
                "restart": Out(stream.Signature(QpNumber)),
                "timer": Out(stream.Signature(TimerSet)),
                "running": Out(TableRead(QpNumber, TimerRow)),
                "turned": Out(1),
                "hold": In(1),
                "idle": Out(1),
                "rolling_back": Out(1),
                "keys": Out(RegionKeyPort()),
                "settle": In(1),
                "settled": Out(1),
                "counters": Out(Counters),
                "merged_acks": Out(COUNT),
                "counted": Out(stream.Signature(Counted, always_ready=True)),
            }
            | ({"completer_pin": Out(ContextPin())} if config.hot_qps else {})
            | ({"dropped": In(Dropped()), "ready": Out(1)} if config.mp_wr else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.intake = intake = Intake(config=self._config)
        m.submodules.dropper = dropper = Dropper()
        m.submodules.responder = responder = Responder(config=self._config)
        m.submodules.completer = completer = Completer(config=self._config, recovery=self._recovery)
        m.submodules.commit = commit = Commit(config=self._config)
        # What a job is made of is known late, and its taker begins to look it up at once.
        m.submodules.jobs = jobs = Register(shape=ScatterJob)
        for one, other in (
            (intake.responder, responder.i),
            (intake.completer, completer.i),
            (intake.dropper, dropper.i),
            (intake.coming, completer.coming),
        ):
            wiring.connect(m, one, other)
        for part, names in (
            (intake, ("header", "poke", "upcoming", "running")),
            (responder, ("resource_read", "resource_write", "fetch_req", "fetch_rsp", "atomic")),
            (completer, ("head_req", "head_rsp", "pop")),
            (completer, ("wake", "restart", "timer")),
            (commit, ("sink_back", "effects", "committed", "rx_write", "counted", "keys")),
        ):
            for name in names:
                wiring.connect(m, getattr(part, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, commit.checked, wiring.flipped(self.scatter_checked))
        wiring.connect(m, jobs.o, wiring.flipped(self.scatter_job))
        taken = responder.job  # of the lines of RecvFetch
        m.d.comb += [
            intake.rest.eq(commit.rest),
            intake.settled.eq(commit.idle),
            intake.hold.eq(self.hold),
            intake.completer_busy.eq(completer.busy),
            intake.completer_beside.eq(completer.beside),
            intake.completer_ending.eq(completer.ending),
            intake.completer_qp.eq(completer.qp),
            intake.completer_follows.eq(completer.follows),
            completer.hold.eq(self.hold),
            completer.foreseen.eq(self.foreseen),
            commit.front_idle.eq(intake.idle & ~completer.busy),
            self.turned.eq(intake.idle & ~completer.busy & ~jobs.o.valid),
            self.idle.eq(commit.idle),
            self.rolling_back.eq(commit.stalled),
            responder.decided.eq(commit.decided),
            completer.decided.eq(commit.decided),
            commit.settle.eq(self.settle),
            self.settled.eq(commit.settled),
            self.merged_acks.eq(intake.merged_acks),
            self.line_use.taken.eq(
                taken.valid
                & taken.ready
                & (taken.payload.kind == ScatterKind.LINE)
                & (taken.payload.store == LineStore.WQE)
            ),
            self.line_use.line.eq(taken.payload.line),
            self.line_use.done.eq(commit.line_done),
            commit.line_taken.eq(self.line_use.taken),
        ]
        if self._config.hot_qps:  # its row is written when the intake has gone on to others
            pin = self.completer_pin
            m.d.comb += [pin.number.eq(completer.qp), pin.held.eq(completer.busy)]
        if self._config.mp_wr:
            m.submodules.requests = requests = OpenRequests(config=self._config)
            wiring.connect(m, responder.request_read, requests.read)
            wiring.connect(m, responder.request_write, requests.write)
            wiring.connect(m, wiring.flipped(self.dropped), requests.dropped)
            m.d.comb += self.ready.eq(requests.ready)
        self._share_tables(m, intake, (responder, dropper), completer, commit)
        parts = {Part.FRONT: dropper, Part.RESPONDER: responder, Part.COMPLETER: completer}
        self._share_streams(m, platform, parts, commit, jobs.i)
        self._contract(m, platform, parts, commit)
        for name in Counters.members:
            now = self.counted.valid & self.counted.payload.events[name]
            with m.If(now):
                increment(m, self.counters[name])
        return m

    def _share_tables(self, m, intake, requests, completer, commit):
        """Each table's writers, of which one writes at a time; Commit restores rows only while the
        others rest."""
        responder, dropper = requests
        for port, inner, restored in (
            (self.ahead_write, responder.rx_write, commit.ahead_write),
            (self.ack_write, completer.ack_write, commit.ack_write),
        ):
            self._write(m, port, inner)
            with m.If(restored.enable):
                self._write(m, port, restored)
        with m.If(dropper.rx_write.enable):
            self._write(m, self.ahead_write, dropper.rx_write)
        self._write(m, intake.rx_written, responder.rx_write)
        # What Commit restores is nobody's at hand: it rests until the row is read anew.
        self._write(m, intake.ack_written, completer.ack_write)
        context = self.context
        for part in (intake, commit):
            m.d.comb += [part.context.rows.eq(context.rows), part.context.valid.eq(context.valid)]
        m.d.comb += [
            context.number.eq(intake.context.number),
            context.enable.eq(intake.context.enable),
        ]
        with m.If(commit.context.enable):
            m.d.comb += [context.number.eq(commit.context.number), context.enable.eq(1)]

    def _contract(self, m, platform, parts, commit):
        """Commit restores rows, and pokes, only while the others rest."""
        dropper, responder, completer = parts.values()
        rows = dropper.rx_write.enable + responder.rx_write.enable + commit.ahead_write.enable
        acks = completer.ack_write.enable & commit.ack_write.enable
        pokes = Cat(part.repoke.valid for part in parts.values() if hasattr(part, "repoke"))
        require(m, platform, rows <= 1, "one at a time writes a responder's row")
        require(m, platform, ~acks, "one at a time writes a completer's row")
        text = "rows are read back only when no packet is at hand"
        require(m, platform, ~commit.context.enable | commit.front_idle, text)
        require(m, platform, ~(commit.repoke.valid & pokes.any()), "one at a time pokes")

    @staticmethod
    def _write(m, port, source):
        for name in ("index", "row", "enable"):
            m.d.comb += getattr(port, name).eq(getattr(source, name))

    def _share_streams(self, m, platform, parts, commit, job):
        """Streams of several parts. Responder and dropper work one at a time, the completer beside
        them: its pokes wait for theirs."""
        dropper, responder, completer = parts.values()
        m.submodules.turns = turns = JobTurns()
        m.d.comb += [
            turns.decided.eq(commit.decided),
            # What the dropper is at is known early, and what it offers late.
            turns.wanted.eq(dropper.i.valid | responder.job.valid | responder.pending.valid),
        ]
        for name, outer in (("job", turns.request_job), ("pending", turns.request_pending)):
            drops, answers = getattr(dropper, name), getattr(responder, name)
            m.d.comb += [
                outer.valid.eq(drops.valid | answers.valid),
                outer.payload.eq(Mux(drops.valid, drops.payload, answers.payload)),
                drops.ready.eq(outer.ready),
                answers.ready.eq(outer.ready),
            ]
            text = "a packet is dropped, or a request is worked on"
            require(m, platform, ~(drops.valid & answers.valid), text)
        wiring.connect(m, completer.job, turns.completer_job)
        wiring.connect(m, completer.pending, turns.completer_pending)
        wiring.connect(m, turns.job, job)
        wiring.connect(m, turns.pending, commit.pending)
        pokes = (completer.repoke, responder.repoke, commit.repoke)
        m.d.comb += pokes[0].ready.eq(self.repoke.ready & ~pokes[1].valid)
        m.d.comb += [one.ready.eq(self.repoke.ready) for one in pokes[1:]]
        for one in pokes:
            with m.If(one.valid):
                m.d.comb += [self.repoke.valid.eq(1), self.repoke.payload.eq(one.payload)]
