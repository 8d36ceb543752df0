"""Where the next CQE of each completion queue goes."""

from amaranth.hdl import Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.abi.virtio_rdma import CQE
from hdl.common.address import mask
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.common.tables import TableProgram, TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import Completion, QueueErrorCause
from hdl.ports.numbers import CqNumber, completion_queue
from hdl.ports.rows import CqRow, QueueRow

from ..ring.packed import is_packed, used_base
from ..ring.reach import Reach, reach_flow, read_reach
from ..ring.reader import RingReader
from ..ring.types import ChainJob
from .next_buffers import NextBuffers
from .rows import Check, CheckVerdict, CompletionJob, Found, Kind, Ring, Waiting

__all__ = ["CqBuffers", "MAX_CHAIN"]

#: Bytes of the longest chain that is taken for a completion buffer.
MAX_CHAIN = 65536
#: Most CQs whose ring entries are at hand.
LINES = 64
#: Completions inside, as many as come while one reads the host twice; those of them with a CQE;
#: reads of one kind in flight; buffers that may wait for their completions.
WAITING, CHECKED, READS, FOUND = 128, 64, 32, 16
#: Places that make a block RAM of a FIFO.
BLOCK = 256


class CqBuffers(wiring.Component):
    """Finds the buffer for each completion's CQE; holds position, avail index and error of the CQs.

    Spec: Virtio 1.2, 2.7.6, 2.8; virtio-rdma VR-4.11.
    Members: ``i`` completions, or requests with ``arms`` (Arming), ``o`` jobs in the same order;
    ``queue`` the WQE's of the job at ``o``, which is not as late; ``chain`` the chains of the jobs
    that will be ``odd``, in their order; ``queue_read`` the queues' rows; ``fault`` (a cycle): the
    chain of a CQ was broken; ``program`` the firmware's window (``armed`` of a row is not kept
    here; ``available`` becomes ``position``, whatever is written); ``flush`` (with nothing inside)
    forgets entries read ahead; ``hold``: take no completion; ``ready``; ``soon``: a job without a
    CQE comes within a few cycles if none is here; ``ahead``: a buffer is read whose completion has
    not come (NextBuffers), none begins with ``hold``. ``read_client0`` avail indices,
    ``read_client1`` ring entries, ``read_client2`` descriptors.
    A completion passes three stages, each with up to 32 reads in flight: the avail index, if the
    last one read is used up; the ring entries; the descriptor (both in RingReader). In the first
    its position is taken. A completion whose CQ's index is being read waits there for
    it, those of other CQs go by as long as none waits.
    Latency: 30 cycles, and two host reads (one with entries at hand, three without an index, none
    with the buffer at hand). Throughput: a completion in 4 cycles, one without a CQE in 3.
    Errors: a CQ without a buffer, or with a broken ring, is in ``error`` from then on and its CQEs
    are ``lost``. Reset: rows are cleared one a cycle; ``ready`` says when.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(Completion)),
                "arms": In(1),
                "o": Out(stream.Signature(CompletionJob)),
                "queue": Out(16),
                "chain": Out(stream.Signature(ChainJob)),
                "queue_read": Out(TableRead(16, QueueRow)),
                "fault": In(1),
                "fault_cq": In(CqNumber),
                "program": In(TableProgram(CqNumber, CqRow)),
                "flush": In(1),
                "hold": In(1),
                "ready": Out(1),
                "soon": Out(1),
                "ahead": Out(1),
            }
            | {f"read_client{n}": Out(ReadClient(config.width)) for n in range(3)}
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        bits = max(1, ceil_log2(config.cqs))
        lines = min(LINES, 1 << bits)
        m.submodules.polls = polls = reach_flow(config, reads=READS, bypass=False)
        m.submodules.reader = reader = RingReader(
            config=config,
            lines=lines,
            depth=READS,
            least=CQE.size,
            most=MAX_CHAIN,
            writable=True,
            urgent=False,
        )
        inside = min(WAITING, config.packets_ahead)
        m.submodules.kinds = kinds = StreamFifo(shape=Kind, depth=inside)
        m.submodules.checks = checks = StreamFifo(shape=Check, depth=min(CHECKED, inside))
        # Beside those, in block RAM, whose output is late.
        deep = BLOCK if inside == WAITING else inside
        m.submodules.waiting = waiting = StreamFifo(shape=Waiting, depth=deep)
        m.submodules.rings = rings = StreamFifo(shape=Ring, depth=deep)
        for late, first in ((waiting, kinds), (rings, checks)):
            m.d.comb += [
                late.i.valid.eq(first.i.valid & first.i.ready),
                late.o.ready.eq(first.o.valid & first.o.ready),
            ]
        # Never full: each is of a completion that is waiting.
        m.submodules.verdicts = StreamFifo(shape=CheckVerdict, depth=WAITING)
        m.submodules.found = StreamFifo(shape=Found, depth=FOUND)
        following = NextBuffers(config=config, lines=lines, waiting=WAITING, most=MAX_CHAIN)
        m.submodules.following = ResetInserter(self.flush)(following)
        # Each has one writer besides the firmware, but for errors: a broken chain is found late.
        m.submodules.positions = positions = Ram(shape=16, depth=config.cqs, reads=2)
        m.submodules.available = available = Ram(shape=16, depth=config.cqs, reads=2)
        m.submodules.errors = errors = Ram(shape=1, depth=config.cqs, reads=3)
        for k, client in enumerate((polls.read_client, reader.read_client0, reader.read_client1)):
            connect(m, client, flipped(getattr(self, f"read_client{k}")))
        connect(m, following.o, reader.i)
        connect(m, reader.o, following.element)
        m.d.comb += [
            reader.flush.eq(self.flush),
            following.hold.eq(self.hold | (checks.level != 0)),
            self.ahead.eq(following.reading),
        ]

        clear = Signal(range(config.cqs))
        with m.If(~self.ready):
            m.d.sync += [clear.eq(clear + 1), self.ready.eq(clear == config.cqs - 1)]

        taken, passing = self._take(m, following, positions, available, errors)
        checked, wrong = self._check(m, following, errors)
        self._give(m, following, passing)

        # What is to be written, a cycle later: nobody reads it before, and a cycle's delay harms
        # neither who waits for an index nor who finds a CQ in error.
        take, check = waiting.i.payload.completion, checks.o.payload
        position_write, available_write, error_write = Signal(), Signal(), Signal()
        take_cq, check_cq = Signal(bits, reset_less=True), Signal(bits, reset_less=True)
        position, index = Signal(16, reset_less=True), Signal(16, reset_less=True)
        fault, fault_cq = Signal(), Signal(bits, reset_less=True)  # waits while another is written
        m.d.sync += [
            position_write.eq(taken),
            take_cq.eq(take.cq),
            position.eq(positions.read0.row + 1),
            available_write.eq(checked),
            error_write.eq(wrong),
            check_cq.eq(check.cq),
            index.eq(following.i.payload.request.known),
        ]
        with m.If(self.fault):
            m.d.sync += [fault.eq(1), fault_cq.eq(self.fault_cq)]
        with m.Elif(~error_write):
            m.d.sync += fault.eq(0)

        # The owners' writes go first, the firmware's waits.
        program = self.program
        read_done, writes, owned = Signal(), Signal(), Signal()
        m.d.sync += read_done.eq(program.read & ~read_done)
        m.d.comb += [
            owned.eq(position_write | available_write | error_write | fault),
            writes.eq(program.write & self.ready & ~owned),
            program.done.eq(read_done | writes),
            program.read_row.position.eq(positions.read1.row),
            program.read_row.available.eq(available.read1.row),
            program.read_row.error.eq(errors.read2.row),
        ]
        for port in (positions.read1, available.read1, errors.read2):
            m.d.comb += [port.index.eq(program.index[:bits]), port.enable.eq(program.read)]
        error_cq = Mux(error_write, check_cq, fault_cq)
        for ram, owner, place, row, given in (
            (positions, position_write, take_cq, position, program.row.position),
            (available, available_write, check_cq, index, program.row.position),
            (errors, error_write | fault, error_cq, 1, program.row.error),
        ):
            m.d.comb += [
                ram.write.enable.eq(~self.ready | owner | writes),
                ram.write.index.eq(Mux(self.ready, Mux(owner, place, program.index), clear)),
                ram.write.row.eq(Mux(self.ready, Mux(owner, row, given), 0)),
            ]
        return m

    def _take(self, m: Module, following, positions, available, errors):
        """A completion gets its position, and its CQ's avail index is asked for if it has to be;
        returns whether a position is used, and whether one that has no CQE is here."""
        bits = len(positions.read0.index)
        completion = Signal(Completion, reset_less=True)
        wqe_row, cq_row = Signal(QueueRow, reset_less=True), Signal(QueueRow, reset_less=True)
        queue, cq = self.queue_read.row, Signal(CqNumber)
        returns, arms = Signal(), Signal(reset_less=True)
        beyond = Signal(16, reset_less=True)  # how far the avail index lies beyond the position
        look, lookable, polling, poll, taken, passing = (Signal() for _ in range(6))
        kept, at_hand = Signal(), Signal()  # a buffer of its CQ; and it is the one at its position
        position, polls = positions.read0.row, m.submodules.polls
        kinds, waiting = m.submodules.kinds, m.submodules.waiting
        checks, rings = m.submodules.checks, m.submodules.rings
        kind, wait, check = kinds.i.payload, waiting.i.payload, checks.i.payload
        ring = rings.i.payload
        reach = read_reach(self._config, cq_row, position)
        m.d.comb += [
            wait.completion.eq(completion),
            kind.emit.eq(completion.emit),
            kind.arms.eq(arms),
            kind.ring.eq(returns),
            kind.queue.eq(completion.queue),
            wait.wqe_ring.queue.eq(completion.queue),
            wait.cq_ring.queue.eq(completion_queue(self._config, cq)),
            check.cq.eq(completion.cq),
            ring.function.eq(completion.function),
            ring.desc.eq(cq_row.desc),
            ring.driver.eq(cq_row.driver),
            check.position.eq(position),
            check.known.eq(available.read0.row),
            check.poll.eq(poll),
            check.disabled.eq(~cq_row.enabled),
            check.size_log2.eq(cq_row.size_log2),
            check.rules.eq(cq_row.rules),
            polls.i.payload.function.eq(completion.function),
            polls.i.payload.addr.eq(reach[0]),
            polls.i.payload.offset.eq(reach[1]),
            polls.i.payload.length.eq(reach[2]),
            cq.eq(completion.cq),
            following.look.eq(look),
            following.cq.eq(cq),
            check.at_hand.eq(lookable & at_hand & ~poll),
            kind.at_hand.eq(check.at_hand),
            wait.wqe_ring.driver.eq(wqe_row.driver),
        ]
        for ring, row in ((wait.wqe_ring, wqe_row), (wait.cq_ring, cq_row)):
            m.d.comb += [
                getattr(ring, name).eq(getattr(row, name))
                for name in ("size_log2", "rules", "device", "vector")
            ]
        for ram in (positions, available, errors):
            m.d.comb += [ram.read0.index.eq(cq[:bits]), ram.read0.enable.eq(look)]
        # The index is asked for by the first completion that finds nothing available, whose
        # position lies at the index then, and the next one beyond it until the answer has come.
        m.d.comb += [
            polling.eq(lookable & (beyond == 0xFFFE)),
            # No position is left, or more than the queue has.
            poll.eq(lookable & ((beyond & ~mask(cq_row.size_log2)) != 0)),
        ]
        with m.FSM(name="take") as fsm:
            # IDLE: takes a completion and reads the row of its WQE's queue; ends with one.
            with m.State("IDLE"):
                m.d.comb += [
                    self.i.ready.eq(~self.hold & self.ready),
                    self.queue_read.index.eq(self.i.payload.queue),
                    self.queue_read.enable.eq(1),
                ]
                m.d.sync += [completion.eq(self.i.payload), arms.eq(self.arms)]
                with m.If(self.i.valid & self.i.ready):
                    m.next = "WQE"
            # WQE: keeps that row, and reads what is known of its CQ; one cycle.
            with m.State("WQE"):
                m.d.comb += [
                    look.eq(1),
                    self.queue_read.index.eq(completion_queue(self._config, cq)),
                    self.queue_read.enable.eq(1),
                ]
                m.d.sync += [wqe_row.eq(queue), returns.eq(completion.ring & queue.enabled)]
                m.d.sync += wqe_row.device.eq(used_base(self._config, queue))
                m.next = "CQ"
                with m.If(~completion.emit):
                    m.next = "PASS"
            # PASS: hands on a completion without a CQE; ends when that is taken.
            with m.State("PASS"):
                m.d.comb += kinds.i.valid.eq(1)
                with m.If(kinds.i.ready):
                    m.next = "IDLE"
            # CQ: keeps the row of the CQ and compares its position with the avail index; one cycle.
            with m.State("CQ"):
                m.d.sync += [
                    cq_row.eq(queue),
                    cq_row.device.eq(used_base(self._config, queue)),
                    lookable.eq(queue.enabled & ~errors.read0.row),
                    beyond.eq(available.read0.row + ~position),
                    kept.eq(following.kept),
                    at_hand.eq(following.kept & (following.position == position)),
                ]
                m.next = "GIVE"
            # GIVE: gives the completion its position and asks for the index if it has to be read;
            # ends when both are taken. While the index is on its way it looks again.
            with m.State("GIVE"):
                with m.If(polling):
                    m.d.comb += look.eq(1)
                    m.next = "CQ"
                with m.Elif(kinds.i.ready & checks.i.ready & (~poll | polls.i.ready)):
                    m.d.comb += [
                        kinds.i.valid.eq(1),
                        checks.i.valid.eq(1),
                        polls.i.valid.eq(poll),
                        taken.eq(lookable),
                        following.take.eq(check.at_hand),
                        following.drop.eq(kept),
                    ]
                    m.next = "IDLE"
        m.d.comb += passing.eq((fsm.ongoing("WQE") & ~completion.emit) | fsm.ongoing("PASS"))
        with m.If(fsm.ongoing("IDLE")):
            m.d.comb += passing.eq(self.i.valid & ~self.hold & ~self.i.payload.emit)
        return taken, passing

    def _check(self, m: Module, following, errors):
        """Says of each completion with a CQE whether it is lost; returns whether an avail index,
        and whether an error, is to be written."""
        bits = len(errors.read1.index)
        checks, rings = m.submodules.checks, m.submodules.rings
        polls, verdicts = m.submodules.polls, m.submodules.verdicts
        check, verdict, job = checks.o.payload, verdicts.i.payload, following.i.payload
        ring = rings.o.payload
        index, ahead = Signal(16, reset_less=True), Signal(16, reset_less=True)
        more = Signal(reset_less=True)  # the buffer behind it is available too
        answer, failed = Signal(16), Signal(reset_less=True)
        checked, wrong, done = Signal(), Signal(), Signal()
        error, none, beyond, looks = Signal(), Signal(), Signal(), Signal()
        m.submodules.reach = reach = Reach(config=self._config)
        connect(m, polls.o, reach.i)
        polls = reach.o
        m.d.sync += [
            error.eq(errors.read1.row),
            none.eq(ahead == 0),
            more.eq(ahead > 1),
            beyond.eq(ahead > (1 << check.size_log2)),
        ]
        m.d.comb += [
            errors.read1.index.eq(check.cq[:bits]),
            errors.read1.enable.eq(1),
            answer.eq(Mux(check.poll, polls.payload.data, check.known)),
            job.request.function.eq(ring.function),
            job.request.qp.eq(check.cq),
            job.request.queue.eq(completion_queue(self._config, check.cq)),
            job.request.position.eq(check.position),
            job.request.known.eq(index),
            job.size_log2.eq(check.size_log2),
            job.rules.eq(check.rules),
            job.desc.eq(ring.desc),
            job.driver.eq(ring.driver),
            reach.packed.eq(is_packed(self._config, check.rules)),
            reach.position.eq(check.position),
            reach.size_log2.eq(check.size_log2),
            reach.look.eq(looks & checks.o.valid & check.poll),
            verdicts.i.valid.eq(done),
            checks.o.ready.eq(done),
            following.used.eq(done & ~verdict.lost & more),
        ]
        with m.FSM(name="check"):
            # LOOK: waits for the avail index, or takes the one that is known; ends when it is
            # there.
            with m.State("LOOK"):
                m.d.sync += [
                    index.eq(answer),
                    ahead.eq(answer - check.position),
                    failed.eq(polls.payload.error),
                ]
                m.d.comb += looks.eq(1)
                with m.If(check.poll & is_packed(self._config, check.rules)):
                    m.d.sync += [index.eq(check.position + answer), ahead.eq(answer)]
                with m.If(checks.o.valid & (~check.poll | polls.valid)):
                    m.d.comb += polls.ready.eq(check.poll)
                    m.next = "WEIGH"
            # WEIGH: compares it with the position; one cycle.
            with m.State("WEIGH"):
                m.next = "DECIDE"
            # DECIDE: says whether the completion is lost, or asks for its buffer if that is not at
            # hand; ends when that is taken.
            with m.State("DECIDE"):
                with m.If(error):
                    m.d.comb += [verdict.lost.eq(1), done.eq(1)]
                with m.Elif(check.disabled | (check.poll & (failed | none))):
                    m.d.comb += [verdict.lost.eq(1), wrong.eq(1)]
                    with m.If(~check.disabled & failed):
                        m.d.comb += verdict.cause.eq(QueueErrorCause.HOST_READ)
                with m.Elif(check.poll & beyond):
                    m.d.comb += [verdict.lost.eq(1), wrong.eq(1)]
                    m.d.comb += verdict.cause.eq(QueueErrorCause.AVAIL_INDEX)
                with m.Elif(check.at_hand):
                    m.d.comb += done.eq(1)
                with m.Else():
                    m.d.comb += [
                        following.i.valid.eq(1),
                        done.eq(following.i.ready),
                        checked.eq(done & check.poll),
                    ]
                with m.If(wrong):
                    m.d.comb += done.eq(1)
                with m.If(done):
                    m.next = "LOOK"
        return checked, wrong

    def _give(self, m: Module, following, passing) -> None:
        """Buffers as they come, odd ones to the walker; and each completion with its own."""
        kinds, waiting = m.submodules.kinds, m.submodules.waiting
        verdicts, found = m.submodules.verdicts, m.submodules.found
        elements, at_hand = following.given, following.taken
        element, buffer = elements.payload, found.i.payload
        table, for_slow = element.table, Signal()
        # Nothing is known of the completion that the FIFO is about to give.
        m.d.comb += self.soon.eq(passing | ((kinds.level != 0) & ~kinds.o.valid))
        m.d.comb += [
            for_slow.eq(element.odd & ~element.failed),
            buffer.head.eq(element.head),
            buffer.addr.eq(element.addr),
            buffer.odd.eq(element.odd),
            buffer.failed.eq(element.failed),
            found.i.valid.eq(elements.valid & (~for_slow | self.chain.ready)),
            elements.ready.eq(found.i.ready & (~for_slow | self.chain.ready)),
            self.chain.valid.eq(elements.valid & for_slow & found.i.ready),
            self.chain.payload.function.eq(table.function),
            self.chain.payload.desc.eq(table.desc),
            self.chain.payload.size_log2.eq(table.size_log2),
            self.chain.payload.rules.eq(table.rules),
            self.chain.payload.head.eq(element.place),
            self.chain.payload.limit.eq(MAX_CHAIN),
            self.chain.payload.writable.eq(1),
        ]
        wait, verdict, job = waiting.o.payload, verdicts.o.payload, self.o.payload
        kind, complete, gone = kinds.o.payload, Signal(), Signal()
        usable = ~verdict.lost & (kind.at_hand | ~found.o.payload.failed)
        there = kind.at_hand | found.o.valid
        m.d.comb += [
            complete.eq(~kind.emit | (verdicts.o.valid & (verdict.lost | there))),
            self.o.valid.eq(kinds.o.valid & complete),
            gone.eq(self.o.valid & self.o.ready),
            kinds.o.ready.eq(self.o.ready & complete),
            verdicts.o.ready.eq(gone & kind.emit),
            found.o.ready.eq(gone & kind.emit & ~verdict.lost & ~kind.at_hand),
            at_hand.ready.eq(gone & kind.emit & kind.at_hand),
            self.queue.eq(kind.queue),
            job.completion.eq(wait.completion),
            job.arms.eq(kind.arms),
            job.emit.eq(kind.emit),
            job.ring.eq(kind.ring),
            job.write.eq(kind.emit & usable),
            job.lost.eq(kind.emit & ~usable),
            job.cause.eq(Mux(verdict.lost, verdict.cause, QueueErrorCause.HOST_READ)),
            job.head.eq(found.o.payload.head),
            job.odd.eq(found.o.payload.odd),
            job.addr.eq(found.o.payload.addr),
            job.wqe_ring.eq(wait.wqe_ring),
            job.cq_ring.eq(wait.cq_ring),
        ]
        with m.If(kind.at_hand):
            m.d.comb += [
                job.head.eq(at_hand.payload.head),
                job.odd.eq(0),
                job.addr.eq(at_hand.payload.addr),
            ]
