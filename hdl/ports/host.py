"""The bus-neutral host port (card edge) and the client ports behind it.

Edge: what a PCIe or AXI adapter, or the memory model, serves. Reads carry a tag and may return in
any order, beat by beat, but in address order within a tag. Lanes at the edge are address aligned:
the byte of address ``a`` travels in lane ``a % (width / 8)``. Writes of one ``stream_id`` become
visible in issue order; a read never returns data older than an accepted earlier write.

Clients: what the rooms use. Byte 0 of a request or burst is in lane 0, whatever its address.
A read client has reserved room for all it asked for: it takes every response beat at once.
"""

from functools import cache

from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, Signature

__all__ = [
    "HostPort",
    "ReadClient",
    "WriteClient",
    "PlacedWriteClient",
    "MmioPort",
    "MmioRequest",
    "push_beat",
    "ReadRequest",
    "edge_read_request",
    "edge_read_beat",
    "edge_write_beat",
    "read_beat",
    "write_beat",
    "placed_beat",
    "BAR_CONFIG",
    "STREAM_DATA",
    "STREAM_CONTROL",
]

#: ``MmioRequest.bar`` of the function's PCI configuration space.
BAR_CONFIG = 7
#: Write streams: payload, completions and their interrupts; and the control queue's own.
STREAM_DATA = 0
STREAM_CONTROL = 1


def edge_read_request() -> data.StructLayout:
    """One host read at the edge: at most ``read_bytes`` bytes, never across 4 KiB."""
    return data.StructLayout({"tag": 8, "function": 8, "addr": 64, "length": 13})


# Whoever asks gets the same layout: to compare two of them takes Amaranth long.
@cache
def edge_read_beat(width: int) -> data.StructLayout:
    """One beat of read data; ``last`` ends the tag. With ``error`` the tag ends at this beat."""
    return data.StructLayout({"tag": 8, "data": width, "last": 1, "error": 1})


@cache
def edge_write_beat(width: int) -> data.StructLayout:
    """One write beat, complete in itself: ``addr`` is this beat's, aligned to the beat.

    ``length`` is the burst's bytes (valid on ``first``; a burst is at most ``write_bytes`` bytes
    and never crosses 4 KiB); ``strb`` marks the bytes written.
    """
    return data.StructLayout(
        {
            "stream_id": 4,
            "function": 8,
            "addr": 64,
            "length": 13,
            "data": width,
            "strb": width // 8,
            "first": 1,
            "last": 1,
        }
    )


class ReadRequest(data.Struct):
    """A client's read: 1 to 4096 bytes at any address."""

    function: 8
    addr: 64
    length: 13


@cache
def read_beat(width: int) -> data.StructLayout:
    """Response beat to a client: realigned, in request order. ``error`` is final on ``last``;
    a failed read still returns its full number of beats (their data is undefined). Of an engine
    with ``address_lanes``: the aligned beats that the request touches, ``keep`` is undefined."""
    return data.StructLayout({"data": width, "keep": width // 8, "first": 1, "last": 1, "error": 1})


@cache
def write_beat(width: int) -> data.StructLayout:
    """A client's write beat. ``function``, ``addr`` and ``stream_id`` are valid on ``first``; byte
    0 of the burst is in lane 0; ``keep`` is contiguous from bit 0 and all ones unless ``last``.
    A client's burst is 1 to 4096 bytes at any address; the engine splits it."""
    return data.StructLayout(
        {
            "stream_id": 4,
            "function": 8,
            "addr": 64,
            "data": width,
            "keep": width // 8,
            "first": 1,
            "last": 1,
        }
    )


class ReadClient(Signature):
    """Seen from the client: ``req`` out; ``rsp`` in, which the client always accepts (no ready)."""

    def __init__(self, width: int):
        super().__init__(
            {
                "req": Out(stream.Signature(ReadRequest)),
                "rsp": In(stream.Signature(read_beat(width), always_ready=True)),
            }
        )


class WriteClient(Signature):
    """Seen from the client: a stream of write beats. A burst whose last beat was accepted is
    issued: whatever any client offers later on the same ``stream_id`` becomes visible after it."""

    def __init__(self, width: int):
        super().__init__({"beat": Out(stream.Signature(write_beat(width)))})


@cache
def placed_beat(width: int) -> data.StructLayout:
    """A beat of a client that says where the bytes of each aligned beat of host memory come from.

    Lanes ``start`` to ``stop`` - 1 are written: lane n gets byte n - ``up`` of ``data``, where a
    negative one is a byte of the beat before. ``addr`` is that of lane 0, valid on ``first``.
    ``more``: the next burst may need this beat too, so the turn stays with this client.
    """
    lanes = (width // 8).bit_length() - 1
    return data.StructLayout(
        {
            "stream_id": 4,
            "function": 8,
            "addr": 64,
            "data": width,
            "up": lanes,
            "start": lanes,
            "stop": lanes + 1,
            "first": 1,
            "last": 1,
            "more": 1,
        }
    )


class PlacedWriteClient(Signature):
    """As WriteClient, of ``placed_beat``: a beat at the client is a beat of host memory."""

    def __init__(self, width: int):
        super().__init__({"beat": Out(stream.Signature(placed_beat(width)))})


class MmioRequest(data.Struct):
    """One access of 1, 2 or 4 bytes, naturally placed in a 32-bit word.

    ``addr`` is the byte address of the aligned word in ``bar`` (0 to 5, or BAR_CONFIG); ``strb``
    marks the bytes accessed, for reads too (reads have side effects). ``data`` lanes are the
    word's.
    """

    function: 8
    bar: 3
    addr: 32
    write: 1
    strb: 4
    data: 32


class MmioPort(Signature):
    """Seen from the card: requests in; one response per read, in order. Writes are posted."""

    def __init__(self):
        super().__init__(
            {
                "req": In(stream.Signature(MmioRequest)),
                "rsp": Out(stream.Signature(32)),
            }
        )


@cache
def push_beat(width: int) -> data.StructLayout:
    """A beat of what the host writes to the push window of a function, complete in itself.

    ``addr`` is the byte address of the beat in the window, a multiple of the beat's bytes, and
    ``strb`` marks the bytes written. What the host writes in one piece comes beat by beat, in
    ascending order and with nothing between.
    """
    return data.StructLayout({"function": 8, "addr": 32, "data": width, "strb": width // 8})


class HostPort(Signature):
    """The card's edge towards the host, seen from the card. With ``push``, which only some cards
    have, ``push``: what is written to the push windows; it is always taken in the end."""

    def __init__(self, width: int, *, push: bool = False):
        members = {"push": In(stream.Signature(push_beat(width)))} if push else {}
        super().__init__(
            members
            | {
                "rd_req": Out(stream.Signature(edge_read_request())),
                "rd_rsp": In(stream.Signature(edge_read_beat(width), always_ready=True)),
                "wr": Out(stream.Signature(edge_write_beat(width))),
                "mmio": Out(MmioPort()),
            }
        )
