"""Dynamic connections with the calls of libmlx5: what their queue pairs are made from, and where
their requests go."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

from hdl.abi.enums import QpType, RdmaFeature
from sim.guest.verbs import AH as GuestAH
from sim.guest.verbs import DcDestination, DcStreams
from sim.guest.verbs import QPInitAttr as GuestQPInitAttr
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.base import PyverbsObject
from sim.programs.pyverbs.providers.mlx5 import mlx5_enums as dv
from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError
from sim.programs.pyverbs.qp_attr import QPInitAttrEx

__all__ = ["Destinations", "Mlx5DCIStreamInitAttr", "Mlx5DVDCInitAttr", "Role", "role_of"]

_TYPES = {dv.MLX5DV_DCTYPE_DCI: QpType.DCI, dv.MLX5DV_DCTYPE_DCT: QpType.DCT}


class Mlx5DCIStreamInitAttr(PyverbsObject):
    """Streams of an initiator, and how many of them may fail before it does; both as log2."""

    def __init__(self, log_num_concurent: int = 0, log_num_errored: int = 0):
        super().__init__()
        self.log_num_concurent, self.log_num_errored = log_num_concurent, log_num_errored


class Mlx5DVDCInitAttr(PyverbsObject):
    """Which end a queue pair is; a target's key, or an initiator's streams."""

    def __init__(
        self,
        dc_type: int = dv.MLX5DV_DCTYPE_DCI,
        dct_access_key: int = 0,
        dci_streams: Mlx5DCIStreamInitAttr | None = None,
    ):
        super().__init__()
        self.dc_type, self.dct_access_key = dc_type, dct_access_key
        self.dci_streams = dci_streams


class Role:
    """Which end of dynamic connections a queue pair is to be. ``streams``: of an initiator."""

    def __init__(self, kind: QpType, key: int = 0, streams: DcStreams | None = None):
        self.kind, self.key, self.streams = kind, key, streams

    def shape(self, init: GuestQPInitAttr) -> GuestQPInitAttr:
        """What the driver makes of it: libmlx5 ignores what the end does not have."""
        if self.kind == QpType.DCT:
            return replace(init, qp_type=self.kind, scq=None, dc_key=self.key)
        cap = replace(init.cap, max_recv_wr=0, max_recv_sge=0)
        init = replace(init, qp_type=self.kind, cap=cap, streams=self.streams)
        return replace(init, rcq=None, srq=None)


def role_of(card: Any, init: QPInitAttrEx, attr: Any) -> Role | None:
    """The end that attributes ask for; None for a queue pair that is none.

    PyverbsRDMAError: EOPNOTSUPP for what the card has not, EINVAL for what contradicts itself.
    """
    mask = attr.comp_mask
    streams = bool(mask & dv.MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS)
    if not mask & dv.MLX5DV_QP_INIT_ATTR_MASK_DC:
        if streams or init.qp_type == enums.IBV_QPT_DRIVER:
            raise PyverbsRDMAError("Failed to create MLX5 QP", errno.EINVAL)
        return None
    given = attr.dc_init_attr
    kind = None if given is None else _TYPES.get(given.dc_type)
    sends = init.comp_mask & enums.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS and init.send_ops_flags
    extra = kind == QpType.DCT and (sends or streams)
    extra = extra or (streams and given.dci_streams is None)
    if init.qp_type != enums.IBV_QPT_DRIVER or given is None or kind is None or extra:
        raise PyverbsRDMAError("Failed to create MLX5 QP", errno.EINVAL)
    if not card.context.device.has(RdmaFeature.DC):
        raise PyverbsRDMAError("Failed to create MLX5 QP", errno.EOPNOTSUPP)
    if kind == QpType.DCT or not streams:
        return Role(kind, given.dct_access_key if kind == QpType.DCT else 0)
    asked = given.dci_streams
    return Role(kind, streams=DcStreams(asked.log_num_concurent, asked.log_num_errored))


class Destinations:
    """The destinations that requests of a queue pair have named: one for each address, target and
    key. They go with the queue pair."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], DcDestination] = {}

    async def number(self, ah: GuestAH, dctn: int, key: int) -> int:
        """What requests name it by; RdmaError as ``DcDestination.create``."""
        named = (ah.pd.pdn, repr(ah.attr), dctn, key)
        if named not in self._made:
            self._made[named] = await DcDestination.create(ah.pd, ah.attr, dctn, key)
        return self._made[named].number

    async def close(self) -> None:
        """Forgets all of them."""
        while self._made:
            await self._made.popitem()[1].close()
