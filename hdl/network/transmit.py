"""The transmit side of the network function."""

from amaranth.hdl import Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_pci import NetFeature
from hdl.common.count import COUNT, increment
from hdl.common.packet import packet_stream
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import Interrupt
from hdl.ports.network import NETWORK_FEATURES
from hdl.ports.rows import QueueRow

from .chains import ChainSource
from .checksum import ChecksumOf, PutChecksum
from .fetch import Fetch
from .shift import Behead
from .store import FrameStore
from .types import LENGTH_BITS, PAIR_BITS, Broken
from .used import UsedElements

__all__ = ["Transmit"]

#: Bytes of frames that wait to be sent, and frames.
STORE, FRAMES = 32768, 256


class Transmit(wiring.Component):
    """From the driver's transmit queues to whole frames.

    Spec: Virtio 1.2, 5.1.6.2. Members: ``features``: see NetworkPort. ``doorbell``,
    ``doorbell_pair``, ``start``, ``forget``, ``forget_pair``, ``error``: see ChainSource.
    ``quiet``: no chain is looked up; ``idle``: then nothing is under way. ``sent`` frames without
    their header, with the checksums that they ask for; ``stored``, ``length``: one is in the store,
    and so its chain goes back; ``errors`` counts chains that are no frame, which go back too.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        width = config.width
        super().__init__(
            {
                "restart": In(1),
                "features": In(NETWORK_FEATURES),
                "doorbell": In(1),
                "doorbell_pair": In(PAIR_BITS),
                "start": In(1),
                "quiet": In(1),
                "idle": Out(1),
                "forget": In(1),
                "forget_pair": In(PAIR_BITS),
                "error": Out(stream.Signature(Broken)),
                "interrupt": Out(stream.Signature(Interrupt)),
                "rows": Out(TableRead(16, QueueRow)),
                "rows_used": Out(TableRead(16, QueueRow)),
                "reads": Out(ReadClient(width)),
                "events": Out(WriteClient(width)),
                "used": Out(WriteClient(width)),
                "frames_read": Out(ReadClient(width)),
                "sent": Out(packet_stream(width)),
                "stored": Out(1),
                "length": Out(LENGTH_BITS),
                "errors": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, width = self._config, self._config.width

        def restarted(name: str, part):
            m.submodules[name] = ResetInserter(self.restart)(part)
            return part

        source = restarted("source", ChainSource(config=config, writable=False))
        fetch = restarted("fetch", Fetch(width=width))
        behead = restarted("behead", Behead(width=width))
        store = restarted(
            "store",
            FrameStore(width=width, depth=STORE // config.bytes_per_beat, frames=FRAMES, side=1),
        )
        sums = restarted("sums", ChecksumOf(width=width, frames=FRAMES))
        put = restarted("put", PutChecksum(width=width))
        used = restarted("used", UsedElements(config=config, writable=False))
        for one, other in (
            (source.o, fetch.i),
            (fetch.o, behead.i),
            (behead.o, store.i),
            (store.o, put.i),
            (sums.o, put.checksum),
            (put.o, flipped(self.sent)),
            (fetch.read_client, flipped(self.frames_read)),
            (used.read_client, source.other),
            (source.read_client, flipped(self.reads)),
            (source.events, flipped(self.events)),
            (source.rows, flipped(self.rows)),
            (source.error, flipped(self.error)),
            (used.write_client, flipped(self.used)),
            (used.rows, flipped(self.rows_used)),
            (used.interrupt, flipped(self.interrupt)),
        ):
            connect(m, one, other)
        # Frames in the store, or dropped, whose chains have not gone back.
        finished, goes = Signal(9), Signal()
        bad = behead.o.payload.error
        m.d.comb += [
            store.keep.eq(~bad),
            # As many frames are in the store as checksums can wait for.
            store.frame.ready.eq(put.checksum.valid & put.checksum.ready),
            sums.valid.eq(behead.o.valid & behead.o.ready),
            sums.beat.eq(behead.o.payload),
            sums.header.eq(behead.header),
            sums.enable.eq(self.features[NetFeature.CSUM]),
            sums.kept.eq(store.kept),
            self.stored.eq(store.kept),
            self.length.eq(store.length),
            used.i.valid.eq(fetch.returned.valid & (finished != 0) & ~fetch.broken),
            used.i.payload.eq(fetch.returned.payload),
            fetch.returned.ready.eq((finished != 0) & (used.i.ready | fetch.broken)),
            goes.eq(fetch.returned.valid & fetch.returned.ready),
            source.doorbell.eq(self.doorbell),
            source.doorbell_pair.eq(self.doorbell_pair),
            source.start.eq(self.start),
            source.may.eq(-1),
            source.hold.eq(self.quiet),
        ]
        with m.If(self.restart):
            m.d.sync += finished.eq(0)
        with m.Elif(store.ended != goes):
            m.d.sync += finished.eq(Mux(goes, finished - 1, finished + 1))
        for part in (source, used):
            m.d.comb += [part.forget.eq(self.forget), part.forget_pair.eq(self.forget_pair)]
        with m.If(store.ended & ~store.kept & ~self.restart):
            increment(m, self.errors)
        quiet = (
            source.idle & fetch.idle & used.idle & (finished == 0) & ~store.o.valid & ~put.o.valid
        )
        calm = Signal(4)  # what leaves one part is seen by the next one
        m.d.sync += calm.eq(Mux(self.quiet & quiet, calm << 1 | 1, 0))
        m.d.comb += self.idle.eq(calm.all())
        return m
