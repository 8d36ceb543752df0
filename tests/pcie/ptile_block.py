"""P-Tile with what its users get: cocotbext-pcie's model, completed where it is empty.

The model says that a request is for the function of its requester, and has no function-level
reset, no capabilities of virtio and no access by them. All of this is here.
"""

import cocotb
from cocotb.triggers import RisingEdge
from cocotbext.pcie.intel.ptile import PTilePcieDevice, PTileRxBus, PTileTxBus

from tests.pcie import model  # noqa: F401 - the models need it under cocotb 2.1

__all__ = ["PTileBlock"]


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
        put = self.rx_queue.put

        async def to_function(item):
            """Name the function that has the BAR."""
            tlp, frame = item
            hits = [one for one in self.functions if one.match_bar(tlp.address)]
            if hits and frame.hdr >> 120 & 0x1F == 0:
                frame.func_num = hits[0].pcie_id.function
            await put(item)

        self.rx_queue.put = to_function

    def forget(self, tag):
        """A completion of ``tag`` is lost: P-Tile knows nothing of tags."""

    async def reset_function(self, function):
        """A function-level reset; returns the cycles until the user says that it is done."""
        one = self.functions[function]
        one.bus_master_enable = False
        if one.msix_cap in one.capabilities.list:
            one.msix_cap.msix_enable = one.msix_cap.msix_function_mask = False
        self._pin("flr_rcvd_pf").value = 1 << function
        for cycle in range(100_000):
            await RisingEdge(self.coreclkout_hip)
            if int(self._pin("flr_completed_pf").value) >> function & 1:
                self._pin("flr_rcvd_pf").value = 0
                return cycle
        raise AssertionError(f"The reset of function {function} has no end")
