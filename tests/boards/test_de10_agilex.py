"""The DE10-Agilex's own: its balls, the functions that P-Tile shows, its blocks."""

import csv

from boards.de10_agilex.blocks import MAC_BLOCK, MAC_TIES, PCIE, PCIE_TIES, RELEASE
from boards.de10_agilex.script import IPS, pcie_parameters
from boards.pins import port_balls
from hdl.config import NicConfig
from sim.make.boards.quartus import BOARDS
from sim.rtl import env

BOARD = BOARDS["de10_agilex"]


def test_each_ball_is_known():
    with (env.REPO / "boards/de10_agilex/pins.csv").open() as table:
        known = {row["ball"]: row["source"] for row in csv.DictReader(table)}
    balls = port_balls(BOARD.platform())
    assert len(balls) == len(set(balls.values())) == 4 * 16 + 4 * 4 + 2 + 1 + 3 + 2 + 1 + 3
    assert all(known[ball] == "corundum" for ball in balls.values())


def test_the_functions_are_those_of_the_card():
    """What P-Tile shows of each function is what docs/pcie.md says, capabilities of virtio too."""
    config = NicConfig(qps=16, functions=2)
    said = pcie_parameters(config)
    assert said["core16_total_pf_count_hwtcl"] == 4
    ids = {0: (0x1AF4, 0x1041), 1: (0x1AF4, 0x106A), 2: (0x1AF4, 0x106A), 3: (0x1234, 0x524F)}
    for n, names in ids.items():
        pf = f"core16_pf{n}"
        assert (said[f"{pf}_pci_type0_vendor_id_hwtcl"],
                said[f"{pf}_pci_type0_device_id_hwtcl"]) == names  # fmt: skip
        guest = n in (1, 2)
        assert said[f"core16_virtual_pf{n}_msix_enable_user_hwtcl"] == guest
        assert (f"{pf}_virtio_capability_present_hwtcl" in said) == guest
    widths = {bar: said[f"core16_pf1_bar{bar}_address_width_user_hwtcl"] for bar in range(6)}
    assert widths == {0: 16, 1: 0, 2: 12, 3: 0, 4: 0, 5: 0}
    assert said["core16_pf3_bar0_address_width_user_hwtcl"] == 20
    assert said["core16_pf0_bar0_type_user_hwtcl"] == "Disabled"
    places = {
        name: tuple(said[f"core16_pf1_virtio_{name}_{part}_hwtcl"]
                    for part in ("bar_indicator", "bar_offset", "structure_length"))
        for name in ("cmn_config", "notification", "isrstatus", "pciconfig_access")
    }  # fmt: skip
    assert places["cmn_config"][:2] == (0, 0) and places["isrstatus"] == (0, 0x1000, 1)
    assert places["notification"][0] == 2 and places["pciconfig_access"] == (0, 0, 0)
    assert said["core16_pf1_virtio_devspecific_bar_offset_hwtcl"] == 0x2000
    assert said["core16_pf1_virtio_notify_off_multiplier_hwtcl"] == 4
    assert said["core16_pf1_pci_msix_table_size_hwtcl"] == config.guest.vectors - 1
    assert said["core16_pf1_pci_msix_table_offset_hwtcl"] == f"{0x8000}.0"
    assert said["core16_pf1_pci_msix_pba_offset_hwtcl"] == f"{0x4000}.0"


def test_each_block_of_the_vendor_is_made():
    assert {ip.module for ip in IPS} == {block.name for block in (PCIE, MAC_BLOCK, RELEASE)}
    for block, ties in ((PCIE, PCIE_TIES), (MAC_BLOCK, MAC_TIES)):
        assert all(block.ports[name] == ("i", width) for name, (_, width) in ties.items())
