"""Receive buffer: payload is speculative until its packet has turned out to be good."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_beat, packet_stream
from hdl.common.ram import Ram
from hdl.common.skid import Register, Skid, Stage
from hdl.ports.latency import ReceiveSteps

from .rows import KEPT

__all__ = ["ReceiveBuffer"]


class _Payload(data.Struct):
    """The payload of a packet that has some."""

    tail: 13  # number of its last byte
    multicast: 1


class ReceiveBuffer(wiring.Component):
    """Ring of beats with a committed and a speculative end.

    Members: ``write``, ``data``: a payload beat; ``finish``: the packet ends (its last beat comes
    at the latest in the same cycle). With ``keep`` it is committed and becomes visible with
    ``row``, otherwise it is rolled back; ``full`` (in the cycle of ``finish``): it cannot be kept
    and is rolled back; ``room``: at least ``reserve`` more beats and packets fit. ``header``,
    ``payload`` Out: what was committed. ``again`` In, of a buffer with ``multicast``: for the
    payload of a row that is ``multicast``, 1: it is delivered, once more each time; 0: it is
    released. ``steps`` Out, of a buffer that is ``watched``: what happens to packets.
    Latency: 5 cycles to ``payload``, 3 to ``header``, or 2 with ``multicast``. Throughput: one beat
    per cycle each way, one packet per cycle. Errors: none of its own. Reset: empty.
    """

    def __init__(
        self,
        *,
        width: int,
        depth: int,
        packets: int,
        reserve: int,
        multicast: bool = False,
        watched: bool = False,
    ):
        if depth < 2 * reserve or depth & (depth - 1):
            raise ValueError(
                f"Depth must be a power of two of at least {2 * reserve} beats, not {depth!r}"
            )
        if packets < 2 * reserve or packets & (packets - 1):
            raise ValueError(
                f"Packets must be a power of two, at least {2 * reserve}, not {packets!r}"
            )
        self._width, self._depth, self._packets = width, depth, packets
        self._reserve, self._multicast, self._watched = reserve, multicast, watched
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
                "again": In(stream.Signature(1)),
            }
            | ({"steps": Out(ReceiveSteps)} if watched else {})
        )

    def elaborate(self, platform):
        m = Module()
        index = ceil_log2(self._depth)
        # Only beats of complete packets are read.
        m.submodules.ram = ram = Ram(shape=self._width, depth=self._depth, forward=False)
        m.submodules.headers = headers = StreamFifo(shape=KEPT, depth=self._packets)
        m.submodules.lengths = lengths = StreamFifo(shape=_Payload, depth=self._packets)
        # The output of a block RAM settles late, and so does ``ready`` of receive for a header. The
        # rows of multicast packets pass such a register in Replicator.
        header = headers.o
        if not self._multicast:
            m.submodules.header_out = header_out = Skid(shape=KEPT)
            wiring.connect(m, headers.o, header_out.i)
            header = header_out.o
        m.submodules.length_out = length_out = Stage(shape=_Payload)
        wiring.connect(m, header, wiring.flipped(self.header))
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
            lengths.i.p.tail.eq(self.row.length - 1),
            lengths.i.p.multicast.eq(self.row.multicast if self._multicast else 0),
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

        if self._watched:
            m.d.comb += self.steps.kept.eq(lengths.i.valid)
        self._read(m, ram, length_out.o, start)
        return m

    def _read(self, m: Module, ram, packet, start: Signal) -> None:
        """The RAM's output and the facts beside it move into a last register."""
        m.submodules.payload_out = payload_out = Stage(shape=packet_beat(self._width))
        lane_bits = ceil_log2(self._width // 8)
        number = Signal(13 - lane_bits)
        ask, asked, last = Signal(), Signal(), Signal()
        tail = packet.p.tail
        beat = Signal(packet_beat(self._width), reset_less=True)
        at, may, frees = self._repeat(m, packet, start, ask, last)
        m.d.comb += [
            ask.eq(packet.valid & may & (~asked | payload_out.i.ready)),
            last.eq(number == tail[lane_bits:]),
            packet.ready.eq(frees),
            ram.read0.index.eq(at),
            ram.read0.enable.eq(ask),
            payload_out.i.valid.eq(asked),
            payload_out.i.p.data.eq(ram.read0.row),
            payload_out.i.p.keep.eq(beat.keep),
            payload_out.i.p.first.eq(beat.first),
            payload_out.i.p.last.eq(beat.last),
        ]
        wiring.connect(m, payload_out.o, wiring.flipped(self.payload))
        if self._watched:
            m.d.comb += [
                self.steps.passed.eq(ask & last),
                self.steps.freed.eq(packet.valid & packet.ready),
            ]
        m.d.sync += asked.eq(ask | (asked & ~payload_out.i.ready))
        with m.If(ask):
            m.d.sync += [
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

    def _repeat(self, m: Module, packet, start: Signal, ask: Value, last: Value):
        """Where the next beat is, whether it may be read, and whether the packet is done with.

        ``start`` is the oldest beat that may not be overwritten: that of a packet to a group stays
        until the packet is released.
        """
        if not self._multicast:
            with m.If(ask):
                m.d.sync += start.eq(start + 1)
            return start, Const(1), ask & last
        m.submodules.again = word = Register(shape=1)
        wiring.connect(m, wiring.flipped(self.again), word.i)
        lane_bits = ceil_log2(self._width // 8)
        group, at = packet.p.multicast, Signal.like(start)
        frees, told = Signal(), Signal()
        m.d.comb += [
            told.eq(packet.valid & group & word.o.valid),
            frees.eq(Mux(group, told & ~word.o.payload, ask & last)),
            word.o.ready.eq(told & (~word.o.payload | (ask & last))),
        ]
        with m.If(ask):
            m.d.sync += at.eq(at + 1)
            with m.If(~group):
                m.d.sync += start.eq(start + 1)
            with m.Elif(last):
                m.d.sync += at.eq(start)
        with m.If(told & ~word.o.payload):
            behind = start + packet.p.tail[lane_bits:] + 1
            m.d.sync += [start.eq(behind), at.eq(behind)]
        return at, ~group | (word.o.valid & word.o.payload), frees
