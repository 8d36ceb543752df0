"""Descriptor chains of a split virtqueue."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.layout import amaranth_layout
from hdl.abi.virtio_pci import DESC, PACKED_DESC, DescFlags
from hdl.common.address import add_high, add_low, mask
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import QueueErrorCause

from .packed import is_packed
from .read import BlockReader
from .types import DESC_BYTES, ChainJob, Segment

__all__ = ["Walker"]

#: Descriptors of the longest indirect table (the largest virtqueue; Virtio 1.2, 2.7), as a power
#: of two.
MAX_TABLE_LOG2 = 15


class _Walk(data.Struct):
    """The chain at hand, and how far it has been walked."""

    job: ChainJob
    table: 64  # address of the table walked
    entries: 17  # descriptors it has
    inside: 1  # it is an indirect table
    index: 16  # of the next descriptor
    walked: 17  # descriptors of this table so far
    rest: 32  # bytes that the chain may still have
    seen: 1  # a segment was given,
    written: 1  # and a writable one
    above: 1  # the length is more than ``rest``: in its upper half,
    equal: 1  # or that is the same,
    above_low: 1  # and the lower half is more
    low: 17  # halves of the buffer's end
    high: 17


class Walker(wiring.Component):
    """Walks one descriptor chain and gives its buffers in order.

    Spec: Virtio 1.2, 2.7.5 (descriptor table), 2.7.5.3 (indirect descriptors); 2.8.5, 2.8.7.
    Parameters: ``chains``: in a packed ring a buffer may have several descriptors.
    Members: ``i`` jobs, in a packed ring with the place of the first descriptor as ``head``; ``o``
    one Segment per buffer, the last with ``last``. ``id`` of a packed ring's buffer holds from the
    last Segment on to the next chain, and so does ``count``, the positions that the chain takes:
    those of its descriptors in a packed ring, else one.
    Latency: a cycle, and a host read plus 7 cycles a segment, one descriptor after the other (what
    drivers make in numbers does not come here). One chain at a time.
    Errors, in the ``cause`` of a last segment without buffer: DESC_INDEX (head or next beyond the
    table), DESC_LOOP (more descriptors than the table has, or in a packed ring than the buffer may
    have), DESC_LENGTH (length 0, end of buffer beyond 2**64, more than ``limit`` bytes), INDIRECT
    (not negotiated, nested, with NEXT, in a packed ring behind others, a length that is no multiple
    of 16 or 0 or above 32768 descriptors), DIRECTION (readable after writable, or of a kind the job
    does not allow), HOST_READ.
    """

    def __init__(self, *, config: NicConfig, chains: bool = False):
        self._config, self._width, self._chains = config, config.width, chains
        super().__init__(
            {
                "i": In(stream.Signature(ChainJob)),
                "o": Out(stream.Signature(Segment)),
                "id": Out(16),
                "count": Out(16, init=1),
                "read_client": Out(ReadClient(self._width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = BlockReader(width=self._width, size=DESC_BYTES)
        connect(m, reader.read_client, flipped(self.read_client))
        walk, segment = Signal(_Walk, reset_less=True), Signal(Segment, reset_less=True)
        # A descriptor stays where the reader has it until the next one comes.
        desc = self._described(m, walk)
        carry, borrow = Signal(), Signal()
        m.d.comb += [
            reader.i.payload.function.eq(walk.job.function),
            # Where a buffer's address goes when its descriptor has come.
            reader.i.payload.addr.eq(segment.addr),
            reader.i.payload.length.eq(DESC_BYTES),
            self.o.payload.eq(segment),
        ]
        with m.FSM(name="state"):
            self._find(m, walk, segment, carry)
            self._read(m, walk, segment, desc)
            # CHECK: gives the buffer, follows the table, or fails; one cycle.
            with m.State("CHECK"):
                self._check(m, walk, segment, desc, borrow)
            # GIVE: gives the buffer and works out where the next descriptor is; ends when the
            # buffer is taken, and the chain with the last one.
            with m.State("GIVE"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += [
                        walk.seen.eq(1),
                        walk.written.eq(segment.writable),
                        walk.rest[16:].eq(walk.rest[16:] - desc.len[16:] - borrow),
                        walk.index.eq(desc.next),
                    ]
                    add_low(m, segment.addr, carry, walk.table, DESC_BYTES * desc.next)
                    with m.If(segment.last):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "INDEX"
            # LAST: tells what is wrong with the chain; ends when that is taken.
            with m.State("LAST"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m

    def _described(self, m: Module, walk) -> Value:
        """The descriptor. One of a packed ring is as that of a split one would be: the next follows
        in the ring, or in the table, of which all are used."""
        reader, found = m.submodules.reader, Signal(amaranth_layout(DESC))
        desc = data.View(amaranth_layout(DESC), reader.o.payload.data)
        packed = data.View(amaranth_layout(PACKED_DESC), reader.o.payload.data)
        following = Signal(16, reset_less=True)
        places = Mux(walk.inside, 0xFFFF, mask(walk.job.size_log2))
        more = walk.walked != walk.entries
        m.d.sync += following.eq((walk.index + 1) & places)
        m.d.comb += found.eq(desc)
        with m.If(is_packed(self._config, walk.job.rules)):
            m.d.comb += [found.flags.eq(packed.flags), found.next.eq(following)]
            with m.If(walk.inside):
                m.d.comb += found.flags.eq(Cat(more, packed.flags[1], Const(0, 14)))
        with m.If(reader.o.valid & ~walk.inside):
            m.d.sync += [self.id.eq(packed.id), self.count.eq(1)]
            with m.If(is_packed(self._config, walk.job.rules)):
                m.d.sync += self.count.eq(walk.walked)
        return found

    def _fail(self, m: Module, walk, segment, cause: QueueErrorCause) -> None:
        """The chain ends with ``cause``."""
        m.d.sync += [
            segment.cause.eq(cause),
            segment.first.eq(~walk.seen),
            segment.last.eq(1),
            segment.length.eq(0),
        ]
        m.next = "LAST"

    def _find(self, m: Module, walk, segment, carry) -> None:
        """Where the next descriptor is."""
        job = self.i.payload
        # IDLE: takes a chain; ends with it.
        with m.State("IDLE"):
            m.d.comb += self.i.ready.eq(1)
            m.d.sync += [
                walk.job.eq(job),
                walk.table.eq(job.desc),
                walk.entries.eq(1 << job.size_log2),
                walk.index.eq(job.head),
                walk.walked.eq(0),
                walk.rest.eq(job.limit),
                walk.inside.eq(0),
                walk.seen.eq(0),
                walk.written.eq(0),
            ]
            with m.If(self.i.valid):
                m.next = "HEAD"
        # HEAD: works out where the chain's first descriptor is; one cycle.
        with m.State("HEAD"):
            add_low(m, segment.addr, carry, walk.table, DESC_BYTES * walk.index)
            m.next = "INDEX"
        # INDEX: checks the descriptor's index and counts it; one cycle.
        with m.State("INDEX"):
            add_high(m, segment.addr, carry)
            with m.If(walk.index >= walk.entries):
                self._fail(m, walk, segment, QueueErrorCause.DESC_INDEX)
            with m.Elif(walk.walked == walk.entries):
                self._fail(m, walk, segment, QueueErrorCause.DESC_LOOP)
            with m.Else():
                m.d.sync += walk.walked.eq(walk.walked + 1)
                m.next = "READ"

    def _read(self, m: Module, walk, segment, desc) -> None:
        """The descriptor is read."""
        reader = m.submodules.reader
        # READ: asks for it; ends when the reader takes that.
        with m.State("READ"):
            m.d.comb += reader.i.valid.eq(1)
            with m.If(reader.i.ready):
                m.next = "WAIT"
        # WAIT: waits for it; ends when it comes, and its length and end are compared in halves.
        with m.State("WAIT"):
            m.d.comb += reader.o.ready.eq(1)
            m.d.sync += [
                walk.above.eq(desc.len[16:] > walk.rest[16:]),
                walk.equal.eq(desc.len[16:] == walk.rest[16:]),
                walk.above_low.eq(desc.len[:16] > walk.rest[:16]),
                walk.low.eq(desc.addr[:16] + desc.len[:16]),
                walk.high.eq(desc.addr[16:32] + desc.len[16:]),
            ]
            with m.If(reader.o.valid):
                m.next = "CHECK"
                with m.If(reader.o.payload.error):
                    self._fail(m, walk, segment, QueueErrorCause.HOST_READ)

    def _check(self, m: Module, walk, segment, desc, borrow) -> None:
        """What the descriptor says."""
        flags, low, high = desc.flags, walk.low, walk.high
        indirect, writes = (flags & DescFlags.INDIRECT) != 0, (flags & DescFlags.WRITE) != 0
        too_long, full, beyond = Signal(), Signal(), Signal()
        entry_count, too_many = Signal(28), Signal()
        upper, lower = entry_count[MAX_TABLE_LOG2:], entry_count[:MAX_TABLE_LOG2]
        m.d.comb += [
            too_long.eq(walk.above | (walk.equal & walk.above_low)),
            full.eq(high[:16].all()),
            # It ends beyond 2**64: a carry out of all bits, and something is left.
            beyond.eq(
                (high[16] | (full & low[16]))
                & desc.addr[32:].all()
                & ((low[:16] != 0) | Mux(low[16], ~full, high[:16] != 0))
            ),
            entry_count.eq(desc.len >> 4),
            # More than the most: a compare would be a carry chain.
            too_many.eq(upper[1:].any() | (upper[0] & lower.any())),
        ]
        m.d.sync += [
            segment.eq(Segment.const({"cause": QueueErrorCause.NONE})),
            segment.addr.eq(desc.addr),
            segment.length.eq(desc.len),
            segment.writable.eq(writes),
            segment.first.eq(~walk.seen),
            segment.last.eq((flags & DescFlags.NEXT) == 0),
        ]
        follows = (flags & DescFlags.NEXT) != 0
        # In a packed ring each list is of one kind.
        misplaced = follows | (is_packed(self._config, walk.job.rules) & walk.seen)
        with m.If(~indirect):
            m.d.sync += Cat(walk.rest[:16], borrow).eq(walk.rest[:16] - desc.len[:16])
        with m.If(indirect):
            # WRITE is ignored here (2.7.5.3.2).
            with m.If(
                ~walk.job.rules.indirect
                | walk.inside
                | misplaced
                | (desc.len[:4] != 0)
                | (entry_count == 0)
                | too_many
            ):
                self._fail(m, walk, segment, QueueErrorCause.INDIRECT)
            with m.Else():
                m.d.sync += [
                    walk.table.eq(desc.addr),
                    walk.entries.eq(entry_count),
                    walk.index.eq(0),
                    walk.walked.eq(0),
                    walk.inside.eq(1),
                ]
                m.next = "INDEX"
        if not self._chains:
            with m.Elif(is_packed(self._config, walk.job.rules) & ~walk.inside & follows):
                self._fail(m, walk, segment, QueueErrorCause.DESC_LOOP)
        with m.Elif((desc.len == 0) | beyond | too_long):
            self._fail(m, walk, segment, QueueErrorCause.DESC_LENGTH)
        with m.Elif(Mux(writes, ~walk.job.writable, walk.written | ~walk.job.readable)):
            self._fail(m, walk, segment, QueueErrorCause.DIRECTION)
        with m.Else():
            m.next = "GIVE"
