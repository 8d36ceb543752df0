"""XRC domains, which this card does not have."""

from __future__ import annotations

from typing import Any

from sim.programs.pyverbs.absent import refusing
from sim.programs.pyverbs.base import PyverbsObject

__all__ = ["XRCD", "XRCDInitAttr"]

XRCD: Any = refusing("XRCD")


class XRCDInitAttr(PyverbsObject):
    """What a domain would be made from."""

    def __init__(self, comp_mask: int, oflags: int, fd: int):
        super().__init__()
        self.comp_mask, self.oflags, self.fd = comp_mask, oflags, fd
