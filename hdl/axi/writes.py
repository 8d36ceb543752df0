"""Host writes as AXI4 write bursts, or as interrupts."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.count import increment
from hdl.common.shift import lowest_lane
from hdl.common.skid import Skid
from hdl.config import NicConfig
from hdl.ports.host import edge_write_beat

from .bus import RESP_ERROR_BIT, Axi4Write, Burst
from .order import Fence
from .reads import ID_BITS

__all__ = ["TAKEN", "AxiWrites", "interrupt_shape"]

#: Bursts that are taken and have not got their address: those of the register slice.
TAKEN = 2
#: Interrupts that wait for writes before them.
INTERRUPTS = 16
PAGE_BITS = 12


def interrupt_shape(wires: int):
    """Number of an interrupt wire."""
    return range(max(2, wires))


class AxiWrites(wiring.Component):
    """Makes a burst of each burst of the host port; all have AWID 0, so they stay in order.

    Parameters: ``bursts``: the most without response; with 1 each waits for the response of the one
    before. ``cache``: AWCACHE. ``wires``: interrupt wires, 0 for none; ``window``: the page of
    addresses that means them: a write to ``window`` + 4 n becomes interrupt n and no AXI burst.

    Members: ``wr``: the host port; ``axi``; ``taken``:
    the first beat of a burst is taken in this cycle; ``done``: a response comes in this cycle;
    ``in_flight``: taken and not done; ``interrupt`` Out: numbers of wires, each after the responses
    of all bursts before it.
    Waits: for room among ``bursts`` responses, and for the slave. BREADY is always high.
    Latency: 2 cycles; a burst's address and its first beat appear in the same cycle. Throughput: a
    beat per cycle, also when each is a burst.
    Errors: SLVERR and DECERR are counted in ``errors``, which wraps: a posted write has nobody who
    waits for it. Interrupts beyond the wires are lost. Reset: idle.
    """

    def __init__(self, *, config: NicConfig, bursts: int, cache: int, wires: int, window: int):
        if not 1 <= bursts <= 256:
            raise ValueError(f"Write bursts must be 1 to 256, not {bursts!r}")
        if not 0 <= wires <= 1024:
            raise ValueError(f"Interrupt wires must be 0 to 1024, not {wires!r}")
        if window % (1 << PAGE_BITS) or not 0 <= window < 1 << 64:
            raise ValueError(f"The interrupt window must be at a page's address, not {window!r}")
        self._config, self._bursts, self._cache = config, bursts, cache
        self._wires, self._window = wires, window
        super().__init__(
            {
                "wr": In(stream.Signature(edge_write_beat(config.width))),
                "axi": Out(Axi4Write(config.width, ID_BITS)),
                "taken": Out(1),
                "done": Out(1),
                "in_flight": Out(range(bursts + TAKEN + 1)),
                "interrupt": Out(stream.Signature(interrupt_shape(wires))),
                "errors": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, count = self._config.width, self._config.bytes_per_beat
        lanes = ceil_log2(count)
        # ``final``: the burst's last byte, counted from its first one: here nothing else is late.
        size = ceil_log2(self._config.write_bytes)
        beat = data.StructLayout({"beat": edge_write_beat(width), "interrupt": 1, "final": size})
        address = data.StructLayout({"function": 8, "addr": 64, "beats": 8})
        word = data.StructLayout({"data": width, "strb": count, "last": 1})
        m.submodules.front = front = Skid(shape=beat)
        m.submodules.addresses = addresses = Skid(shape=address)
        m.submodules.words = words = Skid(shape=word)
        axi, offered, held = self.axi, self.wr.payload, front.o.payload

        hits = Signal()  # a write into the window of interrupts
        if self._wires:
            m.d.comb += hits.eq(offered.addr[PAGE_BITS:] == self._window >> PAGE_BITS)
        m.d.comb += [
            front.i.payload.beat.eq(offered),
            front.i.payload.interrupt.eq(hits),
            front.i.payload.final.eq(offered.length - 1),
            front.i.valid.eq(self.wr.valid),
            self.wr.ready.eq(front.i.ready),
            self.taken.eq(self.wr.valid & self.wr.ready & offered.first & ~hits),
            self.done.eq(axi.bvalid),
            axi.bready.eq(1),
        ]
        m.d.sync += self.in_flight.eq(self.in_flight + self.taken - self.done)

        issued = Signal(range(self._bursts + 1))  # bursts with an address and without response
        begins, space, free = Signal(), Signal(init=1), Signal()
        more = Signal.like(issued)
        m.d.comb += [
            begins.eq(addresses.i.valid & addresses.i.ready),
            more.eq(issued + begins - self.done),
            free.eq(words.i.ready & (~held.beat.first | (addresses.i.ready & space))),
            words.i.valid.eq(
                front.o.valid & ~held.interrupt & (~held.beat.first | (addresses.i.ready & space))
            ),
            addresses.i.valid.eq(
                front.o.valid & ~held.interrupt & held.beat.first & words.i.ready & space
            ),
        ]
        m.d.sync += [issued.eq(more), space.eq(more != self._bursts)]
        m.d.comb += front.o.ready.eq(free)
        if self._wires:
            noted = self._interrupts(m, front.o)
            with m.If(held.interrupt):
                m.d.comb += front.o.ready.eq(noted)

        last_byte = Signal(size + 1)  # counted from the beginning of the first beat
        m.d.comb += [
            last_byte.eq(lowest_lane(held.beat.strb) + held.final),
            addresses.i.payload.function.eq(held.beat.function),
            addresses.i.payload.addr.eq(held.beat.addr),
            addresses.i.payload.beats.eq(last_byte[lanes:]),
            words.i.payload.data.eq(held.beat.data),
            words.i.payload.strb.eq(held.beat.strb),
            words.i.payload.last.eq(held.beat.last),
        ]
        self._channels(m, addresses.o, words.o, lanes)
        with m.If(axi.bvalid & axi.bresp[RESP_ERROR_BIT]):
            increment(m, self.errors)
        return m

    def _channels(self, m: Module, addresses, words, lanes: int) -> None:
        """What the write channels say."""
        axi = self.axi
        m.d.comb += [
            axi.awvalid.eq(addresses.valid),
            addresses.ready.eq(axi.awready),
            axi.awaddr.eq(addresses.p.addr),
            axi.awlen.eq(addresses.p.beats),
            axi.awuser.eq(addresses.p.function),
            axi.awsize.eq(lanes),
            axi.awburst.eq(Burst.INCR),
            axi.awcache.eq(self._cache),
            axi.wvalid.eq(words.valid),
            words.ready.eq(axi.wready),
            axi.wdata.eq(words.p.data),
            axi.wstrb.eq(words.p.strb),
            axi.wlast.eq(words.p.last),
        ]

    def _interrupts(self, m: Module, beats):
        """Interrupts, held until the writes before them are done; returns whether one is taken."""
        shape = interrupt_shape(self._wires)
        m.submodules.fence = fence = Fence(
            shape=shape, depth=INTERRUPTS, bursts=self._bursts + TAKEN
        )
        held = beats.payload
        lane = lowest_lane(held.beat.strb)
        number = Cat(lane, held.beat.addr[len(lane) :])[2:PAGE_BITS]
        m.d.comb += [
            fence.i.valid.eq(beats.valid & held.interrupt & (number < self._wires)),
            fence.i.payload.eq(number),
            fence.taken.eq(self.taken),
            fence.done.eq(self.done),
        ]
        wiring.connect(m, fence.o, wiring.flipped(self.interrupt))
        return fence.i.ready
