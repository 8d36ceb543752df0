"""The packet stream: beats of a packet, byte 0 in bits 7:0.

Contract (docs/architecture.md, "Streams"): ``keep`` is contiguous from bit 0 and all ones unless
``last``; ``error`` is final on ``last``; ``valid`` never waits for ``ready``; the payload is stable
while it waits.
"""

from functools import cache

from amaranth.lib import data, stream

__all__ = ["packet_beat", "packet_stream"]


# Whoever asks gets the same layout: to compare two of them takes Amaranth long.
@cache
def packet_beat(width: int) -> data.StructLayout:
    """Layout of one beat of ``width`` bits."""
    if width < 8 or width % 8:
        raise ValueError(f"Width must be whole bytes, at least 8 bits, not {width!r}")
    return data.StructLayout(
        {
            "data": width,  # flat; a byte ArrayLayout would become a wire per byte in Verilog
            "keep": width // 8,  # which bytes exist
            "first": 1,
            "last": 1,
            "error": 1,  # the packet is bad; final on last
        }
    )


def packet_stream(width: int) -> stream.Signature:
    """Stream of beats of ``width`` bits."""
    return stream.Signature(packet_beat(width))
