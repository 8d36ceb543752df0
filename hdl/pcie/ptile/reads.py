"""What must be known of reads on a bus whose block knows nothing of them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.config import NicConfig
from hdl.pcie.completions import place
from hdl.pcie.tags import PAGE_BITS, read_piece

__all__ = ["BLOCK_BITS", "MOST_BLOCKS", "ReadsInFlight"]

#: Address bits within the smallest completion (Read Completion Boundary).
BLOCK_BITS = 6
#: Blocks of 64 bytes that may be on their way: P-Tile's completion buffer has 2888 units of 16
#: bytes and 1144 headers, and tells the host that it is infinite. In the worst case each block is a
#: completion. Source: cocotbext-pcie's model, whose author has tried it on a card; UG683059 says
#: half as many units, each of 32 bytes.
MOST_BLOCKS = 2888 * 16 >> BLOCK_BITS
#: Blocks of the largest piece.
PIECE = 1 << (PAGE_BITS - BLOCK_BITS)


class ReadsInFlight(wiring.Component):
    """Lets a piece of a read pass when the block has room for all its completions, and knows where
    the next completion of each tag must begin.

    Members: ``i``, ``o``: pieces; ``may_ask`` In: the link partner takes a request; ``allowed`` In:
    the function of ``i`` may use the bus and this tag; a piece that may not is dropped, so its read
    ends by the timeout; ``asks`` Out: one leaves in this cycle; ``tag`` In and ``at`` Out: where
    the next completion of a tag begins, modulo 4 KiB, in the same cycle; ``moved`` In: what changes
    that; ``end`` In: the piece of ``tag`` is over.
    Latency: 0 cycles. Throughput: a piece a cycle. Errors: none.
    Reset: none in flight; nothing passes during the first ``read_tags`` cycles.
    """

    def __init__(self, *, config: NicConfig):
        self._tags = config.read_tags
        super().__init__(
            {
                "i": In(stream.Signature(read_piece())),
                "o": Out(stream.Signature(read_piece())),
                "may_ask": In(1),
                "allowed": In(1),
                "asks": Out(1),
                "tag": In(8),
                "at": Out(PAGE_BITS),
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
        blocks, fits = Signal(range(PIECE + 1)), Signal()
        room = Signal(range(MOST_BLOCKS + 1), init=MOST_BLOCKS)
        m.d.comb += [
            blocks.eq(self.i.p.stop[BLOCK_BITS:] - first + 1),
            fits.eq((room >= PIECE) & cleared),
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid & fits & self.may_ask & self.allowed),
            self.asks.eq(self.o.valid & self.o.ready),
            self.i.ready.eq(fits & Mux(self.allowed, self.o.ready & self.may_ask, 1)),
        ]
        # Written when a piece is asked for, and by its completions: a table of each.
        row = data.StructLayout({"at": PAGE_BITS, "blocks": blocks.shape()})
        m.submodules.asked = asked = memory.Memory(shape=row, depth=self._tags, init=[])
        m.submodules.progress = progress = memory.Memory(
            shape=data.StructLayout({"at": PAGE_BITS, "begun": 1}), depth=self._tags, init=[]
        )
        begin, found = asked.write_port(), asked.read_port(domain="comb")
        move, reached = progress.write_port(), progress.read_port(domain="comb")
        m.d.comb += [
            begin.en.eq(self.i.valid & self.i.ready),
            begin.addr.eq(self.i.p.tag),
            begin.data.at.eq(self.i.p.addr),
            begin.data.blocks.eq(blocks),
            move.en.eq(self.moved.valid | ~cleared),
            move.addr.eq(Mux(cleared, self.moved.p.tag, clear)),
            move.data.at.eq(self.moved.p.at),
            move.data.begun.eq(self.moved.p.begun & cleared),
            found.addr.eq(self.tag),
            reached.addr.eq(self.tag),
            self.at.eq(Mux(reached.data.begun, reached.data.at, found.data.at)),
        ]
        taken, given = Signal(blocks.shape()), Signal(blocks.shape())
        m.d.comb += [
            taken.eq(Mux(begin.en, blocks, 0)),
            given.eq(Mux(self.end, found.data.blocks, 0)),
        ]
        m.d.sync += room.eq(room - taken + given)
        return m
