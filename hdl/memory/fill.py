"""Lines of page lists as they come from host memory."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_rdma import PAGE_SHIFTS
from hdl.common.contract import taken_at_once
from hdl.common.fifo import StreamFifo
from hdl.common.ram import BLOCK_ROWS
from hdl.ports.host import read_beat

__all__ = ["LineFill", "fetched_line", "is_bad", "odd_bits", "page_line", "pages_of"]


def fetched_line() -> data.StructLayout:
    """Eight entries of a page list. ``odd`` has a bit for each page size, and the entry is a
    multiple of those sizes up to which no bit is set; ``error``: not read."""
    return data.StructLayout(
        {
            "pages": data.ArrayLayout(64 - PAGE_SHIFTS[0], 8),
            "odd": data.ArrayLayout(len(PAGE_SHIFTS), 8),
            "error": 1,
        }
    )


def page_line() -> data.StructLayout:
    """Eight entries of 53 bits: address 63:12, then "not a page address"; ``error``: not read."""
    return data.StructLayout({"entries": 8 * 53, "error": 1})


def odd_bits(entry) -> list[Value]:
    """For each page size, whether bits of ``entry`` are set that only a smaller one may have."""
    return [entry[low:high].any() for low, high in pairwise((0, *PAGE_SHIFTS))]


def is_bad(odd, page_size) -> Value:
    """Whether an entry with these ``odd_bits`` is no multiple of ``page_size``."""
    return odd[0] | (odd[1] & page_size.any()) | (odd[2] & page_size[1])


def pages_of(line, page_size) -> Value:
    """A ``fetched_line`` as a ``page_line`` of a region with pages of ``page_size``."""
    entries = []
    for page, odd in zip(line.pages, line.odd):
        entries += [page, is_bad(odd, page_size)]
    return Cat(*entries, line.error)


class LineFill(wiring.Component):
    """Collects the beats of 64-byte reads into lines.

    Members: ``rsp`` response stream of a read client, ``o`` stream of ``fetched_line``. The asker
    keeps no more than ``BLOCK_ROWS`` reads in flight or unfetched. Latency: 3 cycles from the last
    beat. Throughput: one beat per cycle. Errors: ``error`` of a read goes with its line.
    Reset: empty; no read may be in flight.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "rsp": In(stream.Signature(read_beat(width), always_ready=True)),
                "o": Out(stream.Signature(fetched_line())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = StreamFifo(shape=fetched_line(), depth=BLOCK_ROWS)
        connect(m, fifo.o, flipped(self.o))
        gathered, error, done = Signal(512, reset_less=True), Signal(reset_less=True), Signal()
        beat = self.rsp.payload
        with m.If(self.rsp.valid):
            m.d.sync += [
                gathered.eq(Cat(gathered, beat.data)[-512:]),
                error.eq(beat.error),  # final on the last beat, whose value is used
            ]
        m.d.sync += done.eq(self.rsp.valid & beat.last)
        for n in range(8):
            address = gathered[64 * n : 64 * n + 64]
            m.d.comb += fifo.i.p.pages[n].eq(address[PAGE_SHIFTS[0] :])
            for size, odd in enumerate(odd_bits(address)):
                m.d.comb += fifo.i.p.odd[n][size].eq(odd)
        m.d.comb += [
            fifo.i.payload.error.eq(error),
            fifo.i.valid.eq(done),
        ]
        taken_at_once(m, platform, fifo.i, "there is room for each line that was asked for")
        return m
