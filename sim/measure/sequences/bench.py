"""The scenes of ``sequences``, inside the simulation; it keeps ``scenes``, by name.

Each scene begins with what a driver posts and ends when both drivers have what they wait for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import Access, SendFlags, WcStatus, WrOpcode
from hdl.abi.virtio_rdma import CQE, PAGE_SIZE
from hdl.config import NicConfig
from sim.bench.job import Job
from sim.bench.system import VISIBLE_NS, Node, QpOptions, System, connect, together
from sim.guest.cm.agent import Agent, Listener
from sim.guest.cm.params import ConnParam
from sim.guest.verbs import CQ, MR, QP, QPAttr, QPCap, QPInitAttr, RecvWR, SendWR
from sim.guest.verbs.work_queue import WorkQueue
from sim.measure.sequences.story import Names, Step, of_frame, of_port, steps
from sim.models.impairments import Impairments
from sim.models.platform import Wire
from sim.models.port_log import PortLog
from sim.wire.pcap import read_pcap

#: A limit for the whole run, in cycles.
DEADLINE_CYCLES = 10**8
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
LENGTH = 1 << 14
PORT = 7471
WAIT_NS = 4_000_000


class Scenes:
    """The objects of both nodes, and what was seen of each scene."""

    def __init__(self, system: System, folder: Path):
        self.system, self.folder = system, folder
        self.found: dict[str, list[dict[str, Any]]] = {}
        self._said: list[Step] = []

    async def set_up(self) -> None:
        """A connection with a region and a CQ on each side."""
        nodes = self.system.nodes
        pds = await together(*(node.context.alloc_pd() for node in nodes))
        self.cqs: list[CQ] = await together(*(CQ.create(node.context, 64) for node in nodes))
        self.mrs: list[MR] = await together(*(MR.create(pd, LENGTH, RIGHTS) for pd in pds))
        self.qps = await connect(nodes, pds, self.cqs, QpOptions(timeout=5))

    def say(self, side: int, text: str) -> None:
        """Something that a driver does by itself."""
        lane = 0 if side == 0 else 5
        self._said.append(Step(self.system.nodes[side].host.now(), lane, lane, text))

    async def scene(
        self,
        name: str,
        play: Callable[[], Awaitable[None]],
        *,
        lost: int = 0,
        memory: bool = True,
    ) -> None:
        """Play a scene and keep its steps. lost: how many of the first frames of A are lost.
        memory: whether the cards' accesses to memory are told."""
        nodes, wires = self.system.nodes, self.system.testbench.wires
        self._said.clear()
        logs = [PortLog(node.index) for node in nodes]
        path = self.folder / "scene.pcap"
        Wire.capture(str(path))
        await play()
        Wire.end_capture()
        found = list(self._said)
        for side, (node, log) in enumerate(zip(nodes, logs, strict=True)):
            names = self._names(node)
            found += of_port(side, log.take(), names, node.testbench.config.management_function)
        settings = wires[0].settings
        gbps, delay = 8000 / settings.ps_per_byte, settings.delay_ps / 1000
        for time, frame in read_pcap(path):
            gone = frame[11] == 1 and lost > 0
            lost -= gone
            found.append(of_frame(time, frame, gbps, delay, gone))
        end = max(one.time for one in self._said)
        self.found[name] = steps(
            one for one in found if one.time <= end and (memory or not one.of_memory)
        )

    def _names(self, node: Node) -> Names:
        """What the driver's objects are called."""
        names = Names()
        for number, qp in node.context.qps.items():
            assert isinstance(qp, QP)
            kind = "GSI " if number == 1 else ""
            _queue(names, qp.sq, f"{kind}send queue")
            _queue(names, qp.rq, f"{kind}receive queue")
        for cq in node.context.cqs.values():
            assert isinstance(cq, CQ)
            _ring(names, cq.queue, "CQ")
            for addr in cq.queue.pending:
                assert isinstance(addr, int)
                names.area(addr, CQE.size, "CQE")
        for mr in node.context.mrs.values():
            assert isinstance(mr, MR)
            names.area(mr.table.address, 8 * len(mr.table.pages), "page list")
            for page in mr.table.pages:
                names.area(int(page), PAGE_SIZE, "payload")
        _ring(names, node.context.device.control, "control queue")
        return names

    async def _done(self, side: int) -> None:
        """Wait for the interrupt of a completion, and take it."""
        await self.cqs[side].get_event(WAIT_NS)
        (done,) = await self.cqs[side].poll()
        assert done.status == WcStatus.SUCCESS, done
        self.say(side, "takes the completion")

    async def _post(self, opcode: WrOpcode, length: int) -> None:
        wr = SendWR(1, opcode, [self.mrs[0].sge(0, length)], SendFlags.SIGNALED)
        if opcode != WrOpcode.SEND:
            wr.set_wr_rdma(self.mrs[1].rkey, self.mrs[1].iova)
        self.say(0, f"posts {opcode.name.replace('_', ' ')}, {length} B")
        await self.qps[0].post_send(wr)

    async def one(self, name: str, opcode: WrOpcode, length: int, lost: int = 0) -> None:
        """A scene of one request, whose first packets may be lost; what it moves is compared."""
        if opcode == WrOpcode.SEND:
            await self.qps[1].post_recv(RecvWR(2, [self.mrs[1].sge(0, length)]))
        await together(*(cq.req_notify() for cq in self.cqs))
        await Timer(VISIBLE_NS, "ns")
        texts = [bytes((number * 7 + side) % 251 for number in range(length)) for side in (0, 1)]
        for mr, text in zip(self.mrs, texts, strict=True):
            mr.write(text)
        if lost:
            operation = {WrOpcode.RDMA_WRITE: "write"}[opcode]
            impairments = Impairments.parse(f"drop={operation}:1-{lost}")
            self.system.testbench.wires[0].impair(impairments)

        async def play() -> None:
            await self._post(opcode, length)
            waiting = [self._done(0)]
            if opcode == WrOpcode.SEND:
                waiting.append(self._done(1))
            await together(*waiting)

        await self.scene(name, play, lost=lost)
        self.system.testbench.wires[0].impair()
        await Timer(VISIBLE_NS, "ns")
        read = opcode == WrOpcode.RDMA_READ
        assert self.mrs[0 if read else 1].read(length).tobytes() == texts[1 if read else 0]


def _ring(names: Names, ring: Any, name: str) -> None:
    names.queues[ring.index] = name
    names.area(ring.desc, 16 * ring.size, f"descriptors of {name}")
    names.area(ring.avail, 6 + 2 * ring.size, f"available ring of {name}")
    names.area(ring.used, 6 + 8 * ring.size, f"used ring of {name}")


def _queue(names: Names, queue: WorkQueue, name: str) -> None:
    _ring(names, queue.ring, name)
    places = queue.places
    names.area(places.start, len(places), f"WQE of {name}")


async def _connect(scenes: Scenes) -> None:
    """REQ, REP and RTU of the connection manager, between two agents."""
    nodes = scenes.system.nodes
    neighbours = {node.context.query_gid(1, 0): node.mac for node in nodes}
    agents = [
        await Agent.open(node.context, neighbours.get, seed=number)
        for number, node in enumerate(nodes)
    ]
    for agent in agents:
        cocotb.start_soon(agent.run())
    cap = QPCap(max_send_wr=8, max_recv_wr=8)
    qps = []
    for node, cq in zip(nodes, scenes.cqs, strict=True):
        pd = await node.context.alloc_pd()
        qps.append(await QP.create(pd, QPInitAttr(scenes.qps[0].qp_type, cq, cq, cap)))
        await qps[-1].to_init(QPAttr())
    listener = agents[1].listen(PORT)

    async def accept(listener: Listener) -> None:
        one = await listener.get_request(timeout_ns=WAIT_NS)
        scenes.say(1, "has a request, accepts it")
        await one.accept(qps[1], ConnParam(b"welcome"))
        scenes.say(1, "is connected")

    async def ask() -> None:
        scenes.say(0, "connects")
        await agents[0].connect(qps[0], nodes[1].context.query_gid(1, 0), PORT, ConnParam(b"hello"))
        scenes.say(0, "is connected")

    async def play() -> None:
        await together(accept(listener), ask())

    await scenes.scene("connect", play, memory=False)
    for agent in agents:
        await agent.close()


@cocotb.test()
async def sequences(dut: Any) -> None:
    """All scenes, one after the other."""
    job = Job()
    config = NicConfig(width=job.spec["width"])
    system = await System.start(dut, config, deadline_cycles=DEADLINE_CYCLES, memory=1 << 26)
    scenes = Scenes(system, Path(job.spec["folder"]))
    await scenes.set_up()
    # The first message finds no page address on the card; those that are told find them all.
    await scenes.one("warm-up", WrOpcode.RDMA_WRITE, LENGTH)
    await scenes.one("WRITE", WrOpcode.RDMA_WRITE, 64)
    await scenes.one("SEND", WrOpcode.SEND, 64)
    await scenes.one("READ", WrOpcode.RDMA_READ, 8192)
    await scenes.one("retry after a NAK", WrOpcode.RDMA_WRITE, 12288, lost=1)
    await scenes.one("retry after a time-out", WrOpcode.RDMA_WRITE, 64, lost=1)
    await _connect(scenes)
    del scenes.found["warm-up"]
    job.keep(scenes=scenes.found)
