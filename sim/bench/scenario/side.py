"""One card's side of a scenario: its regions, its completion queue, its requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Access
from sim.bench.scenario.inbox import Landing
from sim.bench.scenario.keys import RIGHTS, Keys
from sim.bench.scenario.ledger import Book, Place, Receive, Sent, State
from sim.bench.scenario.piece_pool import PiecePool
from sim.bench.scenario.plan import Shared
from sim.bench.scenario.pool import Pool
from sim.bench.scenario.words import Words
from sim.bench.system import Node
from sim.guest.driver.platform import Octets
from sim.guest.verbs import CQ, MR, PD
from sim.models.platform import now_ns

__all__ = ["Side"]

#: Bytes of a word's region in front of it, so that it begins in the middle of a page.
WORDS_AT = 16
#: Bytes of a word that is written in one piece, and what they begin at a multiple of.
WORD = 8
#: Bytes between two places at most.
GAP = 9
#: Completions that are taken at a time at most, and what the completion queue holds at least.
TAKEN, CQ_DEPTH = 64, 512
#: How often completion queues are looked at, ns: soon after something has come, later less often.
SOON_NS, LATER_NS = 500, 16_000


class Side:
    """A node with what it sends (``source``), where messages end (``sink``) and its completions.

    ``scratch``: pieces of the sink that no message uses. ``words``: what atomics of the other side
    change, in ``word_region``; ``keys``: fast regions over source and sink; ``pool``: a shared
    receive queue that all of its queue pairs take from.
    """

    pd: PD
    cq: CQ
    source: MR
    sink: MR
    word_region: MR
    words: Words | None
    scratch: tuple[tuple[int, int], ...]

    def __init__(self, node: Node, rng: random.Random):
        self.node, self.rng = node, rng
        self.places: list[Place] = []
        self.known: dict[int, tuple[Book, Sent | Receive]] = {}
        #: QPs whose completions nobody expects anything of.
        self.ignored: set[int] = set()
        self.on_completion: Callable[[Book, Sent | Receive], None] = lambda book, what: None
        self.keys = Keys()
        self.pool: Pool | None = None
        #: Receives that are for no message of their own.
        self.landings: dict[int, Landing] = {}
        self._numbers = 0
        self._free = [0, 0]

    async def up(
        self, size: int, words: int = 0, completions: int = 0, *, pieces: bool = False
    ) -> None:
        """Make the objects, with ``size`` bytes for what is sent and for what arrives, and a queue
        for so many ``completions``; ``pieces``: of packets in requests that take several."""
        self.node.host.set(mmio_latency_ns=0)
        self.pd = await self.node.context.alloc_pd()
        depth = min(max(CQ_DEPTH, completions), self.node.testbench.config.queue_size)
        self.cq = await CQ.create(self.node.context, depth, with_mp_wr=pieces)
        rights = RIGHTS | Access.MW_BIND
        self.source = await MR.create(self.pd, size, rights, offset=5)
        self.sink = await MR.create(self.pd, size, rights | self.flushes, offset=3)
        self.data, self.before = (self._noise(size) for _ in range(2))
        self.source.write(self.data)
        self.sink.write(self.before)
        self.words = Words(self.rng, words) if words else None
        if self.words:
            rights = RIGHTS | Access.REMOTE_ATOMIC
            self.word_region = await MR.create(self.pd, 8 * words, rights, offset=WORDS_AT)
            self.word_region.write(np.array(self.words.starts, "<u8").view(np.uint8))
        self.places.clear()
        self._free = [0, 0]

    @property
    def flushes(self) -> Access:
        """The rights of FLUSH that the card knows."""
        config = self.node.testbench.config
        kept = Access.FLUSH_PERSISTENT if config.persistence else Access(0)
        return kept | (Access.FLUSH_GLOBAL if config.placement else Access(0))

    async def share(self, plan: Shared, size: int) -> None:
        """Receive from a shared queue from now on, with ``size`` bytes for each request."""
        places = []
        for _ in range(plan.depth):
            pieces = self.take((size,), sink=True)
            places.append(self.blank(pieces))
        self.pool = (PiecePool if plan.segment else Pool)(plan, self.rng)
        await self.pool.up(self.pd, self.cq, self.sink, places)

    def _noise(self, size: int) -> Octets:
        return np.frombuffer(self.rng.randbytes(size), np.uint8).copy()

    def number(self) -> int:
        """A new id for a request."""
        self._numbers += 1
        return self._numbers

    def take(self, lengths: tuple[int, ...], *, sink: bool) -> tuple[tuple[int, int], ...]:
        """Pieces of these lengths that nothing else uses: offset and length."""
        pieces = []
        for length in lengths:
            at = self._free[sink] + self.rng.randrange(GAP)
            pieces.append((at, length))
            self._free[sink] = at + length
        return tuple(pieces)

    def take_word(self) -> tuple[tuple[int, int], ...]:
        """A word of the sink that nothing else uses: its address is a multiple of its size."""
        ((at, _),) = self.take((0,), sink=True)
        at += -(self.sink.iova + at) % WORD
        self._free[True] = at + WORD
        return ((at, WORD),)

    def place(self, pieces: tuple[tuple[int, int], ...], full: Octets) -> Place:
        """A place in the sink for ``full``; every byte there is another one before."""
        at = 0
        for offset, length in pieces:
            self.before[offset : offset + length] = ~full[at : at + length]
            self.sink.write(self.before[offset : offset + length], offset)
            at += length
        place = Place(self.sink, pieces, ~full, full)
        self.places.append(place)
        return place

    def blank(self, pieces: tuple[tuple[int, int], ...]) -> Place:
        """A place in the sink for any bytes."""
        return self.place(pieces, self._noise(sum(length for _, length in pieces)))

    def gathered(self, pieces: tuple[tuple[int, int], ...]) -> Octets:
        """What the source holds at ``pieces``."""
        parts = [self.data[at : at + length] for at, length in pieces]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint8)

    async def watch(self) -> None:
        """Take completions for ever."""
        pause = SOON_NS
        while True:
            pause = SOON_NS if await self.look() else min(2 * pause, LATER_NS)
            await Timer(pause, "ns")

    async def look(self) -> bool:
        """Take the completions that are here; returns whether there were any."""
        found = await self.cq.poll(TAKEN)
        for wc in found:
            if self.pool and wc.qp_num in self.pool.books and wc.wr_id not in self.known:
                if taken := self.pool.completed(wc):
                    self.on_completion(*taken)
                continue
            if landing := self.landings.get(wc.wr_id):
                landing.inbox.received(landing, wc)
                continue
            if wc.wr_id not in self.known:
                assert wc.qp_num in self.ignored, f"{self.node.name}: nobody posted this: {wc}"
                continue
            book, what = self.known[wc.wr_id]
            if isinstance(what, Sent):
                book.completed(what, wc, now_ns())
            else:
                book.received(what, wc)
            self.on_completion(book, what)
        if self.pool and len(found) < TAKEN:
            self.pool.looked(now_ns())
        return bool(found)

    def settled(self) -> None:
        """Nothing moves any more: each byte is what it may be."""
        assert np.array_equal(self.source.read(self.source.length), self.data), "a source changed"
        untouched = np.ones(self.sink.length, bool)
        for place in self.places:
            place.settled(f"{self.node.name}: {place.pieces}")
            for at, length in place.pieces:
                untouched[at : at + length] = False
        found = self.sink.read(self.sink.length)
        strayed = np.flatnonzero((found != self.before) & untouched)
        assert not strayed.size, f"{self.node.name}: written outside of messages at {strayed[:9]}"
        if self.words:
            held = self.word_region.read(self.word_region.length).view("<u8")
            self.words.check([int(value) for value in held])

    def opened(self) -> Iterator[Place]:
        """Places that somebody may still write."""
        return (place for place in self.places if place.state == State.OPEN)
