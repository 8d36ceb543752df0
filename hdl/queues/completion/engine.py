"""Completions: buffers back to their rings, CQEs into completion queues, interrupts."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_rdma import ARM_SEEN_BITS, CQE
from hdl.common.contract import require
from hdl.common.count import COUNT, increment
from hdl.common.skid import Stage
from hdl.common.streams import connect_stream
from hdl.common.tables import TableProgram, TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient, write_beat
from hdl.ports.jobs import Completion, DropQueue, Interrupt, QueueError, QueueErrorCause
from hdl.ports.numbers import CqNumber, QpNumber, card_number, ordinal_of
from hdl.ports.rows import CqRow, QueueRow

from ..ring.read import ReadShare
from ..ring.runs import UsedRuns
from ..ring.types import NO_VECTOR, UsedRing
from ..ring.used import UsedWriter
from ..ring.walker import Walker
from .arming import Arming, ArmRequest
from .buffers import WAITING, CqBuffers
from .cqe import CqeWriter
from .rows import CompletionJob
from .tables import CompletionTables

__all__ = ["CompletionEngine", "ArmCq", "CqError"]

#: Host reads in flight.
READS = 128
SOLICITED, NEXT = 1, 2


class ArmCq(data.Struct):
    """REQ_NOTIFY_CQ (VR-3.34): ``flags`` solicited 1, next 2; added to what was asked before."""

    cq: CqNumber
    flags: 2


class CqError(data.Struct):
    """A CQE of QP ``qp`` was lost: the CQ has no buffer for it, or is in error since then."""

    cq: CqNumber
    qp: QpNumber


class _Work(data.Struct):
    """The completion at hand."""

    job: CompletionJob
    ring: UsedRing  # where a buffer goes back


class _Acts:
    """What happens in this cycle, a signal of its own each: some depend on others."""

    def __init__(self):
        self.begun = Signal()  # the completion is here for its first cycle
        self.second = Signal()  # the buffer that goes back is the CQE's, not the WQE's
        self.finished = Signal()  # the completion is done with
        self.writing_cqe = Signal()  # who has the write client: the CQE,
        self.writing_used = Signal()  # or a used element by itself; else those collected
        self.pending = Signal()  # something that was written has not left
        self.reported = Signal()  # errors before this one have been taken
        self.telling = Signal()  # an interrupt for completions that the driver has not seen


class CompletionEngine(wiring.Component):
    """Carries out completions, one after the other, in the order in which they came.

    For each: (a) with ``ring`` a used element {head, 0} and the used index of its queue; (b) with
    ``emit`` the CQE over the CQ's next buffer, its used element {head, 38}, the used index; (c) the
    interrupt when the CQ is armed for it. All writes leave by ``write_client``, on STREAM_DATA.
    Used elements are collected while more completions wait (UsedRuns): up to 8 of a queue leave in
    one burst, with one index. An element never goes before the CQE it is about, nor an index before
    its elements, nor the index of a CQ before that of the queue whose WQE its CQE tells of.

    Spec: Virtio 1.2, 2.7.7, 2.7.8, 2.8.6; virtio-rdma VR-3.34, VR-4.8 to VR-4.13.
    Members: ``i``; ``arm``; ``request``: the same by a doorbell, in order with completions, and
    only if the driver has seen all of them, else it is told at once; ``interrupt`` (given out
    behind the writes it is about); ``cq_error`` one row per lost CQE; ``error`` broken rings;
    ``queue_read``; ``queue_reset`` taken when nothing is under way, sets the used index of the
    queue to 0 (not with ``keep_index``) and forgets ring entries; ``cq_program`` and
    ``used_program``, the firmware's windows on the CQ rows and the used indices (``available`` of a
    CQ becomes ``position``); ``idle``; counters ``completions`` (CQEs written), ``overflows`` (CQEs
    lost), ``interrupts``.
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
                "request": In(stream.Signature(ArmRequest)),
                "interrupt": Out(stream.Signature(Interrupt)),
                "cq_error": Out(stream.Signature(CqError)),
                "error": Out(stream.Signature(QueueError)),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(DropQueue)),
                "cq_program": In(TableProgram(CqNumber, CqRow)),
                "used_program": In(TableProgram(16, 16)),
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
        self._connect(m)
        buffers, cqe = m.submodules.buffers, m.submodules.cqe
        runs, used, tables = m.submodules.runs, m.submodules.used, m.submodules.tables
        work, acts = Signal(_Work, reset_less=True), _Acts()
        broken, broken_valid = Signal(QueueError, reset_less=True), Signal()
        lost, lost_valid = Signal(CqError, reset_less=True), Signal()
        self._write(m, acts)
        self._describe(m, work, acts)
        m.d.comb += [
            self.cq_error.valid.eq(lost_valid),
            self.cq_error.payload.eq(lost),
            self.error.valid.eq(broken_valid),
            self.error.payload.eq(broken),
            acts.reported.eq(~lost_valid & ~broken_valid),
        ]
        with m.If(self.cq_error.ready):
            m.d.sync += lost_valid.eq(0)
        with m.If(self.error.ready):
            m.d.sync += broken_valid.eq(0)

        under_way = Signal(range(WAITING + 4))  # completions inside, or just gone
        gone, nothing, quiet = Signal(), Signal(), Signal()
        m.d.sync += [
            gone.eq(acts.finished),
            under_way.eq(under_way + (buffers.i.valid & buffers.i.ready) - gone),
            # While a reset waits nothing is taken, so there still is nothing.
            quiet.eq(self.queue_reset.valid & nothing & ~buffers.ahead),
        ]
        require(m, platform, ~gone | (under_way != 0), "no completion ends that has not come")
        owners = acts.writing_cqe & acts.writing_used
        require(m, platform, ~owners, "one at a time has the write client")
        m.d.comb += nothing.eq((under_way == 0) & ~acts.pending & ~lost_valid & ~broken_valid)
        with m.FSM(name="state") as fsm:
            # CLEAR: clears the tables; ends with their last row.
            with m.State("CLEAR"):
                m.d.comb += tables.clear.eq(1)
                with m.If(tables.last):
                    m.next = "IDLE"
            self._begin(m, work, acts, quiet)
            self._request(m, work, acts)
            self._return(m, work, acts)
            # CQE: writes the CQE, and reads where its buffer goes back; ends when it is written, or
            # lost.
            with m.State("CQE"):
                self._cqe(m, work, acts)
                with m.If(work.job.lost):
                    m.d.sync += broken.cause.eq(work.job.cause)
                    m.next = "LOST"
                with m.Elif(cqe.done):
                    m.d.sync += [acts.second.eq(1), broken.cause.eq(cqe.cause)]
                    m.next = "RETURN"
                    with m.If(cqe.cause != QueueErrorCause.NONE):
                        m.next = "LOST"
            # LOST: the CQ is in error from now on; one cycle.
            with m.State("LOST"):
                m.d.comb += [buffers.fault.eq(1), acts.finished.eq(1)]
                m.d.sync += [
                    lost_valid.eq(1),
                    lost.cq.eq(work.job.completion.cq),
                    lost.qp.eq(self._pair(work.job.completion)),
                    broken_valid.eq(broken.cause != QueueErrorCause.NONE),
                    broken.queue.eq(work.job.cq_ring.queue),
                ]
                increment(m, self.overflows)
                m.next = "IDLE"
        m.d.sync += self.idle.eq(
            fsm.ongoing("IDLE") & nothing & ~(buffers.i.valid & buffers.i.ready) & ~self.arm.valid
        )
        with m.If((used.done & used.raised) | (acts.telling & self.interrupt.ready)):
            increment(m, self.interrupts)
        m.d.comb += acts.pending.eq(runs.pending | m.submodules.output.o.valid)
        return m

    def _connect(self, m: Module) -> None:
        """The parts, and the way of each to the host."""
        config = self._config
        m.submodules.buffers = buffers = CqBuffers(config=config)
        m.submodules.arming = arming = Arming(config=config)
        m.submodules.share = share = ReadShare(width=config.width, clients=5, depth=READS)
        m.submodules.cqe = cqe = CqeWriter(config=config)
        m.submodules.runs = UsedRuns(config=config)
        m.submodules.used = used = UsedWriter(config=config)
        m.submodules.tables = tables = CompletionTables(config=config)
        m.submodules.walker = walker = Walker(config=config)
        connect(m, share.read_client, flipped(self.read_client))
        for k in range(3):
            connect(m, getattr(buffers, f"read_client{k}"), getattr(share, f"client{k}"))
        connect(m, used.read_client, share.client3)
        connect(m, walker.read_client, share.client4)
        for one, other in (
            (flipped(self.i), arming.i),
            (flipped(self.request), arming.request),
            (arming.o, buffers.i),
            (buffers.queue_read, flipped(self.queue_read)),
            (buffers.chain, walker.i),
            (walker.o, cqe.segment),
            (flipped(self.used_program), tables.used_program),
            (flipped(self.cq_program), tables.cq_program),
            (tables.buffers, buffers.program),
        ):
            connect(m, one, other)
        m.d.comb += [
            buffers.arms.eq(arming.arms),
            buffers.hold.eq(self.queue_reset.valid | ~tables.cleared),
            tables.hold.eq(buffers.fault),
            used.count.eq(1),
        ]

    def _write(self, m: Module, acts: _Acts) -> None:
        """One write client, a burst at a time. What stands in the register is not with the write
        engine yet: nobody may be notified of it."""
        cqe, runs, used = m.submodules.cqe, m.submodules.runs, m.submodules.used
        m.submodules.output = output = Stage(shape=write_beat(self._config.width))
        connect(m, output.o, flipped(self.write_client.beat))
        m.d.comb += used.accepted.eq(~output.o.valid)
        with m.If(acts.writing_cqe):
            connect_stream(m, cqe.write_client.beat, output.i)
        with m.Elif(acts.writing_used):
            connect_stream(m, used.write_client.beat, output.i)
        with m.Else():
            connect_stream(m, runs.write_client.beat, output.i)

    def _describe(self, m: Module, work: Signal, acts: _Acts) -> None:
        """The completion at hand, for those who write it."""
        buffers, cqe, tables = m.submodules.buffers, m.submodules.cqe, m.submodules.tables
        runs, used = m.submodules.runs, m.submodules.used
        job, ring, completion = work.job, work.ring, work.job.completion
        m.d.comb += [
            cqe.completion.eq(completion),
            cqe.start.eq(acts.begun & job.write),
            cqe.odd.eq(job.odd),
            cqe.addr.eq(job.addr),
            runs.i.payload.cq.eq(acts.second),
            runs.i.payload.function.eq(completion.function),
            runs.i.payload.ring.eq(ring),
            runs.i.payload.index.eq(tables.used_index),
            runs.i.payload.head.eq(Mux(acts.second, job.head, completion.head)),
            used.i.payload.function.eq(completion.function),
            used.i.payload.ring.eq(ring),
            used.i.payload.index.eq(tables.used_index),
            used.i.payload.head.eq(runs.i.payload.head),
            used.i.payload.length.eq(Mux(acts.second, CQE.size, 0)),
            used.i.payload.notify.eq(1),
            used.i.payload.sure.eq(acts.second),
            buffers.fault_cq.eq(completion.cq),
            tables.counted.eq(ring.queue),
            tables.reset_queue.eq(self.queue_reset.payload.queue),
            tables.arm_cq.eq(completion.cq),
        ]

    def _notifies(self, m: Module, work: Signal, acts: _Acts) -> Value:
        """Whether an interrupt goes with the buffer."""
        asked, completion, wanted = m.submodules.tables.armed, work.job.completion, Signal()
        m.d.comb += wanted.eq(
            ((asked & NEXT) != 0)
            | (((asked & SOLICITED) != 0) & (completion.solicited | (completion.status != 0)))
        )
        return (work.ring.vector != NO_VECTOR) & (~acts.second | wanted)

    def _begin(self, m: Module, work: Signal, acts: _Acts, quiet: Signal) -> None:
        """The next completion, or what else is to be done between two."""
        buffers, runs, tables = m.submodules.buffers, m.submodules.runs, m.submodules.tables
        next_job = buffers.o.payload
        # IDLE: takes the next completion; ends with it, or with a CQ that is to be armed. A queue
        # is reset here.
        with m.State("IDLE"):
            m.d.sync += [
                work.job.eq(next_job),
                acts.second.eq(0),
                acts.begun.eq(0),
                work.ring.eq(next_job.wqe_ring),
            ]
            m.d.comb += [
                tables.queue.eq(buffers.queue),
                tables.look.eq(1),
                tables.cq.eq(self.arm.payload.cq),
                tables.look_armed.eq(1),
            ]
            # A CQ is armed when all its indices are written: whoever armed it looks once more.
            with m.If(self.arm.valid & ~acts.pending):
                m.next = "ARM"
            with m.Elif(~self.arm.valid & buffers.o.valid & acts.reported):
                m.d.comb += buffers.o.ready.eq(1)
                m.d.sync += acts.begun.eq(1)
                with m.If(next_job.arms & next_job.ring):
                    m.next = "REQUEST"
                with m.Elif(next_job.ring):
                    m.next = "RETURN"
                with m.Elif(next_job.emit):
                    m.next = "CQE"
                with m.Else():
                    m.d.comb += acts.finished.eq(1)
            with m.Else():
                m.d.comb += runs.flush.eq(self.arm.valid | buffers.o.valid | ~buffers.soon)
            with m.If(self.queue_reset.valid & quiet):
                m.d.comb += [
                    tables.count.eq(~self.queue_reset.payload.keep_index),
                    tables.reset.eq(1),
                    buffers.flush.eq(1),
                    self.queue_reset.ready.eq(1),
                ]
        # ARM: adds what the CQ is armed for; one cycle.
        with m.State("ARM"):
            m.d.comb += [
                tables.arm.eq(1),
                tables.arm_cq.eq(self.arm.payload.cq),
                tables.arm_flags.eq(tables.armed | self.arm.payload.flags),
                self.arm.ready.eq(1),
            ]
            m.next = "IDLE"

    def _request(self, m: Module, work: Signal, acts: _Acts) -> None:
        """A doorbell asks for an interrupt of a CQ. Its used index has been looked up."""
        runs, used, tables = m.submodules.runs, m.submodules.used, m.submodules.tables
        request, vector = work.job.completion, work.ring.vector
        seen, ours = request.head[:ARM_SEEN_BITS], tables.used_index[:ARM_SEEN_BITS]
        # By threes, as the index comes straight from a block RAM.
        asked, unseen = Signal(2), Signal(ARM_SEEN_BITS // 3, reset_less=True)
        # The stream of interrupts settles late, so this is known before.
        has_vector = Signal(reset_less=True)
        m.d.comb += [
            asked.eq(Mux(request.solicited, SOLICITED, NEXT)),
            self.interrupt.valid.eq(used.interrupt.valid | acts.telling),
            self.interrupt.payload.eq(used.interrupt.payload),
            used.interrupt.ready.eq(self.interrupt.ready),
        ]
        # REQUEST: waits until all indices are written, as an interrupt may be about them, and looks
        # up what the CQ is armed for; ends with what is to be done.
        with m.State("REQUEST"):
            m.d.sync += [
                acts.begun.eq(0),
                has_vector.eq(vector != NO_VECTOR),
                *(one.eq(seen[3 * n :][:3] != ours[3 * n :][:3]) for n, one in enumerate(unseen)),
            ]
            m.d.comb += [
                runs.flush.eq(1),
                tables.cq.eq(request.cq),
                tables.look_armed.eq(1),
            ]
            with m.If(~acts.pending & ~acts.begun):
                m.next = "ADD"
                with m.If(unseen.any()):
                    m.next = "TELL"
        # ADD: adds what the CQ is armed for; one cycle.
        with m.State("ADD"):
            m.d.comb += [
                tables.arm.eq(1),
                tables.arm_flags.eq(tables.armed | asked),
                acts.finished.eq(1),
            ]
            m.next = "IDLE"
        # TELL: gives the interrupt out, if the CQ has one; ends when it is taken.
        with m.State("TELL"):
            m.d.comb += [
                acts.telling.eq(has_vector),
                self.interrupt.payload.function.eq(request.function),
                self.interrupt.payload.vector.eq(vector),
            ]
            with m.If(self.interrupt.ready | ~acts.telling):
                m.d.comb += acts.finished.eq(1)
                m.next = "IDLE"

    def _return(self, m: Module, work: Signal, acts: _Acts) -> None:
        """A buffer goes back to its ring: the WQE's, or at last the CQE's."""
        runs, used, tables = m.submodules.runs, m.submodules.used, m.submodules.tables

        def returned() -> None:
            with m.If(acts.second):
                increment(m, self.completions)
            with m.If(~acts.second & work.job.completion.emit):
                m.next = "CQE"
            with m.Else():
                m.d.comb += acts.finished.eq(1)
                m.next = "IDLE"

        # RETURN: hands the used element over, to those that are collected or by itself, with an
        # interrupt; ends when it is taken.
        with m.State("RETURN"):
            m.d.sync += acts.begun.eq(0)
            with m.If(self._notifies(m, work, acts)):
                # Its index is written before the interrupt, those collected before it.
                m.d.comb += [
                    runs.flush.eq(1),
                    acts.writing_used.eq(~runs.pending),
                    used.i.valid.eq(~runs.pending),
                    tables.count.eq(used.i.valid & used.i.ready),
                ]
                with m.If(tables.count):
                    m.next = "RETURNED"
            with m.Else():
                m.d.comb += [runs.i.valid.eq(1), tables.count.eq(runs.i.ready)]
                with m.If(runs.i.ready):
                    returned()
        # RETURNED: waits until the element is written, and the interrupt on its way; ends then.
        with m.State("RETURNED"):
            m.d.comb += acts.writing_used.eq(1)
            with m.If(used.done):
                with m.If(acts.second & used.raised):
                    # One shot.
                    m.d.comb += tables.arm.eq(1)
                returned()

    def _pair(self, completion) -> Value:
        """The card's number of the QP that the completion is of."""
        owner = ordinal_of(self._config, completion.function)
        return card_number(self._config, "qps", owner, completion.qp_num)

    def _cqe(self, m: Module, work: Signal, acts: _Acts) -> None:
        """The CQE is being written."""
        tables, ring = m.submodules.tables, work.job.cq_ring
        m.d.comb += [
            acts.writing_cqe.eq(~m.submodules.runs.busy),
            tables.cq.eq(work.job.completion.cq),
            tables.look_armed.eq(1),
            tables.queue.eq(ring.queue),
            tables.look.eq(1),
        ]
        m.d.sync += acts.begun.eq(0)
        m.d.sync += [
            getattr(work.ring, name).eq(getattr(ring, name))
            for name in ("queue", "size_log2", "rules", "device", "vector")
        ]
