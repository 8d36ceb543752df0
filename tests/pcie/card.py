"""Both DMA engines behind the PCIe adapter, with a few registers."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import NicConfig
from hdl.pcie.bus import block_pins
from hdl.pcie.completions import COUNTERS
from hdl.pcie.host import PcieHost
from hdl.ports.host import PlacedWriteClient, ReadClient, WriteClient
from tests.axi.card import READS, WRITES, Scratch
from tests.host.dma import PLACED, Dma

__all__ = ["PcieCard"]


class PcieCard(wiring.Component):
    """The engines of ``tests.host.dma`` on ``PcieHost``."""

    def __init__(self, *, config: NicConfig, timeout: int):
        self._config, self._timeout = config, timeout
        width = config.width
        members = {f"reader{i}": In(ReadClient(width)) for i in range(READS)}
        members |= {
            f"writer{i}": In((PlacedWriteClient if i == PLACED else WriteClient)(width))
            for i in range(WRITES)
        }
        super().__init__(
            members
            | {
                **block_pins(),
                "idle": Out(1),
                "refused_requests": Out(16),
                "lost_writes": Out(16),
                **{name: Out(16) for name in COUNTERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.dma = dma = Dma(config=self._config, reads=READS, writes=WRITES)
        m.submodules.host = host = PcieHost(config=self._config, timeout=self._timeout)
        m.submodules.scratch = scratch = Scratch()
        for name in [*(f"reader{i}" for i in range(READS)), *(f"writer{i}" for i in range(WRITES))]:
            connect(m, flipped(getattr(self, name)), getattr(dma, name))
        connect(m, dma.host.rd_req, host.host.rd_req)
        connect(m, host.host.rd_rsp, dma.host.rd_rsp)
        connect(m, dma.host.wr, host.host.wr)
        connect(m, host.host.mmio, scratch.mmio)
        for name in ("cq", "rc"):
            connect(m, flipped(getattr(self, name)), getattr(host, name))
        for name in ("cc", "rq"):
            connect(m, getattr(host, name), flipped(getattr(self, name)))
        for n in range(2):
            for name in (f"rq_seq_num{n}", f"rq_seq_num_vld{n}"):
                m.d.comb += getattr(host, name).eq(getattr(self, name))
        m.d.comb += [
            host.max_payload.eq(self.max_payload),
            host.max_read.eq(self.max_read),
            self.idle.eq(dma.read_idle & dma.write_idle),
            self.refused_requests.eq(host.refused_requests),
            self.lost_writes.eq(host.lost_writes),
            *(getattr(self, name).eq(getattr(host, name)) for name in COUNTERS),
        ]
        return m
