"""Matches the destination of a packet against the multicast groups, and its MAC address."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.config import NicConfig
from hdl.ports.headers import GroupAddress
from hdl.wire.constants import MAC_IPV4_GROUP, MAC_IPV6_GROUP

from .address import AddressMatch

__all__ = ["GroupMatch", "MacOfGroup", "found_groups"]


def found_groups(config: NicConfig) -> data.ArrayLayout:
    """The group of a destination in each function: whether there is one, and its number there."""
    group = data.StructLayout({"hit": 1, "number": ceil_log2(config.guest.groups)})
    return data.ArrayLayout(group, config.functions)


class GroupMatch(wiring.Component):
    """Compares ``gid`` with the groups of all functions at once.

    Spec: IBTA vol 1, 10.5.2 (a datagram goes to each QP that is attached to its group).
    Members: ``groups`` the addresses, those of each function one after the other; ``gid``;
    ``found``: see ``found_groups``. Latency: ``LATENCY`` cycles. Throughput: one per cycle.
    Reset: none needed.
    """

    LATENCY = AddressMatch.LATENCY

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "groups": In(data.ArrayLayout(GroupAddress, config.groups)),
                "gid": In(128),
                "found": Out(found_groups(config)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        share = self._config.guest.groups
        found = []
        for n in range(self._config.functions):
            m.submodules[f"function{n}"] = match = AddressMatch(rows=share)
            m.d.comb += match.gid.eq(self.gid)
            for row in range(share):
                group = self.groups[n * share + row]
                m.d.comb += [match.gids[row][name].eq(group[name]) for name in ("valid", "gid")]
            found += [match.hit, match.index[: ceil_log2(share)]]
        m.d.comb += self.found.as_value().eq(Cat(found))
        return m


class MacOfGroup(wiring.Component):
    """Looks at the destination MAC address ``mac`` of a frame to the IP address ``gid``.

    Spec: RFC 1112, 6.4; RFC 2464, 7.
    Members: ``mac``, ``gid`` (raw bytes); ``ipv6``, ``ipv4``: which address ``gid`` is, if any;
    ``group`` Out: ``mac`` is that of an IP group; ``mapped`` Out: it is the one that belongs to
    ``gid``. Latency: 1 cycle. Throughput: one per cycle. Reset: none needed.
    """

    def __init__(self):
        super().__init__(
            {
                "mac": In(48),
                "gid": In(128),
                "ipv4": In(1),
                "ipv6": In(1),
                "group": Out(1),
                "mapped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        of4, of6 = Signal(), Signal()
        low = self.gid[96:]  # the last four bytes
        m.d.comb += [
            of4.eq(self._begins(MAC_IPV4_GROUP) & ~self.mac[31]),
            of6.eq(self._begins(MAC_IPV6_GROUP)),
        ]
        same4 = self.mac[24:] == Cat(low[8:15], Const(0, 1), low[16:])
        same6 = self.mac[16:] == low
        m.d.sync += [
            self.group.eq(of4 | of6),
            self.mapped.eq(Mux(self.ipv6, of6 & same6, self.ipv4 & of4 & same4)),
        ]
        return m

    def _begins(self, prefix: bytes) -> Value:
        return self.mac[: 8 * len(prefix)] == int.from_bytes(prefix, "little")
