"""RAM with one write port and any number of registered read ports."""

from collections.abc import Collection

from amaranth.hdl import ClockSignal, Instance, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from .tables import TableRead, TableWrite

__all__ = ["BLOCK_ROWS", "WIDE_BITS", "Ram"]

#: In generated Verilog, memories above this many bits are instances of ``ram.v``: Amaranth prints
#: every word of its own, and Verilator compiles every one. Amaranth's simulator has no instances.
INSTANCE_BITS = 1024
#: Rows from which on wide rows are mapped to block RAM, which has an output register. A memory that
#: is wide and not deep takes as many block RAMs, instead of half a LUT for each bit.
BLOCK_ROWS = 128
#: Bits of the data path from which on few wide rows are worth ``block``. Cards with a narrower one
#: are small and have few block RAMs.
WIDE_BITS = 256
#: Rows from which on a few rows above a power of two lie in a memory of their own. In one memory
#: with the others, look-up tables would choose each bit from more blocks than one column.
SPLIT_ROWS = 4096


class Ram(wiring.Component):
    """Block RAM: one write port, ``reads`` read ports (``read0``, ``read1``, ...), each a copy.

    Parameters: ``forward``: what a read in the cycle in which the same row is written returns: the
    new row (forwarded explicitly: transparent ports are not mapped alike by all tools). Without it
    the row is undefined. Users that never use such a row save a register and a multiplexer
    as wide as the row for each read port. ``earlier``: numbers of ports that return the row as it
    was before the write, as if they had read a cycle earlier: UltraScale+ does this at no cost,
    ECP5 at the cost of forwarding. ``block``: block RAM however few rows there are: for wide ones
    it saves half a look-up table a bit, and the register behind it.
    Latency: 1 cycle; a row read stays until the next enabled read.
    Throughput: one write and one read per port and cycle.
    Reset: contents are kept; they are zero after configuration. Elaborated for a platform (any
    object that is not None), a large memory is an instance of ``rocinante_ram``.
    """

    def __init__(
        self,
        *,
        shape,
        depth: int,
        reads: int = 1,
        forward: bool = True,
        earlier: Collection[int] = (),
        block: bool = False,
    ):
        if depth < 1:
            raise ValueError(f"Depth must be at least 1 row, not {depth!r}")
        if reads < 1:
            raise ValueError(f"Reads must be at least 1 port, not {reads!r}")
        if not set(earlier) <= set(range(reads)):
            raise ValueError(f"Earlier must name ports below {reads}, not {earlier!r}")
        self._shape, self._depth, self._reads = shape, depth, reads
        self._forward, self._earlier = forward, frozenset(earlier)
        self._style = "block" if block else "auto"
        self._index = max(1, ceil_log2(depth))
        members = {"write": In(TableWrite(self._index, shape))}
        members |= {f"read{i}": In(TableRead(self._index, shape)) for i in range(reads)}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        width = Shape.cast(self._shape).width
        below = 1 << (self._depth.bit_length() - 1)
        few_above = 0 < self._depth - below <= below // 8
        parts = self._split(m, below) if self._depth > SPLIT_ROWS and few_above else None
        for i in range(self._reads):
            port = getattr(self, f"read{i}")
            if parts:
                row = self._of_parts(m, i, port, *parts)
            else:
                row = self._copy(m, i, port, width, instance=platform is not None)
            if i in self._earlier or not self._forward:
                m.d.comb += port.row.eq(row)
                continue
            forwarded = Signal(width, reset_less=True, name=f"forwarded{i}")
            forward = Signal(name=f"forward{i}")
            with m.If(port.enable):
                m.d.sync += [
                    forward.eq(self.write.enable & (self.write.index == port.index)),
                    forwarded.eq(self.write.row),
                ]
            with m.If(forward):
                m.d.comb += port.row.eq(forwarded)
            with m.Else():
                m.d.comb += port.row.eq(row)
        return m

    def _split(self, m: Module, below: int) -> list["Ram"]:
        """Return a RAM of the rows below ``below``, and one of those from there on: block RAM, as
        other rows would need a register as wide behind them. ``sim/bench/bulk`` names them."""
        parts = []
        for above, depth in enumerate((below, self._depth - below)):
            part = Ram(
                shape=self._shape,
                depth=depth,
                reads=self._reads,
                forward=False,
                earlier=self._earlier,
                block=bool(above) or self._style == "block",
            )
            m.submodules[("below", "above")[above]] = part
            m.d.comb += [
                part.write.index.eq(self.write.index),
                part.write.row.eq(self.write.row),
                part.write.enable.eq(self.write.enable & (self.write.index[-1] == above)),
            ]
            parts.append(part)
        return parts

    def _of_parts(self, m: Module, i: int, port, below: "Ram", above: "Ram") -> Value:
        reads = [getattr(part, f"read{i}") for part in (below, above)]
        for read in reads:
            m.d.comb += [read.index.eq(port.index), read.enable.eq(port.enable)]
        from_above = Signal(name=f"from_above{i}")
        with m.If(port.enable):
            m.d.sync += from_above.eq(port.index[-1])
        return Mux(from_above, *(Value.cast(read.row) for read in reversed(reads)))

    def _copy(self, m: Module, i: int, port, width: int, *, instance: bool) -> Signal:
        name = f"copy{i}"
        row = Signal(width, name=f"{name}_row")
        if instance and (self._style == "block" or width * self._depth > INSTANCE_BITS):
            m.submodules[name] = Instance(
                "rocinante_ram",
                p_WIDTH=width,
                p_DEPTH=self._depth,
                p_INDEX=self._index,
                p_ANY=int(i not in self._earlier),
                p_STYLE=self._style,
                i_clk=ClockSignal(),
                i_write_enable=self.write.enable,
                i_write_index=self.write.index,
                i_write_row=self.write.row,
                i_read_enable=port.enable,
                i_read_index=port.index,
                o_read_row=row,
            )
            return row
        rows = memory.Memory(shape=unsigned(width), depth=self._depth, init=[])
        m.submodules[name] = rows
        write, read = rows.write_port(), rows.read_port(transparent_for=())
        m.d.comb += [
            write.addr.eq(self.write.index),
            write.data.eq(self.write.row),
            write.en.eq(self.write.enable),
            read.addr.eq(port.index),
            read.en.eq(port.enable),
            row.eq(read.data),
        ]
        return row
