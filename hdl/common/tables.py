"""Ports of the context tables and of the register bus.

Read: drive ``index`` (and ``enable``); ``row`` is valid in the next cycle and stays until the next
enabled read. A read in the same cycle as the owner's write of the same row returns the new row to
the owner, to everybody else the row as it was; as does one in the cycle of the firmware's write.
Write: takes effect at the clock edge. Tables clear themselves after reset; ``ready`` of the table
says so.
"""

from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, Signature

__all__ = ["TableRead", "TableWrite", "TableProgram", "CsrRequest", "CsrBus", "CSR_ADDRESS_BITS"]

CSR_ADDRESS_BITS = 20


class TableRead(Signature):
    """Seen from the reader."""

    def __init__(self, index_width: int, row):
        super().__init__({"index": Out(index_width), "enable": Out(1), "row": In(row)})


class TableWrite(Signature):
    """Seen from the owner."""

    def __init__(self, index_width: int, row):
        super().__init__({"index": Out(index_width), "enable": Out(1), "row": Out(row)})


class TableProgram(Signature):
    """Seen from the firmware's window. ``read`` or ``write`` is held until ``done`` (one cycle,
    when the table has a free turn; its owner goes first); ``read_row`` is valid with ``done``. A
    write replaces the whole row in one cycle."""

    def __init__(self, index_width: int, row):
        super().__init__(
            {
                "index": Out(index_width),
                "row": Out(row),
                "read": Out(1),
                "write": Out(1),
                "done": In(1),
                "read_row": In(row),
            }
        )


class CsrRequest(data.Struct):
    """One 32-bit register access; ``addr`` is a byte address, a multiple of 4."""

    addr: CSR_ADDRESS_BITS
    write: 1
    data: 32


class CsrBus(Signature):
    """Seen from the master (firmware side). Exactly one response per request, reads and writes;
    an address without a register answers 0xFFFFFFFF and loses the write."""

    def __init__(self):
        super().__init__(
            {
                "req": Out(stream.Signature(CsrRequest)),
                "rsp": In(stream.Signature(32)),
            }
        )
