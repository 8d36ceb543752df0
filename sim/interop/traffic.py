"""Messages between the two parties, and what they must leave behind on both sides."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hdl.abi import grh
from sim.guest.verbs import gid_bytes
from sim.interop.operations import GRH_BYTES, Message
from sim.interop.parties import Connection, Party, Region

__all__ = ["Mismatch", "Tally", "completions", "exchange"]

#: Bytes that nothing may touch between two messages, at most; at least one.
_GAP = 67
#: Wall-clock time for the completions of one exchange, seconds.
_PATIENCE = 180.0


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
class _Placed:
    message: Message
    #: Offset of the data in each party's region.
    offsets: tuple[int, int]
    #: A random number of 64 bits: the immediate data, the operands of an atomic.
    chosen: int
    #: Bytes in front of what is received.
    head: int

    @property
    def imm(self) -> int:
        return self.chosen & 0xFFFFFFFF


def exchange(
    connections: Sequence[Connection], messages: Sequence[Message], seed: int, tally: Tally
) -> None:
    """Post all ``messages`` at once, in order, and compare everything with what must be.

    Completions: their number, order, status, opcode, length and immediate data. Memory: all bytes
    of all regions, also those between the messages. Raises Mismatch.
    The connections may have different parties on a side, as the functions of a card.
    """
    rng = random.Random(seed)
    parties = {one.parties[i]: i for one in connections for i in (0, 1)}
    placed, length = _place(connections, messages, rng)
    regions = {party: Region.register(party, length) for party in parties}
    images = {party: bytearray(rng.randbytes(length)) for party in parties}
    for party, region in regions.items():
        region.write(bytes(images[party]))
    _post(connections, placed, regions, images, rng)
    for party, i in parties.items():
        _check_completions(i, party, connections, placed)
    for one in placed:
        ends = connections[one.message.qp].parties
        _apply(one, [images[party] for party in ends])
    for party, i in parties.items():
        own = [one for one in placed if connections[one.message.qp].parties[i] is party]
        found = regions[party].read()
        for one in own:
            if one.head and one.message.source != i:
                _check_head(party, one, connections[one.message.qp], found, images[party])
        _compare(party, found, bytes(images[party]), own, i)
        party.client.call("dereg_mr", mr=regions[party].mr)
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


def _place(
    connections: Sequence[Connection], messages: Sequence[Message], rng: random.Random
) -> tuple[list[_Placed], int]:
    """Where each message's bytes are, at other offsets on each side; length of the regions."""
    ends = [0, 0]
    placed = []
    for message in messages:
        head = GRH_BYTES if connections[message.qp].kind == "UD" else 0
        starts = [end + head + rng.randint(1, _GAP) for end in ends]
        if message.atomic:  # its word must be aligned
            starts[1 - message.source] = -(-starts[1 - message.source] // 8) * 8
        ends = [start + message.size for start in starts]
        placed.append(_Placed(message, (starts[0], starts[1]), rng.getrandbits(64), head))
    return placed, max(ends) + _GAP


def _pieces(region: Region, offset: int, size: int, rng: random.Random) -> list[list[int]]:
    """An SGE list of a few pieces; none for no bytes."""
    mr = region.mr
    cuts = sorted(rng.randint(0, size) for _ in range(rng.randrange(region.party.sges)))
    edges = [0, *cuts, size]
    return [
        [mr, offset + begin, end - begin] for begin, end in itertools.pairwise(edges) if end > begin
    ]


def _post(
    connections: Sequence[Connection],
    placed: Sequence[_Placed],
    regions: Mapping[Party, Region],
    images: Mapping[Party, bytearray],
    rng: random.Random,
) -> None:
    """All receives, then all requests; the number of the message is the wr_id of both."""
    for number, one in enumerate(placed):
        message = one.message
        if message.operation.receives is not None:
            target = 1 - message.source
            wanted = not message.operation.address  # a WRITE brings its own address
            connection = connections[message.qp]
            party, offset = connection.parties[target], one.offsets[target] - one.head
            party.client.call(
                "post_recv",
                qp=connection.qps[target],
                wr_id=number,
                sge=_pieces(regions[party], offset, one.head + message.size, rng) if wanted else [],
            )
    for number, one in enumerate(placed):
        message = one.message
        connection = connections[message.qp]
        there = connection.parties[1 - message.source]
        source, remote = regions[connection.parties[message.source]], regions[there]
        place = one.offsets[message.source]
        more = connection.way(message.source)
        if message.operation.address:
            at = one.offsets[1 - message.source]
            more |= {"remote_addr": remote.addr + at, "rkey": remote.rkey}
            if message.atomic:
                word = bytes(images[there][at : at + message.size])
                more |= message.operands(word, one.chosen)
        if message.imm:
            more["imm"] = one.imm
        source.party.client.call(
            "post_send",
            qp=connection.qps[message.source],
            wr_id=number,
            opcode=message.opcode,
            sge=[[source.mr, place, message.size]]
            if message.atomic
            else _pieces(source, place, message.size, rng),
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
        if connections[one.message.qp].parties[index] is not party:
            continue
        if receiver and one.message.operation.receives is None:
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
        peer_qpn = connections[one.message.qp].qpns[1 - index]
        _check_completion(party, wc, number, one, peer_qpn if receiver else None)


def _check_completion(
    party: Party, wc: dict[str, Any], number: int, one: _Placed, peer_qpn: int | None
) -> None:
    """``peer_qpn``: of a completion of the receive queue."""
    message, operation = one.message, one.message.operation
    receiver = peer_qpn is not None
    expected: dict[str, Any] = {
        "wr_id": number,
        "opcode": operation.receives if receiver else operation.done,
    }
    if receiver or operation.fetches:
        expected["byte_len"] = one.head + message.size
    if one.head and receiver:
        expected["src_qp"] = peer_qpn
    if receiver and message.imm:
        expected["imm"] = one.imm
    if receiver:
        has_grh = bool(one.head) or party.linux
        expected["flags"] = ["GRH"] * has_grh + ["WITH_IMM"] * message.imm
    for name, value in expected.items():
        if wc[name] != value:
            raise Mismatch(f"{party.name}: {message}: {name} is {wc[name]}, not {value}")


def _apply(one: _Placed, images: Sequence[bytearray]) -> None:
    message = one.message
    begin, end = one.offsets[message.writer], one.offsets[1 - message.writer]
    data = images[message.writer][begin : begin + message.size]
    images[1 - message.writer][end : end + message.size] = data
    if message.atomic:
        changed = message.changed(bytes(data), one.chosen)
        images[message.writer][begin : begin + message.size] = changed


def _check_head(
    party: Party, one: _Placed, connection: Connection, found: bytes, image: bytearray
) -> None:
    """The GRH area of a datagram names both ends. The rest of it is the network's, and is taken."""
    end = one.offsets[1 - one.message.source]
    area = found[end - one.head : end]
    gids = tuple(gid_bytes(connection.gid(i)) for i in (one.message.source, 1 - one.message.source))
    try:
        ends = grh.ends(area)
    except ValueError as error:
        raise Mismatch(f"{party.name}: {one.message}: GRH: {error}") from None
    if ends != gids:
        raise Mismatch(f"{party.name}: {one.message}: GRH from and to {ends}, not {gids}")
    image[end - one.head : end] = area


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
