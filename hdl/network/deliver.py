"""Received frames on their way into the driver's buffers."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import ceil_log2

from hdl.abi.virtio_net_header import NET_HEADER, NetHeaderFlags
from hdl.common.address import OFFSET_BITS, add_high, add_low
from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_stream
from hdl.config import FUNCTION_NET
from hdl.ports.host import STREAM_DATA, PlacedWriteClient

from .buffers import Assigned, Piece
from .shift import Prefix
from .types import HEADER_BYTES, LENGTH_BITS, Returned

__all__ = ["Deliver"]

#: Bytes of a burst, at most.
BURST = 4096
#: Chains that wait to go back.
RETURNS = 64


def _place(name: str) -> slice:
    """The bits of a field of the header."""
    place = NET_HEADER.place(name)
    return slice(8 * place.offset, 8 * place.end)


class _Work:
    """The frame at hand."""

    def __init__(self, width: int):
        lanes = ceil_log2(width // 8)
        self.size = 1 << lanes
        self.frame, self.piece = Signal(Assigned, reset_less=True), Signal(Piece, reset_less=True)
        self.count = Signal.like(self.frame.pieces)  # pieces of the frame that are left
        self.left = Signal(LENGTH_BITS, reset_less=True)  # bytes of the piece behind this burst
        self.addr, self.carry = Signal(64, reset_less=True), Signal()
        # Of the burst: bytes behind this beat; those of this beat lie from ``start`` to ``stop``.
        self.rest = Signal(LENGTH_BITS, reset_less=True)
        self.start = Signal(lanes, reset_less=True)
        self.stop = Signal(lanes + 1, reset_less=True)
        self.room = Signal(lanes + 1, reset_less=True)  # bytes from the first one's lane on
        self.up, self.first = Signal(lanes, reset_less=True), Signal(reset_less=True)
        self.final = Signal(reset_less=True)
        # The next byte's place in the frame's beat that left last, or behind it; whether the
        # frame's next beat is needed; the one that left last.
        self.place, self.advances = Signal(lanes + 1), Signal(reset_less=True)
        self.kept = Signal(width, reset_less=True)
        # The frame's beats go to the writes, or nowhere; the last one has gone.
        self.flows, self.forgets, self.fed = Signal(), Signal(), Signal()


class Deliver(wiring.Component):
    """Writes header and frame into the buffers that the frame has been given.

    Spec: Virtio 1.2, 5.1.6.4 (header; ``num_buffers``, VIRTIO_NET_HDR_F_DATA_VALID).
    Members: ``assigned``, ``piece``: see ReceiveBuffers; ``frame`` the beats of the frames in the
    same order; ``write_client``; ``returned`` the chains, when all of a frame has been taken by the
    write engine; ``delivered`` (a cycle) a frame of ``length`` bytes; ``idle``.
    A beat that leaves is one of host memory, and the write engine shifts: see PlacedWriteClient. Of
    the frame's own beats the last one that left is kept, as a piece may begin in its middle.
    Latency: 6 cycles. Throughput: a beat a cycle, 4 cycles between two pieces.
    Errors: none; ``num_buffers`` is what was taken. Reset: nothing at hand.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "assigned": In(stream.Signature(Assigned)),
                "piece": In(stream.Signature(Piece)),
                "frame": In(packet_stream(width)),
                "write_client": Out(PlacedWriteClient(width)),
                "returned": Out(stream.Signature(Returned)),
                "delivered": Out(1),
                "length": Out(LENGTH_BITS),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.prefix = prefix = Prefix(width=self._width)
        m.submodules.returns = returns = StreamFifo(shape=Returned, depth=RETURNS)
        connect(m, returns.o, wiring.flipped(self.returned))
        work = _Work(self._width)
        frame, piece, beat = work.frame, work.piece, self.write_client.beat.payload
        lanes, returning = len(work.start), returns.i.payload
        header = {
            "flags": Mux(frame.right, NetHeaderFlags.DATA_VALID, 0),
            "num_buffers": frame.chains,
        }
        m.d.comb += [
            prefix.i.payload.eq(self.frame.payload),
            prefix.i.valid.eq(self.frame.valid & work.flows & ~work.fed),
            self.frame.ready.eq((prefix.i.ready & work.flows & ~work.fed) | work.forgets),
            *(prefix.header[_place(name)].eq(value) for name, value in header.items()),
            beat.stream_id.eq(STREAM_DATA),
            beat.function.eq(FUNCTION_NET),
            beat.addr.eq(Cat(Const(0, lanes), work.addr[lanes:])),
            beat.data.eq(Mux(work.advances, prefix.o.payload.data, work.kept)),
            beat.up.eq(work.up),
            beat.start.eq(work.start),
            beat.stop.eq(work.stop),
            beat.first.eq(work.first),
            beat.last.eq(work.final),
            beat.more.eq((work.left != 0) | (work.count != 0)),
            returning.pair.eq(frame.pair),
            returning.head.eq(piece.head),
            returning.length.eq(piece.written),
            returning.last.eq(work.count == 0),
            self.length.eq(frame.length - HEADER_BYTES),
        ]
        with m.If(prefix.i.valid & prefix.i.ready):
            m.d.sync += work.fed.eq(self.frame.payload.last)
        with m.FSM(name="state") as fsm:
            self._begin(m, work)
            self._place(m, work)
            self._write(m, work)
        m.d.comb += self.idle.eq(fsm.ongoing("IDLE") & ~self.assigned.valid & (returns.level == 0))
        return m

    def _begin(self, m: Module, work: _Work) -> None:
        """The next frame, or the next piece of one."""
        returns = m.submodules.returns
        # IDLE: takes the next frame; ends with it.
        with m.State("IDLE"):
            m.d.comb += self.assigned.ready.eq(1)
            m.d.sync += [
                work.frame.eq(self.assigned.payload),
                work.count.eq(self.assigned.payload.pieces),
                work.place.eq(work.size),
                work.fed.eq(0),
            ]
            with m.If(self.assigned.valid):
                m.next = "PIECE"
                with m.If(self.assigned.payload.drop):
                    m.next = "FORGET"
        # FORGET: drops the frame's beats; ends with the last one.
        with m.State("FORGET"):
            m.d.comb += work.forgets.eq(1)
            with m.If(self.frame.valid & self.frame.payload.last):
                m.next = "PIECES"
        # PIECES: drops its pieces; ends with the last one.
        with m.State("PIECES"):
            m.d.comb += self.piece.ready.eq(work.count != 0)
            with m.If(work.count == 0):
                m.next = "IDLE"
            with m.Else():
                m.d.sync += work.count.eq(work.count - 1)
        # PIECE: takes the next piece; one cycle, as all pieces are there.
        with m.State("PIECE"):
            m.d.comb += [work.flows.eq(1), self.piece.ready.eq(returns.i.ready)]
            m.d.sync += [
                work.piece.eq(self.piece.payload),
                work.addr.eq(self.piece.payload.addr),
                work.left.eq(self.piece.payload.length),
            ]
            with m.If(self.piece.valid & returns.i.ready):
                m.d.sync += work.count.eq(work.count - 1)
                m.next = "BURST"

    def _place(self, m: Module, work: _Work) -> None:
        """Where the next burst lies, and what its first beat holds."""
        lanes = len(work.start)
        # BURST: works out how long the next burst is, and where it begins; one cycle.
        with m.State("BURST"):
            m.d.comb += work.flows.eq(1)
            long = work.left[ceil_log2(BURST) :].any()
            m.d.sync += [
                work.rest.eq(Mux(long, BURST, work.left)),
                work.left.eq(Mux(long, work.left - BURST, 0)),
                work.start.eq(work.addr[:lanes]),
                work.up.eq(work.addr[:lanes] - work.place),
                work.room.eq(work.size - work.addr[:lanes]),
                work.first.eq(1),
            ]
            m.next = "BEGIN"
        # BEGIN: works out what its first beat holds; one cycle.
        with m.State("BEGIN"):
            m.d.comb += work.flows.eq(1)
            ends = work.rest <= work.room
            m.d.sync += [
                work.final.eq(ends),
                work.stop.eq(Mux(ends, work.start + work.rest, work.size)),
                work.advances.eq(work.place > work.start),
            ]
            m.next = "NEEDS"
        # NEEDS: sees whether it needs the frame's next beat; one cycle.
        with m.State("NEEDS"):
            m.d.comb += work.flows.eq(1)
            m.d.sync += [
                work.advances.eq(work.advances & (work.stop > work.up)),
                work.rest.eq(work.rest - (work.stop - work.start)),
            ]
            m.next = "WRITE"

    def _write(self, m: Module, work: _Work) -> None:
        """A burst is written."""
        prefix, returns = m.submodules.prefix, m.submodules.returns
        lanes, client = len(work.start), self.write_client.beat
        goes = Signal()
        # WRITE: writes the burst, a beat a cycle; ends with its last one.
        with m.State("WRITE"):
            m.d.comb += [
                work.flows.eq(1),
                client.valid.eq(prefix.o.valid | ~work.advances),
                goes.eq(client.valid & client.ready),
                prefix.o.ready.eq(client.ready & work.advances),
            ]
            ends = (work.rest[lanes:] == 0) | (work.rest == work.size)
            behind = Mux(ends, work.rest[: lanes + 1], work.size)
            with m.If(goes):
                m.next = "ENDED"
            with m.If(goes & ~work.final):
                m.d.sync += [
                    work.first.eq(0),
                    work.start.eq(0),
                    work.stop.eq(behind),
                    work.final.eq(ends),
                    work.advances.eq(behind > work.up),
                    work.rest.eq(work.rest - behind),
                ]
                m.next = "WRITE"
            with m.If(goes & work.advances):
                m.d.sync += work.kept.eq(prefix.o.payload.data)
        # ENDED: sees how much of the frame's beat is left, and whether something is to follow;
        # one cycle. A chain goes back with its last piece.
        with m.State("ENDED"):
            behind = (work.stop - work.up)[:lanes]
            m.d.comb += work.flows.eq(1)
            m.d.sync += work.place.eq(Mux(behind == 0, work.size, behind))
            add_low(m, work.addr, work.carry, work.addr, Const(BURST, OFFSET_BITS))
            with m.If(work.left != 0):
                m.next = "ADDRESS"
            with m.Else():
                m.d.comb += returns.i.valid.eq(work.piece.ends)
                m.next = "PIECE"
                with m.If(work.count == 0):
                    m.d.comb += self.delivered.eq(1)
                    m.next = "IDLE"
        # ADDRESS: adds the carry to the address of the next burst; one cycle.
        with m.State("ADDRESS"):
            m.d.comb += work.flows.eq(1)
            add_high(m, work.addr, work.carry)
            m.next = "BURST"
