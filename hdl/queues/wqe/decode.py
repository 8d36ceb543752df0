"""From the bytes of an element to a decoded WQE and the slots of its line."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.abi.virtio_rdma import SGE
from hdl.abi.wqe_formats import FIELDS, FORMAT_BITS, card_formats
from hdl.common.count import add_up
from hdl.config import NicConfig
from hdl.ports.atomics import OPERAND_SLOT
from hdl.ports.jobs import Destination, SendWqe
from hdl.ports.operations import is_layout
from hdl.wire.opcodes import Kind

from .format import ElementFields, atomic_operands, element_limit
from .types import Word

__all__ = ["MAX_MESSAGE", "Slot", "WqeDecode", "WqeResult"]

#: Most bytes of a message (IBTA vol 1, 9.7.7 and 10.7.2.2 give 2**31 for RC).
MAX_MESSAGE = 1 << 31
MESSAGE_BITS = MAX_MESSAGE.bit_length()

_SGE_LENGTH = 8 * SGE.offset("length")


class Slot(data.Struct):
    """One slot of a line to write."""

    slot: 5
    data: 128


class WqeResult(data.Struct):
    """``error`` is a WC status; not 0: the other fields are what could be read. A receive WQE is
    ``num_sge``, ``wr_id`` and ``length``."""

    error: 8
    wqe: SendWqe
    destination: Destination


class WqeDecode(wiring.Component):
    """Decodes one WQE from its words; SGEs or inline bytes leave as slots.

    Spec: virtio-rdma VR-4.1, VR-4.2, VR-4.4 to VR-4.6; IBTA vol 1, 11.6.2 (completion return
    status).
    Members: ``receive`` (1: a receive WQE) and ``wqe_format`` (a row of ``WQE_FORMATS``), both
    stable; ``i`` words; ``length`` of the element in bytes, valid with the last word; ``slot`` the
    slots, SGEs as ``Sge`` has them; ``o`` the result, after the last slot.
    Latency: 5 cycles after the last word, 6 if it ends an SGE. Throughput: eight bytes a cycle.
    Errors: LOC_QP_OP_ERR when the element contradicts itself (shorter than its fixed part, num_sge
    above ``max_sge`` or not what the length says, INLINE with SGEs, an opcode above 255);
    LOC_LEN_ERR when the message is longer than 2**31 bytes or the inline bytes more than
    ``max_inline``. What a receive WQE can take is not bounded; its ``length`` stops at 2**32 - 1.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        self._max_sge, self._max_inline = config.max_sge, config.max_inline
        # Their largest number is beyond every valid length.
        self._length_bits = (element_limit(config) + 1).bit_length()
        super().__init__(
            {
                "receive": In(1),
                "wqe_format": In(FORMAT_BITS),
                "i": In(stream.Signature(Word)),
                "length": In(32),
                "slot": Out(stream.Signature(Slot)),
                "o": Out(stream.Signature(WqeResult)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        words = -(-ElementFields.kept(self._config) // 8)
        header = Signal(64 * words)  # stays until the result has been taken
        fields = ElementFields(
            self._config,
            header,
            formats=card_formats(self._config),
            number=self.wqe_format,
            receive=self.receive,
        )
        length = Signal(self._length_bits, reset_less=True)
        # Words of the element, then two of zeros that push out the last slot.
        word, step = Signal(64), Signal()
        number = Signal(8)  # of the word; stops at its largest value
        pushes, done = Signal(2), Signal()
        with m.If(step):
            with m.If(number != 0xFF):
                m.d.sync += number.eq(number + 1)
            with m.Switch(number):
                for i in range(words):
                    with m.Case(i):
                        m.d.sync += header[64 * i : 64 * (i + 1)].eq(word)
        slot, slot_valid, fresh, free = self._slots(m, fields, word, number, step)
        # Sum of the lengths, when a slot that holds an SGE has been built.
        sum_, num_sge = Signal(38), fields["num_sge"]  # of 32 slots
        counts = Signal()  # a cycle later: the next slot comes another later
        m.d.sync += counts.eq(fresh & (num_sge[5:].any() | (slot.slot < num_sge[:5])))
        add_up(m, sum_, slot.data[_SGE_LENGTH : _SGE_LENGTH + 32], counts)
        uneven = Signal()
        if self._config.memcpy:
            differs = Signal(32, reset_less=True)  # of two lengths
            with m.If(counts):
                m.d.sync += differs.eq(differs ^ slot.data[_SGE_LENGTH : _SGE_LENGTH + 32])
            with m.If(number == 0):
                m.d.sync += differs.eq(0)
            m.d.comb += uneven.eq(differs.any())
        conclude = self._result(m, fields, length, sum_, uneven)
        operation, operands = self.o.payload.wqe.operation, Signal(Slot)
        if self._config.atomics:
            pair = atomic_operands(operation, fields["compare_add"], fields["swap"])
            m.d.comb += [operands.slot.eq(OPERAND_SLOT), operands.data.eq(pair)]

        with m.FSM(name="state"):
            # WORDS: takes the element's words; ends with the last one.
            with m.State("WORDS"):
                m.d.comb += [
                    word.eq(self.i.payload.data),
                    self.i.ready.eq(free),
                    step.eq(self.i.valid & self.i.ready),
                ]
                m.d.sync += [length.eq(self.length), pushes.eq(2)]
                with m.If(self.length[self._length_bits :].any()):
                    m.d.sync += length.eq(~0)
                with m.If(step & self.i.payload.last):
                    m.next = "PUSH"
            # PUSH: pushes the last slot out; ends when it has been taken and counted.
            with m.State("PUSH"):
                m.d.comb += step.eq((pushes != 0) & free)
                m.d.sync += pushes.eq(pushes - step)
                with m.If((pushes == 0) & ~slot_valid & ~fresh & ~counts):
                    m.next = "CHECK"
                    if self._config.atomics:
                        with m.If(~self.receive & (operation.kind == Kind.ATOMIC)):
                            m.next = "OPERANDS"
            if self._config.atomics:
                # OPERANDS: writes the operands of an atomic; ends when they have been taken.
                with m.State("OPERANDS"):
                    m.d.comb += [self.slot.valid.eq(1), self.slot.payload.eq(operands)]
                    with m.If(self.slot.ready):
                        m.next = "CHECK"
            # CHECK: says what is wrong with the WQE; one cycle.
            with m.State("CHECK"):
                conclude()
                m.next = "DONE"
            # DONE: gives the WQE; ends when it is taken.
            with m.State("DONE"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.comb += done.eq(1)
                    m.next = "WORDS"
        with m.If(done):
            m.d.sync += [header.eq(0), number.eq(0), sum_.eq(0)]
        return m

    def _slots(self, m: Module, fields: ElementFields, word: Signal, number: Signal, step: Signal):
        """Slots of 16 bytes behind the fixed part, which ends within a word.

        Returns the slot, whether it has not been taken, whether it has just been built, and whether
        the next word may come. That word waits for the slot only if it ends the next one, so nobody
        in front waits for ``slot.ready``, which is late."""
        before, low, free = Signal(64, reset_less=True), Signal(64, reset_less=True), Signal()
        slot, slot_valid, fresh = Signal(Slot, reset_less=True), Signal(), Signal()
        # ``aligned`` is the part's word ``part``: 8 bytes from the end of the fixed part on.
        aligned, part, in_part = Signal(64), Signal(8), Signal()
        whole = fields.fixed[3:]  # words of the fixed part
        begins = ~whole[0]  # ``number[0]`` of a word that begins a slot
        parts = fields.choose(
            lambda layout: layout.fixed % 8,
            lambda byte: Cat(before[8 * byte :], word[: 8 * byte]),
        )
        m.d.comb += [
            aligned.eq(parts),
            part.eq(number - fields.choose(lambda layout: layout.fixed // 8 + 1, Const)),
            in_part.eq(number > whole),
        ]
        m.d.comb += [
            self.slot.payload.eq(slot),
            self.slot.valid.eq(slot_valid),
            free.eq(~slot_valid | (number[0] == begins)),
        ]
        unit = Cat(low, aligned)
        with m.If(self.slot.ready):
            m.d.sync += slot_valid.eq(0)
        with m.If(step):
            m.d.sync += before.eq(word)
            with m.If(in_part & ~part[0]):
                m.d.sync += low.eq(aligned)
            with m.If(in_part & part[0] & (part < 64)):
                m.d.sync += [
                    slot.slot.eq(part[1:6]),
                    slot.data.eq(Mux(fields.inline, unit, fields.sge(unit))),
                    slot_valid.eq(1),
                ]
        m.d.sync += fresh.eq(step & in_part & part[0] & (part < 64))
        return slot, slot_valid, fresh, free

    def _result(
        self, m: Module, fields: ElementFields, length: Signal, sum_: Signal, uneven: Signal
    ):
        """The WQE that the fields say; ``uneven``: its two SGEs have not the same length.

        Returns a function that adds what its length and its status are."""
        num_sge, inline = Signal(32), Signal()
        error, total = Signal(8, reset_less=True), Signal(32, reset_less=True)
        # Bytes behind the fixed part; negative when it is not whole.
        rest = Signal(signed(self._length_bits + 1), reset_less=True)
        wqe = self.o.payload.wqe
        # The words that push out the last slot leave time for it.
        m.d.sync += rest.eq(length - fields.fixed)
        m.d.comb += [
            num_sge.eq(fields["num_sge"]),
            inline.eq(~self.receive & fields.inline),
            self.o.payload.error.eq(error),
            wqe.operation.eq(fields.operation(m)),
            wqe.inline.eq(inline),
            wqe.length.eq(total),
        ]
        if self._config.placement or self._config.memcpy or self._config.mkeys:
            with m.If(~self.receive):
                m.d.comb += wqe.length.eq(fields.length(wqe.operation, total, uneven))
        m.d.comb += [wqe[name].eq(fields[name]) for name in FIELDS]
        if self._config.keeps_destinations:
            m.d.comb += self.o.payload.destination.eq(fields.destination(m))
        # The sum is more than MAX_MESSAGE: without a carry chain.
        exceeds = sum_[MESSAGE_BITS:].any() | (
            sum_[MESSAGE_BITS - 1] & sum_[: MESSAGE_BITS - 1].any()
        )
        # As ``rest`` these are there in time: the header has come long before.
        contradiction, inline_long, too_long = Signal(), Signal(), Signal()
        few = num_sge[: self._max_sge.bit_length()]  # not one carry chain of 32 bits
        too_many = num_sge[len(few) :].any() | (few > self._max_sge)
        m.d.sync += [
            contradiction.eq(
                (rest < 0)
                | Mux(
                    inline,
                    num_sge != 0,
                    too_many | (rest != (num_sge[:6] << 4)),
                )
                | (~self.receive & fields.opcode[8:].any())
            ),
            inline_long.eq(rest > self._max_inline),
        ]
        if self._config.mkeys:
            exceeds &= ~is_layout(self._config, wqe.operation.completion)
        m.d.comb += too_long.eq(Mux(inline, inline_long, ~self.receive & exceeds))

        def conclude() -> None:
            m.d.sync += total.eq(Mux(inline, rest, sum_))
            with m.If(~inline & sum_[32:].any()):
                m.d.sync += total.eq(0xFFFF_FFFF)
            with m.If(contradiction):
                m.d.sync += error.eq(WcStatus.LOC_QP_OP_ERR)
            with m.Elif(too_long):
                m.d.sync += error.eq(WcStatus.LOC_LEN_ERR)
            with m.Else():
                m.d.sync += error.eq(WcStatus.SUCCESS)

        return conclude
