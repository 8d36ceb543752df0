"""The control command that makes indirect keys (docs/extensions.md).

An indirect key has a number among the last ones of the regions, because the card has room for the
entries of so many, and a row of their table. Work requests give it a layout
(``hdl/transport/send/layouts.py``), so the row alone says whether it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firmware.device import Operations
from firmware.objects import Limits, Mr, Objects, Refused
from hdl.abi import virtio_rdma as abi
from hdl.abi.layout import Values
from hdl.abi.mkeys import MkeyFlags, no_layout

#: ``MrRow.type`` of an indirect key without a layout.
_FREE = 5
#: What ``table`` must be a multiple of, although this device has no use for it.
_TABLE = 64


class MkeyCommands:
    """CREATE_MKEY; ``objects`` gives the device's objects."""

    def __init__(self, hardware: Operations, limits: Limits, objects: Callable[[], Objects]):
        self._hardware, self._limits, self._objects = hardware, limits, objects

    async def create(self, v: Values) -> dict[str, Any]:
        """CREATE_MKEY: an indirect key without a layout, through which nothing can be reached."""
        objects = self._objects()
        pd = objects.pds.get(v.pdn)
        if v.flags & ~int(MkeyFlags.REMOTE_INVALIDATE):
            raise Refused(f"flags {v.flags:#x} of an indirect key")
        self._limits.check("max_mkey_entries", v.max_entries, 1)
        if v.table % _TABLE:
            raise Refused(f"table {v.table:#x} is not a multiple of {_TABLE}")
        made = objects.mrs.add(lambda: Mr(pd, entries=v.max_entries), self._free_number(objects))
        pd.users += 1
        tag = objects.next_tag(made.number)
        row = {"type": _FREE, "pd": pd.number, "tag": tag, "block": no_layout(v.max_entries)}
        row["bind"] = int(bool(v.flags & MkeyFlags.REMOTE_INVALIDATE))
        await self._hardware.write_row("mr", made.number, row)
        key = made.number << abi.KEY_TAG_BITS | tag
        return {"mrn": made.number, "lkey": key, "rkey": key, "max_entries": v.max_entries}

    def _free_number(self, objects: Objects) -> int:
        config = self._limits.config
        numbers = range(config.mrs - config.layouts, config.mrs)
        found = next((number for number in numbers if objects.mrs.find(number) is None), None)
        if found is None:
            raise Refused(f"All {config.layouts} numbers of indirect keys are in use")
        return found
