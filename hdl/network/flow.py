"""Which receive queue a frame goes to: by its flow."""

from functools import reduce
from operator import xor

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.ports.trace import FrameTap
from hdl.wire.constants import ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN

from .types import PAIR_BITS

__all__ = ["FlowHash"]

#: Bytes of a frame that are looked at: up to the ports behind a VLAN tag and an IPv6 header.
HEAD = 64
TCP, UDP = 6, 17
#: Offsets behind the Ethernet header, with the VLAN tag if there is one.
ETHERNET, VLAN = 14, 4


class FlowHash(wiring.Component):
    """A number for each frame, the same for both directions of a flow.

    Spec: Virtio 1.2, 5.1.6.5.6.1 (a device steers frames of a flow to one queue); RFC 791, 8200.
    It is the exclusive or of both IP addresses and of both ports of TCP and UDP, folded. Fragments,
    and IPv4 headers with options, count without ports; what is no IP has 0.
    Members: ``i`` beats that pass; ``valid`` Out with ``flow``, once for each frame, in order.
    Latency: 3 cycles behind the last beat. Throughput: a beat a cycle. Errors: none.
    Reset: between frames.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__({"i": In(FrameTap(width)), "valid": Out(1), "flow": Out(PAIR_BITS)})

    def elaborate(self, platform):
        m = Module()
        width, bits = self._width, 8 * HEAD
        head, ended = Signal(bits, reset_less=True), Signal()
        beat, parts = self.i.beat, bits // width
        place = Signal(range(parts + 1))
        with m.If(self.i.valid):
            # What a frame does not have is 0.
            with m.If(beat.first):
                m.d.sync += head.eq(self._kept(beat))
            for part in range(1, parts):
                with m.Elif(place == part):
                    m.d.sync += head[part * width : (part + 1) * width].eq(self._kept(beat))
            m.d.sync += place.eq(Mux(beat.first, 1, place + (place != parts)))
        # Looked at a cycle later: where the IP header is, then the sum.
        packet, is_ip = Signal(bits - 8 * ETHERNET, reset_less=True), Signal(2, reset_less=True)
        tagged, moved = self._word(head, 12) == ETHERTYPE_VLAN, Signal()
        kind = Mux(tagged, self._word(head, 16), self._word(head, 12))
        m.d.sync += [
            ended.eq(self.i.valid & beat.last),
            moved.eq(ended),
            self.valid.eq(moved),
            packet.eq(Mux(tagged, head[8 * (ETHERNET + VLAN) :], head[8 * ETHERNET :])),
            is_ip.eq(Cat(kind == ETHERTYPE_IPV4, kind == ETHERTYPE_IPV6)),
            self.flow.eq(self._sum(packet, is_ip)),
        ]
        return m

    @staticmethod
    def _kept(beat) -> Value:
        return beat.data & Cat(bit.replicate(8) for bit in beat.keep)

    @staticmethod
    def _word(head: Value, at: int) -> Value:
        """Two bytes in network order."""
        return Cat(head[8 * at + 8 : 8 * at + 16], head[8 * at : 8 * at + 8])

    def _sum(self, packet: Value, is_ip: Value) -> Value:
        def between(start: int, stop: int) -> Value:
            words = [self._word(packet, at) for at in range(start, stop, 2)]
            folded = reduce(xor, words)
            return Cat(folded[n::PAIR_BITS].xor() for n in range(PAIR_BITS))

        def has_ports(protocol: int) -> Value:
            found = packet[8 * protocol : 8 * protocol + 8]
            return (found == TCP) | (found == UDP)

        # Version and length in the first byte; more fragments and the offset in the seventh.
        whole = (packet[:8] == 0x45) & (self._word(packet, 6)[:14] == 0)
        ports4 = (whole & has_ports(9)).replicate(PAIR_BITS)
        ports6 = has_ports(6).replicate(PAIR_BITS)
        of4 = between(12, 20) ^ (between(20, 24) & ports4)
        of6 = between(8, 40) ^ (between(40, 44) & ports6)
        return (of4 & is_ip[0].replicate(PAIR_BITS)) | (of6 & is_ip[1].replicate(PAIR_BITS))
