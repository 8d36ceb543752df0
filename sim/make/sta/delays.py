"""The delays that the estimate of a clock is made of, in one table, each with its source.

A vendor's placer and router decide in the end. A delay is therefore a range. ``near``: all cells
are beside one another and their fastest inputs are used, which no placement reaches. ``usual``:
what a vendor budgets, or the mean of what is published. ``narrow``: as usual, with nets of one
input, as if the registers of wide nets were copied. ``far``: the slowest input of each cell, long
nets, each of them slower with each further input.
"""

from __future__ import annotations

from dataclasses import dataclass

RAPIDWRIGHT = (
    "RapidWright (AMD), `timing/ultrascaleplus/intrasite_delay_terms.txt`, observed in Vivado"
)
FLOPOCO = "FloPoCo, `VirtexUltrascalePlus.hpp`, from Vivado's reports of an xcvu3p-2"
VIVADO = (
    "a Vivado report of an UltraScale+ device (Alveo U250) that AutoParallel's parser of such "
    "reports quotes"
)
FAILFAST = (
    "AMD's `report_failfast` (XilinxTclStore, designutils), which budgets 298 ps for a look-up "
    "table and its net in speed grade -2"
)
ROUTED = (
    "228 routed nets in Vivado's reports of designs of the lakeroad evaluation (xczu3eg, from "
    "speed grade -1 to -2 by report_failfast's budgets)"
)
TRELLIS = "Project Trellis, `ECP5/timing/speed_8_5G/cells.json`, from Lattice's tool"
YOSYS = "Yosys, `ecp5/ccu2c_sim.vh`"
NEXTPNR = "nextpnr, `Arch::estimateDelay` of ECP5, grade 8 of the 5G devices"


@dataclass(frozen=True)
class Delay:
    """near, usual, far: ps. source: where the figures are published; empty for an assumption.

    reason: of an assumption, or of the one of them that is not published.
    """

    near: float
    usual: float
    far: float
    source: str = ""
    reason: str = ""

    @property
    def narrow(self) -> float:
        """As usual; the nets are told apart by ``Delays.net``."""
        return self.usual


@dataclass(frozen=True)
class Delays:
    """The delays of a family.

    clock_to_out: of a flip-flop. lutram: of a memory of look-up tables, from its clock. lut, mux:
    from the slowest input; a net inside the slice is included. carry: into a carry block and out.
    chain: from a carry block to the next. wire: of a net to one input. fan_out: of a net, for each
    further input of the same kind (``sim.make.sta.nets.Sinks``); highest: what a net takes at most.
    setup: of a flip-flop. beside: from a look-up table to the flip-flop beside it. bram, uram:
    clock to output; column: for each further UltraRAM of a column. ram_setup: of a RAM. margin:
    uncertainty of the clock.
    """

    title: str
    clock_to_out: Delay
    lutram: Delay
    lut: Delay
    mux: Delay
    carry: Delay
    chain: Delay
    wire: Delay
    fan_out: Delay
    highest: Delay
    setup: Delay
    beside: Delay
    bram: Delay
    uram: Delay
    column: Delay
    ram_setup: Delay
    margin: Delay

    def net(self, sinks: int, corner: str) -> float:
        """Delay of a net to one of ``sinks`` inputs of a kind, ps. corner: near, narrow, usual or
        far."""
        one, more, highest = (
            getattr(delay, corner) for delay in (self.wire, self.fan_out, self.highest)
        )
        further = 0 if corner == "narrow" else sinks - 1
        return min(one + more * further, highest)


ULTRASCALE_PLUS = Delays(
    title="UltraScale+, speed grade -2",
    clock_to_out=Delay(77, 77, 79, f"{RAPIDWRIGHT}; {VIVADO}"),
    lutram=Delay(295, 304, 312, f"{RAPIDWRIGHT}: CLK to O5, O6"),
    lut=Delay(35, 92, 150, f"{RAPIDWRIGHT}: inputs A6 and A1, and the mean of all six"),
    mux=Delay(91, 123, 127, f"{RAPIDWRIGHT}: F7MUX, with the nets to it and from it"),
    carry=Delay(116, 160, 228, f"{FLOPOCO}: final carry; {RAPIDWRIGHT}: AX to CO7, O5"),
    chain=Delay(15, 41, 41, f"{FLOPOCO}: CIN to COUT, and COUT to CIN of the next"),
    wire=Delay(
        146,
        208,
        350,
        f"{VIVADO}: the shortest of its four nets; {FAILFAST}; {ROUTED}: the slowest tenth of "
        "those of four to eight inputs",
    ),
    fan_out=Delay(0, 2.5, 5, ROUTED, "far: an assumption, twice the usual"),
    highest=Delay(
        146,
        700,
        1500,
        f"{ROUTED}: the slowest tenth of those of 65 to 128 inputs; {FLOPOCO}: 1.5 ns, seen once "
        "of a net of 65 inputs",
    ),
    setup=Delay(25, 25, 25, f"{RAPIDWRIGHT}; {VIVADO}", "an assumption for CE and R"),
    beside=Delay(50, 50, 50, f"{RAPIDWRIGHT}: O6 to D"),
    bram=Delay(830, 830, 830, VIVADO),
    uram=Delay(830, 1250, 1667, reason="a block RAM's at least; the period of 600 MHz at most"),
    column=Delay(100, 200, 300, reason="a multiplexer and a wire from block to block"),
    ram_setup=Delay(250, 325, 400, reason="of the order of a 7 series' block RAM"),
    margin=Delay(35, 35, 35, f"{VIVADO}: uncertainty of the clock"),
)  # fmt: skip

ECP5 = Delays(
    title="ECP5-5G, speed grade 8",
    clock_to_out=Delay(257, 283, 309, TRELLIS),
    lutram=Delay(554, 558, 563, reason="717 ps of grade 8 without 5G, in Trellis, scaled"),
    lut=Delay(119, 130, 141, TRELLIS),
    mux=Delay(37, 98, 151, f"{TRELLIS}: OFX0 without its look-up table; M0 to OFX0"),
    carry=Delay(257, 379, 516, YOSYS),
    chain=Delay(43, 43, 273, f"{YOSYS}: CIN to COUT, to S1"),
    wire=Delay(324, 756, 1404, f"{NEXTPNR}: none, two and five columns and rows between cells"),
    fan_out=Delay(0, 0, 0, reason="nextpnr's delay of a net to an input does not know the others"),
    highest=Delay(324, 756, 1404, reason="as above"),
    setup=Delay(0, 0, 0, f"{TRELLIS}: DI and CE; LSR has 225 ps, which is left out"),
    beside=Delay(0, 0, 0, f"{TRELLIS}: DI is behind its look-up table"),
    bram=Delay(1356, 1390, 1419, f"{TRELLIS}: DP16KD without output register"),
    uram=Delay(0, 0, 0, reason="the family has none"),
    column=Delay(0, 0, 0, reason="the family has none"),
    ram_setup=Delay(42, 55, 67, f"{TRELLIS}: DIB, ADA"),
    margin=Delay(0, 0, 0, reason="nextpnr has none"),
)
