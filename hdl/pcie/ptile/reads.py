"""What must be known of reads on a bus whose block knows nothing of them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.config import NicConfig
from hdl.pcie.completions import place, rest
from hdl.pcie.tags import PAGE_BITS, read_piece

__all__ = ["BLOCK_BITS", "MOST_BLOCKS", "ReadsInFlight"]

#: Address bits within the smallest completion (Read Completion Boundary).
BLOCK_BITS = 6
#: Blocks of 64 bytes that may be on their way: P-Tile's completion buffer has 2888 units of 16
#: bytes and 1144 headers, and tells the host that it is infinite. In the worst case each block is a
#: completion. Source: cocotbext-pcie's model, whose author has tried it on a card; UG683059 says
#: half as many units, each of 32 bytes.
MOST_BLOCKS = 2888 * 16 >> BLOCK_BITS


class ReadsInFlight(wiring.Component):
    """Lets a piece of a read pass when the block has room for all its completions, and knows what
    is left of each tag's piece.

    Members: ``i``, ``o``: pieces; ``may_ask`` In: the link partner takes a request; ``allowed`` In:
    the function of ``i`` may use the bus and this tag; a piece that may not is dropped, so its read
    ends by the timeout; ``asks`` Out: one leaves in this cycle; ``tag`` In and ``at`` Out: what
    is left of a tag's piece, in the same cycle; ``moved`` In: what changes that; ``end`` In: the
    piece of ``tag`` is over.
    Latency: 0 cycles. Throughput: a piece a cycle. Errors: none.
    Reset: none in flight; nothing passes during the first ``read_tags`` cycles.
    """

    def __init__(self, *, config: NicConfig):
        self._tags = config.read_tags
        self._most = (config.read_bytes - 1 >> BLOCK_BITS) + 2  # blocks of a piece
        super().__init__(
            {
                "i": In(stream.Signature(read_piece())),
                "o": Out(stream.Signature(read_piece())),
                "may_ask": In(1),
                "allowed": In(1),
                "asks": Out(1),
                "tag": In(8),
                "at": Out(rest()),
                "moved": In(stream.Signature(place(), always_ready=True)),
                "end": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self._tags)
        clear, cleared = Signal(bits + 1), Signal()
        m.d.comb += cleared.eq(clear[bits])
        with m.If(~cleared):
            m.d.sync += clear.eq(clear + 1)

        first = self.i.p.addr[BLOCK_BITS:PAGE_BITS]
        blocks, fits = Signal(range(self._most + 1)), Signal()
        room = Signal(range(MOST_BLOCKS + 1), init=MOST_BLOCKS)
        m.d.comb += [
            blocks.eq(self.i.p.stop[BLOCK_BITS:] - first + 1),
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid & fits & self.may_ask & self.allowed),
            self.asks.eq(self.o.valid & self.o.ready),
            self.i.ready.eq(fits & Mux(self.allowed, self.o.ready & self.may_ask, 1)),
        ]
        # Two pieces may pass before ``fits`` knows of them.
        m.d.sync += fits.eq((room >= 3 * self._most) & cleared)
        over = self._tables(m, clear, cleared, blocks)
        taken, given = Signal(blocks.shape()), Signal(blocks.shape())
        m.d.sync += [
            taken.eq(Mux(self.i.valid & self.i.ready, blocks, 0)),
            given.eq(Mux(self.end, over, 0)),
            room.eq(room - taken + given),
        ]
        return m

    def _tables(self, m: Module, clear, cleared, blocks):
        """One table that is written when a piece is asked for, and one by its completions; returns
        the blocks of the piece of ``tag``."""
        row = data.StructLayout({"rest": rest(), "blocks": blocks.shape()})
        moved = data.StructLayout({"rest": rest(), "begun": 1})
        m.submodules.asked = asked = memory.Memory(shape=row, depth=self._tags, init=[])
        m.submodules.progress = progress = memory.Memory(shape=moved, depth=self._tags, init=[])
        begin, found = asked.write_port(), asked.read_port(domain="comb")
        move, reached = progress.write_port(), progress.read_port(domain="comb")
        piece = self.i.payload
        m.d.comb += [
            begin.en.eq(self.i.valid & self.i.ready),
            begin.addr.eq(piece.tag),
            begin.data.rest.low.eq(piece.addr),
            begin.data.rest.bytes.eq(piece.stop - piece.addr[:PAGE_BITS] + 1),
            begin.data.blocks.eq(blocks),
            move.en.eq(self.moved.valid | ~cleared),
            move.addr.eq(Mux(cleared, self.moved.p.tag, clear)),
            move.data.rest.eq(self.moved.p.rest),
            move.data.begun.eq(self.moved.p.begun & cleared),
            found.addr.eq(self.tag),
            reached.addr.eq(self.tag),
            self.at.eq(Mux(reached.data.begun, reached.data.rest, found.data.rest)),
        ]
        return found.data.blocks
