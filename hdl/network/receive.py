"""The receive side of the network function."""

from amaranth.hdl import Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_pci import NetFeature
from hdl.common.count import COUNT, increment
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import PlacedWriteClient, ReadClient, WriteClient
from hdl.ports.jobs import Interrupt
from hdl.ports.network import NETWORK_FEATURES, NetworkSettings
from hdl.ports.rows import QueueRow
from hdl.ports.trace import FrameTap, Verdict

from .buffers import ReceiveBuffers
from .chains import ChainSource
from .deliver import Deliver
from .front import ReceiveFront
from .store import FrameStore
from .types import LENGTH_BITS, PAIR_BITS, Broken, Found
from .used import UsedElements

__all__ = ["Receive"]

#: Bytes of frames that wait for the host, and frames.
STORE, FRAMES = 65536, 256


class Receive(wiring.Component):
    """From the tap behind the border to the driver's receive queues.

    Members: ``received``, ``verdict``, ``core_reset``, ``restart``, ``features``, ``settings``,
    ``hold``: see NetworkPort. ``doorbell``, ``doorbell_pair``, ``start``, ``forget``,
    ``forget_pair``, ``error``: see ChainSource. ``quiet``: no frame is taken from the store and no
    chain is looked up; ``idle``: then nothing is under way. ``frames``, ``drops_buffer``,
    ``drops_queue``, ``filtered`` count; ``delivered``, ``length``: a frame has been.
    Errors: frames without room here or without a buffer are dropped. Nothing is held back.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        width = config.width
        super().__init__(
            {
                "received": In(FrameTap(width)),
                "verdict": In(Verdict),
                "core_reset": In(1),
                "restart": In(1),
                "features": In(NETWORK_FEATURES),
                "settings": In(NetworkSettings),
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
                "frames_write": Out(PlacedWriteClient(width)),
                "delivered": Out(1),
                "length": Out(LENGTH_BITS),
                "drops_buffer": Out(COUNT),
                "drops_queue": Out(COUNT),
                "filtered": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, width = self._config, self._config.width

        def restarted(name: str, part):
            m.submodules[name] = ResetInserter(self.restart)(part)
            return part

        # The front keeps step with the ingress, and the counts are the card's.
        front = ReceiveFront(width=width, steers=config.network > 1)
        m.submodules.front = ResetInserter(self.core_reset)(front)
        store = restarted(
            "store",
            FrameStore(
                width=width,
                depth=STORE // config.bytes_per_beat,
                frames=FRAMES,
                side=Found,
                lossy=True,
            ),
        )
        source = restarted("source", ChainSource(config=config, writable=True))
        buffers = restarted("buffers", ReceiveBuffers(config=config))
        deliver = restarted("deliver", Deliver(width=width))
        used = restarted("used", UsedElements(config=config, writable=True))
        connect(m, flipped(self.received), front.received)
        for one, other in (
            (front.o, store.i),
            (store.frame, buffers.frame),
            (store.o, deliver.frame),
            (source.o, buffers.i),
            (buffers.assigned, deliver.assigned),
            (buffers.piece, deliver.piece),
            (deliver.returned, used.i),
            (used.read_client, source.other),
            (source.read_client, flipped(self.reads)),
            (source.events, flipped(self.events)),
            (source.rows, flipped(self.rows)),
            (source.error, flipped(self.error)),
            (used.write_client, flipped(self.used)),
            (used.rows, flipped(self.rows_used)),
            (used.interrupt, flipped(self.interrupt)),
            (deliver.write_client, flipped(self.frames_write)),
        ):
            connect(m, one, other)
        m.d.comb += [
            front.verdict.eq(self.verdict),
            front.settings.eq(self.settings),
            store.keep.eq(front.keep),
            # What the firmware has set may name a pair that there is not.
            store.facts.pair.eq(front.pair & (config.network - 1)),
            store.facts.right.eq(front.right & self.features[NetFeature.GUEST_CSUM]),
            source.doorbell.eq(self.doorbell),
            source.doorbell_pair.eq(self.doorbell_pair),
            source.start.eq(self.start),
            source.may.eq(buffers.may),
            source.hold.eq(self.quiet),
            buffers.asked.eq(source.asked),
            buffers.gone.eq(source.gone),
            buffers.gone_pair.eq(source.gone_pair),
            buffers.features.eq(self.features),
            buffers.hold.eq(self.quiet),
            self.delivered.eq(deliver.delivered),
            self.length.eq(deliver.length),
            self.drops_queue.eq(buffers.drops),
            self.filtered.eq(front.filtered),
        ]
        for part in (source, buffers, used):
            m.d.comb += [part.forget.eq(self.forget), part.forget_pair.eq(self.forget_pair)]
        with m.If(store.lost & ~self.restart):
            increment(m, self.drops_buffer)
        quiet = source.idle & buffers.idle & deliver.idle & used.idle
        calm = Signal(2)  # what leaves one part is seen by the next one
        m.d.sync += calm.eq(Mux(self.quiet & quiet, calm << 1 | 1, 0))
        m.d.comb += self.idle.eq(calm.all())
        return m
