"""Which received frames are the network function's."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import taken_at_once
from hdl.common.count import COUNT, increment
from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_beat, packet_stream
from hdl.config import NET_ADDRESSES
from hdl.ports.counter_names import DROP_REASONS
from hdl.ports.network import NetworkSettings
from hdl.ports.trace import FrameTap, Verdict

from .flow import FlowHash
from .packet_check import PacketCheck
from .types import PAIR_BITS

__all__ = ["CAUSES", "MacFilter", "ReceiveFront"]

#: Why the ingress drops a frame that is the network function's: it is no RoCE v2, or not to one of
#: the card's addresses.
CAUSES = tuple(
    f"rx_drops_{name}"
    for name in (
        *("mac", "multicast", "ethertype", "short", "ip_header", "ipv4_checksum", "ip_length"),
        *("not_roce", "udp_length", "address"),
    )
)
#: Beats that wait for a verdict, which comes 20 cycles behind the last one; and frames.
BEATS, FRAMES = 64, 64


class MacFilter(wiring.Component):
    """Says whether the driver wants frames to an address.

    Spec: Virtio 1.2, 5.1.6.5.1 (VIRTIO_NET_CTRL_RX), 5.1.6.5.2 (VIRTIO_NET_CTRL_MAC).
    Members: ``valid``, ``address`` (raw bytes); ``settings``; ``o_valid``, ``wanted`` Out.
    Latency: ``LATENCY`` cycles. Throughput: an address a cycle. Errors: none. Reset: nothing in it.
    """

    LATENCY = 3

    def __init__(self):
        super().__init__(
            {
                "valid": In(1),
                "address": In(48),
                "settings": In(NetworkSettings),
                "o_valid": Out(1),
                "wanted": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        asks, address = self.settings, Signal(48, reset_less=True)
        hits, ours = Signal(NET_ADDRESSES, reset_less=True), Signal(reset_less=True)
        group, broadcast = Signal(reset_less=True), Signal(reset_less=True)
        stages = Signal(self.LATENCY - 1)
        m.d.sync += [
            stages.eq(Cat(self.valid, stages)),
            address.eq(self.address),
            hits.eq(Cat(row.valid & (row.address == address) for row in asks.table)),
            ours.eq(address == asks.mac),
            group.eq(address[0]),
            broadcast.eq(address.all()),
            self.o_valid.eq(stages[-1]),
        ]
        listed = hits.any()
        multicast = (listed | asks.all_multicast) & ~asks.no_multicast
        unicast = (ours | listed | asks.all_unicast) & ~asks.no_unicast
        chosen = Mux(broadcast, ~asks.no_broadcast, Mux(group, multicast, unicast))
        m.d.sync += self.wanted.eq((chosen | asks.promiscuous) & asks.running)
        return m


class ReceiveFront(wiring.Component):
    """Holds each frame until its verdict comes, and says whether it is to be kept.

    Members: ``received``, ``verdict``: see NetworkPort; ``settings``; ``o`` frames, always taken,
    with ``keep``, ``pair`` (see FlowHash) and ``right`` (see PacketCheck) valid on the last beat;
    ``filtered`` counts frames that are no RDMA's, and that the driver does not want. With
    ``steers`` False each frame goes to pair 0.
    Latency: 2 cycles, of a last beat 2 behind its verdict. Throughput: a beat a cycle.
    Errors: none. Reset: with the ingress; a frame begins with its first beat.
    """

    def __init__(self, *, width: int, steers: bool):
        self._width, self._steers = width, steers
        super().__init__(
            {
                "received": In(FrameTap(width)),
                "verdict": In(Verdict),
                "settings": In(NetworkSettings),
                "o": Out(packet_stream(width)),
                "keep": Out(1),
                "pair": Out(PAIR_BITS),
                "right": Out(1),
                "filtered": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.beats = beats = StreamFifo(shape=packet_beat(self._width), depth=BEATS)
        m.submodules.filter = addresses = MacFilter()
        m.submodules.wants = wants = StreamFifo(shape=1, depth=FRAMES)
        m.submodules.verdicts = verdicts = StreamFifo(shape=1, depth=FRAMES)
        m.submodules.check = check = PacketCheck(width=self._width)
        m.submodules.checks = checks = StreamFifo(shape=1, depth=FRAMES)
        tap, beat = self.received, beats.o.payload
        inside, takes, known, leaves = Signal(), Signal(), Signal(), Signal()
        fifos = [wants, verdicts, checks]  # a row for each frame
        if self._steers:
            self._steer(m, takes, fifos)
        m.d.comb += [
            # Behind a reset the rest of a frame is nobody's.
            takes.eq(tap.valid & (inside | tap.beat.first)),
            beats.i.valid.eq(takes),
            beats.i.payload.eq(tap.beat),
            addresses.valid.eq(takes & tap.beat.first),
            addresses.address.eq(tap.beat.data[:48]),
            addresses.settings.eq(self.settings),
            check.i.valid.eq(takes),
            check.i.beat.eq(tap.beat),
            wants.i.valid.eq(addresses.o_valid),
            wants.i.payload.eq(addresses.wanted),
            verdicts.i.valid.eq(self.verdict.valid),
            verdicts.i.payload.eq(self._ours(self.verdict.reasons)),
            checks.i.valid.eq(check.valid),
            checks.i.payload.eq(check.right),
            known.eq(Cat(fifo.o.valid for fifo in fifos).all()),
            self.o.valid.eq(beats.o.valid & (~beat.last | known)),
            self.o.payload.eq(beat),
            beats.o.ready.eq(~beat.last | known),
            leaves.eq(self.o.valid & beat.last),
            *(fifo.o.ready.eq(leaves) for fifo in fifos),
            self.keep.eq(wants.o.payload & verdicts.o.payload),
            self.right.eq(checks.o.payload),
        ]
        with m.If(takes):
            m.d.sync += inside.eq(~tap.beat.last)
        with m.If(leaves & verdicts.o.payload & ~wants.o.payload):
            increment(m, self.filtered)
        for fifo in (beats, *fifos):
            taken_at_once(m, platform, fifo.i, "verdicts come before there is no room to wait")
        return m

    def _steer(self, m: Module, takes: Value, fifos: list[StreamFifo]) -> None:
        """The pair of each frame; adds to ``fifos``."""
        m.submodules.hash = flow_hash = FlowHash(width=self._width)
        m.submodules.pairs = pairs = StreamFifo(shape=PAIR_BITS, depth=FRAMES)
        fifos.append(pairs)
        m.d.comb += [
            flow_hash.i.valid.eq(takes),
            flow_hash.i.beat.eq(self.received.beat),
            flow_hash.settings.eq(self.settings.steering),
            pairs.i.valid.eq(flow_hash.valid),
            pairs.i.payload.eq(flow_hash.pair),
            self.pair.eq(pairs.o.payload),
        ]

    @staticmethod
    def _ours(reasons: Value) -> Value:
        return Cat(reasons[DROP_REASONS.index(cause)] for cause in CAUSES).any()
