"""Which receive queue a frame goes to: by a hash of its flow."""

from functools import reduce
from itertools import pairwise
from operator import xor

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.virtio_net import HASH_KEY_BYTES, RSS_TABLE, HashType
from hdl.ports.network import PAIR_BITS, Steering
from hdl.ports.trace import FrameTap
from hdl.wire.constants import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_VLAN,
    IP_PROTOCOL_TCP,
    IP_PROTOCOL_UDP,
)

__all__ = ["FlowHash"]

#: Bytes of a frame that are looked at: up to the ports behind a VLAN tag and an IPv6 header.
HEAD = 64
#: Offsets behind the Ethernet header, with the VLAN tag if there is one.
ETHERNET, VLAN = 14, 4
#: Bytes of an IP header at which the protocol stands, and the addresses; the ports are behind them.
PROTOCOL4, ADDRESSES4, PORTS4 = 9, 12, 20
PROTOCOL6, ADDRESSES6, PORTS6 = 6, 8, 40
#: Bytes of addresses and ports, at most; bits of a hash, and those that choose an entry.
INPUT = PORTS6 - ADDRESSES6 + 4
HASH, INDEX = 32, (RSS_TABLE - 1).bit_length()
#: Products that are added up in one cycle.
PRODUCTS = 18


def _bit(raw: Value, place: int) -> Value:
    """A bit of raw bytes, the first one of which is the highest of the first byte."""
    return raw[place - place % 8 + 7 - place % 8]


class FlowHash(wiring.Component):
    """The pair of queues for each frame, always the same for a flow.

    Spec: Virtio 1.2, 5.1.6.4.3 (hash), 5.1.6.5.7 (table); RFC 791, 8200. The hash is Toeplitz's:
    for each bit of both IP addresses and both ports that is set, the exclusive or of the 32 bits of
    the key from that place on. Its lowest bits choose the entry of the table. Ports count of TCP
    and UDP where ``types`` says so. Fragments, IPv4 headers with options and IPv6 extension headers
    count without ports; what is no IP behind at most one VLAN tag has no hash.
    Members: ``i`` beats that pass; ``settings``; ``valid`` Out with ``pair``, once for each frame,
    in order.
    Latency: ``LATENCY`` cycles behind the last beat: head, packet, input, two of sums, table.
    Throughput: a beat a cycle. Errors: none. Reset: between frames.
    """

    LATENCY = 6

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "i": In(FrameTap(width)),
                "settings": In(Steering),
                "valid": Out(1),
                "pair": Out(PAIR_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        head, ended = self._collect(m)
        # Where the IP header is.
        packet = Signal(len(head) - 8 * ETHERNET, reset_less=True)
        is_ip = Signal(2, reset_less=True)
        tagged = self._word(head, 12) == ETHERTYPE_VLAN
        kind = Mux(tagged, self._word(head, 16), self._word(head, 12))
        m.d.sync += [
            packet.eq(Mux(tagged, head[8 * (ETHERNET + VLAN) :], head[8 * ETHERNET :])),
            is_ip.eq(Cat(kind == ETHERTYPE_IPV4, kind == ETHERTYPE_IPV6)),
        ]
        hashed, chosen = self._choose(m, packet, is_ip)
        index = self._hash(m, chosen)
        # The hash takes two cycles from its input; the entry is there in the next one.
        known = [Signal(name=f"known{n}", reset_less=True) for n in range(2)]
        stages = Signal(self.LATENCY - 1)
        m.d.sync += [
            known[0].eq(hashed),
            *(after.eq(before) for before, after in pairwise(known)),
            stages.eq(Cat(ended, stages)),
            self.valid.eq(stages[-1]),
            self.pair.eq(Mux(known[1], self.settings.table[index], self.settings.other)),
        ]
        return m

    def _collect(self, m: Module) -> tuple[Signal, Value]:
        """The first bytes of a frame, there in the cycle behind its last beat; and that beat."""
        width, bits = self._width, 8 * HEAD
        head = Signal(bits, reset_less=True)
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
        return head, self.i.valid & beat.last

    @staticmethod
    def _kept(beat) -> Value:
        return beat.data & Cat(bit.replicate(8) for bit in beat.keep)

    @staticmethod
    def _word(head: Value, at: int) -> Value:
        """Two bytes in network order."""
        return Cat(head[8 * at + 8 : 8 * at + 16], head[8 * at : 8 * at + 8])

    def _choose(self, m: Module, packet: Value, is_ip: Value) -> tuple[Signal, Signal]:
        """What the hash is of: addresses and ports, with zeros behind them; and whether there is
        one."""
        types = self.settings.types

        def has(kind: HashType) -> Value:
            return (types & int(kind)) != 0

        def ports(at: int, tcp: HashType, udp: HashType) -> Value:
            protocol = packet[8 * at : 8 * at + 8]
            return ((protocol == IP_PROTOCOL_TCP) & has(tcp)) | (
                (protocol == IP_PROTOCOL_UDP) & has(udp)
            )

        def part(start: int, stop: int, wanted: Value) -> Value:
            return packet[8 * start : 8 * stop] & wanted.replicate(8 * (stop - start))

        # Version and length in the first byte; more fragments and the offset in the seventh.
        whole = Signal()
        m.d.comb += whole.eq((packet[:8] == 0x45) & (self._word(packet, 6)[:14] == 0))
        ports4 = is_ip[0] & whole & ports(PROTOCOL4, HashType.TCPV4, HashType.UDPV4)
        ports6 = is_ip[1] & ports(PROTOCOL6, HashType.TCPV6, HashType.UDPV6)
        chosen, hashed = Signal(8 * INPUT, reset_less=True), Signal(reset_less=True)
        of4 = Cat(part(ADDRESSES4, PORTS4, is_ip[0]), part(PORTS4, PORTS4 + 4, ports4))
        of6 = Cat(part(ADDRESSES6, PORTS6, is_ip[1]), part(PORTS6, PORTS6 + 4, ports6))
        m.d.sync += [
            chosen.eq(of4 | of6),
            hashed.eq(
                (is_ip[0] & has(HashType.IPV4)) | ports4 | (is_ip[1] & has(HashType.IPV6)) | ports6
            ),
        ]
        return hashed, chosen

    def _hash(self, m: Module, chosen: Signal) -> Signal:
        """The lowest bits of the hash as the mask leaves them, two cycles later."""
        key, index = self.settings.key, Signal(INDEX, reset_less=True)
        assert len(chosen) + HASH - 1 <= 8 * HASH_KEY_BYTES
        sums = []
        for bit in range(INDEX):
            products = [
                _bit(chosen, place) & _bit(key, place + HASH - 1 - bit)
                for place in range(len(chosen))
            ]
            groups = [products[at : at + PRODUCTS] for at in range(0, len(products), PRODUCTS)]
            part = Signal(len(groups), name=f"sum{bit}", reset_less=True)
            m.d.sync += part.eq(Cat(reduce(xor, group) for group in groups))
            sums.append(part.xor())
        m.d.sync += index.eq(Cat(sums) & self.settings.mask)
        return index
