"""The border between core and MAC: guards and loopback."""

from amaranth.hdl import Module, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.packet import packet_stream
from hdl.config import NicConfig
from hdl.ports.trace import TracePort, Verdict

from .guards import RxGuard, TxGuard
from .loopback import Loopback
from .merge import FrameMerge
from .trace import Trace

__all__ = ["LOOPBACK_COUNTERS", "MacBorder"]

#: What the loopback counts.
LOOPBACK_COUNTERS = ("loopback_packets", "loopback_copies", "loopback_drops")


class MacBorder(wiring.Component):
    """Lets whole frames pass between core and MAC, and turns round those to the card itself.

    Members: ``sent`` In, ``received`` Out: the core. ``mac_tx`` Out, ``mac_rx`` In: the MAC.
    ``mac_address``: of the card (raw bytes). ``loopback``: frames to that address turn round; a
    card without the switch ignores it. ``groups``: the card has members of multicast groups, so
    frames to groups turn round too, beside their way to the wire. ``core_reset``: a device reset
    holds the core in reset. ``LOOPBACK_COUNTERS`` Out: frames that have turned round. Of a card
    with a trace, ``verdict`` and ``trace`` In: see ``Trace``. What turns round is in it both ways.
    Of a card with a network function, ``network`` In: its frames, which join those to the MAC
    (``FrameMerge``); they do not turn round, nor are they in the trace, and no ``core_reset`` cuts
    one.
    Latency: 1 cycle from ``sent``, 0 to ``received``. Throughput: one beat per cycle each way.
    Errors, reset: see ``TxGuard``, ``RxGuard``, ``Loopback``.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        width = config.width
        super().__init__(
            {
                "sent": In(packet_stream(width)),
                "received": Out(packet_stream(width)),
                "mac_tx": Out(packet_stream(width)),
                "mac_rx": In(packet_stream(width)),
                "mac_address": In(48),
                "loopback": In(1),
                "groups": In(1),
                "core_reset": In(1),
            }
            | {name: Out(32) for name in LOOPBACK_COUNTERS}
            | (
                {"verdict": In(Verdict), "trace": In(TracePort(config.trace_frames))}
                if config.trace_frames
                else {}
            )
            | ({"network": In(packet_stream(width))} if config.network else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.tx_guard = tx_guard = TxGuard(width=self._config.width)
        rx_guard = RxGuard(width=self._config.width)
        m.submodules.rx_guard = ResetInserter(self.core_reset)(rx_guard)
        connect(m, flipped(self.sent), tx_guard.i)
        connect(m, rx_guard.o, flipped(self.received))
        m.d.comb += tx_guard.source_reset.eq(self.core_reset)
        if self._config.trace_frames:
            self._trace(m, tx_guard.o)
        mac_tx = flipped(self.mac_tx)
        if self._config.network:
            m.submodules.merge = merge = FrameMerge(width=self._config.width)
            connect(m, flipped(self.network), merge.i1)
            connect(m, merge.o, mac_tx)
            mac_tx = merge.i0
        if not self._config.loopback:
            connect(m, tx_guard.o, mac_tx)
            connect(m, flipped(self.mac_rx), rx_guard.i)
            return m
        m.submodules.loopback = loopback = Loopback(config=self._config)
        connect(m, tx_guard.o, loopback.sent)
        connect(m, loopback.mac_tx, mac_tx)
        connect(m, flipped(self.mac_rx), loopback.mac_rx)
        connect(m, loopback.received, rx_guard.i)
        m.d.comb += [
            tx_guard.mac_address.eq(self.mac_address),
            tx_guard.turns.eq(self.loopback),
            tx_guard.copies.eq(self.loopback & self.groups),
            loopback.local.eq(tx_guard.local),
            loopback.group.eq(tx_guard.group),
            self.loopback_packets.eq(loopback.packets),
            self.loopback_copies.eq(loopback.copies),
            self.loopback_drops.eq(loopback.drops),
        ]
        return m

    def _trace(self, m: Module, sent) -> None:
        """What the core sends and takes, as whole frames, to the trace."""
        m.submodules.tracer = tracer = Trace(
            width=self._config.width, frames=self._config.trace_frames
        )
        connect(m, flipped(self.trace), tracer.port)
        for tap, passes in ((tracer.sent, sent), (tracer.received, self.received)):
            m.d.comb += [tap.valid.eq(passes.valid & passes.ready), tap.beat.eq(passes.payload)]
        m.d.comb += [tracer.verdict.eq(self.verdict), tracer.core_reset.eq(self.core_reset)]
