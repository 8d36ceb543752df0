"""The blocks around the core: PCI Express, the MAC, and buffers of clocks."""

from boards.blocks import Block, bus_ports
from hdl.axi.bus import AxiStream
from hdl.pcie.bus import UserStream
from hdl.pcie.control import FUNCTIONS
from hdl.pcie.descriptors import WIDTH, cc_user, cq_user, rc_user, rq_user

__all__ = [
    "BUFG",
    "CMAC",
    "CMAC_TIES",
    "GT_BUFFER",
    "IN_BUFFER",
    "LANES",
    "PCIE",
    "PCIE_LANES",
    "PCIE_TIES",
    "WIDTH",
]

#: Lanes of PCI Express and of the QSFP28 cage.
PCIE_LANES, LANES = 16, 4

#: Inputs of the PCIe block with a constant: value and width. Nobody writes by its management port,
#: uses its messages, or its own interrupts: an interrupt is a write on RQ.
PCIE_TIES = {
    "cfg_mgmt_write": (0, 1),
    "cfg_mgmt_write_data": (0, 32),
    "cfg_mgmt_byte_enable": (0, 4),
    "cfg_mgmt_debug_access": (0, 1),
    "cfg_msg_transmit": (0, 1),
    "cfg_msg_transmit_type": (0, 3),
    "cfg_msg_transmit_data": (0, 32),
    "cfg_fc_sel": (0, 3),
    "cfg_dsn": (0, 64),
    "cfg_power_state_change_ack": (1, 1),
    "cfg_err_cor_in": (0, 1),
    "cfg_err_uncor_in": (0, 1),
    "cfg_vf_flr_func_num": (0, 8),
    "cfg_vf_flr_done": (0, 1),
    "cfg_link_training_enable": (1, 1),
    "cfg_interrupt_int": (0, 4),
    "cfg_interrupt_pending": (0, 4),
    "cfg_interrupt_msix_address": (0, 64),
    "cfg_interrupt_msix_data": (0, 32),
    "cfg_interrupt_msix_int": (0, 1),
    "cfg_interrupt_msix_vec_pending": (0, 2),
    "cfg_interrupt_msi_function_number": (0, 8),
    "cfg_pm_aspm_l1_entry_reject": (0, 1),
    "cfg_pm_aspm_tx_l0s_entry_disable": (0, 1),
    "cfg_config_space_enable": (1, 1),
    "cfg_req_pm_transition_l23_ready": (0, 1),
    "cfg_hot_reset_in": (0, 1),
    "cfg_ds_port_number": (0, 8),
    "cfg_ds_bus_number": (0, 8),
    "cfg_ds_device_number": (0, 5),
}

#: AMD's PCIE4C block; of its outputs those in use. The ready of CC and RQ has a bit for each
#: quarter of the stream, which are alike.
PCIE = Block(
    "pcie",
    {
        **{f"pci_exp_rx{pole}": ("i", PCIE_LANES) for pole in "pn"},
        **{f"pci_exp_tx{pole}": ("o", PCIE_LANES) for pole in "pn"},
        "sys_clk": ("i", 1),
        "sys_clk_gt": ("i", 1),
        "sys_reset": ("i", 1),
        "user_clk": ("o", 1),
        "user_reset": ("o", 1),
        **bus_ports("m_axis_cq", UserStream(cq_user()), driver=True),
        **bus_ports("s_axis_cc", UserStream(cc_user()), driver=False),
        **bus_ports("s_axis_rq", UserStream(rq_user()), driver=False),
        **bus_ports("m_axis_rc", UserStream(rc_user()), driver=True),
        "s_axis_cc_tready": ("o", 4),
        "s_axis_rq_tready": ("o", 4),
        **{f"pcie_rq_seq_num{n}": ("o", 6) for n in range(2)},
        **{f"pcie_rq_seq_num_vld{n}": ("o", 1) for n in range(2)},
        "pcie_tfc_nph_av": ("o", 4),
        "pcie_cq_np_req": ("i", 2),
        "cfg_mgmt_addr": ("i", 10),
        "cfg_mgmt_function_number": ("i", 8),
        "cfg_mgmt_read": ("i", 1),
        "cfg_mgmt_read_data": ("o", 32),
        "cfg_mgmt_read_write_done": ("o", 1),
        "cfg_max_payload": ("o", 2),
        "cfg_max_read_req": ("o", 3),
        "cfg_function_status": ("o", 4 * FUNCTIONS),
        "cfg_interrupt_msix_enable": ("o", FUNCTIONS),
        "cfg_interrupt_msix_mask": ("o", FUNCTIONS),
        "cfg_flr_in_process": ("o", FUNCTIONS),
        "cfg_flr_done": ("i", FUNCTIONS),
        "cfg_ext_read_received": ("o", 1),
        "cfg_ext_register_number": ("o", 10),
        "cfg_ext_function_number": ("o", 8),
        "cfg_ext_read_data": ("i", 32),
        "cfg_ext_read_data_valid": ("i", 1),
        **{name: ("i", width) for name, (_, width) in PCIE_TIES.items()},
    },
    "a template that Vivado wrote for PCIE4 at 512 bits, and corundum's use of PCIE4C; PG213",
)

#: Inputs of the MAC with a constant: value and width. RS-FEC is on, as 100GBASE-SR4 and -CR4 want
#: it; nothing is looped back.
CMAC_TIES = {
    "gt_loopback_in": (0, 12),
    "gtwiz_reset_tx_datapath": (0, 1),
    "gtwiz_reset_rx_datapath": (0, 1),
    "ctl_rx_enable": (1, 1),
    "ctl_rx_force_resync": (0, 1),
    "ctl_rx_test_pattern": (0, 1),
    "ctl_tx_enable": (1, 1),
    "ctl_tx_send_idle": (0, 1),
    "ctl_tx_send_lfi": (0, 1),
    "ctl_tx_test_pattern": (0, 1),
    "ctl_tx_rsfec_enable": (1, 1),
    "ctl_rx_rsfec_enable": (1, 1),
    "ctl_rsfec_ieee_error_indication_mode": (0, 1),
    "ctl_rx_rsfec_enable_correction": (1, 1),
    "ctl_rx_rsfec_enable_indication": (1, 1),
    "tx_preamblein": (0, 56),
    "core_drp_reset": (0, 1),
    "drp_clk": (0, 1),
    "drp_addr": (0, 10),
    "drp_di": (0, 16),
    "drp_en": (0, 1),
    "drp_we": (0, 1),
}

#: AMD's 100G Ethernet subsystem with its transceivers; of its outputs those in use. It has no
#: register interface: what there is to choose, the script chooses, or it is a constant.
CMAC = Block(
    "cmac",
    {
        **{f"gt_rx{pole}_in": ("i", LANES) for pole in "pn"},
        **{f"gt_tx{pole}_out": ("o", LANES) for pole in "pn"},
        "gt_ref_clk_p": ("i", 1),
        "gt_ref_clk_n": ("i", 1),
        "init_clk": ("i", 1),
        "sys_reset": ("i", 1),
        "gt_txusrclk2": ("o", 1),
        "rx_clk": ("i", 1),
        "core_rx_reset": ("i", 1),
        "core_tx_reset": ("i", 1),
        "stat_rx_status": ("o", 1),
        "stat_rx_local_fault": ("o", 1),
        "stat_rx_remote_fault": ("o", 1),
        "ctl_tx_send_rfi": ("i", 1),
        **bus_ports("tx_axis", AxiStream(WIDTH), driver=False),
        **{
            name: port
            for name, port in bus_ports("rx_axis", AxiStream(WIDTH), driver=True).items()
            if name != "rx_axis_tready"
        },
        **{name: ("i", width) for name, (_, width) in CMAC_TIES.items()},
    },
    "as corundum and open-nic-shell instantiate it; PG203 defines them",
)

#: Buffers of clocks: of a transceiver, of a pair of pins, and to the whole device.
GT_BUFFER = Block(
    "IBUFDS_GTE4",
    {"I": ("i", 1), "IB": ("i", 1), "CEB": ("i", 1), "O": ("o", 1), "ODIV2": ("o", 1)},
    "UG974, as corundum instantiates it",
)
IN_BUFFER = Block("IBUFDS", {"I": ("i", 1), "IB": ("i", 1), "O": ("o", 1)}, "UG974")
BUFG = Block("BUFG", {"I": ("i", 1), "O": ("o", 1)}, "UG974")
