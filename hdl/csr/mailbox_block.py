"""The register block of the mailbox."""

from __future__ import annotations

from hdl.abi.virtio_rdma import EVENT
from hdl.config import NicConfig

from .describe import Access, Block, Register, Window, pulse, ro, rw
from .kinds import Kind

__all__ = ["MAILBOX_WORDS", "mailbox"]

#: Words of the request and of the response in the mailbox (256 bytes).
MAILBOX_WORDS = 64
_BROKEN_DONE = pulse("broken_done", 1, "what `broken` tells has been seen to")


def _posts() -> tuple[Register | Window, ...]:
    """What the firmware does to a virtqueue by itself."""
    return (
        Register(
            "post_position", (rw("value", 16, "used index of the queue that `post` looks at"),)
        ),
        Register(
            "post",
            (
                rw("queue", 16, "number of the virtqueue"),
                rw(
                    "look",
                    1,
                    "its avail index is read, behind its row; else its next buffer gets `record`",
                ),
            ),
            "reads the avail index of a queue or fills its next buffer; ignored while busy; waits "
            "for the response to a request that is pending",
            strobe=True,
        ),
        Register(
            "post_status",
            (
                ro("busy", 1, "it is not done"),
                ro("success", 1, "the last one found a buffer, or read the index"),
                ro("available", 16, "the avail index that it has read"),
            ),
            "what has become of the last `post`",
        ),
        Window("record", EVENT.size // 4, Access.WO, "the event, little-endian words"),
    )


def _broken() -> Register:
    """A virtqueue whose ring is broken, for the firmware to see to."""
    return Register(
        "broken",
        (
            ro("queue", 16, "number of the virtqueue"),
            ro("cause", 4, "QueueErrorCause: what is wrong with its ring"),
            ro("valid", 1, "there is one; it stays until `broken_done`"),
        ),
        "a virtqueue of a queue pair, a CQ or an SRQ that has been found broken",
    )


def mailbox(
    config: NicConfig, name: str = "mailbox", *, posts: bool = True, words: int = MAILBOX_WORDS
) -> Block:
    """One control request at a time, of which there are ``words``, from the control queue to the
    firmware and back; and with ``posts`` what the firmware puts into the event queue, if the card
    has events."""
    events = config.events and posts
    return Block(
        name,
        Kind.MAILBOX,
        (
            Register(
                "status",
                (
                    ro("pending", 1, "a request waits for its response"),
                    ro("function", 8, "PCI function that asks"),
                    *((ro("broken", 1, "as `broken.valid`"),) if events else ()),
                ),
                "the request that is served",
            ),
            Register("request_length", (ro("value", 16, "bytes the driver made readable"),)),
            Register("writable_length", (ro("value", 32, "bytes the driver made writable"),)),
            Register("response_length", (rw("value", 16, "bytes of response"),)),
            Register(
                "control",
                (
                    pulse("done", 1, "the response is complete"),
                    *((_BROKEN_DONE,) if events else ()),
                ),
                "what the firmware is done with",
            ),
            Window("request", words, Access.RO, "request bytes, little-endian words"),
            Window("response", MAILBOX_WORDS, Access.WO, "response bytes, little-endian words"),
            *((*_posts(), _broken()) if events else ()),
        ),
        "control requests and their responses",
    )
