"""Receive buffer: payload is speculative until its packet has turned out to be good."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.common.skid import Skid, Stage
from hdl.ports.packet import packet_beat, packet_stream

from .rows import KEPT

__all__ = ["ReceiveBuffer"]


class ReceiveBuffer(wiring.Component):
    """Ring of beats with a committed and a speculative end.

    Members: ``write``, ``data``: a payload beat; ``finish``: the packet ends (its last beat comes
    at the latest in the same cycle). With ``keep`` it is committed and becomes visible with
    ``row``, otherwise it is rolled back; ``full`` (in the cycle of ``finish``): it cannot be kept
    and is rolled back; ``room``: at least ``reserve`` more beats and packets fit. ``header``,
    ``payload`` Out: what was committed.
    Latency: 5 cycles to ``payload``, 3 to ``header``. Throughput: one beat per cycle each way, one
    packet per cycle. Errors: none of its own. Reset: empty.
    """

    def __init__(self, *, width: int, depth: int, packets: int, reserve: int):
        if depth < 2 * reserve or depth & (depth - 1):
            raise ValueError(
                f"Depth must be a power of two of at least {2 * reserve} beats, not {depth!r}"
            )
        if packets < 2 * reserve or packets & (packets - 1):
            raise ValueError(
                f"Packets must be a power of two, at least {2 * reserve}, not {packets!r}"
            )
        self._width, self._depth, self._packets = width, depth, packets
        self._reserve = reserve
        super().__init__(
            {
                "write": In(1),
                "data": In(width),
                "finish": In(1),
                "keep": In(1),
                "row": In(KEPT),
                "full": Out(1),
                "room": Out(1),
                "header": Out(stream.Signature(KEPT)),
                "payload": Out(packet_stream(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lane_bits = ceil_log2(self._width // 8)
        index = ceil_log2(self._depth)
        # Only beats of complete packets are read.
        m.submodules.ram = ram = Ram(shape=self._width, depth=self._depth, forward=False)
        m.submodules.headers = headers = StreamFifo(shape=KEPT, depth=self._packets)
        m.submodules.lengths = lengths = StreamFifo(shape=13, depth=self._packets)
        # The output of a block RAM settles late, and so does ``ready`` of receive for a header.
        m.submodules.header_out = header_out = Skid(shape=KEPT)
        m.submodules.length_out = length_out = Stage(shape=13)
        wiring.connect(m, headers.o, header_out.i)
        wiring.connect(m, header_out.o, wiring.flipped(self.header))
        wiring.connect(m, lengths.o, length_out.i)

        # Writing. Ends and start count one bit more than the index, so that full is not empty.
        end, committed, start = (Signal(index + 1, name=n) for n in ("end", "committed", "start"))
        used, brimful = Signal(index + 1), Signal()
        overflow, lost, enable, kept = Signal(), Signal(), Signal(), Signal()
        after = Signal.like(end)
        m.d.comb += [
            used.eq(end - start),
            # ``used`` is the depth: without its carry chain.
            brimful.eq((end ^ start) == self._depth),
            enable.eq(self.write & ~brimful),
            lost.eq(overflow | (self.write & brimful)),
            after.eq(Mux(enable, end + 1, end)),
            ram.write.index.eq(end),
            ram.write.row.eq(self.data),
            ram.write.enable.eq(enable),
            self.full.eq(lost | ~headers.i.ready | ~lengths.i.ready),
            kept.eq(self.finish & self.keep & ~self.full),
            headers.i.payload.eq(self.row),
            headers.i.valid.eq(kept),
            lengths.i.payload.eq(self.row.length - 1),
            lengths.i.valid.eq(kept & (self.row.length != 0)),
        ]
        m.d.sync += [
            end.eq(Mux(self.finish & ~kept, committed, after)),
            overflow.eq(lost & ~self.finish),
            self.room.eq(
                (used <= self._depth - self._reserve)
                & (headers.level <= self._packets - self._reserve)
                & (lengths.level <= self._packets - self._reserve)
            ),
        ]
        with m.If(kept):
            m.d.sync += committed.eq(after)

        # Reading: the RAM's output and the facts beside it move into a last register.
        m.submodules.payload_out = payload_out = Stage(shape=packet_beat(self._width))
        number = Signal(13 - lane_bits)
        ask, asked, last = Signal(), Signal(), Signal()
        tail = length_out.o.payload  # number of the payload's last byte
        beat = Signal(packet_beat(self._width), reset_less=True)
        m.d.comb += [
            ask.eq(length_out.o.valid & (~asked | payload_out.i.ready)),
            last.eq(number == tail[lane_bits:]),
            length_out.o.ready.eq(ask & last),
            ram.read0.index.eq(start),
            ram.read0.enable.eq(ask),
            payload_out.i.valid.eq(asked),
            payload_out.i.p.data.eq(ram.read0.row),
            payload_out.i.p.keep.eq(beat.keep),
            payload_out.i.p.first.eq(beat.first),
            payload_out.i.p.last.eq(beat.last),
        ]
        wiring.connect(m, payload_out.o, wiring.flipped(self.payload))
        m.d.sync += asked.eq(ask | (asked & ~payload_out.i.ready))
        with m.If(ask):
            m.d.sync += [
                start.eq(start + 1),
                number.eq(Mux(last, 0, number + 1)),
                beat.first.eq(number == 0),
                beat.last.eq(last),
                beat.keep.eq(
                    Mux(
                        last,
                        Cat(1, (tail[:lane_bits] >= n for n in range(1, self._width // 8))),
                        Const(-1, self._width // 8),
                    )
                ),
            ]
        return m
