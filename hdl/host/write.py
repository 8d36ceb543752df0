"""Host writes: N clients share one write port; bursts are aligned, cut and stored first."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.skid import Skid
from hdl.config import NicConfig
from hdl.ports.host import WriteClient, edge_write_beat, write_beat

from .round_robin import round_robin
from .write_align import WriteAlign
from .write_store import WriteStore

__all__ = ["WriteEngine"]


class WriteEngine(wiring.Component):
    """Takes bursts from the clients one after the other and writes them to the host.

    A burst (1 to 4096 bytes, any address) is moved to its address lanes, cut at multiples of
    ``write_bytes`` and sent chunk by chunk. A chunk is stored whole before its first beat is
    offered at the edge, so one that was begun there is finished, whatever becomes of its client.
    Chunks leave in the order in which the clients' beats were accepted, over all stream ids.

    Members: ``client0`` .. ``client<n-1>``: write clients, round robin per burst; ``wr``: the card
    edge (``HostPort``); ``abort``: the clients are being reset: accept nothing, drop the chunk
    whose burst was cut off (chunks of it that are complete are written), finish the rest;
    ``idle``: everything accepted has been taken by the host, or dropped.
    ``accepted``, ``issued``: bursts whose last beat the engine, or the host, has taken, modulo 256;
    fewer than 128 lie between them. The read engine orders reads behind writes with them.
    Latency: 5 cycles from a chunk's last beat to its first beat at ``wr``. Throughput: one beat a
    cycle; a burst that touches one more aligned beat than it has beats costs one more cycle. The
    turn passes without a gap when another client waits at the end of a burst, else in one cycle.
    Errors: none. Reset: empty; a chunk at the edge is cut off: use ``abort`` and ``idle`` before.
    """

    def __init__(self, *, config: NicConfig, clients: int):
        if not 1 <= clients <= 16:
            raise ValueError(f"Clients must be 1 to 16, not {clients!r}")
        if config.write_bytes < config.bytes_per_beat:
            raise ValueError(
                f"write_bytes must be at least a beat of {config.bytes_per_beat} bytes, "
                f"not {config.write_bytes!r}"
            )
        self._config, self._clients = config, clients
        members = {f"client{i}": In(WriteClient(config.width)) for i in range(clients)}
        super().__init__(
            members
            | {
                "wr": Out(stream.Signature(edge_write_beat(config.width))),
                "abort": In(1),
                "idle": Out(1),
                "accepted": Out(8),
                "issued": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = self._config.width
        entry = data.StructLayout({"beat": write_beat(width), "drop": 1})
        m.submodules.skid = skid = Skid(shape=entry)
        m.submodules.align = align = WriteAlign(width=width)
        m.submodules.store = store = WriteStore(config=self._config)

        # The turn stays with a client for a whole burst. It depends on registers only, so ``ready``
        # does too.
        clients = [getattr(self, f"client{i}").beat for i in range(self._clients)]
        turn, chosen = Signal(range(max(2, self._clients))), Signal(range(max(2, self._clients)))
        waiting = Signal(self._clients)
        inside = Signal()  # a burst has begun and not ended
        offered, taken, chosen_beat = Signal(), Signal(), Signal(write_beat(width))
        lanes = ceil_log2(width // 8)
        offset, burst_lanes = Signal(lanes), Signal(lanes, reset_less=True)
        m.d.comb += [
            waiting.eq(Cat(client.valid for client in clients)),
            # The address lanes of a burst's first beat serve all of it.
            skid.i.payload.beat.eq(chosen_beat),
            skid.i.payload.beat.addr[:lanes].eq(offset),
            offset.eq(Mux(chosen_beat.first, chosen_beat.addr[:lanes], burst_lanes)),
            skid.i.payload.drop.eq(self.abort),
            skid.i.valid.eq(offered | (self.abort & inside)),
            taken.eq(skid.i.valid & skid.i.ready),
        ]
        with m.Switch(turn):
            for i, client in enumerate(clients):
                with m.Case(i):
                    m.d.comb += [
                        offered.eq(client.valid & ~self.abort),
                        client.ready.eq(skid.i.ready & ~self.abort),
                        chosen_beat.eq(client.payload),
                    ]
        round_robin(m, waiting, turn, chosen)
        with m.If(taken):
            m.d.sync += burst_lanes.eq(offset)
            m.d.sync += inside.eq(~(self.abort | chosen_beat.last))
        with m.If((taken & offered & chosen_beat.last) | (~offered & ~inside)):
            m.d.sync += turn.eq(chosen)

        with m.If(taken & offered & chosen_beat.last):
            m.d.sync += self.accepted.eq(self.accepted + 1)
        with m.If(self.wr.valid & self.wr.ready & store.ends_burst):
            m.d.sync += self.issued.eq(self.issued + 1)

        wiring.connect(m, skid.o, align.i)
        wiring.connect(m, align.o, store.i)
        wiring.connect(m, store.o, wiring.flipped(self.wr))
        m.d.sync += self.idle.eq(
            ~inside & ~offered & ~skid.o.valid & ~align.busy & ~store.busy & ~self.wr.valid
        )
        return m
