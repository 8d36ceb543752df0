"""Host reads: a small block into a register, and one read client for several users."""

from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.contract import require, running
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
        if size not in (8, 16, 32, 64, 128):
            raise ValueError(f"Size must be 8, 16, 32, 64 or 128 bytes, not {size!r}")
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
        waits = (busy & ~done) | ~running(m, platform)  # a reset waits for the answers
        require(m, platform, ~client.rsp.valid | waits, "an answer comes to what was asked for")
        return m


class ReadShare(wiring.Component):
    """Several read clients (``client0``, ``client1``, ...) on one, in turn.

    Parameters: ``register``: requests leave from a register slice; without it a client's has to
    come out of registers, and nothing long may follow.
    Latency: 1 cycle for a request (none without ``register``), none for a response: it finds its
    owner in a queue of those asked for. At most ``depth`` reads are in flight (or a few fewer).
    Throughput: a request per cycle. Reset: as BlockReader.
    """

    def __init__(self, *, width: int, clients: int, depth: int = 16, register: bool = True):
        if depth < 8:
            raise ValueError(f"Depth must be at least 8 reads, not {depth!r}")
        if clients < 1:
            raise ValueError(f"Clients must be at least 1, not {clients!r}")
        self._width, self._clients, self._depth = width, clients, depth
        self._register = register
        members = {f"client{i}": In(ReadClient(width)) for i in range(clients)}
        super().__init__(members | {"read_client": Out(ReadClient(width))})

    def elaborate(self, platform):
        m = Module()
        clients = [getattr(self, f"client{i}") for i in range(self._clients)]
        bits = max(1, ceil_log2(self._clients))
        m.submodules.owners = owners = fifo.SyncFIFO(width=bits, depth=self._depth)
        # Room for those that are taken before it is seen, and for one that stays.
        taken, ample, room = Signal(), Signal(), Signal()
        m.d.sync += ample.eq(owners.w_level < self._depth - 4)
        # One bit a client: who asks, who comes behind the one served last, who is served.
        asking, behind = Signal(self._clients), Signal(self._clients)
        grant, served = Signal(self._clients), Signal(self._clients)
        m.d.comb += asking.eq(Cat(client.req.valid for client in clients))
        later = asking & behind
        for i in range(self._clients):
            first = asking[i] & ~asking[:i].any() & ~later.any()
            m.d.comb += grant[i].eq(first | (later[i] & ~later[:i].any()))
        out = stream.Signature(ReadRequest).create(path=("out",))
        if self._register:
            m.submodules.skid = skid = Skid(shape=ReadRequest)
            connect(m, skid.o, flipped(self.read_client.req))
            connect(m, out, skid.i)
            m.d.comb += [served.eq(grant), room.eq(ample)]
        else:
            connect(m, out, flipped(self.read_client.req))
            # A request that was offered stays.
            stays, kept = Signal(), Signal(self._clients, reset_less=True)
            m.d.comb += [served.eq(Mux(stays, kept, grant)), room.eq(ample | stays)]
            m.d.sync += [stays.eq(out.valid & ~out.ready), kept.eq(served)]
        who = Signal(bits)
        # Taken in the cycle before, and in no register yet.
        late, late_who = Signal(), Signal(bits, reset_less=True)
        m.d.comb += [
            who.eq(reduce(or_, (Mux(served[i], i, 0) for i in range(self._clients)))),
            out.valid.eq(asking.any() & room),
            # One of them by number: bits chosen one by one and put together take more.
            Value.cast(out.payload).eq(Array(client.req.payload for client in clients)[who]),
            taken.eq(out.valid & out.ready),
        ]
        with m.If(taken):
            m.d.sync += behind.eq(Cat(served[:i].any() for i in range(self._clients)))
        # Whose the next response is stands in a register, a bit a client, before it comes.
        owner, owned, load = Signal(self._clients), Signal(), Signal()
        response = self.read_client.rsp
        m.d.comb += [
            load.eq(~owned | (response.valid & response.payload.last)),
            owners.r_en.eq(load),
            owners.w_data.eq(late_who),
            owners.w_en.eq(late & (~load | owners.r_rdy)),
        ]
        m.d.sync += [late.eq(taken & (~load | owners.r_rdy | late)), late_who.eq(who)]
        with m.If(load):
            m.d.sync += owned.eq(owners.r_rdy | late | taken)
            with m.If(owners.r_rdy | late):
                m.d.sync += owner.eq(1 << Mux(owners.r_rdy, owners.r_data, late_who))
            with m.Else():
                m.d.sync += owner.eq(served)
        for i, client in enumerate(clients):
            m.d.comb += [
                client.req.ready.eq(served[i] & out.ready & room),
                client.rsp.valid.eq(response.valid & owner[i]),
                client.rsp.payload.eq(response.payload),
            ]
        require(m, platform, ~taken | ((served & (served - 1)) == 0), "one client at a time asks")
        require(m, platform, ~owners.w_en | owners.w_rdy, "there is room for each reader")
        known = owned | ~running(m, platform)  # a reset waits for the responses
        require(m, platform, ~response.valid | known, "each response is somebody's")
        return m
