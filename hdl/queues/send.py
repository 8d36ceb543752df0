"""Send WQEs: from a position of a send queue to a decoded WQE in its line."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.address import mask
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import (
    Destination,
    DropQueue,
    FetchRequest,
    FetchStatus,
    QueueError,
    QueueErrorCause,
    SendFetched,
    WqeRead,
)
from hdl.ports.rows import QueueRow

from .push.asked import PushAsked
from .push.types import PushPort
from .ring.packed import is_packed, place_of
from .ring.polls import Polls
from .ring.read import ReadShare
from .wqe.decode import Slot
from .wqe.fast_path import wqe_path
from .wqe.lines import FreeLines, GivenLines
from .wqe.slow_path import SlowPath

__all__ = ["SendFetch"]

SLOTS = 32
#: Answers that may wait for the slow path's.
ANSWERS = 16


class SendFetch(wiring.Component):
    """Fetches send WQEs, many at a time, and says how far send queues reach.

    Spec: Virtio 1.2, 2.7; virtio-rdma VR-4.1 to VR-4.6, VR-7.5.
    Members: ``req``/``rsp``; ``slot``, ``slot_enable``, ``slot_data`` read port of the lines
    (latency 1 cycle, data stays until the next enabled read); ``release`` lines that are done with
    (status OK gave them out; others keep none); ``destination`` reads that of the WQE in a line,
    if it is a datagram's; ``push`` Out, on cards with a push window: WQEs that have come with their
    doorbell; ``queue_read`` the queues' rows; ``error`` broken
    rings; ``queue_reset`` is taken when nothing is under way and no line holds a WQE of that queue
    any more; it forgets what was read ahead. While it waits requests for other queues are not
    taken, and those for its own queue are EMPTY: nobody gets what was offered before. ``idle``.
    A request whose ``known`` says that something is there goes through FastPath, which holds up to
    ``wqes_ahead`` in each of its stages; chains that are not for it go on through a SlowPath, one
    after the other. Their answers come in request order. Any other request is answered EMPTY with
    the avail index as just read (Polls), ahead of the answers to earlier requests if it is found
    earlier.
    Latency: two to three host reads, the slow path two more; one or two for the index.
    Throughput: 4 cycles a WQE, in the slow path two host reads (docs/queues.md). A WQE waits for a
    free line when its bytes have come.
    Errors: QUEUE_ERROR and a row in ``error`` for a broken ring; WQE_ERROR with a WC status for an
    element that is no WQE. A queue that is not enabled is EMPTY.
    Reset: all lines free; contents of lines kept.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._depth = config, config.wqes_ahead
        super().__init__(
            {
                "req": In(stream.Signature(FetchRequest)),
                "rsp": Out(stream.Signature(SendFetched)),
                "slot": In(WqeRead),
                "slot_enable": In(1),
                "slot_data": Out(128),
                "release": In(stream.Signature(8)),
                "destination": In(TableRead(8, Destination)),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(DropQueue)),
                "error": Out(stream.Signature(QueueError)),
                "idle": Out(1),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
            | ({"push": Out(PushPort())} if config.push else {})
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.lines = lines = FreeLines(lines=config.send_lines)
        m.submodules.fast = fast = wqe_path(config=config, depth=self._depth)
        m.submodules.polls = polls = Polls(config=config)
        m.submodules.slow = slow = SlowPath(config=config)
        m.submodules.share = share = ReadShare(
            width=config.width, clients=6, depth=max(8, 4 * self._depth)
        )
        # A line is read when its WQE has been given out, and not written until it is released.
        depth = SLOTS * config.send_lines
        m.submodules.slots = Ram(shape=128, depth=depth, forward=False)
        connect(m, share.read_client, flipped(self.read_client))
        connect(m, polls.read_client, share.client0)
        connect(m, polls.write_client, flipped(self.write_client))
        m.d.comb += [
            fast.line.valid.eq(lines.o.valid),
            fast.line.payload.eq(lines.o.payload),
            lines.o.ready.eq(fast.line.ready),
        ]
        for k in range(3):
            connect(m, getattr(fast, f"read_client{k}"), getattr(share, f"client{1 + k}"))
        connect(m, slow.read_client0, share.client4)
        connect(m, slow.read_client1, share.client5)

        under_way = Signal(12)  # requests whose answer has not been taken, or has just been
        taken, answered = Signal(), Signal()
        came, gone = Signal(), Signal()  # the same a cycle later: both arrive late
        m.d.sync += [came.eq(taken), gone.eq(answered), under_way.eq(under_way + came - gone)]
        m.d.comb += self.idle.eq((under_way == 0) & ~came)
        # A dropped queue's lines have to come back; what is under way may still be given one.
        m.submodules.given = given = GivenLines(lines=config.send_lines)
        resting = Signal()
        m.d.comb += [
            resting.eq(under_way == 0),
            given.ask.eq(self.queue_reset.valid & resting),
            given.asked.eq(self.queue_reset.payload.queue),
            given.back.eq(lines.i.valid & lines.i.ready),
            given.back_line.eq(lines.i.payload),
        ]
        self._front(m, fast, polls, given.none, taken)

        waiting = data.StructLayout({"slow": 1, "queue": 16, "answer": SendFetched})
        m.submodules.answers = StreamFifo(shape=waiting, depth=ANSWERS)
        slow_line = Signal(ceil_log2(config.send_lines), reset_less=True)
        if config.push:
            # Of a verdict: it is an answer already; and it goes on at once.
            self._plain, self._direct = Signal(name="plain"), Signal(name="direct")
        self._verdicts(m, slow_line)
        kept = config.keeps_destinations
        self._answers(m, answered, self._destinations(m, slow_line) if kept else 1)
        return m

    def _verdicts(self, m: Module, slow_line: Signal) -> None:
        """Verdicts of the fast path, in order: done, or for the slow path. Slots into the lines."""
        fast, slow, slots = m.submodules.fast, m.submodules.slow, m.submodules.slots
        answers, given = m.submodules.answers, m.submodules.given
        line_bits = ceil_log2(self._config.send_lines)
        verdict, entry, job = fast.o.payload, answers.i.payload, fast.job
        for_slow, packed = Signal(), is_packed(self._config, job.rules)
        waits = fast.o.valid
        if self._config.push:
            waits = waits & ~self._direct
            m.d.comb += self._plain.eq(fast.o.valid & ~for_slow)
        m.d.comb += [
            for_slow.eq(verdict.odd & ~verdict.failed),
            fast.o.ready.eq(answers.i.ready & (~for_slow | slow.i.ready)),
            answers.i.valid.eq(waits & (~for_slow | slow.i.ready)),
            entry.slow.eq(for_slow),
            entry.queue.eq(job.request.queue),
            entry.answer.status.eq(Mux(verdict.failed, FetchStatus.QUEUE_ERROR, FetchStatus.OK)),
            entry.answer.qp.eq(job.request.qp),
            entry.answer.position.eq(job.request.position),
            entry.answer.available.eq(job.request.known),
            entry.answer.head.eq(verdict.head),
            entry.answer.line.eq(verdict.line),
            entry.answer.wqe.eq(verdict.wqe),
        ]
        taken = answers.i.valid & answers.i.ready
        if self._config.push:
            taken = taken | self._direct
        m.d.comb += [
            slow.i.valid.eq(fast.o.valid & answers.i.ready & for_slow),
            slow.i.payload.function.eq(job.request.function),
            slow.i.payload.desc.eq(job.desc),
            slow.i.payload.size_log2.eq(job.size_log2),
            slow.i.payload.rules.eq(job.rules),
            slow.i.payload.head.eq(Mux(packed, place_of(job), verdict.head)),
            given.given.eq(taken & ~verdict.failed),
            given.line.eq(verdict.line),
            given.queue.eq(job.request.queue),
        ]
        with m.If(slow.i.valid & slow.i.ready):
            m.d.sync += slow_line.eq(verdict.line)

        # The fast path cannot wait, the slow path can.
        slot, slot_line = Signal(Slot), Signal(line_bits)
        with m.If(fast.slot_valid):
            m.d.comb += [
                slot.eq(fast.slot),
                slot_line.eq(fast.slot_line),
                slots.write.enable.eq(1),
            ]
        with m.Else():
            m.d.comb += [
                slow.slot.ready.eq(1),
                slot.eq(slow.slot.payload),
                slot_line.eq(slow_line),
                slots.write.enable.eq(slow.slot.valid),
            ]
        m.d.comb += [
            slots.write.index.eq(Cat(slot.slot, slot_line)),
            slots.write.row.eq(slot.data),
            slots.read0.index.eq(Cat(self.slot.slot, self.slot.line[:line_bits])),
            slots.read0.enable.eq(self.slot_enable),
            self.slot_data.eq(slots.read0.row),
        ]

    def _answers(self, m: Module, answered: Signal, stored) -> None:
        """Answers: of polls first, else of the oldest request, by either way. ``stored``: the slow
        path's destination is in its memory."""
        lines, polls, slow = m.submodules.lines, m.submodules.polls, m.submodules.slow
        answers = m.submodules.answers
        answer, answer_valid = Signal(SendFetched, reset_less=True), Signal()
        broken, broken_valid = Signal(QueueError, reset_less=True), Signal()
        found, by_slow = slow.o.payload, answers.o.payload.slow
        free, status = Signal(), Signal(FetchStatus)
        m.d.comb += [
            free.eq(~answer_valid & ~broken_valid),
            self.rsp.valid.eq(answer_valid),
            self.rsp.payload.eq(answer),
            self.error.valid.eq(broken_valid),
            self.error.payload.eq(broken),
            answered.eq(self.rsp.valid & self.rsp.ready),
            status.eq(Mux(by_slow, found.status, answers.o.payload.answer.status)),
        ]
        with m.If(answered):
            m.d.sync += answer_valid.eq(0)
        with m.If(self.error.ready):
            m.d.sync += broken_valid.eq(0)
        collect = Signal()
        m.d.comb += [
            polls.o.ready.eq(free),
            collect.eq(
                free & ~polls.o.valid & answers.o.valid & ((slow.o.valid & stored) | ~by_slow)
            ),
            answers.o.ready.eq(collect),
            slow.o.ready.eq(collect & by_slow),
        ]
        with m.If(free & polls.o.valid):
            poll = polls.o.payload
            m.d.sync += [
                answer_valid.eq(1),
                answer.eq(poll.answer),
                broken_valid.eq(poll.answer.status == FetchStatus.QUEUE_ERROR),
                broken.queue.eq(poll.queue),
                broken.cause.eq(poll.cause),
            ]
        with m.Elif(collect):
            m.d.sync += [
                answer_valid.eq(1),
                answer.eq(answers.o.payload.answer),
                answer.status.eq(status),
                broken_valid.eq(status == FetchStatus.QUEUE_ERROR),
                broken.queue.eq(answers.o.payload.queue),
                broken.cause.eq(QueueErrorCause.HOST_READ),
            ]
            with m.If(by_slow):
                m.d.sync += [
                    answer.error.eq(found.error),
                    answer.wqe.eq(found.wqe),
                    broken.cause.eq(found.cause),
                ]

        if self._config.push:
            # An answer that nothing waits in front of saves the time in the FIFO.
            alone = free & ~polls.o.valid & (answers.level == 0)
            m.d.comb += self._direct.eq(self._plain & alone)
            entry = answers.i.payload
            with m.If(self._direct):
                m.d.sync += [
                    answer_valid.eq(1),
                    answer.eq(entry.answer),
                    broken_valid.eq(entry.answer.status == FetchStatus.QUEUE_ERROR),
                    broken.queue.eq(entry.queue),
                    broken.cause.eq(QueueErrorCause.HOST_READ),
                ]

        # The line of the slow path goes back at once if it found no WQE; released ones wait a
        # cycle for it.
        unused = Signal()
        m.d.comb += [
            unused.eq(collect & by_slow & (found.status != FetchStatus.OK)),
            self.release.ready.eq(lines.i.ready & ~unused),
            lines.i.valid.eq(unused | self.release.valid),
            lines.i.payload.eq(Mux(unused, answers.o.payload.answer.line, self.release.payload)),
        ]

    def _destinations(self, m: Module, slow_line: Signal) -> Signal:
        """Address vectors into their memory, a row for each line; those of the fast path first.

        Returns whether that of the slow path's WQE is there."""
        fast, slow, stored = m.submodules.fast, m.submodules.slow, Signal()
        lines = self._config.send_lines
        m.submodules.destinations = rows = Ram(
            shape=Destination, depth=lines, forward=False, block=True
        )
        passes = fast.o.valid & fast.o.ready
        m.d.comb += [
            rows.write.enable.eq(passes | slow.o.valid),
            rows.write.index.eq(slow_line),
            rows.write.row.eq(slow.o.payload.destination),
            rows.read0.index.eq(self.destination.index),
            rows.read0.enable.eq(self.destination.enable),
            self.destination.row.eq(rows.read0.row),
        ]
        with m.If(passes):
            m.d.comb += [
                rows.write.index.eq(fast.o.payload.line),
                rows.write.row.eq(fast.o.payload.destination),
            ]
        m.d.sync += stored.eq(slow.o.valid & ~slow.o.ready & (stored | ~passes))
        return stored

    def _pushed(self, m: Module, fast) -> PushAsked:
        """What asks the push window for the request at hand."""
        m.submodules.asked = asked = PushAsked()
        for name, member in PushPort().members.items():
            if name == "row":
                connect(m, fast.push_row, flipped(self.push.row))
                continue
            mine, its = getattr(self.push, name), getattr(asked.port, name)
            m.d.comb += mine.eq(its) if member.flow == Out else its.eq(mine)
        m.d.comb += [
            self.push.forget.eq(fast.flush),
            asked.clear.eq(fast.clear),
            asked.release.eq(fast.push_release),
            asked.released.eq(fast.push_released),
            fast.pushed.eq(asked.use),
            fast.element.eq(asked.element),
        ]
        return asked

    def _front(self, m: Module, fast, polls, dropped, taken) -> None:
        """Requests to the fast path or to the polls, a request in 3 cycles. ``dropped``: nothing
        of the queue to reset is left; ``taken``: a request is."""
        request = Signal(FetchRequest, reset_less=True)
        row = Signal(QueueRow, reset_less=True)
        # WQEs up to the one that is asked for, but one; and the bits of a place in its table.
        ahead, within = Signal(16, reset_less=True), Signal(16, reset_less=True)
        known = Signal()
        job, poll = fast.i.payload, polls.i.payload
        refused, refusing = Signal(), Signal()  # a request for the queue that is being reset
        reset, same = self.queue_reset.payload.queue, Signal()
        # It waits a cycle until that is known: its number comes late.
        waits = self.req.valid & ~self.req.ready
        m.d.sync += same.eq(waits & (self.req.payload.queue == reset))
        m.d.comb += [
            refused.eq(self.queue_reset.valid & same),
            self.queue_read.index.eq(self.req.payload.queue),
            known.eq(row.enabled & ((ahead & ~within) == 0)),  # never all ones: none is known
            job.request.eq(request),
            job.size_log2.eq(row.size_log2),
            job.rules.eq(row.rules),
            job.desc.eq(row.desc),
            job.driver.eq(row.driver),
            poll.request.eq(request),
            poll.row.eq(row),
        ]
        if self._config.push:
            asked, wanted = self._pushed(m, fast), Signal()
            # Of the request that is taken; all of the push window looks at it then.
            m.d.sync += wanted.eq(self.req.payload.known != self.req.payload.position)
            m.d.comb += [
                asked.request.eq(request),
                asked.wanted.eq(wanted),
                asked.row.eq(row),
                asked.within.eq(within),
                asked.known.eq(known),
            ]
        with m.FSM(name="front"):
            # IDLE: takes a request and reads the row of its queue; ends with one.
            with m.State("IDLE"):
                m.d.sync += [request.eq(self.req.payload), refusing.eq(refused)]
                m.d.comb += self.req.ready.eq(~self.queue_reset.valid | refused)
                with m.If(self.req.valid & self.req.ready):
                    m.d.comb += [taken.eq(1), self.queue_read.enable.eq(1)]
                    m.next = "ROW"
                with m.Elif(dropped):
                    m.next = "FLUSH"
            # FLUSH: takes the reset, with which what was fetched ahead is forgotten; one cycle.
            with m.State("FLUSH"):
                m.d.comb += [self.queue_reset.ready.eq(1), fast.flush.eq(1)]
                m.next = "IDLE"
            # ROW: keeps the row; one cycle.
            with m.State("ROW"):
                if self._config.push:
                    m.d.comb += asked.look.eq(1)
                m.d.sync += [
                    row.eq(self.queue_read.row),
                    row.enabled.eq(self.queue_read.row.enabled & ~refusing),
                    ahead.eq(request.known + ~request.position),
                    within.eq(mask(self.queue_read.row.size_log2)),
                ]
                m.next = "START"
            # START: hands the request to the fast path or to the polls; ends when it is taken.
            with m.State("START"):
                if self._config.push:
                    m.d.comb += asked.leave.eq(Mux(known, fast.i.ready, polls.i.ready))
                with m.If(known):
                    m.d.comb += fast.i.valid.eq(1)
                    with m.If(fast.i.ready):
                        m.next = "IDLE"
                with m.Else():
                    m.d.comb += polls.i.valid.eq(1)
                    with m.If(polls.i.ready):
                        m.next = "IDLE"
