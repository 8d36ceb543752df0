"""Receive requests that take several packets, which rdma-core does not have.

The names are those of the proposal to libibverbs: ``mp_wr`` of what queue pairs and shared receive
queues are made from, with a bit in ``comp_mask``; a completion queue that tells where packets lie;
``mp_wr_caps`` of a device. Spec: docs/extensions.md, extension MP_WR.
"""

from __future__ import annotations

import errno
from typing import Any

from hdl.abi.enums import WcFlags, WcOpcode
from sim.guest.verbs import MpWr
from sim.programs.pyverbs.base import PyverbsObject, show
from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError

__all__ = [
    "IBV_QP_INIT_ATTR_MP_WR",
    "IBV_SRQ_INIT_ATTR_MP_WR",
    "IBV_WC_EX_WITH_MP_WR",
    "IBV_WC_MP_WR_BROKEN",
    "IBV_WC_MP_WR_CONSUMED",
    "IBV_WC_MP_WR_MORE_IN_MSG",
    "IBV_WC_RECV_NOP",
    "MpWrAttr",
    "MpWrCaps",
    "asked",
]

IBV_QP_INIT_ATTR_MP_WR = 1 << 7
IBV_SRQ_INIT_ATTR_MP_WR = 1 << 5
IBV_WC_EX_WITH_MP_WR = 1 << 12
IBV_WC_RECV_NOP = int(WcOpcode.RECV_NOP)
IBV_WC_MP_WR_MORE_IN_MSG = int(WcFlags.MP_WR_MORE_IN_MSG)
IBV_WC_MP_WR_CONSUMED = int(WcFlags.MP_WR_CONSUMED)
IBV_WC_MP_WR_BROKEN = int(WcFlags.MP_WR_BROKEN)


class MpWrAttr(PyverbsObject):
    """Bytes of each request, and of a segment of it; a queue that has been made with it has both as
    they are then, equal or greater."""

    def __init__(self, wr_buffer_sz: int = 0, packet_align_sz: int = 0):
        super().__init__()
        self.wr_buffer_sz, self.packet_align_sz = wr_buffer_sz, packet_align_sz

    def __str__(self) -> str:
        return show(wr_buffer_sz=self.wr_buffer_sz, packet_align_sz=self.packet_align_sz)


class MpWrCaps(PyverbsObject):
    """The most that a device takes; both are 0 without such requests."""

    def __init__(self, max_wr_buffer_sz: int, max_packet_align_sz: int):
        super().__init__()
        self.max_wr_buffer_sz, self.max_packet_align_sz = max_wr_buffer_sz, max_packet_align_sz


def asked(attr: Any, mask: int, failed: str) -> MpWr | None:
    """What ``attr`` asks the card for, if its ``comp_mask`` has ``mask``; its ``mp_wr`` is then as
    the queue has it. PyverbsRDMAError(EINVAL) without one."""
    if not attr.comp_mask & mask:
        return None
    if not isinstance(attr.mp_wr, MpWrAttr):
        raise PyverbsRDMAError(failed, errno.EINVAL)
    made = MpWr(attr.mp_wr.wr_buffer_sz, attr.mp_wr.packet_align_sz).rounded()
    attr.mp_wr.wr_buffer_sz, attr.mp_wr.packet_align_sz = made.buffer, made.align
    return made
