"""Completions: buffers back to their rings, CQEs into completion queues, interrupts."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.abi.virtio_rdma import CQE
from hdl.common.count import COUNT, increment
from hdl.common.ram import Ram
from hdl.common.skid import Stage
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient, write_beat
from hdl.ports.jobs import Completion, DropQueue, Interrupt, QueueError, QueueErrorCause
from hdl.ports.rows import CqRow, QueueRow
from hdl.ports.tables import TableProgram, TableRead

from .buffer_rows import CompletionJob
from .buffers import WAITING, CqBuffers
from .cqe import CqeWriter
from .read import ReadShare
from .runs import UsedRuns
from .types import NO_VECTOR, UsedRing
from .used import UsedWriter
from .walker import Walker

__all__ = ["CompletionEngine", "ArmCq", "CqError"]

#: Host reads in flight.
READS = 128
SOLICITED, NEXT = 1, 2


class ArmCq(data.Struct):
    """REQ_NOTIFY_CQ (VR-3.34): ``flags`` solicited 1, next 2; added to what was asked before."""

    cq: 14
    flags: 2


class CqError(data.Struct):
    """A CQE of QP ``qp`` was lost: the CQ has no buffer for it, or is in error since then."""

    cq: 14
    qp: 24


class CompletionEngine(wiring.Component):
    """Carries out completions, one after the other, in the order in which they came.

    For each: (a) with ``ring`` a used element {head, 0} and the used index of its queue; (b) with
    ``emit`` the CQE over the CQ's next buffer, its used element {head, 38}, the used index; (c) the
    interrupt when the CQ is armed for it. All writes leave by ``write_client``, on STREAM_DATA.
    Used elements are collected while more completions wait (UsedRuns): up to 8 of a queue leave in
    one burst, with one index. An element never goes before the CQE it is about, nor an index before
    its elements, nor the index of a CQ before that of the queue whose WQE its CQE tells of.

    Spec: Virtio 1.2, 2.7.7, 2.7.8; virtio-rdma VR-3.34, VR-4.8 to VR-4.13.
    Members: ``i``; ``arm``; ``interrupt`` (given out behind the writes it is about); ``cq_error``
    one row per lost CQE; ``error`` broken rings; ``queue_read``; ``queue_reset`` taken when
    nothing is under way, sets the used index of the queue to 0 (not with ``keep_index``) and
    forgets ring entries; ``cq_program`` and ``used_program``, the firmware's windows on the CQ rows
    and the used indices (``available`` of a CQ becomes ``position``); ``idle``; counters
    ``completions`` (CQEs written), ``overflows`` (CQEs lost), ``interrupts``.
    The buffers of up to 64 CQEs are looked up ahead (CqBuffers), those of chains by a Walker,
    one after the other. A queue that is not enabled gets nothing.
    Queue interrupts: for a CQ armed with NEXT, or SOLICITED and the completion solicited or in
    error, once per arming, whatever the ring's flag or used_event says (VR-3.34: arming decides);
    for SQ and RQ whenever the queue has a vector, subject to NO_INTERRUPT or used_event. Such an
    element is not collected. Latency and throughput: docs/queues.md. Errors: CQ without a buffer:
    its ``error`` is set, this and later CQEs are lost (VR-4.11); a broken CQ ring likewise, with a
    QueueError. The WQE's buffer goes back all the same. Reset: CQ rows and used indices are
    cleared, one a cycle; nothing is accepted meanwhile.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(Completion)),
                "arm": In(stream.Signature(ArmCq)),
                "interrupt": Out(stream.Signature(Interrupt)),
                "cq_error": Out(stream.Signature(CqError)),
                "error": Out(stream.Signature(QueueError)),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(DropQueue)),
                "cq_program": In(TableProgram(14, CqRow)),
                "used_program": In(TableProgram(16, 16)),
                "event_idx": In(1),
                "indirect": In(1),
                "idle": Out(1),
                "completions": Out(COUNT),
                "overflows": Out(COUNT),
                "interrupts": Out(COUNT),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        cq_bits, used_bits = max(1, ceil_log2(config.cqs)), ceil_log2(config.queues)
        m.submodules.buffers = buffers = CqBuffers(config=config)
        m.submodules.share = share = ReadShare(width=config.width, clients=5, depth=READS)
        m.submodules.cqe = cqe = CqeWriter(config=config)
        m.submodules.runs = runs = UsedRuns(config=config)
        m.submodules.used = used = UsedWriter(config=config)
        m.submodules.indices = indices = Ram(shape=16, depth=config.queues, reads=2)
        m.submodules.armed = armed = Ram(shape=2, depth=config.cqs, reads=2)
        connect(m, share.read_client, flipped(self.read_client))
        for k in range(3):
            connect(m, getattr(buffers, f"read_client{k}"), getattr(share, f"client{k}"))
        connect(m, used.read_client, share.client3)
        connect(m, flipped(self.i), buffers.i)
        connect(m, buffers.queue_read, flipped(self.queue_read))
        connect(m, used.interrupt, flipped(self.interrupt))
        m.submodules.walker = walker = Walker(config=config)
        connect(m, walker.read_client, share.client4)
        connect(m, buffers.chain, walker.i)
        connect(m, walker.o, cqe.segment)
        m.d.comb += walker.indirect.eq(self.indirect)

        # One write client, a burst at a time. What stands in the register is not with the write
        # engine yet: nobody may be told of it.
        m.submodules.output = output = Stage(shape=write_beat(config.width))
        connect(m, output.o, flipped(self.write_client.beat))
        writing_cqe, writing_used, pending = Signal(), Signal(), Signal()
        m.d.comb += [
            used.accepted.eq(~output.o.valid),
            pending.eq(runs.pending | output.o.valid),
        ]
        with m.If(writing_cqe):
            connect_stream(m, cqe.write_client.beat, output.i)
        with m.Elif(writing_used):
            connect_stream(m, used.write_client.beat, output.i)
        with m.Else():
            connect_stream(m, runs.write_client.beat, output.i)

        job, next_job = Signal(CompletionJob, reset_less=True), buffers.o.payload
        completion = job.completion
        second = Signal()  # the CQ's ring, not the WQE's
        begun = Signal()  # the job is here for its first cycle
        ring = Signal(UsedRing, reset_less=True)
        asked = armed.read0.row
        wanted, notify = Signal(), Signal()
        m.d.comb += [
            cqe.completion.eq(completion),
            cqe.start.eq(begun & job.write),
            cqe.odd.eq(job.odd),
            cqe.addr.eq(job.addr),
            runs.i.payload.cq.eq(second),
            runs.i.payload.function.eq(completion.function),
            runs.i.payload.ring.eq(ring),
            runs.i.payload.index.eq(indices.read0.row),
            runs.i.payload.head.eq(Mux(second, job.head, completion.head)),
            used.event_idx.eq(self.event_idx),
            used.i.payload.function.eq(completion.function),
            used.i.payload.ring.eq(ring),
            used.i.payload.index.eq(indices.read0.row),
            used.i.payload.head.eq(runs.i.payload.head),
            used.i.payload.length.eq(Mux(second, CQE.size, 0)),
            used.i.payload.notify.eq(1),
            used.i.payload.sure.eq(second),
            wanted.eq(
                ((asked & NEXT) != 0)
                | (((asked & SOLICITED) != 0) & (completion.solicited | (completion.status != 0)))
            ),
            notify.eq((ring.vector != NO_VECTOR) & (~second | wanted)),
        ]

        lost, lost_valid = Signal(CqError, reset_less=True), Signal()
        broken, broken_valid = Signal(QueueError, reset_less=True), Signal()
        m.d.comb += [
            self.cq_error.valid.eq(lost_valid),
            self.cq_error.payload.eq(lost),
            self.error.valid.eq(broken_valid),
            self.error.payload.eq(broken),
            buffers.fault_cq.eq(completion.cq),
        ]
        with m.If(self.cq_error.ready):
            m.d.sync += lost_valid.eq(0)
        with m.If(self.error.ready):
            m.d.sync += broken_valid.eq(0)
        reported = ~lost_valid & ~broken_valid

        clear = Signal(range(config.queues))
        under_way = Signal(range(WAITING + 4))  # completions inside, or just gone
        finished, gone, nothing = Signal(), Signal(), Signal()
        m.d.sync += [
            gone.eq(finished),
            under_way.eq(under_way + (self.i.valid & self.i.ready) - gone),
        ]
        # What is to be written into the tables, and a cycle later, when it is.
        index_next, reset, index_write = Signal(), Signal(), Signal()
        index_place, index_row = Signal(used_bits, reset_less=True), Signal(16, reset_less=True)
        index_reset = Signal(reset_less=True)
        arm_next, arm_row_next, arm_place_next = Signal(), Signal(2), Signal(cq_bits)
        arm_write = Signal()
        arm_row, arm_place = Signal(2, reset_less=True), Signal(cq_bits, reset_less=True)
        cleared = Signal()
        resetting, quiet = Signal(), Signal()
        m.d.comb += [
            resetting.eq(self.queue_reset.valid),
            buffers.hold.eq(resetting | ~cleared),
            arm_place_next.eq(completion.cq),
            nothing.eq((under_way == 0) & ~pending & ~lost_valid & ~broken_valid),
        ]
        m.d.sync += [
            index_write.eq(index_next),
            index_place.eq(Mux(reset, self.queue_reset.payload.queue, ring.queue)),
            index_row.eq(indices.read0.row),
            index_reset.eq(reset),
            arm_write.eq(arm_next),
            arm_row.eq(arm_row_next),
            arm_place.eq(arm_place_next),
            # While a reset waits nothing is taken, so there still is nothing.
            quiet.eq(resetting & nothing),
        ]

        def returned() -> None:
            """A buffer is back in its ring: the WQE's, or at last the CQE's."""
            with m.If(second):
                increment(m, self.completions)
            with m.If(~second & completion.emit):
                m.next = "CQE"
            with m.Else():
                m.d.comb += finished.eq(1)
                m.next = "IDLE"

        with m.FSM(name="state") as fsm:
            with m.State("CLEAR"):
                m.d.sync += [clear.eq(clear + 1), cleared.eq(clear == config.queues - 1)]
                with m.If(clear == config.queues - 1):
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.sync += [job.eq(next_job), second.eq(0), begun.eq(0)]
                m.d.sync += ring.eq(next_job.wqe_ring)
                m.d.comb += [
                    indices.read0.index.eq(buffers.queue),
                    indices.read0.enable.eq(1),
                    armed.read0.index.eq(self.arm.payload.cq),
                    armed.read0.enable.eq(1),
                ]
                # A CQ is armed when all its indices are written: whoever armed it looks once more.
                with m.If(self.arm.valid & ~pending):
                    m.next = "ARM"
                with m.Elif(~self.arm.valid & buffers.o.valid & reported):
                    m.d.comb += buffers.o.ready.eq(1)
                    m.d.sync += begun.eq(1)
                    with m.If(next_job.ring):
                        m.next = "RETURN"
                    with m.Elif(next_job.emit):
                        m.next = "CQE"
                    with m.Else():
                        m.d.comb += finished.eq(1)
                with m.Else():
                    m.d.comb += runs.flush.eq(self.arm.valid | buffers.o.valid | ~buffers.soon)
                with m.If(resetting & quiet):
                    m.d.comb += [
                        index_next.eq(~self.queue_reset.payload.keep_index),
                        reset.eq(1),
                        buffers.flush.eq(1),
                        self.queue_reset.ready.eq(1),
                    ]
            with m.State("ARM"):
                m.d.comb += [
                    arm_next.eq(1),
                    arm_place_next.eq(self.arm.payload.cq),
                    arm_row_next.eq(asked | self.arm.payload.flags),
                    self.arm.ready.eq(1),
                ]
                m.next = "IDLE"
            with m.State("RETURN"):
                m.d.sync += begun.eq(0)
                with m.If(notify):
                    # Its index is written before the interrupt, those collected before it.
                    m.d.comb += [
                        runs.flush.eq(1),
                        writing_used.eq(~runs.pending),
                        used.i.valid.eq(~runs.pending),
                        index_next.eq(used.i.valid & used.i.ready),
                    ]
                    with m.If(index_next):
                        m.next = "RETURNED"
                with m.Else():
                    m.d.comb += [runs.i.valid.eq(1), index_next.eq(runs.i.ready)]
                    with m.If(runs.i.ready):
                        returned()
            with m.State("RETURNED"):
                m.d.comb += writing_used.eq(1)
                with m.If(used.done):
                    with m.If(second & used.raised):
                        # One shot.
                        m.d.comb += arm_next.eq(1)
                    returned()
            with m.State("CQE"):
                m.d.comb += [
                    writing_cqe.eq(~runs.busy),
                    armed.read0.index.eq(completion.cq[:cq_bits]),
                    armed.read0.enable.eq(1),
                    indices.read0.index.eq(job.cq_ring.queue),
                    indices.read0.enable.eq(1),
                ]
                m.d.sync += begun.eq(0)
                m.d.sync += [
                    getattr(ring, name).eq(getattr(job.cq_ring, name))
                    for name in ("queue", "size_log2", "device", "vector")
                ]
                with m.If(job.lost):
                    m.d.sync += broken.cause.eq(job.cause)
                    m.next = "LOST"
                with m.Elif(cqe.done):
                    m.d.sync += [second.eq(1), broken.cause.eq(cqe.cause)]
                    m.next = "RETURN"
                    with m.If(cqe.cause != QueueErrorCause.NONE):
                        m.next = "LOST"
            with m.State("LOST"):
                m.d.comb += [buffers.fault.eq(1), finished.eq(1)]
                m.d.sync += [
                    lost_valid.eq(1),
                    lost.cq.eq(completion.cq),
                    lost.qp.eq(completion.qp_num),
                    broken_valid.eq(broken.cause != QueueErrorCause.NONE),
                    broken.queue.eq(job.cq_ring.queue),
                ]
                increment(m, self.overflows)
                m.next = "IDLE"
        m.d.sync += self.idle.eq(
            fsm.ongoing("IDLE") & nothing & ~(self.i.valid & self.i.ready) & ~self.arm.valid
        )
        with m.If(used.done & used.raised):
            increment(m, self.interrupts)

        # The firmware's windows: its writes wait for a cycle without one of ours.
        program, window = self.used_program, self.cq_program
        index_read, buffers_window = Signal(), buffers.program
        m.d.sync += index_read.eq(program.read & ~index_read)
        m.d.comb += [
            indices.read1.index.eq(program.index[:used_bits]),
            indices.read1.enable.eq(program.read),
            program.read_row.eq(indices.read1.row),
            program.done.eq(index_read | (program.write & cleared & ~index_write)),
            indices.write.enable.eq(~cleared | index_write | program.write),
            armed.read1.index.eq(window.index[:cq_bits]),
            armed.read1.enable.eq(window.read),
            buffers_window.index.eq(window.index),
            buffers_window.row.eq(window.row),
            buffers_window.read.eq(window.read),
            buffers_window.write.eq(window.write & cleared & ~arm_write & ~buffers.fault),
            window.done.eq(buffers_window.done),
            armed.write.enable.eq(~cleared | arm_write | (window.write & window.done)),
        ]
        read_row = Signal(CqRow)
        m.d.comb += [
            read_row.position.eq(buffers_window.read_row.position),
            read_row.available.eq(buffers_window.read_row.available),
            read_row.error.eq(buffers_window.read_row.error),
            read_row.armed.eq(armed.read1.row),
            window.read_row.eq(read_row),
        ]
        with m.If(~cleared):
            m.d.comb += [indices.write.index.eq(clear), armed.write.index.eq(clear)]
        with m.Else():
            m.d.comb += [
                indices.write.index.eq(Mux(index_write, index_place, program.index[:used_bits])),
                indices.write.row.eq(
                    Mux(index_write, Mux(index_reset, 0, index_row + 1), program.row)
                ),
                armed.write.index.eq(Mux(arm_write, arm_place, window.index[:cq_bits])),
                armed.write.row.eq(Mux(arm_write, arm_row, window.row.armed)),
            ]
        return m


def connect_stream(m: Module, source, sink) -> None:
    """Join two streams under the condition that holds where this is called."""
    m.d.comb += [
        sink.payload.eq(source.payload),
        sink.valid.eq(source.valid),
        source.ready.eq(sink.ready),
    ]
