"""Checks and translates one packet's bytes in host memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.address import folded
from hdl.common.count import COUNT
from hdl.common.fifo import StreamFifo
from hdl.common.sums import wide_sum
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import WqeRead
from hdl.ports.keys import indirect_kinds
from hdl.ports.rows import MrRow, PlacementRights

from .resolve import MOST_ENTRIES, layout_members
from .translate import Translate
from .types import CheckJob, CheckResult, CheckSource, Chunk, TranslateRequest
from .walk import SgeWalk

__all__ = ["Checker", "named_bytes", "pass_translate", "translate_members"]


def translate_members(config: NicConfig) -> dict:
    """Members that Gather, Scatter and Checker have on behalf of the Translate inside."""
    return {
        "mr": Out(TableRead(16, MrRow)),
        "table_client": Out(ReadClient(config.width)),
        "invalidate_mr": In(16),
        "invalidate_start": In(1),
        "invalidate_done": Out(1),
        "hits": Out(COUNT),
        "misses": Out(COUNT),
        "key_errors": Out(COUNT),
        **layout_members(config),
    }


def pass_translate(m: Module, outer, inner) -> None:
    """Connect what ``outer`` and ``inner``, a component inside it, have alike; no read client."""
    connect(m, inner.mr, flipped(outer.mr))
    m.d.comb += [
        inner.invalidate_mr.eq(outer.invalidate_mr),
        inner.invalidate_start.eq(outer.invalidate_start),
        outer.invalidate_done.eq(inner.invalidate_done),
        outer.hits.eq(inner.hits),
        outer.misses.eq(inner.misses),
        outer.key_errors.eq(inner.key_errors),
    ]
    if "layout" in outer.signature.members:
        m.d.comb += inner.layout.eq(outer.layout)


def named_bytes(check, job) -> list:
    """Assign to a CheckJob where a TxJob or ScatterJob says that its bytes are."""
    same = ("resume", "function", "pd", "line", "num_sge", "offset", "va", "key", "qp")
    return [check[name].eq(job[name]) for name in same]


class Checker(wiring.Component):
    """From a packet's place in memory to its chunks and one verdict.

    Parameters: ``access``: MrRow.access bits that SGEs need (keys are local; errors LOC_PROT_ERR).
    Members: ``job`` stream of CheckJob; ``result`` one for each, in order; ``chunks`` stream of
    Chunk, in order; they may come before the result, which says whether they may be used, and
    whether there are any (then the last has ``end``).
    Jobs with KEY: the key is a peer's; ``offset`` bytes from ``va`` are checked (unless 0 or as
    many as ``length``), then ``length`` bytes translated (unless 0), with the access bits
    ``key_access`` (valid with ``job``); errors are REM_ACCESS_ERR. ``key_flush``, ``key_word``:
    see TranslateRequest; with ``key_whole`` they are bytes from the region's first one on, and the
    range is not looked at.
    ``slot*``, ``fetched*`` as in SgeWalk, the rest as in Translate.
    Latency: cached, one SGE: result 13 cycles after the job, with KEY 11; one more per further
    chunk. Throughput: a job in 4 cycles (one SGE), 3 (with ``resume``, or KEY with a check of its
    range) or 2 (KEY); jobs behind one that misses the cache of pages go on, and their misses
    overlap.
    Errors: the first one found is the result. Reset: empty.
    """

    def __init__(self, *, config: NicConfig, access: int):
        self._config, self._access = config, access
        # All chunks of a packet come before its verdict: each SGE and each page boundary is one.
        self._depth = 1 << ceil_log2(4 * max(config.max_sge, 4))
        if indirect_kinds(config):  # and each range of an entry
            self._depth = 1 << ceil_log2(2 * (config.max_sge + MOST_ENTRIES) + 2)
        super().__init__(
            {
                "job": In(stream.Signature(CheckJob)),
                "key_access": In(4),
                "key_flush": In(PlacementRights),
                "key_whole": In(1),
                "key_word": In(1),
                "result": Out(stream.Signature(CheckResult)),
                "chunks": Out(stream.Signature(Chunk)),
                "fetched": Out(1),
                "fetched_slot": Out(5),
                "slot": Out(WqeRead),
                "slot_enable": Out(1),
                "slot_data": In(128),
                **translate_members(config),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.translate = translate = Translate(config=self._config)
        m.submodules.walk = walk = SgeWalk(access=self._access)
        m.submodules.fifo = fifo = StreamFifo(shape=Chunk, depth=self._depth)
        connect(m, fifo.o, flipped(self.chunks))
        pass_translate(m, self, translate)
        connect(m, translate.read_client, flipped(self.table_client))
        m.d.comb += [
            self.slot.eq(walk.slot),
            self.slot_enable.eq(walk.slot_enable),
            self.fetched.eq(walk.fetched),
            self.fetched_slot.eq(walk.fetched_slot),
            walk.slot_data.eq(Cat(folded(self._config, self.slot_data[:64]), self.slot_data[64:])),
        ]

        # Ask: a job at a time, by its walk or its key (whole range, then the bytes of this packet).
        # The last request of a job has ``end``.
        job, request = self.job.payload, translate.i.payload
        key = Signal(TranslateRequest, reset_less=True)
        range_left, bytes_left = Signal(), Signal()
        key_offset, key_length = Signal(32, reset_less=True), Signal(13, reset_less=True)
        m.d.comb += [
            self.job.ready.eq(~(walk.busy | bytes_left)),
            walk.job.eq(job),
            walk.start.eq(self.job.valid & self.job.ready & (job.source == CheckSource.LINE)),
        ]
        with m.If(bytes_left):
            m.d.comb += [
                translate.i.valid.eq(1),
                request.eq(key),
                request.length.eq(Mux(range_left | key.check_only, key_offset, key_length)),
                request.check_only.eq(range_left | key.check_only),
                request.end.eq(~range_left),
            ]
            with m.If(translate.i.ready):
                m.d.sync += [range_left.eq(0), bytes_left.eq(range_left)]
        with m.Else():
            m.d.comb += [
                translate.i.valid.eq(walk.request.valid),
                walk.request.ready.eq(translate.i.ready),
                request.eq(walk.request.payload),
            ]
        start, into = Signal(64), Signal(32)
        bits = self._config.address_bits
        total = wide_sum(m, start[:bits], into, block=11)
        m.d.comb += [
            start.eq(Mux(bytes_left, key.va, walk.request.p.va)),
            into.eq(walk.into & (~bytes_left).replicate(32)),
            request.va.eq(total[:bits]),
            request.wrapped.eq(Cat(total[bits:], start[bits:]).any()),
        ]
        with m.If(self.job.valid & self.job.ready & (job.source == CheckSource.KEY)):
            m.d.sync += [
                range_left.eq(
                    (job.offset != 0)
                    & (job.offset != job.length)
                    & (job.length != 0)
                    & ~self.key_whole
                ),
                bytes_left.eq(1),
                key_offset.eq(job.offset),
                key_length.eq(job.length),
                key.function.eq(job.function),
                key.pd.eq(job.pd),
                key.key.eq(job.key),
                key.va.eq(folded(self._config, job.va)),
                key.access.eq(self.key_access),
                key.flush.eq(self.key_flush),
                key.whole.eq(self.key_whole),
                key.word.eq(self.key_word),
                key.check_only.eq(job.length == 0),
                key.qp.eq(job.qp),
                key.remote.eq(1),
            ]
            with m.If(self.key_whole):
                m.d.sync += key.va.eq(0)

        # Answers; the one with ``end`` is the job's last. If a job fails, the chunks put out
        # before are ended by a mark.
        answer, taken, final = translate.o.payload, Signal(), Signal()
        status, failed, listed = Signal(8), Signal(), Signal()  # of the job so far
        room, placed, verdict, fails = Signal(), Signal(), Signal(8), Signal()
        space = Signal()  # a cycle behind the level: two may have come since
        m.d.sync += space.eq(fifo.level < self._depth - 1)
        m.d.comb += [
            room.eq(~self.result.valid),  # a cycle between two, for a short way to ``ready``
            verdict.eq(Mux(failed, status, answer.status)),
            fails.eq(failed | (answer.status != 0)),
            final.eq(answer.last & answer.end),
            placed.eq(~fails & (answer.length != 0)),
            translate.o.ready.eq(space & room),
            taken.eq(translate.o.valid & translate.o.ready),
            fifo.i.valid.eq(taken & (placed | (final & listed))),
            fifo.i.payload.addr.eq(answer.addr),
            fifo.i.payload.length.eq(answer.length),
            fifo.i.payload.end.eq(final),
        ]
        with m.If(self.result.ready):
            m.d.sync += self.result.valid.eq(0)
        with m.If(taken):
            m.d.sync += [status.eq(verdict), failed.eq(fails), listed.eq(listed | placed)]
            with m.If(final):
                m.d.sync += [
                    self.result.valid.eq(1),
                    self.result.payload.status.eq(verdict),
                    self.result.payload.listed.eq(listed | placed),
                    failed.eq(0),
                    listed.eq(0),
                ]
        return m
