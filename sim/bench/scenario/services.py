"""Connections of UC and UD of a scenario: as those of RC, but nothing is promised.

Requests complete all the same, in order. What arrives is the matter of ``Inbox``.
"""

from __future__ import annotations

from collections.abc import Sequence

from cocotb.triggers import Timer

from hdl.abi.enums import QpType
from hdl.abi.virtio_rdma import GRH_SIZE
from sim.bench.scenario.inbox import Inbox, Landing
from sim.bench.scenario.ledger import Book, Receive, Sent, State
from sim.bench.scenario.life import QKEY, Connection
from sim.bench.scenario.plan import DONE, Life, Way, Wrong, loses
from sim.bench.scenario.posts import Posts
from sim.bench.scenario.side import GAP, Side
from sim.guest.verbs import AH, QP, AHAttr, GlobalRoute, RecvWR
from sim.models.impairments import Impairments
from sim.models.platform import now_ns

__all__ = ["Unanswered", "room"]

#: Receives beyond the messages that the plan has: what a network that duplicates may take.
SPARE = 2
#: What a card takes at most for the last message, ns.
LAST_NS = 20_000


def landing_bytes(way: Way) -> int:
    """Return how long each receive of a way is: any message fits, behind its GRH area."""
    return GRH_SIZE + max((message.length for message in way.messages), default=0)


def room(way: Way) -> int:
    """Return how many bytes of a sink the receives of a way take."""
    return (len(way.messages) + SPARE) * (landing_bytes(way) + GAP)


class LoosePosts(Posts):
    """Requests of UC or UD, and receives that any of them may take."""

    loose = True

    def __init__(self, sides: Sequence[Side], books: Sequence[Book], way: Way, side: int):
        super().__init__(sides, books, way, side)
        self.inbox: Inbox
        self._landings: list[Landing] = []

    def land(self, inbox: Inbox) -> None:
        """Make the receives, which are the other end's."""
        self.inbox, theirs = inbox, self._theirs
        if theirs.pool:
            return
        count = sum(message.taker for message in self.way.messages)
        for _ in range(count + SPARE if count else 0):
            pieces = theirs.take((landing_bytes(self.way),), sink=True)
            place = theirs.blank(pieces)
            landing = Landing(inbox, theirs.number(), place)
            self._landings.append(landing)
            theirs.landings[landing.wr_id] = landing
        inbox.landings += self._landings

    def aim(self, qps: tuple[QP, QP], service: QpType) -> None:
        """Give datagrams their destination: the other end."""
        if service != QpType.UD:
            return
        there = self._theirs.node
        route = GlobalRoute(dgid=there.context.query_gid(1, 0))
        handle = AH(self._mine.pd, AHAttr(gr=route, roce_dmac=there.mac))
        for wr, sent in (pair for batch in self._batches for pair in batch):
            wrong = sent.message.wrong == Wrong.QKEY
            wr.set_wr_ud(handle, qps[1 - self.side].qp_num, QKEY ^ wrong)

    async def receives(self, qps: tuple[QP, QP]) -> None:
        """Post the other end's receives."""
        for landing in self._landings:
            landing.at, landing.place.state = now_ns(), State.ANYTHING
            await qps[1 - self.side].post_recv(RecvWR(landing.wr_id, landing.place.sges()))


class Unanswered(Connection):
    """Both ends of a pair of UC or UD, in the life ``life``."""

    def __init__(
        self, sides: Sequence[Side], networks: Sequence[Impairments], life: Life, number: int
    ):
        super().__init__(sides, networks, life, number, posts=LoosePosts)
        self.loose: list[LoosePosts] = [one for one in self._posts if isinstance(one, LoosePosts)]
        for side, posts in enumerate(self.loose):
            here, there = sides[side].node, sides[1 - side].node
            network = networks[side]
            inbox = Inbox(
                self.books[1 - side],
                self.books[side].sends,
                grh=life.attributes.service == QpType.UD,
                ordered=not network.reorder,
                unique=not network.duplicate,
                route=(here.context.query_gid(1, 0), there.context.query_gid(1, 0)),
            )
            posts.land(inbox)

    def explain(self, round_ns: int) -> None:
        """Nothing but its own requests makes an end fail."""
        for book in self.books:
            book.loose = True

    def _ready(self) -> None:
        for posts in self.loose:
            posts.inbox.peer = self.qps[posts.side].qp_num
            pool = self.sides[1 - posts.side].pool
            if pool:
                pool.inboxes[self.qps[1 - posts.side].qp_num] = posts.inbox
            posts.aim(self.qps, self.life.attributes.service)

    def completed(self, book: Book, what: Sent | Receive) -> None:
        """A request has ended; whether its data arrive is nobody's promise."""

    async def _finished(self) -> None:
        await super()._finished()
        await Timer(self.settle_ns + LAST_NS, "ns")
        for side in self.sides:
            await side.look()

    async def _drop(self, side: int, *, reset: bool = False) -> None:
        gone = self.books[side].closed
        await super()._drop(side, reset=reset)
        if not gone:
            self.loose[1 - side].inbox.closed()

    async def check(self) -> None:
        """Everything has ended: what each end has sent and received."""
        await super().check()
        good = not any(loses(one) or one.duplicate for one in self.networks)
        well = all(book.failed is None and not book.reasons for book in self.books)
        for posts in self.loose:
            here = not posts.way.late and not self.sides[1 - posts.side].pool
            sure = good and well and self.life.ending in DONE and here
            posts.inbox.settled(sure=sure)
