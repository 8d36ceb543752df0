"""Deliberate faults of hdl/queues."""

from tests.faults.fault import Fault
from tests.force import Force, like, masked, of, plus, stuck

__all__ = ["FAULTS"]

FUNCTIONS = ("tests/nic/test_functions.py::test_two_functions",)
FETCH = ("tests/queues/test_queues.py::test_engine[send-64]",)
FETCH_MIXED = ("tests/queues/test_queues.py::test_engine[send_mixed-64]",)
COMPLETION = ("tests/queues/test_queues.py::test_engine[completion-64]",)
ARMING = ("tests/queues/test_queues.py::test_engine[arming-64]",)
IN_ORDER = ("tests/queues/test_queues.py::test_engine[in_order-64]",)
PACKED = ("tests/queues/test_queues.py::test_packed_rings[512]",)
RECV = ("tests/queues/test_queues.py::test_engine[recv-64]",)
RECV_AHEAD = ("tests/queues/test_queues.py::test_receive_ahead",)

FAULTS = (
    # Rings.
    Fault(
        name="avail-event-unwritten",
        what="a queue is found empty without asking for a notification",
        force=Force("hdl.queues.ring.polls:Polls", "wanted", stuck(0), having="write_client"),
        tests=FETCH,
    ),
    Fault(
        name="entries-kept",
        what="ring entries read ahead outlive the reset of their queue",
        force=Force("hdl.queues.ring.heads:RingHeads", "flush", stuck(0)),
        tests=FETCH_MIXED,
    ),
    Fault(
        name="buffer-of-before-kept",
        what="a buffer for a CQE that was read ahead outlives completions that pass it by",
        force=Force("hdl.queues.completion.next_buffers:NextBuffers", "drop", stuck(0)),
        tests=("tests/queues/test_next_buffers.py",),
    ),
    Fault(
        name="packed-reaches-too-far",
        what="descriptors behind one that is not available count as available",
        force=Force("hdl.queues.ring.reach:Reach", "broken", stuck(0)),
        tests=("tests/queues/test_packed.py::test_reach[64-0]",),
    ),
    Fault(
        name="packed-buffer-misnamed",
        what="a list of descriptors in a packed ring comes back under another id",
        force=Force("hdl.queues.ring.walker:Walker", "id", plus(1)),
        tests=PACKED,
    ),
    Fault(
        name="packed-interrupt-unwanted",
        what="the driver's event suppression structure is not looked at",
        force=Force("hdl.queues.ring.used:UsedWriter", "suppressed", stuck(0)),
        tests=PACKED,
    ),
    Fault(
        name="index-before-element",
        what="the used index is written before the used element",
        because="two states of a machine change places",
        file="hdl/queues/ring/used.py",
        old="""\
                    beat.addr.eq(addr),
                    beat.data.eq(element),
                    beat.keep.eq(0xFF),
                ]
                with m.If(self.write_client.beat.ready):
                    m.next = "INDEX"
                    add_low(m, addr, carry, ring.driver, event)
            # INDEX: writes the used index, of a split ring; ends when that is taken.
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(~packed),
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                add_high(m, addr, carry)
""",
        new="""\
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                with m.If(self.write_client.beat.ready):
                    m.next = "INDEX"
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(1),
                    beat.addr.eq(addr),
                    beat.data.eq(element),
                    beat.keep.eq(0xFF),
                ]
                add_high(m, addr, carry)
                with m.If(self.write_client.beat.ready):
                    add_low(m, addr, carry, ring.driver, event)
""",
        tests=COMPLETION,
    ),
    Fault(
        name="interrupt-before-index",
        what="the interrupt of an armed CQ is raised before the used index is written",
        because="there is one state more",
        file="hdl/queues/ring/used.py",
        old="""\
                    m.next = "INDEX"
                    add_low(m, addr, carry, ring.driver, event)
            # INDEX: writes the used index, of a split ring; ends when that is taken.
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(~packed),
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                add_high(m, addr, carry)
                with m.If(self.write_client.beat.ready | packed):
                    with m.If(job.notify):
                        m.next = "SETTLE"
                    with m.Else():
                        m.d.comb += self.done.eq(1)
                        m.next = "IDLE"
""",
        new="""\
                    m.next = "INDEX"
                    add_low(m, addr, carry, ring.driver, event)
                    with m.If(job.notify & job.sure):
                        m.next = "EARLY"
            with m.State("EARLY"):
                m.d.comb += self.interrupt.valid.eq(1)
                with m.If(self.interrupt.ready):
                    m.next = "INDEX"
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(~packed),
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                add_high(m, addr, carry)
                with m.If(self.write_client.beat.ready | packed):
                    with m.If(job.notify & ~job.sure):
                        m.next = "SETTLE"
                    with m.Else():
                        m.d.comb += [self.done.eq(1), self.raised.eq(job.notify)]
                        m.next = "IDLE"
""",
        tests=COMPLETION,
    ),
    Fault(
        name="cqe-seen-before-its-wqe",
        what="the used index of a CQ is written before that of the queue whose WQE it tells of",
        force=Force(
            "hdl.queues.ring.runs:UsedRuns",
            "current",
            of(lambda true, see: true | ~see("empty")[1]),
        ),
        tests=COMPLETION,
    ),
    Fault(
        name="armed-too-early",
        what="a CQ is armed while a used index is still to be written, which then wakes nobody",
        force=Force("hdl.queues.completion.engine:CompletionEngine", "pending", stuck(0)),
        tests=COMPLETION,
    ),
    Fault(
        name="unseen-completion-not-told",
        what="a CQ is armed by its doorbell although a completion has come that nobody has seen",
        force=Force("hdl.queues.completion.engine:CompletionEngine", "unseen", stuck(0)),
        tests=ARMING,
    ),
    Fault(
        name="doorbells-go-first",
        what="completions wait as long as doorbells that arm CQs come",
        force=Force("hdl.queues.completion.arming:Arming", "chosen", like("request.valid")),
        tests=ARMING,
    ),
    Fault(
        name="guessed-head-believed",
        what="a descriptor read where a head was expected is taken although the head is another",
        force=Force("hdl.queues.ring.descriptor:SingleDescriptors", "right", like("found.guessed")),
        tests=IN_ORDER,
    ),
    Fault(
        name="receive-wqe-before-it-is-there",
        what="the line of a source's first receive WQE is given out before the WQE lies in it",
        force=Force("hdl.queues.receive.match:RecvMatch", "o.ready", like("o.here")),
        tests=RECV,
    ),
    Fault(
        name="held-wqe-of-another-message",
        what="a message gets the receive WQE that another QP's message holds of the same source",
        force=Force("hdl.queues.receive.match:RecvMatch", "same", stuck(0b111111)),
        tests=RECV,
    ),
    Fault(
        name="held-wqe-of-an-earlier-message",
        what="a held receive WQE that was fetched again is found when its head is another WQE's",
        force=Force("hdl.queues.receive.refetch:Refetch", "stale", stuck(0)),
        tests=RECV,
    ),
    Fault(
        name="line-fetched-into-while-read",
        what="a receive WQE is fetched into a line that a packet's job still reads",
        force=Force("hdl.queues.receive.lines:RecvLines", "held.held0", stuck(0)),
        tests=RECV,
    ),
    Fault(
        name="refetched-into-while-read",
        what="a held receive WQE is fetched again into a line that a packet's job still reads",
        force=Force("hdl.queues.receive.refetch:Refetch", "line_read", stuck(0)),
        tests=RECV,
    ),
    Fault(
        name="line-survives-reset",
        what="receive WQEs fetched ahead of a queue reset are given out after it",
        force=Force("hdl.queues.receive.reclaim:RecvReclaim", "stopped", stuck(0)),
        tests=RECV,
    ),
    Fault(
        name="few-take-all-lines",
        what="a receive queue keeps as many lines as it can get, however seldom it is asked",
        force=Force("hdl.queues.receive.shares:LineGrants", "by_pace", stuck(1)),
        tests=RECV_AHEAD,
    ),
    Fault(
        name="error-of-a-receive-wqe-lost",
        what="what is wrong with the receive WQE that is asked for is not kept for the answer",
        force=Force("hdl.queues.receive.answers:RecvAnswers", "arrived_valid", stuck(0)),
        tests=RECV_AHEAD,
    ),
    Fault(
        name="emptied-list-not-begun-anew",
        what="WQEs asked for while the source's list runs empty are not the first of its new list",
        force=Force("hdl.queues.receive.prefetch:RecvPrefetch", "emptied", stuck(0)),
        tests=RECV_AHEAD,
    ),
    Fault(
        name="row-not-shared",
        what="a source's requests wait as long as WQEs are asked for ahead of them",
        force=Force("hdl.queues.receive.prefetch:RecvPrefetch", "access.shared", stuck(0)),
        tests=RECV_AHEAD,
    ),
    Fault(
        name="older-index-counts",
        what="an avail index replaces one that was read after it, for a request",
        force=Force("hdl.queues.receive.prefetch:RecvPrefetch", "access.row.newer", stuck(0)),
        tests=("tests/queues/test_recv_index.py",),
    ),
    Fault(
        name="requests-of-the-first-function",
        what="every control request comes from the first function",
        force=Force("hdl.queues.control.engine:ControlEngine", "function", stuck(1)),
        tests=FUNCTIONS,
    ),
    # Events.
    Fault(
        name="response-told-as-event",
        what="the event queue's buffer gets the words of the last response",
        force=Force("hdl.queues.control.engine:ControlEngine", "response.index", masked(0x3F)),
        tests=("tests/queues/test_queues.py::test_engine[events-64]",),
    ),
    Fault(
        name="event-position-stuck",
        what="every event goes to the buffer that the ring begins with",
        force=Force("hdl.queues.control.engine:ControlEngine", "job.position", masked(0xFFF0)),
        tests=("tests/queues/test_queues.py::test_engine[events-64]",),
    ),
    Fault(
        name="slot-of-the-other-reader",
        what="what the gather has read of a line is lost when a layout's slots are read",
        force=Force("hdl.queues.wqe.tap:LineTap", "other", stuck(0)),
        tests=("tests/queues/test_line_tap.py::test_both_get_their_slots",),
    ),
    Fault(
        name="wqe-format-ignored",
        what="every WQE is decoded as if it had the first format",
        force=Force("hdl.queues.wqe.decode:WqeDecode", "wqe_format", stuck(0)),
        tests=("tests/queues/test_formats.py::test_send_wqes_of_both_formats[1]",),
    ),
    # WQEs that come with their doorbell.
    Fault(
        name="push-torn-taken",
        what="a piece of a push counts that was not written whole",
        because="the mark is judged in one expression",
        file="hdl/queues/push/window.py",
        old="""\
                found.whole
                & (mark.magic == PUSH_MAGIC)
""",
        new="""\
                (mark.magic == PUSH_MAGIC)
""",
        tests=("tests/queues/test_push_window.py::test_torn[hole-512]",),
    ),
    Fault(
        name="push-of-anybody-taken",
        what="functions push that have not negotiated it",
        because="it is one of the terms of an expression",
        file="hdl/queues/push/window.py",
        old="""\
                of_function(config, self.push.pushes, found.function)
                & (found.pair""",
        new="""\
                (found.pair""",
        tests=("tests/queues/test_push_window.py::test_who_may_not_push[64]",),
    ),
    Fault(
        name="push-outlives-its-position",
        what="a push is still there when another position of its queue has been asked for",
        because="a condition inside of a loop has no name",
        file="hdl/queues/push/window.py",
        old="            with m.If(port.ask & mine & one.ready):\n",
        new="            with m.If(port.ask & hit):\n",
        tests=("tests/queues/test_push_window.py::test_another_position_is_asked_for[64]",),
    ),
    Fault(
        name="push-stops-without-a-doorbell",
        what="time does not pass for pushes that are not complete",
        force=Force("hdl.queues.push.window:PushWindow", "time", stuck(0)),
        tests=("tests/queues/test_push_window.py::test_stops_in_the_middle[64]",),
    ),
)
