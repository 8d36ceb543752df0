"""Short WQEs that lie in one piece: read whole, decoded a beat at a time."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.enums import SendFlags
from hdl.abi.virtio_rdma import POST_RECV, POST_SEND, SGE
from hdl.common.fifo import StreamFifo
from hdl.common.sums import wide_sum
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import WQE_LINE_BITS
from hdl.ports.operations import decode_request

from .decode import MAX_MESSAGE, RECV_BYTES, SEND_BYTES, Slot
from .flow import ReadFlow
from .types import Element, Verdict

__all__ = ["ShortWqes", "SHORT_SEND", "SHORT_RECV"]

#: Bytes of the longest elements taken: eleven SGEs or 181 bytes inline; seven SGEs.
SHORT_SEND, SHORT_RECV = 256, 128
SLOT_BYTES = SGE.size
_LENGTH = 8 * SGE.offset("length")


class ShortWqes(wiring.Component):
    """Reads the element of each buffer and decodes it into the slots of a line.

    Spec: virtio-rdma VR-4.1, VR-4.2, VR-4.4 to VR-4.6.
    Parameters: ``receive``: cmd_post_recv of up to 128 bytes; else cmd_post_send of up to 256.
    Members: ``i`` buffers; ``line`` a line for each verdict that is not ``failed``; ``slot``,
    ``slot_line`` with ``slot_valid``: a slot to write, never held back; ``o`` one verdict per
    buffer, in order, after its slots; of inline data with the first of them, where the others
    follow in the next cycles (from 128 bits on).
    An element is looked at when all of it has come, a beat at a time: the fixed part has a length
    of its own, so each slot lies at a fixed place of the beats, or of two in a row.
    Latency: a host read plus 5 cycles to the first slot. Throughput: an element with one SGE in 4
    cycles, each further slot one more, at 64 bits each slot two; reads of ``depth`` elements are in
    flight meanwhile.
    Errors: an element that is not a good WQE, and memory that does not answer, is ``odd``: a lane
    says what is wrong. Reset: empty; nothing may be in flight.
    """

    def __init__(self, *, config: NicConfig, depth: int, receive: bool = False):
        self._config, self._depth, self._receive = config, depth, receive
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
        )

    def elaborate(self, platform):
        m = Module()
        config, width, receive = self._config, self._config.width, self._receive
        size = SHORT_RECV if receive else SHORT_SEND
        fixed_bytes = RECV_BYTES if receive else SEND_BYTES
        most_sges = min((size - fixed_bytes) // SLOT_BYTES, config.max_sge)
        most_slots = -(-(size - fixed_bytes) // SLOT_BYTES)
        waiting = data.StructLayout({"head": 16, "failed": 1, "odd": 1, "length": 9})
        m.submodules.waits = waits = StreamFifo(shape=waiting, depth=self._depth)
        m.submodules.flow = flow = ReadFlow(
            config=config,
            size=size,
            # More than are in flight, so that it is a block RAM.
            reads=max(self._depth, 64),
            offsets=False,
            bypass=False,
        )
        connect(m, flow.read_client, flipped(self.read_client))
        # Elements that have come, each whether in error: as late as the last of their beats.
        m.submodules.arrivals = arrivals = StreamFifo(shape=1, depth=self._depth)
        response = self.read_client.rsp
        m.d.comb += [
            arrivals.i.valid.eq(response.valid & response.payload.last),
            arrivals.i.payload.eq(response.payload.error),
        ]

        # Ask. An odd one waits as if it asked, so that whether it is does not hold up ``ready``.
        asked = self.i.payload
        m.d.comb += [
            flow.i.payload.function.eq(asked.table.function),
            flow.i.payload.addr.eq(asked.addr),
            flow.i.payload.length.eq(asked.length),
            flow.i.valid.eq(self.i.valid & ~asked.odd & waits.i.ready),
            waits.i.payload.head.eq(asked.head),
            waits.i.payload.failed.eq(asked.failed),
            waits.i.payload.odd.eq(asked.odd),
            waits.i.payload.length.eq(asked.length),
            waits.i.valid.eq(self.i.valid & flow.i.ready),
            self.i.ready.eq(waits.i.ready & flow.i.ready),
        ]

        # The element's next beat, behind the end of the one before: counted from ``pad`` bytes
        # before the element, slots begin at multiples of their size.
        lanes, pad = width // 8, -fixed_bytes % SLOT_BYTES
        kept = Signal(8 * (pad + max(0, SLOT_BYTES - lanes)), reset_less=True)
        beat = flow.o.payload
        window = Cat(kept, beat.data)
        advance, ended = Signal(), Signal()  # to the next beat; all beats have been taken
        m.d.comb += flow.o.ready.eq(advance & ~ended)
        with m.If(advance):
            m.d.sync += [kept.eq(window[-len(kept) :]), ended.eq(ended | beat.last)]
        # The slots that begin in a beat, and the first of them behind the fixed part.
        per_beat = max(1, lanes // SLOT_BYTES)
        first = (fixed_bytes + pad) // SLOT_BYTES % per_beat
        at = Signal(range(per_beat), init=first)  # the one in the window to write next
        whole = Signal()  # it is all there
        chosen = window[: per_beat * 8 * SLOT_BYTES].word_select(at, 8 * SLOT_BYTES)

        # Decode.
        header_beats = -(-fixed_bytes // lanes)
        header = Signal(range(max(2, header_beats)))
        fixed = Signal(8 * fixed_bytes, reset_less=True)
        slot, choose, slot_valid = Signal(8 * SLOT_BYTES, reset_less=True), Signal(), Signal()
        work, is_odd = Signal(waiting, reset_less=True), Signal()
        line = Signal(WQE_LINE_BITS, reset_less=True)
        number = Signal(range(most_slots + 1))
        total = Signal(36)
        left = Signal(range(most_slots + 1))  # slots to write
        answered = Signal()  # the verdict has gone ahead of the last slots

        def field(name):
            struct = POST_RECV if receive else POST_SEND
            start = 8 * struct.offset(name)
            return fixed[start : start + 8 * struct.place(name).size]

        num_sge, behind, inline, fits = field("num_sge"), Signal(8), Signal(), Signal()
        by_sges = (num_sge <= most_sges) & (behind == Cat(Const(0, 4), num_sge[:4]))
        verdict, wqe = self.o.payload, self.o.payload.wqe
        m.d.comb += [
            behind.eq(work.length - fixed_bytes),
            self.slot.slot.eq(number),
            self.slot.data.eq(slot),
            self.slot_line.eq(line),
            self.slot_valid.eq(slot_valid),
            verdict.head.eq(work.head),
            verdict.failed.eq(work.failed),
            verdict.line.eq(line),
            wqe.num_sge.eq(num_sge),
            wqe.wr_id.eq(field("wr_id")),
        ]
        # What does not fit is looked at again by a lane, which says what is wrong.
        if receive:
            m.d.comb += [
                fits.eq(by_sges),
                verdict.odd.eq(is_odd),
                wqe.length.eq(Mux(total[32:].any(), 0xFFFF_FFFF, total[:32])),
            ]
        else:
            flags = field("send_flags")
            by_bytes = (num_sge == 0) & (behind <= min(config.max_inline, 0xFF))
            m.d.comb += [
                inline.eq((flags & SendFlags.INLINE) != 0),
                fits.eq(Mux(inline, by_bytes, by_sges) & (field("opcode")[8:] == 0)),
                verdict.odd.eq(is_odd | (total > MAX_MESSAGE)),
                wqe.operation.eq(decode_request(m, field("opcode")[:8])),
                wqe.fence.eq((flags & SendFlags.FENCE) != 0),
                wqe.signaled.eq((flags & SendFlags.SIGNALED) != 0),
                wqe.solicited.eq((flags & SendFlags.SOLICITED) != 0),
                wqe.inline.eq(inline),
                wqe.imm.eq(field("ex")),
                wqe.remote_addr.eq(field("wr.rdma.remote_addr")),
                wqe.rkey.eq(field("wr.rdma.rkey")),
                wqe.length.eq(Mux(inline, behind, total)),
            ]
        # The lengths of the SGEs that have been written, and of the one that is.
        lengths = wide_sum(m, total, slot[_LENGTH : _LENGTH + 32], block=18)
        if lanes < SLOT_BYTES:
            # Every other beat ends a slot.
            phase = Signal()
            m.d.comb += whole.eq(phase)
            with m.If(advance):
                m.d.sync += phase.eq(~phase)
        else:
            m.d.comb += whole.eq(1)
        m.d.sync += [slot.eq(chosen), slot_valid.eq(choose)]
        if per_beat > 1:
            with m.If(choose):
                m.d.sync += at.eq(at + 1)

        def load_header(number):
            """Keep the fixed part's bytes in its beat ``number``."""
            part = fixed[number * width : (number + 1) * width]
            m.d.sync += part.eq(beat.data)

        with m.FSM(name="decode"):
            with m.State("IDLE"):
                taken = waits.o.valid & (waits.o.payload.odd | arrivals.o.valid)
                m.d.comb += [
                    waits.o.ready.eq(arrivals.o.valid | waits.o.payload.odd),
                    arrivals.o.ready.eq(waits.o.valid & ~waits.o.payload.odd),
                ]
                m.d.sync += [
                    work.eq(waits.o.payload),
                    is_odd.eq(waits.o.payload.odd | arrivals.o.payload),
                    header.eq(1),
                    number.eq(0),
                    total.eq(0),
                    answered.eq(0),
                    at.eq(first),
                ]
                load_header(0)
                with m.If(taken):
                    m.next = "LINE"
                    m.d.sync += ended.eq(waits.o.payload.odd)
                    if header_beats > 1:
                        m.d.comb += advance.eq(~waits.o.payload.odd)
                        m.d.sync += ended.eq(waits.o.payload.odd | beat.last)
                    if header_beats > 2:
                        m.next = "HEADER"
            # The rest of the fixed part; but for its last beat, which may hold slots as well.
            if header_beats > 2:
                with m.State("HEADER"):
                    m.d.comb += advance.eq(1)
                    m.d.sync += header.eq(header + 1)
                    with m.Switch(header):
                        for i in range(1, header_beats - 1):
                            with m.Case(i):
                                load_header(i)
                    with m.If(header == header_beats - 2):
                        m.next = "LINE"
            # What is judged here lies before that beat.
            with m.State("LINE"):
                if header_beats > 1:
                    load_header(header_beats - 1)
                m.d.comb += self.line.ready.eq(~work.failed)
                m.d.sync += line.eq(self.line.payload)
                m.d.sync += left.eq(Mux(inline, (behind + (SLOT_BYTES - 1)) >> 4, num_sge[:4]))
                if lanes < SLOT_BYTES:
                    m.d.sync += phase.eq(0)
                with m.If(work.failed | self.line.valid):
                    m.next = "DRAIN"
                    with m.If(~is_odd):
                        m.d.sync += is_odd.eq(~fits)
                        with m.If(fits & (behind != 0)):
                            m.d.comb += [
                                choose.eq(first != 0),
                                advance.eq(first == 0 or first == per_beat - 1),
                            ]
                            m.next = "SLOTS"
            with m.State("SLOTS"):
                last = slot_valid & (left == 1)
                m.d.comb += [
                    choose.eq(whole & ~last),
                    advance.eq(last | ~whole | (at == per_beat - 1)),
                ]
                with m.If(slot_valid):
                    m.d.sync += [number.eq(number + 1), left.eq(left - 1), total.eq(lengths)]
                with m.If(inline):
                    m.d.sync += total.eq(0)
                # Of inline data nothing is left to find out, and slots are never held back: who
                # reads them in order from the next cycle on comes behind, if they come in a row.
                if lanes >= SLOT_BYTES:
                    m.d.comb += self.o.valid.eq(inline & slot_valid & ~answered)
                with m.If(self.o.valid & self.o.ready):
                    m.d.sync += answered.eq(1)
                with m.If(last):
                    m.next = "GIVE"
                    with m.If(answered | (self.o.valid & self.o.ready)):
                        m.d.sync += ended.eq(0)
                        m.next = "IDLE"
            # What is left of an element that is odd, or has no slots.
            with m.State("DRAIN"):
                m.d.comb += advance.eq(1)
                with m.If(ended | beat.last):
                    m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += self.o.valid.eq(1)
                m.d.sync += ended.eq(0)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m
