"""One connection of a scenario: posts its messages, ends it as its plan says, checks."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import cocotb
from cocotb.task import Task
from cocotb.triggers import Event, Lock, Timer

from hdl.abi.enums import Access, QpAttrMask, QpState, QpType, WcStatus, WrOpcode
from sim.bench.scenario.keys import RIGHTS
from sim.bench.scenario.ledger import FAULTY, Book, Receive, Sent
from sim.bench.scenario.plan import (
    DONE,
    Attributes,
    Ending,
    Life,
    Wrong,
    delay_ns,
    loses,
    reads,
)
from sim.bench.scenario.posts import Posts
from sim.bench.scenario.side import Side
from sim.bench.system import VISIBLE_NS, QpOptions, connect, join, together
from sim.guest.verbs import QP, QPAttr, QPInitAttr
from sim.models.impairments import Impairments
from sim.models.platform import now_ns

__all__ = ["Connection", "Gate", "options_of"]

#: How often somebody looks whether a connection has come to its end, ns.
LOOK_NS = 4000
#: Of all datagram QPs.
QKEY = 0x11223344


def is_hard(network: Impairments) -> bool:
    """Tell whether a packet may be lost as often as a QP sends it again."""
    return bool(
        network.loss + network.corrupt > 0.06
        or network.burst > 1
        or network.every
        or network.drop
        or network.queue
    )


class Gate:
    """Opens when ``count`` have come to it; with 0 it is open."""

    def __init__(self, count: int):
        self._missing = count
        self._open, self._turn = Event(), Lock()
        if not count:
            self._open.set()

    async def in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it, one after the other while the gate is closed: many who wait for the same firmware
        only look for their answers."""
        if self._open.is_set():
            await work
        else:
            async with self._turn:
                await work

    async def arrived(self) -> None:
        """One more is here: wait for the others."""
        self._missing -= 1
        if self._missing == 0:
            self._open.set()
        await self.opened()

    async def opened(self) -> None:
        """Wait until all have come."""
        await self._open.wait()


class Connection:
    """Both ends of a connection between ``sides``, in the life ``life`` of pair ``number``.

    ``dubious``: strangers may break it. ``up``: it has begun. ``gate``: where it waits before that.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        networks: Sequence[Impairments],
        life: Life,
        number: int,
        *,
        dubious: bool = False,
        posts: type[Posts] = Posts,
    ):
        self.sides, self.networks, self.life = sides, networks, life
        self.number, self.up, self.gate = number, False, Gate(0)
        self.rng = random.Random(f"{number} {life}")
        self.settle_ns = sum(map(delay_ns, networks))
        self.books = [
            Book(f"pair {number} at {side.node.name}", life.attributes, dubious) for side in sides
        ]
        self.qps: tuple[QP, QP]
        self._posters: tuple[list[Task[None]], list[Task[None]]] = ([], [])  # by whose QP it is
        self._begun = 0
        self._counted: list[dict[str, int]] = [{}, {}]  # before this life
        self._posts = [posts(sides, self.books, life.ways[side], side) for side in (0, 1)]

    def explain(self, round_ns: int) -> None:
        """Note why these ends may fail, as far as the plan says it.

        round_ns: what good networks and cards take at most until an answer has come.
        """
        a = self.life.attributes
        slow = a.timeout_ns < 2 * max(map(delay_ns, self.networks)) + round_ns
        few = a.retry_cnt < 7 and any(map(loses, self.networks))
        for side, book in enumerate(self.books):
            book.quiet = not slow and not any(map(loses, self.networks))
            if slow or few or any(map(is_hard, self.networks)):
                book.reasons["network"] = WcStatus.RETRY_EXC_ERR
            other = self.books[1 - side]
            prompt = not self.life.ways[side].late and not self.sides[1 - side].pool
            for message in self.life.ways[side].messages:
                if message.wrong == Wrong.NOTHING:
                    continue
                local = FAULTY[message.wrong].local
                if not local:
                    other.reasons["bad request"] = WcStatus.WR_FLUSH_ERR
                    book.reasons["peer"] = WcStatus.RETRY_EXC_ERR
                if local and not (book.quiet and prompt):
                    # The QP stops: what was lost, or refused, in front is not sent again.
                    book.reasons["bad request"] = WcStatus.WR_FLUSH_ERR

    def _left_alone(self, side: int) -> None:
        """The peer of this end answers no more. What stands in front of a request that the own card
        refuses is then not answered either, and is flushed when the QP stops."""
        book, messages = self.books[side], self.life.ways[side].messages
        book.reasons["peer"] = WcStatus.RETRY_EXC_ERR
        wrong = {message.wrong for message in messages} - {Wrong.NOTHING}
        if any(FAULTY[one].local for one in wrong):
            book.reasons["bad request"] = WcStatus.WR_FLUSH_ERR

    # The life -----------------------------------------------------------------------------------

    async def begin(self, qps: tuple[QP, QP] | None) -> None:
        """Connect, with QPs in RESET if ``qps`` are given, and begin to post."""
        await self.gate.in_turn(self._connect(qps))
        for side, qp in enumerate(self.qps):
            self._share(side, qp)
        self._ready()
        for posts in self._posts:
            if not posts.way.late:
                await posts.receives(self.qps)
        await self.gate.arrived()
        self._begun, self.up = now_ns(), True
        for side, posts in enumerate(self._posts):
            self._posters[side].append(cocotb.start_soon(posts.sends(self.qps)))
            if posts.way.late:
                self._posters[1 - side].append(cocotb.start_soon(posts.late(self.qps)))

    async def _connect(self, qps: tuple[QP, QP] | None) -> None:
        options = options_of(self.life.attributes, self.sides[0].flushes)
        nodes = [side.node for side in self.sides]
        if qps is None and self.life.attributes.service == QpType.XRC_INI:
            self.qps = await self._initiator_and_target(options)
        elif qps is None:
            self.qps = await connect(
                nodes,
                [one.pd for one in self.sides],
                [one.cq for one in self.sides],
                options,
                [one.pool.srq if one.pool else None for one in self.sides],
            )
        else:
            self.qps = qps
            await join(nodes, qps, options)
            self._counted = [await self._counters(side) for side in (0, 1)]

    async def _initiator_and_target(self, options: QpOptions) -> tuple[QP, QP]:
        """A connection of XRC: the target takes from the queues of its side's domain."""
        asks = self.life.attributes.initiator
        here, there = self.sides[asks], self.sides[1 - asks]
        assert there.pool is not None
        target = QPInitAttr(QpType.XRC_TGT, xrcd=there.pool.xrcd)
        initiator = QPInitAttr(
            QpType.XRC_INI, here.cq, cap=replace(options.cap), sq_sig_all=options.sq_sig_all
        )
        ends = await together(QP.create(here.pd, initiator), QP.create(there.pd, target))
        qps = (ends[asks], ends[1 - asks])
        await join([side.node for side in self.sides], qps, options)
        return qps

    def _share(self, side: int, qp: QP) -> None:
        """This end takes what it receives from the shared queue of its side, if there is one."""
        pool = self.sides[side].pool
        if pool:
            pool.books[qp.qp_num] = self.books[side]
            pool.inboxes.pop(qp.qp_num, None)
            self.books[1 - side].doubt = pool.doubt

    def _ready(self) -> None:
        """Both ends are in RTS, and nothing is posted yet."""

    def completed(self, book: Book, what: Sent | Receive) -> None:
        """A request has ended, well or not."""
        self._posts[self.books.index(book)].ended.set()
        if book.failed is not None:
            self._left_alone(1 - self.books.index(book))
        for one in book.sends if isinstance(what, Sent) else ():
            done = one.status == WcStatus.SUCCESS
            if one.seen or not done or one.message.taker or book.dubious:
                continue
            one.seen = True
            if one.message.opcode == WrOpcode.FLUSH:
                book.flushed(one)
            if reads(one.message.opcode):
                one.arrived(now_ns())
            else:
                cocotb.start_soon(_visible(one))

    async def run(self, qps: tuple[QP, QP] | None) -> tuple[QP, QP] | None:
        """Live it; returns the QPs if they are in RESET, to be used again."""
        await self.begin(qps)
        ending, side = self.life.ending, self.life.side
        if ending in DONE:
            await self._finished()
            await self.check()
        else:
            await Timer(self.life.at, "ns")
        if ending == Ending.ERROR:
            self.books[side].reasons["ERR"] = WcStatus.WR_FLUSH_ERR
            self._left_alone(1 - side)
            await self.qps[side].modify(QPAttr(qp_state=QpState.ERR), QpAttrMask.STATE)
            await self._finished()
            await self.check()
        elif ending == Ending.GONE:
            await self._gone(side)
        if ending == Ending.FINISH:
            return None
        order = [0, 1] if self.rng.random() < 0.5 else [1, 0]
        for one in order:
            await self._drop(one, reset=ending == Ending.RESET)
            await Timer(self.rng.choice((1, 100, 3000)), "ns")
        if ending != Ending.RESET:
            return None
        await Timer(self.settle_ns, "ns")  # packets of this life must not reach the next
        return self.qps

    async def _finished(self) -> None:
        """Wait until everything that was posted has ended; the deadline says if nothing does."""
        posters = [*self._posters[0], *self._posters[1]]
        while not all(one.done() for one in posters) or any(map(self._owes, (0, 1))):
            await Timer(LOOK_NS, "ns")

    def _owes(self, side: int) -> bool:
        """Whether something of a side must still complete."""
        book, other = self.books[side], self.books[1 - side]
        if book.closed:
            return False
        if book.outstanding:
            return True
        flushing = "ERR" in book.reasons or book.failed is not None
        return any(
            one.status is None
            for one in book.receives
            if (one.sent.status == WcStatus.SUCCESS and not book.dubious and not other.closed)
            or (flushing and one.at is not None)
        )

    async def _drop(self, side: int, *, reset: bool = False) -> None:
        """RESET or DESTROY of one end: nothing of it completes, or is written, from then on."""
        book = self.books[side]
        if book.closed:
            return
        for poster in self._posters[side]:
            poster.cancel()
        self._left_alone(1 - side)
        if self.sides[side].pool:  # what it holds comes back
            book.reasons["dropped"] = WcStatus.WR_FLUSH_ERR
        if reset:
            await self.qps[side].modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
        else:
            await self.qps[side].close()
        await self.sides[side].look()
        book.closed = True
        region = self.sides[side].sink
        for one in (*self.books[0].sends, *self.books[1].sends):
            if one.sink.region is region:
                one.sink.freeze()

    # Counters -----------------------------------------------------------------------------------

    async def _counters(self, side: int) -> dict[str, int]:
        device = self.sides[side].node.context.device
        return await device.qp_counters(self.qps[side].qp_num)

    async def check(self) -> None:
        """Everything has ended: each end's requests, and its counters against them."""
        for side, book in enumerate(self.books):
            if not book.closed:
                book.settled()
                counted = await self._counters(side)
                since = {n: value - self._counted[side].get(n, 0) for n, value in counted.items()}
                self._judge_counters(side, since, now_ns() - self._begun)

    def _judge_counters(self, side: int, since: dict[str, int], lasted_ns: int) -> None:
        """Fails for what the card has counted for an end, if that cannot be."""
        self.books[side].counted(since, lasted_ns)

    async def _gone(self, side: int) -> None:
        """One end is destroyed; the other sends as often as it may, and no more."""
        stays = 1 - side
        await self._drop(side)
        await Timer(self.settle_ns, "ns")
        book = self.books[stays]
        before, alive = await self._counters(stays), book.failed is None
        await self._finished()
        after = await self._counters(stays)
        if alive and book.failed == WcStatus.RETRY_EXC_ERR:
            name = "local_ack_timeout_err"
            tries, most = after[name] - before[name], self.life.attributes.retry_cnt + 1
            assert tries <= most, f"{book.where}: {tries} time-outs of a dead peer, not {most}"


async def _visible(sent: Sent) -> None:
    """The data of an acknowledged WRITE is there soon."""
    await Timer(VISIBLE_NS, "ns")
    sent.sink.arrived(sent)


def options_of(a: Attributes, flushes: Access) -> QpOptions:
    """What both ends of a connection are made with."""
    return QpOptions(
        type=a.service,
        qkey=QKEY,
        mtu=a.mtu,
        psns=a.psns,
        max_rd_atomic=a.max_rd_atomic,
        access=RIGHTS | Access.REMOTE_ATOMIC | flushes,
        timeout=a.timeout,
        retry_cnt=a.retry_cnt,
        rnr_retry=a.rnr_retry,
        min_rnr_timer=a.min_rnr_timer,
    )
