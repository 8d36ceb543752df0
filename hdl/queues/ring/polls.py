"""How far queues reach: the avail indices of several queues at a time."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.address import OFFSET_BITS, add_high, add_low
from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, ReadClient, WriteClient
from hdl.ports.jobs import FetchRequest, FetchStatus, QueueErrorCause, SendFetched
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import QueueRow, RingRules

from .flow import ReadFlow
from .packed import asked_event, available, flags_offset, is_packed, wrap_counter
from .reach import INDEX_BYTES, Reach, reach_flow, read_reach
from .read import ReadShare
from .types import INDEX_OFFSET, avail_event

__all__ = ["Polls", "PollJob", "PollAnswer"]


class PollJob(data.Struct):
    """A request for which nothing is known to be available, and the row of its queue."""

    request: FetchRequest
    row: QueueRow


class PollAnswer(data.Struct):
    """The answer: EMPTY, or QUEUE_ERROR with ``cause`` for ``queue``."""

    answer: SendFetched
    queue: 16
    cause: QueueErrorCause


class _Found(data.Struct):
    """A position and the index read; with ``again`` it is read once more, and that one counts.
    ``plain``: only the index was asked for. ``wrap``: the wrap counter there, in a packed ring."""

    qp: QpNumber
    queue: 16
    position: 16
    size_log2: 4
    rules: RingRules
    wrap: 1
    plain: 1
    available: 16
    cause: QueueErrorCause
    again: 1


class Polls(wiring.Component):
    """Reads avail indices, those of up to ``count`` queues at a time, one behind the other.

    Of a packed queue it reads the flags of a batch of descriptors (``FlagsBatch``), and the index
    is the position behind those that are available.
    Spec: Virtio 1.2, 2.7.6 (available ring), 2.7.10 (notification suppression); 2.8.1, 2.8.14.
    Parameters: ``count``: a power of two; ``notify``: without it ``avail_event`` is never written.
    Members: ``i`` jobs; ``o`` one answer per job, in order: EMPTY with the index as ``available``,
    or QUEUE_ERROR, then ``available`` is the position. With EVENT_IDX ``avail_event`` is written
    before an answer that says that nothing is there, and the index is read once more behind that,
    so that the driver's next buffer brings a notification. The write has been accepted when that
    read is asked for; the host port keeps their order. A queue that is not enabled is EMPTY at the
    position, without an access.
    Latency: a host read and 8 cycles, with ``avail_event`` two. Throughput: a job in 3 cycles, with
    ``avail_event`` in 5. Errors: AVAIL_INDEX (index more than the queue's size ahead of the
    position), HOST_READ.
    """

    def __init__(self, *, config: NicConfig, count: int = 16, notify: bool = True):
        if count < 2 or count & (count - 1):
            raise ValueError(f"Count must be a power of two, at least 2, not {count!r}")
        self._config, self._count, self._notify = config, count, notify
        members = {
            "i": In(stream.Signature(PollJob)),
            "o": Out(stream.Signature(PollAnswer)),
            "read_client": Out(ReadClient(config.width)),
        }
        if notify:
            members["write_client"] = Out(WriteClient(config.width))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        config = self._config
        asked = data.StructLayout(
            {"function": 8, "found": _Found, "enabled": 1}
            | ({"ring": 64, "device": 64} if self._notify else {})
        )
        m.submodules.jobs = jobs = StreamFifo(shape=asked, depth=self._count)
        m.submodules.flow = flow = reach_flow(config, reads=self._count)

        # Ask.
        request, row, entry = self.i.payload.request, self.i.payload.row, jobs.i.payload
        ring, offset, length = read_reach(config, row, request.position)
        m.d.comb += [
            self.i.ready.eq(jobs.i.ready & flow.i.ready),
            jobs.i.valid.eq(self.i.valid & flow.i.ready),
            flow.i.valid.eq(self.i.valid & row.enabled & jobs.i.ready),
            flow.i.payload.function.eq(request.function),
            flow.i.payload.addr.eq(ring),
            flow.i.payload.offset.eq(offset),
            flow.i.payload.length.eq(length),
            entry.function.eq(request.function),
            entry.enabled.eq(row.enabled),
            entry.found.qp.eq(request.qp),
            entry.found.queue.eq(request.queue),
            entry.found.position.eq(request.position),
            entry.found.size_log2.eq(row.size_log2),
            entry.found.rules.eq(row.rules),
            entry.found.wrap.eq(
                is_packed(config, row.rules) & wrap_counter(request.position, row.size_log2)
            ),
            entry.found.plain.eq(request.known == request.position),
        ]
        if self._notify:
            m.d.comb += [entry.ring.eq(ring), entry.device.eq(row.device)]

        # Look at the index, the first of two or the only one.
        job, found = jobs.o.payload, Signal(_Found)
        give, given = Signal(), Signal()  # ``found`` is to go on; it does
        look = Signal()
        m.submodules.reach = reach = Reach(config=config)
        connect(m, flow.o, reach.i)
        answers = reach.o
        m.d.comb += [
            reach.look.eq(look & jobs.o.valid & job.enabled),
            reach.packed.eq(is_packed(config, job.found.rules)),
            reach.position.eq(job.found.position),
            reach.size_log2.eq(job.found.size_log2),
        ]
        empty = self._judge(m, "", look, answers.payload, job.found, found)
        with m.If(~job.enabled):
            m.d.comb += [
                found.available.eq(job.found.position),
                found.cause.eq(QueueErrorCause.NONE),
            ]
        m.d.comb += jobs.o.ready.eq(given)
        if self._notify:
            addr, carry = Signal(64, reset_less=True), Signal()
            event_offset = Signal(OFFSET_BITS, reset_less=True)
            beat = self.write_client.beat
            again, room = self._second(m, flow, job, found, give, given)
            wanted = Signal()  # a notification is to be asked for
            event_at, event, event_bytes = self._event(job.found)
            m.d.sync += event_offset.eq(event_at)
            m.d.comb += wanted.eq(job.found.rules.event_idx & job.enabled & empty)
            m.d.comb += [
                beat.payload.stream_id.eq(STREAM_DATA),
                beat.payload.function.eq(job.function),
                beat.payload.addr.eq(addr),
                beat.payload.data.eq(event),
                beat.payload.keep.eq(event_bytes),
                beat.payload.first.eq(1),
                beat.payload.last.eq(1),
            ]
        else:
            connect(m, flow.read_client, flipped(self.read_client))
            m.d.comb += [self.o.valid.eq(give), given.eq(give & self.o.ready)]
            self._answer(m, found)
        with m.FSM(name="look"):
            # LOOK: waits for the index of the oldest job; ends when it comes, or at once if none is
            # read.
            with m.State("LOOK"):
                m.d.comb += [look.eq(1), answers.ready.eq(jobs.o.valid & job.enabled)]
                with m.If(jobs.o.valid & (answers.valid | ~job.enabled)):
                    m.next = "DECIDE"
            # DECIDE: hands it on, or has a notification asked for; ends when either begins.
            with m.State("DECIDE"):
                m.d.comb += give.eq(1)
                if self._notify:
                    add_low(m, addr, carry, job.device, event_offset)
                    with m.If(wanted):
                        m.d.comb += give.eq(0)
                        m.next = "EVENT"
                with m.If(given):
                    m.next = "LOOK"
            if self._notify:
                # EVENT: adds the carry to the address of ``avail_event``; one cycle.
                with m.State("EVENT"):
                    add_high(m, addr, carry)
                    m.next = "ANNOUNCE"
                # ANNOUNCE: writes it; ends when that is taken.
                with m.State("ANNOUNCE"):
                    m.d.comb += beat.valid.eq(1)
                    with m.If(beat.ready):
                        m.next = "AGAIN"
                # AGAIN: has the index read once more, and hands the job on; ends when both are
                # taken.
                with m.State("AGAIN"):
                    m.d.comb += [give.eq(again.ready), again.valid.eq(room), found.again.eq(1)]
                    with m.If(given):
                        m.next = "LOOK"
        return m

    def _second(self, m: Module, flow, job, found, give, given):
        """Answers, behind the second read of those that have one; returns who is asked for it, and
        whether there is room for who waits."""
        config = self._config
        m.submodules.founds = founds = StreamFifo(shape=_Found, depth=self._count)
        m.submodules.second = second = ReadFlow(config=config, size=INDEX_BYTES, reads=self._count)
        m.submodules.share = share = ReadShare(
            width=config.width, clients=2, depth=max(8, 2 * self._count), register=False
        )
        connect(m, flow.read_client, share.client0)
        connect(m, second.read_client, share.client1)
        connect(m, share.read_client, flipped(self.read_client))
        first, answer = founds.o.payload, Signal(_Found)
        read = Signal()
        # Of a packed ring the first descriptor's flags alone.
        flags_at = flags_offset(job.found.position, job.found.size_log2)
        offset = Signal(OFFSET_BITS, init=INDEX_OFFSET, reset_less=True)
        packed = is_packed(config, job.found.rules)
        m.d.sync += offset.eq(Mux(packed, flags_at, INDEX_OFFSET))
        one = available(second.o.payload.data, first.wrap)
        m.d.comb += [
            founds.i.valid.eq(give),
            founds.i.payload.eq(found),
            given.eq(give & founds.i.ready),
            second.i.payload.function.eq(job.function),
            second.i.payload.addr.eq(job.ring),
            second.i.payload.offset.eq(offset),
            second.i.payload.length.eq(INDEX_BYTES),
            second.o.ready.eq(founds.o.valid & first.again & ~read),
            self.o.valid.eq(founds.o.valid & (~first.again | read)),
            founds.o.ready.eq(self.o.ready & (~first.again | read)),
        ]
        with m.If(~read):
            m.d.sync += read.eq(second.o.valid & second.o.ready)
        with m.Elif(self.o.ready):
            m.d.sync += read.eq(0)
        self._judge(m, "again", ~read, second.o.payload, first, answer, one)
        with m.If(~first.again):
            m.d.comb += answer.eq(first)
        self._answer(m, answer)
        return second.i, founds.i.ready

    def _event(self, found):
        """What asks for a notification, and where: offset, bytes, which of them are written."""
        at, event, written = avail_event(found.size_log2), found.position, Const(0b11, 2)
        structure = asked_event(found.position, found.size_log2)
        packed = is_packed(self._config, found.rules)
        return Mux(packed, 0, at), Mux(packed, structure, event), Cat(written, packed, packed)

    def _judge(self, m: Module, name: str, load, beat, asked, found, there=None):
        """``found``: what was ``asked``, with the index of the last beat with ``load``,
        or with what is wrong with it. ``there``: how many are available in a packed ring, if the
        beat does not say so. Returns whether nothing is there."""
        index = Signal(16, reset_less=True, name=f"index{name}")
        ahead = Signal(16, reset_less=True, name=f"ahead{name}")
        failed = Signal(reset_less=True, name=f"failed{name}")
        with m.If(load):
            m.d.sync += [
                index.eq(beat.data),
                ahead.eq(beat.data - asked.position),
                failed.eq(beat.error),
            ]
            count = beat.data if there is None else there
            with m.If(is_packed(self._config, asked.rules)):
                m.d.sync += [index.eq(asked.position + count), ahead.eq(count)]
        m.d.comb += [found.eq(asked), found.available.eq(index)]
        with m.If(failed | (ahead > (1 << asked.size_log2))):
            m.d.comb += [
                found.available.eq(asked.position),
                found.cause.eq(Mux(failed, QueueErrorCause.HOST_READ, QueueErrorCause.AVAIL_INDEX)),
            ]
        with m.Else():
            m.d.comb += found.cause.eq(QueueErrorCause.NONE)
        return ~failed & (ahead == 0)

    def _answer(self, m: Module, found) -> None:
        answer = self.o.payload.answer
        m.d.comb += [
            answer.status.eq(
                Mux(
                    found.cause == QueueErrorCause.NONE,
                    FetchStatus.EMPTY,
                    FetchStatus.QUEUE_ERROR,
                )
            ),
            answer.poll.eq(found.plain),
            answer.qp.eq(found.qp),
            answer.position.eq(found.position),
            answer.available.eq(found.available),
            self.o.payload.queue.eq(found.queue),
            self.o.payload.cause.eq(found.cause),
        ]
