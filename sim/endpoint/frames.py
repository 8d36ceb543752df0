"""Ethernet frames on a byte stream: a length of 4 bytes, big-endian, then the frame without FCS.

That is what QEMU's ``-netdev stream`` speaks.
"""

from __future__ import annotations

import struct

__all__ = ["LARGEST", "SHORTEST", "Deframer", "FramingError", "framed"]

_LENGTH = struct.Struct(">I")
#: Bytes of a frame: an Ethernet header at least, at most what the simulated wire takes.
SHORTEST, LARGEST = 14, 16384


class FramingError(ValueError):
    """The stream announces a frame that cannot be: whatever follows has no meaning.

    ``frames``: those before it that came with it.
    """

    def __init__(self, text: str, frames: list[bytes]):
        super().__init__(text)
        self.frames = frames


def framed(frame: bytes) -> bytes:
    """The frame as it goes into the stream."""
    return _LENGTH.pack(len(frame)) + frame


class Deframer:
    """Cuts a stream, in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def inside(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete with ``data``.

        Raises FramingError for a length outside ``SHORTEST`` to ``LARGEST``.
        """
        rest = self._rest
        rest += data
        frames: list[bytes] = []
        place = 0
        while len(rest) - place >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(rest, place)
            if not SHORTEST <= length <= LARGEST:
                text = f"a frame has {SHORTEST} to {LARGEST} bytes, not {length}"
                raise FramingError(text, frames)
            begin = place + _LENGTH.size
            if len(rest) - begin < length:
                break
            place = begin + length
            frames.append(bytes(rest[begin:place]))
        del rest[:place]
        return frames
