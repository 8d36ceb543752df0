"""The U55C's top: core, PCIe block, MAC, the frames' way between them, and the resets."""

from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from boards.blocks import Placed, core_block, place
from boards.u55c.blocks import (
    BUFG,
    CMAC,
    CMAC_TIES,
    GT_BUFFER,
    IN_BUFFER,
    LANES,
    PCIE,
    PCIE_LANES,
    PCIE_TIES,
    WIDTH,
)
from hdl.axi.frames import AxiStreamIn, AxiStreamOut
from hdl.common.crossing import LevelCrossing, ResetSequencer
from hdl.config import NicConfig
from hdl.egress.rows import FRAME_BYTES
from hdl.mac.cmac import CmacCrossing
from hdl.pcie.settings import mgmt_pins
from hdl.pcie_nic import PcieNic

__all__ = ["CLOCKS", "CONFIG", "CORE", "INIT", "MAC", "PARAMETERS", "U55cTop"]

#: 512 bits at 250 MHz carry 128 Gb/s, and one RDMA function has all 1024 queue pairs.
CONFIG = NicConfig(width=WIDTH, clock_hz=250_000_000, qps=1024)
#: Clock domains beside ``sync``: the MAC's (25.78125 Gb/s / 80), and the one that starts its
#: transceivers.
MAC, INIT = "mac", "init"
CLOCKS = {"sync": CONFIG.clock_hz, MAC: 322_265_625, INIT: 100_000_000}
#: The core's arguments.
PARAMETERS: dict[str, Any] = {"config": CONFIG}
CORE = core_block(PcieNic(**PARAMETERS), domains=("sync",), separator="__")

#: Pins of the PCIe block that the core has by another name: core's -> block's.
_PINS = {
    **{f"rq_seq_num{n}": f"pcie_rq_seq_num{n}" for n in range(2)},
    **{f"rq_seq_num_vld{n}": f"pcie_rq_seq_num_vld{n}" for n in range(2)},
    "max_payload": "cfg_max_payload",
    "max_read": "cfg_max_read_req",
    "tfc_nph_av": "pcie_tfc_nph_av",
    "cq_np_req": "pcie_cq_np_req",
    **{name: f"cfg_{name}" for name in mgmt_pins()},
    "function_status": "cfg_function_status",
    "msix_enable": "cfg_interrupt_msix_enable",
    "msix_mask": "cfg_interrupt_msix_mask",
    "flr_in_process": "cfg_flr_in_process",
    "flr_done": "cfg_flr_done",
    **{
        f"ext__{name}": f"cfg_ext_{name}"
        for name in ("read_received", "register_number", "function_number")
    },
    "ext__read_data": "cfg_ext_read_data",
    "ext__read_data_valid": "cfg_ext_read_data_valid",
}


class U55cTop(wiring.Component):
    """Members are the card's pins, resource_subsignal of ``U55cPlatform``.

    The core runs on the PCIe block's ``user_clk``: at 250 MHz it is as fast as a clock of its own
    could be, and the four streams of 512 bits need no crossing. The MAC's ``gt_txusrclk2`` is its
    clock for both ways, as in AMD's own designs: it runs whether there is a link or not.

    Errors: see ``CmacCrossing``, ``PcieHost``; the card's registers have their counters.
    Reset: the PCIe block's ``user_reset``, for the core and the MAC's logic together, and for the
    MAC's own (PG203: a frame that breaks off wants it); it ends when both clocks run. PERST# also
    restarts the MAC's transceivers. LEDs: the core is not in reset; the link is up; it is down.
    """

    def __init__(self):
        wide = {"pcie": PCIE_LANES, "qsfp": LANES}
        members = {
            f"{name}_{way}_{pole}": (In if way == "rx" else Out)(lanes)
            for name, lanes in wide.items()
            for way in ("rx", "tx")
            for pole in "pn"
        }
        clocks = ("pcie_refclk", "qsfp_refclk", "sysclk")
        members |= {f"{name}_{pole}": In(1) for name in clocks for pole in "pn"}
        leds = ("led_running", "led_link", "led_no_link")
        members |= {"pcie_perst_n": In(1), "hbm_cattrip": Out(1)} | {n: Out(1) for n in leds}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        core, pcie, cmac = (place(m, block) for block in (CORE, PCIE, CMAC))
        self._clocks(m, core, pcie, cmac)
        self._bus(m, core, pcie)
        crossing = self._frames(m, core, cmac)
        up = self._link(m, crossing, core, cmac)
        m.d.comb += [
            core["mac_tx_drops"].eq(crossing.tx_drops),
            core["mac_rx_drops"].eq(crossing.rx_drops),
            self.hbm_cattrip.eq(0),
            self.led_running.eq(~ResetSignal()),
            self.led_link.eq(up),
            self.led_no_link.eq(~up),
        ]
        return m

    def _clocks(self, m: Module, core: Placed, pcie: Placed, cmac: Placed) -> None:
        """Clock domains, and resets that begin together and end in turn."""
        gt_buffer, in_buffer, bufg = (place(m, block) for block in (GT_BUFFER, IN_BUFFER, BUFG))
        for name in ("sync", MAC, INIT):
            m.domains += ClockDomain(name)
        m.submodules.resets = resets = ResetSequencer(domains=("sync", MAC))
        m.submodules.start = start = ResetSequencer(domains=(INIT,))
        m.d.comb += [
            gt_buffer["I"].eq(self.pcie_refclk_p),
            gt_buffer["IB"].eq(self.pcie_refclk_n),
            gt_buffer["CEB"].eq(0),
            pcie["sys_clk"].eq(gt_buffer["ODIV2"]),
            pcie["sys_clk_gt"].eq(gt_buffer["O"]),
            pcie["sys_reset"].eq(self.pcie_perst_n),
            in_buffer["I"].eq(self.sysclk_p),
            in_buffer["IB"].eq(self.sysclk_n),
            bufg["I"].eq(in_buffer["O"]),
            ClockSignal().eq(pcie["user_clk"]),
            ClockSignal(MAC).eq(cmac["gt_txusrclk2"]),
            ClockSignal(INIT).eq(bufg["O"]),
            resets.request.eq(pcie["user_reset"]),
            start.request.eq(~self.pcie_perst_n),
            ResetSignal().eq(resets.sync_rst),
            ResetSignal(MAC).eq(resets.mac_rst),
            ResetSignal(INIT).eq(start.init_rst),
            core["clk"].eq(ClockSignal()),
            core["rst"].eq(ResetSignal()),
            cmac["gt_ref_clk_p"].eq(self.qsfp_refclk_p),
            cmac["gt_ref_clk_n"].eq(self.qsfp_refclk_n),
            cmac["init_clk"].eq(ClockSignal(INIT)),
            cmac["sys_reset"].eq(ResetSignal(INIT)),
            cmac["rx_clk"].eq(ClockSignal(MAC)),
            cmac["core_tx_reset"].eq(ResetSignal(MAC)),
            cmac["core_rx_reset"].eq(ResetSignal(MAC)),
        ]

    def _bus(self, m: Module, core: Placed, pcie: Placed) -> None:
        """The PCIe block's streams, settings and lanes."""
        for name in ("cq", "cc", "rq", "rc"):
            prefix = f"{'m' if name in ('cq', 'rc') else 's'}_axis_{name}"
            for signal in ("tdata", "tkeep", "tuser", "tlast", "tvalid"):
                core.join(f"{name}__{signal}", pcie, f"{prefix}_{signal}")
            ours, theirs = core[f"{name}__tready"], pcie[f"{prefix}_tready"]
            m.d.comb += theirs.eq(ours) if len(theirs) == 1 else ours.eq(theirs[0])
        for ours, theirs in _PINS.items():
            core.join(ours, pcie, theirs)
        pcie.tie(PCIE_TIES)
        for pole in "pn":
            m.d.comb += pcie[f"pci_exp_rx{pole}"].eq(getattr(self, f"pcie_rx_{pole}"))
            m.d.comb += getattr(self, f"pcie_tx_{pole}").eq(pcie[f"pci_exp_tx{pole}"])

    def _frames(self, m: Module, core: Placed, cmac: Placed) -> CmacCrossing:
        """From the core to the MAC and back."""
        m.submodules.crossing = crossing = CmacCrossing(
            width=WIDTH, frame_bytes=FRAME_BYTES, tx_domain=MAC, rx_domain=MAC
        )
        m.submodules.core_tx = core_tx = AxiStreamIn(width=WIDTH)
        m.submodules.core_rx = core_rx = AxiStreamOut(width=WIDTH)
        m.submodules.mac_tx = mac_tx = AxiStreamOut(width=WIDTH)
        mac_rx = AxiStreamIn(width=WIDTH)
        m.submodules.mac_rx = DomainRenamer(MAC)(mac_rx)
        connect(m, core_tx.o, crossing.i)
        connect(m, crossing.o, core_rx.i)
        connect(m, crossing.tx, mac_tx.i)
        connect(m, mac_rx.o, crossing.rx)
        core.join_bus("m_axis_tx__", core_tx.i)
        core.join_bus("s_axis_rx__", core_rx.o)
        cmac.join_bus("tx_axis_", mac_tx.o)
        cmac.join_bus("rx_axis_", mac_rx.i)
        cmac.tie(CMAC_TIES)
        for pole in "pn":
            m.d.comb += cmac[f"gt_rx{pole}_in"].eq(getattr(self, f"qsfp_rx_{pole}"))
            m.d.comb += getattr(self, f"qsfp_tx_{pole}").eq(cmac[f"gt_tx{pole}_out"])
        return crossing

    def _link(self, m: Module, crossing: CmacCrossing, core: Placed, cmac: Placed) -> Signal:
        """What the receiver says of the link, to the frames' way and to the other end (IEEE 802.3,
        81.3.4): a receiver that is not ready sends remote fault; who gets that sends no frames."""
        faulty, remote = Signal(), Signal()
        m.d.comb += [
            faulty.eq(~cmac["stat_rx_status"] | cmac["stat_rx_local_fault"]),
            remote.eq(cmac["stat_rx_remote_fault"]),
        ]
        aligned, carries, fault = Signal(), Signal(), Signal(init=1)
        m.d[MAC] += [
            aligned.eq(cmac["stat_rx_status"]),
            carries.eq(~faulty & ~remote),
            fault.eq(faulty),
        ]
        m.submodules.link = link = LevelCrossing(i_domain=MAC, o_domain="sync")
        m.d.comb += [
            crossing.rx_up.eq(aligned),
            crossing.tx_up.eq(carries),
            cmac["ctl_tx_send_rfi"].eq(fault),
            link.i.eq(carries),
            core["link_up"].eq(link.o),
        ]
        return link.o
