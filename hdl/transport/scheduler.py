"""Which QP sends next: activations in, WQE fetches out, fetched WQEs in order to the requester."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WrOpcode
from hdl.common.activation import ActivationList, activation_layout
from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.jobs import FetchRequest, FetchStatus, Rewind, SendFetched
from hdl.ports.rows import QpAck, QpCfg, QpFetch, QpState
from hdl.ports.tables import TableRead, TableWrite

__all__ = ["Scheduler", "SendFlags"]


#: WQEs of a QP under way in the fetch engine when they are short, and the most bytes of a short one
#: (it also fits a turn of the requester at any MTU). READs never are: they wait for each other.
AHEAD = 8
SHORT = 4096


class SendFlags(enum.IntFlag, shape=4):
    """Why a QP is activated."""

    DOORBELL = 1
    WAKE = 2  # the completer has finished an operation, or the firmware has changed the QP
    AGAIN = 4  # there may be more to fetch
    NEXT = 8  # the activation carries the avail index (NOTIFICATION_DATA)


class Scheduler(wiring.Component):
    """Takes activated QPs in turn and asks for one WQE of each at a time.

    Members: ``doorbell`` (flags DOORBELL, and NEXT with the avail index as data), ``wake`` (QP,
    from the completer), ``activate`` (from the firmware after a change of state: DOORBELL and
    WAKE), ``rewind`` (from the requester); ``fetch_req``/``fetch_rsp`` to the fetch engine;
    ``wqe`` to the requester: OK and WQE_ERROR answers, per QP in queue order; ``release``: lines
    of answers that a rewind has made stale.

    A QP that may have more goes to the end of the list, so QPs share the fetch engine evenly.
    ``QpFetch.position`` is the position of the answer expected next, ``asked`` the one to ask for
    next: WQEs known to be available are asked for before the ones in front have come, up to
    ``AHEAD`` of them while the QP's WQEs are short, else one, so that no QP has much data in front
    of the others. What is asked for when nothing is known to be available may turn out EMPTY; then,
    and after a rewind, later answers are stale and given back.
    Latency: 9 cycles from an activation to the fetch request when idle. Throughput: an activation
    takes 4 cycles, an answer 3, a rewind 3, one at a time. Every input but ``fetch_rsp`` is served
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
        # Known of the ring: at this step, and from TAKE to ASK. Where to ask for the next WQE.
        available, newest, asking = Signal(16), Signal(16), Signal(16)
        m.d.comb += [
            next_row.eq(row),
            available.eq(row.available),
            next_row.available.eq(available),
            self.row_write.index.eq(qp),
            self.row_write.row.eq(next_row),
            requests.i.payload.function.eq(cfg.function),
            requests.i.payload.qp.eq(qp),
            requests.i.payload.queue.eq(1 + self._config.cqs + (qp << 1)),
            requests.i.payload.position.eq(asking),
            requests.i.payload.known.eq(newest),
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
        # The newer of two avail indices is the one further from the position.
        told = Signal(16)
        newer = Signal()
        m.d.comb += newer.eq(
            (told <= self._config.queue_size) & (told > (row.available - row.position)[:16])
        )
        # What a turn may ask for: a WQE known to be there, or whether there is one.
        serve, ask = Signal(), Signal()
        ahead, under_way = Signal(16), Signal(16)
        known, unknown, more = Signal(), Signal(), Signal()
        limit = min(AHEAD, self._config.send_lines // 2)
        short = min(SHORT, 256 * self._config.quantum)
        m.d.comb += [
            ahead.eq(newest - row.asked),
            under_way.eq(row.asked - row.position),
            known.eq((ahead != 0) & (ahead <= self._config.queue_size)),
            unknown.eq(~known & (newest == row.position)),
            more.eq((under_way == 0) | (row.short & (under_way < limit))),
            asking.eq(Mux(known, row.asked, row.position)),
        ]
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
                m.d.comb += told.eq(taken.data - row.position)
                with m.If(((taken.flags & SendFlags.NEXT) != 0) & newer):
                    m.d.comb += available.eq(taken.data)
                wanted = SendFlags.DOORBELL | SendFlags.AGAIN
                m.d.comb += next_row.blocked.eq(row.blocked & ~wakes)
                # A wake alone is of interest to a blocked QP only.
                m.d.sync += [
                    newest.eq(available),
                    serve.eq(
                        runs & ~next_row.blocked & (row.blocked | ((taken.flags & wanted) != 0))
                    ),
                ]
                m.d.comb += self.row_write.enable.eq(1)
                m.next = "ASK"
            with m.State("ASK"):
                # Where nothing is known it is asked again with each activation: an answer under way
                # may have looked too early.
                m.d.comb += [
                    ask.eq(serve & ((known & more) | unknown)),
                    requests.i.valid.eq(ask),
                    next_row.available.eq(newest),
                    next_row.blocked.eq(0),
                    next_row.asked.eq(asking + 1),
                    self.row_write.enable.eq(ask),
                ]
                m.next = "IDLE"
                with m.If(ask & known):
                    m.next = "AGAIN"
            with m.State("ANSWER"):
                m.d.comb += told.eq(answer.available - row.position)
                with m.If(newer):
                    m.d.comb += available.eq(answer.available)
                with m.If(fresh & good):
                    m.d.comb += [
                        next_row.position.eq(row.position + 1),
                        next_row.short.eq(
                            (answer.wqe.length <= short) & (answer.wqe.opcode != WrOpcode.RDMA_READ)
                        ),
                        self.row_write.enable.eq(1),
                        wqes.i.valid.eq(1),
                        self.fetch_rsp.ready.eq(1),
                    ]
                    with m.If(row.asked == row.position):
                        m.d.comb += next_row.asked.eq(row.position + 1)
                    m.next = "AGAIN"
                with m.Elif(fresh):
                    m.d.comb += [
                        next_row.asked.eq(row.position),
                        self.row_write.enable.eq(1),
                        self.fetch_rsp.ready.eq(1),
                    ]
                    m.next = "IDLE"
                    with m.If((answer.status == FetchStatus.EMPTY) & (available != row.position)):
                        m.next = "AGAIN"  # told meanwhile
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
                    next_row.asked.eq(rewind.position),
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
