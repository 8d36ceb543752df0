"""The control commands that give queues another size (docs/extensions.md, extension RESIZE).

No ring moves: a virtqueue has room for the largest size from the beginning, and the driver keeps
more or fewer of its buffers in it. The hardware takes what is in a ring, so only numbers change.
"""

from __future__ import annotations

from collections.abc import Callable

from firmware.device import Operations
from firmware.objects import Limits, Objects, Refused, Srq
from firmware.qp import UNUSED
from firmware.qp_commands import QpCommands
from hdl.abi.layout import Values

__all__ = ["ResizeCommands"]


class ResizeCommands:
    """RESIZE_CQ, RESIZE_QP and the size of MODIFY_SRQ; ``objects`` gives the device's objects."""

    def __init__(
        self, hardware: Operations, limits: Limits, objects: Callable[[], Objects], qps: QpCommands
    ):
        self._hardware, self._limits, self._objects, self._qps = hardware, limits, objects, qps

    async def _check(self, limit: str, size: int, lowest: int, queue: int) -> None:
        """Refuses a size beyond the advertised limit or beyond the ring of the virtqueue."""
        self._limits.check(limit, size, lowest)
        row = await self._hardware.read_fields("queue", queue, "enabled", "size_log2")
        if row["enabled"] and size > 1 << row["size_log2"]:
            raise Refused(f"{size} entries of a ring with {1 << row['size_log2']}")

    async def resize_cq(self, v: Values) -> None:
        """RESIZE_CQ: what is in the ring stays there."""
        cq = self._objects().cqs.get(v.cqn)
        await self._check("max_cqe", v.cqe, 1, self._limits.config.cq_queue(cq.number))

    async def resize_qp(self, v: Values) -> None:
        """RESIZE_QP, in any state of the queue pair."""
        qp, config = self._qps.find(v.qpn), self._limits.config
        if "max_send_wr" in (unused := UNUSED.get(qp.type, ())):
            raise Refused(f"QP {qp.qpn:#x} has no queues")
        if "max_recv_wr" in unused and v.max_recv_wr:
            raise Refused(f"max_recv_wr must be 0 of an initiator, not {v.max_recv_wr}")
        if qp.srq is not None and v.max_recv_wr:
            raise Refused(f"max_recv_wr must be 0 with an SRQ, not {v.max_recv_wr}")
        await self._check("max_qp_wr", v.max_send_wr, 0, config.sq_queue(qp.number))
        await self._check("max_qp_wr", v.max_recv_wr, 0, config.rq_queue(qp.number))
        sizes = {name: v[name] for name in ("max_send_wr", "max_recv_wr")}
        qp.attrs["cap"] = qp.attrs["cap"] | sizes

    async def check_srq(self, srq: Srq, max_wr: int) -> None:
        """Refuses a size that the SRQ cannot get."""
        await self._check("max_srq_wr", max_wr, 1, self._limits.config.rq_queue(srq.number))
