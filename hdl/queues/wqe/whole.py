"""WQEs that lie in one piece: read whole, decoded a beat at a time."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_rdma import SGE
from hdl.abi.wqe_formats import FIELDS, card_formats
from hdl.common.fifo import StreamFifo
from hdl.common.ram import BLOCK_ROWS
from hdl.common.sums import wide_sum
from hdl.config import NicConfig
from hdl.ports.atomics import OPERAND_SLOT
from hdl.ports.host import ReadClient
from hdl.ports.jobs import WQE_LINE_BITS
from hdl.wire.opcodes import Kind

from ..ring.flow import ReadFlow
from ..ring.types import Element
from .decode import MAX_MESSAGE, Slot
from .format import ElementFields, atomic_operands, first_format, format_of, most_behind
from .slot_window import SLOT_BYTES, SlotWindow
from .types import Verdict

__all__ = ["WholeWqes", "fixed_bytes", "whole_bytes"]

#: Bytes of room for the elements that are asked for, for each of ``depth``: a send WQE with eleven
#: SGEs or 181 bytes inline, a receive WQE with seven SGEs. Fewer of longer ones are in flight.
ROOM_SEND, ROOM_RECV = 256, 128
_LENGTH = 8 * SGE.offset("length")


def fixed_bytes(config: NicConfig, *, receive: bool) -> int:
    """Bytes of the fixed part of the elements that the fast path reads. Errors: ValueError for a
    first format in which that depends on the opcode."""
    form = first_format(config)
    found = {layout.fixed for layout in ([form.receive] if receive else form.send)}
    if len(found) > 1:
        raise ValueError(f"Fixed parts of the first format must be equal, not of {found} bytes")
    return found.pop()


def whole_bytes(config: NicConfig, *, receive: bool) -> int:
    """Bytes of the longest element that the fast path reads. Errors: as ``fixed_bytes``."""
    fixed = fixed_bytes(config, receive=receive)
    return fixed + most_behind(config, receive=receive)


class _Waiting(data.Struct):
    """An element that was asked for."""

    head: 16
    failed: 1
    odd: 1
    behind: 10  # bytes behind its fixed part


class _Element:
    """The element at hand, and what is known of it."""

    def __init__(self, *, fixed_bytes: int, header_beats: int, most_slots: int):
        self.work = Signal(_Waiting, reset_less=True)
        self.fixed = Signal(8 * fixed_bytes, reset_less=True)  # the fixed part's bytes
        self.line = Signal(WQE_LINE_BITS, reset_less=True)
        self.is_odd = Signal()
        self.inline = Signal()
        self.fits = Signal()  # the length is what the fixed part says
        self.behind = Signal(10)  # bytes behind the fixed part
        self.num_sge = Signal(32)
        self.header = Signal(range(max(2, header_beats)))  # beats of the fixed part that were kept
        self.number = Signal(range(most_slots + 1))  # of the slot to write
        self.left = Signal(range(most_slots + 1))  # slots to write
        self.total = Signal(38)  # bytes of the SGEs that were written
        self.differs = Signal(32, reset_less=True)  # of two of them, between their lengths
        self.answered = Signal()  # the verdict has gone ahead of the last slots
        self.is_atomic, self.operands = Signal(), Signal(8 * SLOT_BYTES)
        self.stored = Signal()  # the operands have been written


class WholeWqes(wiring.Component):
    """Reads the element of each buffer and decodes it into the slots of a line.

    Spec: virtio-rdma VR-4.1, VR-4.2, VR-4.4 to VR-4.6.
    Parameters: ``receive``: cmd_post_recv; else cmd_post_send; of up to ``whole_bytes``.
    Members: ``i`` buffers; ``line`` a line for each verdict that is not ``failed``; ``slot``,
    ``slot_line`` with ``slot_valid``: a slot to write, never held back; ``o`` one verdict per
    buffer, in order, after its slots; of inline data with the first of them, where the others
    follow in the next cycles (from 128 bits on).
    An element is looked at when all of it has come, a beat at a time (SlotWindow). ``in_a_row`` In,
    with a response, on cards with push windows: the beats of this element come one a cycle and
    without an error, so it is looked at when the first of them has come.
    Latency: a host read plus 5 cycles to the first slot. Throughput: an element with one SGE in 4
    cycles, each further slot one more, at 64 bits each slot two; reads of ``depth`` elements are in
    flight meanwhile, of fewer if they are long (``ROOM_SEND``, ``ROOM_RECV``).
    Errors: an element that is not a good WQE of the card's first format, and memory that does not
    answer, is ``odd``: the slow path says what is wrong. Reset: empty; nothing may be in flight.
    """

    def __init__(self, *, config: NicConfig, depth: int, receive: bool = False):
        self._config, self._depth, self._receive = config, depth, receive
        self._fixed_bytes = fixed_bytes(config, receive=receive)
        self._size = whole_bytes(config, receive=receive)
        self._pushes = config.push and not receive
        self._room = depth * (ROOM_RECV if receive else ROOM_SEND)
        self._header_beats = -(-self._fixed_bytes // (config.width // 8))
        super().__init__(
            {
                "i": In(stream.Signature(Element)),
                "line": In(stream.Signature(WQE_LINE_BITS)),
                "slot": Out(Slot),
                "slot_line": Out(WQE_LINE_BITS),
                "slot_valid": Out(1),
                "o": Out(stream.Signature(Verdict)),
                "read_client": Out(ReadClient(config.width)),
            }
            | ({"in_a_row": In(1)} if self._pushes else {})
        )

    def elaborate(self, platform):
        m = Module()
        most_slots = -(-(self._size - self._fixed_bytes) // SLOT_BYTES)
        element = _Element(
            fixed_bytes=self._fixed_bytes, header_beats=self._header_beats, most_slots=most_slots
        )
        m.submodules.window = window = SlotWindow(
            width=self._config.width, fixed_bytes=self._fixed_bytes
        )
        sge = self._fields(element.fixed).sge(window.slot)
        self._ask(m)
        self._judge(m, element)
        m.d.comb += [
            self.slot.slot.eq(element.number),
            self.slot.data.eq(Mux(element.inline, window.slot, sge)),
            self.slot_line.eq(element.line),
            self.slot_valid.eq(window.slot_valid),
        ]
        # The lengths of the SGEs that have been written, and of the one that is.
        length = sge[_LENGTH : _LENGTH + 32]
        lengths = wide_sum(m, element.total, length, block=18)
        if self._config.memcpy:
            with m.If(self.slot_valid):
                m.d.sync += element.differs.eq(
                    length ^ (element.differs & (element.number != 0).replicate(32))
                )
        with m.FSM(name="decode"):
            self._begin(m, element)
            # LINE: takes a line, unless the buffer has failed, and judges the lengths; ends with
            # the line. What is judged lies before the fixed part's last beat.
            with m.State("LINE"):
                self._take_line(m, element)
            # SLOTS: writes the slots, as each has come whole; ends with the last of them.
            with m.State("SLOTS"):
                self._write_slots(m, element, lengths)
            # DRAIN: passes over what is left of an element that is odd, or has no slots; ends with
            # its last beat.
            with m.State("DRAIN"):
                m.d.comb += window.advance.eq(1)
                with m.If(window.ended | window.i.payload.last):
                    m.next = "GIVE"
            # GIVE: gives the verdict, and writes the operands of an atomic, once, as the slow path
            # writes its slots meanwhile; ends when the verdict is taken.
            with m.State("GIVE"):
                m.d.comb += [self.o.valid.eq(1), window.close.eq(1)]
                m.d.sync += element.stored.eq(1)
                with m.If(element.is_atomic & ~element.stored):
                    m.d.comb += [
                        self.slot.slot.eq(OPERAND_SLOT),
                        self.slot.data.eq(element.operands),
                        self.slot_valid.eq(~element.work.failed),
                    ]
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m

    def _ask(self, m: Module) -> None:
        """Ask for the elements. An odd one waits as if it asked, so that whether it is does not
        hold up ``ready``."""
        lanes = self._config.bytes_per_beat
        m.submodules.waits = waits = StreamFifo(shape=_Waiting, depth=self._depth)
        m.submodules.flow = flow = ReadFlow(
            config=self._config,
            size=self._size,
            # If little, more than for what is in flight, so that it is a block RAM.
            reads=max(1, max(self._room // lanes, BLOCK_ROWS) // -(-self._size // lanes)),
            offsets=False,
            bypass=False,
        )
        connect(m, flow.read_client, flipped(self.read_client))
        connect(m, flow.o, m.submodules.window.i)
        # Elements that have come, each whether in error: as late as the last of their beats.
        m.submodules.arrivals = arrivals = StreamFifo(shape=1, depth=self._depth)
        asked, response = self.i.payload, self.read_client.rsp
        # Elements of another format than the first are for the slow path.
        first, *_ = card_formats(self._config)
        odd = asked.odd | (format_of(self._config, asked.table.rules) != first)
        comes = response.payload.last
        if self._pushes:
            # Its next beat is there when it is looked at.
            comes = Mux(self.in_a_row, response.payload.first, comes)
        m.d.comb += [
            arrivals.i.valid.eq(response.valid & comes),
            arrivals.i.payload.eq(response.payload.error),
            flow.i.payload.function.eq(asked.table.function),
            flow.i.payload.addr.eq(asked.addr),
            flow.i.payload.length.eq(asked.length),
            flow.i.valid.eq(self.i.valid & ~odd & waits.i.ready),
            waits.i.payload.head.eq(asked.head),
            waits.i.payload.failed.eq(asked.failed),
            waits.i.payload.odd.eq(odd),
            waits.i.payload.behind.eq(asked.length - self._fixed_bytes),
            waits.i.valid.eq(self.i.valid & flow.i.ready),
            self.i.ready.eq(waits.i.ready & flow.i.ready),
        ]

    def _fields(self, fixed: Signal) -> ElementFields:
        """The fixed part, of a WQE of the card's first format."""
        formats = card_formats(self._config)
        first, *_ = formats
        return ElementFields(
            self._config,
            fixed,
            formats={first: formats[first]},
            number=Const(first),
            receive=self._receive,
        )

    def _judge(self, m: Module, element: _Element) -> None:
        """What the fixed part says, and whether the lengths agree. What does not fit is looked at
        again by the slow path, which says what is wrong."""
        config, fixed, behind, total = self._config, element.fixed, element.behind, element.total
        fields = self._fields(fixed)
        num_sge = element.num_sge
        by_sges = (num_sge <= config.max_sge) & (behind == Cat(Const(0, 4), num_sge[:6]))
        verdict, wqe = self.o.payload, self.o.payload.wqe
        m.d.comb += [
            num_sge.eq(fields["num_sge"]),
            behind.eq(element.work.behind),
            verdict.head.eq(element.work.head),
            verdict.failed.eq(element.work.failed),
            verdict.line.eq(element.line),
            wqe.num_sge.eq(num_sge),
            wqe.wr_id.eq(fields["wr_id"]),
        ]
        if self._receive:
            m.d.comb += [
                element.fits.eq(by_sges),
                verdict.odd.eq(element.is_odd),
                wqe.length.eq(Mux(total[32:].any(), 0xFFFF_FFFF, total[:32])),
            ]
            return
        inline = element.inline
        by_bytes = (num_sge == 0) & (behind <= config.max_inline)
        m.d.comb += [
            inline.eq(fields.inline),
            element.fits.eq(Mux(inline, by_bytes, by_sges) & ~fields.opcode[8:].any()),
            verdict.odd.eq(element.is_odd | (total > MAX_MESSAGE)),
            wqe.operation.eq(fields.operation(m)),
            wqe.inline.eq(inline),
            wqe.length.eq(
                fields.length(wqe.operation, Mux(inline, behind, total), element.differs.any())
            ),
        ]
        m.d.comb += [
            wqe[name].eq(fields[name]) for name in FIELDS if name not in ("num_sge", "wr_id")
        ]
        if config.atomics:
            pair = atomic_operands(wqe.operation, fields["compare_add"], fields["swap"])
            m.d.comb += [
                element.operands.eq(pair),
                element.is_atomic.eq(wqe.operation.kind == Kind.ATOMIC),
            ]
        if config.keeps_destinations:
            m.d.comb += verdict.destination.eq(fields.destination(m))

    def _keep(self, m: Module, element: _Element, number: int) -> None:
        """Keep the fixed part's bytes in its beat ``number``."""
        width = self._config.width
        part = element.fixed[number * width : (number + 1) * width]
        m.d.sync += part.eq(m.submodules.window.i.payload.data)

    def _begin(self, m: Module, element: _Element) -> None:
        """The next element that has come, and the beats of its fixed part but the last, which may
        hold slots as well."""
        waits, arrivals, window = m.submodules.waits, m.submodules.arrivals, m.submodules.window
        header = element.header
        # IDLE: takes the next element; ends when all of it is there, or it is odd already.
        with m.State("IDLE"):
            odd = waits.o.payload.odd
            m.d.comb += [
                waits.o.ready.eq(arrivals.o.valid | odd),
                arrivals.o.ready.eq(waits.o.valid & ~odd),
                window.rewind.eq(1),
            ]
            m.d.sync += [
                element.work.eq(waits.o.payload),
                element.is_odd.eq(odd | arrivals.o.payload),
                header.eq(1),
                element.number.eq(0),
                element.total.eq(0),
                element.answered.eq(0),
                element.stored.eq(0),
            ]
            self._keep(m, element, 0)
            with m.If(waits.o.valid & (odd | arrivals.o.valid)):
                m.d.comb += window.none.eq(odd)
                m.next = "LINE"
                if self._header_beats > 1:
                    m.d.comb += window.advance.eq(~odd)
                if self._header_beats > 2:
                    m.next = "HEADER"
        if self._header_beats > 2:
            # HEADER: keeps the rest of the fixed part; ends before its last beat.
            with m.State("HEADER"):
                m.d.comb += window.advance.eq(1)
                m.d.sync += header.eq(header + 1)
                with m.Switch(header):
                    for number in range(1, self._header_beats - 1):
                        with m.Case(number):
                            self._keep(m, element, number)
                with m.If(header == self._header_beats - 2):
                    m.next = "LINE"

    def _take_line(self, m: Module, element: _Element) -> None:
        """A line for the slots; the first of them may lie in the beat at hand."""
        window, is_odd, failed = m.submodules.window, element.is_odd, element.work.failed
        if self._header_beats > 1:
            self._keep(m, element, self._header_beats - 1)
        inline_slots = (element.behind + (SLOT_BYTES - 1)) // SLOT_BYTES
        m.d.comb += [self.line.ready.eq(~failed), window.align.eq(1)]
        m.d.sync += [
            element.line.eq(self.line.payload),
            element.left.eq(Mux(element.inline, inline_slots, element.num_sge[:6])),
        ]
        with m.If(failed | self.line.valid):
            m.next = "DRAIN"
            with m.If(~is_odd):
                m.d.sync += is_odd.eq(~element.fits)
                with m.If(element.fits & (element.behind != 0)):
                    m.d.comb += [
                        window.choose.eq(window.has_first),
                        window.advance.eq(window.is_final),
                    ]
                    m.next = "SLOTS"

    def _write_slots(self, m: Module, element: _Element, lengths: Value) -> None:
        """One slot after the other, while the window follows."""
        window, slot_valid = m.submodules.window, self.slot_valid
        last = slot_valid & (element.left == 1)
        m.d.comb += [
            window.choose.eq(window.whole & ~last),
            window.advance.eq(last | ~window.whole | window.final),
        ]
        with m.If(slot_valid):
            m.d.sync += [
                element.number.eq(element.number + 1),
                element.left.eq(element.left - 1),
                element.total.eq(lengths),
            ]
        with m.If(element.inline):
            m.d.sync += element.total.eq(0)
        # Of inline data nothing is left to find out, and slots are never held back: who reads them
        # in order from the next cycle on comes behind, if they come in a row.
        if self._config.width >= 8 * SLOT_BYTES:
            m.d.comb += self.o.valid.eq(element.inline & slot_valid & ~element.answered)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += element.answered.eq(1)
        with m.If(last):
            m.next = "GIVE"
            with m.If(element.answered | (self.o.valid & self.o.ready)):
                m.d.comb += window.close.eq(1)
                m.next = "IDLE"
