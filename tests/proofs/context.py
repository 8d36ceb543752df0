"""The cache of the QPs' rows: nothing is lost or stale, everybody is answered, nobody pins more
than his share."""

from __future__ import annotations

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Module, Mux, Signal, Value

from hdl.context.cached.look import Look
from hdl.context.cached.rows import MOST_WRITES, CachedTable, RowCache
from tests.force import Force, stuck

from .harness import Proof, any_signal

__all__ = ["PROOFS"]

QPS, PLACES = 4, 2


def _cache(m: Module) -> RowCache:
    """A cache of two places, one table of rows of one bit, and one machine that writes them."""
    m.submodules.dut = dut = RowCache(
        qps=QPS,
        places=PLACES,
        width=1,
        tables={"a": CachedTable(1)},
        machines={"x": ("a",)},
    )
    return dut


class _Machine:
    """Asks for any QP at any time, and writes the row of the one that it has at hand.

    ``pending``: it waits; ``qp``: what for, or what it has; ``written``: it writes in this cycle.
    """

    def __init__(self, m: Module, dut: RowCache, *, patient: bool = False):
        port, write = dut.x, dut.a_write
        self.pending, self.qp, asked = Signal(), Signal(2), Signal()
        enable, number = any_signal(m, 1, "x_enable"), any_signal(m, 2, "x_number")
        writes, value = any_signal(m, 1, "x_writes"), any_signal(m, 1, "x_value")
        before = Signal(MOST_WRITES)
        m.d.sync += before.eq(Value.cast(before << 1) | writes)
        self.fresh = Signal()  # the cycle behind the request
        m.d.sync += self.fresh.eq(enable)
        self.answered = self.pending & port.valid
        with m.If(self.answered):
            m.d.sync += self.pending.eq(0)
        with m.If(enable):
            m.d.sync += [self.pending.eq(1), self.qp.eq(number), asked.eq(1)]
        if patient:  # it waits for its answer
            m.d.comb += Assume(~enable | ~self.pending)
        at_hand = asked & (~self.pending | port.valid)
        m.d.comb += [
            port.enable.eq(enable),
            port.number.eq(number),
            write.enable.eq(writes),
            write.index.eq(self.qp),
            write.row.eq(value),
            Assume(~writes | (at_hand & ~before.all())),
        ]
        self.written = writes


class _Window:
    """The firmware's window: any access at any time, held until it is done. ``writes``: a write is
    done in this cycle."""

    def __init__(self, m: Module, dut: RowCache, *, used: bool = True):
        port = dut.a
        self.writes = port.write & port.done
        if not used:
            return
        held, read, write, index, row = Signal(), Signal(), Signal(), Signal(2), Signal()
        now = {
            name: any_signal(m, len(one), f"window_{name}")
            for name, one in {"read": read, "write": write, "index": index, "row": row}.items()
        }
        m.d.sync += held.eq((port.read | port.write) & ~port.done)
        for name, one in {"read": read, "write": write, "index": index, "row": row}.items():
            m.d.sync += one.eq(getattr(port, name))
            m.d.comb += Value.cast(getattr(port, name)).eq(Mux(held, one, now[name]))
        m.d.comb += Assume(~(port.read & port.write))


class _Store:
    """The backing store: any answers at any time, in the order of the reads, of which ``DEPTH`` are
    under way at most; those of the ``watched`` QP are what was written last.

    ``read``: the watched QP's record is asked for; ``kept``: its record has been handed over.
    """

    DEPTH = 2

    def __init__(self, m: Module, dut: RowCache, watched: Signal, *, prompt: bool = False):
        port, depth = dut.store, self.DEPTH
        request, record, answer = port.request, port.record, port.answer
        memory, coming, is_watched = Signal(), Signal(), Signal()
        level = Signal(range(depth + 1))
        rows, known = (Signal(depth, name=name) for name in ("rows", "known"))
        takes, ready = any_signal(m, 1, "store_takes"), any_signal(m, 1, "record_ready")
        answers, value = any_signal(m, 1, "store_answers"), any_signal(m, 1, "store_value")
        offered, shown = Signal(), Signal()
        mine = request.payload.qp[:2] == watched
        asked = request.valid & request.ready & ~request.payload.write
        gone = answer.valid & answer.ready
        self.read = asked & mine
        self.kept = record.valid & record.ready & is_watched
        m.d.sync += [offered.eq(answer.valid & ~answer.ready), shown.eq(answer.payload.data)]
        m.d.comb += [
            request.ready.eq(takes & (level != depth)),
            Assert(~(request.valid & coming)),
            record.ready.eq(ready & coming),
            answer.valid.eq((level != 0) & (answers | offered)),
            answer.payload.data.eq(Mux(offered, shown, Mux(known[0], rows[0], value))),
            answer.payload.last.eq(1),
        ]
        if prompt:
            m.d.comb += Assume(takes & ready & answers)
        with m.If(request.valid & request.ready & request.payload.write):
            m.d.sync += [coming.eq(1), is_watched.eq(mine)]
        with m.If(record.valid & record.ready):
            m.d.sync += coming.eq(0)
        with m.If(self.kept):
            m.d.sync += memory.eq(record.payload.data)
        m.d.sync += level.eq(level + asked - gone)
        at = level - gone
        for n in range(depth):
            up = n + 1 < depth
            with m.If(gone):
                m.d.sync += [
                    rows[n].eq(rows[n + 1] if up else 0),
                    known[n].eq(known[n + 1] if up else 0),
                ]
            with m.If(asked & (at == n)):
                m.d.sync += [rows[n].eq(memory), known[n].eq(mine)]


def _watched(m: Module) -> Signal:
    watched = Signal(2)
    m.d.comb += watched.eq(AnyConst(2))
    return watched


def _newest(m: Module) -> None:
    """Whatever QP is watched: its row is that of its last write, or 0, in each answer. The firmware
    rests, which halves the time that this takes."""
    dut, watched = _cache(m), _watched(m)
    machine = _Machine(m, dut)
    _Store(m, dut, watched)
    now, before = Signal(), Signal()  # in this cycle, and in the one before
    m.d.sync += before.eq(now)
    with m.If(machine.written & (machine.qp == watched)):
        m.d.sync += now.eq(dut.a_write.row)
    told = machine.answered & (machine.qp == watched)
    m.d.comb += Assert(~told | (dut.x.rows.a == before))


def _kept(m: Module) -> None:
    """Whatever QP is watched: no row of it is waiting to be stored when its record is read."""
    dut, watched = _cache(m), _watched(m)
    machine, window = _Machine(m, dut), _Window(m, dut)
    store = _Store(m, dut, watched)
    unsaved = Signal()
    with m.If(store.kept):
        m.d.sync += unsaved.eq(0)
    changes = machine.written & (machine.qp == watched)
    with m.If(changes | (window.writes & (dut.a.index == watched))):
        m.d.sync += unsaved.eq(1)
    m.d.comb += Assert(~(store.read & unsaved))


#: Cycles in which a request is answered by a store that answers at once: a miss, behind one that
#: has just begun.
LONGEST = 30


def _answered(m: Module) -> None:
    """A machine that waits is answered, if the backing store answers at once."""
    dut, watched = _cache(m), _watched(m)
    machine = _Machine(m, dut, patient=True)
    _Window(m, dut)
    _Store(m, dut, watched, prompt=True)
    waits = Signal(range(LONGEST + 1))
    m.d.sync += waits.eq(Mux(machine.pending & ~machine.answered, waits + 1, 0))
    m.d.comb += Assert(waits < LONGEST)


def _share(m: Module, *, behind: bool) -> None:
    """Tags that differ. A place changes while it is closed, if nobody pinned it a cycle before."""
    places = 4
    m.submodules.dut = dut = Look(bits=3, places=places, behind=behind)
    here, pins = Signal(places), Signal(places)
    tags = [Signal(3, name=f"tag{n}") for n in range(places)]
    changes, news = any_signal(m, places, "changes"), any_signal(m, places, "news")
    opened = any_signal(m, places, "opened")
    m.d.sync += pins.eq(dut.pins)
    m.d.comb += [
        dut.enable.eq(any_signal(m, 1, "enable")),
        dut.number.eq(any_signal(m, 3, "number")),
        dut.here.eq(here),
        dut.open.eq(opened),
    ]
    for n, tag in enumerate(tags):
        m.d.comb += dut.tags[n].eq(tag)
        with m.If(changes[n] & ~opened[n] & ~pins[n]):
            m.d.comb += Assert(~dut.pins[n])
            m.d.sync += here[n].eq(news[n])
            with m.If(~here[n]):
                m.d.sync += tag.eq(any_signal(m, 3, f"new{n}"))
        for other in range(n):
            m.d.comb += Assume(~(here[n] & here[other] & (tag == tags[other])))
    count = sum((dut.pins[n] for n in range(1, places)), start=dut.pins[0])
    most = 3 if behind else 1
    waits = dut.looks & dut.misses
    m.d.comb += [
        Assert(count <= most),
        Assert(~waits | (count <= most - 1)),
    ]


def _one(m: Module) -> None:
    _share(m, behind=False)


def _two(m: Module) -> None:
    _share(m, behind=True)


PROOFS = (
    Proof(
        "cache-newest",
        "Each answer of the cache of rows has the row that was written last.",
        _newest,
        Force("hdl.context.cached.places:Places", "soiled", stuck(0)),
        depth=36,
    ),
    Proof(
        "cache-keeps",
        "A row that has changed is stored before its QP's record is read again.",
        _kept,
        Force("hdl.context.cached.places:Places", "gone", stuck(1)),
        depth=36,
    ),
    Proof(
        "cache-answers",
        "Each request of a machine is answered.",
        _answered,
        Force("hdl.context.cached.places:Places", "known", stuck(1)),
        depth=36,
    ),
    Proof(
        "cache-pins-one",
        "A machine pins the QP that it has asked for, and none while it waits.",
        _one,
        Force("hdl.context.cached.look:Look", "pins", stuck(0xF)),
    ),
    Proof(
        "cache-pins-two",
        "One that looks back pins two while it waits, and three at most.",
        _two,
        Force("hdl.context.cached.look:Look", "pins", stuck(0xF)),
    ),
)
