"""The order of packets of which some take longer than those behind them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.fifo import StreamFifo

__all__ = ["PacketOrder"]


class PacketOrder(wiring.Component):
    """Puts the ends of packets in order again, where atomics end later than what is behind them.

    Members: ``through`` In (a cycle), with ``atomic`` and ``epoch``: the next packet is complete,
    or, of an atomic, handed over; ``executed`` In (a cycle): the oldest atomic is complete;
    ``written`` Out (a cycle), with its ``written_epoch``: the next packet and all in front of it
    are complete.
    Latency: none while no atomic is at work, else 2 cycles. Throughput: one in each cycle. At most
    ``depth`` (a power of two) packets are kept. Reset: empty.
    """

    def __init__(self, *, depth: int):
        self._depth = depth
        names = ("through", "atomic", "epoch", "executed")
        super().__init__(
            {name: In(1) for name in names} | {"written": Out(1), "written_epoch": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        waiting = data.StructLayout({"atomic": 1, "epoch": 1})
        m.submodules.packets = packets = StreamFifo(shape=waiting, depth=self._depth)
        executed = Signal(range(self._depth + 1))  # complete atomics that wait for their turn
        direct, oldest, leaves = Signal(), packets.o.payload, Signal()
        m.d.comb += [
            direct.eq(self.through & ~self.atomic & (packets.level == 0)),
            packets.i.valid.eq(self.through & ~direct),
            packets.i.payload.atomic.eq(self.atomic),
            packets.i.payload.epoch.eq(self.epoch),
            packets.o.ready.eq(~oldest.atomic | (executed != 0)),
            leaves.eq(packets.o.valid & packets.o.ready),
            self.written.eq(direct | leaves),
            self.written_epoch.eq(Mux(leaves, oldest.epoch, self.epoch)),
        ]
        m.d.sync += executed.eq(executed + self.executed - (leaves & oldest.atomic))
        return m
