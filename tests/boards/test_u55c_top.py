"""The U55C's top in Verilator, around models of its blocks: frames, link, resets, at 512 bits."""

from boards.u55c.blocks import CMAC, COUNTERS, PCIE, PROBES
from boards.u55c.top import CORE, U55cTop
from sim.rtl.build import Rtl, build_model, run
from sim.rtl.env import REPO, build_root
from sim.rtl.verilog import digest

BENCH = "tests.boards.bench_u55c_top"
MODELS = REPO / "tests" / "boards" / "u55c_board.sv"


def board():
    """Build the board of ``u55c_board.sv``, whose models get the ports that the top expects."""
    assert COUNTERS[:2] == ("tx_drops", "rx_drops")
    text = MODELS.read_text()
    for name, block in {"PCIE": PCIE, "CMAC": CMAC, "PROBES": PROBES, "CORE": CORE}.items():
        assert text.count(f"(@{name}@)") == 1
        text = text.replace(f"(@{name}@)", block.head())
    folder = build_root() / "testbench" / f"u55c-{digest(text)}"
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "u55c_board.sv"
    source.write_text(text)
    rtl = Rtl(U55cTop, name="u55c")
    return build_model(rtl, top="u55c_board", extra_sources=[source], fast=False)


def test_frames_links_and_resets():
    run(board(), test_module=BENCH)
