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

from .outstanding import Append, Fail, Finish
from .request_headers import SENDS, WRITES, one_of, request_headers
from .segment import mtu_bytes, packet_count

__all__ = ["Requester"]

#: Cycles that a WQE waits in place for room in the outstanding table. Then it is given back, and
#: with it what was fetched behind it: a WQE of another QP may have its entry already.
PATIENCE = 255

#: Poke of the receive side: the oldest outstanding WQE may be finishable (Receive.poke).
POKE_FINISH = 1


class Requester(wiring.Component):
    """Sends one WQE at a time, packet by packet, from any offset.

    Spec: IBTA vol 1, 9.7.2 (PSN), 9.7.3 (packets of a message), 10.8.3 (order, fence); virtio-rdma
    VR-4.4, VR-5.3, 5.7, 5.11, 5.22.

    Members: ``wqe`` from the scheduler; ``job``/``checked`` to and from the gather; ``append``,
    ``appended``, ``finish``, ``fail``, ``room`` of the outstanding table; ``rewind`` and
    ``release`` (line) back; ``poke`` to the receive side; ``restart`` (from the retry logic) moves
    a QP back; ``turned``: see ``Quiesce``. After ``quantum`` packets the QP's turn ends if the next
    WQE is another QP's.

    Latency: 3 cycles from a WQE to its first job. Throughput: a packet takes 2 cycles and the
    gather's check, the first of a WQE 3; its entry is appended during the check, and completed
    while the next WQE is under way. The data of a packet moves while the next is checked; so a
    packet a few tens of cycles long costs nothing extra.
    Errors: a WQE that cannot be sent gets an outstanding entry with its WC status, and
    ``QpTx.error`` turns every later WQE of the QP into a flush, in order.
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
                "turned": Out(1),
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
        is_write = one_of(wqe.wqe.opcode, WRITES)
        is_send = one_of(wqe.wqe.opcode, SENDS)

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
        advance = Signal(data.StructLayout({"last": 1, "payload": 13, "packets": 24, "asks": 1}))
        request_headers(m, header, wqe, cfg, row, first, last, left)
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
            self.fail.payload.qp.eq(qp),
            self.fail.payload.position.eq(wqe.position),
            self.fail.payload.status.eq(status),
            self.rewind.payload.qp.eq(qp),
            self.rewind.payload.position.eq(row.position),
            self.rewind.payload.wakes.eq(ack.wakes),
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
        waited = Signal(range(PATIENCE + 1))
        begun = Signal()  # the WQE has its entry: it was interrupted, or is sent again
        newest = Signal()  # and that entry is the newest: row.entry
        m.d.comb += begun.eq(row.position != row.high)
        m.d.sync += newest.eq((row.position + 1)[:16] == row.high)  # still since PACKET
        other_waits = self.wqe.valid & (self.wqe.payload.qp != qp)
        m.d.comb += spent.eq(sent == self._config.quantum)

        # What a WQE that has been sent leaves to do is done while the next one is under way.
        store, stored_qp = Signal(), Signal(14)  # ``row`` is written in this cycle
        seen = Signal(QpTx)  # the row of the WQE taken last
        same = store & (stored_qp == qp)
        m.d.sync += [store.eq(0), stored_qp.eq(qp)]
        m.d.comb += seen.eq(Mux(same, row.as_value(), self.row.row.as_value()))
        with m.If(store):
            m.d.comb += [self.row_write.enable.eq(1), self.row_write.index.eq(stored_qp)]
        giving, line = Signal(), Signal(8, reset_less=True)
        m.d.comb += [self.release.valid.eq(giving), self.release.payload.eq(line)]
        with m.If(self.release.ready):
            m.d.sync += giving.eq(0)

        def release():
            m.d.sync += [giving.eq(1), line.eq(wqe.line)]

        append, appending = Signal(), Signal()
        self._append(m, row, status, is_read, append, appending)
        # ``look``: nobody else needs the rows read last, nor the port of the tables.
        close, closing, look = Signal(), Signal(), Signal()
        closed, looks = self._close(m, qp, row.entry, newest, stopped, close, closing, look)
        with m.If(looks & look):
            for table in (self.cfg, self.row, self.ack, self.rx):
                m.d.comb += [table.index.eq(closed), table.enable.eq(1)]

        def take_next():
            m.d.sync += [sent.eq(0), status.eq(0), failed_packet.eq(0), waited.eq(0)]
            with m.If(self.wqe.valid & ~self.restart.valid):
                m.d.comb += self.wqe.ready.eq(1)
                m.d.sync += wqe.eq(self.wqe.payload)
                read_rows(self.wqe.payload.qp)
                m.next = "ROWS"

        with m.If(self.wqe.valid & self.wqe.ready):
            m.d.comb += self.turned.eq(1)
        with m.FSM(name="send"):
            with m.State("IDLE"):
                m.d.comb += self.turned.eq(1)
                take_next()
                m.d.comb += look.eq(~self.wqe.valid | self.restart.valid)
                with m.If(self.restart.valid & ~closing):
                    read_rows(self.restart.payload.qp)
                    m.next = "RESTART"
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
                m.d.sync += row.eq(seen)
                m.next = "DECIDE"
                with m.If(wqe.position != seen.position):
                    m.next = "RELEASE"  # stale: the scheduler has been rewound since
                with m.Elif(stopped):
                    m.d.sync += status.eq(WcStatus.WR_FLUSH_ERR)
                with m.Elif(cfg.state != QpState.RTS):
                    m.next = "BLOCK"
                with m.Elif(wqe.status == FetchStatus.WQE_ERROR):
                    m.d.sync += status.eq(wqe.error)
                with m.Elif(bad):
                    m.d.sync += status.eq(WcStatus.LOC_QP_OP_ERR)
            with m.State("DECIDE"):
                with m.If(begun & (status == 0)):
                    m.next = "PACKET"
                with m.Elif(begun):
                    m.d.sync += failed_packet.eq(1)
                    m.next = "FAIL"
                with m.Elif(blocked & (status == 0)):
                    m.next = "BLOCK"
                with m.Elif(full):
                    m.next = "FULL"
                with m.Else():
                    m.d.comb += append.eq(1)
                    m.next = "PACKET"
                    with m.If(status != 0):
                        m.next = "APPENDED"
            with m.State("FULL"):
                m.d.sync += waited.eq(waited + 1)
                with m.If(~full):
                    m.d.comb += append.eq(1)
                    m.next = "PACKET"
                    with m.If(status != 0):
                        m.next = "APPENDED"
                with m.Elif(self.restart.valid | (waited == PATIENCE)):
                    m.next = "YIELD"
            with m.State("APPENDED"):
                with m.If(~appending):
                    m.next = "FAIL"

            with m.State("PACKET"):
                m.d.comb += self.job.valid.eq(1)
                # What the row advances by when that packet has been checked.
                m.d.sync += [
                    advance.last.eq(last),
                    advance.payload.eq(payload),
                    advance.packets.eq(Mux(is_read, read_packets, 1)),
                    advance.asks.eq(header.ack_request),
                ]
                with m.If(self.job.ready):
                    m.next = "CHECKED"
                with m.If(cfg.state == QpState.RESET):
                    # Nothing of the QP may go out any more; its rows and its list are dropped.
                    m.d.comb += self.job.valid.eq(0)
                    m.next = "RELEASE"
                with m.Elif(stopped & (sent != 0)):
                    # The QP broke while its message was on the way: the rest is not sent.
                    m.d.comb += self.job.valid.eq(0)
                    m.d.sync += [status.eq(WcStatus.WR_FLUSH_ERR), failed_packet.eq(1)]
                    m.next = "FAIL"
            with m.State("CHECKED"):
                free = ~appending & ~closing & ~giving
                m.d.comb += [self.checked.ready.eq(free), look.eq(~appending)]
                with m.If(self.checked.valid & free):
                    with m.If(self.checked.payload.status != 0):
                        m.d.sync += [status.eq(self.checked.payload.status), failed_packet.eq(1)]
                        m.next = "FAIL"
                    with m.Else():
                        m.d.sync += [
                            sent.eq(sent + ~spent),
                            self.packets.eq(self.packets + 1),
                            row.psn.eq(row.psn + advance.packets),
                            row.offset.eq(row.offset + advance.payload),
                            row.unasked.eq(Mux(advance.asks, 0, row.unasked + 1)),
                        ]
                        with m.If(advance.last):
                            m.d.comb += close.eq(1)
                            m.d.sync += [
                                row.position.eq(row.position + 1),
                                row.offset.eq(0),
                                store.eq(1),
                            ]
                            release()
                            m.next = "IDLE"
                            take_next()
                        with m.Elif(spent & other_waits):
                            m.next = "YIELD"
                        with m.Else():
                            read_rows(qp)
                            m.d.comb += self.turned.eq(1)
                            m.next = "PACKET"
            with m.State("FAIL"):
                # Entries appended with a status need no mark; one that had begun does.
                m.d.comb += self.fail.valid.eq(failed_packet)
                with m.If(self.fail.ready | ~failed_packet):
                    m.d.sync += [
                        row.position.eq(row.position + 1),
                        row.offset.eq(0),
                        row.error.eq(1),
                    ]
                    m.next = "WRITE"
            with m.State("WRITE"):
                # Before the poke: what it wakes may look at the row.
                m.d.comb += self.row_write.enable.eq(1)
                m.next = "POKE"
            with m.State("POKE"):
                m.d.comb += look.eq(1)
                with m.If(~closing):
                    m.d.comb += self.poke.valid.eq(1)
                    with m.If(self.poke.ready):
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
                with m.If(wqe.status != FetchStatus.OK):
                    m.next = "IDLE"
                with m.Elif(~giving):
                    release()
                    m.next = "IDLE"
        return m

    def _append(self, m: Module, row, status, is_read, start, busy) -> None:
        """Appends the WQE's entry beside its first packet's check."""
        with m.FSM(name="entry"):
            with m.State("IDLE"):
                with m.If(start):
                    m.d.sync += busy.eq(1)
                    m.next = "APPEND"
            with m.State("APPEND"):
                m.d.comb += self.append.valid.eq(1)
                with m.If(self.append.ready):
                    m.next = "APPENDED"
            with m.State("APPENDED"):
                m.d.comb += self.appended.ready.eq(1)
                with m.If(self.appended.valid):
                    m.d.sync += [row.entry.eq(self.appended.payload), row.high.eq(row.high + 1)]
                    with m.If(status == 0):
                        m.d.sync += row.reads.eq(row.reads + is_read)
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                m.d.sync += busy.eq(0)  # ``newest`` follows ``row``
                m.next = "IDLE"

    def _close(self, m: Module, qp, entry, newest, stopped, start, busy, look):
        """Completes the entry of a WQE that has been sent, then looks whether its QP has stopped.

        Returns the QP, and whether its rows are wanted: they are read with ``look``, after the
        entry became complete. Either the completer finds it complete, or its error is seen here and
        the poke makes it look again."""
        closed, number, marks, looks = Signal(14), Signal(16), Signal(), Signal()
        m.d.comb += self.finish.payload.number.eq(number)
        with m.FSM(name="close"):
            with m.State("IDLE"):
                with m.If(start):
                    m.d.sync += [closed.eq(qp), number.eq(entry), marks.eq(newest), busy.eq(1)]
                    m.next = "FINISH"
            with m.State("FINISH"):
                m.d.comb += self.finish.valid.eq(marks)
                with m.If(self.finish.ready | ~marks):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += looks.eq(1)
                with m.If(look):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "POKE"
                with m.If(~stopped):
                    m.d.sync += busy.eq(0)
                    m.next = "IDLE"
            with m.State("POKE"):
                m.d.comb += [self.poke.valid.eq(1), self.poke.payload.qp.eq(closed)]
                with m.If(self.poke.ready):
                    m.d.sync += busy.eq(0)
                    m.next = "IDLE"
        return closed, looks
