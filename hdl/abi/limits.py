"""What one device tells its driver in the device configuration (virtio-rdma section 2).

Pure functions of the NIC's configuration; the gateware serves them, the firmware enforces them.
"""

from __future__ import annotations

from hdl.abi.enums import AtomicCap, DeviceCap
from hdl.abi.virtio_pci import VENDOR_ID
from hdl.abi.virtio_rdma import CONFIG, FIRST_USER_QP_INDEX, PAGE_SHIFTS, PAGE_SIZE
from hdl.config import NicConfig

__all__ = ["HARDWARE_VERSION", "VENDOR_PART_ID", "config_bytes", "device_limits", "system_guid"]

VENDOR_PART_ID = 1
HARDWARE_VERSION = 1

#: Address handles are the driver's own objects; only it limits them (VR-2.6).
MAX_AH = 1 << 16
#: Entries of the P_Key table, which the firmware keeps.
MAX_PKEYS = 16
#: Queue pairs of a multicast group: places in a row of the table of groups.
GROUP_MEMBERS = 8
#: Largest region in bytes: the page list's length is a le32 (VR-2.3, REG_USER_MR).
MAX_MR_SIZE = ((1 << 32) - 1) * PAGE_SIZE
#: Longest MEMCPY in bytes: its two SGEs together are as long as a message may be.
MAX_COPY = 1 << 30
#: Most pages of a region of CREATE_MR. The hardware has no limit; drivers allocate for so many.
MAX_FAST_PAGES = 512
#: Bytes of a receive request that takes several packets, and of its segments: from 64 on.
MAX_MP_WR_BUFFER, MIN_MP_WR_ALIGN, MAX_MP_WR_ALIGN = 1 << 24, 64, 4096
#: XRC domains of a function, which are the firmware's alone. Their numbers have 16 bits.
MAX_XRCD = 256
#: Destinations of initiators of DC, of a function, which are the firmware's alone as well.
MAX_DC_DESTINATIONS = 4096
#: log2 of the streams of an initiator of DC, and of those that fail before it does.
MAX_DCI_LOG_STREAMS, MAX_DCI_LOG_ERRORED = 16, 8


def device_limits(config: NicConfig) -> dict[str, int]:
    """Every field of ``virtio_rdma_config`` but ``sys_image_guid`` and ``reserved``.

    Capabilities are those the hardware has; a field not named by the keys is 0.
    """
    sizes = len(PAGE_SHIFTS) if config.page_sizes else 1
    flags = DeviceCap.SYS_IMAGE_GUID | DeviceCap.RC_RNR_NAK_GEN | DeviceCap.BAD_PKEY_CNTR
    if config.ud:
        flags |= DeviceCap.BAD_QKEY_CNTR
    if config.fast_registration:
        flags |= DeviceCap.MEM_MGT_EXTENSIONS
    if config.windows:
        flags |= DeviceCap.MEM_WINDOW
        flags |= DeviceCap.MEM_WINDOW_TYPE_2A | DeviceCap.MEM_WINDOW_TYPE_2B
    if config.xrc:
        flags |= DeviceCap.XRC
    if config.placement:
        flags |= DeviceCap.FLUSH_GLOBAL | DeviceCap.ATOMIC_WRITE
    if config.persistence:
        flags |= DeviceCap.FLUSH_PERSISTENT
    groups = config.groups if config.multicast else 0
    return {
        "phys_port_cnt": 1,
        "vendor_id": VENDOR_ID,
        "vendor_part_id": VENDOR_PART_ID,
        "hw_ver": HARDWARE_VERSION,
        "max_mr_size": min(MAX_MR_SIZE, (1 << config.address_bits) - 1),
        "page_size_cap": sum(1 << shift for shift in PAGE_SHIFTS[:sizes]),
        "max_qp": config.qps,
        "max_qp_wr": config.queue_size,
        "device_cap_flags": int(flags),
        "max_send_sge": config.max_sge,
        "max_recv_sge": config.max_sge,
        "max_sge_rd": config.max_sge,
        "max_cq": config.cqs,
        "max_cqe": config.queue_size,
        "max_mr": config.mrs,
        "max_pd": config.mrs,
        "max_qp_rd_atom": config.max_rd_atomic,
        "max_res_rd_atom": config.read_resources,
        "max_qp_init_rd_atom": config.max_rd_atomic,
        "atomic_cap": int(AtomicCap.HCA if config.atomics else AtomicCap.NONE),
        "max_mw": config.mrs if config.windows else 0,  # they share the numbers with the regions
        "max_mcast_grp": groups,
        "max_mcast_qp_attach": GROUP_MEMBERS if groups else 0,
        "max_total_mcast_qp_attach": groups * GROUP_MEMBERS,
        "max_ah": MAX_AH,
        "max_fast_reg_page_list_len": MAX_FAST_PAGES if config.fast_registration else 0,
        "max_pi_fast_reg_page_list_len": 0,
        "max_pkeys": MAX_PKEYS,
        "local_ca_ack_delay": 0,
        "max_srq": config.qps - FIRST_USER_QP_INDEX if config.srq else 0,  # one of the pairs each
        "max_srq_wr": config.queue_size if config.srq else 0,
        "max_xrcd": MAX_XRCD if config.xrc else 0,
        "max_mp_wr_buffer": MAX_MP_WR_BUFFER if config.mp_wr else 0,
        "max_mp_wr_align": MAX_MP_WR_ALIGN if config.mp_wr else 0,
        "max_dct": config.qps - FIRST_USER_QP_INDEX if config.dc else 0,
        "max_dc_contexts": config.qps - FIRST_USER_QP_INDEX if config.dc else 0,
        "max_dc_rd_atom": config.max_rd_atomic if config.dc else 0,
        "max_dc_init_rd_atom": config.max_rd_atomic if config.dc else 0,
        "max_dci_log_streams": MAX_DCI_LOG_STREAMS if config.dc else 0,
        "max_dci_log_errored": MAX_DCI_LOG_ERRORED if config.dc else 0,
        "max_dc_destinations": MAX_DC_DESTINATIONS if config.dc else 0,
        "max_mkey_entries": config.max_sge if config.mkeys else 0,
        "max_memcpy_length": MAX_COPY if config.memcpy else 0,
        "max_srq_sge": config.max_sge if config.srq else 0,
    }


def system_guid(mac: bytes) -> bytes:
    """EUI-64 of a MAC address (IEEE, with FF FE in the middle), network order."""
    if len(mac) != 6:
        raise ValueError(f"A MAC address has 6 bytes, not {mac!r}")
    return mac[:3] + b"\xff\xfe" + mac[3:]


def config_bytes(config: NicConfig, mac: bytes) -> bytes:
    """The 640 bytes of device configuration of a port with address ``mac``."""
    return CONFIG.pack(device_limits(config), sys_image_guid=system_guid(mac))
