"""The host port on AXI: one of several adapters that may serve it."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import NicConfig
from hdl.ports.host import HostPort

from .bus import Axi4, AxiLite
from .levels import LevelsBehindWrites
from .reads import ID_BITS, AxiReads
from .registers import ADDRESS_BITS, AxiRegisters
from .writes import TAKEN, AxiWrites, interrupt_shape

__all__ = ["NORMAL_NON_CACHEABLE", "AxiHost"]

#: AxCACHE "Normal Non-cacheable Non-bufferable" (A4.4): a write's response comes from where the
#: write is visible to all.
NORMAL_NON_CACHEABLE = 0b0010


class AxiHost(wiring.Component):
    """Serves a card's host port: host memory by an AXI4 master, registers by an AXI4-Lite slave.

    Parameters: ``bursts``: the most write bursts without a response, see ``AxiWrites``; ``cache``:
    AxCACHE of all bursts; ``wires``, ``window``: interrupts as wires, see ``AxiWrites``.

    Members: ``host``: the card's; ``axi``; ``axil``; ``interrupt`` Out: numbers of interrupt wires;
    ``intx_i`` In, ``intx`` Out: levels; ``read_errors``, ``write_errors`` Out: bursts that the
    memory has refused. ``axuser`` is the number of the function.

    The rules of the host port hold as follows. Writes have one AWID, and a slave keeps them in
    order. A read, the answer of a register read and an interrupt wait for the responses of all
    writes that were taken before them. Responses of reads come in any order, by their ARID.
    Waits, latency, throughput, errors: see the parts. Reset: with the card and the memory.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        bursts: int = 32,
        cache: int = NORMAL_NON_CACHEABLE,
        wires: int = 0,
        window: int = 0,
    ):
        if not 0 <= cache <= 15:
            raise ValueError(f"Cache must be 0 to 15, not {cache!r}")
        self._config, self._bursts, self._cache = config, bursts, cache
        self._writes = AxiWrites(
            config=config, bursts=bursts, cache=cache, wires=wires, window=window
        )
        super().__init__(
            {
                "host": In(HostPort(config.width)),
                "axi": Out(Axi4(config.width, ID_BITS)),
                "axil": In(AxiLite(ADDRESS_BITS)),
                "interrupt": Out(stream.Signature(interrupt_shape(wires))),
                "intx_i": In(config.functions),
                "intx": Out(config.functions),
                "read_errors": Out(16),
                "write_errors": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.writes = writes = self._writes
        most = self._bursts + TAKEN
        m.submodules.reads = reads = AxiReads(config=self._config, bursts=most, cache=self._cache)
        m.submodules.registers = registers = AxiRegisters(bursts=most)
        m.submodules.levels = levels = LevelsBehindWrites(width=self._config.functions, bursts=most)
        host = self.host
        connect(m, flipped(host.rd_req), reads.rd_req)
        connect(m, reads.rd_rsp, flipped(host.rd_rsp))
        connect(m, flipped(host.wr), writes.wr)
        connect(m, registers.mmio, flipped(host.mmio))
        connect(m, flipped(self.axil), registers.axil)
        connect(m, writes.interrupt, flipped(self.interrupt))
        for part in (reads, writes):
            for name, member in part.axi.signature.members.items():
                ours, its = getattr(self.axi, name), getattr(part.axi, name)
                m.d.comb += ours.eq(its) if member.flow == Out else its.eq(ours)
        for part in (registers, levels):
            m.d.comb += [part.in_flight.eq(writes.in_flight), part.done.eq(writes.done)]
        m.d.comb += [
            reads.taken.eq(writes.taken),
            reads.done.eq(writes.done),
            levels.i.eq(self.intx_i),
            self.intx.eq(levels.o),
            self.read_errors.eq(reads.errors),
            self.write_errors.eq(writes.errors),
        ]
        return m
