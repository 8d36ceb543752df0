"""The DE10-Agilex's top: core, P-Tile, E-tile's MAC, the frames' way between them, and resets."""

from typing import Any

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from boards.blocks import Placed, core_block, place
from boards.de10_agilex.blocks import (
    LANES,
    MAC_BLOCK,
    MAC_TIES,
    PCIE,
    PCIE_LANES,
    PCIE_TIES,
    PINS,
    RELEASE,
    WIDTH,
    p0,
)
from hdl.axi.frames import AxiStreamIn, AxiStreamOut
from hdl.common.crossing import LevelCrossing, ResetSequencer
from hdl.config import NicConfig
from hdl.egress.rows import FRAME_BYTES
from hdl.mac.cmac import CmacCrossing
from hdl.mac.etile import EtileStreams
from hdl.mac.etile_start import EtileStart
from hdl.pcie_nic import PTileNic

__all__ = ["CLOCKS", "CONFIG", "CORE", "INIT", "MAC", "PARAMETERS", "TUNE", "De10AgilexTop"]

#: As on the U55C: 512 bits at 250 MHz carry 128 Gb/s.
CONFIG = NicConfig(width=WIDTH, clock_hz=250_000_000, qps=1024)
#: Clock domains beside ``sync``: the MAC's (25.78125 Gb/s / 64), and two of one clock: that of its
#: registers, and of what starts its receivers when its PLL has locked.
MAC, INIT, TUNE = "mac", "init", "tune"
CLOCKS = {"sync": CONFIG.clock_hz, MAC: 402_832_031, INIT: 100_000_000, TUNE: 100_000_000}
#: The core's arguments.
PARAMETERS: dict[str, Any] = {"config": CONFIG}
CORE = core_block(PTileNic(**PARAMETERS), domains=("sync",), separator="__")
#: Which lane of the cage is each channel of the MAC: the board crosses the middle ones.
CHANNELS = (0, 2, 1, 3)
#: Output of the MAC's PLL that is the clock of 100 Gb/s.
PLL_CLOCK = 4


class De10AgilexTop(wiring.Component):
    """Members are the board's pins, resource_subsignal of ``De10AgilexPlatform``.

    The core runs on P-Tile's ``coreclkout_hip``, of 250 MHz at PCIe 3.0 with 16 lanes and 512 bits.
    The MAC's clock for both ways is that of its PLL, which runs whether there is a link or not.

    Errors: see ``CmacCrossing``, ``PTileHost``; the card's registers have their counters.
    Reset: P-Tile's ``p0_reset_status_n``, for the core and the MAC's logic together and for the
    MAC's own; it ends when both clocks run. LEDs: the core is not in reset; the link is up; it is
    down.
    """

    def __init__(self):
        wide = {"pcie": PCIE_LANES, "qsfp": LANES}
        members = {
            f"{name}_{way}_{pole}": (In if way == "rx" else Out)(lanes)
            for name, lanes in wide.items()
            for way in ("rx", "tx")
            for pole in "pn"
        }
        members |= {"pcie_refclk_p": In(2), "pcie_perst_n": In(1)}
        members |= {name: In(1) for name in ("qsfp_refclk_p", "qsfp_refclk_bti_p", "sysclk_p")}
        outputs: tuple[str, ...] = ("qsfp_rst_n", "qsfp_mod_sel_n", "qsfp_initmode")
        outputs += ("led_running", "led_link", "led_no_link")
        super().__init__(members | {name: Out(1) for name in outputs})

    def elaborate(self, platform):
        m = Module()
        core, pcie, mac = (place(m, one) for one in (CORE, PCIE, MAC_BLOCK))
        self._clocks(m, core, pcie, mac)
        self._bus(m, core, pcie)
        crossing = self._frames(m, core, mac)
        up = self._link(m, crossing, core, mac)
        self._receivers(m, mac)
        m.d.comb += [
            core["mac_tx_drops"].eq(crossing.tx_drops),
            core["mac_rx_drops"].eq(crossing.rx_drops),
            self.qsfp_rst_n.eq(1),
            self.qsfp_mod_sel_n.eq(0),
            self.qsfp_initmode.eq(0),  # high power
            self.led_running.eq(~ResetSignal()),
            self.led_link.eq(up),
            self.led_no_link.eq(~up),
        ]
        return m

    def _clocks(self, m: Module, core: Placed, pcie: Placed, mac: Placed) -> None:
        """Clock domains, and resets that begin together and end in turn."""
        release = place(m, RELEASE)
        for name in ("sync", MAC, INIT, TUNE):
            m.domains += ClockDomain(name)
        m.submodules.tune = tune = ResetSequencer(domains=(TUNE,))
        m.submodules.resets = resets = ResetSequencer(domains=("sync", MAC))
        m.submodules.start = start = ResetSequencer(domains=(INIT,))
        m.d.comb += [
            pcie["refclk0"].eq(self.pcie_refclk_p[0]),
            pcie["refclk1"].eq(self.pcie_refclk_p[1]),
            pcie["pin_perst_n"].eq(self.pcie_perst_n),
            pcie["ninit_done"].eq(release["ninit_done"]),
            ClockSignal().eq(pcie["coreclkout_hip"]),
            ClockSignal(MAC).eq(mac["o_clk_pll_div64"][PLL_CLOCK]),
            ClockSignal(INIT).eq(self.sysclk_p),
            resets.request.eq(~pcie["p0_reset_status_n"]),
            start.request.eq(release["ninit_done"]),
            ResetSignal().eq(resets.sync_rst),
            ResetSignal(MAC).eq(resets.mac_rst),
            ResetSignal(INIT).eq(start.init_rst),
            ClockSignal(TUNE).eq(self.sysclk_p),
            tune.request.eq(~mac["o_tx_pll_locked"]),
            ResetSignal(TUNE).eq(tune.tune_rst),
            core["clk"].eq(ClockSignal()),
            core["rst"].eq(ResetSignal()),
            mac["i_clk_ref"].eq(self.qsfp_refclk_p),
            mac["i_clk_tx"].eq(ClockSignal(MAC)),
            mac["i_clk_rx"].eq(ClockSignal(MAC)),
            mac["i_reconfig_clk"].eq(ClockSignal(INIT)),
            mac["i_reconfig_reset"].eq(ResetSignal(INIT)),
            mac["i_csr_rst_n"].eq(~ResetSignal(INIT)),
            mac["i_tx_rst_n"].eq(mac["o_tx_pll_locked"] & ~ResetSignal(MAC)),
            mac["i_rx_rst_n"].eq(mac["o_tx_pll_locked"] & ~ResetSignal(MAC)),
        ]

    def _receivers(self, m: Module, mac: Placed) -> None:
        """Each channel's receiver is started by its registers."""
        channels = [EtileStart() for _ in range(LANES)]
        for n, one in enumerate(channels):
            m.submodules[f"start{n}"] = DomainRenamer(TUNE)(one)
            m.d.comb += [
                one.readdata.eq(mac["o_xcvr_reconfig_readdata"].word_select(n, 8)),
                one.waitrequest.eq(mac["o_xcvr_reconfig_waitrequest"][n]),
            ]
        for name in ("address", "read", "write", "writedata"):
            m.d.comb += mac[f"i_xcvr_reconfig_{name}"].eq(
                Cat(getattr(one, name) for one in channels)
            )

    def _bus(self, m: Module, core: Placed, pcie: Placed) -> None:
        """P-Tile's streams, settings and lanes."""
        for name, member in PINS.items():
            core.join(name, pcie, p0(name, member))
        core.join("flr_rcvd_pf", pcie, "p0_flr_rcvd_pf_o")
        core.join("flr_completed_pf", pcie, "p0_flr_completed_pf_i")
        pcie.tie(PCIE_TIES)
        for pole in "pn":
            lanes = [pcie[f"tx_{pole}_out{n}"] for n in range(PCIE_LANES)]
            m.d.comb += getattr(self, f"pcie_tx_{pole}").eq(Cat(lanes))
            for n, lane in enumerate(getattr(self, f"pcie_rx_{pole}")):
                m.d.comb += pcie[f"rx_{pole}_in{n}"].eq(lane)

    def _frames(self, m: Module, core: Placed, mac: Placed) -> CmacCrossing:
        """From the core to the MAC and back."""
        m.submodules.crossing = crossing = CmacCrossing(
            width=WIDTH, frame_bytes=FRAME_BYTES, tx_domain=MAC, rx_domain=MAC
        )
        m.submodules.core_tx = core_tx = AxiStreamIn(width=WIDTH)
        m.submodules.core_rx = core_rx = AxiStreamOut(width=WIDTH)
        streams = EtileStreams(width=WIDTH)
        m.submodules.streams = DomainRenamer(MAC)(streams)
        connect(m, core_tx.o, crossing.i)
        connect(m, crossing.o, core_rx.i)
        connect(m, crossing.tx, streams.tx)
        connect(m, streams.rx, crossing.rx)
        core.join_bus("m_axis_tx__", core_tx.i)
        core.join_bus("s_axis_rx__", core_rx.o)
        for name, member in streams.signature.members.items():
            if name not in ("tx", "rx"):
                ours, its = getattr(streams, name), mac[name]
                m.d.comb += its.eq(ours) if member.flow == Out else ours.eq(its)
        mac.tie(MAC_TIES)
        for pole, end in (("p", ""), ("n", "_n")):
            sent, lanes = mac[f"o_tx_serial{end}"], getattr(self, f"qsfp_rx_{pole}")
            m.d.comb += mac[f"i_rx_serial{end}"].eq(Cat(lanes[n] for n in CHANNELS))
            for channel, n in enumerate(CHANNELS):
                m.d.comb += getattr(self, f"qsfp_tx_{pole}")[n].eq(sent[channel])
        return crossing

    def _link(self, m: Module, crossing: CmacCrossing, core: Placed, mac: Placed) -> Signal:
        """What the receiver says of the link, to the frames' way. The MAC answers to faults."""
        aligned, carries = Signal(), Signal()
        m.d[MAC] += [
            aligned.eq(mac["o_rx_pcs_ready"]),
            carries.eq(
                mac["o_rx_pcs_ready"] & ~mac["o_local_fault_status"] & ~mac["o_remote_fault_status"]
            ),
        ]
        m.submodules.link = link = LevelCrossing(i_domain=MAC, o_domain="sync")
        m.d.comb += [
            crossing.rx_up.eq(aligned),
            crossing.tx_up.eq(carries),
            link.i.eq(carries),
            core["link_up"].eq(link.o),
        ]
        return link.o
