"""The register block of a card with DC: packets that open and close connections, and the requests
that wait for one."""

from __future__ import annotations

from hdl.config import QP_BITS, NicConfig

from .describe import Access, Block, Register, Window, pulse, ro, rw
from .kinds import Kind
from .row_layouts import row_layout_of

__all__ = ["RECEIVED", "SENT", "connection_blocks", "connections"]

#: Rows (of ``hdl.ports.headers``) in the two windows.
RECEIVED, SENT = "ReceivedControl", "SentControl"


def connections() -> Block:
    """What the firmware needs to make connections."""
    received, sent = (-(-row_layout_of(kind, 0).bits // 32) for kind in (RECEIVED, SENT))
    return Block(
        "connections",
        Kind.CONNECTIONS,
        (
            Register(
                "status",
                (
                    ro("received", 1, "a packet has come, and is in `received_row`"),
                    ro("sending", 1, "the packet in `sent_row` has not left: it must stay"),
                    ro("asks", 8, "requests that were held as their QP is not connected, mod 256"),
                    ro("asked", 1, "a request of `qp` has been held since `forget`"),
                ),
                "what there is to do",
            ),
            Register(
                "control",
                (
                    pulse("take", 1, "`received_row` is not needed any more"),
                    pulse("send", 1, "sends `sent_row`"),
                ),
                "moves packets",
            ),
            Register("dropped", (ro("value", 32, "packets that have found no room, mod 2**32"),)),
            Register("qp", (rw("value", QP_BITS, "pair of which `asked` tells"),)),
            Register(
                "asked",
                (
                    ro("destination", 16, "that its oldest request waits for"),
                    ro("stream", 16, "which that is of"),
                ),
                "what an initiator waits for, if `asked` of `status` says that it does; both not "
                "before two cycles after `qp` was written",
            ),
            Register("forget", (pulse("value", 1, "nothing is asked for by `qp` any more"),)),
            Window("received_row", received, Access.RO, f"the oldest packet: `{RECEIVED}`"),
            Window("sent_row", sent, Access.WO, f"a packet: `{SENT}`"),
        ),
        "connections of DC",
    )


def connection_blocks(config: NicConfig) -> dict[str, Block]:
    """The block, of a card that has it, by name."""
    return {"connections": connections()} if config.dc else {}
