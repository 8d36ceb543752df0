"""Counters for the guest's driver."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from hdl.abi.virtio_rdma import COUNTER_MAGIC, COUNTER_VERSION, COUNTER_WINDOW

from .local import NOTHING_THERE, LocalPort

__all__ = ["CounterWindow", "window_bytes"]


def window_bytes(counters: int) -> int:
    """Size of the window; without counters there is none."""
    return COUNTER_WINDOW.size + 4 * counters if counters else 0


class CounterWindow(wiring.Component):
    """A header that tells what it is, and ``counters`` words behind it.

    Members: ``port``, whose addresses are those in the BAR: the window begins at a multiple of its
    size rounded up to a power of two; ``values`` In, one word for each counter.
    Latency: ``done`` one cycle after ``start``. Throughput: one access in 2 cycles.
    Errors: writes have no effect; words behind the last counter read 0xFFFFFFFF. Reset: nothing but
    ``done``; the counters are their rooms'.
    """

    def __init__(self, *, counters: int):
        if not 1 <= counters <= 1020:
            raise ValueError(f"Counters must be 1 to 1020, as many as fit 4 KiB, not {counters!r}")
        self._counters = counters
        super().__init__({"port": In(LocalPort(12)), "values": In(data.ArrayLayout(32, counters))})

    def elaborate(self, platform):
        m = Module()
        header = COUNTER_WINDOW.pack(
            magic=COUNTER_MAGIC, version=COUNTER_VERSION, count=self._counters
        )
        words = [int.from_bytes(header[at : at + 4], "little") for at in range(0, len(header), 4)]
        words += [self.values[i] for i in range(self._counters)]
        m.d.sync += self.port.done.eq(self.port.start)
        with m.If(self.port.start):
            with m.Switch(self.port.addr):
                for at, word in enumerate(words):
                    with m.Case(4 * at):
                        m.d.sync += self.port.read_data.eq(word)
                with m.Default():
                    m.d.sync += self.port.read_data.eq(NOTHING_THERE)
        return m
