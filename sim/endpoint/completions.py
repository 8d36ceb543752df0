"""Completion queues of an endpoint: shared by its QPs, emptied before they can overflow."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from hdl.abi.enums import WcFlags, WcOpcode, WcStatus
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import CQ, WC, Context

__all__ = ["Completions", "shown"]


class Completions:
    """As many CQs as the queue pairs need, each of the device's largest size.

    A work queue reserves an entry for each request that it can hold. Requests are posted only
    after ``collect``, so never more completions are outstanding than entries were reserved.
    """

    def __init__(self, context: Context):
        self._context = context
        self._free: dict[CQ, int] = {}
        self._found: deque[WC] = deque()

    def __len__(self) -> int:
        return len(self._found)

    async def reserve(self, entries: int) -> CQ:
        """A CQ with room for ``entries`` more; RdmaError(ENOMEM) when the device has no more."""
        device = self._context.query_device()
        if entries > device.max_cqe:
            text = f"{entries} completions; a CQ has {device.max_cqe} entries"
            raise RdmaError(errno.EINVAL, text)
        cq = next((cq for cq, free in self._free.items() if free >= entries), None)
        if cq is None:
            if len(self._free) >= device.max_cq:
                raise RdmaError(
                    errno.ENOMEM, f"All {device.max_cq} CQs are in use, none has {entries} entries"
                )
            cq = await CQ.create(self._context, device.max_cqe, with_mp_wr=True)
            self._free[cq] = device.max_cqe
        self._free[cq] -= entries
        return cq

    async def reserve_two(self, send: int, receive: int) -> Sequence[tuple[CQ, int]]:
        """CQs for the two queues of a QP, each with its entries: the same one unless they are too
        long for that."""
        if send + receive <= self._context.query_device().max_cqe:
            cq = await self.reserve(send + receive)
            return (cq, send), (cq, receive)
        first = await self.reserve(send), send
        try:
            return first, (await self.reserve(receive), receive)
        except RdmaError:
            self.release([first])
            raise

    def release(self, reserved: Iterable[tuple[CQ, int]]) -> None:
        """Gives back entries that have been reserved."""
        for cq, entries in reserved:
            self._free[cq] += entries

    async def collect(self) -> None:
        """Take what has completed so far from the device."""
        for cq in self._free:
            while found := await cq.poll(cq.cqe):
                self._found += found

    def take(self, count: int) -> list[WC]:
        """The oldest completions collected, at most ``count``."""
        return [self._found.popleft() for _ in range(min(count, len(self._found)))]


def shown(wc: WC) -> dict[str, Any]:
    """A completion as the protocol has it."""
    opcodes = {opcode.value: opcode.name for opcode in WcOpcode}
    return {
        "wr_id": wc.wr_id,
        "status": wc.status.name,
        "opcode": opcodes.get(wc.opcode),
        "byte_len": wc.byte_len,
        "imm": wc.imm_data if WcFlags.WITH_IMM in wc.wc_flags else 0,
        "invalidated_rkey": wc.invalidated_rkey if WcFlags.WITH_INV in wc.wc_flags else 0,
        "qp_num": wc.qp_num,
        "src_qp": wc.src_qp,
        "flags": [flag.name for flag in WcFlags if flag in wc.wc_flags],
        "vendor_err": wc.vendor_err if wc.status != WcStatus.SUCCESS else 0,
        "mp_wr_offset": wc.mp_wr_offset,
    }
