"""Deliberate faults of hdl/transport/receive."""

from amaranth.hdl import Mux

from tests.faults.fault import Fault
from tests.force import Force, like, masked, of, plus, stuck

__all__ = ["FAULTS"]

FUNCTIONS = ("tests/nic/test_functions.py::test_two_functions",)
RECEIVE = ("tests/transport/test_receive.py::test_receive[receive]",)
RECEIVE_UNANSWERED = ("tests/transport/test_receive.py::test_receive[unanswered]",)
LATE_ROWS_RECEIVE = (
    "tests/transport/test_late.py::test_the_receive_side_waits_for_its_rows[unanswered]",
)
COUNTERS = ("tests/transport/test_qp_counters.py",)
XRC_ERRORS = ("tests/nic/test_xrc.py::test_xrc[xrc_errors-64]",)
MP_WR = ("tests/nic/test_mp_wr.py::test_mp_wr[mp_wr-64]",)
MP_WR_SHARED = ("tests/nic/test_mp_wr.py::test_mp_wr[mp_wr_shared-64]",)
REPLAY = ("tests/replay/test_command.py::test_capture_with_every_operation",)

FAULTS = (
    # Requests received.
    Fault(
        name="gap-accepted",
        what="a request whose PSN is ahead of the expected one is executed",
        force=Force("hdl.transport.receive.responder:Responder", "facts_now.ahead", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="nak-for-each-behind-a-gap",
        what="each request behind a gap brings a NAK of its own",
        force=Force("hdl.transport.receive.responder:Responder", "work.rx.nak_sent", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="read-answered-again-counts",
        what="a READ in sequence is refused while READs before it are answered again",
        force=Force(
            "hdl.transport.receive.responder:Responder",
            "work.reply.answered",
            like("work.reply.read_head"),
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="psn-not-advanced",
        what="the expected PSN stays when a request has been executed",
        force=Force(
            "hdl.transport.receive.responder:Responder", "rx_write.row.psn", like("work.rx.psn")
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="msn-not-advanced",
        what="the MSN does not count messages",
        force=Force("hdl.transport.receive.responder:Responder", "facts_now.msn", plus(-1)),
        tests=RECEIVE + REPLAY,
        live=True,
    ),
    Fault(
        name="short-write-accepted",
        what="an RDMA WRITE may end before or behind the length that its RETH announced",
        force=Force(
            "hdl.transport.receive.responder:Responder",
            "message_length_error",
            of(lambda true, see: true & ~see("work.operation.last")),
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="ack-left-out-for-another-qp",
        what="an ACK is left out because another QP will be answered",
        force=Force("hdl.transport.receive.ack_coalescer:AckCoalescer", "pushed_qp", stuck(0)),
        tests=("tests/transport/test_ack_coalescer.py",),
    ),
    Fault(
        name="completed-too-early",
        what="an ACK of any of its packets completes a WQE",
        force=Force("hdl.transport.receive.completer:Completer", "entry_now.at_last", stuck(1)),
        tests=RECEIVE,
    ),
    Fault(
        name="strangers-ack-merged",
        what="an ACK gives way to one of another machine for the same QP",
        force=Force(
            "hdl.transport.receive.intake:Intake",
            "same_sender",
            of(lambda true, see: true | 0b00100),
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="next-packet-by-the-old-row",
        what="a packet of the same QP right behind another is worked out with the row before it",
        force=Force("hdl.transport.receive.intake:Intake", "rx_written.row", like("work.rx")),
        tests=RECEIVE,
    ),
    Fault(
        name="intake-counts-cycles",
        what="so does the intake of the receive side",
        force=Force("hdl.transport.receive.intake:Intake", "context.valid", stuck(1)),
        tests=LATE_ROWS_RECEIVE,
    ),
    Fault(
        name="missed-row-counts",
        what="a row of a QP that is written while the intake reads it counts as it was before",
        force=Force("hdl.transport.receive.intake:Intake", "missed", stuck(0)),
        tests=("tests/transport/test_intake.py",),
    ),
    Fault(
        name="old-timeout-believed",
        what="a time-out that waited while answers came makes the QP go back",
        force=Force(
            "hdl.transport.receive.intake:Intake", "timers", of(lambda true, see: true | 1)
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="retries-not-counted",
        what="a QP goes back without end for the same packet",
        force=Force(
            "hdl.transport.receive.completer:Completer", "decision.verdict.retries", stuck(0)
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="retries-off-by-one",
        what="a QP goes back once more often than its retry_cnt says",
        force=Force(
            "hdl.transport.receive.completer:Completer",
            "decision.verdict.retries",
            of(lambda true, see: Mux((true == 1) & ~see("s.ack.recovering"), 0, true)),
        ),
        tests=RECEIVE,
        campaign="mixed",
    ),
    Fault(
        name="rnr-timer-ignored",
        what="a QP whose peer has no receive WQE goes back at once",
        force=Force(
            "hdl.transport.receive.completer:Completer", "decision.verdict.pause", stuck(0)
        ),
        tests=RECEIVE,
        campaign="mixed",
    ),
    Fault(
        name="second-nak-believed",
        what="a NAK from before the QP went back makes it go back again",
        force=Force("hdl.transport.receive.completer:Completer", "s.ack.recovering", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="stale-ack-believed",
        what="an ACK for what was acknowledged long ago moves the QP back to there",
        force=Force("hdl.transport.receive.completer:Completer", "entry_now.behind", stuck(0)),
        tests=RECEIVE,
        campaign="mixed",
    ),
    Fault(
        name="ghost-believed",
        what="an answer to what has not left the card counts",
        force=Force("hdl.transport.receive.completer:Completer", "entry_now.ghost", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="waiting-is-a-time-out",
        what="a QP's wait for its turn on its own card counts as its peer's silence",
        force=Force("hdl.transport.receive.completer:Completer", "entry_now.awaited", stuck(1)),
        tests=RECEIVE,
    ),
    Fault(
        name="duplicate-executed-twice",
        what="a request that comes a second time is executed a second time",
        force=Force("hdl.transport.receive.responder:Responder", "facts_now.behind", stuck(0)),
        tests=RECEIVE,
        campaign="mixed",
    ),
    Fault(
        name="atomic-unaligned",
        what="the responder takes an atomic on a word that is not aligned",
        force=Force("hdl.transport.receive.responder:Responder", "message_length_error", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="last-straw-ends-twice",
        what="a READ response that shows the last loss allowed ends its READ twice",
        file="hdl/transport/receive/completer.py",
        old="                    m.d.sync += s.finish.eq(0)\n",
        new="",
        because="the signal is right wherever else it is read",
        tests=RECEIVE,
    ),
    # Requests beside the completer.
    Fault(
        name="record-without-its-job",
        what="records of one side come between a job of the other and its record",
        force=Force("hdl.transport.receive.job_turns:JobTurns", "kept", stuck(0)),
        tests=("tests/transport/test_job_turns.py",),
    ),
    Fault(
        name="request-before-older-payload",
        what="the payload of a request is placed before that of a response that came before it",
        force=Force("hdl.transport.receive.completer:Completer", "beside", stuck(1)),
        tests=RECEIVE,
    ),
    Fault(
        name="row-read-too-early",
        what="the row of a packet that waits is as it was before the completer wrote it",
        file="hdl/transport/receive/intake.py",
        old="with m.If((acked.enable | missed) & (acked.index == pair)):",
        new="with m.If(acked.enable & (acked.index == pair)):",
        because="the signal is right wherever else it is read",
        tests=("tests/transport/test_intake.py",),
    ),
    # Ahead of the checks.
    Fault(
        name="behind-a-refusal-executed",
        what="packets behind one whose check failed are executed",
        force=Force("hdl.transport.receive.commit:Commit", "failed.found", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="rows-not-mended",
        what="the responder goes on with rows of packets that were undone",
        force=Force("hdl.transport.receive.commit:Commit", "ahead_write.enable", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="undone-row-kept",
        what="a row that was worked out behind a refusal becomes the QP's",
        force=Force(
            "hdl.transport.receive.commit:Commit",
            "rx_write.enable",
            of(lambda true, see: see("gone") & see("record.commit")),
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="failed-queue-pair-forgotten",
        what="the list of QPs whose checks failed has a single place",
        force=Force(
            "hdl.transport.receive.commit:Commit",
            "failed.add",
            of(lambda true, see: true & ~see("failed.any")),
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="more-lines-read-than-reported",
        what="packets are taken although no more lines can be reported as read",
        force=Force("hdl.transport.receive.commit:Commit", "full", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="receive-keys-of-the-qps-domain",
        what="keys of receive WQEs are checked against the QP's domain, not the source's",
        force=Force(
            "hdl.transport.receive.responder:Responder", "job.payload.pd", like("i.payload.cfg.pd")
        ),
        tests=("tests/transport/test_receive.py",),
    ),
    # What is counted for each QP.
    Fault(
        name="count-lost-behind-itself",
        what="what a counter has counted is lost when it counts again in the next cycle",
        force=Force(
            "hdl.transport.receive.qp_counters:QpCounters",
            "words.write.enable",
            of(lambda true, see: true & ~(see("storing") & (see("word") == see("place")))),
        ),
        tests=COUNTERS,
    ),
    Fault(
        name="second-event-not-counted",
        what="only one event of each packet is counted",
        force=Force("hdl.transport.receive.event_words:EventWords", "first", like("left")),
        tests=COUNTERS,
    ),
    Fault(
        name="counters-begin-anywhere",
        what="a QP's counters can be read before they were cleared for it",
        force=Force("hdl.transport.receive.qp_counters:QpCounters", "known", stuck(1)),
        tests=COUNTERS,
    ),
    Fault(
        name="success-behind-a-failure",
        what="a datagram that was sent behind a WQE that failed completes well",
        file="hdl/transport/receive/completer_outcome.py",
        old="with m.Elif(unanswered(config, work.cfg.type) & ~ack.error):",
        new="with m.Elif(unanswered(config, work.cfg.type)):",
        because="a choice among several, in a function",
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="uc-answered",
        what="requests of UC and UD are judged and answered like those of RC",
        force=Force("hdl.transport.receive.responder:Responder", "facts_now.silent", stuck(0)),
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="broken-message-keeps-its-wqe",
        what="the receive WQE of a message that is broken off is lost",
        force=Force("hdl.transport.receive.responder:Responder", "rx_write.row.held", stuck(0)),
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="wqe-taken-behind-a-bad-write",
        what="a UC message takes a receive WQE while a WRITE before it may still be dropped",
        force=Force("hdl.transport.receive.intake:Intake", "settled", stuck(1)),
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="sqe-stops-receiving",
        what="a send that fails stops the receive side of a UC or UD QP too",
        force=Force("hdl.transport.receive.intake:Intake", "receive_stopped", like("send_stopped")),
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="qkey-unchecked",
        what="a datagram is taken whatever its Q_Key is",
        force=Force("hdl.transport.receive.intake:Intake", "cause_now.bad_qkey", stuck(0)),
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="packets-to-the-first-function",
        what="a packet is for a QP of the first function, whatever its address",
        force=Force("hdl.transport.receive.intake:Intake", "index", masked(0xF)),
        tests=FUNCTIONS,
    ),
    Fault(
        name="checked-before-the-key-is-gone",
        what="packets behind a SEND with invalidate are checked before its key is invalid",
        force=Force("hdl.transport.receive.commit:Commit", "decided", stuck(1)),
        tests=RECEIVE,
    ),
    Fault(
        name="invalidated-by-a-duplicate",
        what="a duplicate of a SEND with invalidate invalidates its key again",
        file="hdl/transport/receive/responder.py",
        old="pending.invalidate.eq(work.operation.invalidate & (outcome == Outcome.ACCEPT))",
        new="pending.invalidate.eq(work.operation.invalidate)",
        because="the verdict has no name of its own",
        tests=RECEIVE,
    ),
    Fault(
        name="partition-of-everybody",
        what="QP1 takes packets of partitions that the table does not have",
        force=Force("hdl.transport.receive.intake:Intake", "work.header.pkey_hit", stuck(1)),
        tests=RECEIVE_UNANSWERED,
    ),
    # XRC.
    Fault(
        name="xrc-of-another-domain",
        what="a target takes from a receive queue that is not in its domain",
        force=Force(
            "hdl.transport.receive.named_source:NamedSource",
            "differs",
            of(lambda true, see: true & 0b0111),
        ),
        tests=XRC_ERRORS,
    ),
    Fault(
        name="xrc-old-number",
        what="a number of another generation finds the receive queue in the same pair",
        force=Force(
            "hdl.transport.receive.named_source:NamedSource",
            "differs",
            of(lambda true, see: true & 0b1101),
        ),
        tests=XRC_ERRORS,
    ),
    Fault(
        name="xrc-queue-of-another-packet",
        what="a queue that was looked up ahead for a packet counts for those behind it",
        force=Force("hdl.transport.receive.named_source:NamedSource", "here", stuck(1)),
        tests=("tests/transport/test_named_source.py",),
    ),
    Fault(
        name="xrc-judged-late",
        what="what is wrong with the queue that a packet names is known a cycle too late",
        file="hdl/transport/receive/intake.py",
        old="m.d.comb += self.responder.payload.lost.eq(named.lost)",
        new="m.d.comb += self.responder.payload.lost.eq(work.lost)",
        because="who drives the bit of the work is no value of a signal",
        tests=("tests/transport/test_named_source.py",),
    ),
    # Requests for several packets.
    Fault(
        name="mp-wr-beyond-the-buffer",
        what="a packet that does not fit into the open request is put there all the same",
        force=Force("hdl.transport.receive.responder:Responder", "verdict.piece.closes", stuck(0)),
        tests=MP_WR,
    ),
    Fault(
        name="mp-wr-undone-request-lost",
        what="a request that an undone packet would have ended does not go back",
        force=Force(
            "hdl.transport.receive.commit_outcome:CommitOutcome",
            "effects.complete",
            of(lambda true, see: true & ~see("fate.undo")),
        ),
        tests=MP_WR_SHARED,
    ),
)
