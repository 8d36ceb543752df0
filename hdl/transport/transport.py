"""The transport: from decoded WQEs to packets, and from packets to what they bring about."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.activation import ActivationList, activation_layout
from hdl.common.arbiter import StreamArbiter
from hdl.common.contract import keeps_offers
from hdl.common.count import COUNT
from hdl.common.fifo import StreamFifo
from hdl.common.quiesce import Quiesce
from hdl.common.ram import BLOCK_ROWS
from hdl.common.skid import Skid
from hdl.common.streams import one_of
from hdl.common.tables import TableProgram
from hdl.config import NicConfig
from hdl.csr.command import TransportCommands
from hdl.ports.activations import ReceiveFlags
from hdl.ports.boxes import (
    Dropped,
    MemoryDrain,
    QpTables,
    RecvFetchPort,
    RxPort,
    SendFetchPort,
    TxPort,
    layout_setter_members,
)
from hdl.ports.context import QP_PINS
from hdl.ports.counter_names import QP_COUNTER_INDEX
from hdl.ports.headers import Departure, RxHeader, TxHeader
from hdl.ports.jobs import Activation, TxChecked
from hdl.ports.numbers import QpNumber
from hdl.ports.regions import RegionKeyPorts

from .outstanding.sinks import SinkPool
from .outstanding.table import OutstandingTable
from .outstanding.types import Fail, Finish
from .receive.qp_counters import QpCounters
from .receive.receive import Receive
from .receive.types import COUNTERS as RECEIVE_COUNTERS
from .recovery.go_back_n import GO_BACK_N
from .recovery.policy import Recovery
from .recovery.qp_timers import QpTimers
from .reply.replier import Replier
from .send.admission import GidFacts
from .send.connected import DcAsked
from .send.departures import WAITING, Departures
from .send.generations import RequestGenerations
from .send.requester import Requester
from .send.scheduler import Scheduler
from .send.tx_arbiter import TxArbiter

__all__ = ["Transport"]

#: Counter (``hdl/ports/counter_names.py``) -> the component and the member that counts it.
COUNTS = {
    "requests_sent": ("requester", "packets"),
    "acks_sent": ("replier", "acks"),
    "naks_sent": ("replier", "naks"),
    "read_responses_sent": ("replier", "read_packets"),
    "merged_acks": ("receive", "merged_acks"),
}
#: The streams whose activations the receive side serves.
POKES = ("doorbell", "outstanding", "repoke", "firmware", "lost", "timers")

#: Who looks QPs up as which of ``QP_MACHINES``, and by which port.
LOOKS = {
    "scheduler": ("scheduler", "context"),
    "requester": ("requester", "context"),
    "departures": ("departures", "context"),
    "replier": ("replier", "context"),
    "receive": ("receive", "context"),
    "commit": ("receive", "committed"),
}
#: Who names the QP of which of ``QP_PINS``.
PINS = {"completer": "receive"}
#: Who reads the pool of READs and atomics, and its port.
RESOURCES = {"receive": "resource_read", "replier": "resource"}
#: The one that writes a table, and its port.
WRITES = {
    "qp_fetch": ("scheduler", "row_write"),
    "qp_tx": ("requester", "row_write"),
    "qp_sent": ("departures", "write"),
    "qp_reply": ("replier", "row_write"),
    "qp_ack": ("receive", "ack_write"),
    "qp_rx": ("receive", "rx_write"),
    "qp_rx_ahead": ("receive", "ahead_write"),
    "resources": ("receive", "resource_write"),
}


class Transport(wiring.Component):
    """Scheduler, requester, outstanding table, replier and the receive side.

    Spec: IBTA vol 1, chapter 9; the parts name their clauses.
    Members: ``doorbell_send``, ``doorbell_receive`` In; ``lost`` In: QPs whose completion was lost
    (VR-4.11); ``send_fetch``, ``recv_fetch``: decoded WQEs; ``tx``, ``rx``: packets' jobs to the
    memory box; ``reply`` In: answers that are due; ``header`` In: packets that came; ``tables``:
    the QPs' rows; ``region_keys``: changes of regions' keys; ``gids`` In: what is known of the
    source addresses; ``sent``, ``spoiled``, ``departed`` In, ``answer`` Out: see ``Egress``;
    ``command``: the firmware's commands; ``memory_drain``: see ``Quiesce``; ``qp_counters``,
    ``guest_counters`` In: readers of the QPs' counters; ``ready`` Out: tables here are cleared
    after reset; ``dropped`` In, of a card with MP WR: virtqueues whose WQEs are forgotten;
    ``apart`` Out, of a card with DC: see ``DcAsked``;
    ``layout``, ``layout_lines``: see ``layout_setter_members``; ``counts``: by name.
    Who waits for whom: docs/architecture.md. Reset: see the parts.
    """

    def __init__(self, *, config: NicConfig, recovery: Recovery = GO_BACK_N):
        self._config, self._recovery = config, recovery
        counts = dict.fromkeys((*COUNTS, *RECEIVE_COUNTERS), COUNT)
        super().__init__(
            {
                "doorbell_send": In(stream.Signature(activation_layout(16))),
                "doorbell_receive": In(stream.Signature(Activation)),
                "lost": In(stream.Signature(QpNumber)),
                "send_fetch": Out(SendFetchPort()),
                "recv_fetch": Out(RecvFetchPort()),
                "tx": Out(TxPort()),
                "rx": Out(RxPort()),
                "reply": In(stream.Signature(Activation)),
                "header": In(stream.Signature(RxHeader)),
                "tables": Out(QpTables(pins=config.hot_qps != 0)),
                "region_keys": Out(RegionKeyPorts()),
                "gids": In(data.ArrayLayout(GidFacts, config.gids)),
                "sent": In(1),
                "spoiled": In(1),
                "departed": In(stream.Signature(Departure, always_ready=True)),
                "answer": Out(stream.Signature(TxHeader)),
                "command": In(TransportCommands()),
                "memory_drain": Out(MemoryDrain()),
                "qp_counters": In(TableProgram(QP_COUNTER_INDEX, 32)),
                "guest_counters": In(TableProgram(QP_COUNTER_INDEX, 32)),
                "ready": Out(1),
                "counts": Out(data.StructLayout(counts)),
            }
            | ({"dropped": In(Dropped())} if config.mp_wr else {})
            | ({"apart": Out(DcAsked)} if config.dc else {})
            | layout_setter_members(config)
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.scheduler = scheduler = Scheduler(config=config)
        m.submodules.requester = requester = Requester(config=config, recovery=self._recovery)
        m.submodules.outstanding = outstanding = OutstandingTable(config=config)
        m.submodules.replier = replier = Replier(config=config)
        m.submodules.receive = receive = Receive(config=config, recovery=self._recovery)
        m.submodules.qp_counters = counters = QpCounters(config=config)
        m.submodules.pokes = pokes = ActivationList(qps=config.qps, sets=len(POKES), held=True)
        m.submodules.timers = timers = QpTimers(config=config)
        self._send(m, scheduler, requester, outstanding, replier)
        self._retry(m, requester, outstanding, receive, timers)
        self._receive(m, receive, outstanding, scheduler, replier, pokes)
        connect(m, timers.poke, pokes.set5)
        connect(m, requester.keys, flipped(self.region_keys.requester))
        connect(m, receive.keys, flipped(self.region_keys.commit))
        m.d.comb += [receive.settle.eq(requester.settle), requester.settled.eq(receive.settled)]
        self._drain(m, requester, replier, receive)
        self._tables(m)
        connect(m, receive.counted, counters.counted)
        connect(m, flipped(self.guest_counters), counters.guest)
        connect(m, flipped(self.qp_counters), counters.program)
        connect(m, flipped(self.command.clear_counters), counters.clear)
        m.d.comb += self.ready.eq(
            outstanding.ready
            & m.submodules.sinks.ready
            & pokes.ready
            & counters.ready
            & timers.ready
            & self._restarts.ready
            & (receive.ready if config.mp_wr else 1)
        )
        if config.mp_wr:
            connect(m, flipped(self.dropped), receive.dropped)
        if config.dc:
            m.d.comb += self.apart.eq(requester.apart)
        if config.mkeys:
            connect(m, requester.layout_lines, flipped(self.layout_lines))
            m.d.comb += self.layout.eq(requester.layout)
        parts = {"requester": requester, "replier": replier, "receive": receive}
        for name, (part, member) in COUNTS.items():
            m.d.comb += self.counts[name].eq(getattr(parts[part], member))
        for name in RECEIVE_COUNTERS:
            m.d.comb += self.counts[name].eq(receive.counters[name])
        keeps_offers(m, platform, self, but=("tx.job",))  # TxArbiter's own
        return m

    def _send(self, m, scheduler, requester, outstanding, replier) -> None:
        """From doorbells to packets' jobs."""
        m.submodules.tx_arbiter = arbiter = TxArbiter(qps=self._config.qps)
        m.submodules.releases = releases = StreamArbiter(shape=8, inputs=2)
        fetch, command = self.send_fetch, self.command
        m.d.comb += [
            requester.gids.eq(self.gids),
            requester.sent.eq(self.sent),
            requester.spoiled.eq(self.spoiled),
        ]
        connect(m, requester.destination, flipped(fetch.destination))
        connect(m, flipped(self.doorbell_send), scheduler.doorbell)
        connect(m, scheduler.fetch_req, flipped(fetch.req))
        connect(m, flipped(fetch.rsp), scheduler.fetch_rsp)
        connect(m, scheduler.wqe, requester.wqe)
        m.d.comb += requester.others.eq(scheduler.others)
        connect(m, requester.rewind, scheduler.rewind)
        connect(m, requester.started, scheduler.started)
        connect(m, scheduler.release, releases.i0)
        connect(m, requester.release, releases.i1)
        connect(m, releases.o, flipped(fetch.release))
        connect(m, requester.append, outstanding.append)
        connect(m, outstanding.places, requester.places)
        m.d.comb += scheduler.share.eq(outstanding.share)
        m.submodules.sinks = sinks = SinkPool(config=self._config)
        connect(m, sinks.short, requester.short_sinks)
        connect(m, sinks.long, requester.long_sinks)
        m.d.comb += requester.any_sinks.eq(sinks.any)
        connect(m, outstanding.dropped, sinks.dropped)
        self._ends(m, requester, outstanding)
        connect(m, requester.job, arbiter.job0)
        connect(m, arbiter.checked0, requester.checked)
        connect(m, replier.job, arbiter.job1)
        connect(m, arbiter.checked1, replier.checked)
        connect(m, arbiter.job, flipped(self.tx.job))
        connect(m, arbiter.answer, flipped(self.answer))
        m.d.comb += [
            arbiter.left.eq(self.departed.valid & self.departed.payload.answer),
            arbiter.left_number.eq(self.departed.payload.psn),
        ]
        # Who takes it says so late, and so does the gather that there is one.
        m.submodules.checked = checked = Skid(shape=TxChecked)
        connect(m, flipped(self.tx.checked), checked.i)
        connect(m, checked.o, arbiter.checked)
        activate, asked = scheduler.activate, command.activate_send
        m.d.comb += [
            scheduler.moves.eq(requester.moves),
            activate.valid.eq(asked.valid),
            activate.payload.qp.eq(asked.payload.qp),
            activate.payload.flags.eq(asked.payload.flags),
            asked.ready.eq(activate.ready),
        ]

    def _ends(self, m, requester, outstanding) -> None:
        """What ends a WQE beside answers: its packets, and of a MEMCPY the memory box."""
        if not self._config.memcpy:
            connect(m, requester.finish, outstanding.finish)
            connect(m, requester.fail, outstanding.fail)
            return
        copied, failed = self.tx.copied.payload, self.tx.copied.payload.status != 0
        finish = stream.Signature(Finish).create(path=("copied_finish",))
        fail = stream.Signature(Fail).create(path=("copied_fail",))
        m.d.comb += [
            finish.payload.qp.eq(copied.qp),
            finish.payload.number.eq(copied.number),
            finish.payload.ends.eq(1),
            finish.valid.eq(self.tx.copied.valid & ~failed),
            fail.payload.qp.eq(copied.qp),
            fail.payload.position.eq(copied.position),
            fail.payload.status.eq(copied.status),
            fail.valid.eq(self.tx.copied.valid & failed),
            self.tx.copied.ready.eq(Mux(failed, fail.ready, finish.ready)),
        ]
        one_of(m, requester.finish, finish, outstanding.finish)
        one_of(m, requester.fail, fail, outstanding.fail)

    def _retry(self, m, requester, outstanding, receive, timers) -> None:
        """What makes a QP go back: no report of it is lost, as the list has room for each QP."""
        qps = self._config.qps
        m.submodules.restarts = self._restarts = restarts = ActivationList(qps=qps, held=True)
        m.submodules.generations = generations = RequestGenerations(config=self._config)
        connect(m, requester.packet_generation, generations.requester)
        connect(m, flipped(self.tx.generation), generations.gather)
        connect(m, outstanding.timer, timers.set0)
        connect(m, receive.timer, timers.set1)
        # Behind a piece of a MEMCPY that waits for the host, as many packets may wait as the gather
        # has headers of, and then leave as fast as the line takes them.
        waiting = 2 * BLOCK_ROWS if self._config.memcpy else WAITING
        m.submodules.departures = departures = Departures(waiting=waiting)
        m.d.comb += [
            departures.departed.valid.eq(self.departed.valid & self.departed.payload.counts),
            departures.departed.payload.eq(self.departed.payload),
        ]
        connect(m, requester.gone_back, departures.restart)
        connect(m, departures.generation, generations.departures)
        connect(m, departures.timer, timers.set2)
        connect(m, receive.running, timers.running)
        connect(m, flipped(self.command.drop), outstanding.drop)
        m.d.comb += [
            generations.advance.eq(requester.advance),
            timers.tick.eq(self.command.timer_tick),
            restarts.set0.valid.eq(receive.restart.valid),
            restarts.set0.payload.qp.eq(receive.restart.payload),
            restarts.set0.payload.flags.eq(1),
            receive.restart.ready.eq(restarts.set0.ready),
            requester.restart.valid.eq(restarts.o.valid),
            requester.restart.payload.eq(restarts.o.payload.qp),
            restarts.o.ready.eq(requester.restart.ready),
        ]

    def _receive(self, m, receive, outstanding, scheduler, replier, pokes) -> None:
        """From packets that came to jobs, replies and finished WQEs."""
        m.submodules.wakes = wakes = StreamFifo(shape=QpNumber, depth=8)
        m.submodules.replies = replies = StreamArbiter(shape=Activation, inputs=2)
        fetch, command = self.recv_fetch, self.command
        connect(m, flipped(self.header), receive.header)
        connect(m, receive.fetch_req, flipped(fetch.req))
        connect(m, flipped(fetch.rsp), receive.fetch_rsp)
        connect(m, receive.line_use, flipped(fetch.line_use))
        connect(m, receive.upcoming, flipped(fetch.upcoming))
        connect(m, receive.head_req, outstanding.head_req)
        connect(m, outstanding.head_rsp, receive.head_rsp)
        m.d.comb += receive.foreseen.eq(outstanding.foreseen)
        connect(m, receive.pop, outstanding.pop)
        connect(m, receive.sink_back, m.submodules.sinks.back)
        connect(m, receive.scatter_job, flipped(self.rx.job))
        connect(m, flipped(self.rx.checked), receive.scatter_checked)
        connect(m, receive.effects, flipped(self.rx.effects))
        connect(m, receive.atomic, flipped(self.rx.atomic))
        connect(m, flipped(self.rx.result), replier.result)
        connect(m, flipped(self.rx.landed), replier.landed)
        m.d.comb += [
            replier.saved.eq(receive.resource_write.enable),
            replier.saved_at.eq(receive.resource_write.index),
        ]
        connect(m, receive.wake, wakes.i)
        connect(m, wakes.o, scheduler.wake)
        connect(m, flipped(self.reply), replies.i0)
        connect(m, flipped(command.activate_reply), replies.i1)
        connect(m, replies.o, replier.activate)
        connect(m, pokes.o, receive.poke)
        poke = {name: getattr(pokes, f"set{number}") for number, name in enumerate(POKES)}
        connect(m, flipped(self.doorbell_receive), poke["doorbell"])
        connect(m, outstanding.poke, poke["outstanding"])
        connect(m, receive.repoke, poke["repoke"])
        connect(m, flipped(command.activate_receive), poke["firmware"])
        m.d.comb += [
            # A CQ that overflows breaks the QPs whose completions are lost.
            poke["lost"].valid.eq(self.lost.valid),
            poke["lost"].payload.qp.eq(self.lost.payload),
            poke["lost"].payload.flags.eq(ReceiveFlags.FAIL.value),
            self.lost.ready.eq(poke["lost"].ready),
        ]

    def _drain(self, m, requester, replier, receive) -> None:
        """What reads a QP's row turns to new work; then all that it began ends."""
        fronts, memory = (requester, replier, receive), self.memory_drain
        m.submodules.drain = drain = Quiesce(fronts=len(fronts), parts=3)
        m.d.comb += [
            drain.start.eq(self.command.drain.start),
            self.command.drain.done.eq(drain.done),
            drain.turned.eq(Cat(front.turned for front in fronts)),
            replier.hold.eq(drain.wanted[fronts.index(replier)]),
            receive.hold.eq(drain.wanted[fronts.index(receive)]),
            memory.start.eq(drain.part_start),
            requester.drain_start.eq(drain.part_start),
            drain.part_done.eq(
                Cat(
                    memory.gather_done,
                    memory.scatter_done & ~receive.rolling_back,
                    requester.drain_done,
                )
            ),
        ]

    def _tables(self, m: Module) -> None:
        """Each part's ports to the QPs' rows."""
        tables, parts = self.tables, m.submodules
        for machine, (part, port) in LOOKS.items():
            connect(m, getattr(parts[part], port), flipped(getattr(tables, machine)))
        if self._config.hot_qps:
            for name in QP_PINS:
                pin = getattr(parts[PINS[name]], f"{name}_pin")
                connect(m, pin, flipped(getattr(tables, f"{name}_pin")))
        for part, port in RESOURCES.items():
            connect(m, getattr(parts[part], port), flipped(getattr(tables, f"resources_{part}")))
        for table, (part, port) in WRITES.items():
            connect(m, getattr(parts[part], port), flipped(getattr(tables, f"{table}_write")))
