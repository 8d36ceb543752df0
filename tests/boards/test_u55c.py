"""The U55C's own: sources of its balls, functions of the card, figures."""

import csv

from boards.pins import port_balls
from boards.u55c.blocks import CMAC, CMAC_TIES, PCIE, PCIE_TIES
from boards.u55c.script import IPS, pcie_properties
from boards.u55c.top import CONFIG
from hdl.config import NicConfig
from sim.make.boards.vivado import BOARDS
from sim.rtl import env

MADE = (PCIE, CMAC)
BOARD = BOARDS["u55c"]


def test_each_ball_of_a_port_is_known_from_two_sources():
    with (env.REPO / "boards/u55c/pins.csv").open() as table:
        known = {row["ball"]: row["source"].split() for row in csv.DictReader(table)}
    balls = port_balls(BOARD.platform())
    assert len(balls) == len(set(balls.values())) == 4 * 16 + 4 * 4 + 2 * 3 + 5
    assert all(len(known[ball]) == 2 for ball in balls.values())


def test_the_functions_are_those_of_the_card():
    """What the block shows of each function is what docs/pcie.md says."""
    said = pcie_properties(NicConfig(qps=16, functions=2))
    assert said["TL_PF_ENABLE_REG"] == 4
    for function, ids in {0: "1AF4:1041", 1: "1AF4:106A", 2: "1AF4:106A", 3: "1234:524F"}.items():
        vendor = said["vendor_id" if not function else f"pf{function}_vendor_id"]
        assert f"{vendor}:{said[f'PF{function}_DEVICE_ID']}" == ids
    assert said["pf1_msix_enabled"] == said["pf2_msix_enabled"] == "true"
    assert said["pf3_msix_enabled"] == "false"
    sizes = {name: said[f"{name}_size"] for name in ("pf1_bar0", "pf1_bar2", "pf3_bar0")}
    assert sizes == {"pf1_bar0": 64, "pf1_bar2": 4, "pf3_bar0": 1}
    assert (said["PF1_MSIX_CAP_TABLE_OFFSET"], said["PF1_MSIX_CAP_PBA_OFFSET"]) == (
        "00008000", "00004000")  # fmt: skip
    assert int(said["PF1_MSIX_CAP_TABLE_SIZE"], 16) + 1 == CONFIG.vectors


def test_each_block_of_the_vendor_is_made():
    assert {ip.module for ip in IPS} == {block.name for block in MADE}
    for block, ties in ((PCIE, PCIE_TIES), (CMAC, CMAC_TIES)):
        assert all(block.ports[name] == ("i", width) for name, (_, width) in ties.items())


def test_figures_of_the_manifest():
    """The recorded figures of the pieces together are less than the part has."""
    resources = BOARD.use()
    recorded, missing = resources["pieces"], resources["not_recorded"]
    assert recorded and not recorded.keys() & missing.keys()
    assert recorded.keys() | missing.keys() == {"nic", "pcie_host", "cmac_crossing"}
    for kind, most in resources["part"].items():
        assert sum(figures[kind] for figures in recorded.values()) < most, kind
