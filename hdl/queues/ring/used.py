"""The used ring of a split virtqueue: a buffer goes back, and the driver is notified."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.layout import amaranth_layout
from hdl.abi.virtio_pci import EVENT_SUPPRESS, PACKED_DESC, AvailFlags, EventFlags
from hdl.common.address import OFFSET_BITS, add_high, add_low, mask
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, ReadClient, WriteClient
from hdl.ports.jobs import Interrupt

from .packed import event_position, is_packed, two_laps, used_flags
from .read import BlockReader
from .types import INDEX_OFFSET, UsedRing, used_element, used_event

__all__ = ["UsedWriter", "UsedJob"]


class UsedJob(data.Struct):
    """Return chain ``head``, into which ``length`` bytes were written, as element ``index``.

    ``notify``: the driver wants an interrupt, unless the ring says otherwise; ``sure``: whatever
    the ring says (the CQ was armed for this completion)."""

    function: 8
    ring: UsedRing
    index: 16
    head: 16
    length: 32
    notify: 1
    sure: 1


class UsedWriter(wiring.Component):
    """Writes a used element, then the used index, then raises the interrupt.

    In a packed ring the element is a used descriptor, and there is no index.
    Spec: Virtio 1.2, 2.7.8 (used ring), 2.7.7 (interrupt suppression); 2.8.6, 2.8.14.
    Members: ``i`` jobs; ``done`` (a cycle) with ``raised``, 1 when the interrupt was given out;
    ``interrupt``; ``accepted``: no beat given to the ``write_client`` waits in front of the write
    engine; ``count``: how many descriptors of a packed ring the chain has, valid with the job and
    until it is done. With EVENT_IDX used_event decides instead of NO_INTERRUPT.
    Latency: 5 cycles, two of them for addresses; with ``notify`` one more, and a host read (the
    flag or used_event, of a packed ring the driver's structure) unless ``sure``. One job at a time.
    Errors: a failed read counts as not suppressed: a superfluous interrupt does no harm.
    """

    def __init__(self, *, config: NicConfig, stream_id: int = STREAM_DATA):
        self._config, self._width, self._stream_id = config, config.width, stream_id
        super().__init__(
            {
                "i": In(stream.Signature(UsedJob)),
                "done": Out(1),
                "raised": Out(1),
                "interrupt": Out(stream.Signature(Interrupt)),
                "accepted": In(1),
                "count": In(16),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = BlockReader(width=self._width, size=8)
        connect(m, reader.read_client, flipped(self.read_client))
        job = Signal(UsedJob, reset_less=True)
        ring = job.ring
        packed, event_idx = is_packed(self._config, ring.rules), ring.rules.event_idx
        slot = Signal(16, reset_less=True)
        event = Signal(OFFSET_BITS, reset_less=True)  # to the flag or used_event
        # The element's, then that of the flag or used_event; the index's.
        addr, carry = Signal(64, reset_less=True), Signal()
        index_addr, index_carry = Signal(64, reset_less=True), Signal()
        beat = self.write_client.beat.payload
        m.d.comb += [
            beat.stream_id.eq(self._stream_id),
            beat.function.eq(job.function),
            beat.first.eq(1),
            beat.last.eq(1),
            reader.i.payload.function.eq(job.function),
            reader.i.payload.addr.eq(addr),
            reader.i.payload.length.eq(
                Mux(is_packed(self._config, ring.rules), EVENT_SUPPRESS.size, 2)
            ),
            self.interrupt.payload.function.eq(job.function),
            self.interrupt.payload.vector.eq(ring.vector),
        ]
        current = Signal(16)
        quiet = Signal()
        m.d.comb += current.eq(reader.o.payload.data[:16])
        with m.If(event_idx):
            # The index went from ``index`` to ``index + 1``: only that step can pass used_event.
            m.d.comb += quiet.eq(current != job.index)
        with m.Else():
            m.d.comb += quiet.eq((current & AvailFlags.NO_INTERRUPT) != 0)
        # A split ring has an index, and it is known at once what the driver wants.
        known = ~packed | self._suppress(m, reader, job, packed, quiet)
        flags = used_flags(job.length != 0, job.index, ring.size_log2)
        element = Mux(
            packed, Cat(job.length, job.head, flags), Cat(job.head, Const(0, 16), job.length)
        )
        place = Cat(Const(PACKED_DESC.offset("len"), 4), slot)[:OFFSET_BITS]
        element_at = Mux(packed, place, used_element(slot))
        event_at = Mux(event_idx & ~packed, used_event(ring.size_log2), 0)

        with m.FSM(name="state"):
            # IDLE: takes a job; ends with it.
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [
                    job.eq(self.i.payload),
                    slot.eq(self.i.payload.index & mask(self.i.payload.ring.size_log2)),
                ]
                with m.If(self.i.valid):
                    m.next = "PLACE"
            # PLACE: adds up the lower halves of the addresses; one cycle.
            with m.State("PLACE"):
                m.d.sync += event.eq(event_at)
                add_low(m, addr, carry, ring.device, element_at)
                add_low(m, index_addr, index_carry, ring.device, Const(INDEX_OFFSET, OFFSET_BITS))
                m.next = "ADDRESS"
            # ADDRESS: adds their carries; one cycle.
            with m.State("ADDRESS"):
                add_high(m, addr, carry)
                add_high(m, index_addr, index_carry)
                m.next = "ELEMENT"
            # ELEMENT: writes the used element; ends when that is taken.
            with m.State("ELEMENT"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(1),
                    beat.addr.eq(addr),
                    beat.data.eq(element),
                    beat.keep.eq(0xFF),
                ]
                with m.If(self.write_client.beat.ready):
                    m.next = "INDEX"
                    add_low(m, addr, carry, ring.driver, event)
            # INDEX: writes the used index, of a split ring; ends when that is taken.
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(~packed),
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                add_high(m, addr, carry)
                with m.If(self.write_client.beat.ready | packed):
                    with m.If(job.notify):
                        m.next = "SETTLE"
                    with m.Else():
                        m.d.comb += self.done.eq(1)
                        m.next = "IDLE"
            # SETTLE: waits until what was written has left; ends then, without a look at the ring
            # if that is not needed.
            with m.State("SETTLE"):
                with m.If(self.accepted):
                    m.next = "ASK"
                    with m.If(job.sure):
                        m.next = "RAISE"
            # ASK: asks what the driver wants of interrupts; ends when that is taken.
            with m.State("ASK"):
                m.d.comb += reader.i.valid.eq(1)
                with m.If(reader.i.ready):
                    m.next = "DECIDE"
            # DECIDE: waits for it; ends with the job, or with an interrupt to raise.
            with m.State("DECIDE"):
                m.d.comb += reader.o.ready.eq(known)
                with m.If(reader.o.valid & known):
                    with m.If(quiet & ~reader.o.payload.error):
                        m.d.comb += self.done.eq(1)
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "RAISE"
            # RAISE: gives the interrupt out; ends when it is taken.
            with m.State("RAISE"):
                m.d.comb += self.interrupt.valid.eq(1)
                with m.If(self.interrupt.ready):
                    m.d.comb += [self.done.eq(1), self.raised.eq(1)]
                    m.next = "IDLE"
        return m

    def _suppress(self, m: Module, reader, job, packed, quiet) -> Value:
        """Whether the driver of a packed ring wants no interrupt. Returns whether that is known:
        three cycles after its structure has come."""
        event = data.View(amaranth_layout(EVENT_SUPPRESS), reader.o.payload.data[:32])
        named, distance = Signal(16, reset_less=True), Signal(16, reset_less=True)
        wanted, suppressed, steps = event.flags[:2], Signal(reset_less=True), Signal(3)
        m.d.sync += [
            named.eq(event_position(event.desc, job.ring.size_log2)),
            distance.eq((named - job.index)[:16] & two_laps(job.ring.size_log2)),
            suppressed.eq(
                (wanted == EventFlags.DISABLE)
                | ((wanted == EventFlags.DESC) & (distance >= self.count))
            ),
            steps.eq(Mux(reader.o.valid & ~reader.o.ready, Cat(Const(1, 1), steps[:2]), 0)),
        ]
        with m.If(packed):
            m.d.comb += quiet.eq(suppressed)
        return steps[2]
