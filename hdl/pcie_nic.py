"""The NIC behind AMD's PCIE4 or PCIE4C block: a core for a card on PCI Express."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi import virtio_pci as abi
from hdl.axi.bus import AxiStream
from hdl.axi.mac import join_frames
from hdl.config import NicConfig
from hdl.host import config_space as card
from hdl.nic import Nic
from hdl.pcie.bus import block_pins
from hdl.pcie.completions import COUNTERS
from hdl.pcie.control import FUNCTIONS, FunctionControl
from hdl.pcie.extend import ConfigExtend
from hdl.pcie.host import TIMEOUT, PcieHost
from hdl.pcie.places import Places

__all__ = ["HOST_COUNTERS", "PcieNic", "places"]

#: Counters of ``PcieHost``.
HOST_COUNTERS = ("refused_requests", "lost_writes", *COUNTERS)


def places(config: NicConfig) -> Places:
    """Where a guest function's registers are."""
    return Places(
        bar=card.BAR_REGISTERS,
        status=card.COMMON_OFFSET + abi.COMMON_CFG.offset("device_status"),
        window=card.CONFIG_OFFSET,
        window_bytes=card.IMAGE_BYTES,
        msix=card.rdma_image(config.guest).msix,
    )


class PcieNic(wiring.Component):
    """``Nic`` with its host port on the block's user interface, and its frames on AXI4-Stream.

    The block's physical function 0 is that of the network, where nothing answers yet; the RDMA
    functions are behind it, then the management function.

    Parameters: ``mac_clocks``: see ``AxiNic``; ``timeout``: see ``PcieHost``.
    Members: ``cq``, ``cc``, ``rq``, ``rc``, ``rq_seq_num``, ``max_payload``, ``max_read`` and the
    counters: see ``PcieHost``; ``function_status``, ``msix_enable``, ``msix_mask``,
    ``flr_in_process``, ``flr_done``, ``resets``: see ``FunctionControl``; ``ext``: see
    ``ConfigExtend``; ``m_axis_tx``, ``s_axis_rx``, ``link_up``: as of ``AxiNic``.
    INTx is not connected: a driver uses MSI-X. Reset: the block's ``user_reset``, all domains
    together.
    """

    def __init__(self, *, config: NicConfig, mac_clocks: bool = False, timeout: int = TIMEOUT):
        self.config, self._mac_clocks = config, mac_clocks
        self._host = PcieHost(config=config, timeout=timeout)
        self._control = FunctionControl(config=config, places=places(config))
        self._extend = ConfigExtend(config=config, places=places(config))
        super().__init__(
            {
                **block_pins(),
                "function_status": In(4 * FUNCTIONS),
                "msix_enable": In(FUNCTIONS),
                "msix_mask": In(FUNCTIONS),
                "flr_in_process": In(FUNCTIONS),
                "flr_done": Out(FUNCTIONS),
                "ext": In(self._extend.signature.flip()),
                "m_axis_tx": Out(AxiStream(config.width)),
                "s_axis_rx": In(AxiStream(config.width)),
                "link_up": In(1),
                "resets": Out(16),
                **{name: Out(16) for name in HOST_COUNTERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.nic = nic = Nic(config=self.config)
        m.submodules.host = host = self._host
        m.submodules.control = control = self._control
        m.submodules.extend = extend = self._extend
        connect(m, nic.host.rd_req, host.host.rd_req)
        connect(m, host.host.rd_rsp, nic.host.rd_rsp)
        connect(m, nic.host.wr, host.host.wr)
        connect(m, host.host.mmio, control.mmio)
        connect(m, control.card, nic.host.mmio)
        for name in ("cq", "rc"):
            connect(m, flipped(getattr(self, name)), getattr(host, name))
        for name in ("cc", "rq"):
            connect(m, getattr(host, name), flipped(getattr(self, name)))
        self._copy(m, host, *(f"rq_seq_num{n}" for n in range(2)))
        self._copy(m, host, *(f"rq_seq_num_vld{n}" for n in range(2)))
        self._copy(m, host, "max_payload", "max_read", *HOST_COUNTERS)
        names = ("function_status", "msix_enable", "msix_mask", "flr_in_process", "flr_done")
        self._copy(m, control, *names, "resets")
        for name, member in extend.signature.members.items():
            ours, its = getattr(self.ext, name), getattr(extend, name)
            m.d.comb += ours.eq(its) if member.flow == Out else its.eq(ours)
        join_frames(m, nic, self, width=self.config.width, mac_clocks=self._mac_clocks)
        return m

    def _copy(self, m: Module, part, *names: str) -> None:
        """Join members of the same name."""
        for name in names:
            ours, its = getattr(self, name), getattr(part, name)
            m.d.comb += ours.eq(its) if self.signature.members[name].flow == Out else its.eq(ours)
