"""A target's answers, and its end of a connection."""

from dataclasses import replace

import pytest

from firmware.dc.context import Dct, Finding, Peer, RefusalLimit, answer, end, granted, judge
from firmware.dc.packets import Connect, Disconnect, EndStatus, Reply, ReplyStatus, keep_ns

KEY = 0x1122334455667788
TARGET = Dct(0x22, KEY, receives=True, mtu=3, rnr_timer=14, depth=8)
ASKS = Connect(0x22, 0x5000, mtu=3, depth=4, channel=0x400011, key=KEY, nonce=99, keep=20)
PEER, OTHER = Peer(bytes(15) + b"\1", bytes(6)), Peer(bytes(15) + b"\2", bytes(6))


@pytest.mark.parametrize(
    "changed, dct, finding",
    [
        ({}, TARGET, Finding.NEW),
        ({"version": 2}, TARGET, Finding.UNKNOWN_VERSION),
        ({"version": 2, "key": 0}, None, Finding.UNKNOWN_VERSION),
        ({}, None, Finding.NO_TARGET),
        ({}, replace(TARGET, receives=False), Finding.NO_TARGET),
        *(({"key": KEY ^ 1 << bit}, TARGET, Finding.WRONG_KEY) for bit in (0, 31, 32, 63)),
        ({"mtu": 4}, TARGET, Finding.MTU),
        ({"mtu": 0}, TARGET, Finding.MTU),
        ({"mtu": 1}, TARGET, Finding.NEW),
    ],
)
def test_judge(changed, dct, finding):
    assert judge(replace(ASKS, **changed), dct, None) is finding


def test_who_does_not_know_the_key_learns_nothing():
    """A wrong key, a number that is no target's and a target that is not in RTR look alike."""
    wrong = replace(ASKS, key=0)
    closed = replace(TARGET, receives=False)
    replies = {answer(wrong, judge(wrong, dct, None)) for dct in (TARGET, None, closed)}
    assert replies == {Reply(0x400011, 0x5000, 99, ReplyStatus.REFUSED)}


def test_grants():
    """The smaller of what is asked for and what there is; the longest time that a code can say."""
    context = granted(ASKS, TARGET, 0x800033, PEER, now=5)
    assert answer(ASKS, Finding.NEW, context) == Reply(
        0x400011, 0x5000, 99, depth=4, context=0x800033, keep=20
    )
    greedy = granted(replace(ASKS, depth=255, keep=255), TARGET, 1, PEER, now=5)
    assert (greedy.depth, greedy.keep) == (8, 31)
    assert granted(replace(ASKS, keep=0), TARGET, 1, PEER, now=5).keep == 10


def test_the_same_connect_again():
    """It is known by the sender's address, channel and nonce, and gets the same reply."""
    context = granted(ASKS, TARGET, 1, PEER, now=5)
    assert context.is_of(ASKS, PEER) and judge(ASKS, TARGET, context) is Finding.KNOWN
    assert answer(ASKS, Finding.KNOWN, context) == answer(ASKS, Finding.NEW, context)
    assert not context.is_of(ASKS, OTHER)
    assert not context.is_of(replace(ASKS, nonce=98), PEER)
    assert not context.is_of(replace(ASKS, channel=1), PEER)


def test_busy():
    busy = answer(ASKS, Finding.BUSY, rnr_timer=14)
    assert busy == Reply(0x400011, 0x5000, 99, ReplyStatus.BUSY, rnr_timer=14)
    assert answer(ASKS, Finding.MTU, rnr_timer=14).rnr_timer == 0


@pytest.mark.parametrize(
    "changed, peer, status",
    [
        ({}, PEER, EndStatus.CLOSED),
        ({"psn": 7}, PEER, EndStatus.CLOSED),
        ({"nonce": 98}, PEER, EndStatus.UNKNOWN),
        ({"number": 1}, PEER, EndStatus.UNKNOWN),
        ({"dest": 0x33}, PEER, EndStatus.UNKNOWN),
        ({}, OTHER, EndStatus.UNKNOWN),
    ],
)
def test_end(changed, peer, status):
    context = granted(ASKS, TARGET, 0x800033, PEER, now=0)
    packet = replace(Disconnect(0x800033, 0x5001, 0x400011, 99), **changed)
    ends, reply = end(packet, peer, context)
    assert ends == (status == EndStatus.CLOSED) and reply.status == status
    assert (reply.dest, reply.psn, reply.number) == (packet.number, packet.psn, packet.dest)
    assert end(packet, peer, None)[0] is False


def test_keep_time():
    context = granted(ASKS, TARGET, 1, PEER, now=5)
    assert not context.over(4 + keep_ns(20)) and context.over(5 + keep_ns(20))
    assert not context.hear(100).over(5 + keep_ns(20))


def test_refusals_are_limited():
    limit, second = RefusalLimit(3), 1_000_000_000
    assert [limit.allows(n) for n in range(4)] == [True, True, True, False]
    assert not limit.allows(second - 1)
    assert limit.allows(second) and limit.allows(second + 1)
