"""Both DMA engines on one host port, for their room tests."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import NicConfig
from hdl.host.read import ReadEngine
from hdl.host.write import WriteEngine
from hdl.ports.host import HostPort, PlacedWriteClient, ReadClient, WriteClient

__all__ = ["NARROW", "PLACED", "Dma"]

#: Write clients of a kind of their own, as WriteEngine has them.
PLACED, NARROW = 2, 3


class Dma(wiring.Component):
    """``reads`` read clients and ``writes`` write clients; nothing answers register accesses.

    ``address_lanes``: as of ReadEngine."""

    def __init__(self, *, config: NicConfig, reads: int, writes: int, address_lanes: bool = False):
        self._config, self._reads, self._writes = config, reads, writes
        self._address_lanes = address_lanes
        members = {f"reader{i}": In(ReadClient(config.width)) for i in range(reads)}
        members |= {
            f"writer{i}": In((PlacedWriteClient if i == PLACED else WriteClient)(config.width))
            for i in range(writes)
        }
        super().__init__(
            members
            | {
                "host": Out(HostPort(config.width)),
                "hold": In(1),
                "abort": In(1),
                "read_idle": Out(1),
                "write_idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.read = read = ReadEngine(
            config=self._config,
            clients=tuple(f"reader{i}" for i in range(self._reads)),
            direct=("reader1",),
            address_lanes=self._address_lanes,
        )
        m.submodules.write = write = WriteEngine(
            config=self._config,
            clients=tuple(f"writer{i}" for i in range(self._writes)),
            placed=(f"writer{PLACED}",),
            narrow=(f"writer{NARROW}",),
        )
        for i in range(self._reads):
            connect(m, flipped(getattr(self, f"reader{i}")), getattr(read, f"reader{i}"))
        for i in range(self._writes):
            connect(m, flipped(getattr(self, f"writer{i}")), getattr(write, f"writer{i}"))
        connect(m, read.rd_req, flipped(self.host.rd_req))
        connect(m, flipped(self.host.rd_rsp), read.rd_rsp)
        connect(m, write.wr, flipped(self.host.wr))
        m.d.comb += [
            self.host.mmio.req.ready.eq(1),
            read.hold.eq(self.hold),
            write.abort.eq(self.abort),
            read.writes_accepted.eq(write.accepted),
            read.writes_issued.eq(write.issued),
            self.read_idle.eq(read.idle),
            self.write_idle.eq(write.idle),
        ]
        return m
