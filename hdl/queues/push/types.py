"""What the parts of the push window hand to each other, and to those around them."""

from amaranth.hdl import unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out, Signature
from amaranth.utils import ceil_log2

from hdl.abi.push import PUSH_PIECE, PUSH_SLOT_BYTES
from hdl.common.tables import TableRead
from hdl.ports.numbers import QpNumber

__all__ = [
    "ENTRIES",
    "PIECES",
    "PUSHED_FUNCTION",
    "ROW_BITS",
    "Entry",
    "Mark",
    "Piece",
    "PushPort",
]

#: Pushes that are being put together, or wait to be asked for.
ENTRIES = 4
#: Pieces of a slot.
PIECES = PUSH_SLOT_BYTES // PUSH_PIECE.size
#: Bits of a piece, and of a row of the store.
ROW_BITS = 8 * PUSH_PIECE.size
#: ``function`` of a read of the store in place of host memory: no function has this number.
PUSHED_FUNCTION = 0xFF
#: Number of an entry.
Entry = unsigned(ceil_log2(ENTRIES))


class Mark(data.Struct):
    """What each piece of a push begins with, as ``PUSH_PIECE``."""

    magic: 16
    position: 16
    head: 16
    length: 16


class Piece(data.Struct):
    """What the host has written to 64 bytes of a slot; ``whole``: all of them, in one piece."""

    function: 8
    pair: QpNumber  # in its function: that of the slot
    number: ceil_log2(PIECES)  # of the piece in the slot
    whole: 1
    data: ROW_BITS


class PushPort(Signature):
    """Who fetches send WQEs asks the push window, seen from who asks.

    ``ask``: a WQE of ``qp`` is asked for at ``position``. In the same cycle ``hit`` says that it
    has been pushed: as ``entry``, with ``head`` and ``length``. With ``take`` the entry is the
    asker's until ``release`` (of ``released``); without, it is gone. So is any other push of the QP
    that waits. ``row``: reads the store, each row 64 bytes of the element of an entry. ``unfit``:
    ``unfit_entry`` was taken and cannot be used, and is gone. ``forget``: pushes that wait are
    gone, and those that are being put together are doorbells.
    """

    def __init__(self):
        super().__init__(
            {
                "ask": Out(1),
                "take": Out(1),
                "qp": Out(QpNumber),
                "position": Out(16),
                "hit": In(1),
                "entry": In(Entry),
                "head": In(16),
                "length": In(16),
                "row": Out(TableRead(ceil_log2(ENTRIES * PIECES), ROW_BITS)),
                "release": Out(1),
                "released": Out(Entry),
                "unfit": Out(1),
                "unfit_entry": Out(Entry),
                "forget": Out(1),
            }
        )
