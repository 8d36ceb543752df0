"""Which groups an address is of, and whether a MAC address is that of a group."""

from __future__ import annotations

import random

import pytest

from hdl.abi.multicast import multicast_mac
from hdl.config import NicConfig
from hdl.ingress.groups import GroupMatch, MacOfGroup
from sim.guest.verbs.gid import gid_bytes
from tests.simulate import simulate

V4 = [gid_bytes(f"{first}.{second}.2.3") for first in (224, 239) for second in (1, 129, 255)]
V6 = [gid_bytes(address) for address in ("ff02::1:2", "ff15::1:2", "ff02::1:3", "ff0e:1::")]


def raw(octets: bytes) -> int:
    return int.from_bytes(octets, "little")


@pytest.mark.parametrize("functions", [1, 2, 4])
def test_a_group_of_each_function(functions):
    """One address in each cycle; rows that are not valid match nothing."""
    config, rng = NicConfig(groups=8, functions=functions), random.Random(functions)
    dut, share = GroupMatch(config=config), config.guest.groups
    rows = [(rng.choice(V4 + V6), rng.random() < 0.8) for _ in range(config.groups)]
    for function in range(functions):  # no address twice in a function
        seen = set()
        for n in range(function * share, (function + 1) * share):
            gid, valid = rows[n]
            rows[n] = gid, valid and gid not in seen
            seen |= {gid} if rows[n][1] else set()
    asked = [rng.choice(V4 + V6) for _ in range(40)]

    async def bench(ctx):
        for n, (gid, valid) in enumerate(rows):
            ctx.set(dut.groups[n].gid, raw(gid))
            ctx.set(dut.groups[n].valid, valid)
        found = []
        for gid in [*asked, *asked[: GroupMatch.LATENCY]]:
            ctx.set(dut.gid, raw(gid))
            found.append([(one.hit, one.number) for one in ctx.get(dut.found)])
            await ctx.tick()
        for gid, each in zip(asked, found[GroupMatch.LATENCY :], strict=True):
            for function, (hit, number) in enumerate(each):
                own = rows[function * share : (function + 1) * share]
                assert hit == ((gid, True) in own)
                assert not hit or own[number] == (gid, True)

    simulate(dut, bench)


def test_the_mac_address_of_a_group():
    """Each address of a group beside each MAC address, and MAC addresses near to the right one."""
    dut = MacOfGroup()
    macs = [multicast_mac(gid) for gid in V4 + V6]
    near = [bytes.fromhex(mac) for mac in ("01005e810203", "01005f010203", "333400010002")]
    near += [bytes.fromhex(mac) for mac in ("ffffffffffff", "020000000001")]

    async def bench(ctx):
        for gid in V4 + V6:
            for kind in ("ipv4", "ipv6", ""):
                for mac in macs + near:
                    for name in ("ipv4", "ipv6"):
                        ctx.set(getattr(dut, name), name == kind)
                    ctx.set(dut.mac, raw(mac))
                    ctx.set(dut.gid, raw(gid))
                    await ctx.tick()
                    own = "ipv6" if gid[0] == 0xFF else "ipv4"
                    if kind == own or not kind:
                        right = kind == own and mac == multicast_mac(gid)
                        assert ctx.get(dut.mapped) == right, (gid, mac)
                    assert ctx.get(dut.group) == (mac in macs), mac

    simulate(dut, bench, deadline=20_000)
