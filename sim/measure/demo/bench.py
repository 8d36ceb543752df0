"""The demonstration, inside the simulation: ``command`` starts it and shows what it found.

It is asked for ``config`` (fields of ``NicConfig``), ``pcap`` (where to), ``impair`` (the network
between two cards), ``timer_scale``, ``longest`` (bytes of a message) and ``captures`` (list of
files to replay).
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Access, WcStatus, WrOpcode
from hdl.config import NicConfig
from sim.bench.job import Job
from sim.bench.system import VISIBLE_NS, Node, QpOptions, System, connect
from sim.guest.verbs import CQ, MR, PD, QP, SGE, WC, RecvWR, SendWR
from sim.measure.demo.scope import PACKETS, Crowd, Scope, close, lacking, patience_ns, setting_up
from sim.measure.demo.services import left_out, service_rows
from sim.models.impairments import Impairments
from sim.models.platform import Wire
from sim.replay.bench import play_run
from sim.replay.plan import Plan

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
#: Message size in bytes -> messages.
SIZES = {1: 32, 64: 32, 1024: 32, 4096: 32, 65536: 16, 1 << 20: 4}
#: The same for a recording of all signals.
RECORDED = {1: 1, 64: 4, 5000: 2}
OPERATIONS = {
    "SEND": WrOpcode.SEND,
    "WRITE": WrOpcode.RDMA_WRITE,
    "READ": WrOpcode.RDMA_READ,
}
#: Simulated time between two looks at a CQ when a latency is measured, ns.
LOOK_NS = 20
#: SENDs of a few bytes are left out here: Wireshark takes some of them for RPC and errs.
QPS, CQS, MESSAGES, SHORTEST, LONGEST = 64, 16, 6, 64, 12_000
#: Bytes of one side of one of these QPs.
AREA = MESSAGES * (LONGEST + 64)
#: A simulation of the whole demonstration ends after so many cycles, whatever it waits for: the
#: slowest card takes a tenth of them.
DEADLINE_CYCLES = 200_000_000


def sizes_of(scope: Scope, longest: int) -> dict[int, int]:
    """Message size in bytes -> messages, of sizes up to ``longest``, that a card is asked for."""
    counts = {size: scope.messages(size, count) for size, count in SIZES.items()}
    return {size: count for size, count in counts.items() if count and size <= longest}


def _too_long(scope: Scope) -> list[dict[str, Any]]:
    """Which sizes of each operation a card is not asked for, and why."""
    return [
        {"op": name, "size": size, "why": f"mtu below {size // PACKETS}"}
        for name in OPERATIONS
        for size, count in SIZES.items()
        if not scope.messages(size, count)
    ]


class Demo(Job):
    """One run."""

    def __init__(self) -> None:
        super().__init__()
        self.config = NicConfig(**self.spec["config"])
        self.scope = Scope(self.config)
        self.impair = Impairments.parse(self.spec["impair"])
        # Of a QP: 262 us on a bad network, which is longer than anything takes here.
        self.timeout = 6 if self.spec["impair"] else QpOptions.timeout

    async def start(self, dut: Any) -> System:
        """Both cards, up, with as much memory as they have addresses; the firmware has stopped."""
        system = await System.start(
            dut,
            self.config,
            deadline_cycles=DEADLINE_CYCLES,
            timer_scale=self.spec["timer_scale"],
            memory=self.scope.memory,
        )
        system.stop_firmware()
        return system


async def _ends(
    nodes: list[Node], size: int, completions: int
) -> tuple[list[PD], list[CQ], list[MR]]:
    pds = [await n.context.alloc_pd() for n in nodes]
    cqs = [await CQ.create(n.context, completions) for n in nodes]
    mrs = [await MR.create(pd, size, RIGHTS, offset=37) for pd in pds]
    return pds, cqs, mrs


def _request(number: int, opcode: WrOpcode, sge: SGE, remote: MR, offset: int) -> SendWR:
    request = SendWR(number, opcode, [sge])
    if opcode != WrOpcode.SEND:
        request.set_wr_rdma(remote.rkey, remote.iova + offset)
    return request


async def _batch(qps, cqs, mrs, opcode, size, numbers) -> tuple[int, int]:
    """Messages back to back; simulated time of the first post and the last completion.

    numbers: message -> its offset in both regions.
    """
    begin, patience = cqs[0].ctx.device.platform.now(), patience_ns(len(numbers) * size)
    if opcode == WrOpcode.SEND:
        await qps[1].post_recv([RecvWR(i, [mrs[1].sge(at, size)]) for i, at in numbers.items()])
    requests = [_request(i, opcode, mrs[0].sge(at, size), mrs[1], at) for i, at in numbers.items()]
    await qps[0].post_send(requests)
    found = await cqs[0].wait(len(numbers), timeout_ns=patience)
    end = cqs[0].ctx.device.platform.now()
    if opcode == WrOpcode.SEND:
        found += await cqs[1].wait(len(numbers), timeout_ns=patience)
    _all_good(found)
    return begin, end


async def _one(qps, cqs, mrs, opcode, size) -> int:
    """Time of one message alone from posting to its completion, ns; its resolution is LOOK_NS."""
    if opcode == WrOpcode.SEND:
        await qps[1].post_recv(RecvWR(0, [mrs[1].sge(0, size)]))
    now = cqs[0].ctx.device.platform.now
    begin, patience = now(), patience_ns(size)
    await qps[0].post_send(_request(0, opcode, mrs[0].sge(0, size), mrs[1], 0))
    while not (found := await cqs[0].poll(1)):
        await Timer(LOOK_NS, "ns")
        if now() - begin > patience:
            raise AssertionError(f"No completion of one {opcode.name} of {size} bytes")
    took = now() - begin
    if opcode == WrOpcode.SEND:
        found += await cqs[1].wait(1, timeout_ns=patience)
    _all_good(found)
    return took


def _all_good(found: list[WC]) -> None:
    bad = [wc for wc in found if wc.status != WcStatus.SUCCESS]
    if bad:
        raise AssertionError(f"{len(bad)} of {len(found)} completions in error, first {bad[0]}")


@cocotb.test()
async def traffic(dut: Any) -> None:
    """Every operation and size between two cards, compared byte for byte."""
    demo = Demo()
    Wire.capture(demo.spec["pcap"])
    started = time.monotonic()
    system = await demo.start(dut)
    wires = system.testbench.wires
    for wire in wires:
        wire.impair(demo.impair)
    rows = await _operations(demo, system, sizes_of(demo.scope, demo.spec["longest"]))
    if not demo.spec["impair"]:  # UC and UD do not send again what is lost
        rows += await service_rows(system, demo.timeout, demo.scope, demo.say)
    demo.keep(rows=rows, rows_left_out=[*_too_long(demo.scope), *left_out(demo.scope)])
    await _many(demo, system)
    Wire.end_capture()
    demo.keep(
        frames=sum(wire.outward.frames for wire in wires),
        lost=sum(wire.outward.gone for wire in wires),
    )
    cycles = system.nodes[0].host.now() * demo.config.clock_hz // 10**9
    skipped = system.testbench.clock.skipped
    demo.keep(cycles=cycles, skipped=skipped, seconds=time.monotonic() - started)


@cocotb.test()
async def recording(dut: Any) -> None:
    """A little of everything, short enough to be recorded with all its signals."""
    demo = Demo()
    system = await demo.start(dut)
    await _operations(demo, system, RECORDED)


async def _operations(demo: Demo, system: System, sizes: dict[int, int]) -> list[dict[str, Any]]:
    """Every operation in ``sizes`` (bytes -> messages) on one QP; what the table shows."""
    rng = np.random.default_rng(1)
    nodes, scope = system.nodes, demo.scope
    most = max(size * count for size, count in sizes.items()) + 512
    async with setting_up(system):
        pds, cqs, mrs = await _ends(nodes, most, scope.completions)
        qps = await connect(nodes, pds, cqs, scope.options(demo.timeout))
    rows = []  # from here on the hardware is alone
    for name, opcode in OPERATIONS.items():
        for size, count in sizes.items():
            demo.say(f"{name} of {size} bytes")
            local, remote = (mrs[1], mrs[0]) if name == "READ" else (mrs[0], mrs[1])
            data = rng.integers(0, 256, local.length, np.uint8)
            local.write(data)
            latency = await _one(qps, cqs, mrs, opcode, size)
            remote.fill(0)
            stride = (mrs[0].length - 16) // count
            places = [(i, i * stride) for i in range(count)]
            times = [
                await _batch(qps, cqs, mrs, opcode, size, dict(places[i : i + scope.depth]))
                for i in range(0, count, scope.depth)
            ]
            # A completion says that the peer's card has the message; memory shows it a bit later.
            await Timer(VISIBLE_NS, "ns")
            got = remote.read(remote.length)
            for i in range(count):
                part = slice(i * stride, i * stride + size)
                if not np.array_equal(got[part], data[part]):
                    raise AssertionError(f"{name} of {size} bytes: message {i} differs")
                got[part] = 0
            if got.any():
                raise AssertionError(f"{name} of {size} bytes: bytes outside the messages changed")
            rows.append(
                {
                    "op": name,
                    "size": size,
                    "messages": count,
                    "bytes_verified": size * count,
                    "begin_ns": times[0][0],
                    "end_ns": times[-1][1],
                    "latency_ns": latency,
                    "sender": 1 if name == "READ" else 0,
                }
            )
    await close(system, [*qps, *mrs, *cqs, *pds])
    return rows


@dataclass(frozen=True)
class _Message:
    """What is where: ``size`` bytes of ``source`` that come to ``sink``, at the same offset."""

    name: str
    source: MR
    sink: MR
    offset: int
    size: int


@dataclass
class _Crowd:
    """Many QPs on few CQs; ``wanted`` counts the completions of each CQ of each side."""

    size: Crowd
    sges: int
    qps: list[tuple[QP, QP]]
    cqs: list[list[CQ]]
    mrs: list[MR]
    wanted: list[list[int]] = field(default_factory=list)

    @classmethod
    async def create(cls, demo: Demo, system: System) -> _Crowd:
        """Set all up."""
        nodes, scope = system.nodes, demo.scope
        size = scope.crowd(QPS, CQS, MESSAGES, AREA)
        demo.say(f"{size.qps} QPs on {size.cqs} CQs: setting up")
        entries, vectors = scope.completions, range(size.cqs)
        async with setting_up(system):
            pds = [await n.context.alloc_pd() for n in nodes]
            cqs = [
                [await CQ.create(n.context, entries, comp_vector=i) for i in vectors] for n in nodes
            ]
            mrs = [await MR.create(pd, 2 * size.qps * AREA, RIGHTS, offset=1) for pd in pds]
            options = scope.options(demo.timeout, mtu=1024, qps=size.qps)
            qps = [
                await connect(nodes, pds, [cqs[n][i % size.cqs] for n in (0, 1)], options)
                for i in range(size.qps)
            ]
        crowd = cls(size, scope.sges, qps, cqs, mrs)
        crowd._none_wanted()
        return crowd

    def _none_wanted(self) -> None:
        self.wanted = [[0] * self.size.cqs for _ in self.cqs]

    async def post(
        self, rng: random.Random, number: int, side: int, first: int, count: int
    ) -> list[_Message]:
        """Post ``count`` messages of one side of QP ``number``, receives before sends."""
        me, peer, cq = self.mrs[side], self.mrs[1 - side], number % self.size.cqs
        requests, receives, messages = [], [], []
        for k in range(first, first + count):
            size = rng.randint(SHORTEST, LONGEST)
            at = (2 * number + side) * AREA + k * (LONGEST + 64) + rng.randrange(1, 32, 2)
            opcode = rng.choice(list(OPERATIONS.values()))
            cut = rng.randrange(0, size)
            sges = [me.sge(at, cut), me.sge(at + cut, size - cut)]
            if self.sges < len(sges):
                sges = [me.sge(at, size)]
            request = SendWR(number << 8 | k, opcode, sges)
            # What one side sends lies at the same offset of the other's region.
            if opcode == WrOpcode.SEND:
                receives.append(RecvWR(1 << 32 | number << 8 | k, [peer.sge(at, size)]))
                self.wanted[1 - side][cq] += 1
            else:
                request.set_wr_rdma(peer.rkey, peer.iova + at)
            requests.append(request)
            self.wanted[side][cq] += 1
            source, sink = (peer, me) if opcode == WrOpcode.RDMA_READ else (me, peer)
            name = f"QP {number} side {side} message {k}"
            messages.append(_Message(name, source, sink, at, size))
        if receives:
            await self.qps[number][1 - side].post_recv(receives)
        await self.qps[number][side].post_send(requests)
        return messages

    async def completions(self) -> None:
        """Wait for all that are wanted; AssertionError when one is in error."""
        patience = patience_ns(self.mrs[0].length)
        for cqs, counts in zip(self.cqs, self.wanted, strict=True):
            for cq, count in zip(cqs, counts, strict=True):
                if count:
                    _all_good(await cq.wait(count, timeout_ns=patience))
        self._none_wanted()


async def _many(demo: Demo, system: System) -> None:
    """Many QPs on few CQs at once, both directions, odd offsets, host completions out of order."""
    nodes = system.nodes
    rng = random.Random(2)
    crowd = await _Crowd.create(demo, system)
    qps, cqs, at_once = crowd.size.qps, crowd.size.cqs, crowd.size.at_once
    for node in nodes:
        node.host.set(read_jitter_ns=400, chunk_bytes=64, reorder=True, seed=5)
    demo.say(f"{qps} QPs on {cqs} CQs: traffic in both directions")

    begin = nodes[0].host.now()
    for mr in crowd.mrs:
        mr.write(np.random.default_rng(mr.lkey).integers(0, 256, mr.length, np.uint8))
    befores = [mr.read(mr.length) for mr in crowd.mrs]  # no two messages share a byte
    order = [(i, side) for i in range(qps) for side in (0, 1)]
    rng.shuffle(order)
    messages: list[_Message] = []
    for first in range(0, MESSAGES, at_once):
        count = min(at_once, MESSAGES - first)
        for i, side in order:
            messages += await crowd.post(rng, i, side, first, count)
        await crowd.completions()
    end = nodes[0].host.now()
    await Timer(VISIBLE_NS, "ns")
    for one in messages:
        sent = befores[crowd.mrs.index(one.source)][one.offset : one.offset + one.size]
        if not np.array_equal(sent, one.sink.read(one.size, one.offset)):
            raise AssertionError(f"{one.name}: {one.size} bytes differ")
    demo.keep(
        many={
            "qps": qps,
            "cqs": cqs,
            "messages": len(messages),
            "bytes_verified": sum(one.size for one in messages),
            "begin_ns": begin,
            "end_ns": end,
        }
    )


@cocotb.test()
async def replays(dut: Any) -> None:
    """Recorded Linux traffic into one card, from either side."""
    demo = Demo()
    reports, nothing = [], []
    why = lacking(demo.config)
    for path in [] if why else map(Path, demo.spec["captures"]):
        plan = Plan(path)
        runs = {letter: plan.runs(letter, demo.scope.card)[0] for letter in "AB"}
        if not any(runs.values()):
            nothing.append(path.name)
        for letter in "AB":
            for run in runs[letter]:
                demo.say(f"replaying {path.name} as side {letter}")
                report = await play_run(dut, demo.config, path.name, run)
                reports.append(report.facts())
    demo.keep(replays=reports, left_out=nothing, replays_left_out=why)
