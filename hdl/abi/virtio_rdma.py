"""Structures of virtio-rdma: device configuration, control queue, work requests, completions.

Spec: virtio-rdma sections 2 to 4, read packed and little-endian (VR-0.1). Opaque to byte order:
GIDs, MAC addresses, ``sys_image_guid`` and ``imm_data`` are raw bytes (VR-0.2, E-7, E-8, E-9).
"""

from __future__ import annotations

from hdl.abi import queue_numbers
from hdl.abi.enums import ControlCommand, ExtensionCommand
from hdl.abi.extensions import (
    EXTENSIONS,
    WR_ATOMIC_WRITE,
    WR_BIND,
    WR_DC,
    WR_FLUSH,
    WR_MKEY,
    WR_XRC,
)
from hdl.abi.layout import (
    NOTHING,
    Scalar,
    Struct,
    Union,
    array,
    byte_array,
    le16,
    le32,
    le64,
    nested,
    u8,
)
from hdl.abi.push import PUSH_PIECE
from hdl.abi.regions import REGION_MEMORY

#: Version of the layouts here; grows whenever an offset, a size or a number changes.
ABI_VERSION = 2

#: Most completion queues and most queue pairs a device may have (VR-1.4, VR-1.5).
MAX_CQ_LIMIT = MAX_QP_LIMIT = 16384

#: Memory keys: region number above an 8-bit variant tag (VR-3.18).
KEY_TAG_BITS = 8

#: Feature bits of the device type's own, from bit 0 on, that the firmware is told of.
TYPE_FEATURES = 16
#: Feature bits that the device type has from bit 0 on (Virtio 1.2, 6).
DEVICE_FEATURES = 24

#: Queue pair 0 is unused and pair 1 is the general services interface (VR-3.22).
GSI_QP_INDEX = 1
FIRST_USER_QP_INDEX = 2
#: Q_Key of the general services interface, well known (IBTA vol 1, 13.5.1.1).
GSI_QKEY = 0x80010000

#: Width of a QPN on the wire and of a PSN, in bits.
QPN_BITS = PSN_BITS = 24

#: Page size of memory regions in bytes, and the size of one page list entry (VR-3.15, VR-3.16).
PAGE_SIZE = 4096
#: log2 of the sizes of pages that a region may have: 4 KiB, 2 MiB, 1 GiB.
PAGE_SHIFTS = (12, 21, 30)
PAGE_ENTRY_SIZE = 8
#: Size in bytes of a page of the second level of a page list, and the entries that it holds.
TABLE_PAGE_SIZE = 4096
TABLE_PAGE_ENTRIES = TABLE_PAGE_SIZE // PAGE_ENTRY_SIZE

#: Bytes of GRH at the start of a UD receive buffer (VR-5.23).
GRH_SIZE = 40

CONTROL_QUEUE = 0

#: This device's own addition to the specification: counters for the driver, read-only. Whether they
#: are there, ``magic`` says.
COUNTER_BAR, COUNTER_OFFSET = 0, 0x6000
COUNTER_MAGIC = int.from_bytes(b"RCTR", "little")
COUNTER_VERSION = 2
COUNTER_WINDOW = Struct(
    "counter_window",
    le32("magic", "RCTR"),
    le32("version", "1; grows when the order of the counters changes, not with more at the end"),
    le32("count", "counters behind this header, le32 each, which wrap"),
    le32("qp_count", "counters of each QP, in the window at QP_COUNTER_OFFSET"),
)
#: And those of one QP, read-only but for the number that selects it.
QP_COUNTER_OFFSET = 0x7000
QP_COUNTER_WINDOW = Struct(
    "qp_counter_window",
    le32("qpn", "whose counters follow, le32 each, which wrap; the driver writes it"),
)

CONFIG = Struct(
    "virtio_rdma_config",
    le32("phys_port_cnt"),
    byte_array("sys_image_guid", 8, "network order"),
    le32("vendor_id"),
    le32("vendor_part_id"),
    le32("hw_ver"),
    le64("max_mr_size", "bytes"),
    le64("page_size_cap", "bit n: pages of 2**n bytes"),
    le32("max_qp"),
    le32("max_qp_wr"),
    le64("device_cap_flags", "DeviceCap"),
    le32("max_send_sge", "other than RDMA READ"),
    le32("max_recv_sge"),
    le32("max_sge_rd", "RDMA READ"),
    le32("max_cq"),
    le32("max_cqe"),
    le32("max_mr"),
    le32("max_pd"),
    le32("max_qp_rd_atom", "initiator, per QP"),
    le32("max_res_rd_atom", "responder, whole device"),
    le32("max_qp_init_rd_atom"),
    u8("atomic_cap", "AtomicCap"),
    le32("max_mw"),
    le32("max_mcast_grp"),
    le32("max_mcast_qp_attach"),
    le32("max_total_mcast_qp_attach"),
    le32("max_ah"),
    le32("max_fast_reg_page_list_len"),
    le32("max_pi_fast_reg_page_list_len"),
    le16("max_pkeys"),
    u8("local_ca_ack_delay"),
    le32("max_srq", "extension SRQ, else 0; this field was reserved, as were the next two"),
    le32("max_srq_wr", "extension SRQ, else 0"),
    le32("max_srq_sge", "extension SRQ, else 0"),
    le32("max_xrcd", "extension XRC, else 0; this field was reserved"),
    le32("max_mp_wr_buffer", "bytes; extension MP_WR, else 0; this field was reserved"),
    le32("max_mp_wr_align", "bytes; extension MP_WR, else 0; this field was reserved"),
    le32("max_dct", "extension DC, else 0; this field was reserved, as were the next six"),
    le32("max_dc_contexts", "ends of connections of its targets; they share the queue pairs"),
    le32("max_dc_rd_atom", "initiator, of one connection"),
    le32("max_dc_init_rd_atom", "target, of one connection"),
    u8("max_dci_log_streams", "0: there are no streams"),
    u8("max_dci_log_errored"),
    le16("max_dc_destinations"),
    le32("max_mkey_entries", "extension MKEY, else 0; this field was reserved"),
    le32("max_memcpy_length", "bytes; extension MEMCPY, else 0; this field was reserved"),
    array("reserved", Scalar(4), 115),
)

# Control queue ---------------------------------------------------------------------------------

REQUEST_HEADER = Struct("virtio_rdma_ctrl_req", u8("command", "ControlCommand"))
RESPONSE_HEADER = Struct("virtio_rdma_ctrl_rsp", u8("response", "Response"))

CMD_QUERY_PORT = Struct("cmd_query_port", u8("port", "from 1"))
RSP_QUERY_PORT = Struct(
    "rsp_query_port",
    u8("state", "PortState"),
    u8("max_mtu", "Mtu"),
    u8("active_mtu", "Mtu"),
    le32("phys_mtu", "bytes"),
    le32("gid_tbl_len"),
    le32("port_cap_flags", "PortCap"),
    le32("max_msg_sz", "bytes"),
    le32("bad_pkey_cntr"),
    le32("qkey_viol_cntr"),
    le16("pkey_tbl_len"),
    u8("active_width", "PortWidth"),
    le16("active_speed", "PortSpeed"),
    u8("phys_state", "PhysState"),
    array("reserved", Scalar(4), 32),
)

CMD_CREATE_CQ = Struct("cmd_create_cq", le32("cqe", "depth"))
RSP_CREATE_CQ = Struct("rsp_create_cq", le32("cqn", "from 0; its virtqueue is 1 + cqn"))
CMD_DESTROY_CQ = Struct("cmd_destroy_cq", le32("cqn"))

RSP_CREATE_PD = Struct("rsp_create_pd", le32("pdn"))
CMD_DESTROY_PD = Struct("cmd_destroy_pd", le32("pdn"))

CMD_GET_DMA_MR = Struct("cmd_get_dma_mr", le32("pdn"), le32("access_flags", "Access"))
RSP_GET_DMA_MR = Struct("rsp_get_dma_mr", le32("mrn"), le32("lkey"), le32("rkey"))
CMD_CREATE_MR = Struct(
    "cmd_create_mr", le32("pdn"), le32("access_flags", "Access"), le32("max_num_sg")
)
RSP_CREATE_MR = Struct("rsp_create_mr", le32("mrn"), le32("lkey"), le32("rkey"))
CMD_MAP_MR_SG = Struct(
    "cmd_map_mr_sg",
    le32("mrn"),
    le32("npages"),
    le64("start"),
    le64("length"),
    le64("pages", "address of npages le64 page addresses"),
)
RSP_MAP_MR_SG = Struct("rsp_map_mr_sg", le32("npages"))
CMD_REG_USER_MR = Struct(
    "cmd_reg_user_mr",
    le32("pdn"),
    le32("access_flags", "Access"),
    *REGION_MEMORY,
)
RSP_REG_USER_MR = Struct("rsp_reg_user_mr", le32("mrn"), le32("lkey"), le32("rkey"))
CMD_DEREG_MR = Struct("cmd_dereg_mr", le32("mrn"))

CMD_CREATE_QP = Struct(
    "cmd_create_qp",
    le32("pdn"),
    u8("qp_type", "QpType"),
    u8("sq_sig_type", "SigType"),
    le32("max_send_wr"),
    le32("max_send_sge"),
    le32("send_cqn"),
    le32("max_recv_wr"),
    le32("max_recv_sge"),
    le32("recv_cqn"),
    le32("max_inline_data", "bytes"),
    le32("srqn", "extension SRQ: its WQEs are taken, 0: the pair's own; this field was reserved"),
    le32("xrcdn", "extension XRC: domain of an XRC_TGT, else 0; this field was reserved"),
    le64("dc_key", "extension DC: access key of a DCT, else 0; this field was reserved"),
    u8("log_streams", "extension DC: of a DCI with streams, log2, else 0; was reserved"),
    u8("log_errored", "extension DC: log2 of those that may fail, else 0; was reserved"),
    le16("create_flags", "extension DC: DcFlags of a DCI, else 0; was reserved"),
    le32("mp_wr_buffer", "extension MP_WR: bytes of each receive buffer, else 0; was reserved"),
    u8("mp_wr_align_log2", "extension MP_WR: of the bytes of a segment, else 0; was reserved"),
    byte_array("reserved", 7),
)
RSP_CREATE_QP = Struct("rsp_create_qp", le32("qpn", "low bits: index of the queue pair"))
GLOBAL_ROUTE = Struct(
    "virtio_rdma_global_route",
    byte_array("dgid", 16),
    le32("flow_label"),
    u8("sgid_index"),
    u8("hop_limit"),
    u8("traffic_class"),
)
AH_ATTR = Struct(
    "virtio_rdma_ah_attr",
    nested("grh", GLOBAL_ROUTE),
    u8("sl"),
    u8("static_rate"),
    u8("port_num"),
    u8("ah_flags", "AhFlags"),
    byte_array("roce_dmac", 6),
)
QP_CAP = Struct(
    "virtio_rdma_qp_cap",
    le32("max_send_wr"),
    le32("max_recv_wr"),
    le32("max_send_sge"),
    le32("max_recv_sge"),
    le32("max_inline_data", "bytes"),
)
QP_ATTR = Struct(
    "virtio_rdma_qp_attr",
    u8("qp_state", "QpState"),
    u8("cur_qp_state", "QpState"),
    u8("path_mtu", "Mtu"),
    u8("path_mig_state", "MigState"),
    le32("qkey"),
    le32("rq_psn"),
    le32("sq_psn"),
    le32("dest_qp_num"),
    le32("qp_access_flags", "Access"),
    le16("pkey_index"),
    le16("alt_pkey_index"),
    u8("en_sqd_async_notify"),
    u8("sq_draining", "output only"),
    u8("max_rd_atomic", "initiator depth"),
    u8("max_dest_rd_atomic", "responder depth"),
    u8("min_rnr_timer", "5-bit code"),
    u8("port_num"),
    u8("timeout", "4.096 us * 2**timeout, 0: infinite"),
    u8("retry_cnt", "3 bits"),
    u8("rnr_retry", "3 bits, 7: infinite"),
    u8("alt_port_num"),
    u8("alt_timeout"),
    le32("rate_limit", "kbit/s"),
    nested("cap", QP_CAP),
    nested("ah_attr", AH_ATTR),
    nested("alt_ah_attr", AH_ATTR),
)
CMD_MODIFY_QP = Struct(
    "cmd_modify_qp",
    le32("qpn"),
    le32("attr_mask", "QpAttrMask"),
    nested("attrs", QP_ATTR),
)
CMD_QUERY_QP = Struct("cmd_query_qp", le32("qpn"), le32("attr_mask", "QpAttrMask"))
RSP_QUERY_QP = Struct("rsp_query_qp", nested("attr", QP_ATTR))
CMD_DESTROY_QP = Struct("cmd_destroy_qp", le32("qpn"))

CMD_QUERY_PKEY = Struct("cmd_query_pkey", le32("port", "from 1"), le16("index"))
RSP_QUERY_PKEY = Struct("rsp_query_pkey", le16("pkey"))
CMD_ADD_GID = Struct(
    "cmd_add_gid",
    byte_array("gid", 16),
    le32("gid_type", "GidType"),
    le16("index"),
    le32("port_num", "from 1"),
)
CMD_DEL_GID = Struct("cmd_del_gid", le16("index"), le32("port", "from 1"))
CMD_REQ_NOTIFY = Struct("cmd_req_notify", le32("cqn"), le32("flags", "NotifyFlags"))

#: Request and response data of every control command, after their one-byte headers (VR-3.6).
COMMANDS: dict[ControlCommand, tuple[Struct, Struct]] = {
    ControlCommand.QUERY_PORT: (CMD_QUERY_PORT, RSP_QUERY_PORT),
    ControlCommand.CREATE_CQ: (CMD_CREATE_CQ, RSP_CREATE_CQ),
    ControlCommand.DESTROY_CQ: (CMD_DESTROY_CQ, NOTHING),
    ControlCommand.CREATE_PD: (NOTHING, RSP_CREATE_PD),
    ControlCommand.DESTROY_PD: (CMD_DESTROY_PD, NOTHING),
    ControlCommand.GET_DMA_MR: (CMD_GET_DMA_MR, RSP_GET_DMA_MR),
    ControlCommand.CREATE_MR: (CMD_CREATE_MR, RSP_CREATE_MR),
    ControlCommand.MAP_MR_SG: (CMD_MAP_MR_SG, RSP_MAP_MR_SG),
    ControlCommand.REG_USER_MR: (CMD_REG_USER_MR, RSP_REG_USER_MR),
    ControlCommand.DEREG_MR: (CMD_DEREG_MR, NOTHING),
    ControlCommand.CREATE_QP: (CMD_CREATE_QP, RSP_CREATE_QP),
    ControlCommand.MODIFY_QP: (CMD_MODIFY_QP, NOTHING),
    ControlCommand.QUERY_QP: (CMD_QUERY_QP, RSP_QUERY_QP),
    ControlCommand.DESTROY_QP: (CMD_DESTROY_QP, NOTHING),
    ControlCommand.QUERY_PKEY: (CMD_QUERY_PKEY, RSP_QUERY_PKEY),
    ControlCommand.ADD_GID: (CMD_ADD_GID, NOTHING),
    ControlCommand.DEL_GID: (CMD_DEL_GID, NOTHING),
    ControlCommand.REQ_NOTIFY_CQ: (CMD_REQ_NOTIFY, NOTHING),
}

#: A command of virtio-rdma or of an extension.
AnyCommand = ControlCommand | ExtensionCommand


def structures(command: AnyCommand) -> tuple[Struct, Struct]:
    """Request and response data of any command."""
    if isinstance(command, ControlCommand):
        return COMMANDS[command]
    return next(commands[command] for commands in EXTENSIONS.values() if command in commands)


# Work requests and completions -----------------------------------------------------------------

#: Immediate data or the key to invalidate. The immediate is copied verbatim (E-8).
EX = Union("ex_u", byte_array("imm_data", 4), le32("invalidate_rkey"))
AV = Struct(
    "virtio_rdma_av",
    le32("port"),
    le32("pdn"),
    le32("sl_tclass_flowlabel", "19:0 flow label, 27:20 traffic class, 31:28 SL"),
    byte_array("dgid", 16),
    u8("gid_index"),
    u8("static_rate"),
    u8("hop_limit"),
    byte_array("dmac", 6),
    byte_array("reserved", 6),
)
WR_RDMA = Struct("wr_rdma", le64("remote_addr"), le32("rkey"))
WR_ATOMIC = Struct(
    "wr_atomic", le64("remote_addr"), le64("compare_add"), le64("swap"), le32("rkey")
)
WR_UD = Struct("wr_ud", le32("remote_qpn"), le32("remote_qkey"), nested("av", AV))
WR_REG = Struct("wr_reg", le32("mrn"), le32("key"), le32("access", "Access"))
WR = Union(
    "wr_u",
    nested("rdma", WR_RDMA),
    nested("atomic", WR_ATOMIC),
    nested("ud", WR_UD),
    nested("reg", WR_REG),
    nested("bind", WR_BIND),
    nested("flush", WR_FLUSH),
    nested("atomic_write", WR_ATOMIC_WRITE),
    nested("mkey", WR_MKEY),
    nested("xrc", WR_XRC),
    nested("dc", WR_DC),
)
#: Send queue element; num_sge SGEs follow, or the payload itself when INLINE is set (VR-4.6).
POST_SEND = Struct(
    "cmd_post_send",
    le32("num_sge", "0 when INLINE"),
    le32("send_flags", "SendFlags"),
    le32("opcode", "WrOpcode"),
    le64("wr_id"),
    nested("ex", EX),
    nested("wr", WR),
)
SGE = Struct("sge", le64("addr"), le32("length", "bytes"), le32("lkey"))
#: Receive queue element; num_sge SGEs follow.
POST_RECV = Struct("cmd_post_recv", le32("num_sge"), le64("wr_id"))
#: Completion queue element, written by the device.
CQE = Struct(
    "virtio_rdma_cq_req",
    le64("wr_id"),
    u8("status", "WcStatus"),
    u8("opcode", "WcOpcode"),
    le32("vendor_err"),
    le32("byte_len"),
    nested("ex", EX),
    le32("qp_num"),
    le32("src_qp"),
    le32("wc_flags", "WcFlags"),
    le16("pkey_index"),
    u8("sl"),
    u8("port_num"),
)

#: Event queue element of the extension EVENTS, written by the device.
EVENT = Struct(
    "virtio_rdma_event",
    u8("event", "EventType"),
    u8("port_num", "from 1; 0 unless it is an event of the port or of its tables"),
    le16("index", "the entry that has changed: PKEY_CHANGE, GID_CHANGE"),
    le32("number", "qpn, cqn or srqn; 0 for events of the port"),
    le32("lost", "events since the one before this that found no buffer"),
    le32("reserved", "0"),
)
#: Bits of a used index in the doorbell that arms a CQ.
ARM_SEEN_BITS = 15
#: What a driver with ARM_CQ writes as the doorbell of a completion queue.
CQ_DOORBELL = Struct(
    "cq_doorbell",
    le16("queue", "number of the virtqueue"),
    le16("seen", "14:0 used index up to which completions are known, 15 solicited only"),
)

STRUCTS: tuple[Struct, ...] = (
    CONFIG,
    *dict.fromkeys(
        struct for pair in COMMANDS.values() for struct in pair if struct is not NOTHING
    ),
    GLOBAL_ROUTE,
    AH_ATTR,
    QP_CAP,
    QP_ATTR,
    POST_SEND,
    SGE,
    POST_RECV,
    CQE,
)
#: Those that the specification does not have.
ADDITIONS: tuple[Struct, ...] = (
    COUNTER_WINDOW,
    QP_COUNTER_WINDOW,
    *dict.fromkeys(
        struct
        for commands in EXTENSIONS.values()
        for pair in commands.values()
        for struct in pair
        if struct is not NOTHING
    ),
    EVENT,
    CQ_DOORBELL,
    PUSH_PIECE,
)

queue_count = queue_numbers.queue_count
cq_queue, sq_queue, rq_queue = (
    queue_numbers.cq_queue,
    queue_numbers.sq_queue,
    queue_numbers.rq_queue,
)
event_queue, qp_index = queue_numbers.event_queue, queue_numbers.qp_index
