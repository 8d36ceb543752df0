"""An initiator's end of a connection: when it connects, to whom, and what a failure is.

```mermaid
stateDiagram-v2
    IDLE --> CONNECTING: a request
    CONNECTING --> OPEN: accepted
    CONNECTING --> WAITING: busy
    WAITING --> CONNECTING: the time that was asked for is over
    CONNECTING --> IDLE: refused, no answer
    OPEN --> CLOSING: another target, nothing to send, a failure
    CLOSING --> IDLE: acknowledged, or not after all retries
```

A channel is a value: each event returns the next one and what is to be done. A caller that is told
``Opened`` may send; it calls ``close`` only when all that it has sent is answered or has ended in
error, so a DISCONNECT never meets a request that still counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from firmware.dc.packets import (
    LEAST_KEEP,
    CloseRequest,
    Connect,
    ControlPacket,
    Disconnect,
    DisconnectAck,
    Reply,
    ReplyStatus,
    keep_ns,
)
from hdl.abi.enums import WcStatus
from hdl.wire.constants import RNR_TIMER_MS

__all__ = [
    "Attempt",
    "Channel",
    "Effect",
    "Failed",
    "Opened",
    "Phase",
    "Rules",
    "Send",
    "wanted_keep",
]

#: RNR retries without end (IBTA vol 1, 9.7.5.2.8).
_FOR_EVER = 7
_LONGEST_KEEP = 31


class Phase(Enum):
    """States of a channel."""

    IDLE = "no connection"
    CONNECTING = "a CONNECT is out"
    WAITING = "the target is busy: until it is asked again"
    OPEN = "requests are sent"
    CLOSING = "a DISCONNECT is out"


@dataclass(frozen=True)
class Rules:
    """What the attributes of the queue pair say. ``timeout``: ns for an answer, 0: without end.
    ``linger``: ns that a connection with nothing to send is kept."""

    timeout: int
    retry_cnt: int
    rnr_retry: int
    mtu: int
    depth: int
    keep: int = LEAST_KEEP
    linger: int = 100_000


def wanted_keep(timeout_ns: int, retry_cnt: int) -> int:
    """Code of the keep time that a channel asks for: at least ``LEAST_KEEP``, and twice as long as
    a request may be sent again, which takes 4 times the time-out each."""
    wanted = 2 * (retry_cnt + 1) * 4 * timeout_ns
    codes = range(LEAST_KEEP, _LONGEST_KEEP)
    return next((code for code in codes if keep_ns(code) >= wanted), _LONGEST_KEEP)


@dataclass(frozen=True)
class Attempt:
    """What is new with each connection: the channel's number, whose generation is another one, 64
    random bits and the first PSN."""

    number: int
    nonce: int
    psn: int


@dataclass(frozen=True)
class Send:
    """Send this to the address of the target."""

    packet: ControlPacket


@dataclass(frozen=True)
class Opened:
    """Requests may be sent to ``context`` from PSN ``psn`` on, with ``depth`` READs at a time."""

    context: int
    psn: int
    depth: int


@dataclass(frozen=True)
class Failed:
    """The oldest request ends with this status."""

    status: WcStatus


Effect = Send | Opened | Failed
Step = tuple["Channel", tuple[Effect, ...]]


@dataclass(frozen=True)
class Channel:
    """One end of one connection at a time, to ``dctn`` with ``key``.

    ``attempt``: of this connection. ``context``, ``depth``, ``keep``: what the target has granted.
    ``retries``, ``rnr_retries``: since the last progress. ``due``: when the timer runs out, ns.
    ``answered``: when the last answer has come, ns. ``asked``: the target has asked for an end.
    """

    phase: Phase = Phase.IDLE
    dctn: int = 0
    key: int = 0
    attempt: Attempt = Attempt(0, 0, 0)
    context: int = 0
    depth: int = 0
    keep: int = 0
    retries: int = 0
    rnr_retries: int = 0
    due: int | None = None
    answered: int = 0
    asked: bool = False
    next_psn: int = 0

    def connect(self, now: int, rules: Rules, attempt: Attempt, dctn: int, key: int) -> Step:
        """IDLE: a request for a target waits."""
        assert self.phase is Phase.IDLE, "one connection at a time"
        fresh = Channel(Phase.CONNECTING, dctn, key, attempt)
        return fresh._ask(now, rules)

    def received(self, now: int, rules: Rules, packet: ControlPacket) -> Step:
        """A packet has come to the channel's number from the target's address. What is not of this
        attempt is dropped: no effect."""
        if packet.dest != self.attempt.number or self.phase is Phase.IDLE:
            return self, ()
        if isinstance(packet, Reply):
            return self._answer(now, rules, packet)
        if isinstance(packet, DisconnectAck | CloseRequest):
            if packet.nonce != self.attempt.nonce:
                return self, ()
            if isinstance(packet, CloseRequest):
                return replace(self, asked=self.asked or self.phase is Phase.OPEN), ()
            if self.phase is Phase.CLOSING:
                return Channel(attempt=self.attempt), ()
        return self, ()

    def _answer(self, now: int, rules: Rules, reply: Reply) -> Step:
        mine = (reply.nonce, reply.psn) == (self.attempt.nonce, self.attempt.psn)
        if self.phase is not Phase.CONNECTING or not mine:
            return self, ()
        if reply.status == ReplyStatus.ACCEPTED:
            depth, keep = min(rules.depth, reply.depth), min(rules.keep, reply.keep)
            opened = replace(
                self,
                phase=Phase.OPEN,
                context=reply.context,
                depth=depth,
                keep=keep,
                retries=0,
                rnr_retries=0,
                due=None,
                answered=now,
            )
            return opened, (Opened(reply.context, self.attempt.psn, depth),)
        if reply.status == ReplyStatus.BUSY:
            if self.rnr_retries >= rules.rnr_retry != _FOR_EVER:
                return self._give_up(WcStatus.RNR_RETRY_EXC_ERR)
            wait = int(1_000_000 * RNR_TIMER_MS[reply.rnr_timer % len(RNR_TIMER_MS)])
            count = min(self.rnr_retries + 1, _FOR_EVER)
            waits = replace(self, phase=Phase.WAITING, rnr_retries=count, retries=0, due=now + wait)
            return waits, ()
        if reply.status == ReplyStatus.REFUSED:
            return self._give_up(WcStatus.REM_ACCESS_ERR)
        return self._give_up(WcStatus.REM_INV_REQ_ERR)

    def timer(self, now: int, rules: Rules) -> Step:
        """Time has passed; no effect unless the timer has run out."""
        if self.due is None or now < self.due:
            return self, ()
        if self.phase is Phase.WAITING:
            return replace(self, phase=Phase.CONNECTING)._ask(now, rules)
        if self.retries >= rules.retry_cnt:
            if self.phase is Phase.CLOSING:  # never an error of a request
                return Channel(attempt=self.attempt), ()
            return self._give_up(WcStatus.RETRY_EXC_ERR)
        again = replace(self, retries=self.retries + 1)
        if self.phase is Phase.CLOSING:
            return again._end(now, rules)
        return again._ask(now, rules)

    def progress(self, now: int) -> Channel:
        """OPEN: something new has been answered."""
        assert self.phase is Phase.OPEN, "only a connection has answers"
        return replace(self, answered=now)

    def should_end(self, now: int, rules: Rules, *, drained: bool, waits: bool) -> bool:
        """OPEN: whether no request may begin any more, so that the connection can be closed once
        all is answered. ``waits``: a request for another target waits; ``drained``: nothing is
        under way. The target frees its end no earlier than ``keep`` after its last answer."""
        quiet = now - self.answered
        late = quiet >= keep_ns(self.keep) // 2
        return waits or self.asked or (drained and (late or quiet >= rules.linger))

    def close(self, now: int, rules: Rules, next_psn: int) -> Step:
        """OPEN: all that was sent has ended; ``next_psn`` would come next."""
        assert self.phase is Phase.OPEN, "only a connection is closed"
        closing = replace(self, phase=Phase.CLOSING, retries=0, next_psn=next_psn)
        return closing._end(now, rules)

    def abandon(self, next_psn: int) -> Step:
        """The queue pair is in error, in RESET or gone: one DISCONNECT, without waiting."""
        closing = replace(self, next_psn=next_psn)
        open_ = self.phase in (Phase.OPEN, Phase.CLOSING)
        return Channel(attempt=self.attempt), (Send(closing._disconnect()),) if open_ else ()

    def _ask(self, now: int, rules: Rules) -> Step:
        packet = Connect(
            self.dctn,
            self.attempt.psn,
            rules.mtu,
            rules.depth,
            self.attempt.number,
            self.key,
            self.attempt.nonce,
            rules.keep,
        )
        return self._timed(now, rules), (Send(packet),)

    def _end(self, now: int, rules: Rules) -> Step:
        return self._timed(now, rules), (Send(self._disconnect()),)

    def _disconnect(self) -> Disconnect:
        return Disconnect(self.context, self.next_psn, self.attempt.number, self.attempt.nonce)

    def _timed(self, now: int, rules: Rules) -> Channel:
        return replace(self, due=now + rules.timeout if rules.timeout else None)

    def _give_up(self, status: WcStatus) -> Step:
        return Channel(attempt=self.attempt), (Failed(status),)
