"""The two sides of a scenario: memory, queue pairs and their connection, by one interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Client", "Connection", "ConnectionOptions", "Party", "Region"]

RIGHTS = ("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
#: What datagrams must know.
QKEY = 0x11223344
#: Requests that fit into each work queue.
DEPTH = 64
#: Pieces of a message's memory, at most.
SGES = 3


class Client(Protocol):
    """What endpoint and guest have in common. docs/endpoint.md has the operations."""

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """One request; its answer."""

    def write(self, mr: int, data: bytes, offset: int = 0) -> None:
        """Put bytes into a region."""

    def read(self, mr: int, length: int, offset: int = 0) -> bytes:
        """Bytes of a region."""


class Party:
    """One side: ``name`` for messages, its client, its addresses.

    tells_state: it can be asked for a queue pair's state (``query_qp``). linux: keys that can be
    invalidated are those of its memory windows (``alloc_mw``); user programs are not told of a key
    that the peer has ended; each receive has the flag GRH. ``timeout``: the code of its queue
    pairs' time-out, 0: they wait for ever. ``beside``: the other functions of its card.
    """

    timeout = 0
    beside: Sequence[Party] = ()

    def __init__(
        self,
        name: str,
        client: Client,
        *,
        tells_state: bool = False,
        linux: bool = False,
        depth: int = DEPTH,
        sges: int = SGES,
        rights: Sequence[str] = RIGHTS,
    ) -> None:
        self.name, self.client, self.tells_state = name, client, tells_state
        self.linux = linux
        self.depth, self.sges, self.rights = depth, sges, rights
        info = client.call("info")
        self.mac: str = info["mac"]
        self.gids: list[str] = info["gids"]

    def gid(self, ipv6: bool) -> str:
        """Its GID of a family, not a link-local one."""
        return next(
            gid
            for gid in self.gids
            if gid.startswith("::ffff:") != ipv6 and not gid.startswith("fe80:")
        )


@dataclass(frozen=True)
class Region:
    """A registered region of a party."""

    party: Party
    mr: int
    addr: int
    rkey: int
    length: int

    @classmethod
    def register(cls, party: Party, length: int, access: Sequence[str] | None = None) -> Region:
        """Memory of ``length`` bytes, with the party's rights unless ``access`` says otherwise."""
        rights = party.rights if access is None else access
        found = party.client.call("reg_mr", length=length, access=list(rights))
        return cls(party, found["mr"], found["addr"], found["rkey"], length)

    def read(self) -> bytes:
        """All of it."""
        return self.party.client.read(self.mr, self.length)

    def write(self, data: bytes) -> None:
        """Fill it from its beginning."""
        self.party.client.write(self.mr, data)


@dataclass(frozen=True)
class ConnectionOptions:
    """``psns``: first PSN of each party's requests. ``access``: of the queue pairs. ``kind``: their
    type. ``srqs``: numbers of the parties' shared receive queues, if they take from them."""

    mtu: int = 1024
    ipv6: bool = False
    psns: tuple[int, int] = (0x123456, 0x654321)
    access: Sequence[str] = RIGHTS
    max_rd_atomic: int = 4
    kind: str = "RC"
    srqs: tuple[int, int] | None = None


@dataclass
class Connection:
    """Two connected queue pairs, one of each party, in the parties' order."""

    parties: tuple[Party, Party]
    options: ConnectionOptions
    qps: list[int] = field(default_factory=list)
    qpns: list[int] = field(default_factory=list)

    @classmethod
    def open(cls, parties: tuple[Party, Party], options: ConnectionOptions) -> Connection:
        """Both ends in RTS, each with its party's time-out.

        Without time-outs what is lost is noticed by a scenario's deadline.
        """
        made = cls(parties, options)
        for i, party in enumerate(parties):
            found = party.client.call(
                "create_qp",
                type=options.kind,
                max_send_wr=party.depth,
                max_recv_wr=party.depth,
                sq_sig_all=True,
                **({"srq": options.srqs[i]} if options.srqs else {}),
            )
            made.qps.append(found["qp"])
            made.qpns.append(found["qpn"])
        for i, party in enumerate(parties):
            other = parties[1 - i]
            party.client.call(
                "connect",
                qp=made.qps[i],
                dest_qpn=made.qpns[1 - i],
                dest_gid=other.gid(options.ipv6),
                dest_mac=other.mac,
                rq_psn=options.psns[1 - i],
                sq_psn=options.psns[i],
                path_mtu=options.mtu,
                timeout=party.timeout,
                retry_cnt=7,
                rnr_retry=7,
                min_rnr_timer=12,
                max_rd_atomic=options.max_rd_atomic,
                max_dest_rd_atomic=options.max_rd_atomic,
                access=list(options.access),
                qkey=QKEY,
            )
        return made

    @property
    def mtu(self) -> int:
        """Path MTU in bytes."""
        return self.options.mtu

    @property
    def kind(self) -> str:
        """Type of its queue pairs."""
        return self.options.kind

    def gid(self, index: int) -> str:
        """The address of a party."""
        return self.parties[index].gid(self.options.ipv6)

    def way(self, source: int) -> dict[str, Any]:
        """What ``post_send`` of party ``source`` needs beside the message: where datagrams go."""
        if self.kind != "UD":
            return {}
        other = self.parties[1 - source]
        return {
            "ah": {
                "dest_gid": self.gid(1 - source),
                "dest_mac": other.mac,
                "dest_qpn": self.qpns[1 - source],
                "qkey": QKEY,
            }
        }

    def close(self) -> None:
        """Destroy both queue pairs."""
        for party, qp in zip(self.parties, self.qps, strict=True):
            party.client.call("destroy_qp", qp=qp)
