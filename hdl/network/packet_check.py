"""Checksums of received packets: whether those of IPv4, TCP and UDP are right."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import or_
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.shift import byte_mask, keep_count
from hdl.ports.trace import FrameTap
from hdl.wire.constants import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SERVICE_VLAN,
    ETHERTYPE_VLAN,
    IP_PROTOCOL_TCP,
    IP_PROTOCOL_UDP,
)

from .types import LENGTH_BITS
from .words import WordSum, folded

__all__ = ["PacketCheck"]

#: Words of a frame at which its type stands: without a VLAN tag, behind one, behind two. The IP
#: header begins with the next word.
_TYPES = (6, 8, 10)
_BASES = tuple(place + 1 for place in _TYPES)
#: Bytes of the shortest headers: IPv6, TCP and UDP; words of 32 bits of IPv4's.
_IPV6, _TCP, _UDP, _SHORTEST4 = 40, 20, 8, 5
#: Words behind the beginning of the IP header: the first address, and what is behind the second.
_ADDRESSES = {"ipv4": (6, 10), "ipv6": (4, 20)}
#: Words of the UDP header (RFC 768): its length, its checksum.
_UDP_LENGTH, _UDP_CHECKSUM = 2, 3
#: Bits of the number of a frame's word that a header may have, and of the place behind its packet.
_WORD_BITS, _END_BITS = 6, 17


class _Field(NamedTuple):
    """A field of the IP header. ``places``: by kind, its word and its lowest bit there, in network
    order. ``unseen``: what it is until its word comes."""

    bits: int
    places: dict[str, tuple[int, int]]
    unseen: int = 0


#: What is looked at of the headers (RFC 791, 3.1; RFC 8200, 3). A packet whose length has not come
#: ends behind each frame. ``words`` are of 32 bits; ``fragment``: more to come, and the offset.
_FIELDS = {
    "version": _Field(4, {"ipv4": (0, 12), "ipv6": (0, 12)}),
    "words": _Field(4, {"ipv4": (0, 8)}),
    "length": _Field(16, {"ipv4": (1, 0), "ipv6": (2, 0)}, unseen=0xFFFF),
    "fragment": _Field(14, {"ipv4": (3, 0)}),
    "protocol": _Field(8, {"ipv4": (4, 0), "ipv6": (3, 8)}),
}
#: As far as it has come. ``base``: a bit for each of _BASES.
_HEAD = data.StructLayout(
    {"base": len(_BASES), "ipv4": 1, "ipv6": 1}
    | {name: field.bits for name, field in _FIELDS.items()}
)
#: What follows from it. ``size``: bytes of TCP or UDP, or ``short``: less than 0; they begin with
#: the frame's word ``payload`` and end in front of its byte ``end``.
_EXTENT = data.StructLayout(
    {"base": len(_BASES), "ipv4": 1, "ipv6": 1, "sound": 1, "udp": 1, "protocol": 8}
    | {"size": 16, "short": 1, "end": _END_BITS}
    | {"payload": _WORD_BITS, "udp_length": _WORD_BITS, "udp_checksum": _WORD_BITS}
)
#: What is to be known until the sum is there. ``sound``: it can be judged.
_FACTS = data.StructLayout({"sound": 1, "ipv4": 1, "udp": 1, "size": 16, "protocol": 8})


class _Passing:
    """A beat on its way: ``number`` in its frame, and ``count``, the frame's bytes up to its end.
    Only ``valid`` is cleared by a reset."""

    def __init__(self, width: int, name: str):
        self.beat = Signal(
            data.StructLayout(
                {"first": 1, "last": 1, "number": LENGTH_BITS - ceil_log2(width // 8)}
                | {"count": LENGTH_BITS, "words": data.ArrayLayout(16, width // 16)}
            ),
            name=name,
            reset_less=True,
        )
        self.valid = Signal(name=f"{name}_valid")


class PacketCheck(wiring.Component):
    """Tells of each frame whether its checksums have been looked at and are right.

    Spec: Virtio 1.2, 5.1.6.4 (VIRTIO_NET_HDR_F_DATA_VALID); RFC 791, 3.1; RFC 8200, 3 and 8.1;
    RFC 768; RFC 9293, 3.1; RFC 1071; IEEE 802.1Q, 9.
    Right are TCP or UDP with a right checksum, in an IPv4 packet with a right checksum of its
    header, with options or without, or in an IPv6 packet without extension headers; behind up to
    two VLAN tags. Bytes behind the packet do not count. Of everything else nothing is said: other
    protocols, fragments, UDP without a checksum or with a length that is not that of its packet,
    packets that are longer than their frame.
    Members: ``i`` beats that pass; ``valid`` Out with ``right``, once for each frame, in order.
    What the headers say is picked from the beats as these come: in each stage a beat meets all
    that the words up to its end have said.
    Latency: ``latency`` cycles behind the last beat. Throughput: a beat a cycle. Errors: none.
    Reset: between frames.
    """

    def __init__(self, *, width: int):
        self._width, self._words = width, width // 16
        # Two more words: the protocol and the length of the pseudo header. The other sum has them
        # too, so that both are there at the same time.
        self._sums = [WordSum(words=self._words + 2) for _ in range(2)]
        #: A stage for each of: count, types, head, extent, masks, words; sum and verdict.
        self.latency = 6 + self._sums[0].latency + 1
        super().__init__({"i": In(FrameTap(width)), "valid": Out(1), "right": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.payload, m.submodules.header = self._sums
        arrived = self._arrive(m)
        typed, types = self._types(m, arrived)
        headed, head = self._head(m, typed, types)
        extended, extent = self._extent(m, headed, head)
        masked, masks, facts = self._masks(m, extended, extent)
        self._judge(m, masked, masks, facts)
        return m

    def _next(self, m: Module, passing: _Passing, name: str) -> _Passing:
        """The beat a cycle later."""
        later = _Passing(self._width, name)
        m.d.sync += [later.beat.eq(passing.beat), later.valid.eq(passing.valid)]
        return later

    def _arrive(self, m: Module) -> _Passing:
        """Numbers the beats and counts their bytes. A frame of more beats than there are numbers
        is too long for the store."""
        now, i = _Passing(self._width, "now"), self.i.beat
        lanes = ceil_log2(self._width // 8)
        number = Signal.like(now.beat.number)
        m.d.comb += [
            now.valid.eq(self.i.valid),
            now.beat.first.eq(i.first),
            now.beat.last.eq(i.last),
            now.beat.number.eq(Mux(i.first, 0, number)),
            now.beat.words.eq(i.data),
            now.beat.count.eq(keep_count(i.keep)),
        ]
        with m.If(now.valid):
            m.d.sync += number.eq(now.beat.number + 1)
        arrived, counted = self._next(m, now, "arrived"), _Passing(self._width, "counted")
        m.d.comb += [
            counted.valid.eq(arrived.valid),
            counted.beat.eq(arrived.beat),
            counted.beat.count.eq(
                Cat(Const(0, lanes), arrived.beat.number) + arrived.beat.count[: lanes + 1]
            ),
        ]
        return counted

    def _at(self, beat, place: int) -> tuple[Value, Value]:
        """A word of the frame, in network order, and whether it is in this beat."""
        number, lane = divmod(place, self._words)
        word = beat.words[lane]
        return Cat(word[8:], word[:8]), beat.number == number

    def _types(self, m: Module, passing: _Passing):
        """What stands where the type may be."""
        beat, found = passing.beat, data.StructLayout({"vlan": 1, "ipv4": 1, "ipv6": 1})
        types = [Signal(found, name=f"type{n}", reset_less=True) for n in range(len(_TYPES))]
        for place, type_ in zip(_TYPES, types, strict=True):
            word, here = self._at(beat, place)
            tag = (word == ETHERTYPE_VLAN) | (word == ETHERTYPE_SERVICE_VLAN)
            with m.If(passing.valid & (here | beat.first)):
                m.d.sync += [
                    type_.vlan.eq(here & tag),
                    type_.ipv4.eq(here & (word == ETHERTYPE_IPV4)),
                    type_.ipv6.eq(here & (word == ETHERTYPE_IPV6)),
                ]
        return self._next(m, passing, "typed"), types

    def _head(self, m: Module, passing: _Passing, types):
        """What the IP header says: each field is picked from where it may be, and kept."""
        beat = passing.beat
        head, now = Signal(_HEAD, name="head", reset_less=True), Signal(_HEAD, name="head_now")
        vlan = [type_.vlan for type_ in types]
        base = (~vlan[0], vlan[0] & ~vlan[1], vlan[0] & vlan[1])
        m.d.comb += now.base.eq(Cat(base))
        for kind in ("ipv4", "ipv6"):
            found = (now.base[n] & getattr(type_, kind) for n, type_ in enumerate(types))
            m.d.comb += getattr(now, kind).eq(reduce(or_, found))
        for name, field in _FIELDS.items():
            hits, values = [], []
            for n, at in enumerate(_BASES):
                for kind, (place, low) in field.places.items():
                    word, here = self._at(beat, at + place)
                    hits.append(now.base[n] & getattr(types[n], kind) & here)
                    values.append(word[low : low + field.bits] & hits[-1].replicate(field.bits))
            kept = Mux(beat.first, Const(field.unseen, field.bits), getattr(head, name))
            value = Mux(Cat(hits).any(), reduce(or_, values), kept)
            m.d.comb += getattr(now, name).eq(value)
        with m.If(passing.valid):
            m.d.sync += head.eq(now)
        return self._next(m, passing, "headed"), head

    def _extent(self, m: Module, passing: _Passing, head):
        """Where the packet's parts begin and end."""
        extent = Signal(_EXTENT, name="extent", reset_less=True)
        size, payload, end = Signal(17), Signal(_WORD_BITS), Signal(_END_BITS)
        udp, tcp = head.protocol == IP_PROTOCOL_UDP, head.protocol == IP_PROTOCOL_TCP

        def based(offset: int, unit: int) -> Value:
            """A place behind the beginning of the header, in words or bytes."""
            bits = (unit * _BASES[-1] + offset).bit_length()
            places = enumerate(_BASES)
            found = (head.base[n].replicate(bits) & (unit * at + offset) for n, at in places)
            return reduce(or_, found)

        sound4 = head.ipv4 & (head.version == 4) & (head.words >= _SHORTEST4)
        sound6 = head.ipv6 & (head.version == 6)
        m.d.comb += [
            size.eq(head.length - Cat(Const(0, 2), head.words & head.ipv4.replicate(4))),
            payload.eq(Mux(head.ipv6, based(_IPV6 // 2, 1), based(0, 1) + (head.words << 1))),
            end.eq(head.length + Mux(head.ipv6, based(_IPV6, 2), based(0, 2))),
        ]
        m.d.sync += [
            extent.base.eq(head.base),
            extent.ipv4.eq(head.ipv4),
            extent.ipv6.eq(head.ipv6),
            extent.sound.eq((sound4 | sound6) & (head.fragment == 0) & (udp | tcp)),
            extent.udp.eq(udp),
            extent.protocol.eq(head.protocol),
            extent.size.eq(size),
            extent.short.eq(size[16]),
            extent.end.eq(end),
            extent.payload.eq(payload),
            extent.udp_length.eq(payload + _UDP_LENGTH),
            extent.udp_checksum.eq(payload + _UDP_CHECKSUM),
        ]
        return self._next(m, passing, "extended"), extent

    def _from(self, beat, place: Value, unit: int) -> Value:
        """A bit for each byte (``unit`` 1) or word (2) of the beat: it is not before ``place``."""
        count = self._width // 8 // unit
        low, high = place[: ceil_log2(count)], place[ceil_log2(count) :]
        here, past = beat.number == high, beat.number > high
        return Cat(past | (here & (low <= lane)) for lane in range(count))

    def _only(self, beat, place: Value) -> Value:
        """A bit for each word of the beat: it is the one at ``place``."""
        low, high = place[: ceil_log2(self._words)], place[ceil_log2(self._words) :]
        here = beat.number == high
        return Cat(here & (low == lane) for lane in range(self._words))

    def _addresses(self, beat, extent) -> Value:
        """A bit for each word of the beat: it belongs to an IP address."""
        bits: list[list[Value]] = [[] for _ in range(self._words)]
        for n, base in enumerate(_BASES):
            for kind, (start, stop) in _ADDRESSES.items():
                for place in range(base + start, base + stop):
                    number, lane = divmod(place, self._words)
                    hit = extent.base[n] & getattr(extent, kind) & (beat.number == number)
                    bits[lane].append(hit)
        return Cat(Cat(hits).any() for hits in bits)

    def _masks(self, m: Module, passing: _Passing, extent):
        """Which bytes and words of the beat count, for what."""
        beat, words = passing.beat, self._words
        shape = {"payload": 2 * words, "header": words, "length": words, "checksum": words}
        masks = Signal(data.StructLayout(shape), name="masks", reset_less=True)
        facts = Signal(_FACTS, name="facts", reset_less=True)
        behind = self._from(beat, extent.payload, 2)
        base = [Const(place, _WORD_BITS) for place in _BASES]
        begun = (
            self._from(beat, one, 2) & bit.replicate(words) for one, bit in zip(base, extent.base)
        )
        counts = Signal(words)
        m.d.comb += counts.eq(self._addresses(beat, extent) | behind)
        least = Mux(extent.udp, _UDP, _TCP)
        m.d.sync += [
            masks.payload.eq(
                Cat(bit.replicate(2) for bit in counts) & ~self._from(beat, extent.end, 1)
            ),
            masks.header.eq(reduce(or_, begun) & ~behind),
            masks.length.eq(self._only(beat, extent.udp_length)),
            masks.checksum.eq(self._only(beat, extent.udp_checksum)),
            facts.sound.eq(
                extent.sound & ~extent.short & (extent.size >= least) & (extent.end <= beat.count)
            ),
            facts.ipv4.eq(extent.ipv4),
            facts.udp.eq(extent.udp),
            facts.size.eq(extent.size),
            facts.protocol.eq(extent.protocol),
        ]
        return self._next(m, passing, "masked"), masks, facts

    def _judge(self, m: Module, passing: _Passing, masks, facts) -> None:
        """Adds up what counts, and says what comes out of it."""
        beat, payload = passing.beat, self._sums[0]
        words = beat.words.as_value()
        counted = [Signal(len(payload.i), name=f"counted{n}", reset_less=True) for n in range(2)]
        first, ends, sound = Signal(), Signal(self.latency - 6), Signal()
        known = Signal(_FACTS, name="known", reset_less=True)
        # Of UDP: its length and its checksum, in the order of the bytes in the beat.
        udp = [Signal(16, name=f"udp_{name}", reset_less=True) for name in ("length", "checksum")]
        pseudo = Cat(facts.size[8:], facts.size[:8], Const(0, 8), facts.protocol)
        used = passing.valid.replicate(len(words))
        m.d.sync += [
            counted[0].eq(
                Cat(
                    words & byte_mask(masks.payload) & used,
                    Mux(beat.last & passing.valid, pseudo, 0),
                )
            ),
            counted[1].eq(words & byte_mask(Cat(bit.replicate(2) for bit in masks.header)) & used),
            first.eq(beat.first & passing.valid),
            known.eq(facts),
        ]
        for told, mask in zip(udp, (masks.length, masks.checksum), strict=True):
            picked = (word & bit.replicate(16) for word, bit in zip(beat.words, mask, strict=True))
            with m.If(passing.valid & (mask.any() | beat.first)):
                m.d.sync += told.eq(reduce(or_, picked))
        for sum_, value in zip(self._sums, counted, strict=True):
            m.d.comb += [sum_.i.eq(value), sum_.first.eq(first)]
        right = [Signal(16, name="sum0"), Signal(16, name="sum1")]
        m.d.comb += [
            value.eq(folded(sum_.o)) for value, sum_ in zip(right, self._sums, strict=True)
        ]
        length = Cat(udp[0][8:], udp[0][:8])
        m.d.comb += sound.eq(known.sound & (~known.udp | ((length == known.size) & (udp[1] != 0))))
        # Beside the sums: a frame has ended, it is to be judged, and by the header's sum too.
        told = data.StructLayout({"sound": 1, "ipv4": 1})
        waits = [Signal(told, name=f"waits{n}", reset_less=True) for n in range(payload.latency)]
        m.d.sync += [
            ends.eq(Cat(passing.valid & beat.last, ends)),
            waits[0].sound.eq(sound),
            waits[0].ipv4.eq(known.ipv4),
            *(after.eq(before) for before, after in pairwise(waits)),
            self.valid.eq(ends[-1]),
            self.right.eq(waits[-1].sound & right[0].all() & (right[1].all() | ~waits[-1].ipv4)),
        ]
