"""Descriptor chains of a split virtqueue."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.layout import amaranth_layout
from hdl.abi.virtio_pci import DESC, DescFlags
from hdl.common.address import add_high, add_low
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import QueueErrorCause

from .read import BlockReader
from .types import DESC_BYTES, ChainJob, Segment

__all__ = ["Walker"]

#: Descriptors of the longest indirect table (the largest virtqueue; Virtio 1.2, 2.7), as a power
#: of two.
MAX_TABLE_LOG2 = 15


class Walker(wiring.Component):
    """Walks one descriptor chain and gives its buffers in order.

    Spec: Virtio 1.2, 2.7.5 (descriptor table), 2.7.5.3 (indirect descriptors).
    Members: ``i`` jobs; ``o`` one Segment per buffer, the last with ``last``; ``indirect`` 1 when
    VIRTIO_F_INDIRECT_DESC was negotiated.
    Latency: a host read plus 7 cycles a segment, one descriptor after the other (what drivers make
    in numbers does not come here). One chain at a time.
    Errors, in the ``cause`` of a last segment without buffer: DESC_INDEX (head or next beyond the
    table), DESC_LOOP (more descriptors than the table has), DESC_LENGTH (length 0, end of buffer
    beyond 2**64, more than ``limit`` bytes), INDIRECT (not negotiated, nested, with NEXT, a length
    that is no multiple of 16 or 0 or above 32768 descriptors), DIRECTION (readable after writable,
    or of a kind the job does not allow), HOST_READ.
    """

    def __init__(self, *, config: NicConfig):
        self._width = config.width
        super().__init__(
            {
                "i": In(stream.Signature(ChainJob)),
                "o": Out(stream.Signature(Segment)),
                "indirect": In(1),
                "read_client": Out(ReadClient(self._width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = BlockReader(width=self._width, size=DESC_BYTES)
        connect(m, reader.read_client, flipped(self.read_client))

        job = Signal(ChainJob, reset_less=True)
        table = Signal(64, reset_less=True)  # address of the table walked
        entries = Signal(17, reset_less=True)  # descriptors it has
        inside = Signal()  # in an indirect table
        index = Signal(16, reset_less=True)
        walked = Signal(17, reset_less=True)
        rest = Signal(32, reset_less=True)  # bytes that the chain may still have
        seen, written = Signal(), Signal()  # a segment was given; a writable one was

        # A descriptor stays where the reader has it until the next one comes.
        desc = data.View(amaranth_layout(DESC), reader.o.payload.data)
        carry = Signal()
        flags = desc.flags
        segment = Signal(Segment, reset_less=True)
        m.d.comb += [
            reader.i.payload.function.eq(job.function),
            # Where a buffer's address goes when its descriptor has come.
            reader.i.payload.addr.eq(segment.addr),
            reader.i.payload.length.eq(DESC_BYTES),
            self.o.payload.eq(segment),
        ]
        # Begun as the descriptor comes, in halves: is it too long, does it end beyond 2**64?
        above, equal, above_low = (Signal(reset_less=True, name=n) for n in ("gt", "eq", "gt_low"))
        low, high = Signal(17, reset_less=True), Signal(17, reset_less=True)  # of its end
        borrow, too_long, full, beyond = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            too_long.eq(above | (equal & above_low)),
            full.eq(high[:16].all()),
            # A carry out of all bits, and something is left.
            beyond.eq(
                (high[16] | (full & low[16]))
                & desc.addr[32:].all()
                & ((low[:16] != 0) | Mux(low[16], ~full, high[:16] != 0))
            ),
        ]
        entry_count, too_many = Signal(28), Signal()
        upper, lower = entry_count[MAX_TABLE_LOG2:], entry_count[:MAX_TABLE_LOG2]
        m.d.comb += [
            entry_count.eq(desc.len >> 4),
            # More than the most: a compare would be a carry chain.
            too_many.eq(upper[1:].any() | (upper[0] & lower.any())),
        ]

        def fail(cause: QueueErrorCause) -> None:
            m.d.sync += [
                segment.cause.eq(cause),
                segment.first.eq(~seen),
                segment.last.eq(1),
                segment.length.eq(0),
            ]
            m.next = "LAST"

        with m.FSM(name="state"):
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [
                    job.eq(self.i.payload),
                    table.eq(self.i.payload.desc),
                    entries.eq(1 << self.i.payload.size_log2),
                    index.eq(self.i.payload.head),
                    walked.eq(0),
                    rest.eq(self.i.payload.limit),
                    inside.eq(0),
                    seen.eq(0),
                    written.eq(0),
                ]
                add_low(
                    m, segment.addr, carry, self.i.payload.desc, DESC_BYTES * self.i.payload.head
                )
                with m.If(self.i.valid):
                    m.next = "INDEX"
            with m.State("INDEX"):
                add_high(m, segment.addr, carry)
                with m.If(index >= entries):
                    fail(QueueErrorCause.DESC_INDEX)
                with m.Elif(walked == entries):
                    fail(QueueErrorCause.DESC_LOOP)
                with m.Else():
                    m.d.sync += walked.eq(walked + 1)
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += reader.i.valid.eq(1)
                with m.If(reader.i.ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += reader.o.ready.eq(1)
                m.d.sync += [
                    above.eq(desc.len[16:] > rest[16:]),
                    equal.eq(desc.len[16:] == rest[16:]),
                    above_low.eq(desc.len[:16] > rest[:16]),
                    low.eq(desc.addr[:16] + desc.len[:16]),
                    high.eq(desc.addr[16:32] + desc.len[16:]),
                ]
                with m.If(reader.o.valid):
                    m.next = "CHECK"
                    with m.If(reader.o.payload.error):
                        fail(QueueErrorCause.HOST_READ)
            with m.State("CHECK"):
                m.d.sync += segment.eq(
                    Segment.const({"cause": QueueErrorCause.NONE}),
                )
                m.d.sync += [
                    segment.addr.eq(desc.addr),
                    segment.length.eq(desc.len),
                    segment.writable.eq((flags & DescFlags.WRITE) != 0),
                    segment.first.eq(~seen),
                    segment.last.eq((flags & DescFlags.NEXT) == 0),
                ]
                with m.If((flags & DescFlags.INDIRECT) == 0):
                    m.d.sync += Cat(rest[:16], borrow).eq(rest[:16] - desc.len[:16])
                with m.If((flags & DescFlags.INDIRECT) != 0):
                    # WRITE is ignored here (2.7.5.3.2).
                    with m.If(
                        ~self.indirect
                        | inside
                        | ((flags & DescFlags.NEXT) != 0)
                        | (desc.len[:4] != 0)
                        | (entry_count == 0)
                        | too_many
                    ):
                        fail(QueueErrorCause.INDIRECT)
                    with m.Else():
                        m.d.sync += [
                            table.eq(desc.addr),
                            entries.eq(entry_count),
                            index.eq(0),
                            walked.eq(0),
                            inside.eq(1),
                        ]
                        m.next = "INDEX"
                with m.Elif((desc.len == 0) | beyond | too_long):
                    fail(QueueErrorCause.DESC_LENGTH)
                with m.Elif((flags & DescFlags.WRITE) != 0):
                    with m.If(job.writable):
                        m.next = "GIVE"
                    with m.Else():
                        fail(QueueErrorCause.DIRECTION)
                with m.Elif(written | ~job.readable):
                    fail(QueueErrorCause.DIRECTION)
                with m.Else():
                    m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += [
                        seen.eq(1),
                        written.eq(segment.writable),
                        rest[16:].eq(rest[16:] - desc.len[16:] - borrow),
                        index.eq(desc.next),
                    ]
                    add_low(m, segment.addr, carry, table, DESC_BYTES * desc.next)
                    with m.If(segment.last):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "INDEX"
            with m.State("LAST"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m
