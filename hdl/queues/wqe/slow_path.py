"""One WQE from the head of its chain, however that is made."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import Destination, FetchStatus, QueueErrorCause, SendWqe
from hdl.ports.rows import RingRules

from ..ring.walker import Walker
from .decode import Slot, WqeDecode
from .element import ElementReader
from .format import element_limit, format_of

__all__ = ["SlowPath", "ChainWqe", "WqeFound", "MAX_CHAIN"]

#: Bytes of the longest chain that is taken for a (bad) WQE; a longer one is a broken ring. It also
#: bounds the descriptors a bad chain can make the slow path read.
MAX_CHAIN = 4096


class ChainWqe(data.Struct):
    """Fetch the WQE of the chain at ``head``."""

    function: 8
    desc: 64
    size_log2: 4
    rules: RingRules
    head: 16
    receive: 1  # a receive WQE


class WqeFound(data.Struct):
    """OK; WQE_ERROR with a WC status in ``error``; or QUEUE_ERROR with ``cause``. ``wqe`` with both
    OK and WQE_ERROR (what could be read of it). A receive WQE is ``num_sge``, ``wr_id`` and
    ``length``."""

    status: FetchStatus
    cause: QueueErrorCause
    error: 8
    wqe: SendWqe
    destination: Destination


class SlowPath(wiring.Component):
    """Fetches and decodes one WQE at a time, whatever its chain is made of.

    Members: ``i`` jobs; ``slot`` the slots of the WQE's line; ``o`` the answer, after the last
    slot has been taken, and with it, in a packed ring, the buffer's ``id``; ``read_client0``
    descriptors, ``read_client1`` buffers.
    Latency: host reads for descriptors and bytes, one after the other, plus about 20 cycles and one
    cycle per eight bytes. Errors: of Walker, ElementReader and WqeDecode.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        read = Out(ReadClient(config.width))
        super().__init__(
            {
                "i": In(stream.Signature(ChainWqe)),
                "slot": Out(stream.Signature(Slot)),
                "o": Out(stream.Signature(WqeFound)),
                "id": Out(16),
                "read_client0": read,
                "read_client1": read,
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.walker = walker = Walker(config=self._config)
        m.submodules.element = element = ElementReader(
            config=self._config, limit=element_limit(self._config)
        )
        m.submodules.decode = decode = WqeDecode(config=self._config)
        connect(m, walker.read_client, flipped(self.read_client0))
        connect(m, element.read_client, flipped(self.read_client1))
        connect(m, walker.o, element.i)
        connect(m, element.o, decode.i)
        connect(m, decode.slot, flipped(self.slot))

        job, answer = self.i.payload, self.o.payload
        busy = Signal()  # with one WQE: function, kind, format and cause are its
        function, receive = Signal(8, reset_less=True), Signal(reset_less=True)
        cause = Signal(QueueErrorCause, reset_less=True)
        wqe_format = Signal.like(decode.wqe_format, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~busy & walker.i.ready),
            walker.i.valid.eq(self.i.valid & ~busy),
            walker.i.payload.function.eq(job.function),
            walker.i.payload.desc.eq(job.desc),
            walker.i.payload.size_log2.eq(job.size_log2),
            walker.i.payload.rules.eq(job.rules),
            walker.i.payload.head.eq(job.head),
            walker.i.payload.limit.eq(MAX_CHAIN),
            walker.i.payload.readable.eq(1),
            element.function.eq(function),
            decode.receive.eq(receive),
            decode.wqe_format.eq(wqe_format),
            decode.length.eq(element.length),
            # The decoder keeps its result until it is taken.
            self.o.valid.eq(decode.o.valid),
            decode.o.ready.eq(self.o.ready),
            answer.cause.eq(cause),
            answer.wqe.eq(decode.o.payload.wqe),
            answer.destination.eq(decode.o.payload.destination),
        ]
        m.d.comb += self.id.eq(walker.id)
        with m.If(cause != QueueErrorCause.NONE):
            m.d.comb += answer.status.eq(FetchStatus.QUEUE_ERROR)
        with m.Else():
            m.d.comb += [
                answer.status.eq(
                    Mux(decode.o.payload.error != 0, FetchStatus.WQE_ERROR, FetchStatus.OK)
                ),
                answer.error.eq(decode.o.payload.error),
            ]
        with m.If(element.o.valid & element.o.payload.last):
            m.d.sync += cause.eq(element.cause)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += busy.eq(0)
        with m.Elif(self.i.valid & self.i.ready):
            m.d.sync += [
                busy.eq(1),
                function.eq(job.function),
                receive.eq(job.receive),
                wqe_format.eq(format_of(self._config, job.rules)),
            ]
        return m
