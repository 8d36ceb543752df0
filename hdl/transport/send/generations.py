"""How often each QP has gone back, so that what it had handed over before can be dropped."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hdl.common.ram import BLOCK_ROWS, Ram
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.jobs import PACKET_GENERATION
from hdl.ports.numbers import QpNumber

__all__ = ["RequestGenerations"]

#: Who reads generations; the requester is the one that begins new ones.
READERS = ("requester", "gather", "departures")


class RequestGenerations(wiring.Component):
    """A generation for each QP; it changes when the QP goes back.

    The requester writes the generation that it has read into each of its jobs. The gather reads it
    again when the packet's turn comes, and drops a packet of an older generation (``PacketGate``).
    Only the comparison counts, so nobody clears the generations, neither at reset nor with a new
    QP.

    Members: ``requester``, ``gather``, ``departures``: readers; ``advance``: pulse, in the cycle
    behind the requester's read: the QP that was read is in a new generation.
    Latency: a read 1 cycle. Errors: none. Reset: the generations stay.
    """

    def __init__(self, *, config: NicConfig):
        self._qps = config.qps
        reader = TableRead(QpNumber, PACKET_GENERATION)
        readers = {name: In(reader) for name in READERS}
        super().__init__(readers | {"advance": In(1)})

    def elaborate(self, platform):
        m = Module()
        # A packet whose generation is read in the cycle of the write goes out, as one before it
        # does. In block RAM if there are many: which QP's is read is known late in the cycle.
        m.submodules.generations = generations = Ram(
            shape=PACKET_GENERATION,
            depth=self._qps,
            reads=len(READERS),
            earlier=range(len(READERS)),
            block=self._qps >= BLOCK_ROWS,
        )
        for n, name in enumerate(READERS):
            port, copy = getattr(self, name), getattr(generations, f"read{n}")
            m.d.comb += [
                copy.index.eq(port.index),
                copy.enable.eq(port.enable),
                port.row.eq(copy.row),
            ]
        qp = Signal(QpNumber, reset_less=True)
        with m.If(self.requester.enable):
            m.d.sync += qp.eq(self.requester.index)
        m.d.comb += [
            generations.write.enable.eq(self.advance),
            generations.write.index.eq(qp),
            generations.write.row.eq(generations.read0.row + 1),
        ]
        return m
