"""Protection domains."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

from sim.guest.verbs import PD as GuestPD
from sim.programs.pyverbs.base import PyverbsCM, PyverbsObject, ask
from sim.programs.pyverbs.enums import IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError

__all__ = ["PD", "TD", "ParentDomain", "ParentDomainContext", "ParentDomainInitAttr", "TdInitAttr"]


class PD(PyverbsCM):
    """A protection domain of a context; with ``handle`` one that another context has made."""

    rank = 7

    def __init__(self, creator: Any, **kwargs: Any):
        super().__init__()
        self.context, self.card = creator, creator.card
        self._imported = "handle" in kwargs
        if self._imported:
            found = self.card.pds.get(kwargs["handle"])
            if found is None:
                raise PyverbsRDMAError("Failed to import PD", errno.EINVAL)
            self.guest: GuestPD = found
        else:
            self.guest = ask(self.card, GuestPD.create(self.card.context), "Failed to allocate PD")
            self.card.pds[self.handle] = self.guest
        self._opened(creator)

    @property
    def handle(self) -> int:
        """What another context imports it by."""
        return self.guest.pdn

    def unimport(self) -> None:
        """Leaves an imported domain to its owner."""
        self.close()

    def advise_mr(self, advise: int, flags: int, sg_list: Sequence[Any]) -> None:
        """The card pages nothing in on demand: PyverbsRDMAError with EOPNOTSUPP."""
        raise PyverbsRDMAError("Failed to advise MR", errno.EOPNOTSUPP)

    def _destroy(self) -> None:
        if not self._imported:
            ask(self.card, self.guest.close(), "Failed to dealloc PD")
            self.card.pds.pop(self.handle, None)


class ParentDomainContext(PyverbsObject):
    """Allocators of a parent domain and what they share.

    The queues of this card are in the memory of its driver, so nobody calls them.
    """

    def __init__(
        self,
        pd: PD,
        alloc_func: Callable[..., Any] | None = None,
        free_func: Callable[..., Any] | None = None,
        user_data: Any = None,
    ):
        super().__init__()
        self.pd, self.p_alloc, self.p_free, self.user_data = pd, alloc_func, free_func, user_data


class ParentDomainInitAttr(PyverbsObject):
    """What a parent domain is made from."""

    def __init__(self, pd: PD, pd_context: ParentDomainContext | None = None, td: TD | None = None):
        super().__init__()
        self.pd, self.pd_context, self.td = pd, pd_context, td
        self.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT if pd_context else 0


class ParentDomain(PD):
    """A protection domain with hints for the software: objects of it are in the domain's PD."""

    rank = 6

    def __init__(self, context: Any, attr: ParentDomainInitAttr):
        PyverbsCM.__init__(self)
        self.context, self.card = context, context.card
        self.protection_domain, self.guest = attr.pd, attr.pd.guest
        self._imported = True
        self._opened(context, attr.pd)


class TdInitAttr(PyverbsObject):
    """What a thread domain is made from."""

    def __init__(self, comp_mask: int = 0):
        super().__init__()
        self.comp_mask = comp_mask


class TD(PyverbsCM):
    """A thread domain: a promise of the program that saves locks, of which there are none."""

    rank = 8

    def __init__(self, context: Any, init_attr: TdInitAttr | None = None):
        super().__init__()
        self._opened(context)
