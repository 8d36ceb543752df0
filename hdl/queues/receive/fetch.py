"""Receive WQEs, fetched ahead of the packets that need them."""

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
    Upcoming,
    WqeRead,
)
from hdl.ports.rows import QueueRow

from ..ring.read import ReadShare
from .answers import RecvAnswers
from .lines import RecvLines, is_refetch
from .path import RecvPath
from .prefetch import RecvPrefetch
from .reclaim import RecvReclaim
from .refetch import Refetch
from .sources import RecvSources

__all__ = ["RecvFetch"]


class RecvFetch(wiring.Component):
    """Fetches receive WQEs ahead of the packets that need them, many queues at a time.

    Wires its parts: RecvSources (what is known of each source), RecvPrefetch, RecvAnswers,
    RecvReclaim, Refetch, RecvPath (from a position to a WQE in its line), RecvLines.

    Spec: Virtio 1.2, 2.7; virtio-rdma VR-4.1, VR-4.2.
    Parameters: ``depth``: WQEs on their way in each stage of the path.
    Members: as SendFetch, without ``release``. ``upcoming``: a request
    for this source is about to come. ``doorbell``: a receive queue was notified (flags mean
    nothing).
    The line of an answer stays as it is until the next request, and as long as ``line_use`` says
    that it is read.
    Latency: see RecvAnswers and Refetch. One request at a time: Receive makes one at a time.
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
                "upcoming": In(Upcoming()),
                "doorbell": In(stream.Signature(Activation)),
                "line_use": In(LineUse()),
                "slot": In(WqeRead),
                "slot_enable": In(1),
                "slot_data": Out(128),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(DropQueue)),
                "error": Out(stream.Signature(QueueError)),
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
        m.submodules.refetch = refetch = Refetch(config=config)
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
            (refetch.queue_read, sources.other),
            (sources.queue_read, flipped(self.queue_read)),
            (flipped(self.doorbell), prefetch.doorbell),
            (answers.answered, prefetch.more),
            (answers.demand, prefetch.demand),
            (flipped(self.queue_reset), reclaim.queue_reset),
            (flipped(self.upcoming), answers.upcoming),
            (answers.away, refetch.away),
            (answers.begun, refetch.begun),
            (refetch.job, path.held),
        ):
            connect(m, one, other)
        self._requests(m, answers, refetch)
        self._jobs(m, path, prefetch, refetch, answers)
        self._lines(m, lines, path, prefetch, answers, reclaim, refetch)

        still = Signal()
        # A cycle later, of one with ``stop`` already: then nothing new is begun meanwhile.
        m.d.sync += reclaim.still.eq(self.idle & reclaim.stop)
        m.d.comb += [
            still.eq(~answers.at_work & ~refetch.at_work & lines.quiet & prefetch.quiet),
            self.idle.eq(still & sources.ready & ~lines.clearing),
            reclaim.line_needed.eq(answers.line_needed),
            answers.line_freed.eq(reclaim.line_freed),
            reclaim.kept.eq(answers.waiting_source),
            reclaim.kept_valid.eq(answers.waits),
            path.flush.eq(reclaim.forgotten),
            refetch.forget.eq(reclaim.forgotten),
            answers.stop.eq(reclaim.stop),
            answers.stopped.eq(reclaim.stopped),
            answers.starved.eq(prefetch.starved),
            answers.dropping.eq(reclaim.dropping),
            answers.epoch.eq(reclaim.epoch),
            prefetch.epoch.eq(reclaim.epoch),
            prefetch.stop.eq(reclaim.stop),
        ]
        return m

    def _requests(self, m: Module, answers, refetch) -> None:
        """One request at a time, answered by ``answers``, or by ``refetch`` instead (``away``)."""
        m.d.comb += [
            answers.req.valid.eq(self.req.valid & ~refetch.at_work),
            answers.req.payload.eq(self.req.payload),
            self.req.ready.eq(answers.req.ready & ~refetch.at_work),
            answers.rsp.ready.eq(self.rsp.ready),
            refetch.rsp.ready.eq(self.rsp.ready),
            self.rsp.valid.eq(answers.rsp.valid | refetch.rsp.valid),
            self.rsp.payload.eq(Mux(refetch.at_work, refetch.rsp.payload, answers.rsp.payload)),
            answers.error.ready.eq(self.error.ready),
            refetch.error.ready.eq(self.error.ready),
            self.error.valid.eq(answers.error.valid | refetch.error.valid),
            self.error.payload.eq(
                Mux(refetch.at_work, refetch.error.payload, answers.error.payload)
            ),
        ]

    def _jobs(self, m: Module, path, prefetch, refetch, answers) -> None:
        """WQEs to fetch, and whose line is looked at."""
        # No register stands here, although the choice is known late: a cycle more before a WQE is
        # there costs 5 % of the rate of short SENDs over many QPs.
        connect(m, prefetch.job, path.i)
        m.d.comb += [
            path.tag.index.eq(Mux(refetch.at_work, refetch.tag.index, answers.tag.index)),
            path.tag.enable.eq(refetch.tag.enable | answers.tag.enable),
        ]
        # Long before the line comes, so it is in registers.
        m.d.sync += [
            path.waits.eq(answers.waits | refetch.waits),
            path.wanted.eq(Mux(refetch.waits, refetch.wanted, answers.wanted)),
        ]
        for part in (answers, refetch):
            m.d.comb += [
                part.tag.row.eq(path.tag.row),
                part.arrived.eq(path.arrived),
                part.arrived_valid.eq(path.arrived_valid),
                part.good.eq(path.good),
            ]
        m.d.comb += [
            path.slot.eq(self.slot),
            path.slot_enable.eq(self.slot_enable),
            self.slot_data.eq(path.slot_data),
        ]

    def _lines(self, m: Module, lines, path, prefetch, answers, reclaim, refetch) -> None:
        """What happens to the lines of receive WQEs, an event at a time, and who looks at them."""
        total = self._config.recv_lines
        # The line of the last answer is about to be read, until the next request.
        with m.If(self.rsp.valid & self.rsp.ready):
            m.d.sync += [
                lines.current.eq(self.rsp.payload.line),
                lines.current_valid.eq(self.rsp.payload.status == FetchStatus.OK),
            ]
        with m.If(self.req.valid & self.req.ready):
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
            lines.arrived.eq(path.arrived_valid & ~is_refetch(path.arrived.line, total)),
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
            lines.look.eq(refetch.wanted),
            refetch.line_read.eq(lines.read),
            lines.line_use.taken.eq(self.line_use.taken),
            lines.line_use.line.eq(self.line_use.line),
            lines.line_use.done.eq(self.line_use.done),
        ]
