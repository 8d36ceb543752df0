"""The memory box: keys, protection, translation, and payload to and from the host."""

from amaranth.hdl import Cat, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.contract import keeps_offers
from hdl.common.count import COUNT
from hdl.common.packet import packet_stream
from hdl.common.quiesce import Quiesce
from hdl.common.skid import Register
from hdl.config import NicConfig
from hdl.csr.command import MemoryCommands
from hdl.ports.boxes import LinesPort, MemoryDrain, MemoryHost, MemoryTables, RxPort, TxPort
from hdl.ports.headers import TxHeader
from hdl.ports.jobs import Activation, Completion, ScatterJob
from hdl.ports.shared import copy_piece

from .atomic import AtomicUnit
from .copy import CopyExit, LocalCopy
from .gather import Gather
from .resolve import layout_members
from .scatter import Scatter
from .sinks import ReadSinks
from .turns import ScatterTurns

__all__ = ["Memory"]

#: Counters (``hdl/ports/counter_names.py``): ``<part>_<member>``.
COUNTS = {
    "gather": ("hits", "misses", "key_errors", "read_errors", "stale"),
    "scatter": ("hits", "misses", "key_errors"),
}


class Memory(wiring.Component):
    """Gather and scatter: every packet's payload is checked, translated and moved here.

    Members: ``tx``, ``rx`` In: jobs of the transport; ``send_lines``, ``recv_lines``: SGEs and
    inline bytes of decoded WQEs; ``header``, ``payload`` Out: packets to egress; ``received`` In:
    payload from ingress; ``completions``, ``reply`` Out: what comes of a packet once its payload is
    written; ``host``: reads and writes; ``tables``: rows of the regions; ``drain`` In: all that was
    admitted before is finished; ``command`` In: the firmware's invalidation of a region, done when
    all DMA under it has landed; ``counts``: by name; ``layout`` In, of cards with indirect keys: an
    entry is set.
    Latency, throughput, errors: see Gather and Scatter. Reset: everything is forgotten.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        counts = {f"{part}_{one}": COUNT for part, members in COUNTS.items() for one in members}
        super().__init__(
            {
                "tx": In(TxPort()),
                "rx": In(RxPort()),
                "send_lines": Out(LinesPort()),
                "recv_lines": Out(LinesPort()),
                "header": Out(stream.Signature(TxHeader)),
                "payload": Out(packet_stream(config.width)),
                "received": In(packet_stream(config.width)),
                "completions": Out(stream.Signature(Completion)),
                "reply": Out(stream.Signature(Activation)),
                "host": Out(MemoryHost(config)),
                "tables": Out(MemoryTables()),
                "drain": In(MemoryDrain()),
                "command": In(MemoryCommands()),
                "counts": Out(data.StructLayout(counts)),
                **layout_members(config),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.gather = gather = Gather(config=self._config)
        m.submodules.scatter = scatter = Scatter(config=self._config)
        m.submodules.invalidate = invalidate = Quiesce(fronts=0, parts=2)
        connect(m, gather.checked, flipped(self.tx.checked))
        connect(m, gather.generation, flipped(self.tx.generation))
        if self._config.memcpy:
            self._copy(m, gather, scatter)
        else:
            connect(m, flipped(self.tx.job), gather.job)
            connect(m, gather.header, flipped(self.header))
            connect(m, gather.payload, flipped(self.payload))
            connect(m, flipped(self.rx.job), scatter.job)
            connect(m, scatter.checked, flipped(self.rx.checked))
            connect(m, flipped(self.rx.effects), scatter.effects)
            connect(m, flipped(self.received), scatter.payload)
            m.d.comb += self.drain.scatter_done.eq(scatter.drain_done)
        connect(m, scatter.completion, flipped(self.completions))
        connect(m, scatter.reply, flipped(self.reply))
        connect(m, scatter.landed, flipped(self.rx.landed))
        connect(m, gather.read_client, flipped(self.host.gather))
        connect(m, gather.table_client, flipped(self.host.gather_pages))
        connect(m, scatter.table_client, flipped(self.host.scatter_pages))
        connect(m, scatter.write_client, flipped(self.host.scatter))
        connect(m, gather.mr, flipped(self.tables.gather))
        connect(m, scatter.mr, flipped(self.tables.scatter))
        if self._config.atomics:
            self._change_words(m, scatter)
        command = self.command.invalidate
        m.d.comb += [
            invalidate.start.eq(command.start),
            command.done.eq(invalidate.done),
            invalidate.part_done.eq(Cat(gather.invalidate_done, scatter.invalidate_done)),
            self.drain.gather_done.eq(gather.drain_done),
        ]
        m.submodules.sinks = sinks = ReadSinks(config=self._config)
        connect(m, sinks.lines, flipped(self.recv_lines))
        m.d.comb += sinks.i.eq(gather.sink)
        for part, lines in ((gather, self.send_lines), (scatter, sinks.reader)):
            m.d.comb += [
                part.drain_start.eq(self.drain.start),
                part.invalidate_start.eq(invalidate.part_start),
                part.invalidate_mr.eq(command.argument),
                lines.slot.eq(part.slot),
                lines.slot_enable.eq(part.slot_enable),
                part.slot_data.eq(lines.slot_data),
            ]
        if self._config.mkeys:
            m.d.comb += [gather.layout.eq(self.layout), scatter.layout.eq(self.layout)]
        for name, part in (("gather", gather), ("scatter", scatter)):
            for member in COUNTS[name]:
                m.d.comb += self.counts[f"{name}_{member}"].eq(getattr(part, member))
        keeps_offers(m, platform, self)
        return m

    def _copy(self, m: Module, gather: Gather, scatter: Scatter) -> None:
        """MEMCPY: its pieces leave the gather and enter the scatter, between packets."""
        m.submodules.exit = leave = CopyExit(config=self._config)
        m.submodules.copies = copies = LocalCopy(config=self._config)
        m.submodules.turns = turns = ScatterTurns(config=self._config)
        offered, job = self.tx.job, gather.job
        m.d.comb += [
            job.valid.eq(offered.valid),
            job.payload.eq(offered.payload),
            offered.ready.eq(job.ready),
            copies.enter.eq(job.valid & job.ready & job.payload.header.copied),
            copies.drain_start.eq(self.drain.start),
            # Those that were in the gather enter the scatter behind the beginning of its drain.
            self.drain.scatter_done.eq(scatter.drain_done & copies.drain_done),
            turns.released.eq(scatter.released),
            copies.released.eq(turns.landed),
        ]
        with m.If(offered.payload.header.copied):
            m.d.comb += copy_piece(job.payload.header).epoch.eq(copies.epoch)
        connect(m, gather.header, leave.header)
        connect(m, gather.payload, leave.payload)
        connect(m, leave.header_out, flipped(self.header))
        connect(m, leave.payload_out, flipped(self.payload))
        connect(m, leave.piece, copies.piece)
        connect(m, leave.piece_data, copies.data)
        connect(m, flipped(self.rx.job), turns.packets.job)
        connect(m, turns.packets.checked, flipped(self.rx.checked))
        connect(m, flipped(self.rx.effects), turns.packets.effects)
        connect(m, flipped(self.received), turns.packets.payload)
        # A piece takes longer than two cycles, and its job is known late.
        m.submodules.pieces = pieces = Register(shape=ScatterJob)
        connect(m, copies.job, pieces.i)
        connect(m, pieces.o, turns.copies.job)
        connect(m, turns.copies.checked, copies.checked)
        connect(m, copies.effects, turns.copies.effects)
        connect(m, copies.payload, turns.copies.payload)
        connect(m, turns.o.job, scatter.job)
        connect(m, scatter.checked, turns.o.checked)
        connect(m, turns.o.effects, scatter.effects)
        connect(m, turns.o.payload, scatter.payload)
        connect(m, copies.copied, flipped(self.tx.copied))

    def _change_words(self, m: Module, scatter: Scatter) -> None:
        """Atomics: their places come from the scatter, their results go to the replier."""
        m.submodules.atomics = atomics = AtomicUnit(config=self._config)
        connect(m, flipped(self.rx.atomic), atomics.request)
        connect(m, scatter.word, atomics.word)
        connect(m, atomics.read_client, flipped(self.host.atomic_reads))
        connect(m, atomics.write_client, flipped(self.host.atomic_writes))
        connect(m, atomics.result, flipped(self.rx.result))
        m.d.comb += [
            atomics.qp.eq(scatter.word_qp),
            scatter.word_busy.eq(atomics.busy),
            scatter.word_done.eq(atomics.done),
            scatter.word_changed.eq(atomics.changed),
        ]
