"""Words that atomics change, and whether what they have found and left can be true.

A word is of one of two classes, so that its history can be told from numbers. Operation n of a
*count* adds 4**n: each digit to the base 4 of word or result says whether operation n has been
executed, and how often. A *swap* gets a value of its own from each operation, so each value is
there once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

from hdl.abi.enums import WrOpcode

__all__ = ["CHOICES", "Atomic", "Word", "Words", "words_for"]

WORD = 1 << 64
#: Operations of a count: digits of two bits.
DIGITS = 32
#: Words of a class that are in use at a time, at most.
CHOICES = 3
#: Share of compare-and-swaps that name a value that an operation is to leave.
HOPEFUL = 0.8


@dataclass(eq=False)
class Atomic:
    """One operation: ``number`` of its word. ``line``: requests of one line are executed in order.

    ``operands`` are those of ``SendWR.set_wr_atomic``. ``posted``: when, ns; None: never, or it is
    wrong and must not be executed. ``found``, ``answered``: what it has brought back, and when.
    """

    word: Word
    number: int
    line: object
    operands: tuple[int, ...]
    posted: int | None = None
    found: int | None = None
    answered: int = 0

    def before(self, other: Atomic) -> bool:
        """Whether it was executed before ``other``, if both were."""
        if self.line is other.line:
            return self.number < other.number
        if self.found is None or other.posted is None:
            return False
        return self.answered < other.posted


@dataclass(eq=False)
class Word:
    """A word with its number and its first value."""

    opcode: WrOpcode
    index: int
    start: int
    operations: list[Atomic] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether it takes no more operations."""
        return self.opcode == WrOpcode.ATOMIC_FETCH_AND_ADD and len(self.operations) == DIGITS

    def take(self, line: object, rng: random.Random) -> Atomic:
        """A new operation on it."""
        number = len(self.operations)
        if self.opcode == WrOpcode.ATOMIC_FETCH_AND_ADD:
            operands: tuple[int, ...] = (4**number,)
        else:
            known = [one.operands[1] for one in self.operations]
            mine = [one.operands[1] for one in self.operations if one.line is line]
            hope = mine[-1] if mine and rng.random() < 0.5 else rng.choice([self.start, *known])
            compare = hope if rng.random() < HOPEFUL else rng.getrandbits(64)
            operands = compare, rng.getrandbits(64)
        self.operations.append(Atomic(self, number, line, operands))
        return self.operations[-1]

    def check(self, last: int) -> None:
        """Fail if ``last`` cannot be what the operations have left, or found what they have."""
        said = f"word {self.index}"
        if self.opcode == WrOpcode.ATOMIC_FETCH_AND_ADD:
            self._check_count(last, said)
        else:
            self._check_swaps(last, said)

    def _digits(self, value: int, said: str) -> frozenset[int]:
        """Numbers of the operations that ``value`` has in it."""
        rest = (value - self.start) % WORD
        digits = [rest >> 2 * n & 3 for n in range(DIGITS)]
        twice = [n for n, digit in enumerate(digits) if digit > 1]
        assert not twice, f"{said}: operations {twice} were executed twice: {rest:#x}"
        return frozenset(n for n, digit in enumerate(digits) if digit)

    def _check_count(self, last: int, said: str) -> None:
        executed = self._digits(last, said)
        may = {one.number for one in self.operations if one.posted is not None}
        must = {one.number for one in self.operations if one.found is not None}
        assert must <= executed, f"{said}: {sorted(must - executed)} succeeded, not in {last:#x}"
        assert executed <= may, f"{said}: {sorted(executed - may)} were executed, nobody may"
        found: list[tuple[Atomic, frozenset[int]]] = []
        for one in self.operations:
            if one.found is None:
                continue
            what = f"{said}: operation {one.number} found {one.found:#x}"
            seen = self._digits(one.found, what)
            assert one.number not in seen, f"{what}, itself"
            assert seen <= executed, f"{what}: {sorted(seen - executed)} are not in the end"
            for other in self.operations:
                if other.number in executed and other is not one:
                    assert not other.before(one) or other.number in seen, (
                        f"{what}, without {other.number} in front of it"
                    )
                    assert not one.before(other) or other.number not in seen, (
                        f"{what}, with {other.number} behind it"
                    )
            found.append((one, seen))
        found.sort(key=lambda pair: len(pair[1]))
        for (one, seen), (other, more) in pairwise(found):
            assert seen | {one.number} <= more, (
                f"{said}: operations {one.number} and {other.number} found {one.found:#x} and "
                f"{other.found:#x}"
            )

    def _check_swaps(self, last: int, said: str) -> None:
        swapped = [one for one in self.operations if one.found == one.operands[0]]
        unknown = [o for o in self.operations if o.found is None and o.posted is not None]
        possible = {self.start, *(one.operands[1] for one in (*swapped, *unknown))}
        values = [one.operands[0] for one in swapped]
        assert len(set(values)) == len(values), f"{said}: a value was replaced twice: {values}"
        assert last in possible, f"{said} holds {last:#x}, which nobody has put there"
        assert last not in values, f"{said} holds {last:#x}, which was replaced"
        replaced = {*values, *(one.operands[0] for one in unknown)}
        for value in (self.start, *(one.operands[1] for one in swapped)):
            assert value == last or value in replaced, f"{said}: {value:#x} is lost"
        for one in self.operations:
            if one.found is None:
                continue
            what = f"{said}: operation {one.number} found {one.found:#x}"
            assert one.found in possible, f"{what}, which nobody has put there"
            for other in swapped:
                gone = other.operands[0] == one.found and other.before(one)
                assert not gone, f"{what}, which {other.number} had replaced"


def words_for(operations: int) -> int:
    """Return how many words are enough for so many operations."""
    return 2 * CHOICES + operations // DIGITS if operations else 0


class Words:
    """The words of one side: as many as operations ask for."""

    def __init__(self, rng: random.Random, count: int):
        self._rng, self.count = rng, count
        self.starts = [rng.getrandbits(64) for _ in range(count)]
        self.used: list[Word] = []

    def take(self, opcode: WrOpcode, choice: int, line: object) -> Atomic:
        """An operation on the ``choice``-th word of its class that takes more, or on a new one."""
        fitting = [one for one in self.used if one.opcode == opcode and not one.full]
        if choice < len(fitting):
            word = fitting[choice]
        else:
            word = Word(opcode, len(self.used), self.starts[len(self.used)])
            self.used.append(word)
        return word.take(line, self._rng)

    def check(self, values: list[int]) -> None:
        """Nothing moves any more: what the words hold now."""
        for word in self.used:
            word.check(values[word.index])
        for index in range(len(self.used), self.count):
            assert values[index] == self.starts[index], f"word {index} was written by nobody"
