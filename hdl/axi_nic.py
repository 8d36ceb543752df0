"""The NIC with AXI on both sides: a core for a design of one's own."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.axi.bus import Axi4, AxiLite, AxiStream
from hdl.axi.host import AxiHost
from hdl.axi.reads import ID_BITS
from hdl.axi.registers import ADDRESS_BITS
from hdl.config import NicConfig
from hdl.mac_streams import MAC_COUNTERS, MAC_RX, MAC_TX, drop_counts, join_frames
from hdl.nic import Nic

__all__ = ["MAC_RX", "MAC_TX", "AxiNic"]


class AxiNic(wiring.Component):
    """``Nic`` with its host port on AXI4 and AXI4-Lite, and its frames on AXI4-Stream.

    Parameters: ``mac_clocks``: the streams have clocks of their own, ``mac_tx`` and ``mac_rx``, and
    a ``CmacCrossing`` behind them: a frame that is sent has no gap, received ones never wait.
    ``interrupts``: wires for interrupts, 0 for none; ``interrupt_window``: the page of addresses
    whose words are these wires (see ``AxiWrites``). ``write_bursts``: see ``AxiWrites``.

    Members: ``m_axi``: host memory; ``s_axil``: registers; ``m_axis_tx``, ``s_axis_rx``: frames
    without FCS; ``irq`` Out: a pulse of a cycle for each interrupt, one bit for each wire; ``intx``
    Out: levels, of each function without MSI-X; ``link_up`` In, of the domain of ``s_axis_rx``.
    Without ``mac_clocks``, ``mac_tx_drops`` and ``mac_rx_drops`` In: frames that the design around
    has dropped on these ways, modulo 2**16.
    Reset: all domains together, for 8 cycles of the slowest clock.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        mac_clocks: bool = False,
        interrupts: int = 0,
        interrupt_window: int = 0,
        write_bursts: int = 32,
    ):
        if config.network:
            raise ValueError(
                f"network must be 0 on a core with AXI, not {config.network!r}: it is not built yet"
            )
        if config.push:
            raise ValueError("push must be False on a core with AXI: it is not built yet")
        self.config = config
        self._mac_clocks = mac_clocks
        self._host = AxiHost(
            config=config, bursts=write_bursts, wires=interrupts, window=interrupt_window
        )
        members = {"irq": Out(interrupts)} if interrupts else {}
        super().__init__(
            members
            | {
                "m_axi": Out(Axi4(config.width, ID_BITS)),
                "s_axil": In(AxiLite(ADDRESS_BITS)),
                "m_axis_tx": Out(AxiStream(config.width)),
                "s_axis_rx": In(AxiStream(config.width)),
                "intx": Out(config.functions),
                "link_up": In(1),
                **drop_counts(mac_clocks=mac_clocks),
            }
        )

    def elaborate(self, platform):
        m = Module()
        around = (*MAC_COUNTERS, "bus_refused", "bus_lost_writes")
        m.submodules.nic = nic = Nic(config=self.config, around=around)
        m.submodules.host = host = self._host
        connect(m, nic.host, host.host)
        connect(m, host.axi, flipped(self.m_axi))
        connect(m, flipped(self.s_axil), host.axil)
        m.d.comb += [
            host.intx_i.eq(nic.intx),
            self.intx.eq(host.intx),
            host.interrupt.ready.eq(1),
            nic.around.bus_refused.eq(host.read_errors),
            nic.around.bus_lost_writes.eq(host.write_errors),
        ]
        if "irq" in self.signature.members:
            for n, wire in enumerate(self.irq):
                m.d.sync += wire.eq(host.interrupt.valid & (host.interrupt.payload == n))
        join_frames(m, nic, self, width=self.config.width, mac_clocks=self._mac_clocks)
        return m
