"""The whole card when one of its guests has no tag left: completions of its reads never come."""

import os
import random

import cocotb
import pytest

from hdl.abi.enums import Mtu, WcStatus, WrOpcode
from hdl.abi.virtio_pci import Isr, Status
from hdl.pcie.tag_pool import PLAIN_TAGS
from hdl.ports.jobs import QueueErrorCause
from sim.bench.system import Node, QpOptions, System
from sim.guest.driver.errors import NeedsReset
from sim.wire.packets import dissect
from tests.nic.pair import LENGTH, Pair
from tests.pcie.platform import PcieNicTestbench
from tests.pcie.test_pcie_nic import CONFIGS

CONFIG = CONFIGS[os.environ["BLOCK"]]

#: A retry comes soon, and not often: what a time-out of the peer takes is not what is tested.
OPTIONS = QpOptions(mtu=Mtu.MTU_1024, timeout=4, retry_cnt=2)
WAIT_NS = 2_000_000


class Guests:
    """Two guest functions, each with a connection to itself; the first one may use few tags."""

    @classmethod
    async def up(cls, dut):
        self = cls()
        self.testbench = PcieNicTestbench(dut, config=CONFIG, memory=16 << 20)
        system = await System.on(self.testbench, deadline_cycles=900_000, loopback=False)
        self.node, self.host = system.nodes[0], self.testbench.hosts[0]
        self.other = Node(self.testbench, 0, beside=self.node)
        await self.other.start()
        self.allow(self.node, extended=False)
        await self.host.sizes(2)
        #: Completions that were held back; changes of its configuration that a driver has heard of.
        self.held, self.heard = [], {}
        return self

    def allow(self, node, *, extended):
        """Set whether a function may use 8 bits of tag, which the root complex has allowed all."""
        capability = self.host.block.functions[node.function.number].pcie_cap
        capability.extended_tag_field_enable = extended

    async def pair(self, node, seed):
        return await Pair((node, node), seed).make(options=OPTIONS)

    def hold(self, pair, *, lose):
        """Hold back what the host answers to reads of the region of ``pair`` that is sent from;
        with ``lose`` each other answer is lost."""
        pages = {int(page) for page in pair.mrs[0].table.pages}

        def change(tlp):
            if self.host.link.asked[tlp.tag].address & ~0xFFF not in pages:
                return tlp
            if lose and tlp.tag % 2:
                self.host.block.forget(tlp.tag)
            else:
                self.held.append(tlp)
            return None

        self.host.link.change = change

    async def release(self):
        """What is late comes, and from now on everything; returns how many are late."""
        self.host.link.change = lambda tlp: tlp
        for tlp in self.held:
            await self.host.link.deliver(tlp)
            await self.testbench.cycles(6)
        return len(self.held)

    async def counters(self):
        """Denied reads, tags in quarantine, and completions of no read that is outstanding."""
        found = await self.node.counters()
        inside = found["bus_tags_quarantined"] - found["bus_tags_returned"]
        counted = (found["bus_denials"], inside, found["bus_unexpected"])
        cocotb.log.info("%d reads denied, %d tags in quarantine, %d late completions", *counted)
        return counted

    async def run_out(self, pair, *, lose=False):
        """Send from ``pair`` until each tag that it may use is in quarantine."""
        self.hold(pair, lose=lose)
        for _ in range(3):  # more reads than there are tags
            await pair.post(WrOpcode.RDMA_WRITE, 0, LENGTH)
        while (await self.counters())[1] < PLAIN_TAGS:
            await self.testbench.cycles(500)

    async def stops(self, node, pair):
        """The function asks for a reset, and its driver hears of it; returns how the WQEs before
        that have ended."""
        device, statuses = node.context.device, set()
        try:
            while True:  # what is on the card already may still do
                await pair.post(WrOpcode.RDMA_WRITE, 0, 64)
                (wc,) = await pair.cqs[0].wait(1, timeout_ns=WAIT_NS)
                statuses.add(wc.status)
        except NeedsReset:
            statuses |= {wc.status for wc in await pair.cqs[0].poll(64)}
        assert await device.status() & Status.DEVICE_NEEDS_RESET
        assert device.interrupts[0] == self.heard[node] + 1
        assert await device.read_isr() & Isr.CONFIG
        state = await self.node.registers.needs_reset(node.function.number)
        assert state["active"] and state["cause"] == QueueErrorCause.HOST_READ.value, state
        return statuses

    async def reset(self, node):
        """A device reset, which takes as long as ever; returns the cycles."""
        cycles = 0

        async def count():
            nonlocal cycles
            while True:
                await self.testbench.cycles(10)
                cycles += 10

        counting = cocotb.start_soon(count())
        await node.context.close()
        counting.cancel()
        return cycles

    async def works(self, node, seed):
        """Everything that a guest does."""
        pair = await self.pair(node, seed)
        for _ in range(2):
            await pair.exchange(random.Random(seed))
        self.heard[node] = node.context.device.interrupts[0]
        return pair


def sent_rightly(frames, source):
    """No packet has bytes that are not those of ``source``."""
    for frame in frames:
        assert bytes(dissect(frame).payload) in source.tobytes(), frame.hex()


@cocotb.test()
async def one_guest_has_none(dut):
    """Answers to one guest's reads never come, until it has no tag: it sends no wrong byte and asks
    for a reset, and once more if it is reset before a tag comes back. The other guest has tags, and
    its traffic goes on. Tags come back by completions that are late, and by the end of the
    quarantine: then a device reset is enough."""
    guests = await Guests.up(dut)
    node, other, testbench = guests.node, guests.other, guests.testbench
    usual = await guests.reset(node)
    await node.start()
    first = await guests.works(node, 1)
    stays = await guests.works(other, 2)
    rounds, running = 0, True

    async def traffic():
        nonlocal rounds
        rng = random.Random(3)
        while running:
            await stays.exchange(rng)
            rounds += 1

    await first.exchange(random.Random(1))
    before = first.mrs[1].read(LENGTH)
    seen = len(testbench.seen)
    await guests.run_out(first, lose=True)
    statuses = await guests.stops(node, first)
    assert statuses <= {WcStatus.RETRY_EXC_ERR, WcStatus.WR_FLUSH_ERR}, statuses
    denials, inside, unexpected = await guests.counters()
    assert denials and inside == PLAIN_TAGS and not unexpected
    sent_rightly(testbench.seen[seen:], first.mrs[0].read(LENGTH))
    there = first.mrs[1].read(LENGTH)
    assert all((there == before) | (there == first.mrs[0].read(LENGTH)))

    # The other guest hears of nothing, and a reset does not help yet.
    task = cocotb.start_soon(traffic())
    assert await guests.reset(node) < 2 * usual + 500
    with pytest.raises(NeedsReset):
        await node.start()
    while rounds < 2:
        await testbench.cycles(100)
    assert not await other.context.device.status() & Status.DEVICE_NEEDS_RESET
    assert not (await node.registers.needs_reset(other.function.number))["active"]

    # Half of the answers are late, and half of them never come.
    late = await guests.release()
    denials, *others = await guests.counters()
    assert others == [PLAIN_TAGS // 2, late]
    await guests.reset(node)
    await node.start()
    await guests.works(node, 4)
    while (await guests.counters())[1]:
        await testbench.cycles(2000)
    await guests.works(node, 5)
    running = False
    await task
    assert await guests.counters() == (denials, 0, late)


@cocotb.test()
async def both_have_none(dut):
    """Two guests that may use the same few tags have none when they are all in quarantine, whoever
    has asked: both ask for a reset, and both work when the tags have come back."""
    guests = await Guests.up(dut)
    node, other = guests.node, guests.other
    guests.allow(other, extended=False)
    await guests.testbench.cycles(200)
    first, second = await guests.works(node, 1), await guests.works(other, 2)
    await guests.run_out(first)
    await guests.stops(other, second)
    await guests.stops(node, first)
    late = await guests.release()
    assert (await guests.counters())[1:] == (0, late)
    for one in (node, other):
        await guests.reset(one)
        await one.start()
        await guests.works(one, 3)
