"""Readers of rings: what they say is available has been published, and each head is taken once.

A guest is beside them that keeps to Virtio 1.2, 2.7. It publishes any number of buffers at any
time, as long as the ring has room for them, and writes an entry only where the device is done with
what was there. Host memory answers whenever it likes, with what lies there at any moment since the
read was asked for.
"""

from __future__ import annotations

from amaranth.hdl import Array, Assert, Assume, Cat, Module, Mux, Signal, Value

from hdl.config import NicConfig
from hdl.ports.jobs import FetchStatus
from hdl.queues.ring.heads import RingHeads
from hdl.queues.ring.index import AvailIndex
from hdl.queues.ring.polls import Polls
from hdl.queues.ring.types import RING_OFFSET
from tests.force import Force, plus, stuck

from .harness import Proof, any_signal, offer, sequence, take

__all__ = ["PROOFS"]

CONFIG = NicConfig(width=64, qps=4, cqs=2, mrs=2, gids=1, vectors=4)
#: log2 of the ring's size, and the size.
LOG2 = 2
SIZE = 1 << LOG2


def _ahead(a: Value, b: Value) -> Value:
    """How far position ``a`` lies ahead of ``b``."""
    return (a - b)[:16]


class _Guest:
    """Publishes buffers. ``published``: its avail index; ``position``: the next one that the device
    has not got, which ``moves`` on by so many in this cycle. Both begin anywhere."""

    def __init__(self, m: Module):
        self.published, self.position = Signal(16, name="published"), Signal(16, name="position")
        self.more, self.begun = any_signal(m, LOG2 + 1, "more"), Signal(name="begun")
        self.moves = Signal(LOG2 + 1, name="moves")
        first, after = any_signal(m, 16, "first"), Signal(16, name="published_after")
        m.d.comb += [
            after.eq(self.published + self.more),
            Assume(~self.begun | (_ahead(after, self.position) <= SIZE)),
            Assume(self.moves <= _ahead(self.published, self.position)),
        ]
        m.d.sync += [
            self.begun.eq(1),
            self.published.eq(Mux(self.begun, after, first)),
            self.position.eq(Mux(self.begun, self.position + self.moves, first)),
        ]

    def rests(self, m: Module, inside: Value) -> None:
        """The position moves on at any time at which nothing is ``inside`` the device."""
        moves = any_signal(m, LOG2 + 1, "any_moves")
        m.d.comb += self.moves.eq(Mux(self.begun & ~inside, moves, 0))


class _Index:
    """Host memory that is asked for the avail index, one read at a time."""

    def __init__(self, m: Module, guest: _Guest, asked: Value, answered: Value):
        self.busy, self.read = Signal(name="busy"), Signal(16, name="read")
        with m.If(asked | (self.busy & any_signal(m, 1, "read_now"))):
            m.d.sync += self.read.eq(guest.published)
        m.d.sync += self.busy.eq((self.busy | asked) & ~answered)


class _Notified:
    """``told``: the guest has notified the device since ``anew``. It does so when it publishes the
    buffer that ``avail_event`` names (2.7.10)."""

    def __init__(self, m: Module, guest: _Guest, beat, anew: Value):
        self.told = Signal(name="told")
        event, known = Signal(16, name="event"), Signal(name="event_known")
        with m.If(beat.valid & beat.ready):
            m.d.sync += [event.eq(beat.payload.data[:16]), known.eq(1)]
        passes = known & (_ahead(event, guest.published) < guest.more)
        with m.If(anew):
            m.d.sync += self.told.eq(0)
        with m.Elif(passes):
            m.d.sync += self.told.eq(1)
        m.d.comb += beat.ready.eq(any_signal(m, 1, "write_ready"))


def _says(m: Module, guest: _Guest, available: Value, at_least: Value, told: Value) -> None:
    """What is said to be available has been published, and all is that was before the question;
    if nothing is, the guest has published nothing, or has told."""
    there = _ahead(available, guest.position)
    m.d.comb += [
        Assert(there <= _ahead(guest.published, guest.position)),
        Assert(there >= _ahead(at_least, guest.position)),
        Assert((there != 0) | (guest.published == guest.position) | told),
    ]


def _index(m: Module) -> None:
    """AvailIndex: one job after the other, with EVENT_IDX."""
    m.submodules.dut = dut = AvailIndex(config=CONFIG)
    guest, inside, at_least = _Guest(m), Signal(), Signal(16)
    taken, answer = offer(m, dut.i), dut.o.payload
    given = take(m, dut.o)
    job, data = dut.i.payload, dut.block_data
    index = _Index(m, guest, dut.block.valid & dut.block.ready, data.valid & data.ready)
    guest.rests(m, inside | dut.i.valid)
    notified = _Notified(m, guest, dut.write_client.beat, taken)
    m.d.comb += [
        Assume(~dut.i.valid | guest.begun),
        Assume(job.position == guest.position),
        Assume((job.size_log2 == LOG2) & job.rules.event_idx),
        dut.block.ready.eq(any_signal(m, 1, "block_ready") & ~index.busy),
        data.valid.eq(index.busy & any_signal(m, 1, "data_valid")),
        data.payload.data.eq(index.read),
        data.payload.error.eq(any_signal(m, 1, "failed")),
    ]
    m.d.sync += inside.eq((inside | taken) & ~given)
    with m.If(taken):
        m.d.sync += at_least.eq(guest.published)
    with m.If(dut.o.valid):
        m.d.comb += Assert(inside)
        with m.If(answer.status == FetchStatus.QUEUE_ERROR):
            m.d.comb += Assert(answer.available == guest.position)
        with m.Else():
            m.d.comb += Assert(
                (answer.status == FetchStatus.EMPTY) == (answer.available == job.position)
            )
            _says(m, guest, answer.available, at_least, notified.told)


def _polls(m: Module) -> None:
    """Polls: up to four jobs of one queue, with EVENT_IDX, all at its position."""
    m.submodules.dut = dut = Polls(config=CONFIG, count=2)
    guest = _Guest(m)
    taken, given, answer = offer(m, dut.i), take(m, dut.o), dut.o.payload.answer
    request, row, client = dut.i.payload.request, dut.i.payload.row, dut.read_client
    entered, left = sequence(m, taken, 3, "entered"), sequence(m, given, 3, "left")
    inside = (entered != left) | dut.i.valid
    at_least = Array(Signal(16, name=f"at_least{n}") for n in range(8))
    index = _Index(m, guest, client.req.valid & client.req.ready, client.rsp.valid)
    guest.rests(m, inside)
    notified = _Notified(m, guest, dut.write_client.beat, (entered == left) & taken)
    m.d.comb += [
        Assume(~dut.i.valid | guest.begun),
        Assume(request.position == guest.position),
        Assume((row.size_log2 == LOG2) & row.rules.event_idx & row.enabled),
        client.req.ready.eq(any_signal(m, 1, "req_ready") & ~index.busy),
        client.rsp.valid.eq(index.busy & any_signal(m, 1, "rsp_valid")),
        client.rsp.payload.data.eq(index.read),
        client.rsp.payload.first.eq(1),
        client.rsp.payload.last.eq(1),
        client.rsp.payload.error.eq(any_signal(m, 1, "failed")),
    ]
    with m.If(taken):
        m.d.sync += at_least[entered].eq(guest.published)
    with m.If(dut.o.valid):
        m.d.comb += Assert(entered != left)
        with m.If(answer.status == FetchStatus.QUEUE_ERROR):
            m.d.comb += Assert(answer.available == guest.position)
        with m.Else():
            _says(m, guest, answer.available, at_least[left], notified.told)


def _heads(m: Module) -> None:
    """RingHeads: jobs of one queue, one for each of its positions, with those of another queue on
    the same line between them. An entry holds the position that it is of."""
    m.submodules.dut = dut = RingHeads(config=CONFIG, lines=2, depth=2, reads=2)
    guest, client = _Guest(m), dut.read_client
    taken, given, job = offer(m, dut.i), take(m, dut.o), dut.i.payload
    request, watched = job.request, job.request.queue == 1
    entered, left = sequence(m, taken, 3, "entered"), sequence(m, given, 3, "left")
    kinds = Array(Signal(name=f"watched{n}") for n in range(8))
    with m.If(taken):
        m.d.sync += kinds[entered].eq(watched)
    ours, failed = kinds[left], Signal(name="failed")
    m.d.comb += guest.moves.eq(given & ours)
    # Of the watched queue the next position is asked for, as soon as it is published.
    ahead = Signal(16, name="asked_ahead")
    with m.If(taken & watched):
        m.d.sync += ahead.eq(ahead + 1 - guest.moves)
    with m.Else():
        m.d.sync += ahead.eq(ahead - guest.moves)
    known, room = _ahead(request.known, request.position), _ahead(guest.published, guest.position)
    m.d.comb += [
        Assume(~dut.i.valid | guest.begun),
        Assume(~watched | (request.position == (guest.position + ahead)[:16])),
        Assume((known != 0) & (known <= SIZE)),
        Assume(~watched | ((known + ahead)[:17] <= room)),
        Assume((request.qp == 0) & (request.function == watched) & (job.driver == 0)),
        Assume((job.size_log2 == LOG2) & ~job.rules.in_order),
        dut.flush.eq(any_signal(m, 1, "flush") & (entered == left) & ~dut.i.valid),
        dut.guess.ready.eq(0),
    ]
    # Host memory: a read at a time, four entries in a beat.
    busy, place, count, mine = Signal(), Signal(LOG2), Signal(LOG2 + 1), Signal()
    beat, answers = client.rsp.payload, any_signal(m, 1, "rsp_valid")
    ask = client.req.valid & client.req.ready
    m.d.comb += [
        client.req.ready.eq(any_signal(m, 1, "req_ready") & ~busy),
        client.rsp.valid.eq(busy & answers),
        beat.last.eq(count <= 4),
        beat.error.eq(any_signal(m, 1, "error")),
        beat.data.eq(Cat(_entry(m, guest, place, k, mine) for k in range(4))),
    ]
    with m.If(ask):
        at = client.req.payload.addr - RING_OFFSET
        m.d.sync += [
            busy.eq(1),
            place.eq(at[1:]),
            count.eq(client.req.payload.length >> 1),
            mine.eq(client.req.payload.function),
        ]
        m.d.comb += Assert((client.req.payload.length != 0) & ~client.req.payload.length[0])
    with m.If(client.rsp.valid):
        m.d.sync += [busy.eq(~beat.last), place.eq(place + 4), count.eq(count - 4)]
        with m.If(beat.error):
            m.d.sync += failed.eq(1)
    with m.If(dut.o.valid):
        m.d.comb += Assert(entered != left)
        m.d.comb += Assert(~dut.o.payload.failed | failed)
        right = dut.o.payload.head == guest.position
        m.d.comb += Assert(~ours | dut.o.payload.failed | right)


def _entry(m: Module, guest: _Guest, place: Value, k: int, mine: Value) -> Value:
    """The entry at a place: the position that is published there and has not been got, or else
    whatever the guest is about to write."""
    behind = Signal(LOG2, name=f"behind{k}")
    m.d.comb += behind.eq(place + k - guest.position)
    there = mine & (behind < _ahead(guest.published, guest.position))
    return Mux(there, (guest.position + behind)[:16], any_signal(m, 16, f"entry{k}"))


PROOFS = (
    Proof(
        "avail-index",
        "What is said to be available has been published, and no buffer is published unseen.",
        _index,
        Force("hdl.queues.ring.index:AvailIndex", "announced", stuck(1)),
        depth=14,
    ),
    Proof(
        "polls",
        "The same of polls, several of which are on their way.",
        _polls,
        Force("hdl.queues.ring.polls:Polls", "wanted", stuck(0)),
        depth=11,
    ),
    Proof(
        "ring-heads",
        "The head at a position is the one published there, and is taken once, in order.",
        _heads,
        Force("hdl.queues.ring.heads:RingHeads", "ahead", plus(1)),
        depth=16,
    ),
)
