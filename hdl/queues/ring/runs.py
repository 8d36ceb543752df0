"""Used elements of one queue in a row, written together."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.virtio_pci import PACKED_DESC, USED_ELEMENT
from hdl.abi.virtio_rdma import CQE
from hdl.common.address import OFFSET_BITS, add_high, add_low, mask
from hdl.common.contract import checked, require
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, WriteClient
from hdl.ports.rows import RingRules

from .packed import is_packed, used_flags
from .types import INDEX_OFFSET, UsedRing, used_element

__all__ = ["UsedRuns", "UsedReturn"]

#: Elements of a run.
MOST = 8
ELEMENT_BITS = 8 * USED_ELEMENT.size


class UsedReturn(data.Struct):
    """Return chain ``head`` as element ``index`` of ``ring``: of a CQ, with a CQE in it, or else
    of a send or receive queue."""

    cq: 1
    function: 8
    ring: UsedRing
    index: 16
    head: 16


class _Run(data.Struct):
    """``count`` elements of ``queue``. The first is element ``slot`` of its ring, at ``addr``;
    behind the last the used index, at ``device``, is ``index``. The addresses are added up in the
    two cycles behind the first element; until then ``device`` is the ring's."""

    function: 8
    queue: 16
    slot: 16
    size_log2: 4
    rules: RingRules
    addr: 64
    device: 64
    index: 16
    count: range(MOST + 1)
    heads: data.ArrayLayout(16, MOST)


class UsedRuns(wiring.Component):
    """Collects used elements, up to 8 in a row of one send or receive queue and of one CQ, and
    writes them with one burst and one used index.

    In a packed ring the elements are used descriptors, twice as long, and there is no index.
    Spec: Virtio 1.2, 2.7.8 (used ring), 2.8.6 (used descriptors).
    Members: ``i`` elements; ``flush``: nothing more waits (write what is at hand); ``pending``:
    something is at hand; ``busy``: a burst may be under way.
    A run is written when the next element of its kind is not its continuation, or does not fit, or
    lies at the start of the ring, and with ``flush``. The run of the CQ never goes before the one
    of the send or receive queue: no CQE is seen before its WQE is back.
    Elements of one kind come at most every other cycle. Latency: an element 1 cycle when it fits; a
    run 1 cycle (2 behind its first element), a beat for each ``width`` / 64 elements, one for the
    index. Errors: none.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._width = config, config.width
        super().__init__(
            {
                "i": In(stream.Signature(UsedReturn)),
                "flush": In(1),
                "pending": Out(1),
                "busy": Out(1),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        per_beat = self._width // ELEMENT_BITS
        runs = [Signal(_Run, name=f"run{kind}") for kind in ("_wqe", "_cq")]
        job = self.i.payload
        fits, empty = Signal(2), Signal(2)
        wraps = Signal(2)  # the next element of the run lies at the start of the ring
        young = Signal(2)  # the first element came a cycle ago
        growing = Signal()  # the run that would be written first has no address yet
        m.d.comb += [
            self.pending.eq(~empty.all()),
            growing.eq(Mux(empty[0], young[1], young[0])),
        ]
        for kind, run in enumerate(runs):
            follows = (run.queue == job.ring.queue) & ~wraps[kind]
            m.d.comb += [
                empty[kind].eq(run.count == 0),
                fits[kind].eq(empty[kind] | (follows & (run.count != MOST))),
            ]

        current, last_run = Signal(), Signal()  # the run that is written, and the last to be
        beats = MOST * PACKED_DESC.size // (self._width // 8)
        at = Signal(range(max(2, beats)))
        run = Signal(_Run)
        beat = self.write_client.beat.payload
        given = Signal(range(MOST + per_beat + 1))  # elements with this beat
        accepted = Signal()
        m.d.comb += [
            run.eq(Array(runs)[current]),
            accepted.eq(self.write_client.beat.valid & self.write_client.beat.ready),
            beat.stream_id.eq(STREAM_DATA),
            beat.function.eq(run.function),
        ]
        shown, keep = self._elements(m, run, current, at, given)
        packed = is_packed(self._config, run.rules)
        done = accepted | packed
        with m.FSM(name="state") as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("COLLECT"))
            # COLLECT: takes elements; ends when one does not fit its run, or with ``flush``.
            with m.State("COLLECT"):
                m.d.sync += [at.eq(0), current.eq(empty[0])]
                m.d.comb += self.i.ready.eq(fits.bit_select(job.cq, 1))
                with m.If(self.i.valid):
                    m.d.sync += last_run.eq(job.cq)
                    with m.If(~self.i.ready & ~growing):
                        m.next = "ELEMENTS"
                with m.Elif(self.flush & self.pending & ~growing):
                    m.d.sync += last_run.eq(~empty[1])
                    m.next = "ELEMENTS"
            # ELEMENTS: writes the elements of a run; ends with the last beat of them.
            with m.State("ELEMENTS"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(1),
                    beat.addr.eq(run.addr),
                    beat.data.eq(shown),
                    beat.keep.eq(keep),
                    beat.first.eq(at == 0),
                    beat.last.eq(given >= run.count),
                ]
                with m.If(accepted):
                    m.d.sync += at.eq(at + 1)
                    with m.If(beat.last):
                        m.next = "INDEX"
            # INDEX: writes the used index, of a split ring; ends when that is taken. The other run
            # may follow.
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(~packed),
                    beat.addr.eq(run.device),
                    beat.data.eq(run.index),
                    beat.keep.eq(0b11),
                    beat.first.eq(1),
                    beat.last.eq(1),
                ]
                m.d.sync += at.eq(0)
                with m.If(done):
                    m.d.sync += current.eq(1)
                    m.next = "COLLECT"
                    with m.If(last_run & ~current):
                        m.next = "ELEMENTS"
        for kind, row in enumerate(runs):
            comes = self.i.valid & self.i.ready & (job.cq == kind)
            written = fsm.ongoing("INDEX") & done & (current == kind)
            self._grow(m, row, empty[kind], young[kind], wraps[kind], comes, written)
            require(m, platform, row.count <= MOST, "a run is no longer than it may be")
            if checked(platform):
                came = Signal(name="came")
                m.d.sync += came.eq(comes)
                text = "elements of one kind come at most every other cycle"
                require(m, platform, ~(comes & came), text)
        return m

    def _grow(self, m: Module, row, empty, young, wraps, comes, written) -> None:
        """The run ``row`` gets the element that ``comes``, its first one if it is ``empty``, or
        has been ``written``. ``young`` and ``wraps`` follow."""
        job = self.i.payload
        carry, index_carry = Signal(), Signal()
        # What comes with an element is late (its index comes out of a RAM) and is only kept:
        # all else is worked out a cycle later.
        places, last = mask(row.size_log2), row.slot | ~mask(row.size_log2)
        m.d.sync += [
            young.eq(0),
            wraps.eq(Mux(young, last.all(), (row.index & places) == 0)),
        ]
        with m.If(young):
            m.d.sync += row.index.eq(row.index + 1)
            add_low(m, row.addr, carry, row.device, self._place(row))
            add_low(m, row.device, index_carry, row.device, Const(INDEX_OFFSET, OFFSET_BITS))
        with m.Else():
            add_high(m, row.addr, carry)
            add_high(m, row.device, index_carry)
        with m.If(comes):
            m.d.sync += [
                row.heads[row.count].eq(job.head),
                row.count.eq(row.count + 1),
                row.index.eq(Mux(empty, job.index, row.index + 1)),
            ]
            with m.If(empty):
                m.d.sync += [
                    row.function.eq(job.function),
                    row.queue.eq(job.ring.queue),
                    row.slot.eq(job.index & mask(job.ring.size_log2)),
                    row.size_log2.eq(job.ring.size_log2),
                    row.rules.eq(job.ring.rules),
                    row.device.eq(job.ring.device),
                    young.eq(1),
                ]
        with m.If(written):
            m.d.sync += row.count.eq(0)

    def _elements(self, m: Module, run, of_cq, at, given) -> tuple[Value, Value]:
        """Beat ``at`` of a run, and its bytes; ``given``: elements up to its end."""
        per_beat = self._width // ELEMENT_BITS
        elements, length = Signal(MOST * ELEMENT_BITS), Signal(32)
        m.d.comb += [
            length.eq(Mux(of_cq, CQE.size, 0)),
            elements.eq(Cat(Cat(run.heads[k], Const(0, 16), length) for k in range(MOST))),
            given.eq((at + 1) * per_beat),
        ]
        shown = elements.word_select(at, self._width)
        keep = Cat((at * per_beat + k < run.count).replicate(8) for k in range(per_beat))
        packed = is_packed(self._config, run.rules)
        descriptors, bytes_of, count = self._used_descriptors(run, of_cq, length, at)
        with m.If(packed):
            m.d.comb += given.eq(count)
        return Mux(packed, descriptors, shown), Mux(packed, bytes_of, keep)

    def _place(self, run) -> Value:
        """Offset of a run's first element."""
        place = Cat(Const(0, 4), run.slot)[:OFFSET_BITS]
        return Mux(is_packed(self._config, run.rules), place, used_element(run.slot))

    def _used_descriptors(self, run, of_cq, length, at) -> tuple[Value, Value, Value]:
        """Beat ``at`` of a run in a packed ring: its data, its bytes, descriptors up to its end.
        The wrap counter is that of the last one: a run ends where the ring does."""
        flags = used_flags(of_cq, (run.index - 1)[:16], run.size_log2)
        addr = Const(0, 8 * PACKED_DESC.offset("len"))
        whole = Cat(Cat(addr, length, run.heads[k], flags) for k in range(MOST))
        shown = whole.word_select(at, self._width)
        per_beat = self._width // (8 * PACKED_DESC.size)
        if not per_beat:
            return shown, Const(-1, self._width // 8), (at + 1) >> 1
        there = (at * per_beat + k < run.count for k in range(per_beat))
        keep = Cat(one.replicate(PACKED_DESC.size) for one in there)
        return shown, keep, (at + 1) * per_beat
