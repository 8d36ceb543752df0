"""Frames between the core and a MAC of 100 Gb/s that keeps nobody waiting: AMD's CMAC.

The MAC (PG203, "AXI4-Stream Interface") adds and removes preamble and frame check sequence and
keeps the gap. It does not lengthen short frames: egress does that. Within a frame it wants a beat
whenever it is ready, and what it receives must be taken in each cycle.
"""

from amaranth.hdl import DomainRenamer, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.crossing import AsyncStreamFifo, CountCrossing
from hdl.common.packet import packet_beat, packet_stream

from .frame_fifo import FrameFifo
from .guards import TxGuard

__all__ = ["SLACK", "CmacCrossing", "FrameGate"]

#: Beats that may be on their way when a gate sees how full a FIFO is: its own register, two in the
#: FIFO's count, one in the comparison.
SLACK = 4


class FrameGate(wiring.Component):
    """Passes a frame whole or drops it whole: one that passes finds room for all its beats.

    Parameters: ``width`` in bits; ``beats`` of the longest frame; ``lossy``: a frame for which
    there is no room is dropped, and does not wait. Then ``i`` is ready in each cycle.
    Members: ``i``, ``o``; ``room`` In: behind ``o`` is room for ``beats`` beats more, so that
    ``o.ready`` need not be looked at; ``closed`` In: frames that begin are dropped; ``dropped``
    Out: one cycle for each frame that is dropped or cut.
    Latency: 1 cycle. Throughput: one beat per cycle.
    Errors: a frame of more than ``beats`` is cut there and ends with ``error``.
    Reset: between frames.
    """

    def __init__(self, *, width: int, beats: int, lossy: bool):
        if beats < 1:
            raise ValueError(f"Beats of the longest frame must be at least 1, not {beats!r}")
        self._width, self._beats, self._lossy = width, beats, lossy
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "o": Out(packet_stream(width)),
                "room": In(1),
                "closed": In(1),
                "dropped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        count = Signal(range(self._beats + 1))  # beats that have passed of the frame
        passes, starts = Signal(), Signal()
        fits = Signal()  # the frame may go on behind this beat
        m.d.comb += fits.eq(count != self._beats - 1)
        with m.FSM(name="gate"):
            # IDLE: between frames; ends with a first beat, by which its frame is decided.
            with m.State("IDLE"):
                m.d.comb += [
                    starts.eq(1),
                    passes.eq(self.room & ~self.closed),
                    self.i.ready.eq(self.room | self.closed | self._lossy),
                ]
                with m.If(self.i.valid & self.i.ready):
                    m.d.comb += self.dropped.eq(~passes | ~(fits | self.i.p.last))
                    with m.If(~self.i.p.last):
                        m.next = "DROP"
                        with m.If(passes & fits):
                            m.next = "PASS"
            # PASS: the frame passes; ends with its last beat, or with one too many.
            with m.State("PASS"):
                m.d.comb += [passes.eq(1), self.i.ready.eq(1)]
                with m.If(self.i.valid):
                    m.d.comb += self.dropped.eq(~(fits | self.i.p.last))
                    with m.If(self.i.p.last):
                        m.next = "IDLE"
                    with m.Elif(~fits):
                        m.next = "DROP"
            # DROP: the frame is dropped, or its rest; ends with its last beat.
            with m.State("DROP"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid & self.i.p.last):
                    m.next = "IDLE"
        taken = self.i.valid & passes
        ends = self.i.p.last | ~fits
        m.d.sync += self.o.valid.eq(taken)
        with m.If(taken):
            m.d.sync += [
                self.o.payload.eq(self.i.payload),
                self.o.p.first.eq(starts),
                self.o.p.last.eq(ends),
                self.o.p.error.eq((self.i.p.error & self.i.p.last) | (ends & ~self.i.p.last)),
                count.eq(count + 1),
            ]
            with m.If(ends):
                m.d.sync += count.eq(0)
        return m


class CmacCrossing(wiring.Component):
    """Takes frames from the core's clock to the MAC's two and back; loses none but whole.

    A frame goes to the MAC when all of it is in the MAC's clock, as the core may be slower and its
    frames may have gaps. Received frames find room for all their beats or are dropped.

    Parameters: ``width`` in bits; ``frame_bytes``: the longest frame; ``tx_beats``, ``rx_beats``:
    depth of the FIFOs, powers of two. The core's clock is ``sync``, those of the MAC are
    ``tx_domain`` and ``rx_domain``.
    Members: ``i``, ``o``: frames without FCS, in ``sync``; ``tx`` Out, in ``tx_domain``; ``rx`` In,
    in ``rx_domain``, ready in each cycle; ``tx_up`` In, in ``tx_domain``: the link carries frames;
    ``rx_up`` In, in ``rx_domain``: the receiver is aligned; ``tx_drops``, ``rx_drops`` Out, in
    ``sync``: frames that were dropped or cut, modulo 2**16.
    Latency: a frame is stored before it is sent; received ones take 6 to 7 cycles.
    Throughput: a beat per cycle of the slower clock.
    Errors: while ``tx_up`` is 0, frames are dropped, so that the core never waits for a link that
    is down. A frame that is being received when ``rx_up`` falls ends with ``error``, and so does
    one that is longer than ``frame_bytes``.
    Reset: of all domains together, with the MAC's own; no frame is left.
    """

    def __init__(
        self,
        *,
        width: int,
        frame_bytes: int,
        tx_beats: int = 256,
        rx_beats: int = 512,
        tx_domain: str = "mac_tx",
        rx_domain: str = "mac_rx",
    ):
        self._width, self._beats = width, -(-frame_bytes // (width // 8))
        for name, depth in (("tx_beats", tx_beats), ("rx_beats", rx_beats)):
            if depth < 2 * self._beats + SLACK:
                least = 2 * self._beats + SLACK
                raise ValueError(f"{name} must be at least {least} for two frames, not {depth!r}")
        self._depths = tx_beats, rx_beats
        self._tx, self._rx = tx_domain, rx_domain
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "o": Out(packet_stream(width)),
                "tx": Out(packet_stream(width)),
                "rx": In(packet_stream(width)),
                "tx_up": In(1),
                "rx_up": In(1),
                "tx_drops": Out(16),
                "rx_drops": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        gates = {"tx": (self._send(m), self._tx), "rx": (self._receive(m), self._rx)}
        for way, (gate, domain) in gates.items():
            count = CountCrossing(width=16, i_domain=domain, o_domain="sync")
            m.submodules[f"{way}_drop_count"] = count
            m.d.comb += [count.i.eq(gate.dropped), getattr(self, f"{way}_drops").eq(count.o)]
        return m

    def _send(self, m: Module) -> FrameGate:
        """From the core to the MAC: the gate keeps room for a frame in the store behind it."""
        width, depth = self._width, self._depths[0]
        m.submodules.to_mac = to_mac = AsyncStreamFifo(
            shape=packet_beat(width), i_domain="sync", o_domain=self._tx
        )
        gate = FrameGate(width=width, beats=self._beats, lossy=False)
        store = FrameFifo(width=width, depth=depth)
        m.submodules.tx_gate = DomainRenamer(self._tx)(gate)
        m.submodules.tx_store = DomainRenamer(self._tx)(store)
        connect(m, flipped(self.i), to_mac.i)
        connect(m, to_mac.o, gate.i)
        connect(m, gate.o, store.i)
        connect(m, store.o, flipped(self.tx))
        m.d.comb += gate.closed.eq(~self.tx_up)
        m.d[self._tx] += gate.room.eq(store.level <= depth - self._beats - SLACK)
        return gate

    def _receive(self, m: Module) -> FrameGate:
        """From the MAC to the core: the gate keeps room for a frame in the FIFO behind it."""
        width, depth = self._width, self._depths[1]
        guard = TxGuard(width=width)
        gate = FrameGate(width=width, beats=self._beats, lossy=True)
        m.submodules.rx_guard = DomainRenamer(self._rx)(guard)
        m.submodules.rx_gate = DomainRenamer(self._rx)(gate)
        m.submodules.from_mac = from_mac = AsyncStreamFifo(
            shape=packet_beat(width), depth=depth, i_domain=self._rx, o_domain="sync"
        )
        connect(m, flipped(self.rx), guard.i)
        connect(m, guard.o, gate.i)
        connect(m, gate.o, from_mac.i)
        connect(m, from_mac.o, flipped(self.o))
        m.d.comb += guard.source_reset.eq(~self.rx_up)
        m.d[self._rx] += gate.room.eq(from_mac.level <= depth - self._beats - SLACK)
        return gate
