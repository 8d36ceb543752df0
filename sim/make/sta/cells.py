"""The cells of each family: what they take of the device, and how a signal passes through them.

Levels are counted as a timing report of the vendor counts them, every cell on the way as one: look-
up table, carry block, wide multiplexer, the read of a memory made of look-up tables. Yosys writes
carry blocks of four bits (CARRY4) for UltraScale+ too, whose own (CARRY8) hold two of those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

#: comb: outputs follow inputs. register: a flip-flop or a registered multiplier. ram: block RAM
#: with its clock-to-output. lutram: memory of look-up tables; written by the clock, read through.
Sort = Literal["comb", "register", "ram", "lutram"]

#: What is counted, in this order. ``lut`` includes memories of look-up tables, which ``lutram``
#: counts once more; ``bram`` is in blocks of 36 kbit.
RESOURCES = ("lut", "lutram", "ff", "bram", "uram", "dsp")


@dataclass(frozen=True)
class Cell:
    """One cell of a netlist. inputs, outputs: pin -> nets, lowest bit first; constants left out of
    no pin (they are strings there, nets are numbers). source: where its text came from, or empty.
    """

    name: str
    type: str
    inputs: dict[str, list[Any]]
    outputs: dict[str, list[Any]]
    parameters: dict[str, Any] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class Kind:
    """One type of cell. counts: resource -> amount. clocks: pins that launch and never end a path.

    reads: inputs of a ``lutram`` that its outputs follow. carry: counted as a carry block.
    """

    sort: Sort
    counts: tuple[tuple[str, float], ...] = ()
    clocks: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    carry: bool = False


@dataclass(frozen=True)
class Arc:
    """One output net of a cell and the nets it follows. chain: of these the carry input's."""

    output: Any
    inputs: tuple[Any, ...]
    chain: tuple[Any, ...] = ()


def _lut(amount: int = 1) -> Kind:
    return Kind("comb", (("lut", amount),))


def _lutram(amount: int, clock: str, *reads: str) -> Kind:
    return Kind("lutram", (("lut", amount), ("lutram", amount)), (clock,), reads)


def _ram(resource: str, amount: float, *clocks: str) -> Kind:
    return Kind("ram", ((resource, amount),), clocks)


_FF = Kind("register", (("ff", 1),), ("C",))
_CARRY = Kind("comb", carry=True)
_MUX = Kind("comb")
_BRAM = ("CLKARDCLK", "CLKBWRCLK")
_QUAD = ("ADDRA", "ADDRB", "ADDRC", "ADDRD")
_OCTAL = (*_QUAD, "ADDRE", "ADDRF", "ADDRG", "ADDRH")
_ADDRESS = ("A", "DPRA", *(f"{pin}{bit}" for pin in ("A", "DPRA") for bit in range(7)))

XCUP: dict[str, Kind] = {
    **{f"LUT{inputs}": _lut() for inputs in range(1, 7)},
    "INV": _lut(),
    **{f"MUXF{inputs}": _MUX for inputs in (7, 8, 9)},
    "CARRY4": _CARRY,
    **{f"FD{kind}E": _FF for kind in ("R", "S", "C", "P")},
    **{f"FD{kind}E_1": _FF for kind in ("R", "S", "C", "P")},
    "SRL16E": _lutram(1, "CLK", "A0", "A1", "A2", "A3"),
    "SRLC32E": _lutram(1, "CLK", "A"),
    "RAM32M": _lutram(4, "WCLK", *_QUAD),
    "RAM32M16": _lutram(8, "WCLK", *_OCTAL),
    "RAM64M": _lutram(4, "WCLK", *_QUAD),
    "RAM64M8": _lutram(8, "WCLK", *_OCTAL),
    "RAM32X1S": _lutram(1, "WCLK", *_ADDRESS),
    "RAM64X1S": _lutram(1, "WCLK", *_ADDRESS),
    "RAM128X1S": _lutram(2, "WCLK", *_ADDRESS),
    "RAM256X1S": _lutram(4, "WCLK", *_ADDRESS),
    "RAM512X1S": _lutram(8, "WCLK", *_ADDRESS),
    "RAM32X1D": _lutram(2, "WCLK", *_ADDRESS),
    "RAM64X1D": _lutram(2, "WCLK", *_ADDRESS),
    "RAM128X1D": _lutram(4, "WCLK", *_ADDRESS),
    "RAM256X1D": _lutram(8, "WCLK", *_ADDRESS),
    "RAMB18E2": _ram("bram", 0.5, *_BRAM),
    "RAMB36E2": _ram("bram", 1, *_BRAM),
    "URAM288": _ram("uram", 1, "CLK"),
}

ECP5: dict[str, Kind] = {
    "LUT4": _lut(),
    "PFUMX": _MUX,
    "L6MUX21": _MUX,
    "CCU2C": Kind("comb", (("lut", 2),), carry=True),
    "TRELLIS_FF": Kind("register", (("ff", 1),), ("CLK",)),
    # Two slices of data; a third is taken by the write port.
    "TRELLIS_DPR16X4": _lutram(6, "WCK", "RAD"),
    "DP16KD": _ram("bram", 0.5, "CLKA", "CLKB"),
    "MULT18X18D": Kind("comb", (("dsp", 1),)),
}

_DSP48E2 = (("dsp", 1.0),)


def kind(cell: Cell, family: str) -> Kind:
    """Return what ``cell`` is; raises ValueError for one that the family does not have."""
    if family == "xcup" and cell.type == "DSP48E2":
        registered = int(str(cell.parameters.get("PREG", 0)), 2)
        return Kind("register" if registered else "comb", _DSP48E2, ("CLK",))
    try:
        return {"xcup": XCUP, "ecp5": ECP5}[family][cell.type]
    except KeyError:
        raise ValueError(f"Cell {cell.name} has a type not known here: {cell.type}") from None


def arcs(cell: Cell, known: Kind) -> Iterator[Arc]:
    """Yield an arc for every output net that follows inputs within a cycle."""
    if known.sort in ("register", "ram"):
        return
    if cell.type == "CARRY4":
        yield from _carry4(cell)
        return
    if cell.type == "CCU2C":
        yield from _ccu2c(cell)
        return
    pins = known.reads if known.sort == "lutram" else tuple(cell.inputs)
    inputs = tuple(
        net for pin in pins if pin not in known.clocks for net in cell.inputs.get(pin, ())
    )
    for nets in cell.outputs.values():
        for net in nets:
            yield Arc(net, inputs)


def _carry4(cell: Cell) -> Iterator[Arc]:
    """Bit i of the sum follows the select inputs up to i and the data inputs below it."""
    chain = tuple(cell.inputs.get("CI", ()))
    first = chain + tuple(cell.inputs.get("CYINIT", ()))
    select, data = cell.inputs["S"], cell.inputs["DI"]
    for bit, net in enumerate(cell.outputs.get("O", ())):
        yield Arc(net, (*first, *select[: bit + 1], *data[:bit]), chain)
    for bit, net in enumerate(cell.outputs.get("CO", ())):
        yield Arc(net, (*first, *select[: bit + 1], *data[: bit + 1]), chain)


def _ccu2c(cell: Cell) -> Iterator[Arc]:
    chain = tuple(cell.inputs.get("CIN", ()))
    low = tuple(net for pin in "ABCD" for net in cell.inputs.get(f"{pin}0", ()))
    high = tuple(net for pin in "ABCD" for net in cell.inputs.get(f"{pin}1", ()))
    for pin, inputs in (("S0", low), ("S1", low + high), ("COUT", low + high)):
        for net in cell.outputs.get(pin, ()):
            yield Arc(net, chain + inputs, chain)
