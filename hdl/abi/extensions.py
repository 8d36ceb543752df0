"""Structures of the commands of extensions (docs/extensions.md)."""

from __future__ import annotations

from hdl.abi.enums import ExtensionCommand, RdmaFeature
from hdl.abi.layout import (
    NOTHING,
    Scalar,
    Struct,
    array,
    byte_array,
    le16,
    le32,
    le64,
    u8,
)
from hdl.abi.regions import REGION_MEMORY

__all__ = ["EXTENSIONS", "WR_ATOMIC_WRITE", "WR_BIND", "WR_DC", "WR_FLUSH", "WR_MKEY", "WR_XRC"]

#: Of BIND_MW, in the ``wr`` union of a send queue element.
WR_BIND = Struct(
    "wr_bind",
    le64("addr", "first byte of the window, an address of its region"),
    le32("access", "Access: the remote rights, ZERO_BASED"),
    le32("lkey", "of the region"),
    le64("length", "bytes"),
    le32("rkey", "of the window, with the new variant in its low byte"),
)
#: Of FLUSH and ATOMIC_WRITE.
WR_FLUSH = Struct(
    "wr_flush",
    le64("remote_addr", "first byte of the range"),
    le32("rkey"),
    le32("length", "bytes of the range"),
    u8("type", "FlushType"),
    u8("level", "FlushLevel; MR: address and length mean nothing"),
)
WR_ATOMIC_WRITE = Struct(
    "wr_atomic_write",
    le64("remote_addr", "a multiple of 8"),
    le32("rkey"),
    byte_array("data", 8, "copied verbatim"),
)
#: Of MKEY_LIST and MKEY_INTERLEAVED. Behind the element's fixed part are, for each entry, an SGE
#: and, if it is interleaved, 16 bytes that begin with the bytes to skip, a le32.
WR_MKEY = Struct(
    "wr_mkey",
    le32("mrn", "of the indirect key"),
    le32("key", "which it has"),
    le32("access", "Access: local write, and the remote rights"),
    le32("repeat", "how often the row of entries comes; 0 of a list"),
    le16("num_entries"),
    le16("flags", "LayoutFlags"),
)
#: Of each request of an XRC initiator, beside what its opcode has in the union.
WR_XRC = Struct(
    "wr_xrc",
    byte_array("operands", 28, "of the opcode: rdma or atomic"),
    le32("remote_srqn", "the receive queue that it names: low 24 bits"),
)
#: Of each request of an initiator of DC, likewise.
WR_DC = Struct(
    "wr_dc",
    byte_array("operands", 28, "of the opcode: rdma or atomic"),
    le16("destination", "where it goes"),
    le16("stream_id", "0 of an initiator without streams"),
)

#: Of a receive queue whose requests take several packets.
_PIECES = (
    le32("mp_wr_buffer", "MP_WR: bytes of each request; 0: it takes one message"),
    u8("mp_wr_align_log2", "MP_WR: of the bytes of a segment; 0 without"),
)

CMD_CREATE_SRQ = Struct(
    "cmd_create_srq",
    le32("pdn"),
    le32("max_wr"),
    le32("max_sge"),
    le32("srq_limit", "0: no limit event"),
    *_PIECES,
    byte_array("reserved", 11, "0"),
)
RSP_CREATE_SRQ = Struct(
    "rsp_create_srq", le32("srqn", "the index of a queue pair, whose receive queue it has")
)
CMD_MODIFY_SRQ = Struct(
    "cmd_modify_srq",
    le32("srqn"),
    le32("attr_mask", "SrqAttrMask"),
    le32("max_wr"),
    le32("srq_limit"),
)
CMD_QUERY_SRQ = Struct("cmd_query_srq", le32("srqn"))
RSP_QUERY_SRQ = Struct("rsp_query_srq", le32("max_wr"), le32("max_sge"), le32("srq_limit"))
CMD_DESTROY_SRQ = Struct("cmd_destroy_srq", le32("srqn"))

CMD_ALLOC_XRCD = Struct("cmd_alloc_xrcd", le32("reserved", "0"))
RSP_ALLOC_XRCD = Struct("rsp_alloc_xrcd", le32("xrcdn", "from 1"))
CMD_DEALLOC_XRCD = Struct("cmd_dealloc_xrcd", le32("xrcdn"))
CMD_CREATE_XRC_SRQ = Struct(
    "cmd_create_xrc_srq",
    le32("pdn"),
    le32("max_wr"),
    le32("max_sge"),
    le32("srq_limit", "0: no limit event"),
    le32("xrcdn", "its domain"),
    le32("cqn", "where its requests complete"),
    *_PIECES,
    byte_array("reserved", 19, "0"),
)
RSP_CREATE_XRC_SRQ = Struct(
    "rsp_create_xrc_srq",
    le32("srqn", "the index of a queue pair, whose receive queue it has"),
    le32("srq_num", "24 bits: what requests name it by"),
)

CMD_CREATE_DC_DESTINATION = Struct(
    "cmd_create_dc_destination",
    le32("pdn"),
    le32("dctn", "number of the target"),
    le64("dc_key", "which it was created with"),
    byte_array("dgid", 16),
    le32("flow_label"),
    u8("sgid_index"),
    u8("hop_limit"),
    u8("traffic_class"),
    u8("sl"),
    byte_array("dmac", 6),
    byte_array("reserved", 2, "0"),
)
RSP_CREATE_DC_DESTINATION = Struct(
    "rsp_create_dc_destination", le32("destination", "from 1: what requests name it by")
)
CMD_DESTROY_DC_DESTINATION = Struct("cmd_destroy_dc_destination", le32("destination"))
CMD_RESET_STREAM = Struct("cmd_reset_stream", le32("qpn"), le16("stream_id"), le16("reserved", "0"))
CMD_QUERY_DCT = Struct("cmd_query_dct", le32("qpn"))
RSP_QUERY_DCT = Struct(
    "rsp_query_dct",
    u8("state", "0 closed, 1 active"),
    byte_array("reserved0", 3),
    le32("contexts", "connections now"),
    le32("connects", "connections that were accepted; this and all below wraps"),
    le32("key_violations", "CONNECTs with another key"),
    le32("refused_busy", "CONNECTs that have found no room"),
    le32("access_errors", "connections that a request without the right has ended"),
    le32("request_errors", "connections that an invalid request has ended"),
    le32("reserved1"),
)

CMD_RESIZE_CQ = Struct(
    "cmd_resize_cq", le32("cqn"), le32("cqe", "depth"), array("reserved", Scalar(4), 2, "0")
)
CMD_RESIZE_QP = Struct(
    "cmd_resize_qp",
    le32("qpn"),
    le32("max_send_wr"),
    le32("max_recv_wr", "0 with an SRQ"),
    array("reserved", Scalar(4), 1, "0"),
)
CMD_REREG_MR = Struct(
    "cmd_rereg_mr",
    le32("mrn"),
    le32("flags", "ReregFlags: which of the fields below count"),
    le32("pdn"),
    le32("access_flags", "Access"),
    *REGION_MEMORY,
    le32("page_shift", "0 without PAGE_SIZES"),
)
RSP_REREG_MR = Struct("rsp_rereg_mr", le32("lkey"), le32("rkey"))
CMD_REG_USER_MR_PAGES = Struct(
    "cmd_reg_user_mr_pages",
    le32("pdn"),
    le32("access_flags", "Access"),
    *REGION_MEMORY,
    le32("page_shift", "log2 of the bytes of a page; 0: 4 KiB"),
)
RSP_REG_USER_MR_PAGES = Struct("rsp_reg_user_mr_pages", le32("mrn"), le32("lkey"), le32("rkey"))
CMD_REG_USER_MR_TABLE = Struct(
    "cmd_reg_user_mr_table",
    le32("pdn"),
    le32("access_flags", "Access"),
    *REGION_MEMORY,
    le32("page_shift", "0 without PAGE_SIZES"),
    le32("levels", "of the page list: 1 or 2"),
)
RSP_REG_USER_MR_TABLE = Struct("rsp_reg_user_mr_table", le32("mrn"), le32("lkey"), le32("rkey"))

CMD_ALLOC_MW = Struct("cmd_alloc_mw", le32("pdn"), le32("type", "MwType"))
RSP_ALLOC_MW = Struct("rsp_alloc_mw", le32("mwn"), le32("rkey", "not valid before it is bound"))
CMD_DEALLOC_MW = Struct("cmd_dealloc_mw", le32("mwn"))

CMD_CREATE_MKEY = Struct(
    "cmd_create_mkey",
    le32("pdn"),
    le32("flags", "MkeyFlags"),
    le32("max_entries", "of its layouts, at most"),
    array("reserved_gap", Scalar(4), 1, "0"),
    le64("table", "memory for entries, of a device that keeps none itself; a multiple of 64"),
    array("reserved", Scalar(4), 2, "0"),
)
RSP_CREATE_MKEY = Struct(
    "rsp_create_mkey",
    le32("mrn"),
    le32("lkey"),
    le32("rkey", "the same; of no use before it has a layout"),
    le32("max_entries"),
)

CMD_ATTACH_MCAST = Struct(
    "cmd_attach_mcast", le32("qpn"), byte_array("gid", 16, "of the group: multicast")
)
CMD_DETACH_MCAST = Struct("cmd_detach_mcast", le32("qpn"), byte_array("gid", 16, "of the group"))

#: Request and response data of the commands that each extension has, after their headers.
EXTENSIONS: dict[RdmaFeature, dict[ExtensionCommand, tuple[Struct, Struct]]] = {
    RdmaFeature.SRQ: {
        ExtensionCommand.CREATE_SRQ: (CMD_CREATE_SRQ, RSP_CREATE_SRQ),
        ExtensionCommand.MODIFY_SRQ: (CMD_MODIFY_SRQ, NOTHING),
        ExtensionCommand.QUERY_SRQ: (CMD_QUERY_SRQ, RSP_QUERY_SRQ),
        ExtensionCommand.DESTROY_SRQ: (CMD_DESTROY_SRQ, NOTHING),
    },
    RdmaFeature.XRC: {
        ExtensionCommand.ALLOC_XRCD: (CMD_ALLOC_XRCD, RSP_ALLOC_XRCD),
        ExtensionCommand.DEALLOC_XRCD: (CMD_DEALLOC_XRCD, NOTHING),
        ExtensionCommand.CREATE_XRC_SRQ: (CMD_CREATE_XRC_SRQ, RSP_CREATE_XRC_SRQ),
    },
    RdmaFeature.RESIZE: {
        ExtensionCommand.RESIZE_CQ: (CMD_RESIZE_CQ, NOTHING),
        ExtensionCommand.RESIZE_QP: (CMD_RESIZE_QP, NOTHING),
    },
    RdmaFeature.REREG_MR: {ExtensionCommand.REREG_MR: (CMD_REREG_MR, RSP_REREG_MR)},
    RdmaFeature.MW: {
        ExtensionCommand.ALLOC_MW: (CMD_ALLOC_MW, RSP_ALLOC_MW),
        ExtensionCommand.DEALLOC_MW: (CMD_DEALLOC_MW, NOTHING),
    },
    RdmaFeature.DC: {
        ExtensionCommand.CREATE_DC_DESTINATION: (
            CMD_CREATE_DC_DESTINATION,
            RSP_CREATE_DC_DESTINATION,
        ),
        ExtensionCommand.DESTROY_DC_DESTINATION: (CMD_DESTROY_DC_DESTINATION, NOTHING),
        ExtensionCommand.RESET_STREAM: (CMD_RESET_STREAM, NOTHING),
        ExtensionCommand.QUERY_DCT: (CMD_QUERY_DCT, RSP_QUERY_DCT),
    },
    RdmaFeature.MKEY: {ExtensionCommand.CREATE_MKEY: (CMD_CREATE_MKEY, RSP_CREATE_MKEY)},
    RdmaFeature.MCAST: {
        ExtensionCommand.ATTACH_MCAST: (CMD_ATTACH_MCAST, NOTHING),
        ExtensionCommand.DETACH_MCAST: (CMD_DETACH_MCAST, NOTHING),
    },
    RdmaFeature.PAGE_SIZES: {
        ExtensionCommand.REG_USER_MR_PAGES: (CMD_REG_USER_MR_PAGES, RSP_REG_USER_MR_PAGES),
    },
    RdmaFeature.TWO_LEVEL: {
        ExtensionCommand.REG_USER_MR_TABLE: (CMD_REG_USER_MR_TABLE, RSP_REG_USER_MR_TABLE),
    },
}
