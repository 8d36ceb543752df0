"""Finds, beat by beat, which bytes of a frame are the IP packet and which are its payload."""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.crc import IcrcMask
from hdl.common.delay import Delay, delayed
from hdl.common.shift import keep_mask
from hdl.config import NicConfig
from hdl.wire.constants import (
    ETHERTYPE_IPV6,
    ETHERTYPE_VLAN,
    ICRC_BYTES,
    MAX_MTU,
    bth_offset,
    ip_offset,
)
from hdl.wire.gateware import get
from hdl.wire.headers import ATOMIC_ACK_ETH, BTH, ETHERNET, IPV4, IPV6, VLAN, Header
from hdl.wire.opcodes import CNP, OPCODES, Payload, card_opcodes, max_extended

from .collector import LENGTH_BITS, collected

__all__ = ["Bounds", "Decoder", "is_ipv6", "is_vlan", "plan", "trimmed"]


class Bounds(data.Struct):
    """The bounds that follow from the lengths; final on the last beat if all headers are there."""

    end: 17  # bytes from the Ethernet header to the end of the IP packet
    length: 13  # payload bytes
    bad: 1  # headers do not fit, or payload is not what the opcode allows
    oversize: 1


def trimmed(width: int) -> data.StructLayout:
    """A beat cut to the IP packet, other bytes 0. ``skip``: it has no byte of the packet."""
    return data.StructLayout(
        {
            "first": 1,
            "skip": 1,
            "fill": ceil_log2(width // 8),  # bytes cut off
            "masked": width,  # for the ICRC
            "words": width,  # for the UDP checksum: from the source address on
        }
    )


def plan(width: int) -> data.StructLayout:
    """The moves of a beat's payload: after a shift by ``shift`` bytes it completes an output beat
    with the beat before (``emit``); the bytes left are the packet's last beat (``flush``). The
    payload is a ``number`` of 64 bits, which is big-endian on the wire."""
    return data.StructLayout({"shift": ceil_log2(width // 8), "emit": 1, "flush": 1, "number": 1})


def is_vlan(headers: Value) -> Value:
    """Whether the frame has a VLAN tag."""
    return get(headers, ETHERNET, "ethertype") == ETHERTYPE_VLAN


def ethertype(headers: Value) -> Value:
    """Of the packet, behind the VLAN tag if there is one."""
    inner = get(headers, VLAN, "ethertype", at=ETHERNET.size)
    return Mux(is_vlan(headers), inner, get(headers, ETHERNET, "ethertype"))


def is_ipv6(headers: Value) -> Value:
    """Whether the EtherType says IPv6."""
    return ethertype(headers) == ETHERTYPE_IPV6


#: Where a field is: (header, field, byte of the frame at which the header starts).
_Places = Callable[..., tuple[Header, str, int]]


def _total_length(*, vlan: bool, ipv6: bool) -> tuple[Header, str, int]:
    at = ip_offset(vlan=vlan)
    return (IPV6, "payload_length", at) if ipv6 else (IPV4, "total_length", at)


def _bth(field: str) -> _Places:
    return lambda *, vlan, ipv6: (BTH, field, bth_offset(vlan=vlan, ipv6=ipv6))


def _kept(value: Value, keep: Value) -> Value:
    """``value`` with the bytes 0 that ``keep`` does not have."""
    return Cat(Mux(keep[n], value[8 * n : 8 * n + 8], 0)[:8] for n in range(len(keep)))


class Decoder(wiring.Component):
    """Decodes lengths and opcode as the beats pass and cuts the frame accordingly.

    Spec: RFC 791, RFC 8200, IBTA vol 1, 9.2 (pad count, extended headers by opcode).
    Members: ``i_valid``, ``i`` (see ``HeaderCollector``); ``o_valid``, ``o``: cut beats;
    ``plan_valid``, ``plan``; ``bounds`` (in the cycle of ``plan``).
    Latency: ``o`` 4 cycles, ``plan`` and ``bounds`` 6. Throughput: one beat per cycle, no stall.
    Errors: given in ``bounds``; the outputs mean nothing for a frame that is no RoCE packet.
    Reset: nothing in flight.
    """

    LATENCY = 4
    PLAN_LATENCY = 6

    def __init__(self, *, config: NicConfig):
        width = config.width
        self._config, self._width, self._ipv6 = config, width, config.ipv6
        self._lane_bits = ceil_log2(width // 8)
        super().__init__(
            {
                "i_valid": In(1),
                "i": In(collected(config)),
                "o_valid": Out(1),
                "o": Out(trimmed(width)),
                "plan_valid": Out(1),
                "plan": Out(plan(width)),
                "bounds": Out(Bounds),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size, lane_bits = self._width // 8, self._lane_bits
        valid = Signal(self.PLAN_LATENCY)
        m.d.sync += valid.eq(valid << 1 | self.i_valid)
        m.d.comb += [
            self.o_valid.eq(valid[self.LATENCY - 1]),
            self.plan_valid.eq(valid[self.PLAN_LATENCY - 1]),
        ]

        def register(value: Value, name: str) -> Value:
            return delayed(m, Value.cast(value), 1, name=name)

        # 1: facts of the headers. Each is used only for beats from its own position on.
        headers = self.i.headers
        vlan, ipv6 = is_vlan(headers), self._is_ipv6(headers)
        total = self._choose(headers, _total_length)
        opcode = self._choose(headers, _bth("opcode"))
        pad = self._choose(headers, _bth("pad_count"))
        vlan1, ipv6_1 = register(vlan, "vlan1"), register(ipv6, "ipv61")
        total1, opcode1 = register(total, "total1"), register(opcode, "opcode1")
        pad1, number1 = register(pad, "pad1"), register(self.i.number, "number1")
        first = delayed(m, self.i.beat.first, 4, name="first")

        # 2: end of the IP packet, extended headers.
        vlan2, ipv6_2 = register(vlan1, "vlan2"), register(ipv6_1, "ipv62")
        kind1 = Cat(vlan1, ipv6_1)
        before = Signal(range(ip_offset(vlan=True) + IPV6.size + 1))
        base = Signal(range(bth_offset(vlan=True, ipv6=True) + BTH.size + 1))
        for code in range(4):
            is_vlan_, is_ipv6_ = bool(code & 1), bool(code & 2)
            with m.If(kind1 == code):
                m.d.comb += [
                    before.eq(ip_offset(vlan=is_vlan_) + (IPV6.size if is_ipv6_ else 0)),
                    base.eq(bth_offset(vlan=is_vlan_, ipv6=is_ipv6_) + BTH.size),
                ]
        extended, empty, value = self._lookup(m, self._config, opcode1)
        end2, base2 = register(total1 + before, "end2"), register(base, "base2")
        extended2, empty2 = register(extended, "extended2"), register(empty, "empty2")
        pad2, number2 = register(pad1, "pad2"), register(number1, "number2")

        # 3: bytes of this beat in the IP packet; first and last byte of the payload.
        left = Signal(LENGTH_BITS + 2)
        m.d.comb += left.eq(end2 - Cat(Const(0, lane_bits), number2))
        lanes = Signal(lane_bits + 1)
        # The length is not known in the first beats; an IP packet is longer than they are.
        known = (ip_offset(vlan=True) + IPV6["payload_length"].byte + 2) // size
        unknown = number2 < known if known else Const(0)
        with m.If((left[lane_bits:-1] != 0) & ~left[-1] | unknown):
            m.d.comb += lanes.eq(size)
        with m.Elif(left[-1]):
            m.d.comb += lanes.eq(0)
        with m.Else():
            m.d.comb += lanes.eq(left)
        lanes3 = register(lanes, "lanes3")
        m.submodules.beats = beats = Delay(shape=self._width, cycles=3, block=True)
        m.d.comb += [beats.i.eq(self.i.beat.data), beats.i_valid.eq(self.i_valid)]
        data3 = beats.o
        vlan3, ipv6_3 = register(vlan2, "vlan3"), register(ipv6_2, "ipv63")
        head3 = register((base2 + extended2)[:7], "head3")
        stop3 = register((end2 - (ICRC_BYTES + pad2))[:LENGTH_BITS], "stop3")
        ragged3 = register(end2[:2] != bth_offset(vlan=False, ipv6=False) % 4, "ragged3")
        empty3, end3 = register(empty2, "empty3"), register(end2, "end3")
        number3 = register(number2, "number3")

        # 4: the cut beats, as the ICRC and the UDP checksum see them; length of the payload.
        m.submodules.mask = mask = IcrcMask(width=self._width)
        m.d.comb += [
            self.o.first.eq(first),
            mask.data.eq(data3),
            mask.number.eq(Mux(number3 >= mask.beats, mask.beats, number3)),
            mask.vlan.eq(vlan3),
            mask.ipv6.eq(ipv6_3),
        ]
        keep = Signal(size, name="keep")
        m.d.comb += keep.eq(keep_mask(lanes3, size))
        source = self._from_source(m, number3, vlan3, ipv6_3)
        m.d.sync += [
            # Byte by byte: a register's reset instead of a table for each bit.
            self.o.masked.eq(_kept(mask.masked, keep)),
            self.o.words.eq(_kept(data3, keep & source)),
            self.o.skip.eq(lanes3 == 0),
            self.o.fill.eq((size - lanes3)[:lane_bits]),
        ]
        length4 = register((stop3.as_signed() - head3).as_unsigned()[:LENGTH_BITS], "length4")
        final4 = register(((stop3 - 1) >> lane_bits)[: len(number3)], "final4")
        head4, ragged4 = register(head3, "head4"), register(ragged3, "ragged4")
        empty4, end4 = register(empty3, "empty4"), register(end3, "end4")
        number4 = register(number3, "number4")

        # 5: conditions.
        shift4 = head4[:lane_bits]
        none = length4 == 0
        value4 = delayed(m, value, 3, name="value")
        value5 = register(value4, "value5")
        misfit = (empty4 & ~none) | (value4 & (length4 != ATOMIC_ACK_ETH.size))
        bad5 = register(length4[-1] | ragged4 | misfit, "bad5")
        oversize5 = register(~length4[-1] & (length4 > MAX_MTU), "oversize5")
        some5 = register(~none & ~length4[-1] & (length4 <= MAX_MTU), "some5")
        single = Signal(lane_bits + 1)  # the last input beat makes the last output beat
        m.d.comb += single.eq(shift4 + (length4 - 1)[:lane_bits])
        flush5 = register((number4 == final4) & ~single[-1], "flush5")
        emit5 = register((number4 > head4[lane_bits:]) & (number4 <= final4), "emit5")
        shift5, length5 = register(shift4, "shift5"), register(length4, "length5")
        end5 = register(end4, "end5")

        # 6
        m.d.sync += [
            self.plan.shift.eq(shift5),
            self.plan.emit.eq(emit5 & some5),
            self.plan.number.eq(value5),
            self.plan.flush.eq(flush5 & some5),
            self.bounds.length.eq(length5),
            self.bounds.end.eq(end5),
            self.bounds.bad.eq(bad5),
            self.bounds.oversize.eq(oversize5),
        ]
        return m

    def _is_ipv6(self, headers: Value) -> Value:
        return is_ipv6(headers) if self._ipv6 else Const(0)

    def _choose(self, headers: Value, places: _Places) -> Value:
        """A field out of the four places it can be in."""
        four = [
            get(headers, header, field, at=at)
            for header, field, at in (
                places(vlan=vlan, ipv6=ipv6) for ipv6 in (False, True) for vlan in (False, True)
            )
        ]
        vlan = is_vlan(headers)
        return Mux(self._is_ipv6(headers), Mux(vlan, four[3], four[2]), Mux(vlan, four[1], four[0]))

    def _from_source(self, m: Module, number: Value, vlan: Value, ipv6: Value) -> Signal:
        """A one for each byte from the IP source address on."""
        size = self._width // 8
        ones = Signal(size, name="from_source", init=-1)
        for is_vlan_ in (False, True):
            for is_ipv6_ in (False, True):
                source = ip_offset(vlan=is_vlan_) + (IPV6 if is_ipv6_ else IPV4)["source"].byte
                with m.If((vlan == is_vlan_) & (ipv6 == is_ipv6_)):
                    for beat in range(-(-source // size)):
                        cut = min(source - beat * size, size)
                        mask = (1 << size) - (1 << cut)
                        with m.If(number == beat):
                            m.d.comb += ones.eq(mask)
        return ones

    @staticmethod
    def _lookup(m: Module, config: NicConfig, opcode: Value) -> tuple[Signal, Signal, Signal]:
        """Bytes of extended headers; whether the packet must have no payload; whether that is the
        number of AtomicAckETH, which goes to host memory as READ responses do."""
        extended = Signal(range(max_extended(config) + 1))
        empty, number = Signal(), Signal()
        with m.Switch(opcode):
            for code, row in (*card_opcodes(config).items(), (CNP, OPCODES[CNP])):
                size = sum(header.size for header in row.headers if header is not ATOMIC_ACK_ETH)
                is_number = ATOMIC_ACK_ETH in row.headers
                with m.Case(code):
                    m.d.comb += [
                        extended.eq(size),
                        empty.eq(row.payload is Payload.NONE and not is_number),
                        number.eq(is_number),
                    ]
        return extended, empty, number
