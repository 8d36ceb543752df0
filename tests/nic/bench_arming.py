"""A CQ is armed by its doorbell, for what its driver has not seen."""

from __future__ import annotations

import random

import cocotb

from hdl.abi.enums import ControlCommand, RdmaFeature, SendFlags, WrOpcode
from hdl.abi.virtio_rdma import ARM_SEEN_BITS, CQ_DOORBELL
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import RecvWR
from tests.nic.bench_nic import WAIT_NS, Pair

WITHOUT = DriverOptions(features=ALL_FEATURES & ~RdmaFeature.ARM_CQ.mask)


class Armed:
    """The CQ of the receiving side of a pair, and what it is told."""

    def __init__(self, pair: Pair):
        self.pair, self.cq = pair, pair.cqs[1]
        self.device = pair.nodes[1].context.device

    @property
    def told(self) -> int:
        """Messages of its vector so far."""
        return self.device.interrupts[self.cq.queue.vector]

    async def ring(self, seen: int, solicited: int = 0, size: int = 4) -> None:
        """A doorbell of ``size`` bytes, and time for what it does."""
        data = CQ_DOORBELL.pack(queue=self.cq.queue.index, seen=seen | solicited << ARM_SEEN_BITS)
        await self.device.ring(self.cq.queue, data[:size])
        await self.pair.nodes[1].testbench.cycles(2000)

    async def message(self, flags: int = 0) -> int:
        """How often a message that comes is told."""
        p, before = self.pair, self.told
        await p.qps[1].post_recv([RecvWR(1, [p.mrs[1].sge(0, 64)])])
        flags |= SendFlags.SIGNALED
        await p.qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 8)], flags=flags))
        await p.good(side=1)
        await p.good()
        await p.nodes[1].testbench.cycles(2000)
        return self.told - before


@cocotb.test()
async def by_doorbell(dut):
    """No command is sent for it; what has not been seen is told at once; two bytes arm nothing."""
    p = await Pair.up(dut)
    one = Armed(p)
    requests = [node.context.device for node in p.nodes]
    assert all(device.has(RdmaFeature.ARM_CQ) for device in requests)
    sent: list[int] = []
    send = type(p.nodes[1].context).command

    async def command(number: ControlCommand, **fields):
        sent.append(number)
        return await send(p.nodes[1].context, number, **fields)

    p.nodes[1].context.command = command
    assert await one.message() == 0
    await p.cqs[1].req_notify()
    assert await one.message() == 1
    assert await one.message() == 0
    await p.cqs[1].req_notify(solicited_only=True)
    assert await one.message() == 0
    assert await one.message(SendFlags.SOLICITED) == 1
    assert not sent, sent
    told = one.told
    await one.ring(4)  # one of five is not known
    assert one.told == told + 1 and await one.message() == 0
    await one.ring(6, size=2)
    assert await one.message() == 0
    await one.ring(7)
    assert await one.message() == 1
    # The command is still there.
    flags = 2
    await command(ControlCommand.REQ_NOTIFY_CQ, cqn=p.cqs[1].cqn, flags=flags)
    assert await one.message() == 1


@cocotb.test()
async def without_the_feature(dut):
    """Four bytes are those of NOTIFICATION_DATA then, and arm nothing; the command arms."""
    p = await Pair.up(dut, options=WITHOUT)
    one = Armed(p)
    await one.ring(0)
    assert await one.message() == 0
    await one.ring(0)
    assert one.told == 0
    await p.cqs[1].req_notify()
    assert await one.message() == 1


@cocotb.test()
async def anything_rung(dut):
    """Any four bytes at any doorbell of the function: traffic goes on, whole, and nothing else is
    told than CQs' vectors."""
    p = await Pair.up(dut)
    one, rng = Armed(p), random.Random(5)
    device, running, rings = one.device, True, 0

    async def ring() -> None:
        nonlocal rings
        while running:
            queue = rng.choice([q for q in device.queues.values() if q.index])
            await device.ring(queue, rng.randbytes(4))
            rings += 1
            await p.nodes[1].testbench.cycles(rng.randrange(1, 40))

    task = cocotb.start_soon(ring())
    for number in range(8):
        at = rng.randrange(60_000)
        await p.qps[1].post_recv([RecvWR(number, [p.mrs[1].sge(at, 4000)])])
        await p.qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(at, 4000)]))
        await p.good(side=1)
        await p.good()
        assert (p.mrs[1].read(4000, at) == p.mrs[0].read(4000, at)).all()
    running = False
    await task
    assert rings > 50 and one.told, (rings, one.told)
    # And then it still works as it should.
    await p.cqs[1].req_notify()
    await p.qps[1].post_recv([RecvWR(1, [p.mrs[1].sge(0, 64)])])
    await p.qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 8)]))
    await p.cqs[1].get_event(timeout_ns=WAIT_NS)
