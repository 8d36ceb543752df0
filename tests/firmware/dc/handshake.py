"""Exhaustive search of the handshake of DC: the firmware's own machines, and a network without
mercy.

The network is a set of packets: each may arrive any number of times at any later moment, or never.
A context may expire and the initiator may give up at any moment, so nothing here leans on a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache

from firmware.dc.channel import Attempt, Channel, Failed, Opened, Phase, Rules, Send
from firmware.dc.context import Context, Dct, Finding, Peer, answer, end, granted, judge
from firmware.dc.packets import Connect, ControlPacket, Disconnect
from hdl.abi.enums import WcStatus

#: One retry is none, so that the timer is the giving up: sending again is the network's matter.
RULES = Rules(timeout=1, retry_cnt=0, rnr_retry=0, mtu=5, depth=4)
PEER = Peer(bytes(16), bytes(6))
KEY = 7
_NO_CHANNEL = Channel()


@dataclass(frozen=True)
class Data:
    """Request ``number``, with a PSN counted from the connection's first."""

    context: int
    channel: int
    psn: int
    number: int


@dataclass(frozen=True)
class Ack:
    """All up to ``psn`` is acknowledged."""

    channel: int
    psn: int


@dataclass(frozen=True)
class Row:
    """A row of a target: its generation, what holds it, and the PSN that it expects."""

    generation: int = 0
    context: Context | None = None
    expected: int = 0


Packet = ControlPacket | Data | Ack


@dataclass(frozen=True)
class State:
    """``head``: oldest request that has not ended, ``sent``: first one not sent, ``base``: the one
    that has the connection's first PSN. ``executed``: how often each has been."""

    executed: tuple[int, ...]
    targets: tuple[tuple[Row, ...], ...]
    channel: Channel = _NO_CHANNEL
    attempts: int = 0
    head: int = 0
    sent: int = 0
    base: int = 0
    good: frozenset[int] = frozenset()
    network: frozenset[Packet] = frozenset()

    def put(self, *packets: Packet, **changes) -> State:
        """The state with these fields, and packets that can arrive from now on."""
        return replace(self, network=self.network.union(packets), **changes)


@dataclass
class Result:
    """States seen, what must not be, and which ends of all requests are possible."""

    states: int = 0
    broken: list[str] = field(default_factory=list)
    ends: set[tuple[str, ...]] = field(default_factory=set)


@dataclass(frozen=True)
class Search:
    """``requests``: the target of each, in order. ``attempts`` of the initiator to connect,
    ``rows`` of a target with ``generations`` each, requests under way at a time (``window``).

    Two rules can be broken on purpose: ``resend``: what was sent behind a request that failed is
    sent again on the next connection. ``forgets``: the initiator takes any reply, and any
    acknowledgement, for one of its present connection.
    """

    requests: tuple[int, ...]
    attempts: int
    rows: int
    generations: int
    window: int = 1
    resend: bool = False
    forgets: bool = False

    def run(self, most: int = 1_000_000) -> Result:
        """All that can happen; ends early when an invariant is broken."""
        targets = tuple((Row(),) * self.rows for _ in range(max(self.requests) + 1))
        start = State((0,) * len(self.requests), targets)
        seen, unseen, result = {start}, deque([start]), Result()
        while unseen and not result.broken:
            state = unseen.popleft()
            if state.head == len(self.requests):
                result.ends.add(
                    tuple(
                        "good" if n in state.good else f"failed, executed {times}"
                        for n, times in enumerate(state.executed)
                    )
                )
            for after in self._after(state, result):
                if after not in seen:
                    seen.add(after)
                    unseen.append(after)
            assert len(seen) <= most, "the search has become too large"
        result.states = len(seen)
        return result

    def _after(self, state: State, result: Result) -> Iterator[State]:
        yield from self._initiator(state)
        for packet in state.network:
            if isinstance(packet, Ack):
                yield from self._acknowledged(state, packet, result)
            elif isinstance(packet, Data):
                yield from self._executed(state, packet, result)
            elif isinstance(packet, Connect):
                yield self._connected(state, packet)
            elif isinstance(packet, Disconnect):
                yield self._ended(state, packet)
            else:
                yield self._answered(state, packet)
        for target, rows in enumerate(state.targets):  # a keep time is over
            for n, row in enumerate(rows):
                if row.context is not None:
                    yield state.put(
                        targets=_put(state.targets, target, n, replace(row, context=None))
                    )

    def _initiator(self, state: State) -> Iterator[State]:
        """What the initiator does by itself."""
        channel, head, sent = state.channel, state.head, state.sent
        if (
            channel.phase is Phase.IDLE
            and head < len(self.requests)
            and state.attempts < self.attempts
        ):
            number = state.attempts + 1
            attempt = Attempt(number, nonce=100 + number, psn=0)
            opening, effects = channel.connect(0, RULES, attempt, self.requests[head], KEY)
            yield state.put(
                *_packets(effects), channel=opening, attempts=number, base=head, sent=head
            )
        if channel.phase is Phase.CONNECTING:  # no answer has come
            idle, effects = channel.timer(1, RULES)
            assert Failed(WcStatus.RETRY_EXC_ERR) in effects
            yield state.put(channel=idle, head=head + 1, sent=head + 1)
        if channel.phase is Phase.CLOSING:  # nor to the DISCONNECT
            yield state.put(channel=channel.timer(1, RULES)[0])
        if channel.phase is Phase.OPEN:
            same = sent < len(self.requests) and self.requests[sent] == channel.dctn
            if same and sent - head < self.window:
                data = Data(channel.context, channel.attempt.number, sent - state.base, sent)
                yield state.put(data, sent=sent + 1)
            if head == sent:
                yield self._close(state)
            if head < len(self.requests):
                # Retries are exhausted: the oldest one fails, and all that was sent with it.
                until = head + 1 if self.resend else max(sent, head + 1)
                yield self._close(replace(state, head=until, sent=until))

    @staticmethod
    def _close(state: State) -> State:
        closing, effects = state.channel.close(0, RULES, state.sent - state.base)
        return state.put(*_packets(effects), channel=closing)

    def _answered(self, state: State, packet: ControlPacket) -> State:
        """A packet has come to the channel."""
        channel = state.channel
        if self.forgets and channel.phase is Phase.CONNECTING and hasattr(packet, "context"):
            packet = replace(packet, dest=channel.attempt.number, nonce=channel.attempt.nonce)
        after, effects = channel.received(0, RULES, packet)
        assert all(isinstance(one, Opened) for one in effects)
        return state.put(channel=after)

    def _acknowledged(self, state: State, ack: Ack, result: Result) -> Iterator[State]:
        upto = state.base + ack.psn
        channel = state.channel
        mine = self.forgets or channel.attempt.number == ack.channel
        current = channel.phase is Phase.OPEN and mine
        if not current or not state.head <= upto < state.sent:
            return
        ended = range(state.head, upto + 1)
        result.broken += [
            f"request {n} is good and was executed {state.executed[n]} times"
            for n in ended
            if state.executed[n] != 1
        ]
        yield state.put(channel=channel.progress(0), head=upto + 1, good=state.good.union(ended))

    def _connected(self, state: State, connect: Connect) -> State:
        """A CONNECT has come to a target."""
        target, rows = connect.dest, state.targets[connect.dest]
        dct = Dct(target, KEY, receives=True, mtu=5, rnr_timer=1, depth=4)
        known = next(
            (row.context for row in rows if row.context and row.context.is_of(connect, PEER)), None
        )
        finding, targets = judge(connect, dct, known), state.targets
        if finding is Finding.NEW:
            free = [
                n
                for n, row in enumerate(rows)
                if row.context is None and row.generation < self.generations
            ]
            if not free:  # busy, which is no other outcome than no answer
                return state
            n, generation = free[0], rows[free[0]].generation + 1
            known = granted(connect, dct, _number(target, n, generation), PEER, 0)
            targets = _put(targets, target, n, Row(generation, known))
        return state.put(answer(connect, finding, known), targets=targets)

    @staticmethod
    def _ended(state: State, packet: Disconnect) -> State:
        """A DISCONNECT has come."""
        target, n, _ = _place(packet.dest)
        row = state.targets[target][n]
        ends, acknowledged = end(packet, PEER, row.context)
        targets = state.targets
        if ends:
            targets = _put(targets, target, n, replace(row, context=None))
        return state.put(acknowledged, targets=targets)

    @staticmethod
    def _executed(state: State, packet: Data, result: Result) -> Iterator[State]:
        """A request has come to a context: that of a reliable connection."""
        target, n, _ = _place(packet.context)
        row = state.targets[target][n]
        if row.context is None or row.context.number != packet.context:
            return
        if packet.psn > row.expected:
            return
        executed, targets, last = state.executed, state.targets, row.expected - 1
        if packet.psn == row.expected:
            executed = tuple(times + (m == packet.number) for m, times in enumerate(state.executed))
            if executed[packet.number] > 1:
                result.broken.append(f"request {packet.number} is executed twice")
            targets = _put(targets, target, n, replace(row, expected=row.expected + 1))
            last = packet.psn
        yield state.put(Ack(row.context.channel, last), executed=executed, targets=targets)


def _packets(effects) -> list[Packet]:
    return [effect.packet for effect in effects if isinstance(effect, Send)]


def _put(targets, target: int, n: int, row: Row):
    rows = targets[target]
    return (
        *targets[:target],
        (*rows[:n], row, *rows[n + 1 :]),
        *targets[target + 1 :],
    )


def _number(target: int, row: int, generation: int) -> int:
    return generation << 8 | target << 4 | row


@cache
def _place(number: int) -> tuple[int, int, int]:
    """Target, row and generation of a context's number."""
    return number >> 4 & 15, number & 15, number >> 8
