"""The shared receive queues of one side: their requests, who has them, what they have got."""

from __future__ import annotations

import random
from collections import Counter
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
from sim.guest.verbs import CQ, MR, PD, SRQ, WC, XRCD, MpWr, RecvWR, SrqAttr
from sim.models.platform import now_ns

__all__ = ["PARTS", "Pool", "unresolved"]

#: SGEs of a request at most.
PARTS = 3


@dataclass(eq=False)
class Slot:
    """The bytes of one request, posted ``at`` to ``queue``: ``place`` is what they are while nobody
    has it."""

    place: Place
    wr_id: int = 0
    at: int = 0
    queue: int = 0

    def part(self, length: int) -> tuple[tuple[int, int], ...]:
        """The first ``length`` bytes of it, as pieces."""
        ((at, _),) = self.place.pieces
        return ((at, length),) if length else ()


class Pool:
    """A shared receive queue whose requests are given back after a while, some at a time; or the
    queues of an XRC domain, between which they change.

    Each request comes back once: to the queue pair that has taken it, which has one at a time.
    """

    #: In the end messages use up what is posted.
    exhausts = True

    def __init__(self, plan: Shared, rng: random.Random):
        self.plan, self.rng = plan, rng
        self.queues: list[SRQ] = []
        self.xrcd: XRCD | None = None
        self.posted: dict[int, Slot] = {}
        #: Who uses it: the book of the newest connection of each QP.
        self.books: dict[int, Book] = {}
        #: Of those that are targets of DC: which one of their book's.
        self.targets: dict[int, int] = {}
        #: Of those that are of UC or UD.
        self.inboxes: dict[int, Inbox] = {}
        #: Nothing more is posted.
        self.full = False
        self._idle: list[Slot] = []
        self._shape: MpWr | None = None  # of requests that take several packets
        self._numbers = 1 << 32
        self._region: MR
        self._doubts: list[tuple[int, set[int], str]] = []
        self._flushed: set[int] = set()  # books that have given one back

    @property
    def srq(self) -> SRQ | None:
        """The queue that queue pairs are made with, if they are."""
        return None if self.xrcd else self.queues[0]

    async def up(self, pd: PD, cq: CQ, region: MR, places: list[Place]) -> None:
        """Make the queues, with a request for each of ``places``; none is posted yet. Those of a
        domain complete in ``cq``."""
        self._region, attr, shape = region, SrqAttr(len(places), PARTS), self._shape
        if self.plan.domain:
            self.xrcd = await XRCD.create(pd.ctx)
            for _ in range(self.plan.domain):
                made = await SRQ.create(pd, attr, xrcd=self.xrcd, cq=cq, mp_wr=shape)
                self.queues.append(made)
        else:
            self.queues.append(await SRQ.create(pd, attr, mp_wr=shape))
        self._idle = [Slot(place) for place in places]

    async def feed(self) -> None:
        """Post what is idle, until ``full``."""
        while not self.full:
            await Timer(self.rng.choice(self.plan.pauses), "ns")
            count = self.rng.randrange(1, self.plan.together + 1)
            await self.post(count)

    async def post(self, count: int) -> None:
        """Post up to ``count`` idle requests, with one doorbell for each queue."""
        self.rng.shuffle(self._idle)
        now, self._idle = self._idle[:count], self._idle[count:]
        requests: list[list[RecvWR]] = [[] for _ in self.queues]
        for slot in now:
            slot.queue = self._neediest()
            self._numbers += 1
            slot.wr_id, slot.at = self._numbers, now_ns()
            self.posted[slot.wr_id] = slot
            ((at, length),) = slot.place.pieces
            cuts = sorted(self.rng.randrange(length + 1) for _ in range(PARTS - 1))
            ends = [0, *cuts, length]
            sges = [self._region.sge(at + a, b - a) for a, b in pairwise(ends) if b > a]
            requests[slot.queue].append(RecvWR(slot.wr_id, sges))
        for srq, some in zip(self.queues, requests, strict=True):
            if some or not self.xrcd:  # a queue alone has its doorbell even for none
                await srq.post_recv(some)

    def _neediest(self) -> int:
        """The queue that has the fewest requests: so nobody waits for ever."""
        have = Counter(slot.queue for slot in self.posted.values())
        return min(range(len(self.queues)), key=lambda queue: have[queue])

    def doubt(self, queue: int, since: int, said: str) -> None:
        """Somebody found no request in ``queue``, as ``said``: were there any from ``since`` until
        now?

        That is known when the completions that have been written until now have been taken.
        """
        posted = [slot for slot in self.posted.values() if slot.queue == queue]
        there = {slot.wr_id for slot in posted if slot.at < since}
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
        assert slot.queue == message.queue, f"{what} of queue {slot.queue}"
        target = self.targets.get(wc.qp_num, 0)
        assert target == message.target, f"{what} of target {target}"
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
        for srq in self.queues:
            assert not srq.queue.pending, "elements of a shared queue have not come back"
        await self._close()

    async def _close(self) -> None:
        for srq in self.queues:
            await srq.close()
        if self.xrcd:
            await self.xrcd.close()


def unresolved(region: MR, full: Octets) -> Place:
    """The place of a message that goes where the request says that its queue pair takes."""
    return Place(region, (), ~full, full, State.ANYTHING)
