"""Atomics and keys of scenarios: all is drawn, and what cannot be true is noticed."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hdl.abi.enums import QpType, SendFlags, WcFlags, WcStatus, WrOpcode
from hdl.abi.mkeys import LayoutFlags
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import Kind
from sim.bench.scenario.draw import draw
from sim.bench.scenario.draw_operations import (
    BAD_LAYING,
    BAD_PHRASES,
    LAYING,
    PHRASES,
    PLACING,
    merged,
)
from sim.bench.scenario.keys import MOST_CUTS, NO_KEY, Key, KeyState, identity_wr, wanted
from sim.bench.scenario.ledger import Book, Place, Receive, State
from sim.bench.scenario.plan import Batch, Ending, Message, Way, Wrong, reads
from sim.bench.scenario.words import DIGITS, Word, Words
from sim.guest.verbs import Mkey
from tests.layouts import Layout, Piece
from tests.sim.test_scenario import ATTRIBUTES, book, wc

ADD, SWAP = WrOpcode.ATOMIC_FETCH_AND_ADD, WrOpcode.ATOMIC_CMP_AND_SWP
START = (1 << 64) - 3


def test_everything_is_drawn() -> None:
    """Each operation, each way to be wrong and each ending; keys are registered before their use"""
    lives = [life for seed in range(600) for life in draw("operations", seed).lives]
    assert {life.ending for life in lives} == set(Ending)
    ways = [way for life in lives for way in life.ways]
    messages = [message for way in ways for message in way.messages]
    # The cards of this campaign have no memory placement, no copies and no indirect keys.
    lacking = (r for r in WORK_REQUESTS.values() if r.placement or r.copies or r.layout)
    others = {WrOpcode(request.code) for request in lacking}
    assert {message.opcode for message in messages} == set(WrOpcode) - others
    assert {message.wrong for message in messages} == set(Wrong) - {Wrong.QKEY, Wrong.QUEUE}
    assert {message.kind for message in messages if message.flags & SendFlags.FENCE} == {
        Kind.LOCAL,
        Kind.SEND,
        Kind.WRITE,
        Kind.READ,
        Kind.ATOMIC,
    }
    for way in ways:
        known: set[int] = set()
        for message in way.messages:
            if message.opcode in (WrOpcode.REG_MR, WrOpcode.BIND_MW):
                known.add(message.own)
            assert message.own is None or message.own in known, way
            assert message.own is None or not message.flags & SendFlags.INLINE
        assert all(m.window or m.opcode != WrOpcode.BIND_MW for m in way.messages)
        named = {m.peer for m in way.messages} - {None}
        assert {one.number for one in wanted(way) if one.peer} == named


@pytest.mark.parametrize("name", ["xrc", "pieces"])
def test_queues_of_domains_are_drawn(name: str) -> None:
    """One end of each connection of XRC has requests, which name queues of the other end's domain,
    each of them, and now and then one that is not there. Each has a request, and one more if one of
    several packets may stay open."""
    named, wrong = set(), set()
    least = {"xrc": 1, "pieces": 2}[name]
    for seed in range(300):
        scenario = draw(name, seed)
        assert scenario.shared is not None
        for life in scenario.lives:
            if life.attributes.service != QpType.XRC_INI:
                assert not any(queue.domain for queue in scenario.shared)
                continue
            side = life.attributes.initiator
            queues = scenario.shared[1 - side]
            assert not life.ways[1 - side].messages and queues.depth >= least * queues.domain
            for message in life.ways[side].messages:
                assert message.queue < queues.domain
                named.add((queues.domain, message.queue))
                wrong.add(message.wrong)
    assert named == {(count, queue) for count in (1, 2, 3) for queue in range(count)}
    assert Wrong.QUEUE in wrong


def test_memory_placement_is_drawn() -> None:
    """FLUSH and ATOMIC WRITE in all places, without data of their own, and what can be wrong with
    them; on one function and on two."""
    scenarios = [draw("placement", seed) for seed in range(600)]
    assert {one.functions for one in scenarios} == {1, 2}
    assert all(len(one.pairs) >= one.functions for one in scenarios)
    ways = [way for one in scenarios for life in one.lives for way in life.ways]
    messages = [message for way in ways for message in way.messages]
    lacking = (one for one in WORK_REQUESTS.values() if one.copies or one.layout)
    others = {WrOpcode(one.code) for one in lacking}
    assert {message.opcode for message in messages} == set(WrOpcode) - others
    placed = [message for message in messages if message.placement]
    assert not any(message.pieces or message.flags & SendFlags.INLINE for message in placed)
    assert not any(reads(message.opcode) or message.atomic for message in placed)
    common = {Wrong.NOTHING, Wrong.OPCODE, Wrong.RKEY, Wrong.RANGE}
    for opcode, wrongs in (
        (WrOpcode.FLUSH, common),
        (WrOpcode.ATOMIC_WRITE, common | {Wrong.ALIGN}),
    ):
        assert {one.wrong for one in placed if one.opcode == opcode} == wrongs
    way = Way((Batch(0, (Message(WrOpcode.FLUSH, 5000, ()),)),))
    assert way.psns(1024) == 1


def test_indirect_keys_are_drawn() -> None:
    """Layouts of both kinds, each before its use and some of them replaced; all that may name one,
    of the own side and of the peer; and what can be wrong with them."""
    ways = [way for n in range(600) for life in draw("mkeys", n).lives for way in life.ways]
    messages = [message for way in ways for message in way.messages]
    laid = [message for message in messages if message.layout]
    opens = {WrOpcode.MKEY_LIST, WrOpcode.MKEY_INTERLEAVED}
    write, read = WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ
    uses = {write, read, WrOpcode.SEND, WrOpcode.LOCAL_INV, WrOpcode.RDMA_READ_WITH_INV}
    assert {message.opcode for message in laid if message.own is not None} == opens | uses
    assert {message.opcode for message in laid if message.peer is not None} == {
        write, read, WrOpcode.SEND_WITH_INV}  # fmt: skip
    wrongs = {Wrong.STALE, Wrong.PEER_STALE, Wrong.TAKEN, Wrong.KEY}
    assert {message.wrong for message in laid} >= wrongs
    again = 0
    for way in ways:
        given: dict[int, int] = {}
        for message in way.messages:
            if message.layout and message.own is not None:
                given[message.own] = given.get(message.own, 0) + (message.opcode in opens)
                assert given[message.own]
        again += any(count > 1 for count in given.values())
        for one in wanted(way):
            if one.layout and one.peer:  # a WRITE goes to a sink, a READ comes from a source
                assert all(m.opcode != (read if one.sink else write) for m in way.messages
                           if m.layout and m.peer == one.number)  # fmt: skip
    assert again > 100


@pytest.mark.parametrize("opcode", [WrOpcode.MKEY_LIST, WrOpcode.MKEY_INTERLEAVED])
def test_layouts_keep_offsets(opcode: WrOpcode) -> None:
    """Whatever the cuts are, byte ``n`` of the layout is byte ``n`` of the region."""
    mkey, base = Mkey(None, 1, 0x101, MOST_CUTS), SimpleNamespace(iova=5000, length=9000, lkey=7)
    counts, free = set(), LayoutFlags(0)
    for seed in range(50):
        wr = identity_wr(mkey, base, opcode, free, random.Random(seed))
        if opcode == WrOpcode.MKEY_LIST:
            pieces = [Piece(one.addr, one.length, one.lkey) for one in wr.sg]
            layout = Layout(pieces)
        else:
            pairs = zip(wr.sg[::2], wr.sg[1::2], strict=True)
            pieces = [Piece(one.addr, one.length, one.lkey, skip.addr) for one, skip in pairs]
            layout = Layout(pieces, -(-9000 // sum(piece.count for piece in pieces)))
        assert layout.addresses(0, 9000) == list(range(5000, 14_000))
        assert {piece.key for piece in pieces} <= {7, NO_KEY}
        assert len(pieces) <= MOST_CUTS
        counts.add(len(pieces))
    assert len(counts) > 3


class Memory:
    """Bytes where a region would be."""

    def __init__(self) -> None:
        self.octets = np.zeros(64, np.uint8)

    def read(self, length: int, at: int) -> np.ndarray:
        return self.octets[at : at + length]

    def write(self, octets: np.ndarray, at: int) -> None:
        self.octets[at : at + octets.size] = octets


def placed_book() -> tuple[Book, Any]:
    """A WRITE, an ATOMIC WRITE and a FLUSH have been posted: what is at the places of the first
    two, and the memory."""
    memory: Any = Memory()
    peer = book(
        Message(WrOpcode.RDMA_WRITE, 8, (8,)),
        Message(WrOpcode.ATOMIC_WRITE, 8, ()),
        Message(WrOpcode.FLUSH, 64, ()),
    )
    full = np.arange(1, 9, dtype=np.uint8)
    for n, sent in enumerate(peer.sends):
        pieces = ((16 * n, 8),) if n < 2 else ()
        sent.sink = Place(memory, pieces, ~full, full)
        sent.posted(100)
        if n < 2:
            memory.write(~full, 16 * n)
    return peer, memory


def test_a_flush_shows_what_is_in_front_of_it() -> None:
    peer, memory = placed_book()
    flush = peer.sends[2]
    for n in (0, 1):
        with pytest.raises(AssertionError, match=f"FLUSH 64.* has ended, request .*{n}"):
            peer.flushed(flush)
        memory.write(peer.sends[n].sink.full, 16 * n)
    peer.flushed(flush)
    peer.flushed(peer.sends[0])  # nothing was in front of it


def test_an_atomic_write_is_whole() -> None:
    """A part of a WRITE may be there before it has ended, of an ATOMIC WRITE all or nothing."""
    peer, memory = placed_book()
    for n in (0, 1):
        place = peer.sends[n].sink
        place.settled("old")
        memory.write(place.full[:3], 16 * n)
        if n == 0:
            place.settled("torn")
        else:
            with pytest.raises(AssertionError, match="neither old nor new"):
                place.settled("torn")
        memory.write(place.full, 16 * n)
        place.settled("new")
        place.freeze()
        assert place.state == State.EMPTY and np.array_equal(place.empty, place.full)


def test_phrases() -> None:
    wrong = (*BAD_PHRASES, *BAD_LAYING)
    for phrase in (*PHRASES, *PLACING, *LAYING, *wrong):
        bad = [step for step in phrase if step.wrong != Wrong.NOTHING]
        assert bad == ([phrase[-1]] if phrase in wrong else [])
    parts = [[Message(WrOpcode.SEND, n, ())] * 3 for n in range(3)]
    found = merged(random.Random(1), parts)
    assert sorted(one.length for one in found) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    own = Way((Batch(0, (Message(WrOpcode.RDMA_READ, 1, (1,), own=4),)),))
    assert [(one.peer, one.number, one.sink) for one in wanted(own)] == [(False, 4, True)]


def count(*lines, answers=()):
    """A count with an operation of each line, posted; ``answers``: what some of them found."""
    word = Word(ADD, 0, START)
    for line in lines:
        word.take(line, random.Random(1)).posted = 100
    for number, found in dict(answers).items():
        operation = word.operations[number]
        operation.found, operation.answered = (START + found) % (1 << 64), 200
    return word


def last(found):
    return (START + found) % (1 << 64)


def test_counts() -> None:
    """Three lines add 1, 4, 16 and 64; the last one has not been answered."""
    good = {0: 16, 1: 17, 2: 0}
    count("a", "b", "c", "d", answers=good).check(last(21))
    count("a", "b", "c", "d", answers=good).check(last(85))
    for answers, value, said in (
        (good, 5, r"\[2\] succeeded"),
        (good, 21 + 256, r"\[4\] were executed, nobody may"),
        (good, 21 + 64 + 64, r"\[3\] were executed twice"),
        ({0: 1, 1: 17}, 21, "itself"),
        ({0: 64}, 21, r"\[3\] are not in the end"),
        ({0: 16, 1: 16, 2: 0}, 21, "operations 0 and 1 found"),
        ({0: 0, 1: 0}, 5, "operations 0 and 1 found"),
    ):
        with pytest.raises(AssertionError, match=said):
            count("a", "b", "c", "d", answers=answers).check(last(value))
    unposted = count("a", "b")
    unposted.operations[1].posted = None
    with pytest.raises(AssertionError, match=r"\[1\] were executed, nobody may"):
        unposted.check(last(5))


def test_order_of_a_count() -> None:
    """What is of one line, or was answered before another was posted, was executed before it."""
    with pytest.raises(AssertionError, match="without 0 in front of it"):
        count("a", "a", answers={1: 0}).check(last(5))
    with pytest.raises(AssertionError, match="with 1 behind it"):
        count("a", "a", answers={0: 4}).check(last(5))
    word = count("a", "b", answers={0: 4, 1: 0})
    word.check(last(5))
    word.operations[1].posted = 300
    with pytest.raises(AssertionError, match="with 1 behind it"):
        word.check(last(5))


def swaps(*steps):
    """A word; each step: line, what it compares with, what it leaves, what it found (None)."""
    word = Word(SWAP, 0, 7)
    for line, compare, value, found in steps:
        operation = word.take(line, random.Random(1))
        operation.operands, operation.posted = (compare, value), 100
        operation.found, operation.answered = found, 200
    return word


def test_swaps() -> None:
    swaps(("a", 7, 8, 7), ("b", 8, 9, 8), ("c", 8, 10, 9)).check(9)
    swaps(("a", 7, 8, None), ("b", 8, 9, 8)).check(9)
    swaps(("a", 7, 8, None)).check(7)
    for steps, value, said in (
        ((("a", 7, 8, 7), ("b", 7, 9, 7)), 9, "replaced twice"),
        ((("a", 7, 8, 7),), 5, "which nobody has put there"),
        ((("a", 7, 8, 7),), 7, "which was replaced"),
        ((("a", 7, 8, 7), ("b", 5, 9, None)), 9, "0x8 is lost"),
        ((("a", 7, 8, 7), ("b", 8, 9, 5)), 8, "found 0x5, which nobody"),
        ((("a", 7, 8, 7), ("a", 8, 9, 7)), 8, "which 0 had replaced"),
    ):
        with pytest.raises(AssertionError, match=said):
            swaps(*steps).check(value)


def test_words() -> None:
    """A class has the words that are asked for; a full count makes room for another word."""
    words = Words(random.Random(3), 4)
    taken = [words.take(ADD, 0, "a") for _ in range(DIGITS + 1)]
    assert [one.word.index for one in taken] == [0] * DIGITS + [1]
    assert words.take(SWAP, 0, "a").word.index == 2 and words.take(SWAP, 0, "a").word.index == 2
    values = list(words.starts)
    words.check(values)
    values[3] ^= 1
    with pytest.raises(AssertionError, match="word 3 was written by nobody"):
        words.check(values)


def test_what_a_key_is() -> None:
    """A request says what its key is if it has succeeded and nothing behind it changes the key."""
    key = Key(None, None)
    key.posted("first")
    assert key.state == KeyState.UNKNOWN
    key.changed("first", KeyState.VALID)
    assert key.state == KeyState.VALID
    key.posted("second")
    key.changed("first", KeyState.VALID)
    assert key.state == KeyState.UNKNOWN


def test_receive_names_the_key() -> None:
    peer = book(Message(WrOpcode.SEND_WITH_INV, 4, (4,), (4,)))
    (sent,) = peer.sends
    sent.number = 77
    for flags, key, said in (
        (WcFlags(0), 77, "there: receive 9"),
        (WcFlags.WITH_INV, 78, ": 0x4e"),
        (WcFlags.WITH_INV, 77, "wrong data"),
    ):
        here = Book("there", ATTRIBUTES)
        here.receives.append(Receive(9, sent))
        value = int.from_bytes(key.to_bytes(4, "little"), "big")
        with pytest.raises(AssertionError, match=said):
            here.received(
                here.receives[0], wc(WcStatus.SUCCESS, byte_len=4, wc_flags=flags, imm_data=value)
            )
