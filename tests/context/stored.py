"""The cache as a back end of the QPs' context, over a store that answers after a random time."""

from amaranth.hdl import Const, Module, Shape, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, connect, flipped
from amaranth.utils import ceil_log2

from hdl.config import NicConfig
from hdl.context.cached.record import beats_of
from hdl.context.cached_context import CachedContext, record_layout
from hdl.ports.context import QP_PINS, BackingPort, ContextBackEnd

__all__ = ["PLACES", "RandomStore", "StoredContext"]

#: Fewer than the benches have QPs, and as many as their few machines can live with.
PLACES = 4


class RandomStore(wiring.Component):
    """Records in a memory. Parameters: ``qps``; ``width`` of a beat; ``bits`` of a record;
    ``seed`` of the random numbers, not 0. An answer begins after 0 to 15 cycles, a few after up to
    511. Reset: nothing is under way."""

    def __init__(self, *, qps: int, width: int, bits: int, seed: int):
        self._qps, self._beats, self._seed = qps, beats_of(bits, width), seed
        super().__init__({"store": In(BackingPort(width))})

    def elaborate(self, platform):
        m = Module()
        store, request = self.store, self.store.request
        noise = Signal(32, init=self._seed, reset_less=True)
        m.d.sync += noise.eq((noise << 1) | (noise[31] ^ noise[21] ^ noise[1] ^ noise[0]))
        stride = 1 << ceil_log2(self._beats)
        m.submodules.records = records = memory.Memory(
            shape=len(store.record.payload.data), depth=stride * self._qps, init=[]
        )
        write, read = records.write_port(), records.read_port(domain="comb")
        qp, beat, left = Signal(ceil_log2(self._qps)), Signal(range(stride)), Signal(9)
        place = (qp << ceil_log2(stride)) + beat
        m.d.comb += [
            write.addr.eq(place),
            read.addr.eq(place),
            write.data.eq(store.record.payload.data),
            store.answer.payload.data.eq(read.data),
            store.answer.payload.last.eq(beat == self._beats - 1),
        ]
        with m.FSM(name="random_store"):
            with m.State("IDLE"):
                m.d.comb += request.ready.eq(noise[5])
                m.d.sync += [qp.eq(request.payload.qp), beat.eq(0)]
                with m.If(noise[:3] == 0):
                    m.d.sync += left.eq(noise[8:17])
                with m.Else():
                    m.d.sync += left.eq(noise[8:12])
                with m.If(request.valid & request.ready):
                    m.next = "READ"
                    with m.If(request.payload.write):
                        m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [store.record.ready.eq(noise[3]), write.en.eq(store.record.valid)]
                with m.If(store.record.valid & store.record.ready):
                    m.d.sync += beat.eq(beat + 1)
                    with m.If(store.record.payload.last):
                        m.next = "IDLE"
            with m.State("READ"):
                m.d.sync += left.eq(left - 1)
                with m.If(left == 0):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += store.answer.valid.eq(1)
                with m.If(store.answer.ready):
                    m.d.sync += beat.eq(beat + 1)
                    with m.If(store.answer.payload.last):
                        m.next = "IDLE"
        return m


class StoredContext(wiring.Component):
    """``CachedContext`` with ``PLACES`` hot QPs. Nobody pins beside the machines."""

    def __init__(self, *, config: NicConfig, seed: int = 1):
        self._config, self._seed = config, seed
        super().__init__(ContextBackEnd().flip())

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.cache = cache = CachedContext(config=config, places=PLACES)
        m.submodules.store = store = RandomStore(
            qps=config.qps,
            width=config.width,
            bits=Shape.cast(record_layout()).width,
            seed=self._seed,
        )
        connect(m, cache.store, store.store)
        for name, member in self.signature.members.items():
            mine, inner = getattr(self, name), getattr(cache, name)
            if member.is_port:
                m.d.comb += mine.eq(inner)
            else:
                connect(m, flipped(mine), inner)
        for name in QP_PINS:
            m.d.comb += getattr(cache, f"{name}_pin").held.eq(Const(0))
        return m
