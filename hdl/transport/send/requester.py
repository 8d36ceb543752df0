"""Fetched send WQEs to packets: checks, PSNs, and the outstanding table's entries."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.count import COUNT
from hdl.common.tables import TableRead, TableWrite
from hdl.config import NicConfig
from hdl.ports.boxes import layout_setter_members
from hdl.ports.context import ContextRead
from hdl.ports.jobs import PACKET_GENERATION, Destination, Rewind, SendFetched, TxChecked, TxJob
from hdl.ports.numbers import QpNumber
from hdl.ports.operations import is_copy, unanswered
from hdl.ports.regions import RegionKeyPort
from hdl.ports.rows import QpTx, ReadSink
from hdl.ports.shared import asked_destination, asked_stream

from ..outstanding.types import Append, Fail, Finish
from ..recovery.go_back_n import GO_BACK_N
from ..recovery.policy import Recovery
from .admission import GidFacts, RequestAdmission
from .checks import RequestChecks
from .connected import DcAsked
from .entry import RequestEntry
from .keys import RequestKeys
from .packets import RequestPackets
from .redirect import Redirect, RequestRedirect
from .row import RequestRow

__all__ = ["Requester"]

#: The number of a sink.
SINK = ReadSink.as_shape()["number"].shape


class Requester(wiring.Component):
    """Sends one WQE at a time, packet by packet, from any offset, ahead of the gather's checks.

    Spec: IBTA vol 1, 9.7.2 (PSN), 9.7.3 (packets of a message), 10.8.3 (order, fence); virtio-rdma
    VR-4.4, VR-5.3, 5.7, 5.11, 5.22.

    Three machines have the turn one after the other. ``RequestAdmission`` decides whether the WQE
    may go. ``RequestPackets`` cuts it into packets. ``RequestRedirect`` does what is needed when a
    WQE does not end with its last packet. They share the QP's row (``RequestRow``), the WQE's
    outstanding entry (``RequestEntry``) and the checks that are pending (``RequestChecks``).

    Parameters: ``recovery``: the policy; ``paced``: QPs have rate limiters (docs/recipes.md).
    Members: ``wqe``, ``others`` from the scheduler; ``context``, ``row_write``: the rows of a QP,
    and the writes of its own; ``destination``: where a WQE in a line goes, if it is a datagram;
    ``gids``: of the source addresses; ``job``/``checked`` to and from the gather; ``append``,
    ``finish``, ``fail``, ``places`` of the outstanding table; ``short_sinks``, ``long_sinks``,
    ``any_sinks``: of ``SinkPool``; ``rewind`` and ``release`` (line) back; ``started``: a QP's long
    message begins (``prefetch_window``); ``moves``: see ``RequestRedirect``; ``restart`` (from the
    completer) makes a QP go back to its oldest unacknowledged packet, at the next packet of its
    message, and ``advance`` to a new ``packet_generation`` (``RequestGenerations``), which
    ``gone_back`` tells a cycle later; ``turned``: see ``Quiesce``; ``sent``, ``spoiled``,
    ``drain_start``, ``drain_done``: see ``RequestChecks``, which also has ``packets``. ``spent``,
    if QPs are ``paced``: see ``Scheduler``. ``keys``, ``settle``, ``settled``: see ``RequestKeys``;
    ``layout``, ``layout_lines``: see ``layout_setter_members``.
    After ``quantum`` packets the QP's turn ends if a WQE of another QP waits.

    Latency: 3 cycles from a WQE to its first job. Throughput: a packet in 3 cycles, the first of a
    WQE in 4, which payload takes too; a message of several packets waits for its entry behind the
    first.
    Errors: a WQE that cannot be sent gets an outstanding entry with its WC status; one with a
    packet whose check is not good fails when that is known. Either way ``QpTx.error`` turns every
    later WQE of the QP into a flush, in order.
    Reset: idle.
    """

    def __init__(self, *, config: NicConfig, recovery: Recovery = GO_BACK_N, paced: bool = False):
        self._config, self._recovery, self._paced = config, recovery, paced
        super().__init__(
            {
                "wqe": In(stream.Signature(SendFetched)),
                "others": In(1),
                "restart": In(stream.Signature(QpNumber)),
                "context": Out(ContextRead("requester")),
                "destination": Out(TableRead(8, Destination)),
                "gids": In(data.ArrayLayout(GidFacts, config.gids)),
                "sent": In(1),
                "spoiled": In(1),
                "row_write": Out(TableWrite(QpNumber, QpTx)),
                "packet_generation": Out(TableRead(QpNumber, PACKET_GENERATION)),
                "advance": Out(1),
                "gone_back": Out(stream.Signature(QpNumber)),
                "places": In(stream.Signature(16)),
                "short_sinks": In(stream.Signature(SINK)),
                "long_sinks": In(stream.Signature(SINK)),
                "any_sinks": In(2),
                "append": Out(stream.Signature(Append)),
                "finish": Out(stream.Signature(Finish)),
                "fail": Out(stream.Signature(Fail)),
                "job": Out(stream.Signature(TxJob)),
                "checked": In(stream.Signature(TxChecked)),
                "rewind": Out(stream.Signature(Rewind)),
                "release": Out(stream.Signature(8)),
                "started": Out(stream.Signature(QpNumber)),
                "moves": Out(1),
                "turned": Out(1),
                "drain_start": In(1),
                "drain_done": Out(1),
                "keys": Out(RegionKeyPort()),
                "settle": Out(1),
                "settled": In(1),
                "packets": Out(COUNT),
            }
            | layout_setter_members(config)
            | ({"spent": Out(TableRead(QpNumber, 1))} if paced else {})
            | ({"apart": Out(DcAsked)} if config.dc else {})
        )

    def elaborate(self, platform):
        m = Module()
        config, recovery = self._config, self._recovery
        m.submodules.row = row = RequestRow(once=config.hot_qps != 0)
        m.submodules.admission = admission = RequestAdmission(
            config=config, recovery=recovery, paced=self._paced
        )
        m.submodules.packets = packets = RequestPackets(config=config)
        m.submodules.entry = entry = RequestEntry(config=config)
        m.submodules.checks = checks = RequestChecks(config=config)
        m.submodules.redirect = redirect = RequestRedirect()
        for inner, outer in (
            (row.write, self.row_write),
            (admission.started, self.started),
            (packets.job, self.job),
            (entry.append, self.append),
            (redirect.fail, self.fail),
            (redirect.rewind, self.rewind),
            (checks.release, self.release),
            (checks.finish, self.finish),
            (redirect.restart, self.restart),
            (checks.checked, self.checked),
        ):
            connect(m, inner, flipped(outer))
        connect(m, checks.refused, redirect.refused)
        m.d.comb += redirect.refused_copy.eq(checks.refused_copy)

        # All look at the same WQE and the same rows, which are read together.
        tables = [self.packet_generation]
        if self._paced:
            tables.append(self.spent)
            m.d.comb += admission.spent.eq(self.spent.row)
        for table in tables:
            m.d.comb += [table.index.eq(row.index), table.enable.eq(row.read)]
        context, rows = self.context, self.context.rows
        m.d.comb += [
            context.number.eq(row.index),
            context.enable.eq(row.read),
            row.table.eq(rows.tx),
            self.destination.index.eq(self.wqe.payload.line),
            self.destination.enable.eq(packets.take),
            admission.gids.eq(self.gids),
        ]
        for part in (admission, packets):
            m.d.comb += part.destination.eq(self.destination.row)
        for part in (admission, packets, entry, redirect):
            m.d.comb += part.row.eq(row.row)
        for part in (admission, packets, entry):
            m.d.comb += part.cfg.eq(rows.cfg)
        for part in (admission, packets):
            m.d.comb += part.known.eq(context.valid)
        # One that goes back is told of before the next one does.
        m.d.comb += redirect.known.eq(context.valid & ~self.gone_back.valid)
        for part in (admission, entry, redirect):
            m.d.comb += [part.qp.eq(row.qp), part.wqe.eq(packets.held)]
        # A cycle behind ``advance``.
        with m.If(~self.gone_back.valid | self.gone_back.ready):
            m.d.sync += [
                self.gone_back.valid.eq(self.advance),
                self.gone_back.payload.eq(self.restart.payload),
            ]
        self._turns(m)
        self._decisions(m)
        self._origin(m)
        self._changes(m)
        self._pending(m)
        if self._config.fast_registration:
            self._keys(m)
        if self._config.dc:
            m.d.comb += [
                self.apart.valid.eq(admission.apart),
                self.apart.qp.eq(row.qp),
                self.apart.destination.eq(asked_destination(self.destination.row)),
                self.apart.stream.eq(asked_stream(self.destination.row)),
            ]
        return m

    def _turns(self, m: Module) -> None:
        """Who works: the machine that has the turn gives it to the next, until one ends it."""
        parts, refused = m.submodules, m.submodules.checks.refused
        row, packets, redirect = parts.row, parts.packets, parts.redirect
        takes = Signal()  # the WQE that waits
        # It waited while a QP went back, and comes before the next one that does: however often a
        # peer makes its QP go back, others go on, and no generation comes again.
        passed = Signal()
        own = packets.again | redirect.read | redirect.resume  # rows of the QP at work
        # Nothing else comes first.
        first = (~self.restart.valid | passed) & ~refused.valid & ~self.started.valid
        with m.If(takes):
            m.d.sync += passed.eq(0)
        m.d.comb += [
            self.wqe.ready.eq(takes),
            packets.wqe.eq(self.wqe.payload),
            packets.take.eq(takes),
            parts.admission.start.eq(takes | redirect.resume),
            row.read.eq(takes | own),
            self.turned.eq(takes | packets.again | redirect.resume),
            redirect.may_resume.eq(~self.started.valid),
            packets.start.eq(parts.admission.go),
            redirect.start.eq(parts.admission.end | packets.end),
            # Admission decides late in the cycle, so the choice goes by the other one.
            redirect.way.eq(Mux(packets.end, packets.way, parts.admission.way)),
        ]
        with m.FSM(name="turn") as turn:
            # Who asks for rows is known late; that it is nobody but the QP at work is not.
            busy = turn.ongoing("BUSY") & ~packets.done
            m.d.comb += row.index.eq(Mux(busy, row.qp, self.wqe.payload.qp))
            # IDLE: no QP is at work. Ends with a refused packet, a restart or a WQE.
            with m.State("IDLE"):
                m.d.comb += self.turned.eq(1)
                with m.If(refused.valid):
                    m.d.comb += [row.read.eq(1), row.index.eq(refused.payload.qp)]
                    m.d.comb += [redirect.start.eq(1), redirect.way.eq(Redirect.REFUSED)]
                    m.next = "BUSY"
                with m.Elif(self.restart.valid & ~(self.wqe.valid & passed)):
                    m.d.sync += passed.eq(self.wqe.valid)
                    m.d.comb += [row.read.eq(1), row.index.eq(self.restart.payload)]
                    m.d.comb += [redirect.start.eq(1), redirect.way.eq(Redirect.RESTART)]
                    m.next = "BUSY"
                with m.Elif(self.wqe.valid & first):
                    m.d.comb += takes.eq(1)
                    m.next = "BUSY"
            # BUSY: one of the three machines is at work. Ends when redirect is done, or with the
            # last packet of a WQE, unless the next WQE is taken with it.
            with m.State("BUSY"):
                with m.If(packets.done & self.wqe.valid & first):
                    m.d.comb += takes.eq(1)
                with m.Elif(packets.done | redirect.done):
                    m.next = "IDLE"

    def _decisions(self, m: Module) -> None:
        """What admission and packets decide by."""
        parts, refused = m.submodules, m.submodules.checks.refused
        row, entry, admission, packets = parts.row, parts.entry, parts.admission, parts.packets
        # Both stay as long as the requester is at a packet, so this may be a cycle late.
        goes_back = Signal()
        m.d.sync += goes_back.eq(self.restart.valid & (self.restart.payload == row.qp))
        # A QP without credit gives its turn up as one does for whose place another one waits.
        unpaid = self.spent.row if self._paced else Const(0)
        m.d.comb += [
            admission.ack.eq(self.context.rows.ack),
            admission.rx.eq(self.context.rows.rx),
            admission.tx.eq(self.context.rows.tx),
            admission.newer.eq(row.newer),
            admission.begun.eq(row.begun),
            admission.newest.eq(row.newest),
            admission.room.eq(self.places.valid),
            admission.sinks.eq(Cat(self.short_sinks.valid, self.long_sinks.valid)),
            admission.any_sinks.eq(self.any_sinks),
            admission.free.eq(entry.free),
            admission.urgent.eq(self.restart.valid | refused.valid),
            packets.room.eq(parts.checks.room),
            packets.entering.eq(entry.busy),
            packets.stopped.eq(admission.stopped),
            packets.reset.eq(admission.reset),
            packets.qp.eq(row.qp),
            packets.generation.eq(self.packet_generation.row),
            packets.newest.eq(row.newest),
            # A QP that goes back does so at once; another one when this one's turn is over.
            packets.urgent.eq(refused.valid),
            packets.back.eq(goes_back & ~refused.valid),
            packets.contended.eq(
                self.others | (self.restart.valid & (self.restart.payload != row.qp)) | unpaid
            ),
            parts.redirect.status.eq(admission.status),
            parts.redirect.wake_generation.eq(self.context.rows.ack.wake_generation),
            parts.redirect.entering.eq(entry.busy),
        ]

    def _origin(self, m: Module) -> None:
        """Where a QP that goes back sends from, 3 cycles after its rows are here: the policy says
        so. And whether the WQE of a refused packet has ended."""
        parts, rows, origin = m.submodules, self.context.rows, m.submodules.row.origin
        ack = rows.ack
        self._recovery.origin(m, ack, rows.cfg.path_mtu, origin)
        oldest, pauses = Signal(16), Signal()
        refused, held = parts.checks.refused.payload, parts.packets.held
        m.d.sync += [
            oldest.eq(ack.position),
            pauses.eq(self._recovery.pauses(ack)),
            parts.redirect.at_hand.eq(origin.position == held.position),
        ]
        m.d.comb += [
            parts.redirect.ended.eq((refused.position - oldest)[15]),
            parts.admission.oldest.eq(oldest),
            # A QP that has stopped waits for nobody: no wake follows its last flush.
            parts.redirect.waiting.eq(pauses & ~parts.admission.stopped),
        ]

    def _changes(self, m: Module) -> None:
        """What they change in the row and in the outstanding table."""
        parts = m.submodules
        row, entry, admission, packets = parts.row, parts.entry, parts.admission, parts.packets
        redirect, operation = parts.redirect, packets.held.wqe.operation
        takes = admission.enter & operation.data & ~admission.fails
        m.d.comb += [
            row.load.eq(admission.load | redirect.load),
            row.move.eq(redirect.move),
            row.begin.eq(admission.enter),
            row.data.eq(operation.data & ~admission.fails),
            row.copies.eq(is_copy(self._config, operation.completion)),
            row.place.eq(self.places.payload),
            row.sink.number.eq(
                Mux(admission.long, self.long_sinks.payload, self.short_sinks.payload)
            ),
            row.sink.long.eq(admission.long),
            self.places.ready.eq(admission.enter),
            self.short_sinks.ready.eq(takes & ~admission.long),
            self.long_sinks.ready.eq(takes & admission.long),
            row.advance.eq(packets.advance),
            row.step.eq(packets.step),
            row.skip.eq(redirect.skip),
            row.fail.eq(redirect.error),
            row.save.eq(redirect.save),
            row.rewinds.eq(redirect.rewinds),
            self.advance.eq(self.restart.valid & self.restart.ready),
            entry.start.eq(admission.enter),
            entry.unsent.eq(admission.fails | admission.execute),
            entry.status.eq(admission.status),
            entry.single.eq(packets.single),
            entry.psns.eq(packets.psns),
            entry.handed.eq(packets.handed | redirect.done),
            self.moves.eq(redirect.moves),
        ]

    def _keys(self, m: Module) -> None:
        """Work requests without packets."""
        parts, admission = m.submodules, m.submodules.admission
        m.submodules.keys = keys = RequestKeys(config=self._config)
        connect(m, keys.port, flipped(self.keys))
        m.d.comb += [
            keys.start.eq(admission.execute),
            keys.wqe.eq(parts.packets.held.wqe),
            keys.cfg.eq(self.context.rows.cfg),
            keys.qp.eq(parts.packets.qp),
            keys.destination.eq(self.destination.row),
            admission.executed.eq(keys.done),
            admission.result.eq(keys.status),
            self.settle.eq(keys.settle),
            keys.settled.eq(self.settled),
        ]
        if self._config.mkeys:
            connect(m, keys.lines, flipped(self.layout_lines))
            m.d.comb += [keys.line.eq(parts.packets.held.line), self.layout.eq(keys.layout)]

    def _pending(self, m: Module) -> None:
        """The packets and the lines whose turn comes when those before them are answered."""
        parts, handed = m.submodules, m.submodules.checks.i.payload
        row, entry, packets, checks = parts.row, parts.entry, parts.packets, parts.checks
        silent = unanswered(self._config, self.context.rows.cfg.type)
        copies = is_copy(self._config, packets.held.wqe.operation.completion)
        m.d.comb += [
            checks.i.valid.eq(packets.handed | parts.redirect.release),
            handed.job.eq(packets.handed),
            handed.begins.eq(entry.entered),
            handed.release.eq(packets.last | ~packets.handed),
            handed.finish.eq(
                packets.handed
                & packets.last
                & row.newest
                & ~row.row.whole
                & ~packets.single
                & ~copies
            ),
            handed.copied.eq(copies & packets.handed),
            handed.told.eq(silent),
            handed.ends.eq(packets.last),
            handed.qp.eq(row.qp),
            handed.position.eq(packets.held.position),
            handed.number.eq(row.row.entry),
            handed.line.eq(packets.held.line),
            parts.redirect.released.eq(checks.i.ready),
            checks.large.eq(packets.large),
            checks.begun.eq(entry.begun),
            checks.sent.eq(self.sent),
            checks.spoiled.eq(self.spoiled),
            checks.drain_start.eq(self.drain_start),
            self.drain_done.eq(checks.drain_done),
            self.packets.eq(checks.packets),
        ]
