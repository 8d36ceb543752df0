"""Work requests."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Sequence
from typing import Any

from hdl.abi.enums import SendFlags
from sim.guest.verbs import SGE as GuestSGE
from sim.guest.verbs import RecvWR as GuestRecvWR
from sim.guest.verbs import SendWR as GuestSendWR
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.base import PyverbsCM, PyverbsObject, inc_rkey, show
from sim.programs.pyverbs.enums import (
    IBV_SEND_INLINE,
    IBV_SEND_SIGNALED,
    IBV_WR_BIND_MW,
    IBV_WR_LOCAL_INV,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_INV,
)
from sim.programs.pyverbs.pyverbs_error import PyverbsUserError
from sim.programs.pyverbs.utils import names_of

__all__ = ["SGE", "RecvWR", "SendWR", "send_flags_to_str"]

_INVALIDATING = (IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV)
#: Requests that carry nothing of the program's memory.
_EMPTY = (IBV_WR_LOCAL_INV, IBV_WR_BIND_MW)


def _check_sges(num_sge: int, sg: Sequence[SGE] | None) -> None:
    """PyverbsUserError for a request without any."""
    if num_sge < 1 or sg is None:
        raise PyverbsUserError("A WR needs at least one SGE")


class SGE(PyverbsCM):
    """``length`` bytes of the process at ``addr``, in the region with ``lkey``."""

    def __init__(self, addr: int = 0, length: int = 0, lkey: int = 0):
        super().__init__()
        self.addr, self.length, self.lkey = addr, length, lkey

    def read(self, length: int, offset: int) -> bytes:
        """Bytes of the buffer."""
        return ctypes.string_at(self.addr + offset, length)

    def __str__(self) -> str:
        return show(addr=self.addr, length=self.length, key=hex(self.lkey))


def window_access(flags: int) -> int:
    """Rights of a window: those of peers. LOCAL_WRITE is none of them and means nothing."""
    return flags & ~enums.IBV_ACCESS_LOCAL_WRITE


def sges_of(sg: Sequence[SGE]) -> list[GuestSGE]:
    """SGEs as the driver takes them."""
    return [GuestSGE(int(one.addr), int(one.length), int(one.lkey)) for one in sg]


def gathered(sg: Sequence[SGE]) -> bytes:
    """The bytes of inline requests, whose keys mean nothing."""
    return b"".join(ctypes.string_at(one.addr, one.length) for one in sg)


class RecvWR(PyverbsCM):
    """A receive request."""

    def __init__(
        self,
        wr_id: int = 0,
        num_sge: int = 0,
        sg: Sequence[SGE] | None = None,
        next_wr: RecvWR | None = None,
    ):
        super().__init__()
        _check_sges(num_sge, sg)
        self.wr_id, self.num_sge, self.sg_list, self.next_wr = wr_id, num_sge, sg, next_wr

    def to_guest(self) -> GuestRecvWR:
        """The request as the driver takes it."""
        return GuestRecvWR(self.wr_id, sges_of((self.sg_list or [])[: self.num_sge]))


class SendWR(PyverbsCM):
    """A send request. ``imm_data`` is in network order, as it stands in memory; for requests that
    invalidate it is the key."""

    def __init__(
        self,
        wr_id: int = 0,
        opcode: int = IBV_WR_SEND,
        num_sge: int = 0,
        imm_data: int = 0,
        send_flags: int = IBV_SEND_SIGNALED,
        sg: Sequence[SGE] | None = None,
        next_wr: SendWR | None = None,
    ):
        super().__init__()
        if opcode not in (*_EMPTY, IBV_WR_SEND_WITH_INV):
            _check_sges(num_sge, sg)
        self.wr_id, self.opcode, self.num_sge = wr_id, opcode, num_sge
        self.imm_data, self.send_flags = imm_data, send_flags
        self.sg_list, self.next_wr = sg, next_wr
        #: The key that binding gives a window.
        self.rkey = 0
        #: The window, once the request has bound it.
        self.bound: Any = None
        self._remote: tuple[str, tuple[Any, ...]] | None = None
        self._srq_num: int | None = None

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """The peer's region and address of a READ or WRITE."""
        self._remote = "set_wr_rdma", (rkey, addr)

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int) -> None:
        """The peer's region and address of an atomic, and its operands."""
        self._remote = "set_wr_atomic", (rkey, addr, compare_add, swap)

    def set_wr_ud(self, ah: Any, rqpn: int, rqkey: int) -> None:
        """Where a datagram goes."""
        self._remote = "set_wr_ud", (ah.guest, rqpn, rqkey)

    def set_bind_wr(self, mw: Any, bind_info: Any) -> None:
        """The window that is bound, and to what; ``rkey`` becomes its new key."""
        self.rkey, self.bound = inc_rkey(mw.rkey), mw
        place = bind_info.mr.lkey, bind_info.addr, bind_info.length
        self._remote = "set_wr_bind", (*place, window_access(bind_info.mw_access_flags), self.rkey)

    def set_qp_type_xrc(self, remote_srqn: int) -> None:
        """The peer's shared receive queue, of an XRC initiator's request."""
        self._srq_num = remote_srqn

    def to_guest(self) -> GuestSendWR:
        """The request as the driver takes it."""
        sg = list(self.sg_list or [])[: self.num_sge]
        wr = request(self.opcode, self.wr_id, self.send_flags, sg, self.imm_data, self._remote)
        if self._srq_num is not None:
            wr.set_wr_xrc_srqn(self._srq_num)
        return wr


def request(
    opcode: int,
    wr_id: int,
    send_flags: int,
    sg: Sequence[SGE],
    imm_data: int,
    remote: tuple[str, tuple[Any, ...]] | None,
) -> GuestSendWR:
    """A send request as the driver takes it. remote: a method of it, and its arguments."""
    inline = bool(send_flags & IBV_SEND_INLINE)
    wr = GuestSendWR(
        wr_id,
        opcode,
        [] if opcode in _EMPTY or inline else sges_of(sg),
        SendFlags(send_flags & 0xF),
        inline_data=gathered(sg) if inline else None,
    )
    if opcode in _INVALIDATING:
        wr.invalidate_rkey = imm_data
    else:
        wr.imm_data = socket.ntohl(imm_data)
    if remote is not None:
        getattr(wr, remote[0])(*remote[1])
    return wr


def chain(first: Any) -> list[Any]:
    """A request and those behind it."""
    found = []
    while first is not None:
        found.append(first)
        first = first.next_wr
    return found


def send_flags_to_str(flags: int) -> str:
    """The names of flags."""
    return names_of("ibv_send_flags", "IBV_SEND_", flags)


class DataBuffer(PyverbsObject):
    """``length`` bytes of the process at ``addr``, for inline requests."""

    def __init__(self, addr: int, length: int):
        super().__init__()
        self.addr, self.length, self.lkey = addr, length, 0
