"""Host reads: a small block into a register, and one read client for several users."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.skid import Skid
from hdl.ports.host import ReadClient, ReadRequest

from .types import BlockRead

__all__ = ["BlockReader", "ReadShare", "block_answer"]


def block_answer(bits: int) -> data.StructLayout:
    """What a BlockReader of ``bits`` gives: the bytes, or ``error``."""
    return data.StructLayout({"data": bits, "error": 1})


class BlockReader(wiring.Component):
    """Reads 1 to ``size`` bytes at a time into a register.

    One read in flight. ``o`` holds the bytes (those past the request's length are undefined) and
    ``error`` until taken. Latency: the host's, plus 1 cycle. Reset: nothing is in flight (a
    response to an earlier request must not arrive afterwards).
    """

    def __init__(self, *, width: int, size: int = 64):
        if size * 8 < 64 or size > 64 or size & (size - 1):
            raise ValueError(f"Size must be 8, 16, 32 or 64 bytes, not {size!r}")
        self._width, self._bits = width, size * 8
        self._answer = block_answer(self._bits)
        super().__init__(
            {
                "i": In(stream.Signature(BlockRead)),
                "o": Out(stream.Signature(self._answer)),
                "read_client": Out(ReadClient(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        client = self.read_client
        busy, done, error = Signal(), Signal(), Signal()
        block = Signal(self._bits, reset_less=True)
        beats = max(1, self._bits // self._width)
        count = Signal(range(beats + 1))
        m.d.comb += [
            client.req.valid.eq(self.i.valid & ~busy),
            client.req.payload.function.eq(self.i.payload.function),
            client.req.payload.addr.eq(self.i.payload.addr),
            client.req.payload.length.eq(self.i.payload.length),
            self.i.ready.eq(client.req.ready & ~busy),
            self.o.valid.eq(done),
            self.o.payload.data.eq(block),
            self.o.payload.error.eq(error),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [busy.eq(1), count.eq(0)]
        with m.If(client.rsp.valid):
            with m.Switch(count):
                for i in range(beats):
                    with m.Case(i):
                        part = block[i * self._width : (i + 1) * self._width]
                        m.d.sync += part.eq(client.rsp.payload.data)
            m.d.sync += [
                count.eq(count + (count != beats)),
                error.eq(client.rsp.payload.error),
                done.eq(client.rsp.payload.last),
            ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [done.eq(0), busy.eq(0)]
        return m


class ReadShare(wiring.Component):
    """Several read clients (``client0``, ``client1``, ...) on one, in turn.

    Latency: 2 cycles for a request (choice, then register), none for a response: it finds its
    owner in a queue of those asked for. At most ``depth`` reads are in flight; one
    is answered a cycle after ``read_client`` asked for it at the earliest.
    Throughput: a request per two cycles. Reset: as BlockReader.
    """

    def __init__(self, *, width: int, clients: int, depth: int = 16):
        if clients < 1:
            raise ValueError(f"Clients must be at least 1, not {clients!r}")
        self._width, self._clients, self._depth = width, clients, depth
        members = {f"client{i}": In(ReadClient(width)) for i in range(clients)}
        super().__init__(members | {"read_client": Out(ReadClient(width))})

    def elaborate(self, platform):
        m = Module()
        clients = [getattr(self, f"client{i}") for i in range(self._clients)]
        bits = max(1, ceil_log2(self._clients))
        # An owner is at the output two cycles after its request, which is a cycle in the skid.
        m.submodules.owners = owners = StreamFifo(shape=bits, depth=self._depth)
        m.submodules.skid = skid = Skid(shape=ReadRequest)
        connect(m, skid.o, flipped(self.read_client.req))
        # Choose one cycle, take the next: a request that was seen stays.
        turn, nearest, found, grant = Signal(bits), Signal(bits), Signal(), Signal()
        chosen, locked = Signal(bits, reset_less=True), Signal()
        with m.Switch(turn):
            for last in range(self._clients):
                with m.Case(last):
                    # Later statements win: the nearest after the one served last.
                    for distance in reversed(range(1, self._clients + 1)):
                        index = (last + distance) % self._clients
                        with m.If(clients[index].req.valid):
                            m.d.comb += [nearest.eq(index), found.eq(1)]
        m.d.comb += [
            grant.eq(locked & skid.i.ready),
            skid.i.valid.eq(grant),
            skid.i.payload.eq(Array(client.req.payload for client in clients)[chosen]),
            owners.i.valid.eq(grant),
            owners.i.payload.eq(chosen),
            owners.o.ready.eq(self.read_client.rsp.valid & self.read_client.rsp.payload.last),
        ]
        with m.If(~locked):
            # Room that is there stays until the request has gone.
            m.d.sync += [locked.eq(found & owners.i.ready), chosen.eq(nearest)]
        with m.If(grant):
            m.d.sync += [turn.eq(chosen), locked.eq(0)]
        for i, client in enumerate(clients):
            m.d.comb += [
                client.req.ready.eq(grant & (chosen == i)),
                client.rsp.valid.eq(self.read_client.rsp.valid & (owners.o.payload == i)),
                client.rsp.payload.eq(self.read_client.rsp.payload),
            ]
        return m
