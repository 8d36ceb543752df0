"""Both DMA engines behind the AXI adapter, with a few registers and a loop for frames."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.axi.bus import Axi4, AxiLite, AxiStream
from hdl.axi.frames import AxiStreamIn, AxiStreamOut
from hdl.axi.host import AxiHost
from hdl.axi.reads import ID_BITS
from hdl.axi.registers import ADDRESS_BITS
from hdl.common.packet import packet_beat
from hdl.common.skid import Skid
from hdl.config import NicConfig
from hdl.ports.host import MmioPort, PlacedWriteClient, ReadClient, WriteClient
from tests.host.dma import PLACED, Dma

__all__ = ["READS", "WINDOW", "WIRES", "WRITES", "AxiCard"]

READS, WRITES = 3, 4
#: Interrupt wires, and the page that means them.
WIRES, WINDOW = 8, 0x7000_0000


class Scratch(wiring.Component):
    """Eight words, of which ``word`` Out is the first one; from address 0x1000 on a read answers
    with {function, BAR, address}."""

    def __init__(self):
        super().__init__({"mmio": Out(MmioPort()), "word": Out(32)})

    def elaborate(self, platform):
        m = Module()
        req, rsp = self.mmio.req, self.mmio.rsp
        words = [Signal(32, name=f"word{n}") for n in range(8)]
        word = Signal(32)
        m.d.comb += [req.ready.eq(~rsp.valid), self.word.eq(words[0])]
        with m.Switch(req.payload.addr[2:5]):
            for n, one in enumerate(words):
                with m.Case(n):
                    m.d.comb += word.eq(one)
                    for lane in range(4):
                        octet = slice(8 * lane, 8 * lane + 8)
                        with m.If(req.valid & req.ready & req.p.write & req.p.strb[lane]):
                            m.d.sync += one[octet].eq(req.p.data[octet])
        place = Cat(req.p.addr[:20], req.p.bar, req.p.function)
        with m.If(req.valid & req.ready & ~req.p.write):
            m.d.sync += [rsp.valid.eq(1), rsp.payload.eq(Mux(req.p.addr[12], place, word))]
        with m.If(rsp.valid & rsp.ready):
            m.d.sync += rsp.valid.eq(0)
        return m


class AxiCard(wiring.Component):
    """The engines of ``tests.host.dma``; ``level`` In becomes ``intx``."""

    def __init__(self, *, config: NicConfig, bursts: int = 32):
        self._config, self._bursts = config, bursts
        width = config.width
        members = {f"reader{i}": In(ReadClient(width)) for i in range(READS)}
        members |= {
            f"writer{i}": In((PlacedWriteClient if i == PLACED else WriteClient)(width))
            for i in range(WRITES)
        }
        super().__init__(
            members
            | {
                "m_axi": Out(Axi4(width, ID_BITS)),
                "s_axil": In(AxiLite(ADDRESS_BITS)),
                "m_axis": Out(AxiStream(width)),
                "s_axis": In(AxiStream(width)),
                "irq": Out(WIRES),
                "level": In(1),
                "intx": Out(1),
                "read_errors": Out(16),
                "write_errors": Out(16),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = self._config.width
        m.submodules.dma = dma = Dma(config=self._config, reads=READS, writes=WRITES)
        m.submodules.host = host = AxiHost(
            config=self._config, bursts=self._bursts, wires=WIRES, window=WINDOW
        )
        m.submodules.scratch = scratch = Scratch()
        for name in [*(f"reader{i}" for i in range(READS)), *(f"writer{i}" for i in range(WRITES))]:
            connect(m, flipped(getattr(self, name)), getattr(dma, name))
        connect(m, dma.host.rd_req, host.host.rd_req)
        connect(m, host.host.rd_rsp, dma.host.rd_rsp)
        connect(m, dma.host.wr, host.host.wr)
        connect(m, host.host.mmio, scratch.mmio)
        connect(m, host.axi, flipped(self.m_axi))
        connect(m, flipped(self.s_axil), host.axil)
        m.submodules.frames_in = frames_in = AxiStreamIn(width=width)
        m.submodules.skid = skid = Skid(shape=packet_beat(width))
        m.submodules.frames_out = frames_out = AxiStreamOut(width=width)
        connect(m, flipped(self.s_axis), frames_in.i)
        connect(m, frames_in.o, skid.i)
        connect(m, skid.o, frames_out.i)
        connect(m, frames_out.o, flipped(self.m_axis))
        m.d.comb += [
            host.intx_i.eq(self.level),
            self.intx.eq(host.intx),
            host.interrupt.ready.eq(1),
            self.irq.eq(Mux(host.interrupt.valid, 1 << host.interrupt.payload, 0)),
            self.read_errors.eq(host.read_errors),
            self.write_errors.eq(host.write_errors),
            self.idle.eq(dma.read_idle & dma.write_idle),
        ]
        return m
