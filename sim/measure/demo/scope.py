"""What the demonstration asks of a card: no more than the card's first function has.

Each part of it makes its objects in ``setting_up`` and closes them there, so that one queue pair
and one region at a time are enough.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property

from hdl.abi.enums import Access, Mtu, QpType
from hdl.abi.virtio_rdma import FIRST_USER_QP_INDEX
from hdl.config import CardFeature, NicConfig
from sim.bench.system import QpOptions, System
from sim.guest.verbs import QPCap
from sim.guest.verbs.context import Resource

__all__ = ["PACKETS", "Crowd", "Scope", "close", "lacking", "patience_ns", "setting_up"]

#: Bytes of a host's memory, of which the simulated guest gives half to regions.
MEMORY = 256 << 20
#: Entries of a send queue, a receive queue and a completion queue.
REQUESTS, COMPLETIONS = 64, 256
#: Packets of one row of the table at most.
PACKETS = 1024
#: Outstanding READs of a queue pair.
READS = 4
#: What the recorded hosts have used beside RC: features, and numbers of which a card needs as many
#: as the default one has.
_RECORDED = (
    CardFeature.UC,
    CardFeature.UD,
    CardFeature.ATOMICS,
    CardFeature.FAST_REGISTRATION,
    CardFeature.IPV6,
)
_RECORDED_SIZES = (
    "qps",
    "cqs",
    "mrs",
    "gids",
    "queue_size",
    "address_bits",
    "mtu",
    "max_sge",
    "max_inline",
    "read_resources",
    "max_rd_atomic",
)


@dataclass(frozen=True)
class Crowd:
    """``qps`` queue pairs on ``cqs`` completion queues of each card; each has ``at_once`` requests
    of its own at a time, and as many of its peer."""

    qps: int
    cqs: int
    at_once: int


@dataclass(frozen=True)
class Scope:
    """The demonstration on a card of ``config``."""

    config: NicConfig

    @cached_property
    def card(self) -> NicConfig:
        """What the first function of the card has."""
        return self.config.guest

    @cached_property
    def memory(self) -> int:
        """Bytes of a host's memory: the card must have an address for each."""
        return min(MEMORY, 1 << self.card.address_bits)

    @cached_property
    def depth(self) -> int:
        """Requests of a queue pair that are outstanding at most."""
        return min(REQUESTS, self.card.queue_size)

    @cached_property
    def completions(self) -> int:
        """Entries of a completion queue."""
        return min(COMPLETIONS, self.card.queue_size)

    @cached_property
    def sges(self) -> int:
        """SGEs of a request, of those that have more than one."""
        return min(2, self.card.max_sge)

    def messages(self, size: int, count: int) -> int:
        """How many of ``count`` messages of ``size`` bytes back to back are not more than
        ``PACKETS`` packets: a card with short ones would take minutes for each row."""
        return min(count, PACKETS * self.card.mtu // size)

    def options(
        self,
        timeout: int,
        *,
        kind: QpType = QpType.RC,
        mtu: int = 4096,
        qps: int = 1,
        access: Access = QpOptions.access,
        qkey: int = 0,
    ) -> QpOptions:
        """Options of one of ``qps`` pairs of queues; ``mtu`` bytes, if the card takes so many."""
        card = self.card
        cap = QPCap(
            max_send_wr=self.depth,
            max_recv_wr=self.depth,
            max_send_sge=card.max_sge,
            max_recv_sge=card.max_sge,
            max_inline_data=min(256, card.max_inline),
        )
        return QpOptions(
            type=kind,
            cap=cap,
            mtu=Mtu[f"MTU_{min(mtu, card.mtu)}"],
            max_rd_atomic=min(READS, card.max_rd_atomic, card.read_resources // qps),
            timeout=timeout,
            access=access,
            qkey=qkey,
        )

    def crowd(self, qps: int, cqs: int, requests: int, area: int) -> Crowd:
        """As many of ``qps`` pairs and ``cqs`` completion queues as the card has; ``requests`` of
        each side of a pair, which take ``area`` bytes of each host."""
        card = self.card
        cqs = min(cqs, card.cqs)
        room = self.memory // 4 // (2 * area)  # half of the pages
        pairs = min(qps, card.qps - FIRST_USER_QP_INDEX, card.read_resources, room)
        pairs = min(pairs, cqs * self.completions // 2)  # a send and a receive each
        cqs = min(cqs, pairs)
        sharing = -(-pairs // cqs)
        return Crowd(pairs, cqs, min(requests, self.depth, self.completions // (2 * sharing)))


def lacking(config: NicConfig) -> str:
    """Why recorded Linux traffic cannot be played on such a card; empty if it can."""
    usual, card = NicConfig(), config.guest
    missing = [feature.value for feature in _RECORDED if feature not in card.features]
    fewer = [name for name in _RECORDED_SIZES if getattr(card, name) < getattr(usual, name)]
    parts = [f"no {', '.join(missing)}"] * bool(missing)
    parts += [f"{', '.join(fewer)} below the default card's"] * bool(fewer)
    return " and ".join(parts)


def patience_ns(octets: int) -> int:
    """How long ``octets`` may take, ns: 5 ms, and longer at less than 0.1 Gb/s."""
    return 5_000_000 + 80 * octets


@asynccontextmanager
async def setting_up(system: System) -> AsyncIterator[None]:
    """Objects are made and closed inside: the firmware runs there and nowhere else, and register
    accesses take no time."""
    for node in system.nodes:
        node.start_firmware()
        node.host.set(mmio_latency_ns=0)
    yield
    system.stop_firmware()
    for node in system.nodes:
        node.host.set()


async def close(system: System, resources: Sequence[Resource]) -> None:
    """Close objects of either card, in this order."""
    async with setting_up(system):
        for one in resources:
            await one.close()
