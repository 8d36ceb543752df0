"""Finds the P_Key of a packet in the P_Key table of the function that it is for."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.limits import MAX_PKEYS
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.headers import PkeyRow
from hdl.ports.numbers import ordinal_of

__all__ = ["PartitionMatch"]


class PartitionMatch(wiring.Component):
    """Compares ``pkey`` with all entries of the table of ``function`` at once; the lowest entry of
    the same partition wins, unless both are limited members.

    Spec: IBTA vol 1, 10.9.3 (P_Key matching).
    Members: ``pkey``, a cycle after ``function``; ``table``: a row for each function; ``hit``,
    ``index``. Latency: ``LATENCY`` cycles from ``function``. Throughput: one per cycle.
    Reset: none needed.
    """

    LATENCY = 3

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "pkey": In(16),
                "function": In(8),
                "table": Out(TableRead(8, PkeyRow)),
                "hit": Out(1),
                "index": Out(range(MAX_PKEYS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        keys = [self.table.row[name] for name, _ in PkeyRow]
        same = Signal(len(keys), reset_less=True)
        lowest = [same[n] & ~same[:n].any() for n in range(len(keys))]
        m.d.comb += [
            self.table.index.eq(ordinal_of(self._config, self.function)),
            self.table.enable.eq(1),
        ]
        m.d.sync += [
            same.eq(
                Cat(
                    (key[:15] == self.pkey[:15]) & key[:15].any() & (key[15] | self.pkey[15])
                    for key in keys
                )
            ),
            self.hit.eq(same.any()),
            self.index.eq(
                Cat(
                    Cat(one for n, one in enumerate(lowest) if n >> bit & 1).any()
                    for bit in range(len(self.index))
                )
            ),
        ]
        return m
