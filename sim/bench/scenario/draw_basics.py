"""Draws what all scenarios hold: networks, queue pairs, their lives and requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hdl.abi.enums import Mtu, SendFlags, WrOpcode
from sim.bench import broken_rings
from sim.bench.scenario import strangers
from sim.bench.scenario.plan import (
    DONE,
    RNR_NS,
    SENDS,
    Attributes,
    Batch,
    Ending,
    Guest,
    Life,
    Message,
    Scenario,
    Stranger,
    Way,
    Wrong,
    loses,
    reads,
)
from sim.models.impairments import ROLES, Drop, Impairments

__all__ = ["WAY_BYTES", "Draw"]

#: Share of the scenarios of a kind that have a good network.
GOOD = {
    "network": 0.0,
    "lifecycle": 0.4,
    "errors": 0.5,
    "peers": 0.6,
    "guests": 0.7,
    "operations": 0.3,
    "placement": 0.3,
    "mkeys": 0.3,
    "shared": 0.3,
    "xrc": 0.3,
    "pieces": 0.3,
    "dynamic": 0.3,
    "services": 0.3,
    "heavy": 0.2,
    "functions": 0.1,
}

OPCODES = (
    WrOpcode.SEND,
    WrOpcode.SEND_WITH_IMM,
    WrOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM,
    WrOpcode.RDMA_READ,
    WrOpcode.RDMA_READ,
)
#: Bytes of all messages of a way: what keeps a scenario within seconds.
WAY_BYTES = 7_000


class Draw:
    """Draws a scenario of ``kind``; ``given``: the network of both ways, else one is drawn."""

    def __init__(self, rng: random.Random, kind: str, given: Impairments | None = None) -> None:
        self._rng, self._kind, self._given = rng, kind, given

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def scenario(self, name: str, seed: int) -> Scenario:
        """The scenario; called once."""
        rng, kind = self._rng, self._kind
        networks = (
            (Impairments(), Impairments())
            if self._chance(GOOD[kind])
            else (self._network(), self._network())
        )
        if given := self._given:
            first = given.seed + 2 * seed
            networks = (replace(given, seed=first), replace(given, seed=first + 1))
        pairs = tuple(self._lives(networks) for _ in range(self._count()))
        found = Scenario(name, kind, seed, networks, pairs)
        if kind == "peers":
            return self._with_strangers(found)
        if kind == "guests":
            guest = Guest(
                at=rng.randrange(1000, 30_000),
                side=rng.randrange(2),
                kind=rng.choice(broken_rings.KINDS),
                receive=self._chance(0.3),
            )
            return replace(found, guest=guest)
        return found

    def _count(self) -> int:
        """How many queue pairs each side has."""
        return self._rng.choice((1, 1, 1, 2, 2, 2, 3, 4))

    def _network(self) -> Impairments:
        """One or two impairments of a direction, or none."""
        rng = self._rng
        choices: tuple[Callable[[], dict[str, Any]], ...] = (
            lambda: {"loss": rng.choice((0.01, 0.05, 0.1, 0.2))},
            lambda: {"loss": rng.choice((0.01, 0.03)), "burst": rng.randrange(2, 9)},
            lambda: {"every": rng.randrange(3, 14)},
            lambda: {
                "drop": Drop(rng.choice(list(ROLES)), rng.randrange(1, 5), rng.randrange(1, 4))
            },
            lambda: {"duplicate": rng.choice((0.05, 0.2, 0.5, 1.0))},
            lambda: {"reorder": rng.randrange(1, 9), "overtaken": rng.choice((0.05, 0.2))},
            lambda: {"corrupt": rng.choice((0.02, 0.1))},
            lambda: {"delay_us": rng.choice((5, 20, 40)), "jitter_us": rng.choice((0, 5, 15))},
            lambda: {"gbps": rng.choice((1, 4)), "queue": rng.randrange(6000, 20_000)},
        )
        chosen: dict[str, Any] = {}
        for choice in rng.sample(choices, rng.choice((0, 1, 1, 1, 2, 2, 3))):
            chosen |= choice()
        return Impairments(**chosen, seed=rng.randrange(1, 1 << 31))

    def _lives(self, networks: tuple[Impairments, Impairments]) -> tuple[Life, ...]:
        """The connections of one pair."""
        rng = self._rng
        lives: list[Life] = []
        for ending in self._endings():
            attributes = self._attributes(networks)
            if ending in (Ending.GONE, Ending.ERROR):  # somebody waits for all of its time-outs
                attributes = replace(attributes, timeout=3, retry_cnt=attributes.retry_cnt % 5)
            if lives and self._chance(0.5):  # the PSNs of before, or just behind them
                before = lives[-1].attributes.psns
                step = rng.choice((0, 0, 1, 5))
                psns = ((before[0] + step) & 0xFFFFFF, (before[1] + step) & 0xFFFFFF)
                attributes = replace(attributes, psns=psns)
            sides = (self._way(attributes), self._way(attributes))
            if ending in DONE:
                sides = self._spoilt(sides)
            at = rng.randrange(200, rng.choice((3000, 10_000, 40_000)))
            lives.append(Life(attributes, sides, ending, at, rng.randrange(2)))
        return tuple(lives)

    def _endings(self) -> list[Ending]:
        """How the connections of a pair end."""
        rng = self._rng
        last = Ending.FINISH if self._kind == "guests" or self._chance(0.6) else Ending.LEAVE
        if self._kind == "lifecycle":
            return self._several(last)
        if self._kind == "errors" and self._chance(0.5):
            return [rng.choice((Ending.GONE, Ending.ERROR))]
        return [last]

    def _several(self, last: Ending) -> list[Ending]:
        """Endings in mid-run, and the last one."""
        ways = [Ending.RESET, Ending.RESET, Ending.DESTROY, Ending.ERROR, Ending.GONE]
        return [*self._rng.choices(ways, k=self._rng.choice((1, 1, 2))), last]

    def _spoilt(self, ways: tuple[Way, Way]) -> tuple[Way, Way]:
        """What both ends send, with what goes wrong on purpose."""
        return self._spoil(ways) if self._kind == "errors" else ways

    def _attributes(self, networks: tuple[Impairments, Impairments]) -> Attributes:
        rng = self._rng
        psns = [
            0xFFFFFF - rng.randrange(20) if self._chance(0.6) else rng.randrange(1 << 24)
            for _ in range(2)
        ]
        bad = any(map(loses, networks))
        timeout = rng.choice((2, 3, 3, 4))
        retries = rng.choice((0, 1, 2, 3, 7))
        if self._chance(0.6):  # long enough for most networks: nothing may fail
            timeout = 5
            retries = 7 if bad else retries
        if self._kind in ("errors", "peers"):  # somebody may wait for all of its time-outs
            retries = min(retries, 3)
        return Attributes(
            mtu=rng.choice((Mtu.MTU_256, Mtu.MTU_512, Mtu.MTU_1024, Mtu.MTU_1024, Mtu.MTU_4096)),
            psns=(psns[0], psns[1]),
            timeout=timeout,
            retry_cnt=retries,
            rnr_retry=rng.choice((0, 1, 2, 3, 7, 7)),
            min_rnr_timer=rng.choice(list(RNR_NS)),
            max_rd_atomic=rng.choice((1, 2, 4, 16)),
        )

    def _messages(self, attributes: Attributes) -> list[Message]:
        """The requests of a way, in order."""
        left, messages = WAY_BYTES, []
        for _ in range(self._rng.choice((0, 1, 2, 3, 5, 8))):
            message = self._message(attributes.mtu.octets, left)
            left -= message.length
            messages.append(message)
            if left <= 0:
                break
        return messages

    def _way(self, attributes: Attributes) -> Way:
        rng, messages = self._rng, self._messages(attributes)
        batches = []
        while messages:
            count = rng.randrange(1, len(messages) + 1)
            now, messages = messages[:count], messages[count:]
            if not messages:
                now[-1] = replace(now[-1], flags=now[-1].flags | SendFlags.SIGNALED)
            batches.append(Batch(rng.choice((0, 100, 2000, 15_000)), tuple(now)))
        late = 0
        if self._chance(0.3):  # around the number of times that the sender comes back
            late = round(attributes.rnr_ns * rng.uniform(0.2, 3.5))
        return Way(tuple(batches), late)

    def _message(self, mtu: int, left: int, opcode: WrOpcode | None = None) -> Message:
        """One request of up to ``left`` bytes, often near a multiple of the MTU; of any opcode."""
        rng = self._rng
        opcode = rng.choice(OPCODES) if opcode is None else opcode
        length = rng.choice((0, 1, 2)) * mtu + rng.choice((-1, 0, 1, 1, rng.randrange(mtu)))
        if self._chance(0.3):
            length = rng.randrange(0, 5 * mtu)
        length = max(0, min(length, left))
        flags = SendFlags(0)
        if self._chance(0.7):
            flags |= SendFlags.SIGNALED
        if self._chance(0.1):
            flags |= SendFlags.FENCE
        if self._chance(0.2):
            flags |= SendFlags.SOLICITED
        inline = not reads(opcode) and 0 < length <= 256 and self._chance(0.3)
        if inline:
            flags |= SendFlags.INLINE
        landing = self._cut(length) if opcode in SENDS else ()
        return Message(opcode, length, self._cut(length), landing, flags)

    def _cut(self, length: int) -> tuple[int, ...]:
        """Lengths of SGEs that are ``length`` together."""
        if not length:
            return ()
        count = self._rng.choice((1, 1, 1, 2, 3, 6))
        cuts = sorted(self._rng.randrange(1, length + 1) for _ in range(count - 1))
        ends = [0, *cuts, length]
        return tuple(b - a for a, b in pairwise(ends) if b > a)

    def _spoil(self, ways: tuple[Way, Way]) -> tuple[Way, Way]:
        """Make one request of one end a bad one."""
        rng = self._rng
        side = rng.randrange(2)
        places = [
            (b, m)
            for b, batch in enumerate(ways[side].batches)
            for m, message in enumerate(batch.messages)
            if message.length >= 2
        ]
        if not places:
            return ways
        b, m = rng.choice(places)
        batches = list(ways[side].batches)
        message = batches[b].messages[m]
        changed = list(batches[b].messages)
        changed[m] = replace(message, wrong=rng.choice(self._wrongs(message)))
        batches[b] = replace(batches[b], messages=tuple(changed))
        spoilt = replace(ways[side], batches=tuple(batches))
        return (spoilt, ways[1]) if side == 0 else (ways[0], spoilt)

    def _wrongs(self, message: Message) -> list[Wrong]:
        """What can be wrong with a request."""
        kinds = [Wrong.OPCODE]
        if not message.flags & SendFlags.INLINE:
            kinds.append(Wrong.LKEY)
        return kinds + ([Wrong.SHORT] if message.opcode in SENDS else [Wrong.RKEY, Wrong.RANGE])

    def _with_strangers(self, scenario: Scenario) -> Scenario:
        rng = self._rng
        victim = rng.randrange(len(scenario.pairs)) if self._chance(0.4) else None
        found = []
        for _ in range(rng.randrange(3, 40)):
            pair = rng.randrange(len(scenario.pairs))
            kinds = strangers.HARMLESS + (strangers.HARMFUL if pair == victim else ())
            found.append(self._stranger(pair, kinds, 40_000))
        found.sort(key=lambda one: one.at)
        return replace(scenario, strangers=tuple(found), victim=victim)

    def _stranger(self, pair: int, kinds: Sequence[str], until: int) -> Stranger:
        """A hostile frame of one of ``kinds`` to an end of ``pair``, before ``until`` ns."""
        rng = self._rng
        return Stranger(
            at=rng.randrange(0, until),
            side=rng.randrange(2),
            kind=rng.choice(kinds),
            pair=pair,
            seed=rng.randrange(1 << 31),
        )
