"""Several read clients behind one."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.arbiter import StreamArbiter
from hdl.common.skid import Register
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, ReadRequest

__all__ = ["ReadShare"]

#: Reads that are on their way at a time: more than a cache of pages and a walk have.
READS = 64


class ReadShare(wiring.Component):
    """Passes the reads of ``clients`` clients on as those of one, in turn.

    Members: ``client0`` and on, In; ``read_client`` Out.
    Latency: 2 cycles for a request, none for the data. Throughput: a request per cycle, of one
    client every other cycle; up to ``READS`` on their way. Errors: none of its own.
    Reset: nothing is on its way.
    """

    def __init__(self, *, config: NicConfig, clients: int):
        self._clients = clients
        client = ReadClient(config.width)
        members = {f"client{n}": In(client) for n in range(clients)}
        super().__init__(members | {"read_client": Out(client)})

    def elaborate(self, platform):
        m = Module()
        owned = data.StructLayout({"request": ReadRequest, "owner": ceil_log2(self._clients)})
        m.submodules.arbiter = arbiter = StreamArbiter(shape=owned, inputs=self._clients)
        # Data come in the order of the requests.
        m.submodules.owners = owners = SyncFIFO(width=ceil_log2(self._clients), depth=READS)
        ask, answer = self.read_client.req, self.read_client.rsp
        m.d.comb += [
            ask.valid.eq(arbiter.o.valid & owners.w_rdy),
            ask.payload.eq(arbiter.o.p.request),
            arbiter.o.ready.eq(ask.ready & owners.w_rdy),
            owners.w_en.eq(ask.valid & ask.ready),
            owners.w_data.eq(arbiter.o.p.owner),
            owners.r_en.eq(answer.valid & answer.p.last),
        ]
        for n in range(self._clients):
            client, port = getattr(self, f"client{n}"), getattr(arbiter, f"i{n}")
            # Whether a client may go on does not depend on the others in the same cycle.
            m.submodules[f"offer{n}"] = offer = Register(shape=ReadRequest)
            connect(m, flipped(client.req), offer.i)
            m.d.comb += [
                port.valid.eq(offer.o.valid),
                port.p.request.eq(offer.o.payload),
                port.p.owner.eq(n),
                offer.o.ready.eq(port.ready),
                client.rsp.valid.eq(answer.valid & (owners.r_data == n)),
                client.rsp.payload.eq(answer.payload),
            ]
        return m
