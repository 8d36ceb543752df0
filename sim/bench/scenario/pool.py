"""The shared receive queue of one side: its requests, who has taken them, what they have got."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import WcStatus
from sim.bench.scenario.inbox import Inbox
from sim.bench.scenario.ledger import Book, Place, Receive, State
from sim.bench.scenario.plan import SENDS, Shared
from sim.bench.system import VISIBLE_NS
from sim.guest.driver.platform import Octets
from sim.guest.verbs import MR, PD, SRQ, WC, RecvWR, SrqAttr
from sim.models.platform import now_ns

__all__ = ["PARTS", "Pool", "unresolved"]

#: SGEs of a request at most.
PARTS = 3


@dataclass(eq=False)
class Slot:
    """The bytes of one request, posted ``at``: ``place`` is what they are while nobody has it."""

    place: Place
    wr_id: int = 0
    at: int = 0

    def part(self, length: int) -> tuple[tuple[int, int], ...]:
        """The first ``length`` bytes of it, as pieces."""
        ((at, _),) = self.place.pieces
        return ((at, length),) if length else ()


class Pool:
    """A shared receive queue whose requests are given back after a while, some at a time.

    Each request comes back once: to the queue pair that has taken it, which has one at a time.
    """

    def __init__(self, plan: Shared, rng: random.Random):
        self.plan, self.rng = plan, rng
        self.srq: SRQ
        self.posted: dict[int, Slot] = {}
        #: Who uses it: the book of the newest connection of each QP.
        self.books: dict[int, Book] = {}
        #: Of those that are of UC or UD.
        self.inboxes: dict[int, Inbox] = {}
        #: Nothing more is posted.
        self.full = False
        self._idle: list[Slot] = []
        self._numbers = 1 << 32
        self._region: MR
        self._doubts: list[tuple[int, set[int], str]] = []
        self._flushed: set[int] = set()  # books that have given one back

    async def up(self, pd: PD, region: MR, places: list[Place]) -> None:
        """Make the queue, with a request for each of ``places``; none is posted yet."""
        self._region = region
        self.srq = await SRQ.create(pd, SrqAttr(len(places), PARTS))
        self._idle = [Slot(place) for place in places]

    async def feed(self) -> None:
        """Post what is idle, until ``full``."""
        while not self.full:
            await Timer(self.rng.choice(self.plan.pauses), "ns")
            count = self.rng.randrange(1, self.plan.together + 1)
            await self.post(count)

    async def post(self, count: int) -> None:
        """Post up to ``count`` idle requests, with one doorbell."""
        self.rng.shuffle(self._idle)
        now, self._idle = self._idle[:count], self._idle[count:]
        requests = []
        for slot in now:
            self._numbers += 1
            slot.wr_id, slot.at = self._numbers, now_ns()
            self.posted[slot.wr_id] = slot
            ((at, length),) = slot.place.pieces
            cuts = sorted(self.rng.randrange(length + 1) for _ in range(PARTS - 1))
            ends = [0, *cuts, length]
            sges = [self._region.sge(at + a, b - a) for a, b in pairwise(ends) if b > a]
            requests.append(RecvWR(slot.wr_id, sges))
        await self.srq.post_recv(requests)

    def doubt(self, since: int, said: str) -> None:
        """Somebody found no request, as ``said``: were there any from ``since`` until now?

        That is known when the completions that have been written until now have been taken.
        """
        there = {slot.wr_id for slot in self.posted.values() if slot.at < since}
        self._doubts.append((now_ns() + VISIBLE_NS, there, said))

    def looked(self, now: int) -> None:
        """All completions that are here have been taken."""
        for due, there, said in self._doubts:
            left = len(there & self.posted.keys())
            assert now < due or left <= len(self.books), f"{said}; there were {left} all the time"
        self._doubts = [doubt for doubt in self._doubts if now < doubt[0]]

    def completed(self, wc: WC) -> tuple[Book, Receive] | None:
        """A request has come back: whose it was, and for which message, if its QP is of RC. Book or
        inbox have noted it."""
        assert wc.wr_id in self.posted, f"nobody posted this, or it comes twice: {wc}"
        slot = self.posted.pop(wc.wr_id)
        self._idle.append(slot)
        book = self.books[wc.qp_num]
        if wc.status != WcStatus.SUCCESS:
            assert id(book) not in self._flushed, f"{book.where}: a second one is flushed"
            self._flushed.add(id(book))
        if inbox := self.inboxes.get(wc.qp_num):
            inbox.judge(wc, slot.place, f"{book.where}: shared request {wc.wr_id}")
            return None
        receive = book.next_receive()
        message = receive.sent.message
        what = f"{book.where}: {receive} in a shared request"
        sends = message.opcode in SENDS
        if wc.status == WcStatus.SUCCESS:
            if sends:
                sink = receive.sent.sink
                sink.pieces, sink.empty = (
                    slot.part(message.length),
                    slot.place.empty[: message.length],
                )
            book.received(receive, wc)
            slot.place.settled(what)
        else:
            book.received(receive, wc)
            self._partly(slot, receive.sent.sink.full if sends else np.zeros(0, np.uint8), what)
        return book, receive

    def _partly(self, slot: Slot, full: Octets, what: str) -> None:
        """A message that did not come to its end: each byte is the message's or as before."""
        found, empty = slot.place.read(), slot.place.empty
        good = found == empty
        good[: len(full)] |= found[: len(full)] == full
        assert good.all(), f"{what}: {int((~good).sum())} bytes are nobody's"
        ((at, _),) = slot.place.pieces
        self._region.write(empty, at)

    async def settled(self) -> None:
        """Nothing moves any more, and what was posted has been used up."""
        assert not self.posted, f"{len(self.posted)} shared requests have not come back"
        assert not self.srq.queue.pending, "elements of the shared queue have not come back"
        await self.srq.close()


def unresolved(region: MR, full: Octets) -> Place:
    """The place of a message that goes where the request says that its queue pair takes."""
    return Place(region, (), ~full, full, State.ANYTHING)
