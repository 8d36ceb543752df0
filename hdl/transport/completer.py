"""The sending side's answers: ACKs, NAKs and READ responses finish outstanding WQEs."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.common.sums import is_sum
from hdl.config import NicConfig
from hdl.ports.jobs import (
    Activation,
    FetchRequest,
    FetchStatus,
    Oldest,
    RecvFetched,
    ScatterJob,
    ScatterKind,
)
from hdl.ports.rows import QpAck
from hdl.ports.tables import TableWrite

from .completer_check import (
    EntryFacts,
    Response,
    ResponseFacts,
    entry_facts,
    response_facts,
)
from .outstanding import Look, Pop
from .receive_types import CompleterWork, Events, Part, Pending, ReceiveFlags, SequenceNak

__all__ = ["Completer"]


class Completer(wiring.Component):
    """Takes one response packet, or one ``finish`` poke, with the rows of its QP.

    Walks the QP's outstanding WQEs, oldest first: those that the packet acknowledges finish, in
    order, each with a ``job`` and ``pending`` of its own (the first one of an ACK uses the
    packet's). Nothing waits for the check of a READ response's place: ``pending`` and rows are what
    a good one brings about; ``Commit`` sees to those that are not.
    An entry that is not ``complete`` is never removed: the requester still works on it.
    ``busy`` from the cycle after ``i`` was taken, with ``qp`` whose row is being changed, until all
    has been handed over: row, ``pop``, ``wake``, ``repoke``; ``ending`` in the last such cycle, or
    before, when only the ``pop`` is left.
    A READ finishes by its own responses only; a packet that passes over an unfinished one shows
    that responses were lost: it is counted and ``sequence_nak`` says from where (as for NAK 60h).
    Spec: IBTA vol 1, 9.7.5.2, 9.7.6 (requester), 9.9.3 (its errors), 10.8.3 (flush).
    Latency: an ACK of one WQE 7 cycles, each further WQE 5; a READ response 10 and the wait for the
    fetch. Throughput: one packet at a time.
    Errors: in ``pending.events``; the first WQE that ends in error sets ``QpAck.error``, and FINISH
    pokes asked for here flush the rest one by one. A ``sequence_nak`` that finds the last one not
    taken is lost (receive never waits for the send side). Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(CompleterWork)),
                "job": Out(stream.Signature(ScatterJob)),
                "pending": Out(stream.Signature(Pending)),
                "fetch_req": Out(stream.Signature(FetchRequest)),
                "fetch_rsp": In(stream.Signature(RecvFetched)),
                "head_req": Out(stream.Signature(Look)),
                "head_rsp": In(stream.Signature(Oldest)),
                "pop": Out(stream.Signature(Pop)),
                "wake": Out(stream.Signature(14)),
                "repoke": Out(stream.Signature(Activation)),
                "sequence_nak": Out(stream.Signature(SequenceNak)),
                "ack_write": Out(TableWrite(14, QpAck)),
                "qp": Out(14),
                "busy": Out(1),
                "ending": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        work = Signal(CompleterWork, reset_less=True)
        header = work.header
        ack = Signal(QpAck, reset_less=True)  # working copy
        changed = Signal()  # ... which differs from the table
        oldest = Signal(Oldest, reset_less=True)
        entry = oldest.entry
        said, facts = Signal(ResponseFacts, reset_less=True), Signal(EntryFacts, reset_less=True)
        response_now = response_facts(m, self.i.payload)
        entry_now = entry_facts(m, work, oldest, ack)

        owes = Signal()  # the packet has not had its job yet
        finish, status = Signal(), Signal(8, reset_less=True)  # the oldest WQE ends, with status
        placed = Signal()  # a READ response's payload is where it belongs
        more = Signal()  # look at the next WQE after this one
        kind = Signal(ScatterKind)
        fetched = Signal(RecvFetched, reset_less=True)
        discard = Mux(header.length == 0, ScatterKind.NONE, ScatterKind.DISCARD)
        give_pending, give_pop, give_wake = Signal(), Signal(), Signal()
        # What ``pending`` says beside the registers above.
        counted, events = Signal(Events), Signal(Events)  # since the last one; now
        packet, jobless = Signal(), Signal()
        poke_flags = Signal(4)  # ReceiveFlags; not 0: poke is given
        left = [Signal(name=f"{name}_left") for name in ("pending", "wake", "poke")]
        pop = Signal(Pop, reset_less=True)
        is_data = ~work.finish & (said.response == Response.DATA)

        with m.FSM(name="completer") as fsm:
            with m.State("IDLE"):
                taken = self.i.payload
                m.d.sync += [
                    work.eq(taken),
                    ack.eq(taken.ack),
                    said.eq(response_now),
                    owes.eq(~taken.finish),
                    packet.eq(~taken.finish),
                    changed.eq(0),
                    more.eq(0),
                    poke_flags.eq(0),
                    finish.eq(0),
                    placed.eq(0),
                    kind.eq(ScatterKind.NONE),
                ]
                m.d.comb += [
                    self.head_req.valid.eq(self.i.valid & ~give_pop),
                    self.head_req.payload.qp.eq(taken.qp),
                    self.head_req.payload.stopped.eq(taken.in_error),
                    self.i.ready.eq(self.head_req.ready & ~give_pop),
                ]
                with m.If(self.i.valid & self.i.ready):
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += self.head_rsp.ready.eq(1)
                m.d.sync += oldest.eq(self.head_rsp.payload)
                with m.If(self.head_rsp.valid):
                    m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += facts.eq(entry_now)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.next = "END"  # unless something below finishes or places
                with m.If(work.finish):
                    self._decide_poke(m, work, ack, oldest, facts, finish, status)
                with m.Else():
                    self._decide_packet(
                        m,
                        work,
                        ack,
                        oldest,
                        said,
                        facts,
                        finish,
                        status,
                        more,
                        changed,
                        poke_flags,
                        events,
                    )
            with m.State("PLACE"):
                length = Signal(32)
                m.d.comb += length.eq(header.length)
                ends = is_sum(facts.offset, length, entry.length)
                owes_last = said.last & facts.at_last & ends
                owes_more = ~said.last & ~facts.at_last & said.full
                m.d.sync += [owes.eq(0), kind.eq(discard)]
                with m.If((said.first == ack.read_begun) | ~(owes_last | owes_more)):
                    m.d.comb += events.bad_response.eq(1)
                    m.d.sync += [finish.eq(1), status.eq(WcStatus.BAD_RESP_ERR)]
                    m.next = "JOB"
                with m.Else():
                    m.d.sync += [placed.eq(1), finish.eq(said.last), status.eq(WcStatus.SUCCESS)]
                    m.next = "FETCH"
                    with m.If(header.length == 0):
                        m.next = "JOB"
            with m.State("FETCH"):
                m.d.comb += self.fetch_req.valid.eq(1)
                with m.If(self.fetch_req.ready):
                    m.next = "FETCHED"
            with m.State("FETCHED"):
                m.d.comb += self.fetch_rsp.ready.eq(1)
                m.d.sync += fetched.eq(self.fetch_rsp.payload)
                with m.If(self.fetch_rsp.valid):
                    m.d.sync += kind.eq(ScatterKind.LINE)
                    m.next = "JOB"
                    with m.If(self.fetch_rsp.payload.status != FetchStatus.OK):
                        # The ring has changed under a WQE that was good when it was sent.
                        m.d.sync += [
                            kind.eq(ScatterKind.DISCARD),
                            finish.eq(1),
                            status.eq(WcStatus.LOC_QP_OP_ERR),
                        ]

            with m.State("END"):
                m.d.sync += owes.eq(0)
                with m.If(owes):
                    m.d.sync += kind.eq(discard)
                    m.next = "JOB"
                with m.Else():
                    m.d.sync += [give_pending.eq(counted.as_value().any()), jobless.eq(1)]
                    m.next = "HAND-OVER"
            with m.State("JOB"):
                m.d.comb += self.job.valid.eq(1)
                with m.If(self.job.ready):
                    m.d.sync += [give_pending.eq(1), jobless.eq(0)]
                    with m.If(finish):
                        self._finish(m, work, ack, entry, facts, status, poke_flags)
                        m.d.sync += [changed.eq(1), give_pop.eq(1), give_wake.eq(1)]
                        m.d.sync += [pop.qp.eq(work.qp), pop.look.eq(more)]
                        with m.If(~is_data):
                            m.d.sync += owes.eq(0)
                    with m.Elif(placed):
                        m.d.sync += [
                            ack.psn.eq(said.next_psn),
                            ack.read_begun.eq(1),
                            changed.eq(1),
                        ]
                    m.next = "HAND-OVER"
            with m.State("HAND-OVER"):
                m.d.comb += self.ack_write.enable.eq(changed)
                m.d.sync += changed.eq(0)
                with m.If(Cat(left) == 0):
                    with m.If(more):
                        # The pop shows the next WQE.
                        m.d.sync += [
                            finish.eq(0),
                            placed.eq(0),
                            more.eq(0),
                            kind.eq(ScatterKind.NONE),
                        ]
                        m.next = "HEAD"
                    with m.Elif(owes):
                        m.next = "END"
                    with m.Else():
                        m.d.comb += self.ending.eq(1)
                        m.next = "IDLE"

        # What is handed over, each as soon as its taker is ready; a wake for all that has finished.
        # The first two become due on the way into that state, and it does not end before they go.
        handing = fsm.ongoing("HAND-OVER")
        for still, give, due, port in (
            (left[0], give_pending, give_pending, self.pending),
            (left[1], give_wake, handing & give_wake & ~more, self.wake),
            (left[2], poke_flags, handing & (poke_flags != 0), self.repoke),
        ):
            m.d.comb += [port.valid.eq(due), still.eq(due & ~port.ready)]
            with m.If(port.valid & port.ready):
                m.d.sync += give.eq(0)
        # The table says late whether it takes a pop: only the next look waits for that.
        m.d.comb += self.pop.valid.eq(give_pop)
        with m.If(self.pop.valid & self.pop.ready):
            m.d.sync += give_pop.eq(0)

        self._ports(m, work, ack, entry, facts, finish, status, kind, fetched, poke_flags)
        m.d.comb += self.pop.payload.eq(pop)
        m.d.comb += [self.busy.eq(~fsm.ongoing("IDLE") | give_pop), self.qp.eq(work.qp)]
        failed = fsm.ongoing("JOB") & self.job.ready & finish
        m.d.comb += [
            events.req_cqe_error.eq(failed & (status != WcStatus.SUCCESS)),
            events.req_cqe_flush_error.eq(failed & (status == WcStatus.WR_FLUSH_ERR)),
            self.pending.payload.packet.eq(packet),
            self.pending.payload.jobless.eq(jobless),
            self.pending.payload.events.eq(counted),
        ]
        m.d.sync += counted.eq(counted.as_value() | events.as_value())
        with m.If(self.pending.valid & self.pending.ready):
            m.d.sync += [counted.eq(0), packet.eq(0)]
        with m.If(self.sequence_nak.valid & self.sequence_nak.ready):
            m.d.sync += self.sequence_nak.valid.eq(0)
        return m

    def _ports(self, m, work, ack, entry, facts, finish, status, kind, fetched, poke_flags):
        header, cfg, job = work.header, work.cfg, self.job.payload
        pending = self.pending.payload
        done, failed = pending.effects.completion, status != WcStatus.SUCCESS
        send_queue = (work.qp << 1) + self._config.sq_queue(0)
        m.d.comb += [
            self.wake.payload.eq(work.qp),
            self.repoke.payload.qp.eq(work.qp),
            self.repoke.payload.flags.eq(poke_flags),
            self.ack_write.index.eq(work.qp),
            self.ack_write.row.eq(ack),
            self.fetch_req.payload.function.eq(cfg.function),
            self.fetch_req.payload.qp.eq(work.qp),
            self.fetch_req.payload.queue.eq(send_queue),
            self.fetch_req.payload.position.eq(entry.position),
            self.fetch_req.payload.known.eq(entry.position + 1),
            self.fetch_req.payload.send.eq(1),
            job.kind.eq(kind),
            job.function.eq(cfg.function),
            job.pd.eq(cfg.pd),
            job.line.eq(fetched.line),
            job.num_sge.eq(fetched.wqe.num_sge),
            job.offset.eq(facts.offset),
            job.length.eq(Mux(kind == ScatterKind.NONE, 0, header.length)),
            pending.qp.eq(work.qp),
            pending.part.eq(Part.COMPLETER),
            pending.line.eq(kind == ScatterKind.LINE),
            pending.effects.complete.eq(finish),
            pending.effects.qp.eq(work.qp),
            done.emit.eq(entry.signaled | failed),
            done.cq.eq(cfg.send_cq),
            done.wr_id.eq(entry.wr_id),
            done.status.eq(status),
            done.opcode.eq(entry.completion),
            done.byte_len.eq(Mux(failed, 0, entry.length)),
            done.qp_num.eq(cfg.qpn),
            done.src_qp.eq(cfg.dest_qpn),
            done.solicited.eq(failed),
            done.ring.eq(1),
            done.queue.eq(send_queue),
            done.head.eq(entry.head),
            done.function.eq(cfg.function),
        ]

    def _finish(self, m, work, ack, entry, facts, status, poke_flags):
        """The row behind the oldest WQE, and what must happen next."""
        m.d.sync += [
            ack.wakes.eq(ack.wakes + 1),
            ack.reads.eq(ack.reads + entry.data),
            ack.read_begun.eq(0),
            ack.status.eq(0),
        ]
        with m.If(work.finish):
            m.d.sync += poke_flags.eq(ReceiveFlags.FINISH)  # one WQE for each poke
        with m.If(status != WcStatus.SUCCESS):
            m.d.sync += [ack.error.eq(1), poke_flags.eq(ReceiveFlags.FINISH)]
            with m.If(~work.ack.error):
                m.d.sync += poke_flags.eq(ReceiveFlags.FINISH | ReceiveFlags.FLUSH)
        with m.Elif(~facts.acknowledged):
            m.d.sync += ack.psn.eq(facts.next_psn)

    def _decide_poke(self, m, work, ack, oldest, facts, finish, status):
        entry = oldest.entry
        acknowledged = facts.acknowledged & ~entry.data
        with m.If(oldest.valid & entry.complete):
            m.d.sync += finish.eq(1)
            m.next = "JOB"
            with m.If(ack.status != 0):
                m.d.sync += status.eq(ack.status)
            with m.Elif(entry.status != 0):
                m.d.sync += status.eq(entry.status)
            with m.Elif(acknowledged):
                m.d.sync += status.eq(WcStatus.SUCCESS)
            with m.Elif(work.in_error):
                m.d.sync += status.eq(WcStatus.WR_FLUSH_ERR)
            with m.Else():
                m.d.sync += finish.eq(0)
                m.next = "END"

    def _decide_packet(
        self, m, work, ack, oldest, said, facts, finish, status, more, changed, poke_flags, events
    ):
        entry = oldest.entry
        is_ack, is_data = said.response == Response.ACK, said.response == Response.DATA
        reached = facts.past | (facts.at_last & is_ack)  # everything of the WQE is acknowledged

        def lost():
            """READ responses are missing; the retry logic may ask for them again."""
            m.d.comb += events.implied_nak_seq_err.eq(1)
            self._sequence_nak(m, work.qp, ack.psn)

        with m.If(said.response == Response.INVALID):
            m.d.comb += events.unexpected_response.eq(1)
        with m.Elif(~oldest.valid | facts.behind):
            # An ACK that says nothing new is no error: duplicates are answered with one.
            m.d.comb += events.unexpected_response.eq(~(is_ack & facts.behind))
        with m.Elif(entry.status != 0):
            m.d.sync += poke_flags.eq(ReceiveFlags.FINISH)  # failed here, and now the oldest
            m.d.comb += events.unexpected_response.eq(is_data)
        with m.Elif(~entry.data & reached & entry.complete):
            m.d.sync += [finish.eq(1), status.eq(WcStatus.SUCCESS), more.eq(facts.past)]
            m.next = "JOB"
        with m.Elif(facts.past | (is_data & ~(entry.data & entry.complete))):
            with m.If(entry.data & entry.complete):
                lost()
            with m.Else():
                m.d.comb += events.unexpected_response.eq(1)
        with m.Elif(is_data & facts.expected):
            m.next = "PLACE"
        with m.Elif(is_data | (is_ack & entry.data)):
            lost()
        with m.Elif(is_ack):
            m.d.sync += [ack.psn.eq(said.next_psn), changed.eq(1)]
        with m.Else():
            self._decide_nak(
                m, work, ack, oldest, said, facts, finish, status, changed, poke_flags, events
            )

    def _decide_nak(
        self, m, work, ack, oldest, said, facts, finish, status, changed, poke_flags, events
    ):
        """A NAK for a packet of the oldest WQE; all before it is acknowledged."""
        header = work.header
        fatal = said.response == Response.FATAL
        rnr = said.response == Response.RNR
        with m.If(~oldest.entry.data):
            m.d.sync += [ack.psn.eq(header.psn), changed.eq(1)]
        with m.If(said.response == Response.SEQUENCE):
            m.d.comb += events.packet_seq_err.eq(1)
            self._sequence_nak(m, work.qp, Mux(oldest.entry.data, ack.psn, header.psn))
        m.d.comb += [
            events.rnr_nak.eq(rnr),
            events.req_remote_invalid_request.eq(fatal & (said.status == WcStatus.REM_INV_REQ_ERR)),
            events.req_remote_access_errors.eq(fatal & (said.status == WcStatus.REM_ACCESS_ERR)),
            events.req_remote_operational_errors.eq(fatal & (said.status == WcStatus.REM_OP_ERR)),
        ]
        with m.If(fatal | (rnr & (work.cfg.rnr_retry == 0))):
            with m.If(oldest.entry.complete):
                m.d.sync += [finish.eq(1), status.eq(said.status)]
                m.next = "JOB"
            with m.Else():
                # The requester still sends it: it finishes with a FINISH poke once it is complete.
                m.d.sync += [
                    ack.error.eq(1),
                    ack.status.eq(said.status),
                    changed.eq(1),
                    poke_flags.eq(ReceiveFlags.FINISH | ReceiveFlags.FLUSH),
                ]

    def _sequence_nak(self, m, qp, psn):
        port = self.sequence_nak
        with m.If(~port.valid):
            m.d.sync += [port.valid.eq(1), port.payload.qp.eq(qp), port.payload.psn.eq(psn)]
