"""The receive side of the transport: received packets to scatter jobs, effects and QP state."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.count import COUNT, increment
from hdl.common.skid import Register
from hdl.common.sums import wide_difference
from hdl.config import NicConfig
from hdl.ports.headers import RxHeader
from hdl.ports.jobs import (
    Activation,
    Effects,
    FetchRequest,
    LineUse,
    Oldest,
    RecvFetched,
    ScatterChecked,
    ScatterJob,
    ScatterKind,
)
from hdl.ports.operations import PacketOperation, decode_packet, packet_serves
from hdl.ports.rows import QpAck, QpCfg, QpReply, QpRx, QpState, ReadResource
from hdl.ports.tables import TableRead, TableWrite

from .completer import Completer
from .outstanding import Look, Pop
from .receive_types import (
    Counted,
    Counters,
    Events,
    Part,
    Pending,
    ReceiveFlags,
    SequenceNak,
    is_plain_ack,
)
from .responder import Responder
from .segment import PSN_BLOCK
from .settle import Settle

__all__ = ["Receive"]

FINISH_AND_FLUSH = (ReceiveFlags.FINISH | ReceiveFlags.FLUSH).value


class Receive(wiring.Component):
    """Takes packets and pokes in turn, reads the QP's rows, checks that the packet belongs to it.

    Then ``Responder`` (requests, flushes) or ``Completer`` (responses, finishes) works out what it
    brings about, with rows that are ahead of the checks by the scatter; ``Settle`` makes it true
    when the check has come.
    Spec: IBTA vol 1, 9.6.1 (checks of a packet against its QP), Annex A17 (addresses).

    Members: ``header`` In, one row per packet, and exactly one ``scatter_job`` for each of them in
    the same order (the payload itself goes from ingress to scatter). ``poke`` In: flags of
    ``ReceiveFlags`` per QP; ``repoke`` Out asks for another one. ``scatter_checked`` In and
    ``effects`` Out: one for each job. Jobs of pokes, and of further WQEs that one ACK finishes,
    have no payload (NONE). ``fetch_req``/``fetch_rsp``: receive WQEs and sinks of READs;
    ``line_use``: which of RecvFetch's lines jobs still read.
    ``head_req``/``head_rsp``, ``pop``: the outstanding table. ``wake`` Out: a QP whose operation
    has finished, with or after ``ack_write`` (``QpAck.wakes``). ``sequence_nak`` Out: where a retry
    should begin. ``cfg``, ``reply``, ``ack_read``: copies; ``ahead_read``, ``ahead_write``: the
    responder's rows as it works with them; ``rx_read``, ``rx_write``: the same as all others see
    them, behind the checks; ``ack_write``: the completer's; ``resource_read``, ``resource_write``:
    the pool of READ requests. ``turned``: see ``Quiesce``; ``hold``: it is waited for, so nothing
    is taken before the completer has ended. ``settled``: nothing taken is unfinished here.
    ``mending``: rows of a QP whose check was not good are still to be written. ``counters``: see
    ``COUNTERS``; ``counted`` Out: the same as it happens, by QP.

    Latency: 3 cycles to the responder or completer; see there for the rest. Throughput: one packet
    in 4 cycles for a WRITE, 7 for a SEND, 8 for an ACK of one WQE, 6 when another QP's comes next,
    each with the waits for fetch and table, but not for checks: up to 32 are awaited, of them 16
    that read a line. Of ACKs that wait the last one counts (``merged_acks``). Packets and pokes
    alternate when both wait. Errors: a packet that is not for a QP in the right state is dropped
    and counted by cause; only RC is served. Reset: idle, counters 0.
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
                "ahead_read": Out(TableRead(14, QpRx)),
                "ahead_write": Out(TableWrite(14, QpRx)),
                "rx_read": Out(TableRead(14, QpRx)),
                "rx_write": Out(TableWrite(14, QpRx)),
                "ack_read": Out(TableRead(14, QpAck)),
                "ack_write": Out(TableWrite(14, QpAck)),
                "resource_read": Out(TableRead(16, ReadResource)),
                "resource_write": Out(TableWrite(16, ReadResource)),
                "fetch_req": Out(stream.Signature(FetchRequest)),
                "fetch_rsp": In(stream.Signature(RecvFetched)),
                "line_use": Out(LineUse()),
                "head_req": Out(stream.Signature(Look)),
                "head_rsp": In(stream.Signature(Oldest)),
                "pop": Out(stream.Signature(Pop)),
                "scatter_job": Out(stream.Signature(ScatterJob)),
                "scatter_checked": In(stream.Signature(ScatterChecked)),
                "effects": Out(stream.Signature(Effects)),
                "wake": Out(stream.Signature(14)),
                "sequence_nak": Out(stream.Signature(SequenceNak)),
                "turned": Out(1),
                "hold": In(1),
                "settled": Out(1),
                "mending": Out(1),
                "counters": Out(Counters),
                "merged_acks": Out(COUNT),
                "counted": Out(stream.Signature(Counted, always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.responder = responder = Responder(config=self._config)
        m.submodules.completer = completer = Completer(config=self._config)
        m.submodules.settle = settle = Settle()
        # What a job is made of is known late, and its taker begins to look it up at once.
        m.submodules.jobs = jobs = Register(shape=ScatterJob)
        wiring.connect(m, jobs.o, wiring.flipped(self.scatter_job))

        header = Signal(RxHeader, reset_less=True)
        # Decoded here, once: nothing behind compares opcodes.
        operation = Signal(PacketOperation, reset_less=True)
        arriving = decode_packet(m, self.header.payload.opcode, name="arriving")
        cfg, rx = Signal(QpCfg, reset_less=True), Signal(QpRx, reset_less=True)
        ack, reply = Signal(QpAck, reset_less=True), Signal(QpReply, reset_less=True)
        qp = Signal(14, reset_less=True)
        poke = Signal(4)  # ReceiveFlags: what is left to do of a poke
        poked = Signal()  # the work is a poke, not a packet
        turn = Signal()  # pokes are served when idle
        part = Signal(Part)
        drop = Signal(Events)  # cause, one bit
        drop_now = self._drop_cause(m, header, operation, cfg, rx, ack, qp)
        in_error = (cfg.state == QpState.ERR) | rx.error | ack.error
        discarding = Signal()  # the front has a job of its own
        pending = Signal(Pending)  # ... and what comes of it
        pending_valid = Signal()
        failing = Signal()  # the front writes the row itself
        # The pair index is the low bits of a QPN; what is above them only has to match (VR-3.22).
        pair = self.header.payload.dest_qp[: ceil_log2(self._config.qps)]
        # The completer works on while the next packet's rows are read. Those that it writes in this
        # very cycle come a cycle too late for that; later ones are seen below.
        index, waits = Signal(14), Signal()
        m.d.comb += [
            index.eq(Mux(turn, self.poke.payload.qp, pair)),
            waits.eq(settle.rest | (completer.busy & self.hold) | completer.ack_write.enable),
        ]
        resting = ~completer.busy | (completer.ending & (completer.qp != qp))
        # The responder is at a packet, and the rows of the next one have been read.
        peeked = Signal()
        merges = Signal()  # a cycle before: the next packet says all that this QP's one does
        still = (
            self._merges(m, header, operation, arriving)
            & (drop_now.as_value() == 0)
            & ~self.header.ready
        )

        def load_rows():
            m.d.sync += [
                cfg.eq(self.cfg.row),
                rx.eq(self.ahead_read.row),
                ack.eq(self.ack_read.row),
                reply.eq(self.reply.row),
            ]

        written = Signal()  # the responder's row, in the cycle before: not yet what is read then
        m.d.sync += [peeked.eq(0), written.eq(responder.rx_write.enable), merges.eq(0)]
        with m.FSM(name="receive") as fsm:
            with m.State("IDLE"):
                m.d.comb += [
                    self.header.ready.eq(~turn & ~waits),
                    self.poke.ready.eq(turn & ~waits),
                ]
                m.d.sync += [
                    header.eq(self.header.payload),
                    operation.eq(arriving),
                    poked.eq(turn),
                    drop.eq(0),
                    poke.eq(self.poke.payload.flags),
                    qp.eq(index),
                ]
                self._read_rows(m, index)
                with m.If(waits):
                    pass
                with m.Elif(Mux(turn, self.poke.valid, self.header.valid)):
                    m.next = "ROWS"
                with m.Else():
                    m.d.sync += turn.eq(self.poke.valid)
            with m.State("ROWS"):
                load_rows()
                m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "HAND-OVER"
                m.d.sync += merges.eq(still)
                with m.If(completer.busy & ~poked & merges):
                    m.d.comb += self.header.ready.eq(1)
                    m.d.sync += [header.eq(self.header.payload), operation.eq(arriving)]
                    increment(m, self.merged_acks)
                with m.If(~resting):
                    m.next = "CHECK"  # the ports that it shares are its own until it ends
                with m.Elif(~poked):
                    m.d.sync += [
                        part.eq(Mux(operation.response, Part.COMPLETER, Part.RESPONDER)),
                        drop.eq(drop_now),
                    ]
                    with m.If(drop_now.as_value() != 0):
                        m.d.sync += part.eq(Part.FRONT)
                        m.next = "DROP"
                with m.Elif((poke & ReceiveFlags.FAIL.value) != 0):
                    m.next = "FAIL"
                with m.Elif((poke & ReceiveFlags.FINISH.value) != 0):
                    m.d.sync += [
                        part.eq(Part.COMPLETER),
                        poke.eq(poke & ReceiveFlags.FLUSH.value),
                    ]
                with m.Elif(((poke & ReceiveFlags.FLUSH.value) != 0) & in_error):
                    m.d.sync += [part.eq(Part.RESPONDER), poke.eq(0)]
                with m.Else():
                    m.next = "DONE"
            with m.State("HAND-OVER"):
                m.d.comb += [
                    responder.i.valid.eq(part == Part.RESPONDER),
                    completer.i.valid.eq(part == Part.COMPLETER),
                ]
                with m.If(~poked & responder.i.valid):
                    self._read_rows(m, pair)
                    m.d.sync += peeked.eq(self.header.valid)
                given = responder.i.valid & responder.i.ready
                with m.If(given | (completer.i.valid & completer.i.ready)):
                    m.d.sync += turn.eq(~poked & self.poke.valid)
                    m.next = "IDLE"
                    with m.If(poked & (poke != 0)):
                        m.next = "CHECK"  # the poke has a second half
                with m.If(given & peeked & ~self.poke.valid & ~settle.rest & ~self.hold):
                    m.d.comb += self.header.ready.eq(1)
                    load_rows()
                    m.d.sync += [header.eq(self.header.payload), operation.eq(arriving)]
                    m.d.sync += [drop.eq(0), qp.eq(pair)]
                    with m.If((responder.rx_write.enable | written) & (pair == qp)):
                        m.d.sync += rx.eq(responder.rx_write.row)
                    m.next = "CHECK"
            with m.State("FAIL"):
                # Something outside has broken the QP (its CQ overflowed): stop it, then flush it.
                m.d.comb += [failing.eq(1), pending_valid.eq(1)]
                with m.If(settle.pending.ready):
                    m.d.sync += [
                        rx.error.eq(1),
                        poke.eq((poke | FINISH_AND_FLUSH) & ~ReceiveFlags.FAIL.value),
                    ]
                    m.next = "CHECK"
            with m.State("DROP"):
                m.d.comb += discarding.eq(1)
                with m.If(jobs.i.ready):
                    m.next = "DROPPED"
            with m.State("DROPPED"):
                m.d.comb += pending_valid.eq(1)
                with m.If(settle.pending.ready):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.sync += turn.eq(~poked & self.poke.valid)
                m.next = "IDLE"

        with m.If(self.ack_write.enable & (self.ack_write.index == qp) & ~fsm.ongoing("IDLE")):
            m.d.sync += ack.eq(self.ack_write.row)

        work = responder.i.payload
        m.d.comb += [
            work.flush.eq(poked),
            work.qp.eq(qp),
            work.header.eq(header),
            work.operation.eq(operation),
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
            work.operation.eq(operation),
            work.cfg.eq(cfg),
            work.ack.eq(ack),
        ]
        self._own_ports(m, responder, completer)
        failed = Signal(QpRx)
        m.d.comb += [
            failed.eq(rx),
            failed.error.eq(1),
            pending.qp.eq(qp),
            pending.part.eq(Mux(failing, Part.RESPONDER, Part.FRONT)),
            pending.packet.eq(~failing),
            pending.jobless.eq(failing),
            pending.commit.eq(failing),
            pending.row.eq(failed),
        ]
        with m.If(~failing):
            m.d.comb += pending.events.eq(drop)
        self._rows_written(m, responder, completer, settle, failing, failed, qp)
        self._shared_ports(m, responder, completer, settle, part, jobs.i)
        with m.If(part == Part.FRONT):
            m.d.comb += [
                jobs.i.valid.eq(discarding),
                jobs.i.payload.kind.eq(
                    Mux(header.length == 0, ScatterKind.NONE, ScatterKind.DISCARD)
                ),
                jobs.i.payload.length.eq(header.length),
            ]
        with m.If(pending_valid):
            m.d.comb += [settle.pending.valid.eq(1), settle.pending.payload.eq(pending)]
        job = jobs.i
        m.d.comb += [
            settle.front_idle.eq(fsm.ongoing("IDLE") & ~completer.busy),
            self.turned.eq(fsm.ongoing("IDLE") & ~completer.busy & ~jobs.o.valid),
            self.settled.eq(settle.idle),
            self.mending.eq(settle.stalled),
            self.line_use.taken.eq(job.valid & job.ready & (job.payload.kind == ScatterKind.LINE)),
            self.line_use.line.eq(job.payload.line),
            self.line_use.done.eq(settle.line_done),
            settle.line_taken.eq(self.line_use.taken),
        ]
        for name in Counters.members:
            now = self.counted.valid & self.counted.payload.events[name]
            with m.If(now):
                increment(m, self.counters[name])
        return m

    def _read_rows(self, m, index):
        for table in (self.cfg, self.reply, self.ahead_read, self.ack_read):
            m.d.comb += [table.index.eq(index), table.enable.eq(1)]

    def _merges(self, m, header, operation, arriving):
        """Whether the packet that waits says all that the one in hand does: a later ACK of the
        same QP from the same peer (IBTA vol 1, 9.7.5.1.2: an ACK covers all before it)."""
        then = self.header.payload
        merges = Signal()
        distance = wide_difference(m, then.psn, header.psn, block=PSN_BLOCK)
        same = ("dest_qp", "function", "src_gid", "gid_index", "pkey")
        m.d.comb += merges.eq(
            self.header.valid
            & is_plain_ack(header, operation)
            & is_plain_ack(then, arriving)
            & Cat(header[name] == then[name] for name in same).all()
            & ~distance[23]
        )
        return merges

    def _drop_cause(self, m, header, operation, cfg, rx, ack, qp):
        """The first reason for which the packet is not this QP's, or none."""
        cause = Signal(Events, name="drop_now")
        ready_to_send = (
            (cfg.state == QpState.RTS) | (cfg.state == QpState.SQD) | (cfg.state == QpState.SQE)
        )
        ready = ready_to_send | ((cfg.state == QpState.RTR) & ~operation.response)
        with m.If((cfg.qpn != header.dest_qp) | (qp == 0)):
            m.d.comb += cause.unknown_qp.eq(1)
        with m.Elif(cfg.function != header.function):
            m.d.comb += cause.wrong_function.eq(1)
        with m.Elif(~packet_serves(operation, cfg.type)):
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
            (completer, ("head_req", "head_rsp", "pop", "wake", "sequence_nak")),
        ):
            for name in names:
                wiring.connect(m, getattr(part, name), wiring.flipped(getattr(self, name)))

    def _rows_written(self, m, responder, completer, settle, failing, failed, qp):
        """Each table's writers; Settle mends rows only while the others rest."""
        for port, inner, mend in (
            (self.ahead_write, responder.rx_write, settle.ahead_write),
            (self.ack_write, completer.ack_write, settle.ack_write),
        ):
            with m.If(mend.enable):
                m.d.comb += [port.index.eq(mend.index), port.row.eq(mend.row), port.enable.eq(1)]
            with m.Else():
                m.d.comb += [
                    port.index.eq(inner.index),
                    port.row.eq(inner.row),
                    port.enable.eq(inner.enable),
                ]
        with m.If(failing):
            m.d.comb += [
                self.ahead_write.index.eq(qp),
                self.ahead_write.row.eq(failed),
                self.ahead_write.enable.eq(1),
            ]
        m.d.comb += settle.ack_read.row.eq(self.ack_read.row)
        with m.If(settle.ack_read.enable):
            m.d.comb += [self.ack_read.index.eq(settle.ack_read.index), self.ack_read.enable.eq(1)]
        for name in ("checked", "effects", "rx_read", "rx_write", "counted"):
            outer = getattr(self, "scatter_checked" if name == "checked" else name)
            wiring.connect(m, getattr(settle, name), wiring.flipped(outer))

    def _shared_ports(self, m, responder, completer, settle, part, job):
        """Members that the part at work has for itself until it is done."""
        for outer, first, second in (
            (self.fetch_req, responder.fetch_req, completer.fetch_req),
            (self.repoke, responder.repoke, completer.repoke),
            (job, responder.job, completer.job),
            (settle.pending, responder.pending, completer.pending),
        ):
            with m.Switch(part):
                for index, one in ((Part.RESPONDER, first), (Part.COMPLETER, second)):
                    with m.Case(index):
                        m.d.comb += [
                            outer.valid.eq(one.valid),
                            outer.payload.eq(one.payload),
                            one.ready.eq(outer.ready),
                        ]
        outer, first, second = self.fetch_rsp, responder.fetch_rsp, completer.fetch_rsp
        m.d.comb += [first.payload.eq(outer.payload), second.payload.eq(outer.payload)]
        with m.Switch(part):
            for index, one in ((Part.RESPONDER, first), (Part.COMPLETER, second)):
                with m.Case(index):
                    m.d.comb += [one.valid.eq(outer.valid), outer.ready.eq(one.ready)]
        with m.If(settle.repoke.valid):
            m.d.comb += [self.repoke.valid.eq(1), self.repoke.payload.eq(settle.repoke.payload)]
        m.d.comb += settle.repoke.ready.eq(self.repoke.ready)
