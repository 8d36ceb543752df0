"""What must be known of reads on a bus whose block knows nothing of them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.config import NicConfig
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
    """Lets a piece of a read pass when the block has room for all its completions.

    Members: ``i``, ``o``: pieces; ``may_ask`` In: the link partner takes a request; ``asks`` Out:
    one leaves in this cycle; ``end`` In: the piece of ``tag`` In is over.
    Latency: 0 cycles. Throughput: a piece a cycle. Errors: none.
    Reset: none in flight.
    """

    def __init__(self, *, config: NicConfig):
        self._tags = config.read_tags
        self._most = (config.read_bytes - 1 >> BLOCK_BITS) + 2  # blocks of a piece
        super().__init__(
            {
                "i": In(stream.Signature(read_piece())),
                "o": Out(stream.Signature(read_piece())),
                "may_ask": In(1),
                "asks": Out(1),
                "tag": In(8),
                "end": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        first = self.i.p.addr[BLOCK_BITS:PAGE_BITS]
        blocks, fits = Signal(range(self._most + 1)), Signal()
        room = Signal(range(MOST_BLOCKS + 1), init=MOST_BLOCKS)
        m.d.comb += [
            blocks.eq(self.i.p.stop[BLOCK_BITS:] - first + 1),
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid & fits & self.may_ask),
            self.asks.eq(self.o.valid & self.o.ready),
            self.i.ready.eq(fits & self.may_ask & self.o.ready),
        ]
        # Two pieces may pass before ``fits`` knows of them.
        m.d.sync += fits.eq(room >= 3 * self._most)
        m.submodules.asked = asked = memory.Memory(shape=blocks.shape(), depth=self._tags, init=[])
        begin, found = asked.write_port(), asked.read_port(domain="comb")
        m.d.comb += [
            begin.en.eq(self.i.valid & self.i.ready),
            begin.addr.eq(self.i.p.tag),
            begin.data.eq(blocks),
            found.addr.eq(self.tag),
        ]
        taken, given = Signal(blocks.shape()), Signal(blocks.shape())
        m.d.sync += [
            taken.eq(Mux(self.i.valid & self.i.ready, blocks, 0)),
            given.eq(Mux(self.end, found.data, 0)),
            room.eq(room - taken + given),
        ]
        return m
