"""One WQE: from the head of its chain to its decoded form."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import QueueErrorCause

from .decode import Slot, WqeDecode, WqeResult, element_limit
from .element import ElementReader
from .walker import Walker

__all__ = ["WqeLane", "WqeJob", "WqeAnswer", "MAX_CHAIN"]

#: Bytes of the longest chain that is taken for a (bad) WQE; a longer one is a broken ring. It also
#: bounds the descriptors a bad chain can make the lane read.
MAX_CHAIN = 4096


class WqeJob(data.Struct):
    """The chain of one WQE."""

    function: 8
    desc: 64
    size_log2: 4
    head: 16
    receive: 1


class WqeAnswer(data.Struct):
    """``cause`` not NONE: the chain is broken. Otherwise ``result``, which has an error of its own."""

    cause: QueueErrorCause
    result: WqeResult


class WqeLane(wiring.Component):
    """Fetches and decodes one WQE at a time; lanes side by side hide the host's latency.

    Members: ``i`` jobs; ``slot`` the slots of the WQE's line; ``o`` the answer, after the last slot has
    been taken; ``read_client0`` descriptors, ``read_client1`` buffers.
    Latency: a host read for the descriptors and one for the bytes, plus about 20 cycles and one cycle
    per eight bytes. Errors: of Walker, ElementReader (HOST_READ) and WqeDecode.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(WqeJob)),
                "slot": Out(stream.Signature(Slot)),
                "o": Out(stream.Signature(WqeAnswer)),
                "indirect": In(1),
                "read_client0": Out(ReadClient(config.width)),
                "read_client1": Out(ReadClient(config.width)),
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

        busy = Signal()
        job, cause = Signal(WqeJob, reset_less=True), Signal(QueueErrorCause, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~busy & walker.i.ready),
            walker.i.valid.eq(self.i.valid & ~busy),
            walker.i.payload.function.eq(self.i.payload.function),
            walker.i.payload.desc.eq(self.i.payload.desc),
            walker.i.payload.size_log2.eq(self.i.payload.size_log2),
            walker.i.payload.head.eq(self.i.payload.head),
            walker.i.payload.limit.eq(MAX_CHAIN),
            walker.i.payload.readable.eq(1),
            walker.indirect.eq(self.indirect),
            element.function.eq(job.function),
            decode.receive.eq(job.receive),
            decode.length.eq(element.length),
            self.o.valid.eq(decode.o.valid),
            self.o.payload.cause.eq(cause),
            self.o.payload.result.eq(decode.o.payload),
            decode.o.ready.eq(self.o.ready),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [job.eq(self.i.payload), busy.eq(1)]
        with m.If(element.o.valid & element.o.payload.last):
            m.d.sync += cause.eq(element.cause)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += busy.eq(0)
        return m
