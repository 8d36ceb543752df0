"""Where to send: routes, address attributes, address handles."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from hdl.abi.enums import AhFlags
from hdl.abi.layout import Values
from hdl.abi.multicast import is_multicast_gid, multicast_mac
from sim.guest.verbs.context import PD
from sim.guest.verbs.gid import gid_bytes


@dataclass
class GlobalRoute:
    """Global routing header of a path; ``dgid`` is the peer's GID."""

    dgid: str | bytes = bytes(16)
    flow_label: int = 0
    sgid_index: int = 0
    hop_limit: int = 64
    traffic_class: int = 0


@dataclass
class AHAttr:
    """Where to send: route, service level, port, and the next hop's MAC address."""

    gr: GlobalRoute = field(default_factory=GlobalRoute)
    port_num: int = 1
    sl: int = 0
    static_rate: int = 0
    is_global: int = 1
    roce_dmac: bytes = bytes(6)

    @classmethod
    def to_group(cls, gid: str | bytes, *, hop_limit: int = 1, **route: Any) -> AHAttr:
        """Attributes that send to a multicast group, whose MAC address follows from its GID.

        route: other fields of ``GlobalRoute``. The hop limit is that of an IP stack: the group's
        members on this link. ValueError for a GID that is no group's.
        """
        address = gid_bytes(gid)
        if not is_multicast_gid(address):
            raise ValueError(f"{gid!r} is not the address of a group")
        gr = GlobalRoute(dgid=address, hop_limit=hop_limit, **route)
        return cls(gr=gr, roce_dmac=multicast_mac(address))

    def to_abi(self) -> dict[str, Any]:
        """The fields of ``virtio_rdma_ah_attr``."""
        return {
            "grh": {**asdict(self.gr), "dgid": gid_bytes(self.gr.dgid)},
            "sl": self.sl,
            "static_rate": self.static_rate,
            "port_num": self.port_num,
            "ah_flags": AhFlags.GRH if self.is_global else 0,
            "roce_dmac": self.roce_dmac,
        }

    @classmethod
    def from_abi(cls, values: Values) -> AHAttr:
        """The attributes in an unpacked ``virtio_rdma_ah_attr``."""
        return cls(
            gr=GlobalRoute(**values.grh),
            port_num=values.port_num,
            sl=values.sl,
            static_rate=values.static_rate,
            is_global=values.ah_flags & AhFlags.GRH,
            roce_dmac=values.roce_dmac,
        )


class AH:
    """An address handle: lives in the driver only (VR-2.6)."""

    def __init__(self, pd: PD, attr: AHAttr):
        self.pd, self.attr = pd, attr

    def to_av(self) -> dict[str, Any]:
        """The fields of ``virtio_rdma_av`` (VR-4.7 for the packed word)."""
        route = self.attr.gr
        return {
            "port": self.attr.port_num,
            "pdn": self.pd.pdn,
            "sl_tclass_flowlabel": route.flow_label & 0xFFFFF
            | route.traffic_class << 20
            | self.attr.sl << 28,
            "dgid": gid_bytes(route.dgid),
            "gid_index": route.sgid_index,
            "static_rate": self.attr.static_rate,
            "hop_limit": route.hop_limit,
            "dmac": self.attr.roce_dmac,
        }
