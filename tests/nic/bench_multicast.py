"""Multicast groups: members on both cards, each of which gets its own copy or loses it alone."""

from __future__ import annotations

import random

import cocotb
import numpy as np

from hdl.abi.enums import (
    QpAttrMask,
    QpState,
    QpType,
    SendFlags,
    WcFlags,
    WcStatus,
    WrOpcode,
)
from hdl.abi.limits import GROUP_MEMBERS
from hdl.abi.multicast import MULTICAST_QPN
from hdl.abi.virtio_rdma import GRH_SIZE
from sim.bench.system import Node, System
from sim.guest.driver.errors import CommandError
from sim.guest.verbs import AH, CQ, MR, QP, AHAttr, QPAttr, QPCap, QPInitAttr, RecvWR, SendWR
from sim.guest.verbs.gid import gid_bytes
from tests.nic.card import CONFIG
from tests.nic.pair import LENGTH, RIGHTS, WAIT_NS, Pair

#: Where a member's region has what it sends: behind what it receives.
OUTBOX = LENGTH - 4096

QKEY = 0x01234567  # rdma_cm's
IPV4, IPV6 = "239.1.2.3", "ff15::7:1"


class Member:
    """A UD queue pair in RTS with a region and a CQ of its own."""

    def __init__(self, node: Node):
        self.node = node

    async def make(self, *, qkey: int = QKEY, kind: QpType = QpType.UD) -> Member:
        self.pd = await self.node.context.alloc_pd()
        self.cq = await CQ.create(self.node.context, 64)
        self.mr = await MR.create(self.pd, LENGTH, RIGHTS)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
        self.qp = await QP.create(
            self.pd, QPInitAttr(kind, self.cq, self.cq, cap), QPAttr(qkey=qkey)
        )
        return self

    async def receive(self, number: int, at: int = 0, size: int = 4200) -> None:
        await self.qp.post_recv(RecvWR(number, [self.mr.sge(at, size)]))

    async def send(self, group: str, octets: bytes, *, qkey: int = QKEY) -> None:
        self.mr.write(np.frombuffer(octets, np.uint8), OUTBOX)
        # A source address of the same family: that of GID 1 by IPv6.
        ah = AH(self.pd, AHAttr.to_group(group, sgid_index=int(gid_bytes(group)[0] == 0xFF)))
        wr = SendWR(99, WrOpcode.SEND, [self.mr.sge(OUTBOX, len(octets))], SendFlags.SIGNALED)
        wr.set_wr_ud(ah, MULTICAST_QPN, qkey)
        await self.qp.post_send(wr)

    async def sent(self) -> None:
        (wc,) = await self.cq.wait(1, timeout_ns=WAIT_NS)
        assert (wc.status, wc.wr_id) == (WcStatus.SUCCESS, 99), wc

    async def got(self, number: int, sender: Member, group: str, octets: bytes, at: int = 0):
        """The next completion is that of ``octets``, with the group's address in its GRH area."""
        (wc,) = await self.cq.wait(1, timeout_ns=WAIT_NS)
        assert (wc.status, wc.wr_id) == (WcStatus.SUCCESS, number), wc
        assert wc.byte_len == GRH_SIZE + len(octets) and wc.wc_flags & WcFlags.GRH
        assert (wc.qp_num, wc.src_qp) == (self.qp.qp_num, sender.qp.qp_num)
        area = self.mr.read(wc.byte_len, at).tobytes()
        assert area[GRH_SIZE:] == octets
        gid = gid_bytes(group)
        assert area[24:40] == gid if gid[0] == 0xFF else area[36:40] == gid[12:]

    async def nothing(self, nanoseconds: int = 20_000) -> None:
        await self.node.testbench.cycles(nanoseconds // 4)
        assert not await self.cq.poll(8)


async def up(dut) -> tuple[Node, Node]:
    system = await System.start(dut, CONFIG)
    for node in system.nodes:
        node.host.set(mmio_latency_ns=0)
        await node.add_address(1, f"fd00::{node.index + 1}")
    first, second = system.nodes
    return first, second


async def gained(node: Node, before: dict[str, int]) -> dict[str, int]:
    after = await node.counters()
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


@cocotb.test()
async def two_members(dut):
    """A datagram of each length and each kind of address reaches two members of the other card."""
    a, b = await up(dut)
    sender = await Member(a).make()
    members = [await Member(b).make() for _ in range(2)]
    before = [await node.counters() for node in (a, b)]
    rng, count = random.Random(5), 0
    for group in (IPV4, IPV6):
        for member in members:
            await member.qp.attach_mcast(group)
        for length in (0, 1, 63, 64, 65, 1000, 4096):
            octets = rng.randbytes(length)
            for member in members:
                await member.receive(count, at=count)
            await sender.send(group, octets)
            await sender.sent()
            for member in members:
                await member.got(count, sender, group, octets, at=count)
            count += 1
    change = await gained(b, before[1])
    assert change["rx_packets"] == count and change["rx_multicast_copies"] == 2 * count
    assert not any("drops" in name for name in change), change
    assert (await gained(a, before[0]))["tx_packets"] == count
    for node in (a, b):
        assert not node.host.faults, node.host.faults


@cocotb.test()
async def own_members(dut):
    """The sender's card gives a datagram to its own members, also to the sender, and the wire has
    it once."""
    a, b = await up(dut)
    sender, mine, theirs = [await Member(node).make() for node in (a, a, b)]
    before = [await node.counters() for node in (a, b)]
    rng = random.Random(6)
    for group in (IPV4, IPV6):
        for member in (sender, mine, theirs):
            await member.qp.attach_mcast(group)
            await member.receive(1)
        octets = rng.randbytes(700)
        await sender.send(group, octets)
        found = {wc.wr_id for wc in await sender.cq.wait(2, timeout_ns=WAIT_NS)}
        assert found == {1, 99}
        assert sender.mr.read(700, GRH_SIZE).tobytes() == octets
        for member in (mine, theirs):
            await member.got(1, sender, group, octets)
    change = [await gained(node, old) for node, old in zip((a, b), before, strict=True)]
    assert change[0]["loopback_copies"] == change[0]["tx_packets"] == change[1]["rx_packets"] == 2
    assert change[0]["rx_multicast_copies"] == 4 and change[1]["rx_multicast_copies"] == 2
    assert "loopback_packets" not in change[0] and "loopback_drops" not in change[0]


@cocotb.test()
async def each_for_itself(dut):
    """One member has another Q_Key, one no receive WQE, one is in RESET, one has left: the others
    get what they lose, and it is counted."""
    a, b = await up(dut)
    sender = await Member(a).make()
    good, last = await Member(b).make(), await Member(b).make()
    stranger, idle, reset, left = [await Member(b).make(qkey=QKEY + (n == 0)) for n in range(4)]
    for member in (good, stranger, idle, reset, left, last):
        await member.qp.attach_mcast(IPV6)
    await left.qp.detach_mcast(IPV6)
    await reset.qp.modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
    for number in range(3):
        before = await b.counters()
        octets = bytes([number]) * 300
        for member in (good, stranger, last, left):
            await member.receive(number)
        await sender.send(IPV6, octets)
        await sender.sent()
        for member in (good, last):
            await member.got(number, sender, IPV6, octets)
        for member in (stranger, idle, left):
            await member.nothing()
        change = await gained(b, before)
        assert (change["bad_qkey"], change["out_of_buffer"], change["qp_state"]) == (1, 1, 1)
        assert change["rx_multicast_copies"] == 5 and change["rx_packets"] == 1
    assert (await idle.qp.hw_counters())["out_of_buffer"] == 3
    assert (await good.qp.hw_counters())["out_of_buffer"] == 0
    for refused in (good.qp.close(), left.qp.detach_mcast(IPV6)):
        try:
            await refused
        except CommandError:
            continue
        raise AssertionError("it was not refused")
    await good.qp.detach_mcast(IPV6)
    await good.qp.close()
    await last.receive(7)
    await sender.send(IPV6, b"on")
    await last.got(7, sender, IPV6, b"on")


@cocotb.test()
async def filter_of_groups(dut):
    """A group without members, one whose MAC address another has, a wrong MAC address; a device
    reset ends all groups."""
    a, b = await up(dut)
    sender, member = await Member(a).make(), await Member(b).make()
    await member.qp.attach_mcast(IPV4)
    await member.receive(1)
    for group in ("239.129.2.3", "239.1.2.4", IPV6):
        before = await b.counters()
        await sender.send(group, b"nobody")
        await sender.sent()
        await member.nothing()
        assert await gained(b, before) == {"rx_drops_multicast": 1}, group
    await sender.send(IPV4, b"somebody")
    await member.got(1, sender, IPV4, b"somebody")
    await b.context.close()
    await b.start()
    before = await b.counters()
    await sender.sent()
    await sender.send(IPV4, b"nobody any more")
    await sender.sent()
    await b.testbench.cycles(2000)
    assert (await b.counters())["rx_drops_multicast"] == before["rx_drops_multicast"] + 1


@cocotb.test()
async def beside_a_connection(dut):
    """Eight members on each card, two senders, and a connection whose every byte is verified."""
    a, b = await up(dut)
    pair = await Pair([a, b], 4).make()
    members = {node: [await Member(node).make() for _ in range(GROUP_MEMBERS)] for node in (a, b)}
    senders = [await Member(node).make() for node in (a, b)]
    for one in (*members[a], *members[b]):
        await one.qp.attach_mcast(IPV4)
    rounds = 6

    async def talk() -> None:
        for turn in range(8):
            await pair.exchange(random.Random(turn))

    async def speak(sender: Member) -> None:
        for turn in range(rounds):
            await sender.send(IPV4, bytes([turn]) * (200 * turn + 1))
            await sender.sent()
            await sender.node.testbench.cycles(1500)

    for one in (*members[a], *members[b]):
        for number in range(2 * rounds):
            await one.receive(number, at=1200 * number, size=1200)
    tasks = [cocotb.start_soon(work) for work in (talk(), *map(speak, senders))]
    for task in tasks:
        await task
    for one in (*members[a], *members[b]):
        found = await one.cq.wait(2 * rounds, timeout_ns=WAIT_NS)
        assert all(wc.status == WcStatus.SUCCESS for wc in found)
        by_sender = {sender.node: [] for sender in senders}
        for wc in found:
            body = one.mr.read(wc.byte_len, 1200 * wc.wr_id).tobytes()[GRH_SIZE:]
            number = body[0]
            assert body == bytes([number]) * (200 * number + 1)
            by_sender[a if b"\x0a\x00\x00\x01" in sources(one, wc) else b].append(number)
        assert all(turns == list(range(rounds)) for turns in by_sender.values()), by_sender
    for node in (a, b):
        counters = await node.counters()
        assert not any(count for name, count in counters.items() if "drops" in name), counters
        assert not node.host.faults, node.host.faults


def sources(member: Member, wc) -> bytes:
    """The source address in the GRH area of a datagram by IPv4."""
    return member.mr.read(4, 1200 * wc.wr_id + 32).tobytes()
