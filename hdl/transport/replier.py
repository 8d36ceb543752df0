"""The responder's packets: READ responses, ACKs and NAKs, from QP state and a ready list."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.activation import ActivationList
from hdl.common.address import OFFSET_BITS, add_high, add_low, add_middle
from hdl.common.count import COUNT, increment
from hdl.config import NicConfig
from hdl.ports.jobs import Activation, ReplyFlags, TxChecked, TxJob, TxSource
from hdl.ports.rows import QpCfg, QpReply, QpRx, QpState, ReadResource
from hdl.ports.tables import TableRead, TableWrite
from hdl.wire.constants import NAK_REMOTE_ACCESS, SYNDROME_ACK_NO_LIMIT
from hdl.wire.opcodes import Operation

from .segment import fit, message_offset, mtu_bytes

__all__ = ["Replier"]


class Replier(wiring.Component):
    """Answers the requests that the responder has accepted.

    Spec: IBTA vol 1, 9.7.5 (acknowledgements), 9.7.5.1.1 (syndromes), 9.7.4.1.1 (READ responses).

    Members: ``activate`` (flags of ``ReplyFlags``, merged per QP while it waits),
    ``job``/``checked`` to the gather, copies of the QP's rows, ``resource`` (the pool of accepted
    READs). ``turned``: see ``Quiesce``.

    READs are answered in order and before any ACK or NAK of the same QP; an ACK says the newest
    expected PSN, so acknowledgements merge while they wait. A READ response that the gather refuses
    (its key went away after the request was accepted) becomes NAK 62h and the QP's READs are
    dropped. A QP in RESET, INIT or ERR says nothing.

    Latency: 7 cycles from the list to the job, 9 in the middle of a READ. Throughput: an ACK takes
    9 cycles and the gather's check, a READ response packet 2 and the check, while the previous
    one's data moves. Reset: nothing is due.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "activate": In(stream.Signature(Activation)),
                "cfg": Out(TableRead(14, QpCfg)),
                "rx": Out(TableRead(14, QpRx)),
                "row": Out(TableRead(14, QpReply)),
                "row_write": Out(TableWrite(14, QpReply)),
                "resource": Out(TableRead(16, ReadResource)),
                "job": Out(stream.Signature(TxJob)),
                "checked": In(stream.Signature(TxChecked)),
                "turned": Out(1),
                "waiting": Out(range(config.qps + 1)),
                "acks": Out(COUNT),
                "naks": Out(COUNT),
                "read_packets": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.list = active = ActivationList(qps=self._config.qps, sets=2)
        wiring.connect(m, wiring.flipped(self.activate), active.set0)
        m.d.comb += self.waiting.eq(active.level)

        cfg, rx, resource = self.cfg.row, self.rx.row, self.resource.row
        qp, flags, row = Signal(14), Signal(ReplyFlags), Signal(QpReply)
        sent = Signal(range(self._config.quantum + 1))
        again = active.set1
        m.d.comb += [again.payload.qp.eq(qp), again.payload.flags.eq(flags)]

        def read_rows(index):
            for table in (self.cfg, self.rx):
                m.d.comb += [table.index.eq(index), table.enable.eq(1)]

        # Kept of the QP's row, and of the READ at the head of its list: for the next response.
        mask, base = Signal(8, reset_less=True), Signal(16, reset_less=True)
        mtu_code, mtu = Signal(3, reset_less=True), Signal(13, reset_less=True)
        va, carry = Signal(64, reset_less=True), Signal()
        left, offset = Signal(32, reset_less=True), Signal(32, reset_less=True)
        psn, msn = Signal(24, reset_less=True), Signal(24, reset_less=True)
        msn_before, expected = Signal(24, reset_less=True), Signal(24, reset_less=True)
        m.d.comb += [
            self.resource.index.eq(base + (row.read_head & mask)),
            self.row.index.eq(active.o.payload.qp),
            self.row_write.index.eq(qp),
            self.row_write.row.eq(row),
        ]

        # The next response packet of the READ at the head.
        passed = message_offset(m, mtu_code, row.packet)
        first, last = Signal(), Signal()
        m.d.comb += [first.eq(row.packet == 0), last.eq(fit(left, mtu))]

        job, header = self.job.payload, self.job.payload.header
        reading = Signal()
        m.d.comb += [
            header.pkey.eq(cfg.pkey),
            header.dest_qp.eq(cfg.dest_qpn),
            header.av.eq(cfg.av),
            header.opcode.eq(Operation.ACKNOWLEDGE),
            header.msn.eq(rx.msn),
            job.function.eq(cfg.function),
            job.pd.eq(cfg.pd),
            job.key.eq(resource.rkey),
            job.va.eq(va),
            job.source.eq(TxSource.NONE),
        ]
        due = Signal()  # a READ is to be answered first
        changed = Signal()  # the row
        refused = Signal()
        nak_due = Signal()
        # A gap that has closed while the NAK waited is no longer worth one.
        m.d.comb += nak_due.eq(flags.nak & (rx.nak_sent | rx.error))
        with m.If(reading):
            m.d.comb += [
                header.opcode.eq(
                    Mux(
                        first,
                        Mux(last, Operation.READ_RESP_ONLY, Operation.READ_RESP_FIRST),
                        Mux(last, Operation.READ_RESP_LAST, Operation.READ_RESP_MIDDLE),
                    )
                ),
                header.psn.eq(psn),
                header.msn.eq(msn),
                header.syndrome.eq(SYNDROME_ACK_NO_LIMIT),
                header.length.eq(Mux(last, left, mtu)),
                job.source.eq(Mux(left == 0, TxSource.NONE, TxSource.KEY)),
            ]
        with m.Elif(refused):
            m.d.comb += [
                header.psn.eq(psn),
                header.msn.eq(msn_before),
                header.syndrome.eq(NAK_REMOTE_ACCESS),
            ]
        with m.Elif(nak_due):
            m.d.comb += [header.psn.eq(rx.psn), header.syndrome.eq(rx.syndrome)]
        with m.Else():
            m.d.comb += [header.psn.eq(expected - 1), header.syndrome.eq(SYNDROME_ACK_NO_LIMIT)]

        quiet = Signal()
        m.d.comb += quiet.eq(
            (cfg.state == QpState.RESET) | (cfg.state == QpState.INIT) | (cfg.state == QpState.ERR)
        )

        def response_sent():
            increment(m, self.read_packets)
            m.d.sync += [
                sent.eq(sent + 1),
                row.packet.eq(row.packet + 1),
                changed.eq(1),
                left[8:].eq(left[8:] - mtu[8:]),
                psn.eq(psn + 1),
            ]
            m.next = "READ"
            with m.If(last):
                m.d.sync += [row.packet.eq(0), row.read_head.eq(row.read_head + 1)]
                m.next = "LOOK"
            # The quantum counts even between READs, or one QP's many small READs would hold
            # everybody else's answers back.
            with m.If(sent == self._config.quantum - 1):
                m.d.sync += flags.read.eq(1)
                m.next = "YIELD"

        with m.FSM(name="reply"):
            with m.State("IDLE"):
                m.d.comb += self.turned.eq(1)
                m.d.sync += [sent.eq(0), refused.eq(0), changed.eq(0)]
                with m.If(active.o.valid):
                    read_rows(active.o.payload.qp)
                    m.d.comb += [self.row.enable.eq(1), active.o.ready.eq(1)]
                    m.d.sync += [qp.eq(active.o.payload.qp), flags.eq(active.o.payload.flags)]
                    m.next = "ROWS"
            with m.State("ROWS"):
                m.d.sync += [
                    row.eq(self.row.row),
                    mask.eq(cfg.max_dest_rd_atomic - 1),
                    base.eq(cfg.read_base),
                    mtu_code.eq(cfg.path_mtu),
                    mtu.eq(mtu_bytes(m, cfg.path_mtu)),
                ]
                with m.If(flags.replay):
                    m.d.sync += [
                        row.read_head.eq(rx.replay),
                        row.packet.eq(rx.replay_skip),
                        row.replay_seq.eq(rx.replay_seq),
                        flags.replay.eq(0),
                        changed.eq(1),
                    ]
                with m.If(quiet):
                    m.next = "IDLE"
                with m.Else():
                    m.next = "LOOK"
            with m.State("LOOK"):
                # Once more: the responder may have gone on since the rows were read. And it must
                # know of a READ that has been answered before its peer can send another one for it.
                read_rows(qp)
                m.d.comb += [self.resource.enable.eq(1), self.row_write.enable.eq(changed)]
                m.next = "CHOOSE"
            with m.State("CHOOSE"):
                m.d.sync += [
                    due.eq(row.read_head != rx.read_tail),
                    va.eq(resource.va),
                    left.eq(resource.length),
                    psn.eq(resource.psn),
                    msn.eq(resource.msn),
                    offset.eq(passed),
                    expected.eq(rx.psn),
                ]
                m.next = "CHOSEN"
            with m.State("CHOSEN"):
                # In the middle of a READ the sums tell; a sum of 64 bits takes its time. At its
                # beginning there is nothing to add.
                m.d.sync += [left[8:].eq(left[8:] - offset[8:]), psn.eq(psn + row.packet)]
                add_low(m, va, carry, va, offset)
                with m.If(due):
                    m.next = "READ"
                    with m.If(~first):
                        m.next = "RESUME-HIGH"
                with m.Elif(flags.nak | flags.ack):
                    m.next = "ANSWER"
                with m.Else():
                    m.next = "WRITE"
            with m.State("RESUME-HIGH"):
                add_middle(m, va, carry, offset)
                m.next = "RESUME-TOP"
            with m.State("RESUME-TOP"):
                add_high(m, va, carry, above=2 * OFFSET_BITS)
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += [reading.eq(1), self.job.valid.eq(1)]
                m.d.sync += msn_before.eq(msn - 1)
                with m.If(self.job.ready):
                    # For the next one, while this one is checked.
                    add_low(m, va, carry, va, mtu)
                    m.next = "READ-CHECKED"
                    with m.If(left == 0):
                        response_sent()
            with m.State("READ-CHECKED"):
                m.d.comb += self.checked.ready.eq(1)
                add_high(m, va, carry)
                with m.If(self.checked.valid):
                    with m.If(self.checked.payload.status != 0):
                        m.d.sync += refused.eq(1)
                        m.next = "ANSWER"
                    with m.Else():
                        response_sent()
            with m.State("ANSWER"):
                m.d.comb += self.job.valid.eq(1)
                with m.If(self.job.ready):
                    with m.If(nak_due | refused):
                        increment(m, self.naks)
                    with m.Else():
                        increment(m, self.acks)
                    with m.If(refused):
                        m.d.sync += [row.read_head.eq(rx.read_tail), row.packet.eq(0)]
                    m.next = "IDLE"  # an ACK changes nothing
                    with m.If(changed | refused):
                        m.next = "WRITE"
            with m.State("YIELD"):
                m.d.comb += again.valid.eq(1)
                with m.If(again.ready):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += self.row_write.enable.eq(1)
                m.next = "IDLE"
        return m
