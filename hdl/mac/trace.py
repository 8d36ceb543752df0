"""The trace: headers of the frames that pass between core and MAC, in a ring for each direction."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, connect
from amaranth.utils import ceil_log2

from hdl.common.count import increment
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.ports.trace import FrameFacts, FrameTap, TracePort, Verdict

from .recorder import FrameRecorder

__all__ = ["PENDING", "Trace"]

#: Frames that wait for the decision of the ingress, which comes within as many cycles.
PENDING = 32


class _Pending(data.Struct):
    """A received frame that has ended. ``era``: changes with each start."""

    facts: FrameFacts
    recorded: 1
    era: 1


class Trace(wiring.Component):
    """Holds the last ``frames`` frames of each direction: first bytes, length, time, fate.

    Parameters: ``width`` in bits; ``frames``, a power of two.
    Members: ``sent``, ``received`` In: beats that pass. ``verdict`` In: what has become of each
    received frame, in order. ``core_reset`` In: the ingress is in reset and forgets its frames.
    ``port`` In: ``start`` empties the rings and records frames that begin from then on, ``stop``
    ends that; so does a frame with one of ``stop_reasons``, which sets ``dropped``. ``snap``: bytes
    of a frame that are stored. Of each ring ``_next`` is the slot of the next frame, and ``_full``
    says that all slots have been used. ``received``, ``frame``: which frame is read: ``facts`` of
    it after 2 cycles, and 2 cycles after ``read`` the ``word`` of its bytes, little-endian.
    Frames that are received keep the order in which they have ended.
    Latency: a sent frame is in the ring 3 cycles after its last beat, a received one 2 cycles after
    its verdict. Throughput: a beat and a frame in each cycle, each way.
    Errors: none. While it runs, a slot may change under its reader, and while a frame has begun,
    so may the one at ``_next``. A reset of the core leaves no record of the frames that it cuts.
    Reset: stopped and empty. A device reset does not reset it.
    """

    def __init__(self, *, width: int, frames: int):
        self._width, self._frames = width, frames
        super().__init__(
            {
                "sent": In(FrameTap(width)),
                "received": In(FrameTap(width)),
                "verdict": In(Verdict),
                "core_reset": In(1),
                "port": In(TracePort(frames)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        port = self.port
        sent = FrameRecorder(width=self._width, frames=self._frames)
        received = FrameRecorder(width=self._width, frames=self._frames)
        pending = StreamFifo(shape=_Pending, depth=PENDING)
        m.submodules.sent = sent
        # As the ingress: what it forgets has no verdict.
        m.submodules.received = ResetInserter(self.core_reset)(received)
        m.submodules.pending = ResetInserter(self.core_reset)(pending)
        connect(m, wiring.flipped(self.sent), sent.i)
        connect(m, wiring.flipped(self.received), received.i)

        now, era = Signal.like(port.now), Signal()
        increment(m, now)
        m.d.comb += port.now.eq(now)
        slots = {
            name: Signal.like(port.frame, name=f"{name}_slot") for name in ("sent", "received")
        }
        for recorder, slot in zip((sent, received), slots.values(), strict=True):
            m.d.comb += [
                recorder.run.eq(port.running),
                recorder.restart.eq(port.start),
                recorder.snap.eq(port.snap),
                recorder.now.eq(now),
                recorder.slot.eq(slot),
            ]
            with m.If(recorder.takes):
                m.d.sync += slot.eq(slot + 1)

        # The verdict, and the frame that it is about.
        fate, verdict, keeps = pending.o.p, Signal(Verdict), Signal()
        m.d.sync += verdict.eq(self.verdict)
        reason = Cat(
            Cat(verdict.reasons[n] for n in range(len(verdict.reasons)) if n + 1 >> bit & 1).any()
            for bit in range(len(fate.facts.reason))
        )
        facts = Signal(FrameFacts)
        m.d.comb += [
            pending.i.valid.eq(received.ended),
            pending.i.p.facts.eq(received.facts),
            pending.i.p.recorded.eq(received.recorded),
            pending.i.p.era.eq(era),
            pending.o.ready.eq(verdict.valid),
            keeps.eq(
                verdict.valid
                & pending.o.valid
                & fate.recorded
                & (fate.era == era)
                & ~self.core_reset
            ),
            facts.eq(fate.facts),
            facts.reason.eq(reason),
        ]
        self._control(m, keeps & (verdict.reasons & port.stop_reasons).any(), era)
        records = {
            "sent": self._ring(m, "sent", sent.facts, sent.ended & sent.recorded),
            "received": self._ring(m, "received", facts, keeps),
        }
        with m.If(self.core_reset):
            m.d.sync += slots["received"].eq(port.received_next)
        with m.If(port.start):
            m.d.sync += [slot.eq(0) for slot in slots.values()]
        m.d.sync += port.facts.eq(Mux(port.received, records["received"], records["sent"]))
        self._read(m, sent, received)
        return m

    def _control(self, m: Module, stops, era: Signal) -> None:
        """What starts and stops it."""
        port = self.port
        with m.If(stops):
            m.d.sync += [port.running.eq(0), port.dropped.eq(1)]
        with m.If(port.stop):
            m.d.sync += port.running.eq(0)
        with m.If(port.start):
            m.d.sync += [port.running.eq(1), port.dropped.eq(0), era.eq(~era)]

    def _ring(self, m: Module, name: str, facts, add):
        """The facts of one direction's frames; returns those of the frame that is read."""
        port = self.port
        place, full = getattr(port, f"{name}_next"), getattr(port, f"{name}_full")
        ring = Ram(shape=FrameFacts, depth=self._frames, forward=False)
        m.submodules[f"{name}_facts"] = ring
        m.d.comb += [
            ring.write.index.eq(place),
            ring.write.row.eq(facts),
            ring.write.enable.eq(add),
            ring.read0.index.eq(port.frame),
            ring.read0.enable.eq(1),
        ]
        with m.If(port.start):
            m.d.sync += [place.eq(0), full.eq(0)]
        with m.Elif(add):
            m.d.sync += [place.eq(place + 1), full.eq(full | place.all())]
        return ring.read0.row

    def _read(self, m: Module, sent: FrameRecorder, received: FrameRecorder) -> None:
        """A word of the bytes of the frame that is read."""
        port, low = self.port, ceil_log2(self._width // 32)
        for recorder in (sent, received):
            m.d.comb += [
                recorder.data.index.eq(Cat(port.word[low:], port.frame)),
                recorder.data.enable.eq(port.read),
            ]
        lane = Signal(low)
        with m.If(port.read):
            m.d.sync += lane.eq(port.word)
        row = Mux(port.received, received.data.row, sent.data.row)
        m.d.sync += port.data.eq(row.word_select(lane, 32))
