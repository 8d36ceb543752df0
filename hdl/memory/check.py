"""Checks and translates one packet's bytes in host memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import WqeRead
from hdl.ports.rows import MrRow
from hdl.ports.tables import TableRead

from .translate import Translate
from .types import CheckJob, CheckResult, CheckSource, Chunk, TranslateRequest
from .walk import SgeWalk

__all__ = ["Checker", "translate_members"]


def translate_members(width: int) -> dict:
    """Members that Gather, Scatter and Checker have on behalf of the Translate inside."""
    return {
        "mr": Out(TableRead(16, MrRow)),
        "table_client": Out(ReadClient(width)),
        "invalidate_mr": In(16),
        "invalidate_start": In(1),
        "invalidate_done": Out(1),
        "hits": Out(32),
        "misses": Out(32),
        "key_errors": Out(32),
    }


#: Jobs that have asked for everything and have no verdict yet.
JOBS = 16


class _Asked(data.Struct):
    """One job, when it has asked for everything: answers to come, and what its walk found."""

    requests: 8
    status: 8


class Checker(wiring.Component):
    """From a packet's place in memory to its chunks and one verdict.

    Parameters: ``access``: MrRow.access bits that SGEs need (keys are local; errors LOC_PROT_ERR).
    Members: ``job`` stream of CheckJob; ``result`` one for each, in order; ``chunks`` stream of
    Chunk, in order; they may come before the result, which says whether they may be used, and
    whether there are any (then the last has ``end``).
    Jobs with KEY: the key is a peer's; ``offset`` bytes from ``va`` are checked (unless 0 or as
    many as ``length``), then ``length`` bytes translated (unless 0), with the access bits
    ``key_access`` (valid with ``job``); errors are REM_ACCESS_ERR.
    ``slot*`` as in SgeWalk, the rest as in Translate.
    Latency: cached, one SGE: result 11 cycles after the job, with KEY 9; one more per further
    chunk. Throughput: a job in 4 cycles (KEY) or 6 (one SGE); jobs behind one that misses the
    cache of pages go on asking, up to 16, and their misses overlap.
    Errors: the first one found is the result. Reset: empty.
    """

    def __init__(self, *, config: NicConfig, access: int):
        self._config, self._access = config, access
        # All chunks of a packet come before its verdict: each SGE and each page boundary is one.
        self._depth = 1 << ceil_log2(4 * max(config.max_sge, 4))
        super().__init__(
            {
                "job": In(stream.Signature(CheckJob)),
                "key_access": In(4),
                "result": Out(stream.Signature(CheckResult)),
                "chunks": Out(stream.Signature(Chunk)),
                "slot": Out(WqeRead),
                "slot_enable": Out(1),
                "slot_data": In(128),
                **translate_members(config.width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.translate = translate = Translate(config=self._config)
        m.submodules.walk = walk = SgeWalk(access=self._access)
        m.submodules.fifo = fifo = StreamFifo(shape=Chunk, depth=self._depth)
        m.submodules.asked = asked = StreamFifo(shape=_Asked, depth=JOBS)
        connect(m, fifo.o, flipped(self.chunks))
        connect(m, translate.mr, flipped(self.mr))
        connect(m, translate.read_client, flipped(self.table_client))
        m.d.comb += [
            translate.invalidate_mr.eq(self.invalidate_mr),
            translate.invalidate_start.eq(self.invalidate_start),
            self.invalidate_done.eq(translate.invalidate_done),
            self.hits.eq(translate.hits),
            self.misses.eq(translate.misses),
            self.key_errors.eq(translate.key_errors),
            self.slot.eq(walk.slot),
            self.slot_enable.eq(walk.slot_enable),
            walk.slot_data.eq(self.slot_data),
        ]

        # Ask: a job at a time, by its walk or its key (whole range, then the bytes of this packet).
        job, request = self.job.payload, Signal(TranslateRequest)
        key = Signal(TranslateRequest, reset_less=True)
        range_left, bytes_left = Signal(), Signal()
        key_offset, key_length = Signal(32, reset_less=True), Signal(13, reset_less=True)
        asking, sent = Signal(), Signal()
        active, lined = Signal(), Signal()  # a job is asking; from a line
        count = Signal(8)  # requests it has sent
        closing = Signal()  # it has sent all
        m.d.comb += [
            closing.eq(active & ~walk.busy & ~range_left & ~bytes_left),
            asked.i.valid.eq(closing),
            asked.i.payload.requests.eq(count),
            asked.i.payload.status.eq(Mux(lined, walk.status, 0)),
            self.job.ready.eq(~active | (closing & asked.i.ready)),
            walk.job.eq(job),
        ]
        with m.If(range_left | bytes_left):
            m.d.comb += [
                request.eq(key),
                request.length.eq(key_length),
                request.check_only.eq(range_left),
                request.end.eq(~range_left),
                asking.eq(1),
            ]
            with m.If(range_left):
                m.d.comb += request.length.eq(key_offset)
        with m.Else():
            m.d.comb += [request.eq(walk.request.payload), asking.eq(walk.request.valid)]
        m.d.comb += [
            translate.i.valid.eq(asking),
            translate.i.payload.eq(request),
            sent.eq(asking & translate.i.ready),
            walk.request.ready.eq(translate.i.ready & ~range_left & ~bytes_left),
        ]
        with m.If(sent):
            m.d.sync += [range_left.eq(0), count.eq(count + 1)]
            with m.If(~range_left):
                m.d.sync += bytes_left.eq(0)
        with m.If(closing & asked.i.ready):
            m.d.sync += active.eq(0)
        with m.If(self.job.valid & self.job.ready):
            m.d.sync += [active.eq(1), count.eq(0), lined.eq(job.source == CheckSource.LINE)]
            with m.If(job.source == CheckSource.LINE):
                m.d.comb += walk.start.eq(1)
            with m.Else():
                m.d.sync += [
                    range_left.eq((job.offset != 0) & (job.offset != job.length)),
                    bytes_left.eq(job.length != 0),
                    key_offset.eq(job.offset),
                    key_length.eq(job.length),
                    key.function.eq(job.function),
                    key.pd.eq(job.pd),
                    key.key.eq(job.key),
                    key.va.eq(job.va),
                    key.access.eq(self.key_access),
                    key.remote.eq(1),
                ]

        # Answers, of the oldest job without a verdict. A job has told how many it has asked for
        # before the first answer of the next one comes: Translate takes longer than ``asked``.
        marking, marked, complete = Signal(), Signal(), Signal()
        result = Signal(CheckResult)
        answers = Signal(8)
        answer, taken, ended = translate.o.payload, Signal(), Signal()
        failed = result.status != 0
        all_answered, last_good, placed = Signal(), Signal(), Signal()
        m.d.comb += [
            all_answered.eq(asked.o.valid & (answers == asked.o.payload.requests)),
            translate.o.ready.eq(fifo.i.ready & ~marking & ~all_answered),
            taken.eq(translate.o.valid & translate.o.ready),
            ended.eq(taken & answer.last),
            last_good.eq(
                ended
                & asked.o.valid
                & (answers + 1 == asked.o.payload.requests)
                & (asked.o.payload.status == 0)
                & ~failed
                & (answer.status == 0)
            ),
            placed.eq(
                translate.o.valid
                & ~all_answered
                & ~failed
                & (answer.status == 0)
                & (answer.length != 0)
            ),
            fifo.i.valid.eq(marking | placed),
            fifo.i.payload.addr.eq(answer.addr),
            fifo.i.payload.length.eq(answer.length),
            fifo.i.payload.end.eq(marking | answer.end),
            walk.stop.eq(failed & (asked.level == 0)),
        ]
        with m.If(ended):
            m.d.sync += answers.eq(answers + 1)
        with m.If(taken):
            with m.If(~failed & (answer.status != 0)):
                m.d.sync += result.status.eq(answer.status)
            with m.If(placed):
                m.d.sync += result.listed.eq(1)

        # The verdict; before it the mark that ends a failed packet's chunks.
        verdict, room = self.result.payload, Signal()
        m.d.comb += room.eq(~self.result.valid | self.result.ready)
        with m.If(self.result.ready):
            m.d.sync += self.result.valid.eq(0)
        with m.If(marking):
            with m.If(fifo.i.ready):
                m.d.sync += [marking.eq(0), marked.eq(1), result.listed.eq(0)]
        with m.Elif(all_answered & room):
            with m.If(~failed & (asked.o.payload.status != 0)):
                m.d.sync += result.status.eq(asked.o.payload.status)
            with m.Elif(failed & result.listed):
                m.d.sync += marking.eq(1)
            with m.Else():
                m.d.comb += complete.eq(1)
        with m.Elif(last_good & room):
            m.d.comb += complete.eq(1)
        m.d.comb += asked.o.ready.eq(complete)
        with m.If(complete):
            m.d.sync += [
                self.result.valid.eq(1),
                verdict.status.eq(result.status),
                verdict.listed.eq(result.listed | marked | placed),
                result.eq(0),
                marked.eq(0),
                answers.eq(0),
            ]
        return m
