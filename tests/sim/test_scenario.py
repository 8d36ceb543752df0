"""A seed gives the same scenario each time; the rules of its outcome notice each breach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hdl.abi.enums import Mtu, SendFlags, WcFlags, WcOpcode, WcStatus, WrOpcode
from sim.bench.scenario import strangers
from sim.bench.scenario.draw import KINDS, NAMES, draw
from sim.bench.scenario.ledger import Book, Place, Receive, Sent, State, immediate
from sim.bench.scenario.plan import RNR_NS, Attributes, Ending, Message, Wrong
from sim.guest.verbs import WC
from sim.models.impairments import Impairments
from sim.wire.packets import dissect, gid_bytes

ATTRIBUTES = Attributes(
    mtu=Mtu.MTU_1024,
    psns=(1, 2),
    timeout=5,
    retry_cnt=2,
    rnr_retry=2,
    min_rnr_timer=1,
    max_rd_atomic=1,
)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_scenario(name) -> None:
    drawn = [draw(name, seed) for seed in range(40)]
    assert drawn == [draw(name, seed) for seed in range(40)]
    assert len({one.text() for one in drawn}) == 40
    kinds = {one.kind for one in drawn}
    assert kinds == (set(KINDS) if name == "mixed" else {name})
    for one in drawn:
        for life in one.lives:
            for way in life.ways:
                assert not way.batches or way.messages[-1].flags & SendFlags.SIGNALED
                for message in way.messages:
                    moved = 0 if message.placement else message.length
                    assert sum(message.pieces) == moved, message
        # A device that needs a reset makes and ends no connections.
        assert not one.guest or all(life.ending == Ending.FINISH for life in one.lives)


@pytest.mark.parametrize("name", NAMES)
def test_given_network_takes_the_place_of_the_drawn_one(name) -> None:
    """Both ways, with other chances in each way and for each seed; the rules know it."""
    drawn = [draw(name, seed, "loss=2%,delay_us=5,seed=9") for seed in range(20)]
    networks = [network for one in drawn for network in one.networks]
    assert len({network.seed for network in networks}) == 40
    assert {replace(network, seed=1) for network in networks} == {
        Impairments(loss=0.02, delay_us=5)
    }


def test_unknown_campaign_is_named() -> None:
    with pytest.raises(ValueError, match="No campaign is called 'x'; there are mixed, network"):
        draw("x", 1)


def test_everything_is_drawn() -> None:
    """Each ending, each wrong request, each hostile frame, and networks of each sort."""
    drawn = [draw("mixed", seed) for seed in range(600)]
    lives = [life for one in drawn for life in one.lives]
    assert {life.ending for life in lives} == set(Ending)
    messages = [message for life in lives for way in life.ways for message in way.messages]
    usual = {Wrong.LKEY, Wrong.RKEY, Wrong.RANGE, Wrong.OPCODE, Wrong.SHORT, Wrong.NOTHING}
    assert {message.wrong for message in messages} == usual
    assert {message.opcode for message in messages} == set(WrOpcode) & {0, 1, 2, 3, 4}
    sent = {stranger.kind for one in drawn for stranger in one.strangers}
    assert sent == {*strangers.HARMLESS, *strangers.HARMFUL}
    names = ("loss", "every", "drop", "duplicate", "reorder", "corrupt", "delay_us", "gbps")
    for name in names:
        assert any(getattr(network, name) for one in drawn for network in one.networks), name
    late = [life.attributes for life in lives for way in life.ways if way.late]
    assert {one.rnr_retry for one in late} == {0, 1, 2, 3, 7}


def test_heavy_traffic_is_heavy() -> None:
    """Many queue pairs begin together, with more on the card than a time-out lasts, each way at
    100 Gb/s; every operation, deep and shallow queues, doorbells for one and for many."""
    drawn = [draw("heavy", seed) for seed in range(200)]
    assert all(one.together and 16 <= len(one.pairs) <= 64 for one in drawn)
    packets, crowded = [], 0
    for one in drawn:
        ways = [[life.ways[side] for life in one.lives] for side in (0, 1)]
        load = max(sum(m.length for way in side for m in way.messages) for side in ways)
        crowded += load * 8 / 100 > one.pairs[0][-1].attributes.timeout_ns
        mtu = [life.attributes.mtu.octets for life in one.lives]
        packets += [sum(way.psns(m) for side in ways for way, m in zip(side, mtu, strict=True))]
        for life in one.lives:
            for way in life.ways:
                assert len(way.messages) <= 60, "a queue holds 64"
                spaces = (m.flags & SendFlags.SIGNALED for m in way.messages)
                assert not way.depth or all(spaces), "who waits for room has completions"
    assert crowded > 100 and max(packets) > 3000 and sorted(packets)[100] > 1000
    ways = [way for one in drawn for life in one.lives for way in life.ways if way.batches]
    assert {way.depth for way in ways} == {0, 1, 2, 4, 8, 16}
    assert {len(batch.messages) for way in ways for batch in way.batches} >= {1, 2, 10}
    messages = [message for way in ways for message in way.messages]
    assert {int(message.opcode) for message in messages} == {0, 1, 2, 3, 4, 5, 6}
    assert {life.attributes.timeout for one in drawn for life in one.lives} >= {4, 5, 6, 8}
    assert any(one.strangers for one in drawn) and any(one.victim is not None for one in drawn)
    assert any(life.ending == Ending.RESET for one in drawn for life in one.lives)


def test_answers_to_what_was_never_sent() -> None:
    """They name PSNs behind the last one of the way, often those that come next."""
    route = {"src_gid": gid_bytes("10.0.0.1"), "dst_gid": gid_bytes("10.0.0.2")}
    route |= {"src_mac": bytes(6), "dst_mac": bytes(6)}
    sent, used = 0xFFFFF0, 700
    target = strangers.Target(
        qpn=5, expects=10, sent=sent, mtu=256, rkey=7, va=4096, route=route, used=used
    )
    assert len(strangers.FUTURE) == 4
    for kind in strangers.FUTURE:
        frames = [strangers.frame(kind, target, seed) for seed in range(200)]
        ahead = [(dissect(frame).fields["psn"] - sent) & 0xFFFFFF for frame in frames]
        assert min(ahead) == used and max(ahead) < 1 << 23
        assert sum(one < used + 64 for one in ahead) > 30


@pytest.mark.parametrize("kind", strangers.HARMLESS + strangers.HARMFUL)
def test_hostile_frames(kind) -> None:
    """They can be made, the same for the same seed; of those that look good the ICRC is right."""
    route = {
        "src_gid": gid_bytes("10.0.0.1"),
        "dst_gid": gid_bytes("10.0.0.2"),
        "src_mac": bytes(6),
        "dst_mac": bytes(6),
    }
    target = strangers.Target(
        qpn=0x4005, expects=10, sent=20, mtu=256, rkey=7, va=4096, route=route
    )
    for seed in range(20):
        frame = strangers.frame(kind, target, seed)
        assert 15 <= len(frame) <= 1024 and frame == strangers.frame(kind, target, seed)
        if kind not in ("damaged", "truncated", "noise"):
            assert dissect(frame).icrc_good
        if kind == "damaged":
            assert not dissect(frame).icrc_good
        if kind.startswith("stale"):
            first = 20 if kind in ("stale ACK", "stale NAK", "stale RNR NAK") else 10
            first = 20 if kind == "stale READ response" else first
            assert (dissect(frame).fields["psn"] - first) & 0x800000


class Region:
    """A region of 32 bytes."""

    def __init__(self):
        self.bytes = np.zeros(32, np.uint8)

    def read(self, length, at=0):
        return self.bytes[at : at + length].copy()

    def write(self, data, at=0):
        self.bytes[at : at + len(data)] = data


def book(*messages, **more):
    """An end with these requests, posted at 1000 ns."""
    made = Book("here", ATTRIBUTES, **more)
    for number, message in enumerate(messages):
        full = np.arange(4, dtype=np.uint8)
        place = Place(Region(), ((8, 4),), ~full, full, State.OPEN)
        made.sends.append(Sent(number, message, place, at=1000))
    return made


def message(opcode=WrOpcode.RDMA_WRITE, flags=SendFlags.SIGNALED, wrong=Wrong.NOTHING):
    return Message(opcode, 4, (4,), (4,), flags, wrong)


def wc(status=WcStatus.SUCCESS, **more):
    return WC(wr_id=0, status=status, opcode=1, **more)  # RDMA_WRITE


def test_signalled_requests_complete_once_and_in_order() -> None:
    one = book(message(), message(flags=SendFlags(0)), message())
    first, quiet, last = one.sends
    with pytest.raises(AssertionError, match=r"request 0 .* has no completion"):
        one.completed(last, wc(), 0)
    with pytest.raises(AssertionError, match="completes as 2"):
        one.completed(first, replace(wc(), opcode=2), 0)
    one.completed(first, wc(), 0)
    with pytest.raises(AssertionError, match="completes twice"):
        one.completed(first, wc(), 0)
    with pytest.raises(AssertionError, match="was not signalled"):
        one.completed(quiet, wc(), 0)
    one.completed(last, wc(), 0)
    assert quiet.status == WcStatus.SUCCESS and not one.outstanding
    one.settled()


def test_failures_need_a_reason() -> None:
    one = book(message())
    with pytest.raises(AssertionError, match="fails with RETRY_EXC_ERR; there are reasons for"):
        one.completed(one.sends[0], wc(WcStatus.RETRY_EXC_ERR), 0)
    one = book(message(), message(), reasons={"network": WcStatus.RETRY_EXC_ERR})
    one.completed(one.sends[0], wc(WcStatus.RETRY_EXC_ERR), 0)
    with pytest.raises(AssertionError, match="succeeds behind a failure"):
        one.completed(one.sends[1], wc(), 0)
    with pytest.raises(AssertionError, match="behind a failure: RETRY_EXC_ERR"):
        one.completed(one.sends[1], wc(WcStatus.RETRY_EXC_ERR), 0)
    one.completed(one.sends[1], wc(WcStatus.WR_FLUSH_ERR), 0)
    bad = book(message(wrong=Wrong.RKEY))
    with pytest.raises(AssertionError, match=r"\(bad rkey\).*|bad rkey.* succeeds"):
        bad.completed(bad.sends[0], wc(), 0)
    bad = book(message(wrong=Wrong.RKEY))
    bad.completed(bad.sends[0], wc(WcStatus.REM_ACCESS_ERR), 0)
    closed = book(message(), closed=True)
    with pytest.raises(AssertionError, match="after its QP was dropped"):
        closed.completed(closed.sends[0], wc(WcStatus.WR_FLUSH_ERR), 0)


@pytest.mark.parametrize("late,fine", [(2 * RNR_NS[1], True), (2 * RNR_NS[1] - 1, False)])
def test_a_peer_must_have_been_unready_for_as_long_as_the_pauses_take(late, fine) -> None:
    one = book(message(WrOpcode.SEND))
    one.sends[0].receive = Receive(9, one.sends[0], at=1000 + late)
    failure = wc(WcStatus.RNR_RETRY_EXC_ERR)
    if fine:
        one.completed(one.sends[0], failure, 10**9)
    else:
        with pytest.raises(AssertionError, match="2 pauses take 20000 ns"):
            one.completed(one.sends[0], failure, 10**9)


def test_receives() -> None:
    peer = book(message(WrOpcode.SEND_WITH_IMM), message(WrOpcode.SEND))
    here = Book("there", ATTRIBUTES)
    for number, sent in enumerate(peer.sends):
        sent.receive = Receive(10 + number, sent)
        here.receives.append(sent.receive)
    first, second = here.receives
    with pytest.raises(AssertionError, match="out of order"):
        here.received(second, wc())
    here._received = 0
    with pytest.raises(AssertionError, match="fails with WR_FLUSH_ERR"):
        here.received(first, wc(WcStatus.WR_FLUSH_ERR))
    here._received, first.status = 0, None
    for bad, said in (
        ({"byte_len": 3}, "has 3 bytes"),
        ({"byte_len": 4}, "immediate False"),
        ({"byte_len": 4, "wc_flags": WcFlags.WITH_IMM, "imm_data": 5}, ": 0x5"),
        ({"byte_len": 4, "wc_flags": WcFlags.WITH_IMM, "imm_data": immediate(0)}, "wrong data"),
    ):
        here._received, first.status = 0, None
        with pytest.raises(AssertionError, match=said):
            here.received(first, wc(**bad))
    here._received, first.status = 0, None
    place = first.sent.sink
    place.region.write(place.full, 8)
    good = {"byte_len": 4, "wc_flags": WcFlags.WITH_IMM, "imm_data": immediate(0)}
    here.received(first, wc(**good))
    assert np.array_equal(place.read(), place.empty)
    for sent in peer.sends:
        peer.completed(sent, replace(wc(), opcode=WcOpcode.SEND), 0)
    with pytest.raises(AssertionError, match="succeeded, its receive None"):
        peer.settled()


def test_places() -> None:
    """Whoever writes late, elsewhere or something else is found."""
    full = np.arange(4, dtype=np.uint8)
    place = Place(Region(), ((8, 4),), ~full, full, State.OPEN)
    place.region.write(~full, 8)
    place.settled("nothing yet")
    place.region.write(full[:2], 8)
    place.settled("a part")
    place.freeze()
    place.settled("gone")
    place.region.write(full, 8)
    with pytest.raises(AssertionError, match="2 bytes are neither old nor new"):
        place.settled("a late write")
    place.state = State.OPEN
    place.region.write(full + 9, 8)
    with pytest.raises(AssertionError, match="bytes are neither"):
        place.settled("other data")


def test_counters() -> None:
    names = (
        "req_transport_retries_exceeded",
        "req_rnr_retries_exceeded",
        "local_ack_timeout_err",
        "rnr_nak",
        "packet_seq_err",
        "implied_nak_seq_err",
    )
    nothing = dict.fromkeys(names, 0)
    book().counted(nothing, 0)
    long = 10 * ATTRIBUTES.timeout_ns
    for failed, counted, lasted, said in (
        (None, {"req_transport_retries_exceeded": 1}, long, "req_transport_retries_exceeded 1"),
        (None, {"local_ack_timeout_err": 11}, long, "11 time-outs of"),
        (WcStatus.RETRY_EXC_ERR, {"req_transport_retries_exceeded": 1}, long, "0 time-outs"),
        (WcStatus.RNR_RETRY_EXC_ERR, {"req_rnr_retries_exceeded": 1}, long, "0 RNR NAKs"),
    ):
        one = book(failed=failed)
        with pytest.raises(AssertionError, match=said):
            one.counted(nothing | counted, lasted)
    with pytest.raises(AssertionError, match="on a good network"):
        book(quiet=True).counted(nothing | {"local_ack_timeout_err": 1}, long)
