"""The buffers of receive queues that wait for frames, and who gets which."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.abi.virtio_pci import NetFeature
from hdl.common.count import COUNT, increment
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.config import NicConfig

from .types import FRAME_FACTS, HEADER_BYTES, LENGTH_BITS, PAIR_BITS, Buffer

__all__ = ["Assigned", "Piece", "ReceiveBuffers"]

#: Buffers of a queue that wait. A frame takes ``MOST`` at most.
DEPTH, MOST = 64, 32
#: Pieces and frames that wait to be written.
PIECES, FRAMES = 64, 32


class _Waiting(data.Struct):
    """A buffer that waits for a frame."""

    addr: 64
    length: LENGTH_BITS
    head: 16
    last: 1


class Piece(data.Struct):
    """A part of a frame, with its header, for one buffer. ``ends``: it is the last one in its
    chain ``head``, into which ``written`` bytes go."""

    addr: 64
    length: LENGTH_BITS
    ends: 1
    head: 16
    written: LENGTH_BITS


class Assigned(data.Struct):
    """A frame for queue ``pair``, in so many ``pieces`` and ``chains``; ``drop``: for none.
    ``right``: see Found."""

    pair: PAIR_BITS
    right: 1
    length: LENGTH_BITS
    pieces: range(MOST + 1)
    chains: range(MOST + 1)
    drop: 1


class ReceiveBuffers(wiring.Component):
    """Keeps the buffers of each receive queue, and gives each frame those that it needs.

    Spec: Virtio 1.2, 5.1.6.3.1, 5.1.6.4 (a frame takes one chain, or with MRG_RXBUF several).
    Members: ``i`` buffers; ``gone``, ``gone_pair``, ``may``, ``asked``: see ChainSource;
    ``frame``: facts of frames; ``assigned`` what becomes of each, ``piece`` its pieces, all of
    which are there before; ``features`` negotiated; ``hold``: no frame is taken; ``idle``: no frame
    is at hand; ``forget`` (a cycle): the buffers of ``forget_pair`` are forgotten.
    ``drops`` counts frames without a buffer, or which do not fit into one: those keep it.
    Latency: 4 cycles for each buffer, and 3. Throughput: a frame in 6 cycles.
    Errors: a chain that was broken is forgotten. Reset: no buffers.
    """

    def __init__(self, *, config: NicConfig):
        self._pairs = config.network
        super().__init__(
            {
                "i": In(stream.Signature(Buffer)),
                "gone": In(1),
                "gone_pair": In(PAIR_BITS),
                "may": Out(self._pairs),
                "asked": In(self._pairs),
                "frame": In(stream.Signature(FRAME_FACTS)),
                "assigned": Out(stream.Signature(Assigned)),
                "piece": Out(stream.Signature(Piece)),
                "features": In(24),
                "hold": In(1),
                "idle": Out(1),
                "forget": In(1),
                "forget_pair": In(PAIR_BITS),
                "drops": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pairs, bits = self._pairs, ceil_log2(DEPTH)
        m.submodules.ram = ram = Ram(shape=_Waiting, depth=DEPTH * pairs)
        m.submodules.pieces = pieces = StreamFifo(shape=Piece, depth=PIECES)
        m.submodules.frames = frames = StreamFifo(shape=Assigned, depth=FRAMES)
        wiring.connect(m, pieces.o, wiring.flipped(self.piece))
        wiring.connect(m, frames.o, wiring.flipped(self.assigned))
        # Of each queue: the next buffer, the end of the last whole chain, the last buffer.
        start, committed, end = (
            Array(Signal(bits + 1, name=f"{name}{n}") for n in range(pairs))
            for name in ("start", "committed", "end")
        )
        asked = Array(Signal(bits + 1, name=f"asked{n}") for n in range(pairs))
        for n in range(pairs):
            held = Signal(bits + 2, name=f"held{n}", reset_less=True)
            gone = self.gone & (self.gone_pair == n)
            m.d.sync += [
                asked[n].eq(asked[n] + self.asked[n] - gone),
                held.eq((end[n] - start[n])[: bits + 1] + asked[n]),
                self.may[n].eq(held < DEPTH - 4),
            ]
        overlong = self._keep(m, ram, start, committed, end)
        dropped = self._assign(m, ram, start, committed)
        with m.If(dropped | overlong):
            increment(m, self.drops)
        with m.If(self.forget):
            for counts in (start, committed, end):
                m.d.sync += counts[self.forget_pair].eq(0)
        return m

    def _keep(self, m: Module, ram, start, committed, end) -> Value:
        """Buffers as they come; a chain counts when all of it is there. Returns whether a chain has
        been forgotten that is longer than there could be room for."""
        bits = ceil_log2(DEPTH)
        buffer, pair, row = self.i.payload, self.i.payload.pair, ram.write.row
        at, full, long = Signal(bits + 1), Signal(), Signal()
        over, loses = Signal(), Signal()  # the chain at hand is too long
        m.d.comb += [
            loses.eq(over | (full & (start[pair] == committed[pair]))),
            at.eq(end[pair]),
            full.eq((at ^ start[pair]) == DEPTH),
            self.i.ready.eq(~full | loses),
            long.eq(buffer.length[LENGTH_BITS:].any()),
            row.addr.eq(buffer.addr),
            row.length.eq(Cat(bit | long for bit in buffer.length[:LENGTH_BITS])),
            row.head.eq(buffer.head),
            row.last.eq(buffer.last),
            ram.write.index.eq(Cat(at[:bits], pair)),
            ram.write.enable.eq(self.i.valid & ~full & ~over),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += over.eq(loses & ~buffer.last)
            with m.If(buffer.broken | (loses & buffer.last)):
                m.d.sync += end[pair].eq(committed[pair])
            with m.Elif(loses):
                pass
            with m.Else():
                m.d.sync += end[pair].eq(at + 1)
                with m.If(buffer.last):
                    m.d.sync += committed[pair].eq(at + 1)
        return self.i.valid & loses & buffer.last

    def _assign(self, m: Module, ram, start, committed) -> Value:
        """Frames one after the other; returns whether one is dropped."""
        bits = ceil_log2(DEPTH)
        pieces, frames = m.submodules.pieces, m.submodules.frames
        pair, at = Signal(PAIR_BITS, reset_less=True), Signal(bits + 1, reset_less=True)
        rest, written = Signal(LENGTH_BITS, reset_less=True), Signal(LENGTH_BITS, reset_less=True)
        waiting, piece = Signal(_Waiting, reset_less=True), pieces.i.payload
        count, chains = frames.i.payload.pieces, frames.i.payload.chains
        number, chain_count = Signal.like(count), Signal.like(chains)
        there, fits, room = Signal(), Signal(), Signal(reset_less=True)
        right = Signal(reset_less=True)
        taken, skips = Signal(LENGTH_BITS), Signal()
        total = Signal(LENGTH_BITS, reset_less=True)
        mergeable = self.features[NetFeature.MRG_RXBUF]
        m.d.comb += [
            ram.read0.index.eq(Cat(at[:bits], pair)),
            there.eq(at != committed[pair]),
            fits.eq(waiting.length >= rest),
            taken.eq(Mux(fits, rest, waiting.length)),
            piece.addr.eq(waiting.addr),
            piece.length.eq(taken),
            piece.head.eq(waiting.head),
            piece.written.eq(written + taken),
            piece.ends.eq(fits | waiting.last),
            frames.i.payload.pair.eq(pair),
            frames.i.payload.right.eq(right),
            frames.i.payload.length.eq(total),
            count.eq(number),
            chains.eq(chain_count),
        ]
        m.d.sync += room.eq(pieces.level <= PIECES - MOST)
        with m.FSM(name="assign") as fsm:
            # IDLE: takes the next frame, when all its pieces have room; ends with it.
            with m.State("IDLE"):
                m.d.comb += self.frame.ready.eq(room & ~self.hold)
                m.d.sync += [
                    pair.eq(self.frame.payload.side.pair),
                    right.eq(self.frame.payload.side.right),
                    rest.eq(self.frame.payload.length + HEADER_BYTES),
                    total.eq(self.frame.payload.length + HEADER_BYTES),
                    written.eq(0),
                    number.eq(0),
                    chain_count.eq(0),
                    skips.eq(0),
                ]
                with m.If(self.frame.valid & self.frame.ready):
                    m.next = "FIRST"
            # FIRST: finds the first buffer that waits; one cycle.
            with m.State("FIRST"):
                m.d.sync += at.eq(start[pair])
                m.next = "READ"
            # READ: reads the next buffer, if there is one; one cycle.
            with m.State("READ"):
                m.d.comb += ram.read0.enable.eq(1)
                m.next = "KEEP"
                with m.If(~skips & (~there | (number == MOST))):
                    m.next = "DROP"
            # KEEP: keeps it; one cycle.
            with m.State("KEEP"):
                m.d.sync += [waiting.eq(ram.read0.row), at.eq(at + 1)]
                m.next = "TAKE"
            # TAKE: gives it what the frame has, up to the end of the frame and of the chain; ends
            # with either.
            with m.State("TAKE"):
                m.d.comb += pieces.i.valid.eq(~skips)
                m.d.sync += skips.eq(skips | fits)
                with m.If(~skips):
                    m.d.sync += [
                        number.eq(number + 1),
                        rest.eq(rest - taken),
                        written.eq(written + taken),
                    ]
                m.next = "READ"
                with m.If(waiting.last):
                    m.d.sync += [chain_count.eq(chain_count + 1), written.eq(0)]
                    with m.If(skips | fits):
                        m.next = "DONE"
                    with m.Elif(~mergeable):
                        m.next = "DROP"
            # DONE: the frame has its buffers, which are its own now; ends when that is told.
            with m.State("DONE"):
                m.d.comb += frames.i.valid.eq(1)
                with m.If(frames.i.ready):
                    m.d.sync += start[pair].eq(at)
                    m.next = "IDLE"
            # DROP: there is none for it, and those it would have had stay; ends when that is told.
            with m.State("DROP"):
                m.d.comb += [frames.i.valid.eq(1), frames.i.payload.drop.eq(1)]
                with m.If(frames.i.ready):
                    m.next = "IDLE"
        m.d.comb += self.idle.eq(fsm.ongoing("IDLE"))
        return fsm.ongoing("DROP") & frames.i.ready
