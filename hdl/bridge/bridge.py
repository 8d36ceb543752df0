"""Commands over a UART: register accesses, host memory, and what the card has written there."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.ports.host import HostPort

from .executor import Executor
from .memory import WIDTH, HostRam
from .parser import RequestParser
from .uart import UartRx, UartTx

__all__ = ["Bridge"]

#: Bytes that a request may pause for before it is given up, in their duration.
PATIENCE_BYTES = 16


class Bridge(wiring.Component):
    """Executes the requests of ``protocol.py``, one after the other, and answers each.

    Parameters: ``size``: bytes of host memory; ``divisor``: cycles of a bit of the UART.
    Members: ``host`` In: the card's host port; ``rx`` In, ``tx`` Out: the line.
    Latency: an answer begins when its request has been executed. Throughput: that of the line.
    Errors: a request with a wrong check, an unknown command or a bad address is answered with a
    status and not executed. What is no request is skipped; a request that pauses for 16 bytes is
    given up without an answer. Refused accesses of the card: see ``HostRam``.
    Reset: waits for a request; memory keeps its contents.
    """

    def __init__(self, *, size: int, divisor: int):
        self._size, self._divisor = size, divisor
        super().__init__({"host": In(HostPort(WIDTH)), "rx": In(1, init=1), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = HostRam(size=self._size)
        m.submodules.receiver = receiver = UartRx(divisor=self._divisor)
        m.submodules.sender = sender = UartTx(divisor=self._divisor)
        m.submodules.parser = parser = RequestParser(patience=10 * self._divisor * PATIENCE_BYTES)
        m.submodules.executor = executor = Executor(size=self._size)
        for name in ("rd_req", "wr"):
            connect(m, flipped(getattr(self.host, name)), getattr(ram, name))
        connect(m, ram.rd_rsp, flipped(self.host.rd_rsp))
        connect(m, executor.mmio, flipped(self.host.mmio))
        connect(m, executor.access, ram.access)
        connect(m, executor.o, sender.i)
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(sender.tx),
            parser.data.eq(receiver.data),
            parser.valid.eq(receiver.valid),
            parser.broken.eq(receiver.broken),
            parser.done.eq(executor.done),
            parser.index.eq(executor.index),
            executor.start.eq(parser.start),
            executor.good.eq(parser.good),
            executor.command.eq(parser.command),
            executor.argument.eq(parser.argument),
            executor.address.eq(parser.address),
            executor.masked.eq(parser.masked),
            executor.word.eq(ram.word),
            executor.word_valid.eq(ram.word_valid),
            executor.interrupts.eq(ram.interrupts),
            ram.take.eq(executor.take),
            ram.scan.eq(executor.scan),
            executor.scanned.eq(ram.scanned),
            executor.found.eq(ram.found),
            executor.block.eq(ram.block),
        ]
        return m
