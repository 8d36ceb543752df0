"""Device reset: the rooms start again while the host gets all accesses that were promised to it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ResetSequence"]


class ResetSequence(wiring.Component):
    """Holds the rooms in reset until the host port is quiet, then waits for their tables to clear.

    ``request`` (held until ``done``): ``room_reset`` resets the rooms, ``hold`` keeps the read
    engine from taking requests, ``abort`` makes the write engine forget a burst that its source
    had not finished. When no read is outstanding (``reads_idle``) and every promised write has
    been handed to the host (``writes_idle``) the rooms run again; when ``tables_ready``, ``done``
    (one cycle). Spec: Virtio 1.2, 2.4 (status reads 0 once the reset is complete). Latency: the
    host's longest read, and a cycle for each row of the largest table. Reset: the rooms run.

    Of a card that can break (``breaks``), ``broken`` In (one cycle) holds the rooms in reset too,
    as soon, and until a request: ``halted`` Out says that, and their tables keep their rows. What
    was promised to the host is still carried out, and interrupts leave.
    """

    def __init__(self, *, breaks: bool = False):
        self._breaks = breaks
        super().__init__(
            ({"broken": In(1), "halted": Out(1)} if breaks else {})
            | {
                "request": In(1),
                "done": Out(1),
                "reads_idle": In(1),
                "writes_idle": In(1),
                "tables_ready": In(1),
                "room_reset": Out(1),
                "hold": Out(1),
                "abort": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        ready = Signal()
        m.d.sync += ready.eq(self.tables_ready)
        m.d.comb += self.abort.eq(self.hold)
        with m.FSM(name="reset"):
            # RUN: the rooms work; ends when the driver resets the device, or with a broken row.
            with m.State("RUN"):
                with m.If(self.request):
                    m.d.sync += [self.room_reset.eq(1), self.hold.eq(1)]
                    m.next = "STOP"
                if self._breaks:
                    with m.Elif(self.broken):
                        m.d.sync += [self.room_reset.eq(1), self.hold.eq(1), self.halted.eq(1)]
                        m.next = "BREAK"
            if self._breaks:
                self._break(m)
            # STOP: the rooms are in reset; ends when all that the host was
            # asked for is done.
            with m.State("STOP"):
                with m.If(self.reads_idle & self.writes_idle):
                    m.d.sync += self.room_reset.eq(0)
                    m.next = "CLEAR"
            # CLEAR: the rooms begin to clear their tables; one cycle.
            with m.State("CLEAR"):
                m.d.sync += self.hold.eq(0)
                m.next = "WAIT"
            # WAIT: waits until they have; ends when all are ready.
            with m.State("WAIT"):
                with m.If(ready):
                    m.d.comb += self.done.eq(1)
                    m.next = "DONE"
            # DONE: the reset is over; ends when it is not asked for any more.
            with m.State("DONE"):
                with m.If(~self.request):
                    m.next = "RUN"
        return m

    def _break(self, m: Module) -> None:
        """The states in which the card is broken."""
        with m.State("BREAK"):
            # BREAK: the rooms stand still; ends when all that the host was promised is done.
            with m.If(self.reads_idle & self.writes_idle):
                m.d.sync += self.hold.eq(0)
                m.next = "HALT"
        with m.State("HALT"):
            # HALT: the driver is told; ends when it resets the device.
            with m.If(self.request):
                m.d.sync += [self.hold.eq(1), self.halted.eq(0)]
                m.next = "STOP"
