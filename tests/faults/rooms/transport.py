"""Deliberate faults of hdl/transport, but for its send and receive sides."""

from amaranth.hdl import Mux

from hdl.wire.constants import SYNDROME_ACK_NO_LIMIT
from tests.faults.fault import Fault
from tests.force import Force, like, of, plus, stuck

__all__ = ["FAULTS"]

UNANSWERED = ("tests/transport/test_unanswered.py",)
TIMERS = ("tests/transport/test_qp_timers.py",)
OUTSTANDING = ("tests/transport/test_outstanding.py",)
REPLY = ("tests/transport/test_replier.py",)
REQUEST_KEYS = ("tests/transport/test_request_keys.py",)

FAULTS = (
    # Responses sent and received.
    Fault(
        name="nak-syndrome-wrong",
        what="a refused READ is answered with the syndrome of an ACK",
        force=Force(
            "hdl.transport.reply.turns:ReplyTurns",
            "o.payload.syndrome",
            of(lambda true, see: Mux(see("turn.serving"), SYNDROME_ACK_NO_LIMIT, true)),
        ),
        tests=REPLY,
    ),
    Fault(
        name="answered-read-not-reported",
        what="the responder learns of answered READs late, and refuses the peer's next one",
        force=Force(
            "hdl.transport.reply.turns:ReplyTurns",
            "row_write.enable",
            of(lambda true, see: true & ~see("progress.ends")),
        ),
        tests=REPLY,
    ),
    Fault(
        name="nak-for-each-refused",
        what="responses refused behind the first one bring NAKs of their own",
        force=Force(
            "hdl.transport.reply.turns:ReplyTurns",
            "refused.payload.generation",
            like("context.rows.reply.generation"),
        ),
        tests=REPLY,
    ),
    Fault(
        name="ack-psn-plus-1",
        what="an ACK acknowledges a packet that has not come",
        force=Force(
            "hdl.transport.reply.turns:ReplyTurns",
            "turn.psn",
            of(lambda true, see: true + ~see("turn.nak")),
        ),
        tests=REPLY,
    ),
    Fault(
        name="failed-wqe-left-behind",
        what="a failed WQE is not looked at again when the one in front of it has finished",
        force=Force(
            "hdl.transport.outstanding.table:OutstandingTable", "now.list.watched", stuck(0)
        ),
        tests=("tests/transport/test_outstanding.py",),
    ),
    Fault(
        name="next-of-a-grown-list",
        what="a WQE that was appended behind the last one, after that was looked at, is not found",
        force=Force(
            "hdl.transport.outstanding.table:OutstandingTable",
            "shown.qp",
            of(lambda true, see: Mux(see("append.ready"), ~true, true)),
        ),
        tests=("tests/transport/test_outstanding.py",),
    ),
    # Lost packets.
    Fault(
        name="timer-never-fires",
        what="an answer that does not come is waited for without end",
        force=Force("hdl.transport.recovery.qp_timers:QpTimers", "over", stuck(0)),
        tests=TIMERS,
        campaign="mixed",
    ),
    Fault(
        name="timer-too-short",
        what="a time-out comes before its time is over",
        force=Force("hdl.transport.recovery.qp_timers:QpTimers", "steps", plus(-2)),
        tests=TIMERS,
    ),
    Fault(
        name="timer-not-stopped",
        what="a QP with nothing outstanding has a timer that runs",
        force=Force(
            "hdl.transport.outstanding.table:OutstandingTable", "timer.payload.kind", stuck(1)
        ),
        tests=OUTSTANDING,
    ),
    Fault(
        name="time-out-put-off",
        what="a QP that goes on sending waits for the answer to what it sent last",
        force=Force("hdl.transport.recovery.qp_timers:QpTimers", "asked.idle", stuck(1)),
        tests=("tests/transport/test_qp_timers.py",),
    ),
    Fault(
        name="departure-ends-a-pause",
        what="a packet that leaves while its QP pauses gives the timer another time",
        force=Force("hdl.transport.recovery.qp_timers:QpTimers", "departs", stuck(0)),
        tests=("tests/transport/test_qp_timers.py",),
    ),
    Fault(
        name="atomic-answered-early",
        what="an atomic is answered before it has been executed",
        force=Force("hdl.transport.reply.replier:Replier", "turns.awaited", stuck(0)),
        tests=REPLY,
    ),
    Fault(
        name="what-lands-is-not-noted",
        what="a READ or an atomic is not answered although all in front of it has been written",
        force=Force("hdl.transport.reply.replier:Replier", "landed.valid", stuck(0)),
        tests=REPLY,
    ),
    Fault(
        name="ack-covers-reads",
        what="an ACK acknowledges the READs behind its request",
        force=Force(
            "hdl.transport.reply.turns:ReplyTurns",
            "context.rows.rx.ack_psn",
            of(lambda true, see: see("context.rows.rx.psn") - 1),
        ),
        tests=REPLY,
    ),
    Fault(
        name="sent-wqe-forgotten",
        what="nobody looks at a WQE that nothing answers when it has been sent",
        force=Force("hdl.transport.outstanding.table:OutstandingTable", "now.ends", stuck(0)),
        tests=UNANSWERED,
    ),
    Fault(
        name="read-of-no-window",
        what="the check of a READ response's bytes takes all of them for those of one queue pair",
        force=Force("hdl.transport.reply.packets:ReplyPackets", "job.payload.qp", stuck(0)),
        tests=("tests/transport/test_replier.py::test_read_response_then_ack",),
    ),
    Fault(
        name="nobody-ends-a-registration",
        what="an entry that no answer ends gives no poke",
        force=Force(
            "hdl.transport.outstanding.table:OutstandingTable",
            "self.append.payload.unsent",
            stuck(0),
        ),
        tests=REQUEST_KEYS + OUTSTANDING,
    ),
    # DC.
    Fault(
        name="dc-packets-to-queue-pairs",
        what="packets that open and close connections of DC go to the QPs and not to the firmware",
        force=Force("hdl.transport.connections:Connections", "control", stuck(0)),
        tests=("tests/transport/test_connections.py::test_packets_that_came",),
    ),
)
