"""How a receive queue says that its requests take several packets (extension MP WR): a word that
the firmware writes into the row of a queue pair, and the card reads there."""

from __future__ import annotations

from hdl.abi.limits import MAX_MP_WR_ALIGN, MAX_MP_WR_BUFFER, MIN_MP_WR_ALIGN

__all__ = ["FIELDS", "UNIT", "UNIT_LOG2", "pieces_word"]

#: Bytes in which requests and their segments are counted, and their log2.
UNIT, UNIT_LOG2 = MIN_MP_WR_ALIGN, MIN_MP_WR_ALIGN.bit_length() - 1
#: Field -> its bits, from bit 0 on. ``on``: the requests take several packets; ``align``: log2 of
#: the units of a segment; ``size``: units of a request.
FIELDS = {
    "on": 1,
    "align": (MAX_MP_WR_ALIGN // UNIT).bit_length().bit_length(),
    "size": (MAX_MP_WR_BUFFER // UNIT).bit_length(),
}


def pieces_word(buffer: int, align_log2: int) -> int:
    """The word for requests of ``buffer`` bytes, whole segments of ``1 << align_log2`` bytes."""
    size_low = FIELDS["on"] + FIELDS["align"]
    return 1 | (align_log2 - UNIT_LOG2) << FIELDS["on"] | (buffer // UNIT) << size_low
