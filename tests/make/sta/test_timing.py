"""Delays of paths: sums by hand; wide nets and deep memories."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sim.make.sta import nets, timing
from sim.make.sta.cells import Cell
from sim.make.sta.delays import ECP5, ULTRASCALE_PLUS, Delay, Delays
from tests.make.sta import designs
from tests.make.sta.designs import carry4, ff, lut, netlist

#: Delays that are told apart in a sum; the cases differ by a factor of 10.
DECIMAL = Delays(
    title="decimal",
    **{
        name: Delay(value, 10 * value, 100 * value)
        for name, value in {
            "clock_to_out": 1, "lutram": 2, "lut": 1000, "mux": 30, "carry": 500, "chain": 7,
            "wire": 10_000, "fan_out": 100, "highest": 10_500, "setup": 3, "beside": 5,
            "bram": 40, "uram": 60, "column": 900, "ram_setup": 4, "margin": 0.5,
        }.items()
    },
)  # fmt: skip


def uram(name: str, address: int, output: int) -> Cell:
    pins = {"CLK": [0], "ADDR_A": [address]}
    return Cell(name, "URAM288", pins, {"DOUT_A": [output]})


def bram(name: str, width: int, output: int) -> Cell:
    parameters = {"READ_WIDTH_A": f"{width:032b}", "WRITE_WIDTH_B": f"{width:032b}"}
    return Cell(name, "RAMB36E2", {"CLKARDCLK": [0]}, {"DOUTADOUT": [output]}, parameters)


def paths(*cells: Cell, **more) -> dict[str, timing.Slow]:
    return {
        path.end: path for path in timing.Timing(netlist(*cells, **more), "xcup", DECIMAL).paths()
    }


def test_register_to_register() -> None:
    """Clock to output, net of two inputs, look-up table, net, look-up table, last net, setup."""
    found = paths(
        ff("begin", "0", 1), lut("a", [1, 1], 2), lut("b", [2], 3), ff("end", 3, 5),
        names={1: "start[7]", 5: "stop[2]"},
    )["stop"]  # fmt: skip
    usual = 10 * (1 + 10_100 + 1000 + 10_000 + 1000 + 10_000 + 3 + 0.5)
    assert found.narrow == round(usual - 10 * 100)
    assert (found.usual, found.far) == (round(usual), round(10 * usual))
    # Near, the register stands beside the look-up table that it alone follows.
    assert found.near == round(1 + 10_100 + 1000 + 10_000 + 1000 + 5 + 3 + 0.5)
    assert (found.start, found.levels) == ("start[7]", 2)


def test_the_latest_input_counts_and_not_the_most_levels() -> None:
    """A wide net is slower than a look-up table more; what a net takes at most bounds it."""
    wide = [lut(f"sink{n}", [1], 100 + n) for n in range(20)]
    cells = [ff("wide", "0", 1), ff("narrow", "0", 2), lut("one", [2], 3), lut("two", [1, 3], 4)]
    found = paths(*cells, *wide, ff("end", 4, 5), names={1: "wide", 2: "narrow", 5: "stop"})
    assert (found["stop"].start, found["stop"].levels) == ("narrow", 2)
    slow = dataclasses.replace(
        DECIMAL, fan_out=Delay(5000, 50_000, 500_000), highest=Delay(90_000, 900_000, 9_000_000)
    )
    netlist_ = netlist(*cells, *wide, ff("end", 4, 5), names={1: "wide", 2: "narrow", 5: "stop"})
    (path,) = [p for p in timing.Timing(netlist_, "xcup", slow).paths() if p.end == "stop"]
    assert (path.start, path.levels) == ("wide", 1)
    assert DECIMAL.net(21, "near") == 10_500 and slow.net(17, "near") == 90_000
    assert slow.net(3, "usual") == 200_000


def test_carry_chain_has_no_nets_inside() -> None:
    """From the look-up table into a block, and from block to block, nothing is added."""
    low = carry4("low", "0", [2, "0", "0", "0"], ["0"] * 4, [10, 11, 12, 13], [20, 21, 22, 23])
    high = carry4("high", 23, ["0"] * 4, ["0"] * 4, [30, 31, 32, 33], [40, 41, 42, 43])
    found = paths(ff("x", "0", 1), lut("a", [1], 2), low, high, ff("y", 33, 50), names={50: "y"})
    assert found["y"].near == round(1 + 10_000 + 1000 + 500 + 7 + 5 + 3 + 0.5)
    assert found["y"].levels == 3


def test_wide_multiplexer_is_in_the_slice_and_its_select_is_not() -> None:
    mux = Cell("m", "MUXF7", {"I0": [2], "I1": [2], "S": [1]}, {"O": [3]})
    found = paths(ff("x", "0", 1), lut("a", [1], 2), mux, ff("y", 3, 4), names={4: "y"})["y"]
    assert found.near == round(1 + 10_100 + 1000 + 30 + 5 + 3 + 0.5)
    alone = paths(ff("x", "0", 1), ff("z", "0", 2), mux, ff("y", 3, 4), names={4: "y"})["y"]
    assert alone.near == round(1 + 10_100 + 30 + 5 + 3 + 0.5)


def test_path_behind_a_ram_and_into_one() -> None:
    ram = bram("rows.0.0", 36, 1)
    found = paths(ram, lut("a", [1], 2), ff("y", 2, 3), uram("list", 3, 4), names={3: "y"})
    assert found["y"].near == round(40 + 10_000 + 1000 + 5 + 3 + 0.5)
    assert found["y"].start == "RAMB36E2 rows"
    assert found["URAM288 list.ADDR_A"].near == round(1 + 10_000 + 4 + 0.5)


def test_each_block_of_a_column_delays_it() -> None:
    cells = [uram(f"deep.0.0.block[{n}].ram", 9, 20 + n) for n in range(4)]
    found = paths(*cells, ff("y", 23, 30), names={30: "y"})["y"]
    assert found.near == round(60 + 3 * 900 + 10_000 + 3 + 0.5)
    assert found.start == "URAM288 deep"


def test_memory_of_look_up_tables() -> None:
    ram = Cell("m", "RAM64X1S", {"WCLK": [0], "A0": ["0"], "D": ["0"]}, {"O": [4]})
    found = paths(ram, ff("y", 4, 5), names={5: "y"})["y"]
    assert (found.near, found.levels) == (round(2 + 10_000 + 3 + 0.5), 1)


def wide(count: int, *cells: Cell, **more) -> list[nets.Net]:
    """Of a design in which net 7 has ``count`` look-up tables behind it."""
    sinks = [lut(f"s{n}", [7], 1000 + n) for n in range(count)]
    whole = netlist(*cells, *sinks, **more)
    return nets.wide_nets(whole, "xcup", nets.fan_out(whole))


def test_fan_out_counts_inputs() -> None:
    assert wide(64, ff("x", "0", 7)) == []
    assert wide(65, ff("x", "0", 7), names={7: "x"}) == [nets.Net("x", 65, "flip-flop", "I0", 65)]
    (net,) = wide(63, lut("$flatten\\box.part.$abc$1", [1], 7), lut("twice", [7, 7, 1], 8))
    assert net == nets.Net("(LUT1 of box.part)", 65, "LUT", "I0", 64)
    (net,) = wide(63, ff("x", "0", 7), carry4("c", "0", ["0"] * 4, [7, 7, "0", "0"], [], []))
    assert (net.fan_out, net.pin, net.pins) == (65, "I0", 63)
    (net,) = wide(64, lut("a", [1], 7), outputs={"o": [7]})
    assert (net.fan_out, net.driver) == (65, "LUT")


def test_inputs_of_other_kinds_do_not_count() -> None:
    """Logic, RAMs, enables: a pin waits for the inputs of its own kind, enables come by fours."""
    flip_flops = [
        Cell(f"e{n}", "FDRE", {"C": [0], "CE": [7], "R": ["0"], "D": ["0"]}, {"Q": [2000 + n]})
        for n in range(9)
    ]
    rams = [uram(f"ram{n}", 7, 3000 + n) for n in range(2)]
    logic = [lut(f"s{n}", [7], 1000 + n) for n in range(3)]
    sinks = nets.Sinks(netlist(*flip_flops, *rams, *logic), "xcup")
    assert sinks.to(7, flip_flops[0], "CE") == 3
    assert sinks.to(7, logic[0], "I0") == sinks.of_kind(7, "logic") == 3
    assert sinks.to(7, rams[0], "ADDR_A") == 2


#: Levels (of them carry blocks) and ns of paths in public reports of Vivado for UltraScale+ -2:
#: issues 226 of corundum (Alveo U200) and 67 of verilog-axi (VU9P).
REPORTED = ((16, 3, 4.718), (15, 0, 4.166))


@pytest.mark.parametrize(("levels", "carries", "ns"), REPORTED)
def test_levels_take_what_vivado_reports(levels: int, carries: int, ns: float) -> None:
    """Between nets of one input and of eight; the carry blocks are chained or begin anew. A budget
    is somewhat more than what a path takes that has been placed: up to a fifth."""
    delays = ULTRASCALE_PLUS
    ends = delays.clock_to_out.usual + delays.setup.usual
    logic = (levels - carries) * delays.lut.usual
    nets_ = levels - carries + 1
    least = ends + logic + carries * delays.chain.usual + nets_ * delays.net(1, "usual")
    most = ends + logic + carries * delays.carry.usual + (levels + 1) * delays.net(8, "usual")
    assert 0.8 * least <= 1000 * ns <= most, (least, most)


def test_clocks_and_resets_are_no_wide_nets() -> None:
    cells = [
        Cell(f"r{n}", "FDRE", {"C": [0], "CE": ["1"], "R": [6], "D": [7]}, {"Q": [2000 + n]})
        for n in range(100)
    ]
    whole = netlist(*cells, inputs={"rst": [7]})
    assert nets.fan_out(whole)[0] == nets.fan_out(whole)[6] == 100
    assert nets.wide_nets(whole, "xcup", nets.fan_out(whole)) == []
    whole = netlist(*cells, inputs={"data": [7]})
    (net,) = nets.wide_nets(whole, "xcup", nets.fan_out(whole))
    assert net == nets.Net("(net 7)", 100, "port", "D", 100)


def test_deep_memories() -> None:
    """A column of two, twice; a memory in slices of 9 bits; others that are not deep."""
    cells = [uram(f"deep.0.{way}.block[{n}].ram", 9, 20 + n) for way in range(2) for n in range(2)]
    cells += [bram(f"sliced.0.{n}", 9, 40 + n) for n in range(4)]
    cells += [bram(f"wide.0.{n}", 36, 50 + n) for n in range(4)]
    cells += [bram("alone.0.0", 1, 60), uram("one.0.0.block[0].ram", 9, 61)]
    assert nets.memories(netlist(*cells), "xcup") == [
        nets.Memory("deep", "URAM288", 8192, 4, 2),
        nets.Memory("sliced", "RAMB36E2", 4096, 4, 1),
    ]


def test_column_of_yosys(tmp_path: Path) -> None:
    """16,384 rows of 72 bits are four blocks, and named as the walk takes them to be."""
    mapped = designs.synthesised(designs.DEEP, "deep", "xcup", tmp_path)
    assert nets.memories(mapped, "xcup") == [nets.Memory("rows", "URAM288", 16384, 4, 4)]


@pytest.mark.parametrize("delays", [ULTRASCALE_PLUS, ECP5], ids=lambda delays: delays.title)
def test_each_delay_has_a_source_or_says_why_not(delays: Delays) -> None:
    for field in dataclasses.fields(delays):
        delay = getattr(delays, field.name)
        if field.name != "title":
            assert 0 <= delay.near <= delay.usual <= delay.far
            assert delay.source or delay.reason, field.name
