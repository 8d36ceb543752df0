"""Where the next CQE of each completion queue goes."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import Completion, FetchStatus, QueueErrorCause
from hdl.ports.rows import CqRow, QueueRow
from hdl.ports.tables import TableProgram, TableRead

from .ring import AvailRing
from .types import ChainJob, RingResult, UsedRing

__all__ = ["CqBuffers", "CompletionJob", "MAX_CHAIN"]

#: Bytes of the longest chain that is taken for a completion buffer.
MAX_CHAIN = 65536


class CompletionJob(data.Struct):
    """A completion and where it goes.

    ``ring``: the WQE's buffer goes back to ``wqe_ring``. ``write``: a CQE goes to the chain
    ``head`` of ``cq_ring``, whose segments a lane delivers. Neither, with ``emit``: the CQE is
    ``lost``; ``cause``, if any, is what is wrong with the CQ's ring."""

    completion: Completion
    ring: 1
    wqe_ring: UsedRing
    write: 1
    lost: 1
    cause: QueueErrorCause
    cq_ring: UsedRing
    head: 16


class CqBuffers(wiring.Component):
    """Finds the buffer for each completion's CQE; holds position, avail index and error of the CQs.

    Spec: Virtio 1.2, 2.7.6; virtio-rdma VR-4.11.
    Members: ``i`` completions, ``o`` jobs in the same order; ``chain`` the chain of each job with
    ``write``; ``queue_read`` the queues' rows; ``fault`` (a cycle): the chain of a CQ was broken;
    ``program`` the firmware's window (``armed`` of a row is not kept here; ``write`` is not held
    back by ``fault``'s caller, who must not give both at once); ``flush`` forgets entries read
    ahead; ``hold``: take no completion; ``idle``; ``ready``.
    Throughput: a completion in 10 cycles when the CQ's entry is at hand.
    Errors: a CQ without a buffer, or with a broken ring, is in ``error`` from then on and its CQEs
    are ``lost``. Reset: rows are cleared one a cycle; ``ready`` says when.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(Completion)),
                "o": Out(stream.Signature(CompletionJob)),
                "chain": Out(stream.Signature(ChainJob)),
                "queue_read": Out(TableRead(16, QueueRow)),
                "fault": In(1),
                "fault_cq": In(14),
                "program": In(TableProgram(14, CqRow)),
                "flush": In(1),
                "hold": In(1),
                "idle": Out(1),
                "ready": Out(1),
                "read_client": Out(ReadClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        bits = max(1, ceil_log2(config.cqs))
        m.submodules.ring = ring = AvailRing(config=config, notify=False)
        m.submodules.rows = rows = Ram(shape=CqRow, depth=config.cqs, reads=2)
        # A broken chain is found far behind: a RAM of its own, so that its writer never waits.
        m.submodules.broken = broken = Ram(shape=1, depth=config.cqs, reads=2)
        connect(m, ring.read_client, flipped(self.read_client))

        completion = Signal(Completion, reset_less=True)
        wqe_row = Signal(QueueRow, reset_less=True)
        result = Signal(RingResult, reset_less=True)
        returns = Signal()
        queue, cq = self.queue_read.row, Signal(bits)
        row = rows.read0.row
        new_row, write = Signal(CqRow), Signal()
        m.d.comb += [
            ring.flush.eq(self.flush | self.program.write),
            cq.eq(completion.cq[:bits]),
            new_row.eq(row),
            ring.i.payload.function.eq(completion.function),
            ring.i.payload.queue.eq(1 + cq),
            ring.i.payload.row.eq(queue),
            ring.i.payload.position.eq(row.position),
            ring.i.payload.known.eq(row.available),
            self.chain.payload.function.eq(completion.function),
            self.chain.payload.desc.eq(queue.desc),
            self.chain.payload.size_log2.eq(queue.size_log2),
            self.chain.payload.head.eq(result.head),
            self.chain.payload.limit.eq(MAX_CHAIN),
            self.chain.payload.writable.eq(1),
        ]
        job = self.o.payload
        m.d.comb += [
            job.completion.eq(completion),
            job.ring.eq(returns),
            job.head.eq(result.head),
        ]
        for used, number, source in (
            (job.wqe_ring, completion.queue, wqe_row),
            (job.cq_ring, 1 + cq, queue),
        ):
            m.d.comb += used.queue.eq(number)
            m.d.comb += [
                getattr(used, name).eq(getattr(source, name))
                for name in ("size_log2", "driver", "device", "vector")
            ]

        clear = Signal(range(config.cqs + 1))
        m.d.comb += self.ready.eq(clear == config.cqs)

        with m.FSM(name="state"):
            with m.State("CLEAR"):
                m.d.sync += clear.eq(clear + 1)
                with m.If(clear == config.cqs - 1):
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                m.d.sync += [completion.eq(self.i.payload), returns.eq(0)]
                with m.If(~self.hold):
                    m.d.comb += self.i.ready.eq(1)
                    with m.If(self.i.valid):
                        m.next = "WQE"
            with m.State("WQE"):
                m.d.comb += [self.queue_read.index.eq(completion.queue), rows.read0.enable.eq(1)]
                m.d.comb += [self.queue_read.enable.eq(1), broken.read0.enable.eq(1)]
                m.next = "CQ"
            with m.State("CQ"):
                m.d.comb += [self.queue_read.index.eq(1 + cq), self.queue_read.enable.eq(1)]
                m.d.sync += [wqe_row.eq(queue), returns.eq(completion.ring & queue.enabled)]
                with m.If(~completion.emit):
                    m.next = "GIVE"
                with m.Elif(row.error | broken.read0.row):
                    m.d.sync += result.cause.eq(QueueErrorCause.NONE)
                    m.next = "LOST"
                with m.Else():
                    m.next = "RING"
            with m.State("RING"):
                m.d.comb += ring.i.valid.eq(1)
                with m.If(ring.i.ready):
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += ring.o.ready.eq(1)
                m.d.sync += result.eq(ring.o.payload)
                with m.If(ring.o.valid):
                    m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += [write.eq(1), new_row.available.eq(result.available)]
                with m.If(result.status == FetchStatus.OK):
                    m.d.comb += new_row.position.eq(row.position + 1)
                    m.next = "CHAIN"
                with m.Else():
                    m.d.comb += new_row.error.eq(1)
                    m.next = "LOST"
            with m.State("CHAIN"):
                m.d.comb += self.chain.valid.eq(1)
                with m.If(self.chain.ready):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [self.o.valid.eq(1), job.write.eq(1)]
                with m.If(self.o.ready):
                    m.next = "IDLE"
            with m.State("LOST"):
                m.d.comb += [self.o.valid.eq(1), job.lost.eq(1), job.cause.eq(result.cause)]
                with m.If(self.o.ready):
                    m.next = "IDLE"
            with m.State("GIVE"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"

        # The owner's write goes first, the firmware's waits.
        read_done = Signal()
        program = self.program
        m.d.sync += read_done.eq(program.read & ~read_done)
        firmware_writes = program.write & self.ready & ~write
        place = program.index[:bits]
        m.d.comb += [
            rows.read0.index.eq(cq),
            broken.read0.index.eq(cq),
            rows.read1.index.eq(place),
            rows.read1.enable.eq(program.read),
            broken.read1.index.eq(place),
            broken.read1.enable.eq(program.read),
            program.read_row.position.eq(rows.read1.row.position),
            program.read_row.available.eq(rows.read1.row.available),
            program.read_row.error.eq(rows.read1.row.error | broken.read1.row),
            program.done.eq(read_done | firmware_writes),
            rows.write.enable.eq(~self.ready | write | program.write),
            rows.write.index.eq(Mux(~self.ready, clear, Mux(write, cq, place))),
            broken.write.enable.eq(~self.ready | self.fault | firmware_writes),
            broken.write.index.eq(Mux(~self.ready, clear, Mux(self.fault, self.fault_cq, place))),
            broken.write.row.eq(self.ready & self.fault),
        ]
        with m.If(self.ready):
            m.d.comb += rows.write.row.eq(Mux(write, new_row.as_value(), program.row.as_value()))
        return m
