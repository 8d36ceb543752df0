"""The register blocks of the management function: every register the firmware uses, described once.

Nothing here imports gateware; only the layouts of the tables load Amaranth (``row_layouts``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from hdl.abi.virtio_rdma import TYPE_FEATURES
from hdl.config import ACTIVATION_FLAGS, CQ_BITS, QP_BITS, VERSION, NicConfig
from hdl.ports.counter_names import (
    COUNTER_TEXTS,
    COUNTERS,
    DEBUG,
    PORT_COUNTERS,
    QP_COUNTER_INDEX,
    QP_COUNTER_SLOTS,
)

from .context import optional_blocks
from .describe import Access, Block, Register, Window, const, pulse, ro, rw, w1c, words
from .kinds import Kind
from .mailbox_block import mailbox
from .row_layouts import layout_class, row_layout_of

__all__ = [
    "CONFIG",
    "MAGIC",
    "MANAGEMENT_DEVICE_ID",
    "MANAGEMENT_VENDOR_ID",
    "PAGES",
    "TABLES",
    "VERSION_BITS",
    "TableInfo",
    "all_blocks",
    "command",
    "core",
    "counters",
    "debug",
    "port",
    "row_layout",
    "table_window",
]

#: Begins the names of the registers that say what the card is generated with; documents have their
#: descriptions from ``NicConfig`` (``texts.py``).
CONFIG = "config_"
#: Fields of it that only blocks of their own tell of, of a card that has these.
ELSEWHERE = ("hot_qps", "network", "push")
#: First register of the core block, "ROCI" in ASCII.
MAGIC = 0x524F_4349
#: PCI identity of the management function: an unregistered vendor number used by virtual devices.
MANAGEMENT_VENDOR_ID = 0x1234
MANAGEMENT_DEVICE_ID = 0x524F
#: Version of the register map as a whole.
MAP_VERSION = 3
#: The fields of ``core.version``, bit 0 first, and their bits.
VERSION_BITS = {"patch": 16, "minor": 8, "major": 8}


@dataclass(frozen=True)
class TableInfo:
    """A table behind a window: its row type (None: one flat number of ``bits``) and its size."""

    number: int
    index_width: int
    entries: Callable[[NicConfig], int]
    description: str
    row: str | None = None  # class in hdl.ports.rows or hdl.ports.headers
    bits: int = 0


TABLES: dict[str, TableInfo] = {
    "qp_cfg": TableInfo(1, QP_BITS, lambda c: c.qps, "what MODIFY_QP decides", "QpCfg"),
    "qp_fetch": TableInfo(2, QP_BITS, lambda c: c.qps, "send queue fetch position", "QpFetch"),
    "qp_tx": TableInfo(3, QP_BITS, lambda c: c.qps, "next packet to send", "QpTx"),
    "qp_ack": TableInfo(4, QP_BITS, lambda c: c.qps, "oldest unacknowledged packet", "QpAck"),
    "qp_rx": TableInfo(5, QP_BITS, lambda c: c.qps, "expected packet", "QpRx"),
    "qp_reply": TableInfo(6, QP_BITS, lambda c: c.qps, "READ being answered", "QpReply"),
    "mr": TableInfo(7, 16, lambda c: c.mrs, "memory regions", "MrRow"),
    "cq": TableInfo(8, CQ_BITS, lambda c: c.cqs, "completion queues", "CqRow"),
    "used": TableInfo(9, 16, lambda c: c.queues, "used index of each virtqueue", bits=16),
    "queue": TableInfo(
        10,
        16,
        lambda c: c.queues,
        "virtqueues as the driver set them up; a commit changes `fresh` only",
        "QueueRow",
    ),
    "gid": TableInfo(11, 8, lambda c: c.gids, "source addresses", "GidRow"),
    "qp_counters": TableInfo(
        12,
        QP_COUNTER_INDEX,
        lambda c: c.qps * QP_COUNTER_SLOTS,
        f"counters of each QP, {QP_COUNTER_SLOTS} words a pair",
        bits=32,
    ),
    "pkey": TableInfo(
        13, 8, lambda c: c.functions if c.ud else 0, "P_Keys of each function", "PkeyRow"
    ),
    "group": TableInfo(
        QP_BITS,
        8,
        lambda c: c.groups if c.multicast else 0,
        "multicast groups and their members",
        "GroupRow",
    ),
    "qp_sent": TableInfo(
        15, QP_BITS, lambda c: c.qps, "requests that have left the card", "QpSent"
    ),
}

#: Name of the block -> page of the address space.
PAGES: dict[str, int] = {
    "core": 0x00,
    "port": 0x01,
    "mailbox": 0x02,
    "command": 0x03,
    "counters": 0x04,
    "debug": 0x05,
    "trace": 0x06,
    "latency": 0x07,
    "parity": 0x08,
    "context": 0x09,
    "network": 0x0A,
    "network_mailbox": 0x0B,
    "push": 0x0C,
    "connections": 0x0D,
} | {name: 0x10 + i for i, name in enumerate(TABLES)}


def _function(n: int) -> tuple[Register, ...]:
    """State of guest function ``n``, counted from 0, and the end of its device reset."""
    return (
        Register(
            f"function{n}_resets",
            (ro("value", 32, "device resets of the function, counted as they begin"),),
        ),
        Register(
            f"function{n}_status",
            (
                ro("device", 8, "virtio device status"),
                ro("resetting", 1, "a device reset has begun and is not complete"),
                ro("waits", 1, "the reset waits for its end by the hardware or the firmware"),
                ro("features", TYPE_FEATURES, "negotiated, the first of the device type's own"),
            ),
            "state of the function as its driver and the firmware have set it",
        ),
        Register(
            f"function{n}_needs_reset",
            (
                ro("queue", 16, "virtqueue that was stopped first"),
                ro("cause", 4, "QueueErrorCause: why it was stopped"),
                ro("active", 1, "DEVICE_NEEDS_RESET is set"),
            ),
            "why the function needs a device reset",
        ),
        Register(
            f"function{n}_control",
            (
                pulse(
                    "reset_done",
                    1,
                    "the function has no objects any more, so its device reset may end; without "
                    "effect on a card whose only function it is",
                ),
            ),
        ),
    )


def core(config: NicConfig) -> Block:
    """Identity, configuration, state of the guest functions, heartbeat of the firmware."""
    configuration = tuple(
        Register(f"{CONFIG}{item.name}", (const("value", 32, getattr(config, item.name)),))
        for item in fields(config)
        if item.name not in ELSEWHERE
    )
    version = dict(zip(reversed(VERSION_BITS), VERSION.split("."), strict=True))
    return Block(
        "core",
        Kind.CORE,
        (
            Register("magic", (const("value", 32, MAGIC, "ROCI in ASCII"),)),
            Register(
                "map_version", (const("value", 32, MAP_VERSION, "version of the register map"),)
            ),
            Register(
                "version",
                tuple(
                    const(name, bits, int(version[name]), f"{name} version")
                    for name, bits in VERSION_BITS.items()
                ),
                "version of the gateware",
            ),
            *configuration,
            *(one for n in range(config.functions) for one in _function(n)),
            Register(
                "heartbeat",
                (rw("value", 32, "written by the firmware at its own pace"),),
                strobe=True,
            ),
            Register("scratch", (rw("value", 32, "reads as it was written, without effect"),)),
        ),
        "identity, configuration, state of the guest functions",
    )


def port(names: tuple[str, ...] = PORT_COUNTERS) -> Block:
    """The Ethernet port and its counters."""
    return Block(
        "port",
        Kind.PORT,
        (
            Register(
                "mac_low",
                (rw("value", 32, "MAC address: bytes 0 to 3, first wire byte in bits 7:0"),),
            ),
            Register("mac_high", (rw("value", 16, "MAC address: bytes 4 and 5"),)),
            Register(
                "control",
                (
                    rw("enable", 1, "the link is used"),
                    rw("lossless", 1, "priority pause on"),
                    rw("loopback", 1, "frames to the card's own MAC address stay on the card"),
                ),
                "how the port is used",
            ),
            Register("status", (ro("link_up", 1, "the MAC has a link"),)),
            *words(names, COUNTER_TEXTS, remote=True),
        ),
        "Ethernet port",
    )


def command(config: NicConfig) -> Block:
    """Commands of the firmware to the rooms; `busy` says which are not taken or done yet."""
    qp = rw("qp", QP_BITS, "pair index of the QP")
    flags = rw("flags", ACTIVATION_FLAGS, "why it is woken, as in Activation")
    busy = {
        "arm_cq": "not taken",
        "activate_send": "not taken",
        "activate_receive": "not taken",
        "activate_reply": "not taken",
        "drop": "not taken",
        "clear_counters": "not taken",
        "drain": "not done",
        "invalidate": "not done",
        "drop_queue": "not done",
    }
    return Block(
        "command",
        Kind.COMMAND,
        (
            Register(
                "busy",
                tuple(ro(name, 1, f"`{name}` is {state}") for name, state in busy.items()),
                "commands that are not taken, or not done; a write of such a one's register "
                "meanwhile is ignored",
            ),
            Register(
                "ignored",
                (w1c("commands", len(busy), "commands that were ignored, bits as in busy"),),
            ),
            Register(
                "arm_cq",
                (
                    rw("cq", CQ_BITS, "number of the CQ"),
                    rw("flags", 2, "what it waits for: solicited 1, next 2"),
                ),
                "arms a CQ, as REQ_NOTIFY_CQ does",
                strobe=True,
            ),
            Register("activate_send", (qp, flags), "wakes a QP in the scheduler", strobe=True),
            Register(
                "activate_receive",
                (qp, flags),
                "wakes a QP in the receive side, to finish or flush its WQEs",
                strobe=True,
            ),
            Register("activate_reply", (qp, flags), "wakes a QP in the replier", strobe=True),
            Register("drop", (qp,), "gives back all outstanding WQEs of a QP", strobe=True),
            Register("clear_counters", (qp,), "lets a QP's counters begin at 0", strobe=True),
            Register("drain", (pulse("start", 1, "waits for all DMA admitted before"),)),
            Register(
                "invalidate",
                (rw("mr", 16, "index of the region"),),
                "drops its translations and waits for all DMA under it",
                strobe=True,
            ),
            Register(
                "drop_queue_restart",
                (rw("value", 1, "the ring of a dropped queue starts again at 0"),),
            ),
            Register(
                "drop_queue",
                (
                    rw("queue", 16, "number of the virtqueue"),
                    rw("position", 16, "where its ring is read from then: its used index"),
                ),
                "forgets all that was fetched of it and waits for its DMA; its indices go on "
                "unless drop_queue_restart is set",
                strobe=True,
            ),
            Register(
                "timer_tick",
                (rw("cycles", 16, "of 1.024 us", reset=config.clock_hz * 1024 // 10**9),),
                "the unit of the QPs' timers: a longer one makes all of them slower",
            ),
        ),
        "commands to the rooms",
    )


def counters(names: tuple[str, ...] = COUNTERS) -> Block:
    """Read-only 32-bit counters."""
    return Block(
        "counters",
        Kind.COUNTERS,
        words(names, COUNTER_TEXTS, remote=True),
        "counters since reset, which wrap at 2**32",
    )


def debug(names: tuple[str, ...] = DEBUG) -> Block:
    """Read-only words for reports about a stall."""
    return Block("debug", Kind.DEBUG, words(names), "words for stall reports")


def row_layout(table: str) -> Any:
    """The Amaranth shape of a table's row."""
    from amaranth.hdl import unsigned

    info = TABLES[table]
    return unsigned(info.bits) if info.row is None else layout_class(info.row)


def row_bits(table: str) -> int:
    """Bits of a table's row."""
    info = TABLES[table]
    return row_layout_of(info.row, info.bits).bits


def table_window(name: str, config: NicConfig) -> Block:
    """One row of a table: read into the shadow, changed there, written back in one cycle."""
    info, bits = TABLES[name], row_bits(name)
    return Block(
        name,
        Kind.TABLE,
        (
            Register(
                "geometry",
                (
                    const("table", 8, info.number, "which table"),
                    const("row_bits", 16, bits, "bits of a row"),
                ),
                "which table this is, and how wide",
            ),
            Register("entries", (const("value", 32, info.entries(config), "rows of the table"),)),
            Register("index", (rw("value", info.index_width, "row the next command is about"),)),
            Register(
                "command",
                (
                    pulse("read", 1, "row into the shadow"),
                    pulse("commit", 1, "shadow into the row, all bits in one cycle"),
                ),
                "moves a row; ignored while busy",
            ),
            Register(
                "status",
                (
                    ro("busy", 1, "the command is not done"),
                    ro("error", 1, "the last command's index was beyond the table"),
                ),
                "what has become of the last command",
            ),
            Window("row", -(-bits // 32), Access.RW, "shadow row, bits 31:0 first"),
        ),
        info.description,
    )


def all_blocks(
    config: NicConfig,
    *,
    port_counters: tuple[str, ...] = PORT_COUNTERS,
    counter_names: tuple[str, ...] = COUNTERS,
    debug_names: tuple[str, ...] = DEBUG,
) -> dict[str, Block]:
    """Every block of the management function by name; ``PAGES`` says where each one is.

    A block that the configuration leaves out has no page.
    """
    return {
        "core": core(config),
        "port": port(port_counters),
        "mailbox": mailbox(config),
        "command": command(config),
        "counters": counters(counter_names),
        "debug": debug(debug_names),
        **optional_blocks(config),
    } | {name: table_window(name, config) for name in TABLES}
