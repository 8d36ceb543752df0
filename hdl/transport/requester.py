"""Fetched send WQEs to packets: checks, PSNs, and the outstanding table's entries."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus, WrOpcode
from hdl.config import NicConfig
from hdl.ports.jobs import (
    Activation,
    FetchStatus,
    Restart,
    Rewind,
    SendFetched,
    TxChecked,
    TxJob,
    TxSource,
)
from hdl.ports.rows import QpAck, QpCfg, QpRx, QpState, QpTx
from hdl.ports.tables import TableRead, TableWrite
from hdl.wire.opcodes import Operation

from .outstanding import Append, Fail, Finish
from .segment import mtu_bytes, packet_count

__all__ = ["Requester"]

#: An acknowledgement is asked for on the last packet of a message and after this many packets
#: without: peers stop at a limited number of unacknowledged packets (Soft-RoCE at 129).
ACK_AFTER = 65

#: Poke of the receive side: the oldest outstanding WQE may be finishable (Receive.poke).
POKE_FINISH = 1

WRITES = (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM)
SENDS = (WrOpcode.SEND, WrOpcode.SEND_WITH_IMM)
WITH_IMM = (WrOpcode.RDMA_WRITE_WITH_IMM, WrOpcode.SEND_WITH_IMM)


class Requester(wiring.Component):
    """Sends one WQE at a time, packet by packet, from any offset.

    Spec: IBTA vol 1, 9.7.2 (PSN), 9.7.3 (packets of a message), 10.8.3 (order, fence); virtio-rdma
    VR-4.4, VR-5.3, 5.7, 5.11, 5.22.

    Members: ``wqe`` from the scheduler; ``job``/``checked`` to and from the gather; ``append``,
    ``appended``, ``finish``, ``fail``, ``room`` of the outstanding table; ``rewind`` and
    ``release`` (line) back; ``poke`` to the receive side; ``restart`` (from the retry logic) moves
    a QP back. After ``quantum`` packets the QP's turn ends if the next WQE is another QP's.

    Latency: 7 cycles from a WQE to its first job. Throughput: a packet takes 3 cycles and the
    gather's check, and the data of a packet moves while the next is checked; so a packet a few tens
    of cycles long costs nothing extra. Errors: a WQE that cannot be sent gets an outstanding entry
    with its WC status, and ``QpTx.error`` turns every later WQE of the QP into a flush, in order.
    Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "wqe": In(stream.Signature(SendFetched)),
                "restart": In(stream.Signature(Restart)),
                "cfg": Out(TableRead(14, QpCfg)),
                "row": Out(TableRead(14, QpTx)),
                "row_write": Out(TableWrite(14, QpTx)),
                "ack": Out(TableRead(14, QpAck)),
                "rx": Out(TableRead(14, QpRx)),
                "append": Out(stream.Signature(Append)),
                "appended": In(stream.Signature(16)),
                "finish": Out(stream.Signature(Finish)),
                "fail": Out(stream.Signature(Fail)),
                "room": In(1),
                "job": Out(stream.Signature(TxJob)),
                "checked": In(stream.Signature(TxChecked)),
                "rewind": Out(stream.Signature(Rewind)),
                "release": Out(stream.Signature(8)),
                "poke": Out(stream.Signature(Activation)),
                "packets": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        wqe = Signal(SendFetched, reset_less=True)  # the one at work
        cfg, ack = self.cfg.row, self.ack.row
        qp = Signal(14)
        row = Signal(QpTx)  # working copy, from ROWS on
        spent = Signal()  # the turn is over as soon as another WQE waits
        job, header = self.job.payload, self.job.payload.header
        sent = Signal(range(self._config.quantum + 1))  # packets in this turn
        status = Signal(8)  # why the WQE ends in error
        failed_packet = Signal()  # it had an entry already

        is_read = wqe.wqe.opcode == WrOpcode.RDMA_READ
        is_write = self._one_of(wqe.wqe.opcode, WRITES)
        is_send = self._one_of(wqe.wqe.opcode, SENDS)
        with_imm = self._one_of(wqe.wqe.opcode, WITH_IMM)

        # The next packet.
        mtu = mtu_bytes(m, cfg.path_mtu)
        left, packets = Signal(32), packet_count(m, cfg.path_mtu, wqe.wqe.length)
        read_packets = packet_count(m, cfg.path_mtu, left, "read_packets")
        first, last = Signal(), Signal()
        payload = Signal(13)
        m.d.comb += [
            left.eq(wqe.wqe.length - row.offset),
            first.eq(row.offset == 0),
            last.eq((left <= mtu) | is_read),
            payload.eq(Mux(last, left, mtu)),
        ]
        # What the row advances by when that packet has been checked: registered, since the row that
        # the above follows from stays as it is until then.
        advance = Signal(data.StructLayout({"last": 1, "payload": 13, "packets": 24}))
        m.d.sync += [
            advance.last.eq(last),
            advance.payload.eq(payload),
            advance.packets.eq(Mux(is_read, read_packets, 1)),
        ]
        self._headers(m, header, wqe, cfg, row, first, last, with_imm, is_write, left)
        m.d.comb += [
            header.length.eq(Mux(is_read, 0, payload)),
            job.source.eq(TxSource.LINE),
            job.check_sink.eq(is_read),
            job.function.eq(cfg.function),
            job.pd.eq(cfg.pd),
            job.line.eq(wqe.line),
            job.num_sge.eq(wqe.wqe.num_sge),
            job.offset.eq(row.offset),
            job.resume.eq(sent != 0),  # the packet before was of this WQE, and ended here
        ]
        with m.If(wqe.wqe.inline):
            m.d.comb += job.source.eq(TxSource.INLINE)
        with m.Elif((wqe.wqe.length == 0) & ~is_read):
            m.d.comb += job.source.eq(TxSource.NONE)

        # The entry of a WQE that begins or that ends unsent.
        entry = self.append.payload.entry
        m.d.comb += [
            self.append.payload.qp.eq(qp),
            entry.position.eq(wqe.position),
            entry.head.eq(wqe.head),
            entry.wr_id.eq(wqe.wqe.wr_id),
            entry.opcode.eq(wqe.wqe.opcode),
            entry.signaled.eq(wqe.wqe.signaled | cfg.signal_all),
            entry.length.eq(wqe.wqe.length),
            entry.first_psn.eq(row.psn),
            # Without packets of its own the range is empty.
            entry.last_psn.eq(row.psn + Mux(status == 0, packets, 0) - 1),
            entry.complete.eq(status != 0),
            entry.status.eq(status),
            entry.function.eq(cfg.function),
            self.finish.payload.number.eq(row.entry),
            self.fail.payload.qp.eq(qp),
            self.fail.payload.position.eq(wqe.position),
            self.fail.payload.status.eq(status),
            self.rewind.payload.qp.eq(qp),
            self.rewind.payload.position.eq(row.position),
            self.rewind.payload.wakes.eq(ack.wakes),
            self.release.payload.eq(wqe.line),
            self.poke.payload.qp.eq(qp),
            self.poke.payload.flags.eq(POKE_FINISH),
            self.row_write.index.eq(qp),
            self.row_write.row.eq(row),
        ]

        def read_rows(index):
            for table in (self.cfg, self.row, self.ack, self.rx):
                m.d.comb += [table.index.eq(index), table.enable.eq(1)]
            m.d.sync += qp.eq(index)

        stopped = Signal()
        bad = Signal()
        m.d.comb += [
            stopped.eq(
                (cfg.state == QpState.ERR) | self.row.row.error | ack.error | self.rx.row.error
            ),
            bad.eq(
                ~(is_read | is_write | is_send)
                | (wqe.wqe.num_sge > cfg.max_send_sge)
                | (wqe.wqe.inline & (is_read | (wqe.wqe.length > cfg.max_inline)))
                | (is_read & (cfg.max_rd_atomic == 0))
            ),
        ]
        reads = Signal(8)
        blocked, full = Signal(), Signal()
        m.d.comb += [
            reads.eq(row.reads - ack.reads),
            blocked.eq((is_read & (reads >= cfg.max_rd_atomic)) | (wqe.wqe.fence & (reads != 0))),
            full.eq(~self.room),
        ]
        begun = Signal()  # the WQE has its entry: it was interrupted, or is sent again
        newest = Signal()  # and that entry is the newest: row.entry
        m.d.comb += begun.eq(row.position != row.high)
        m.d.sync += newest.eq((row.position + 1)[:16] == row.high)  # still since PACKET
        other_waits = self.wqe.valid & (self.wqe.payload.qp != qp)
        m.d.comb += spent.eq(sent == self._config.quantum)
        advanced = Signal(QpTx)
        m.d.comb += [
            advanced.eq(row),
            advanced.position.eq(row.position + 1),
            advanced.offset.eq(0),
        ]

        with m.FSM(name="send"):
            with m.State("IDLE"):
                m.d.sync += [sent.eq(0), status.eq(0), failed_packet.eq(0)]
                with m.If(self.restart.valid):
                    read_rows(self.restart.payload.qp)
                    m.next = "RESTART"
                with m.Elif(self.wqe.valid):
                    m.d.comb += self.wqe.ready.eq(1)
                    m.d.sync += wqe.eq(self.wqe.payload)
                    read_rows(self.wqe.payload.qp)
                    m.next = "ROWS"
            with m.State("RESTART"):
                m.d.comb += self.restart.ready.eq(1)
                m.d.sync += [
                    row.eq(self.row.row),
                    row.position.eq(self.restart.payload.position),
                    row.offset.eq(self.restart.payload.offset),
                    row.psn.eq(self.restart.payload.psn),
                ]
                m.next = "RESTART-WRITE"
            with m.State("RESTART-WRITE"):
                m.d.comb += self.row_write.enable.eq(1)
                m.next = "RESTART-REWIND"
            with m.State("RESTART-REWIND"):
                m.d.comb += self.rewind.valid.eq(1)
                with m.If(self.rewind.ready):
                    m.next = "IDLE"

            with m.State("ROWS"):
                m.d.sync += row.eq(self.row.row)
                with m.If(wqe.position != self.row.row.position):
                    m.next = "RELEASE"  # stale: the scheduler has been rewound since
                with m.Elif(stopped):
                    m.d.sync += status.eq(WcStatus.WR_FLUSH_ERR)
                    m.next = "DECIDE"
                with m.Elif(cfg.state != QpState.RTS):
                    m.next = "BLOCK"
                with m.Elif(wqe.status == FetchStatus.WQE_ERROR):
                    m.d.sync += status.eq(wqe.error)
                    m.next = "DECIDE"
                with m.Elif(bad):
                    m.d.sync += status.eq(WcStatus.LOC_QP_OP_ERR)
                    m.next = "DECIDE"
                with m.Else():
                    m.next = "DECIDE"
            with m.State("DECIDE"):
                with m.If(begun & (status == 0)):
                    m.next = "PACKET"
                with m.Elif(begun):
                    m.d.sync += failed_packet.eq(1)
                    m.next = "FAIL"
                with m.Elif(full):
                    m.next = "YIELD"
                with m.Elif(blocked & (status == 0)):
                    m.next = "BLOCK"
                with m.Else():
                    m.next = "APPEND"
            with m.State("APPEND"):
                m.d.comb += self.append.valid.eq(1)
                with m.If(self.append.ready):
                    m.next = "APPENDED"
            with m.State("APPENDED"):
                m.d.comb += self.appended.ready.eq(1)
                with m.If(self.appended.valid):
                    m.d.sync += [row.entry.eq(self.appended.payload), row.high.eq(row.high + 1)]
                    with m.If(status != 0):
                        m.next = "FAIL"
                    with m.Else():
                        m.d.sync += row.reads.eq(row.reads + is_read)
                        m.next = "PACKET"

            with m.State("PACKET"):
                m.d.comb += self.job.valid.eq(1)
                with m.If(self.job.ready):
                    m.next = "CHECKED"
                with m.If(stopped & (sent != 0)):
                    # The QP broke while its message was on the way: the rest is not sent.
                    m.d.comb += self.job.valid.eq(0)
                    m.d.sync += [status.eq(WcStatus.WR_FLUSH_ERR), failed_packet.eq(1)]
                    m.next = "FAIL"
            with m.State("CHECKED"):
                m.d.comb += self.checked.ready.eq(1)
                with m.If(self.checked.valid):
                    m.d.sync += [status.eq(self.checked.payload.status), failed_packet.eq(1)]
                    with m.If(self.checked.payload.status != 0):
                        m.next = "FAIL"
                    with m.Else():
                        m.d.sync += [
                            sent.eq(sent + ~spent),
                            self.packets.eq(self.packets + 1),
                            row.psn.eq(row.psn + advance.packets),
                            row.offset.eq(row.offset + advance.payload),
                            row.unasked.eq(Mux(header.ack_request, 0, row.unasked + 1)),
                        ]
                        with m.If(advance.last):
                            m.next = "FINISH"
                        with m.Elif(spent & other_waits):
                            m.next = "YIELD"
                        with m.Else():
                            read_rows(qp)
                            m.next = "PACKET"
            with m.State("FINISH"):
                m.d.comb += self.finish.valid.eq(newest)
                with m.If(self.finish.ready | ~newest):
                    m.d.sync += row.eq(advanced)
                    m.next = "FINISHED"
            with m.State("FINISHED"):
                # Read after the entry became complete: either the completer finds it complete, or
                # its error is seen here and the poke makes it look again.
                read_rows(qp)
                m.next = "LOOK-BACK"
            with m.State("LOOK-BACK"):
                with m.If(stopped):
                    m.next = "POKE"
                with m.Else():
                    m.next = "WRITE"
            with m.State("FAIL"):
                # Entries appended with a status need no mark; one that had begun does.
                m.d.comb += self.fail.valid.eq(failed_packet)
                with m.If(self.fail.ready | ~failed_packet):
                    m.d.sync += [row.eq(advanced), row.error.eq(1)]
                    m.next = "POKE"
            with m.State("POKE"):
                m.d.comb += self.poke.valid.eq(1)
                with m.If(self.poke.ready):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += self.row_write.enable.eq(1)
                m.next = "RELEASE"

            with m.State("YIELD"):
                m.d.comb += [self.row_write.enable.eq(1), self.rewind.valid.eq(1)]
                with m.If(self.rewind.ready):
                    m.next = "RELEASE"
            with m.State("BLOCK"):
                m.d.comb += [self.rewind.valid.eq(1), self.rewind.payload.blocked.eq(1)]
                with m.If(self.rewind.ready):
                    m.next = "RELEASE"
            with m.State("RELEASE"):
                m.d.comb += self.release.valid.eq(wqe.status == FetchStatus.OK)
                with m.If(self.release.ready | (wqe.status != FetchStatus.OK)):
                    m.next = "IDLE"
        return m

    @staticmethod
    def _one_of(opcode, opcodes):
        hit = opcode == opcodes[0]
        for other in opcodes[1:]:
            hit |= opcode == other
        return hit

    @staticmethod
    def _headers(m, header, wqe, cfg, row, first, last, with_imm, is_write, left):
        """Fields of the packet's headers; absent ones are not looked at by egress."""
        is_read = wqe.wqe.opcode == WrOpcode.RDMA_READ
        step = Signal(2)  # FIRST, MIDDLE, LAST, ONLY
        m.d.comb += step.eq(Mux(first, Mux(last, 3, 0), Mux(last, 2, 1)))
        sends = (Operation.SEND_FIRST, Operation.SEND_MIDDLE, Operation.SEND_LAST)
        writes = (Operation.WRITE_FIRST, Operation.WRITE_MIDDLE, Operation.WRITE_LAST)
        with m.Switch(step):
            for code, (send, write) in enumerate(zip(sends, writes, strict=True)):
                with m.Case(code):
                    m.d.comb += header.opcode.eq(Mux(is_write, write, send))
            with m.Default():
                m.d.comb += header.opcode.eq(
                    Mux(is_write, Operation.WRITE_ONLY, Operation.SEND_ONLY)
                )
        with m.If(with_imm & last):
            # Each ..._LAST_IMM and ..._ONLY_IMM follows its plain opcode.
            with m.If(first):
                m.d.comb += header.opcode.eq(
                    Mux(is_write, Operation.WRITE_ONLY_IMM, Operation.SEND_ONLY_IMM)
                )
            with m.Else():
                m.d.comb += header.opcode.eq(
                    Mux(is_write, Operation.WRITE_LAST_IMM, Operation.SEND_LAST_IMM)
                )
        with m.If(is_read):
            m.d.comb += header.opcode.eq(Operation.READ_REQUEST)
        m.d.comb += [
            header.solicited.eq(wqe.wqe.solicited & last & ~is_read & (~is_write | with_imm)),
            header.ack_request.eq(last | (row.unasked == ACK_AFTER)),
            header.pkey.eq(cfg.pkey),
            header.dest_qp.eq(cfg.dest_qpn),
            header.psn.eq(row.psn),
            header.va.eq(wqe.wqe.remote_addr + row.offset),
            header.rkey.eq(wqe.wqe.rkey),
            header.dma_length.eq(left),
            header.imm.eq(wqe.wqe.imm),
            header.av.eq(cfg.av),
        ]
