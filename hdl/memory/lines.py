"""Reads of the cache lines of page lists, over one level of the list or two."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.abi.virtio_rdma import PAGE_ENTRY_SIZE, TABLE_PAGE_SIZE
from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, read_beat

__all__ = ["LineReads", "LineRequest"]

#: log2 of the bytes of an entry, of a line, and of a page of the second level.
ENTRY_BITS, LINE_BITS, TABLE_PAGE_BITS = map(ceil_log2, (PAGE_ENTRY_SIZE, 64, TABLE_PAGE_SIZE))


class LineRequest(data.Struct):
    """A line of a page list. One level: it is ``block``, and ``entry`` is 0. Two: the entry
    ``entry`` of ``block`` is the address of a page of the list, and the line is that page's line
    ``line``."""

    function: 8
    two_level: 1
    block: 58  # bus address / 64
    entry: 3
    line: 6


class LineReads(wiring.Component):
    """Reads lines in order; a line of a list of two levels takes two reads, one after the other.

    The first levels of several lines are read at a time. A line behind one that waits for its first
    level waits too, because lines come in the order of their requests. With lists of one level
    alone nothing waits here.
    Parameters: ``most``: lines on their way at a time; the asker keeps to it.
    Members: ``i`` stream of LineRequest; ``read_client``; ``rsp`` the beats of the lines, in order,
    without those of first levels.
    Latency: a request is issued in the cycle after it was taken; the second of two 3 cycles after
    the answer of the first. Throughput: a read in two cycles. A card without ``two_level`` has
    the first of these alone.
    Errors: an entry of the first level that could not be read, or is no multiple of 4 KiB, gives a
    line with ``error``. Nothing is read at an address that it holds; it is read once more, for a
    response in the place of the line's. Reset: no line is on its way.
    """

    def __init__(self, *, config: NicConfig, most: int):
        self._config, self._most = config, most
        super().__init__(
            {
                "i": In(stream.Signature(LineRequest)),
                "read_client": Out(ReadClient(config.width)),
                "rsp": Out(stream.Signature(read_beat(config.width), always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, answer = self.read_client.req, self.read_client.rsp
        m.d.comb += [self.rsp.valid.eq(answer.valid), self.rsp.payload.eq(answer.payload)]
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        if self._config.two_level:
            self._two_levels(m)
        else:
            m.d.comb += self.i.ready.eq(~request.valid | request.ready)
            with m.If(self.i.valid & self.i.ready):
                self._issue(m, self.i.payload, self._entry(self.i.payload), Const(0))
        return m

    def _issue(self, m: Module, line, addr, short) -> None:
        """Ask for a line, or for an entry (``short``)."""
        request = self.read_client.req
        length = Cat(Const(0, ENTRY_BITS), short, Const(0, LINE_BITS - ENTRY_BITS - 1), ~short)
        m.d.sync += [
            request.valid.eq(1),
            request.p.function.eq(line.function),
            request.p.addr.eq(addr),
            request.p.length.eq(length),
        ]

    def _entry(self, line) -> Value:
        """The address of an entry of the first level, or of a line of the only level."""
        return Cat(Const(0, ENTRY_BITS), line.entry, line.block)

    def _two_levels(self, m: Module) -> None:
        """What is asked for in which order, and what each answer is for."""
        request, answer, new = self.read_client.req, self.read_client.rsp, self.i.payload
        # Lines that wait for their read, what first levels have said, what answers to come are for:
        # the asker's limit keeps all of them from being full.
        first = data.StructLayout({"page": 64 - TABLE_PAGE_BITS, "bad": 1})
        m.submodules.waiting = waiting = StreamFifo(shape=LineRequest, depth=self._most)
        m.submodules.firsts = firsts = StreamFifo(shape=first, depth=self._most)
        m.submodules.kinds = kinds = SyncFIFO(width=2, depth=self._most)
        # The line whose turn is next is in a register, because the output of a RAM is late.
        line, held, free, goes, takes = (
            Signal(LineRequest, reset_less=True),
            Signal(),
            Signal(),
            Signal(),
            Signal(),
        )
        straight, found, bad = Signal(), firsts.o.payload, Signal()
        m.d.comb += [
            free.eq(~request.valid | request.ready),
            goes.eq(held & (~line.two_level | firsts.o.valid)),
            bad.eq(line.two_level & found.bad),
            self.i.ready.eq(free & ~goes),
            takes.eq(self.i.valid & self.i.ready),
            straight.eq(~new.two_level & ~held & (waiting.level == 0)),
            waiting.i.valid.eq(takes & ~straight),
            waiting.i.payload.eq(new),
            waiting.o.ready.eq(~held),
            firsts.o.ready.eq(free & goes & line.two_level),
        ]
        with m.If(~held):
            m.d.sync += [line.eq(waiting.o.payload), held.eq(waiting.o.valid)]
        with m.Elif(goes & free):
            m.d.sync += held.eq(0)

        named = Cat(Const(0, LINE_BITS), line.line, found.page)
        entry = ~line.two_level | bad
        with m.If(goes & free):
            m.d.comb += [kinds.w_en.eq(1), kinds.w_data.eq(Cat(Const(0, 1), bad))]
            self._issue(m, line, Mux(entry, self._entry(line), named), bad)
        with m.Elif(takes & (new.two_level | straight)):
            m.d.comb += [kinds.w_en.eq(1), kinds.w_data.eq(new.two_level)]
            self._issue(m, new, self._entry(new), new.two_level)

        is_first, is_bad = Signal(), Signal()
        m.d.comb += [
            Cat(is_first, is_bad).eq(kinds.r_data),
            kinds.r_en.eq(answer.valid & answer.p.last),
            self.rsp.valid.eq(answer.valid & ~is_first),
            self.rsp.p.error.eq(answer.p.error | is_bad),
            firsts.i.valid.eq(answer.valid & is_first),
            firsts.i.p.page.eq(answer.p.data[TABLE_PAGE_BITS:64]),
            firsts.i.p.bad.eq(answer.p.error | answer.p.data[:TABLE_PAGE_BITS].any()),
        ]
