"""The reader of rings: from known positions of many queues to the buffers that are there."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.host import ReadClient

from .descriptor import SingleDescriptors
from .heads import RingHeads
from .plain import PlainHeads
from .types import FastPathJob, Table, element

__all__ = ["RingReader"]

#: Jobs inside, at most: a block RAM.
JOBS = 256


class RingReader(wiring.Component):
    """Answers each job {queue, position, known} with the buffer at that position, in order.

    Spec: Virtio 1.2, 2.7.5, 2.7.6, 2.8.
    Parameters: ``lines`` of ring entries at hand, and jobs in flight (``depth``), as in RingHeads;
    ``least``, ``most``, ``writable`` as in SingleDescriptors; ``urgent``: somebody waits for each
    job, so heads of queues in order are guessed, and read data pass FIFOs.
    Members: ``i`` jobs, of positions that are known to be available; ``o`` one Element per job: a
    buffer of one descriptor, or ``odd``, for a Walker; ``flush`` (a cycle, with nothing
    inside) forgets entries read ahead; ``read_client0`` ring entries, ``read_client1`` descriptors.
    A card that reads one WQE at a time keeps no entries and reads no descriptors here: each job is
    a host read for its head, and each Element is odd.
    Latency, throughput: of RingHeads and SingleDescriptors one behind the other, or of PlainHeads.
    Errors: ``failed``: host memory did not answer; all others are odd. Reset: empty; nothing may be
    in flight.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        lines: int,
        depth: int,
        least: int,
        most: int,
        writable: bool = False,
        urgent: bool = True,
    ):
        self._config, self._lines, self._depth, self._urgent = config, lines, depth, urgent
        self._taken = {"least": least, "most": most, "writable": writable}
        read = Out(ReadClient(config.width))
        super().__init__(
            {
                "i": In(stream.Signature(FastPathJob)),
                "o": Out(stream.Signature(element(most))),
                "flush": In(1),
                "read_client0": read,
                "read_client1": read,
            }
        )

    def elaborate(self, platform):
        m = Module()
        if self._config.wqes_ahead > 1:
            self._many(m)
        else:
            self._one(m)
        heads = m.submodules.heads
        connect(m, heads.read_client, flipped(self.read_client0))
        m.d.comb += heads.flush.eq(self.flush)
        return m

    @staticmethod
    def _table(job) -> dict:
        """The fields of a job's ``Table``."""
        return {
            "function": job.request.function,
            "desc": job.desc,
            "size_log2": job.size_log2,
            "rules": job.rules,
        }

    def _many(self, m: Module) -> None:
        """Jobs on their way through the host's latency."""
        config, depth, urgent = self._config, self._depth, self._urgent
        m.submodules.heads = heads = RingHeads(config=config, lines=self._lines, depth=depth)
        m.submodules.descriptors = descriptors = SingleDescriptors(
            config=config, depth=depth, guesses=urgent, bypass=urgent, **self._taken
        )
        # What the heads do not need passes by them; it has room when they have.
        m.submodules.tables = tables = StreamFifo(shape=Table, depth=JOBS)
        connect(m, flipped(self.i), heads.i)
        connect(m, heads.o, descriptors.i)
        connect(m, tables.o, descriptors.table)
        connect(m, descriptors.o, flipped(self.o))
        connect(m, descriptors.read_client, flipped(self.read_client1))
        if urgent:
            connect(m, heads.guess, descriptors.guess)
        m.d.comb += tables.i.valid.eq(self.i.valid & self.i.ready)
        for name, value in self._table(self.i.payload).items():
            m.d.comb += tables.i.payload[name].eq(value)

    def _one(self, m: Module) -> None:
        """One job after the other, its head alone."""
        m.submodules.heads = heads = PlainHeads(config=self._config)
        connect(m, flipped(self.i), heads.i)
        element, found, table = self.o.payload, heads.o.payload, Signal(Table, reset_less=True)
        m.d.comb += [
            self.o.valid.eq(heads.o.valid),
            heads.o.ready.eq(self.o.ready),
            element.head.eq(found.head),
            element.place.eq(found.head),
            element.failed.eq(found.failed),
            element.table.eq(table),
            element.odd.eq(1),
        ]
        # The next job is taken when the head of the one before has gone.
        with m.If(self.i.valid & self.i.ready):
            for name, value in self._table(self.i.payload).items():
                m.d.sync += table[name].eq(value)
