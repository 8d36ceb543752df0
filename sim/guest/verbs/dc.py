"""Dynamic connections (``mlx5dv_wr_set_dc_addr``): where the requests of an initiator go."""

from __future__ import annotations

import errno

from hdl.abi.enums import ExtensionCommand, RdmaFeature
from hdl.abi.layout import Values
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs.address import AHAttr
from sim.guest.verbs.context import PD, Resource
from sim.guest.verbs.qp import QP

__all__ = ["DcDestination", "query_dct", "reset_stream"]


class DcDestination(Resource):
    """A target and where it is; ``number`` is what requests name it by."""

    def __init__(self, pd: PD, number: int):
        self.pd, self.ctx, self.number = pd, pd.ctx, number

    @classmethod
    async def create(cls, pd: PD, ah: AHAttr, dctn: int, key: int) -> DcDestination:
        """Names the target ``dctn`` with its access key at an address. Raises RdmaError:
        EOPNOTSUPP when the device has no such connections, CommandError."""
        if not pd.ctx.device.has(RdmaFeature.DC):
            raise RdmaError(errno.EOPNOTSUPP, "The device has no dynamic connections")
        plain = ah.to_abi()
        made = await pd.ctx.command(
            ExtensionCommand.CREATE_DC_DESTINATION,
            pdn=pd.pdn,
            dctn=dctn,
            dc_key=key,
            **plain["grh"],
            sl=plain["sl"],
            dmac=plain["roce_dmac"],
        )
        return cls(pd, made.destination)

    async def close(self) -> None:
        """Forgets it; CommandError when it is gone."""
        await self.ctx.command(ExtensionCommand.DESTROY_DC_DESTINATION, destination=self.number)


async def reset_stream(initiator: QP, stream: int) -> None:
    """Lets an initiator go on with a stream that has failed, once all requests of it have ended.
    CommandError: it has not failed, or the initiator has."""
    await initiator.ctx.command(
        ExtensionCommand.RESET_STREAM, qpn=initiator.qp_num, stream_id=stream
    )


async def query_dct(target: QP) -> Values:
    """What has become of those who have asked a target for a connection."""
    return await target.ctx.command(ExtensionCommand.QUERY_DCT, qpn=target.qp_num)
