"""The blocks around the core: processor and MAC."""

from boards.blocks import Block, bus_ports
from hdl.axi.bus import Axi4, AxiLite, AxiStream
from hdl.axi.reads import ID_BITS

__all__ = ["IRQS", "MAC", "MAC_TIES", "PROCESSOR", "REGISTER_BITS", "WIDTH"]

#: Data path of the board, bits: that of the MAC's streams.
WIDTH = 64
#: Interrupts of the processor from the fabric, and bits of a register's address on its bus.
IRQS, REGISTER_BITS = 8, 32


#: Ports of the block design that ``script.py`` writes, so its names are ours.
PROCESSOR = Block(
    "processor",
    {
        "clk": ("o", 1),
        "slow_clk": ("o", 1),
        "resetn": ("o", 1),
        "irq": ("i", IRQS),
        **bus_ports("memory", Axi4(WIDTH, ID_BITS), driver=False, without="user"),
        **bus_ports("registers", AxiLite(REGISTER_BITS), driver=True),
    },
    "script.py of this folder",
)

#: Inputs of the MAC with a constant: value and width. FCS is added and removed, frames up to 9600
#: bytes; the clock selections are those of a public design that follows AMD's example.
MAC_TIES = {
    "txoutclksel_in_0": (0b101, 3),
    "rxoutclksel_in_0": (0b101, 3),
    "gtwiz_reset_tx_datapath_0": (0, 1),
    "gtwiz_reset_rx_datapath_0": (0, 1),
    "rx_reset_0": (0, 1),
    "tx_reset_0": (0, 1),
    "tx_preamblein_0": (0, 56),
    "ctl_rx_enable_0": (1, 1),
    "ctl_rx_check_preamble_0": (1, 1),
    "ctl_rx_check_sfd_0": (1, 1),
    "ctl_rx_force_resync_0": (0, 1),
    "ctl_rx_delete_fcs_0": (1, 1),
    "ctl_rx_ignore_fcs_0": (0, 1),
    "ctl_rx_max_packet_len_0": (9600, 15),
    "ctl_rx_min_packet_len_0": (64, 8),
    "ctl_rx_process_lfi_0": (0, 1),
    "ctl_rx_test_pattern_0": (0, 1),
    "ctl_rx_data_pattern_select_0": (0, 1),
    "ctl_rx_test_pattern_enable_0": (0, 1),
    "ctl_rx_custom_preamble_enable_0": (0, 1),
    "ctl_tx_enable_0": (1, 1),
    "ctl_tx_send_rfi_0": (0, 1),
    "ctl_tx_send_lfi_0": (0, 1),
    "ctl_tx_send_idle_0": (0, 1),
    "ctl_tx_fcs_ins_enable_0": (1, 1),
    "ctl_tx_ignore_fcs_0": (0, 1),
    "ctl_tx_ipg_value_0": (12, 4),
    "ctl_tx_custom_preamble_enable_0": (0, 1),
    "ctl_tx_test_pattern_0": (0, 1),
    "ctl_tx_test_pattern_enable_0": (0, 1),
    "ctl_tx_test_pattern_select_0": (0, 1),
    "ctl_tx_data_pattern_select_0": (0, 1),
    "ctl_tx_test_pattern_seed_a_0": (0, 58),
    "ctl_tx_test_pattern_seed_b_0": (0, 58),
    "gt_loopback_in_0": (0, 3),
    "qpllreset_in_0": (0, 1),
}

#: AMD's 10G/25G Ethernet subsystem, MAC with PCS/PMA, one lane; of its outputs those in use.
MAC = Block(
    "mac",
    {
        **{f"gt_rx{pole}_in_0": ("i", 1) for pole in "pn"},
        **{f"gt_tx{pole}_out_0": ("o", 1) for pole in "pn"},
        "gt_refclk_p": ("i", 1),
        "gt_refclk_n": ("i", 1),
        "sys_reset": ("i", 1),
        "dclk": ("i", 1),
        "rx_core_clk_0": ("i", 1),
        "tx_clk_out_0": ("o", 1),
        "rx_clk_out_0": ("o", 1),
        "stat_rx_status_0": ("o", 1),
        **{
            f"{name}_0": port
            for name, port in bus_ports("rx_axis", AxiStream(WIDTH), driver=True).items()
            if name != "rx_axis_tready"
        },
        **{
            f"{n}_0": port
            for n, port in bus_ports("tx_axis", AxiStream(WIDTH), driver=False).items()
        },
        **{name: ("i", width) for name, (_, width) in MAC_TIES.items()},
    },
    "as public designs instantiate it; PG210 defines them",
)
