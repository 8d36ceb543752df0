"""Memory windows (docs/extensions.md)."""

from __future__ import annotations

from hdl.abi.enums import Access, ExtensionCommand, MwType, WrOpcode
from sim.guest.verbs.context import PD, Resource
from sim.guest.verbs.mr import MR
from sim.guest.verbs.wr import SendWR


class MW(Resource):
    """A window of a region for peers. ``key`` is its key as last bound or given by the device;
    ``iova`` the address of its first byte for peers."""

    def __init__(self, pd: PD, mwn: int, key: int, kind: MwType):
        self.pd, self.mwn, self.key, self.kind = pd, mwn, key, kind
        self.iova = self.length = 0

    @classmethod
    async def create(cls, pd: PD, kind: MwType) -> MW:
        """Asks the device for a window, which is not bound."""
        result = await pd.ctx.command(ExtensionCommand.ALLOC_MW, pdn=pd.pdn, type=kind)
        return cls(pd, result.mwn, result.rkey, kind)

    def bind_wr(
        self, mr: MR, offset: int, length: int, access: Access, *, wr_id: int = 0
    ) -> SendWR:
        """A request that binds it to a part of a region, with another tag in its key. ``length`` 0
        unbinds a window of type 1."""
        self.key = self.key & ~0xFF | (self.key + 1) & 0xFF
        addr = mr.iova + offset
        self.iova, self.length = 0 if access & Access.ZERO_BASED else addr, length
        wr = SendWR(wr_id, WrOpcode.BIND_MW)
        wr.set_wr_bind(mr.lkey, addr, length, access, self.key)
        return wr

    def local_inv_wr(self, *, wr_id: int = 0) -> SendWR:
        """A request that invalidates the key of a window of type 2."""
        return SendWR(wr_id, WrOpcode.LOCAL_INV, invalidate_rkey=self.key)

    async def close(self) -> None:
        """Gives the window back."""
        await self.pd.ctx.command(ExtensionCommand.DEALLOC_MW, mwn=self.mwn)
