"""Receive requests that take several packets. Spec: docs/extensions.md, extension MP_WR."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from hdl.abi.enums import RdmaFeature
from hdl.abi.limits import MIN_MP_WR_ALIGN
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs.context import Context
from sim.guest.verbs.cq import CQ


@dataclass(frozen=True)
class MpWr:
    """``buffer`` bytes of each request, over all of its SGEs, and ``align`` bytes of a segment.
    Each packet takes whole segments. A queue has both rounded up: a power of two, and whole
    segments."""

    buffer: int
    align: int

    def rounded(self) -> MpWr:
        """What the device is asked for."""
        align = max(MIN_MP_WR_ALIGN, 1 << max(self.align - 1, 0).bit_length())
        return MpWr(-(-self.buffer // align) * align, align)

    def fields(self) -> dict[str, int]:
        """Of the commands that create such a queue."""
        return {"mp_wr_buffer": self.buffer, "mp_wr_align_log2": self.align.bit_length() - 1}


def usable(ctx: Context, asked: MpWr) -> MpWr:
    """What the device can be asked for; RdmaError: EOPNOTSUPP, EINVAL for sizes beyond limits."""
    if not ctx.device.has(RdmaFeature.MP_WR):
        raise RdmaError(errno.EOPNOTSUPP, "The device has no requests for several packets")
    made, limits = asked.rounded(), ctx.query_device()
    if made.buffer > limits.max_mp_wr_buffer or made.align > limits.max_mp_wr_align:
        raise RdmaError(errno.EINVAL, f"{made}, at most {limits.max_mp_wr_buffer} bytes")
    return made


def check_cq(cq: CQ | None) -> None:
    """RdmaError(EINVAL): a CQ that was not created to show where packets lie."""
    if cq is None or not cq.with_mp_wr:
        raise RdmaError(errno.EINVAL, "Requests for several packets need a CQ with their offsets")
