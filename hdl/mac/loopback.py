"""Frames that the card sends to itself: they turn round in front of the MAC."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.count import increment
from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_beat, packet_stream
from hdl.config import NicConfig
from hdl.wire.constants import ICRC_BYTES, MAX_PAD, bth_offset
from hdl.wire.headers import BTH
from hdl.wire.opcodes import max_extended

from .frame_fifo import FrameFifo

__all__ = ["Loopback", "frame_beats"]

#: Bytes of a frame beside its payload and its extended headers: headers, pad and ICRC.
HEADER_BYTES = bth_offset(vlan=True, ipv6=True) + BTH.size + MAX_PAD + ICRC_BYTES
#: Beats that are held for longer than a frame turns round, with a margin.
MARGIN = 4


def frame_beats(config: NicConfig) -> int:
    """Return how many beats the longest frame of a card has."""
    longest = config.mtu + HEADER_BYTES + max_extended(config)
    return -(-longest // config.bytes_per_beat)


def _depth(beats: int) -> int:
    """Return the power of two that holds as many beats."""
    return 1 << (beats - 1).bit_length()


class Loopback(wiring.Component):
    """Sends frames to the MAC or back to the core, whose own frames join those of the wire.

    Members: ``sent`` In: frames of the core; ``local`` In: the frame at ``sent`` goes to the card
    itself; ``group`` In: it goes to a multicast group (``TxGuard``), so to the MAC, and to the card
    itself if there is room. ``mac_tx`` Out, ``mac_rx`` In: the MAC. ``received`` Out: frames to the
    core. ``packets`` Out: frames that have turned round alone; ``copies`` Out: those that went to
    the MAC as well; ``drops`` Out: those to groups that had no room to turn round.

    A frame that turns round is stored whole first, so it never makes the wire wait for the host.
    While it goes into the core, beats from the wire are held, and go on behind it. The next one
    does not begin before, so there is room for all that comes, and the MAC need not wait.
    Latency: 0 cycles between the core and the MAC; 3 cycles behind a local frame's last beat.
    Throughput: one beat per cycle each way. The wire and local frames share the core's input. It
    takes more than the wire brings, and local frames have what is left.
    Errors: none of its own; ``error`` of a frame that a reset has cut goes on to the core. A local
    frame waits as long as the core takes nothing, and what is sent behind it waits too.
    Reset: empty. A device reset does not reset it: a frame from before arrives after it, as one
    from the wire does.
    """

    def __init__(self, *, config: NicConfig):
        self._width = width = config.width
        self._frame = frame_beats(config)
        super().__init__(
            {
                "sent": In(packet_stream(width)),
                "local": In(1),
                "group": In(1),
                "mac_tx": Out(packet_stream(width)),
                "mac_rx": In(packet_stream(width)),
                "received": Out(packet_stream(width)),
                "packets": Out(32),
                "copies": Out(32),
                "drops": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = _depth(2 * self._frame)
        m.submodules.store = store = FrameFifo(width=self._width, depth=depth)
        # A copy is made of a frame that the store holds whole, so the MAC never waits for it.
        copied, copies, room = Signal(), Signal(), Signal()
        taken = self.sent.valid & self.sent.ready
        m.d.comb += [
            room.eq(store.level <= depth - self._frame),
            copies.eq(self.group & ~self.local & Mux(self.sent.p.first, room, copied)),
            store.i.payload.eq(self.sent.payload),
            store.i.valid.eq(Mux(self.local, self.sent.valid, taken & copies)),
            self.mac_tx.payload.eq(self.sent.payload),
            self.mac_tx.valid.eq(self.sent.valid & ~self.local),
        ]
        with m.If(self.local):
            m.d.comb += self.sent.ready.eq(store.i.ready)
        with m.Else():
            m.d.comb += self.sent.ready.eq(self.mac_tx.ready)
        with m.If(taken):
            m.d.sync += copied.eq(copies)
        with m.If(taken & self.sent.p.last):
            with m.If(self.local):
                increment(m, self.packets)
            with m.Elif(copies):
                increment(m, self.copies)
            with m.Elif(self.group):
                increment(m, self.drops)
        self._join(m, store.o)
        return m

    def _join(self, m: Module, local) -> None:
        """Frames of the wire and of the card itself, whole, one after the other."""
        depth = _depth(self._frame + MARGIN)
        m.submodules.held = held = StreamFifo(shape=packet_beat(self._width), depth=depth)
        turned = Signal()  # a local frame is on its way into the core
        waits = Signal()  # beats of the wire are held
        inside = Signal()  # a frame of the wire has begun to go into the core
        wire, o = flipped(self.mac_rx), self.received
        m.d.comb += waits.eq(held.level != 0)
        with m.If(turned):
            connect(m, local, flipped(o))
        with m.Elif(waits):
            connect(m, held.o, flipped(o))
        with m.Else():
            connect(m, wire, flipped(o))
        # Whole frames follow one another, so a register knows a first beat before the RAM shows it.
        begins = Signal(init=1)
        with m.If(turned | waits):
            connect(m, wire, held.i)
            m.d.comb += o.p.first.eq(begins)
        passes = o.valid & o.ready
        with m.If(passes):
            m.d.sync += begins.eq(o.p.last)
        with m.If(turned):
            with m.If(passes & o.p.last):
                m.d.sync += turned.eq(0)
        with m.Else():
            with m.If(passes):
                m.d.sync += inside.eq(~o.p.last)
            # Between two frames: what comes from the wire in the next cycle is held.
            ends = Mux(passes, wire.p.last, ~inside & ~o.valid)
            with m.If(local.valid & ~waits & ends):
                m.d.sync += turned.eq(1)
