"""CRC-32 of whole beats at one beat per cycle, and the ICRC on top of it.

The CRC is linear. A register that starts at 0 ignores leading zeros; a start value may be XORed
into the first four bytes instead. A beat is therefore masked (``IcrcMask``), its contribution
G(data) is computed in two pipeline stages, and only ``state' = A * state ^ G`` is a loop
(``CrcBeats``). A tail is filled with zeros. ``CrcUnfill`` removes the fill again by tables. A
receiver need not remove it: ``residues`` says which value the register must have for each fill.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import xor

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.wire.constants import ICRC_RESIDUE, icrc_masks

__all__ = ["CrcBeats", "CrcUnfill", "IcrcMask", "residues"]

#: Reflected polynomial of CRC-32 (IEEE 802.3, 3.2.9).
POLYNOMIAL = 0xEDB88320
#: Multiples of the polynomial with few terms, as their powers of x, and how many halves of the
#: powers that a fold removes are taken from the lower end. A power outside of the degree is the sum
#: of a few powers inside. 32 sums over half of 512 bits take twice as many look-up tables as three
#: folds and sums over half of 137 bits.
FOLDS = (
    ((0, 89, 117, 155, 300), 1),
    ((0, 79, 85, 123, 186, 203), 2),
    ((0, 8, 29, 70, 80, 84, 137), 0),
)
#: Folds in front of the first register.
EARLY_FOLDS = 2
#: Address bits of a table of ``CrcUnfill``: half a block RAM of 32-bit rows.
TABLE_BITS = 9


def _forward(state: int, bits: int) -> int:
    """The register after that many zero bits."""
    for _ in range(bits):
        state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
    return state


def _backward(state: int, bits: int) -> int:
    """The register before that many zero bits."""
    for _ in range(bits):
        state = (state ^ POLYNOMIAL) << 1 | 1 if state >> 31 else state << 1
    return state


def _rows(columns: list[int]) -> list[list[int]]:
    """For each of the 32 output bits, the input bits whose XOR it is."""
    return [[at for at, column in enumerate(columns) if column >> bit & 1] for bit in range(32)]


@cache
def _state_rows(size: int) -> list[list[int]]:
    """Register to register over ``size`` zero bytes."""
    return _rows([_forward(1 << bit, 8 * size) for bit in range(32)])


@cache
def _data_steps(size: int) -> list[list[list[int]]]:
    """The matrices that turn a beat of ``size`` bytes (the last bit of its last byte first) into
    its contribution to the register, in the order of use, as rows like those of ``_rows``."""
    low, count = 0, 8 * size  # the vector's bits are the factors of x**low, x**(low + 1), ...
    steps = []
    for powers, halves in FOLDS:
        degree = powers[-1]
        if degree >= count:
            continue
        first = low + (count - degree) * halves // 2
        kept = range(first, first + degree)
        sums = {power: frozenset({power}) for power in kept}
        for power in range(kept.stop, low + count):
            sums[power] = reduce(xor, (sums[power - degree + at] for at in powers[:-1]))
        for power in reversed(range(low, first)):
            sums[power] = reduce(xor, (sums[power + at] for at in powers[1:]))
        steps.append([[n for n in range(count) if power in sums[low + n]] for power in kept])
        low, count = first, degree
    # The last bit is XORed into the register's, and goes through one step then.
    columns = [_forward(1 << 31, 32 + low)]
    for _ in range(count - 1):
        columns.append(_forward(columns[-1], 1))
    return [*steps, _rows(columns)]


def _xor(vector: Value, bits: list[int]) -> Value:
    return Cat(vector[bit] for bit in bits).xor()


def _product(rows: list[list[int]], vector: Value) -> Value:
    return Cat(_xor(vector, row) for row in rows)


def residues(size: int) -> list[int]:
    """The register after a good packet with its ICRC and then 0, 1, ... ``size`` - 1 zero bytes."""
    return [_forward(ICRC_RESIDUE, 8 * fill) for fill in range(size)]


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
        steps = _data_steps(self._width // 8)
        early = min(EARLY_FOLDS, len(steps) - 1)
        vector = Signal(self._width, name="powers")
        part = Signal(32, reset_less=True)
        m.d.comb += vector.eq(self.data[::-1])
        for n, rows in enumerate(steps):
            if n == early:
                registered = Signal.like(vector, name="early", reset_less=True)
                m.d.sync += registered.eq(vector)
                vector = registered
            product = Signal(len(rows), name=f"step{n}")
            m.d.comb += product.eq(_product(rows, vector))
            vector = product
        m.d.sync += part.eq(vector)
        moved = _product(_state_rows(self._width // 8), self.state)
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
    How: a table in block RAM holds the contribution of a few bits of ``state`` for each fill.
    Latency: ``LATENCY`` cycles. Throughput: one per cycle. Reset: none needed.
    """

    LATENCY = 2

    def __init__(self, *, width: int, step: int = 1, least: int = 0):
        if width < 32 or width & (width - 1):
            raise ValueError(f"Width must be a power of two, at least 32 bits, not {width!r}")
        if step < 1 or step & (step - 1) or step > width // 8:
            raise ValueError(f"Step must be a power of two of at most a beat, not {step!r}")
        if not 0 <= least < step:
            raise ValueError(f"Least must be 0 to {step - 1}, not {least!r}")
        self._size, self._step, self._least = width // 8, step, least
        super().__init__({"state": In(32), "fill": In(range(self._size)), "crc": Out(32)})

    def elaborate(self, platform):
        m = Module()
        fills = range(self._least, self._size, self._step)
        number = self.fill[self._step.bit_length() - 1 :]
        most = max(1, TABLE_BITS - len(number))
        parts = []
        for at in range(0, 32, most):
            bits = min(most, 32 - at)
            init = [_backward(n << at, 8 * fill) for fill in fills for n in range(1 << bits)]
            table = memory.Memory(
                shape=unsigned(32), depth=len(init), init=init, attrs={"ram_style": "block"}
            )
            m.submodules[f"table{at}"] = table
            read = table.read_port()
            m.d.comb += read.addr.eq(Cat(self.state[at : at + bits], number))
            parts.append(read.data)
        m.d.sync += self.crc.eq(~reduce(xor, parts))
        return m
