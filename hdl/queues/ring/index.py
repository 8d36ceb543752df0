"""The avail index of a split virtqueue: is there anything at a position, or beyond it?"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.address import OFFSET_BITS, add_high, add_low
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, WriteClient
from hdl.ports.jobs import FetchStatus, QueueErrorCause
from hdl.ports.rows import RingRules

from .packed import asked_event, available, flags_offset, is_packed, wrap_counter
from .reach import reach_base
from .read import block_answer
from .types import INDEX_OFFSET, BlockRead, avail_event

__all__ = ["AvailIndex", "IndexJob", "IndexResult", "named_index"]


class IndexJob(data.Struct):
    """Is anything available at ``position``? ``driver``: of a packed queue where its ring is."""

    function: 8
    driver: 64
    device: 64
    size_log2: 4
    rules: RingRules
    position: 16


def named_index(config: NicConfig, job, function: Value, row, position: Value) -> list:
    """Assign to an IndexJob what ``row``, of its queue, says."""
    same = [job[name].eq(row[name]) for name in ("device", "size_log2", "rules")]
    base = job.driver.eq(reach_base(config, row))
    return [*same, base, job.function.eq(function), job.position.eq(position)]


class IndexResult(data.Struct):
    """OK (something is), EMPTY, or QUEUE_ERROR with ``cause``; ``available`` is the index read, or
    with an error the position."""

    status: FetchStatus
    cause: QueueErrorCause
    available: 16


class AvailIndex(wiring.Component):
    """Reads the avail index; before EMPTY it asks to be notified and looks once more.

    Of a packed queue it reads the flags of the descriptor at the position.
    Spec: Virtio 1.2, 2.7.6 (available ring), 2.7.10 (notification suppression); 2.8.1, 2.8.14.
    Members: ``i`` jobs, one at a time; ``o`` one result per job; ``block``/``block_data`` a
    BlockReader of 8 bytes or more.
    With EVENT_IDX it writes ``avail_event`` and reads the index again before EMPTY, so that
    the driver's next buffer brings a notification. The write has been accepted when the read is
    asked for; the host port keeps their order.
    Latency: 5 cycles (packed 7) and a host read, with ``avail_event`` as much more.
    Errors: AVAIL_INDEX (index more than the queue's size ahead of the position), HOST_READ.
    """

    def __init__(self, *, config: NicConfig, stream_id: int = STREAM_DATA):
        self._config, self._stream_id = config, stream_id
        super().__init__(
            {
                "i": In(stream.Signature(IndexJob)),
                "o": Out(stream.Signature(IndexResult)),
                "block": Out(stream.Signature(BlockRead)),
                "block_data": In(stream.Signature(block_answer(64))),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        job = Signal(IndexJob, reset_less=True)
        result = Signal(IndexResult, reset_less=True)
        addr, carry = Signal(64, reset_less=True), Signal()  # of the index, or of avail_event
        announced = Signal()  # avail_event was written for this job
        ahead, size = Signal(16, reset_less=True), Signal(16)
        event_offset = Signal(OFFSET_BITS, reset_less=True)
        index_offset = Const(INDEX_OFFSET, OFFSET_BITS)
        m.d.comb += [
            size.eq(1 << job.size_log2),
            self.block.payload.function.eq(job.function),
            self.block.payload.addr.eq(addr),
            self.block.payload.length.eq(2),
            self.o.payload.eq(result),
        ]

        packed = is_packed(self._config, job.rules)
        # Known a cycle after the job.
        flags_at, wrap = Signal(OFFSET_BITS, reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            flags_at.eq(flags_offset(job.position, job.size_log2)),
            wrap.eq(wrap_counter(job.position, job.size_log2)),
        ]
        event_at = Mux(packed, 0, avail_event(job.size_log2))
        beat = self.write_client.beat.payload
        m.d.comb += [
            beat.stream_id.eq(self._stream_id),
            beat.function.eq(job.function),
            beat.addr.eq(addr),
            beat.data.eq(Mux(packed, asked_event(job.position, job.size_log2), job.position)),
            beat.keep.eq(Cat(Const(0b11, 2), packed, packed)),
            beat.first.eq(1),
            beat.last.eq(1),
        ]

        def answer(status: FetchStatus, cause: QueueErrorCause = QueueErrorCause.NONE) -> None:
            m.d.sync += [result.status.eq(status), result.cause.eq(cause)]
            m.next = "ANSWER"

        with m.FSM(name="state"):
            # IDLE: takes a job; ends with it.
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [job.eq(self.i.payload), announced.eq(0)]
                add_low(m, addr, carry, self.i.payload.driver, index_offset)
                with m.If(self.i.valid):
                    m.next = "ADDRESS"
                    with m.If(is_packed(self._config, self.i.payload.rules)):
                        m.next = "FLAGS"
            # FLAGS: works out where the flags of the descriptor are; one cycle.
            with m.State("FLAGS"):
                m.next = "PLACE"
            # PLACE: adds that to the address of the ring; one cycle.
            with m.State("PLACE"):
                with m.If(packed):
                    add_low(m, addr, carry, job.driver, flags_at)
                m.next = "ADDRESS"
            # ADDRESS: adds the carry to the address; one cycle.
            with m.State("ADDRESS"):
                add_high(m, addr, carry)
                m.d.sync += event_offset.eq(event_at)
                m.next = "READ"
            # READ: asks for the index, or the flags; ends when that is taken.
            with m.State("READ"):
                m.d.comb += self.block.valid.eq(1)
                with m.If(self.block.ready):
                    m.next = "WAIT"
            # WAIT: waits for them; ends when they come.
            with m.State("WAIT"):
                m.d.comb += self.block_data.ready.eq(1)
                with m.If(self.block_data.valid):
                    index = self.block_data.payload.data[:16]
                    m.d.sync += [result.available.eq(index), ahead.eq(index - job.position)]
                    there = available(index, wrap)
                    with m.If(packed):
                        m.d.sync += [result.available.eq(job.position + there), ahead.eq(there)]
                    with m.If(self.block_data.payload.error):
                        m.d.sync += result.available.eq(job.position)
                        answer(FetchStatus.QUEUE_ERROR, QueueErrorCause.HOST_READ)
                    with m.Else():
                        m.next = "CHECK"
            # CHECK: answers, or asks for a notification first; one cycle.
            with m.State("CHECK"):
                with m.If(ahead > size):
                    m.d.sync += result.available.eq(job.position)
                    answer(FetchStatus.QUEUE_ERROR, QueueErrorCause.AVAIL_INDEX)
                with m.Elif(ahead != 0):
                    answer(FetchStatus.OK)
                with m.Elif(job.rules.event_idx & ~announced):
                    add_low(m, addr, carry, job.device, event_offset)
                    m.next = "EVENT"
                with m.Else():
                    answer(FetchStatus.EMPTY)
            # EVENT: adds the carry to the address of ``avail_event``; one cycle.
            with m.State("EVENT"):
                add_high(m, addr, carry)
                m.next = "ANNOUNCE"
            # ANNOUNCE: writes it; ends when that is taken, and then the index is read once more.
            with m.State("ANNOUNCE"):
                m.d.comb += self.write_client.beat.valid.eq(1)
                with m.If(self.write_client.beat.ready):
                    m.d.sync += announced.eq(1)
                    add_low(m, addr, carry, job.driver, index_offset)
                    m.next = "ADDRESS"
                    with m.If(packed):
                        m.next = "FLAGS"
            # ANSWER: answers; ends when that is taken.
            with m.State("ANSWER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m
