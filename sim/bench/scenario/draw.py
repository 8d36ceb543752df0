"""Draws scenarios: the same name and seed give the same one, without any simulation."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hdl.abi.enums import Mtu, QpType, SendFlags, WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import QP_TRANSPORT, Kind
from sim.bench import broken_rings
from sim.bench.scenario import draw_operations as operations
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
    Shared,
    Stranger,
    Way,
    Wrong,
    loses,
    reads,
)
from sim.bench.scenario.words import CHOICES
from sim.models.impairments import ROLES, Drop, Impairments

__all__ = ["NAMES", "draw"]

#: Kinds of scenarios and how often ``mixed`` takes each.
KINDS = {"network": 8, "lifecycle": 5, "errors": 5, "peers": 3, "guests": 2}
#: Kinds that ``mixed`` does not take: each is a campaign of its own.
ALONE = ("operations", "shared", "services")
#: Names of campaigns.
NAMES = ("mixed", *KINDS, *ALONE)
#: Share of the scenarios of a kind that have a good network.
GOOD = {
    "network": 0.0,
    "lifecycle": 0.4,
    "errors": 0.5,
    "peers": 0.6,
    "guests": 0.7,
    "operations": 0.3,
    "shared": 0.3,
    "services": 0.3,
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


def draw(name: str, seed: int, impair: str = "") -> Scenario:
    """Return scenario ``seed`` of the campaign ``name``; ValueError if there is no such name.

    impair: the network of both directions, as ``Impairments`` reads it; without it one is drawn.
    """
    if name not in NAMES:
        raise ValueError(f"No campaign is called {name!r}; there are {', '.join(NAMES)}")
    rng = random.Random(f"{name} {seed}")
    kind = name if name != "mixed" else rng.choices(list(KINDS), list(KINDS.values()))[0]
    makers = {"operations": _Operations, "shared": _Shared, "services": _Services}
    given = Impairments.parse(impair) if impair else None
    return makers.get(kind, _Draw)(rng, kind, given).scenario(name, seed)


class _Draw:
    def __init__(self, rng: random.Random, kind: str, given: Impairments | None = None) -> None:
        self._rng, self._kind, self._given = rng, kind, given

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def scenario(self, name: str, seed: int) -> Scenario:
        rng, kind = self._rng, self._kind
        networks = (
            (Impairments(), Impairments())
            if self._chance(GOOD[kind])
            else (self._network(), self._network())
        )
        if given := self._given:
            first = given.seed + 2 * seed
            networks = (replace(given, seed=first), replace(given, seed=first + 1))
        pairs = tuple(self._lives(networks) for _ in range(rng.choice((1, 1, 1, 2, 2, 2, 3, 4))))
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
            found.append(
                Stranger(
                    at=rng.randrange(0, 40_000),
                    side=rng.randrange(2),
                    kind=rng.choice(kinds),
                    pair=pair,
                    seed=rng.randrange(1 << 31),
                )
            )
        found.sort(key=lambda one: one.at)
        return replace(scenario, strangers=tuple(found), victim=victim)


class _Operations(_Draw):
    """Scenarios of kind ``operations``: the requests are phrases of ``draw_operations``."""

    _bad = False

    def _lives(self, networks: tuple[Impairments, Impairments]) -> tuple[Life, ...]:
        self._bad = self._chance(0.3)
        return super()._lives(networks)

    def _endings(self) -> list[Ending]:
        (last,) = super()._endings()
        return self._several(last) if not self._bad and self._chance(0.4) else [last]

    def _messages(self, attributes: Attributes) -> list[Message]:
        mtu = attributes.mtu.octets
        bad = self._bad and self._chance(0.3)
        parts: list[list[Message]] = []
        left = WAY_BYTES
        for number, steps in enumerate(operations.phrases(self._rng, bad=bad)):
            part = [self._step(step, number, mtu, max(left, 9)) for step in steps]
            left -= sum(message.length for message in part)
            parts.append(part)
        for _ in range(self._rng.choice((0, 0, 1, 2, 3))):
            parts.append([self._message(mtu, max(left, 0))])
            left -= parts[-1][0].length
        return operations.merged(self._rng, parts)

    def _step(self, step: operations.Step, number: int, mtu: int, left: int) -> Message:
        """A request of the phrase ``number`` of its way."""
        kind = WORK_REQUESTS[step.opcode].kind
        sizes = {Kind.LOCAL: 0, Kind.ATOMIC: 8}
        drawn = self._message(mtu, sizes.get(kind, left), step.opcode)
        if kind is Kind.ATOMIC:
            drawn = replace(drawn, length=8, pieces=self._cut(8), word=self._rng.randrange(CHOICES))
        elif step.wrong != Wrong.NOTHING and kind is not Kind.LOCAL and not drawn.length:
            drawn = replace(drawn, length=9, pieces=(9,), landing=(9,) * (drawn.opcode in SENDS))
        flags = operations.fits(step, drawn)
        own, peer = step.keys(number)
        drawn = replace(drawn, own=own, peer=peer, window=step.window)
        return replace(drawn, flags=flags, wrong=step.wrong)

    def _spoilt(self, ways: tuple[Way, Way]) -> tuple[Way, Way]:
        """Make a request a bad one, where no phrase of the way is bad already."""
        wrong = any(message.wrong != Wrong.NOTHING for way in ways for message in way.messages)
        return self._spoil(ways) if self._bad and not wrong else ways

    def _wrongs(self, message: Message) -> list[Wrong]:
        wrongs = [Wrong.OPCODE, *operations.SPOILT[message.kind]]
        return wrongs if message.flags & SendFlags.INLINE else [Wrong.LKEY, *wrongs]


class _Services(_Draw):
    """Scenarios of kind ``services``: QPs of UC and UD beside those of RC."""

    _services = (QpType.RC, QpType.UC, QpType.UC, QpType.UD, QpType.UD)
    _service = QpType.RC
    _bad = False

    def _lives(self, networks: tuple[Impairments, Impairments]) -> tuple[Life, ...]:
        self._service = self._rng.choice(self._services)
        self._bad = self._chance(0.3)
        return super()._lives(networks)

    def _endings(self) -> list[Ending]:
        (last,) = super()._endings()
        endings = self._several(last) if not self._bad and self._chance(0.4) else [last]
        if self._service == QpType.RC:
            return endings
        return [Ending.DESTROY if one == Ending.GONE else one for one in endings]

    def _attributes(self, networks: tuple[Impairments, Impairments]) -> Attributes:
        return replace(super()._attributes(networks), service=self._service)

    def _messages(self, attributes: Attributes) -> list[Message]:
        if self._service == QpType.RC:
            return super()._messages(attributes)
        opcodes = [
            WrOpcode(code)
            for code, row in WORK_REQUESTS.items()
            if QP_TRANSPORT[self._service] in row.services and row.packets
        ]
        datagram = self._service == QpType.UD
        longest = Mtu.MTU_4096.octets if datagram else WAY_BYTES
        left, messages = WAY_BYTES, []
        for _ in range(self._rng.choice((0, 1, 2, 3, 5, 8, 12))):
            mtu = self._rng.choice((256, 4095)) if datagram else attributes.mtu.octets
            message = self._message(mtu, min(max(left, 0), longest), self._rng.choice(opcodes))
            left -= message.length
            messages.append(replace(message, flags=message.flags & ~SendFlags.FENCE))
        return messages

    def _spoilt(self, ways: tuple[Way, Way]) -> tuple[Way, Way]:
        return self._spoil(ways) if self._bad else ways

    def _wrongs(self, message: Message) -> list[Wrong]:
        """As everywhere; a receive is not made for a message of UC or UD."""
        wrongs = super()._wrongs(message)
        if self._service != QpType.RC and message.opcode in SENDS:
            wrongs.remove(Wrong.SHORT)
        return wrongs + [Wrong.QKEY] * (self._service == QpType.UD)


class _Shared(_Services):
    """Scenarios of kind ``shared``: all queue pairs of a side receive from one queue.

    Each is destroyed in the end, so that it gives back what it holds.
    """

    _services = (QpType.RC, QpType.RC, QpType.RC, QpType.UC, QpType.UD)

    def scenario(self, name: str, seed: int) -> Scenario:
        drawn = super().scenario(name, seed)
        sides = [self._queue(len(drawn.pairs)) for _ in range(2)]
        return replace(drawn, shared=(sides[0], sides[1]))

    def _queue(self, pairs: int) -> Shared:
        """A queue with requests for more than those that may hold one for ever."""
        rng = self._rng
        pauses = rng.choice(((100,), (100, 2000), (2000, 20_000), (500, 10_000, 80_000)))
        return Shared(pairs + rng.choice((1, 1, 2, 4)), rng.choice((1, 2, 8)), pauses)

    def _endings(self) -> list[Ending]:
        return [*super()._endings()[:-1], Ending.LEAVE]

    def _messages(self, attributes: Attributes) -> list[Message]:
        """As everywhere, and often SENDs alone: what takes requests."""
        if self._service != QpType.RC or self._chance(0.4):
            return super()._messages(attributes)
        rng, mtu = self._rng, attributes.mtu.octets
        return [
            self._message(mtu, 2 * mtu + 1, rng.choice((WrOpcode.SEND, WrOpcode.SEND_WITH_IMM)))
            for _ in range(rng.randrange(1, 9))
        ]

    def _wrongs(self, message: Message) -> list[Wrong]:
        """A shared request is not made for a message, so none is too short for it."""
        return [one for one in super()._wrongs(message) if one != Wrong.SHORT]
