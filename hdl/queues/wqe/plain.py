"""WQEs one after the other: their heads are found, and the slow path does the rest."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import WQE_LINE_BITS

from ..ring.plain import PlainHeads
from ..ring.types import FastPathJob
from .decode import Slot
from .types import Verdict, WqeJob

__all__ = ["PlainPath", "path_members"]


def path_members(config: NicConfig, *, receive: bool) -> dict:
    """The members of FastPath, and of what stands in its place."""
    read = Out(ReadClient(config.width))
    members = {
        "i": In(stream.Signature(FastPathJob)),
        "job": Out(WqeJob),
        "slot": Out(Slot),
        "slot_line": Out(WQE_LINE_BITS),
        "slot_valid": Out(1),
        "o": Out(stream.Signature(Verdict)),
        "flush": In(1),
        "read_client0": read,
        "read_client1": read,
        "read_client2": read,
    }
    return members | ({} if receive else {"line": In(stream.Signature(WQE_LINE_BITS))})


class PlainPath(wiring.Component):
    """FastPath that leaves everything but the head to the slow path.

    Parameters and members as in FastPath, of which ``slot_valid`` is never set and two read clients
    ask nothing. Latency: a host read and 5 cycles. Throughput: one job at a time.
    Errors: a ring that could not be read: ``failed``. Reset: empty; nothing may be in flight.
    """

    def __init__(self, *, config: NicConfig, receive: bool = False):
        self._config, self._receive = config, receive
        super().__init__(path_members(config, receive=receive))

    def elaborate(self, platform):
        m = Module()
        m.submodules.heads = heads = PlainHeads(config=self._config)
        connect(m, flipped(self.i), heads.i)
        connect(m, heads.read_client, flipped(self.read_client0))
        found, verdict, job = heads.o.payload, self.o.payload, Signal(WqeJob, reset_less=True)
        m.d.comb += [
            self.job.eq(job),
            heads.o.ready.eq(self.o.valid & self.o.ready),
            verdict.head.eq(found.head),
            verdict.failed.eq(found.failed),
            verdict.odd.eq(1),
        ]
        # The next one is taken when the head of the one before has gone.
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                job[name].eq(self.i.payload[name])
                for name in ("request", "line", "size_log2", "rules", "desc")
            ]
        if self._receive:
            m.d.comb += [self.o.valid.eq(heads.o.valid), verdict.line.eq(job.line)]
        else:
            m.d.comb += [
                self.o.valid.eq(heads.o.valid & (self.line.valid | found.failed)),
                self.line.ready.eq(self.o.valid & self.o.ready & ~found.failed),
                verdict.line.eq(self.line.payload),
            ]
        return m
