"""Receive WQEs, and send WQEs read again as the sink of a READ."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.activation import activation_layout
from hdl.common.address import mask
from hdl.common.epoch import Epoch
from hdl.common.ram import Ram
from hdl.common.sums import unequal
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import (
    WQE_LINE_BITS,
    Activation,
    DropQueue,
    FetchRequest,
    LineUse,
    QueueError,
    ReadSink,
    RecvFetched,
    WqeRead,
)
from hdl.ports.rows import QueueRow
from hdl.ports.tables import TableRead

from .index import AvailIndex, IndexResult
from .read import BlockReader, ReadShare
from .read_sinks import TOLD_LINE, ReadSinks
from .recv_ahead import AheadQueues
from .recv_lines import RecvLines, SinkLines, is_sink, sink_line, sinks_of
from .recv_path import Arrival, RecvPath
from .recv_shares import RecvShares
from .recv_states import (
    After,
    Parts,
    RecvQueue,
    ahead_states,
    forget_states,
    refuse,
    request_states,
)

__all__ = ["RecvFetch"]

#: Sinks grow older with every so many (two to the power of it) WQEs that SendFetch gives out.
SINK_AGE_BITS = 14


class RecvFetch(wiring.Component):
    """Fetches receive WQEs ahead of the packets that need them, many queues at a time.

    Spec: Virtio 1.2, 2.7; virtio-rdma VR-4.1, VR-4.2.
    Parameters: ``depth``: WQEs on their way in each stage of the path; ``function``: of the queues
    whose doorbells come.
    Members: as SendFetch, without ``release`` and ``in_order``. ``req.send`` tells a send WQE from
    a receive WQE, ``req.last`` that the WQE will not be asked for again. ``doorbell``: a receive
    queue was notified (flags mean nothing). ``sink``: READs that SendFetch has read, kept by
    ReadSinks;
    ``forget`` (a cycle, when SendFetch has taken a queue reset): no sink is valid any more;
    ``fetched`` (a cycle): SendFetch has given out a WQE.
    The line of an answer stays as it is until the next request, and as long as ``line_use`` says
    that it is read. Most of ``recv_lines`` hold receive WQEs, a list for each queue; the
    last hold sinks fetched here, each in the one that queue number and position, exclusive or,
    select.
    Fetching ahead begins with a doorbell and goes on with each answer. docs/queues.md says how many
    lines a queue gets. A request that finds none left takes all those of another queue, in turn.
    Latency: 6 cycles when the WQE is at hand; else up to four host reads and 60 cycles, behind the
    reads that fetch ahead, never behind a chain that is. One request at a time: Receive makes one
    at a time. Meanwhile other queues are fetched ahead.
    Lines are forgotten by ``queue_reset`` (taken when nothing is under way; while it waits requests
    for its queue are EMPTY, others are not taken, and no queue is fetched ahead), and when nobody
    has asked for the queue for one to three periods of 65536 cycles; a sink when nobody has asked
    for it while SendFetch gave out 16384 to 32768 WQEs, half of those that bring a position again.
    Errors: as SendFetch; nothing is kept of a WQE in error, and one found while fetching ahead is
    found again, and told, when the WQE is asked for. EVENT_IDX: ``avail_event`` is written
    before EMPTY, as everywhere, and not for an index read ahead.
    Reset: no line is valid; ``qps`` or ``recv_lines`` cycles without a request taken.
    """

    def __init__(self, *, config: NicConfig, depth: int = 32, function: int = FUNCTION_RDMA):
        self._config, self._depth, self._function = config, depth, function
        super().__init__(
            {
                "req": In(stream.Signature(FetchRequest)),
                "rsp": Out(stream.Signature(RecvFetched)),
                "doorbell": In(stream.Signature(Activation)),
                "line_use": In(LineUse()),
                "slot": In(WqeRead),
                "slot_enable": In(1),
                "slot_data": Out(128),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(DropQueue)),
                "error": Out(stream.Signature(QueueError)),
                "event_idx": In(1),
                "indirect": In(1),
                "sink": In(stream.Signature(ReadSink)),
                "forget": In(1),
                "fetched": In(1),
                "idle": Out(1),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        total = config.recv_lines
        queue_lines = total - sinks_of(total)
        m.submodules.path = path = RecvPath(config=config, depth=self._depth)
        m.submodules.lines = lines = RecvLines(lines=total)
        m.submodules.told = told_sinks = ReadSinks(config=config)
        m.submodules.shares = shares = RecvShares(config=config)
        m.submodules.sinks = sinks = SinkLines(sinks=sinks_of(total))
        # No state reads what it writes.
        m.submodules.links = links = Ram(shape=WQE_LINE_BITS, depth=total, forward=False)
        m.submodules.owners = owners = Ram(shape=14, depth=total, forward=False)
        m.submodules.table = table = Ram(shape=RecvQueue, depth=config.qps, forward=False)
        m.submodules.ahead = ahead = AheadQueues(config=config)
        m.submodules.index = index = AvailIndex(config=config)
        m.submodules.reader = reader = BlockReader(width=config.width, size=8)
        m.submodules.share = share = ReadShare(width=config.width, clients=3, depth=4 * self._depth)
        connect(m, share.read_client, flipped(self.read_client))
        connect(m, reader.read_client, share.client0)
        connect(m, path.read_client, share.client1)
        connect(m, ahead.read_client, share.client2)
        connect(m, flipped(self.doorbell), ahead.doorbell)
        connect(m, index.block, reader.i)
        connect(m, reader.o, index.block_data)
        connect(m, index.write_client, flipped(self.write_client))
        connect(m, flipped(self.sink), told_sinks.i)

        # The request, and the queue that is looked at: the request's, or one to fetch ahead.
        request = Signal(FetchRequest, reset_less=True)
        queue, qp = Signal(RecvQueue, reset_less=True), Signal(14, reset_less=True)
        row = Signal(QueueRow, reset_less=True)
        answer = Signal(RecvFetched, reset_less=True)
        waiting, indexing = Signal(), Signal()  # the request's line is on its way, or its index
        wanted = Signal(WQE_LINE_BITS, reset_less=True)
        found, found_valid = Signal(IndexResult, reset_less=True), Signal()
        fault, fault_valid = Signal(Arrival, reset_less=True), Signal()
        item, item_valid = Signal(activation_layout(16), reset_less=True), Signal()
        item_waits = Signal()  # it is the first of those that wait for lines
        line = Signal(WQE_LINE_BITS)  # of the request
        position = Signal(16)  # the next to fetch ahead
        of_told = Signal()  # slots of a sink that was told were read

        def receive_queue(pair):
            return (config.rq_queue(0) + (pair << 1))[:16]

        complains = Signal()
        m.d.comb += [
            line.eq(Mux(request.send, sink_line(request, total), queue.head)),
            position.eq(queue.first + queue.count),
            path.slot.eq(self.slot),
            path.slot_enable.eq(self.slot_enable),
            told_sinks.slot.eq(self.slot),
            told_sinks.slot_enable.eq(self.slot_enable),
            self.slot_data.eq(Mux(of_told, told_sinks.slot_data, path.slot_data)),
            path.indirect.eq(self.indirect),
            path.waits.eq(waiting),
            path.wanted.eq(wanted),
            path.tag.index.eq(line),
            lines.ask.eq(path.tag.enable),
            lines.waits.eq(waiting),
            index.event_idx.eq(self.event_idx),
            index.i.payload.function.eq(request.function),
            index.i.payload.driver.eq(row.driver),
            index.i.payload.device.eq(row.device),
            index.i.payload.size_log2.eq(row.size_log2),
            index.i.payload.position.eq(request.position),
            lines.line_use.taken.eq(self.line_use.taken),
            lines.line_use.line.eq(self.line_use.line),
            lines.line_use.done.eq(self.line_use.done),
            lines.arrived.eq(path.arrived_valid),
            lines.arrived_line.eq(path.arrived.line),
            lines.arrived_good.eq(path.good),
            lines.issue.eq(path.i.valid & path.i.ready),
            lines.issue_line.eq(path.i.payload.line),
            lines.release_line.eq(queue.head),
            lines.current.eq(answer.line),
            lines.asked.eq(path.tag.index),
            lines.wanted.eq(wanted),
            lines.look0.eq(line),
            lines.look1.eq(told_sinks.line),
            told_sinks.held.eq(lines.read1),
            told_sinks.wanted.queue.eq(request.queue),
            told_sinks.wanted.position.eq(request.position),
            sinks.asked.eq(line),
            sinks.kept.eq(path.arrived.line),
            sinks.keep.eq(path.good & is_sink(path.arrived.line, total)),
            table.write.index.eq(qp),
            table.write.row.eq(queue),
            links.write.index.eq(queue.tail),
            links.write.row.eq(lines.spare),
            links.read0.index.eq(queue.head),
            owners.write.index.eq(lines.spare),
            owners.write.row.eq(qp),
            owners.write.enable.eq(lines.own),
            self.rsp.payload.eq(answer),
            self.error.valid.eq(complains),
            self.error.payload.queue.eq(request.queue),
            self.error.payload.cause.eq(fault.found.cause),
        ]
        with m.If(self.slot_enable):
            m.d.sync += of_told.eq((self.slot.line & TOLD_LINE) != 0)
        # A line whose asker waits keeps what became of it.
        with m.If(path.arrived_valid & waiting & (path.arrived.line == wanted)):
            m.d.sync += [fault.eq(path.arrived), fault_valid.eq(path.arrived.told & ~path.good)]

        # Epochs: what nobody asks for is forgotten, in a sweep of all lines when one ends.
        m.submodules.epoch = epochs = Epoch()
        epoch, sweep = Signal(2), Signal(WQE_LINE_BITS)
        # Sinks go by what is fetched: a READ may wait for its response for any time.
        fetches, aged, came = Signal(SINK_AGE_BITS), Signal(), Signal()
        m.d.sync += [came.eq(self.fetched), aged.eq(came & fetches.all())]
        with m.If(came):
            m.d.sync += fetches.eq(fetches + 1)
        unswept = Signal(range(queue_lines + 1))  # lines whose queues are still to be looked at
        m.d.comb += [
            sinks.tick.eq(aged),
            sinks.clear.eq(self.forget),
            told_sinks.tick.eq(aged),
            told_sinks.clear.eq(self.forget),
            owners.read0.index.eq(sweep),
            lines.sweep.eq(sweep),
        ]
        m.d.sync += epoch.eq(epoch + epochs.ends)

        looked = Signal(2)  # how long ``sweep`` has been the same; then ``swept`` is of it
        m.d.sync += looked.eq(Cat(1, looked))

        def sweep_on():
            m.d.sync += [sweep.eq(Mux(sweep == queue_lines - 1, 0, sweep + 1)), looked.eq(0)]

        # Queues that may have something to fetch ahead.
        poll = ahead.poll.payload
        m.d.comb += [
            ahead.more.payload.eq(qp),
            ahead.o.ready.eq(~item_valid & ~shares.first.valid),
            poll.request.function.eq(self._function),
            poll.request.qp.eq(qp),
            poll.request.queue.eq(receive_queue(qp)),
            poll.request.position.eq(position),
            poll.row.eq(row),
        ]
        with m.If(~item_valid):
            m.d.sync += [
                item.eq(ahead.o.payload),
                item_valid.eq(ahead.o.valid | shares.first.valid),
                item_waits.eq(shares.first.valid),
            ]
            with m.If(shares.first.valid):
                m.d.sync += [item.qp.eq(shares.first.payload), item.flags.eq(0)]

        # What is known to be available: for the request, and behind the WQEs fetched ahead. What is
        # computed of a row and of the request is a cycle late: there is a state for it (GATHER).
        # All are less one: from 1 to the queue's size means no bit beyond it.
        told, heard, beyond, outside = Signal(16), Signal(16), Signal(16), Signal(16)
        best, known, told_so = Signal(16), Signal(), Signal()
        m.d.comb += [
            outside.eq(~mask(row.size_log2)),
            best.eq(request.known),
            told_so.eq((told & outside) == 0),
            known.eq(told_so),
            beyond.eq(queue.available + ~queue.first),
        ]
        m.d.sync += [
            told.eq(request.known + ~request.position),
            heard.eq(queue.available + ~request.position),
        ]
        with m.If(~request.send & ((heard & outside) == 0) & (~told_so | (heard > told))):
            m.d.comb += [best.eq(queue.available), known.eq(1)]
        more_known, answers, short = Signal(2), Signal(16), Signal(16)  # all: there are more
        # ``beyond`` less ``queue.count``, whose sign says enough, in one carry chain.
        a, b, c = queue.available, ~queue.first, ~Cat(queue.count, Const(0, 2))
        m.d.comb += short.eq((a ^ b ^ c) + Cat(Const(1, 1), (a & b) | (c & (a | b))))
        m.d.sync += more_known.eq(Cat(~short[15], (beyond & outside) == 0))
        m.d.comb += [
            shares.queue.eq(queue.share),
            shares.count.eq(queue.count),
            shares.given.eq(queue.given),
            shares.used.eq(queue.used),
            shares.late.eq(queue.late != 0),
            shares.answers.eq(answers),
            shares.free.eq(lines.free),
            shares.wait.payload.eq(qp),
            shares.its_turn.eq(item_waits),
        ]
        # Jobs of the path: the request's, or one ahead.
        job, fetching = path.i.payload, Signal()
        m.d.comb += [
            job.size_log2.eq(row.size_log2),
            job.desc.eq(row.desc),
            job.driver.eq(row.driver),
        ]
        with m.If(fetching):
            m.d.comb += [
                job.request.function.eq(self._function),
                job.request.qp.eq(qp),
                job.request.queue.eq(receive_queue(qp)),
                job.request.position.eq(position),
                job.request.known.eq(queue.available),
                job.line.eq(lines.spare),
            ]
        with m.Else():
            m.d.comb += [job.request.eq(request), job.request.known.eq(best), job.line.eq(line)]

        offset, tag = Signal(16), path.tag.row
        here, ready, done, quiet = (Signal() for _ in range(4))
        drops, refused, reset = Signal(), Signal(), self.queue_reset.payload.queue
        sought = Signal(11)  # in pieces: a RAM's output is late
        tag_of, asked_of = Cat(tag.queue, tag.position), Cat(request.queue, request.position)
        told_found = request.send & told_sinks.found
        m.d.sync += [
            offset.eq(request.position - queue.first),
            here.eq(request.send | ((request.position == queue.first) & (queue.count != 0))),
            sought.eq(~unequal(tag_of, asked_of)),
        ]
        m.d.comb += [
            ready.eq(~lines.busy & Mux(request.send, sinks.valid & sought.all(), lines.good)),
            done.eq((indexing & index.o.valid) | lines.wanted_done),
            quiet.eq(~waiting & ~indexing & lines.quiet & ~ahead.polling),
            # While one waits, queues that were notified before are given up unseen.
            drops.eq(self.queue_reset.valid & quiet & ~item_valid & ahead.none),
            refused.eq(self.queue_reset.valid & (self.req.payload.queue == reset)),
        ]
        reset_pair, after = Signal(16), Signal(After)
        turn = Signal()  # requests and queues to fetch ahead go in turn
        clear, fetches_more, asks_more = Signal(range(config.qps)), Signal(), Signal()
        cleared = Signal()
        m.d.comb += reset_pair.eq(reset - config.sq_queue(0))

        def load(pair, number):
            """Read what is known of a queue pair."""
            m.d.comb += [
                table.read0.index.eq(pair),
                table.read0.enable.eq(1),
                self.queue_read.index.eq(number),
                self.queue_read.enable.eq(1),
            ]
            m.d.sync += qp.eq(pair)

        parts = Parts(
            port=self,
            after=after,
            ahead=ahead,
            answer=answer,
            answers=answers,
            complains=complains,
            asks_more=asks_more,
            best=best,
            epoch=epoch,
            fault=fault,
            fault_valid=fault_valid,
            fetches_more=fetches_more,
            fetching=fetching,
            found=found,
            found_valid=found_valid,
            here=here,
            index=index,
            indexing=indexing,
            item=item,
            item_valid=item_valid,
            item_waits=item_waits,
            known=known,
            line=line,
            lines=lines,
            links=links,
            load=load,
            looked=looked,
            more_known=more_known.all(),
            offset=offset,
            owners=owners,
            path=path,
            qp=qp,
            queue=queue,
            ready=ready,
            request=request,
            reset_pair=reset_pair,
            row=row,
            shares=shares,
            sinks=sinks,
            sweep_on=sweep_on,
            table=table,
            tag=tag,
            told_found=told_found,
            told_sinks=told_sinks,
            waiting=waiting,
            wanted=wanted,
        )
        with m.FSM(name="state") as fsm:
            with m.State("CLEAR"):
                m.d.comb += [table.write.index.eq(clear), table.write.enable.eq(1)]
                m.d.comb += table.write.row.eq(0)
                m.d.sync += [clear.eq(clear + 1), cleared.eq(cleared | (clear == config.qps - 1))]
                with m.If(cleared & ~lines.clearing):
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(quiet)
                with m.If(done):
                    m.d.comb += index.o.ready.eq(indexing)
                    m.d.sync += [waiting.eq(0), indexing.eq(0)]
                    with m.If(indexing):
                        m.d.sync += [found.eq(index.o.payload), found_valid.eq(1)]
                    load(request.qp, request.queue)
                    m.next = "ASK"
                with m.Elif(self.req.valid & refused & ~(waiting | indexing)):
                    refuse(m, parts)
                with m.Elif(drops):
                    load(reset_pair >> 1, 0)
                    m.d.sync += after.eq(After.RESET)
                    m.next = "LOAD"
                with m.Elif(
                    self.req.valid
                    & ~(waiting | indexing | self.queue_reset.valid | (turn & item_valid))
                ):
                    m.d.comb += self.req.ready.eq(1)
                    m.d.sync += [
                        turn.eq(1),
                        request.eq(self.req.payload),
                        lines.current_valid.eq(0),
                        fault_valid.eq(0),
                        found_valid.eq(0),
                    ]
                    load(self.req.payload.qp, self.req.payload.queue)
                    m.next = "ASK"
                with m.Elif(item_valid):
                    load(item.qp, receive_queue(item.qp))
                    m.d.sync += turn.eq(0)
                    m.next = "AHEAD"
                with m.Elif(self.queue_reset.valid):
                    pass
                with m.Elif((unswept != 0) & looked[1]):
                    m.d.comb += owners.read0.enable.eq(1)
                    m.d.sync += [unswept.eq(unswept - 1), after.eq(After.SWEEP)]
                    sweep_on()
                    with m.If(lines.swept):
                        m.next = "OWNER"
            request_states(m, parts)
            ahead_states(m, parts)
            forget_states(m, parts)
        m.d.comb += told_sinks.asking.eq(request.send & ~fsm.ongoing("IDLE"))
        with m.If(epochs.ends):
            m.d.sync += unswept.eq(queue_lines)
        return m
