"""Chains of transmit queues are read from host memory: requests, and bytes without holes."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.address import OFFSET_BITS, add_high, add_low
from hdl.common.contract import taken_at_once
from hdl.common.fifo import StreamFifo
from hdl.common.pack import Packer
from hdl.common.packet import packet_stream
from hdl.common.skid import Skid
from hdl.config import FUNCTION_NET
from hdl.ports.host import ReadClient

from .types import HEADER_BYTES, LONGEST_FRAME, SHORTEST_FRAME, Buffer, Returned

__all__ = ["Fetch"]

#: Bytes of a read, at most; bytes that are read at a time; reads and chains under way.
READ, ROOM, READS = 4096, 32768, 128
#: How far the next read of a buffer lies behind one.
READ_OFFSET = Const(READ, OFFSET_BITS)
#: Chains of which the last byte has been asked for.
CHAINS = 128


class _Chunk(data.Struct):
    """``length`` bytes that are read, in lanes from ``lane`` on. ``end``: the frame ends with them;
    ``nothing``: none is read, and the frame that ends is bad."""

    lane: 6
    length: 13
    end: 1
    nothing: 1


class Fetch(wiring.Component):
    """Reads the buffers of chains, and gives the bytes of each chain as a packet.

    Members: ``i`` buffers; ``read_client`` in address lanes; ``o`` packets, header and frame, with
    ``error`` for a chain that is no frame; ``returned`` the chains, in their order, and ``broken``
    with one that must not go back; ``idle``.
    A chain is read as it comes, until it turns out to be too long; one that is bad ends with a
    byte and ``error``. So it may have any number of buffers, of any length.
    Latency: a host read and 8 cycles. Throughput: a buffer in 5 cycles, a beat a cycle.
    Errors: chains of less than a header and an Ethernet header, or of more than the longest frame,
    and what memory does not answer.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "i": In(stream.Signature(Buffer)),
                "read_client": Out(ReadClient(width)),
                "o": Out(packet_stream(width)),
                "returned": Out(stream.Signature(Returned)),
                "broken": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, lanes = self._width, ceil_log2(self._width // 8)
        answer = data.StructLayout({"data": width, "last": 1, "error": 1})
        m.submodules.beats = beats = StreamFifo(shape=answer, depth=ROOM // (width // 8))
        m.submodules.chunks = chunks = StreamFifo(shape=_Chunk, depth=READS)
        back = data.StructLayout({"item": Returned, "broken": 1})
        m.submodules.chains = chains = StreamFifo(shape=back, depth=CHAINS)
        # The output of a block RAM is late.
        m.submodules.chain = chain = Skid(shape=back)
        connect(m, chains.o, chain.i)
        m.submodules.packer = packer = Packer(width=width)
        connect(m, packer.o, flipped(self.o))
        response = self.read_client.rsp
        m.d.comb += [
            beats.i.valid.eq(response.valid),
            beats.i.payload.data.eq(response.payload.data),
            beats.i.payload.last.eq(response.payload.last),
            beats.i.payload.error.eq(response.payload.error),
            self.returned.valid.eq(chain.o.valid),
            self.returned.payload.eq(chain.o.payload.item),
            self.broken.eq(chain.o.payload.broken),
            chain.o.ready.eq(self.returned.ready),
        ]
        taken_at_once(m, platform, beats.i, "there is room for all data that were asked for")
        asking = self._ask(m, beats, chunks, chains, lanes)
        self._pack(m, beats, chunks, packer, lanes)
        m.d.comb += self.idle.eq(~asking & (chains.level == 0) & ~chain.o.valid)
        return m

    def _ask(self, m: Module, beats, chunks, chains, lanes: int):
        """Requests for each buffer; returns whether one is at hand."""
        size, most = 1 << lanes, HEADER_BYTES + LONGEST_FRAME
        buffer, request = Signal(Buffer, reset_less=True), self.read_client.req
        total, sum_ = Signal(18, reset_less=True), Signal(18)
        bad = Signal(reset_less=True)
        left, piece = Signal(17, reset_less=True), Signal(13, reset_less=True)
        addr, carry = Signal(64, reset_less=True), Signal()
        depth = ROOM // size
        room, count = Signal(range(depth + 1), init=depth), Signal(range(READ // size + 2))
        fits, popped, sent = Signal(), Signal(), Signal()
        chunk, back = chunks.i.payload, chains.i.payload
        last = Signal(reset_less=True)  # the chain's last byte is in this request
        m.d.comb += [
            sum_.eq(Mux(buffer.first, 0, total[:17]) + buffer.length),
            request.payload.function.eq(FUNCTION_NET),
            request.payload.addr.eq(addr),
            request.payload.length.eq(piece),
            chunk.lane.eq(addr[:lanes]),
            chunk.length.eq(piece),
            back.item.pair.eq(buffer.pair),
            back.item.head.eq(buffer.head),
            back.item.last.eq(1),
            back.broken.eq(buffer.broken),
        ]
        m.d.sync += [
            popped.eq(beats.o.valid & beats.o.ready),
            room.eq(room - Mux(sent, count, 0) + popped),
            fits.eq((room >= READ // size + 2) & chunks.i.ready & chains.i.ready),
        ]
        with m.FSM(name="ask") as fsm:
            # IDLE: takes a buffer; ends with it.
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [
                    buffer.eq(self.i.payload),
                    addr.eq(self.i.payload.addr),
                    left.eq(self.i.payload.length),
                ]
                with m.If(self.i.valid):
                    m.next = "ADD"
            # ADD: adds up the chain's bytes; one cycle.
            with m.State("ADD"):
                m.d.sync += [
                    total.eq(Mux(sum_[17], 0x1FFFF, sum_)),
                    bad.eq((bad & ~buffer.first) | buffer.broken | sum_[17]),
                ]
                m.next = "JUDGE"
            # JUDGE: looks at whether it is too long, or ends too early; one cycle.
            with m.State("JUDGE"):
                short = buffer.last & (total < HEADER_BYTES + SHORTEST_FRAME)
                with m.If(bad | (total > most) | short):
                    m.d.sync += bad.eq(1)
                    m.next = "IDLE"
                    with m.If(buffer.last):
                        m.next = "NOTHING"
                with m.Else():
                    m.next = "PIECE"
            # PIECE: works out the next request; one cycle.
            with m.State("PIECE"):
                long = left[12:].any() & (left != READ)
                m.d.sync += [
                    piece.eq(Mux(long, READ, left)),
                    left.eq(Mux(long, left - READ, 0)),
                    last.eq(buffer.last & ~long),
                ]
                add_high(m, addr, carry)
                m.next = "ROOM"
            # ROOM: waits until there is room for its data; ends then.
            with m.State("ROOM"):
                m.d.sync += count.eq((addr[:lanes] + piece + (size - 1)) >> lanes)
                with m.If(fits):
                    m.next = "ASK"
            # ASK: asks for them; ends when that is taken.
            with m.State("ASK"):
                m.d.comb += [
                    request.valid.eq(1),
                    chunk.end.eq(last),
                    chunks.i.valid.eq(request.ready),
                    chains.i.valid.eq(request.ready & last),
                    sent.eq(request.ready),
                ]
                with m.If(request.ready):
                    add_low(m, addr, carry, addr, READ_OFFSET)
                    m.next = "IDLE"
                    with m.If(left != 0):
                        m.next = "PIECE"
            # NOTHING: ends a chain that is bad; ends when there is room for that.
            with m.State("NOTHING"):
                m.d.comb += [
                    chunk.end.eq(1),
                    chunk.nothing.eq(1),
                    chunks.i.valid.eq(chains.i.ready),
                    chains.i.valid.eq(chunks.i.ready),
                ]
                with m.If(chunks.i.ready & chains.i.ready):
                    m.next = "IDLE"
        return ~fsm.ongoing("IDLE") | self.i.valid

    def _pack(self, m: Module, beats, chunks, packer, lanes: int) -> None:
        """The bytes of each chunk, out of the beats that hold them."""
        size = 1 << lanes
        chunk, held = Signal(_Chunk, reset_less=True), Signal()
        start, count = Signal(lanes, reset_less=True), Signal(lanes + 1, reset_less=True)
        rest, more = Signal(13, reset_less=True), Signal(reset_less=True)
        asked, out, beat = chunks.o.payload, packer.i.payload, beats.o.payload
        passing, ends, room = Signal(), Signal(), Signal(lanes + 1)
        m.d.comb += [
            room.eq(size - asked.lane[:lanes]),
            packer.i.valid.eq(held & (beats.o.valid | chunk.nothing)),
            out.data.eq(beat.data),
            out.start.eq(start),
            out.count.eq(count),
            out.end.eq(ends & chunk.end),
            out.error.eq(chunk.nothing | (beat.error & beat.last)),
            ends.eq(~more),
            passing.eq(packer.i.valid & packer.i.ready),
            beats.o.ready.eq(packer.i.ready & held & ~chunk.nothing),
            chunks.o.ready.eq(~held | (passing & ends)),
        ]
        with m.If(chunks.o.ready):
            # Of no bytes one is given.
            fits = asked.length <= room
            m.d.sync += [
                chunk.eq(asked),
                held.eq(chunks.o.valid),
                start.eq(Mux(asked.nothing, 0, asked.lane)),
                count.eq(Mux(asked.nothing, 1, Mux(fits, asked.length, room))),
                rest.eq(asked.length - room),
                more.eq(~asked.nothing & ~fits),
            ]
        with m.Elif(passing):
            fits = (rest[lanes:] == 0) | (rest == size)
            m.d.sync += [
                start.eq(0),
                count.eq(Mux(fits, rest, size)),
                rest.eq(rest - size),
                more.eq(~fits),
            ]
