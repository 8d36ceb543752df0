"""Fetched send WQEs to packets: checks, PSNs, and the outstanding table's entries."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.common.address import OFFSET_BITS, add_high, add_low, add_middle
from hdl.common.count import COUNT, raised
from hdl.common.skid import Register
from hdl.common.sums import unequal
from hdl.config import NicConfig
from hdl.ports.jobs import (
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

from .awaited import Awaited, append_beside
from .outstanding import Append, Fail, Finish
from .pace import is_long
from .request_headers import request_headers
from .requester_check import broken_rules
from .segment import fit, is_ragged, mtu_bytes, whole_packets

__all__ = ["Requester"]

#: Cycles that a WQE waits in place for room in the outstanding table. Then it is given back, and
#: with it what was fetched behind it: a WQE of another QP may have its entry already.
PATIENCE = 255

#: Bytes of payload above which fewer packets may wait for their checks (``Awaited``).
LARGE = 1024


class Requester(wiring.Component):
    """Sends one WQE at a time, packet by packet, from any offset, ahead of the gather's checks.

    Spec: IBTA vol 1, 9.7.2 (PSN), 9.7.3 (packets of a message), 10.8.3 (order, fence); virtio-rdma
    VR-4.4, VR-5.3, 5.7, 5.11, 5.22.

    Members: ``wqe`` from the scheduler; ``job``/``checked`` to and from the gather; ``append``,
    ``appended``, ``finish``, ``fail``, ``room`` of the outstanding table; ``rewind`` and
    ``release`` (line) back; ``started``: a QP's long message begins (``pace``); ``restart``
    (from the retry logic) moves a QP back; ``turned``: see ``Quiesce``; ``drain_start``,
    ``drain_done``: see ``Awaited``, which also has ``packets``. After ``quantum`` packets the QP's
    turn ends if the next WQE is another QP's.

    Latency: 3 cycles from a WQE to its first job. Throughput: a packet in 3 cycles, the first of a
    WQE in 4, which payload takes too; a message of several packets waits for its entry's number
    behind the first.
    Errors: a WQE that cannot be sent gets an outstanding entry with its WC status; one with a
    packet whose check is not good fails when that is known. Either way ``QpTx.error`` turns every
    later WQE of the QP into a flush, in order. Packets that were handed over behind a refused one
    go out: the PSN that is missing before them keeps the peer from executing them (IBTA vol 1,
    9.7.4.1.2).
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
                "started": Out(stream.Signature(14)),
                "turned": Out(1),
                "drain_start": In(1),
                "drain_done": Out(1),
                "packets": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.awaited = awaited = Awaited()
        wqe = Signal(SendFetched, reset_less=True)  # the one at work
        cfg, ack = self.cfg.row, self.ack.row
        qp = Signal(14)
        row = Signal(QpTx)  # working copy, from ROWS on
        job, header = self.job.payload, self.job.payload.header
        sent = Signal(range(self._config.quantum + 1))  # packets in this turn
        status = Signal(8)  # why the WQE ends in error, from its entry on
        begun_failed, unsent = Signal(), Signal()  # it had an entry already; it never gets a packet
        # A packet was refused: its WQE ends before anything else is done; that is under way.
        refused, refusing = awaited.refused, Signal()

        operation = wqe.wqe.operation

        # The next packet.
        mtu_code, mtu = Signal(3, reset_less=True), Signal(13, reset_less=True)
        left = Signal(32, reset_less=True)  # of the message; offsets are multiples of the MTU
        # The message's packets: full ones, and whether one is not.
        whole, ragged = Signal(24, reset_less=True), Signal(reset_less=True)
        span = Signal(24, reset_less=True)  # its PSNs but one; -1 when it has none
        left_whole = whole_packets(m, mtu_code, left, "left_whole")
        first, last, single = Signal(), Signal(), Signal()
        payload, carry = Signal(13), Signal()
        m.d.comb += [
            first.eq(row.offset == 0),
            last.eq(fit(left, mtu) | operation.data),
            single.eq((whole == 0) | ((whole == 1) & ~ragged) | operation.data),
            payload.eq(Mux(last, left, mtu)),
        ]
        advance = Signal(data.StructLayout({"last": 1, "payload": 13, "packets": 24, "asks": 1}))
        request_headers(m, header, wqe, cfg, row, first, last, left)
        m.d.comb += [
            header.length.eq(Mux(operation.data, 0, payload)),
            job.source.eq(TxSource.LINE),
            job.check_sink.eq(operation.data),
            job.function.eq(cfg.function),
            job.pd.eq(cfg.pd),
            job.line.eq(wqe.line),
            job.num_sge.eq(wqe.wqe.num_sge),
            job.offset.eq(row.offset),
            job.resume.eq(sent != 0),  # the packet before was of this WQE, and ended here
        ]
        with m.If(wqe.wqe.inline):
            m.d.comb += job.source.eq(TxSource.INLINE)
        with m.Elif((wqe.wqe.length == 0) & ~operation.data):
            m.d.comb += job.source.eq(TxSource.NONE)

        # The entry of a WQE that begins or that ends unsent. One packet: nobody but its QP's list
        # knows it, so it is complete at once; what is in front of it keeps the order.
        # In registers: the table is asked by many, and takes what is first late.
        m.submodules.appends = appends = Register(shape=Append)
        m.submodules.fails = fails = Register(shape=Fail)
        wiring.connect(m, appends.o, wiring.flipped(self.append))
        wiring.connect(m, fails.o, wiring.flipped(self.fail))
        fail, entry = fails.i, appends.i.payload.entry
        m.d.comb += [
            appends.i.payload.qp.eq(qp),
            entry.position.eq(wqe.position),
            entry.head.eq(wqe.head),
            entry.wr_id.eq(wqe.wqe.wr_id),
            entry.completion.eq(operation.completion),
            entry.data.eq(operation.data & ~unsent),  # unsent: no READ on its way
            entry.signaled.eq(wqe.wqe.signaled | cfg.signal_all),
            entry.length.eq(wqe.wqe.length),
            entry.first_psn.eq(row.psn),
            # Without packets of its own the range is empty.
            entry.last_psn.eq(row.psn + span),
            entry.complete.eq((status != 0) | single),
            entry.status.eq(status),
            entry.function.eq(cfg.function),
            fail.payload.qp.eq(qp),
            fail.payload.position.eq(wqe.position),
            fail.payload.status.eq(status),
            self.rewind.payload.qp.eq(qp),
            self.rewind.payload.position.eq(row.position),
            self.rewind.payload.wakes.eq(ack.wakes),
            self.row_write.index.eq(qp),
            self.row_write.row.eq(row),
        ]
        with m.If(refusing):
            m.d.comb += fail.payload.eq(refused.payload)

        def read_rows(index):
            for table in (self.cfg, self.row, self.ack, self.rx):
                m.d.comb += [table.index.eq(index), table.enable.eq(1)]
            m.d.sync += qp.eq(index)

        # What the rows say, a cycle later: they are late.
        stopped, reset, idle = Signal(), Signal(), Signal()  # by the QP's state
        bad = Signal(4)  # any: the WQE breaks a rule
        # By the table's row and by the one in hand, which may be ``newer``: whether the scheduler
        # has been rewound since, and the READs under way. A choice of rows would be too late.
        facts_of = data.StructLayout({"stale": 6, "reads": 8})
        found, newer = [Signal(facts_of, name=name) for name in ("table", "hand")], Signal()
        other, reads = (Mux(newer, found[1][k], found[0][k]) for k in ("stale", "reads"))
        stale = other.any()
        most_reads = Signal(8)  # at a time
        m.d.sync += [
            stopped.eq(
                (cfg.state == QpState.ERR) | self.row.row.error | ack.error | self.rx.row.error
            ),
            reset.eq(cfg.state == QpState.RESET),
            idle.eq(cfg.state != QpState.RTS),
            bad.eq(broken_rules(wqe.wqe, cfg)),
            most_reads.eq(cfg.max_rd_atomic),
        ]
        cause, fails_now, blocked = Signal(8), Signal(), Signal()
        malformed = wqe.status == FetchStatus.WQE_ERROR
        m.d.comb += [
            fails_now.eq(stopped | malformed | bad.any()),
            cause.eq(Mux(malformed, wqe.error, Mux(bad.any(), WcStatus.LOC_QP_OP_ERR, 0))),
            blocked.eq((operation.data & (reads >= most_reads)) | (wqe.wqe.fence & (reads != 0))),
        ]
        with m.If(stopped):
            m.d.comb += cause.eq(WcStatus.WR_FLUSH_ERR)
        waited = Signal(range(PATIENCE + 1))
        begun = Signal()  # the WQE has its entry: it was interrupted, or is sent again
        newest = Signal()  # and that entry is the newest: row.entry
        m.d.comb += begun.eq(row.position != row.high)
        m.d.sync += newest.eq((row.position + 1)[:16] == row.high)  # still since PACKET
        other_waits = Signal()
        m.d.sync += other_waits.eq(self.wqe.valid & (self.wqe.payload.qp != qp))
        spent = (sent == self._config.quantum) & other_waits

        # A WQE's last row is written after the next one's rows have been read, or in that cycle.
        store, stored_qp = Signal(), Signal(14)  # ``row`` is written in this cycle
        stored = Signal()  # it was in the cycle before
        seen = Signal(QpTx)  # the row of the WQE taken last
        same = (store | stored) & (stored_qp == qp)
        m.d.sync += [store.eq(0), stored.eq(store), stored_qp.eq(qp)]
        m.d.comb += seen.eq(Mux(same, row.as_value(), self.row.row.as_value()))
        with m.If(store):
            m.d.comb += [self.row_write.enable.eq(1), self.row_write.index.eq(stored_qp)]

        append, appending = Signal(), Signal()
        counts = append_beside(
            m, append, appending, appends.i, self.appended, row, single, fails_now
        )
        m.d.comb += awaited.begun.eq(counts)
        large = Signal(reset_less=True)  # known a cycle after ``mtu``, before the first packet
        m.d.sync += large.eq(
            ~fit(wqe.wqe.length, Const(LARGE, 11)) & (mtu > LARGE) & ~operation.data
        )
        entered = Signal()  # it has been appended now, and no packet has been handed over since
        offering = Signal()  # the job has been offered: it stays until it is taken
        handed = awaited.i.payload
        m.d.comb += [
            handed.job.eq(1),
            handed.begins.eq(entered),
            handed.release.eq(last),
            handed.finish.eq(last & newest & ~single),
            handed.qp.eq(qp),
            handed.position.eq(wqe.position),
            handed.number.eq(row.entry),
            handed.line.eq(wqe.line),
            awaited.large.eq(large),
            awaited.drain_start.eq(self.drain_start),
            self.drain_done.eq(awaited.drain_done),
            self.packets.eq(awaited.packets),
        ]
        for name in ("checked", "release", "finish"):
            wiring.connect(m, getattr(awaited, name), wiring.flipped(getattr(self, name)))

        def fail_row():
            """No later WQE of the QP is sent, nor the rest of this one."""
            m.d.sync += [row.position.eq(row.position + 1), row.offset.eq(0), row.error.eq(1)]

        told, begins, long = self.started, Signal(), Signal(reset_less=True)
        m.d.sync += [begins.eq(0), long.eq(is_long(self._config, wqe.wqe.length) & ~operation.data)]
        with m.If(begins & long):
            m.d.sync += [told.valid.eq(1), told.payload.eq(qp)]
        with m.Elif(told.ready):
            m.d.sync += told.valid.eq(0)

        def take_next():
            m.d.sync += [sent.eq(0), status.eq(0), begun_failed.eq(0), waited.eq(0)]
            with m.If(self.wqe.valid & ~self.restart.valid & ~refused.valid & ~told.valid):
                m.d.comb += [self.wqe.ready.eq(1), self.turned.eq(1)]
                m.d.sync += wqe.eq(self.wqe.payload)
                read_rows(self.wqe.payload.qp)
                m.next = "ROWS"

        with m.FSM(name="send"):
            with m.State("IDLE"):
                m.d.comb += self.turned.eq(1)
                take_next()
                with m.If(refused.valid):
                    read_rows(refused.payload.qp)
                    m.next = "REFUSED"
                with m.Elif(self.restart.valid):
                    read_rows(self.restart.payload.qp)
                    m.next = "RESTART"
            with m.State("RESTART"):
                m.d.comb += self.restart.ready.eq(1)
                m.d.sync += [
                    row.eq(seen),
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
                m.d.sync += [
                    row.eq(seen),
                    mtu_code.eq(cfg.path_mtu),
                    mtu.eq(mtu_bytes(m, cfg.path_mtu)),
                    whole.eq(whole_packets(m, cfg.path_mtu, wqe.wqe.length)),
                    ragged.eq(is_ragged(m, cfg.path_mtu, wqe.wqe.length)),
                ]
                for facts, one in zip(found, (self.row.row, row), strict=True):
                    m.d.sync += [
                        facts.stale.eq(unequal(wqe.position, one.position)),
                        facts.reads.eq(one.reads - ack.reads),
                    ]
                m.d.sync += [newer.eq(same), begins.eq(1)]
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.sync += [
                    left.eq(Cat(wqe.wqe.length[:8], wqe.wqe.length[8:] - row.offset[8:])),
                    span.eq(Mux(fails_now, -1, whole - ~ragged)),
                    status.eq(cause),
                    unsent.eq(fails_now),
                ]
                with m.If(stale):
                    m.next = "RELEASE"
                with m.Elif(idle & ~stopped):
                    m.next = "BLOCK"
                with m.Elif(begun & ~fails_now):
                    m.next = "PACKET"
                    with m.If(operation.by_length & ~first):
                        m.next = "RESUME"
                with m.Elif(begun):
                    m.d.sync += begun_failed.eq(1)
                    fail_row()
                    m.next = "FAILED"
                with m.Elif(blocked & ~fails_now):
                    m.next = "BLOCK"
                with m.Elif(~self.room):
                    # It waits in place; after PATIENCE it is given back, and what is behind it.
                    m.d.sync += waited.eq(waited + 1)
                    with m.If(self.restart.valid | refused.valid | (waited == PATIENCE)):
                        m.next = "YIELD"
                with m.Elif(~appending | self.appended.valid):
                    m.d.comb += append.eq(1)
                    m.d.sync += row.high.eq(row.high + 1)
                    m.next = "PACKET"
                    with m.If(fails_now):
                        fail_row()
                        m.next = "FAILED"
                    with m.Else():
                        m.d.sync += [row.reads.eq(row.reads + operation.data), entered.eq(1)]

            with m.State("RESUME"):
                # The rest of a READ; a sum of 64 bits takes its time.
                add_low(m, wqe.wqe.remote_addr, carry, wqe.wqe.remote_addr, row.offset)
                m.next = "RESUME-MIDDLE"
            with m.State("RESUME-MIDDLE"):
                add_middle(m, wqe.wqe.remote_addr, carry, row.offset)
                m.next = "RESUME-HIGH"
            with m.State("RESUME-HIGH"):
                add_high(m, wqe.wqe.remote_addr, carry, above=2 * OFFSET_BITS)
                m.next = "PACKET"

            with m.State("PACKET"):
                # What the row advances by when that packet has been handed over.
                m.d.sync += [
                    advance.last.eq(last),
                    advance.payload.eq(payload),
                    advance.packets.eq(Mux(operation.by_length, raised(left_whole, ragged), 1)),
                    advance.asks.eq(header.ack_request),
                ]
                with m.If(~offering & reset):
                    # Nothing of the QP may go out any more; its rows and its list are dropped.
                    m.next = "RELEASE"
                with m.Elif(~offering & stopped & (sent != 0)):
                    # The QP broke while its message was on the way: the rest is not sent.
                    m.d.sync += [status.eq(WcStatus.WR_FLUSH_ERR), begun_failed.eq(1)]
                    fail_row()
                    m.next = "FAILED"
                with m.Elif(~offering & (refused.valid | spent)):
                    m.next = "YIELD"
                with m.Elif(awaited.room & ((sent == 0) | ~appending)):
                    m.d.comb += self.job.valid.eq(1)
                    m.d.sync += offering.eq(~self.job.ready)
                    with m.If(self.job.ready):
                        m.d.comb += awaited.i.valid.eq(1)
                        m.d.sync += entered.eq(0)
                        m.next = "ADVANCE"
            with m.State("ADVANCE"):
                m.d.sync += [
                    row.psn.eq(row.psn + advance.packets),
                    row.offset[8:].eq(row.offset[8:] + advance.payload[8:]),
                    left[8:].eq(left[8:] - advance.payload[8:]),
                    row.unasked.eq(Mux(advance.asks, 0, row.unasked + 1)),
                    sent.eq(sent + (sent != self._config.quantum)),
                ]
                with m.If(advance.last):
                    m.d.sync += [row.position.eq(row.position + 1), row.offset.eq(0), store.eq(1)]
                    m.next = "IDLE"
                    take_next()
                with m.Else():
                    read_rows(qp)
                    m.d.comb += self.turned.eq(1)
                    m.next = "STATE"
            with m.State("STATE"):
                m.next = "PACKET"  # which goes by what has been read

            with m.State("REFUSED"):
                m.d.sync += [row.eq(seen), refusing.eq(1)]
                m.next = "REFUSED-ROW"
            with m.State("REFUSED-ROW"):
                m.d.sync += row.error.eq(1)
                with m.If(row.position == refused.payload.position):
                    fail_row()  # it had not been sent to its end
                m.next = "FAILED"
            with m.State("FAILED"):
                m.d.comb += self.row_write.enable.eq(1)
                m.next = "FAIL"
            with m.State("FAIL"):
                # An entry appended with a status needs no mark; one that had begun does.
                m.d.comb += fail.valid.eq((begun_failed | refusing) & ~appending)
                with m.If(refusing & fail.ready):
                    m.d.comb += refused.ready.eq(1)
                    m.d.sync += refusing.eq(0)
                    m.next = "IDLE"
                with m.Elif(~refusing & ~appending & (fail.ready | ~begun_failed)):
                    m.next = "RELEASE"

            with m.State("YIELD"):
                m.d.comb += [self.row_write.enable.eq(~appending), self.rewind.valid.eq(~appending)]
                with m.If(~appending & self.rewind.ready):
                    m.next = "RELEASE"
            with m.State("BLOCK"):
                m.d.comb += [self.rewind.valid.eq(1), self.rewind.payload.blocked.eq(1)]
                with m.If(self.rewind.ready):
                    m.next = "RELEASE"
            with m.State("RELEASE"):
                m.d.comb += [
                    awaited.i.valid.eq((wqe.status == FetchStatus.OK) & ~appending),
                    handed.job.eq(0),
                    handed.release.eq(1),
                    handed.finish.eq(0),
                ]
                with m.If(~appending & awaited.i.ready):
                    m.d.sync += entered.eq(0)
                    m.next = "IDLE"
        return m
