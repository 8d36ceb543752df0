"""FIFO for a stream, in registers or in RAM."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .contract import require
from .ram import Ram
from .skid import Register

__all__ = ["StreamFifo"]


class StreamFifo(wiring.Component):
    """Holds ``depth`` beats; ``level`` counts them (the one at the output included).

    Latency: 2 cycles from input to output. Throughput: one beat per cycle, in and out at once.
    ``i.ready`` depends on registers only, and so does ``o.valid``. Reset: empty.
    ``depth`` 1 is a ``Register``: latency 1 cycle, a beat every other cycle, no memory.
    Parameters: ``bypass``: when the FIFO is empty and its user waits (``o.ready`` in the cycle
    before), beats pass from ``i`` to ``o`` within the cycle, up to a beat in which the field of
    this name is set; ``level`` does not count them. The user's ``o.ready`` must stay until it gets
    that beat. ``block``: beats lie in block RAM however few there are (``Ram``); or the field of
    this name does, and the others in a memory of their own, whose output is not as late.
    """

    def __init__(self, *, shape, depth: int, bypass: str | None = None, block: str | bool = False):
        if depth < 1 or depth & (depth - 1):
            raise ValueError(f"Depth must be a power of two, at least 1 beat, not {depth!r}")
        if depth == 1 and (bypass is not None or block):
            raise ValueError("A depth of 1 has neither bypass nor block")
        self._shape, self._depth, self._bypass, self._block = shape, depth, bypass, block
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if self._depth == 1:
            m.submodules.beat = beat = Register(shape=self._shape)
            wiring.connect(m, wiring.flipped(self.i), beat.i)
            wiring.connect(m, beat.o, wiring.flipped(self.o))
            m.d.comb += self.level.eq(beat.o.valid)
            return m
        index = ceil_log2(self._depth)
        write, read = Signal(index), Signal(index)
        stored = Signal(range(self._depth + 1))  # written and not yet fetched from the RAM
        fetched = Signal()  # the RAM's output holds the next beat
        push, fetch, pop = Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~self.level[index]),  # a power of two, reached and not passed
            push.eq(self.i.valid & self.i.ready),
            pop.eq(fetched & self.o.ready),
            fetch.eq((stored != 0) & (~fetched | self.o.ready)),
            self.o.valid.eq(fetched),
        ]
        for name, (given, kept) in self._parts().items():
            # A beat is stored before the cycle in which it is fetched, and a full FIFO is not
            # written.
            m.submodules[name] = ram = Ram(
                shape=len(kept), depth=self._depth, forward=False, block=self._block in (name, True)
            )
            m.d.comb += [
                kept.eq(ram.read0.row),
                ram.write.index.eq(write),
                ram.write.row.eq(given),
                ram.write.enable.eq(push),
                ram.read0.index.eq(read),
                ram.read0.enable.eq(fetch),
            ]
        if self._bypass is not None:
            asked = Signal()  # the FIFO is empty, and its user waited a cycle before and still does
            # The user decides by this field, and a register settles earlier than a RAM's output.
            m.submodules.ends = ends = memory.Memory(shape=1, depth=self._depth, init=[])
            store, load = ends.write_port(), ends.read_port(domain="comb")
            end, ending = getattr(self.i.payload, self._bypass), Signal(reset_less=True)
            m.d.comb += [
                store.addr.eq(write),
                store.data.eq(end),
                store.en.eq(push),
                load.addr.eq(read),
                getattr(self.o.payload, self._bypass).eq(ending),
            ]
            with m.If(fetch):
                m.d.sync += ending.eq(load.data)
            m.d.sync += asked.eq(
                self.o.ready & ~(self.i.valid & end) & ~fetched & (stored == 0) & ~push
            )
            text = "who waits for a beat that may pass keeps ready until it is there"
            require(m, platform, ~asked | self.o.ready, text)
            with m.If(asked):
                m.d.comb += [
                    self.o.valid.eq(self.i.valid),
                    self.o.payload.eq(self.i.payload),
                    push.eq(self.i.valid & ~self.o.ready),
                ]
        with m.If(push):
            m.d.sync += write.eq(write + 1)
        with m.If(fetch):
            m.d.sync += read.eq(read + 1)
        self._count(m, stored, push, fetch)
        self._count(m, self.level, push, pop)
        m.d.sync += fetched.eq(fetch | (fetched & ~self.o.ready))
        return m

    def _parts(self) -> dict[str, tuple[Value, Value]]:
        """What lies in each memory, by its name: bits of ``i`` and of ``o``."""
        beats = (self.i.payload, self.o.payload)
        if isinstance(self._block, bool):
            return {"ram": tuple(Value.cast(beat) for beat in beats)}
        others = [name for name, _field in self._shape if name != self._block]
        return {
            self._block: tuple(Value.cast(beat[self._block]) for beat in beats),
            "ram": tuple(Cat(beat[name] for name in others) for beat in beats),
        }

    @staticmethod
    def _count(m: Module, number: Signal, up, down) -> None:
        """One more with ``up``, one fewer with ``down``. ``down`` settles late, so it only enables
        the register; a sum of all three would come behind it."""
        more, fewer, rising = number + 1, number - 1, up.replicate(len(number))
        with m.If(up != down):
            m.d.sync += number.eq((more & rising) | (fewer & ~rising))
