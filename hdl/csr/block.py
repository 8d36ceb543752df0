"""A register block from its description, and the small bus that reaches it."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, Signature
from amaranth.utils import ceil_log2

from hdl.common.tables import TableProgram

from .describe import BLOCK_BYTES, Access, Block, Register

__all__ = ["INDEX_BITS", "UNMAPPED", "BlockBus", "CsrBlock", "WindowPort"]

#: What an address without a register reads as.
UNMAPPED = 0xFFFF_FFFF
INDEX_BITS = ceil_log2(BLOCK_BYTES // 4)


class BlockBus(Signature):
    """Seen from the fabric. ``enable`` is one cycle; ``read_data`` is valid in the next one, or in
    the first one without ``wait``; the other outputs stay until then.
    ``index`` is that of a word; above it, if the block has several ``pages``, that of the page."""

    def __init__(self, *, pages: int = 1):
        super().__init__(
            {
                "enable": Out(1),
                "index": Out(INDEX_BITS + ceil_log2(pages)),
                "write": Out(1),
                "data": Out(32),
                "wait": In(1),
                "read_data": In(32),
            }
        )


class WindowPort(Signature):
    """Seen from the block: an access to word ``index`` of a window. ``read_data`` is due in the
    cycle after ``enable``, of a window that is ``slow`` as many cycles later."""

    def __init__(self, words: int):
        super().__init__(
            {
                "enable": Out(1),
                "index": Out(max(1, ceil_log2(words))),
                "write": Out(1),
                "data": Out(32),
                "read_data": In(32),
            }
        )


def members(block: Block) -> dict[str, wiring.Member]:
    """The gateware members of a block's fields and windows."""
    result = {}
    for register in block.registers:
        for field in () if register.remote else register.fields:
            name = register.member(field.name)
            if field.access in (Access.RO, Access.W1C):
                result[name] = In(field.width)
            elif field.access is Access.RW:
                result[name] = Out(field.width, init=field.reset)
            elif field.access in (Access.WO, Access.PULSE):
                result[name] = Out(field.width)
        if register.strobe:
            result[f"{register.name}_write"] = Out(1)
    for window in block.windows:
        result[window.name] = Out(WindowPort(window.words))
    if remote(block):
        result["remote"] = Out(TableProgram(INDEX_BITS, 32))
    return result


def remote(block: Block) -> range:
    """The words of the block's remote registers."""
    places = [block.offset(one.name) // 4 for one in block.registers if one.remote]
    return range(places[0], places[-1] + 1) if places else range(0)


class CsrBlock(wiring.Component):
    """The registers of one ``Block``; its fields are members, named by ``Register.member``.

    Remote registers are read through the member ``remote``, by their number among them.
    Latency: a write shows at the members one cycle after ``bus.enable``; a read is answered one
    cycle after it, of a remote register when its owner answers. Throughput: one access per cycle.
    Errors: an index without a register reads 0xFFFFFFFF and loses writes. Reset: RW fields take
    their reset value.
    """

    def __init__(self, *, block: Block):
        self._block = block
        super().__init__({"bus": In(BlockBus())} | members(block))

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        value = Signal(32)
        m.d.comb += bus.read_data.eq(value)
        with m.If(bus.enable):
            m.d.sync += value.eq(UNMAPPED)
            with m.Switch(bus.index):
                for register in self._block.registers:
                    if register.remote:
                        continue
                    with m.Case(self._block.offset(register.name) // 4):
                        m.d.sync += value.eq(self._read(register))
        for register in self._block.registers:
            if not register.remote:
                self._write(m, register)
        waits = [self._remote(m, value)] if remote(self._block) else []
        for window in self._block.windows:
            waits += self._window(m, window)
        if waits:
            m.d.comb += bus.wait.eq(reduce(or_, waits))
        return m

    def _read(self, register: Register):
        parts, at = [], 0
        for field in register.fields:
            parts.append(Const(0, field.low - at))
            if field.access is Access.CONST:
                parts.append(Const(field.reset, field.width))
            elif field.access in (Access.WO, Access.PULSE):
                parts.append(Const(0, field.width))
            elif field.access is Access.W1C:
                parts.append(self._sticky(register, field))
            else:
                parts.append(getattr(self, register.member(field.name)))
            at = field.low + field.width
        return Cat(*parts)

    def _sticky(self, register: Register, field) -> Signal:
        name = f"{register.member(field.name)}_held"
        if not hasattr(self, "_held"):
            self._held: dict[str, Signal] = {}
        return self._held.setdefault(name, Signal(field.width, name=name))

    def _write(self, m: Module, register: Register) -> None:
        bus = self.bus
        written = Signal(name=f"{register.name}_written")
        index = self._block.offset(register.name) // 4
        m.d.comb += written.eq(bus.enable & bus.write & (bus.index == index))
        if register.strobe:
            m.d.sync += getattr(self, f"{register.name}_write").eq(written)
        for field in register.fields:
            data = bus.data[field.low : field.low + field.width]
            if field.access in (Access.RW, Access.WO):
                with m.If(written):
                    m.d.sync += getattr(self, register.member(field.name)).eq(data)
            elif field.access is Access.PULSE:
                target = getattr(self, register.member(field.name))
                m.d.sync += target.eq(Mux(written, data, 0))
            elif field.access is Access.W1C:
                held = self._sticky(register, field)
                fresh = getattr(self, register.member(field.name))
                m.d.sync += held.eq((held & ~Mux(written, data, 0)) | fresh)

    def _remote(self, m: Module, value: Signal) -> Value:
        """Ask for a remote register; returns whether the bus waits for it."""
        bus, port, places = self.bus, self.remote, remote(self._block)
        m.d.comb += port.index.eq(bus.index - places.start)
        with m.If(bus.enable & ~bus.write):
            inside = (bus.index >= places.start) & (bus.index < places.stop)
            m.d.sync += port.read.eq(inside)
        with m.Elif(port.done):
            m.d.sync += [port.read.eq(0), value.eq(port.read_row)]
        return port.read

    def _window(self, m: Module, window) -> list[Value]:
        """An access to a window; returns what the bus waits for, if it does."""
        bus, port = self.bus, getattr(self, window.name)
        first = self._block.offset(window.name) // 4
        hit = Signal(name=f"{window.name}_hit")
        was_hit = Signal(name=f"{window.name}_was_hit")
        m.d.comb += [
            hit.eq(bus.enable & (bus.index >= first) & (bus.index < first + window.words)),
            port.enable.eq(hit & (~bus.write | (window.access is not Access.RO))),
            port.index.eq(bus.index),  # windows are aligned to their size
            port.write.eq(bus.write),
            port.data.eq(bus.data),
        ]
        with m.If(bus.enable):
            m.d.sync += was_hit.eq(hit)
        with m.If(was_hit):
            m.d.comb += bus.read_data.eq(port.read_data)
        if not window.slow:
            return []
        slow = Signal(window.slow, name=f"{window.name}_slow")
        m.d.sync += slow.eq(slow << 1 | port.enable)
        return [slow.any()]
