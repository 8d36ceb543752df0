"""Deliberate faults of hdl/transport/send."""

from amaranth.hdl import Mux

from tests.faults.fault import Fault
from tests.force import Force, like, of, plus, stuck

__all__ = ["FAULTS"]

SEND = ("tests/transport/test_send.py",)
LATE_ROWS = (
    "tests/transport/test_late.py::test_machines_wait_for_their_rows"
    "[resend-each_restart_begins_a_generation_of_the_qp]",
)
UNANSWERED = ("tests/transport/test_unanswered.py",)
DRAINED = ("tests/transport/test_drained_qp.py",)
RESEND = ("tests/transport/test_resend.py",)
REQUEST_KEYS = ("tests/transport/test_request_keys.py",)

FAULTS = (
    # Requests sent.
    Fault(
        name="psn-plus-1",
        what="every request packet has a PSN one too high",
        force=Force("hdl.transport.send.packets:RequestPackets", "job.payload.header.psn", plus(1)),
        tests=SEND,
    ),
    Fault(
        name="reth-length-plus-1",
        what="the RETH says a byte more than the message has",
        force=Force(
            "hdl.transport.send.packets:RequestPackets", "job.payload.header.dma_length", plus(1)
        ),
        tests=SEND,
    ),
    Fault(
        name="fence-ignored",
        what="a fenced WQE does not wait for the READs before it",
        force=Force("hdl.transport.send.admission:RequestAdmission", "wqe.wqe.fence", stuck(0)),
        tests=SEND,
    ),
    Fault(
        name="long-messages-pile-up",
        what="a QP's long messages are fetched while those before them wait to be sent",
        force=Force("hdl.transport.send.fetch_turn:FetchTurn", "distances.pending", stuck(0)),
        tests=("tests/transport/test_send.py::test_long_messages_do_not_pile_up",),
    ),
    Fault(
        name="start-not-reported",
        what="the requester does not tell that a long message begins",
        force=Force("hdl.transport.send.admission:RequestAdmission", "started.valid", stuck(0)),
        tests=("tests/transport/test_send.py::test_long_messages_do_not_pile_up",),
    ),
    Fault(
        name="doorbell-lost",
        what="a doorbell does not make the scheduler look at the ring again",
        force=Force("hdl.transport.send.fetch_turn:FetchTurn", "rings", stuck(0)),
        tests=SEND,
    ),
    # That nothing is lost or stands still for good, these two leave to contracts.
    Fault(
        name="index-not-asked-for",
        what="a QP sleeps without having asked for the driver's index",
        force=Force("hdl.transport.send.fetch_turn:FetchTurn", "poll", stuck(0)),
        tests=SEND,
    ),
    Fault(
        name="offered-job-changes",
        what="a job that is offered to the gather makes way for one of the other side",
        force=Force("hdl.transport.send.tx_arbiter:TxArbiter", "offered", stuck(0)),
        tests=("tests/transport/test_tx_arbiter.py",),
    ),
    Fault(
        name="answer-overtakes",
        what="an ACK passes the READ responses of its own QP",
        force=Force("hdl.transport.send.tx_arbiter:TxArbiter", "ahead", stuck(0)),
        tests=("tests/transport/test_tx_arbiter.py::test_order_of_a_qp_stays",),
    ),
    Fault(
        name="reads-unlimited",
        what="READs are fetched that cannot be started",
        force=Force(
            "hdl.transport.send.scheduler:Scheduler", "context.rows.fetch.reading", stuck(0)
        ),
        tests=SEND,
    ),
    # What a reset or an invalidation waits for.
    Fault(
        name="reset-not-heeded",
        what="a message on its way goes on when its QP is reset",
        force=Force("hdl.transport.send.packets:RequestPackets", "reset", stuck(0)),
        tests=SEND,
    ),
    Fault(
        name="refusal-not-heeded",
        what="a packet that the gather has refused counts as sent",
        force=Force("hdl.transport.send.checks:RequestChecks", "bad", stuck(0)),
        tests=SEND,
    ),
    Fault(
        name="sent-before-its-entry",
        what="a packet goes out before its WQE is in the outstanding table",
        force=Force("hdl.transport.send.checks:RequestChecks", "any_begun", stuck(1)),
        tests=SEND,
    ),
    Fault(
        name="scheduler-counts-cycles",
        what="the scheduler takes the rows of a QP for those that it has asked for a cycle later",
        force=Force("hdl.transport.send.scheduler:Scheduler", "context.valid", stuck(1)),
        tests=LATE_ROWS,
    ),
    Fault(
        name="requester-counts-cycles",
        what="so does the requester",
        force=Force("hdl.transport.send.requester:Requester", "context.valid", stuck(1)),
        tests=LATE_ROWS,
    ),
    Fault(
        name="working-copy-of-another-qp",
        what="a row that comes late is taken for the one that has just been written",
        force=Force("hdl.transport.send.row:RequestRow", "stored_qp", like("qp")),
        tests=LATE_ROWS,
    ),
    Fault(
        name="sent-goes-back",
        what="what has left the card is forgotten when it is sent again",
        force=Force("hdl.transport.send.departures:Departures", "newer", stuck(1)),
        tests=("tests/transport/test_departures.py",),
    ),
    Fault(
        name="fetched-before-taken",
        what="a WQE that was fetched before its QP went back is taken afterwards",
        force=Force("hdl.transport.send.row:RequestRow", "rewinds", stuck(0)),
        tests=("tests/transport/test_resend.py",),
        campaign="heavy",
    ),
    Fault(
        name="resumed-at-the-beginning",
        what="a QP goes back to the first byte of a message, not to that of its packet",
        force=Force("hdl.transport.send.row:RequestRow", "origin.offset", stuck(0)),
        tests=SEND,
        campaign="mixed",
    ),
    Fault(
        name="ended-wqe-sent-again",
        what="a WQE that has ended meanwhile is sent again",
        force=Force("hdl.transport.send.admission:RequestAdmission", "finished", stuck(0)),
        tests=RESEND,
    ),
    Fault(
        name="pause-cut-short",
        what="a QP that pauses as its peer has asked sends what the driver posts meanwhile",
        force=Force("hdl.transport.send.admission:RequestAdmission", "ack.waiting", stuck(0)),
        tests=RESEND,
    ),
    Fault(
        name="no-new-generation",
        what="what is handed over after a restart cannot be told from what was before",
        force=Force("hdl.transport.send.requester:Requester", "advance", stuck(0)),
        tests=RESEND,
    ),
    Fault(
        name="goes-on-with-any-wqe",
        what="a QP that goes back sends the WQE at hand again, whichever was lost",
        force=Force("hdl.transport.send.redirect:RequestRedirect", "at_hand", stuck(1)),
        tests=RESEND,
    ),
    Fault(
        name="fetches-what-is-at-hand",
        what="a message that goes back is fetched again, although it is at hand",
        force=Force("hdl.transport.send.redirect:RequestRedirect", "at_hand", stuck(0)),
        tests=RESEND,
    ),
    Fault(
        name="failure-meets-an-append",
        what="a WQE fails without waiting for the entry that is being made",
        force=Force("hdl.transport.send.redirect:RequestRedirect", "entering", stuck(0)),
        tests=("tests/transport/test_request_redirect.py",),
    ),
    Fault(
        name="pause-outlives-its-qp",
        what="a QP that breaks while it pauses waits for the end of the pause",
        force=Force(
            "hdl.transport.send.requester:Requester",
            "redirect.waiting",
            of(lambda true, see: see("pauses")),
        ),
        tests=RESEND,
    ),
    Fault(
        name="drained-qp-begins",
        what="a QP whose send queue drains begins another WQE",
        force=Force("hdl.transport.send.admission:RequestAdmission", "drains", stuck(0)),
        tests=DRAINED,
    ),
    Fault(
        name="stream-of-another",
        what="an initiator of DC with streams takes all its requests for those of one",
        force=Force("hdl.transport.send.admission:RequestAdmission", "other_stream", stuck(0)),
        tests=("tests/nic/test_dc.py::test_dc[dc_streams-64]",),
    ),
    Fault(
        name="sends-to-nowhere",
        what="an initiator of DC without a connection sends what names no destination",
        force=Force("hdl.transport.send.admission:RequestAdmission", "lost", stuck(0)),
        tests=("tests/nic/test_dc.py::test_dc[dc_streams-64]",),
    ),
    Fault(
        name="drained-qp-stops",
        what="a QP whose send queue drains leaves a message in its middle",
        force=Force("hdl.transport.send.scheduler:Scheduler", "drains", stuck(0)),
        tests=DRAINED,
    ),
    # WQEs fetched ahead.
    Fault(
        name="stale-wqe-taken",
        what="a WQE that was asked for before a rewind is sent as if it were the next one",
        force=Force("hdl.transport.send.fetch_answer:FetchAnswer", "expected", stuck(0xF)),
        tests=SEND,
    ),
    Fault(
        name="asked-not-rewound",
        what="WQEs asked for before a rewind are not asked for again",
        force=Force(
            "hdl.transport.send.scheduler:Scheduler",
            "row_write.row.asked",
            of(lambda true, see: Mux(see("rewind.ready"), see("context.rows.fetch.asked"), true)),
        ),
        tests=SEND,
    ),
    Fault(
        name="ahead-without-limit",
        what="a QP asks for as many short WQEs ahead as there are",
        force=Force("hdl.transport.send.fetch_turn:FetchTurn", "distances.under_way", stuck(0)),
        tests=SEND,
    ),
    # Services without answers.
    Fault(
        name="ended-before-it-is-sent",
        what="a WQE that nothing answers ends with its check, before its payload has been read",
        force=Force("hdl.transport.send.checks:RequestChecks", "gone", stuck(1)),
        tests=UNANSWERED,
    ),
    Fault(
        name="failed-datagram-forgotten",
        what="packets behind one that was not read whole end its WQE a second time",
        force=Force("hdl.transport.send.checks:RequestChecks", "void", stuck(0)),
        tests=UNANSWERED,
    ),
    Fault(
        name="privileged-qkey-sent",
        what="a WQE can name a Q_Key with bit 31 set",
        force=Force(
            "hdl.transport.send.packets:RequestPackets",
            "cfg.qkey",
            of(lambda true, signal: signal("held.wqe.remote_addr")[32:]),
        ),
        tests=UNANSWERED,
    ),
    Fault(
        name="address-of-another-pd",
        what="a datagram goes out by an address handle of another protection domain",
        force=Force(
            "hdl.transport.send.admission:RequestAdmission", "destination.pd", like("cfg.pd")
        ),
        tests=UNANSWERED,
    ),
    Fault(
        name="registered-again",
        what="a QP that goes back sends its local requests as packets",
        file="hdl/transport/send/admission.py",
        old="                with m.Elif(local):",
        new="                with m.Elif(0):",
        because="the branch is chosen by a value that another branch uses, too",
        tests=REQUEST_KEYS,
    ),
    Fault(
        name="invalidation-overtakes",
        what="LOCAL_INV does not wait for the WQEs before it",
        force=Force("hdl.transport.send.admission:RequestAdmission", "older", stuck(0)),
        tests=REQUEST_KEYS,
    ),
    Fault(
        name="spoiled-frame-succeeds",
        what="a WQE that nothing answers succeeds although its payload could not be read",
        force=Force("hdl.transport.send.checks:RequestChecks", "spoiled", stuck(0)),
        tests=("tests/transport/test_unanswered.py",),
    ),
)
