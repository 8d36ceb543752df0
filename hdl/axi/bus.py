"""The signals of AXI4, AXI4-Lite and AXI4-Stream, by the names that the specification gives them.

Spec: AMBA AXI and ACE, ARM IHI 0022F, A2 (AXI4), B1 (AXI4-Lite); AMBA 4 AXI4-Stream, IHI 0051A.
Each signature is seen from the side that the channels' names favour: ``Axi4`` from the master,
``AxiLite`` from the master, ``AxiStream`` from the transmitter.
"""

from amaranth.lib import enum
from amaranth.lib.wiring import In, Out, Signature

__all__ = ["RESP_ERROR_BIT", "Axi4", "Axi4Read", "Axi4Write", "AxiLite", "AxiStream", "Burst"]

#: Bit of RRESP and BRESP that SLVERR and DECERR have, and OKAY has not (A3.4.4).
RESP_ERROR_BIT = 1


class Burst(enum.Enum, shape=2):
    """AxBURST (A3.4.1)."""

    FIXED = 0
    INCR = 1
    WRAP = 2


def _address(kind: str, id_bits: int) -> dict:
    """An address channel; its members' names begin with ``kind``, ar or aw."""
    widths = {"id": id_bits, "addr": 64, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4}
    widths |= {"prot": 3, "qos": 4, "user": 8, "valid": 1}
    return {f"{kind}{name}": Out(width) for name, width in widths.items()} | {f"{kind}ready": In(1)}


class Axi4Read(Signature):
    """The read channels of a memory-mapped master."""

    def __init__(self, width: int, id_bits: int):
        super().__init__(
            _address("ar", id_bits)
            | {
                "rid": In(id_bits),
                "rdata": In(width),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class Axi4Write(Signature):
    """The write channels of a memory-mapped master."""

    def __init__(self, width: int, id_bits: int):
        super().__init__(
            _address("aw", id_bits)
            | {
                "wdata": Out(width),
                "wstrb": Out(width // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(id_bits),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
            }
        )


class Axi4(Signature):
    """A memory-mapped master: addresses of 64 bits, ``awuser`` and ``aruser`` of 8."""

    def __init__(self, width: int, id_bits: int):
        read, write = Axi4Read(width, id_bits), Axi4Write(width, id_bits)
        super().__init__({**write.members, **read.members})


class AxiLite(Signature):
    """A master of registers of 32 bits."""

    def __init__(self, address_bits: int):
        super().__init__(
            {
                "awaddr": Out(address_bits),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_bits),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class AxiStream(Signature):
    """Frames: ``tuser`` with ``tlast`` says that a frame is bad."""

    def __init__(self, width: int):
        super().__init__(
            {
                "tdata": Out(width),
                "tkeep": Out(width // 8),
                "tlast": Out(1),
                "tuser": Out(1),
                "tvalid": Out(1),
                "tready": In(1),
            }
        )
