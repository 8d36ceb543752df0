"""What one end of a connection posts, and the receives that the other end posts for it."""

from __future__ import annotations

from collections.abc import Sequence

from cocotb.triggers import Timer

from hdl.abi.enums import WrOpcode
from sim.bench.scenario.ledger import Book, Receive, Sent, State, immediate
from sim.bench.scenario.plan import SENDS, Message, Way, Wrong
from sim.bench.scenario.side import Side
from sim.guest.verbs import QP, SGE, RecvWR, SendWR
from sim.models.platform import now_ns

__all__ = ["Posts"]

#: An opcode that no device knows.
NO_OPCODE = 99


class Posts:
    """The requests of ``way``, from ``side``, with their places, and the receives for them.

    All of it is noted in the ``books``.
    """

    def __init__(self, sides: Sequence[Side], books: Sequence[Book], way: Way, side: int):
        self.way, self.side = way, side
        self._mine, self._theirs = sides[side], sides[1 - side]
        self._book, self._other = books[side], books[1 - side]
        self._receives: list[tuple[RecvWR, Receive]] = []
        self._batches = [[self._request(one) for one in batch.messages] for batch in way.batches]

    async def sends(self, qps: tuple[QP, QP]) -> None:
        """Post the batches when they are due."""
        for batch, plan in zip(self._batches, self.way.batches, strict=True):
            if plan.pause:
                await Timer(plan.pause, "ns")
            for _, sent in batch:
                sent.at = now_ns()
                right = sent.message.wrong in (Wrong.NOTHING, Wrong.SHORT)
                if right and sent.sink.state == State.EMPTY:
                    sent.sink.state = State.OPEN
            await qps[self.side].post_send([wr for wr, _ in batch])

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
        local, remote, sent = self._places(message)
        theirs = self._theirs
        reads = message.opcode == WrOpcode.RDMA_READ
        opcode: WrOpcode | int = message.opcode
        rkey = theirs.source.rkey if reads else theirs.sink.rkey
        if message.wrong == Wrong.OPCODE:
            opcode = NO_OPCODE
        elif message.wrong == Wrong.LKEY:
            local = [SGE(one.addr, one.length, one.lkey ^ 3) for one in local]
        elif message.wrong == Wrong.RKEY:
            rkey ^= 1
        elif message.wrong == Wrong.RANGE:
            remote = theirs.sink.iova + theirs.sink.length - 1
        wr = SendWR(sent.wr_id, opcode, local, message.flags)
        if message.marked:
            wr.imm_data = immediate(sent.wr_id)
        if message.opcode not in SENDS:
            wr.set_wr_rdma(rkey, remote)
        self._book.sends.append(sent)
        self._mine.known[sent.wr_id] = (self._book, sent)
        if message.taker:
            self._receive(sent)
        return wr, sent

    def _places(self, message: Message) -> tuple[list[SGE], int, Sent]:
        """Its own SGEs, the address at the other end, and where its data goes."""
        mine, theirs = self._mine, self._theirs
        if message.opcode == WrOpcode.RDMA_READ:
            ((at, length),) = theirs.take((message.length,), sink=False)
            place = mine.place(mine.take(message.pieces, sink=True), theirs.data[at : at + length])
            local, remote = place.sges(), theirs.source.iova + at
        else:
            pieces = mine.take(message.pieces, sink=False)
            local = [mine.source.sge(at, length) for at, length in pieces]
            landing = message.landing if message.opcode in SENDS else (message.length,)
            place = theirs.place(theirs.take(landing, sink=True), mine.gathered(pieces))
            remote = theirs.sink.iova + (place.pieces[0][0] if place.pieces else 0)
        if self._book.dubious:
            place.state = State.ANYTHING
        return local, remote, Sent(mine.number(), message, place)

    def _receive(self, sent: Sent) -> None:
        receive = sent.receive = Receive(self._theirs.number(), sent)
        sges = sent.sink.sges() if sent.message.opcode in SENDS else []
        if sent.message.wrong == Wrong.SHORT:
            sges[-1].length -= 1
        self._other.receives.append(receive)
        self._theirs.known[receive.wr_id] = (self._other, receive)
        self._receives.append((RecvWR(receive.wr_id, sges), receive))
