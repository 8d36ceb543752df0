"""Lines of page lists as they come from host memory."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.fifo import StreamFifo
from hdl.common.ram import BLOCK_ROWS
from hdl.ports.host import read_beat

__all__ = ["LineFill", "page_line"]


def page_line() -> data.StructLayout:
    """Eight entries of 53 bits: address 63:12, then "not a page address"; ``error``: not read."""
    return data.StructLayout({"entries": 8 * 53, "error": 1})


class LineFill(wiring.Component):
    """Collects the beats of 64-byte reads into lines.

    Members: ``rsp`` response stream of a read client, ``o`` stream of lines. The asker keeps no
    more than ``BLOCK_ROWS`` reads in flight or unfetched. Latency: 3 cycles from the last beat.
    Throughput: one beat per cycle. Errors: ``error`` of a read goes with its line.
    Reset: empty; no read may be in flight.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "rsp": In(stream.Signature(read_beat(width), always_ready=True)),
                "o": Out(stream.Signature(page_line())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = StreamFifo(shape=page_line(), depth=BLOCK_ROWS)
        connect(m, fifo.o, flipped(self.o))
        gathered, error, done = Signal(512, reset_less=True), Signal(reset_less=True), Signal()
        beat = self.rsp.payload
        with m.If(self.rsp.valid):
            m.d.sync += [
                gathered.eq(Cat(gathered, beat.data)[-512:]),
                error.eq(beat.error),  # final on the last beat, whose value is used
            ]
        m.d.sync += done.eq(self.rsp.valid & beat.last)
        entries = []
        for n in range(8):
            address = gathered[64 * n : 64 * n + 64]
            entries += [address[12:], address[:12].any()]
        m.d.comb += [
            fifo.i.payload.entries.eq(Cat(*entries)),
            fifo.i.payload.error.eq(error),
            fifo.i.valid.eq(done),
        ]
        return m
