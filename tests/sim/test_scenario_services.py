"""UC, UD and shared receive queues in scenarios: all is drawn, and each rule notices its breach."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hdl.abi.enums import QpType, SendFlags, WcFlags, WcOpcode, WcStatus, WrOpcode
from sim.bench.scenario.draw import draw
from sim.bench.scenario.inbox import Inbox, Landing, check_grh
from sim.bench.scenario.ledger import Book, Place, Receive, Sent, State
from sim.bench.scenario.plan import SENDS, Ending, Message, Shared, Wrong
from sim.bench.scenario.pool import Pool, Slot, unresolved
from sim.bench.system import VISIBLE_NS
from sim.guest.verbs import WC
from sim.wire.packets import build, gid_bytes, grh_area
from tests.sim.test_scenario import ATTRIBUTES, Region

PEER = 0x4007


def test_services_are_drawn() -> None:
    """All three, with what each knows; each ending but those that wait for answers."""
    lives = [life for seed in range(200) for life in draw("services", seed).lives]
    known = {
        QpType.UD: {WrOpcode.SEND, WrOpcode.SEND_WITH_IMM},
        QpType.UC: {*WrOpcode} & {0, 1, 2, 3},
        QpType.RC: {*WrOpcode} & {0, 1, 2, 3, 4},
    }
    wrongs = {
        QpType.UD: {Wrong.LKEY, Wrong.OPCODE, Wrong.QKEY},
        QpType.UC: {Wrong.LKEY, Wrong.OPCODE, Wrong.RKEY, Wrong.RANGE},
    }
    for service, opcodes in known.items():
        mine = [life for life in lives if life.attributes.service == service]
        messages = [message for life in mine for way in life.ways for message in way.messages]
        assert {message.opcode for message in messages} == opcodes
        assert not any(message.flags & SendFlags.FENCE for message in messages) or (
            service == QpType.RC
        )
        endings = {life.ending for life in mine}
        assert endings == set(Ending) - ({Ending.GONE} if service != QpType.RC else set())
        found = {message.wrong for message in messages} - {Wrong.NOTHING}
        assert service == QpType.RC or found <= wrongs[service] | {Wrong.RKEY, Wrong.RANGE}
        assert service != QpType.UD or max(message.length for message in messages) <= 4096


def test_shared_queues_are_drawn() -> None:
    drawn = [draw("shared", seed) for seed in range(200)]
    for one in drawn:
        assert one.shared and "shared receive queue of b" in one.text()
        assert all(shared.depth > len(one.pairs) for shared in one.shared)
        assert all(lives[-1].ending == Ending.LEAVE for lives in one.pairs)
    messages = [m for one in drawn for life in one.lives for way in life.ways for m in way.messages]
    assert sum(message.opcode in SENDS for message in messages) > len(messages) // 2
    assert Wrong.SHORT not in {message.wrong for message in messages}


def sent(number, *, opcode=WrOpcode.SEND, wrong=Wrong.NOTHING, at=100):
    """A request of 4 bytes that no other has."""
    full = np.arange(4 * number, 4 * number + 4, dtype=np.uint8)
    sends = opcode in SENDS
    sink = unresolved(Region(), full) if sends else Place(Region(), ((0, 4),), ~full, full)
    return Sent(number, Message(opcode, 4, (4,), (), SendFlags.SIGNALED, wrong), sink, at=at)


def inbox(*sends, landings=4, **more):
    """An end with requests of 8 bytes."""
    options = {"grh": False, "ordered": True, "unique": True, "peer": PEER, **more}
    made = Inbox(Book("here", ATTRIBUTES), list(sends), **options)
    for number in range(landings):
        empty = np.full(8, 200 + number, np.uint8)
        region = Region()
        region.write(empty, 8)
        place = Place(region, ((8, 8),), empty, ~empty, State.ANYTHING)
        made.landings.append(Landing(made, number, place, at=1))
    return made


def deliver(made, number, content, status=WcStatus.SUCCESS, **more):
    """Request ``number`` completes with ``content``."""
    landing = made.landings[number]
    landing.place.region.write(np.asarray(content, np.uint8), 8)
    fields = {"byte_len": 4, "src_qp": PEER, **more}
    made.received(landing, WC(number, status, WcOpcode.RECV, **fields))


def test_what_arrives_was_sent() -> None:
    """A part of what was sent, in order; each once, unless the network duplicates or reorders."""
    one = inbox(sent(0), sent(1), sent(2))
    deliver(one, 0, [0, 1, 2, 3])
    deliver(one, 1, [8, 9, 10, 11])
    assert one.delivered == [0, 2] and one.landings[0].place.read()[0] == 200
    for content, more, said in (
        ([8, 9, 10, 11], {}, "comes twice"),
        ([4, 5, 6, 7], {}, "comes behind request 2"),
        ([4, 5, 6, 99], {}, "nobody has sent"),
        ([4, 5, 6, 7], {"byte_len": 3}, "nobody has sent"),
        ([4, 5, 6, 7], {"wc_flags": WcFlags.WITH_IMM}, "nobody has sent"),
    ):
        one = inbox(sent(0), sent(1), sent(2))
        deliver(one, 0, [0, 1, 2, 3])
        deliver(one, 1, [8, 9, 10, 11])
        with pytest.raises(AssertionError, match=said):
            deliver(one, 2, content, **more)
    free = inbox(sent(0), sent(1), ordered=False, unique=False)
    for number, first in enumerate((4, 0, 4)):
        deliver(free, number, range(first, first + 4))
    assert free.delivered == [1, 0, 1]
    again = inbox(sent(0), sent(1), unique=False)
    for number, first in enumerate((0, 0, 4)):
        deliver(again, number, range(first, first + 4))
    assert again.delivered == [0, 0, 1]


def test_what_else_must_be_right() -> None:
    for requests, content, more, said in (
        ([sent(0)], [0, 1, 2, 3], {"src_qp": 9}, "from QP 0x9"),
        ([sent(0, at=0)], [0, 1, 2, 3], {}, "not posted yet"),
        ([sent(0, wrong=Wrong.QKEY)], [0, 1, 2, 3], {}, "nobody has sent"),
        ([sent(0)], [0, 1, 2, 3], {"wc_flags": WcFlags.GRH}, "GRH"),
        ([sent(0)], [0, 1, 2, 3, 200, 9], {}, "1 bytes are nobody's"),
    ):
        with pytest.raises(AssertionError, match=said):
            deliver(inbox(*requests), 0, content, **more)
    with pytest.raises(AssertionError, match="out of order"):
        deliver(inbox(sent(0)), 1, [0, 1, 2, 3])
    with pytest.raises(AssertionError, match="WR_FLUSH_ERR"):
        deliver(inbox(sent(0)), 0, [], WcStatus.WR_FLUSH_ERR)
    flushed = inbox(sent(0))
    flushed.book.reasons["ERR"] = WcStatus.WR_FLUSH_ERR
    deliver(flushed, 0, [0, 1], WcStatus.WR_FLUSH_ERR)  # of a message that was broken off
    flushed.book.closed = True
    with pytest.raises(AssertionError, match="after its QP was dropped"):
        deliver(flushed, 1, [], WcStatus.WR_FLUSH_ERR)


def test_on_a_good_network_all_arrives() -> None:
    write = sent(1, opcode=WrOpcode.RDMA_WRITE)
    one = inbox(sent(0), write)
    one.settled(sure=False)
    with pytest.raises(AssertionError, match=r"of \[0\] came \[\]"):
        one.settled(sure=True)
    deliver(one, 0, [0, 1, 2, 3])
    with pytest.raises(AssertionError, match="is not there on a good network"):
        one.settled(sure=True)
    write.sink.region.write(write.sink.full, 0)
    one.settled(sure=True)


def test_requests_of_a_qp_that_has_gone() -> None:
    """They hold parts of messages or what they held, and keep it."""
    one = inbox(sent(0))
    one.landings[0].place.region.write(np.array([0, 1], np.uint8), 8)
    one.closed()
    one.landings[0].place.settled("gone")
    one.landings[0].place.region.write(np.array([7], np.uint8), 8)
    with pytest.raises(AssertionError, match="1 bytes"):
        one.landings[0].place.settled("a late write")
    other = inbox(sent(0))
    other.landings[0].place.region.write(np.array([7], np.uint8), 8)
    with pytest.raises(AssertionError, match="1 bytes are nobody's"):
        other.closed()


def test_loose_sends() -> None:
    """What the peer drops has succeeded; the network is no reason to fail."""
    book = Book("here", ATTRIBUTES, loose=True, reasons={"network": WcStatus.RETRY_EXC_ERR})
    book.sends += [sent(0, wrong=Wrong.QKEY), sent(1)]
    book.completed(book.sends[0], WC(0, WcStatus.SUCCESS, WcOpcode.SEND), 0)
    with pytest.raises(AssertionError, match="there are reasons for"):
        book.completed(book.sends[1], WC(1, WcStatus.RETRY_EXC_ERR, WcOpcode.SEND), 0)


@pytest.mark.parametrize("length", [0, 1, 4, 201])
def test_grh(length) -> None:
    route = gid_bytes("10.0.0.1"), gid_bytes("10.0.0.2")
    area = grh_area(build(0x64, payload=bytes(length), src_gid=route[0], dst_gid=route[1]))
    check_grh(area, route, length, "x")
    for at, said in ((0, "GRH"), (20, "GRH"), (22, "length"), (29, "protocol"), (35, "addresses")):
        bad = bytearray(area)
        bad[at] ^= 1
        with pytest.raises(AssertionError, match=said):
            check_grh(bytes(bad), route, length, "x")
    bad = bytearray(area)
    bad[21] ^= 4
    with pytest.raises(AssertionError, match="checksum"):
        check_grh(bytes(bad), route, length, "x")


def pool(*messages):
    """A shared queue with two posted requests, and a QP that is to receive ``messages``."""
    made = Pool(Shared(2, 1, (100,)), random.Random(1))
    made._region = Region()
    for number in range(2):
        empty = np.full(8, 100 + number, np.uint8)
        made._region.write(empty, 8 * number)
        place = Place(made._region, ((8 * number, 8),), empty, ~empty)
        made.posted[number] = Slot(place, number, at=50)
    book = Book("here", ATTRIBUTES)
    for message in messages:
        message.sink.region = made._region
    book.receives += [Receive(90 + one.wr_id, one) for one in messages]
    made.books[5] = book
    return made, book


def taken(number, status=WcStatus.SUCCESS, qp=5):
    return WC(number, status, WcOpcode.RECV, byte_len=4, qp_num=qp)


def test_shared_requests() -> None:
    """Each comes back once, with the next message of the QP that has taken it."""
    made, book = pool(sent(0), sent(1))
    made._region.write(np.array([0, 1, 2, 3], np.uint8), 8)
    assert made.completed(taken(1)) == (book, book.receives[0])
    assert list(made.posted) == [0] and made._region.read(4, 8)[0] == 101
    with pytest.raises(AssertionError, match="or it comes twice"):
        made.completed(taken(1))
    with pytest.raises(AssertionError, match="wrong data"):
        made.completed(taken(0))
    made, book = pool(sent(0))
    made._region.write(np.array([0, 1, 2, 3, 9], np.uint8), 0)
    with pytest.raises(AssertionError, match="1 bytes are neither old nor new"):
        made.completed(taken(0))
    made, book = pool()
    with pytest.raises(AssertionError, match="takes what nobody sends"):
        made.completed(taken(0))


def test_shared_requests_of_an_unreliable_qp() -> None:
    """What has come is looked up among all that was sent; one is flushed at most."""
    made, _ = pool()
    made.inboxes[5] = one = inbox(sent(0), sent(1), landings=0)
    made.books[5] = one.book
    made._region.write(np.array([4, 5, 6, 7], np.uint8), 0)
    assert made.completed(WC(0, WcStatus.SUCCESS, WcOpcode.RECV, 0, 4, 0, 5, PEER)) is None
    assert one.delivered == [1] and made._region.read(1, 0)[0] == 100
    one.book.reasons["dropped"] = WcStatus.WR_FLUSH_ERR
    made.completed(taken(1, WcStatus.WR_FLUSH_ERR))
    made.posted[1] = made._idle[0]
    with pytest.raises(AssertionError, match="a second one is flushed"):
        made.completed(taken(1, WcStatus.WR_FLUSH_ERR))


def test_shared_requests_that_are_flushed() -> None:
    """One for each QP, with a part of its message at most, and for a reason."""
    made, book = pool(sent(0), sent(1))
    with pytest.raises(AssertionError, match="fails with WR_FLUSH_ERR"):
        made.completed(taken(0, WcStatus.WR_FLUSH_ERR))
    made, book = pool(sent(0), sent(1))
    book.reasons["ERR"] = WcStatus.WR_FLUSH_ERR
    made._region.write(np.array([0, 1], np.uint8), 0)
    made.completed(taken(0, WcStatus.WR_FLUSH_ERR))
    assert made._region.read(2, 0)[0] == 100
    with pytest.raises(AssertionError, match="a second one is flushed"):
        made.completed(taken(1, WcStatus.WR_FLUSH_ERR))
    made, book = pool(sent(0))
    book.reasons["ERR"] = WcStatus.WR_FLUSH_ERR
    made._region.write(np.array([9], np.uint8), 0)
    with pytest.raises(AssertionError, match="1 bytes are nobody's"):
        made.completed(taken(0, WcStatus.WR_FLUSH_ERR))


def test_a_peer_must_have_had_no_shared_request(monkeypatch) -> None:
    """Judged when completions until then have been taken; each QP may hold a request."""
    monkeypatch.setattr("sim.bench.scenario.pool.now_ns", lambda: 1000)
    said = r"fails with RNR_RETRY_EXC_ERR: no shared request; there were 2 all the time"

    def failed(at):
        made, _ = pool()
        late = Book("sender", ATTRIBUTES, doubt=made.doubt)
        late.sends.append(sent(0, at=at))
        late.sends[0].receive = Receive(9, late.sends[0])
        late.completed(late.sends[0], WC(0, WcStatus.RNR_RETRY_EXC_ERR, WcOpcode.SEND), 10**9)
        return made

    made = failed(51)
    made.looked(1000 + VISIBLE_NS - 1)
    with pytest.raises(AssertionError, match=said):
        made.looked(1000 + VISIBLE_NS)
    failed(50).looked(10**6)  # they were posted later
    made = failed(51)
    made.posted.pop(0)  # one was used before, as has been seen since
    made.looked(10**6)
    made = failed(51)
    made.books[6] = Book("other", ATTRIBUTES)  # both may be held
    made.looked(10**6)
