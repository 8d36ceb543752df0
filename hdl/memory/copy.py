"""MEMCPY: what the gather has read goes to the scatter instead of to egress."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.enums import WcStatus
from hdl.common.contract import require, taken_at_once
from hdl.common.drain import Drain
from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_stream
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.headers import TxHeader
from hdl.ports.jobs import Copied, Effects, LineStore, ScatterChecked, ScatterJob, ScatterKind
from hdl.ports.numbers import QpNumber
from hdl.ports.shared import COPY, copy_piece
from hdl.wire.constants import MAX_MTU

__all__ = ["CopyExit", "LocalCopy"]

#: Packets whose headers have gone and whose payload is still to come.
LEFT = 64
#: Pieces whose payload is to come, and those that are in the scatter.
PIECES = 32
#: Pieces of the largest size for which there is room: while one is written, the next comes.
ROOM = 2


class CopyExit(wiring.Component):
    """Parts what leaves the gather: packets go to egress, pieces of MEMCPYs to ``LocalCopy``.

    Members: ``header``, ``payload`` In: as the gather gives them; ``header_out``, ``payload_out``
    to egress; ``piece``, ``piece_data`` to ``LocalCopy``. Payload goes where its header went.
    Latency: none; payload two cycles behind its header. Throughput: a beat a cycle. Errors: none.
    Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        headers, beats = stream.Signature(TxHeader), packet_stream(config.width)
        super().__init__(
            {
                "header": In(headers),
                "payload": In(beats),
                "header_out": Out(headers),
                "payload_out": Out(beats),
                "piece": Out(headers),
                "piece_data": Out(beats),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.order = order = StreamFifo(shape=1, depth=LEFT)
        header, payload, copies = self.header, self.payload, order.o.payload
        filled, leaves = header.payload.length != 0, Signal()
        free = ~filled | order.i.ready
        m.d.comb += [
            self.header_out.payload.eq(header.payload),
            self.piece.payload.eq(header.payload),
            self.header_out.valid.eq(header.valid & free & ~header.payload.copied),
            self.piece.valid.eq(header.valid & free & header.payload.copied),
            leaves.eq(Mux(header.payload.copied, self.piece.ready, self.header_out.ready)),
            header.ready.eq(leaves & free),
            order.i.valid.eq(header.valid & filled & leaves),
            order.i.payload.eq(header.payload.copied),
            self.payload_out.payload.eq(payload.payload),
            self.piece_data.payload.eq(payload.payload),
            self.payload_out.valid.eq(payload.valid & order.o.valid & ~copies),
            self.piece_data.valid.eq(payload.valid & order.o.valid & copies),
            payload.ready.eq(
                order.o.valid & Mux(copies, self.piece_data.ready, self.payload_out.ready)
            ),
            order.o.ready.eq(payload.valid & payload.ready & payload.payload.last),
        ]
        return m


class Cause(enum.Enum, shape=2):
    """Why a MEMCPY fails."""

    NONE = 0
    PROTECTION = 1  # a key does not allow it
    READ = 2  # the host has not answered for its source


#: The WC status of each.
STATUS = {
    Cause.NONE: WcStatus.SUCCESS,
    Cause.PROTECTION: WcStatus.LOC_PROT_ERR,
    Cause.READ: WcStatus.GENERAL_ERR,
}


class _Sent(data.Struct):
    """A piece in the scatter."""

    qp: QpNumber
    number: 16
    position: 16
    begins: 1
    ends: 1
    epoch: 1
    cause: Cause


class LocalCopy(wiring.Component):
    """Writes the pieces of MEMCPYs, and tells when one has ended.

    Three stages, each in order. A piece waits until all of its payload is here, so that the
    scatter, which writes what peers have sent as well, never waits for a read of the host. It then
    becomes a job of the scatter. When that has been checked it gives its effects, which are none.
    When it is written, what has been found is kept for its QP, and the last piece tells it. One bit
    for each QP sees to it that nothing is written behind a piece that failed in the gather: the
    first one, which has no payload, fails if a byte of either range may not be touched.

    Members: ``piece``, ``data`` from ``CopyExit``; ``job``, ``checked``, ``effects`` of the
    scatter; ``payload`` of its jobs; ``released``: a job of these has been written; ``copied``;
    ``enter``: the gather takes a piece, which has the ``epoch`` of this cycle; ``drain_start``,
    ``drain_done``: see ``Drain``; done when all pieces taken before have been dealt with.
    Latency: 2 cycles from the last beat of a piece to its job, 4 from ``released`` to ``copied``.
    Throughput: a piece in 3 cycles, and a beat a cycle. Errors: LOC_PROT_ERR, from gather or
    scatter; GENERAL_ERR where the host does not answer. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        beats = packet_stream(config.width)
        super().__init__(
            {
                "piece": In(stream.Signature(TxHeader)),
                "data": In(beats),
                "job": Out(stream.Signature(ScatterJob)),
                "checked": In(stream.Signature(ScatterChecked)),
                "effects": Out(stream.Signature(Effects)),
                "payload": Out(beats),
                "released": In(1),
                "copied": Out(stream.Signature(Copied)),
                "enter": In(1),
                "epoch": Out(1),
                "drain_start": In(1),
                "drain_done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.drain = drain = Drain()
        m.submodules.sent = sent = StreamFifo(shape=_Sent, depth=PIECES)
        m.submodules.results = results = StreamFifo(shape=1, depth=PIECES)
        m.submodules.landing = landing = StreamFifo(shape=_Sent, depth=PIECES)
        m.d.comb += [
            drain.start.eq(self.drain_start),
            self.drain_done.eq(drain.done),
            drain.enter.eq(self.enter),
            self.epoch.eq(drain.epoch),
        ]
        self._jobs(m, platform, sent)

        # The answer to each job, and then its effects, with which its payload may be written.
        bad, going, passes = results.o.payload, landing.i.payload, Signal()
        m.d.comb += [
            results.i.valid.eq(self.checked.valid),
            results.i.payload.eq(self.checked.payload.status != 0),
            self.checked.ready.eq(results.i.ready),
            passes.eq(sent.o.valid & results.o.valid & landing.i.ready),
            self.effects.valid.eq(passes),
            self.effects.payload.qp.eq(sent.o.payload.qp),
            landing.i.valid.eq(passes & self.effects.ready),
            sent.o.ready.eq(results.o.valid & landing.i.ready & self.effects.ready),
            results.o.ready.eq(sent.o.valid & landing.i.ready & self.effects.ready),
            going.eq(sent.o.payload),
        ]
        with m.If(bad & (sent.o.payload.cause == Cause.NONE)):
            m.d.comb += going.cause.eq(Cause.PROTECTION)
        self._land(m, platform, landing)
        return m

    def _jobs(self, m: Module, platform, sent: StreamFifo) -> None:
        """A piece becomes a job of the scatter when all of its payload is here."""
        fields = {"copy": COPY, "qp": QpNumber, "length": self.piece.payload.length.shape()}
        m.submodules.pieces = pieces = StreamFifo(shape=data.StructLayout(fields), depth=PIECES)
        beats = ROOM * MAX_MTU // self._config.bytes_per_beat
        m.submodules.buffer = buffer = StreamFifo(
            shape=self.payload.payload.shape(), depth=beats, block=True
        )
        # Those whose payload is here, each whether it could be read.
        m.submodules.whole = whole = StreamFifo(shape=1, depth=LEFT)
        m.submodules.barred = barred = Ram(shape=1, depth=self._config.qps, forward=False)
        incoming, ends = self.data, self.data.payload.last
        # A register, so it counts the beat of this cycle, too: the gather is told late.
        room = Signal()
        m.d.sync += room.eq((buffer.level < beats - 1) & (whole.level < LEFT - 1))
        head, piece = pieces.o.payload, pieces.o.payload.copy
        m.d.comb += [
            pieces.i.valid.eq(self.piece.valid),
            pieces.i.payload.copy.eq(copy_piece(self.piece.payload)),
            pieces.i.payload.qp.eq(self.piece.payload.departure.qp),
            pieces.i.payload.length.eq(self.piece.payload.length),
            self.piece.ready.eq(pieces.i.ready),
            buffer.i.valid.eq(incoming.valid & room),
            buffer.i.payload.eq(incoming.payload),
            whole.i.valid.eq(incoming.valid & ends & room),
            whole.i.payload.eq(incoming.payload.error),
            incoming.ready.eq(room),
        ]
        connect(m, buffer.o, flipped(self.payload))

        filled, unread = head.length != 0, Signal()
        looked, due, stops, goes = Signal(), Signal(), Signal(), Signal()
        job = self.job.payload
        m.d.sync += looked.eq(pieces.o.valid & ~goes)
        m.d.comb += [
            unread.eq(filled & whole.o.payload),
            due.eq(pieces.o.valid & looked & (~filled | whole.o.valid) & sent.i.ready),
            self.job.valid.eq(due),
            goes.eq(due & self.job.ready),
            pieces.o.ready.eq(goes),
            whole.o.ready.eq(goes & filled),
            barred.read0.index.eq(head.qp),
            barred.read0.enable.eq(pieces.o.valid),
            stops.eq(piece.refused | unread | (barred.read0.row & ~piece.begins)),
            barred.write.index.eq(head.qp),
            barred.write.row.eq(stops),
            barred.write.enable.eq(goes),
            job.kind.eq(Mux(stops, ScatterKind.DISCARD, ScatterKind.LINE)),
            job.function.eq(piece.function),
            job.pd.eq(piece.pd),
            job.store.eq(Mux(piece.sink.long, LineStore.LONG_SINK, LineStore.SINK)),
            job.line.eq(piece.sink.number),
            job.num_sge.eq(1),
            job.offset.eq(piece.offset),
            job.length.eq(head.length),
            job.qp.eq(head.qp),
            sent.i.valid.eq(goes),
            sent.i.payload.qp.eq(head.qp),
            *(
                sent.i.payload[name].eq(piece[name])
                for name in ("number", "position", "begins", "ends", "epoch")
            ),
        ]
        with m.If(~filled):
            m.d.comb += job.kind.eq(ScatterKind.NONE)
        with m.If(piece.refused):
            m.d.comb += sent.i.payload.cause.eq(Cause.PROTECTION)
        with m.Elif(unread):
            m.d.comb += sent.i.payload.cause.eq(Cause.READ)
        taken_at_once(m, platform, sent.i, "each piece in the scatter is remembered")
        for kept in (buffer.i, whole.i):
            taken_at_once(m, platform, kept, "what is taken of the gather has room")

    def _land(self, m: Module, platform, landing: StreamFifo) -> None:
        """What has been written is told of when it is the last piece."""
        m.submodules.failed = failed = Ram(shape=Cause, depth=self._config.qps, forward=False)
        drain, landed, done = m.submodules.drain, Signal(range(PIECES + 1)), Signal()
        piece, known = landing.o.payload, Signal(Cause)
        copied = self.copied.payload
        require(m, platform, ~self.released | (landed != PIECES), "each piece lands once")
        m.d.sync += landed.eq(landed + self.released - done)
        m.d.comb += [
            landing.o.ready.eq(done),
            drain.leave0.eq(done),
            drain.epoch0.eq(piece.epoch),
            failed.read0.index.eq(piece.qp),
            failed.write.index.eq(piece.qp),
            failed.write.row.eq(known),
            known.eq(
                Mux(piece.begins | (failed.read0.row == Cause.NONE), piece.cause, failed.read0.row)
            ),
            copied.qp.eq(piece.qp),
            copied.number.eq(piece.number),
            copied.position.eq(piece.position),
        ]
        with m.FSM(name="landing"):
            # IDLE: the next piece is in the scatter; ends when it has been written.
            with m.State("IDLE"):
                m.d.comb += failed.read0.enable.eq(1)
                with m.If(landing.o.valid & (landed != 0)):
                    m.next = "KEEP"
            # KEEP: what it has found is kept for its QP; lasts one cycle.
            with m.State("KEEP"):
                m.d.comb += [failed.write.enable.eq(1), done.eq(~piece.ends)]
                with m.Switch(known):
                    for cause, status in STATUS.items():
                        with m.Case(cause):
                            m.d.sync += copied.status.eq(status)
                m.next = "IDLE"
                with m.If(piece.ends):
                    m.next = "TELL"
            # TELL: the MEMCPY has ended; ends when that is known.
            with m.State("TELL"):
                m.d.comb += [self.copied.valid.eq(1), done.eq(self.copied.ready)]
                with m.If(done):
                    m.next = "IDLE"
