"""Cuts the requester's WQE into packets for the gather."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.address import OFFSET_BITS, add_high, add_low, add_middle
from hdl.common.count import raised
from hdl.config import NicConfig
from hdl.ports.atomics import OPERAND_BYTES, OPERANDS_AT
from hdl.ports.jobs import PACKET_GENERATION, Destination, SendFetched, TxJob, TxSource
from hdl.ports.numbers import QpNumber
from hdl.ports.operations import is_copy, is_datagram, is_placement
from hdl.ports.rows import QpCfg, QpTx
from hdl.ports.shared import copy_piece, remote_srq, sent_srq
from hdl.wire.constants import MAX_MTU
from hdl.wire.opcodes import ATOMIC_BYTES, Kind

from ..recovery.segment import fit, mtu_bytes, ragged_bits, whole_packets
from .copies import PIECE, CopyPieces
from .headers import (
    Place,
    copy_headers,
    datagram_headers,
    note_departure,
    request_headers,
)
from .redirect import Redirect
from .row import Step

__all__ = ["RequestPackets"]

#: Bytes of payload above which fewer packets may wait for their checks (``RequestChecks``).
LARGE = 1024
#: A packet of a longer MTU counts in the quantum as often as it has so many bytes; and how often
#: the longest does. A turn takes the line 8 KiB, whatever the MTU, with the usual quantum.
UNIT = 512
LONGEST = MAX_MTU // UNIT


class RequestPackets(wiring.Component):
    """Holds one WQE and hands its packets to the gather, without waiting for their checks.

    Spec: IBTA vol 1, 9.7.2 (PSN), 9.7.3 (packets of a message); virtio-rdma VR-4.4.
    A message begins at ``row.offset`` and ``row.psn``, wherever that is in it: offset 0 is its
    first packet, and any multiple of the path MTU is where a turn ended or a restart points to.

    Members: ``take``: ``wqe`` becomes ``held``, at least 2 cycles before ``start``, which hands
    over its packets by ``cfg`` and ``row``, a datagram's to its ``destination``. ``single``: the
    message has one packet; ``psns``: PSNs but one that it takes; both valid with ``start`` and 1
    cycle before. ``room``: a packet may be handed over, of a message that is ``large``;
    ``entering``: the WQE's outstanding entry is being made, which the second packet waits for.
    ``job`` to the gather; ``handed``: pulse, it has been taken, as the ``last`` of its WQE or not.
    ``advance``, a cycle later, with the ``step`` of the row; with ``done`` that was the last one,
    otherwise with ``again``: the QP's rows must be read now, as they say whether it may go on when
    they are ``known``: ``stopped``, ``reset`` (``RequestAdmission``). ``newest``: no WQE behind
    this one has an entry (``RequestRow``). ``urgent``: something else must be done before the next
    packet; ``back``: the QP goes back. ``contended``: another QP's WQE waits, or another QP
    goes back, so the turn ends after ``quantum`` packets, or fewer of more than ``UNIT`` bytes.
    ``end``, for a cycle, with the ``way`` in which the WQE ends otherwise. ``end`` and ``done``
    come before the first packet or between two, never while a job is offered.

    Latency: 1 cycle from ``start`` to ``job``, 3 more where a READ goes on in its middle.
    Throughput: a packet in 3 cycles. Errors: none of its own. Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._quantum = config, config.quantum
        super().__init__(
            {
                "take": In(1),
                "wqe": In(SendFetched),
                "held": Out(SendFetched),
                "cfg": In(QpCfg),
                "destination": In(Destination),
                "row": In(QpTx),
                "qp": In(QpNumber),
                "generation": In(PACKET_GENERATION),
                "known": In(1),
                "newest": In(1),
                "start": In(1),
                "single": Out(1),
                "psns": Out(24),
                "large": Out(1),
                "room": In(1),
                "entering": In(1),
                "stopped": In(1),
                "reset": In(1),
                "urgent": In(1),
                "back": In(1),
                "contended": In(1),
                "job": Out(stream.Signature(TxJob)),
                "handed": Out(1),
                "last": Out(1),
                "advance": Out(1),
                "step": Out(Step),
                "again": Out(1),
                "done": Out(1),
                "end": Out(1),
                "way": Out(Redirect),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, row, place = self.cfg, self.row, Signal(Place)
        held = Signal(SendFetched, reset_less=True)  # its address moves on where a READ goes on
        wqe, operation = held.wqe, held.wqe.operation
        mtu_code, mtu = Signal(3, reset_less=True), Signal(13, reset_less=True)
        left = Signal(32, reset_less=True)  # of the message; offsets are multiples of the MTU
        # The message's packets: full ones, and whether one is not.
        whole, odd = Signal(24, reset_less=True), Signal(5, reset_less=True)
        ragged = odd.any()
        # In this turn, as the quantum counts; as registers: at least one, as many as may be.
        sent, some, most = Signal(range(2 * self._quantum + LONGEST)), Signal(), Signal()
        payload, carry, step = Signal(13), Signal(), Signal(Step)
        offering = Signal()  # the job has been offered: it stays until it is taken
        copies = is_copy(self._config, operation.completion)
        fetches = operation.data & ~copies
        piece = self._copies(m, copies, offering)
        contended, spent = Signal(), Signal()
        m.d.sync += contended.eq(self.contended)
        with m.If(self.take):
            m.d.sync += held.eq(self.wqe)
        m.d.comb += [
            self.held.eq(held),
            place.first.eq(row.offset == 0),
            place.last.eq((fit(left, mtu) & ~piece.check) | fetches | piece.ending),
            place.left.eq(left),
            payload.eq(Mux(place.last, left, mtu) & (~piece.bare).replicate(13)),
            spent.eq(most & contended),
            self.single.eq(((whole == 0) | ((whole == 1) & ~ragged) | operation.data) & ~copies),
            self.last.eq(place.last),
            self.handed.eq(self.job.valid & self.job.ready),
            self.step.eq(step),
        ]
        self._take_psns(m, operation, copies, (whole, ragged))
        weight = self._size(m, wqe, mtu)
        taken = weight & (~piece.check).replicate(len(weight))  # of the quantum, by the packet
        left_whole = whole_packets(m, mtu_code, left, "left_whole")
        self._job(m, place, payload, some)
        if self._config.memcpy:
            self._copy_job(m, copies, piece)
        self._departure(m, operation, left_whole, ragged)

        def end(way: Redirect) -> None:
            m.d.comb += [self.end.eq(1), self.way.eq(way)]
            m.next = "IDLE"

        code = Mux(copies, self._piece_code, cfg.path_mtu) if self._config.memcpy else cfg.path_mtu
        mtu_now = mtu_bytes(m, code)
        whole_now = whole_packets(m, cfg.path_mtu, wqe.length)
        with m.FSM(name="cut"):
            # IDLE: how the WQE is cut is worked out while it is being admitted; ``start`` ends it.
            with m.State("IDLE"):
                m.d.comb += piece.idle.eq(1)
                m.d.sync += [
                    mtu_code.eq(code),
                    mtu.eq(mtu_now),
                    whole.eq(whole_now),
                    odd.eq(ragged_bits(cfg.path_mtu, wqe.length)),
                    left.eq(Cat(wqe.length[:8], wqe.length[8:] - row.offset[8:])),
                    sent.eq(0),
                    some.eq(0),
                    most.eq(0),
                ]
                with m.If(self.start):
                    m.next = "PACKET"
                    with m.If(operation.by_length & ~place.first):
                        m.next = "RESUME"
            self._resume(m, wqe, carry)
            # PACKET: a packet is offered to the gather. Ends when the gather takes it, or before
            # it is offered, when the rows or somebody else put an end to the turn.
            with m.State("PACKET"):
                m.d.sync += [
                    step.last.eq(place.last),
                    step.payload.eq(payload),
                    step.packets.eq(Mux(operation.by_length, raised(left_whole, ragged), ~copies)),
                    step.asks.eq(self.job.payload.header.ack_request),
                ]
                with m.If(~offering & self.reset):
                    # Nothing of the QP may go out any more; its rows and its list are dropped.
                    end(Redirect.DROP)
                with m.Elif(~offering & self.stopped & some & ~copies):
                    # The QP broke while its message was on the way: the rest is not sent.
                    end(Redirect.STOPPED)
                with m.Elif(~offering & self.back & ~fetches):
                    # Not with a READ: the address of one that goes on in its middle has moved.
                    end(Redirect.BACK)
                with m.Elif(~offering & (self.urgent | self.back | spent)):
                    end(Redirect.YIELD)
                with m.Elif(self.room & (~some | ~self.entering)):
                    m.d.comb += self.job.valid.eq(1)
                    m.d.sync += offering.eq(~self.job.ready)
                    with m.If(self.job.ready):
                        m.next = "ADVANCE"
            # ADVANCE: the row moves on behind the packet, and the QP's rows are read again if
            # another packet follows; lasts one cycle.
            with m.State("ADVANCE"):
                m.d.comb += [
                    self.advance.eq(1),
                    self.done.eq(step.last),
                    self.again.eq(~step.last),
                ]
                m.d.comb += piece.advance.eq(1)
                m.d.sync += [
                    left[8:].eq(left[8:] - step.payload[8:]),
                    sent.eq(Mux(sent < self._quantum, sent + taken, sent)),
                    some.eq(1),
                    most.eq(sent + taken >= self._quantum),
                ]
                m.next = "STATE"
                with m.If(step.last):
                    m.next = "IDLE"
            # STATE: waits for the rows that are read again; ends with them.
            with m.State("STATE"), m.If(self.known):
                m.next = "PACKET"
        return m

    def _resume(self, m: Module, wqe, carry: Signal) -> None:
        """A READ that goes on in its middle."""
        # RESUME: a READ goes on in its middle; its address moves on, in three cycles.
        with m.State("RESUME"):
            add_low(m, wqe.remote_addr, carry, wqe.remote_addr, self.row.offset)
            m.next = "RESUME-MIDDLE"
        # RESUME-MIDDLE: the second part of that sum of 64 bits; lasts one cycle.
        with m.State("RESUME-MIDDLE"):
            add_middle(m, wqe.remote_addr, carry, self.row.offset)
            m.next = "RESUME-HIGH"
        # RESUME-HIGH: the last part; lasts one cycle.
        with m.State("RESUME-HIGH"):
            add_high(m, wqe.remote_addr, carry, above=2 * OFFSET_BITS)
            m.next = "PACKET"

    @property
    def _piece_code(self) -> int:
        """The code of the longest path MTU of the card, which is the size of a MEMCPY's pieces."""
        return ceil_log2(self._config.mtu) - 7

    def _copies(self, m: Module, copies: Value, offering: Signal):
        """What ``CopyPieces`` says of a WQE that copies; nothing on a card without such ones."""
        if not self._config.memcpy:
            return PIECE.create()
        m.submodules.piece = piece = CopyPieces()
        m.d.comb += [
            piece.copies.eq(copies),
            piece.wqe.eq(self.held),
            piece.row.eq(self.row),
            piece.stopped.eq(self.stopped),
            piece.offering.eq(offering),
            piece.payload.eq(self.step.payload),
        ]
        return piece

    def _copy_job(self, m: Module, copies: Value, piece: CopyPieces) -> None:
        """The piece at hand, if it is one of a WQE that copies."""
        job, cfg, row = self.job.payload, self.cfg, self.row
        with m.If(copies):
            copy_headers(m, job.header, cfg, row, self.held.position)
            said = copy_piece(job.header)
            m.d.comb += [
                said.begins.eq(piece.begins),
                said.ends.eq(self.last),
                job.source.eq(Mux(piece.ending, TxSource.NONE, TxSource.LINE)),
                job.check_sink.eq(piece.check),
                job.request.eq(0),  # it is not sent again
                job.offset.eq(piece.source),
                job.resume.eq(piece.resume),
            ]

    def _take_psns(self, m: Module, operation, copies: Value, packets) -> None:
        """PSNs of the WQE but one; ``packets``: its full ones, and whether there is one more."""
        whole, ragged = packets
        more = ragged.replicate(24)
        # No Mux: Yosys would make one difference of the two, behind the choice.
        m.d.comb += self.psns.eq((whole & more) | ((whole - 1) & ~more))
        if self._config.placement:
            with m.If(is_placement(self._config, operation.completion)):
                m.d.comb += self.psns.eq(0)  # whatever the length is that a FLUSH names
        with m.If(copies):
            m.d.comb += self.psns.eq(-1)  # it has none

    def _departure(self, m: Module, operation, whole: Value, ragged: Value) -> None:
        """What is noted of the packet when it leaves. ``whole``, ``ragged``: the full packets of
        the rest of the message, and whether there is one that is not."""
        behind = Signal(24)  # PSN behind the packet; of a READ behind its responses
        asked = Mux(operation.by_length, whole, 0)
        m.d.comb += behind.eq(self.row.psn + asked + (~operation.by_length | ragged))
        header, timeout = self.job.payload.header, self.cfg.timeout
        note_departure(
            m, header, qp=self.qp, generation=self.generation, behind=behind, timeout=timeout
        )

    def _size(self, m: Module, wqe, mtu: Value) -> Signal:
        """Whether packets are ``large``, and, returned, how often one counts in the quantum: known
        a cycle behind ``mtu``, before the first packet."""
        weight = Signal(range(max(LONGEST, self._quantum) + 1), reset_less=True)
        copies = is_copy(self._config, wqe.operation.completion)
        reads = wqe.operation.data & ~copies
        m.d.sync += [
            self.large.eq(~fit(wqe.length, Const(LARGE, 11)) & (mtu > LARGE) & ~reads),
            # What is copied takes no time of the line, but of the host's: a piece is a turn.
            weight.eq(Mux(copies, self._quantum, Mux(mtu < UNIT, 1, mtu // UNIT))),
        ]
        return weight

    def _job(self, m: Module, place: Signal, payload: Signal, some: Signal) -> None:
        """The packet at hand."""
        job, wqe, cfg, row = self.job.payload, self.held.wqe, self.cfg, self.row
        operation = wqe.operation
        fetches = operation.data & ~is_copy(self._config, operation.completion)
        request_headers(m, self._config, job.header, wqe, cfg, row, place)
        if self._config.ud:
            with m.If(is_datagram(self._config, cfg.type)):
                datagram_headers(m, self._config, job.header, wqe, cfg, self.destination)
        if self._config.xrc:  # no other request has anything in that place
            m.d.comb += sent_srq(job.header).eq(remote_srq(self.destination))
        m.d.comb += [
            job.header.length.eq(Mux(fetches, 0, payload)),
            job.source.eq(TxSource.LINE),
            job.check_sink.eq(operation.data),
            # One with others behind it has been checked, and kept, before.
            job.keep.eq(self.newest),
            job.sink.eq(row.sink),
            job.request.eq(1),
            job.qp.eq(self.qp),
            job.generation.eq(self.generation),
            job.function.eq(cfg.function),
            job.pd.eq(cfg.pd),
            job.line.eq(self.held.line),
            job.num_sge.eq(wqe.num_sge),
            job.offset.eq(row.offset),
            job.resume.eq(some),  # the packet before was of this WQE, and ended here
        ]
        with m.If(operation.kind == Kind.ATOMIC):
            m.d.comb += [  # its operands lie in the line, as they are sent
                job.source.eq(TxSource.INLINE),
                job.offset.eq(OPERANDS_AT),
                job.header.length.eq(OPERAND_BYTES),
            ]
            if self._config.placement:
                with m.If(is_placement(self._config, operation.completion)):
                    m.d.comb += job.header.length.eq(ATOMIC_BYTES)  # ATOMIC WRITE: its payload
        with m.Elif(wqe.inline):
            m.d.comb += job.source.eq(TxSource.INLINE)
        with m.Elif((wqe.length == 0) & ~operation.data):
            m.d.comb += job.source.eq(TxSource.NONE)
