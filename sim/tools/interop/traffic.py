"""Messages between the two parties, and what they must leave behind on both sides."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.tools.interop.parties import Connection, Party, Region

__all__ = ["OPERATIONS", "Message", "Mismatch", "Tally", "completions", "exchange"]

#: Opcode of a request -> (its completion, the one that it makes at the other side or None).
OPERATIONS: dict[str, tuple[str, str | None]] = {
    "SEND": ("SEND", "RECV"),
    "SEND_WITH_IMM": ("SEND", "RECV"),
    "RDMA_WRITE": ("RDMA_WRITE", None),
    "RDMA_WRITE_WITH_IMM": ("RDMA_WRITE", "RECV_RDMA_WITH_IMM"),
    "RDMA_READ": ("RDMA_READ", None),
}
#: Bytes that nothing may touch between two messages, at most; at least one.
_GAP = 67
#: Wall-clock time for the completions of one exchange, seconds.
_PATIENCE = 180.0
#: Most pieces of a message's memory.
_PIECES = 3


class Mismatch(AssertionError):
    """A side did not do what the protocol or the other side says."""


@dataclass
class Tally:
    """What a scenario has done."""

    messages: int = 0
    bytes_verified: int = 0
    #: Request packets that each party needs for its messages when nothing is lost.
    requests: list[int] = field(default_factory=lambda: [0, 0])


@dataclass(frozen=True)
class Message:
    """``opcode`` posted by party ``source`` (0 or 1) on connection ``qp``, of ``size`` bytes."""

    opcode: str
    size: int
    source: int
    qp: int = 0

    def __str__(self) -> str:
        return f"{self.opcode} of {self.size} bytes on QP {self.qp}"

    @property
    def writer(self) -> int:
        """The party whose data travel."""
        return 1 - self.source if self.opcode == "RDMA_READ" else self.source

    def requests(self, mtu: int) -> int:
        """Request packets that it takes: of a READ one."""
        return 1 if self.opcode == "RDMA_READ" else max(1, -(-self.size // mtu))

    @property
    def imm(self) -> bool:
        """Whether it carries immediate data."""
        return self.opcode.endswith("_WITH_IMM")


@dataclass(frozen=True)
class _Placed:
    message: Message
    #: Offset in each party's region.
    offsets: tuple[int, int]
    imm: int


def exchange(
    connections: Sequence[Connection], messages: Sequence[Message], seed: int, tally: Tally
) -> None:
    """Post all ``messages`` at once, in order, and compare everything with what must be.

    Completions: their number, order, status, opcode, length and immediate data. Memory: all bytes
    of both regions, also those between the messages. Raises Mismatch.
    """
    rng = random.Random(seed)
    parties = connections[0].parties
    placed, length = _place(messages, rng)
    regions = [Region.register(party, length) for party in parties]
    images = [bytearray(rng.randbytes(length)) for _ in parties]
    for region, image in zip(regions, images, strict=True):
        region.write(bytes(image))
    _post(connections, placed, regions, rng)
    for i, party in enumerate(parties):
        _check_completions(i, party, connections, placed)
    for one in placed:
        _apply(one, images)
    for region, image, party in zip(regions, images, parties, strict=True):
        _compare(party, region.read(), bytes(image), placed, parties.index(party))
        party.client.call("dereg_mr", mr=region.mr)
    tally.messages += len(messages)
    tally.bytes_verified += sum(message.size for message in messages)
    for message in messages:
        tally.requests[message.source] += message.requests(connections[message.qp].mtu)


def completions(party: Party, count: int) -> list[dict[str, Any]]:
    """``count`` completions of a party; Mismatch when they have not come in time."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + _PATIENCE
    while len(found) < count and (left := deadline - time.monotonic()) > 0:
        wait = min(left, 10.0)
        found += party.client.call("poll", n=count - len(found), timeout_ms=int(1000 * wait))["wc"]
    if len(found) < count:
        raise Mismatch(f"{party.name}: {len(found)} of {count} completions after {_PATIENCE:g} s")
    return found


def _place(messages: Sequence[Message], rng: random.Random) -> tuple[list[_Placed], int]:
    """Where each message's bytes are, at other offsets on each side; length of the regions."""
    ends = [0, 0]
    placed = []
    for message in messages:
        offsets = tuple(end + rng.randint(1, _GAP) for end in ends)
        ends = [offset + message.size for offset in offsets]
        placed.append(_Placed(message, (offsets[0], offsets[1]), rng.getrandbits(32)))
    return placed, max(ends) + _GAP


def _pieces(mr: int, offset: int, size: int, rng: random.Random) -> list[list[int]]:
    """An SGE list of a few pieces; none for no bytes."""
    cuts = sorted(rng.randint(0, size) for _ in range(rng.randrange(_PIECES)))
    edges = [0, *cuts, size]
    return [
        [mr, offset + begin, end - begin] for begin, end in itertools.pairwise(edges) if end > begin
    ]


def _post(
    connections: Sequence[Connection],
    placed: Sequence[_Placed],
    regions: Sequence[Region],
    rng: random.Random,
) -> None:
    """All receives, then all requests; the number of the message is the wr_id of both."""
    for number, one in enumerate(placed):
        message = one.message
        if OPERATIONS[message.opcode][1] is not None:
            target = 1 - message.source
            wanted = not message.opcode.startswith("RDMA_")  # a WRITE brings its own address
            connection = connections[message.qp]
            offset, mr = one.offsets[target], regions[target].mr
            connection.parties[target].client.call(
                "post_recv",
                qp=connection.qps[target],
                wr_id=number,
                sge=_pieces(mr, offset, message.size, rng) if wanted else [],
            )
    for number, one in enumerate(placed):
        message = one.message
        source, remote = regions[message.source], regions[1 - message.source]
        more: dict[str, int] = {}
        if message.opcode.startswith("RDMA_"):
            more = {
                "remote_addr": remote.addr + one.offsets[1 - message.source],
                "rkey": remote.rkey,
            }
        if message.imm:
            more["imm"] = one.imm
        connection = connections[message.qp]
        source.party.client.call(
            "post_send",
            qp=connection.qps[message.source],
            wr_id=number,
            opcode=message.opcode,
            sge=_pieces(source.mr, one.offsets[message.source], message.size, rng),
            flags=["SIGNALED"],
            **more,
        )


def _check_completions(
    index: int, party: Party, connections: Sequence[Connection], placed: Sequence[_Placed]
) -> None:
    """What one party finds in its completion queue."""
    wanted: dict[tuple[int, bool], list[tuple[int, _Placed]]] = {}
    for number, one in enumerate(placed):
        receiver = one.message.source != index
        if receiver and OPERATIONS[one.message.opcode][1] is None:
            continue
        qpn = connections[one.message.qp].qpns[index]
        wanted.setdefault((qpn, receiver), []).append((number, one))
    for wc in completions(party, sum(map(len, wanted.values()))):
        if wc["status"] != "SUCCESS":
            raise Mismatch(f"{party.name}: {placed[wc['wr_id']].message} ended with {wc['status']}")
        receiver = wc["opcode"] in ("RECV", "RECV_RDMA_WITH_IMM")
        queue = wanted.get((wc["qp_num"], receiver))
        if not queue:
            raise Mismatch(f"{party.name}: a completion that nothing asked for: {wc}")
        number, one = queue.pop(0)
        _check_completion(party, wc, number, one, receiver)


def _check_completion(
    party: Party, wc: dict[str, Any], number: int, one: _Placed, receiver: bool
) -> None:
    message = one.message
    expected: dict[str, Any] = {
        "wr_id": number,
        "opcode": OPERATIONS[message.opcode][receiver],
    }
    if receiver or message.opcode == "RDMA_READ":
        expected["byte_len"] = message.size
    if receiver and message.imm:
        expected["imm"] = one.imm
    if receiver:
        expected["flags"] = ["WITH_IMM"] if message.imm else []
    for name, value in expected.items():
        if wc[name] != value:
            raise Mismatch(f"{party.name}: {message}: {name} is {wc[name]}, not {value}")


def _apply(one: _Placed, images: Sequence[bytearray]) -> None:
    message = one.message
    begin, end = one.offsets[message.writer], one.offsets[1 - message.writer]
    data = images[message.writer][begin : begin + message.size]
    images[1 - message.writer][end : end + message.size] = data


def _compare(
    party: Party, found: bytes, wanted: bytes, placed: Sequence[_Placed], index: int
) -> None:
    if found == wanted:
        return
    at = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
    for one in placed:
        offset = at - one.offsets[index]
        if 0 <= offset < one.message.size:
            raise Mismatch(f"{party.name}: {one.message}: byte {offset} differs")
    raise Mismatch(f"{party.name}: a byte outside the messages has changed (offset {at})")
