"""The firmware's windows on the cache: one row at a time, of a QP that is fetched for it."""

from collections.abc import Collection

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, Signature

__all__ = ["Window", "WindowPort"]


class WindowPort(Signature):
    """A table's window without its rows, seen from who uses it; see ``TableProgram``."""

    def __init__(self, bits: int):
        super().__init__({"index": Out(bits), "read": Out(1), "write": Out(1), "done": In(1)})


class Window(wiring.Component):
    """Serves the windows of all ``tables`` in turn: gets the QP's rows here, then reads or writes.

    Members: ``<table>`` (``WindowPort``). ``number``,
    ``enable`` Out: the QP is asked for; ``here`` In: its rows are here, and stay until ``drop``
    Out. ``may_read`` In: the rows may be read in this cycle, and are by ``read`` Out; ``writes``
    Out: the window's table is to be written, ``written`` In: it is, in this cycle.
    Latency: 4 cycles and those until ``here``. Throughput: one access at a time.
    Errors: none. Reset: idle.
    """

    def __init__(self, *, bits: int, tables: Collection[str]):
        self._tables = tuple(tables)
        super().__init__(
            {name: In(WindowPort(bits)) for name in tables}
            | {
                "number": Out(bits),
                "enable": Out(1),
                "drop": Out(1),
                "here": In(1),
                "may_read": In(1),
                "read": Out(1),
                "writes": Out(len(tables)),
                "written": In(len(tables)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        ports = [getattr(self, name) for name in self._tables]
        served = Signal(len(ports))  # the window that has the turn, one bit
        done = Signal()
        m.d.comb += [port.done.eq(done & served[n]) for n, port in enumerate(ports)]
        reads = (Cat(port.read for port in ports) & served).any()
        with m.FSM(name="window"):
            # IDLE: looks for a window that is used, and asks for its QP; ends with one.
            with m.State("IDLE"):
                for n, port in reversed(list(enumerate(ports))):
                    with m.If(port.read | port.write):
                        m.d.comb += [self.number.eq(port.index), self.enable.eq(1)]
                        m.d.sync += served.eq(1 << n)
                        m.next = "ROWS"
            # ROWS: waits for the QP's rows; ends with them.
            with m.State("ROWS"):
                with m.If(self.here):
                    m.next = "WRITE"
                    with m.If(reads):
                        m.next = "READ"
            # READ: reads the row; ends when it may.
            with m.State("READ"):
                m.d.comb += self.read.eq(self.may_read)
                with m.If(self.may_read):
                    m.next = "DONE"
            # WRITE: writes the row; ends when neither its owner nor a fill does.
            with m.State("WRITE"):
                m.d.comb += self.writes.eq(served)
                with m.If((self.written & served).any()):
                    m.next = "DONE"
            # DONE: the access is over, and the QP may leave; one cycle.
            with m.State("DONE"):
                m.d.comb += [done.eq(1), self.drop.eq(1)]
                m.next = "IDLE"
        return m
