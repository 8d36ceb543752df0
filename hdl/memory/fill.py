"""Lines of page lists as they come from host memory."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from hdl.ports.host import read_beat

__all__ = ["LineFill", "page_line"]


def page_line() -> data.StructLayout:
    """Eight entries of 53 bits: address 63:12, then "not a page address"; ``error``: not read."""
    return data.StructLayout({"entries": 8 * 53, "error": 1})


class LineFill(wiring.Component):
    """Collects the beats of 64-byte reads into lines.

    Members: ``rsp`` response stream of a read client, ``o`` stream of lines. The asker keeps no
    more than ``depth`` reads in flight or unfetched. Latency: 2 cycles from the last beat.
    Throughput: one beat per cycle. Errors: ``error`` of a read goes with its line.
    Reset: empty; no read may be in flight.
    """

    def __init__(self, *, width: int, depth: int):
        self._width, self._depth = width, depth
        super().__init__(
            {
                "rsp": In(stream.Signature(read_beat(width), always_ready=True)),
                "o": Out(stream.Signature(page_line())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        fifo = SyncFIFO(width=8 * 53 + 1, depth=self._depth)
        m.submodules.fifo = fifo
        gathered, error, done = Signal(512, reset_less=True), Signal(reset_less=True), Signal()
        beat = self.rsp.payload
        with m.If(self.rsp.valid):
            m.d.sync += [
                gathered.eq(Cat(gathered, beat.data)[-512:]),
                error.eq(beat.error),  # final on the last beat, which is the one that counts
            ]
        m.d.sync += done.eq(self.rsp.valid & beat.last)
        entries = []
        for n in range(8):
            address = gathered[64 * n : 64 * n + 64]
            entries += [address[12:], address[:12].any()]
        m.d.comb += [
            fifo.w_data.eq(Cat(*entries, error)),
            fifo.w_en.eq(done),
            self.o.valid.eq(fifo.r_rdy),
            self.o.payload.eq(fifo.r_data),
            fifo.r_en.eq(self.o.ready),
        ]
        return m
