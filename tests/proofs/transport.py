"""The send side: how many WQEs may be asked for ahead, and the lists of outstanding ones. The
receive side: which READ is answered again."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.asserts import AnyConst
from amaranth.hdl import Array, Assert, Assume, Cat, Const, Module, Mux, Signal, Value

from hdl.config import NicConfig
from hdl.ports.rows import QpFetch
from hdl.transport.outstanding.sinks import SinkPool
from hdl.transport.outstanding.table import OutstandingTable
from hdl.transport.receive.responder_outcome import Verdict, replay_needed
from hdl.transport.receive.types import ResponderWork
from hdl.transport.send.fetch_turn import FetchTurn
from hdl.transport.send.prefetch_window import AHEAD
from tests.force import Force, plus, stuck

from .arithmetic import WRONG, Function
from .harness import Proof, any_signal, offer, take

__all__ = ["PROOFS"]

CONFIG = NicConfig(
    width=64, qps=4, cqs=4, mrs=16, gids=2, send_lines=4, outstanding=4, max_rd_atomic=4
)


def _window(m: Module) -> None:
    """A turn with any rows, doorbell and wake. It is over after four cycles, and never comes again:
    so a look at six says all."""
    m.submodules.dut = dut = FetchTurn(config=CONFIG)
    row = Signal(QpFetch)
    m.d.comb += row.eq(AnyConst(len(row.as_value())))
    rows = (dut.cfg, dut.ack, dut.tx, dut.sent, dut.high, dut.oldest)
    for port in (*rows, dut.flags, dut.notified, dut.share):
        value = Value.cast(port)
        m.d.comb += value.eq(AnyConst(len(value)))
    m.d.comb += [dut.fetch.eq(row), dut.row.eq(row), dut.eligible.eq(AnyConst(1))]
    cycle, over = Signal(3), Signal()
    m.d.sync += cycle.eq(Mux(cycle == 5, 5, cycle + 1))
    m.d.comb += [
        dut.take.eq(cycle == 1),
        dut.weigh.eq(cycle == 2),
        dut.decide.eq(cycle == 3),
        over.eq(cycle == 4),
    ]
    limit, under_way, left = Signal(8), Signal(16), Signal(16)
    # From the oldest WQE: the index, and the one to ask for next, which may be behind it.
    index, asked, behind, pending = (Signal(16) for _ in range(4))
    there, free = Signal(), Signal()  # something is posted; nothing else holds the QP up
    fits, again = Signal(), Signal()  # it has less than its share; it sends again
    most = CONFIG.queue_size
    m.d.comb += [
        index.eq(dut.known - dut.oldest),
        asked.eq(row.asked - dut.oldest),
        behind.eq(dut.oldest - row.asked),
        pending.eq(row.position - dut.sent),
        there.eq((index <= most) & (left != 0) & ((asked > most) | (asked < index))),
        fits.eq(asked[15] | (asked < dut.share)),
        again.eq((row.asked - dut.high)[15]),
        free.eq(~row.reading & (under_way == 0) & (pending <= limit) & fits),
        Assume(dut.share != 0),
        Assert(~over | (dut.count == 0) | fits | again),
        Assert(~over | fits | dut.asked_row.capped),
        Assume((asked <= most) | (behind <= most)),
        Assume(row.ahead <= AHEAD),
        limit.eq(Mux((1 << row.ahead) < CONFIG.send_lines, 1 << row.ahead, CONFIG.send_lines)),
        under_way.eq(row.asked - row.position),
        left.eq(dut.known - row.asked),
        Assert(~over | (dut.count == 0) | (under_way + dut.count <= limit)),
        Assert(~over | (dut.count == 0) | ((dut.count <= left) & there)),
        Assert(~over | (dut.count != 0) | ~there | ~free),
        Assert(~over | (dut.asked_row.asked == (row.asked + dut.count)[:16])),
    ]


#: What the table looks at of a configuration: a list each for two QPs, and two entries for both.
FEW = SimpleNamespace(qps=2, outstanding=2)


def _ask(m: Module, port, name: str) -> tuple[Value, Value]:
    """Ask for an operation at any time, and until it is taken; returns the QP, and when it is."""
    valid, qp = any_signal(m, 1, f"{name}_valid"), any_signal(m, 1, f"{name}_qp")
    waits, before = Signal(name=f"{name}_waits"), Signal(name=f"{name}_before")
    m.d.sync += [waits.eq(port.valid & ~port.ready), before.eq(qp)]
    m.d.comb += [port.valid.eq(valid), port.payload.qp.eq(qp)]
    m.d.comb += Assume(~waits | (valid & (qp == before)))
    return qp, port.valid & port.ready


def _lists(m: Module) -> None:
    """WQEs of each QP have the positions 0, 1, 2 ...; so two numbers for each QP say which of them
    are in its list: the next that is appended, and the oldest."""
    m.submodules.dut = dut = OutstandingTable(config=FEW)
    newest, oldest = (Array(Signal(2, name=f"{end}{qp}") for qp in range(2)) for end in ("n", "o"))
    shown, busy = Signal(), Signal()  # the QP that was looked at, and is not shown yet
    append_qp, appended = _ask(m, dut.append, "append")
    look_qp, looked = _ask(m, dut.head_req, "look")
    pop_qp, popped = _ask(m, dut.pop, "pop")
    drop_qp, dropped = _ask(m, dut.drop, "drop")
    again, waits, before = any_signal(m, 1, "again"), Signal(), Signal()
    m.d.sync += [waits.eq(dut.pop.valid & ~dut.pop.ready), before.eq(again)]
    m.d.comb += [
        dut.append.payload.entry.position.eq(newest[append_qp]),
        # The requester takes a place with the WQE.
        dut.append.payload.number.eq(dut.places.payload),
        dut.places.ready.eq(appended),
        Assume(~dut.append.valid | dut.places.valid),
        dut.pop.payload.look.eq(again),
        dut.poke.ready.eq(any_signal(m, 1, "poke_ready")),
        dut.head_rsp.ready.eq(any_signal(m, 1, "rsp_ready")),
        # The completer: one operation at a time, and it takes off what is there.
        Assume(~waits | (again == before)),
        Assume(~(dut.head_req.valid & dut.pop.valid)),
        Assume(~(busy & (dut.head_req.valid | dut.pop.valid))),
        Assume(~dut.pop.valid | (newest[pop_qp] != oldest[pop_qp])),
        # The firmware drops the list of a QP that nobody works for any more.
        Assume(~(dut.drop.valid & busy & (shown == drop_qp))),
        Assume(~(dut.drop.valid & dut.append.valid & (append_qp == drop_qp))),
        Assume(~(dut.drop.valid & dut.head_req.valid & (look_qp == drop_qp))),
        Assume(~(dut.drop.valid & dut.pop.valid & (pop_qp == drop_qp))),
    ]
    with m.If(dut.head_rsp.valid & dut.head_rsp.ready):
        m.d.sync += busy.eq(0)
    with m.If(looked | (popped & again)):
        m.d.sync += [busy.eq(1), shown.eq(Mux(looked, look_qp, pop_qp))]
    with m.If(appended):
        m.d.sync += newest[append_qp].eq(newest[append_qp] + 1)
    with m.If(popped):
        m.d.sync += oldest[pop_qp].eq(oldest[pop_qp] + 1)
    with m.If(dropped):
        m.d.sync += oldest[drop_qp].eq(newest[drop_qp])
    answer = dut.head_rsp.payload
    m.d.comb += [
        Assert(~dut.head_rsp.valid | (answer.valid == (newest[shown] != oldest[shown]))),
        Assert(~(dut.head_rsp.valid & answer.valid) | (answer.entry.position[:2] == oldest[shown])),
    ]


#: What the pool of sinks looks at of a configuration: two of each kind.
SINKS = SimpleNamespace(read_sinks=2, long_sinks=2, max_sge=32)


def _sinks(m: Module) -> None:
    """READs take sinks, and give back what they have, in any order and by both ways."""
    m.submodules.dut = dut = SinkPool(config=SINKS)
    owned = Signal(4)  # by READs; the long ones behind the short ones
    returned = offer(m, dut.back)
    drops, given = any_signal(m, 1, "drops"), []
    m.d.comb += [dut.dropped.valid.eq(drops), Assume(dut.ready | ~(drops | dut.back.valid))]
    for port in (dut.back, dut.dropped):
        sink = port.payload
        number = Cat(sink.number[0], sink.long)
        if port is dut.dropped:
            m.d.comb += number.eq(any_signal(m, 2, "dropped"))
        given.append(number)
        m.d.comb += Assume(~port.valid | (owned.bit_select(number, 1) & (sink.number < 2)))
    m.d.comb += Assume(~(dut.back.valid & drops) | (given[0] != given[1]))
    with m.If(returned):
        m.d.sync += owned.bit_select(given[0], 1).eq(0)
    with m.If(drops):
        m.d.sync += owned.bit_select(given[1], 1).eq(0)
    for long, port in enumerate((dut.short, dut.long)):
        number = Cat(port.payload[0], Const(long, 1))
        m.d.comb += Assert(~port.valid | (~owned.bit_select(number, 1) & (port.payload < 2)))
        with m.If(take(m, port, f"take{long}")):
            m.d.sync += owned.bit_select(number, 1).eq(1)


def _read_numbers(m: Module) -> None:
    """The numbers of a QP's READs are modulo 256, and none in use is 256 or more behind the next
    one. Here they are compared without end. The replier goes back for a duplicate unless it comes
    to that READ anyway, or has been asked to begin with it or before it, no later inside of it."""
    work, verdict = Signal(ResponderWork), Signal(Verdict)
    tail, skip, asked_skip = (any_signal(m, width, name) for width, name in NUMBERS)
    pending = any_signal(m, 1, "pending")
    replay, head, asked = (Signal(len(tail), name=name) for name in ("replay", "head", "asked"))
    m.d.comb += Assume(tail >= 256)
    for number in (replay, head, asked):
        m.d.comb += number.eq(tail - any_signal(m, 8, f"{number.name}_back"))
    rx, reply = work.rx, work.reply
    m.d.comb += [
        rx.read_tail.eq(tail),
        rx.replay.eq(asked),
        rx.replay_skip.eq(asked_skip),
        rx.replay_seq.eq(pending),
        reply.read_head.eq(head),
        verdict.replay.eq(replay),
        verdict.skip.eq(skip),
    ]
    m.submodules.function = part = Function(lambda inside: replay_needed(inside, work, verdict), 1)
    before = (asked < replay) | ((asked == replay) & (asked_skip <= skip))
    m.d.comb += Assert(part.result == ~((replay > head) | (pending & before)))


#: Widths and names of the next READ's number and of the packets skipped of a READ.
NUMBERS = ((12, "tail"), (24, "skip"), (24, "asked_skip"))

PROOFS = (
    Proof(
        "read-numbers",
        "Which READ is answered again is decided rightly, wherever the numbers of READs wrap.",
        _read_numbers,
        WRONG,
    ),
    Proof(
        "outstanding-lists",
        "A look shows the oldest WQE of its QP, whatever was appended, taken off and dropped.",
        _lists,
        Force("hdl.transport.outstanding.table:OutstandingTable", "shown.behind", stuck(0)),
        sweep=True,
    ),
    Proof(
        "sinks",
        "No sink is two READs' at a time, whatever is taken, given back and dropped at once.",
        _sinks,
        Force("hdl.transport.outstanding.places:Places", "since", stuck(0)),
    ),
    Proof(
        "fetch-window",
        "No turn asks for more WQEs than may be under way, nor for one that is not known, nor for "
        "a new one of a QP that has its share of the outstanding table; and one asks for some when "
        "there are and none is under way, however far the QP has gone back.",
        _window,
        Force("hdl.transport.send.fetch_turn:FetchTurn", "room", plus(1)),
        depth=6,
    ),
)
