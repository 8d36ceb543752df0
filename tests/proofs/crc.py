"""The folded CRC against its definition: a shift register that takes one bit at a time.

The circuit is made of XORs and is therefore linear: what it makes of each single bit decides what
it makes of all. Two beats put every value into the register, so that some cycles show everything.
"""

from __future__ import annotations

from amaranth.hdl import Assert, Assume, Cat, Module, Mux, Signal, Value

from hdl.common.crc import POLYNOMIAL, CrcBeats
from tests.force import Force, inverted

from .harness import Proof, any_signal

__all__ = ["PROOFS"]


def _defined(m: Module, state: Value, data: Value, name: str) -> Value:
    """Return the register after ``data``, lowest bit first (IEEE 802.3, 3.2.9)."""
    for at in range(len(data)):
        after = Signal(32, name=f"{name}{at}")
        m.d.comb += after.eq((state >> 1) ^ Mux(state[0] ^ data[at], POLYNOMIAL, 0))
        state = after
    return state


def _folded(width: int):
    def build(m: Module) -> None:
        m.submodules.dut = dut = CrcBeats(width=width)
        valid, first, skip = (any_signal(m, 1, name) for name in ("valid", "first", "skip"))
        data = any_signal(m, width, "data")
        begun, seen, register = Signal(), Signal(), Signal(32)
        m.d.comb += [
            Cat(dut.valid, dut.first, dut.skip, dut.data).eq(Cat(valid, first, skip, data)),
            Assume(begun | ~valid | first),
            # One bit of all the data that there are.
            Assume(((data & (data - 1)[:width]) == 0) & (~seen | (data == 0))),
        ]
        with m.If(valid & (data != 0)):
            m.d.sync += seen.eq(1)
        with m.If(valid):
            m.d.sync += begun.eq(1)
            with m.If(first | ~skip):
                m.d.sync += register.eq(_defined(m, Mux(first, 0, register), data, "bit"))
        late, started = register, begun
        for cycle in range(CrcBeats.LATENCY - 1):
            later, since = Signal(32, name=f"late{cycle}"), Signal(name=f"started{cycle}")
            m.d.sync += [later.eq(late), since.eq(started)]
            late, started = later, since
        m.d.comb += Assert(~started | (dut.state == late))

    return build


PROOFS = (
    Proof(
        "crc",
        "The CRC of beats of 32 bits is that of its definition, with gaps and skipped beats.",
        _folded(32),
        Force("hdl.common.crc:CrcBeats", "part", inverted(1)),
        depth=5,
    ),
)
