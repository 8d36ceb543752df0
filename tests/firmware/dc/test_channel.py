"""An initiator's end of a connection, event by event."""

from dataclasses import replace

import pytest

from firmware.dc.channel import Attempt, Channel, Failed, Opened, Phase, Rules, Send, wanted_keep
from firmware.dc.packets import (
    CloseRequest,
    Connect,
    Disconnect,
    DisconnectAck,
    EndStatus,
    Reply,
    ReplyStatus,
    keep_ns,
)
from hdl.abi.enums import WcStatus

RULES = Rules(timeout=1000, retry_cnt=2, rnr_retry=1, mtu=5, depth=16)
MINE = Attempt(number=0x400011, nonce=99, psn=0xFFFFFE)
REPLY = Reply(MINE.number, MINE.psn, MINE.nonce, depth=4, context=0x33, keep=20)


def connecting(rules=RULES):
    channel, effects = Channel().connect(0, rules, MINE, 0x22, 7)
    assert effects == (Send(Connect(0x22, MINE.psn, 5, 16, MINE.number, 7, 99, rules.keep)),)
    assert channel.phase is Phase.CONNECTING
    return channel


def opened(rules=RULES):
    return connecting(rules).received(100, rules, REPLY)[0]


def refusal(status, **more):
    return Reply(MINE.number, MINE.psn, MINE.nonce, status, **more)


def test_opens():
    channel, effects = connecting().received(100, RULES, REPLY)
    assert effects == (Opened(0x33, MINE.psn, 4),)
    assert (channel.phase, channel.depth, channel.answered) == (Phase.OPEN, 4, 100)
    assert channel.received(200, RULES, REPLY) == (channel, ())


@pytest.mark.parametrize("field", ["dest", "psn", "nonce"])
def test_a_reply_to_another_attempt_is_dropped(field):
    channel = connecting()
    other = replace(REPLY, **{field: getattr(REPLY, field) ^ 1})
    assert channel.received(1, RULES, other) == (channel, ())


@pytest.mark.parametrize(
    "status, wc",
    [
        (ReplyStatus.REFUSED, WcStatus.REM_ACCESS_ERR),
        (ReplyStatus.IMPOSSIBLE, WcStatus.REM_INV_REQ_ERR),
        (7, WcStatus.REM_INV_REQ_ERR),
    ],
)
def test_refused(status, wc):
    channel, effects = connecting().received(1, RULES, refusal(status))
    assert (channel.phase, effects) == (Phase.IDLE, (Failed(wc),))


def test_no_answer():
    """retry_cnt 2: three CONNECTs, all the same."""
    channel, sent = connecting(), 1
    assert channel.timer(999, RULES) == (channel, ())
    for timer_at in (1000, 2000):
        channel, (again,) = channel.timer(timer_at, RULES)
        assert again.packet == Connect(0x22, MINE.psn, 5, 16, MINE.number, 7, 99, 20)
        sent += 1
    assert channel.timer(3000, RULES) == (
        Channel(attempt=MINE),
        (Failed(WcStatus.RETRY_EXC_ERR),),
    )
    assert sent == RULES.retry_cnt + 1


def test_waits_without_a_timer():
    channel = connecting(replace(RULES, timeout=0))
    assert channel.due is None and channel.timer(1 << 60, RULES) == (channel, ())


def test_busy():
    """Code 1: 10 us. The time-outs begin anew with the answer."""
    busy = refusal(ReplyStatus.BUSY, rnr_timer=1)
    channel, _ = connecting().timer(1000, RULES)
    channel, effects = channel.received(1500, RULES, busy)
    assert (channel.phase, effects, channel.retries) == (Phase.WAITING, (), 0)
    assert channel.received(1600, RULES, REPLY) == (channel, ())
    assert channel.timer(11_499, RULES) == (channel, ())
    channel, (again,) = channel.timer(11_500, RULES)
    assert again.packet.nonce == MINE.nonce and channel.phase is Phase.CONNECTING
    channel, effects = channel.received(11_600, RULES, busy)
    assert effects == (Failed(WcStatus.RNR_RETRY_EXC_ERR),) and channel.phase is Phase.IDLE


def test_busy_without_end():
    rules, now = replace(RULES, rnr_retry=7), 0
    channel = connecting(rules)
    for _ in range(20):
        now += 10
        channel, effects = channel.received(now, rules, refusal(ReplyStatus.BUSY, rnr_timer=1))
        assert effects == ()
        now += 10_000
        channel, (again,) = channel.timer(now, rules)
        assert isinstance(again, Send)


def test_closes():
    channel, effects = opened().close(500, RULES, 0)
    goodbye = Disconnect(0x33, 0, MINE.number, MINE.nonce)
    assert (channel.phase, effects) == (Phase.CLOSING, (Send(goodbye),))
    other = DisconnectAck(MINE.number, 0, 0x33, MINE.nonce ^ 1)
    assert channel.received(600, RULES, other) == (channel, ())
    assert channel.received(600, RULES, REPLY) == (channel, ())
    done = DisconnectAck(MINE.number, 0, 0x33, MINE.nonce, EndStatus.UNKNOWN)
    assert channel.received(600, RULES, done) == (Channel(attempt=MINE), ())


def test_a_disconnect_that_nobody_answers_is_no_error():
    channel, _ = opened().close(0, RULES, 5)
    for timer_at in (1000, 2000):
        channel, (again,) = channel.timer(timer_at, RULES)
        assert again.packet == Disconnect(0x33, 5, MINE.number, MINE.nonce)
    assert channel.timer(3000, RULES) == (Channel(attempt=MINE), ())


def test_when_it_ends():
    channel, linger = opened(), 100 + RULES.linger
    half = 100 + keep_ns(20) // 2
    assert not channel.should_end(linger - 1, RULES, drained=True, waits=False)
    assert channel.should_end(linger, RULES, drained=True, waits=False)
    assert not channel.should_end(half, RULES, drained=False, waits=False)
    assert channel.should_end(101, RULES, drained=False, waits=True)
    patient = replace(RULES, linger=1 << 60)
    assert not channel.should_end(half - 1, patient, drained=True, waits=False)
    assert channel.should_end(half, patient, drained=True, waits=False)
    later = channel.progress(half)
    assert not later.should_end(half + 1, patient, drained=True, waits=False)


def test_close_request():
    """A hint: it has an effect on the connection that it names, while that is open."""
    hint = CloseRequest(MINE.number, 0, 0x33, MINE.nonce)
    channel, effects = opened().received(200, RULES, hint)
    assert effects == () and channel.should_end(200, RULES, drained=False, waits=False)
    other, _ = opened().received(200, RULES, replace(hint, nonce=1))
    assert not other.should_end(200, RULES, drained=False, waits=False)
    assert not connecting().received(1, RULES, hint)[0].asked


def test_abandoned():
    """One DISCONNECT if there is a connection, and nobody waits for the answer."""
    channel, effects = opened().abandon(9)
    assert channel.phase is Phase.IDLE
    assert effects == (Send(Disconnect(0x33, 9, MINE.number, MINE.nonce)),)
    assert connecting().abandon(9) == (Channel(attempt=MINE), ())


def test_wanted_keep():
    """At least 4.3 s, and longer than all retries of a request take."""
    assert wanted_keep(0, 7) == 20 and wanted_keep(67_000_000, 7) == 20
    second = 1_073_741_824
    assert keep_ns(wanted_keep(second, 7)) == 4096 << 24 >= 64 * second
    assert wanted_keep(8_800_000_000_000, 7) == 31
