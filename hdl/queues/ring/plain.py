"""Chains one after the other: their heads are found, and a Walker does the rest."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_pci import AVAIL_ELEMENT
from hdl.common.address import OFFSET_BITS, add_high, add_low, mask
from hdl.config import NicConfig
from hdl.ports.host import ReadClient

from .read import BlockReader
from .types import RING_OFFSET, FastPathJob, HeadFound

__all__ = ["PlainHeads"]


class PlainHeads(wiring.Component):
    """RingHeads that keeps nothing: each job is a host read, one after the other.

    Parameters: ``kept``: who gives a job keeps its payload as it is until its head is taken, so
    there is no register for it.
    Members: ``i``, ``o``, ``flush``, ``read_client`` as in RingHeads.
    Latency: a host read and 5 cycles. Throughput: one job at a time.
    Errors: ``failed`` in HeadFound: host memory did not answer; the head is not checked here.
    Reset: idle.
    """

    def __init__(self, *, config: NicConfig, kept: bool = False):
        self._width, self._kept = config.width, kept
        super().__init__(
            {
                "i": In(stream.Signature(FastPathJob)),
                "o": Out(stream.Signature(HeadFound)),
                "flush": In(1),
                "read_client": Out(ReadClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = BlockReader(width=self._width, size=8)
        connect(m, reader.read_client, flipped(self.read_client))
        job = self.i.payload if self._kept else Signal(FastPathJob, reset_less=True)
        entry, addr = Signal(OFFSET_BITS, reset_less=True), Signal(64, reset_less=True)
        carry, asks = Signal(), reader.i.payload
        m.d.comb += [
            asks.function.eq(job.request.function),
            asks.addr.eq(addr),
            asks.length.eq(AVAIL_ELEMENT.size),
            self.o.payload.head.eq(reader.o.payload.data),
            self.o.payload.failed.eq(reader.o.payload.error),
        ]
        with m.FSM(name="heads"):
            # IDLE: takes a job; ends with it.
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                if not self._kept:
                    m.d.sync += job.eq(self.i.payload)
                with m.If(self.i.valid):
                    m.next = "PLACE"
            # PLACE: works out where the entry is in the ring; one cycle.
            with m.State("PLACE"):
                place = job.request.position & mask(job.size_log2)
                m.d.sync += entry.eq(RING_OFFSET + AVAIL_ELEMENT.size * place)
                m.next = "LOW"
            # LOW: adds that to the ring's address; one cycle.
            with m.State("LOW"):
                add_low(m, addr, carry, job.driver, entry)
                m.next = "HIGH"
            # HIGH: adds the carry; one cycle.
            with m.State("HIGH"):
                add_high(m, addr, carry)
                m.next = "READ"
            # READ: asks for the entry; ends when that is taken.
            with m.State("READ"):
                m.d.comb += reader.i.valid.eq(1)
                with m.If(reader.i.ready):
                    m.next = "GIVE"
            # GIVE: gives the head when it has come; ends when it is taken.
            with m.State("GIVE"):
                m.d.comb += [self.o.valid.eq(reader.o.valid), reader.o.ready.eq(self.o.ready)]
                with m.If(self.o.valid & self.o.ready):
                    m.next = "IDLE"
        return m
