"""CRC-32 of whole beats at one beat per cycle, and what the ICRC makes of it.

The CRC is linear. A register that starts at 0 ignores leading zeros; a start value may be XORed
into the first four bytes instead. So a beat is masked (``IcrcMask``), its contribution G(data) is
computed in two pipeline stages, and only ``state' = A * state ^ G`` is a loop (``CrcBeats``). A
tail is filled with zeros; ``CrcUnfill`` takes the fill back, a power of two of bytes in each stage,
and ``residues`` says what a receiver must find without taking it back.
"""

from __future__ import annotations

from functools import cache

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.wire.constants import ICRC_RESIDUE, icrc_masks

__all__ = ["CrcBeats", "CrcUnfill", "IcrcMask", "residues"]

#: Reflected polynomial of CRC-32 (IEEE 802.3, 3.2.9).
POLYNOMIAL = 0xEDB88320
#: Bits XORed in one pipeline stage: two levels of 6-input tables.
STAGE_BITS = 36


def _forward(state: int, data_bytes: int) -> int:
    """The register after that many zero bytes."""
    for _ in range(8 * data_bytes):
        state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
    return state


def _backward(state: int, data_bytes: int) -> int:
    """The register before that many zero bytes."""
    for _ in range(8 * data_bytes):
        state = (state ^ POLYNOMIAL) << 1 | 1 if state >> 31 else state << 1
    return state


def _rows(columns: list[int]) -> list[list[int]]:
    """For each of 32 output bits the input bits which it is the XOR of."""
    return [[at for at, column in enumerate(columns) if column >> bit & 1] for bit in range(32)]


@cache
def _state_rows(step: int) -> list[list[int]]:
    """Register to register over ``step`` zero bytes; backwards when negative."""
    move, count = (_forward, step) if step >= 0 else (_backward, -step)
    return _rows([move(1 << bit, count) for bit in range(32)])


@cache
def _data_rows(size: int) -> list[list[int]]:
    """A beat of ``size`` bytes to its contribution to the register."""
    columns = []
    for bit in range(8 * size):
        # XORed into the low bits of the register, then eight steps, then the bytes behind it.
        columns.append(_forward(_forward(1 << bit % 8, 1), size - 1 - bit // 8))
    return _rows(columns)


def _xor(vector: Value, bits: list[int]) -> Value:
    return Cat(vector[bit] for bit in bits).xor()


def residues(size: int) -> list[int]:
    """Register after a good packet with its ICRC and then 0, 1, ... ``size`` - 1 zero bytes."""
    return [_forward(ICRC_RESIDUE, fill) for fill in range(size)]


class IcrcMask(wiring.Component):
    """Turns a beat of a frame into what the ICRC is computed over; combinational.

    Spec: RoCE v2 (IBTA Annex A17), A17.3.3. Bytes before the IP header become 0, variant fields
    FFh, and the register's start value is XORed into the first four bytes of the IP header.
    Members: ``data`` beat, ``number`` of the beat in its frame (may saturate at ``beats``),
    ``vlan`` and ``ipv6``: what the headers are; needed from the beat on which holds the EtherType;
    ``masked``: the result. Errors: none.
    """

    def __init__(self, *, width: int):
        if width < 32 or width % 8:
            raise ValueError(f"Width must be whole bytes, at least 32 bits, not {width!r}")
        self._width = width
        self._masks = {
            (vlan, ipv6): icrc_masks(vlan=bool(vlan), ipv6=bool(ipv6))
            for vlan in (0, 1)
            for ipv6 in (0, 1)
        }
        self.beats = max(-(-8 * len(ones) // width) for ones, _, _ in self._masks.values())
        super().__init__(
            {
                "data": In(width),
                "number": In(range(self.beats + 1)),
                "vlan": In(1),
                "ipv6": In(1),
                "masked": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = self._width // 8
        ones, zeros, flip = (Signal(self._width, name=n) for n in ("ones", "zeros", "flip"))
        for (vlan, ipv6), masks in self._masks.items():
            with m.If((self.vlan == vlan) & (self.ipv6 == ipv6)):
                with m.Switch(self.number):
                    for number in range(self.beats):
                        with m.Case(number):
                            for target, mask in zip((ones, zeros, flip), masks, strict=True):
                                part = mask[number * size : (number + 1) * size]
                                m.d.comb += target.eq(int.from_bytes(part, "little"))
        m.d.comb += self.masked.eq((self.data | ones) & ~zeros ^ flip)
        return m


class CrcBeats(wiring.Component):
    """CRC-32 register over beats; one beat per cycle, gaps allowed, nothing stalls.

    Spec: IEEE 802.3, 3.2.9, without the register's start value and final complement: those are
    the user's (see ``IcrcMask``, ``CrcUnfill``).
    Members: ``valid``, ``first``, ``data``: a beat, bytes that do not count are 0; ``skip``: a beat
    that leaves the register alone (unless ``first``). ``state``: the register.
    Latency: ``LATENCY`` cycles from a beat to the ``state`` that includes it; ``state`` stays until
    the next beat's. Throughput: one beat per cycle. Reset: nothing in flight.
    """

    LATENCY = 3

    def __init__(self, *, width: int):
        if width < 32 or width % 8:
            raise ValueError(f"Width must be whole bytes, at least 32 bits, not {width!r}")
        self._width = width
        super().__init__(
            {"valid": In(1), "first": In(1), "skip": In(1), "data": In(width), "state": Out(32)}
        )

    def elaborate(self, platform):
        m = Module()
        valid, first, skip = (
            Signal(2, name=f"{name}_staged") for name in ("valid", "first", "skip")
        )
        m.d.sync += [
            valid.eq(Cat(self.valid, valid)),
            first.eq(Cat(self.first, first)),
            skip.eq(Cat(self.skip, skip)),
        ]
        part = Signal(32, reset_less=True)
        for bit, row in enumerate(_data_rows(self._width // 8)):
            chunks = [row[at : at + STAGE_BITS] for at in range(0, len(row), STAGE_BITS)]
            parts = Signal(len(chunks), name=f"parts{bit}", reset_less=True)
            m.d.sync += [
                parts.eq(Cat(_xor(self.data, chunk) for chunk in chunks)),
                part[bit].eq(parts.xor()),
            ]
        moved = Cat(_xor(self.state, row) for row in _state_rows(self._width // 8))
        with m.If(valid[1] & (first[1] | ~skip[1])):
            m.d.sync += self.state.eq(Mux(first[1], 0, moved) ^ part)
        return m


class CrcUnfill(wiring.Component):
    """Takes zero bytes back out of a CRC register and completes it.

    Members: ``state``: register after a beat whose last ``fill`` bytes were zeros that do not
    count; ``crc``: the CRC-32 of the rest, complemented; least significant byte goes first on the
    wire.
    Parameters: ``width`` of a beat in bits; every fill is ``least`` bytes and a multiple of
    ``step`` (a power of two).
    Latency: ``latency`` cycles. Throughput: one per cycle. Reset: none needed.
    """

    def __init__(self, *, width: int, step: int = 1, least: int = 0):
        if width < 32 or width & (width - 1):
            raise ValueError(f"Width must be a power of two, at least 32 bits, not {width!r}")
        if step < 1 or step & (step - 1) or step > width // 8:
            raise ValueError(f"Step must be a power of two of at most a beat, not {step!r}")
        if not 0 <= least < step:
            raise ValueError(f"Least must be 0 to {step - 1}, not {least!r}")
        self._size, self._least = width // 8, least
        self._stages = range(step.bit_length() - 1, (self._size - 1).bit_length())
        self.latency = len(self._stages) + (least > 0)
        super().__init__({"state": In(32), "fill": In(range(self._size)), "crc": Out(32)})

    def elaborate(self, platform):
        m = Module()
        state, fill = self.state, self.fill
        for stage in reversed(self._stages):
            moved = Cat(_xor(state, row) for row in _state_rows(-(1 << stage)))
            result = Signal(32, name=f"state{stage}", reset_less=True)
            remaining = Signal(max(1, stage), name=f"fill{stage}", reset_less=True)
            m.d.sync += [result.eq(Mux(fill[stage], moved, state)), remaining.eq(fill)]
            state, fill = result, remaining
        if self._least:
            result = Signal(32, name="state", reset_less=True)
            m.d.sync += result.eq(Cat(_xor(state, row) for row in _state_rows(-self._least)))
            state = result
        m.d.comb += self.crc.eq(~state)
        return m
