"""Which QP sends next: activations in, WQE fetches out, fetched WQEs in order to the requester."""

from amaranth.hdl import Module, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.activation import ActivationList, activation_layout
from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.jobs import FetchRequest, FetchStatus, Rewind, SendFetched
from hdl.ports.rows import QpAck, QpCfg, QpFetch, QpState
from hdl.ports.tables import TableRead, TableWrite

__all__ = ["Scheduler", "SendFlags"]


class SendFlags(enum.IntFlag, shape=4):
    """Why a QP is activated."""

    DOORBELL = 1
    WAKE = 2  # the completer has finished an operation, or the firmware has changed the QP
    AGAIN = 4  # there may be more to fetch
    NEXT = 8  # the activation carries the avail index (NOTIFICATION_DATA)


class Scheduler(wiring.Component):
    """Takes activated QPs in turn and fetches one WQE of each.

    Members: ``doorbell`` (flags DOORBELL, and NEXT with the avail index as data), ``wake`` (QP,
    from the completer), ``activate`` (from the firmware after a change of state: DOORBELL and
    WAKE), ``rewind`` (from the requester); ``fetch_req``/``fetch_rsp`` to the fetch engine;
    ``wqe`` to the requester: OK and WQE_ERROR answers, per QP in queue order; ``release``: lines
    of answers that a rewind has made stale.

    A QP that may have more goes to the end of the list, so QPs share the fetch engine evenly. At
    most one answer of a QP is wanted at a time: ``QpFetch.position`` is the position expected next.
    Latency: 8 cycles from an activation to the fetch request when idle. Throughput: an activation
    takes 3 cycles, an answer 3, a rewind 3, one at a time. Every input but ``fetch_rsp`` is served
    even while the requester's queue is full, so the requester's rewinds never wait for the
    requester. Reset: nothing is activated.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        activations = stream.Signature(activation_layout(16))
        super().__init__(
            {
                "doorbell": In(activations),
                "wake": In(stream.Signature(14)),
                "activate": In(activations),
                "rewind": In(stream.Signature(Rewind)),
                "cfg": Out(TableRead(14, QpCfg)),
                "ack": Out(TableRead(14, QpAck)),
                "row": Out(TableRead(14, QpFetch)),
                "row_write": Out(TableWrite(14, QpFetch)),
                "fetch_req": Out(stream.Signature(FetchRequest)),
                "fetch_rsp": In(stream.Signature(SendFetched)),
                "wqe": Out(stream.Signature(SendFetched)),
                "release": Out(stream.Signature(8)),
                "waiting": Out(range(config.qps + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.list = active = ActivationList(qps=self._config.qps, sets=4, data_width=16)
        depth = max(4, 2 * self._config.send_lines)
        m.submodules.wqes = wqes = StreamFifo(shape=SendFetched, depth=depth)
        m.submodules.requests = requests = StreamFifo(shape=FetchRequest, depth=4)
        wiring.connect(m, requests.o, wiring.flipped(self.fetch_req))
        wiring.connect(m, wqes.o, wiring.flipped(self.wqe))
        wiring.connect(m, wiring.flipped(self.doorbell), active.set0)
        wiring.connect(m, wiring.flipped(self.activate), active.set2)
        m.d.comb += [
            active.set1.valid.eq(self.wake.valid),
            active.set1.payload.qp.eq(self.wake.payload),
            active.set1.payload.flags.eq(SendFlags.WAKE),
            self.wake.ready.eq(active.set1.ready),
            self.waiting.eq(active.level),
        ]

        qp = Signal(14)
        again = active.set3
        m.d.comb += [again.payload.qp.eq(qp), again.payload.flags.eq(SendFlags.AGAIN)]

        def read_rows(index):
            for table in (self.cfg, self.ack, self.row):
                m.d.comb += [table.index.eq(index), table.enable.eq(1)]
            m.d.sync += qp.eq(index)

        row, cfg = self.row.row, self.cfg.row
        next_row = Signal(QpFetch)
        m.d.comb += [
            next_row.eq(row),
            self.row_write.index.eq(qp),
            self.row_write.row.eq(next_row),
            requests.i.payload.function.eq(cfg.function),
            requests.i.payload.qp.eq(qp),
            requests.i.payload.queue.eq(1 + self._config.cqs + (qp << 1)),
            requests.i.payload.position.eq(row.position),
            requests.i.payload.known.eq(next_row.available),
        ]

        taken, answer, rewind = active.o.payload, self.fetch_rsp.payload, self.rewind.payload
        runs = Signal()  # the QP may fetch: to send, or to flush
        m.d.comb += runs.eq((cfg.state == QpState.RTS) | (cfg.state == QpState.ERR))
        fresh = Signal()  # the answer is the one that the row waits for
        m.d.comb += fresh.eq(runs & ~row.blocked & (answer.position == row.position))
        good = Signal()
        m.d.comb += good.eq(
            (answer.status == FetchStatus.OK) | (answer.status == FetchStatus.WQE_ERROR)
        )
        m.d.comb += [
            wqes.i.payload.eq(answer),
            self.release.payload.eq(answer.line),
        ]

        with m.FSM(name="serve"):
            with m.State("IDLE"):
                with m.If(self.rewind.valid):
                    read_rows(rewind.qp)
                    m.next = "REWIND"
                with m.Elif(self.fetch_rsp.valid & wqes.i.ready):
                    read_rows(answer.qp)
                    m.next = "ANSWER"
                with m.Elif(active.o.valid & requests.i.ready):
                    read_rows(taken.qp)
                    m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += active.o.ready.eq(1)
                wakes = (taken.flags & SendFlags.WAKE) != 0
                # The driver's word is believed only where it can be true and is news: it may be
                # older than what was read since.
                told = Signal(16)
                m.d.comb += told.eq(taken.data - row.position)
                with m.If(
                    ((taken.flags & SendFlags.NEXT) != 0)
                    & (told <= self._config.queue_size)
                    & (told > (row.available - row.position)[:16])
                ):
                    m.d.comb += next_row.available.eq(taken.data)
                wanted = SendFlags.DOORBELL | SendFlags.AGAIN
                m.d.comb += [
                    next_row.blocked.eq(row.blocked & ~wakes),
                    self.row_write.enable.eq(1),
                    # A wake alone is of interest to a blocked QP only.
                    requests.i.valid.eq(
                        runs & ~next_row.blocked & (row.blocked | ((taken.flags & wanted) != 0))
                    ),
                ]
                m.next = "IDLE"
            with m.State("ANSWER"):
                with m.If(fresh & good):
                    m.d.comb += [
                        next_row.position.eq(row.position + 1),
                        next_row.available.eq(answer.available),
                        self.row_write.enable.eq(1),
                        wqes.i.valid.eq(1),
                        self.fetch_rsp.ready.eq(1),
                    ]
                    m.next = "AGAIN"
                with m.Elif(fresh):
                    m.d.comb += [
                        next_row.available.eq(answer.available),
                        self.row_write.enable.eq(answer.status == FetchStatus.EMPTY),
                        self.fetch_rsp.ready.eq(1),
                    ]
                    m.next = "IDLE"
                with m.Elif(answer.status == FetchStatus.OK):
                    m.d.comb += self.release.valid.eq(1)
                    with m.If(self.release.ready):
                        m.d.comb += self.fetch_rsp.ready.eq(1)
                        m.next = "IDLE"
                with m.Else():
                    m.d.comb += self.fetch_rsp.ready.eq(1)
                    m.next = "IDLE"
            with m.State("REWIND"):
                stays = Signal()
                m.d.comb += [
                    stays.eq(rewind.blocked & (rewind.wakes == self.ack.row.wakes)),
                    next_row.position.eq(rewind.position),
                    next_row.blocked.eq(stays),
                    self.row_write.enable.eq(1),
                    self.rewind.ready.eq(1),
                ]
                with m.If(stays):
                    m.next = "IDLE"
                with m.Else():
                    m.next = "AGAIN"
            with m.State("AGAIN"):
                m.d.comb += again.valid.eq(1)
                with m.If(again.ready):
                    m.next = "IDLE"
        return m
