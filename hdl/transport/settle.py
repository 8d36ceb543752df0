"""The end of each received packet: its check has come, its effects go."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.ports.jobs import LINE_USES, Activation, Effects, ScatterChecked
from hdl.ports.rows import QpAck, QpRx
from hdl.ports.tables import TableRead, TableWrite

from .receive_types import Counted, Events, Part, Pending, ReceiveFlags, Syndrome

__all__ = ["FAILED", "LINES", "PENDING", "Settle"]

#: Jobs whose checks are awaited: 64-byte WRITEs come in 5 cycles each, a page list in 140.
PENDING = 32
#: QPs that have failed and whose later packets are still on their way: each of the jobs awaited may
#: be another's, and so may the one at the output and the two Receive is at.
FAILED = PENDING + 3
#: Lines that jobs read, from which on Receive rests. Five more may come: of two jobs that are not
#: yet counted, of the packets that the two parts have, and of the one that is taken.
LINES = LINE_USES - 4


class _Failed(data.Struct):
    """A QP one of whose checks was not good."""

    qp: 14
    sender: 1  # a READ response's; else a request's
    owed: 1  # no WQE has ended with ``status`` yet
    status: 8


class Settle(wiring.Component):
    """Pairs each ``pending`` with its ``checked``, and sees to those that are not good.

    A good one: the row becomes the QP's (``rx_write``), then effects and events. One that is not:
    the payload is discarded, the responder's becomes a NAK, the completer's WQE ends with the
    check's status. From then on it is ``stalled``: Receive must rest. What is still on its way of
    the same QP is undone: it counts as received by a QP in error, a WQE that it would have finished
    ends flushed, and no row is written. When nothing is on its way any more (``front_idle``), the
    rows that Receive works with get the error, and ``repoke`` has the QP's queues flushed.
    Spec: IBTA vol 1, 9.7.4.1.5 and 9.9.3: nothing is executed behind a request that failed.

    Members: ``pending`` one per job in their order, and those without one; ``checked``; ``effects``
    one per job. ``rx_read``, ``rx_write``: the rows that all others see. ``ahead_write``,
    ``ack_read``, ``ack_write``: rows that Receive works with; used only while it rests.
    ``line_taken``, ``line_done``: a job with ``line`` has been made, has been answered. ``rest``:
    Receive takes nothing new. ``stalled``: there are rows to mend. ``idle``: nothing pending,
    nothing to mend. ``counted``: events as they become true.
    Latency: 4 cycles from ``pending`` to the effects, if the check was there. Throughput: one in 2
    cycles; while QPs have failed, 3 more for each of them that is looked at.
    Errors: as above. Reset: empty.
    """

    def __init__(self):
        super().__init__(
            {
                "pending": In(stream.Signature(Pending)),
                "checked": In(stream.Signature(ScatterChecked)),
                "effects": Out(stream.Signature(Effects)),
                "rx_read": Out(TableRead(14, QpRx)),
                "rx_write": Out(TableWrite(14, QpRx)),
                "ahead_write": Out(TableWrite(14, QpRx)),
                "ack_read": Out(TableRead(14, QpAck)),
                "ack_write": Out(TableWrite(14, QpAck)),
                "repoke": Out(stream.Signature(Activation)),
                "counted": Out(stream.Signature(Counted, always_ready=True)),
                "front_idle": In(1),
                "rest": Out(1),
                "stalled": Out(1),
                "idle": Out(1),
                "line_taken": In(1),
                "line_done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = StreamFifo(shape=Pending, depth=PENDING)
        wiring.connect(m, wiring.flipped(self.pending), queue.i)
        record = queue.o.payload
        status = Signal(8, reset_less=True)  # of its check
        effects, done = self.effects.payload, self.effects.payload.completion

        # The QPs that have failed, looked through one after the other: nothing is in a hurry then.
        m.submodules.failed = failed = Ram(shape=_Failed, depth=FAILED, forward=False)
        known = Signal(range(FAILED + 1))  # rows in use, from the first on
        at = Signal(range(FAILED))
        seen = Signal(_Failed, reset_less=True)  # the row read last
        match, final = Signal(reset_less=True), Signal(reset_less=True)
        undo = Signal()  # the record's QP is ``seen``, in row ``at``
        bad = Signal()
        position = Signal(16, reset_less=True)  # the row's, which comes late
        gone = Signal()  # the record is done with

        mended = Signal(QpAck)
        m.d.comb += [
            mended.eq(self.ack_read.row),
            mended.error.eq(1),
            mended.status.eq(Mux(seen.owed, seen.status, 0)),
        ]
        with m.FSM(name="settle"):
            with m.State("LOOK"):
                m.d.comb += [self.rx_read.enable.eq(1), self.rx_read.index.eq(record.qp)]
                m.d.sync += [
                    status.eq(self.checked.payload.status),
                    bad.eq(self.checked.payload.status != 0),
                    undo.eq(0),
                    at.eq(0),
                ]
                m.d.comb += self.checked.ready.eq(queue.o.valid & ~record.jobless)
                with m.If(queue.o.valid & (record.jobless | self.checked.valid)):
                    m.next = "ACT"
                    with m.If(~record.jobless & (self.checked.payload.status != 0)):
                        m.next = "ROW"  # which tells what becomes of this one
                    with m.If(self.stalled & (record.part != Part.FRONT)):
                        m.next = "SEEK"
                with m.Elif(self.stalled & self.front_idle & (queue.level == 0)):
                    m.d.sync += at.eq(known - 1)
                    m.next = "LAST"
            # Whether the record's QP is one of those that have failed.
            with m.State("SEEK"):
                m.d.comb += failed.read0.enable.eq(1)
                m.next = "SEEN"
            with m.State("SEEN"):
                m.d.sync += [
                    seen.eq(failed.read0.row),
                    match.eq(failed.read0.row.qp == record.qp),
                    final.eq(at == known - 1),
                ]
                m.next = "JUDGE"
            with m.State("JUDGE"):
                m.d.sync += undo.eq(match)
                m.next = "ROW"
                with m.If(~match & ~final):
                    m.d.sync += at.eq(at + 1)
                    m.next = "SEEK"
            with m.State("ROW"):
                m.next = "ACT"
            with m.State("ACT"):
                m.d.comb += self.effects.valid.eq(~record.jobless)
                with m.If(record.jobless | self.effects.ready):
                    m.d.comb += gone.eq(1)
                    m.next = "LOOK"
            # Nothing is on its way: the rows of the last failed QP get the error.
            with m.State("LAST"):
                m.d.comb += failed.read0.enable.eq(1)
                m.next = "TAKE"
            with m.State("TAKE"):
                m.d.sync += seen.eq(failed.read0.row)
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += [
                    self.rx_read.enable.eq(1),
                    self.rx_read.index.eq(seen.qp),
                    self.ack_read.enable.eq(1),
                    self.ack_read.index.eq(seen.qp),
                ]
                m.next = "MEND"
            with m.State("MEND"):
                m.d.comb += [
                    self.ahead_write.enable.eq(1),
                    self.ack_write.enable.eq(seen.sender),
                ]
                m.next = "POKE"
            with m.State("POKE"):
                m.d.comb += self.repoke.valid.eq(1)
                with m.If(self.repoke.ready):
                    m.d.sync += known.eq(known - 1)
                    m.next = "LOOK"
        m.d.sync += position.eq(self.rx_read.row.position)
        m.d.comb += [
            queue.o.ready.eq(gone),
            self.stalled.eq(known != 0),
            self.idle.eq(self.front_idle & (queue.level == 0) & ~self.stalled),
            self.ahead_write.index.eq(seen.qp),
            self.ahead_write.row.eq(self.rx_read.row),
            self.ack_write.index.eq(seen.qp),
            self.ack_write.row.eq(mended),
            self.repoke.payload.qp.eq(seen.qp),
            self.repoke.payload.flags.eq(ReceiveFlags.FLUSH | ReceiveFlags.FINISH),
            failed.read0.index.eq(at),
        ]

        lines, full = Signal(range(LINE_USES + 1)), Signal()
        m.d.sync += [
            lines.eq(lines + self.line_taken - self.line_done),
            full.eq(lines >= LINES),
        ]
        m.d.comb += self.rest.eq(self.stalled | full)

        # What the record brings about.
        fails = ~undo & bad & ~record.jobless
        responder, completer = record.part == Part.RESPONDER, record.part == Part.COMPLETER
        ends = Signal(8)  # status of the WQE when not as the record says
        row, events = Signal(QpRx), Signal(Events)
        m.d.comb += [
            effects.eq(record.effects),
            row.eq(record.row),
            events.eq(record.events),
            ends.eq(Mux(fails, status, Mux(seen.owed, seen.status, WcStatus.WR_FLUSH_ERR))),
        ]
        with m.If(undo | fails):
            m.d.comb += [
                effects.discard.eq(1),
                effects.reply.eq(0),
                effects.flags.eq(0),
                done.emit.eq(1),
                done.status.eq(ends),
                done.byte_len.eq(0),
                done.flags.eq(0),
                done.solicited.eq(1),
                events.eq(0),
            ]
            with m.If(completer):
                m.d.comb += [
                    events.req_cqe_error.eq(record.effects.complete),
                    events.req_cqe_flush_error.eq(
                        record.effects.complete & (ends == WcStatus.WR_FLUSH_ERR)
                    ),
                ]
            with m.If(undo):
                m.d.comb += events.qp_state.eq(record.packet)
            with m.If(responder):
                m.d.comb += effects.complete.eq(fails & record.send)
            with m.If(responder & fails):
                m.d.comb += [
                    effects.reply.eq(1),
                    effects.flags.nak.eq(1),
                    row.eq(self.rx_read.row),
                    row.error.eq(1),
                    row.available.eq(record.row.available),
                    row.position.eq(position + record.send),
                    row.syndrome.eq(
                        Mux(record.send, Syndrome.REMOTE_OPERATIONAL, Syndrome.REMOTE_ACCESS)
                    ),
                    events.resp_remote_access_errors.eq(~record.send),
                    events.resp_remote_operational_errors.eq(record.send),
                    events.resp_local_length_error.eq(
                        record.send & (status == WcStatus.LOC_LEN_ERR)
                    ),
                    events.resp_cqe_error.eq(record.send),
                ]
        m.d.comb += [
            self.line_done.eq(gone & record.line),
            self.rx_write.index.eq(record.qp),
            self.rx_write.row.eq(row),
            self.rx_write.enable.eq(gone & record.commit & ~undo),
            self.counted.valid.eq(gone & (events.as_value() != 0)),
            self.counted.payload.qp.eq(record.qp),
            self.counted.payload.events.eq(events),
        ]
        # A QP that fails is a row more; the status that one owes is given once.
        with m.If(undo):
            m.d.comb += [
                failed.write.index.eq(at),
                failed.write.row.eq(seen),
                failed.write.row.owed.eq(0),
                failed.write.enable.eq(gone & completer & record.effects.complete),
            ]
        with m.Else():
            m.d.comb += [
                failed.write.index.eq(known),
                failed.write.row.qp.eq(record.qp),
                failed.write.row.sender.eq(completer),
                failed.write.row.status.eq(status),
                failed.write.row.owed.eq(completer & ~record.effects.complete),
                failed.write.enable.eq(gone & fails),
            ]
        with m.If(gone & fails):
            m.d.sync += known.eq(known + 1)
        return m
