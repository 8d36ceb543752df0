"""Receive WQEs, and send WQEs read again as the sink of a READ."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import (
    Activation,
    DropQueue,
    FetchStatus,
    LineUse,
    QueueError,
    RecvFetched,
    RecvRequest,
    SinkRequest,
    SinksReported,
    Upcoming,
    WqeRead,
)
from hdl.ports.rows import QueueRow

from ..ring.read import ReadShare
from .answers import RecvAnswers
from .lines import RecvLines, is_sink
from .path import RecvPath
from .prefetch import RecvPrefetch
from .read_sinks import REPORTED_LINE
from .reclaim import RecvReclaim
from .sinks import RecvSinks
from .sources import RecvSources

__all__ = ["RecvFetch"]


class RecvFetch(wiring.Component):
    """Fetches receive WQEs ahead of the packets that need them, many queues at a time.

    Wires its parts: RecvSources (what is known of each source), RecvPrefetch, RecvAnswers,
    RecvReclaim, RecvSinks, RecvPath (from a position to a WQE in its line), RecvLines.

    Spec: Virtio 1.2, 2.7; virtio-rdma VR-4.1, VR-4.2.
    Parameters: ``depth``: WQEs on their way in each stage of the path.
    Members: as SendFetch, without ``release``. ``req``, ``rsp``: receive WQEs;
    ``sink_req``, ``sink_rsp``: sinks of READs. ``upcoming``: a request for this source is about to
    come. ``doorbell``: a receive queue was notified (flags mean nothing). ``reported``: READs that
    SendFetch has read.
    The line of an answer stays as it is until the next request, and as long as ``line_use`` says
    that it is read.
    Latency: see RecvAnswers and RecvSinks. One request at a time: Receive makes one at a time.
    Prefetching begins with a doorbell and goes on with each answer. ``queue_reset`` is taken when
    nothing is under way; while it waits requests for its queue are EMPTY, others are not taken, and
    no queue is fetched ahead.
    Errors: as SendFetch; nothing is kept of a WQE in error, and one found while fetching ahead is
    found again, and answered, when the WQE is asked for. EVENT_IDX: ``avail_event`` is written
    before EMPTY, as everywhere, and not for an index read ahead.
    Reset: no line is valid; ``qps`` or ``recv_lines`` cycles without a request taken.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._depth = config, config.recv_wqes_ahead
        super().__init__(
            {
                "req": In(stream.Signature(RecvRequest)),
                "rsp": Out(stream.Signature(RecvFetched)),
                "sink_req": In(stream.Signature(SinkRequest)),
                "sink_rsp": Out(stream.Signature(RecvFetched)),
                "upcoming": In(Upcoming()),
                "doorbell": In(stream.Signature(Activation)),
                "line_use": In(LineUse()),
                "slot": In(WqeRead),
                "slot_enable": In(1),
                "slot_data": Out(128),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(DropQueue)),
                "error": Out(stream.Signature(QueueError)),
                "reported": In(SinksReported()),
                "idle": Out(1),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.path = path = RecvPath(config=config, depth=self._depth)
        m.submodules.lines = lines = RecvLines(lines=config.recv_lines)
        m.submodules.sources = sources = RecvSources(config=config)
        m.submodules.prefetch = prefetch = RecvPrefetch(config=config)
        m.submodules.answers = answers = RecvAnswers(config=config)
        m.submodules.reclaim = reclaim = RecvReclaim(config=config)
        m.submodules.sinks = sinks = RecvSinks(config=config)
        m.submodules.share = share = ReadShare(
            width=config.width, clients=3, depth=max(8, 4 * self._depth)
        )
        for one, other in (
            (share.read_client, flipped(self.read_client)),
            (answers.read_client, share.client0),
            (path.read_client, share.client1),
            (prefetch.read_client, share.client2),
            (answers.write_client, flipped(self.write_client)),
            (answers.access, sources.answers),
            (reclaim.access, sources.reclaim),
            (prefetch.access, sources.prefetch),
            (answers.linked, sources.linked0),
            (reclaim.linked, sources.linked1),
            (reclaim.owner, sources.owner),
            (prefetch.link, sources.link),
            (prefetch.own, sources.own),
            (sinks.queue_read, sources.other),
            (sources.queue_read, flipped(self.queue_read)),
            (flipped(self.doorbell), prefetch.doorbell),
            (answers.answered, prefetch.more),
            (answers.demand, prefetch.demand),
            (flipped(self.queue_reset), reclaim.queue_reset),
            (flipped(self.upcoming), answers.upcoming),
            (flipped(self.reported), sinks.reported),
            (sinks.held, path.held),
        ):
            connect(m, one, other)
        self._requests(m, answers, sinks, reclaim)
        self._jobs(m, path, prefetch, sinks, answers)
        self._lines(m, lines, path, prefetch, answers, reclaim, sinks)

        still = Signal()
        # A cycle later, of one with ``stop`` already: then nothing new is begun meanwhile.
        m.d.sync += reclaim.still.eq(self.idle & reclaim.stop)
        m.d.comb += [
            still.eq(~answers.at_work & ~sinks.at_work & lines.quiet & prefetch.quiet),
            self.idle.eq(still & sources.ready & ~lines.clearing),
            reclaim.line_needed.eq(answers.line_needed),
            answers.line_freed.eq(reclaim.line_freed),
            reclaim.kept.eq(answers.waiting_source),
            reclaim.kept_valid.eq(answers.waits),
            path.flush.eq(reclaim.forgotten),
            sinks.forget.eq(reclaim.forgotten),
            answers.stop.eq(reclaim.stop),
            answers.stopped.eq(reclaim.stopped),
            answers.starved.eq(prefetch.starved),
            answers.dropping.eq(reclaim.dropping),
            answers.epoch.eq(reclaim.epoch),
            prefetch.epoch.eq(reclaim.epoch),
            prefetch.stop.eq(reclaim.stop),
        ]
        return m

    def _requests(self, m: Module, answers, sinks, reclaim) -> None:
        """One request at a time, answered by ``answers`` or ``sinks``, or by the latter instead of
        the former (``away``). When both come at once, the one for a receive WQE goes first."""
        elsewhere = Signal()  # what the sinks are at is a receive WQE
        # Nor does a sink begin while a reset waits: it would be under way when that is taken.
        free = ~answers.at_work & ~self.req.valid & ~reclaim.stop
        connect(m, answers.away, sinks.away)
        connect(m, answers.begun, sinks.begun)
        m.d.comb += [
            answers.req.valid.eq(self.req.valid & ~sinks.at_work),
            answers.req.payload.eq(self.req.payload),
            self.req.ready.eq(answers.req.ready & ~sinks.at_work),
            sinks.req.valid.eq(self.sink_req.valid & free),
            sinks.req.payload.eq(self.sink_req.payload),
            self.sink_req.ready.eq(sinks.req.ready & free),
            answers.rsp.ready.eq(self.rsp.ready),
            sinks.rsp.ready.eq(Mux(elsewhere, self.rsp.ready, self.sink_rsp.ready)),
            self.rsp.valid.eq(answers.rsp.valid | (sinks.rsp.valid & elsewhere)),
            self.rsp.payload.eq(Mux(elsewhere, sinks.rsp.payload, answers.rsp.payload)),
            self.sink_rsp.valid.eq(sinks.rsp.valid & ~elsewhere),
            self.sink_rsp.payload.eq(sinks.rsp.payload),
            answers.error.ready.eq(self.error.ready),
            sinks.error.ready.eq(self.error.ready),
            self.error.valid.eq(answers.error.valid | sinks.error.valid),
            self.error.payload.eq(Mux(sinks.at_work, sinks.error.payload, answers.error.payload)),
        ]
        with m.If(answers.away.valid):
            m.d.sync += elsewhere.eq(1)
        with m.Elif(~sinks.at_work):
            m.d.sync += elsewhere.eq(0)

    def _jobs(self, m: Module, path, prefetch, sinks, answers) -> None:
        """WQEs to fetch: a sink goes first, there is one at a time."""
        # No register stands here, although the choice is known late: a cycle more before a WQE is
        # there costs 5 % of the rate of short SENDs over many QPs.
        m.d.comb += [
            path.i.valid.eq(sinks.job.valid | prefetch.job.valid),
            path.i.payload.eq(Mux(sinks.job.valid, sinks.job.payload, prefetch.job.payload)),
            sinks.job.ready.eq(path.i.ready),
            prefetch.job.ready.eq(path.i.ready & ~sinks.job.valid),
            path.tag.index.eq(Mux(sinks.at_work, sinks.tag.index, answers.tag.index)),
            path.tag.enable.eq(sinks.tag.enable | answers.tag.enable),
        ]
        # Long before the line comes, so it is in registers.
        m.d.sync += [
            path.waits.eq(answers.waits | sinks.waits),
            path.wanted.eq(Mux(sinks.waits, sinks.wanted, answers.wanted)),
        ]
        for part in (answers, sinks):
            m.d.comb += [
                part.tag.row.eq(path.tag.row),
                part.arrived.eq(path.arrived),
                part.arrived_valid.eq(path.arrived_valid),
                part.good.eq(path.good),
            ]
        of_reported = Signal()  # slots of a sink that was reported were read
        with m.If(self.slot_enable):
            m.d.sync += of_reported.eq((self.slot.line & REPORTED_LINE) != 0)
        for store in (path, sinks):
            m.d.comb += [store.slot.eq(self.slot), store.slot_enable.eq(self.slot_enable)]
        m.d.comb += self.slot_data.eq(Mux(of_reported, sinks.slot_data, path.slot_data))

    def _lines(self, m: Module, lines, path, prefetch, answers, reclaim, sinks) -> None:
        """What happens to the lines of receive WQEs, an event at a time, and who looks at them."""
        total = self._config.recv_lines
        # The line of the last answer is about to be read, until the next request.
        for given in (self.rsp, self.sink_rsp):
            with m.If(given.valid & given.ready):
                m.d.sync += [
                    lines.current.eq(given.payload.line),
                    lines.current_valid.eq(given.payload.status == FetchStatus.OK),
                ]
        for asked in (self.req, self.sink_req):
            with m.If(asked.valid & asked.ready):
                m.d.sync += lines.current_valid.eq(0)
        m.d.comb += [
            answers.room.eq(lines.room),
            reclaim.room.eq(lines.room & ~answers.may_release),
            prefetch.room.eq(lines.room & ~answers.may_release & ~reclaim.release),
            lines.release.eq(answers.release | reclaim.release),
            lines.release_line.eq(Mux(answers.release, answers.released, reclaim.released)),
            lines.issue.eq(prefetch.job.valid & prefetch.job.ready),
            lines.issue_line.eq(prefetch.job.payload.line),
            lines.own.eq(prefetch.take),
            lines.arrived.eq(path.arrived_valid & ~is_sink(path.arrived.line, total)),
            lines.arrived_line.eq(path.arrived.line),
            lines.arrived_good.eq(path.good),
            lines.ask.eq(answers.ask),
            lines.asked.eq(answers.tag.index),
            lines.waits.eq(answers.waits),
            lines.wanted.eq(answers.wanted),
            answers.busy.eq(lines.busy),
            answers.good_line.eq(lines.good),
            answers.wanted_done.eq(lines.wanted_done),
            lines.sweep.eq(reclaim.sweep),
            reclaim.swept.eq(lines.swept),
            reclaim.free.eq(lines.free),
            prefetch.free.eq(lines.free),
            prefetch.spare.eq(lines.spare),
            prefetch.spare_valid.eq(lines.spare_valid),
            lines.look0.eq(sinks.fetched_line),
            lines.look1.eq(sinks.reported_line),
            sinks.fetched_held.eq(lines.read0),
            sinks.reported_held.eq(lines.read1),
            lines.line_use.taken.eq(self.line_use.taken),
            lines.line_use.line.eq(self.line_use.line),
            lines.line_use.done.eq(self.line_use.done),
        ]
