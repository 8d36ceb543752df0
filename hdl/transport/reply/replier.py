"""The responder's packets: READ responses, ACKs and NAKs, from QP state and a ready list."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.activation import ActivationList
from hdl.common.contract import require
from hdl.common.count import COUNT
from hdl.common.ram import Ram
from hdl.common.tables import TableRead, TableWrite
from hdl.config import NicConfig
from hdl.ports.atomics import AtomicResult
from hdl.ports.context import ContextRead
from hdl.ports.jobs import Activation, ReplyFlags, TxChecked, TxJob
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import QpReply, ReadResource

from .checks import ReplyChecks
from .packets import ReplyPackets
from .turns import ReplyTurns

__all__ = ["Replier"]


class Replier(wiring.Component):
    """Answers the requests that the responder has accepted: a pipeline of three stages.

    ``ReplyTurns`` takes QPs from the list and decides what each is told next, ``ReplyPackets`` cuts
    it into packets, ``ReplyChecks`` pairs those with payload with the gather's answers.
    Spec: IBTA vol 1, 9.7.5 (acknowledgements), 9.7.5.1.1 (syndromes), 9.7.4.1.1 (READ responses).

    Members: ``activate`` (flags of ``ReplyFlags``, merged per QP while it waits),
    ``job``/``checked`` to the gather, ``context`` and ``row_write``: the QP's rows, ``resource``
    (the pool of accepted READs and atomics); ``result`` In: what an atomic found, kept at its place
    in the pool before its QP is activated; ``saved`` In (a cycle, at most every other): a READ or
    an atomic has been accepted at ``saved_at`` in the pool; ``landed`` In (at most every other
    cycle): it may be answered, as what stands in front of it has been written, and it has been
    executed. ``turned``: see ``Quiesce``; ``hold``: it is waited for, so no QP is taken until all
    that has been handed over has its check. ``waiting``: QPs in the lists. Counters (``COUNT``
    bits, wrap): ``acks``, ``naks``, ``read_packets`` (READ responses sent).

    READs are answered in order and before any ACK or NAK of the same QP; an ACK says the newest
    expected PSN, so acknowledgements merge while they wait. No check is waited for: a READ response
    that the gather refuses (its key went away after the request was accepted) becomes NAK 62h and
    the QP's READs are dropped. What had been handed over behind it, of the same QP, goes out with
    its PSNs; the one that is missing keeps the peer from using any of it. A QP in RESET, INIT or
    ERR says nothing.

    Latency: 4 cycles from the list to the job, 8 in the middle of a READ. Throughput: a packet in 2
    cycles of a READ or of READs of one packet, 4 of QPs in turn; an ACK 3. Up to 16 responses, 4
    above 1 KiB, are in their checks.
    Errors: a refused response, as above. Reset: nothing is due.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "activate": In(stream.Signature(Activation)),
                "context": Out(ContextRead("replier")),
                "row_write": Out(TableWrite(QpNumber, QpReply)),
                "resource": Out(TableRead(16, ReadResource)),
                "result": In(TableWrite(16, AtomicResult)),
                "saved": In(1),
                "saved_at": In(16),
                "landed": In(stream.Signature(16, always_ready=True)),
                "job": Out(stream.Signature(TxJob)),
                "checked": In(stream.Signature(TxChecked)),
                "hold": In(1),
                "turned": Out(1),
                "waiting": Out(range(2 * config.qps + 1)),
                "acks": Out(COUNT),
                "naks": Out(COUNT),
                "read_packets": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.turns = turns = ReplyTurns(config=self._config)
        active = self._lists(m)
        m.submodules.packets = packets = ReplyPackets(config=self._config)
        m.submodules.checks = checks = ReplyChecks()
        self._await(m, platform, turns)
        if self._config.atomics:
            self._results(m, turns)
        for one, other in (
            (turns.again, active.set1),
            (turns.o, packets.i),
            (packets.o, checks.i),
            (checks.refused, turns.refused),
            (packets.job, wiring.flipped(self.job)),
            (wiring.flipped(self.checked), checks.checked),
            *((getattr(turns, name), wiring.flipped(getattr(self, name))) for name in _TABLES),
        ):
            wiring.connect(m, one, other)
        m.d.comb += [
            turns.progress.eq(packets.progress),
            turns.hold.eq(self.hold),
            packets.stop.eq(checks.refused.valid),
            packets.room.eq(checks.room),
            checks.large.eq(packets.large),
            self.turned.eq(turns.idle & packets.idle & checks.idle),
            self.acks.eq(turns.acks),
            self.naks.eq(turns.naks),
        ]
        # In a register: it is a sum, and another one follows.
        m.d.sync += self.read_packets.eq(checks.good + packets.empty)
        return m

    def _lists(self, m: Module) -> ActivationList:
        """QPs that have READs to be answered stand in one list, those that only acknowledge in
        another: the turn of one follows that of the other, so an ACK waits for one turn of READs,
        however many QPs have some. Returns the list of those with READs, which has a port free."""
        qps, activate = self._config.qps, self.activate
        m.submodules.list = reads = ActivationList(qps=qps, sets=2)
        m.submodules.short = short = ActivationList(qps=qps)
        long, choice, last = Signal(), Signal(), Signal()
        flags, turns = data.View(ReplyFlags, activate.payload.flags), m.submodules.turns
        m.d.comb += [
            long.eq(flags.read | flags.replay),
            activate.ready.eq(Mux(long, reads.set0.ready, short.set0.ready)),
            # The one that had its turn longer ago.
            choice.eq(short.o.valid & (last | ~reads.o.valid)),
            turns.active.valid.eq(short.o.valid | reads.o.valid),
            turns.active.payload.eq(Mux(choice, short.o.payload, reads.o.payload)),
            short.o.ready.eq(turns.active.ready & choice),
            reads.o.ready.eq(turns.active.ready & ~choice),
            self.waiting.eq(short.level + reads.level),
        ]
        for one, takes in ((reads, long), (short, ~long)):
            m.d.comb += [
                one.set0.payload.eq(activate.payload),
                one.set0.valid.eq(activate.valid & takes),
            ]
        with m.If(turns.active.valid & turns.active.ready):
            m.d.sync += last.eq(~choice)
        return reads

    def _results(self, m: Module, turns) -> None:
        """What atomics have found, by their places in the pool."""
        result = self.result
        m.submodules.results = results = Ram(
            shape=AtomicResult, depth=self._config.read_resources, forward=False
        )
        m.d.comb += [
            results.write.index.eq(result.index),
            results.write.row.eq(result.row),
            results.write.enable.eq(result.enable),
            results.read0.index.eq(turns.resource.index),
            results.read0.enable.eq(turns.resource.enable),
            turns.result.eq(results.read0.row),
        ]

    def _await(self, m: Module, platform, turns) -> None:
        """Which of the READs and atomics that were accepted must not be answered yet, by their
        places in the pool: they are behind WRITEs that are not written, or not executed (IBTA vol
        1, 10.8.3.3: a READ finds what the WRITEs in front of it have written)."""
        # Read as it is written it may still say so: the QP then comes back a little later.
        m.submodules.awaited = awaited = Ram(
            shape=1, depth=self._config.read_resources, earlier=(0,)
        )
        # What has landed is noted a cycle later, or two if a request is saved then, which happens
        # at most every other cycle. A place is the end of a sum, and nobody asks for it before it
        # is committed. What was dropped does not land: who takes over its place does.
        landed, place = Signal(), Signal(16, reset_less=True)
        saved, saved_at = Signal(), Signal(16, reset_less=True)
        m.d.sync += [saved.eq(self.saved), saved_at.eq(self.saved_at)]
        m.d.comb += [
            awaited.write.index.eq(Mux(saved, saved_at, place)),
            awaited.write.row.eq(saved),
            awaited.write.enable.eq(saved | landed),
            awaited.read0.index.eq(turns.resource.index),
            awaited.read0.enable.eq(turns.resource.enable),
            turns.awaited.eq(awaited.read0.row),
        ]
        require(m, platform, ~(saved & self.saved), "a request is saved at most every other cycle")
        require(m, platform, ~(self.landed.valid & landed & saved), "all that lands is noted")
        with m.If(self.landed.valid):
            m.d.sync += [landed.eq(1), place.eq(self.landed.payload)]
        with m.Elif(~saved):
            m.d.sync += landed.eq(0)


_TABLES = ("context", "row_write", "resource")
