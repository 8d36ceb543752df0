"""Both DMA engines behind a PCIe adapter, with a few registers."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import NicConfig
from hdl.pcie.bus import block_pins
from hdl.pcie.host import DMA_COUNTERS, PcieHost
from hdl.pcie.ptile.bus import config_pins, stream_pins
from hdl.pcie.ptile.host import PTileHost
from hdl.ports.host import PlacedWriteClient, ReadClient, WriteClient
from tests.axi.card import READS, WRITES, Scratch
from tests.host.dma import PLACED, Dma

__all__ = ["BAR_BITS", "FUNCTIONS", "PTileCard", "PcieCard"]

#: Functions of the card; each has this BAR 0.
FUNCTIONS, BAR_BITS = 2, 14


class _Card(wiring.Component):
    """The engines of ``tests.host.dma`` on an adapter, ``host``, with the block's ``pins``."""

    def __init__(self, host, pins, *, config: NicConfig):
        self._config, self._host, self._pins = config, host, pins
        width = config.width
        members = {f"reader{i}": In(ReadClient(width)) for i in range(READS)}
        members |= {
            f"writer{i}": In((PlacedWriteClient if i == PLACED else WriteClient)(width))
            for i in range(WRITES)
        }
        self._counters = ("refused_requests", "lost_writes", *DMA_COUNTERS)
        super().__init__(
            members
            | pins
            | {"idle": Out(1), "word": Out(32)}
            | {name: Out(16) for name in self._counters}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.dma = dma = Dma(config=self._config, reads=READS, writes=WRITES)
        m.submodules.host = host = self._host
        m.submodules.scratch = scratch = Scratch()
        for name in [*(f"reader{i}" for i in range(READS)), *(f"writer{i}" for i in range(WRITES))]:
            connect(m, flipped(getattr(self, name)), getattr(dma, name))
        connect(m, dma.host.rd_req, host.host.rd_req)
        connect(m, host.host.rd_rsp, dma.host.rd_rsp)
        connect(m, dma.host.wr, host.host.wr)
        connect(m, host.host.mmio, scratch.mmio)
        for name, member in self._pins.items():
            ours, its = getattr(self, name), getattr(host, name)
            if member.is_signature:
                ends = (flipped(ours), its) if member.flow == In else (its, flipped(ours))
                connect(m, *ends)
            else:
                m.d.comb += ours.eq(its) if member.flow == Out else its.eq(ours)
        m.d.comb += [
            self.idle.eq(dma.read_idle & dma.write_idle),
            self.word.eq(scratch.word),
            *(getattr(self, name).eq(getattr(host, name)) for name in self._counters),
        ]
        return m


class PcieCard(_Card):
    """The card behind AMD's block."""

    def __init__(self, *, config: NicConfig, timeout: int):
        super().__init__(PcieHost(config=config, timeout=timeout), block_pins(), config=config)


class PTileCard(_Card):
    """The card behind Intel's P-Tile."""

    def __init__(self, *, config: NicConfig, timeout: int):
        bars = {(function, 0): BAR_BITS for function in range(FUNCTIONS)}
        host = PTileHost(config=config, bars=bars, timeout=timeout)
        super().__init__(host, stream_pins() | config_pins(), config=config)
