"""Cuts what the replier has to say into packets for the gather."""

from amaranth.hdl import C, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.address import OFFSET_BITS, add_high, add_low, add_middle
from hdl.common.count import COUNT, increment, raised
from hdl.config import NicConfig
from hdl.ports.headers import AddressVector
from hdl.ports.jobs import TxJob, TxSource
from hdl.ports.numbers import QpNumber
from hdl.wire.constants import MAX_MTU
from hdl.wire.opcodes import Operation, Transport

from ..recovery.segment import fit, message_offset, mtu_bytes
from .checks import Response

__all__ = ["LARGE_MTU", "Progress", "Reply", "ReplyPackets"]

#: Code of the path MTU from which on a response counts as large: 2048 bytes.
LARGE_MTU = 4
#: A response counts in the quantum as often as it has so many bytes, and once at least; and how
#: often the longest does. A turn takes the line 4 KiB with the usual quantum: what others wait for
#: stands behind one turn of each QP that is being answered.
UNIT = 256
LONGEST = MAX_MTU // UNIT


class Reply(data.Struct):
    """One thing to say to a QP's peer: a READ's responses (``read``), else an ACK or a NAK.

    The result of an atomic is a READ of one packet that has no payload and no check. So is the
    answer to FLUSH or ATOMIC WRITE, which has no result either: its ``length`` is 0."""

    read: 1
    atomic: 1  # with ``read``: it is an atomic, whose result is ``va``
    failed: 1  # ... and a NAK, as there is no result
    fresh: 1  # the first of the QP's turn
    first: 1  # a READ's responses begin with its first packet: ``packet`` is 0
    qp: QpNumber
    generation: 1
    function: 8
    pd: 16
    pkey: 16
    dest_qp: 24
    av: AddressVector
    path_mtu: 3
    xrc: 1  # to the initiator of an XRC connection
    dc: 1  # ... of a connection of DC
    syndrome: 8
    psn: 24  # of a READ: of its first packet
    msn: 24
    va: 64  # where a READ's first packet begins
    key: 32
    length: 32  # bytes of a READ
    single: 1  # ... which are one packet
    packet: 24  # packets of a READ that have been sent


class Progress(data.Struct):
    """Of the READ that was taken last: the packet at hand, from the cycle after ``i``."""

    ends: 1  # it is the last one that goes out in this turn, or for now
    last: 1  # it is the READ's last one
    full: 1  # the turn ends with it: quantum, or ``stop``
    sent: 24  # packets of the READ that have been sent with it


class ReplyPackets(wiring.Component):
    """Hands the packets of each ``Reply`` to the gather, without waiting for their checks.

    Spec: IBTA vol 1, 9.7.4.1.1 (READ responses), 9.7.5 (acknowledgements).
    Members: ``i`` stream of Reply; ``progress`` (struct above), of which ``ends`` lasts until the
    packet is taken; ``stop``: a READ ends for now with the packet at hand; ``job`` to the gather;
    ``o`` one for each job with payload, in its cycle; ``room``: such a job may be made, ``large``:
    of what size; ``idle``: nothing at hand; ``empty`` counts READ responses without payload, among
    them answers to atomics.
    Latency: 1 cycle from ``i`` to ``job``, 4 more where a READ goes on in its middle. Throughput: a
    packet in 2 cycles. Errors: none. Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._quantum = config, config.quantum
        super().__init__(
            {
                "i": In(stream.Signature(Reply)),
                "progress": Out(Progress),
                "stop": In(1),
                "job": Out(stream.Signature(TxJob)),
                "o": Out(stream.Signature(Response)),
                "large": Out(1),
                "room": In(1),
                "idle": Out(1),
                "empty": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        held = Signal(Reply, reset_less=True)  # its addresses, lengths and PSN move on
        mtu = Signal(13, reset_less=True)
        carry, offset = Signal(), Signal(32, reset_less=True)
        # Of the QP's turn before this packet, as the quantum counts; of which ``fits`` is too much
        # for one more packet of the path MTU, which counts ``weight``.
        sent = Signal(range(self._quantum + 2 * LONGEST))
        fits, weight = Signal.like(sent, reset_less=True), Signal.like(sent, reset_less=True)
        ended, full, at_packet = Signal(), Signal(), Signal()
        last = Signal(reset_less=True)  # the packet at hand is the READ's last one
        payload, fired = Signal(), Signal()
        mtu_now = mtu_bytes(m, self.i.payload.path_mtu)
        passed = message_offset(m, held.path_mtu, held.packet)
        m.d.comb += [
            full.eq(Mux(last, sent >= self._quantum - 1, sent >= fits) | self.stop),
            payload.eq(held.read & ~held.atomic & (held.length != 0)),
            fired.eq(self.job.valid & self.job.ready),
            self.large.eq(held.path_mtu >= LARGE_MTU),
            self.progress.ends.eq(at_packet & held.read & (last | full)),
            self.progress.last.eq(last),
            self.progress.full.eq(full),
            self.progress.sent.eq(held.packet),
            self.o.valid.eq(fired & payload),
            self.o.payload.qp.eq(held.qp),
            self.o.payload.generation.eq(held.generation),
            self.o.payload.psn.eq(held.psn),
            self.o.payload.msn.eq(held.msn - 1),
        ]
        with m.If(fired & held.read & ~payload):
            increment(m, self.empty)

        with m.FSM(name="packets"):
            # IDLE: nothing is at hand; a reply ends it.
            with m.State("IDLE"):
                m.d.comb += [self.i.ready.eq(1), self.idle.eq(1)]
                m.d.sync += [
                    held.eq(self.i.payload),
                    held.packet.eq(raised(self.i.payload.packet, self.i.payload.first)),
                    mtu.eq(mtu_now),
                    last.eq(self.i.payload.single),
                    weight.eq(mtu_now // UNIT),
                    fits.eq(
                        Mux(mtu_now < self._quantum * UNIT, self._quantum - mtu_now // UNIT, 0)
                    ),
                    carry.eq(0),
                    ended.eq(0),
                ]
                with m.If(self.i.valid):
                    with m.If(self.i.payload.fresh):
                        m.d.sync += sent.eq(0)
                    m.next = "PACKET"
                    with m.If(self.i.payload.read & ~self.i.payload.first):
                        m.next = "OFFSET"
            # OFFSET: how many bytes of the READ have been sent is worked out.
            with m.State("OFFSET"):
                m.d.sync += offset.eq(passed)
                m.next = "RESUME"
            # RESUME: what is left begins there; the address, of 64 bits, takes two states more.
            with m.State("RESUME"):
                m.d.sync += [
                    held.length[8:].eq(held.length[8:] - offset[8:]),
                    held.psn.eq(held.psn + held.packet),
                    held.packet.eq(raised(held.packet, 1)),
                ]
                add_low(m, held.va, carry, held.va, offset)
                m.next = "RESUME-HIGH"
            # RESUME-HIGH: adds the next bits of the address; one cycle.
            with m.State("RESUME-HIGH"):
                add_middle(m, held.va, carry, offset)
                m.next = "RESUME-TOP"
            # RESUME-TOP: adds the last bits of it, and says whether a packet is left; one cycle.
            with m.State("RESUME-TOP"):
                add_high(m, held.va, carry, above=2 * OFFSET_BITS)
                m.d.sync += last.eq(fit(held.length, mtu))
                m.next = "PACKET"
            # PACKET: a packet is offered to the gather, until it takes it.
            with m.State("PACKET"):
                m.d.comb += [at_packet.eq(1), self.job.valid.eq(~payload | self.room)]
                m.d.sync += ended.eq(ended | self.progress.ends)
                with m.If(self.job.ready & (~payload | self.room)):
                    m.d.sync += [
                        held.length[8:].eq(held.length[8:] - mtu[8:]),
                        held.psn.eq(raised(held.psn, 1)),
                        held.packet.eq(raised(held.packet, 1)),
                        held.first.eq(0),
                        # Which of them is known last, so both sums are there before.
                        sent.eq(Mux(last, sent + (held.length[8:13] | 1), sent + weight)),
                    ]
                    add_low(m, held.va, carry, held.va, mtu)
                    m.next = "NEXT"
                    with m.If(~held.read | ended | last | full):
                        m.next = "IDLE"
            # NEXT: the upper half of the next packet's address is added up, and what is left of the
            # READ is compared with a packet; one cycle.
            with m.State("NEXT"):
                add_high(m, held.va, carry)
                m.d.sync += last.eq(fit(held.length, mtu))
                m.next = "PACKET"
        self._job(m, held, last, mtu)
        return m

    def _job(self, m: Module, held: Signal, last: Signal, mtu: Signal) -> None:
        """The packet at hand."""
        job, header = self.job.payload, self.job.payload.header
        m.d.comb += [
            job.source.eq(TxSource.NONE),
            job.qp.eq(held.qp),
            job.function.eq(held.function),
            job.pd.eq(held.pd),
            job.key.eq(held.key),
            job.va.eq(held.va),
            header.opcode.eq(Operation.ACKNOWLEDGE),
            header.pkey.eq(held.pkey),
            header.dest_qp.eq(held.dest_qp),
            header.av.eq(held.av),
            header.psn.eq(held.psn),
            header.msn.eq(held.msn),
            header.syndrome.eq(held.syndrome),
            header.va.eq(held.va),  # the result of an atomic
        ]
        with m.If(held.read & held.atomic):
            result = C(Operation.ATOMIC_ACK, 5)
            if self._config.placement:  # FLUSH and ATOMIC WRITE have no result
                result = Mux(held.length == 0, Operation.READ_RESP_ONLY, result)
            m.d.comb += header.opcode.eq(Mux(held.failed, Operation.ACKNOWLEDGE, result))
        with m.Elif(held.read):
            m.d.comb += [
                job.source.eq(Mux(held.length == 0, TxSource.NONE, TxSource.KEY)),
                header.length.eq(Mux(last, held.length, mtu)),
                header.opcode.eq(
                    Mux(
                        held.first,
                        Mux(last, Operation.READ_RESP_ONLY, Operation.READ_RESP_FIRST),
                        Mux(last, Operation.READ_RESP_LAST, Operation.READ_RESP_MIDDLE),
                    )
                ),
            ]
        if self._config.xrc:
            with m.If(held.xrc):
                m.d.comb += header.opcode[5:].eq(Transport.XRC)
        if self._config.dc:
            with m.If(held.dc):
                m.d.comb += header.opcode[5:].eq(Transport.DC)
