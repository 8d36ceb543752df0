"""Whether the requester may begin or go on with a WQE."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.common.sums import unequal
from hdl.config import NicConfig
from hdl.ports.atomics import OPERAND_SLOT
from hdl.ports.jobs import SHORT_SINK_SGES, Destination, FetchStatus, SendFetched, SendWqe
from hdl.ports.numbers import QpNumber, ordinal_of
from hdl.ports.operations import is_copy, is_datagram, is_layout, is_placement, request_serves
from hdl.ports.rows import QpAck, QpCfg, QpRx, QpState, QpTx
from hdl.ports.shared import may_set_layouts, wqe_flush
from hdl.wire.constants import mapped_gid
from hdl.wire.opcodes import ATOMIC_BYTES, Kind

from ..recovery.go_back_n import GO_BACK_N
from ..recovery.policy import Recovery
from ..recovery.segment import fit
from .connected import connection_facts
from .eligibility import behind_reads, wqe_holds
from .prefetch_window import is_long
from .redirect import Redirect

__all__ = ["GidFacts", "RequestAdmission", "broken_rules"]

#: Cycles that a WQE waits in place for room in the outstanding table. Then it is given back, and
#: with it what was fetched behind it: a WQE of another QP may have its entry already.
PATIENCE = 255
#: Rows of the GID table of which one is chosen behind a RAM; what the groups give is joined later.
GID_GROUP = 4
#: SGEs of a MEMCPY: where to, where from.
COPY_SGES = 2
#: Bits that are compared behind a RAM, in one look-up table.
PIECE = 6


def broken_rules(m: Module, config: NicConfig, wqe: SendWqe, cfg: QpCfg) -> Value:
    """Return a bit for each rule that the WQE breaks, a cycle later: opcode, SGEs, inline data,
    READs allowed.

    The QP's row comes out of RAM: what it says is kept before it is combined with the WQE.
    """
    operation, bits = wqe.operation, len(cfg.max_inline)
    copies = is_copy(config, operation.completion)
    rules = [
        ~request_serves(config, operation, cfg.type),
        ~copies & (wqe.num_sge > cfg.max_send_sge),
        operation.data & ~copies & (cfg.max_rd_atomic == 0),
        # What the WQE says alone; the operands of an atomic lie in that slot.
        (wqe.inline & (operation.data | wqe.length[bits:].any()))
        | ((operation.kind == Kind.ATOMIC) & (wqe.num_sge > OPERAND_SLOT)),
    ]
    # One bit for what a QP may or may not do: with more of them the decision is a level later.
    barred = operation.bind & ~cfg.binds if config.windows else Const(0, 1)
    if config.memcpy:
        barred |= copies & ~cfg.copies
    if config.mkeys:
        layout = is_layout(config, operation.completion)
        rules[1] &= ~layout
        barred |= layout & ~may_set_layouts(cfg)
    rules.append(barred)
    if config.placement:
        places, flush = is_placement(config, operation.completion), wqe_flush(wqe)
        unknown = (flush.type.as_value() == 0) | (flush.unknown != 0) | (flush.beyond != 0)
        too_long = wqe.length[31] & wqe.length[:31].any()
        rules[3] = Mux(places, 0, rules[3])  # what is wrong of inline data is their length
        rules += [
            places & ~cfg.placement,
            places & (operation.kind == Kind.READ) & (unknown | too_long),
        ]
    broken, long = Signal(len(rules)), Signal()
    m.d.sync += [broken.eq(Cat(rules)), long.eq(wqe.length[:bits] > cfg.max_inline)]
    if config.placement:
        with m.If(places):
            m.d.sync += long.eq(0)
    return Cat(broken, wqe.inline & long)


class GidFacts(data.Struct):
    """What is to be known of a row of the GID table."""

    valid: 1
    ipv4: 1


def broken_datagram_rules(
    m: Module, config: NicConfig, destination: Destination, cfg: QpCfg, gids: data.View
) -> Value:
    """Return whether the address vector of a datagram breaks a rule, a cycle later: the protection
    domain is the QP's, the source one of its function's addresses, and of the destination's kind.

    The address vector and the row come out of RAM. What they say is kept in pieces before it is
    combined, so that at most three levels of logic are behind the RAM.
    """
    known, ordinal = config.guest.gids, ordinal_of(config, cfg.function)
    places = [n % known | n // known << 8 for n in range(config.functions * known)]
    groups = range(0, len(places), GID_GROUP)
    sources = [Signal(GidFacts, name=f"source_gid{n // GID_GROUP}") for n in groups]
    for first, source in zip(groups, sources, strict=True):
        with m.Switch(Cat(destination.gid_index, ordinal)):
            for n, place in enumerate(places[first : first + GID_GROUP], first):
                with m.Case(place):
                    m.d.comb += source.eq(gids[n])
    prefix = mapped_gid(bytes(4))[:12]
    differs = destination.dgid[: 8 * len(prefix)] ^ int.from_bytes(prefix, "little")
    wide = 2 * PIECE
    pieces = [~differs[n : n + wide].any() for n in range(0, len(differs), wide)]
    mapped = Signal(len(pieces), reset_less=True, name="av_ipv4")
    foreign = Signal(6, reset_less=True, name="av_pd")
    datagram = Signal(reset_less=True, name="av_counts")
    kept = Signal(data.ArrayLayout(GidFacts, len(sources)), name="kept_gids")
    m.d.sync += [
        *(kept[n].eq(source) for n, source in enumerate(sources)),
        mapped.eq(Cat(pieces)),
        foreign.eq(unequal(destination.pd, cfg.pd)),
        datagram.eq(is_datagram(config, cfg.type)),
    ]
    valid = Cat(facts.valid for facts in kept).any()
    ipv4 = Cat(facts.ipv4 for facts in kept).any()
    return datagram & (foreign.any() | ~valid | (ipv4 != mapped.all()))


class RequestAdmission(wiring.Component):
    """Decides what becomes of a WQE: it is sent, given back, dropped, or ends in error.

    Spec: IBTA vol 1, 10.8.3 (order, fence), 9.7.3.1 (limit of READs), 10.2.2.2 (a datagram's
    address); virtio-rdma VR-4.7, VR-5.3, 5.7, VR-7.5.

    Members: ``start``: the rows of the WQE's QP have been asked for, and ``wqe`` is valid from the
    next cycle on; ``known``: they are here. ``cfg``, ``ack``, ``rx`` and ``tx``: its rows as the
    tables show them; ``row``, ``newer``, ``begun``: see ``RequestRow``; ``oldest``:
    ``ack.position``, a cycle later. ``destination``, ``gids``: of a datagram, and what is known of
    the source addresses. ``room``: the outstanding table has a place free; ``sinks``: a short sink
    (bit 0), a long one (1) is at hand; ``any_sinks``: or is on its way; ``free``: see
    ``RequestEntry``. ``urgent``: something comes before a WQE that waits. ``load``: the working
    copy is loaded. Then one of these, for a cycle: ``go``, the WQE is cut into packets from its
    row's place on; or ``end``, with the ``way`` it ends. ``enter``, with either of them: it gets an
    outstanding entry, as a READ with a sink, which is ``long`` or not. ``fails``: no packet of it
    may be sent. ``status`` is valid from the next cycle on: the WC status of its entry. ``execute``
    is held until ``executed``, with the WC ``result``: the WQE is one that ``RequestKeys``
    executes, at once, so that it has its entry only when that is over. ``stopped``, ``reset``: the
    QP is in error, or in RESET, by the rows that were read last; valid a cycle after they are here.
    ``started``: a QP's long message begins (``prefetch_window``); no other ``start`` comes while it
    is valid. ``apart``, on a card with DC: the WQE is given back, as its QP is not connected to its
    destination.

    Latency: 2 cycles from ``start`` to the decision, 3 for a WQE that has its entry; at most
    ``PATIENCE`` + 1 more for room.
    Errors: a WQE that breaks a rule, or is malformed, or whose QP is in error, ``fails``. A
    datagram longer than the port's MTU ends with LOC_LEN_ERR, other rules with LOC_QP_OP_ERR.
    Reset: idle.
    """

    def __init__(self, *, config: NicConfig, recovery: Recovery = GO_BACK_N, paced: bool = False):
        self._config, self._recovery, self._paced = config, recovery, paced
        super().__init__(
            {
                "start": In(1),
                "known": In(1),
                "qp": In(QpNumber),
                "wqe": In(SendFetched),
                "cfg": In(QpCfg),
                "destination": In(Destination),
                "gids": In(data.ArrayLayout(GidFacts, config.gids)),
                "ack": In(QpAck),
                "rx": In(QpRx),
                "tx": In(QpTx),
                "row": In(QpTx),
                "newer": In(1),
                "begun": In(1),
                "newest": In(1),
                "oldest": In(16),
                "room": In(1),
                "sinks": In(2),
                "any_sinks": In(2),
                "free": In(1),
                "urgent": In(1),
                "load": Out(1),
                "go": Out(1),
                "end": Out(1),
                "way": Out(Redirect),
                "enter": Out(1),
                "long": Out(1),
                "fails": Out(1),
                "status": Out(8),
                "execute": Out(1),
                "executed": In(1),
                "result": In(8),
                "stopped": Out(1),
                "reset": Out(1),
                "started": Out(stream.Signature(QpNumber)),
            }
            | ({"spent": In(1)} if paced else {})
            | ({"apart": Out(1)} if config.dc else {})
        )

    def elaborate(self, platform):
        m = Module()
        at_rows, ended = Signal(), Signal()
        waited = Signal(range(2 * PATIENCE))
        impatient = Signal()  # a register: much depends on it
        m.d.sync += impatient.eq(waited >= PATIENCE)
        unpaid = Signal()  # its rate limiter has no credit
        idle, stale, blocked, cause = self._facts(m, at_rows, unpaid)
        drains = Signal()  # no WQE may begin
        m.d.sync += drains.eq(self.cfg.state == QpState.SQD)
        finished = Signal()  # its WQE has ended since the QP went back to it
        m.d.sync += finished.eq((self.wqe.position - self.oldest)[15] & ~self.reset)
        self._announce(m, at_rows)

        def end(way: Redirect) -> None:
            m.d.comb += [ended.eq(1), self.end.eq(1), self.way.eq(way)]

        full, lacks, room = self._room(m, self._is_stopped())
        local = self.wqe.wqe.operation.kind == Kind.LOCAL
        copies = is_copy(self._config, self.wqe.wqe.operation.completion)
        local &= ~copies & self._config.fast_registration  # there are no others
        m.d.comb += self.load.eq(at_rows)
        with m.FSM(name="admit"):
            # IDLE: no WQE is being admitted; ``start`` ends it.
            with m.State("IDLE"):
                m.d.sync += waited.eq(0)
                with m.If(self.start):
                    m.next = "ROWS"
            # ROWS: the QP's rows are compared with the WQE; ends when they are here.
            with m.State("ROWS"), m.If(self.known):
                m.d.comb += at_rows.eq(1)
                m.next = "DECIDE"
            # DECIDE: the decision is told. Ends with it: at once, unless the WQE has its entry,
            # or must wait for one in the outstanding table, or for a sink that is on its way. When
            # all sinks are in use nobody waits here, as others need none.
            with m.State("DECIDE"):
                m.d.sync += self.status.eq(cause)
                with m.If(stale):
                    end(Redirect.DROP)
                with m.Elif(idle & ~self.stopped):
                    end(Redirect.BLOCK)
                if self._paced:
                    # No wake would be waited for: the scheduler looks at once whether it has
                    # credit.
                    with m.Elif(unpaid & ~self.stopped):
                        end(Redirect.YIELD)
                with m.Elif(self.begun):
                    m.next = "BEGUN"
                with m.Elif(drains & ~self.stopped):
                    end(Redirect.BLOCK)
                if self._config.dc:
                    with m.Elif(self._connection.parted):
                        end(Redirect.BLOCK)
                        m.d.comb += self.apart.eq(1)
                with m.Elif(lacks | (full & (self.urgent | impatient))):
                    end(Redirect.YIELD)
                with m.Elif(self.fails):
                    with m.If(room & self.free):
                        m.d.comb += self.enter.eq(1)
                        end(Redirect.REPORTED)
                with m.Else():
                    # Whether it is blocked is known last, so the way does not depend on it.
                    m.d.comb += self.way.eq(Redirect.BLOCK)
                    with m.If(blocked):
                        m.d.comb += [ended.eq(1), self.end.eq(1)]
                        if self._config.dc:
                            m.d.comb += self.apart.eq(self._connection.apart)
                    with m.Elif(room & self.free):
                        with m.If(local):
                            m.next = "EXECUTE"
                        with m.Else():
                            m.d.comb += [ended.eq(1), self.enter.eq(1), self.go.eq(1)]
                m.d.sync += waited.eq(Mux(full, waited + 1, waited))
                with m.If(ended):
                    m.next = "IDLE"
            # EXECUTE: the WQE needs no packet; ends when it has been executed.
            with m.State("EXECUTE"):
                m.d.comb += self.execute.eq(1)
                m.d.sync += self.status.eq(self.result)
                with m.If(self.executed):
                    m.d.comb += self.enter.eq(1)
                    with m.If(self.result != WcStatus.SUCCESS):
                        end(Redirect.REPORTED)
                    with m.Else():
                        end(Redirect.EXECUTED)
                    m.next = "IDLE"
            # BEGUN: the WQE has its entry, so it goes on, unless it has ended meanwhile; one cycle.
            with m.State("BEGUN"):
                m.next = "IDLE"
                with m.If(finished):
                    end(Redirect.SKIP)
                with m.Elif(copies & (~self.newest | self.row.whole)):
                    end(Redirect.EXECUTED)  # all of it is on its way
                with m.Elif(self.fails & ~copies):
                    end(Redirect.FAILED)
                with m.Elif(local):
                    end(Redirect.EXECUTED)
                with m.Else():
                    m.d.comb += self.go.eq(1)
        return m

    def _is_stopped(self) -> Value:
        """Whether the QP is in error, as the tables show it."""
        erred = self.cfg.state == QpState.ERR
        return erred | self.tx.error | self.ack.error | self.rx.error

    def _room(self, m: Module, stopped: Value) -> tuple[Value, Value, Value]:
        """Whether the outstanding table has no place; whether the WQE is a READ, not to be flushed,
        and all sinks are in use; and whether all that it needs is at hand.

        A cycle late: nobody else takes of these, and each stays until it is taken."""
        wqe, full, lacks, room = self.wqe.wqe, Signal(), Signal(), Signal()
        long = Const(0)
        if self._config.max_sge > SHORT_SINK_SGES:
            long = wqe.num_sge > SHORT_SINK_SGES
        at_hand, some = [sinks.bit_select(long, 1) for sinks in (self.sinks, self.any_sinks)]
        reads = wqe.operation.data
        m.d.sync += [
            self.long.eq(long),
            lacks.eq(reads & ~some & ~stopped),
            full.eq(~self.room),
            room.eq(self.room & (~reads | at_hand)),
        ]
        return full, lacks, room

    def _facts(
        self, m: Module, at_rows: Signal, unpaid: Signal
    ) -> tuple[Signal, Value, Signal, Signal]:
        """What the rows say of the WQE, a cycle later, because they are late in the cycle.

        Returns whether the QP's state or a pause holds it (now), whether the WQE is stale (the
        scheduler has been rewound since it was fetched), whether it waits for those before it, and
        its WC status."""
        wqe, operation, cfg, ack = self.wqe.wqe, self.wqe.wqe.operation, self.cfg, self.ack
        # Misfit: the length of an atomic, or of a datagram, is not right; or there are SGEs.
        idle, misfit, too_long = Signal(), Signal(), Const(0, 1)
        rules, misdirected = broken_rules(m, self._config, wqe, cfg), Const(0, 1)
        if self._config.ud:
            misdirected = broken_datagram_rules(m, self._config, self.destination, cfg, self.gids)
            too_long = is_datagram(self._config, cfg.type)
            too_long &= ~fit(wqe.length, Const(self._config.mtu, 13))
        bad = rules.any() | misdirected  # it breaks a rule
        most_reads = Signal(8)  # at a time
        # By the table's row or by the working copy. A choice of rows would be too late for sums.
        found, newer = [Signal(8, name=f"{name}_reads") for name in ("table", "copy")], Signal()
        place = Mux(
            self.newer,
            Cat(self.row.position, self.row.generation),
            Cat(self.tx.position, self.tx.generation),
        )
        moved = Cat(self.wqe.position, self.wqe.generation) ^ place
        # Three pieces: one more is one more level in front of the decision.
        piece = -(-len(moved) // 3)
        stale = Signal(3)
        with m.If(at_rows):
            m.d.sync += [
                newer.eq(self.newer),
                stale.eq(Cat(moved[n : n + piece].any() for n in range(0, len(moved), piece))),
            ]
            for reads, row in zip(found, (self.tx, self.row), strict=True):
                m.d.sync += reads.eq(row.reads - ack.reads)  # under way
        older = Signal(6)  # WQEs before it have not ended
        m.d.sync += older.eq(unequal(self.wqe.position, ack.position))
        behind, ordered = operation.invalidate, Signal()
        if self._config.mkeys:
            behind |= is_layout(self._config, operation.completion)
        m.d.sync += ordered.eq((operation.kind == Kind.LOCAL) & behind)
        waits = older.any() & ordered
        # For both of them, and then one is chosen: in this order it takes less time.
        limits = [behind_reads(wqe, reads, most_reads) for reads in found]
        copies = is_copy(self._config, operation.completion)
        if self._config.memcpy:
            limits = self._behind_copies(m, at_rows, copies, found, limits)
        spent = self.spent if self._paced else 0
        holds = wqe_holds(cfg, pauses=self._recovery.pauses(ack), spent=spent)
        if self._paced:
            m.d.sync += unpaid.eq(holds.rate)
        m.d.sync += [
            self.stopped.eq(self._is_stopped()),
            self.reset.eq(cfg.state == QpState.RESET),
            idle.eq(holds.state | holds.pause),
            # A copy is nothing to the peer: one may always be under way.
            most_reads.eq(Mux(copies & (cfg.max_rd_atomic == 0), 1, cfg.max_rd_atomic)),
            misfit.eq(
                ((operation.kind == Kind.ATOMIC) & (wqe.length != ATOMIC_BYTES))
                | too_long
                | self._has_data(wqe)
                | (copies & ((wqe.num_sge != COPY_SGES) | (wqe.length == 0)))
            ),
        ]
        blocked, cause = Signal(), Signal(8)
        malformed = self.wqe.status == FetchStatus.WQE_ERROR
        m.d.comb += [
            self.fails.eq(self.stopped | malformed | bad | misfit),
            blocked.eq(Mux(newer, limits[1], limits[0])),
        ]
        if self._config.fast_registration:
            with m.If(waits):
                m.d.comb += blocked.eq(1)
        with m.If(self.stopped):
            m.d.comb += cause.eq(WcStatus.WR_FLUSH_ERR)
        with m.Elif(malformed):
            m.d.comb += cause.eq(self.wqe.error)
        with m.Elif(bad):
            m.d.comb += cause.eq(WcStatus.LOC_QP_OP_ERR)
        with m.Elif(misfit):
            m.d.comb += cause.eq(WcStatus.LOC_LEN_ERR)
        if self._config.dc:
            connection = connection_facts(
                m, self._config, self.wqe, self.destination, cfg, self.stopped
            )
            self._connection = connection
            with m.If(connection.apart):
                m.d.comb += blocked.eq(1)
            with m.If(connection.refused):
                m.d.comb += self.fails.eq(1)
                with m.If(~(self.stopped | malformed | bad | misfit)):
                    m.d.comb += cause.eq(connection.status)
        return idle, stale.any(), blocked, cause

    def _behind_copies(self, m: Module, at_rows: Signal, copies: Value, found, limits) -> list:
        """``limits``, for a row of the table and for the working copy, of which ``found`` are the
        READs under way: behind a MEMCPY other WQEs wait until it has ended. No answer of the peer
        then comes to a WQE behind one that has not ended, and the timer knows of packets alone."""
        behind = [Signal(name=f"{name}_copying") for name in ("table", "copy")]
        with m.If(at_rows):
            for waits, row in zip(behind, (self.tx, self.row), strict=True):
                m.d.sync += waits.eq(row.copying & ~copies)
        return [
            limit | (waits & reads.any())
            for limit, waits, reads in zip(limits, behind, found, strict=True)
        ]

    def _has_data(self, wqe: SendWqe) -> Value:
        """Whether a FLUSH or an ATOMIC WRITE has SGEs, or inline data."""
        places = is_placement(self._config, wqe.operation.completion)
        return places & (wqe.inline | (wqe.num_sge != 0))

    def _announce(self, m: Module, at_rows: Signal) -> None:
        """Tell the scheduler that a long message begins, unless it is a READ."""
        wqe, started = self.wqe.wqe, self.started
        begins, long = Signal(), Signal(reset_less=True)
        m.d.sync += [
            begins.eq(at_rows),
            long.eq(is_long(self._config, wqe.length) & ~wqe.operation.data),
        ]
        with m.If(begins & long):
            m.d.sync += [started.valid.eq(1), started.payload.eq(self.qp)]
        with m.Elif(started.ready):
            m.d.sync += started.valid.eq(0)
