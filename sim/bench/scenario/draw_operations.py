"""Draws what RC connections do of kind ``operations``: atomics, and keys that requests change.

Requests come in phrases, such as registering a region, using it and invalidating it. The phrases
of a way are shuffled into each other and among plain requests; each keeps its own order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hdl.abi.enums import SendFlags, WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import Kind
from sim.bench.scenario.draw_basics import WAY_BYTES, Draw
from sim.bench.scenario.plan import (
    SENDS,
    Attributes,
    Ending,
    Life,
    Message,
    Scenario,
    Way,
    Wrong,
)
from sim.bench.scenario.words import CHOICES
from sim.models.impairments import Impairments

__all__ = [
    "BAD_LAYING",
    "BAD_PHRASES",
    "LAYING",
    "PHRASES",
    "PLACING",
    "Mkeys",
    "Operations",
    "Placement",
    "merged",
]


@dataclass(frozen=True)
class Step:
    """One request of a phrase, of its own key or of the ``peer``'s, or of neither (``plain``).
    ``window``: that key is a memory window's, ``layout``: an indirect one.

    ``fence``: without one it would be executed before the READs in front of it have ended.
    """

    opcode: WrOpcode
    peer: bool = False
    plain: bool = False
    window: bool = False
    layout: bool = False
    fence: bool = False
    wrong: Wrong = Wrong.NOTHING

    def keys(self, number: int) -> tuple[int | None, int | None]:
        """``own`` and ``peer`` of its ``Message``."""
        named = None if self.plain else number
        return (None, named) if self.peer else (named, None)


_W, _S, _R = WrOpcode.RDMA_WRITE, WrOpcode.SEND, WrOpcode.RDMA_READ
_REG, _INV = Step(WrOpcode.REG_MR), Step(WrOpcode.LOCAL_INV)
_REG_FENCED = Step(WrOpcode.REG_MR, fence=True)
_READ_INV = Step(WrOpcode.RDMA_READ_WITH_INV)
_SEND_INV = Step(WrOpcode.SEND_WITH_INV, peer=True)
_SEND_INV_FENCED = Step(WrOpcode.SEND_WITH_INV, peer=True, fence=True)
_SWAP = Step(WrOpcode.ATOMIC_CMP_AND_SWP, plain=True)
_ADD = Step(WrOpcode.ATOMIC_FETCH_AND_ADD, plain=True)
_THEIR_WRITE, _THEIR_READ = Step(_W, peer=True), Step(_R, peer=True)
_BIND, _UNBIND = Step(WrOpcode.BIND_MW, window=True), Step(WrOpcode.LOCAL_INV, window=True)
_BIND_FENCED = Step(WrOpcode.BIND_MW, window=True, fence=True)
_WINDOW_WRITE, _WINDOW_READ = (Step(one, peer=True, window=True) for one in (_W, _R))
#: Phrases, and how often each is drawn.
PHRASES: dict[tuple[Step, ...], int] = {
    (_ADD,): 3,
    (_ADD, _ADD): 2,
    (_SWAP,): 2,
    (_SWAP, _SWAP): 1,
    (_REG, Step(_W), _INV): 2,
    (_REG, Step(_S), _INV): 2,
    (_REG, Step(_R), _INV): 2,
    (_REG, _READ_INV): 2,
    (_REG, _READ_INV, _REG_FENCED, Step(_R), _INV): 1,
    (_REG, Step(_W), _INV, _REG, Step(_W)): 1,
    (_SEND_INV,): 1,
    (_THEIR_WRITE, _SEND_INV): 2,
    (_THEIR_READ, _SEND_INV_FENCED): 2,
    (_REG, _INV, _INV): 1,
    (_BIND,): 1,
    (_BIND, _UNBIND): 2,
    (_BIND, _UNBIND, _BIND_FENCED, _UNBIND, _UNBIND): 1,
    (_WINDOW_WRITE,): 2,
    (_WINDOW_READ,): 1,
    (_WINDOW_WRITE, _WINDOW_WRITE): 1,
    (_WINDOW_READ, _WINDOW_READ): 1,
}
#: Phrases of which one request must fail.
BAD_PHRASES: tuple[tuple[Step, ...], ...] = (
    (_REG, Step(_W), _INV, Step(_W, wrong=Wrong.STALE)),
    (_REG, _READ_INV, Step(_S, fence=True, wrong=Wrong.STALE)),
    (_THEIR_WRITE, _SEND_INV, Step(_W, peer=True, wrong=Wrong.PEER_STALE)),
    (_THEIR_READ, _SEND_INV_FENCED, Step(_R, peer=True, wrong=Wrong.PEER_STALE)),
    (_REG, Step(WrOpcode.LOCAL_INV, wrong=Wrong.KEY)),
    (_REG, Step(WrOpcode.RDMA_READ_WITH_INV, wrong=Wrong.KEY)),
    (_REG, Step(WrOpcode.REG_MR, wrong=Wrong.TAKEN)),
    (Step(WrOpcode.SEND_WITH_INV, peer=True, wrong=Wrong.PEER_KEY),),
    (_BIND, Step(WrOpcode.BIND_MW, window=True, wrong=Wrong.TAKEN)),
    (_BIND, _UNBIND, Step(WrOpcode.BIND_MW, window=True, wrong=Wrong.BOUNDS)),
    (_BIND, Step(WrOpcode.LOCAL_INV, window=True, wrong=Wrong.KEY)),
)
_STORE, _FLUSH = (Step(one, plain=True) for one in (WrOpcode.ATOMIC_WRITE, WrOpcode.FLUSH))
_PLAIN_WRITE, _PLAIN_READ, _PLAIN_SEND = (Step(one, plain=True) for one in (_W, _R, _S))
#: Phrases with FLUSH and ATOMIC WRITE: above all data, then a FLUSH, then the word that says so.
PLACING: dict[tuple[Step, ...], int] = {
    (_PLAIN_WRITE, _FLUSH): 6,
    (_PLAIN_WRITE, _FLUSH, _STORE): 6,
    (_PLAIN_WRITE, _STORE, _FLUSH): 3,
    (_PLAIN_SEND, _FLUSH): 2,
    (_PLAIN_READ, _FLUSH, _PLAIN_READ): 2,
    (_STORE,): 4,
    (_STORE, _STORE): 3,
    (_FLUSH,): 2,
    (_FLUSH, _FLUSH): 1,
    (_ADD, _STORE, _SWAP): 2,
}
_LAY, _LAY_ROWS, _LAY_NO_MORE = (
    Step(one, layout=True)
    for one in (WrOpcode.MKEY_LIST, WrOpcode.MKEY_INTERLEAVED, WrOpcode.LOCAL_INV)
)
_LAID_WRITE, _LAID_SEND, _LAID_READ = (Step(one, layout=True) for one in (_W, _S, _R))
_LAID_READ_INV = replace(_READ_INV, layout=True)
_THEIR_LAID_WRITE, _THEIR_LAID_READ, _LAID_SEND_INV, _LAID_SEND_INV_FENCED = (
    replace(step, layout=True) for step in (_THEIR_WRITE, _THEIR_READ, _SEND_INV, _SEND_INV_FENCED)
)
#: Phrases with indirect keys: a layout comes before its use, and another one right behind it.
LAYING: dict[tuple[Step, ...], int] = {
    (_LAY, _LAID_WRITE): 3,
    (_LAY_ROWS, _LAID_WRITE, _LAY_NO_MORE): 3,
    (_LAY, _LAID_WRITE, _LAY_ROWS, _LAID_WRITE): 6,
    (_LAY_ROWS, _LAID_SEND, _LAY, _LAID_SEND): 6,
    (_LAY, _LAID_READ, _LAY_ROWS, _LAID_READ, _LAY, _LAID_READ): 6,
    (_LAY_ROWS, _LAID_READ_INV, _LAY, _LAID_READ): 3,
    (_LAY, _LAY_NO_MORE, _LAY_NO_MORE): 1,
    (_THEIR_LAID_WRITE,): 3,
    (_THEIR_LAID_READ, _THEIR_LAID_READ): 3,
    (_THEIR_LAID_WRITE, _LAID_SEND_INV): 3,
    (_THEIR_LAID_READ, _LAID_SEND_INV_FENCED): 3,
}
#: Those of which one request must fail.
BAD_LAYING: tuple[tuple[Step, ...], ...] = (
    (_LAY, _LAID_WRITE, _LAY_NO_MORE, replace(_LAID_WRITE, wrong=Wrong.STALE)),
    (_LAY_ROWS, _LAID_READ_INV, replace(_LAID_SEND, fence=True, wrong=Wrong.STALE)),
    (_THEIR_LAID_WRITE, _LAID_SEND_INV, replace(_THEIR_LAID_WRITE, wrong=Wrong.PEER_STALE)),
    (_THEIR_LAID_READ, _LAID_SEND_INV_FENCED, replace(_THEIR_LAID_READ, wrong=Wrong.PEER_STALE)),
    (_LAY, replace(_LAY_ROWS, wrong=Wrong.TAKEN)),
    (_LAY, replace(_LAY_NO_MORE, wrong=Wrong.KEY)),
)
#: How a request of a kind can be wrong, beside what is wrong with any.
SPOILT = {
    Kind.SEND: (Wrong.SHORT,),
    Kind.WRITE: (Wrong.RKEY, Wrong.RANGE),
    Kind.READ: (Wrong.RKEY, Wrong.RANGE),
    Kind.ATOMIC: (Wrong.RKEY, Wrong.RANGE, Wrong.ALIGN, Wrong.LENGTH),
}
#: Of one that has no SGEs.
BARE = (Wrong.LKEY, Wrong.LENGTH)


def phrases(
    rng: random.Random,
    known: Mapping[tuple[Step, ...], int],
    bad: Sequence[tuple[Step, ...]],
) -> Iterator[tuple[Step, ...]]:
    """Some of the ``known`` phrases, and one of the ``bad`` ones, which must fail, if there are."""
    yield from rng.choices(list(known), list(known.values()), k=rng.choice((0, 1, 2, 3, 4)))
    if bad:
        yield rng.choice(bad)


def merged(rng: random.Random, parts: Sequence[Sequence[Message]]) -> list[Message]:
    """All messages in a random order in which those of each part keep theirs."""
    order = [number for number, part in enumerate(parts) for _ in part]
    rng.shuffle(order)
    left = [iter(part) for part in parts]
    return [next(left[number]) for number in order]


def fits(step: Step, message: Message) -> SendFlags:
    """The flags of ``message`` as far as ``step`` can have them."""
    flags = message.flags
    if not step.plain or message.placement:
        flags &= ~SendFlags.INLINE  # inline data have no key, and some requests no data
    return flags | (SendFlags.FENCE if step.fence else SendFlags(0))


class Operations(Draw):
    """Scenarios of kind ``operations``: the requests are phrases of ``draw_operations``."""

    PHRASES: Mapping[tuple[Step, ...], int] = PHRASES
    BAD_PHRASES: Sequence[tuple[Step, ...]] = BAD_PHRASES
    _bad = False

    def _lives(self, networks: tuple[Impairments, Impairments]) -> tuple[Life, ...]:
        self._bad = self._chance(0.3)
        return super()._lives(networks)

    def _endings(self) -> list[Ending]:
        (last,) = super()._endings()
        return self._several(last) if not self._bad and self._chance(0.4) else [last]

    def _messages(self, attributes: Attributes) -> list[Message]:
        mtu = attributes.mtu.octets
        bad = self.BAD_PHRASES if self._bad and self._chance(0.3) else ()
        parts: list[list[Message]] = []
        left = WAY_BYTES
        for number, steps in enumerate(phrases(self._rng, self.PHRASES, bad)):
            part = [self._step(step, number, mtu, max(left, 9)) for step in steps]
            left -= sum(message.length for message in part)
            parts.append(part)
        for _ in range(self._rng.choice((0, 0, 1, 2, 3))):
            parts.append([self._message(mtu, max(left, 0))])
            left -= parts[-1][0].length
        return merged(self._rng, parts)

    def _step(self, step: Step, number: int, mtu: int, left: int) -> Message:
        """A request of the phrase ``number`` of its way."""
        kind = WORK_REQUESTS[step.opcode].kind
        sizes = {Kind.LOCAL: 0, Kind.ATOMIC: 8}
        drawn = self._message(mtu, sizes.get(kind, left), step.opcode)
        if drawn.placement:
            drawn = replace(drawn, length=sizes.get(kind, drawn.length), pieces=())
        elif kind is Kind.ATOMIC:
            drawn = replace(drawn, length=8, pieces=self._cut(8), word=self._rng.randrange(CHOICES))
        elif step.wrong != Wrong.NOTHING and kind is not Kind.LOCAL and not drawn.length:
            drawn = replace(drawn, length=9, pieces=(9,), landing=(9,) * (drawn.opcode in SENDS))
        flags = fits(step, drawn)
        own, peer = step.keys(number)
        drawn = replace(drawn, own=own, peer=peer, window=step.window, layout=step.layout)
        return replace(drawn, flags=flags, wrong=step.wrong)

    def _spoilt(self, ways: tuple[Way, Way]) -> tuple[Way, Way]:
        """Make a request a bad one, where no phrase of the way is bad already."""
        wrong = any(message.wrong != Wrong.NOTHING for way in ways for message in way.messages)
        return self._spoil(ways) if self._bad and not wrong else ways

    def _wrongs(self, message: Message) -> list[Wrong]:
        wrongs = [Wrong.OPCODE, *SPOILT[message.kind]]
        if message.placement:
            return [wrong for wrong in wrongs if wrong not in BARE]
        return wrongs if message.flags & SendFlags.INLINE else [Wrong.LKEY, *wrongs]


class Placement(Operations):
    """Scenarios of kind ``placement``: FLUSH and ATOMIC WRITE beside all that ``operations`` has,
    half of them on two functions of each card."""

    PHRASES = PHRASES | {phrase: 2 * often for phrase, often in PLACING.items()}

    def scenario(self, name: str, seed: int) -> Scenario:
        """As everywhere; on two functions both have a pair."""
        found = super().scenario(name, seed)
        return replace(found, functions=2 if len(found.pairs) > 1 and self._chance(0.6) else 1)


class Mkeys(Operations):
    """Scenarios of kind ``mkeys``: indirect keys beside all that ``operations`` has."""

    PHRASES = PHRASES | LAYING
    BAD_PHRASES = BAD_PHRASES + BAD_LAYING
