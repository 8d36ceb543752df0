"""Fetches the payload of packets and packs it."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.contract import require, taken_at_once
from hdl.common.count import COUNT, increment
from hdl.common.fifo import StreamFifo
from hdl.common.pack import Packer, chunk_beat
from hdl.common.packet import packet_stream
from hdl.common.skid import Register, Skid, Stage
from hdl.config import NicConfig
from hdl.ports.host import ReadClient

from .types import Chunk, PayloadPacket
from .window import ReadWindow

__all__ = ["PayloadFetch"]

#: Packets whose payload is asked for, and host reads in flight.
PACKETS, READS = 64, 128
#: Lanes that hold inline bytes: all of a slot.
INLINE_BITS = 128


class PayloadFetch(wiring.Component):
    """Reads each packet's chunks from the host and joins them into a packet.

    Room for every beat of a read is reserved in the payload buffer before the read is issued; it
    comes free as the beats leave towards egress (ReadWindow).
    Members: ``packet`` stream of PayloadPacket, ``chunks``, ``inline``, ``o`` packet stream;
    ``finished`` with ``finished_epoch``: all host reads of a good packet (not of an inline one)
    have returned; ``read_errors``: reads that failed (``COUNT`` bits, wraps).
    Responses are in address lanes: bytes of the first beat in front of the chunk are skipped.
    Latency: from packet to the read 1 cycle, from chunk 2; from response to output Packer
    and 6.
    Throughput: one beat of response per cycle, so a read is issued as many cycles after another as
    that one has beats. Reads that are issued faster would only wait for each other at the host, and
    everybody else's behind them. A beat of a chunk takes a whole place of the buffer, however few
    bytes it holds.
    Errors: a failed read: ``error`` on the packet's last beat. Reset: empty; no read in flight.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._width = config, config.width
        self._beats = config.gather_bytes // config.bytes_per_beat
        super().__init__(
            {
                "packet": In(stream.Signature(PayloadPacket)),
                "chunks": In(stream.Signature(Chunk)),
                "inline": In(stream.Signature(chunk_beat(config.width))),
                "read_client": Out(ReadClient(config.width)),
                "o": Out(packet_stream(config.width)),
                "finished": Out(1),
                "finished_epoch": Out(1),
                "read_errors": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = self._width
        bits = ceil_log2(width // 8)
        # ``start``: lane of the chunk's first byte; ``stop``: of its last.
        sent = data.StructLayout({"end": 1, "epoch": 1, "start": bits, "stop": bits})
        # One packet: the others wait where they can still be dropped.
        m.submodules.packets = packets = Register(shape=PayloadPacket)
        source = data.StructLayout({"inline": 1, "drop": 1})
        m.submodules.sources = sources = StreamFifo(shape=source, depth=PACKETS)
        m.submodules.reads = reads = StreamFifo(shape=sent, depth=READS)
        m.submodules.buffer = buffer = StreamFifo(shape=chunk_beat(width), depth=self._beats)
        m.submodules.packer = packer = Packer(width=width)
        m.submodules.next = chunks = Stage(shape=Chunk)
        m.submodules.window = window = ReadWindow(config=self._config)
        connect(m, packer.o, flipped(self.o))
        connect(m, flipped(self.chunks), chunks.i)
        waits = self._ask(m, packets, sources, chunks, reads, window)
        self._answers(m, platform, reads, buffer)
        taken_at_once(m, platform, sources.i, "each packet is listed for the join")
        # A register behind the buffer, as a RAM's output is late; and so is the packer's ``ready``.
        m.submodules.fetched = fetched = Stage(shape=chunk_beat(width))
        m.submodules.joined = joined = Skid(shape=chunk_beat(width))
        connect(m, buffer.o, fetched.i)
        connect(m, joined.o, packer.i)
        m.d.comb += window.level.eq(buffer.level)
        m.d.sync += [
            window.freed.eq(buffer.o.valid & buffer.o.ready),
            window.dry.eq(waits & ~buffer.o.valid & ~fetched.o.valid),
        ]
        self._join(m, sources, fetched.o, joined.i)
        return m

    def _ask(self, m: Module, packets, sources, chunks, reads, window) -> Value:
        """The packet at hand: its chunks are read, or thrown away. Returns whether a read is held
        back for want of room."""
        bits = ceil_log2(self._width // 8)
        # With its first cycle it is listed for the join. ``space`` is some cycles behind the list's
        # level, and two packets may have come since.
        packet, listed, space = packets.o.payload, Signal(), Signal()
        m.d.sync += [
            space.eq(sources.level < PACKETS - 2),
            listed.eq(packets.o.valid & ~packets.o.ready),
        ]
        m.d.comb += [
            packets.i.valid.eq(self.packet.valid & space),
            packets.i.payload.eq(self.packet.payload),
            self.packet.ready.eq(packets.i.ready & space),
            sources.i.valid.eq(packets.o.valid & (packet.good | packet.inline) & ~listed),
            sources.i.payload.inline.eq(packet.inline),
            sources.i.payload.drop.eq(~packet.good),
        ]

        # The next chunk and its beats, as they lie: they come before the packet, which is the
        # verdict. ``until``: how far its last byte is from the beginning of its first beat.
        chunk, chunk_valid = Signal(Chunk, reset_less=True), Signal()
        until = Signal(12, reset_less=True)  # a chunk lies within a page
        with m.If(chunks.o.ready):
            m.d.sync += [
                chunk_valid.eq(chunks.o.valid),
                chunk.eq(chunks.o.payload),
                until.eq(chunks.o.p.length + (Cat(chunks.o.p.addr[:bits], 0) - 1)),
            ]

        # Ask for it when its beats have room.
        request = self.read_client.req
        asked, taken = Signal(), Signal()
        present = packets.o.valid & ~packet.inline & chunk_valid
        more = until[bits:]  # beats, less one
        paced = Signal.like(more)  # cycles until the beats of the read before would have come
        m.d.comb += [
            window.beats.eq(more),
            window.asked.eq(asked),
            request.valid.eq(present & packet.good & reads.i.ready & window.fits & (paced == 0)),
            request.payload.function.eq(packet.function),
            request.payload.addr.eq(chunk.addr),
            request.payload.length.eq(chunk.length),
            asked.eq(request.valid & request.ready),
            taken.eq(asked | (present & ~packet.good)),
            chunks.o.ready.eq(~chunk_valid | taken),
            packets.o.ready.eq(packet.inline | (taken & chunk.end)),
            reads.i.valid.eq(asked),
            reads.i.payload.end.eq(chunk.end),
            reads.i.payload.epoch.eq(packet.epoch),
            reads.i.payload.start.eq(chunk.addr),
            reads.i.payload.stop.eq(until),
        ]
        with m.If(asked):
            m.d.sync += paced.eq(more)
        with m.Else():
            m.d.sync += paced.eq(paced - (paced != 0))
        return present & packet.good & ~window.fits

    def _answers(self, m: Module, platform, reads, buffer) -> None:
        """What the host answers goes into the buffer, where there is room for it."""
        lanes = self._width // 8
        bits = ceil_log2(lanes)
        beat, beat_valid = Signal(self.read_client.rsp.payload.shape(), reset_less=True), Signal()
        ends = beat_valid & beat.last
        start = reads.o.payload.start & beat.first.replicate(bits)
        m.d.sync += [
            beat.eq(self.read_client.rsp.payload),
            beat_valid.eq(self.read_client.rsp.valid),
        ]
        m.d.comb += [
            buffer.i.valid.eq(beat_valid),
            buffer.i.payload.data.eq(beat.data),
            buffer.i.payload.start.eq(start),
            buffer.i.payload.count.eq(Mux(beat.last, reads.o.payload.stop, lanes - 1) - start + 1),
            buffer.i.payload.end.eq(beat.last & reads.o.payload.end),
            buffer.i.payload.error.eq(beat.last & beat.error),
            reads.o.ready.eq(ends),
            self.finished.eq(ends & reads.o.payload.end),
            self.finished_epoch.eq(reads.o.payload.epoch),
        ]
        taken_at_once(m, platform, buffer.i, "there is room for each beat that was asked for")
        require(m, platform, reads.o.valid | ~beat_valid, "each beat is of a read that is known")
        with m.If(ends & beat.error):
            increment(m, self.read_errors)

    def _join(self, m: Module, sources, fetched, joined) -> None:
        """Packet by packet, what was ``fetched`` or the inline bytes. These have few lanes: the
        others need no multiplexer. Inline bytes of a packet that was refused are thrown away."""
        few = min(INLINE_BITS, self._width)
        ends = Signal()
        m.d.comb += joined.payload.eq(fetched.payload)
        with m.If(sources.o.payload.drop):
            m.d.comb += [
                self.inline.ready.eq(sources.o.valid),
                ends.eq(self.inline.valid & self.inline.payload.end),
            ]
        with m.Elif(sources.o.payload.inline):
            m.d.comb += [
                joined.payload.data[:few].eq(self.inline.payload.data),
                joined.payload.start.eq(self.inline.payload.start),
                joined.payload.count.eq(self.inline.payload.count),
                joined.payload.end.eq(self.inline.payload.end),
                joined.payload.error.eq(self.inline.payload.error),
                joined.valid.eq(self.inline.valid & sources.o.valid),
                self.inline.ready.eq(joined.ready & sources.o.valid),
            ]
        with m.Else():
            m.d.comb += [
                joined.valid.eq(fetched.valid & sources.o.valid),
                fetched.ready.eq(joined.ready & sources.o.valid),
            ]
        m.d.comb += sources.o.ready.eq(ends | (joined.valid & joined.ready & joined.payload.end))
