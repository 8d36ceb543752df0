"""Drives ``ReceiveSide`` in lockstep with the reference model, and plays all its neighbours.

Every packet or poke the hardware takes goes through the model in the same order; when the hardware
is idle again, jobs, effects, fetches, pops, wakes, pokes and rows must be the model's.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from hdl.ports.atomics import AtomicRequest
from hdl.ports.headers import RxHeader
from hdl.ports.jobs import (
    Activation,
    Effects,
    Oldest,
    RecvFetched,
    RecvRequest,
    ScatterChecked,
    ScatterJob,
)
from hdl.ports.operations import early_facts
from hdl.ports.regions import RegionRequest
from hdl.ports.rows import Outstanding, QpAck, QpCfg, QpReply, QpRx, QpSent, ReadResource, ReadSink
from hdl.transport.receive.types import Counters
from hdl.transport.recovery.qp_timers import TimerKind, TimerRow, TimerSet
from sim.bench.pins import Pin, reader
from tests.fields import pack, unpack, zero
from tests.operations import request_row

from .model_receive import AGAIN, IN_SEND, NEXT, RC, TIMEOUT, Element, Result, Row, World
from .model_unanswered import LEFT_OPEN
from .receive_side import CONFIG, INPUTS, OUTPUTS, TABLES, WRITES

Mutation = Callable[[World], Any]

_SHAPES = {
    "repoke": Activation,
    "fetch_req": RecvRequest,
    "sink_back": ReadSink,
    "scatter_job": ScatterJob,
    "effects": Effects,
    "timer": TimerSet,
    "keys_req": RegionRequest,
    "atomic": AtomicRequest,
    "ahead_write": QpRx,
    "rx_write": QpRx,
    "ack_write": QpAck,
    "resource_write": ReadResource,
}
#: What a table's rows are, and where a harness has them.
_CONTENT: dict[str, tuple[Any, Callable[[Harness], dict[int, Row]]]] = {
    "cfg": (QpCfg, lambda harness: harness.world.cfg),
    "reply": (QpReply, lambda harness: harness.world.reply),
    "ahead_read": (QpRx, lambda harness: harness.ahead),
    "rx_read": (QpRx, lambda harness: harness.rx),
    "ack_read": (QpAck, lambda harness: harness.ack),
    "sent_read": (QpSent, lambda harness: harness.world.sent),
    "resource_read": (ReadResource, lambda harness: harness.pool),
    "running": (TimerRow, lambda harness: harness.running),
}
_FLAGS_OUT = (*INPUTS, *OUTPUTS, *TABLES, *WRITES)
_INDICES = [f"{name}_index" for name in (*TABLES, *WRITES)]
_LOOKED_AT = ("flags_out", "settled", *OUTPUTS, *WRITES, *_INDICES)
_REPLIES = ("ack", "nak", "read", "replay")
_EARLY = early_facts(CONFIG)


@cache
def _active(flags: int) -> frozenset[str]:
    """The names of the flags that are set."""
    return frozenset(name for bit, name in enumerate(_FLAGS_OUT) if flags >> bit & 1)


@dataclass
class Seen:
    """What the hardware did with one packet or poke; ``cycles`` until it was idle again."""

    what: str
    qp: int
    stopped: bool = False  # the QP was in error before
    jobs: list[Row] = field(default_factory=list)
    effects: list[Row] = field(default_factory=list)
    fetches: list[tuple[int, int, int]] = field(default_factory=list)
    pops: int = 0
    wakes: int = 0
    repokes: list[int] = field(default_factory=list)
    naks: list[int] = field(default_factory=list)
    timers: list[tuple[str, int, int]] = field(default_factory=list)
    timeouts: list[tuple[int, int]] = field(default_factory=list)  # with the pops
    atomics: list[Row] = field(default_factory=list)
    backs: list[int] = field(default_factory=list)  # sinks of READs
    cycles: int = 0
    expected: list[Result] = field(default_factory=list)


class Harness:
    """delays: neighbours answer and accept at random times (else at once). limit: cycles in all."""

    def __init__(self, dut: Any, *, seed: int = 1, delays: bool = False, limit: int = 20_000):
        self.dut, self.delays, self.limit = dut, delays, limit
        self.rng = random.Random(seed)
        blank = {"cfg": zero(QpCfg), "rx": zero(QpRx), "ack": zero(QpAck), "reply": zero(QpReply)}
        self.world = World(qps=CONFIG.qps, cqs=CONFIG.cqs, blank=blank)
        self.rx = {i: zero(QpRx) for i in range(CONFIG.qps)}
        self.ahead = {i: zero(QpRx) for i in range(CONFIG.qps)}
        self.ack = {i: zero(QpAck) for i in range(CONFIG.qps)}
        self.pool: dict[int, Row] = {}
        self.next = self.world.next.copy()
        self.outstanding: dict[int, list[Row]] = {i: [] for i in range(CONFIG.qps)}
        self.pokes: OrderedDict[int, int] = OrderedDict()
        self.running: dict[int, Row] = {i: {} for i in range(CONFIG.qps)}  # timers
        self.auto_poke = True  # repokes come back, as through the activation list
        self.cycle = 0
        self._header: tuple[Row, Mutation | None] | None = None
        self._offered: tuple[int, int] | None = None
        self._seen: Seen | None = None
        self.done: list[Seen] = []
        self._started = 0
        self._woken = dict.fromkeys(self.ack, 0)  # the last that a wake told of
        self._rows: dict[str, int] = {}
        self._packed: dict[tuple[str, int], tuple[Row, int]] = {}  # of each table's rows, the last
        self._read_pin = {name: reader(getattr(dut, name)) for name in _LOOKED_AT}
        self._pins: dict[str, Pin] = {}
        self._before: dict[tuple[str, int], Row] = {}  # rows written in this cycle
        self._answers: dict[str, tuple[int, int]] = {}  # stream -> (cycle from which, payload)
        self._checks: deque[tuple[int, int]] = deque()  # the same for scatter_checked, in order
        self._foreseen = False  # of ``head_rsp``
        self._answered = self._released = 0  # checks taken; effects: each after its check
        self.revoked: list[int] = []  # keys that were to become invalid
        self.check_cycles = 1  # from a job to its check, when not random
        self._elements: dict[int, Element] = {}  # those fetched last, by line
        self._in = {name: 0 for name in INPUTS}

    async def start(self, *, clock: bool = True) -> None:
        """Clock (unless it runs already) and reset."""
        if clock:
            cocotb.start_soon(Clock(self.dut.clk, 4, unit="ns").start())
        await FallingEdge(self.dut.clk)
        for name in (*INPUTS, *TABLES, "foreseen", "flags_in"):
            self._pins[name] = Pin(getattr(self.dut, name), 0)
        self.dut.rst.value = 1
        for _ in range(3):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0

    def sync(self) -> None:
        """Take the model's rows as the hardware's (after they were changed from outside)."""
        self.rx = {i: dict(row) for i, row in self.world.rx.items()}
        self.ahead = {i: dict(row) for i, row in self.world.rx.items()}
        self.ack = {i: dict(row) for i, row in self.world.ack.items()}
        self._woken = {i: row["wake_generation"] for i, row in self.ack.items()}
        self.pool = {i: dict(row) for i, row in self.world.pool.items()}
        self.outstanding = {i: [dict(e) for e in self.world.outstanding[i]] for i in self.rx}
        self.next = self.world.next.copy()

    def poke(self, qp: int, flags: int) -> None:
        """Activate the receive side for a QP; merges with one that waits."""
        self.pokes[qp] = self.pokes.get(qp, 0) | flags

    async def packet(self, header: Row, mutation: Mutation | None = None) -> Seen:
        """Feed one packet and wait until it has been handled (and pokes that came of it)."""
        self.offer(header, mutation)
        await self._until(lambda: self.idle)
        return next(seen for seen in reversed(self.done) if seen.what == "packet")

    def offer(self, header: Row, mutation: Mutation | None = None) -> None:
        """The next packet."""
        self._header = (header, mutation)

    async def drain(self) -> list[Seen]:
        """Run until nothing is left to do; returns what was done."""
        first = len(self.done)
        await self._until(lambda: self.idle)
        return self.done[first:]

    @property
    def idle(self) -> bool:
        waiting = self._header or self._offered or self.pokes
        return self._seen is None and not waiting

    async def _until(self, over: Callable[[], bool]) -> None:
        while not over():
            await self.step()

    async def feed(self, source: Callable[[], tuple[Row, Mutation | None] | None]) -> None:
        """Packets from ``source`` back to back until it returns None, then drain."""
        while True:
            if self._header is None:
                self._header = source()
                if self._header is None:
                    break
            await self.step()
        await self.drain()

    async def step(self) -> None:
        """One clock cycle."""
        await FallingEdge(self.dut.clk)
        self.cycle += 1
        assert self.cycle < self.limit, f"not finished after {self.limit} cycles: {self._seen}"
        flags = self._drive()
        await ReadOnly()
        self._sample(flags, _active(self._read_pin["flags_out"]()))

    def _drive(self) -> int:
        for name, row in self._rows.items():
            self._pins[name].drive(row)
        self._rows.clear()
        if (
            self._may_offer()
            and not self._in["header"]
            and self._header is not None
            and self._chance()
        ):
            self._in["header"] = 1
            header = self._header[0]
            early = {name: header["opcode"] in codes for name, codes in _EARLY.items()}
            self._pins["header"].drive(pack(RxHeader, header | early))
        if self._may_offer() and not self._in["poke"] and self.pokes and self._chance():
            self._in["poke"] = 1
            self._offered = qp, flags = self.pokes.popitem(last=False)
            self._pins["poke"].drive(pack(Activation, {"qp": qp, "flags": flags}))
        if self._checks and "scatter_checked" not in self._answers:
            self._answers["scatter_checked"] = self._checks.popleft()
        for name, (earliest, payload) in self._answers.items():
            if self.cycle >= earliest:
                self._in[name] = 1
                self._pins[name].drive(payload)
                if name == "head_rsp":
                    self._pins["foreseen"].drive(self._foreseen)
        flags = sum(1 << bit for bit, name in enumerate(INPUTS) if self._in[name])
        for bit, name in enumerate(OUTPUTS, len(INPUTS)):
            may = name != "effects" or self._answered > self._released
            always = name in ("restart", "timer", "atomic")
            flags |= (may and (always or self._chance())) << bit
        self._pins["flags_in"].drive(flags)
        return flags

    @property
    def _tables(self) -> dict[str, dict[int, Row]]:
        return {
            "ahead_write": self.ahead,
            "rx_write": self.rx,
            "ack_write": self.ack,
            "resource_write": self.pool,
        }

    def _may_offer(self) -> bool:
        """Whether the next packet or poke may come: one at a time."""
        return self._seen is None and not (self._in["header"] or self._in["poke"])

    def _over(self) -> bool:
        """Whether what was taken is all there is, once it has settled."""
        return True

    def _chance(self) -> bool:
        return not self.delays or self.rng.random() < 0.6

    def _answer(self, name: str, payload: int) -> None:
        assert name not in self._answers, f"a second request before the answer of {name}"
        wait = self.rng.choice((0, 0, 1, 2, 7, 20)) if self.delays else 0
        self._answers[name] = (self.cycle + 1 + wait, payload)

    def _read(self, name: str) -> Row:
        return unpack(_SHAPES[name], self._read_pin[name]())

    def _sample(self, flags: int, active: frozenset[str]) -> None:
        if self._seen and self._read_pin["settled"]() and self._over():
            self._finish()
        self._before = {}
        for name in WRITES:
            if name in active:
                index, row = self._read_pin[f"{name}_index"](), self._read(name)
                self._before[name, index] = self._tables[name].get(index, {})
                self._tables[name][index] = row
        for name in [name for name in INPUTS if self._in[name] and name in active]:
            self._in[name] = 0
            self._answers.pop(name, None)
            self._answered += name == "scatter_checked"
            if name in ("header", "poke"):
                self._begin(name)
        for name in TABLES:
            if name in active:
                self._table(name, self._read_pin[f"{name}_index"]())
        for bit, name in enumerate(OUTPUTS, len(INPUTS)):
            if name in active and flags >> bit & 1:
                self._output(name)

    def _begin(self, what: str) -> None:
        if what == "header":
            assert self._header is not None
            header, mutation = self._header
            self._header = None
            if mutation:
                mutation(self.world)
                self.sync()
                self._before = {}
            qp = (header["dest_qp"] & 0x3FFF) % CONFIG.qps
            self._seen = Seen("packet", qp, stopped=self.world.in_error(qp))
            self._seen.expected = [self.world.packet(header)]
        else:
            assert self._offered is not None
            qp, flags = self._offered
            self._offered = None
            if self.running[qp]:
                flags &= ~TIMEOUT  # the timer has been started again
            self._seen = Seen("poke", qp, stopped=self.world.in_error(qp))
            self._seen.expected = self.world.poke(qp, flags)
        self._started = self.cycle

    def _table(self, name: str, index: int) -> None:
        # A read in the cycle of a write finds the row as it was.
        before = self._before.get((name.replace("read", "write"), index))
        shape, rows = _CONTENT[name]
        if name != "resource_read":
            index %= CONFIG.qps
        row = rows(self).get(index, {}) if before is None else before
        known = self._packed.get((name, index))
        if known is None or known[0] != row:
            known = self._packed[name, index] = deepcopy(row), pack(shape, row)
        self._rows[name] = known[1]

    def _output(self, name: str) -> None:
        seen = self._seen
        assert seen is not None, f"{name} while nothing is being handled"
        if name == "repoke":
            row = self._read(name)
            self._about(row["qp"])
            seen.repokes.append(row["flags"])
            if self.auto_poke:
                self.poke(row["qp"], row["flags"])
        elif name == "sink_back":
            seen.backs.append(self._read(name)["number"])
        elif name == "fetch_req":
            row = self._read(name)
            qp = row["qp"]
            self._about(qp)
            assert row["function"] == self.world.cfg[qp]["function"]
            number = row["source"]["number"]
            asked = (AGAIN, number, row["head"]) if row["again"] else (NEXT, number, 0)
            seen.fetches.append(asked)
            element = self.world.fetch(asked, self.next)
            self._elements[element.line] = element
            wqe = {"num_sge": element.num_sge, "wr_id": element.wr_id, "length": element.length}
            answer: Row = {"status": element.status, "error": element.error, "line": element.line}
            answer |= {"queue": 2 + CONFIG.cqs + 2 * number, "head": element.head, "wqe": wqe}
            self._answer(name.replace("req", "rsp"), pack(RecvFetched, answer))
        elif name == "scatter_job":
            row = self._read(name)
            seen.jobs.append(row)
            lines = self.world.sinks if row["store"] else self._elements
            status = self.world.check(row, lines.get(row["line"], Element()))
            wait = self.rng.choice((0, 0, 1, 9, 12, 40)) if self.delays else self.check_cycles - 1
            answer = pack(ScatterChecked, {"status": status})
            self._checks.append((self.cycle + 1 + wait, answer))
        elif name == "effects":
            self._released += 1
            seen.effects.append(self._read(name))
        elif name == "keys_req":
            row = self._read(name)
            cfgs = [c for c in self.world.cfg.values() if c["pd"] == row["pd"]]
            assert any(cfg["function"] == row["function"] for cfg in cfgs) and not row["register"]
            # Nothing that came later has been checked, or could be, with the key still valid.
            assert len(seen.jobs) == len(seen.effects) + 1
            self.revoked.append(row["key"])
            self._answer("keys_rsp", int(row["key"] in self.world.revocable))
        elif name == "restart":
            qp = self._read_pin[name]()
            self._about(qp)
            seen.naks.append(qp)
        elif name == "atomic":
            seen.atomics.append(self._read(name))
        elif name == "timer":
            row = self._read(name)
            self._about(row["qp"])
            kind = TimerKind(row["kind"])
            idle = row["idle"] if kind == TimerKind.ANSWER else 0
            seen.timers.append((kind.name, row["code"] if kind != TimerKind.OFF else 0, idle))
        else:
            value = self._read_pin[name]()
            qp = value & 0x3FFF
            self._about(qp)
            if name == "head_req":
                # The table is told when every entry would be finished.
                # A packet of a QP that has stopped is dropped: its look was made ahead.
                poked = seen.what == "poke" and seen.stopped
                assert poked <= bool(value >> 14) <= self.world.in_error(qp)
                self._show_oldest(qp)
            elif name == "pop":
                self.outstanding[qp].pop(0)
                seen.pops += 1
                seen.timeouts.append((value >> 15 & 31, value >> 20))
                if value >> 14 & 1:
                    self._show_oldest(qp, foreseen=self._chance())
            else:
                seen.wakes += 1
                told = self.ack[qp]["wake_generation"]
                assert told != self._woken[qp], "the row must be written with the wake"
                self._woken[qp] = told

    def _show_oldest(self, qp: int, *, foreseen: bool = False) -> None:
        entries = self.outstanding[qp]
        self._foreseen = foreseen and bool(entries)
        oldest = {"valid": 1, "entry": dict(entries[0])} if entries else {}
        if entries:
            operation = request_row(oldest["entry"].pop("opcode"))
            oldest["entry"] |= {
                name: operation[name] for name in ("completion", "data", "invalidate")
            }
        self._answer("head_rsp", pack(Oldest, oldest))

    def _about(self, qp: int) -> None:
        """Something is asked or said of that QP."""
        assert self._seen and qp == self._seen.qp

    def _finish(self) -> None:
        """The hardware is idle: compare."""
        seen, world = self._seen, self.world
        assert seen is not None
        self._seen = None
        seen.cycles = self.cycle - self._started
        results = seen.expected
        jobs = [job for result in results for job in result.jobs]
        effects = [effect for result in results for effect in result.effects]
        assert len(seen.jobs) == len(jobs), (seen, jobs)
        assert len(seen.effects) == len(effects), (seen, effects)
        for got, job in zip(seen.jobs, jobs, strict=True):
            differs = {k: (got[k], v) for k, v in job.items() if k in got and got[k] != v}
            assert not differs, f"job (got, expected): {differs} in {seen}"
        for got, effect in zip(seen.effects, effects, strict=True):
            self._compare_effect(got, effect, seen)
        for name in ("pops", "wakes"):
            assert getattr(seen, name) == sum(getattr(r, name) for r in results), (name, seen)
        for name in ("timers", "timeouts", "atomics", "backs"):
            expected = [one for result in results for one in getattr(result, name)]
            assert getattr(seen, name) == expected, (name, expected, seen)
        assert seen.fetches == [fetch for r in results for fetch in r.fetches], seen
        assert seen.naks == [nak for r in results for nak in r.naks], seen
        assert seen.repokes == [r.repoke for r in results if r.repoke], seen
        for name in ("rx", "ahead", "ack"):
            got = getattr(self, name)[seen.qp]
            row = (world.ack if name == "ack" else world.rx)[seen.qp]
            said = told(row, answered=world.cfg[seen.qp]["type"] == RC)
            differs = {k: (got[k], v) for k, v in said.items() if got[k] != v}
            assert not differs, f"{name} row (got, expected): {differs} in {seen}"
        assert self.pool == world.pool, (self.pool, world.pool)
        assert self.outstanding[seen.qp] == world.outstanding[seen.qp]
        self.done.append(seen)

    @staticmethod
    def _compare_effect(got: Row, effect: Row, seen: Seen) -> None:
        flags = {name: effect.get(name, 0) for name in _REPLIES}
        assert got["flags"] == flags, f"reply flags {got['flags']}, expected {flags}: {seen}"
        assert got["reply"] == any(flags.values()), seen
        assert not got["reply"] or got["qp"] == seen.qp
        assert got["complete"] == ("complete" in effect), (got, effect, seen)
        assert got["discard"] == effect.get("discard", 0), (got, effect, seen)
        done, wanted = got["completion"], effect.get("complete", {})
        differs = {k: (done[k], v) for k, v in wanted.items() if done[k] != v}
        assert not differs, f"completion (got, expected): {differs} in {seen}"

    def counters(self) -> dict[str, int]:
        """The hardware's counters, which must be the model's."""
        got = unpack(Counters, int(self.dut.counters.value))
        expected = {name: self.world.counters.get(name, 0) for name in got}
        assert got == expected, {k: (got[k], v) for k, v in expected.items() if got[k] != v}
        assert set(self.world.counters) <= set(got)
        return got


def told(row: Row, *, answered: bool) -> Row:
    """What a row says: the head in a QpRx means something while a WQE is held, and some fields
    nothing if requests are not ``answered``."""
    without = row.get("message", IN_SEND) != IN_SEND and not row.get("held")
    open_ = {"head"} if without else set()
    if not answered:
        open_ |= set(LEFT_OPEN) - ({"offset"} if row.get("message") else set())
    return {k: v for k, v in row.items() if k not in open_}


def entry(**fields: Any) -> Row:
    """An outstanding WQE."""
    return zero(Outstanding) | {"opcode": 0, "signaled": 1, "complete": 1} | fields
