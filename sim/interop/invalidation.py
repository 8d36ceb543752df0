"""Keys that end: invalidated by the peer's SEND, or by the side that gave them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sim.interop.parties import RIGHTS, Connection, ConnectionOptions, Party, Region
from sim.interop.traffic import Mismatch, Tally, completions

__all__ = ["invalidated"]

_BYTES = 5000
#: wr_ids: each request and receive has its own.
_OPEN, _WRITE, _SEND, _RECEIVE, _END, _LATE = range(1, 7)


@dataclass(frozen=True)
class _Window:
    """A key to ``region`` that can be invalidated; ``mw``: the memory window that has it."""

    region: Region
    rkey: int
    mw: int | None


def invalidated(parties: tuple[Party, Party], tally: Tally) -> None:
    """A WRITE by a key, the end of the key, another WRITE, which must be refused; both ways.

    The key is ended by SEND_WITH_INV of the side that has written, then by LOCAL_INV of the other
    one, then by RDMA_READ_WITH_INV of the other one, which Linux has not for user programs. Linux
    lets them end keys of memory windows only, the card those of regions that are registered by work
    requests. Raises Mismatch.
    """
    for source in (0, 1):
        ends = [_end_by_send, _end_locally]
        ends += [] if parties[1 - source].linux else [_end_by_read]
        for end in ends:
            connection = Connection.open(parties, ConnectionOptions())
            _case(connection, source, end, tally)
            connection.close()


def _case(connection: Connection, source: int, end: Any, tally: Tally) -> None:
    requester = connection.parties[source]
    window = _open(connection, 1 - source)
    local = Region.register(requester, _BYTES)
    first, second = bytes([0x5A]) * _BYTES, bytes([0xA5]) * _BYTES
    local.write(first)
    _write(connection, source, local, window, _WRITE)
    _expect(requester, _WRITE, opcode="RDMA_WRITE")
    end(connection, source, local, window)
    local.write(second)
    _write(connection, source, local, window, _LATE)
    _expect(requester, _LATE, status="REM_ACCESS_ERR")
    if window.region.read() != first:
        raise Mismatch(f"{window.region.party.name}: memory is not what the first WRITE has left")
    owner = window.region.party
    if window.mw is not None:
        owner.client.call("dealloc_mw", mw=window.mw)
    for region in (local, window.region):
        region.party.client.call("dereg_mr", mr=region.mr)
    tally.messages += 3
    tally.bytes_verified += _BYTES


def _open(connection: Connection, index: int) -> _Window:
    """A new key of a party, opened by a request of its own queue pair."""
    party, qp = connection.parties[index], connection.qps[index]
    call = party.client.call
    if party.linux:
        region = Region.register(party, _BYTES, [*RIGHTS, "MW_BIND"])
        mw = call("alloc_mw")["mw"]
        request: dict[str, Any] = {"opcode": "BIND_MW", "mw": mw, "access": ["REMOTE_WRITE"]}
    else:
        found = call("reg_mr", length=_BYTES, access=list(RIGHTS), fast=True)
        region = Region(party, found["mr"], found["addr"], found["rkey"], _BYTES)
        mw, request = None, {"opcode": "REG_MR", "access": list(RIGHTS)}
    rkey = call("post_send", qp=qp, wr_id=_OPEN, mr=region.mr, flags=["SIGNALED"], **request)
    _expect(party, _OPEN, opcode=request["opcode"])
    return _Window(region, rkey["rkey"], mw)


def _write(connection: Connection, source: int, local: Region, to: _Window, number: int) -> None:
    connection.parties[source].client.call(
        "post_send",
        qp=connection.qps[source],
        wr_id=number,
        opcode="RDMA_WRITE",
        sge=[[local.mr, 0, _BYTES]],
        flags=["SIGNALED"],
        remote_addr=to.region.addr,
        rkey=to.rkey,
    )


def _end_by_send(connection: Connection, source: int, local: Region, window: _Window) -> None:
    requester, owner = connection.parties[source], connection.parties[1 - source]
    owner.client.call("post_recv", qp=connection.qps[1 - source], wr_id=_RECEIVE, sge=[])
    requester.client.call(
        "post_send",
        qp=connection.qps[source],
        wr_id=_SEND,
        opcode="SEND_WITH_INV",
        sge=[],
        flags=["SIGNALED"],
        invalidate_rkey=window.rkey,
    )
    _expect(requester, _SEND, opcode="SEND")
    told: dict[str, Any] = (
        {} if owner.linux else {"flags": ["WITH_INV"], "invalidated_rkey": window.rkey}
    )
    _expect(owner, _RECEIVE, opcode="RECV", byte_len=0, **told)


def _end_locally(connection: Connection, source: int, local: Region, window: _Window) -> None:
    owner = connection.parties[1 - source]
    owner.client.call(
        "post_send",
        qp=connection.qps[1 - source],
        wr_id=_END,
        opcode="LOCAL_INV",
        sge=[],
        flags=["SIGNALED"],
        invalidate_rkey=window.rkey,
    )
    _expect(owner, _END, opcode="LOCAL_INV")


def _end_by_read(connection: Connection, source: int, local: Region, window: _Window) -> None:
    owner = connection.parties[1 - source]
    sink = Region.register(owner, _BYTES)
    owner.client.call(
        "post_send",
        qp=connection.qps[1 - source],
        wr_id=_END,
        opcode="RDMA_READ_WITH_INV",
        sge=[[sink.mr, 0, _BYTES]],
        flags=["SIGNALED"],
        remote_addr=local.addr,
        rkey=local.rkey,
        invalidate_rkey=window.rkey,
    )
    _expect(owner, _END, opcode="RDMA_READ")
    if sink.read() != local.read():
        raise Mismatch(f"{owner.name}: a READ that ends a key brings other bytes")
    owner.client.call("dereg_mr", mr=sink.mr)


def _expect(party: Party, number: int, *, status: str = "SUCCESS", **fields: Any) -> None:
    """The next completion of a party."""
    (wc,) = completions(party, 1)
    for name, value in {"wr_id": number, "status": status, **fields}.items():
        if wc[name] != value:
            raise Mismatch(f"{party.name}: {name} is {wc[name]}, not {value}: {wc}")
