"""Cards of ``hdl.axi_nic`` between hosts on AXI, and a wire from one to itself or to another."""

from __future__ import annotations

from sim.bench.axi_host import AXI_NIC, AxiNicHost
from sim.measure.simspeed.axi import AxiTestbench

__all__ = ["AXI_NIC", "AxiNicTestbench"]


class AxiNicTestbench(AxiTestbench):
    """Cards of ``hdl.axi_nic`` with such hosts; a wire from one to itself or to another."""

    TX, RX = "m_axis_tx_", "s_axis_rx_"

    def make_host(self, index: int, *, size: int, shuffle: int | None) -> AxiNicHost:
        prefix = f"nic{index}_"
        return AxiNicHost(
            self.dut,
            size=size,
            shuffle=shuffle,
            bus=f"{prefix}m_axi_",
            registers=f"{prefix}s_axil_",
            irq=f"{prefix}irq",
        )
