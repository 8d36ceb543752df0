"""A shared receive queue whose requests take several packets, and what they have got."""

from __future__ import annotations

from hdl.abi.enums import WcFlags, WcOpcode, WcStatus
from sim.bench.scenario.ledger import Book, Place, Receive
from sim.bench.scenario.plan import SENDS
from sim.bench.scenario.pool import Pool, Slot
from sim.guest.verbs import CQ, MR, PD, WC, MpWr

__all__ = ["PiecePool"]


class PiecePool(Pool):
    """A shared receive queue with requests for several packets.

    Each packet completes, with the place of its bytes in the open request; messages of several
    queue pairs lie in one. A request comes back with the completion that says so (CONSUMED), once.
    """

    exhausts = False  # an open request stays

    async def up(self, pd: PD, cq: CQ, region: MR, places: list[Place]) -> None:
        """See ``Pool``."""
        #: Where behind the last piece of each open request is.
        self._ends: dict[int, int] = {}
        #: Bytes of its message that each end has got.
        self._got: dict[int, int] = {}
        self._shape = MpWr(self.plan.buffer, self.plan.segment)
        await super().up(pd, cq, region, places)

    def completed(self, wc: WC) -> tuple[Book, Receive] | None:
        """A packet has come, or a request goes back without one. Returns whose message has ended
        with it, and which."""
        assert wc.wr_id in self.posted, f"nobody posted this, or it is over: {wc}"
        slot, book = self.posted[wc.wr_id], self.books[wc.qp_num]
        what = f"{book.where}: a packet in request {wc.wr_id}"
        assert wc.status == WcStatus.SUCCESS, f"{what}: {wc.status.name}"
        ended = None
        if wc.opcode == WcOpcode.RECV_NOP:
            assert wc.wc_flags == WcFlags.MP_WR_CONSUMED and not wc.byte_len, f"{what}: {wc}"
        else:
            ended = self._piece(book, slot, wc, what)
        if wc.wc_flags & WcFlags.MP_WR_CONSUMED:
            slot.place.settled(what)
            self._idle.append(self.posted.pop(wc.wr_id))
            self._ends.pop(wc.wr_id, None)
        return ended

    def _piece(self, book: Book, slot: Slot, wc: WC, what: str) -> tuple[Book, Receive] | None:
        """A packet of the message that ``book`` receives next."""
        assert not book.closed, f"{what} completes after its QP was dropped"
        receive, plan = book.next_receive(), self.plan
        assert slot.queue == receive.sent.message.queue, f"{what}: of queue {slot.queue}"
        message, sink = receive.sent.message, receive.sent.sink
        sends = message.opcode in SENDS
        length, at = wc.byte_len if sends else 0, wc.mp_wr_offset
        taken = max(1, -(-length // plan.segment)) * plan.segment
        what = f"{what}, at {at}, of {receive}"
        assert at % plan.segment == 0 and at >= self._ends.get(wc.wr_id, 0), (
            f"{what}: lies on another"
        )
        assert at + taken <= plan.buffer, f"{what}: {length} bytes go beyond it"
        self._ends[wc.wr_id] = at + taken
        full = bool(wc.wc_flags & WcFlags.MP_WR_CONSUMED)
        assert full == (at + taken == plan.buffer), f"{what}: consumed {full}"
        got = self._got.get(id(book), 0)
        self._compare(slot, at, sink.full[got : got + length], length, what)
        more = bool(wc.wc_flags & WcFlags.MP_WR_MORE_IN_MSG)
        self._got[id(book)] = got + length if more else 0
        assert more == (sends and got + length < message.length), f"{what}: more {more}"
        if more:
            assert length == book.attributes.mtu.octets, f"{what}: {length} bytes, and more"
            return None
        if sends:  # all of it has been compared
            assert got + length == message.length, f"{what}: {got + length} bytes in all"
            sink.full = sink.empty = sink.full[:0]
        book.received(receive, wc, message.length)
        return book, receive

    def _compare(self, slot: Slot, at: int, wanted, length: int, what: str) -> None:
        """The bytes of a packet are there; they are then what they were before."""
        ((place, _),) = slot.place.pieces
        assert len(wanted) == length, f"{what}: {length} bytes, {len(wanted)} are missing"
        found = self._region.read(length, place + at)
        assert (found == wanted).all(), f"{what}: wrong bytes"
        self._region.write(slot.place.empty[at : at + length], place + at)

    async def settled(self) -> None:
        """Nothing moves any more: what has not come back is in the queue, without a byte in it."""
        for number, slot in self.posted.items():
            slot.place.settled(f"request {number}")
        left = sum(len(srq.queue.pending) for srq in self.queues)
        assert left == len(self.posted), f"{left} elements in queues, {len(self.posted)} posted"
        await self._close()
