"""The fast path: many WQEs on their way through the host's latency at a time."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.skid import Stage
from hdl.common.streams import passes
from hdl.common.tables import TableRead
from hdl.config import NicConfig

from ..push.reads import PushReads
from ..push.types import ENTRIES, PIECES, ROW_BITS, Entry
from ..ring.reader import RingReader
from ..ring.types import Element
from .plain import PlainPath, path_members
from .types import WqeJob
from .whole import WholeWqes, fixed_bytes, whole_bytes

__all__ = ["FastPath", "wqe_path"]

#: Most queues whose ring entries are at hand.
LINES = 64
#: Jobs inside, at most: a block RAM.
JOBS = 256


class FastPath(wiring.Component):
    """RingReader and WholeWqes one behind the other; each stage has up to ``depth`` jobs in flight.

    Parameters: ``receive`` as in WholeWqes; these are fetched ahead, so nothing is spent on how
    long one takes: no heads are guessed, and read data pass FIFOs. They bring their lines.
    On a card with push windows, for sending: ``clear`` says that RingReader is empty. Then a job
    may be ``pushed``: its buffer is ``element``, and the job passes by the reader. The bytes of one
    of ``PUSHED_FUNCTION`` come from ``push_row``; ``push_release``: an entry has been read.
    Members: ``i`` as in RingReader; ``line`` (without ``receive``), ``slot``, ``slot_line``,
    ``slot_valid``, ``o`` as in WholeWqes; ``job`` (with ``o``): the verdict's; ``flush``;
    ``read_client0`` ring, ``read_client1`` descriptors, ``read_client2`` elements.
    Nobody waits for anything but host reads and, at the end, ``line`` and ``o``.
    Latency: two host reads (three without ring entries at hand and without a right guess) and 20
    cycles, 26 with ``receive``. Throughput: a job in 4 cycles, 14 at 64 bits; with ``depth`` jobs a
    stage, and no faster than the read client.
    Errors: see WholeWqes. Reset: empty; nothing may be in flight.
    """

    def __init__(self, *, config: NicConfig, depth: int, receive: bool = False):
        self._config, self._depth, self._receive = config, depth, receive
        self._push = config.push and not receive
        members = path_members(config, receive=receive)
        if self._push:
            members |= {
                "pushed": In(1),
                "element": In(Element),
                "clear": Out(1),
                "push_row": Out(TableRead(ceil_log2(ENTRIES * PIECES), ROW_BITS)),
                "push_release": Out(1),
                "push_released": Out(Entry),
            }
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        config, depth = self._config, self._depth
        lines = min(LINES, 1 << ceil_log2(config.qps))
        m.submodules.reader = reader = RingReader(
            config=config,
            lines=lines,
            depth=depth,
            least=fixed_bytes(config, receive=self._receive),
            most=whole_bytes(config, receive=self._receive),
            urgent=not self._receive,
        )
        m.submodules.wqes = wqes = WholeWqes(config=config, depth=depth, receive=self._receive)
        if not self._push:
            connect(m, reader.o, wqes.i)
        connect(m, wqes.o, flipped(self.o))

        # What a stage does not need passes by it. A block RAM's output is late: it is registered.
        m.submodules.jobs = jobs = StreamFifo(shape=WqeJob, depth=JOBS)
        m.submodules.job = job = Stage(shape=WqeJob)
        connect(m, jobs.o, job.i)
        gone = Signal()
        offered, taken = self.i.valid, reader.i.ready
        if self._push:
            offered = offered & ~self.pushed
            taken = Mux(self.pushed, wqes.i.ready, reader.i.ready)
        m.d.comb += [
            reader.i.payload.eq(self.i.payload),
            reader.i.valid.eq(offered & jobs.i.ready),
            self.i.ready.eq(taken & jobs.i.ready),
            jobs.i.valid.eq(self.i.valid & taken),
            self.job.eq(job.o.payload),
            gone.eq(self.o.valid & self.o.ready),
            job.o.ready.eq(gone),
        ]
        m.d.comb += [
            jobs.i.payload[name].eq(self.i.payload[name])
            for name in ("request", "line", "size_log2", "rules", "desc")
        ]
        if self._receive:
            m.d.comb += [wqes.line.valid.eq(1), wqes.line.payload.eq(self.job.line)]
        else:
            connect(m, flipped(self.line), wqes.line)
        connect(m, reader.read_client0, flipped(self.read_client0))
        connect(m, reader.read_client1, flipped(self.read_client1))
        if self._push:
            self._elements(m, reader, wqes)
        else:
            connect(m, wqes.read_client, flipped(self.read_client2))
        m.d.comb += [
            reader.flush.eq(self.flush),
            self.slot.eq(wqes.slot),
            self.slot_line.eq(wqes.slot_line),
            self.slot_valid.eq(wqes.slot_valid),
        ]
        return m

    def _elements(self, m: Module, reader: RingReader, wqes: WholeWqes) -> None:
        """Elements of the reader, or one that has been pushed; their bytes from where they are."""
        m.submodules.reads = reads = PushReads(config=self._config)
        connect(m, wqes.read_client, reads.client)
        connect(m, reads.host, flipped(self.read_client2))
        connect(m, reads.row, flipped(self.push_row))
        inside = Signal(range(JOBS + 1))
        comes, goes = passes(reader.i), passes(reader.o)
        with m.If(comes != goes):  # they come late, and do not stand in front of a sum
            m.d.sync += inside.eq(Mux(comes, inside + 1, inside - 1))
        m.d.comb += [
            wqes.in_a_row.eq(reads.in_a_row),
            self.clear.eq(inside == 0),
            self.push_release.eq(reads.release),
            self.push_released.eq(reads.released),
            reader.o.ready.eq(wqes.i.ready),
            wqes.i.valid.eq(reader.o.valid),
            wqes.i.payload.eq(reader.o.payload),
        ]
        with m.If(self.pushed):
            m.d.comb += [
                wqes.i.valid.eq(self.i.valid & m.submodules.jobs.i.ready),
                wqes.i.payload.eq(self.element),
            ]


def wqe_path(*, config: NicConfig, depth: int, receive: bool = False) -> FastPath | PlainPath:
    """Return the FastPath of a card, or what stands in its place where WQEs are read one by one."""
    if config.wqes_ahead == 1:
        return PlainPath(config=config, receive=receive)
    return FastPath(config=config, depth=depth, receive=receive)
