"""The buffer behind the last one that each CQ has used, read before its completion comes."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.numbers import CqNumber

from ..ring.types import FastPathJob, element

__all__ = ["Buffer", "NextBuffers"]

#: CQs whose next buffer is to be read, at most; reads on their way.
WISHES, READS = 8, 8


class Buffer(data.Struct):
    """A buffer for a CQE: its name in the used ring, and where it is."""

    head: 16
    addr: 64


class _Place(data.Struct):
    """Which buffer it is."""

    cq: CqNumber
    position: 16


class _Kept(data.Struct):
    """A buffer that is at hand."""

    place: _Place
    buffer: Buffer


class NextBuffers(wiring.Component):
    """Has the next buffer of a CQ read while nothing else is to be read, and keeps it.

    It stands around the reader of the buffers. A completion that comes by itself then needs no host
    read. What is read ahead takes no turn from completions, and one whose buffer is not here has it
    read as if this did not exist: nothing here is ever waited for.

    Parameters: ``lines``: buffers at hand, one of each CQ; CQs share lines by number. ``waiting``:
    completions with a buffer from here, at most. ``most``: bytes of a buffer, as of the reader.
    Members: ``i`` jobs of completions, ``given`` their buffers, in order; ``o``, ``element``: the
    reader. ``used`` In (a cycle): the buffer at ``i`` has a completion, and the next one is
    available. ``hold`` In: no buffer begins to be read ahead. ``reading`` Out: one is being read,
    or about to be.
    ``look`` In with ``cq``: looks what is at hand; ``kept`` Out, a cycle later and until the next
    look: that CQ has a buffer, of ``position``. ``take`` In (a cycle): a completion has it;
    ``taken`` those of such completions, in order. ``drop`` In (a cycle), with or without ``take``:
    it is at hand no more. A CQ comes back to a position after 65536 others, and is not to find a
    buffer of before then, so each completion drops what is kept of its CQ.
    Latency: a look 1 cycle; ``i`` and ``element`` pass through. Throughput: as the reader's; up to
    8 buffers are read ahead at a time.
    Errors: a buffer that is odd or could not be read is not kept.
    Reset: nothing is at hand; nothing may be on its way. A card that reads one WQE at a time keeps
    nothing.
    """

    def __init__(self, *, config: NicConfig, lines: int, waiting: int, most: int):
        self._config, self._lines, self._waiting = config, lines, waiting
        flags = ("used", "hold", "look", "take", "drop")
        shape = element(most)
        super().__init__(
            {name: In(1) for name in flags}
            | {
                "i": In(stream.Signature(FastPathJob)),
                "o": Out(stream.Signature(FastPathJob)),
                "element": In(stream.Signature(shape)),
                "given": Out(stream.Signature(shape)),
                "reading": Out(1),
                "cq": In(CqNumber),
                "kept": Out(1),
                "position": Out(16),
                "taken": Out(stream.Signature(Buffer)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if self._config.wqes_ahead == 1:
            connect(m, flipped(self.i), flipped(self.o))
            connect(m, flipped(self.element), flipped(self.given))
            return m
        m.submodules.wishes = StreamFifo(shape=FastPathJob, depth=WISHES)
        m.submodules.latest = Ram(shape=16, depth=self._lines)
        m.submodules.asked = StreamFifo(shape=_Place, depth=READS)
        m.submodules.kept = Ram(shape=_Kept, depth=self._lines)
        m.submodules.out = StreamFifo(shape=Buffer, depth=self._waiting)
        ahead = stream.Signature(FastPathJob).create()
        self._wish(m, ahead)
        self._join(m, ahead)
        self._keep(m)
        return m

    def _wish(self, m: Module, ahead) -> None:
        """Positions behind buffers that were used become jobs. Of those that have no room the
        oldest is forgotten, and so is one whose line has a later one."""
        wishes, latest, asked = m.submodules.wishes, m.submodules.latest, m.submodules.asked
        bits, wish = ceil_log2(self._lines), Signal(FastPathJob, reset_less=True)
        noted, job = Signal(), Signal(FastPathJob, reset_less=True)
        inside = Signal(range(2 * self._waiting))  # jobs of completions in the reader
        pops, full, quiet = Signal(), Signal(), Signal()
        m.d.sync += [
            noted.eq(self.used),
            job.eq(self.i.payload),
            job.request.position.eq(self.i.payload.request.position + 1),
            inside.eq(
                inside + (self.i.valid & self.i.ready) - (self.given.valid & self.given.ready)
            ),
        ]
        m.d.comb += [
            quiet.eq((inside == 0) & ~self.i.valid & ~self.hold),
            full.eq(noted & ~wishes.i.ready),
            wishes.i.valid.eq(noted),
            wishes.i.payload.eq(job),
            wishes.o.ready.eq(full | pops),
            latest.write.enable.eq(noted),
            latest.write.index.eq(job.request.qp[:bits]),
            latest.write.row.eq(job.request.position),
            latest.read0.index.eq(wishes.o.payload.request.qp[:bits]),
            latest.read0.enable.eq(pops),
            ahead.payload.eq(wish),
        ]
        with m.FSM(name="wish"):
            # IDLE: takes a wish while nothing else is to be read; ends with one.
            with m.State("IDLE"):
                m.d.sync += wish.eq(wishes.o.payload)
                with m.If(quiet & asked.i.ready & ~full & wishes.o.valid):
                    m.d.comb += pops.eq(1)
                    m.next = "LATEST"
            # LATEST: forgets it if there is a later one of its line, or a job has come; one cycle.
            with m.State("LATEST"):
                m.next = "IDLE"
                with m.If(quiet & (latest.read0.row == wish.request.position)):
                    m.next = "ASK"
            # ASK: has the buffer read; ends when the reader takes the job.
            with m.State("ASK"):
                m.d.comb += ahead.valid.eq(1)
                with m.If(ahead.ready):
                    m.next = "IDLE"

    def _join(self, m: Module, ahead) -> None:
        """Both kinds of jobs to the reader. Those from here begin while no other is there, so their
        answers come before all others'."""
        asked, awaited = m.submodules.asked, Signal()
        m.d.comb += [
            awaited.eq(asked.level != 0),
            asked.i.valid.eq(ahead.valid & ahead.ready),
            asked.i.payload.cq.eq(ahead.payload.request.qp),
            asked.i.payload.position.eq(ahead.payload.request.position),
            asked.o.ready.eq(self.element.valid),
            self.reading.eq(ahead.valid | awaited),
            self.given.payload.eq(self.element.payload),
            self.given.valid.eq(self.element.valid & ~awaited),
            self.element.ready.eq(awaited | self.given.ready),
        ]
        with m.If(ahead.valid):
            m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(ahead.payload)]
            m.d.comb += ahead.ready.eq(self.o.ready)
        with m.Else():
            m.d.comb += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]
            m.d.comb += self.i.ready.eq(self.o.ready)

    def _keep(self, m: Module) -> None:
        """Answers, until a completion of their CQ takes them or passes by."""
        asked, kept, out = m.submodules.asked, m.submodules.kept, m.submodules.out
        bits, found, place = ceil_log2(self._lines), self.element.payload, asked.o.payload
        held, there, good = Signal(self._lines), Signal(), Signal()
        looked, row = Signal(CqNumber, reset_less=True), kept.read0.row
        m.d.comb += [
            good.eq(asked.o.valid & self.element.valid & ~found.odd & ~found.failed),
            kept.write.enable.eq(good),
            kept.write.index.eq(place.cq[:bits]),
            kept.write.row.place.eq(place),
            kept.write.row.buffer.head.eq(found.head),
            kept.write.row.buffer.addr.eq(found.addr),
            kept.read0.index.eq(self.cq[:bits]),
            kept.read0.enable.eq(self.look),
            self.kept.eq(there & (row.place.cq == looked)),
            self.position.eq(row.place.position),
            out.i.valid.eq(self.take),
            out.i.payload.eq(row.buffer),
        ]
        connect(m, out.o, flipped(self.taken))
        with m.If(self.look):
            m.d.sync += [looked.eq(self.cq), there.eq(held.bit_select(self.cq[:bits], 1))]
        with m.If(self.drop):
            m.d.sync += held.bit_select(looked[:bits], 1).eq(0)
        with m.If(good):
            m.d.sync += held.bit_select(place.cq[:bits], 1).eq(1)
