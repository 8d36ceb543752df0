"""The part of Receive for what is nobody's: packets that are dropped, QPs stopped from outside."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.tables import TableWrite
from hdl.ports.jobs import ScatterJob, ScatterKind
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import QpRx

from .types import Events, Part, Pending

__all__ = ["DropWork", "Dropper"]


class DropWork(data.Struct):
    """A packet to drop, or (``stop``) a QP that must stop because a completion of it was lost."""

    stop: 1
    qp: QpNumber
    length: 13  # payload bytes of the packet
    cause: Events  # one bit
    rx: QpRx


class Dropper(wiring.Component):
    """Drops a packet with a job for its payload and a record, or stops a QP with a record alone.

    Spec: IBTA vol 1, 9.6.1 (packets dropped silently); virtio-rdma VR-4.11 (lost completion).
    ``i`` is taken (ready) when everything has been handed over. ``rx_write``: the row of a QP that
    stops. Latency and throughput: a packet in 3 cycles, a stop in 1, and the waits for ``job`` and
    ``pending``. Errors: none. Reset: idle.
    """

    def __init__(self):
        super().__init__(
            {
                "i": In(stream.Signature(DropWork)),
                "job": Out(stream.Signature(ScatterJob)),
                "pending": Out(stream.Signature(Pending)),
                "rx_write": Out(TableWrite(QpNumber, QpRx)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        work, job, pending = self.i.payload, self.job.payload, self.pending.payload
        stopped = Signal(QpRx)
        m.d.comb += [
            stopped.eq(work.rx),
            stopped.error.eq(1),
            self.rx_write.index.eq(work.qp),
            self.rx_write.row.eq(stopped),
            job.kind.eq(Mux(work.length == 0, ScatterKind.NONE, ScatterKind.DISCARD)),
            job.length.eq(work.length),
            pending.qp.eq(work.qp),
            pending.part.eq(Mux(work.stop, Part.RESPONDER, Part.FRONT)),
            pending.packet.eq(~work.stop),
            pending.jobless.eq(work.stop),
            pending.commit.eq(work.stop),
            pending.row.eq(stopped),
        ]
        with m.If(~work.stop):
            m.d.comb += pending.events.eq(work.cause)
        with m.FSM(name="drop"):
            # JOB: has the packet's payload thrown away; ends when the job is taken. A QP that stops
            # has no payload: its record is handed over here.
            with m.State("JOB"):
                stops = self.i.valid & work.stop
                m.d.comb += [
                    self.job.valid.eq(self.i.valid & ~work.stop),
                    self.pending.valid.eq(stops),
                    self.rx_write.enable.eq(stops),
                    self.i.ready.eq(stops & self.pending.ready),
                ]
                with m.If(self.job.valid & self.job.ready):
                    m.next = "RECORD"
            # RECORD: hands the packet's record over; ends when it is taken.
            with m.State("RECORD"):
                m.d.comb += self.pending.valid.eq(1)
                with m.If(self.pending.ready):
                    m.next = "END"
            # END: gives the packet back; ends by itself.
            with m.State("END"):
                m.d.comb += self.i.ready.eq(1)
                m.next = "JOB"
        return m
