"""What makes a bitstream of the DE10-Agilex's files with Quartus: the IP cores and their settings.

Names of parameters are those that public scripts use (``tests/boards/properties.csv`` has the
source of each). Intel's guides define them: UG683059 (P-Tile), UG20160 (E-tile). They have not been
compared with them.
"""

from boards.de10_agilex.blocks import MAC_BLOCK, PCIE, RELEASE
from boards.de10_agilex.top import CONFIG
from boards.quartus import Ip
from hdl.abi import virtio_pci as abi
from hdl.config import FUNCTION_NET, FUNCTION_RDMA, NicConfig
from hdl.host.config_space import ConfigImage, management_image, net_image, rdma_image

__all__ = ["IPS", "pcie_parameters"]

#: Physical functions that P-Tile can have.
FUNCTIONS = 8
#: Words of a structure of virtio in the names of parameters.
_STRUCTURES = {
    abi.CfgType.COMMON: "cmn_config",
    abi.CfgType.NOTIFY: "notification",
    abi.CfgType.ISR: "isrstatus",
    abi.CfgType.DEVICE: "devspecific",
    abi.CfgType.PCI_CFG: "pciconfig_access",
}


def _bars(pf: str, image: ConfigImage) -> dict[str, object]:
    """Parameters of a function's BARs; their sizes are those of the card's own image of them."""
    first, found = abi.PCI_HEADER.offset("bar"), dict[str, object]()
    for bar in range(6):
        mask = int.from_bytes(image.mask[first + 4 * bar :][:4], "little")
        size = ((1 << 32) - mask).bit_length() - 1 if mask else 0
        kind = "32-bit non-prefetchable memory" if mask else "Disabled"
        found[f"{pf}_bar{bar}_type_user_hwtcl"] = kind
        found[f"{pf}_bar{bar}_address_width_user_hwtcl"] = size
    return found


def _virtio(pf: str, image: ConfigImage) -> dict[str, object]:
    """Parameters of the capabilities of virtio, which P-Tile shows as the image has them."""
    found: dict[str, object] = {
        f"{pf}_virtio_capability_present_hwtcl": 1,
        f"{pf}_virtio_device_specific_cap_present_hwtcl": 1,
    }
    at = image.data[abi.PCI_HEADER.offset("capabilities")]
    while at:
        cap = abi.VIRTIO_PCI_CAP.unpack(bytes(image.data[at:][: abi.VIRTIO_PCI_CAP.size]))
        if cap.cap_vndr == abi.CapId.VENDOR:
            name = f"{pf}_virtio_{_STRUCTURES[abi.CfgType(cap.cfg_type)]}"
            found[f"{name}_bar_indicator_hwtcl"] = cap.bar
            found[f"{name}_bar_offset_hwtcl"] = cap.offset
            found[f"{name}_structure_length_hwtcl"] = cap.length
            if cap.cfg_type == abi.CfgType.NOTIFY:
                octets = bytes(image.data[at:][: abi.VIRTIO_PCI_NOTIFY_CAP.size])
                notify = abi.VIRTIO_PCI_NOTIFY_CAP.unpack(octets)
                found[f"{pf}_virtio_notify_off_multiplier_hwtcl"] = notify.notify_off_multiplier
        at = cap.cap_next
    return found


def _function(function: int, image: ConfigImage) -> dict[str, object]:
    """Parameters of one physical function, as the card's own configuration space has them."""
    pf, header = f"core16_pf{function}", abi.PCI_HEADER.unpack(bytes(image.data[:64]))
    found: dict[str, object] = {
        f"{pf}_pci_type0_vendor_id_hwtcl": header.vendor_id,
        f"{pf}_pci_type0_device_id_hwtcl": header.device_id,
        f"{pf}_revision_id_hwtcl": header.revision_id,
        f"{pf}_class_code_hwtcl": int.from_bytes(bytes(header.class_code), "little"),
        f"{pf}_subsys_vendor_id_hwtcl": header.subsystem_vendor_id,
        f"{pf}_subsys_dev_id_hwtcl": header.subsystem_id,
        f"{pf}_int_pin_hwtcl": "NO INT",
        **_bars(pf, image),
    }
    virtual = f"core16_virtual_pf{function}"
    found[f"{virtual}_msi_enable_user_hwtcl"] = 0
    found[f"{virtual}_msix_enable_user_hwtcl"] = int(bool(image.msix))
    if not image.msix:
        return found
    msix = abi.MSIX_CAP.unpack(bytes(image.data[image.msix :][: abi.MSIX_CAP.size]))
    found[f"{pf}_pci_msix_table_size_hwtcl"] = msix.message_control
    found[f"{pf}_pci_msix_bir_hwtcl"] = msix.table & 7
    found[f"{pf}_pci_msix_table_offset_hwtcl"] = f"{msix.table & ~7}.0"
    found[f"{pf}_pci_msix_pba_hwtcl"] = msix.pba & 7
    found[f"{pf}_pci_msix_pba_offset_hwtcl"] = f"{msix.pba & ~7}.0"
    return found | _virtio(pf, image)


def pcie_parameters(config: NicConfig) -> dict[str, object]:
    """Return the settings of P-Tile for the functions of ``config``."""
    images = {FUNCTION_NET: net_image(config)}
    images |= {FUNCTION_RDMA + n: rdma_image(config.guest) for n in range(config.functions)}
    images[config.management_function] = management_image()
    found: dict[str, object] = {
        "top_topology_hwtcl": "Gen3 1x16",
        "core16_pld_clk_mhz_user_hwtcl": f"{config.clock_hz // 1_000_000}MHz",
        "core16_total_pf_count_hwtcl": len(images),
        "core16_enable_multi_func_hwtcl": 1,
        "core16_virtual_maxpayload_size_hwtcl": 1024,
        "core16_cap_ext_tag_supp_user_hwtcl": 1,
        "core16_flr_cap_user_hwtcl": 1,
        "core16_enable_virtio_hwtcl": 1,
        "core16_virtio_pci_cfg_acc_intf_en_hwtcl": 1,
        "core16_enable_cii_hwtcl": 0,
        "core16_enable_sriov_hwtcl": 0,
        "core16_enable_rx_buffer_limit_ports_hwtcl": 0,
        "core16_enable_cpl_timeout_hwtcl": 0,
    }
    for function, image in images.items():
        found |= _function(function, image)
    return found


IPS = (
    Ip(PCIE.name, "intel_pcie_ptile_ast", pcie_parameters(CONFIG)),
    Ip(
        MAC_BLOCK.name,
        "alt_ehipc3_fm",
        {
            "core_variant": 3,
            "active_channel": 1,
            "ehip_rate_gui": "100G",
            "ehip_mode_gui": "MAC+PCS+(528,514)RSFEC",
            "ENABLE_RSFEC": 1,
            "ENABLE_ANLT": 0,
            "ENABLE_PTP": 0,
            "PHY_REFCLK": "156.250000",
            "STATUS_CLK_MHZ": "100.0",
            "EHIP_LOCATION": 0,
            "RSFEC_FIRST_LANE_SEL": "first_lane0",
            "link_fault_mode_gui": "Bidirectional",
            "flow_control_gui": "No",
            "rx_bytes_to_remove": "Remove CRC bytes",
            "rx_max_frame_size_gui": 9214,
            "tx_max_frame_size_gui": 9214,
            "tx_ipg_size_gui": 12,
            "ready_latency": 0,
            "preamble_passthrough_gui": 0,
            "source_address_insertion_gui": 0,
        },
    ),
    Ip(RELEASE.name, "altera_s10_user_rst_clkgate", {"outputType": "Reset Interface"}),
)
