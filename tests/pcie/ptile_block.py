"""P-Tile with what its users get: cocotbext-pcie's model, completed where it is empty.

The model says that a request is for the function of its requester, and has no function-level
reset, no capabilities of virtio and no access by them. All of this is here.
"""

import cocotb
from amaranth.lib.wiring import In
from cocotb.triggers import RisingEdge
from cocotbext.pcie.core.caps.common import PciCap, PciCapId
from cocotbext.pcie.intel.ptile import PTilePcieDevice, PTileRxBus, PTileTxBus

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_pci import CfgType
from hdl.host.config_space import ConfigImage
from hdl.pcie.ptile.window import window_pins
from tests.pcie import model  # noqa: F401 - the models need it under cocotb 2.1

__all__ = ["PTileBlock"]


#: Where P-Tile has the capabilities of virtio, those of PCI Express and of MSI-X beside them
#: (UG683059, 3.2.2.5, "PF/VF Capability Link List").
PLACES = {
    CfgType.COMMON: 0x48,
    CfgType.NOTIFY: 0x58,
    CfgType.ISR: 0xBC,
    CfgType.DEVICE: 0xCC,
    CfgType.PCI_CFG: 0xDC,
}
EXPRESS, MSIX = 0x70, 0xB0
#: Cycles that P-Tile waits for the user's answer.
PATIENCE = 200


class VirtioCapability(PciCap):
    """A capability of virtio, with the contents of the card's own."""

    def __init__(self, octets):
        super().__init__()
        self.cap_id, self.length = PciCapId.VNDR, len(octets) // 4
        self.words = [int.from_bytes(octets[n : n + 4], "little") for n in range(0, len(octets), 4)]

    async def _read_register(self, reg):
        return self.words[reg]

    async def _write_register(self, reg, data, mask):
        """All of it is fixed."""


class AccessCapability(VirtioCapability):
    """PCI_CFG: an access of its last word is one of a BAR, which the user does."""

    def __init__(self, octets, block, function):
        super().__init__(octets)
        self._access, self._function = block.window_access, function

    async def _read_register(self, reg):
        if reg < self.length - 1:
            return self.words[reg]
        return await self._access(self._function, *self.words[1:4])

    async def _write_register(self, reg, data, mask):
        octets = sum(0xFF << 8 * n for n in range(4) if mask >> n & 1)
        if reg == self.length - 1:
            await self._access(self._function, *self.words[1:4], data & octets)
        elif reg:
            self.words[reg] = self.words[reg] & ~octets | data & octets


class TxBus(PTileTxBus):
    """The transmit stream. The model calculates with samples, so these are integers."""

    def sample(self, obj, strict=False):
        super().sample(obj, strict)
        for name in {*self._signals} & {*obj.__slots__}:
            setattr(obj, name, int(getattr(obj, name)))


class PTileBlock(PTilePcieDevice):
    """P-Tile at PCIe 3.0 with 16 lanes, joined to the pins of card 0 of the top."""

    #: Streams of the block, by the prefixes of their pins.
    READ_DATA, REQUESTS = "rx_st", "tx_st"

    def __init__(self, dut, *, functions, whole, **settings):
        def pin(name):
            return getattr(dut, f"nic0_{name}")

        names = ["flr_rcvd_pf", "flr_completed_pf"] if whole else []
        super().__init__(
            pcie_generation=3,
            pcie_link_width=16,
            pld_clk_frequency=250e6,
            pf_count=functions,
            max_payload_size=1024,
            enable_extended_tag=True,
            coreclkout_hip=dut.clk,
            reset_status=dut.rst,
            rx_bus=PTileRxBus.from_prefix(dut, "nic0_rx_st"),
            tx_bus=TxBus.from_prefix(dut, "nic0_tx_st"),
            **{name: pin(name) for name in names},
            **settings,
        )
        # The model begins without reset, but the card may be in the middle of something.
        dut.rst.value = 1
        self._pin = pin
        # The model asks whether these pins are true, which cocotb 2.1 does not let it.
        for name in ("tx_cdts_limit", "tx_cdts_limit_tdm_idx", "tl_cfg_func", "tl_cfg_add",
                     "tl_cfg_ctl"):  # fmt: skip
            setattr(self, name, pin(name))
        cocotb.start_soon(self._run_tx_fc_logic())
        cocotb.start_soon(self._run_cfg_out_logic())
        self.sink, self.source = self.tx_sink, self.rx_source
        self.sink.reset = dut.rst
        self._resetting = None
        if whole:
            for name, member in window_pins().items():
                if member.flow == In:
                    pin(name).value = 0
            pin("flr_rcvd_pf").value = 0
        put = self.rx_queue.put

        async def to_function(item):
            """Name the function that has the BAR; lose completions of one that is reset."""
            tlp, frame = item
            if tlp.is_completion() and self._resetting == tlp.requester_id.function:
                self.rx_buf_cplh_fc_count -= 1
                self.rx_buf_cpld_fc_count -= tlp.get_data_credits()
                return
            hits = [one for one in self.functions if one.match_bar(tlp.address)]
            if hits and frame.hdr >> 120 & 0x1F == 0:
                frame.func_num = hits[0].pcie_id.function
            await put(item)

        self.rx_queue.put = to_function

    def forget(self, tag):
        """A completion of ``tag`` is lost: P-Tile knows nothing of tags."""

    def extend(self, function, image: ConfigImage):
        """Give ``function`` the capabilities of virtio that ``image``, of the card, has."""
        one = self.functions[function]
        one.deregister_capability(one.pcie_cap)
        one.deregister_capability(one.msix_cap)
        one.register_capability(one.pcie_cap, offset=EXPRESS // 4)
        one.register_capability(one.msix_cap, offset=MSIX // 4)
        at = image.data[abi.PCI_HEADER.offset("capabilities")]
        while at:
            cap = abi.VIRTIO_PCI_CAP.unpack(bytes(image.data[at : at + abi.VIRTIO_PCI_CAP.size]))
            if cap.cap_vndr == abi.CapId.VENDOR:
                octets = bytes(image.data[at : at + cap.cap_len])
                kind = CfgType(cap.cfg_type)
                ours = (
                    AccessCapability(octets, self, function)
                    if kind is CfgType.PCI_CFG
                    else VirtioCapability(octets)
                )
                one.register_capability(ours, offset=PLACES[kind] // 4)
            at = cap.cap_next

    async def window_access(self, function, bar, offset, length, value=None):
        """An access through PCI_CFG; returns what the user answers to a read."""
        edge, pin = RisingEdge(self.coreclkout_hip), self._pin
        names = {"pfnum": function, "bar": bar & 0xFF, "baroffset": offset, "length": length}
        for name, one in (names | {"cfgdata": value or 0}).items():
            pin(f"virtio_pcicfg_{name}").value = one
        strobe = pin(f"virtio_pcicfg_cfg{'rd' if value is None else 'wr'}")
        strobe.value = 1
        await edge
        strobe.value = 0
        for _ in range(PATIENCE):
            await edge
            if value is None and pin("virtio_pcicfg_rdack").value == 1:
                assert int(pin("virtio_pcicfg_apppfnum").value) == function
                enables, got = (
                    int(pin(f"virtio_pcicfg_{name}").value) for name in ("rdbe", "data")
                )
                return got & sum(0xFF << 8 * n for n in range(4) if enables >> n & 1)
        assert value is not None, "No answer"
        return 0

    async def reset_function(self, function):
        """A function-level reset; returns the cycles until the user says that it is done."""
        one = self.functions[function]
        one.bus_master_enable = False
        if one.msix_cap in one.capabilities.list:
            one.msix_cap.msix_enable = one.msix_cap.msix_function_mask = False
        self._resetting = function
        self._pin("flr_rcvd_pf").value = 1 << function
        for cycle in range(100_000):
            await RisingEdge(self.coreclkout_hip)
            if int(self._pin("flr_completed_pf").value) >> function & 1:
                self._pin("flr_rcvd_pf").value, self._resetting = 0, None
                return cycle
        raise AssertionError(f"The reset of function {function} has no end")
