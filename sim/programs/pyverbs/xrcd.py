"""XRC domains: what targets and shared receive queues of several processes have in common."""

from __future__ import annotations

import errno
import os
from typing import Any

from sim.guest.verbs import XRCD as GuestXRCD
from sim.programs.cards import Card
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.base import PyverbsCM, PyverbsObject, ask
from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError

__all__ = ["XRCD", "XRCDInitAttr"]

_MASK = enums.IBV_XRCD_INIT_ATTR_FD | enums.IBV_XRCD_INIT_ATTR_OFLAGS


class XRCDInitAttr(PyverbsObject):
    """What a domain is opened by: a file, or -1 for one without a name, and flags of ``os.open``;
    ``comp_mask`` must say that both count."""

    def __init__(self, comp_mask: int, oflags: int, fd: int):
        super().__init__()
        self.comp_mask, self.oflags, self.fd = comp_mask, oflags, fd


class XRCD(PyverbsCM):
    """A domain. Handles whose files are one inode share it, and the last that is closed frees it.

    PyverbsRDMAError: EOPNOTSUPP on a card without XRC; EINVAL without both attributes, or with
    O_EXCL if there is one; EAGAIN without O_CREAT if there is none; EBADF.
    """

    rank = 6

    def __init__(self, context: Any, init_attr: XRCDInitAttr):
        super().__init__()
        self.context, self.card = context, context.card
        self._name = self._find(self.card, init_attr)
        found = self.card.xrcds.get(self._name) if self._name else None
        if found is None:
            work = GuestXRCD.create(self.card.context)
            found = [ask(self.card, work, "Failed to allocate XRCD"), 0]
            if self._name:
                self.card.xrcds[self._name] = found
        found[1] += 1
        self._shared = found
        self.guest: GuestXRCD = found[0]
        self._opened(context)

    @staticmethod
    def _find(card: Card, attr: XRCDInitAttr) -> tuple[int, int] | None:
        """The inode that names the domain, which must be as the flags say."""
        failed = "Failed to allocate XRCD"
        if attr.comp_mask & _MASK != _MASK:
            raise PyverbsRDMAError(failed, errno.EINVAL)
        if attr.fd == -1:
            return None
        try:
            status = os.fstat(attr.fd)
        except OSError as error:
            raise PyverbsRDMAError(failed, error.errno) from error
        name = status.st_dev, status.st_ino
        if name not in card.xrcds and not attr.oflags & os.O_CREAT:
            raise PyverbsRDMAError(failed, errno.EAGAIN)
        if name in card.xrcds and attr.oflags & os.O_EXCL:
            raise PyverbsRDMAError(failed, errno.EINVAL)
        return name

    def _destroy(self) -> None:
        self._shared[1] -= 1
        if not self._shared[1]:
            if self._name:
                self.card.xrcds.pop(self._name, None)
            ask(self.card, self.guest.close(), "Failed to dealloc XRCD")
