"""Two cards with two guest functions: each function is alone on its card, as far as it sees."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import cocotb
import numpy as np

from hdl.abi import virtio_pci as abi
from hdl.abi.enums import WcStatus, WrOpcode
from hdl.abi.virtio_pci import Feature, Status
from hdl.config import FUNCTION_RDMA
from hdl.host import config_space as space
from sim.bench.system import Node, System, together
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import MR, RecvWR
from tests.nic.bench_multicast import IPV4, IPV6, Member
from tests.nic.card import FUNCTIONS
from tests.nic.pair import LENGTH, RIGHTS, WAIT_NS, Pair
from tests.slow import QUICK

#: With two functions, packed virtqueues, and all that watches a running card.


async def up(dut, options=(None, None), **bench: Any) -> tuple[System, list[list[Node]]]:
    """The nodes of both cards by function; ``bench`` goes to ``Testbench``."""
    system = await System.start(dut, FUNCTIONS, options=options[0], **bench)
    second = [Node(system.testbench, node.index, beside=node) for node in system.nodes]
    await together(*(node.start(options[1]) for node in second))
    for node in (*system.nodes, *second):
        node.host.set(mmio_latency_ns=0)
    return system, [system.nodes, second]


@cocotb.test()
async def side_by_side(dut):
    """Both functions have the same numbers of everything, other features, and their own data."""
    plain = DriverOptions(features=ALL_FEATURES & ~(Feature.EVENT_IDX.mask | Feature.IN_ORDER.mask))
    _, functions = await up(dut, (None, plain))
    pairs = [await Pair(nodes, seed).make() for seed, nodes in enumerate(functions)]
    assert pairs[0].numbers() == pairs[1].numbers()
    rng = random.Random(1)

    async def talk(pair: Pair, seed: int) -> None:
        for _ in range(6):
            await pair.exchange(random.Random(seed))

    for _ in range(3):  # 18 exchanges of each
        tasks = [cocotb.start_soon(talk(pair, rng.randrange(1 << 30))) for pair in pairs]
        for task in tasks:
            await task
    for nodes, pair in zip(functions, pairs, strict=True):
        counted: Counter[str] = Counter()
        for node, qp in zip(nodes, pair.qps, strict=True):
            counted.update(await node.context.device.qp_counters(qp.qp_num))
            assert not node.host.faults, node.host.faults
        # Its own requests and nothing else, on nobody else's account.
        requests = ("rx_write_requests", "rx_read_requests", "rx_send_requests")
        assert +counted == dict.fromkeys(requests, 18), +counted


@cocotb.test()
async def strangers(dut):
    """A key of another function is no key, also if its number is one of the own function."""
    _, functions = await up(dut)
    pairs = [await Pair(nodes, seed).make() for seed, nodes in enumerate(functions)]
    first, second = pairs
    assert first.mrs[1].rkey == second.mrs[1].rkey
    before = second.mrs[1].read(LENGTH)
    await first.post(WrOpcode.RDMA_WRITE, 0, LENGTH)
    await first.good()
    await first.nodes[0].testbench.cycles(300)
    assert np.array_equal(first.mrs[1].read(LENGTH), first.mrs[0].read(LENGTH))
    assert np.array_equal(second.mrs[1].read(LENGTH), before)
    # A region that only the second function has.
    more = await MR.create(second.pds[1], LENGTH, RIGHTS)
    await first.post(WrOpcode.RDMA_WRITE, 0, 100, rkey=more.rkey)
    (wc,) = await first.cqs[0].wait(1, timeout_ns=WAIT_NS)
    assert wc.status == WcStatus.REM_ACCESS_ERR
    await second.post(WrOpcode.RDMA_WRITE, 0, 100, rkey=second.mrs[1].rkey)
    await second.good()


@cocotb.test()
async def groups_of_both(dut):
    """Both functions of a card have members of a group; each leaves it and is reset alone."""
    _, functions = await up(dut)
    await functions[0][0].add_address(1, "fd00::1")
    sender = await Member(functions[0][0]).make()
    members = [[await Member(nodes[1]).make() for _ in range(2)] for nodes in functions]
    for group in (IPV4, IPV6):
        for member in (*members[0], *members[1]):
            await member.qp.attach_mcast(group)

    async def reach(group: str, number: int, those: list[Member]) -> None:
        octets = random.Random(number).randbytes(100 * number + 1)
        for member in those:
            await member.receive(number)
        await sender.send(group, octets)
        await sender.sent()
        for member in those:
            await member.got(number, sender, group, octets)

    everybody = [*members[0], *members[1]]
    await reach(IPV4, 1, everybody)
    await reach(IPV6, 2, everybody)
    await members[0][1].qp.detach_mcast(IPV6)
    await reach(IPV6, 3, [members[0][0], *members[1]])
    await functions[1][1].context.close()
    await reach(IPV4, 4, members[0])
    await reach(IPV6, 5, members[0][:1])
    card = await functions[0][1].counters()
    assert card["rx_multicast_copies"] == 4 + 4 + 3 + 2 + 1, card
    assert not any(count for name, count in card.items() if "drops" in name), card


@cocotb.test()
async def reset_of_one(dut):
    """A function is reset and comes up again, several times; the other's traffic goes on."""
    system, functions = await up(dut)
    stays = await Pair(functions[1], 7).make()
    rng = random.Random(3)
    running = True

    async def traffic() -> int:
        rounds = 0
        while running:
            await stays.exchange(rng)
            pd = await stays.nodes[0].context.alloc_pd()  # its control queue is served as well
            await pd.close()
            rounds += 1
        return rounds

    task = cocotb.start_soon(traffic())
    for number in range(6):
        goes = await Pair(functions[0], number).make()
        await goes.exchange(rng)
        # In the middle of a message, with receives posted that nothing will use.
        await goes.qps[1].post_recv(RecvWR(5, [goes.mrs[1].sge(0, 64)]))
        await goes.post(WrOpcode.RDMA_WRITE, 0, LENGTH)
        await system.testbench.cycles(200 * number)
        for node in functions[0]:
            # With a command on its way to the firmware, or in its hands.
            command = cocotb.start_soon(node.context.alloc_pd())
            await system.testbench.cycles(rng.randrange(1500))
            command.cancel()
            await node.context.close()
        await together(*(node.start() for node in functions[0]))
        for node in functions[0]:
            node.host.set(mmio_latency_ns=0)
    running = False
    assert await task > 3
    for node in (*functions[0], *functions[1]):
        assert not node.host.faults, node.host.faults
    last = await Pair(functions[0], 9).make()
    await last.exchange(rng)
    await stays.exchange(rng)


async def status_of(node: Node) -> int:
    """The device status that the first function's driver finds."""
    place = space.COMMON_OFFSET + abi.COMMON_CFG.offset("device_status")
    return await node.host.mmio.read(FUNCTION_RDMA, space.BAR_REGISTERS, place, 1)


async def function_reset(dut, testbench, *, over: bool) -> int:
    """A function-level reset of card 0's first function, up to its clean registers, or to its end;
    returns the cycles."""
    dut.nic0_flr.value = 1
    wanted = dut.nic0_flr_over if over else dut.nic0_flr_clean
    for cycles in range(100_000):
        await testbench.cycles(1)
        if int(wanted.value) & int(dut.nic0_flr_clean.value) & 1:
            dut.nic0_flr.value = 0
            return cycles
    raise AssertionError("The function-level reset has no end")


@cocotb.test(skip=QUICK)
async def function_level_reset(dut):
    """A function is reset in the middle of traffic, with a firmware that is dead, in the middle of
    a command, or well. Its registers are clean at once, and the host sees no DMA of
    its previous owner from then on, whatever the peer sends. The other function's traffic goes
    on; once there is a firmware the function comes up again."""
    system, functions = await up(dut, jump=False)
    testbench, node = system.testbench, functions[0][0]
    stays = await Pair(functions[1], 7).make()
    rng = random.Random(3)
    rounds, running = 0, True

    async def traffic() -> None:
        nonlocal rounds
        while running:
            await stays.exchange(rng)
            rounds += 1

    task = cocotb.start_soon(traffic())
    for number, firmware in enumerate(("dead", "command", "dead", "well")):
        goes = await Pair(functions[0], number).make()
        await goes.exchange(rng)
        for side in (0, 1):  # messages in both directions, and READs of what will be gone
            await goes.post(WrOpcode.RDMA_WRITE, 0, LENGTH, side=side)
            await goes.post(WrOpcode.RDMA_READ, 0, LENGTH, side=side)
        await testbench.cycles(300 * number)
        if firmware == "command":
            command = cocotb.start_soon(node.context.alloc_pd())
            await testbench.cycles(700)
            command.cancel()
        if firmware != "well":
            node.stop_firmware()
        assert await function_reset(dut, testbench, over=firmware == "well") < 50_000
        if firmware != "well":
            assert await status_of(node) == Status.DEVICE_NEEDS_RESET
        # The peer goes on with what it has; nothing of it reaches the host.
        before, since = goes.mrs[0].read(LENGTH), rounds
        goes.mrs[1].write(np.random.default_rng(number).integers(0, 256, LENGTH, np.uint8))
        for _ in range(3):
            await goes.post(WrOpcode.RDMA_WRITE, 0, LENGTH, side=1)
        while rounds < since + 3:
            await testbench.cycles(500)
        assert np.array_equal(goes.mrs[0].read(LENGTH), before)
        if firmware != "well":
            assert await status_of(node) == Status.DEVICE_NEEDS_RESET
            node.start_firmware()
        await together(*(one.context.close() for one in functions[0]))
        await together(*(one.start() for one in functions[0]))
        for one in functions[0]:
            one.host.set(mmio_latency_ns=0)
    running = False
    await task
    for one in (*functions[0], *functions[1]):
        assert not one.host.faults, one.host.faults
    last = await Pair(functions[0], 9).make()
    await last.exchange(rng)
    await stays.exchange(rng)


@cocotb.test(skip=QUICK)
async def resets_in_a_loop(dut):
    """A driver resets its function again as soon as a reset has ended, with a command under way in
    front of the first. The commands of the other function go on, none of them much later."""
    system, functions = await up(dut)
    restless, stays = functions[0][0], functions[1][0]
    now, running = stays.context.device.platform.now, True

    async def longest(rounds: int) -> int:
        most = 0
        for _ in range(rounds):
            start = now()
            pd = await stays.context.alloc_pd()
            await pd.close()
            most = max(most, now() - start)
        return most

    async def reset() -> int:
        resets = 0
        while running:
            await restless.context.device.reset()
            resets += 1
        return resets

    before = await longest(10)
    await Pair(functions[0], 1).make()
    command = cocotb.start_soon(restless.context.alloc_pd())
    await system.testbench.cycles(500)
    command.cancel()
    task = cocotb.start_soon(reset())
    during = await longest(40)
    running = False
    resets = await task
    dut._log.info("%d resets; two commands took %d ns, then %d ns", resets, before, during)
    assert resets > 20 and during < 8 * before, (resets, before, during)
    for node in functions[0]:
        await node.context.close()
    await together(*(node.start() for node in functions[0]))
    await (await Pair(functions[0], 2).make()).exchange(random.Random(1))


@cocotb.test()
async def neighbours(dut):
    """Two functions of one card talk to each other, and with the other card at the same time."""
    _, functions = await up(dut)
    pairs = [
        await Pair([functions[0][0], functions[1][0]], 1).make(),
        await Pair([functions[1][1], functions[0][1]], 2).make(),
        await Pair(functions[0], 3).make(),
    ]

    async def talk(pair: Pair, seed: int) -> None:
        for turn in range(4):
            await pair.exchange(random.Random(seed + turn))

    for task in [cocotb.start_soon(talk(pair, 100 * n)) for n, pair in enumerate(pairs)]:
        await task
    for node in functions[0]:
        assert (await node.counters())["loopback_packets"] > 0
        assert not node.host.faults, node.host.faults
