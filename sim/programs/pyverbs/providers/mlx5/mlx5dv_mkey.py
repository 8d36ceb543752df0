"""Indirect keys with the calls of libmlx5: a layout of pieces of regions under one key.

Signatures and encryption of what lies under a key are not there: their classes refuse.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

from hdl.abi.enums import Access, SendFlags
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import SGE as GuestSGE
from sim.guest.verbs import Interleaved
from sim.guest.verbs import Mkey as GuestMkey
from sim.guest.verbs import SendWR as GuestSendWR
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.absent import named
from sim.programs.pyverbs.base import PyverbsCM, PyverbsObject, ask
from sim.programs.pyverbs.providers.mlx5 import mlx5_enums as dv
from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError
from sim.programs.pyverbs.wr import SGE

__all__ = ["LayoutRequest", "Mlx5Mkey", "Mlx5MkeyConfAttr", "Mlx5MrInterleaved"]

_INDIRECT = dv.MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT
_REMOTE_INVALIDATE = dv.MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE
#: Rights that a key may have.
_ACCESS = int(Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC)


def __getattr__(name: str) -> Any:
    """All others can be named, and refuse."""
    return named(name)


class Mlx5MrInterleaved(PyverbsObject):
    """An entry of an interleaved layout."""

    def __init__(self, addr: int, bytes_count: int, bytes_skip: int, lkey: int):
        super().__init__()
        self.addr, self.bytes_count = addr, bytes_count
        self.bytes_skip, self.lkey = bytes_skip, lkey


class Mlx5MkeyConfAttr(PyverbsObject):
    """How a key is configured; there are no flags."""

    def __init__(self, conf_flags: int = 0, comp_mask: int = 0):
        super().__init__()
        self.conf_flags, self.comp_mask = conf_flags, comp_mask


class Mlx5Mkey(PyverbsCM):
    """An indirect key; EOPNOTSUPP for one with signatures or encryption, and on a card without."""

    rank = 2

    def __init__(self, pd: Any, create_flags: int, max_entries: int):
        super().__init__()
        failed = "Failed to create mkey"
        if not create_flags & _INDIRECT or create_flags & ~(_INDIRECT | _REMOTE_INVALIDATE):
            raise PyverbsRDMAError(failed, errno.EOPNOTSUPP)
        self.card, self.max_entries = pd.card, max_entries
        peers = bool(create_flags & _REMOTE_INVALIDATE)
        work = GuestMkey.create(pd.guest, max_entries, remote_invalidate=peers)
        self.guest: GuestMkey = ask(self.card, work, failed)
        self._opened(pd)

    @property
    def lkey(self) -> int:
        """Its key for SGEs."""
        return self.guest.lkey

    @property
    def rkey(self) -> int:
        """Its key for peers."""
        return self.guest.rkey

    def _destroy(self) -> None:
        ask(self.card, self.guest.close(), "Failed to destroy a mkey")


class LayoutRequest:
    """A request of a batch that gives a key a layout. ``setters``: calls that are still to say what
    it is; ``flags`` are its own."""

    bound = None

    def __init__(self, mkey: Mlx5Mkey, wr_id: int, flags: int, setters: int = 0):
        self._mkey, self._wr_id, self._setters = mkey, wr_id, setters
        self._inline = bool(flags & enums.IBV_SEND_INLINE)
        self.flags = flags & ~enums.IBV_SEND_INLINE
        self._access: int | None = None
        self._entries: list[Any] | None = None  # SGE, or Mlx5MrInterleaved if they repeat
        self._repeat: int | None = None  # None: a list

    def set_access(self, access: int) -> None:
        """The rights of the key."""
        self._setters -= 1
        self._access = int(access)

    def set_layout(
        self, entries: Sequence[SGE | Mlx5MrInterleaved], repeat: int | None = None
    ) -> None:
        """The entries of the layout, and how often they come."""
        self._setters -= 1
        self._entries, self._repeat = list(entries), repeat

    def check(self) -> None:
        """RdmaError: EOPNOTSUPP without INLINE, EINVAL for rights that a key cannot have and for
        setters that are missing or too many, ENOMEM for too many entries or none."""
        if not self._inline:
            raise RdmaError(errno.EOPNOTSUPP, "A layout lies in its request: INLINE must be set")
        if self._setters or self._access is None or self._entries is None:
            raise RdmaError(errno.EINVAL, "Other setters than the mkey was to have")
        if self._access & ~_ACCESS:
            raise RdmaError(errno.EINVAL, f"Access flags {self._access:#x} of a mkey")
        if not 0 < len(self._entries) <= self._mkey.max_entries:
            raise RdmaError(errno.ENOMEM, f"{len(self._entries)} entries of a mkey")

    def to_guest(self) -> GuestSendWR:
        """As the driver takes it."""
        assert self._entries is not None and self._access is not None
        key, access, flags = self._mkey.guest, Access(self._access), SendFlags(self.flags)
        if self._repeat is None:
            sges = [GuestSGE(one.addr, one.length, one.lkey) for one in self._entries]
            return key.list_wr(sges, access, wr_id=self._wr_id, send_flags=flags)
        rows = [
            Interleaved(one.addr, one.bytes_count, one.bytes_skip, one.lkey)
            for one in self._entries
        ]
        return key.interleaved_wr(rows, self._repeat, access, wr_id=self._wr_id, send_flags=flags)
