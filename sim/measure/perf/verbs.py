"""What ``perf`` measures: a row for each operation."""

from __future__ import annotations

from dataclasses import dataclass

from hdl.abi.enums import WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import ATOMIC_BYTES, Kind

__all__ = ["ATOMIC_TYPES", "CONNECTIONS", "OPERATIONS", "VERBS", "Verb"]


@dataclass(frozen=True)
class Verb:
    """What the messages of an operation are.

    title: in the header of the output. opcode: of its work requests. services: those that have it.
    requests: that a message takes. told: its completion says that it is there, so latency ends with
    that and is measured in one direction. latency: whether that is measured at all.
    """

    title: str
    opcode: WrOpcode
    services: tuple[str, ...] = ("RC",)
    requests: int = 1
    told: bool = False
    latency: bool = True

    @property
    def word(self) -> bool:
        """Whether a message is a word, which is never cut and lies at a multiple of its size."""
        return WORK_REQUESTS[self.opcode].kind is Kind.ATOMIC

    @property
    def size(self) -> int | None:
        """Bytes of every message, if it can have no others."""
        return ATOMIC_BYTES if self.word else None

    @property
    def placement(self) -> bool:
        """Whether a card must have the memory placement extensions."""
        return WORK_REQUESTS[self.opcode].placement

    @property
    def copies(self) -> bool:
        """Whether what moves stays in the host: no packet carries it."""
        return WORK_REQUESTS[self.opcode].copies

    @property
    def card(self) -> dict[str, bool]:
        """Switches of ``NicConfig`` that it needs and that are off by default."""
        if self.placement:
            return {"placement": True, "persistence": True}
        return {"memcpy": True} if self.copies else {}

    @property
    def fetches(self) -> bool:
        """Whether what moves is brought back to the requester."""
        return WORK_REQUESTS[self.opcode].data and not self.placement and not self.copies


#: By the name in front of ``_bw`` and ``_lat``.
VERBS = {
    "write": Verb("RDMA_Write", WrOpcode.RDMA_WRITE, ("RC", "UC", "XRC", "DC")),
    "send": Verb("Send", WrOpcode.SEND, ("RC", "UC", "UD", "XRC", "DC")),
    "read": Verb("RDMA_Read", WrOpcode.RDMA_READ, ("RC", "XRC", "DC"), told=True),
    "atomic": Verb("Atomic", WrOpcode.ATOMIC_FETCH_AND_ADD, ("RC", "XRC", "DC"), told=True),
    "flush": Verb("RDMA_Write and Flush", WrOpcode.FLUSH, requests=2, told=True),
    "atomic_write": Verb("Atomic Write", WrOpcode.ATOMIC_WRITE, told=True),
    "memcpy": Verb("Memcpy", WrOpcode.MEMCPY, told=True, latency=False),
}
OPERATIONS = (
    *(f"{name}_bw" for name in VERBS),
    *(f"{name}_lat" for name, verb in VERBS.items() if verb.latency),
)
#: perftest's names of the services, and what each can do.
CONNECTIONS = {
    service: tuple(name for name, verb in VERBS.items() if service in verb.services)
    for service in ("RC", "UC", "UD", "XRC", "DC")
}
#: perftest's names of the two atomics.
ATOMIC_TYPES = {
    "FETCH_AND_ADD": WrOpcode.ATOMIC_FETCH_AND_ADD,
    "CMP_AND_SWAP": WrOpcode.ATOMIC_CMP_AND_SWP,
}
