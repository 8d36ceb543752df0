"""Register accesses inside the host room: a function's bus and the ports of its parts."""

from amaranth.hdl import Cat, Mux
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, Signature

__all__ = ["NOTHING_THERE", "FunctionBus", "FunctionRequest", "LocalPort", "lanes", "merge"]

#: What an access to no register reads as.
NOTHING_THERE = 0xFFFF_FFFF


class FunctionRequest(data.Struct):
    """An ``MmioRequest`` that has reached its function."""

    bar: 3
    addr: 32
    write: 1
    strb: 4
    data: 32


class FunctionBus(Signature):
    """Seen from the master: each read gets one response, a write none; one read at a time."""

    def __init__(self):
        super().__init__(
            {
                "req": Out(stream.Signature(FunctionRequest)),
                "rsp": In(stream.Signature(32)),
            }
        )


class LocalPort(Signature):
    """Seen from the master: ``start`` is one cycle; the other outputs stay until ``done`` (one
    cycle, at least one after ``start``). ``read_data`` is valid with ``done``. ``addr`` is a byte
    offset, a multiple of 4; ``strb`` marks the bytes accessed, for reads too."""

    def __init__(self, addr_width: int):
        super().__init__(
            {
                "start": Out(1),
                "addr": Out(addr_width),
                "write": Out(1),
                "strb": Out(4),
                "data": Out(32),
                "done": In(1),
                "read_data": In(32),
            }
        )


def merge(old, port) -> Cat:
    """``old`` (32 bits or fewer) with the written bytes of ``port`` in their lanes."""
    parts = []
    for lane in range((len(old) + 7) // 8):
        low, high = 8 * lane, min(8 * lane + 8, len(old))
        parts.append(Mux(port.strb[lane], port.data[low:high], old[low:high]))
    return Cat(*parts)


def lanes(offset: int) -> tuple[int, int]:
    """Aligned word of the byte ``offset``, and the bit at which that byte is in it."""
    return offset & ~3, 8 * (offset & 3)
