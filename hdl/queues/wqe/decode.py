"""From the bytes of an element to a decoded WQE and the slots of its line."""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import SendFlags, WcStatus
from hdl.abi.virtio_rdma import POST_RECV, POST_SEND, SGE
from hdl.common.count import add_up
from hdl.config import NicConfig
from hdl.ports.atomics import OPERAND_SLOT
from hdl.ports.jobs import Destination, SendWqe
from hdl.ports.operations import RequestOperation, decode_request
from hdl.wire.gateware import swap as swap_bytes
from hdl.wire.opcodes import Kind

from .types import Word

__all__ = [
    "OPERANDS",
    "RECV_BYTES",
    "SEND_BYTES",
    "Slot",
    "WqeDecode",
    "WqeResult",
    "atomic_operands",
    "destination",
    "element_limit",
]

#: Fixed parts of the elements; the SGEs (or inline bytes) follow.
SEND_BYTES = POST_SEND.size
RECV_BYTES = POST_RECV.size
#: Most bytes of a message (IBTA vol 1, 9.7.7 and 10.7.2.2 give 2**31 for RC).
MAX_MESSAGE = 1 << 31
MESSAGE_BITS = MAX_MESSAGE.bit_length()

_SGE_LENGTH = 8 * SGE.offset("length")
#: Fields of an atomic that are its operands.
OPERANDS = ("compare_add", "swap")


def header_words(config: NicConfig) -> int:
    """Words of a WQE's fixed part that are kept."""
    last = "wr.atomic.rkey" if config.atomics else "wr.rdma.rkey"
    last = "wr.bind.rkey" if config.windows else last
    last = "wr.ud.av.dmac" if config.ud else last
    return -(-(POST_SEND.offset(last) + POST_SEND.place(last).size) // 8)


def atomic_operands(operation: RequestOperation, compare_add: Value, swap: Value) -> Value:
    """The operands of an atomic as the end of AtomicETH, from their fields in the WQE; 16 bytes."""
    compares, swap_add = operation.compares, Mux(operation.compares, swap, compare_add)
    return Cat(swap_bytes(swap_add), swap_bytes(compare_add) & compares.replicate(64))


def element_limit(config: NicConfig) -> int:
    """Bytes of the longest valid WQE."""
    return SEND_BYTES + max(SGE.size * config.max_sge, config.max_inline)


def destination(m: Module, field: Callable[[str], Value]) -> Signal:
    """The address vector of a WQE from the fields of cmd_post_send; ``field`` gives one by name.
    Of BIND_MW it holds the operands that lie there (``hdl.ports.shared.operands``)."""
    found = Signal(Destination, name="destination_now")
    packed = field("wr.ud.av.sl_tclass_flowlabel")
    m.d.comb += [
        found.pd.eq(field("wr.ud.av.pdn")),
        found.gid_index.eq(field("wr.ud.av.gid_index")),
        Cat(found.flow_label, found.traffic_class, found.sl).eq(packed),
        found.dgid.eq(field("wr.ud.av.dgid")),
        found.hop_limit.eq(field("wr.ud.av.hop_limit")),
        found.dmac.eq(field("wr.ud.av.dmac")),
    ]
    return found


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
    Members: ``receive`` (1: cmd_post_recv, 0: cmd_post_send; stable); ``i`` words; ``length`` of
    the element in bytes, valid with the last word; ``slot`` the slots; ``o`` the result, after the
    last slot.
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
                "i": In(stream.Signature(Word)),
                "length": In(32),
                "slot": Out(stream.Signature(Slot)),
                "o": Out(stream.Signature(WqeResult)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        words = header_words(self._config)
        header = Signal(64 * words)  # stays until the result has been taken
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
        slot, slot_valid, fresh, free = self._slots(m, word, number, step)
        # Sum of the lengths, when a slot that holds an SGE has been built.
        sum_, num_sge = Signal(38), self._field(header, POST_SEND, "num_sge")  # of 32 slots
        counts = Signal()  # a cycle later: the next slot comes another later
        m.d.sync += counts.eq(fresh & (num_sge[5:].any() | (slot.slot < num_sge[:5])))
        add_up(m, sum_, slot.data[_SGE_LENGTH : _SGE_LENGTH + 32], counts)
        conclude = self._result(m, header, length, sum_)
        operation, operands = self.o.payload.wqe.operation, Signal(Slot)
        if self._config.atomics:
            fields = (self._field(header, POST_SEND, f"wr.atomic.{name}") for name in OPERANDS)
            m.d.comb += [
                operands.slot.eq(OPERAND_SLOT),
                operands.data.eq(atomic_operands(operation, *fields)),
            ]

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

    @staticmethod
    def _field(header: Signal, struct, name: str):
        """A field of the element's fixed part."""
        start = 8 * struct.offset(name)
        return header[start : start + 8 * struct.place(name).size]

    def _slots(self, m: Module, word: Signal, number: Signal, step: Signal):
        """Slots of 16 bytes behind the fixed part, which ends within a word.

        Returns the slot, whether it has not been taken, whether it has just been built, and whether
        the next word may come. That word waits for the slot only if it ends the next one, so nobody
        in front waits for ``slot.ready``, which is late."""
        before, low, free = Signal(64, reset_less=True), Signal(64, reset_less=True), Signal()
        slot, slot_valid, fresh = Signal(Slot, reset_less=True), Signal(), Signal()
        # ``aligned`` is the part's word ``part``: 8 bytes from the end of the fixed part on.
        aligned, part, in_part = Signal(64), Signal(8), Signal()
        send_word, send_byte = divmod(SEND_BYTES, 8)
        recv_word, recv_byte = divmod(RECV_BYTES, 8)
        begins = Mux(self.receive, (recv_word + 1) % 2, (send_word + 1) % 2)  # ``number[0]`` then
        with m.If(self.receive):
            m.d.comb += [
                aligned.eq(Cat(before[8 * recv_byte :], word[: 8 * recv_byte])),
                part.eq(number - (recv_word + 1)),
                in_part.eq(number > recv_word),
            ]
        with m.Else():
            m.d.comb += [
                aligned.eq(Cat(before[8 * send_byte :], word[: 8 * send_byte])),
                part.eq(number - (send_word + 1)),
                in_part.eq(number > send_word),
            ]
        m.d.comb += [
            self.slot.payload.eq(slot),
            self.slot.valid.eq(slot_valid),
            free.eq(~slot_valid | (number[0] == begins)),
        ]
        with m.If(self.slot.ready):
            m.d.sync += slot_valid.eq(0)
        with m.If(step):
            m.d.sync += before.eq(word)
            with m.If(in_part & ~part[0]):
                m.d.sync += low.eq(aligned)
            with m.If(in_part & part[0] & (part < 64)):
                m.d.sync += [
                    slot.slot.eq(part[1:6]),
                    slot.data.eq(Cat(low, aligned)),
                    slot_valid.eq(1),
                ]
        m.d.sync += fresh.eq(step & in_part & part[0] & (part < 64))
        return slot, slot_valid, fresh, free

    def _result(self, m: Module, header: Signal, length: Signal, sum_: Signal):
        """The WQE that the fields say.

        Returns a function that adds what its length and its status are."""

        def field(struct, name):
            return self._field(header, struct, name)

        flags, num_sge, inline = field(POST_SEND, "send_flags"), Signal(32), Signal()
        error, total = Signal(8, reset_less=True), Signal(32, reset_less=True)
        # Bytes behind the fixed part; negative when it is not whole.
        rest = Signal(signed(self._length_bits + 1), reset_less=True)
        wqe = self.o.payload.wqe
        # The words that push out the last slot leave time for it.
        m.d.sync += rest.eq(length - Mux(self.receive, RECV_BYTES, SEND_BYTES))
        m.d.comb += [
            num_sge.eq(field(POST_SEND, "num_sge")),
            inline.eq(~self.receive & ((flags & SendFlags.INLINE) != 0)),
            self.o.payload.error.eq(error),
            wqe.operation.eq(decode_request(m, self._config, field(POST_SEND, "opcode")[:8])),
            wqe.fence.eq((flags & SendFlags.FENCE) != 0),
            wqe.signaled.eq((flags & SendFlags.SIGNALED) != 0),
            wqe.solicited.eq((flags & SendFlags.SOLICITED) != 0),
            wqe.inline.eq(inline),
            wqe.num_sge.eq(num_sge),
            wqe.wr_id.eq(Mux(self.receive, field(POST_RECV, "wr_id"), field(POST_SEND, "wr_id"))),
            wqe.imm.eq(field(POST_SEND, "ex")),
            wqe.remote_addr.eq(field(POST_SEND, "wr.rdma.remote_addr")),
            wqe.rkey.eq(field(POST_SEND, "wr.rdma.rkey")),
            wqe.length.eq(total),
        ]
        if self._config.atomics:
            with m.If(wqe.operation.kind == Kind.ATOMIC):
                m.d.comb += wqe.rkey.eq(field(POST_SEND, "wr.atomic.rkey"))
        if self._config.ud or self._config.windows:
            m.d.comb += self.o.payload.destination.eq(
                destination(m, lambda name: field(POST_SEND, name))
            )
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
                | (~self.receive & (field(POST_SEND, "opcode")[8:] != 0))
            ),
            inline_long.eq(rest > self._max_inline),
        ]
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
