"""What one end of a connection posts, and the receives that the other end posts for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cocotb.triggers import Event, Timer

from hdl.abi.enums import FlushLevel, FlushType, WrOpcode
from hdl.wire.opcodes import Kind
from sim.bench.scenario.keys import Key, KeyState, wanted
from sim.bench.scenario.ledger import Book, Receive, Sent, State, immediate
from sim.bench.scenario.plan import SENDS, Message, Way, Wrong, reads
from sim.bench.scenario.pool import unresolved
from sim.bench.scenario.side import WORD, Side
from sim.guest.verbs import MW, QP, SGE, RecvWR, SendWR
from sim.models.platform import now_ns

__all__ = ["Posts"]

#: All that a FLUSH can bring about.
ALL_TYPES = FlushType.GLOBAL | FlushType.PERSISTENT
#: An opcode that no device knows.
NO_OPCODE = 99
#: What makes of the number of a receive queue that of none.
NO_QUEUE = 1 << 20
#: Requests that name a key to invalidate.
INVALIDATE = (WrOpcode.LOCAL_INV, WrOpcode.SEND_WITH_INV, WrOpcode.RDMA_READ_WITH_INV)
#: Requests that make a key valid.
OPEN = (
    WrOpcode.REG_MR,
    WrOpcode.BIND_MW,
    WrOpcode.MKEY_LIST,
    WrOpcode.MKEY_INTERLEAVED,
)


class Posts:
    """The requests of ``way``, from ``side``, with their places, and the receives for them.

    All of it is noted in the ``books``. ``loose``: no receive is for a message of its own.
    """

    loose = False

    def __init__(self, sides: Sequence[Side], books: Sequence[Book], way: Way, side: int):
        self.way, self.side = way, side
        #: Of DC: what the targets of messages are to this end.
        self.destinations: list[int] = []
        self._mine, self._theirs = sides[side], sides[1 - side]
        self._book, self._other = books[side], books[1 - side]
        self._receives: list[tuple[RecvWR, Receive]] = []
        #: Set when a request of this end, or one that it has received, has ended.
        self.ended = Event()
        self._keys: dict[tuple[bool, int], Key] = {}
        self._batches = [[self._request(one) for one in batch.messages] for batch in way.batches]

    async def sends(self, qps: tuple[QP, QP]) -> None:
        """Post the batches when they are due."""
        for batch, plan in zip(self._batches, self.way.batches, strict=True):
            if plan.pause:
                await Timer(plan.pause, "ns")
            if self.way.depth:
                await self._until_few(max(0, self.way.depth - len(batch)))
            for _, sent in batch:
                sent.posted(now_ns())
            for wr, sent in batch if self.destinations else ():
                wr.set_wr_dc(self.destinations[sent.message.target])
            await qps[self.side].post_send([wr for wr, _ in batch])

    async def _until_few(self, most: int) -> None:
        """Wait until ``most`` requests of this end are outstanding."""
        while sum(one.at > 0 and one.status is None for one in self._book.sends) > most:
            self.ended.clear()
            await self.ended.wait()

    async def receives(self, qps: tuple[QP, QP]) -> None:
        """Post the other end's receives."""
        for wr, receive in self._receives:
            receive.at = now_ns()
            await qps[1 - self.side].post_recv(wr)

    async def late(self, qps: tuple[QP, QP]) -> None:
        """Post them when they are due."""
        await Timer(self.way.late, "ns")
        await self.receives(qps)

    def _request(self, message: Message) -> tuple[SendWR, Sent]:
        own = self._key(self._mine, message.own, peer=False)
        peer = self._key(self._theirs, message.peer, peer=True)
        wr, sent = self._transfer(message, own, peer)
        self._change(wr, sent, own, peer)
        if message.wrong == Wrong.OPCODE:
            wr.opcode = NO_OPCODE
        elif message.wrong == Wrong.LKEY:
            wr.sg = [SGE(one.addr, one.length, one.lkey ^ 3) for one in wr.sg]
        elif message.wrong == Wrong.LENGTH:
            wr.sg[-1].length -= 1
        pool = self._theirs.pool
        if pool and (named := pool.queues[message.queue].srq_num) is not None:
            wr.set_wr_xrc_srqn(named ^ (NO_QUEUE if message.wrong == Wrong.QUEUE else 0))
        if message.marked:
            wr.imm_data = immediate(sent.wr_id)
        self._book.sends.append(sent)
        self._mine.known[sent.wr_id] = (self._book, sent)
        if message.taker and not self.loose:
            self._receive(sent)
        return wr, sent

    def _key(self, owner: Side, number: int | None, *, peer: bool) -> Key | None:
        """The key that a number of the way stands for."""
        if number is None:
            return None
        if (peer, number) not in self._keys:
            want = next(one for one in wanted(self.way) if (one.peer, one.number) == (peer, number))
            self._keys[peer, number] = owner.keys.take(want)
        return self._keys[peer, number]

    def _change(self, wr: SendWR, sent: Sent, own: Key | None, peer: Key | None) -> None:
        """Make it a request that registers, binds or invalidates a key, if it is one."""
        message = sent.message
        key, sent.makes = (peer if message.kind is Kind.SEND else own), KeyState.FREE
        if key is None:
            return
        if message.opcode in OPEN:
            opens = key.open_wr(message.wrong, message.opcode)
            wr.wr, wr.sg, sent.makes = opens.wr, opens.sg, KeyState.VALID
        elif message.opcode in INVALIDATE:
            sent.number = key.place.key
            wr.invalidate_rkey = sent.number ^ (message.wrong in (Wrong.KEY, Wrong.PEER_KEY))
        else:
            return
        sent.key = key

    def _transfer(self, message: Message, own: Key | None, peer: Key | None) -> tuple[SendWR, Sent]:
        """The request with its SGEs and the address at the other end, and where its data goes."""
        if message.placement:
            return self._placement(message)
        mine, theirs, atomic = self._mine, self._theirs, None
        if message.atomic:
            assert theirs.words is not None
            atomic = theirs.words.take(message.opcode, message.word, self)
            target, at = theirs.word_region, 8 * atomic.word.index
        else:
            target, at = theirs.source if reads(message.opcode) else theirs.sink, 0
        if reads(message.opcode):
            full = np.zeros(8, np.uint8)
            if atomic is None:
                ((at, length),) = theirs.take((message.length,), sink=False)
                full = theirs.data[at : at + length]
            place = mine.place(mine.take(message.pieces, sink=True), full)
            pieces, base = place.pieces, mine.sink
        else:
            pieces, base = mine.take(message.pieces, sink=False), mine.source
            full = mine.gathered(pieces)
            landing = message.landing if message.opcode in SENDS else (message.length,)
            if (theirs.pool or self.loose) and message.opcode in SENDS:
                place = unresolved(theirs.sink, full)
            else:
                place = theirs.place(theirs.take(landing, sink=True), full)
            at = place.pieces[0][0] if place.pieces else 0
        if self._book.dubious:
            place.state = State.ANYTHING
        holder = base if own is None or isinstance(own.place, MW) else own.place
        sent = Sent(mine.number(), message, place, atomic=atomic)
        sges = [holder.sge(*piece) for piece in pieces]
        wr = SendWR(sent.wr_id, message.opcode, sges, message.flags)
        if message.wrong == Wrong.RANGE:
            at = target.length - (atomic is None)
        at += message.wrong == Wrong.ALIGN
        rkey, iova = (peer.place.key, peer.place.iova) if peer else (target.rkey, target.iova)
        rkey ^= message.wrong == Wrong.RKEY
        wr.set_remote(rkey, iova + at, *(atomic.operands if atomic else ()))
        return wr, sent

    def _placement(self, message: Message) -> tuple[SendWR, Sent]:
        """A FLUSH of any bytes of the other end's sink, or an ATOMIC WRITE of a word of it."""
        theirs, stores = self._theirs, message.opcode == WrOpcode.ATOMIC_WRITE
        word = np.frombuffer(self._mine.rng.randbytes(WORD), np.uint8)
        place = theirs.place(theirs.take_word() if stores else (), word if stores else word[:0])
        if self._book.dubious:
            place.state = State.ANYTHING
        region = theirs.sink
        most = region.length - message.length
        at = place.pieces[0][0] if stores else theirs.rng.randrange(most + 1)
        if message.wrong == Wrong.RANGE:  # a word stays where words may be
            at += -(-(most + 1 - at) // WORD) * WORD if stores else most + 1 - at
        at += message.wrong == Wrong.ALIGN
        sent = Sent(self._mine.number(), message, place)
        wr = SendWR(sent.wr_id, message.opcode, (), message.flags)
        rkey = region.rkey ^ (message.wrong == Wrong.RKEY)
        if stores:
            wr.set_wr_atomic_write(rkey, region.iova + at, word.tobytes())
        else:
            level = FlushLevel(theirs.rng.randrange(2) if message.wrong != Wrong.RANGE else 0)
            kinds = [FlushType.GLOBAL, FlushType.PERSISTENT, ALL_TYPES]
            kind = theirs.rng.choice(kinds)
            wr.set_wr_flush(rkey, region.iova + at, message.length, kind, level)
        return wr, sent

    def _receive(self, sent: Sent) -> None:
        receive = sent.receive = Receive(self._theirs.number(), sent)
        if self._theirs.pool:
            self._other.receives.append(receive)
            return
        sges = sent.sink.sges() if sent.message.opcode in SENDS else []
        if sent.message.wrong == Wrong.SHORT:
            sges[-1].length -= 1
        self._other.receives.append(receive)
        self._theirs.known[receive.wr_id] = (self._other, receive)
        self._receives.append((RecvWR(receive.wr_id, sges), receive))
