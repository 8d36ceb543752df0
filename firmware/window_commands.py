"""The control commands about memory windows (docs/extensions.md).

A window has a number among the regions, and a row of their table. Work requests bind it
(``hdl/context/region_keys.py``), so the row alone says whether it is bound, and to what. Windows of
types 2A and 2B have the same rows: both are bound by a QP of the window's domain, which stays the
domain of both, so to compare it again at each access finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firmware.device import Operations
from firmware.objects import Limits, Mr, Objects, Refused
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import MwType
from hdl.abi.layout import Values

#: Values of ``MrRow.type``.
_REGION = 2
_FREE = {MwType.TYPE_1: 8, MwType.TYPE_2: 12, MwType.TYPE_2A: 12}
_BOUND = {MwType.TYPE_1: 10, MwType.TYPE_2: 14, MwType.TYPE_2A: 14}


class WindowCommands:
    """ALLOC_MW and DEALLOC_MW, and what other commands must know of windows; ``objects`` gives the
    device's objects."""

    def __init__(self, hardware: Operations, limits: Limits, objects: Callable[[], Objects]):
        self._hardware, self._limits, self._objects = hardware, limits, objects

    async def alloc(self, v: Values) -> dict[str, Any]:
        """ALLOC_MW: a window that is not bound."""
        objects = self._objects()
        pd = objects.pds.get(v.pdn)
        if v.type not in list(MwType):
            raise Refused(f"type {v.type} of a window")
        kind = MwType(v.type)
        window = objects.mrs.add(lambda: Mr(pd, window=kind))
        pd.users += 1
        tag = objects.next_tag(window.number)
        await self._write_free(window, kind, tag)
        return {"mwn": window.number, "rkey": window.number << abi.KEY_TAG_BITS | tag}

    async def dealloc(self, v: Values) -> None:
        """DEALLOC_MW: no access through it is under way any more when this is answered."""
        window = self._objects().mrs.get(v.mwn)
        if window.window is None:
            raise Refused(f"MR {window.number} is not a window")
        await self._hardware.write_row("mr", window.number, {})
        await self._hardware.invalidate(window.number)
        window.pd.users -= 1
        self._objects().mrs.remove(window.number)

    async def check_unbound(self, mr: Mr) -> None:
        """Refuses to go on while a window is bound to the region. If none is, none can be until the
        region's row is written again."""
        row = await self.row(mr) if self._windows() else {}
        if row.get("type") != _REGION or not row["bind"]:
            return
        if (window := await self._bound_to(mr)) is None:
            # One that is being bound is bound by now, or will find that it may not be.
            self.keep(mr, row)
            await self._hardware.write_row("mr", mr.number, row | {"bind": 0})
            if (window := await self._bound_to(mr)) is not None:
                await self._hardware.write_row("mr", mr.number, row)
                mr.kept = None
        if window is not None:
            raise Refused(f"window {window.number} is bound to MR {mr.number}")

    async def row(self, mr: Mr) -> dict[str, int]:
        """The region's row, as it was before a command that is taking it away."""
        return mr.kept or await self._hardware.read_row("mr", mr.number)

    def keep(self, mr: Mr, row: dict[str, int]) -> None:
        """The region's row is about to be taken away, and nothing else on the card has it."""
        mr.kept = row
        self._objects().checkpoint()

    async def release(self, pair: int) -> None:
        """Frees the windows of type 2 that a QP has bound, which must have stopped."""
        for window, kind in self._windows():
            if kind is not MwType.TYPE_1:
                row = await self._hardware.read_fields("mr", window.number, "type", "qp", "tag")
                owner = row["qp"] % self._limits.config.qps
                if row["type"] == _BOUND[kind] and owner == pair:
                    await self._write_free(window, kind, row["tag"])

    async def _bound_to(self, mr: Mr) -> Mr | None:
        for window, kind in self._windows():
            found = await self._hardware.read_fields("mr", window.number, "type", "parent")
            parent = found["parent"] % self._limits.config.mrs
            if found["type"] == _BOUND[kind] and parent == mr.number:
                return window
        return None

    def _windows(self) -> list[tuple[Mr, MwType]]:
        return [(mr, mr.window) for mr in self._objects().mrs.all() if mr.window is not None]

    async def _write_free(self, window: Mr, kind: MwType, tag: int) -> None:
        row = {"type": _FREE[kind], "pd": window.pd.number, "tag": tag}
        await self._hardware.write_row("mr", window.number, row)
