"""Devices, queue pairs and completion queues with the calls of libmlx5."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from typing import Any

from hdl.abi.enums import QpType, WrOpcode
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import QPInitAttr as GuestQPInitAttr
from sim.guest.verbs import SendWR as GuestSendWR
from sim.guest.verbs import reset_stream
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.absent import named
from sim.programs.pyverbs.addr import AH
from sim.programs.pyverbs.base import PyverbsObject, ask
from sim.programs.pyverbs.cq import CQEX, CqInitAttrEx
from sim.programs.pyverbs.device import Context
from sim.programs.pyverbs.providers.mlx5 import mlx5_enums as dv
from sim.programs.pyverbs.providers.mlx5.dc import (
    Destinations,
    Mlx5DCIStreamInitAttr,
    Mlx5DVDCInitAttr,
    Role,
    role_of,
)
from sim.programs.pyverbs.providers.mlx5.mlx5dv_mkey import (
    LayoutRequest,
    Mlx5Mkey,
    Mlx5MkeyConfAttr,
    Mlx5MrInterleaved,
)
from sim.programs.pyverbs.providers.mlx5.wqe import Wqe, WqeCtrlSeg, WqeDataSeg, WqeSeg, translate
from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError
from sim.programs.pyverbs.qp import QPEx
from sim.programs.pyverbs.qp_attr import QPInitAttrEx
from sim.programs.pyverbs.wr import SGE, SendWR, chain
from sim.programs.vendors import VENDORS

__all__ = [
    "Mlx5CQ",
    "Mlx5Context",
    "Mlx5DCIStreamInitAttr",
    "Mlx5DVCQInitAttr",
    "Mlx5DVContext",
    "Mlx5DVContextAttr",
    "Mlx5DVDCInitAttr",
    "Mlx5DVQPInitAttr",
    "Mlx5QP",
    "Wqe",
    "WqeCtrlSeg",
    "WqeDataSeg",
    "WqeSeg",
]

#: Calls that this card has a counterpart of.
_LAYOUTS = (
    dv.MLX5DV_QP_EX_WITH_MR_LIST
    | dv.MLX5DV_QP_EX_WITH_MR_INTERLEAVED
    | dv.MLX5DV_QP_EX_WITH_MKEY_CONFIGURE
)
_CALLS = dv.MLX5DV_QP_EX_WITH_RAW_WQE | dv.MLX5DV_QP_EX_WITH_MEMCPY | _LAYOUTS
#: Flags of its creation that the card can do nothing else than keep.
_FLAGS = dv.MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE
#: What a mask may name of a queue pair's attributes.
_MASK = (
    dv.MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS
    | dv.MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS
    | dv.MLX5DV_QP_INIT_ATTR_MASK_DC
    | dv.MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS
)


def __getattr__(name: str) -> Any:
    """All others can be named, and refuse."""
    return named(name)


class Mlx5DVContextAttr(PyverbsObject):
    """How a device is opened; flags ask for what this card does not have."""

    def __init__(self, flags: int = 0, comp_mask: int = 0):
        super().__init__()
        self.flags, self.comp_mask = flags, comp_mask


class Mlx5DVContext(PyverbsObject):
    """What a device has beyond verbs. ``comp_mask``: what of it was asked for and is known."""

    def __init__(self, comp_mask: int, config: Any):
        super().__init__()
        known = dv.MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH | dv.MLX5DV_CONTEXT_MASK_DCI_STREAMS
        self.version = self.flags = self.num_lag_ports = self.sw_parsing_caps = 0
        self.dc_odp_caps = 0
        self.comp_mask = comp_mask & known
        self.max_wr_memcpy_length = config.max_memcpy_length
        self.max_dc_rd_atom = config.max_dc_rd_atom
        self.max_dc_init_rd_atom = config.max_dc_init_rd_atom
        self.dci_streams_caps = {
            "max_log_num_concurent": config.max_dci_log_streams,
            "max_log_num_errored": config.max_dci_log_errored,
        }


class Mlx5Context(Context):
    """An open device; EOPNOTSUPP unless devices pass for libmlx5's (``--as mlx5``)."""

    def __init__(
        self, attr: Mlx5DVContextAttr | None = None, name: str | bytes | None = None, **kwargs: Any
    ):
        super().__init__(name=name, **kwargs)
        asked = attr is not None and (attr.flags or attr.comp_mask)
        if self.card.vendor != VENDORS["mlx5"] or asked:
            self.close()
            raise PyverbsRDMAError("Failed to open mlx5 context", errno.EOPNOTSUPP)

    @staticmethod
    def is_supported(device: Any) -> bool:
        """Whether a device passes for libmlx5's."""
        with Context(name=device.name) as context:
            return context.card.vendor == VENDORS["mlx5"]

    def query_mlx5_device(self, comp_mask: int = -1) -> Mlx5DVContext:
        """What it has."""
        return Mlx5DVContext(comp_mask, self.card.context.query_device())


class Mlx5DVCQInitAttr(PyverbsObject):
    """Attributes of a completion queue, of which this card has none."""

    def __init__(
        self, comp_mask: int = 0, cqe_comp_res_format: int = 0, flags: int = 0, cqe_size: int = 0
    ):
        super().__init__()
        self.comp_mask, self.cqe_comp_res_format = comp_mask, cqe_comp_res_format
        self.flags, self.cqe_size = flags, cqe_size


class Mlx5CQ(CQEX):
    """A completion queue of libmlx5; EOPNOTSUPP for one with attributes of its own."""

    def __init__(self, context: Any, init_attr: CqInitAttrEx, dv_init_attr: Mlx5DVCQInitAttr):
        if dv_init_attr.comp_mask:
            raise PyverbsRDMAError("Failed to create MLX5 CQ", errno.EOPNOTSUPP)
        super().__init__(context, init_attr)


class Mlx5DVQPInitAttr(PyverbsObject):
    """What a queue pair of libmlx5 is made from; ``comp_mask`` says what of it counts."""

    def __init__(
        self,
        comp_mask: int = 0,
        create_flags: int = 0,
        dc_init_attr: Mlx5DVDCInitAttr | None = None,
        send_ops_flags: int = 0,
    ):
        super().__init__()
        self.comp_mask, self.create_flags = comp_mask, create_flags
        self.dc_init_attr, self.send_ops_flags = dc_init_attr, send_ops_flags

    @property
    def calls(self) -> int:
        """Those beyond verbs that it asks for."""
        asked = self.comp_mask & dv.MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS
        return self.send_ops_flags if asked else 0

    @property
    def flags(self) -> int:
        """Those of its creation."""
        asked = self.comp_mask & dv.MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS
        return self.create_flags if asked else 0


class Mlx5QP(QPEx):
    """A queue pair with calls beyond verbs, or an end of dynamic connections, which has none."""

    def __init__(self, context: Any, init_attr: QPInitAttrEx, dv_init_attr: Mlx5DVQPInitAttr):
        calls = dv_init_attr.calls
        self._role: Role | None = None
        self._destinations = Destinations()
        refused = dv_init_attr.comp_mask & ~_MASK or dv_init_attr.flags & ~_FLAGS
        refused = refused or calls & ~_CALLS
        if not refused:
            self._role = role_of(context.card, init_attr, dv_init_attr)
            refused = self._role is not None and calls & ~dv.MLX5DV_QP_EX_WITH_MEMCPY
        copies = calls & dv.MLX5DV_QP_EX_WITH_MEMCPY
        initiates = self._role is not None and self._role.kind == QpType.DCI
        if copies and not (
            context.card.context.query_device().max_memcpy_length
            and (init_attr.qp_type == enums.IBV_QPT_RC or initiates)
        ):
            refused = True
        if calls & _LAYOUTS and not (
            context.card.context.query_device().max_mkey_entries
            and init_attr.qp_type == enums.IBV_QPT_RC
        ):
            refused = True
        self._calls = calls
        #: Requests whose completion is to come, oldest first: whether each was raw.
        self._signalled: deque[bool] = deque()
        self._bad: RdmaError | None = None
        #: The request whose key is being configured.
        self._setting: LayoutRequest | None = None
        if refused:
            raise PyverbsRDMAError("Failed to create MLX5 QP", errno.EOPNOTSUPP)
        super().__init__(context, init_attr)
        if self.scq is not None and self.kind != QpType.DCT:
            self.scq.opcodes[self.qp_num] = self._opcode

    def _kind_of(self, init: Any) -> QpType | None:
        return super()._kind_of(init) if self._role is None else self._role.kind

    def _shaped(self, attr: GuestQPInitAttr) -> GuestQPInitAttr:
        return attr if self._role is None else self._role.shape(attr)

    def _destroy(self) -> None:
        super()._destroy()
        ask(self.card, self._destinations.close(), "Failed to forget where requests went")

    def wr_set_dc_addr(self, ah: Any, remote_dctn: int, remote_dc_key: int) -> None:
        """Where the last request goes: a target with its key, at an address."""
        self._address(ah, remote_dctn, remote_dc_key, 0)

    def wr_set_dc_addr_stream(
        self, ah: Any, remote_dctn: int, remote_dc_key: int, stream_id: int
    ) -> None:
        """The same, of a stream."""
        if self._role is None or self._role.streams is None:
            raise PyverbsRDMAError("The QP has no streams", errno.EOPNOTSUPP)
        self._address(ah, remote_dctn, remote_dc_key, stream_id)

    def _address(self, ah: Any, dctn: int, key: int, stream: int) -> None:
        if self.kind != QpType.DCI:
            raise PyverbsRDMAError("The QP is no initiator of DC", errno.EOPNOTSUPP)
        try:
            number = self.card.do(self._destinations.number(ah.guest, dctn, key))
        except OSError as error:
            self._fails(RdmaError(error.errno or errno.EIO, "No such destination can be made"))
        else:
            self._batch[-1].destination = number, stream

    @staticmethod
    def modify_dci_stream_channel_id(qp: Any, stream_id: int) -> None:
        """Lets an initiator go on with a stream that has failed; PyverbsRDMAError(EINVAL): it has
        not."""
        ask(qp.card, reset_stream(qp.guest, stream_id), "Failed to reset stream id")

    @staticmethod
    def map_ah_to_qp(ah: Any, qp_num: int) -> None:
        """Says that what a device knows of a queue pair's path holds for a destination too. This
        one knows nothing of paths beyond their addresses, so nothing follows;
        PyverbsRDMAError(EINVAL): no address handle, or no number of a queue pair."""
        if not isinstance(ah, AH) or not 0 < qp_num < 1 << 24:
            raise PyverbsRDMAError("Failed to map AH to QP", errno.EINVAL)

    def wr_memcpy(
        self, dest_lkey: int, dest_addr: int, src_lkey: int, src_addr: int, length: int
    ) -> None:
        """MEMCPY inside the host's memory."""
        self._must(dv.MLX5DV_QP_EX_WITH_MEMCPY)
        built = self._begin(WrOpcode.MEMCPY)
        built.sg = [SGE(dest_addr, length, dest_lkey), SGE(src_addr, length, src_lkey)]

    def wr_mr_list(self, mkey: Mlx5Mkey, access_flags: int, sge_list: Sequence[SGE]) -> None:
        """The layout of a key is a list."""
        layout = self._layout(mkey, dv.MLX5DV_QP_EX_WITH_MR_LIST, 2)
        layout.set_access(access_flags)
        layout.set_layout(sge_list)

    def wr_mr_interleaved(
        self,
        mkey: Mlx5Mkey,
        access_flags: int,
        repeat_count: int,
        mr_interleaved_lst: Sequence[Mlx5MrInterleaved],
    ) -> None:
        """The layout of a key is a row of pieces that repeats."""
        layout = self._layout(mkey, dv.MLX5DV_QP_EX_WITH_MR_INTERLEAVED, 2)
        layout.set_access(access_flags)
        layout.set_layout(mr_interleaved_lst, repeat_count)

    def wr_mkey_configure(
        self, mkey: Mlx5Mkey, num_setters: int, mkey_config: Mlx5MkeyConfAttr
    ) -> None:
        """The same, of which ``num_setters`` further calls say what it is."""
        layout = self._layout(mkey, dv.MLX5DV_QP_EX_WITH_MKEY_CONFIGURE, num_setters)
        if mkey_config.conf_flags or mkey_config.comp_mask:
            self._fails(RdmaError(errno.EOPNOTSUPP, "A mkey is configured without flags"))
        self._setting = layout

    def wr_set_mkey_access_flags(self, access_flags: int) -> None:
        """The rights of the key that is being configured."""
        self._configured().set_access(access_flags)

    def wr_set_mkey_layout_list(self, sge_list: Sequence[SGE]) -> None:
        """Its layout, a list."""
        self._configured().set_layout(sge_list)

    def wr_set_mkey_layout_interleaved(
        self, repeat_count: int, mr_interleaved_lst: Sequence[Mlx5MrInterleaved]
    ) -> None:
        """Its layout, a row that repeats."""
        self._configured().set_layout(mr_interleaved_lst, repeat_count)

    def _layout(self, mkey: Mlx5Mkey, call: int, setters: int) -> LayoutRequest:
        self._must(call)
        self._batch.append(LayoutRequest(mkey, self.wr_id, self.wr_flags, setters))
        return self._batch[-1]

    def _configured(self) -> LayoutRequest:
        if self._setting is None or self._setting not in self._batch:
            raise PyverbsRDMAError("No mkey is being configured", errno.EINVAL)
        return self._setting

    def _fails(self, error: RdmaError) -> None:
        """The batch will not be posted."""
        self._bad = self._bad or error

    def wr_raw_wqe(self, wqe: Wqe) -> None:
        """What an element in memory says, which is read now; ``wr_flags`` mean nothing to it.

        One that has no counterpart here shows at the end of the batch, as all errors do.
        """
        self._must(dv.MLX5DV_QP_EX_WITH_RAW_WQE)
        datagrams = self.qp_type == enums.IBV_QPT_UD
        try:
            request = translate(wqe.address, self.wr_id, self.pd.guest, datagrams)
        except RdmaError as error:
            self._fails(error)
        else:
            self._batch.append(_Raw(request))

    def wr_start(self) -> None:
        """Begins a batch."""
        self._bad = None
        super().wr_start()

    def wr_complete(self) -> None:
        """Posts the batch; PyverbsRDMAError, and nothing of it, if one of its requests is bad: with
        EOPNOTSUPP or EINVAL for an element without a counterpart."""
        for one in self._batch:
            if isinstance(one, LayoutRequest):
                try:
                    one.check()
                except RdmaError as error:
                    self._fails(error)
        if self._bad is not None:
            self.wr_abort()
            text = f"Failed to complete work requests: {self._bad}"
            raise PyverbsRDMAError(text, self._bad.errno)
        super().wr_complete()

    def _must(self, call: int) -> None:
        if not self._calls & call:
            raise PyverbsRDMAError("The QP was created without this call", errno.EOPNOTSUPP)

    def _posted(self, batch: list[Any]) -> None:
        super()._posted(batch)
        self._note([(isinstance(one, _Raw), one.flags) for one in batch])

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """Posts a send request, and those behind it."""
        super().post_send(wr, bad_wr)
        self._note([(False, one.send_flags) for one in chain(wr)])

    def _note(self, requests: list[tuple[bool, int]]) -> None:
        """Requests that were posted: whether each was raw, and its flags."""
        every = self.init.sq_sig_all
        signal = enums.IBV_SEND_SIGNALED
        self._signalled += [raw for raw, flags in requests if every or flags & signal]

    async def _forget(self) -> None:
        self._signalled.clear()
        await super()._forget()

    def _opcode(self, opcode: int) -> int:
        """For its send queue: the opcode of a completion, which is the oldest to come."""
        raw = self._signalled.popleft() if self._signalled else False
        return int(dv.MLX5DV_WC_RAW_WQE) if raw else opcode


class _Raw:
    """A request of a batch that was an element. ``flags`` are its own."""

    bound = None

    def __init__(self, request: GuestSendWR):
        self._request, self.flags = request, int(request.send_flags)

    def to_guest(self) -> GuestSendWR:
        return self._request
