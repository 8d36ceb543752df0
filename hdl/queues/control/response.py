"""A response of the mailbox, written over the buffers the driver gave for it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.address import add_high, add_low
from hdl.common.count import add_up
from hdl.common.ram import Ram
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import WriteClient

from ..ring.types import Segment

__all__ = ["ResponseWriter"]


class ResponseWriter(wiring.Component):
    """Collects writable segments, then writes ``length`` bytes of the mailbox over them.

    Members: ``clear`` (a cycle): forget the segments; ``i`` segments, ``total`` their bytes,
    less than 2**32, two cycles later;
    ``start`` (a cycle) with ``length``; ``done`` (a cycle) with ``written`` (held until the next
    ``clear``), at most ``total`` and ``limit``; ``writing`` from ``start`` to ``done``;
    ``response`` read port of the mailbox. Only as many segments are stored as ``limit`` bytes can
    need. Throughput: a byte a cycle, and a burst of one beat per beat's worth of bytes.
    """

    def __init__(self, *, config: NicConfig, limit: int, stream_id: int):
        if limit < 4 or limit & (limit - 1):
            raise ValueError(f"Limit must be a power of two, at least 4 bytes, not {limit!r}")
        self._width, self._limit, self._stream_id = config.width, limit, stream_id
        super().__init__(
            {
                "function": In(8),
                "clear": In(1),
                "i": In(stream.Signature(Segment)),
                "total": Out(32),
                "length": In(16),
                "start": In(1),
                "done": Out(1),
                "writing": Out(1),
                "written": Out(32),
                "response": Out(TableRead(((limit // 4) - 1).bit_length(), 32)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, limit = self._width // 8, self._limit
        piece = data.StructLayout({"addr": 64, "length": range(limit + 1)})
        m.submodules.pieces = pieces = Ram(shape=piece, depth=limit)
        stored, place = Signal(range(limit + 1)), Signal(range(limit + 1))
        total, capacity = Signal(32), Signal(range(2 * limit + 1))
        length = self.i.payload.length
        size = Signal(range(limit + 1))
        m.d.comb += [
            self.i.ready.eq(1),
            self.total.eq(total),
            size.eq(Mux(length[ceil_log2(limit) :].any(), limit, length)),
            pieces.write.index.eq(stored),
            pieces.write.row.addr.eq(self.i.payload.addr),
            pieces.write.row.length.eq(size),
            pieces.read0.index.eq(place),
        ]
        counted = Signal()
        add_up(m, total, length, counted)
        with m.If(self.clear):
            m.d.sync += [stored.eq(0), total.eq(0), capacity.eq(0), self.written.eq(0)]
        with m.Elif(self.i.valid & (length != 0)):
            m.d.comb += counted.eq(1)
            with m.If((capacity < limit) & (stored != limit)):
                m.d.comb += pieces.write.enable.eq(1)
                m.d.sync += [stored.eq(stored + 1), capacity.eq(capacity + size)]

        goal = Signal(range(limit + 1))  # bytes to write in all
        at = Signal(range(limit + 1))  # bytes taken from the mailbox
        left = Signal(range(limit + 1))  # bytes of this segment
        addr, carry = Signal(64, reset_less=True), Signal()
        block = Signal(self._width, reset_less=True)
        # Bytes of the beat; their lanes in registers, as much stands between here and the host.
        fill, keep = Signal(range(lanes + 1)), Signal(lanes, reset_less=True)
        byte = Signal(8)
        beat = self.write_client.beat.payload
        m.d.comb += [
            self.response.index.eq(at >> 2),
            byte.eq(self.response.row.word_select(at[:2], 8)),
            beat.stream_id.eq(self._stream_id),
            beat.function.eq(self.function),
            beat.addr.eq(addr),
            beat.data.eq(block),
            beat.keep.eq(keep),
            beat.first.eq(1),
            beat.last.eq(1),
        ]
        with m.FSM(name="state"):
            # IDLE: works out how many bytes there are to write; ends with ``start``.
            with m.State("IDLE"):
                most = Mux(capacity < limit, capacity, limit)
                m.d.sync += [goal.eq(Mux(self.length < most, self.length, most)), at.eq(0)]
                m.d.sync += place.eq(0)
                with m.If(self.start):
                    m.next = "PIECE"
            # PIECE: reads the next of the driver's buffers; one cycle, and the end of all when
            # everything is written.
            with m.State("PIECE"):
                m.d.comb += [self.writing.eq(1), pieces.read0.enable.eq(1)]
                m.d.sync += place.eq(place + 1)
                with m.If(at == goal):
                    m.d.comb += self.done.eq(1)
                    m.d.sync += self.written.eq(goal)
                    m.next = "IDLE"
                with m.Else():
                    m.next = "LOAD"
            # LOAD: takes the buffer and reads the word of its first byte; one cycle.
            with m.State("LOAD"):
                m.d.comb += [self.writing.eq(1), self.response.enable.eq(1)]
                m.d.sync += [
                    addr.eq(pieces.read0.row.addr),
                    left.eq(pieces.read0.row.length),
                    fill.eq(0),
                    keep.eq(0),
                    carry.eq(0),
                ]
                m.next = "BYTE"
            # BYTE: puts a byte into the beat; ends when the beat is full, or buffer, word or
            # response end.
            with m.State("BYTE"):
                m.d.comb += self.writing.eq(1)
                add_high(m, addr, carry)
                with m.Switch(fill):
                    for i in range(lanes):
                        with m.Case(i):
                            m.d.sync += block[8 * i : 8 * i + 8].eq(byte)
                m.d.sync += [fill.eq(fill + 1), at.eq(at + 1), left.eq(left - 1)]
                m.d.sync += keep.eq(Cat(1, keep))
                with m.If((fill == lanes - 1) | (left == 1) | (at + 1 == goal)):
                    m.next = "BEAT"
                with m.Elif(at[:2] == 3):
                    m.next = "WORD"
            # WORD: reads the next word of the response; one cycle.
            with m.State("WORD"):
                m.d.comb += [self.writing.eq(1), self.response.enable.eq(1)]
                m.next = "BYTE"
            # BEAT: writes the beat; ends when it is taken.
            with m.State("BEAT"):
                m.d.comb += [
                    self.writing.eq(1),
                    self.write_client.beat.valid.eq(1),
                    self.response.enable.eq(1),
                ]
                with m.If(self.write_client.beat.ready):
                    m.d.sync += [fill.eq(0), keep.eq(0)]
                    add_low(m, addr, carry, addr, fill)
                    with m.If((left == 0) | (at == goal)):
                        m.next = "PIECE"
                    with m.Else():
                        m.next = "BYTE"
        return m
