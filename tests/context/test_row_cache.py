"""The cache of rows: random machines that ask, write and hold, over a store that answers late."""

import random
from collections import deque
from functools import cache

import pytest
from amaranth.hdl import Elaboratable, Module, ResetInserter, Signal, Value
from amaranth.lib import data

from hdl.context.cached.record import beats_of
from hdl.context.cached.rows import CachedTable, RowCache
from tests.simulate import Prepared, simulate

QPS, PLACES, WIDTH = 32, 8, 16


class Row(data.Struct):
    value: 20
    more: 5


#: ``d`` is written by one who names its QP (``pin``), as the completer does.
TABLES = {
    "a": CachedTable(Row),
    "b": CachedTable(13),
    "c": CachedTable(7, owned=False),
    "d": CachedTable(24),
}
MACHINES = {"x": ("a", "c"), "y": ("a", "b", "c", "d"), "z": ("b", "d")}
WIDTHS = {"a": 25, "b": 13, "c": 7, "d": 24}
BEATS = beats_of(sum(WIDTHS.values()), WIDTH)


class Bench(Elaboratable):
    """The cache, which ``reset`` resets."""

    def __init__(self, places: int = PLACES):
        self.dut = RowCache(
            qps=QPS,
            places=places,
            width=WIDTH,
            tables=TABLES,
            machines=MACHINES,
            behind=("y",),
            pins=("pin",),
        )
        self.reset = Signal()

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = ResetInserter(self.reset)(self.dut)
        return m


@cache
def prepared(places: int) -> Prepared:
    """The bench of all scenarios with so many places."""
    return Prepared(Bench(places))


class Store:
    """The backing store: records by QP, answers after ``delay()`` cycles, in order."""

    def __init__(self, delay, ready=lambda: True):
        self.delay, self.ready = delay, ready
        self.lose = lambda qp: False  # the QP's record cannot be read
        self.reads = self.writes = self.cycle = 0
        self.clear()

    def clear(self):
        """Nothing is under way, and nothing is to be read that is not written again."""
        self.records: dict[int, int] = {}
        self.incoming, self.beats = deque(), []
        self.answers = deque()  # (due cycle, record, lost)
        self.offered, self.sent = False, 0

    def step(self, ctx, dut, request, record, answered):
        """One cycle: what was seen at the edge, and what is driven until the next one."""
        port = dut.store
        self.cycle += 1
        if request[0]:
            qp, write = request[1] & 0x3FFF, request[1] >> 14
            assert not self.incoming, "a request comes behind the record of the one before"
            if write:
                self.incoming.append(qp)
                self.writes += 1
            else:
                assert qp in self.records, "what was never stored is not asked for"
                self.reads += 1
                self.answers.append((self.cycle + self.delay(), self.records[qp], self.lose(qp)))
        if record[0]:
            self.beats.append(record[1] & (1 << WIDTH) - 1)
            assert record[1] >> WIDTH == (len(self.beats) == BEATS)
            if len(self.beats) == BEATS:
                whole = sum(one << n * WIDTH for n, one in enumerate(self.beats))
                self.records[self.incoming.popleft()] = whole
                self.beats = []
        if answered:
            self.offered = False
            self.sent += 1
            if self.sent == BEATS:
                self.sent = 0
                self.answers.popleft()
        ctx.set(port.request.ready, self.ready())
        ctx.set(port.record.ready, self.ready())
        if not self.offered and self.answers and self.answers[0][0] <= self.cycle:
            _, whole, lost = self.answers[0]
            last = self.sent == BEATS - 1
            beat = {"data": whole >> self.sent * WIDTH & (1 << WIDTH) - 1, "last": last}
            ctx.set(port.answer.payload, beat | {"error": last and lost})
            self.offered = True
        ctx.set(port.answer.valid, self.offered)


class Machine:
    """Asks, waits for the rows, compares them, and writes its own table."""

    def __init__(self, world, name, owns=None):
        self.world, self.name, self.owns = world, name, owns
        self.port = getattr(world.dut, name)
        self.clear()

    def clear(self):
        self.asked = self.replaced = None  # not answered yet; the one before, which was not
        self.new = False  # asked in this cycle
        self.qp, self.behind = None, None  # answered last, and another one before
        self.rows = None
        self.wrote = 0  # cycles in a row
        self.waited = 0

    def look(self, valid, rows):
        """Compare what was there in the cycle that has ended."""
        world = self.world
        if self.asked is None or (self.new and self.replaced is None):
            if self.rows is not None:
                assert valid and rows == self.rows, "the rows stay, in a request's cycle too"
            if self.new:
                self.new, self.rows = False, None
            return
        self.waited += 1
        assert self.waited < world.patience, f"{self.name} waits for ever"
        # An answer may come in the cycle of the next request, too.
        asked = self.replaced if self.new else self.asked
        if valid:
            expected = {one: world.before[one][asked] for one in MACHINES[self.name]}
            assert rows == expected, f"{self.name} was told of {asked}"
            if self.qp not in (None, asked):
                self.behind = self.qp
            self.qp = asked
            world.answers += 1
            world.waits.append(self.waited)
            if not self.new:
                self.asked, self.rows = None, rows
        self.new, self.replaced = False, None

    def act(self, ctx):
        """Drive the next cycle."""
        world, rng = self.world, self.world.rng
        may = {self.qp, self.behind} if self.name == "y" else set()
        if self.asked is None:
            may.add(self.qp)
        asks = rng.random() < (world.hurry if self.asked is None else world.again[self.name])
        ctx.set(self.port.enable, asks)
        if asks:
            self.replaced = self.asked
            self.asked, self.new, self.waited = world.choose(), True, 0
            ctx.set(self.port.number, self.asked)
        if self.owns:
            may = sorted(may - {None})
            writes = bool(may) and self.wrote < 2 and rng.random() < world.writing
            self.wrote = self.wrote + 1 if writes else 0
            world.write(ctx, self.owns, rng.choice(may) if writes else None)


class Pin:
    """Takes a QP over from a machine that has its rows, and writes a row of it as it likes."""

    def __init__(self, world):
        self.world = world
        self.clear()

    def clear(self):
        self.held, self.wrote = None, 0

    def act(self, ctx, at_hand):
        world, rng, port = self.world, self.world.rng, self.world.dut.pin_pin
        if self.held is None and rng.random() < 0.2:
            self.held = at_hand
        elif rng.random() < 0.02:
            self.held = None
        ctx.set(port.held, self.held is not None)
        ctx.set(port.number, self.held or 0)
        writes = self.held is not None and self.wrote < 2 and rng.random() < world.writing
        self.wrote = self.wrote + 1 if writes else 0
        world.write(ctx, "d", self.held if writes else None)


class World:
    """The machines, the store, the firmware, and the rows as they must be."""

    def __init__(self, bench, seed, delay, *, ready=lambda rng: True, qps=QPS):
        self.bench, self.dut, self.rng = bench, bench.dut, random.Random(seed)
        self.store = Store(lambda: delay(self.rng), lambda: ready(self.rng))
        self.hurry, self.writing, self.patience = 0.3, 0.3, 4000
        self.again = {"x": 0, "y": 0.01, "z": 0.05}  # how often another request follows at once
        self.qps, self.firmware = qps, 0.02
        self.answers = self.programmed = self.missed = self.lost = 0
        self.waits = []
        owns = {"x": "a", "y": "b"}
        self.machines = {name: Machine(self, name, owns.get(name)) for name in MACHINES}
        self.pin = Pin(self)
        self.clear()

    def clear(self):
        """All rows are zeros, as after a reset."""
        self.rows = {name: [0] * QPS for name in TABLES}
        self.before = {name: list(rows) for name, rows in self.rows.items()}
        self.writes, self.job = [], None
        for one in (*self.machines.values(), self.pin, self.store):
            one.clear()

    def choose(self):
        if self.rng.random() < 0.3:  # where others are
            return self.rng.choice([one.qp or 0 for one in self.machines.values()])
        return self.rng.randrange(self.qps)

    def write(self, ctx, table, qp):
        port = getattr(self.dut, f"{table}_write")
        ctx.set(port.enable, qp is not None)
        if qp is not None:
            value = self.rng.getrandbits(WIDTHS[table])
            ctx.set(port.index, qp)
            ctx.set(port.row, as_row(table, value))
            self.writes.append((table, qp, value))

    def program(self, ctx, done, rows):
        """The firmware's windows: one access at a time."""
        rng = self.rng
        if self.job and done:
            table, qp, value = self.job
            ctx.set(getattr(self.dut, table).read, 0)
            ctx.set(getattr(self.dut, table).write, 0)
            if value is None:
                assert rows[table] in self.seen, f"the firmware read {table} of {qp}"
            self.programmed += 1
            self.job = None
        elif self.job is None and rng.random() < self.firmware:
            table, qp = rng.choice(list(TABLES)), rng.randrange(self.qps)
            value = rng.getrandbits(WIDTHS[table]) if rng.random() < 0.5 else None
            port = getattr(self.dut, table)
            ctx.set(port.index, qp)
            if value is not None:
                ctx.set(port.row, as_row(table, value))
            ctx.set(port.read if value is None else port.write, 1)
            self.job, self.seen = (table, qp, value), {self.rows[table][qp]}

    async def run(self, ctx, cycles):
        dut, store = self.dut, self.dut.store
        looks = [getattr(dut, name) for name in MACHINES]
        sampled = [
            dut.missed,
            dut.lost,
            *(one.valid for one in looks),
            *(one.rows.as_value() for one in looks),
            store.request.valid & store.request.ready,
            store.request.payload.as_value(),
            store.record.valid & store.record.ready,
            store.record.payload.as_value(),
            store.answer.valid & store.answer.ready,
            *(getattr(dut, name).done for name in TABLES),
            *(Value.cast(getattr(dut, name).read_row) for name in TABLES),
        ]
        async for _, _, *values in ctx.tick().sample(*sampled):
            self.step(ctx, values)
            cycles -= 1
            if not cycles:
                break

    def step(self, ctx, values):
        """A cycle has ended in which ``self.rows`` were there."""
        self.missed += values[0]
        self.lost += values[1]
        valid, rows = values[2:5], values[5:8]
        asked, request, wrote, beat, answered = values[8:13]
        done, read = values[13 : 13 + len(TABLES)], values[13 + len(TABLES) :]
        self.store.step(ctx, self.dut, (asked, request), (wrote, beat), answered)
        # What the firmware has written was written a cycle before ``done``.
        if self.job and any(done) and self.job[2] is not None:
            table, qp, value = self.job
            self.rows[table][qp] = value
        for n, (name, machine) in enumerate(self.machines.items()):
            machine.look(valid[n], unpacked(MACHINES[name], rows[n]))
        self.before = {name: list(rows) for name, rows in self.rows.items()}
        for table, qp, value in self.writes:
            self.rows[table][qp] = value
            if self.job and self.job[:2] == (table, qp):
                self.seen.add(value)
        self.writes = []
        y = self.machines["y"]
        at_hand = y.qp if y.asked is None else None
        for machine in self.machines.values():
            machine.act(ctx)
        self.pin.act(ctx, at_hand)
        self.program(ctx, any(done), dict(zip(TABLES, read, strict=True)))

    async def reset(self, ctx):
        """In the middle of whatever happens; what is under way is forgotten."""
        for name in MACHINES:
            ctx.set(getattr(self.dut, name).enable, 0)
        for name in TABLES:
            ctx.set(getattr(self.dut, name).read, 0)
            ctx.set(getattr(self.dut, name).write, 0)
        for name in ("a", "b", "d"):
            ctx.set(getattr(self.dut, f"{name}_write").enable, 0)
        ctx.set(self.dut.pin_pin.held, 0)
        ctx.set(self.dut.store.answer.valid, 0)
        ctx.set(self.bench.reset, 1)
        await ctx.tick().repeat(3)
        ctx.set(self.bench.reset, 0)
        self.clear()


def as_row(table, value):
    """The row of ``table`` with these bits."""
    return {"value": value & 0xFFFFF, "more": value >> 20} if table == "a" else value


def unpacked(tables, bits):
    """The rows that a machine gets, by their table."""
    rows = {}
    for table in tables:
        rows[table] = bits & (1 << WIDTHS[table]) - 1
        bits >>= WIDTHS[table]
    return rows


DELAYS = {
    "at once": lambda rng: 0,
    "soon": lambda rng: rng.randrange(20),
    "late": lambda rng: rng.randrange(500),
}


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("qps", [12, QPS])
def test_each_answer_has_the_newest_rows(delay, qps):
    """Machines that ask, ask anew, write and hold, with more QPs than places."""

    async def scenario(ctx):
        world = World(prepared(PLACES).component, 1, DELAYS[delay], qps=qps)
        await world.run(ctx, 6000)
        assert world.answers > (100 if delay == "late" else 500)
        assert world.missed > 50 and world.store.writes > 20 and world.store.reads > 20
        assert world.programmed > 5 and not world.lost
        if delay == "late":
            assert max(world.waits) > 500

    simulate(prepared(PLACES), scenario, deadline=10_000)


def test_a_store_that_is_seldom_ready():
    async def scenario(ctx):
        ready = lambda rng: rng.random() < 0.2  # noqa: E731 - of its own for this one
        world = World(prepared(PLACES).component, 2, DELAYS["soon"], ready=ready)
        await world.run(ctx, 6000)
        assert world.answers > 300 and world.store.writes > 20

    simulate(prepared(PLACES), scenario, deadline=10_000)


def test_a_record_that_cannot_be_read_is_zeros():
    """Its QP is as after a reset, and others go on."""

    async def scenario(ctx):
        world = World(prepared(PLACES).component, 4, DELAYS["soon"])
        world.firmware = 0

        def lose(qp):
            lost = world.rng.random() < 0.1
            if lost:  # nobody has it at hand
                for table in TABLES:
                    world.rows[table][qp] = 0
                lost_ones.append(qp)
            return lost

        lost_ones, world.store.lose = [], lose
        await world.run(ctx, 4000)
        assert 10 < len(lost_ones) - 2 <= world.lost <= len(lost_ones)

    simulate(prepared(PLACES), scenario, deadline=10_000)


async def timed(ctx, world, qp, *, write=False):
    """Let x ask for a QP when nothing is under way; return the cycles from the request to the
    answer. ``write``: its row changes then."""
    await world.run(ctx, 100)
    machine = world.machines["x"]
    machine.asked, machine.new, machine.replaced, machine.waited = qp, True, None, 0
    ctx.set(machine.port.number, qp)
    ctx.set(machine.port.enable, 1)
    while machine.asked is not None:
        await world.run(ctx, 1)
    if write:
        world.write(ctx, "a", qp)
        await world.run(ctx, 1)
    return world.waits[-1]


@pytest.mark.parametrize("delay", [1, 40, 250])
def test_cycles(delay):
    """Of a look whose rows are here, of one that nobody has written yet, of one whose record is
    read, and of one for which rows must leave besides."""

    async def scenario(ctx):
        world = World(prepared(PLACES).component, 5, lambda rng: delay)
        world.hurry = world.firmware = world.writing = 0
        cold = [await timed(ctx, world, qp, write=True) for qp in range(PLACES + 1)]
        hit = await timed(ctx, world, PLACES)
        leaves = await timed(ctx, world, 0)  # and a row that has been written leaves
        for qp in range(1, PLACES):
            await timed(ctx, world, qp)
        clean = await timed(ctx, world, PLACES)
        assert (hit, cold[0], cold[-1]) == (2, 10, 11)
        assert (clean - delay, leaves - delay) == (11 + BEATS, 12 + BEATS)

    simulate(prepared(PLACES), scenario, deadline=10_000)


def test_rows_are_zeros_after_a_reset():
    """Whatever was under way, and whatever the backing store holds of the time before."""

    async def scenario(ctx):
        world = World(prepared(PLACES).component, 3, DELAYS["soon"])
        for cycles in (701, 502, 1003, 904):
            await world.run(ctx, cycles)
            assert world.store.writes
            await world.reset(ctx)

    simulate(prepared(PLACES), scenario, deadline=10_000)
