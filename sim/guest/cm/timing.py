"""Who talks to whom, and how long it waits: what the halves of the connection manager share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Peer(NamedTuple):
    """The other side: its GID, and the index of the own GID that talks to it."""

    gid: bytes
    sgid_index: int = 0


@dataclass(frozen=True)
class Timing:
    """How long a message waits for its answer and how often it is sent again.

    ``response_timeout`` is an exponent, 4.096 us x 2^n, as a REQ names it. The defaults are those
    of Linux's rdma_cm.
    """

    response_timeout: int = 20
    retries: int = 15

    @property
    def timeout_ns(self) -> int:
        """Wait for one answer."""
        return 4_096 << self.response_timeout

    @property
    def linger_ns(self) -> int:
        """How long the peer may still send again: what is over is known as long."""
        return (self.retries + 1) * self.timeout_ns
