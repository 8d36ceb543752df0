"""Plays a scenario on two cards and fails with what should not have happened."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any

import cocotb
from cocotb.task import Task
from cocotb.triggers import Timer

from hdl.abi.enums import Mtu, QpType, SendFlags, WrOpcode
from hdl.config import NicConfig
from sim.bench.broken_rings import break_ring
from sim.bench.cards import EVERYTHING, FUNCTIONS, PLAIN
from sim.bench.scenario import services, strangers
from sim.bench.scenario.dynamic import Dynamic
from sim.bench.scenario.keys import Want, wanted
from sim.bench.scenario.ledger import Book, Place, Receive, Sent, State
from sim.bench.scenario.life import Connection, Gate
from sim.bench.scenario.plan import (
    INITIATORS,
    Attributes,
    Batch,
    Ending,
    Guest,
    Life,
    Message,
    Scenario,
    Stranger,
    Way,
    of_initiator,
)
from sim.bench.scenario.pool import Pool
from sim.bench.scenario.services import Unanswered
from sim.bench.scenario.side import GAP, WORD, Side
from sim.bench.scenario.words import words_for
from sim.bench.system import VISIBLE_NS, Node, System, connect, together
from sim.guest.driver.virtqueue import SplitQueue
from sim.guest.verbs import CQ, QP, RecvWR, SendWR
from sim.models.impairments import Impairments

__all__ = ["card", "play"]

#: Cards of kinds of scenarios that have another one than most: one whose whole rate is asked for;
#: one with two functions; one with all that a connection may need.
CARDS = {
    "heavy": NicConfig(width=512),
    "functions": FUNCTIONS,
    "placement": FUNCTIONS,
    **dict.fromkeys(("xrc", "dynamic", "pieces", "mkeys"), EVERYTHING),
}
#: When writes of a card are seen in a host's memory, ns, if not as soon as usual: so long that a
#: FLUSH that waits for nothing is noticed, and shorter than ``VISIBLE_NS``.
LATE_NS = {"placement": 1500}
#: Of one scenario: 12 ms, some times what the longest one takes; of a heavy one.
DEADLINE_CYCLES, WIDE_DEADLINE_CYCLES = 3_000_000, 12_000_000
#: Services whose requests are answered -> how a connection of one is.
_ANSWERED = {QpType.RC: Connection, QpType.XRC_INI: Connection, QpType.DCI: Dynamic}
#: Bytes of each sink that hostile WRITEs aim at.
SCRATCH = 4096
#: How long a card may take to stop a broken ring, ns.
BROKEN_NS = 100_000


def card(kind: str) -> NicConfig:
    """Return the configuration of the cards that a kind of scenarios is played on."""
    return CARDS.get(kind, PLAIN)


async def play(dut: Any, scenario: Scenario) -> None:
    """Play it; raises AssertionError for the first thing that is wrong."""
    kind = scenario.kind
    deadline = WIDE_DEADLINE_CYCLES if kind == "heavy" else DEADLINE_CYCLES
    system = await System.start(dut, card(kind), deadline_cycles=deadline)
    functions = [system.nodes]
    for _ in range(1, scenario.functions):
        beside = [Node(system.testbench, node.index, beside=node) for node in functions[-1]]
        await together(*(node.start() for node in beside))
        functions.append(beside)
    count = scenario.functions
    plays = [
        _Play(system, nodes, replace(scenario, pairs=scenario.pairs[number::count]), number)
        for number, nodes in enumerate(functions)
    ]
    for one in plays:
        await one.set_up()
    before = [await node.counters() for node in system.nodes]
    for wire, network in zip(system.testbench.wires, scenario.networks, strict=True):
        wire.impair(network)
    await together(*(one.run() for one in plays))
    injected = [sum(one.injected[side] for one in plays) for side in (0, 1)]
    await _accounts(system, before, injected)
    for node in system.nodes:
        assert scenario.guest or not node.host.faults, node.host.faults
    for wire in system.testbench.wires:
        wire.impair()
    await together(*(one.end() for one in plays))


class _Play:
    """The part of a scenario that the function ``number`` of each card plays."""

    def __init__(self, system: System, nodes: Sequence[Node], scenario: Scenario, number: int):
        self.system, self.scenario = system, scenario
        self.rng = random.Random(scenario.seed + (number << 32))  # no function has another's data
        self.wires = system.testbench.wires
        self.sides = [Side(node, self.rng) for node in nodes]
        for side in self.sides:
            side.on_completion = self._completed
        self.connections: list[Connection | None] = [None] * len(scenario.pairs)
        self.injected = [0, 0]
        self._of: dict[Book, Connection] = {}
        self._registrars: list[tuple[QP, CQ]] = []
        self._watchers: list[Task[None]] = []
        self._feeders: list[Task[None]] = []
        self.gate = Gate(len(scenario.pairs) if scenario.together else 0)

    async def set_up(self) -> None:
        """Make all that is there before the queue pairs."""
        for side in self.sides:
            await self._up(side)
        await self._prepare()

    async def run(self) -> None:
        """Live all lives, and wait until nothing moves any more."""
        self._watchers = [cocotb.start_soon(side.watch()) for side in self.sides]
        self._feeders = [cocotb.start_soon(side.pool.feed()) for side in self.sides if side.pool]
        work: list[Coroutine[Any, Any, Any]] = [
            self._pair(number, lives) for number, lives in enumerate(self.scenario.pairs)
        ]
        work.append(self._strangers())
        if self.scenario.guest:
            work.append(self._guest(self.scenario.guest))
        for task in [cocotb.start_soon(one) for one in work]:
            await task
        settle = sum(connection.settle_ns for connection in self.connections if connection)
        await Timer(settle + 10_000, "ns")
        for side in self.sides:
            side.settled()

    async def end(self) -> None:
        """Show on a good network that everything works, and is then left as it must be."""
        if self.scenario.guest:
            await self._again(self._watchers)
        await self._end(self._feeders)
        for watcher in self._watchers:
            watcher.cancel()
        for side in self.sides:
            side.settled()

    async def _end(self, feeders: list[Task[None]]) -> None:
        for life in self._either(_fresh(leaves=bool(feeders))):
            await self._connection(len(self.scenario.pairs), life, None)
        pools = [side.pool for side in self.sides if side.pool]
        for pool in pools:
            pool.full = True
        for feeder in feeders:
            await feeder
        if pools:
            await self._use_up(pools)
        await Timer(VISIBLE_NS, "ns")
        for side, registrar in zip(self.sides, self._registrars, strict=bool(self._registrars)):
            await side.keys.settled(*registrar)

    async def _up(self, side: Side) -> None:
        ways = [way for life in self.scenario.lives for way in life.ways]
        messages = [message for way in (*ways, *_fresh().ways) for message in way.messages]
        room = sum(m.length + GAP * (len(m.pieces) + len(m.landing) + 1) for m in messages)
        room += sum(WORD for message in messages if message.placement)
        atomics = sum(message.atomic for message in messages)
        room += sum(services.room(way) for way in ways) if self.scenario.kind == "services" else 0
        pieces = False
        if self.scenario.shared:
            shared = self.scenario.shared[side.node.index]
            room += shared.depth * (max(shared.buffer, self._largest()) + GAP)
            pieces = shared.segment > 0
        completions = 2 * len(messages)
        await side.up(SCRATCH + GAP + room, words_for(atomics), completions, pieces=pieces)
        side.scratch = side.take((SCRATCH,), sink=True)
        if late := LATE_NS.get(self.scenario.kind):
            side.node.host.set(write_delay_ns=late)

    def _largest(self) -> int:
        """Bytes of a shared request: any message fits, behind a GRH area too."""
        ways = [way for life in self.scenario.lives for way in life.ways]
        return max(services.landing_bytes(way) for way in (*ways, *_fresh().ways))

    async def _use_up(self, pools: list[Pool]) -> None:
        """As many messages as there are shared requests use each of them once, if one takes one."""
        if all(pool.exhausts for pool in pools):
            named = [[slot.queue for slot in pool.posted.values()] for pool in reversed(pools)]
            for life in self._either(_used_up(named)):
                await self._connection(len(self.scenario.pairs), life, None)
        for pool in pools:
            await pool.settled()

    def _either(self, life: Life) -> Iterator[Life]:
        """What a connection both of whose ends have requests does; of XRC and DC these are two."""
        service = next(self.scenario.lives).attributes.service
        if service not in INITIATORS:
            yield life
            return
        for side in (0, 1):
            yield of_initiator(life, side, service)

    async def _prepare(self) -> None:
        """Make shared queues, and keys of both sides, those of the peer's requests registered."""
        needs: tuple[list[Want], list[Want]] = ([], [])
        for life in self.scenario.lives:
            for number, way in enumerate(life.ways):
                for want in wanted(way):
                    needs[1 - number if want.peer else number].append(want)
        for side, plan in zip(self.sides, self.scenario.shared or (), strict=False):
            await side.share(plan, plan.buffer or self._largest())
        if not any(needs):
            return
        cqs = [await CQ.create(side.node.context, 8) for side in self.sides]
        nodes = [side.node for side in self.sides]
        qps = await connect(nodes, [side.pd for side in self.sides], cqs)
        self._registrars = list(zip(qps, cqs, strict=True))
        for side, wants, registrar in zip(self.sides, needs, self._registrars, strict=True):
            await side.keys.up(side.pd, (side.source, side.sink), wants, *registrar)

    # Pairs --------------------------------------------------------------------------------------

    async def _pair(self, number: int, lives: tuple[Life, ...]) -> None:
        qps = None
        for life in lives:
            qps = await self._connection(number, life, qps)

    async def _connection(self, number: int, life: Life, qps: Any) -> Any:
        dubious = number == self.scenario.victim
        fresh = number >= len(self.scenario.pairs)
        networks = (Impairments(), Impairments()) if fresh else self.scenario.networks
        if life.attributes.service in _ANSWERED:
            kind = _ANSWERED[life.attributes.service]
            connection = kind(self.sides, networks, life, number, dubious=dubious)
        else:
            connection = Unanswered(self.sides, networks, life, number)
        connection.gate = self.gate
        connection.explain(self.scenario.round_ns)
        if not fresh:
            self.connections[number] = connection
        self._of |= dict.fromkeys(connection.books, connection)
        return await connection.run(qps)

    def _completed(self, book: Book, what: Sent | Receive) -> None:
        self._of[book].completed(book, what)

    # Bad peers ----------------------------------------------------------------------------------

    async def _strangers(self) -> None:
        if self.scenario.victim is not None:
            for side in self.sides:
                anything = Place(side.sink, side.scratch, side.before, side.before, State.ANYTHING)
                side.places.append(anything)
        await self.gate.opened()
        now = 0
        for one in self.scenario.strangers:
            await Timer(max(1, one.at - now), "ns")
            now = max(now + 1, one.at)
            target = self._target(one)
            if target is not None:
                self.wires[one.side].inject(strangers.frame(one.kind, target, one.seed))
                self.injected[one.side] += 1

    def _target(self, one: Stranger) -> strangers.Target | None:
        """The end of a connection that a stranger sends to, if it is up."""
        connection = self.connections[one.pair]
        if connection is None or not connection.up:
            return None
        here, there = self.sides[one.side], self.sides[1 - one.side]
        psns, mtu = connection.life.attributes.psns, connection.life.attributes.mtu.octets
        return strangers.Target(
            qpn=connection.qps[one.side].qp_num,
            expects=psns[1 - one.side],
            sent=psns[one.side],
            mtu=mtu,
            used=max(way.psns(mtu) for way in connection.life.ways),
            rkey=here.sink.rkey,
            va=here.sink.iova + here.scratch[0][0],
            route={
                "src_gid": there.node.context.query_gid(1, 0),
                "dst_gid": here.node.context.query_gid(1, 0),
                "src_mac": there.node.mac,
                "dst_mac": here.node.mac,
            },
        )

    # Bad guests ---------------------------------------------------------------------------------

    async def _guest(self, guest: Guest) -> None:
        """A QP of its own, of which one ring is broken."""
        nodes = [side.node for side in self.sides]
        qps = await connect(nodes, [s.pd for s in self.sides], [s.cq for s in self.sides])
        side, qp = self.sides[guest.side], qps[guest.side]
        side.ignored.add(qp.qp_num)
        while not all(one and one.up for one in self.connections):
            await Timer(1000, "ns")  # a device that needs a reset connects nobody
        await Timer(guest.at, "ns")
        sge = [side.source.sge(0, 9)]
        queue = qp.rq if guest.receive else qp.sq
        wr = RecvWR(1 << 40, sge).pack() if guest.receive else SendWR(1 << 40, 2, sge).pack(None)
        await queue.post(wr)
        queue.ring.publish()
        assert isinstance(queue.ring, SplitQueue)
        break_ring(guest.kind, queue.ring, side.node.host.memory, self.rng)
        await side.node.context.device.notify(queue.ring)
        await Timer(BROKEN_NS, "ns")

    async def _again(self, watchers: list[Task[None]]) -> None:
        """Both drivers reset their devices and begin anew."""
        for watcher in watchers:
            watcher.cancel()
        for side in self.sides:
            await side.node.context.close()
            side.node.stop_firmware()
            side.node.host.faults.clear()
        for side in self.sides:
            await side.node.start()
            await self._up(side)
        watchers[:] = [cocotb.start_soon(side.watch()) for side in self.sides]


async def _accounts(
    system: System, before: Sequence[dict[str, int]], injected: Sequence[int]
) -> None:
    """What one card has sent, the other has counted or the network has lost.

    before: the counters of both cards; injected: frames from strangers to each, since then.
    """
    for number, node in enumerate(system.nodes):
        here = system.testbench.wires[1 - number]
        after = await node.counters()
        since = {name: value - before[number][name] for name, value in after.items()}
        drops = {n: count for n, count in since.items() if n.startswith("rx_drops") and count}
        lost = here.outward
        came = here.stats.tx_frames - lost.gone + lost.duplicated + injected[number]
        counted = since["rx_packets"] + sum(drops.values())
        assert counted == came, f"{node.name}: {came} frames came, {counted} counted"
        bad = lost.corrupted + (lost.duplicated if lost.corrupted else 0)
        bad += injected[number]
        assert sum(drops.values()) <= bad, f"{node.name}: drops {drops} of {bad} bad ones"


def _fresh(*, leaves: bool = False) -> Life:
    """A connection on a good network on which each operation works, both ways."""
    messages = tuple(
        Message(opcode, 700, (700,), (700,), SendFlags.SIGNALED)
        for opcode in (WrOpcode.SEND, WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ)
    )
    way = Way((Batch(0, messages),))
    ending = Ending.LEAVE if leaves else Ending.FINISH
    return Life(_plain(), (way, way), ending)


def _used_up(named: Sequence[Sequence[int]]) -> Life:
    """A connection whose ends send a byte to each queue that is ``named``, as often as it is."""
    message = Message(WrOpcode.SEND, 1, (1,), (1,), SendFlags.SIGNALED)
    ways = [
        Way((Batch(0, tuple(replace(message, queue=one) for one in queues)),) if queues else ())
        for queues in named
    ]
    return Life(_plain(), (ways[0], ways[1]), Ending.LEAVE)


def _plain() -> Attributes:
    """Attributes for a good network."""
    return Attributes(
        mtu=Mtu.MTU_512,
        psns=(0xFFFFFF, 0xFFFFFE),
        timeout=8,
        retry_cnt=7,
        rnr_retry=7,
        min_rnr_timer=1,
        max_rd_atomic=4,
    )
