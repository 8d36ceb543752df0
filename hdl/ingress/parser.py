"""Header word of a whole frame -> ``RxHeader`` and the checks that need no other byte."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.checksum import WordSum
from hdl.common.delay import delayed
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.ports.headers import GidRow, GroupAddress
from hdl.ports.shared import EX
from hdl.wire.constants import (
    ETHERTYPE_IPV4,
    ICRC_BYTES,
    IP_PROTOCOL_UDP,
    MULTICAST_QPN,
    PKEY_MASK,
    ROCE_PORT,
    ip_offset,
    mapped_gid,
)
from hdl.wire.gateware import get, raw
from hdl.wire.headers import (
    ATOMIC_ETH,
    BTH,
    DETH,
    ETHERNET,
    FETH,
    IETH,
    IMM_DT,
    IPV4,
    IPV6,
    RETH,
    UDP,
    VLAN,
    XRCETH,
    Header,
)
from hdl.wire.opcodes import CNP, card_opcodes, max_extended

from .address import AddressMatch
from .collector import LENGTH_BITS
from .decoder import ethertype, is_ipv6, is_vlan
from .groups import GroupMatch, MacOfGroup, found_groups
from .rows import ATOMIC_OR_GID, KEPT, RETH_OR_IP

__all__ = ["HeaderChecks", "HeaderParser"]

EXTENDED_AT = UDP.size + BTH.size


class HeaderChecks(data.Struct):
    """One bit for each check that failed, in the order of docs/ingress.md."""

    short_ethernet: 1
    mac: 1
    multicast: 1
    ethertype: 1
    short_ip: 1
    ip_version: 1
    ipv4_checksum: 1
    fragment: 1
    ip_length: 1
    short_packet: 1
    protocol: 1
    udp_room: 1
    port: 1
    udp_length: 1
    bth_room: 1
    tver: 1
    opcode: 1
    pkey: 1
    address: 1


#: What a GID that is an IPv4 address begins with.
_PREFIX = Const(int.from_bytes(mapped_gid(bytes(4)), "little"), 96)


class HeaderParser(wiring.Component):
    """Parses all headers of a frame at once.

    Spec: RFC 791, RFC 8200, RFC 768, RoCE v2 (IBTA Annex A17), IBTA vol 1, 9.2, 9.3 and 9.6.
    Members: ``gids``, ``groups`` tables; ``mac_address`` (raw bytes) of the card; ``headers`` word
    (see ``HeaderCollector``); ``frame_length`` bytes, needed 2 cycles later; ``o`` without
    ``length``, ``gid_index`` and ``function``; these two of the GID row that matches; ``priority``
    of the VLAN tag, with ``o``; ``multicast``: the packet is to groups, those ``found``, and
    ``function`` is the first one that has it; ``checks``; ``cnp``: a congestion notification;
    ``udp_pseudo``: protocol and UDP length, raw words summed; ``udp_sum``: the packet has a UDP
    checksum.
    Latency: ``ROW_LATENCY`` cycles to ``o``, ``LATENCY`` to all others. Throughput: one frame per
    cycle, no stall. Reset: none needed (valid bits go beside it).
    """

    ROW_LATENCY = 2
    LATENCY = ROW_LATENCY + AddressMatch.LATENCY

    def __init__(self, *, bits: int, config: NicConfig):
        self._bits, self._gids, self._config = bits, config.gids, config
        super().__init__(
            {
                "gids": In(data.ArrayLayout(GidRow, config.gids)),
                "groups": In(data.ArrayLayout(GroupAddress, config.groups)),
                "mac_address": In(48),
                "headers": In(bits),
                "frame_length": In(LENGTH_BITS),
                "o": Out(KEPT),
                "priority": Out(3),
                "gid_index": Out(8),
                "function": Out(8),
                "multicast": Out(1),
                "found": Out(found_groups(config)),
                "checks": Out(HeaderChecks),
                "cnp": Out(1),
                "udp_pseudo": Out(17),
                "udp_sum": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        headers = Cat(self.headers, Const(0, 8 * 128))

        # 1: the IP header and what follows it, each from the places where it can be.
        vlan = is_vlan(headers)
        v6 = is_ipv6(headers) if self._config.ipv6 else Const(0)
        ip = Signal(8 * IPV6.size, reset_less=True)
        l4 = Signal(8 * (EXTENDED_AT + max_extended(self._config)), reset_less=True)
        kind1 = Signal(data.StructLayout({"vlan": 1, "ipv4": 1, "ipv6": 1}), reset_less=True)
        plain, tagged = (headers[8 * ip_offset(vlan=tag) :][: len(ip)] for tag in (False, True))
        kind = Signal(2)
        m.d.comb += kind.eq(Cat(vlan, v6))
        # A sum of products, as in ``shifted``.
        behind = reduce(
            or_,
            (
                headers[8 * (ip_offset(vlan=bool(n & 1)) + size) :][: len(l4)]
                & (kind == n).replicate(len(l4))
                for n, size in enumerate((IPV4.size, IPV4.size, IPV6.size, IPV6.size))
            ),
        )
        m.d.sync += [
            ip.eq(Mux(vlan, tagged, plain)),
            l4.eq(behind),
            kind1.vlan.eq(vlan),
            kind1.ipv4.eq(ethertype(headers) == ETHERTYPE_IPV4),
            kind1.ipv6.eq(v6),
        ]
        src_mac = delayed(m, raw(headers, ETHERNET, "source"), 1, name="src_mac")
        dst_mac = delayed(m, raw(headers, ETHERNET, "destination"), 1, name="dst_mac")
        tag = Mux(vlan, get(headers, VLAN, "pcp", at=ETHERNET.size), 0)

        # 2: fields, and 3: checks; 1 to 5: the sum of an IPv4 header; 2 to 6: the GID table.
        row, gid = Signal(KEPT, reset_less=True), Signal(128, reset_less=True)
        m.d.sync += [
            *self._fields(m, row, ip, l4, kind1.ipv6),
            row.src_mac.eq(self._sender(l4, src_mac)),
            gid.eq(self._gid(ip, "destination", kind1.ipv6)),
        ]
        checks3 = self._checks(m, dst_mac, ip, l4, kind1)
        m.submodules.sum = header_sum = WordSum(words=IPV4.size // 2)
        m.submodules.address = address = AddressMatch(rows=self._gids)
        m.d.comb += [
            header_sum.data.eq(ip[: 8 * IPV4.size]),
            address.gids.eq(self.gids),
            address.gid.eq(gid),
        ]
        if not self._config.ipv6:  # of such a GID the last bytes are the address
            m.d.comb += [row.gid[:96].eq(_PREFIX) for row in address.gids]

        # 6: together.
        late = self.LATENCY - 1
        checks = data.View(
            HeaderChecks, delayed(m, Value.cast(checks3), self.LATENCY - 3, name="checks")
        )
        ipv4 = delayed(m, kind1.ipv4, WordSum.LATENCY, name="ipv4")
        wrong_sum = ipv4 & (header_sum.sum != 0xFFFF)
        # RFC 768: zero, protocol, UDP length. As raw words a number in the low byte is shifted.
        pseudo = raw(l4, UDP, "length") + Const(IP_PROTOCOL_UDP << 8, 16)
        m.d.comb += [
            self.o.eq(row),
            self.priority.eq(delayed(m, tag, self.ROW_LATENCY, name="priority")),
            self.gid_index.eq(address.index),
            self.function.eq(address.function),
            self.checks.eq(checks),
            self.checks.ipv4_checksum.eq(delayed(m, wrong_sum, late - WordSum.LATENCY, name="sum")),
            self.checks.address.eq(~address.hit),
            self.cnp.eq(delayed(m, row.opcode == CNP, AddressMatch.LATENCY, name="cnp")),
            self.udp_sum.eq(delayed(m, raw(l4, UDP, "checksum") != 0, late, name="udp_sum")),
            self.udp_pseudo.eq(delayed(m, pseudo, late, name="udp_pseudo")),
        ]
        if self._config.multicast:
            self._multicast(m, dst_mac, row, gid, kind1)
        return m

    def _multicast(self, m: Module, dst_mac: Value, row, gid: Value, kind) -> None:
        """The MAC filter of groups, and what a packet to one must be; with ``checks``."""
        m.submodules.mac_of_group = mac = MacOfGroup()
        m.submodules.groups = match = GroupMatch(config=self._config)
        opcodes = card_opcodes(self._config).items()
        deth = row.opcode.matches(*(code for code, one in opcodes if DETH in one.headers))
        fits = Signal(reset_less=True)
        m.d.sync += fits.eq(deth & (row.dest_qp == MULTICAST_QPN))
        after = GroupMatch.LATENCY
        group = Signal()
        m.d.comb += [
            mac.mac.eq(delayed(m, dst_mac, 1, name="group_mac")),
            mac.gid.eq(gid),
            mac.ipv4.eq(delayed(m, kind.ipv4, 1, name="group_ipv4")),
            mac.ipv6.eq(row.ipv6),
            match.groups.eq(self.groups),
            match.gid.eq(gid),
            self.found.eq(match.found),
            group.eq(Cat(one.hit for one in match.found).any()),
        ]
        to_group = delayed(m, mac.group, after - 1, name="to_group")
        mapped = delayed(m, mac.mapped, after - 1, name="mapped")
        fitted = delayed(m, fits, after - 1, name="fits")
        # An address of the card itself is no group's, so the order of the two does not matter.
        m.d.comb += self.multicast.eq(mapped & group)
        with m.If(to_group):
            m.d.comb += [self.checks.mac.eq(0), self.checks.multicast.eq(~self.multicast)]
        with m.If(self.multicast):
            m.d.comb += self.checks.address.eq(~fitted)
            for n in reversed(range(self._config.functions)):
                with m.If(match.found[n].hit):
                    m.d.comb += self.function.eq(FUNCTION_RDMA + n)

    def _checks(self, m: Module, dst_mac: Value, ip: Value, l4: Value, kind) -> Signal:
        """Stage 3: the checks made on headers and lengths alone; sums of lengths in stage 2."""
        v6 = kind.ipv6
        payload, end = Signal(17, reset_less=True), Signal(LENGTH_BITS, reset_less=True)
        before = Signal(range(ip_offset(vlan=True) + 1))
        header = Mux(v6, IPV6.size, IPV4.size)
        short = Signal(range(ip_offset(vlan=True) + IPV6.size + 1), reset_less=True)
        total = get(ip, IPV4, "total_length")
        tag = ip_offset(vlan=True) - ip_offset(vlan=False)
        length = Mux(v6, get(ip, IPV6, "payload_length"), total)
        outside = Signal(range(ip_offset(vlan=True) + IPV6.size + 1))
        kind2 = delayed(m, kind.vlan, 1, name="vlan")
        m.d.comb += [
            outside.eq(
                Mux(v6, ip_offset(vlan=False) + IPV6.size, ip_offset(vlan=False))
                + Mux(kind.vlan, tag, 0)
            ),
            before.eq(Mux(kind2, ip_offset(vlan=True), ip_offset(vlan=False))),
        ]
        m.d.sync += [
            payload.eq(length - Mux(v6, 0, IPV4.size)),
            end.eq(outside + length),
            short.eq(Mux(kind.vlan, ip_offset(vlan=True), ip_offset(vlan=False)) + header),
        ]
        frame = self.frame_length
        fragment = Cat(get(ip, IPV4, "more_fragments"), get(ip, IPV4, "fragment_offset")).any()
        version = get(ip, IPV4, "version")
        known = Signal()
        with m.Switch(get(l4, BTH, "opcode", at=UDP.size)):
            with m.Case(*card_opcodes(self._config), CNP):
                m.d.comb += known.eq(1)
        protocol = Mux(v6, get(ip, IPV6, "next_header"), get(ip, IPV4, "protocol"))
        smallest = UDP.size + BTH.size + ICRC_BYTES
        early = Signal(HeaderChecks, reset_less=True, name="checks2")
        checks = Signal(HeaderChecks, reset_less=True, name="checks3")
        udp_length = delayed(m, get(l4, UDP, "length"), 1, name="udp_length")
        m.d.sync += [
            early.mac.eq(dst_mac != self.mac_address),
            early.ethertype.eq(~kind.ipv4 & ~v6),
            early.ip_version.eq(
                Mux(v6, version != 6, (version != 4) | (get(ip, IPV4, "ihl") != 5))
            ),
            early.fragment.eq(~v6 & fragment),
            early.ip_length.eq(~v6 & (total < IPV4.size)),
            early.protocol.eq(protocol != IP_PROTOCOL_UDP),
            early.port.eq(get(l4, UDP, "destination_port") != ROCE_PORT),
            early.tver.eq(get(l4, BTH, "tver", at=UDP.size) != 0),
            early.opcode.eq(~known),
            early.pkey.eq((get(l4, BTH, "pkey", at=UDP.size) & PKEY_MASK) == 0),
        ]
        m.d.sync += [
            checks.eq(early),
            checks.short_ethernet.eq(frame < before),
            checks.short_ip.eq(frame < short),
            checks.short_packet.eq(frame < end),
            checks.udp_room.eq(payload < UDP.size),
            checks.udp_length.eq(udp_length != payload),
            checks.bth_room.eq(payload < smallest),
        ]
        return checks

    def _sender(self, l4: Value, src_mac: Value) -> Value:
        """The sender's MAC address, or in its place what XRCETH names (``named_srq``)."""
        known = card_opcodes(self._config).items()
        if not (names := [code for code, one in known if XRCETH in one.headers]):
            return src_mac
        names_srq = get(l4, BTH, "opcode", at=UDP.size).matches(*names)
        return Mux(names_srq, get(l4, XRCETH, "srq", at=EXTENDED_AT), src_mac)

    @staticmethod
    def _gid(ip: Value, field: str, v6: Value) -> Value:
        return Mux(v6, raw(ip, IPV6, field), Cat(_PREFIX, raw(ip, IPV4, field)))

    def _fields(self, m: Module, row, ip: Value, l4: Value, v6: Value) -> list:
        """Assignments of a row's fields, but for those that are worked out later."""

        def bth(field: str) -> Value:
            return get(l4, BTH, field, at=UDP.size)

        def extended(header: Header, field: str) -> Value:
            found = get(l4, header, field, at=EXTENDED_AT)
            # RETH and AtomicETH begin alike. Behind FETH there is no AtomicETH.
            before = (XRCETH,) if header is ATOMIC_ETH else (FETH, XRCETH)
            known = card_opcodes(self._config).items()
            behind = [code for code, one in known if one.headers[:1] and one.headers[0] in before]
            if not behind:
                return found
            other = get(l4, header, field, at=EXTENDED_AT + FETH.size)
            return Mux(bth("opcode").matches(*behind), other, found)

        assert FETH.size == XRCETH.size
        imm, deth = self._by_opcode(m, l4)
        # Of a datagram: what its GRH area needs of the IP header and no other field has.
        of_ip = data.View(RETH_OR_IP, Mux(v6, ip[:64], Cat(ip[16:64], ip[80:96]))).reth
        of_gid = data.View(ATOMIC_OR_GID, self._gid(ip, "destination", v6)).atomic
        return [
            row.opcode.eq(bth("opcode")),
            row.solicited.eq(bth("solicited")),
            row.ack_request.eq(bth("ack_request")),
            row.pkey.eq(bth("pkey")),
            row.dest_qp.eq(bth("dest_qp")),
            row.psn.eq(bth("psn")),
            row.va.eq(extended(RETH, "va")),
            row.rkey.eq(Mux(deth, of_ip.rkey, extended(RETH, "rkey"))),
            row.dma_length.eq(Mux(deth, of_ip.dma_length, extended(RETH, "dma_length"))),
            row.imm.eq(imm),
            row.swap_add.eq(Mux(deth, of_gid.swap_add, extended(ATOMIC_ETH, "swap_add"))),
            row.compare.eq(Mux(deth, of_gid.compare, extended(ATOMIC_ETH, "compare"))),
            row.ipv6.eq(v6),
            row.src_gid.eq(self._gid(ip, "source", v6)),
            row.traffic_class.eq(
                Mux(v6, get(ip, IPV6, "traffic_class"), get(ip, IPV4, "traffic_class"))
            ),
            row.hop_limit.eq(Mux(v6, get(ip, IPV6, "hop_limit"), get(ip, IPV4, "ttl"))),
        ]

    def _by_opcode(self, m: Module, l4: Value) -> tuple[Signal, Signal]:
        """What depends on the opcode: immediate or key to invalidate (``EX``), which lie behind the
        other extended headers; and whether it is a datagram's."""
        imm = Signal(unsigned(32))
        deth = Signal()
        found = data.View(EX, imm)
        m.d.comb += found.imm_data.eq(raw(l4, IMM_DT, "imm", at=EXTENDED_AT))
        with m.Switch(get(l4, BTH, "opcode", at=UDP.size)):
            for code, opcode in card_opcodes(self._config).items():
                names = opcode.headers
                with m.Case(code):
                    m.d.comb += deth.eq(DETH in names)
                    if IETH in names:
                        before = sum(h.size for h in names[: names.index(IETH)])
                        key = get(l4, IETH, "rkey", at=EXTENDED_AT + before)
                        m.d.comb += found.invalidate_rkey.eq(key)
                    elif IMM_DT in names:
                        before = sum(h.size for h in names[: names.index(IMM_DT)])
                        immediate = raw(l4, IMM_DT, "imm", at=EXTENDED_AT + before)
                        m.d.comb += found.imm_data.eq(immediate)
        return imm, deth
