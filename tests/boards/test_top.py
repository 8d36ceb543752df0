"""The tops of the PCIe cards in Verilator, around models of their blocks: frames, link, resets."""

import pytest

from boards.de10_agilex import blocks as de10_agilex
from boards.de10_agilex import top as de10_agilex_top
from boards.u55c import blocks as u55c
from boards.u55c import top as u55c_top
from sim.rtl.build import Rtl, build_model, run
from sim.rtl.env import REPO, build_root
from sim.rtl.verilog import digest

BENCH = "tests.boards.bench_top"
FOLDER = REPO / "tests" / "boards"
TOPS = {"u55c": u55c_top.U55cTop, "de10_agilex": de10_agilex_top.De10AgilexTop}
CLOCKS = {"u55c": u55c_top.CLOCKS, "de10_agilex": de10_agilex_top.CLOCKS}
BLOCKS = {
    "u55c": {"PCIE": u55c.PCIE, "CMAC": u55c.CMAC, "CORE": u55c_top.CORE},
    "de10_agilex": {
        "PCIE": de10_agilex.PCIE, "MAC": de10_agilex.MAC_BLOCK,
        "RELEASE": de10_agilex.RELEASE, "CORE": de10_agilex_top.CORE,
    },
}  # fmt: skip


def board(name):
    """Build a board of ``<name>_board.sv``, whose models get the ports that the top expects."""
    text = "".join((FOLDER / one).read_text() for one in (f"{name}_board.sv", "board_core.sv"))
    for word, block in BLOCKS[name].items():
        assert text.count(f"(@{word}@)") == 1
        text = text.replace(f"(@{word}@)", block.head())
    folder = build_root() / "testbench" / f"{name}-{digest(text)}"
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{name}_board.sv"
    source.write_text(text)
    rtl = Rtl(TOPS[name], name=name)
    return build_model(rtl, top=f"{name}_board", extra_sources=[source], fast=False)


@pytest.mark.parametrize("name", TOPS)
def test_frames_links_and_resets(name):
    hertz = CLOCKS[name][u55c_top.MAC]
    run(board(name), test_module=BENCH, extra_env={"MAC_HZ": str(hertz)})
