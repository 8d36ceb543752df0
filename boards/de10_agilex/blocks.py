"""The blocks around the core: P-Tile, E-tile's MAC, a configured part."""

from amaranth.lib.wiring import In

from boards.blocks import Block
from hdl.mac.etile_start import ADDRESS_BITS
from hdl.pcie.descriptors import WIDTH
from hdl.pcie.ptile.bus import FLR_FUNCTIONS, config_pins, stream_pins
from hdl.pcie.ptile.window import window_pins

__all__ = [
    "LANES",
    "MAC_BLOCK",
    "MAC_TIES",
    "PCIE",
    "PCIE_LANES",
    "PCIE_TIES",
    "PINS",
    "RELEASE",
    "WIDTH",
    "p0",
]

#: Lanes of PCI Express, and of the QSFP-DD cage those in use.
PCIE_LANES, LANES = 16, 4

#: Pins of P-Tile that the core has, by its names for them.
PINS = stream_pins() | config_pins() | window_pins()


def p0(name: str, member) -> str:
    """Return P-Tile's name of a pin of its port 0."""
    return f"p0_{name}_{'o' if member.flow == In else 'i'}"


#: Inputs of P-Tile with a constant: value and width. No virtual function is there.
PCIE_TIES = {
    "p0_flr_completed_vf_i": (0, 1),
    "p0_flr_completed_pf_num_i": (0, 3),
    "p0_flr_completed_vf_num_i": (0, 11),
    "p0_virtio_pcicfg_appvfnum_i": (0, 11),
}

#: Intel's P-Tile; of its outputs those in use.
PCIE = Block(
    "pcie",
    {
        **{f"rx_{pole}_in{n}": ("i", 1) for pole in "pn" for n in range(PCIE_LANES)},
        **{f"tx_{pole}_out{n}": ("o", 1) for pole in "pn" for n in range(PCIE_LANES)},
        "refclk0": ("i", 1),
        "refclk1": ("i", 1),
        "pin_perst_n": ("i", 1),
        "ninit_done": ("i", 1),
        "coreclkout_hip": ("o", 1),
        "p0_reset_status_n": ("o", 1),
        **{
            p0(name, member): ("o" if member.flow == In else "i", member.shape)
            for name, member in PINS.items()
        },
        "p0_flr_rcvd_pf_o": ("o", FLR_FUNCTIONS),
        "p0_flr_completed_pf_i": ("i", FLR_FUNCTIONS),
        **{name: ("i", width) for name, (_, width) in PCIE_TIES.items()},
    },
    "corundum's use on this board; a public design with function-level resets; UG683059 has the "
    "pins of virtio",
)

#: Inputs of the MAC with a constant: value and width. Its registers are left as they are,
#: but for those of the transceivers.
MAC_TIES = {
    "i_stats_snapshot": (0, 1),
    "i_eth_reconfig_addr": (0, 21),
    "i_eth_reconfig_read": (0, 1),
    "i_eth_reconfig_write": (0, 1),
    "i_eth_reconfig_writedata": (0, 32),
    "i_rsfec_reconfig_addr": (0, 11),
    "i_rsfec_reconfig_read": (0, 1),
    "i_rsfec_reconfig_write": (0, 1),
    "i_rsfec_reconfig_writedata": (0, 8),
    "i_tx_skip_crc": (0, 1),
    "i_tx_pfc": (0, 8),
    "i_tx_pause": (0, 1),
}

#: Intel's E-tile Hard IP for Ethernet, 100G with RS-FEC; of its outputs those in use. Its clients'
#: streams have the first byte on top.
MAC_BLOCK = Block(
    "mac",
    {
        "o_tx_serial": ("o", LANES),
        "o_tx_serial_n": ("o", LANES),
        "i_rx_serial": ("i", LANES),
        "i_rx_serial_n": ("i", LANES),
        "i_clk_ref": ("i", 1),
        "o_clk_pll_div64": ("o", 6),
        "o_tx_pll_locked": ("o", 1),
        "i_clk_tx": ("i", 1),
        "i_clk_rx": ("i", 1),
        "i_csr_rst_n": ("i", 1),
        "i_tx_rst_n": ("i", 1),
        "i_rx_rst_n": ("i", 1),
        "i_reconfig_clk": ("i", 1),
        "i_reconfig_reset": ("i", 1),
        "i_xcvr_reconfig_address": ("i", ADDRESS_BITS * LANES),
        "i_xcvr_reconfig_read": ("i", LANES),
        "i_xcvr_reconfig_write": ("i", LANES),
        "i_xcvr_reconfig_writedata": ("i", 8 * LANES),
        "o_xcvr_reconfig_readdata": ("o", 8 * LANES),
        "o_xcvr_reconfig_waitrequest": ("o", LANES),
        "o_rx_pcs_ready": ("o", 1),
        "o_local_fault_status": ("o", 1),
        "o_remote_fault_status": ("o", 1),
        "o_tx_ready": ("o", 1),
        "i_tx_valid": ("i", 1),
        "i_tx_data": ("i", WIDTH),
        "i_tx_startofpacket": ("i", 1),
        "i_tx_endofpacket": ("i", 1),
        "i_tx_empty": ("i", 6),
        "i_tx_error": ("i", 1),
        "o_rx_valid": ("o", 1),
        "o_rx_data": ("o", WIDTH),
        "o_rx_startofpacket": ("o", 1),
        "o_rx_endofpacket": ("o", 1),
        "o_rx_empty": ("o", 6),
        "o_rx_error": ("o", 6),
        **{name: ("i", width) for name, (_, width) in MAC_TIES.items()},
    },
    "as corundum instantiates it on this board, without time stamps",
)

#: Says that the whole part is configured: low then.
RELEASE = Block("reset_release", {"ninit_done": ("o", 1)}, "as corundum instantiates it")
