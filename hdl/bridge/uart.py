"""Bytes on an asynchronous serial line: one start bit, eight bits, lowest first, one stop bit."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import cdc, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["UartRx", "UartTx"]


class UartTx(wiring.Component):
    """Sends bytes. Parameters: ``divisor``: cycles of a bit, at least 4.

    Members: ``i``; ``tx`` Out: the line, high when nothing is sent.
    Throughput: a byte in 10 bits. Errors: none. Reset: the line is high.
    """

    def __init__(self, *, divisor: int):
        if divisor < 4:
            raise ValueError(f"Divisor must be at least 4 cycles, not {divisor!r}")
        self._divisor = divisor
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        bits, left = Signal(9, init=-1), Signal(range(11))
        pause = Signal(range(self._divisor))
        m.d.sync += self.tx.eq(bits[0])
        m.d.comb += self.i.ready.eq(left == 0)
        with m.If(left == 0):
            with m.If(self.i.valid):
                m.d.sync += [bits.eq(Cat(Const(0, 1), self.i.payload)), left.eq(10)]
                m.d.sync += pause.eq(self._divisor - 1)
        with m.Elif(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        with m.Else():
            m.d.sync += [bits.eq(Cat(bits[1:], Const(1, 1))), left.eq(left - 1)]
            m.d.sync += pause.eq(self._divisor - 1)
        return m


class UartRx(wiring.Component):
    """Receives bytes. Parameters: ``divisor``: cycles of a bit, at least 4.

    Members: ``rx`` In: the line, of no clock; ``data``, ``valid`` Out: a byte, for one cycle;
    ``broken`` Out: with ``valid``, the stop bit was missing.
    Latency: to the middle of the stop bit. Errors: see ``broken``. Reset: waits for a start bit.
    """

    def __init__(self, *, divisor: int):
        if divisor < 4:
            raise ValueError(f"Divisor must be at least 4 cycles, not {divisor!r}")
        self._divisor = divisor
        super().__init__({"rx": In(1, init=1), "data": Out(8), "valid": Out(1), "broken": Out(1)})

    def elaborate(self, platform):
        m = Module()
        line = Signal(init=1)
        m.submodules.synchroniser = cdc.FFSynchronizer(self.rx, line, init=1)
        bits, left = Signal(9), Signal(range(11))
        pause = Signal(range(self._divisor))
        m.d.comb += [self.data.eq(bits[:8]), self.broken.eq(~bits[8])]
        m.d.sync += self.valid.eq(0)
        with m.FSM():
            # IDLE: the line is idle; ends with a start bit, in whose middle the next state begins.
            with m.State("IDLE"):
                m.d.sync += [left.eq(10), pause.eq(self._divisor // 2 - 2)]
                with m.If(~line):
                    m.next = "BITS"
            # BITS: samples ten bits, each in its middle; ends with the stop bit, or at a false
            # start.
            with m.State("BITS"):
                m.d.sync += pause.eq(pause - 1)
                with m.If(pause == 0):
                    m.d.sync += [
                        pause.eq(self._divisor - 1),
                        left.eq(left - 1),
                        bits.eq(Cat(bits[1:], line)),
                    ]
                    with m.If((left == 10) & line):
                        m.next = "IDLE"
                    with m.Elif(left == 1):
                        m.d.sync += self.valid.eq(1)
                        m.next = "BREAK"
                        with m.If(line):
                            m.next = "IDLE"
            # BREAK: there was no stop bit: waits until the line is high, so that a break is one
            # byte.
            with m.State("BREAK"):
                with m.If(line):
                    m.next = "IDLE"
        return m
