"""A card as small as can be: copies host memory on command and sends back every frame."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_beat, packet_stream
from hdl.common.skid import Skid
from hdl.config import NicConfig
from hdl.host.read import ReadEngine
from hdl.host.write import WriteEngine
from hdl.ports.host import HostPort, write_beat

__all__ = ["Echo", "REGISTERS"]

#: Byte addresses in BAR 0. Writing ``length`` starts the copy; the interrupt follows it.
REGISTERS = {
    "source": 0x00,
    "target": 0x08,
    "length": 0x10,
    "done": 0x14,
    "message_addr": 0x18,
    "message_data": 0x1C,
    "scratch": 0x20,
    "echo": 0x24,
}


class Echo(wiring.Component):
    """Has the ports of a NIC and the real DMA engines behind them."""

    def __init__(self, *, config: NicConfig):
        self._config = config
        packets = packet_stream(config.width)
        super().__init__(
            {"host": Out(HostPort(config.width)), "mac_tx": Out(packets), "mac_rx": In(packets)}
        )

    def elaborate(self, platform):
        m = Module()
        width = self._config.width
        m.submodules.read = read = ReadEngine(config=self._config, clients=("copy",))
        m.submodules.write = write = WriteEngine(config=self._config, clients=("copy",))
        connect(m, read.rd_req, flipped(self.host.rd_req))
        connect(m, flipped(self.host.rd_rsp), read.rd_rsp)
        connect(m, write.wr, flipped(self.host.wr))
        registers = self._registers(m)

        # One copy at a time: the FIFO has room for all that is asked for.
        beat = write_beat(width)
        m.submodules.fifo = fifo = StreamFifo(shape=beat, depth=4096 // (width // 8))
        source, out = read.copy, write.copy.beat
        m.d.comb += [
            fifo.i.valid.eq(source.rsp.valid),
            fifo.i.payload.data.eq(source.rsp.payload.data),
            fifo.i.payload.keep.eq(source.rsp.payload.keep),
            fifo.i.payload.first.eq(source.rsp.payload.first),
            fifo.i.payload.last.eq(source.rsp.payload.last),
            fifo.i.payload.addr.eq(registers["target"]),
            source.req.payload.function.eq(1),
            source.req.payload.addr.eq(registers["source"]),
            source.req.payload.length.eq(registers["length"]),
        ]
        message = Signal(beat)
        m.d.comb += [
            message.addr.eq(registers["message_addr"]),
            message.data.eq(registers["message_data"]),
            message.keep.eq(0xF),
            message.first.eq(1),
            message.last.eq(1),
        ]
        with m.FSM(name="copy"):
            with m.State("IDLE"):
                with m.If(registers["go"]):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += source.req.valid.eq(1)
                with m.If(source.req.ready):
                    m.next = "COPY"
            with m.State("COPY"):
                connect(m, fifo.o, out)
                with m.If(out.valid & out.ready & out.payload.last):
                    m.next = "MESSAGE"
            with m.State("MESSAGE"):
                m.d.comb += [out.valid.eq(1), out.payload.eq(message)]
                with m.If(out.ready):
                    m.d.sync += registers["done"].eq(registers["done"] + 1)
                    m.next = "IDLE"

        m.submodules.skid = skid = Skid(shape=packet_beat(width))
        with m.If(registers["echo"][0]):
            connect(m, flipped(self.mac_rx), skid.i)
        with m.Else():
            m.d.comb += self.mac_rx.ready.eq(1)
        connect(m, skid.o, flipped(self.mac_tx))
        return m

    def _registers(self, m: Module) -> dict[str, Signal]:
        req, rsp = self.host.mmio.req, self.host.mmio.rsp
        words = {addr: Signal(32, name=f"word_{addr:x}") for addr in range(0, 0x28, 4)}
        go = Signal()
        m.d.comb += req.ready.eq(~rsp.valid | rsp.ready)
        m.d.sync += go.eq(0)
        with m.If(rsp.ready):
            m.d.sync += rsp.valid.eq(0)
        with m.If(req.valid & req.ready):
            m.d.sync += rsp.valid.eq(~req.payload.write)
            with m.Switch(req.payload.addr):
                for addr, word in words.items():
                    with m.Case(addr):
                        m.d.sync += rsp.payload.eq(word)
                        with m.If(req.payload.write):
                            for lane in range(4):
                                with m.If(req.payload.strb[lane]):
                                    byte = req.payload.data.word_select(lane, 8)
                                    m.d.sync += word.word_select(lane, 8).eq(byte)
                            if addr == REGISTERS["length"]:
                                m.d.sync += go.eq(1)
        named = {name: words[addr] for name, addr in REGISTERS.items()}
        for name in ("source", "target"):
            named[name] = Cat(words[REGISTERS[name]], words[REGISTERS[name] + 4])
        return named | {"go": go}
