"""Requests that the other side must refuse, and what both sides must make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.interop.operations import Message
from sim.interop.parties import RIGHTS, Connection, ConnectionOptions, Party, Region
from sim.interop.traffic import Mismatch, Tally, completions, exchange

__all__ = ["REFUSALS", "Refusal", "refused"]

#: Bytes of a region, of a message in it (several packets), and the place of the good one.
_REGION, _SIZE, _PLACE = 16384, 5000, 100
_MTU = 1024


@dataclass(frozen=True)
class Refusal:
    """``rights`` of the remote region; ``key`` and ``shift`` are added to the good key and address.

    status: what the request completes with at its sender.
    """

    name: str
    what: str
    rights: Sequence[str] = RIGHTS
    key: int = 0
    shift: int = 0
    status: str = "REM_ACCESS_ERR"
    opcodes: tuple[str, ...] = ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ")


REFUSALS = (
    Refusal("bad-rkey", "a key that was never given out, both ways", key=0x5A),
    Refusal(
        "out-of-range",
        "a message that ends a byte behind the region, both ways",
        shift=_REGION - _PLACE - _SIZE + 1,
    ),
    Refusal(
        "no-permission",
        "a region without the right that the operation needs, both ways",
        rights=("LOCAL_WRITE",),
    ),
)


def refused(
    parties: tuple[Party, Party],
    source: int,
    opcode: str,
    refusal: Refusal,
    tally: Tally,
) -> None:
    """Good messages, then a request that is refused, with another one behind it. Raises Mismatch.

    The first ends with the refusal's status, the second and all receives of both sides are
    flushed; both queue pairs are in the error state; no byte changes on either side.
    """
    connection = Connection.open(parties, ConnectionOptions(mtu=_MTU))
    good = [Message(opcode, _SIZE, one) for one in (0, 1)]
    exchange([connection], good, seed=source, tally=tally)
    requester, responder = parties[source], parties[1 - source]
    local = Region.register(requester, _REGION)
    remote = Region.register(responder, _REGION, refusal.rights)
    images = {local: bytes([0x11]) * _REGION, remote: bytes([0x22]) * _REGION}
    for region, image in images.items():
        region.write(image)
    for number in (10, 11):
        _receive(connection, 1 - source, remote, number)
    _receive(connection, source, local, 12)
    wrong = {"rkey": remote.rkey ^ refusal.key, "remote_addr": remote.addr + _PLACE + refusal.shift}
    right = {"rkey": remote.rkey, "remote_addr": remote.addr}
    for number, target in ((1, wrong), (2, right)):
        requester.client.call(
            "post_send",
            qp=connection.qps[source],
            wr_id=number,
            opcode=opcode,
            sge=[[local.mr, _PLACE, _SIZE]],
            flags=["SIGNALED"],
            **target,
        )
    _expect(requester, {1: refusal.status, 2: "WR_FLUSH_ERR", 12: "WR_FLUSH_ERR"}, opcode)
    _expect(responder, {10: "WR_FLUSH_ERR", 11: "WR_FLUSH_ERR"}, opcode)
    _expect_error_state(connection, source, local, opcode)
    _expect_error_state(connection, 1 - source, remote, opcode)
    for region, image in images.items():
        if region.read() != image:
            raise Mismatch(f"{region.party.name}: memory has changed by a refused {opcode}")
        region.party.client.call("dereg_mr", mr=region.mr)
    connection.close()
    tally.messages += 2


def _receive(connection: Connection, index: int, region: Region, number: int) -> None:
    connection.parties[index].client.call(
        "post_recv", qp=connection.qps[index], wr_id=number, sge=[[region.mr, 0, _SIZE]]
    )


def _expect_error_state(connection: Connection, index: int, region: Region, opcode: str) -> None:
    """By the state that a side tells, or else because what is posted now is flushed as well.

    (The guest's driver flushes a receive posted that late only with the next packet.)
    """
    party = connection.parties[index]
    if party.tells_state:
        state = party.client.call("query_qp", qp=connection.qps[index])["state"]
        if state != "ERR":
            raise Mismatch(f"{party.name}: after a refused {opcode} its QP is in {state}, not ERR")
    else:
        _receive(connection, index, region, 20)
        _expect(party, {20: "WR_FLUSH_ERR"}, opcode)


def _expect(party: Party, wanted: dict[int, str], opcode: str) -> None:
    """Completions with these statuses, one each; those of requests (below 10) in order."""
    found: list[dict[str, Any]] = completions(party, len(wanted))
    got = {wc["wr_id"]: wc["status"] for wc in found}
    if got != wanted:
        raise Mismatch(f"{party.name}: a refused {opcode}: completions {got}, not {wanted}")
    order = [wc["wr_id"] for wc in found if wc["wr_id"] < 10]
    if order != sorted(order):
        raise Mismatch(f"{party.name}: a refused {opcode}: completed in the order {order}")
