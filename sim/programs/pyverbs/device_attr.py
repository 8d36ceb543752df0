"""What a device and its port say of themselves."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from hdl.abi.layout import Values
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.base import PyverbsObject, show
from sim.programs.pyverbs.mp_wr import MpWrCaps
from sim.programs.pyverbs.utils import gid_text

__all__ = ["DeviceAttr", "DeviceAttrEx", "GIDEntry", "PortAttr"]

#: Fields that are those of the device configuration.
_SAME = (
    *("max_mr_size", "page_size_cap", "vendor_id", "vendor_part_id", "hw_ver", "max_qp"),
    *("max_qp_wr", "max_sge_rd", "max_cq", "max_cqe", "max_mr", "max_pd", "max_qp_rd_atom"),
    *("max_res_rd_atom", "max_qp_init_rd_atom", "max_mw", "max_mcast_grp"),
    *("max_mcast_qp_attach", "max_ah", "max_srq", "max_srq_wr", "max_srq_sge", "max_pkeys"),
    *("local_ca_ack_delay", "phys_port_cnt"),
)
#: Fields of what RoCE does not have.
_NONE = (
    *("max_ee", "max_ee_init_rd_atom", "max_ee_rd_atom", "max_fmr", "max_map_per_fmr", "max_rdd"),
    *("max_raw_ethy_qp", "max_raw_ipv6_qps"),
)
#: Capabilities that libibverbs' first word of flags has.
_PLAIN = (1 << 32) - 1


class DeviceAttr(PyverbsObject):
    """Limits and capabilities of a device. ``resize``: whether its shared queues can be resized."""

    vendor_id: int
    vendor_part_id: int

    def __init__(self, config: Values, *, resize: bool = False):
        super().__init__()
        for name in _SAME:
            setattr(self, name, config[name])
        for name in _NONE:
            setattr(self, name, 0)
        self.fw_version = f"{config.hw_ver}.0"
        #: In network order, as it stands in memory.
        self.node_guid = self.sys_image_guid = int.from_bytes(config.sys_image_guid, sys.byteorder)
        self.max_sge = min(config.max_send_sge, config.max_recv_sge)
        self.atomic_caps = config.atomic_cap
        self.all_flags = config.device_cap_flags
        self.device_cap_flags = config.device_cap_flags & _PLAIN
        self.mp_wr_caps = MpWrCaps(config.max_mp_wr_buffer, config.max_mp_wr_align)
        if resize:
            self.device_cap_flags |= enums.IBV_DEVICE_SRQ_RESIZE

    def __str__(self) -> str:
        return show(**{name: getattr(self, name) for name in ("fw_version", *_SAME)})


def _zeros(*names: str) -> Any:
    """Capabilities of what the card does not have."""
    return SimpleNamespace(**dict.fromkeys(names, 0))


class DeviceAttrEx(PyverbsObject):
    """The same, and those of extensions."""

    def __init__(self, attr: DeviceAttr):
        super().__init__()
        self.orig_attr = attr
        self.comp_mask = self.completion_timestamp_mask = self.hca_core_clock = 0
        self.device_cap_flags_ex = attr.all_flags
        self.max_wq_type_rq = self.raw_packet_caps = self.max_dm_size = self.xrc_odp_caps = 0
        self.phys_port_cnt_ex: int = attr.phys_port_cnt  # type: ignore[attr-defined]
        self.odp_caps = _zeros(
            *("general_caps", "rc_odp_caps", "uc_odp_caps", "ud_odp_caps", "xrc_odp_caps")
        )
        self.rss_caps = _zeros(
            *("max_rwq_indirection_table_size", "max_rwq_indirection_tables"),
            *("rx_hash_fields_mask", "rx_hash_function", "supported_qpts"),
        )
        self.packet_pacing_caps = _zeros("qp_rate_limit_max", "qp_rate_limit_min", "supported_qpts")
        self.pci_atomic_caps = _zeros("compare_swap", "fetch_add", "swap")
        self.tm_caps = _zeros("flags", "max_num_tags", "max_ops", "max_rndv_hdr_size", "max_sge")
        self.cq_mod_caps = _zeros("max_cq_count", "max_cq_period")
        self.tso_caps = _zeros("max_tso", "supported_qpts")
        self.mp_wr_caps = attr.mp_wr_caps

    def __str__(self) -> str:
        return str(self.orig_attr)


class PortAttr(PyverbsObject):
    """State and properties of a port. What InfiniBand alone has is 0."""

    def __init__(self, port: Values):
        super().__init__()
        self.state, self.phys_state = port.state, port.phys_state
        self.max_mtu, self.active_mtu = port.max_mtu, port.active_mtu
        self.gid_tbl_len, self.pkey_tbl_len = port.gid_tbl_len, port.pkey_tbl_len
        self.port_cap_flags, self.max_msg_sz = port.port_cap_flags, port.max_msg_sz
        self.bad_pkey_cntr, self.qkey_viol_cntr = port.bad_pkey_cntr, port.qkey_viol_cntr
        self.active_width, self.active_speed = port.active_width, port.active_speed
        self.active_speed_ex = 0
        self.link_layer = enums.IBV_LINK_LAYER_ETHERNET
        self.lid = self.lmc = self.sm_lid = self.sm_sl = self.subnet_timeout = 0
        self.init_type_reply = self.port_cap_flags2 = self.flags = 0
        self.max_vl_num = 1

    def __str__(self) -> str:
        return show(state=self.state, max_mtu=self.max_mtu, active_mtu=self.active_mtu)


class GIDEntry(PyverbsObject):
    """An entry of a port's address table."""

    def __init__(self, raw: bytes, gid_index: int, port_num: int):
        super().__init__()
        self.raw, self.gid_index, self.port_num = raw, gid_index, port_num
        self.gid_type: int = enums.IBV_GID_TYPE_ROCE_V2
        self.ndev_ifindex = 0

    @property
    def gid_subnet_prefix(self) -> int:
        """The first half, in network order, as it stands in memory."""
        return int.from_bytes(self.raw[:8], sys.byteorder)

    @property
    def gid_interface_id(self) -> int:
        """The second half."""
        return int.from_bytes(self.raw[8:], sys.byteorder)

    def gid_str(self) -> str:
        """The text."""
        return gid_text(self.raw)
