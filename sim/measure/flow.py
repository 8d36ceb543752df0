"""Messages of one queue pair in one direction: how they are posted and what is compared.

``perf`` and ``demo`` drive flows, each in its own way: all the time, one by one, or in batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from hdl.abi.enums import SendFlags, WcOpcode, WcStatus, WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from sim.guest.driver.platform import Octets
from sim.guest.verbs import AH, MR, QP, SGE, SRQ, WC, Mkey, RecvWR, SendWR

__all__ = [
    "OPEN",
    "PIECES",
    "QKEY",
    "Flow",
    "PieceFlow",
    "Lane",
    "Shape",
    "Traffic",
    "compare",
    "finished",
    "good",
    "pieces",
]

#: Q_Key of datagram QPs.
QKEY = 0x1111_1111
#: What a FETCH_AND_ADD adds to a word of its own: a change of every byte.
STEP = 0x0101_0101_0101_0101
#: Bits of a work request's id that number the message; the QP's number is above them.
_SEQUENCE = 32
#: More messages than any flow has: it goes on until it is told to stop.
OPEN = 1 << _SEQUENCE
_SENDS = (WrOpcode.SEND, WrOpcode.SEND_WITH_INV)
#: In front of the FLUSH that makes it visible.
_WRITE = WrOpcode.RDMA_WRITE
_ATOMICS = (WrOpcode.ATOMIC_FETCH_AND_ADD, WrOpcode.ATOMIC_CMP_AND_SWP)


@dataclass(frozen=True)
class Shape:
    """How messages of one size are sent.

    depth: requests outstanding on a QP. batch: requests with one doorbell. signal: every
    ``signal``-th request has a completion. slots: places of a message in each QP's memory,
    ``stride`` bytes from one to the next.
    warm: messages of each QP before the timed part. timed: messages of all QPs together (in each
    direction) that the timed part waits for.
    """

    size: int
    depth: int
    batch: int
    signal: int
    slots: int
    stride: int
    warm: int
    timed: int

    @property
    def least_slots(self) -> int:
        """Enough that none is used again before its completion has been seen."""
        return self.depth + 2 * max(self.batch, self.signal) if self.depth > 1 else 1


@dataclass(frozen=True)
class Traffic:
    """What the messages of a flow are; ``name`` is for failures.

    places: offsets in source and sink, one for each message, used again in turn. area: bytes in
    front of what is received, as of a datagram. inline: whether requests carry their payload.
    answered: whether a request completes when the peer has answered, not when it has left. sges: of
    a request and of a receive, which name one place in so many pieces.
    one_word: all atomics change the first word. keys: of the receiver, which message ``n`` of
    SEND_WITH_INV invalidates.
    """

    name: str
    opcode: WrOpcode
    places: Sequence[int]
    area: int = 0
    inline: bool = False
    answered: bool = True
    sges: int = 1
    one_word: bool = False
    keys: Sequence[int] = ()

    @property
    def sends(self) -> bool:
        """Whether each message takes a receive."""
        return self.opcode in _SENDS

    @property
    def atomic(self) -> bool:
        """Whether it changes words."""
        return self.opcode in _ATOMICS

    @property
    def copies(self) -> bool:
        """Whether what moves stays in the host."""
        return self.opcode == WrOpcode.MEMCPY

    @property
    def fetches(self) -> bool:
        """Whether what moves is brought back to the requester."""
        return self.atomic or self.opcode == WrOpcode.RDMA_READ

    @property
    def flushes(self) -> bool:
        """Whether a message is a WRITE and the FLUSH of its bytes."""
        return self.opcode == WrOpcode.FLUSH

    @property
    def requests(self) -> int:
        """Requests that a message takes."""
        return 2 if self.flushes else 1

    @property
    def shows(self) -> bool:
        """Whether memory has a message when its request has completed."""
        return self.fetches or self.flushes


@dataclass(frozen=True)
class Lane:
    """Between what the messages of a flow go.

    number: of the pair of QPs. requester: number of the side that posts, on ``qp``; the other one
    posts receives, to ``receives``. source, sink: regions that messages come from and go to. way:
    to the other node, of datagrams. srq_num: the receive queue that requests name, of XRC.
    destinations: that they name in turn, of DC, whose targets have the numbers ``takers``. layouts:
    by place the indirect key that requests name in the place of their pieces.
    """

    number: int
    requester: int
    qp: QP
    peer: QP
    source: MR
    sink: MR
    receives: QP | SRQ
    way: AH | None = None
    srq_num: int | None = None
    destinations: Sequence[int] = ()
    takers: Sequence[int] = ()
    layouts: Mapping[int, Mkey] = field(default_factory=dict)


def pieces(region: MR, at: int, size: int, count: int) -> list[SGE]:
    """The ``size`` bytes of a region from ``at``, in so many equal pieces."""
    cuts = [size * n // count for n in range(count + 1)]
    return [region.sge(at + first, end - first) for first, end in pairwise(cuts)]


class Flow:
    """Messages of one QP in one direction: from slot to slot, compared, wiped, used again.

    ``quota``: how many messages. ``data``: what the source holds; atomics change it. The sink is
    filled with the inverse of what is to come, again after each comparison, so a message that
    changes nothing is noticed.
    """

    def __init__(self, lane: Lane, traffic: Traffic, shape: Shape, data: Octets, quota: int):
        self.lane, self.traffic, self.shape, self.quota = lane, traffic, shape, quota
        self.number, self.requester = lane.number, lane.requester
        self.qp, self.peer = lane.qp, lane.peer
        self.takers = lane.takers or (lane.peer.qp_num,)
        self.source, self.sink = lane.source, lane.sink
        self.flags = SendFlags.INLINE if traffic.inline else SendFlags(0)
        self.data, self.places, self.turns = data, traffic.places, list[int]()
        # Places of the sink that no receive has, and that of each receive that was posted.
        self.free, self.lent = deque(self.places), dict[int, int]()
        self.posted = self.completed = self.received = self.checked = self.given = 0
        self.verified = 0  # bytes
        self._name = f"{traffic.name} of {shape.size} bytes on QP {self.qp.qp_num:#x}"

    def place(self, sequence: int) -> int:
        """Offset of a message in its region."""
        return self.places[sequence % len(self.places)]

    def signalled(self, sequence: int) -> bool:
        """Whether a request has a completion."""
        return sequence % self.shape.signal == self.shape.signal - 1

    def stop(self) -> None:
        """Post no more than it takes to use what receives there are, and to be told of the end."""
        signal, last = self.shape.signal, max(self.posted, self.given)
        self.quota = -(-last // signal) * signal

    @property
    def due(self) -> int:
        """How many requests can be posted now with one doorbell."""
        shape, outstanding = self.shape, self.posted - self.completed
        if self.traffic.sends and not self.traffic.answered:  # a message without a receive is lost
            outstanding = max(outstanding, self.posted - self.received)
        count = min(shape.batch, self.quota - self.posted)
        room = shape.depth - outstanding
        if count <= room:
            return count
        # Less than a batch only when nothing on the way will tell of its completion.
        return max(0, room) if outstanding < shape.signal - self.completed % shape.signal else 0

    async def post(self, count: int) -> None:
        """Post the next messages with one doorbell."""
        requests = [one for i in range(count) for one in self._message(self.posted + i)]
        self.posted += count
        await self.qp.post_send(requests)

    def _message(self, sequence: int) -> list[SendWR]:
        """The requests of a message; completions are of the last one."""
        if not self.traffic.sends and self.checked <= sequence - len(self.places):
            self.check(sequence - len(self.places))
        if not self.traffic.flushes:
            return [self._request(sequence, self.traffic.opcode)]
        write = self._request(sequence, _WRITE)
        write.send_flags &= ~SendFlags.SIGNALED
        return [write, self._request(sequence, self.traffic.opcode)]

    def _request(self, sequence: int, opcode: WrOpcode) -> SendWR:
        shape, at = self.shape, self.place(sequence)
        flags = self.flags | SendFlags.SIGNALED if self.signalled(sequence) else self.flags
        traffic, local, remote = self.traffic, self.source, self.sink
        if traffic.fetches:
            local, remote = remote, local
        bare = WORK_REQUESTS[opcode].placement
        pieces = [] if bare else self._pieces(local, at, shape.size)
        if at in self.lane.layouts:
            pieces = [self.lane.layouts[at].sge(0, shape.size)]
        if traffic.copies:
            pieces.insert(0, remote.sge(at, shape.size))
        request = SendWR(self.number << _SEQUENCE | sequence, opcode, pieces, flags)
        if opcode == WrOpcode.FLUSH:
            request.set_wr_flush(remote.rkey, remote.iova + at, shape.size)
        elif opcode == WrOpcode.ATOMIC_WRITE:
            word = self.data[at : at + shape.size].tobytes()
            request.set_wr_atomic_write(remote.rkey, remote.iova + at, word)
        elif self.lane.way is not None:
            request.set_wr_ud(self.lane.way, self.peer.qp_num, QKEY)
        else:
            where = 0 if traffic.one_word else at
            request.set_remote(remote.rkey, remote.iova + where, *self._operands(at))
        if self.lane.srq_num is not None:
            request.set_wr_xrc_srqn(self.lane.srq_num)
        if to := self.lane.destinations:
            request.set_wr_dc(to[sequence % len(to)])
        if traffic.keys:
            request.invalidate_rkey = traffic.keys[sequence]
        return request

    def _pieces(self, region: MR, at: int, size: int) -> list[SGE]:
        """The ``size`` bytes of a region from ``at``, cut as the traffic wants."""
        return pieces(region, at, size, self.traffic.sges)

    def _operands(self, at: int) -> tuple[int, ...]:
        """Of the next atomic on the word at ``at``, whose result is compared before the next."""
        if not self.traffic.atomic:
            return ()
        if self.traffic.one_word:
            return (1,)
        if self.traffic.opcode == WrOpcode.ATOMIC_FETCH_AND_ADD:
            return (STEP,)
        now = self._word(at)
        return now, now ^ STEP

    def _word(self, at: int) -> int:
        return int(self.data[at : at + 8].view("<u8")[0])

    def _changed(self, at: int) -> None:
        """The atomic on the word at ``at`` has been executed."""
        add = self.traffic.opcode == WrOpcode.ATOMIC_FETCH_AND_ADD
        now = self._word(at)
        after = (now + STEP) % (1 << 64) if add else now ^ STEP
        self.data[at : at + 8].view("<u8")[0] = after

    async def give(self, count: int) -> None:
        """Post the next receives with one doorbell."""
        requests = []
        for i in range(self.given, self.given + count):
            self.lent[i] = at = self.free.popleft()
            pieces = self._pieces(self.sink, at, self.shape.size + self.traffic.area)
            requests.append(RecvWR(self.number << _SEQUENCE | i, pieces))
        self.given += count
        await self.lane.receives.post_recv(requests)

    def has_room(self, count: int) -> bool:
        """Whether so many receives can be posted at once."""
        return len(self.free) >= count

    def take_back(self, receive: int) -> int:
        """A receive has completed: the place that it had, which the next one can have."""
        at = self.lent.pop(receive)
        self.free.append(at)
        return at

    @property
    def arrived(self) -> bool:
        """Whether memory has the last message, and with it all before; said of WRITEs alone."""
        if self.traffic.opcode != _WRITE or not self.completed:
            return True
        at, size = self.place(self.completed - 1), self.shape.size
        return np.array_equal(self.sink.read(size, at), self.data[at : at + size])

    def show(self) -> None:
        """Compare all messages that have completed, if that says that memory has them."""
        if self.traffic.flushes:
            for sequence in range(self.checked, self.completed):
                self.check(sequence)

    def check(self, sequence: int, landed: int | None = None) -> None:
        """Compare a message with what was sent; its place is ready for another one then.

        landed: the place in the sink, if it is another one than in the source.
        """
        if sequence != self.checked:
            raise AssertionError(f"{self._name}: message {sequence} before {self.checked}")
        at, size = self.place(sequence), self.shape.size
        expected = self.data[at : at + size]
        landed = (at if landed is None else landed) + self.traffic.area
        got = self.sink.read(size, landed)
        if self.traffic.one_word:  # compared when all have come
            self.turns.append(int(got.view("<u8")[0]))
        else:
            compare(self._name, f"message {sequence}", got, expected)
        self.sink.write(~expected, landed)
        if self.traffic.atomic and not self.traffic.one_word:
            self._changed(at)
        self.checked += 1
        self.verified += size


#: Messages that a receive takes, with ``PieceFlow``.
PIECES = 64


class PieceFlow(Flow):
    """A flow whose receives take ``PIECES`` messages each (MP WR), in places one behind the other;
    ``given`` counts messages all the same. Of a quota more may be given, in whole receives."""

    async def give(self, count: int) -> None:
        """Post receives for the next messages, at least so many, with one doorbell."""
        requests, wanted = [], self.given + count
        while self.given < wanted:
            places = [self.free.popleft() for _ in range(PIECES)]
            self.lent.update(enumerate(places, self.given))
            sge = self.sink.sge(places[0], PIECES * self.shape.stride)
            requests.append(RecvWR(self.number << _SEQUENCE | self.given, [sge]))
            self.given += PIECES
        await self.lane.receives.post_recv(requests)

    def has_room(self, count: int) -> bool:
        """See ``Flow``."""
        return len(self.free) >= max(count, PIECES)


def compare(name: str, what: str, got: Octets, expected: Octets) -> None:
    """AssertionError when bytes differ: how many of ``what`` do, and which is the first."""
    if not np.array_equal(got, expected):
        wrong = np.flatnonzero(got != expected)
        raise AssertionError(
            f"{name}: {wrong.size} bytes of {what} differ, the first at {wrong[0]}"
        )


def finished(found: Sequence[WC]) -> None:
    """AssertionError when one of the completions is in error."""
    bad = [wc for wc in found if wc.status != WcStatus.SUCCESS]
    if bad:
        raise AssertionError(f"{len(bad)} of {len(found)} completions in error, first {bad[0]}")


def good(found: Iterable[WC], size: int, segment: int = 0) -> Iterator[tuple[int, int, int | None]]:
    """Flow, number of the request, and for a receive the QP that took it, of each completion.

    size: what a receive brings. segment: of receives that take several messages, of which each has
    its own number. AssertionError when one is in error or of another length.
    """
    for wc in found:
        if wc.status != WcStatus.SUCCESS:
            raise AssertionError(f"A completion in error: {wc}")
        receive = wc.opcode == WcOpcode.RECV
        if receive and wc.byte_len != size:
            raise AssertionError(f"A receive of {wc.byte_len} bytes, not {size}: {wc}")
        taker = wc.qp_num if receive else None
        within = wc.mp_wr_offset // segment if receive and segment else 0
        yield wc.wr_id >> _SEQUENCE, (wc.wr_id & ((1 << _SEQUENCE) - 1)) + within, taker
