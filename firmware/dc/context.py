"""A target's end of a connection, and what a target answers to those who open and close it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from firmware.dc.packets import (
    KEEPS,
    VERSION,
    Connect,
    Disconnect,
    DisconnectAck,
    EndStatus,
    Reply,
    ReplyStatus,
    keep_ns,
)

__all__ = [
    "Context",
    "Dct",
    "Dead",
    "Finding",
    "Peer",
    "RefusalLimit",
    "answer",
    "end",
    "granted",
    "judge",
]

#: ns until a fatal NAK is sent again; twice as long the next time.
FIRST_PAUSE = 100_000
#: Longest keep time that a target grants.
_MOST_KEEP = KEEPS[-1]


@dataclass(frozen=True)
class Peer:
    """Where a connection comes from: source address (GID) and MAC address of its packets."""

    gid: bytes
    mac: bytes


@dataclass(frozen=True)
class Dct:
    """What a CONNECT is checked against. ``receives``: the target is in RTR. ``depth``: READs and
    atomics that a context of it holds."""

    number: int
    key: int
    receives: bool
    mtu: int
    rnr_timer: int
    depth: int


@dataclass(frozen=True)
class Context:
    """One connection. ``number``: what packets name it by; ``psn``: the first one; ``heard``: when
    the last packet that counts has come, ns."""

    number: int
    dctn: int
    peer: Peer
    channel: int
    nonce: int
    psn: int
    depth: int
    keep: int
    heard: int = 0

    def is_of(self, connect: Connect, peer: Peer) -> bool:
        """Whether this very CONNECT has made it. One with another nonce is another connection's."""
        return (self.peer.gid, self.channel, self.nonce) == (
            peer.gid,
            connect.channel,
            connect.nonce,
        )

    def over(self, now: int) -> bool:
        """Whether its keep time is over."""
        return now - self.heard >= keep_ns(self.keep)

    def hear(self, now: int) -> Context:
        """Something has come: the keep time begins anew."""
        return replace(self, heard=now)


class Finding(Enum):
    """What a CONNECT is found to be, in the order of the checks."""

    UNKNOWN_VERSION = ReplyStatus.IMPOSSIBLE, "version"
    NO_TARGET = ReplyStatus.REFUSED, "no such target in RTR"
    WRONG_KEY = ReplyStatus.REFUSED, "key"
    MTU = ReplyStatus.IMPOSSIBLE, "path MTU beyond the target's"
    KNOWN = ReplyStatus.ACCEPTED, "it has its context already"
    NEW = ReplyStatus.ACCEPTED, "it gets a context, if one is free"
    BUSY = ReplyStatus.BUSY, "none is free"

    @property
    def status(self) -> ReplyStatus:
        """Of the reply."""
        return self.value[0]


def judge(connect: Connect, dct: Dct | None, known: Context | None) -> Finding:
    """What a CONNECT is. ``dct``: the target that it names, of the function that it has come to;
    ``known``: the context that this very CONNECT has made. A number that is no target's and a wrong
    key have the same answer."""
    if connect.version != VERSION:
        return Finding.UNKNOWN_VERSION
    if dct is None or not dct.receives:
        return Finding.NO_TARGET
    if connect.key != dct.key:
        return Finding.WRONG_KEY
    if not 1 <= connect.mtu <= dct.mtu:
        return Finding.MTU
    return Finding.NEW if known is None else Finding.KNOWN


def granted(connect: Connect, dct: Dct, number: int, peer: Peer, now: int) -> Context:
    """The context that a CONNECT gets, by its ``number``."""
    keep = min(max(connect.keep, KEEPS[0]), _MOST_KEEP)
    return Context(
        number,
        dct.number,
        peer,
        connect.channel,
        connect.nonce,
        connect.psn,
        min(connect.depth, dct.depth),
        keep,
        now,
    )


def answer(
    connect: Connect, finding: Finding, context: Context | None = None, rnr_timer: int = 0
) -> Reply:
    """The reply to a CONNECT; ``context``: the one that it has. ``rnr_timer``: code, if all are
    taken."""
    dest, psn, nonce = connect.channel, connect.psn, connect.nonce
    if context is None:
        busy = rnr_timer if finding is Finding.BUSY else 0
        return Reply(dest, psn, nonce, finding.status, rnr_timer=busy)
    return Reply(
        dest,
        psn,
        nonce,
        finding.status,
        depth=context.depth,
        context=context.number,
        keep=context.keep,
    )


def end(packet: Disconnect, peer: Peer, context: Context | None) -> tuple[bool, DisconnectAck]:
    """Whether a DISCONNECT ends the context whose number it names, and the answer to it. One from
    somebody else, or of another connection, ends nothing."""
    ends = (
        context is not None
        and context.number == packet.dest
        and context.peer.gid == peer.gid
        and (context.channel, context.nonce) == (packet.number, packet.nonce)
    )
    status = EndStatus.CLOSED if ends else EndStatus.UNKNOWN
    return ends, DisconnectAck(packet.number, packet.psn, packet.dest, packet.nonce, status)


@dataclass(frozen=True)
class Dead:
    """A context that has sent a fatal NAK, and says so again, ever more seldom, until it goes: the
    NAK may have been lost. ``due``: when, ns."""

    due: int
    pause: int = FIRST_PAUSE

    def again(self, now: int) -> Dead:
        """Said so now."""
        return Dead(now + 2 * self.pause, 2 * self.pause)


class RefusalLimit:
    """At most ``most`` replies that refuse within a second; beyond it there is silence, so that
    nobody learns keys by trying."""

    def __init__(self, most: int = 1000):
        self._most, self._began, self._count = most, 0, 0

    def allows(self, now: int) -> bool:
        """Whether one more may go out at ``now``, ns."""
        if now - self._began >= 1_000_000_000:
            self._began, self._count = now, 0
        self._count += 1
        return self._count <= self._most
