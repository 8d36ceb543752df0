"""The NIC behind a block for PCI Express: a core for a card with AMD's or Intel's."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.push import PUSH_BAR
from hdl.axi.bus import AxiStream
from hdl.config import FUNCTION_NET, FUNCTION_RDMA, NicConfig
from hdl.host import config_space as card
from hdl.mac_streams import MAC_COUNTERS, drop_counts, join_frames
from hdl.nic import Nic
from hdl.pcie.bus import block_pins
from hdl.pcie.control import FUNCTIONS, PATIENCE, FunctionControl
from hdl.pcie.extend import ConfigExtend
from hdl.pcie.host import DMA_COUNTERS, TIMEOUT, PcieHost
from hdl.pcie.places import Places
from hdl.pcie.ptile.bus import FLR_FUNCTIONS, config_pins, stream_pins
from hdl.pcie.ptile.host import PTileHost
from hdl.pcie.ptile.route import Bars
from hdl.pcie.ptile.window import ConfigWindow, window_pins
from hdl.pcie.tag_pool import QUARANTINE

__all__ = ["PTileNic", "PcieNic", "bars", "places"]

#: Counters of ``PcieHost`` and ``PTileHost``, which are the card's with this before the name.
HOST_COUNTERS = ("refused_requests", "lost_writes", *DMA_COUNTERS)
BUS = "bus_"


def places(config: NicConfig) -> Places:
    """Where the registers of each function with a driver are."""
    images = [card.rdma_image(config.guest)] * config.functions
    if config.network:
        images.append(card.net_image(config))
    return Places(
        bar=card.BAR_REGISTERS,
        window=card.CONFIG_OFFSET,
        window_bytes=card.IMAGE_BYTES,
        msix=tuple(image.msix for image in images),
    )


def bars(config: NicConfig) -> Bars:
    """Bits of an offset in each BAR of the card."""
    guest = {
        card.BAR_REGISTERS: card.REGISTERS_BYTES,
        card.BAR_NOTIFY: card.notify_bytes(config.guest.queues),
    }
    if config.push:
        guest[PUSH_BAR] = card.push_bytes(config.guest)
    guests = range(FUNCTION_RDMA, FUNCTION_RDMA + config.functions)
    sizes = {(n, bar): size for n in guests for bar, size in guest.items()}
    if config.network:
        sizes[FUNCTION_NET, card.BAR_REGISTERS] = card.REGISTERS_BYTES
        sizes[FUNCTION_NET, card.BAR_NOTIFY] = card.notify_bytes(config.network_queues)
    sizes[config.management_function, 0] = card.MANAGEMENT_BYTES
    return {place: (size - 1).bit_length() for place, size in sizes.items()}


class _NicBehindBlock(wiring.Component):
    """``Nic`` with its host port on an adapter, and its frames on AXI4-Stream.

    Physical function 0 is that of the network, where nothing answers unless the card has one; the
    RDMA functions are behind it, then the management function. INTx is not connected: a driver uses
    MSI-X.
    Parameters: ``host``: the adapter; ``pins``: the block's that it has; ``members``: more;
    ``patience``: see ``FunctionControl``.
    """

    def __init__(self, host, pins, members, *, config: NicConfig, mac_clocks: bool, patience: int):
        self.config, self._mac_clocks = config, mac_clocks
        self._host, self._pins = host, pins
        self._control = FunctionControl(config=config, places=places(config), patience=patience)
        super().__init__(
            {
                **pins,
                **members,
                "m_axis_tx": Out(AxiStream(config.width)),
                "s_axis_rx": In(AxiStream(config.width)),
                "link_up": In(1),
                **drop_counts(mac_clocks=mac_clocks),
            }
        )

    def _join(self, m: Module, mmio) -> FunctionControl:
        """Everything but what is the block's own; ``mmio``: accesses of the host."""
        around = (*MAC_COUNTERS, f"{BUS}resets", *(f"{BUS}{name}" for name in HOST_COUNTERS))
        m.submodules.nic = nic = Nic(config=self.config, around=around)
        m.submodules.host = host = self._host
        m.submodules.control = control = self._control
        connect(m, nic.host.rd_req, host.host.rd_req)
        connect(m, host.host.rd_rsp, nic.host.rd_rsp)
        connect(m, nic.host.wr, host.host.wr)
        if self.config.push:
            connect(m, host.host.push, nic.host.push)
        connect(m, mmio, control.mmio)
        connect(m, control.card, nic.host.mmio)
        for name, member in self._pins.items():
            if member.is_signature:
                ours, its = flipped(getattr(self, name)), getattr(host, name)
                connect(m, *((ours, its) if member.flow == In else (its, ours)))
            else:
                self._copy(m, host, name)
        m.d.comb += [
            nic.around[f"{BUS}resets"].eq(control.resets),
            nic.flr.eq(control.flr),
            control.flr_clean.eq(nic.flr_clean),
            control.flr_over.eq(nic.flr_over),
        ]
        m.d.comb += [nic.around[f"{BUS}{name}"].eq(getattr(host, name)) for name in HOST_COUNTERS]
        join_frames(m, nic, self, width=self.config.width, mac_clocks=self._mac_clocks)
        return control

    def _copy(self, m: Module, part, *names: str) -> None:
        """Join members of the same name."""
        for name in names:
            ours, its = getattr(self, name), getattr(part, name)
            m.d.comb += ours.eq(its) if self.signature.members[name].flow == Out else its.eq(ours)


class PcieNic(_NicBehindBlock):
    """``Nic`` on the user interface of AMD's PCIE4 or PCIE4C block.

    Parameters: ``mac_clocks``: see ``AxiNic``; ``timeout``, ``quarantine``: see ``PcieHost``;
    ``patience``: see ``FunctionControl``.
    Members: ``cq``, ``cc``, ``rq``, ``rc``, ``rq_seq_num``, ``max_payload``, ``max_read``,
    ``tfc_nph_av``, ``cq_np_req``, ``mgmt_*``: see ``PcieHost``; ``function_status``,
    ``msix_enable``, ``msix_mask``, ``flr_in_process``, ``flr_done``: see ``FunctionControl``;
    ``ext``: see ``ConfigExtend``; ``m_axis_tx``, ``s_axis_rx``, ``link_up``, ``mac_tx_drops``,
    ``mac_rx_drops``: as of ``AxiNic``.
    Reset: the block's ``user_reset``, all domains together.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        mac_clocks: bool = False,
        timeout: int = TIMEOUT,
        quarantine: int = QUARANTINE,
        patience: int = PATIENCE,
    ):
        self._extend = ConfigExtend(config=config, places=places(config))
        members = {
            "function_status": In(4 * FUNCTIONS),
            "msix_enable": In(FUNCTIONS),
            "msix_mask": In(FUNCTIONS),
            "flr_in_process": In(FUNCTIONS),
            "flr_done": Out(FUNCTIONS),
            "ext": In(self._extend.signature.flip()),
        }
        super().__init__(
            PcieHost(config=config, timeout=timeout, quarantine=quarantine),
            block_pins(),
            members,
            config=config,
            mac_clocks=mac_clocks,
            patience=patience,
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.extend = extend = self._extend
        control = self._join(m, self._host.host.mmio)
        names = ("function_status", "msix_enable", "msix_mask", "flr_in_process", "flr_done")
        self._copy(m, control, *names)
        for name, member in extend.signature.members.items():
            ours, its = getattr(self.ext, name), getattr(extend, name)
            m.d.comb += ours.eq(its) if member.flow == Out else its.eq(ours)
        return m


class PTileNic(_NicBehindBlock):
    """``Nic`` on the user interface of Intel's P-Tile, which shows the capabilities of virtio.

    Parameters: ``mac_clocks``: see ``AxiNic``; ``timeout``, ``quarantine``: see ``PTileHost``;
    ``patience``: see ``FunctionControl``.
    Members: ``rx_*``, ``tx_*``, ``tl_cfg_*``, ``virtio_pcicfg_*``, ``flr_*_pf``: P-Tile's pins of
    the same names; ``m_axis_tx``, ``s_axis_rx``, ``link_up``, ``mac_tx_drops``, ``mac_rx_drops``:
    as of ``AxiNic``.
    Reset: the opposite of P-Tile's ``reset_status_n``, all domains together.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        mac_clocks: bool = False,
        timeout: int = TIMEOUT,
        quarantine: int = QUARANTINE,
        patience: int = PATIENCE,
    ):
        if config.push:
            raise ValueError("push must be False behind P-Tile: it is not built yet")
        members = {
            **window_pins(),
            "flr_rcvd_pf": In(FLR_FUNCTIONS),
            "flr_completed_pf": Out(FLR_FUNCTIONS),
        }
        super().__init__(
            PTileHost(config=config, bars=bars(config), timeout=timeout, quarantine=quarantine),
            stream_pins() | config_pins(),
            members,
            config=config,
            mac_clocks=mac_clocks,
            patience=patience,
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.window = window = ConfigWindow()
        connect(m, self._host.host.mmio, window.mmio)
        control = self._join(m, window.card)
        self._copy(m, window, *window_pins())
        for name in ("function_status", "msix_enable", "msix_mask"):
            m.d.comb += getattr(control, name).eq(getattr(self._host, name))
        # A reset begins with the pin's edge and lasts until it has been answered.
        before, lasts = Signal(FLR_FUNCTIONS), Signal(FLR_FUNCTIONS)
        done = Signal(FLR_FUNCTIONS)
        beyond = (1 << FLR_FUNCTIONS) - (1 << FUNCTIONS)  # functions that P-Tile is not to have
        m.d.comb += [
            control.flr_in_process.eq(lasts),
            done.eq(control.flr_done | (lasts & beyond)),
            self.flr_completed_pf.eq(done),
        ]
        m.d.sync += [
            before.eq(self.flr_rcvd_pf),
            lasts.eq((lasts & ~done) | (self.flr_rcvd_pf & ~before)),
        ]
        return m
