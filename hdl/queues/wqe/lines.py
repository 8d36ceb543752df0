"""Line numbers that are free, and lines that are being read."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import checked, require, taken_at_once
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.ports.jobs import LINE_USES, WQE_LINE_BITS

__all__ = ["FreeLines", "GivenLines", "HeldLines"]


class FreeLines(wiring.Component):
    """Gives each of ``lines`` numbers once, then those that come back.

    Latency: 2 cycles from ``i`` (always ready: it holds all numbers) to ``o``. Throughput: a
    number per cycle. Reset: all are free. A number returned twice is the caller's error.
    """

    def __init__(self, *, lines: int):
        if lines < 2 or lines & (lines - 1):
            raise ValueError(f"Lines must be a power of two, at least 2, not {lines!r}")
        self._lines, bits = lines, ceil_log2(lines)
        super().__init__({"i": In(stream.Signature(bits)), "o": Out(stream.Signature(bits))})

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self._lines)
        m.submodules.returned = returned = StreamFifo(shape=bits, depth=self._lines)
        given = Signal(range(self._lines + 1))
        unused = given != self._lines
        m.d.comb += [
            returned.i.valid.eq(self.i.valid),
            returned.i.payload.eq(self.i.payload),
            self.i.ready.eq(returned.i.ready),
            returned.o.ready.eq(self.o.ready & ~unused),
        ]
        with m.If(unused):
            m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(given)]
            with m.If(self.o.ready):
                m.d.sync += given.eq(given + 1)
        with m.Else():
            m.d.comb += [
                self.o.valid.eq(returned.o.valid),
                self.o.payload.eq(returned.o.payload),
            ]
        if checked(platform):
            self._contract(m, platform)
        return m

    def _contract(self, m: Module, platform) -> None:
        owned = Signal(self._lines)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += owned.bit_select(self.o.payload, 1).eq(1)
        with m.If(self.i.valid):
            m.d.sync += owned.bit_select(self.i.payload, 1).eq(0)
        own = owned.bit_select(self.i.payload, 1)
        require(m, platform, ~self.i.valid | own, "no line comes back that was not given")
        taken_at_once(m, platform, self.i, "there is room for each line that comes back")


class GivenLines(wiring.Component):
    """Tells when none of ``lines`` lines holds a WQE of a queue any more.

    Members, a cycle each: ``given`` (``line`` holds a WQE of ``queue``), ``back`` (``back_line``
    does not). ``ask`` is held, with ``asked``, until ``none``: no line is the queue's, which stays
    so unless one is given. Latency: 2 cycles for each line, one after the other. Reset: none is.
    """

    def __init__(self, *, lines: int):
        if lines < 2 or lines & (lines - 1):
            raise ValueError(f"Lines must be a power of two, at least 2, not {lines!r}")
        self._lines, bits = lines, ceil_log2(lines)
        super().__init__(
            {name: In(1) for name in ("given", "back", "ask")}
            | {name: In(16) for name in ("queue", "asked")}
            | {"line": In(bits), "back_line": In(bits), "none": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.owners = owners = Ram(shape=16, depth=self._lines, forward=False)
        out, number = Signal(self._lines), Signal(range(self._lines))
        m.d.comb += [
            owners.write.index.eq(self.line),
            owners.write.row.eq(self.queue),
            owners.write.enable.eq(self.given),
            owners.read0.index.eq(number),
        ]
        again, held = out.bit_select(self.line, 1), out.bit_select(self.back_line, 1)
        require(m, platform, ~(self.given & again), "no line is given that holds a WQE")
        require(m, platform, ~self.back | held, "no line comes back that holds none")
        with m.If(self.given):
            m.d.sync += out.bit_select(self.line, 1).eq(1)
        with m.If(self.back):
            m.d.sync += out.bit_select(self.back_line, 1).eq(0)
        holds = Signal()
        with m.FSM(name="look"):
            # READ: reads the owner of the next line; rests at the first until somebody asks.
            with m.State("READ"):
                m.d.comb += owners.read0.enable.eq(1)
                m.d.sync += holds.eq(out.bit_select(number, 1))
                with m.If(self.ask):
                    m.next = "LOOK"
                with m.Else():
                    m.d.sync += number.eq(0)
            # LOOK: goes on to the next line unless this one holds a WQE of the queue.
            with m.State("LOOK"):
                m.next = "READ"
                with m.If(~self.ask):
                    m.d.sync += number.eq(0)
                with m.Elif(~holds | (owners.read0.row != self.asked)):
                    m.d.sync += number.eq(number + 1)
                    m.d.comb += self.none.eq(number == self._lines - 1)
        return m


class HeldLines(wiring.Component):
    """The lines that are being read: ``line`` from ``taken`` until its ``done``, in order.

    Members: ``look0``, ``look1``, ... line numbers, and ``held0``, ... whether they are held.
    At most ``LINE_USES`` at a time, which is the caller's to keep. Latency: a line is held from the
    cycle after ``taken`` on. Reset: none is.
    """

    def __init__(self, *, looks: int):
        if looks < 1:
            raise ValueError(f"Looks must be at least 1, not {looks!r}")
        self._looks = looks
        members = {"taken": In(1), "line": In(WQE_LINE_BITS), "done": In(1)}
        for n in range(looks):
            members |= {f"look{n}": In(WQE_LINE_BITS), f"held{n}": Out(1)}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        lines = [Signal(WQE_LINE_BITS, name=f"line{n}", reset_less=True) for n in range(LINE_USES)]
        held = Signal(LINE_USES)
        first, behind = Signal(range(LINE_USES)), Signal(range(LINE_USES))
        m.d.sync += [first.eq(first + self.done), behind.eq(behind + self.taken)]
        for n, line in enumerate(lines):
            with m.If(self.done & (first == n)):
                m.d.sync += held[n].eq(0)
            with m.If(self.taken & (behind == n)):
                m.d.sync += [held[n].eq(1), line.eq(self.line)]
        begins, ends = held.bit_select(behind, 1), held.bit_select(first, 1)
        require(m, platform, ~(self.taken & begins), "no more lines are read than may be")
        require(m, platform, ~self.done | ends, "a line is done with that is being read")
        for look in range(self._looks):
            wanted = getattr(self, f"look{look}")
            same = Cat(held[n] & (line == wanted) for n, line in enumerate(lines))
            m.d.comb += getattr(self, f"held{look}").eq(same.any())
        return m
