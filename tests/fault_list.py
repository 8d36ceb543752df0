"""The deliberate faults: what is put into which source file, and which tests must fail then."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAULTS", "INTEROP", "Fault"]


@dataclass(frozen=True)
class Fault:
    """One fault: ``old``, which occurs once in ``file``, becomes ``new``; each of ``tests`` must
    fail. ``live``: so must an exchange with the Linux guest (``rocinante faults --interop``)."""

    name: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    live: bool = False

    def apply(self, source: str) -> str:
        """Return ``source`` with the fault; raises ValueError unless ``old`` is in it once."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(
                f"Fault {self.name}: its text must occur once in {self.file}, not {count} times"
            )
        return source.replace(self.old, self.new)


INGRESS = ("tests/ingress/test_ingress.py::test_ingress[64]",)
EGRESS = ("tests/egress/test_egress.py::test_egress[64]",)
KEYS = ("tests/memory/test_translate.py",)
GATHER = ("tests/memory/test_memory.py::test_room[64-gather]",)
SCATTER = ("tests/memory/test_memory.py::test_room[64-scatter]",)
SEND = ("tests/transport/test_send.py",)
RECEIVE = ("tests/transport/test_receive.py",)
REPLY = ("tests/transport/test_replier.py",)
FETCH = ("tests/queues/test_queues.py::test_engine[send-64]",)
FETCH_MIXED = ("tests/queues/test_queues.py::test_engine[send_mixed-64]",)
COMPLETION = ("tests/queues/test_queues.py::test_engine[completion-64]",)
IN_ORDER = ("tests/queues/test_queues.py::test_engine[in_order-64]",)
RECV = ("tests/queues/test_queues.py::test_engine[recv-64]",)
RECV_AHEAD = ("tests/queues/test_queues.py::test_receive_ahead[64]",)
GIDS = ("tests/common/test_ram.py::test_gids_and_none_beyond_the_table",)
COUNTERS = ("tests/transport/test_qp_counters.py",)
READ = ("tests/host/test_read.py::test_read_engine[64]",)
VIRTIO = ("tests/host/test_virtio.py::test_small_card[setup]",)
WRITE = ("tests/host/test_write.py::test_write_engine[64]",)
PACK = ("tests/common/test_pack.py",)
REPLAY = ("tests/nic/test_replay_command.py::test_capture_with_every_operation",)
GUARDS = ("tests/mac/test_guards.py",)

#: One WRITE each way between the whole NIC and Linux, nothing changed on the way.
INTEROP = "tests/interop/test_interop.py::test_what_a_faulty_card_sends_is_noticed[None]"

FAULTS = (
    # What comes off the wire.
    Fault(
        name="icrc-unchecked",
        what="packets with a wrong ICRC are delivered",
        file="hdl/ingress/ingress.py",
        old='~since(icrc.ok, Decoder.LATENCY + IcrcCheck.LATENCY, "icrc_ok"),',
        new='~since(icrc.ok, Decoder.LATENCY + IcrcCheck.LATENCY, "icrc_ok") & 0,',
        tests=INGRESS,
    ),
    Fault(
        name="ipv4-checksum-unchecked",
        what="packets with a wrong IPv4 header checksum are delivered",
        file="hdl/ingress/ingress.py",
        old="(Cause.IPV4_CHECKSUM, checks.ipv4_checksum),",
        new="(Cause.IPV4_CHECKSUM, checks.ipv4_checksum & 0),",
        tests=INGRESS,
    ),
    Fault(
        name="cut-frame-delivered",
        what="the rest of a frame that a reset has cut goes on into the card",
        file="hdl/mac/guards.py",
        old="passes.eq(inside | self.i.p.first),",
        new="passes.eq(1),",
        tests=GUARDS,
    ),
    # What a peer or a guest may touch.
    Fault(
        name="range-unchecked",
        what="a region's end is not checked",
        file="hdl/memory/keys.py",
        old="(allowed & distance[64] & furthest[64] & within)",
        new="(allowed & distance[64])",
        tests=KEYS,
    ),
    Fault(
        name="pd-unchecked",
        what="a key of another protection domain is accepted",
        file="hdl/memory/keys.py",
        old="                    & (row.pd == asked[1].pd)\n",
        new="",
        tests=KEYS,
    ),
    Fault(
        name="tag-unchecked",
        what="a key that has been given back is accepted",
        file="hdl/memory/keys.py",
        old="                    & (row.tag == asked[1].key[:8])\n",
        new="",
        tests=KEYS,
    ),
    Fault(
        name="access-unchecked",
        what="a region that may only be read is written",
        file="hdl/memory/keys.py",
        old="                    & ((asked[1].access & ~row.access) == 0)\n",
        new="",
        tests=KEYS,
    ),
    # Requests sent.
    Fault(
        name="psn-plus-1",
        what="every request packet has a PSN one too high",
        file="hdl/transport/request_headers.py",
        old="header.psn.eq(row.psn),",
        new="header.psn.eq(row.psn + 1),",
        tests=SEND,
    ),
    Fault(
        name="reth-length-plus-1",
        what="the RETH says a byte more than the message has",
        file="hdl/transport/request_headers.py",
        old="header.dma_length.eq(left),",
        new="header.dma_length.eq(left + 1),",
        tests=SEND,
    ),
    Fault(
        name="fence-ignored",
        what="a fenced WQE does not wait for the READs before it",
        file="hdl/transport/requester.py",
        old="(wqe.wqe.fence & (reads != 0))",
        new="(wqe.wqe.fence & 0)",
        tests=SEND,
    ),
    Fault(
        name="long-messages-pile-up",
        what="a QP's long messages are fetched while those before them wait to be sent",
        file="hdl/transport/scheduler.py",
        old="few = (row.ahead == AHEAD) | (piled <= limit)",
        new="few = piled == piled",
        tests=("tests/transport/test_send.py::test_long_messages_do_not_pile_up",),
    ),
    Fault(
        name="start-not-told",
        what="the requester does not tell that a long message begins",
        file="hdl/transport/requester.py",
        old="m.d.sync += [told.valid.eq(1), told.payload.eq(qp)]",
        new="m.d.sync += told.payload.eq(qp)",
        tests=("tests/transport/test_send.py::test_long_messages_do_not_pile_up",),
    ),
    Fault(
        name="doorbell-lost",
        what="a doorbell does not make the scheduler look at the ring again",
        file="hdl/transport/scheduler.py",
        old="with m.Elif(rings):",
        new="with m.Elif(0):",
        tests=SEND,
    ),
    Fault(
        name="reads-unlimited",
        what="READs are fetched that cannot be started",
        file="hdl/transport/scheduler.py",
        old="with m.If(~row.reading):",
        new="with m.If(1):",
        tests=SEND,
    ),
    # Rings.
    Fault(
        name="avail-event-unwritten",
        what="a queue is found empty without asking for a notification",
        file="hdl/queues/polls.py",
        old="with m.If(self.event_idx & job.enabled & empty):",
        new="with m.If(self.event_idx & job.enabled & 0):",
        tests=FETCH,
    ),
    Fault(
        name="entries-kept",
        what="ring entries read ahead outlive the reset of their queue",
        file="hdl/queues/heads.py",
        old="forget.eq(self.flush | epoch.ends)",
        new="forget.eq(epoch.ends)",
        tests=FETCH_MIXED,
    ),
    # Requests received.
    Fault(
        name="gap-accepted",
        what="a request whose PSN is ahead of the expected one is executed",
        file="hdl/transport/responder_check.py",
        old="facts.ahead.eq(~distance[23] & (distance != 0)),",
        new="facts.ahead.eq(0),",
        tests=RECEIVE,
    ),
    Fault(
        name="psn-not-advanced",
        what="the expected PSN stays when a request has been executed",
        file="hdl/transport/responder_outcome.py",
        old="row.psn.eq(Mux(accepted, after, rx.psn)),",
        new="row.psn.eq(rx.psn),",
        tests=RECEIVE,
    ),
    Fault(
        name="msn-not-advanced",
        what="the MSN does not count messages",
        file="hdl/transport/responder_check.py",
        old="facts.msn.eq(raised(rx.msn, C(1))),",
        new="facts.msn.eq(rx.msn),",
        tests=RECEIVE + REPLAY,
        live=True,
    ),
    Fault(
        name="short-write-accepted",
        what="an RDMA WRITE may end before the length that its RETH announced",
        file="hdl/transport/responder_check.py",
        old="message.eq(~is_sum(rx.offset, length32, rx.dma_length))",
        new="message.eq(~is_sum(rx.offset, length32, rx.dma_length) & (header.length == mtu))",
        tests=RECEIVE,
    ),
    # Responses sent and received.
    Fault(
        name="nak-syndrome-wrong",
        what="a refused READ is answered with the syndrome of an ACK",
        file="hdl/transport/replier.py",
        old="header.syndrome.eq(NAK_REMOTE_ACCESS),",
        new="header.syndrome.eq(SYNDROME_ACK_NO_LIMIT),",
        tests=REPLY,
    ),
    Fault(
        name="answered-read-not-told",
        what="the responder learns of answered READs late, and refuses the peer's next one",
        file="hdl/transport/replier.py",
        old="self.row_write.enable.eq(changed)",
        new="self.row_write.enable.eq(0)",
        tests=REPLY,
    ),
    Fault(
        name="ack-psn-plus-1",
        what="an ACK acknowledges a packet that has not come",
        file="hdl/transport/replier.py",
        old="header.psn.eq(expected - 1), header.syndrome",
        new="header.psn.eq(expected), header.syndrome",
        tests=REPLY,
    ),
    Fault(
        name="completed-too-early",
        what="an ACK of any of its packets completes a WQE",
        file="hdl/transport/completer.py",
        old="reached = facts.past | (facts.at_last & is_ack)",
        new="reached = facts.past | is_ack",
        tests=RECEIVE,
    ),
    Fault(
        name="bad-payload-sealed",
        what="a packet whose payload could not be read gets a good ICRC",
        file="hdl/egress/seal.py",
        old="spoiled = crcs.o.payload ^ beat.error.replicate(32)",
        new="spoiled = crcs.o.payload",
        tests=EGRESS,
    ),
    # Order of what the guest sees.
    Fault(
        name="cqe-before-payload",
        what="a packet's CQE may be written before its payload",
        file="hdl/memory/scatter.py",
        old="m.d.sync += written.eq(written + through - paired)",
        new="m.d.sync += written.eq(written + answered - paired)",
        tests=SCATTER,
    ),
    Fault(
        name="index-before-element",
        what="the used index is written before the used element",
        file="hdl/queues/used.py",
        old="""\
                    beat.addr.eq(addr),
                    beat.data.eq(Cat(job.head, Const(0, 16), job.length)),
                    beat.keep.eq(0xFF),
                ]
                with m.If(self.write_client.beat.ready):
                    m.next = "INDEX"
                    add_low(m, addr, carry, ring.driver, event)
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(1),
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
                    beat.data.eq(Cat(job.head, Const(0, 16), job.length)),
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
        file="hdl/queues/used.py",
        old="""\
                    m.next = "INDEX"
                    add_low(m, addr, carry, ring.driver, event)
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(1),
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                add_high(m, addr, carry)
                with m.If(self.write_client.beat.ready):
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
                    self.write_client.beat.valid.eq(1),
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                add_high(m, addr, carry)
                with m.If(self.write_client.beat.ready):
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
        file="hdl/queues/runs.py",
        old="m.d.sync += [at.eq(0), current.eq(empty[0])]",
        new="m.d.sync += [at.eq(0), current.eq(~empty[1])]",
        tests=COMPLETION,
    ),
    Fault(
        name="armed-too-early",
        what="a CQ is armed while a used index is still to be written, which then wakes nobody",
        file="hdl/queues/completion.py",
        old="with m.If(self.arm.valid & ~pending):",
        new="with m.If(self.arm.valid):",
        tests=COMPLETION,
    ),
    Fault(
        name="read-overtakes-write",
        what="a host read does not wait for the writes that were accepted before it",
        file="hdl/host/read.py",
        old="edge.i.valid.eq(busy & ordered & space),",
        new="edge.i.valid.eq(busy & space),",
        tests=READ,
    ),
    Fault(
        name="read-forgets-it-may-go",
        what="a host read that has no tag while many writes go by waits for those too",
        file="hdl/host/read.py",
        old="free.eq(ordered),",
        new="free.eq(0),",
        tests=READ,
    ),
    # Bytes and tags on their way.
    Fault(
        name="tag-taken-twice",
        what="a tag is used again while its host read is outstanding",
        file="hdl/host/read.py",
        old="space.eq(Mux(issue, (after ^ tail) != tags, (head ^ tail) != tags))",
        new="space.eq(1)",
        tests=READ,
    ),
    Fault(
        name="read-not-reordered",
        what="the oldest host read is returned before its data are complete",
        file="hdl/host/read.py",
        old="deliver.eq((head != tail) & (oldest.data.done != tail[tag_bits])),",
        new="deliver.eq(head != tail),",
        tests=READ,
    ),
    Fault(
        name="queue-reset-missed",
        what="a queue reset that ends in the cycle in which it is taken never ends",
        file="hdl/host/virtio_queues.py",
        old="(under_reset | (offered & self.queue_reset.ready)) & self.queue_reset_done",
        new="under_reset & self.queue_reset_done",
        tests=VIRTIO,
    ),
    Fault(
        name="write-shift-wrong",
        what="host writes at some addresses are moved by a byte too many",
        file="hdl/host/write_align.py",
        old="shift.eq(~beat.up[:4]),",
        new="shift.eq(~beat.up[:4] & 14),",
        tests=WRITE,
    ),
    Fault(
        name="rotator-shift-wrong",
        what="one level of the shared rotator moves by a byte too many",
        file="hdl/common/shift.py",
        old="step = 8 << 2 * stage",
        new="step = (8 << 2 * stage) + 8 * (stage == 1)",
        tests=PACK,
    ),
    Fault(
        name="header-shift-wrong",
        what="a frame's payload stands a word off behind its headers",
        file="hdl/egress/merge.py",
        old="shift.eq(~now.size[2 : 2 + fine]),",
        new="shift.eq(~now.size[2 : 2 + fine] + 1),",
        tests=EGRESS,
    ),
    # What a reset or an invalidation waits for.
    Fault(
        name="reset-not-heeded",
        what="a message on its way goes on when its QP is reset",
        file="hdl/transport/requester.py",
        old="with m.If(~offering & reset):",
        new="with m.If(0):",
        tests=SEND,
    ),
    Fault(
        name="refusal-not-heeded",
        what="a packet that the gather has refused counts as sent",
        file="hdl/transport/awaited.py",
        old="bad.eq(oldest.job & (self.checked.payload.status != 0)),",
        new="bad.eq(0),",
        tests=SEND,
    ),
    Fault(
        name="sent-before-its-entry",
        what="a packet goes out before its WQE is in the outstanding table",
        file="hdl/transport/awaited.py",
        old="& (~oldest.begins | any_begun)",
        new="& 1",
        tests=SEND,
    ),
    Fault(
        name="failed-wqe-left-behind",
        what="a failed WQE is not looked at again when the one in front of it has finished",
        file="hdl/transport/outstanding.py",
        old="poke_if(here.watched & (here.head != here.tail), index)",
        new="poke_if(0, index)",
        tests=("tests/transport/test_outstanding.py",),
    ),
    Fault(
        name="next-of-a-grown-list",
        what="a WQE that was appended behind the last one, after that was looked at, is not found",
        file="hdl/transport/outstanding.py",
        old="m.d.sync += held_link.eq(free_number)",
        new="m.d.sync += held_link.eq(held_link)",
        tests=("tests/transport/test_outstanding.py",),
    ),
    Fault(
        name="strangers-ack-merged",
        what="an ACK gives way to one of another machine for the same QP",
        file="hdl/transport/intake_check.py",
        old='same = ("dest_qp", "function", "src_gid", "gid_index", "pkey")',
        new='same = ("dest_qp", "function", "gid_index", "pkey")',
        tests=RECEIVE,
    ),
    Fault(
        name="next-packet-by-the-old-row",
        what="a packet of the same QP right behind another is worked out with the row before it",
        file="hdl/transport/intake.py",
        old="with m.If((self.rx_written.enable | written) & (pair == work.qp)):",
        new="with m.If(0):",
        tests=RECEIVE,
    ),
    Fault(
        name="drain-before-fronts",
        what="a drain begins while packets and WQEs are at hand that go by the old row",
        file="hdl/common/quiesce.py",
        old="with m.If(left == 0):",
        new="with m.If(1):",
        tests=("tests/common/test_quiesce.py",),
    ),
    # Ahead of the checks.
    Fault(
        name="behind-a-refusal-executed",
        what="packets behind one whose check failed are executed",
        file="hdl/transport/commit.py",
        old="m.d.sync += undo.eq(failed.found)",
        new="m.d.sync += undo.eq(0)",
        tests=RECEIVE,
    ),
    Fault(
        name="rows-not-mended",
        what="the responder goes on with rows of packets that were undone",
        file="hdl/transport/commit.py",
        old="self.ahead_write.enable.eq(1),",
        new="self.ahead_write.enable.eq(0),",
        tests=RECEIVE,
    ),
    Fault(
        name="undone-row-kept",
        what="a row that was worked out behind a refusal becomes the QP's",
        file="hdl/transport/commit.py",
        old="self.rx_write.enable.eq(gone & record.commit & ~fate.undo),",
        new="self.rx_write.enable.eq(gone & record.commit),",
        tests=RECEIVE,
    ),
    Fault(
        name="failed-queue-pair-forgotten",
        what="the list of QPs whose checks failed has too few places",
        file="hdl/transport/commit.py",
        old="FAILED = PENDING + len(Part)",
        new="FAILED = PENDING // 2",
        tests=RECEIVE,
    ),
    Fault(
        name="more-lines-read-than-are-told",
        what="packets are taken although no more lines can be told to be read",
        file="hdl/transport/commit.py",
        old="LINES = LINE_USES + 1 - COUNTING - len(Part)",
        new="LINES = LINE_USES + 4",
        tests=RECEIVE,
    ),
    Fault(
        name="discarded-payload-written",
        what="payload is written although its effects say otherwise",
        file="hdl/memory/scatter.py",
        old="with m.If(self.effects.payload.discard & (",
        new="with m.If(0 & (",
        tests=SCATTER,
    ),
    # WQEs fetched ahead.
    Fault(
        name="stale-wqe-taken",
        what="a WQE that was asked for before a rewind is sent as if it were the next one",
        file="hdl/transport/scheduler.py",
        old="fresh.eq(serves & expected.all())",
        new="fresh.eq(serves)",
        tests=SEND,
    ),
    Fault(
        name="asked-not-rewound",
        what="WQEs asked for before a rewind are not asked for again",
        file="hdl/transport/scheduler.py",
        old="next_row.asked.eq(rewind.position),",
        new="next_row.asked.eq(row.asked),",
        tests=SEND,
    ),
    Fault(
        name="ahead-without-limit",
        what="a QP asks for as many short WQEs ahead as there are",
        file="hdl/transport/scheduler.py",
        old="room.eq(Mux((under_way < limit) & few, limit - under_way, 0)),",
        new="room.eq(limit),",
        tests=SEND,
    ),
    Fault(
        name="guessed-head-believed",
        what="a descriptor read where a head was expected is taken although the head is another",
        file="hdl/queues/descriptor.py",
        old="right.eq(found.guessed & (found.head == found.guess)),",
        new="right.eq(found.guessed),",
        tests=IN_ORDER,
    ),
    Fault(
        name="receive-wqe-of-another-position",
        what="the first receive WQE at hand is given out for every position",
        file="hdl/queues/receive.py",
        old="((request.position == queue.first) & (queue.count != 0))",
        new="(queue.count != 0)",
        tests=RECV,
    ),
    Fault(
        name="line-fetched-into-while-read",
        what="a receive WQE is fetched into a line that a packet's job still reads",
        file="hdl/queues/recv_lines.py",
        old="unread.eq(~held.held0 & ~(",
        new="unread.eq(~(",
        tests=RECV,
    ),
    Fault(
        name="sink-told-into-while-read",
        what="the sink of a READ is written where a packet's job still reads another",
        file="hdl/queues/read_sinks.py",
        old="                & ~held\n",
        new="",
        tests=RECV,
    ),
    Fault(
        name="old-sink-kept",
        what="the sink of a READ is found however long ago it was told",
        file="hdl/queues/read_sinks.py",
        old="return (now - age.stamp)[:2] < Const(2, 2)",
        new="return Const(1)",
        tests=RECV,
    ),
    Fault(
        name="line-survives-reset",
        what="receive WQEs fetched ahead of a queue reset are given out after it",
        file="hdl/queues/recv_states.py",
        old="            with m.If(p.reset_pair[15] | ~p.reset_pair[0]):",
        new="            with m.If(1):",
        tests=RECV,
    ),
    Fault(
        name="few-take-all-lines",
        what="a receive queue keeps as many lines as it can get, however seldom it is asked",
        file="hdl/queues/recv_shares.py",
        old="(room & (by_pace | (by_run & (self.its_turn | ~waiting.o.valid))))",
        new="room",
        tests=RECV_AHEAD,
    ),
    Fault(
        name="error-of-a-receive-wqe-lost",
        what="what is wrong with the receive WQE that is asked for is not kept for the answer",
        file="hdl/queues/receive.py",
        old="with m.If(path.arrived_valid & waiting & (path.arrived.line == wanted)):",
        new="with m.If(0):",
        tests=RECV_AHEAD,
    ),
    # What is counted for each QP.
    Fault(
        name="count-lost-behind-itself",
        what="a counter that counts twice running is read before it has been written",
        file="hdl/transport/qp_counters.py",
        old="QP_COUNTER_SLOTS // 2\n        )",
        new="QP_COUNTER_SLOTS // 2, earlier=(0,)\n        )",
        tests=COUNTERS,
    ),
    Fault(
        name="tour-forgotten",
        what="a room's counter that nobody reads wraps unseen",
        file="hdl/context/counter_bank.py",
        old="m.d.sync += again.eq(1)",
        new="m.d.sync += again.eq(0)",
        tests=("tests/context/test_counter_bank.py",),
    ),
    Fault(
        name="wrap-not-counted",
        what="the upper half of a 64-bit counter stays when the lower one wraps",
        file="hdl/context/counter_bank.py",
        old="m.d.sync += wrapped[number].eq(1)",
        new="m.d.sync += wrapped[number].eq(0)",
        tests=("tests/context/test_counter_bank.py",),
    ),
    Fault(
        name="gid-beyond-the-table",
        what="the number of a GID row beyond the table names a row in it",
        file="hdl/context/gid.py",
        old="table.read0.row.valid & ~beyond",
        new="table.read0.row.valid",
        tests=GIDS,
    ),
    Fault(
        name="second-event-not-counted",
        what="only one event of each packet is counted",
        file="hdl/transport/event_words.py",
        old="with m.If(~in_hand | (self.o.ready & last)):",
        new="with m.If(~in_hand | self.o.ready):",
        tests=COUNTERS,
    ),
    Fault(
        name="counters-begin-anywhere",
        what="a QP's counters can be read before they were cleared for it",
        file="hdl/transport/qp_counters.py",
        old="reader.read_row.eq(Mux(known, old, 0))",
        new="reader.read_row.eq(old)",
        tests=COUNTERS,
    ),
    # What the whole card sends.
    Fault(
        name="pkey-wrong",
        what="the lowest bit of the P_Key is wrong in every packet",
        file="hdl/egress/builder.py",
        old='"pkey": job.pkey,',
        new='"pkey": job.pkey ^ 1,',
        tests=EGRESS + REPLAY,
        live=True,
    ),
    Fault(
        name="data-byte-wrong",
        what="a bit of the first payload byte in a beat is wrong, and the ICRC covers that",
        file="hdl/egress/merge.py",
        old="window = Cat(before, self.payload.p.data)",
        new="window = Cat(before, self.payload.p.data ^ 16)",
        tests=EGRESS + REPLAY,
        live=True,
    ),
    Fault(
        name="icrc-wrong",
        what="a bit of every ICRC is wrong",
        file="hdl/egress/seal.py",
        old="spoiled = crcs.o.payload ^ beat.error.replicate(32)",
        new="spoiled = crcs.o.payload ^ beat.error.replicate(32) ^ (1 << 9)",
        tests=EGRESS + REPLAY,
        live=True,
    ),
)
