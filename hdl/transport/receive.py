"""The receive side of the transport: received packets to scatter jobs, effects and QP state."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.config import NicConfig
from hdl.ports.headers import RxHeader
from hdl.ports.jobs import (
    Activation,
    Effects,
    FetchRequest,
    Oldest,
    RecvFetched,
    ScatterChecked,
    ScatterJob,
    ScatterKind,
)
from hdl.ports.rows import QpAck, QpCfg, QpReply, QpRx, QpState, ReadResource
from hdl.ports.tables import TableRead, TableWrite
from hdl.wire.opcodes import Operation as Op
from hdl.wire.opcodes import Transport

from .completer import Completer
from .receive_types import RC, Counted, Counters, Events, ReceiveFlags, SequenceNak, is_operation
from .responder import Responder

__all__ = ["Receive"]

_RESPONSES = (
    Op.READ_RESP_FIRST,
    Op.READ_RESP_MIDDLE,
    Op.READ_RESP_LAST,
    Op.READ_RESP_ONLY,
    Op.ACKNOWLEDGE,
    Op.ATOMIC_ACK,
)
_REQUESTS = tuple(op for op in Op if op not in _RESPONSES)


FINISH_AND_FLUSH = (ReceiveFlags.FINISH | ReceiveFlags.FLUSH).value


class _Part(enum.Enum, shape=2):
    """Who handles the packet or poke."""

    FRONT = 0  # drops it
    RESPONDER = 1
    COMPLETER = 2


class Receive(wiring.Component):
    """Takes packets and pokes in turn, reads the QP's rows, checks that the packet belongs to it.

    Then ``Responder`` (requests, flushes) or ``Completer`` (responses, finishes) does the rest; one
    packet or poke at a time, so rows are never read while they are about to change.
    Spec: IBTA vol 1, 9.6.1 (checks of a packet against its QP), Annex A17 (addresses).

    Members: ``header`` In, one row per packet, and exactly one ``scatter_job`` for each of them in
    the same order (the payload itself goes from ingress to scatter). ``poke`` In: flags of
    ``ReceiveFlags`` per QP; ``repoke`` Out asks for another one. ``scatter_checked`` In and
    ``effects`` Out: one for each job. Jobs of pokes, and of further WQEs that one ACK finishes,
    have no payload (NONE). ``fetch_req``/``fetch_rsp``: receive WQEs and sinks of READs.
    ``head_req``/``head_rsp``, ``pop``: the outstanding table. ``wake`` Out: a QP whose operation
    has finished, with or after ``ack_write`` (``QpAck.wakes``). ``sequence_nak`` Out: where a retry
    should begin. ``cfg``, ``reply``, ``rx_read``, ``ack_read``: copies; ``rx_write``,
    ``ack_write``: the rows owned here; ``resource_read``, ``resource_write``: the pool of READ
    requests. ``counters``: see ``COUNTERS``; ``counted`` Out: the same as it happens, by QP.

    Latency: 4 cycles to the responder or completer; see there for the rest. Throughput: one packet
    at a time: 10 cycles for a WRITE packet, 12 for an ACK of one WQE, 13 for a SEND packet, each
    with the waits for check, fetch and table. Packets and pokes alternate when both wait.
    Errors: a packet that is not for a QP in the right state is dropped and counted by cause; only
    RC is served. Reset: idle, counters 0.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "header": In(stream.Signature(RxHeader)),
                "poke": In(stream.Signature(Activation)),
                "repoke": Out(stream.Signature(Activation)),
                "cfg": Out(TableRead(14, QpCfg)),
                "reply": Out(TableRead(14, QpReply)),
                "rx_read": Out(TableRead(14, QpRx)),
                "rx_write": Out(TableWrite(14, QpRx)),
                "ack_read": Out(TableRead(14, QpAck)),
                "ack_write": Out(TableWrite(14, QpAck)),
                "resource_read": Out(TableRead(16, ReadResource)),
                "resource_write": Out(TableWrite(16, ReadResource)),
                "fetch_req": Out(stream.Signature(FetchRequest)),
                "fetch_rsp": In(stream.Signature(RecvFetched)),
                "head_req": Out(stream.Signature(14)),
                "head_rsp": In(stream.Signature(Oldest)),
                "pop": Out(stream.Signature(14)),
                "scatter_job": Out(stream.Signature(ScatterJob)),
                "scatter_checked": In(stream.Signature(ScatterChecked)),
                "effects": Out(stream.Signature(Effects)),
                "wake": Out(stream.Signature(14)),
                "sequence_nak": Out(stream.Signature(SequenceNak)),
                "counters": Out(Counters),
                "counted": Out(stream.Signature(Counted, always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.responder = responder = Responder(config=self._config)
        m.submodules.completer = completer = Completer(config=self._config)

        header = Signal(RxHeader, reset_less=True)
        cfg, rx = Signal(QpCfg, reset_less=True), Signal(QpRx, reset_less=True)
        ack, reply = Signal(QpAck, reset_less=True), Signal(QpReply, reset_less=True)
        qp = Signal(14, reset_less=True)
        poke = Signal(4)  # ReceiveFlags: what is left to do of a poke
        poked = Signal()  # the work is a poke, not a packet
        turn = Signal()  # pokes are served when idle
        part = Signal(_Part)
        drop = Signal(Events)  # cause, one bit
        drop_now = self._drop_cause(m, header, cfg, rx, ack, qp)
        is_response = is_operation(header.opcode[:5], *_RESPONSES)
        in_error = (cfg.state == QpState.ERR) | rx.error | ack.error
        discarding = Signal()  # the front has a job of its own
        failing = Signal()  # the front writes the row itself
        # The pair index is the low bits of a QPN; what is above them only has to match (VR-3.22).
        pair = self.header.payload.dest_qp[: ceil_log2(self._config.qps)]

        with m.FSM(name="receive") as fsm:
            with m.State("IDLE"):
                m.d.comb += [self.header.ready.eq(~turn), self.poke.ready.eq(turn)]
                m.d.sync += [header.eq(self.header.payload), poked.eq(turn), drop.eq(0)]
                m.d.sync += poke.eq(self.poke.payload.flags)
                with m.If(turn):
                    self._read_rows(m, self.poke.payload.qp)
                    m.d.sync += qp.eq(self.poke.payload.qp)
                with m.Else():
                    self._read_rows(m, pair)
                    m.d.sync += qp.eq(pair)
                with m.If(Mux(turn, self.poke.valid, self.header.valid)):
                    m.next = "ROWS"
                with m.Else():
                    m.d.sync += turn.eq(self.poke.valid)
            with m.State("ROWS"):
                m.d.sync += [
                    cfg.eq(self.cfg.row),
                    rx.eq(self.rx_read.row),
                    ack.eq(self.ack_read.row),
                    reply.eq(self.reply.row),
                ]
                m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "HAND-OVER"
                with m.If(~poked):
                    m.d.sync += [
                        part.eq(Mux(is_response, _Part.COMPLETER, _Part.RESPONDER)),
                        drop.eq(drop_now),
                    ]
                    with m.If(drop_now.as_value() != 0):
                        m.d.sync += part.eq(_Part.FRONT)
                        m.next = "DROP"
                with m.Elif((poke & ReceiveFlags.FAIL.value) != 0):
                    m.next = "FAIL"
                with m.Elif((poke & ReceiveFlags.FINISH.value) != 0):
                    m.d.sync += [
                        part.eq(_Part.COMPLETER),
                        poke.eq(poke & ReceiveFlags.FLUSH.value),
                    ]
                with m.Elif(((poke & ReceiveFlags.FLUSH.value) != 0) & in_error):
                    m.d.sync += [part.eq(_Part.RESPONDER), poke.eq(0)]
                with m.Else():
                    m.next = "DONE"
            with m.State("HAND-OVER"):
                m.d.comb += [
                    responder.i.valid.eq(part == _Part.RESPONDER),
                    completer.i.valid.eq(part == _Part.COMPLETER),
                ]
                with m.If((responder.i.valid & responder.i.ready) | completer.i.ready):
                    m.d.sync += turn.eq(~poked & self.poke.valid)
                    m.next = "IDLE"
                    with m.If(poked & (poke != 0)):
                        self._read_rows(m, qp)  # the poke has a second half
                        m.next = "ROWS"
            with m.State("FAIL"):
                # Something outside has broken the QP (its CQ overflowed): stop it, then flush it.
                m.d.comb += failing.eq(1)
                m.d.sync += [
                    rx.error.eq(1),
                    poke.eq((poke | FINISH_AND_FLUSH) & ~ReceiveFlags.FAIL.value),
                ]
                m.next = "CHECK"
            with m.State("DROP"):
                m.d.comb += discarding.eq(1)
                with m.If(self.scatter_job.ready):
                    m.next = "DROP-CHECKED"
            with m.State("DROP-CHECKED"):
                with m.If(self.scatter_checked.valid):
                    m.next = "DROP-EFFECTS"
            with m.State("DROP-EFFECTS"):
                with m.If(self.effects.ready):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.sync += turn.eq(~poked & self.poke.valid)
                m.next = "IDLE"

        work = responder.i.payload
        m.d.comb += [
            work.flush.eq(poked),
            work.qp.eq(qp),
            work.header.eq(header),
            work.cfg.eq(cfg),
            work.rx.eq(rx),
            work.reply.eq(reply),
        ]
        work = completer.i.payload
        m.d.comb += [
            work.finish.eq(poked),
            work.qp.eq(qp),
            work.in_error.eq(in_error),
            work.header.eq(header),
            work.cfg.eq(cfg),
            work.ack.eq(ack),
        ]
        self._own_ports(m, responder, completer)
        failed = Signal(QpRx)
        m.d.comb += [failed.eq(rx), failed.error.eq(1)]
        with m.If(failing):
            m.d.comb += [
                self.rx_write.index.eq(qp),
                self.rx_write.row.eq(failed),
                self.rx_write.enable.eq(1),
            ]
        with m.Else():
            m.d.comb += [
                self.rx_write.index.eq(responder.rx_write.index),
                self.rx_write.row.eq(responder.rx_write.row),
                self.rx_write.enable.eq(responder.rx_write.enable),
            ]
        self._shared_ports(m, responder, completer, part, header, discarding, fsm)

        counted = Signal(Events)
        dropped = fsm.ongoing("DROP-CHECKED") & self.scatter_checked.valid
        m.d.comb += counted.eq(
            responder.events.as_value()
            | completer.events.as_value()
            | Mux(dropped, drop.as_value(), 0)
        )
        for name in Counters.members:
            m.d.sync += self.counters[name].eq(self.counters[name] + counted[name])
        m.d.comb += [
            self.counted.valid.eq(counted.as_value() != 0),
            self.counted.payload.qp.eq(qp),
            self.counted.payload.events.eq(counted),
        ]
        return m

    def _read_rows(self, m, index):
        for table in (self.cfg, self.reply, self.rx_read, self.ack_read):
            m.d.comb += [table.index.eq(index), table.enable.eq(1)]

    def _drop_cause(self, m, header, cfg, rx, ack, qp):
        """The first reason for which the packet is not this QP's, or none."""
        cause = Signal(Events, name="drop_now")
        transport, operation = header.opcode[5:], header.opcode[:5]
        response = is_operation(operation, *_RESPONSES)
        ready_to_send = (
            (cfg.state == QpState.RTS) | (cfg.state == QpState.SQD) | (cfg.state == QpState.SQE)
        )
        ready = ready_to_send | ((cfg.state == QpState.RTR) & ~response)
        with m.If((cfg.qpn != header.dest_qp) | (qp == 0)):
            m.d.comb += cause.unknown_qp.eq(1)
        with m.Elif(cfg.function != header.function):
            m.d.comb += cause.wrong_function.eq(1)
        with m.Elif(
            (transport != Transport.RC)
            | (cfg.type != RC)
            | ~(response | is_operation(operation, *_REQUESTS))
        ):
            m.d.comb += cause.wrong_transport.eq(1)
        with m.Elif(~ready | rx.error | ack.error):
            m.d.comb += cause.qp_state.eq(1)
        with m.Elif((header.src_gid != cfg.av.dgid) | (header.gid_index != cfg.av.sgid_index)):
            m.d.comb += cause.address_mismatch.eq(1)
        with m.Elif(
            (header.pkey[:15] != cfg.pkey[:15])
            | (header.pkey[:15] == 0)
            | ~(header.pkey[15] | cfg.pkey[15])  # two limited members do not talk
        ):
            m.d.comb += cause.bad_pkey.eq(1)
        return cause

    def _own_ports(self, m, responder, completer):
        """Members that one part has for itself."""
        for part, names in (
            (responder, ("resource_read", "resource_write")),
            (completer, ("head_req", "head_rsp", "pop", "wake", "sequence_nak", "ack_write")),
        ):
            for name in names:
                wiring.connect(m, getattr(part, name), wiring.flipped(getattr(self, name)))

    def _shared_ports(self, m, responder, completer, part, header, discarding, fsm):
        """Members that the part at work has for itself until it is done."""
        for name, inner in (
            ("fetch_req", "fetch_req"),
            ("repoke", "repoke"),
            ("scatter_job", "job"),
            ("effects", "effects"),
        ):
            outer, first, second = (
                getattr(self, name),
                getattr(responder, inner),
                getattr(completer, inner),
            )
            with m.Switch(part):
                for index, one in ((_Part.RESPONDER, first), (_Part.COMPLETER, second)):
                    with m.Case(index):
                        m.d.comb += [
                            outer.valid.eq(one.valid),
                            outer.payload.eq(one.payload),
                            one.ready.eq(outer.ready),
                        ]
        for outer, first, second in (
            (self.fetch_rsp, responder.fetch_rsp, completer.fetch_rsp),
            (self.scatter_checked, responder.checked, completer.checked),
        ):
            m.d.comb += [first.payload.eq(outer.payload), second.payload.eq(outer.payload)]
            with m.Switch(part):
                for index, one in ((_Part.RESPONDER, first), (_Part.COMPLETER, second)):
                    with m.Case(index):
                        m.d.comb += [one.valid.eq(outer.valid), outer.ready.eq(one.ready)]
        with m.If(part == _Part.FRONT):
            m.d.comb += [
                self.scatter_job.valid.eq(discarding),
                self.scatter_job.payload.kind.eq(
                    Mux(header.length == 0, ScatterKind.NONE, ScatterKind.DISCARD)
                ),
                self.scatter_job.payload.length.eq(header.length),
                self.scatter_checked.ready.eq(fsm.ongoing("DROP-CHECKED")),
                self.effects.valid.eq(fsm.ongoing("DROP-EFFECTS")),
            ]
