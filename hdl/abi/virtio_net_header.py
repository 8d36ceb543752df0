"""The header in front of each frame of a virtio-net device.

Spec: Virtio 1.2, 5.1.6.
"""

from __future__ import annotations

from enum import IntFlag

from hdl.abi.layout import Struct, le16, u8

__all__ = ["NET_HEADER", "NetHeaderFlags"]


class NetHeaderFlags(IntFlag):
    """Flags of the header (5.1.6)."""

    NEEDS_CSUM = 1
    DATA_VALID = 2


#: With VERSION_1, so ``num_buffers`` is always there.
NET_HEADER = Struct(
    "virtio_net_hdr",
    u8("flags"),
    u8("gso_type"),
    le16("hdr_len"),
    le16("gso_size"),
    le16("csum_start"),
    le16("csum_offset"),
    le16("num_buffers"),
)
