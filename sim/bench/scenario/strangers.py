"""Hostile frames: what somebody else on the network sends to a queue pair that is in use.

Those of ``HARMLESS`` must change nothing. Those of ``HARMFUL`` come from somebody who knows the
addresses, the QPN and the range of PSNs; a connection may end by them, but no other may suffer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hdl.wire.opcodes import Operation
from sim.wire.packets import build

__all__ = ["FUTURE", "HARMFUL", "HARMLESS", "Target", "frame"]

#: Requests with a payload and no further header, with RETH, and READ responses with and without
#: AETH, by the low bits of their opcodes.
_SENDS = (Operation.SEND_FIRST, Operation.SEND_MIDDLE, Operation.SEND_LAST, Operation.SEND_ONLY)
_WRITES = (Operation.WRITE_FIRST, Operation.WRITE_ONLY)
_RESPONSES = (Operation.READ_RESP_FIRST, Operation.READ_RESP_LAST, Operation.READ_RESP_ONLY)
_UC, _UD = 1 << 5, 3 << 5
#: An ACK without end-to-end credits, NAKs, and an RNR NAK.
_ACK, _NAKS, _RNR = 0x1F, (0x60, 0x61, 0x62, 0x63), 0x21
#: Ethernet, IPv4, UDP, BTH.
_BEHIND_BTH = 14 + 20 + 8 + 12


@dataclass(frozen=True)
class Target:
    """The end of a connection that a frame is for, and who its peer is.

    ``expects``: the first PSN of what the peer sends. ``sent``: the first PSN of what it sends.
    ``used``: PSNs from these on that a direction uses. ``rkey`` and ``va`` are of a region that the
    peer may write.
    """

    qpn: int
    expects: int
    sent: int
    mtu: int
    rkey: int
    va: int
    route: dict[str, Any]
    used: int = 30

    def packet(self, opcode: int, psn: int, payload: bytes = b"", **fields: Any) -> bytes:
        """A good packet of the peer."""
        place: dict[str, Any] = {**self.route, **fields}
        return build(opcode, dest_qp=self.qpn, psn=psn & 0xFFFFFF, payload=payload, **place)

    def request(self, rng: random.Random, psn: int) -> bytes:
        """A SEND or a WRITE."""
        operation = rng.choice((*_SENDS, *_WRITES))
        reth = {"va": self.va, "rkey": self.rkey, "dma_length": self.mtu}
        more = reth if operation in _WRITES else {}
        return self.packet(operation, psn, rng.randbytes(self.mtu), ackreq=1, **more)


def _future(target: Target, rng: random.Random) -> int:
    """A PSN that the end never sends: the next ones as likely as those far behind."""
    return target.sent + target.used - 1 + int(2 ** rng.uniform(0, 22))


def _old(rng: random.Random, psn: int) -> int:
    """A PSN from before the connection."""
    return psn - rng.randrange(1, 1000)


def _near(target: Target, rng: random.Random, psn: int) -> int:
    """A PSN that the connection may use."""
    return psn + rng.randrange(0, max(30, target.used))


def _answer(target: Target, syndrome: int, psn: int) -> bytes:
    return target.packet(Operation.ACKNOWLEDGE, psn, syndrome=syndrome, msn=1)


def _response(target: Target, rng: random.Random, psn: int) -> bytes:
    operation = rng.choice(_RESPONSES)
    return target.packet(operation, psn, rng.randbytes(target.mtu), syndrome=_ACK, msn=1)


def _damaged(target: Target, rng: random.Random) -> bytes:
    """One bit behind the BTH is wrong, the ICRC as before."""
    good = bytearray(target.request(rng, _near(target, rng, target.expects)))
    good[rng.randrange(_BEHIND_BTH, len(good))] ^= 1 << rng.randrange(8)
    return bytes(good)


def _truncated(target: Target, rng: random.Random) -> bytes:
    good = target.request(rng, _near(target, rng, target.expects))
    return good[: rng.randrange(15, len(good))]


def _other_service(target: Target, rng: random.Random) -> bytes:
    """An unreliable datagram or connection, to a QP of a reliable one."""
    if rng.random() < 0.5:
        return target.packet(
            _UD | Operation.SEND_ONLY, _near(target, rng, target.expects), bytes(64)
        )
    return target.packet(_UC | Operation.SEND_ONLY, _near(target, rng, target.expects), bytes(64))


Maker = Callable[[Target, random.Random], bytes]
_HARMLESS: dict[str, Maker] = {
    "wrong MAC": lambda t, r: t.packet(
        Operation.SEND_ONLY, _near(t, r, t.expects), bytes(9), dst_mac=bytes((2, 9, 9, 9, 9, 9))
    ),
    "wrong source": lambda t, r: t.packet(
        Operation.SEND_ONLY,
        _near(t, r, t.expects),
        bytes(9),
        src_gid=bytes(10) + b"\xff\xff" + bytes((10, 9, 9, r.randrange(1, 255))),
    ),
    "no such QP": lambda t, r: build(
        Operation.SEND_ONLY, dest_qp=t.qpn ^ (1 + r.randrange(200) << 14), psn=t.expects, **t.route
    ),
    "wrong P_Key": lambda t, r: t.packet(
        Operation.SEND_ONLY, _near(t, r, t.expects), bytes(9), pkey=0x1234
    ),
    "damaged": _damaged,
    "truncated": _truncated,
    "noise": lambda t, r: r.randbytes(r.randrange(60, 400)),
    "other service": _other_service,
    "reserved opcode": lambda t, r: t.packet(0x1F, _near(t, r, t.expects), bytes(8)),
    "stale ACK": lambda t, r: _answer(t, _ACK, _old(r, t.sent)),
    "stale NAK": lambda t, r: _answer(t, r.choice(_NAKS), _old(r, t.sent)),
    "stale RNR NAK": lambda t, r: _answer(t, _RNR, _old(r, t.sent)),
    "stale READ response": lambda t, r: _response(t, r, _old(r, t.sent)),
    "ACK from the future": lambda t, r: _answer(t, _ACK, _future(t, r)),
    "NAK from the future": lambda t, r: _answer(t, r.choice(_NAKS), _future(t, r)),
    "RNR NAK from the future": lambda t, r: _answer(t, _RNR, _future(t, r)),
    "READ response from the future": lambda t, r: _response(t, r, _future(t, r)),
    "stale request": lambda t, r: t.request(r, _old(r, t.expects)),
    "stale READ": lambda t, r: t.packet(
        Operation.READ_REQUEST, _old(r, t.expects), va=t.va, rkey=t.rkey, dma_length=64
    ),
}
_HARMFUL: dict[str, Maker] = {
    "ghost ACK": lambda t, r: _answer(t, _ACK, _near(t, r, t.sent)),
    "ghost NAK": lambda t, r: _answer(t, r.choice(_NAKS), _near(t, r, t.sent)),
    "ghost RNR NAK": lambda t, r: _answer(t, _RNR, _near(t, r, t.sent)),
    "ghost READ response": lambda t, r: _response(t, r, _near(t, r, t.sent)),
    "request out of order": lambda t, r: t.request(r, _near(t, r, t.expects)),
    "READ of everything": lambda t, r: t.packet(
        Operation.READ_REQUEST, _near(t, r, t.expects), va=t.va, rkey=t.rkey, dma_length=1 << 31
    ),
}
HARMLESS = tuple(_HARMLESS)
HARMFUL = tuple(_HARMFUL)
#: Of the harmless ones: answers to what was never sent.
FUTURE = tuple(kind for kind in _HARMLESS if kind.endswith("from the future"))


def frame(kind: str, target: Target, seed: int) -> bytes:
    """Return a frame of that kind to ``target``; the same seed gives the same one."""
    return (_HARMLESS | _HARMFUL)[kind](target, random.Random(seed))
