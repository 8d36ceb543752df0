"""Reads that tell how far rings reach: the avail index, or a packed ring's flags."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.address import OFFSET_BITS, mask
from hdl.config import NicConfig

from .flow import ReadFlow, flow_beat
from .packed import AVAIL_BIT, FLAGS_BYTES, USED_BIT, flags_offset, is_packed, wrap_counter
from .types import DESC_BYTES, INDEX_OFFSET

__all__ = ["INDEX_BYTES", "FlagsBatch", "Reach", "reach_base", "read_reach", "reach_flow"]

INDEX_BYTES = 2


def reach_flow(config: NicConfig, *, reads: int, bypass: bool = True) -> ReadFlow:
    """A flow of ``reads`` reads of avail indices; of a card with packed rings, of as many flags as
    have room there."""
    if not config.packed:
        return ReadFlow(config=config, size=INDEX_BYTES, reads=reads, bypass=bypass)
    batch = FlagsBatch(config)
    return ReadFlow(
        config=config,
        size=batch.read_bytes,
        reads=max(2, reads // batch.beats),
        bypass=bypass,
        kept=batch.kept,
    )


def reach_base(config: NicConfig, row) -> Value:
    """Where it is read how far the queue of ``row`` reaches: in its avail ring, or in its only one
    if that is packed."""
    return Mux(is_packed(config, row.rules), row.desc, row.driver)


def read_reach(config: NicConfig, row, position: Value) -> tuple:
    """Address, offset and length of such a read for the queue of ``row``."""
    index, packed = Const(INDEX_OFFSET, OFFSET_BITS), is_packed(config, row.rules)
    batch = FlagsBatch(config)
    return (
        reach_base(config, row),
        Mux(packed, flags_offset(position, row.size_log2), index),
        Mux(packed, batch.length(batch.count(position, row.size_log2)), INDEX_BYTES),
    )


class FlagsBatch:
    """How far a packed ring reaches: the flags of descriptors in a row, read at once.

    ``size`` descriptors make an aligned batch, 16 at 512 bits. A read is from the flags at a
    position to those of the last descriptor of its batch, or of a ring that is smaller. Of each
    beat ``kept`` are the bits of interest, the flags at its beginning whole.
    """

    def __init__(self, config: NicConfig):
        self.size = max(4, config.width // 32)
        self.read_bytes = DESC_BYTES * self.size
        self.beats = -(-self.read_bytes * 8 // config.width)
        self.sparse = config.width < 8 * DESC_BYTES  # each second beat has flags
        lanes = max(1, config.width // (8 * DESC_BYTES))  # descriptors of a beat
        later = range(8 * DESC_BYTES, 8 * DESC_BYTES * lanes, 8 * DESC_BYTES)
        self.kept = (
            *range(8 * FLAGS_BYTES),
            *(at + bit for at in later for bit in (AVAIL_BIT, USED_BIT)),
        )

    def count(self, position: Value, size_log2: Value) -> Value:
        """How many are read from ``position`` on."""
        bits = self.size.bit_length() - 1
        small = size_log2 < bits
        most = Mux(small, 1 << size_log2[: bits.bit_length()], self.size)
        place = (position & mask(size_log2))[:bits]
        return (most - place)[: bits + 1]

    def length(self, count: Value) -> Value:
        """Bytes of a read of ``count`` descriptors' flags."""
        return Cat(Const(FLAGS_BYTES, 4), (count - 1)[: self.size.bit_length() - 1])


class Reach(wiring.Component):
    """Tells from a read how far a ring reaches: the avail index, or of a packed ring the number of
    descriptors that are available from the position on.

    Members: ``i``: beats of ``reach_flow``; ``o``: the index, which passes as it is, or the number,
    as ``data``. ``look``: the next read is that of ``position`` in a ring of ``size_log2``, which
    is ``packed`` or not; all of that is stable until ``o`` is taken.
    Latency: none for an index, else 3 cycles from the last beat. Throughput: a beat a cycle.
    Errors: as ``i`` has them. Reset: between reads.
    """

    def __init__(self, *, config: NicConfig):
        self._batch = FlagsBatch(config)
        beat = flow_beat(len(self._batch.kept) if config.packed else 8 * INDEX_BYTES)
        super().__init__(
            {
                "i": In(stream.Signature(beat)),
                "o": Out(stream.Signature(flow_beat(8 * INDEX_BYTES))),
                "look": In(1),
                "packed": In(1),
                "position": In(16),
                "size_log2": In(4),
            }
        )

    def elaborate(self, platform):
        m = Module()
        batch, beat, found = self._batch, self.i.payload, self.o.payload
        # The number in three steps: which descriptors of a beat are available, how many of them are
        # before one that is not, and those that were read at all.
        taken, taking, between = Signal(), Signal(), Signal()  # ``between``: a beat without flags
        came, last, ended, done = (Signal() for _ in range(4))
        later = range(8 * FLAGS_BYTES, len(beat.data), 2)
        pairs = [Cat(beat.data[AVAIL_BIT], beat.data[USED_BIT])]
        pairs += [beat.data[at : at + 2] for at in later]
        free, broken = Signal(len(pairs)), Signal()  # ``broken``: one that is not has been seen
        total, here = Signal(range(batch.size + len(pairs) + 1)), Signal(range(len(pairs) + 1))
        there, failed = Signal(range(batch.size + 1), reset_less=True), Signal(reset_less=True)
        count = batch.count(self.position, self.size_log2)
        wrap = wrap_counter(self.position, self.size_log2)
        for nth in range(len(pairs)):
            with m.If(free[: nth + 1].all()):
                m.d.comb += here.eq(nth + 1)
        m.d.comb += [
            taking.eq(~(last | ended | done)),
            taken.eq(self.look & self.packed & self.i.valid & taking),
            found.last.eq(1),
        ]
        m.d.sync += [
            came.eq(taken & (~between | beat.last)),
            last.eq(taken & beat.last),
            free.eq(Cat(pair == Cat(wrap, ~wrap) for pair in pairs)),
            ended.eq(last),
        ]
        with m.If(taken):
            m.d.sync += [failed.eq(beat.error), between.eq(batch.sparse & ~between & ~beat.last)]
        with m.If(came & ~broken):
            m.d.sync += [total.eq(total + here), broken.eq(~free.all())]
        with m.If(ended):
            m.d.sync += [
                there.eq(Mux(total > count, count, total)),
                done.eq(1),
                total.eq(0),
                broken.eq(0),
            ]
        with m.If(self.packed):
            m.d.comb += [
                self.i.ready.eq(self.look & taking),
                self.o.valid.eq(done),
                found.data.eq(there),
                found.error.eq(failed),
            ]
            with m.If(done & self.o.ready):
                m.d.sync += done.eq(0)
        with m.Else():
            m.d.comb += [
                self.i.ready.eq(self.o.ready),
                self.o.valid.eq(self.i.valid),
                found.data.eq(beat.data[: 8 * INDEX_BYTES]),
                found.error.eq(beat.error),
            ]
        return m
