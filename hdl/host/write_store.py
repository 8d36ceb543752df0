"""Cuts aligned beats into chunks and offers a chunk to the host once it is complete."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.address import kept
from hdl.common.contract import require
from hdl.common.ram import BLOCK_ROWS, Ram
from hdl.config import NicConfig
from hdl.ports.host import edge_write_beat

from .write_align import aligned_beat

__all__ = ["WriteStore"]


class WriteStore(wiring.Component):
    """Store of two chunks' beats, and of one entry for each complete chunk in it.

    A chunk ends with its burst, or where its addresses reach a multiple of ``write_bytes``. A
    ``drop`` entry takes back the beats of the incomplete chunk.
    Latency: 2 cycles from a chunk's last beat to its first at ``o``. Throughput: one beat per
    cycle. ``busy``: something is stored. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(aligned_beat(config.width))),
                "o": Out(stream.Signature(edge_write_beat(config.width))),
                "busy": Out(1),
                "ends_burst": Out(1),  # the beat at ``o`` is the last of its client's burst
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, count = self._config.width, self._config.bytes_per_beat
        lanes = ceil_log2(count)
        low = ceil_log2(self._config.write_bytes)
        depth = max(4, 2 * self._config.write_bytes // count)
        index = ceil_log2(depth)
        row = data.StructLayout({"data": width, "strb": count})
        m.submodules.rows = rows = Ram(shape=row, depth=max(depth, BLOCK_ROWS), forward=False)
        put, get = rows.write, rows.read0
        # The facts that decide are needed a cycle before the data.
        ending = data.StructLayout({"last": 1, "ends_burst": 1})
        m.submodules.ends = ends_memory = memory.Memory(shape=ending, depth=depth, init=[])
        put_end, get_end = ends_memory.write_port(), ends_memory.read_port(domain="comb")
        chunk = data.StructLayout({"stream_id": 4, "function": 8, "addr": 64, "length": low + 1})
        chunks = memory.Memory(shape=chunk, depth=depth, init=[])
        m.submodules.chunks = chunks
        close, open_ = chunks.write_port(), chunks.read_port(domain="comb")

        # Beats [read, write) are stored; those from ``start`` on belong to no complete chunk yet.
        write, start, read = Signal(index + 1), Signal(index + 1), Signal(index + 1)
        closed, opened = Signal(index + 1), Signal(index + 1)
        beat = self.i.payload
        accept, ends = Signal(), Signal()
        length = Signal(low + 1)  # of the incomplete chunk
        line = Signal(64)  # its address
        total = Signal(low + 1)
        begins = Signal()
        m.d.comb += [
            self.i.ready.eq((write ^ read) != depth),
            accept.eq(self.i.valid & self.i.ready),
            ends.eq(beat.last | (beat.addr[lanes:low] == (1 << (low - lanes)) - 1)),
            begins.eq(write == start),
            total.eq(length + beat.bytes),
            put.index.eq(write[:index]),
            put.row.data.eq(beat.data),
            put.row.strb.eq(beat.strb),
            put.enable.eq(accept & ~beat.drop),
            put_end.addr.eq(write),
            put_end.data.last.eq(ends),
            put_end.data.ends_burst.eq(beat.last),
            put_end.en.eq(put.enable),
            close.addr.eq(closed),
            close.data.stream_id.eq(beat.stream_id),
            close.data.function.eq(beat.function),
            close.data.length.eq(total),
            close.en.eq(accept & ~beat.drop & ends),
        ]
        with m.If(begins):
            m.d.comb += close.data.addr.eq(beat.addr)
        with m.Else():
            m.d.comb += close.data.addr.eq(line)
        with m.If(accept):
            with m.If(beat.drop):
                m.d.sync += [write.eq(start), length.eq(0)]
            with m.Else():
                m.d.sync += [write.eq(write + 1), length.eq(total)]
                with m.If(begins):
                    m.d.sync += line.eq(beat.addr)
                with m.If(ends):
                    m.d.sync += [start.eq(write + 1), closed.eq(closed + 1), length.eq(0)]

        # Emission. All beats of a chunk lie in one block of ``write_bytes``: no carry in addresses.
        first, step = Signal(init=1), Signal()
        within = Signal(low - lanes) if low > lanes else Const(0, 0)
        place = Signal(low - lanes) if low > lanes else Const(0, 0)
        out = self.o.payload
        m.d.comb += [
            get.index.eq(read[:index]),
            get.enable.eq(step),
            out.data.eq(get.row.data),
            out.strb.eq(get.row.strb),
            get_end.addr.eq(read),
            open_.addr.eq(opened),
            step.eq((closed != opened) & (~self.o.valid | self.o.ready)),
        ]
        if low > lanes:
            with m.If(first):
                m.d.comb += place.eq(open_.data.addr[lanes:low])
            with m.Else():
                m.d.comb += place.eq(within)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(step):
            m.d.sync += [
                self.o.valid.eq(1),
                read.eq(read + 1),
                first.eq(get_end.data.last),
                out.stream_id.eq(open_.data.stream_id),
                out.function.eq(open_.data.function),
                out.addr.eq(kept(self._config, Cat(Const(0, lanes), place, open_.data.addr[low:]))),
                out.length.eq(open_.data.length),
                out.first.eq(first),
                out.last.eq(get_end.data.last),
                self.ends_burst.eq(get_end.data.ends_burst),
                opened.eq(opened + get_end.data.last),
            ]
            if low > lanes:
                m.d.sync += within.eq(place + 1)
        m.d.comb += self.busy.eq(write != read)
        stored = (write - read)[: index + 1]
        require(m, platform, stored <= depth, "no beat is stored over one that waits")
        whole = (start - read)[: index + 1]
        require(m, platform, ~step | (whole != 0), "only beats of whole chunks are offered")
        return m
