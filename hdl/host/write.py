"""Host writes: N clients share one write port; bursts are aligned, cut and stored first."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.address import kept
from hdl.common.contract import checked, require
from hdl.common.shift import keep_count
from hdl.config import NicConfig
from hdl.ports.host import PlacedWriteClient, WriteClient, edge_write_beat

from .round_robin import round_robin
from .write_align import WriteAlign, arriving_beat
from .write_store import WriteStore

__all__ = ["WriteEngine"]

#: Beats that wait between the turn and the shift.
WAITING = 4
#: Bits of data that narrow clients write at the most.
NARROW = 64


class WriteEngine(wiring.Component):
    """Takes bursts from the clients one after the other and writes them to the host.

    A burst (1 to 4096 bytes, any address) is moved to its address lanes, cut at multiples of
    ``write_bytes`` and sent chunk by chunk. A chunk is stored whole before its first beat is
    offered at the edge, so a chunk that has begun there is finished even if its client is reset.
    Chunks leave in the order in which the clients' beats were accepted, over all stream ids.

    Clients in ``placed`` are PlacedWriteClients: what writes most shifts here and nowhere else.
    Clients in ``narrow`` write bursts of 8 bytes at the most.
    Members: one write client of each name in ``clients``, round robin per burst; ``wr``: the card
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

    def __init__(
        self,
        *,
        config: NicConfig,
        clients: tuple[str, ...],
        placed: tuple[str, ...] = (),
        narrow: tuple[str, ...] = (),
    ):
        if not 1 <= len(set(clients)) == len(clients) <= 16:
            raise ValueError(f"Clients must be 1 to 16 different names, not {clients!r}")
        if config.write_bytes < config.bytes_per_beat:
            raise ValueError(
                f"write_bytes must be at least a beat of {config.bytes_per_beat} bytes, "
                f"not {config.write_bytes!r}"
            )
        if not {*placed, *narrow} <= set(clients) or {*placed} & {*narrow}:
            raise ValueError(
                f"Placed and narrow clients must be different ones of {clients!r}, "
                f"not {placed!r} and {narrow!r}"
            )
        self._config, self._clients = config, clients
        self._placed, self._narrow = placed, narrow
        members = {
            name: In((PlacedWriteClient if name in placed else WriteClient)(config.width))
            for name in clients
        }
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
        lanes = ceil_log2(width // 8)
        m.submodules.align = align = WriteAlign(width=width)
        m.submodules.store = store = WriteStore(config=self._config)

        # The turn stays with a client for a whole burst. ``ready`` comes out of a register, which
        # is the turn's and says that there is a place whatever leaves meanwhile.
        names = self._clients
        clients = [getattr(self, name).beat for name in names]
        turn, chosen = Signal(range(max(2, len(names)))), Signal(range(max(2, len(names))))
        following = Signal.like(turn)  # the turn of the next cycle
        waiting, ready = Signal(len(names)), Signal(len(names))
        inside = Signal()  # a burst has begun and not ended
        offered, taken, ends = Signal(), Signal(), Signal()
        level, leave = Signal(range(WAITING + 1)), Signal()
        beat, burst_up = Signal(arriving_beat(width)), Signal(lanes, reset_less=True)
        with m.Switch(turn):
            for i, client in enumerate(clients):
                with m.Case(i):
                    m.d.comb += [
                        offered.eq(client.valid & ~self.abort),
                        ends.eq(
                            client.p.last & ~(client.p.more if names[i] in self._placed else 0)
                        ),
                    ]
                    self._take(m, names[i], client.payload, beat, burst_up)
        if width > NARROW:  # a sum of products: three wide clients are one table of six inputs
            upper = (
                client.p.data[NARROW:] & (turn == i).replicate(width - NARROW)
                for i, client in enumerate(clients)
                if names[i] not in self._narrow
            )
            m.d.comb += beat.data[NARROW:].eq(reduce(or_, upper))
        round_robin(m, waiting, turn, chosen)
        m.d.comb += [
            waiting.eq(Cat(client.valid for client in clients)),
            beat.drop.eq(self.abort),
            taken.eq(
                Mux(self.abort, inside & (level != WAITING), (waiting & ready).any()),
            ),
            following.eq(Mux((taken & offered & ends) | (~offered & ~inside), chosen, turn)),
        ]
        m.d.sync += turn.eq(following)
        full = (level == WAITING) | (taken & (level == WAITING - 1))
        for i, client in enumerate(clients):
            m.d.comb += client.ready.eq(ready[i] & ~self.abort)
            m.d.sync += ready[i].eq((following == i) & ~full)
        with m.If(taken):
            m.d.sync += [burst_up.eq(beat.up), inside.eq(~(self.abort | ends))]

        # Accepted beats: a few places of LUT RAM, as wide as a register and no multiplexer.
        m.submodules.beats = beats = memory.Memory(
            shape=arriving_beat(width), depth=WAITING, init=[]
        )
        put, get = beats.write_port(), beats.read_port(domain="comb")
        m.d.comb += [
            put.en.eq(taken),
            put.data.eq(beat),
            align.i.valid.eq(level != 0),
            align.i.payload.eq(get.data),
            leave.eq(align.i.valid & align.i.ready),
        ]
        m.d.sync += [put.addr.eq(put.addr + taken), get.addr.eq(get.addr + leave)]
        with m.If(taken != leave):
            m.d.sync += level.eq(Mux(taken, level + 1, level - 1))

        with m.If(taken & offered & beat.last):
            m.d.sync += self.accepted.eq(self.accepted + 1)
        with m.If(self.wr.valid & self.wr.ready & store.ends_burst):
            m.d.sync += self.issued.eq(self.issued + 1)

        if checked(platform):
            begun = Signal()  # the burst at hand, which others may follow in the same turn
            with m.If(taken):
                m.d.sync += begun.eq(offered & ~beat.last)
            follows = ~(taken & offered) | (beat.first != begun)
            require(m, platform, follows, "a burst begins where the one before has ended")
        ahead = (self.accepted - self.issued)[:8]
        require(m, platform, ahead < 128, "fewer than 128 bursts are accepted and not issued")

        wiring.connect(m, align.o, store.i)
        wiring.connect(m, store.o, wiring.flipped(self.wr))
        m.d.sync += self.idle.eq(
            ~inside & ~offered & (level == 0) & ~align.busy & ~store.busy & ~self.wr.valid
        )
        return m

    def _take(self, m: Module, name: str, beat, out, burst_up) -> None:
        """The beat of a client as WriteAlign takes it."""
        lanes = len(out.up)
        low = slice(0, NARROW)
        m.d.comb += [
            out.stream_id.eq(beat.stream_id),
            out.function.eq(beat.function),
            out.line.eq(kept(self._config, beat.addr)[lanes:]),
            out.data[low].eq(beat.data[low]),
            out.first.eq(beat.first),
            out.last.eq(beat.last),
        ]
        if name in self._placed:
            m.d.comb += [
                out.placed.eq(1),
                out.up.eq(beat.up),
                out.start.eq(beat.start),
                out.count.eq(beat.stop),
            ]
        else:
            keep = beat.keep[: NARROW // 8] if name in self._narrow else beat.keep
            m.d.comb += [
                # The address lanes of a burst's first beat serve all of it.
                out.up.eq(Mux(beat.first, beat.addr[:lanes], burst_up)),
                out.count.eq(keep_count(keep)),
            ]
