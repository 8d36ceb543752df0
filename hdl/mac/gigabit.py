"""The whole MAC for gigabit Ethernet: the NIC's streams on one side, GMII on the other."""

from amaranth.hdl import DomainRenamer, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.count import increment
from hdl.common.crossing import AsyncStreamFifo, PulseCrossing
from hdl.common.packet import packet_beat, packet_stream

from .frame_fifo import FrameFifo
from .gmii import GmiiRx, GmiiTx
from .rgmii import Gmii

__all__ = ["GigabitMac", "Narrow", "Widen"]


class Narrow(wiring.Component):
    """Makes bytes of beats. Parameters: ``width`` in bits.

    Latency: 1 cycle. Throughput: a byte per cycle, without a gap while beats are there.
    Errors: ``error`` goes with the last byte. Reset: no beat is held.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__({"i": In(packet_stream(width)), "o": Out(packet_stream(8))})

    def elaborate(self, platform):
        m = Module()
        held, valid = Signal(packet_beat(self._width), reset_less=True), Signal()
        ends = ~held.keep[1]  # one byte is left
        free = Signal()
        m.d.comb += [
            free.eq(~valid | (ends & self.o.ready)),
            self.i.ready.eq(free),
            self.o.valid.eq(valid),
            self.o.p.data.eq(held.data[:8]),
            self.o.p.keep.eq(1),
            self.o.p.first.eq(held.first),
            self.o.p.last.eq(held.last & ends),
            self.o.p.error.eq(held.error & held.last & ends),
        ]
        with m.If(free):
            m.d.sync += [valid.eq(self.i.valid), held.eq(self.i.payload)]
        with m.Elif(self.o.ready):
            m.d.sync += [
                held.data.eq(held.data[8:]),
                held.keep.eq(held.keep[1:]),
                held.first.eq(0),
            ]
        return m


class Widen(wiring.Component):
    """Makes beats of bytes that come whether there is room or not.

    Parameters: ``width`` in bits. Members: ``i``: bytes, always taken; ``o``; ``lost`` Out: one
    cycle for each frame of which something found no room.
    Latency: 1 cycle behind the last byte of a beat. Throughput: a byte per cycle.
    Errors: a frame that has lost a beat ends with ``error``, or never appears; see ``lost``.
    Reset: between frames.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "i": In(stream.Signature(packet_beat(8), always_ready=True)),
                "o": Out(packet_stream(width)),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        octets = self._width // 8
        word = Signal(self._width, reset_less=True)
        count = Signal(range(octets))
        first = Signal()  # no beat of the frame has been complete yet
        begun = Signal()  # a beat of the frame has been passed on, so it must end
        losing = Signal()  # a beat of the frame has found no room: no other one is passed on
        ending = Signal()  # the end of such a frame waits for room
        now, keep = Signal(self._width), Signal(octets)
        complete, free, take = Signal(), Signal(), Signal()
        here_first = Mux(self.i.p.first, 1, first)
        m.d.comb += [
            now.eq(word),
            now.word_select(count, 8).eq(self.i.p.data),
            keep.eq((2 << count) - 1),
            complete.eq(self.i.valid & (self.i.p.last | (count == octets - 1))),
            free.eq(~self.o.valid | self.o.ready),
            take.eq(complete & free & ~ending & ~losing),
        ]
        with m.If(free):
            m.d.sync += [
                self.o.valid.eq(take | ending),
                self.o.p.data.eq(now),
                self.o.p.keep.eq(Mux(ending, 1, keep)),
                self.o.p.first.eq(here_first & ~ending),
                self.o.p.last.eq(self.i.p.last | ending),
                self.o.p.error.eq((self.i.p.last & self.i.p.error) | ending),
                ending.eq(0),
            ]
        with m.If(self.i.valid):
            m.d.sync += [word.eq(now), count.eq(Mux(complete, 0, count + 1))]
            m.d.sync += first.eq(here_first & ~complete)
        with m.If(complete):
            m.d.sync += [begun.eq((begun | take) & ~self.i.p.last)]
            m.d.sync += losing.eq(~take & ~self.i.p.last)
            with m.If(self.i.p.last & ~take):
                m.d.comb += self.lost.eq(1)
                with m.If(begun):
                    m.d.sync += ending.eq(1)
        return m


class GigabitMac(wiring.Component):
    """Frames of the NIC to GMII and back, between the core's clock and the PHY's two.

    Parameters: ``width`` in bits; ``frame_bytes``: the longest frame that is sent, which is stored
    before. The core's clock is ``sync``, those of the PHY are ``tx_domain`` and ``rx_domain``.
    Members: ``i``, ``o``: frames without FCS; ``tx`` Out, of ``tx_domain``; ``rx`` In, of
    ``rx_domain``; ``overruns`` Out: received frames that found no room, modulo 2**16.
    Latency: a frame is stored before it is sent; received ones take about 20 cycles.
    Throughput: that of the wire, if the core's beats come at 125 million bytes per second or more.
    Errors: see ``GmiiTx``, ``GmiiRx`` and ``Widen``.
    Reset: of the core and ``tx_domain`` together; that of ``rx_domain`` empties what has come.
    """

    def __init__(
        self,
        *,
        width: int,
        frame_bytes: int,
        tx_domain: str = "mac_tx",
        rx_domain: str = "mac_rx",
    ):
        if frame_bytes < width // 8:
            raise ValueError(f"Frame must be at least a beat, not {frame_bytes!r} bytes")
        self._width, self._tx, self._rx = width, tx_domain, rx_domain
        self._depth = 1 << ceil_log2(frame_bytes // (width // 8) + 2)
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "o": Out(packet_stream(width)),
                "tx": Out(Gmii()),
                "rx": In(Gmii()),
                "overruns": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, beat = self._width, packet_beat(self._width)
        m.submodules.store = store = FrameFifo(width=width, depth=self._depth)
        m.submodules.to_phy = to_phy = AsyncStreamFifo(
            shape=beat, i_domain="sync", o_domain=self._tx
        )
        narrow, sender = Narrow(width=width), GmiiTx()
        m.submodules.narrow = DomainRenamer(self._tx)(narrow)
        m.submodules.sender = DomainRenamer(self._tx)(sender)
        connect(m, flipped(self.i), store.i)
        connect(m, store.o, to_phy.i)
        connect(m, to_phy.o, narrow.i)
        connect(m, narrow.o, sender.i)
        receiver, widen = GmiiRx(), Widen(width=width)
        m.submodules.receiver = DomainRenamer(self._rx)(receiver)
        m.submodules.widen = DomainRenamer(self._rx)(widen)
        m.submodules.from_phy = from_phy = AsyncStreamFifo(
            shape=beat, i_domain=self._rx, o_domain="sync"
        )
        m.submodules.lost = lost = PulseCrossing(i_domain=self._rx, o_domain="sync")
        connect(m, receiver.o, widen.i)
        connect(m, widen.o, from_phy.i)
        connect(m, from_phy.o, flipped(self.o))
        m.d.comb += [
            self.tx.data.eq(sender.data),
            self.tx.en.eq(sender.en),
            self.tx.er.eq(sender.er),
            receiver.data.eq(self.rx.data),
            receiver.dv.eq(self.rx.en),
            receiver.er.eq(self.rx.er),
            lost.i.eq(widen.lost),
        ]
        with m.If(lost.o):
            increment(m, self.overruns)
        return m
