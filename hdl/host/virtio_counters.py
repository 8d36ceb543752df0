"""Counters for the guest's driver."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.abi.virtio_rdma import COUNTER_MAGIC, COUNTER_VERSION, COUNTER_WINDOW, QP_COUNTER_WINDOW
from hdl.common.tables import TableProgram
from hdl.config import NicConfig
from hdl.ports.counter_names import (
    COUNTER_INDEX,
    QP_COUNTER_INDEX,
    QP_COUNTER_SLOTS,
    QP_COUNTERS,
)

from .local import LocalPort, merge

__all__ = ["QP_WINDOW_BYTES", "CounterWindow", "QpCounterWindow", "window_bytes"]

#: Size of the window of a QP's counters.
QP_WINDOW_BYTES = QP_COUNTER_WINDOW.size + 4 * len(QP_COUNTERS)


def window_bytes(counters: int) -> int:
    """Size of the window; without counters there is none."""
    return COUNTER_WINDOW.size + 4 * counters if counters else 0


class CounterWindow(wiring.Component):
    """A header that says what the window holds, and ``counters`` words behind it.

    Members: ``port``, whose addresses are those in the BAR: the window begins at a multiple of its
    size rounded up to a power of two, and the asker has checked that they lie in it; ``words`` Out:
    where the counters are read, by their number.
    Latency: ``done`` one cycle after ``start``, for a counter as long as its owner needs.
    Errors: writes have no effect. Reset: only ``done``; the counters belong to their owner.
    """

    def __init__(self, *, counters: int):
        if not 1 <= counters <= 1020:
            raise ValueError(f"Counters must be 1 to 1020, as many as fit 4 KiB, not {counters!r}")
        self._counters = counters
        words = TableProgram(COUNTER_INDEX, 32)
        super().__init__({"port": In(LocalPort(12)), "words": Out(words)})

    def elaborate(self, platform):
        m = Module()
        port, words = self.port, self.words
        header = COUNTER_WINDOW.pack(
            magic=COUNTER_MAGIC,
            version=COUNTER_VERSION,
            count=self._counters,
            qp_count=len(QP_COUNTERS),
        )
        m.d.comb += words.index.eq((port.addr - len(header)) >> 2)
        m.d.sync += port.done.eq(0)
        with m.If(port.start & (port.write | (port.addr < len(header)))):
            m.d.sync += port.done.eq(1)
            with m.Switch(port.addr):
                for at in range(0, len(header), 4):
                    with m.Case(at):
                        word = int.from_bytes(header[at : at + 4], "little")
                        m.d.sync += port.read_data.eq(word)
        with m.Elif(port.start):
            m.d.sync += words.read.eq(1)
        with m.Elif(words.read & words.done):
            m.d.sync += [words.read.eq(0), port.done.eq(1), port.read_data.eq(words.read_row)]
        return m


class QpCounterWindow(wiring.Component):
    """The number of a QP, which the driver writes, and that QP's counters behind it.

    Members: ``port`` as of ``CounterWindow``; ``words`` Out: all QPs' counters. The low bits of
    the number choose the pair, as everywhere; a QP that does not exist reads 0. ``clear`` In: a
    reset of the device; all reads give 0.
    Latency and throughput: the table's. Errors: writes of counters have no effect.
    Reset: the number is 0.
    """

    def __init__(self, *, config: NicConfig):
        self._pair = ceil_log2(config.qps)
        words = TableProgram(QP_COUNTER_INDEX, 32)
        super().__init__({"port": In(LocalPort(12)), "words": Out(words), "clear": In(1)})

    def elaborate(self, platform):
        m = Module()
        port, words = self.port, self.words
        qpn = Signal(24)
        slot = Signal(ceil_log2(QP_COUNTER_SLOTS))
        m.d.comb += [
            slot.eq((port.addr - QP_COUNTER_WINDOW.size) >> 2),
            words.index.eq(Cat(slot, qpn[: self._pair])),
        ]
        with m.If(port.start & (port.addr == QP_COUNTER_WINDOW.offset("qpn"))):
            m.d.sync += [port.done.eq(1), port.read_data.eq(qpn)]
            with m.If(port.write):
                m.d.sync += qpn.eq(merge(qpn, port))
        with m.Elif(port.start & (port.write | self.clear)):
            m.d.sync += [port.done.eq(1), port.read_data.eq(0)]
        with m.Elif(port.start):
            m.d.sync += words.read.eq(1)
        with m.Elif(words.read & words.done):
            m.d.sync += [
                words.read.eq(0),
                port.done.eq(1),
                port.read_data.eq(Mux(self.clear, 0, words.read_row)),
            ]
        with m.Else():
            m.d.sync += port.done.eq(0)
        with m.If(self.clear):
            m.d.sync += qpn.eq(0)
        return m
