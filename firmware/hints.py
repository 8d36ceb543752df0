"""Numbers that the next objects are to have, as replays and tests ask for them."""

from __future__ import annotations

from collections import deque

from hdl.abi import virtio_rdma as abi
from hdl.config import NicConfig

__all__ = ["Hints"]


class Hints:
    """Numbers that the next creations use: an interface of the host for replays and tests.

    A hint is used once, by the next CREATE_QP or the next region. The command fails when the number
    is taken. Errors: ValueError for numbers that the device cannot have.
    """

    def __init__(self, config: NicConfig):
        self._config = config
        self.qpns: deque[int] = deque()
        self.keys: deque[int] = deque()
        self.starts: deque[dict[str, dict[str, int]]] = deque()

    def qpn(self, qpn: int) -> None:
        """Number of the next QP: its low bits choose the pair, the others are free (VR-3.22)."""
        index = abi.qp_index(qpn, self._config.qps)
        if qpn >> abi.QPN_BITS or index < abi.FIRST_USER_QP_INDEX or index >= self._config.qps:
            raise ValueError(f"QPN must have 24 bits and a user pair in its low ones, not {qpn:#x}")
        self.qpns.append(qpn)

    def mr_key(self, key: int) -> None:
        """Key of the next region: region number << 8 | tag (VR-3.18)."""
        if not 0 <= key < self._config.mrs << abi.KEY_TAG_BITS:
            raise ValueError(f"Key must name a region below {self._config.mrs}, not {key:#x}")
        self.keys.append(key)

    def start(self, **rows: dict[str, int]) -> None:
        """Fields that the rows of the next QP start with, e.g. ``qp_rx={"msn": 7}``."""
        self.starts.append(rows)
