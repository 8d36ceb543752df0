"""The headers of one frame in each cycle: what is found of each is found of no other."""

from __future__ import annotations

import random

from hdl.abi.multicast import multicast_mac
from hdl.config import NicConfig
from hdl.ingress.collector import header_beats
from hdl.ingress.parser import HeaderParser
from sim.guest.verbs.gid import gid_bytes
from sim.wire import packets as pk
from tests.ingress.malformed import GIDS, MAC
from tests.simulate import simulate

WIDTH = 512
V4, V6, NOBODYS = (gid_bytes(group) for group in ("239.1.2.3", "ff15::7:1", "239.129.2.3"))


def frame(rng: random.Random) -> tuple[bytes, dict[str, int]]:
    """A frame, and what the parser must find in it."""
    gid = rng.choice([V4, V6, NOBODYS, GIDS[0], GIDS[2]])
    group = gid not in GIDS
    mac = rng.choice([multicast_mac(gid), MAC, b"\xff" * 6]) if group else MAC
    opcode, qpn = rng.choice([(0x64, 0xFFFFFF), (0x64, 5), (0x04, 0xFFFFFF)])
    source = GIDS[3] if gid in (V6, GIDS[2]) else GIDS[1]
    tag = rng.choice([{}, {"vlan": 5}])
    fields = {"dst_mac": mac, "dst_gid": gid, "src_gid": source, "dest_qp": qpn}
    octets = pk.build(opcode, payload=bytes(8), **fields, **tag)
    mapped = group and mac == multicast_mac(gid)
    found = mapped and gid != NOBODYS
    wanted = {
        "mac": mac == b"\xff" * 6,
        "multicast": mapped and not found,
        "address": (opcode, qpn) != (0x64, 0xFFFFFF) if found else group,
        "found": found,
        "number": {V4: 3, V6: 1}.get(gid, 0),
    }
    return octets, wanted


def test_groups_of_frames_that_follow_each_other():
    rng = random.Random(2)
    config = NicConfig(width=WIDTH, gids=4, groups=4)
    dut = HeaderParser(bits=header_beats(config) * WIDTH, config=config)
    frames = [frame(rng) for _ in range(80)]
    assert sum(wanted["found"] for _, wanted in frames) > 10

    async def bench(ctx):
        for n, gid in enumerate(GIDS):
            ctx.set(dut.gids[n].gid, int.from_bytes(gid, "little"))
            ctx.set(dut.gids[n].valid, 1)
        for n, gid in ((3, V4), (1, V6)):
            ctx.set(dut.groups[n].gid, int.from_bytes(gid, "little"))
            ctx.set(dut.groups[n].valid, 1)
        ctx.set(dut.mac_address, int.from_bytes(MAC, "little"))
        later = [(b"", {})] * HeaderParser.LATENCY
        for (octets, _), (_, wanted) in zip(
            [*frames, *[(bytes(64), {})] * HeaderParser.LATENCY], [*later, *frames], strict=True
        ):
            ctx.set(
                dut.headers, int.from_bytes(octets[: header_beats(config) * WIDTH // 8], "little")
            )
            if wanted:
                checks = {name: ctx.get(dut.checks[name]) for name in ("mac", "multicast")}
                assert checks == {name: wanted[name] for name in checks}
                if not any(checks.values()):
                    assert ctx.get(dut.checks.address) == wanted["address"]
                assert ctx.get(dut.multicast) == wanted["found"]
                if wanted["found"]:
                    assert ctx.get(dut.found[0].number) == wanted["number"]
                    assert ctx.get(dut.function) == 1
            await ctx.tick()

    simulate(dut, bench)


def test_a_card_without_ipv6_takes_ipv4_alone():
    """A frame of IPv6 has an unknown EtherType, whatever else is in it; the others are found."""
    rng = random.Random(3)
    config = NicConfig(width=WIDTH, gids=4, ipv6=False, ud=False)
    dut = HeaderParser(bits=header_beats(config) * WIDTH, config=config)
    frames = []
    for _ in range(60):
        source, gid = rng.choice([(GIDS[1], GIDS[0]), (GIDS[3], GIDS[2])])
        tag = rng.choice([{}, {"vlan": 5}])
        fields = {"dst_mac": MAC, "dst_gid": gid, "src_gid": source, "dest_qp": 5}
        frames.append((gid, source, pk.build(0x04, payload=bytes(8), **fields, **tag)))
    assert {gid for gid, _, _ in frames} == {GIDS[0], GIDS[2]}

    async def bench(ctx):
        for n, gid in enumerate(GIDS):
            ctx.set(dut.gids[n].gid, int.from_bytes(gid, "little"))
            ctx.set(dut.gids[n].valid, 1)
        ctx.set(dut.mac_address, int.from_bytes(MAC, "little"))
        late, after = HeaderParser.LATENCY, HeaderParser.LATENCY - HeaderParser.ROW_LATENCY
        sources = []
        for n in range(len(frames) + late):
            if n < len(frames):
                octets = frames[n][2][: header_beats(config) * WIDTH // 8]
                ctx.set(dut.headers, int.from_bytes(octets, "little"))
                ctx.set(dut.frame_length, len(frames[n][2]))
            sources.append(ctx.get(dut.o.src_gid))
            if n >= late:
                gid, source, _ = frames[n - late]
                ipv4 = gid == GIDS[0]
                assert ctx.get(dut.checks.ethertype) == (not ipv4)
                if ipv4:
                    assert not ctx.get(dut.checks.address) and ctx.get(dut.gid_index) == 0
                    assert sources[n - after] == int.from_bytes(source, "little")
            await ctx.tick()

    simulate(dut, bench)
