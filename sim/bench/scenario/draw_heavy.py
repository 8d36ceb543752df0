"""Draws heavy traffic: many queue pairs at once, large messages, short queues, short time-outs.

More waits on the card than a time-out lasts, so what is late is late on the card itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hdl.abi.enums import Mtu, SendFlags, WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import Kind
from sim.bench.scenario import strangers
from sim.bench.scenario.draw_basics import Draw
from sim.bench.scenario.plan import (
    SENDS,
    Attributes,
    Batch,
    Ending,
    Life,
    Message,
    Scenario,
    Way,
    reads,
)
from sim.bench.scenario.words import CHOICES
from sim.models.impairments import Impairments

__all__ = ["Heavy"]

_WRITES = (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM)
_ATOMICS = (WrOpcode.ATOMIC_CMP_AND_SWP, WrOpcode.ATOMIC_FETCH_AND_ADD)
#: Operations of a scenario: of one sort, or of all.
LOADS = (
    (WrOpcode.RDMA_WRITE,),
    _WRITES,
    SENDS[:2],
    (WrOpcode.RDMA_READ,),
    (WrOpcode.RDMA_READ, *_ATOMICS),
    (*SENDS[:2], *_WRITES, WrOpcode.RDMA_READ, *_ATOMICS),
    (*SENDS[:2], *_WRITES, WrOpcode.RDMA_READ, *_ATOMICS),
)
#: Bytes that all pairs together send in a direction, and requests of one of them, at most.
DIRECTION_BYTES, WAY_REQUESTS = 3 << 20, 40
#: What a card takes at most to answer, beside the data of READs, and bytes of these in a us.
ANSWER_NS, READ_BYTES_US = 30_000, 10_000


@dataclass(frozen=True)
class Load:
    """What the pairs of a scenario have in common. ``both``: both sides send."""

    opcodes: tuple[WrOpcode, ...]
    size: int
    both: bool
    single: bool  # a doorbell for each request
    timeout: int
    restless: bool  # some pairs end in mid-run, and are used again


class Heavy(Draw):
    """Scenarios of kind ``heavy``: 16 to 64 queue pairs of RC that begin together."""

    _load: Load
    _pairs = 16

    def scenario(self, name: str, seed: int) -> Scenario:
        """As everywhere, with a load that all pairs have in common."""
        rng = self._rng
        self._pairs = rng.choice((16, 16, 16, 24, 32, 64))
        self._load = Load(
            opcodes=rng.choice(LOADS),
            size=rng.choice((65_536, 65_536, 20_000, 4096, 300)),
            both=self._chance(0.5),
            single=self._chance(0.7),
            timeout=rng.choice((4, 4, 4, 5, 6, 8)),
            restless=self._chance(0.15),
        )
        drawn = super().scenario(name, seed)
        read = max(
            sum(
                m.length
                for life in drawn.lives
                for m in life.ways[side].messages
                if reads(m.opcode)
            )
            for side in (0, 1)
        )
        round_ns = ANSWER_NS + 1000 * read // READ_BYTES_US
        drawn = replace(drawn, together=True, round_ns=round_ns)
        if self._load.restless or self._chance(0.65):
            return drawn
        return self._with_strangers(drawn)

    def _count(self) -> int:
        return self._pairs

    def _network(self) -> Impairments:
        """One impairment of a direction or two, as links have them under load."""
        rng = self._rng
        choices: tuple[Callable[[], dict[str, Any]], ...] = (
            lambda: {"loss": rng.choice((0.001, 0.01, 0.03)), "delay_us": rng.choice((0, 4.5))},
            lambda: {"loss": 0.01, "delay_us": 4.5},
            lambda: {"duplicate": 0.05, "delay_us": 2},
            lambda: {"reorder": 64, "overtaken": 0.05},
            lambda: {"corrupt": 0.01},
            lambda: {"delay_us": rng.choice((1, 10)), "jitter_us": rng.choice((0, 2))},
            lambda: {"gbps": 50, "queue": 65_536},
        )
        chosen: dict[str, Any] = {}
        for choice in rng.sample(choices, rng.choice((1, 1, 2))):
            chosen |= choice()
        return Impairments(**chosen, seed=rng.randrange(1, 1 << 31))

    def _endings(self) -> list[Ending]:
        last = Ending.FINISH if self._chance(0.6) else Ending.LEAVE
        return self._several(last) if self._load.restless and self._chance(0.3) else [last]

    def _attributes(self, networks: tuple[Impairments, Impairments]) -> Attributes:
        drawn = super()._attributes(networks)
        return replace(
            drawn,
            mtu=self._rng.choice((Mtu.MTU_1024, Mtu.MTU_2048, Mtu.MTU_4096, Mtu.MTU_4096)),
            timeout=self._load.timeout,
            retry_cnt=7,
            rnr_retry=7,
        )

    def _messages(self, attributes: Attributes) -> list[Message]:
        """As many as are this way's share of the direction."""
        rng, load = self._rng, self._load
        left = DIRECTION_BYTES // self._pairs
        messages: list[Message] = []
        while left > 0 and len(messages) < WAY_REQUESTS:
            message = self._one(rng.choice(load.opcodes), min(load.size, left))
            messages.append(message)
            left -= max(message.length, load.size // 4)
        return messages

    def _one(self, opcode: WrOpcode, size: int) -> Message:
        """A request of about ``size`` bytes."""
        rng, row = self._rng, WORK_REQUESTS[opcode]
        if row.kind is Kind.ATOMIC:
            return Message(opcode, 8, self._cut(8), word=rng.randrange(CHOICES))
        length = max(0, size - rng.choice((0, 0, 0, 1, rng.randrange(size))))
        flags = SendFlags.SIGNALED
        if self._chance(0.02):
            flags |= SendFlags.FENCE
        landing = self._cut(length) if opcode in SENDS else ()
        return Message(opcode, length, self._cut(length), landing, flags)

    def _way(self, attributes: Attributes) -> Way:
        rng, load = self._rng, self._load
        messages = self._messages(attributes)
        depth = rng.choice((1, 2, 4, 4, 8, 16, 0))
        batches = []
        while messages:
            count = 1 if load.single else rng.randrange(1, len(messages) + 1)
            now, messages = messages[:count], messages[count:]
            batches.append(Batch(0, tuple(now)))
        late = 0
        if self._chance(0.1):
            late = round(attributes.rnr_ns * rng.uniform(0.2, 3.5))
        return Way(tuple(batches), late, depth)

    def _lives(self, networks: tuple[Impairments, Impairments]) -> tuple[Life, ...]:
        lives = super()._lives(networks)
        if self._load.both:
            return lives
        return tuple(replace(life, ways=(life.ways[0], Way(()))) for life in lives)

    def _with_strangers(self, scenario: Scenario) -> Scenario:
        """Somebody who answers what was never sent; and anything at all of one pair, perhaps."""
        rng = self._rng
        victim = rng.randrange(len(scenario.pairs)) if self._chance(0.5) else None
        found = []
        for _ in range(rng.randrange(50, 400)):
            pair = rng.randrange(len(scenario.pairs))
            kinds = strangers.FUTURE if self._chance(0.6) else strangers.HARMLESS
            if victim is not None and self._chance(0.3):
                pair, kinds = victim, strangers.HARMFUL
            found.append(self._stranger(pair, kinds, 300_000))
        found.sort(key=lambda one: one.at)
        return replace(scenario, strangers=tuple(found), victim=victim)
