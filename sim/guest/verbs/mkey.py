"""Indirect keys (docs/extensions.md): a layout of pieces of regions under one key."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass

from hdl.abi.enums import (
    Access,
    ControlCommand,
    ExtensionCommand,
    SendFlags,
    WrOpcode,
)
from hdl.abi.mkeys import LayoutFlags, MkeyFlags
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs.context import PD, Resource
from sim.guest.verbs.wr import SGE, SendWR

_NO_FLAGS = LayoutFlags(0)


@dataclass(frozen=True)
class Interleaved:
    """An entry of an interleaved layout: ``bytes_count`` bytes at ``addr`` under ``lkey``; in each
    further row as many on, and ``bytes_skip`` more."""

    addr: int
    bytes_count: int
    bytes_skip: int
    lkey: int


class Mkey(Resource):
    """An indirect key. ``key`` is its local and its remote key. Addresses under it are offsets in
    its layout, which a work request gives it (``list_wr``, ``interleaved_wr``)."""

    #: Address of its first byte.
    iova = 0

    def __init__(self, pd: PD, mrn: int, key: int, max_entries: int):
        self.pd, self.mrn, self.key, self.max_entries = pd, mrn, key, max_entries

    @classmethod
    async def create(cls, pd: PD, max_entries: int, *, remote_invalidate: bool = False) -> Mkey:
        """Asks the device for an indirect key without a layout. Raises CommandError, and
        RdmaError(EOPNOTSUPP) of a device that has none."""
        if not pd.ctx.query_device().max_mkey_entries:
            raise RdmaError(errno.EOPNOTSUPP, "The device has no indirect keys")
        flags = MkeyFlags.REMOTE_INVALIDATE if remote_invalidate else MkeyFlags(0)
        result = await pd.ctx.command(
            ExtensionCommand.CREATE_MKEY, pdn=pd.pdn, flags=flags, max_entries=max_entries
        )
        return cls(pd, result.mrn, result.lkey, result.max_entries)

    @property
    def lkey(self) -> int:
        """Its key, for SGEs."""
        return self.key

    @property
    def rkey(self) -> int:
        """Its key, for peers."""
        return self.key

    def list_wr(
        self,
        entries: Sequence[SGE],
        access: Access,
        *,
        wr_id: int = 0,
        flags: LayoutFlags = _NO_FLAGS,
        send_flags: SendFlags = SendFlags.SIGNALED,
    ) -> SendWR:
        """A request that has its layout be ``entries``, one behind the other."""
        wr = SendWR(wr_id, WrOpcode.MKEY_LIST, list(entries), send_flags)
        wr.set_wr_mkey(self.mrn, self.key, access, 0, len(entries), flags)
        return wr

    def interleaved_wr(
        self,
        entries: Sequence[Interleaved],
        repeat: int,
        access: Access,
        *,
        wr_id: int = 0,
        flags: LayoutFlags = _NO_FLAGS,
        send_flags: SendFlags = SendFlags.SIGNALED,
    ) -> SendWR:
        """A request that has its layout be ``repeat`` rows of ``entries``."""
        slots = []
        for one in entries:
            slots += [SGE(one.addr, one.bytes_count, one.lkey), SGE(one.bytes_skip, 0, 0)]
        wr = SendWR(wr_id, WrOpcode.MKEY_INTERLEAVED, slots, send_flags)
        wr.set_wr_mkey(self.mrn, self.key, access, repeat, len(entries), flags)
        return wr

    def local_inv_wr(self, *, wr_id: int = 0) -> SendWR:
        """A request that takes its layout away. The key stays the same."""
        return SendWR(wr_id, WrOpcode.LOCAL_INV, invalidate_rkey=self.key)

    def sge(self, offset: int, length: int) -> SGE:
        """An SGE for a part of the layout."""
        return SGE(offset, length, self.key)

    async def close(self) -> None:
        """Destroys the key; no access through it is under way any more."""
        await self.pd.ctx.command(ControlCommand.DEREG_MR, mrn=self.mrn)
