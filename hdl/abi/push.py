"""The window through which a doorbell brings its WQE (extension PUSH, docs/extensions.md)."""

from hdl.abi.layout import Struct, byte_array, le16

__all__ = [
    "CFG_TYPE_PUSH",
    "PUSH_BAR",
    "PUSH_MAGIC",
    "PUSH_MOST_BYTES",
    "PUSH_PIECE",
    "PUSH_PIECE_BYTES",
    "PUSH_SLOT_BYTES",
    "push_pieces",
]

#: Of the vendor capability that says where the window is.
CFG_TYPE_PUSH = 0xF1
#: The window is a BAR of its own, so that all of it may be mapped write-combined.
PUSH_BAR = 4
#: Bytes of the window for each queue pair.
PUSH_SLOT_BYTES = 256
#: What each piece begins with: "WQ".
PUSH_MAGIC = int.from_bytes(b"WQ", "little")
PUSH_PIECE = Struct(
    "push_piece",
    le16("magic", "PUSH_MAGIC"),
    le16("position", "of the entry in the avail ring, 16 bits as the avail index"),
    le16("head", "that entry: head of the element's descriptors"),
    le16("length", "bytes of the element"),
    byte_array("data", 56, "of the element"),
)
#: Bytes of the element in a piece, and of the longest one that fits into a slot.
PUSH_PIECE_BYTES = PUSH_PIECE.place("data").size
PUSH_MOST_BYTES = PUSH_SLOT_BYTES // PUSH_PIECE.size * PUSH_PIECE_BYTES


def push_pieces(position: int, head: int, element: bytes) -> list[bytes]:
    """The pieces of a push, in the order in which they lie in the slot; the last one is filled up.

    Errors: ValueError for an element that does not fit.
    """
    if not 0 < len(element) <= PUSH_MOST_BYTES:
        raise ValueError(f"Element must have 1 to {PUSH_MOST_BYTES} bytes, not {len(element)}")
    return [
        PUSH_PIECE.pack(
            magic=PUSH_MAGIC,
            position=position,
            head=head,
            length=len(element),
            data=element[at : at + PUSH_PIECE_BYTES].ljust(PUSH_PIECE_BYTES, b"\0"),
        )
        for at in range(0, len(element), PUSH_PIECE_BYTES)
    ]
