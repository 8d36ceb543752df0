"""Driver and verbs over the bridge's protocol, against a device in Python behind it."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest

from hdl.abi.enums import Access, QpState, WcStatus, WrOpcode
from hdl.bridge.protocol import ANSWER, BLOCK_BYTES, MESSAGE_WINDOW, NO_BLOCK, Command, Status
from sim.guest.bridge.link import Link, check
from sim.guest.bridge.platform import BridgePlatform
from sim.guest.driver.device import DriverOptions
from sim.guest.driver.platform import Message
from sim.guest.verbs import CQ, MR, QP, Context, QPAttr, QPCap, QPInitAttr, RecvWR, SendWR
from tests.sim.fake_device import FakeRdma
from tests.sim.fake_pci import FakePlatform

SIZE = 1 << 18
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE
SIZES = (1, 64, 5000)


class Messages(dict):
    """What the device raises: bit n of ``arrived`` is message n."""

    arrived = 0

    def __missing__(self, message: Message):
        def raised() -> None:
            number, rest = divmod(message.address - MESSAGE_WINDOW, 4)
            assert 0 <= number < 32 and not rest
            self.arrived |= 1 << number

        return raised


class Board:
    """The bridge in plain Python in front of a device in plain Python; a ``Line``."""

    def __init__(self) -> None:
        self.platform = FakePlatform(size=SIZE, base=0)
        self.platform.handlers = self.messages = Messages()
        self.device = FakeRdma(self.platform, queue_size=16)
        self.memory = self.platform.memory.bytes
        self._told = self.memory.copy()
        self._answer = b""

    def lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def send(self, octets: bytes) -> None:
        text = octets[1:-2]
        assert check(text) == octets[-2:]
        data = await self._execute(text[0], text[1], int.from_bytes(text[2:6], "little"), text[6:])
        answer = bytes((text[0], Status.OK, len(data))) + data
        self._answer = bytes((ANSWER,)) + answer + check(answer)

    async def receive(self, count: int) -> bytes:
        octets, self._answer = self._answer[:count], self._answer[count:]
        return octets

    async def _execute(self, command: int, argument: int, at: int, data: bytes) -> bytes:
        if command == Command.POLL:
            return self._poll()
        if command == Command.WRITE_MEMORY:
            for n, lane in itertools.product(range(argument), range(8)):
                if data[9 * n + 8] >> lane & 1:
                    place = at + 8 * n + lane
                    self.memory[place] = self._told[place] = data[9 * n + lane]
            return b""
        function, bar, addr = at >> 23, at >> 20 & 7, at & 0xFFFFF
        lane = (argument & -argument).bit_length() - 1
        size = argument.bit_count()
        if command == Command.READ_REGISTER:
            value = await self.platform.read(function, bar, addr + lane, size)
            return (value << 8 * lane).to_bytes(4, "little")
        value = int.from_bytes(data[lane : lane + size], "little")
        await self.platform.write(function, bar, addr + lane, size, value)
        return b""

    def _poll(self) -> bytes:
        self.device.step()
        arrived, self.messages.arrived = self.messages.arrived, 0
        changed = np.flatnonzero(self.memory != self._told)
        if not changed.size:
            return arrived.to_bytes(4, "little") + NO_BLOCK.to_bytes(4, "little")
        block = int(changed[0]) // BLOCK_BYTES
        place = slice(BLOCK_BYTES * block, BLOCK_BYTES * (block + 1))
        self._told[place] = self.memory[place]
        head = arrived.to_bytes(4, "little") + block.to_bytes(4, "little")
        return head + self.memory[place].tobytes()


@pytest.mark.parametrize("vectors", [0, 2])
def test_verbs_over_the_bridge(vectors):
    """SENDs and WRITEs between two QPs; interrupts, or none; memory is alike at the end."""

    async def main() -> None:
        board = Board()
        clock = itertools.count(step=1000)
        host = BridgePlatform(Link(board), SIZE, lambda: next(clock))
        options = DriverOptions(timeout_ns=10_000_000, vectors=vectors)
        context = await Context.open(host, 1, options)
        pd = await context.alloc_pd()
        cqs = [await CQ.create(context, 8) for _ in range(2)]
        mrs = [await MR.create(pd, 6000, RIGHTS) for _ in range(2)]
        cap = QPCap(max_send_wr=8, max_recv_wr=8)
        qps = [await QP.create(pd, QPInitAttr(scq=cq, rcq=cq, cap=cap)) for cq in cqs]
        for qp, peer in zip(qps, reversed(qps), strict=True):
            await qp.to_rts(QPAttr(dest_qp_num=peer.qp_num))
        assert qps[0].state == QpState.RTS
        data = np.random.default_rng(1).integers(0, 256, 6000, np.uint8)
        mrs[0].write(data)
        for n, opcode in itertools.product(range(3), (WrOpcode.SEND, WrOpcode.RDMA_WRITE)):
            size = SIZES[n]
            mrs[1].write(np.zeros(6000, np.uint8))
            request = SendWR(n, opcode, [mrs[0].sge(0, size)])
            if opcode == WrOpcode.SEND:
                await qps[1].post_recv([RecvWR(n, [mrs[1].sge(0, size)])])
            else:
                request.set_wr_rdma(mrs[1].rkey, mrs[1].iova)
            await qps[0].post_send([request])
            waiting = cqs if opcode == WrOpcode.SEND else cqs[:1]
            for cq in waiting:
                (done,) = await cq.wait(1, timeout_ns=10_000_000)
                assert done.status == WcStatus.SUCCESS
            assert (mrs[1].read(size) == data[:size]).all() and not mrs[1].read(6000)[size:].any()
        await host.wait_event(0)
        assert (host.memory.bytes == board.memory).all()
        assert bool(host.interrupts.received) == bool(vectors)

    asyncio.run(main())
