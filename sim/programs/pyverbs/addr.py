"""Where to send: GIDs, routes, address handles."""

from __future__ import annotations

import errno
from typing import Any

from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import AH as GuestAH
from sim.guest.verbs import AHAttr as GuestAHAttr
from sim.guest.verbs import GlobalRoute as GuestRoute
from sim.guest.verbs.gid import gid_bytes
from sim.programs.cards import Card
from sim.programs.pyverbs.base import PyverbsCM, PyverbsObject, show
from sim.programs.pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from sim.programs.pyverbs.utils import gid_text

__all__ = ["AH", "GID", "GRH", "AHAttr", "GlobalRoute"]


class GID(PyverbsObject):
    """An address of a port; ``gid`` is its text, in eight groups of four digits."""

    def __init__(self, val: str | bytes | None = None):
        super().__init__()
        self.raw = bytes(16) if val is None else gid_of(val)

    @property
    def gid(self) -> str:
        """The text."""
        return gid_text(self.raw)

    @gid.setter
    def gid(self, val: str) -> None:
        self.raw = gid_of(val)

    def __str__(self) -> str:
        return self.gid


def gid_of(val: str | bytes | GID | None) -> bytes:
    """The 16 bytes of a GID in any form; PyverbsError."""
    if val is None:
        return bytes(16)
    if isinstance(val, GID):
        return val.raw
    try:
        return gid_bytes(val)
    except (ValueError, OSError) as error:
        raise PyverbsError(f"{val!r} is no GID") from error


class GRH(PyverbsObject):
    """A received global routing header."""

    def __init__(
        self,
        sgid: str | GID | None = None,
        dgid: str | GID | None = None,
        version_tclass_flow: int = 0,
        paylen: int = 0,
        next_hdr: int = 0,
        hop_limit: int = 1,
    ):
        super().__init__()
        self.sgid, self.dgid = GID(gid_of(sgid)), GID(gid_of(dgid))
        self.version_tclass_flow, self.paylen = version_tclass_flow, paylen
        self.next_hdr, self.hop_limit = next_hdr, hop_limit


class GlobalRoute(PyverbsObject):
    """The global part of a route."""

    def __init__(
        self,
        dgid: GID | str | None = None,
        flow_label: int = 0,
        sgid_index: int = 0,
        hop_limit: int = 1,
        traffic_class: int = 0,
    ):
        super().__init__()
        self.dgid = GID(gid_of(dgid))
        self.flow_label, self.sgid_index = flow_label, sgid_index
        self.hop_limit, self.traffic_class = hop_limit, traffic_class


class _Route:
    """Passes a field of ``AHAttr`` on to its global part."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, attr: AHAttr, _owner: type | None = None) -> Any:
        return getattr(attr.gr, self._name)

    def __set__(self, attr: AHAttr, value: Any) -> None:
        setattr(attr.gr, self._name, value)


class AHAttr(PyverbsObject):
    """Attributes of an address handle. RoCE has only global ones."""

    flow_label, sgid_index, hop_limit, traffic_class = _Route(), _Route(), _Route(), _Route()

    def __init__(
        self,
        dlid: int = 0,
        sl: int = 0,
        src_path_bits: int = 0,
        static_rate: int = 0,
        is_global: int = 0,
        port_num: int = 1,
        gr: GlobalRoute | None = None,
    ):
        super().__init__()
        self.dlid, self.sl, self.src_path_bits = dlid, sl, src_path_bits
        self.static_rate, self.port_num = static_rate, port_num
        self.is_global = int(bool(is_global))
        self.gr = gr or GlobalRoute()

    @property
    def dgid(self) -> str:
        """The text of the peer's GID."""
        return self.gr.dgid.gid

    @dgid.setter
    def dgid(self, val: GID | str) -> None:
        self.gr.dgid = GID(gid_of(val))

    def __str__(self) -> str:
        return show(
            port_num=self.port_num, sl=self.sl, dlid=self.dlid, is_global=self.is_global
        ) + show(dgid=self.dgid, sgid_index=self.sgid_index, hop_limit=self.hop_limit)


def route_of(attr: AHAttr, card: Card) -> GuestAHAttr:
    """The attributes as the driver takes them, with the MAC address of the next hop.

    RdmaError: EINVAL for a route without a GID, EHOSTUNREACH when nobody has it.
    """
    if not attr.is_global:
        raise RdmaError(errno.EINVAL, "RoCE needs a global route")
    gr = attr.gr
    route = GuestRoute(
        gr.dgid.raw, gr.flow_label, gr.sgid_index, max(gr.hop_limit, 1), gr.traffic_class
    )
    mac = card.mac_of(gr.dgid.raw)
    return GuestAHAttr(route, attr.port_num, attr.sl, attr.static_rate, 1, mac)


def from_route(route: GuestAHAttr) -> AHAttr:
    """The attributes that the driver has."""
    gr = route.gr
    raw = gid_of(gr.dgid)
    ours = GlobalRoute(GID(raw), gr.flow_label, gr.sgid_index, gr.hop_limit, gr.traffic_class)
    return AHAttr(
        sl=route.sl,
        static_rate=route.static_rate,
        is_global=int(bool(route.is_global)),
        port_num=route.port_num,
        gr=ours,
    )


class AH(PyverbsCM):
    """An address handle: from ``attr``, or to the sender of a completion (``wc`` and ``grh``)."""

    rank = 3

    def __init__(self, pd: Any, **kwargs: Any):
        super().__init__()
        self.pd, card = pd, pd.card
        attr = kwargs.get("attr")
        if attr is None:
            wc, grh = kwargs.get("wc"), kwargs.get("grh")
            if wc is None or grh is None:
                raise PyverbsRDMAError("Failed to create AH", errno.EINVAL)
            route = GlobalRoute(dgid=grh.sgid)
            attr = AHAttr(sl=wc.sl, is_global=1, port_num=kwargs.get("port_num", 1), gr=route)
        try:
            self.guest = GuestAH(pd.guest, route_of(attr, card))
            card.context.query_gid(attr.port_num, attr.sgid_index)
        except OSError as error:
            raise PyverbsRDMAError("Failed to create AH", error.errno) from error
        self._opened(pd)
