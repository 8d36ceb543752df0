"""The front of the fast path: from known positions of many queues to the heads of chains."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.abi.virtio_pci import AVAIL_ELEMENT
from hdl.common.address import mask
from hdl.common.epoch import Epoch
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import FetchRequest

from .flow import ReadFlow
from .packed import is_packed
from .types import DESC_BYTES, RING_OFFSET, FastPathJob, FlowRead, HeadFound

__all__ = ["RingHeads"]

#: Entries read at once: one 32-byte line of the ring.
BATCH = 16
ENTRY_BITS = 8 * AVAIL_ELEMENT.size
#: A line lies in rows, which are written one after the other: narrow enough for one block RAM.
ROW = 4
ROW_BITS = ROW * ENTRY_BITS
#: Reads whose entries have room: as many as make a block RAM of it.
READS = 128


class _Tag(data.Struct):
    """The line holds, or will hold, positions ``first`` to ``first + count - 1`` of ``queue``."""

    queue: 16
    first: 16
    count: range(BATCH + 1)


class RingHeads(wiring.Component):
    """Finds the heads at positions that are known to be available, in the order of the jobs.

    Spec: Virtio 1.2, 2.7.6 (available ring).
    Parameters: ``lines`` of entries at hand; jobs (``depth``) and ``reads`` in flight.
    Members: ``i`` jobs: the queue is enabled, ``request.known`` lies 1 to the queue's size ahead of
    ``request.position``; ``o`` one HeadFound per job; ``flush`` (a cycle, with nothing inside)
    forgets the entries read ahead. ``guess`` of a queue that is in order asks for the descriptor
    of each job whose head is not at hand, and ``guessed`` says so.
    Up to 16 entries, never beyond ``known``, are read at once into one of ``lines`` lines, which
    QPs share by number. A job is looked up twice: first its tag, which says whether a read is
    needed, and starts it; then, in order and behind that read's data, its entry. So the tags run
    ahead of the data by up to ``depth`` jobs, reads of many queues are in flight, and what a tag
    promised is there when the job's turn comes, whatever was read into the line before or after.
    A driver that uses descriptors in ring order has heads in a row while every chain has one
    descriptor: a guess is as far from the last head of the line that was guessed wrong as its
    position is. A guess that finds no room is not made.
    ``o`` comes straight from a RAM and a few multiplexers, and is for a register.
    In a packed ring, whose descriptors lie where the positions are, no entries are read: the
    head is the position's place. (The buffer's id is in its descriptor.)
    Latency: 5 cycles for an entry at hand, else a host read and 2 cycles more, for this job and
    those behind it. Throughput: a job in 3 cycles; one that has a line read takes a cycle more for
    each four entries, which are written one after the other.
    Errors: ``failed`` in HeadFound: host memory did not answer; the head is not checked here.
    Reset: nothing at hand.
    """

    def __init__(self, *, config: NicConfig, lines: int, depth: int, reads: int = READS):
        if lines < 2 or lines & (lines - 1):
            raise ValueError(f"Lines must be a power of two, at least 2, not {lines!r}")
        self._config, self._lines, self._depth, self._reads = config, lines, depth, reads
        super().__init__(
            {
                "i": In(stream.Signature(FastPathJob)),
                "o": Out(stream.Signature(HeadFound)),
                "flush": In(1),
                "guess": Out(stream.Signature(FlowRead)),
                "read_client": Out(ReadClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self._lines)
        # ``place``: of the entry in its line; with ``fill``, of the last one that is read for it.
        looked = data.StructLayout(
            {"slot": bits, "position": 16, "place": 4, "fill": 1, "guessed": 1, "guess": 16}
            | {"packed": 1}
        )
        m.submodules.tags = Ram(shape=_Tag, depth=self._lines)
        rows = BATCH // ROW * self._lines
        m.submodules.lines = Ram(shape=ROW_BITS, depth=rows, forward=False)
        m.submodules.errors = Ram(shape=1, depth=self._lines, forward=False)
        m.submodules.bases = Ram(shape=16, depth=self._lines)  # head - position
        m.submodules.jobs = jobs = StreamFifo(shape=looked, depth=self._depth)
        m.submodules.flow = flow = ReadFlow(
            config=self._config, size=BATCH * ENTRY_BITS // 8, reads=self._reads, bypass=False
        )
        connect(m, flow.read_client, flipped(self.read_client))

        held = Signal(self._lines)  # lines whose tag says something
        forget, filled, spoiled = Signal(), Signal(), Signal()
        # All entries at hand are forgotten in fewer cycles than any queue needs to come back to the
        # same position, which is 65536 chains later.
        m.submodules.epoch = epoch = Epoch()
        m.d.comb += forget.eq(self.flush | epoch.ends)
        self._look(m, held, filled)
        given = self._pick(m, filled, spoiled)
        self._note(m, given)
        # A line that could not be read is asked for again by the jobs whose tag is not looked up
        # yet; those in between fail with it.
        with m.If(spoiled):
            m.d.sync += held.bit_select(jobs.o.payload.slot, 1).eq(0)
        with m.If(forget):
            m.d.sync += held.eq(0)
        return m

    def _look(self, m: Module, held: Signal, filled: Signal) -> None:
        """Jobs: whether the line of a queue has the entry, or has to be read."""
        tags, jobs, flow = m.submodules.tags, m.submodules.jobs, m.submodules.flow
        bases, bits = m.submodules.bases, ceil_log2(self._lines)
        job = Signal(FastPathJob, reset_less=True)
        request: FetchRequest = job.request
        tag, hit = Signal(_Tag, reset_less=True), Signal()
        index = Signal(bits)
        offset, place = Signal(16, reset_less=True), Signal(16)  # in the line; in the ring
        entry_offset = Signal(17, reset_less=True)  # bytes from the ring to the entry
        to_end, ahead = Signal(range(BATCH + 1), reset_less=True), Signal(16, reset_less=True)
        count = Signal(range(BATCH + 1), reset_less=True)
        # Jobs behind a read of entries have to wait for it: their descriptors need not.
        filling, guessing = Signal(range(self._depth + 1)), Signal()
        base, guess = Signal(16, reset_less=True), Signal(16)
        fills = jobs.i.valid & jobs.i.payload.fill
        packed = is_packed(self._config, job.rules)
        found_place = packed | (hit & (tag.queue == request.queue) & (offset < tag.count))
        m.d.sync += filling.eq(filling + fills - filled)
        m.d.comb += [
            index.eq(request.qp[:bits]),
            tags.write.index.eq(index),
            tags.write.row.queue.eq(request.queue),
            tags.write.row.first.eq(request.position),
            tags.write.row.count.eq(count),
            place.eq(request.position & mask(job.size_log2)),
            jobs.i.payload.slot.eq(index),
            jobs.i.payload.position.eq(request.position),
            jobs.i.payload.packed.eq(packed),
            bases.read0.index.eq(tags.read0.index),
            bases.read0.enable.eq(tags.read0.enable),
            guess.eq((request.position + base) & mask(job.size_log2)),
            self.guess.payload.function.eq(request.function),
            self.guess.payload.addr.eq(job.desc),
            self.guess.payload.offset.eq(DESC_BYTES * guess),
            self.guess.payload.length.eq(DESC_BYTES),
            self.guess.valid.eq(job.rules.in_order & ~packed & guessing & jobs.i.valid),
            jobs.i.payload.guess.eq(guess),
            jobs.i.payload.guessed.eq(self.guess.valid & self.guess.ready),
            flow.i.payload.function.eq(request.function),
            flow.i.payload.addr.eq(job.driver),
            flow.i.payload.offset.eq(entry_offset),
            flow.i.payload.length.eq(count << 1),
        ]
        with m.FSM(name="look"):
            # IDLE: takes a job and reads the tag of its line; ends with one.
            with m.State("IDLE"):
                m.d.comb += [
                    self.i.ready.eq(jobs.i.ready),
                    tags.read0.index.eq(self.i.payload.request.qp[:bits]),
                    tags.read0.enable.eq(1),
                ]
                m.d.sync += job.eq(self.i.payload)
                with m.If(self.i.valid & self.i.ready):
                    m.next = "TAG"
            # TAG: works out where its entry would be in the line, and in the ring; one cycle.
            with m.State("TAG"):
                m.d.sync += [
                    base.eq(Mux(packed, 0, bases.read0.row)),
                    tag.eq(tags.read0.row),
                    offset.eq(request.position - tags.read0.row.first),
                    entry_offset.eq(RING_OFFSET + AVAIL_ELEMENT.size * place),
                    hit.eq(held.bit_select(index, 1)),
                    # Not beyond the line, nor beyond the ring, nor beyond what is available.
                    to_end.eq(Mux(job.size_log2 < 4, 1 << job.size_log2[:2], BATCH) - place[:4]),
                    ahead.eq(request.known - request.position),
                ]
                m.next = "LOOK"
            # LOOK: asks nothing if the line has the entry; one cycle.
            with m.State("LOOK"):
                m.d.comb += guessing.eq(filling != 0)
                m.d.sync += count.eq(Mux(ahead < to_end, ahead, to_end))
                m.d.comb += jobs.i.payload.place.eq(offset)
                with m.If(found_place):
                    m.d.comb += jobs.i.valid.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.next = "READ"
            # READ: asks for the line's entries from there on; ends when that is taken.
            with m.State("READ"):
                m.d.comb += [
                    guessing.eq(1),
                    flow.i.valid.eq(1),
                    jobs.i.payload.fill.eq(1),
                    jobs.i.payload.place.eq(count - 1),
                    jobs.i.valid.eq(flow.i.ready),
                    tags.write.enable.eq(flow.i.ready),
                ]
                with m.If(flow.i.ready):
                    m.d.sync += held.bit_select(index, 1).eq(1)
                    m.next = "IDLE"

    def _pick(self, m: Module, filled: Signal, spoiled: Signal) -> Signal:
        """Data, behind the reads: a line is written a row at a time, as far as it was read.

        Returns whether a head is given now."""
        lines, errors = m.submodules.lines, m.submodules.errors
        jobs, flow = m.submodules.jobs, m.submodules.flow
        width, rows = self._config.width, BATCH // ROW
        chosen, found = jobs.o.payload, self.o.payload
        at = Signal(range(rows))
        row, popped = Signal(ROW_BITS), Signal()
        if width > ROW_BITS:
            per_beat = min(width // ROW_BITS, rows)
            m.d.comb += row.eq(flow.o.payload.data.word_select(at[: ceil_log2(per_beat)], ROW_BITS))
            m.d.comb += popped.eq(at[: ceil_log2(per_beat)].all())
        else:
            m.d.comb += [row.eq(flow.o.payload.data), popped.eq(1)]
        first, error = Signal(ENTRY_BITS, reset_less=True), Signal(reset_less=True)
        ends = Signal()
        m.d.comb += [
            # A read in error may have fewer beats.
            ends.eq((at == chosen.place[ceil_log2(ROW) :]) | (popped & flow.o.payload.last)),
            lines.read0.index.eq(Cat(chosen.place[ceil_log2(ROW) :], chosen.slot)),
            errors.read0.index.eq(chosen.slot),
            lines.write.index.eq(Cat(at, chosen.slot)),
            lines.write.row.eq(row),
            errors.write.index.eq(chosen.slot),
            errors.write.row.eq(error),
            found.guessed.eq(chosen.guessed),
            found.guess.eq(chosen.guess),
        ]
        # A job that had its line read takes the line's first entry as it came.
        with m.If(chosen.fill):
            m.d.comb += [found.head.eq(first), found.failed.eq(error)]
        with m.Else():
            entry = lines.read0.row.word_select(chosen.place[: ceil_log2(ROW)], ENTRY_BITS)
            m.d.comb += [found.head.eq(entry), found.failed.eq(errors.read0.row)]
        with m.If(is_packed(self._config, chosen)):
            m.d.comb += [found.head.eq(chosen.guess), found.failed.eq(0)]
        given = Signal()
        with m.FSM(name="pick"):
            # IDLE: reads the entry of the oldest job from its line; ends when there is one.
            with m.State("IDLE"):
                m.d.comb += [lines.read0.enable.eq(1), errors.read0.enable.eq(1)]
                m.d.sync += at.eq(0)
                with m.If(jobs.o.valid):
                    with m.If(chosen.fill):
                        m.next = "FILL"
                    with m.Else():
                        m.next = "PICK"
            # FILL: writes the line that was read for it, a row a cycle; ends with the last row.
            with m.State("FILL"):
                m.d.comb += flow.o.ready.eq(popped | ends)
                m.d.sync += error.eq(flow.o.payload.error)
                with m.If(at == 0):
                    m.d.sync += first.eq(row)
                with m.If(flow.o.valid):
                    m.d.comb += lines.write.enable.eq(1)
                    m.d.sync += at.eq(at + 1)
                    with m.If(ends):
                        m.next = "PICK"
            # PICK: gives the head; ends when it is taken.
            with m.State("PICK"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.comb += [
                        given.eq(1),
                        jobs.o.ready.eq(1),
                        filled.eq(chosen.fill),
                        errors.write.enable.eq(chosen.fill),
                        spoiled.eq(chosen.fill & error),
                    ]
                    m.next = "IDLE"
        return given

    def _note(self, m: Module, given: Signal) -> None:
        """What was guessed wrong is noted when the head, which comes late, lies in a register."""
        bases, bits = m.submodules.bases, ceil_log2(self._lines)
        chosen, found = m.submodules.jobs.o.payload, self.o.payload
        noted, wrong = Signal(), Signal()
        head, guessed = Signal(16, reset_less=True), Signal(16, reset_less=True)
        noted_at, noted_slot = Signal(16, reset_less=True), Signal(bits, reset_less=True)
        m.d.sync += [
            noted.eq(given & chosen.guessed),
            head.eq(found.head),
            guessed.eq(chosen.guess),
            noted_at.eq(chosen.position),
            noted_slot.eq(chosen.slot),
        ]
        m.d.comb += [
            wrong.eq(noted & (head != guessed)),
            bases.write.enable.eq(wrong),
            bases.write.index.eq(noted_slot),
            bases.write.row.eq(head - noted_at),
        ]
