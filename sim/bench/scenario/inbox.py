"""What one end of UC or UD receives: nothing is promised, so what does come is looked up.

A delivery must be a message that was sent: whole, in order, and once unless the network changes
the order or duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hdl.abi.enums import WcFlags, WcOpcode, WcStatus
from hdl.abi.virtio_rdma import GRH_SIZE
from sim.bench.scenario.ledger import Book, Place, Sent, State, immediate
from sim.bench.scenario.plan import SENDS, Wrong
from sim.guest.driver.platform import Octets
from sim.guest.verbs import WC

__all__ = ["Inbox", "Landing", "check_grh"]

#: Of an IPv4 header in a GRH area: where it begins, its length, its protocol.
_IPV4_AT, _IPV4_BYTES, _UDP = 20, 20, 17
#: UDP, BTH, DETH and ICRC of a datagram; its immediate.
_AROUND, _IMMEDIATE = 8 + 12 + 8 + 4, 4


@dataclass(eq=False)
class Landing:
    """A receive request that any message may take. ``at``: when it was posted, ns."""

    inbox: Inbox
    wr_id: int
    place: Place
    at: int | None = None
    status: WcStatus | None = None


@dataclass(eq=False)
class Inbox:
    """The receives of one end. ``book`` is its own, ``sends`` what the peer's has posted.

    ``grh``: its messages lie behind a GRH area, of packets between the addresses ``route`` (source,
    destination). ``ordered``, ``unique``: the network leaves order and number as they are.
    ``peer``: number of the QP that sends.
    """

    book: Book
    sends: list[Sent]
    grh: bool
    ordered: bool
    unique: bool
    route: tuple[bytes, bytes] = (b"", b"")
    peer: int = 0
    landings: list[Landing] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    _next: int = 0

    def received(self, landing: Landing, wc: WC) -> None:
        """A receive of this end has completed."""
        what = f"{self.book.where}: receive {landing.wr_id}"
        assert landing.status is None, f"{what} completes twice"
        assert self.landings.index(landing) == self._next, f"{what} is out of order"
        self._next += 1
        landing.status = wc.status
        self.judge(wc, landing.place, what)
        landing.place.state = State.EMPTY

    def judge(self, wc: WC, place: Place, what: str) -> None:
        """A request with ``place`` has come back, which is then put back to what it was."""
        assert not self.book.closed, f"{what} completes after its QP was dropped: {wc.status.name}"
        found = place.read()
        if wc.status == WcStatus.SUCCESS:
            self._delivery(wc, found, place.empty, what)
        else:
            reason = self.book.failed is not None or self.book.reasons.keys() & {"ERR", "dropped"}
            assert reason and wc.status == WcStatus.WR_FLUSH_ERR, f"{what}: {wc.status.name}"
            self._leftover(found, place.empty, 0, what)
        ((at, _),) = place.pieces
        place.region.write(place.empty, at)

    def _delivery(self, wc: WC, found: Octets, empty: Octets, what: str) -> None:
        front = GRH_SIZE if self.grh else 0
        length = wc.byte_len - front
        choices = [n for n, sent in enumerate(self.sends) if self._is(sent, wc, length, found)]
        assert choices, f"{what}: nobody has sent what came: {wc}"
        fresh = [n for n in choices if n not in self.delivered]
        assert fresh or not self.unique, f"{what}: request {choices[0]} comes twice"
        if self.ordered:
            first = max(self.delivered, default=-1)
            choices = [n for n in choices if n > first or (n == first and not self.unique)]
            assert choices, f"{what}: comes behind request {first}: {wc}"
        elif fresh:
            choices = fresh
        number = choices[0]
        self.delivered.append(number)
        assert self.sends[number].at > 0, f"{what}: request {number} was not posted yet"
        assert wc.src_qp == self.peer, f"{what}: from QP {wc.src_qp:#x}, not {self.peer:#x}"
        assert bool(wc.wc_flags & WcFlags.GRH) == self.grh, f"{what}: {wc.wc_flags!r}"
        if self.grh:
            marked = bool(wc.wc_flags & WcFlags.WITH_IMM)
            check_grh(found[:front].tobytes(), self.route, length + _IMMEDIATE * marked, what)
        behind = front + length if self.sends[number].message.opcode in SENDS else 0
        self._leftover(found, empty, behind, what)

    def _is(self, sent: Sent, wc: WC, length: int, found: Octets) -> bool:
        """Whether a message can be what has come."""
        message = sent.message
        sends = message.opcode in SENDS
        if not message.taker or message.wrong != Wrong.NOTHING or message.length != length:
            return False
        if wc.opcode != (WcOpcode.RECV if sends else WcOpcode.RECV_RDMA_WITH_IMM):
            return False
        if message.marked != bool(wc.wc_flags & WcFlags.WITH_IMM):
            return False
        if message.marked and wc.imm_data != immediate(sent.wr_id):
            return False
        at = GRH_SIZE if self.grh else 0
        came = found[at : at + length] if sends else sent.sink.read()
        return np.array_equal(came, sent.sink.full)

    def _leftover(self, found: Octets, empty: Octets, start: int, what: str) -> None:
        """Behind ``start``: as before, or of a message that was broken off (docs/receive.md)."""
        good = found == empty
        good[:start] = True
        for sent in self.sends:
            if sent.message.opcode in SENDS and not self.grh:
                full = sent.sink.full[: len(found)]
                good[: len(full)] |= found[: len(full)] == full
        assert good.all(), f"{what}: {int((~good).sum())} bytes are nobody's"

    def closed(self) -> None:
        """The QP has gone: what is in its requests now stays."""
        for landing in self.landings:
            if landing.at is not None and landing.status is None:
                what = f"{self.book.where}: receive {landing.wr_id}"
                self._leftover(landing.place.read(), landing.place.empty, 0, what)
                landing.place.empty = landing.place.read()
                landing.place.state = State.EMPTY

    def settled(self, *, sure: bool) -> None:
        """Nothing moves any more. ``sure``: nothing can have been lost."""
        if not sure:
            return
        good = [n for n, one in enumerate(self.sends) if one.message.wrong == Wrong.NOTHING]
        takers = [n for n in good if self.sends[n].message.taker]
        assert self.delivered == takers, (
            f"{self.book.where}: of {takers} came {self.delivered} on a good network"
        )
        for number in good:
            sent = self.sends[number]
            if sent.message.opcode not in SENDS:
                arrived = np.array_equal(sent.sink.read(), sent.sink.full)
                assert arrived, f"{self.book.where}: {sent} is not there on a good network"


def check_grh(area: bytes, route: Sequence[bytes], length: int, what: str) -> None:
    """Fail unless a GRH area is that of a datagram over IPv4 with ``length`` bytes (VR-5.23)."""
    header = area[_IPV4_AT:]
    assert not any(area[:_IPV4_AT]) and header[0] == 0x45, f"{what}: GRH {area.hex()}"
    total = _IPV4_BYTES + _AROUND + length + -length % 4
    assert int.from_bytes(header[2:4], "big") == total, f"{what}: length in {area.hex()}"
    assert header[9] == _UDP, f"{what}: protocol in {area.hex()}"
    ends = header[12:16], header[16:20]
    assert ends == (route[0][-4:], route[1][-4:]), f"{what}: addresses in {area.hex()}"
    words = sum(int.from_bytes(header[n : n + 2], "big") for n in range(0, _IPV4_BYTES, 2))
    assert (words & 0xFFFF) + (words >> 16) == 0xFFFF, f"{what}: checksum in {area.hex()}"
