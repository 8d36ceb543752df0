"""Several narrow write clients on one."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.ports.host import WriteClient

__all__ = ["WriteShare"]


class WriteShare(wiring.Component):
    """``client0``, ``client1``, ... in turn; each burst is one beat.

    A beat that a client gives away has been taken by the write engine.
    Latency: 1 cycle for the turn. Throughput: a beat every other cycle. ``ready`` passes through.
    Reset: the turn is the first client's.
    """

    def __init__(self, *, width: int, clients: int):
        if clients < 2:
            raise ValueError(f"Clients must be at least 2, not {clients!r}")
        self._clients = clients
        members = {f"client{n}": In(WriteClient(width)) for n in range(clients)}
        super().__init__(members | {"write_client": Out(WriteClient(width))})

    def elaborate(self, platform):
        m = Module()
        beats = [getattr(self, f"client{n}").beat for n in range(self._clients)]
        turn, following = Signal(range(self._clients)), Signal(range(self._clients))
        out = self.write_client.beat
        m.d.comb += [
            Value.cast(out.payload).eq(Array(Value.cast(beat.payload) for beat in beats)[turn]),
            out.valid.eq(Array(beat.valid for beat in beats)[turn]),
            following.eq(turn),
        ]
        waits = Cat(beat.valid for beat in beats)
        for own, beat in enumerate(beats):
            m.d.comb += beat.ready.eq(out.ready & (turn == own))
            with m.If(turn == own):
                # The last one that is named here goes first.
                for step in reversed(range(1, self._clients)):
                    other = (own + step) % self._clients
                    with m.If(waits[other]):
                        m.d.comb += following.eq(other)
        m.d.sync += turn.eq(Mux(out.valid & ~out.ready, turn, following))
        return m
