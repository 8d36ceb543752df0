"""Host reads one behind the other: many in flight, room for their data reserved before."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.address import add_high, add_low
from hdl.common.contract import require, taken_at_once
from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.host import ReadClient

from .types import MOST_READ, BlockRead, FlowRead

__all__ = ["ReadFlow", "flow_beat"]


def flow_beat(width: int) -> data.StructLayout:
    """A beat of a read, byte 0 in lane 0; ``error`` is valid on ``last``. ``width``: of the data
    that are kept, which of a read that is shorter than a beat is its ``size``."""
    return data.StructLayout({"data": width, "last": 1, "error": 1})


class ReadFlow(wiring.Component):
    """Reads of 1 to ``size`` bytes, any number of them in flight, data in the order of requests.

    Parameters: ``size``: most bytes of a read; ``reads``: how many of that size have room at a
    time, at least; more if they are shorter; ``offsets``: requests have one, else it is taken for
    0, which saves the cycle that adds it; ``bypass``: data that somebody waits for pass at once,
    else in 2 cycles, which saves a multiplexer as wide as a beat; ``kept``: the bits of a beat that
    are given, in this order, instead of its first ones.
    Members: ``i`` requests; ``o`` beats: who waits for some keeps ``ready`` until the ``last``.
    Latency: 2 cycles to the read client, 1 without ``offsets``; from its response to ``o`` none if
    somebody waits there (with ``bypass``), else 2.
    Throughput: a request every third cycle, second without ``offsets``; a beat a cycle. A request
    waits until there is room for its data, so ``o`` may wait as long as it likes.
    Reset: empty; nothing may be in flight.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        size: int,
        reads: int,
        offsets: bool = True,
        bypass: bool = True,
        kept: tuple[int, ...] | None = None,
    ):
        if not 2 <= size <= MOST_READ:
            raise ValueError(f"Size must be 2 to {MOST_READ} bytes, not {size!r}")
        if reads < 1:
            raise ValueError(f"Reads must be at least 1, not {reads!r}")
        self._lanes = config.width // 8
        self._kept = kept
        self._beat = flow_beat(len(kept) if kept else min(config.width, 8 * size))
        self._most = -(-size // self._lanes)  # beats of a read
        self._depth = 1 << ceil_log2(max(2, reads * self._most))
        self._offsets, self._bypass = offsets, bypass
        super().__init__(
            {
                "i": In(stream.Signature(FlowRead)),
                "o": Out(stream.Signature(self._beat)),
                "read_client": Out(ReadClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        client, lanes = self.read_client, self._lanes
        if self._bypass:
            beats = StreamFifo(shape=self._beat, depth=self._depth, bypass="last")
        else:
            # What its user decides by is not as late as the data, which may lie in a block RAM.
            beats = StreamFifo(shape=len(self.o.payload.data), depth=self._depth)
            m.submodules.ends = ends = StreamFifo(shape=2, depth=self._depth)
        m.submodules.beats = beats
        held, request = Signal(), Signal(BlockRead, reset_less=True)
        carry = Signal()  # into the upper bits of the address
        count = Signal(range(self._depth + 1), reset_less=True)  # beats of the request held
        room = Signal(range(self._depth + 1), init=self._depth)
        popped = Signal()
        # ``fits``: the request held may go. ``issued``: ``room`` still counts the last one's beats.
        fits, issue, issued = Signal(), Signal(), Signal()
        ample = Signal()  # room for two of the largest, but for the one issued now
        m.d.comb += [
            self.i.ready.eq(~held),
            client.req.valid.eq(fits),
            client.req.payload.function.eq(request.function),
            client.req.payload.addr.eq(request.addr),
            client.req.payload.length.eq(request.length),
            issue.eq(client.req.valid & client.req.ready),
            beats.i.valid.eq(client.rsp.valid),
            self.o.valid.eq(beats.o.valid),
            beats.o.ready.eq(self.o.ready),
        ]
        response, given = client.rsp.payload, self.o.payload
        wanted = Cat(response.data[bit] for bit in self._kept) if self._kept else response.data
        if self._bypass:
            m.d.comb += [
                beats.i.payload.data.eq(wanted),
                beats.i.payload.last.eq(response.last),
                beats.i.payload.error.eq(response.error),
            ]
            m.d.comb += given.eq(beats.o.payload)
        else:
            m.d.comb += [
                beats.i.payload.eq(wanted),
                ends.i.valid.eq(client.rsp.valid),
                ends.i.payload.eq(Cat(response.last, response.error)),
                ends.o.ready.eq(self.o.ready),
                given.data.eq(beats.o.payload),
                Cat(given.last, given.error).eq(ends.o.payload),
            ]
        with m.If(~held):
            m.d.sync += [
                held.eq(self.i.valid),
                request.function.eq(self.i.payload.function),
                request.length.eq(self.i.payload.length),
                count.eq((self.i.payload.length + (lanes - 1)) >> ceil_log2(lanes)),
                fits.eq(0),
            ]
            if self._offsets:
                add_low(m, request.addr, carry, self.i.payload.addr, self.i.payload.offset)
            else:
                m.d.sync += [request.addr.eq(self.i.payload.addr), fits.eq(self.i.valid & ample)]
        with m.Else():
            if self._offsets:
                add_high(m, request.addr, carry)
            # Room only grows until the request has gone.
            m.d.sync += fits.eq(room >= count)
        with m.If(issue):
            m.d.sync += [held.eq(0), fits.eq(0)]
        # Behind a request the next comes a cycle later, and is looked at in the one after.
        m.d.sync += [
            issued.eq(issue),
            popped.eq(beats.o.valid & beats.o.ready),
            room.eq(room - Mux(issued, count, 0) + popped),
            ample.eq(room >= 2 * self._most),
        ]
        taken_at_once(m, platform, beats.i, "there is room for all data that were asked for")
        require(m, platform, room <= self._depth, "no more room comes free than there is")
        return m
