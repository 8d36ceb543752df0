"""Indirect keys (extension MKEY): their flags, and what the firmware writes into rows of the card,
which reads it there."""

from __future__ import annotations

from enum import IntFlag

__all__ = ["LAYOUTS_AT", "LAYOUT_FIELDS", "LayoutFlags", "MkeyFlags", "no_layout"]

#: A bit of ``QpCfg.qkey`` of queue pairs that are no datagrams': they may give indirect keys
#: layouts. What a receive queue says there (``hdl.abi.pieces``) lies below.
LAYOUTS_AT = 31
#: Field of the layout in the row of an indirect key -> its bits, from bit 0 on. ``row_bytes`` are
#: those of all entries together if they repeat, else 0; ``most`` entries it may have, and
#: ``entries`` it has. Each entry has the ``generation`` of its layout: who finds another one in it
#: than in the row does not go on. No access waits while so many layouts are set as these bits
#: count.
LAYOUT_FIELDS = {"row_bytes": 32, "most": 6, "entries": 6, "generation": 14}


class MkeyFlags(IntFlag):
    """``flags`` of CREATE_MKEY: SEND_WITH_INV of the peer may take the layout away."""

    REMOTE_INVALIDATE = 1 << 0


class LayoutFlags(IntFlag):
    """``flags`` of MKEY_LIST and MKEY_INTERLEAVED: the key must not have a layout."""

    CHECK_FREE = 1 << 0


def no_layout(most: int) -> int:
    """The fields of an indirect key that has no layout, and room for ``most`` entries."""
    return most << LAYOUT_FIELDS["row_bytes"]
