"""What makes a bitstream of the U55C's files with Vivado: the IP cores and their settings.

Names of properties are those that public scripts use (``tests/boards/properties.csv`` has the
source of each). AMD's guides define them: PG213 (PCIe), PG203 (MAC). They have not been compared
with them.
"""

from boards.u55c.blocks import CMAC, PCIE
from boards.u55c.top import CLOCKS, CONFIG, INIT
from boards.vivado import Ip, project_script
from hdl.abi import virtio_pci as abi
from hdl.config import FUNCTION_NET, FUNCTION_RDMA, NicConfig
from hdl.host.config_space import ConfigImage, management_image, net_image, rdma_image

__all__ = ["IPS", "pcie_properties", "script"]

_UNITS = (("Megabytes", 1 << 20), ("Kilobytes", 1 << 10))


def _bars(function: int, image: ConfigImage) -> dict[str, object]:
    """Properties of a function's BARs; their sizes are those of the card's own image of them."""
    first = abi.PCI_HEADER.offset("bar")
    found: dict[str, object] = {}
    for bar in range(6):
        mask = int.from_bytes(image.mask[first + 4 * bar :][:4], "little")
        name = f"pf{function}_bar{bar}"
        found[f"{name}_enabled"] = "true" if mask else "false"
        if mask:
            size = (1 << 32) - mask
            unit, one = next((unit, one) for unit, one in _UNITS if size >= one)
            found |= {f"{name}_type": "Memory", f"{name}_64bit": "false",
                      f"{name}_prefetchable": "false", f"{name}_scale": unit,
                      f"{name}_size": size // one}  # fmt: skip
    return found


def _function(function: int, image: ConfigImage) -> dict[str, object]:
    """Properties of one physical function, as the card's own configuration space has them."""
    header = abi.PCI_HEADER.unpack(image.data[: abi.PCI_HEADER.size])
    pf, code = f"PF{function}", bytes(header["class_code"])
    found: dict[str, object] = {
        "vendor_id" if not function else f"pf{function}_vendor_id": f"{header['vendor_id']:04X}",
        f"{pf}_DEVICE_ID": f"{header['device_id']:04X}",
        f"{pf}_REVISION_ID": f"{header['revision_id']:02X}",
        f"{pf}_SUBSYSTEM_VENDOR_ID": f"{header['subsystem_vendor_id']:04X}",
        f"{pf}_SUBSYSTEM_ID": f"{header['subsystem_id']:04X}",
        f"{pf}_Use_Class_Code_Lookup_Assistant": "false",
    }
    parts = ("interface", "sub", "base")  # as they lie in the header
    found |= {f"pf{function}_class_code_{part}": f"{byte:02X}" for part, byte in zip(parts, code)}
    msix = abi.MSIX_CAP.unpack(image.data[image.msix :][: abi.MSIX_CAP.size]) if (
        image.msix) else None  # fmt: skip
    found[f"pf{function}_msi_enabled"] = "false"
    found[f"pf{function}_msix_enabled"] = "true" if msix else "false"
    if msix:
        found[f"{pf}_MSIX_CAP_TABLE_SIZE"] = f"{msix['message_control']:03X}"
        for name, field in (("TABLE", "table"), ("PBA", "pba")):
            found[f"{pf}_MSIX_CAP_{name}_BIR"] = f"BAR_{msix[field] & 7}"
            found[f"{pf}_MSIX_CAP_{name}_OFFSET"] = f"{msix[field] & ~7:08X}"
    return found | _bars(function, image)


def pcie_properties(config: NicConfig) -> dict[str, object]:
    """Return the settings of the PCIe block for the functions of ``config``."""
    rdma, first = rdma_image(config.guest), FUNCTION_RDMA
    images = {FUNCTION_NET: net_image(config)} | {first + n: rdma for n in range(config.functions)}
    images[config.management_function] = management_image()
    found: dict[str, object] = {
        "mode_selection": "Advanced",
        "PL_LINK_CAP_MAX_LINK_SPEED": "8.0_GT/s",
        "PL_LINK_CAP_MAX_LINK_WIDTH": "X16",
        "pcie_blk_locn": "X1Y1",
        "axisten_freq": config.clock_hz // 1_000_000,
        "axisten_if_width": f"{config.width}_bit",
        "AXISTEN_IF_CQ_ALIGNMENT_MODE": "DWORD_Aligned",
        "AXISTEN_IF_CC_ALIGNMENT_MODE": "DWORD_Aligned",
        "AXISTEN_IF_RQ_ALIGNMENT_MODE": "DWORD_Aligned",
        "AXISTEN_IF_RC_ALIGNMENT_MODE": "DWORD_Aligned",
        "AXISTEN_IF_EXT_512_CQ_STRADDLE": "false",
        "AXISTEN_IF_EXT_512_CC_STRADDLE": "false",
        "AXISTEN_IF_EXT_512_RQ_STRADDLE": "true",
        "AXISTEN_IF_EXT_512_RC_4TLP_STRADDLE": "true",
        "axisten_if_enable_client_tag": "true",
        "extended_tag_field": "true",
        "pf0_dev_cap_max_payload": "1024_bytes",
        "MSI_X_OPTIONS": "MSI-X_External",
        "ext_pcie_cfg_space_enabled": "true",
        "legacy_ext_pcie_cfg_space_enabled": "true",
        "TL_PF_ENABLE_REG": len(images),
        "copy_pf0": "false",
    }
    for function, image in images.items():
        found |= _function(function, image)
    return found


_MHZ = {name: hertz / 1e6 for name, hertz in CLOCKS.items()}
IPS = (
    Ip(PCIE.name, "pcie4c_uscale_plus", pcie_properties(CONFIG)),
    Ip(
        CMAC.name,
        "cmac_usplus",
        {
            "CMAC_CAUI4_MODE": 1,
            "NUM_LANES": "4x25",
            "USER_INTERFACE": "AXIS",
            "GT_REF_CLK_FREQ": "161.1328125",
            "GT_DRP_CLK": f"{_MHZ[INIT]:.2f}",
            "ENABLE_AXI_INTERFACE": 0,
            "INCLUDE_STATISTICS_COUNTERS": 0,
            "INCLUDE_RS_FEC": 1,
            "TX_FLOW_CONTROL": 0,
            "RX_FLOW_CONTROL": 0,
            "TX_FRAME_CRC_CHECKING": "Enable FCS Insertion",
            "RX_FRAME_CRC_CHECKING": "Enable FCS Stripping",
            "RX_MIN_PACKET_LEN": 64,
            "RX_MAX_PACKET_LEN": 9600,
            "CMAC_CORE_SELECT": "CMACE4_X0Y3",
            "GT_GROUP_SELECT": "X0Y24~X0Y27",
            **{f"LANE{n + 1}_GT_LOC": f"X0Y{24 + n}" for n in range(4)},
            "RX_GT_BUFFER": 1,
            "GT_RX_BUFFER_BYPASS": 0,
            "INS_LOSS_NYQ": 20,
            "ENABLE_PIPELINE_REG": 1,
        },
    ),
)


def script(part: str) -> str:
    """Return the Tcl text; ``part`` as Vivado names it."""
    return project_script("u55c", part, ips=IPS)
