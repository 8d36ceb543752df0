"""The sending side's memory: from jobs to headers and payload for egress."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.contract import require
from hdl.common.count import COUNT
from hdl.common.drain import Drain
from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_stream
from hdl.common.ram import BLOCK_ROWS
from hdl.common.skid import Register
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.headers import TxHeader
from hdl.ports.host import ReadClient
from hdl.ports.jobs import (
    PACKET_GENERATION,
    SinkWrite,
    TxChecked,
    TxJob,
    TxSource,
    WqeRead,
)
from hdl.ports.numbers import QpNumber

from .check import Checker, named_bytes, pass_translate, translate_members
from .fetch import PayloadFetch
from .gate import HeaderGate, PacketGate
from .inline import InlineReader
from .types import ACCESS_REMOTE_READ, BLOCK_BYTES, BLOCKS, CheckSource

__all__ = ["Gather"]

#: Jobs that have not been answered.
JOBS = 32
#: What the gate wants to know of a job.
CARRIED = ("request", "qp", "generation", "function")
#: Cycles of payload of which no more enters: what of it waits to be asked for stands in front of
#: every other packet. The checks of so much hide a miss of the cache of pages.
AHEAD_CYCLES = 256


class _Taken(data.Struct):
    """A job that has not been answered: the checker decides it (``check``), or its inline bytes
    are being copied (``copy``)."""

    check: 1
    copy: 1
    request: 1
    qp: QpNumber
    generation: PACKET_GENERATION
    function: 8
    epoch: 1
    blocks: BLOCKS


class Gather(wiring.Component):
    """Checks each packet's payload, answers, passes its header to egress, fetches the payload.

    Spec: IBTA vol 1, 10.6.3 (protection of local and remote access), 9.7.4.1.3 (R_Key). Members:
    ``job``, ``checked`` (one per job, in order); ``header`` and ``payload`` to egress, the header
    once the job is found good, the payload in the order of the headers, no packet when
    ``header.length`` is 0; ``slot``, ``slot_enable``, ``slot_data``: read port of SendFetch's lines
    (latency 1); ``sink``: SGEs to be kept of a READ, before its job is answered; ``read_client``
    payload; ``table_client`` page lists; ``mr`` regions;
    ``invalidate_*`` see Translate; ``drain_start`` (pulse), ``drain_done`` (see Drain): all host
    reads of jobs taken before are finished; counters (``COUNT`` bits, wrap) ``hits``, ``misses``,
    ``key_errors``, ``read_errors`` (payload reads that failed), ``stale``; ``stale`` and
    ``generation``: see PacketGate. Latency, with cached pages: ``checked`` 14 cycles after a job
    with one SGE, 12 with KEY, one more per further page and per SGE passed over; INLINE 3 and one
    per 16 bytes; NONE 3. Payload reads begin 3 cycles later. Throughput: jobs as Checker takes
    them, INLINE one in a cycle per 16 bytes; one that misses the cache of pages does not hold up
    the checks of those behind it. Payload, of earlier jobs, streams meanwhile, a host beat per
    cycle: 4096 bytes at a page offset cost one beat more than aligned ones. Errors: LINE:
    LOC_PROT_ERR, or LOC_LEN_ERR when the SGEs are shorter than the packet; KEY: REM_ACCESS_ERR.
    Nothing is sent then, but a piece of a MEMCPY goes on, and its header says so. A payload read
    that fails: ``error`` on the packet. INLINE packets begin at multiples of 16 bytes of the
    message. Reset: empty; no host read may be in flight.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "job": In(stream.Signature(TxJob)),
                "checked": Out(stream.Signature(TxChecked)),
                "header": Out(stream.Signature(TxHeader)),
                "payload": Out(packet_stream(config.width)),
                "read_client": Out(ReadClient(config.width)),
                "slot": Out(WqeRead),
                "slot_enable": Out(1),
                "slot_data": In(128),
                "sink": Out(SinkWrite),
                **translate_members(config),
                "drain_start": In(1),
                "drain_done": Out(1),
                "generation": Out(TableRead(QpNumber, PACKET_GENERATION)),
                "read_errors": Out(COUNT),
                "stale": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = self._config.width
        m.submodules.checker = checker = Checker(config=self._config, access=0)
        m.submodules.inline = inline = InlineReader(width=width)
        m.submodules.jobs = jobs = StreamFifo(shape=_Taken, depth=JOBS)
        m.submodules.headers = headers = HeaderGate(
            depth=min(BLOCK_ROWS, self._config.packets_ahead), copies=self._config.memcpy
        )
        m.submodules.gate = gate = PacketGate()
        m.submodules.fetch = fetch = PayloadFetch(config=self._config)
        m.submodules.drain = drain = Drain()
        pass_translate(m, self, checker)
        connect(m, checker.table_client, flipped(self.table_client))
        connect(m, checker.chunks, fetch.chunks)
        connect(m, inline.o, fetch.inline)
        connect(m, fetch.read_client, flipped(self.read_client))
        connect(m, fetch.o, flipped(self.payload))
        connect(m, headers.o, flipped(self.header))
        connect(m, gate.o, fetch.packet)
        connect(m, gate.generation, flipped(self.generation))
        m.d.comb += [
            headers.decided.eq(gate.decided),
            headers.good.eq(gate.good),
            self.stale.eq(gate.stale),
            self.read_errors.eq(fetch.read_errors),
            checker.slot_data.eq(self.slot_data),
            inline.slot_data.eq(self.slot_data),
            drain.start.eq(self.drain_start),
            self.drain_done.eq(drain.done),
            drain.leave0.eq(gate.finished),
            drain.epoch0.eq(gate.epoch),
            drain.leave1.eq(fetch.finished),
            drain.epoch1.eq(fetch.finished_epoch),
        ]
        with m.If(inline.slot_enable):
            m.d.comb += [self.slot.eq(inline.slot), self.slot_enable.eq(1)]
        with m.Else():
            m.d.comb += [self.slot.eq(checker.slot), self.slot_enable.eq(checker.slot_enable)]

        # Take a job: the checker takes its jobs at the same time. The two parts that read lines
        # never do so together: the checker reads from this cycle on, InlineReader from the next.
        entering = data.StructLayout({"job": TxJob, "epoch": 1})
        # A job every other cycle: none is asked for or checked faster.
        m.submodules.entry = entry = Register(shape=entering)
        job, taken = entry.o.payload.job, Signal()
        open_ = self._limit(m, platform, gate)
        check, copy = Signal(), Signal()
        # An atomic is checked, as its sink must be, and then its operands are copied.
        first, checked_first = Signal(), Signal()
        by_key = job.source == TxSource.KEY
        filled = job.header.length != 0
        m.d.comb += [
            entry.i.valid.eq(self.job.valid & open_),
            entry.i.payload.job.eq(self.job.payload),
            entry.i.payload.epoch.eq(drain.epoch),
            self.job.ready.eq(entry.i.ready & open_),
            drain.enter.eq(self.job.valid & self.job.ready),
            entry.o.ready.eq(
                inline.ready
                & ~(check & inline.slot_enable)
                & checker.job.ready
                & headers.i.ready
                & jobs.i.ready
                & ~first
            ),
            taken.eq(entry.o.valid & entry.o.ready),
            check.eq(
                (by_key & filled)
                | ((job.source == TxSource.LINE) & filled)
                | ((job.source != TxSource.KEY) & job.check_sink)
            ),
            copy.eq((job.source == TxSource.INLINE) & filled),
            first.eq(check & copy & ~checked_first),
            checker.job.valid.eq(
                check & Mux(copy, entry.o.valid & first & ~inline.slot_enable, taken)
            ),
            checker.key_access.eq(ACCESS_REMOTE_READ),
            checker.job.payload.source.eq(Mux(by_key, CheckSource.KEY, CheckSource.LINE)),
            checker.job.payload.check_sink.eq(job.check_sink & ~by_key),
            checker.job.payload.copy.eq(job.header.copied if self._config.memcpy else 0),
            *named_bytes(checker.job.payload, job),
            checker.job.payload.offset.eq(Mux(by_key, 0, job.offset)),
            checker.job.payload.length.eq(Mux(job.check_sink, 0, job.header.length)),
            inline.line.eq(job.line),
            inline.offset.eq(job.offset),
            inline.length.eq(job.header.length),
            inline.start.eq(taken & copy),
            headers.i.valid.eq(taken),
            headers.i.payload.eq(job.header),
            jobs.i.valid.eq(taken),
            jobs.i.payload.check.eq(check),
            jobs.i.payload.copy.eq(copy),
            *(jobs.i.payload[name].eq(job[name]) for name in CARRIED),
            jobs.i.payload.epoch.eq(entry.o.payload.epoch),
            jobs.i.payload.blocks.eq(job.header.length // BLOCK_BYTES),
        ]

        m.d.sync += checked_first.eq(
            (checked_first | (checker.job.valid & checker.job.ready & copy)) & ~taken
        )

        self._keep_sink(m, checker, job)
        both = inline.slot_enable & checker.slot_enable
        require(m, platform, ~both, "one at a time reads the lines")
        self._answer(m, platform, jobs, checker, gate, inline)
        return m

    def _limit(self, m: Module, platform, gate) -> Signal:
        """Returns whether a job may enter: little payload waits to be asked for, and that of one
        more packet does not matter. A job enters every other cycle, so this may be a cycle late."""
        most = AHEAD_CYCLES * self._config.bytes_per_beat // BLOCK_BYTES
        waiting = Signal(range(most + 2 * BLOCKS.stop))
        came, went = Signal(BLOCKS), Signal(BLOCKS)
        open_ = Signal(init=1)
        blocks = self.job.payload.header.length // BLOCK_BYTES
        m.d.sync += [
            came.eq(Mux(self.job.valid & self.job.ready, blocks, 0)),
            went.eq(Mux(gate.decided, gate.blocks, 0)),
            waiting.eq(waiting + came - went),
            open_.eq(waiting < most),
        ]
        text = "no more payload is asked for than has entered"
        require(m, platform, waiting + came >= went, text)
        return open_

    def _keep_sink(self, m: Module, checker, job) -> None:
        """The SGEs of a READ are kept as they are checked: so they are there before its request
        leaves, and no response comes before that."""
        keep, sink = Signal(), Signal.like(job.sink, reset_less=True)
        with m.If(checker.job.valid & checker.job.ready):
            m.d.sync += [keep.eq(job.check_sink & job.keep), sink.eq(job.sink)]
        m.d.sync += [
            self.sink.valid.eq(checker.fetched & keep),
            self.sink.sink.eq(sink),
            self.sink.slot.eq(checker.fetched_slot),
            self.sink.data.eq(self.slot_data),
        ]

    def _answer(self, m: Module, platform, jobs, checker, gate, inline) -> None:
        """The checked packet goes on to the gate, which decides whether it is sent."""
        oldest, result, decided = jobs.o.payload, checker.result.payload, gate.i.payload
        copied = Signal(range(JOBS + 1))  # inline packets copied, not answered
        answered = Signal()
        m.d.comb += [
            self.checked.valid.eq(
                jobs.o.valid
                & (~oldest.check | checker.result.valid)
                & (~oldest.copy | (copied != 0))
                & gate.i.ready
            ),
            self.checked.payload.status.eq(Mux(oldest.check, result.status, 0)),
            answered.eq(self.checked.valid & self.checked.ready),
            jobs.o.ready.eq(answered),
            checker.result.ready.eq(answered & oldest.check),
            gate.i.valid.eq(answered),
            decided.good.eq(~oldest.check | (result.status == 0)),
            decided.reads.eq(oldest.check & result.listed),
            decided.inline.eq(oldest.copy),
            *(decided[name].eq(oldest[name]) for name in (*CARRIED, "epoch", "blocks")),
        ]
        text = "no more packets have been copied than wait for their answer"
        require(m, platform, ~inline.done | (copied < jobs.level), text)
        with m.If(inline.done != (answered & oldest.copy)):
            m.d.sync += copied.eq(Mux(inline.done, copied + 1, copied - 1))
