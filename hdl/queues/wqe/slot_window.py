"""The slots of an element, cut out of the beats that it came in."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.virtio_rdma import SGE

from ..ring.flow import flow_beat

__all__ = ["SlotWindow", "SLOT_BYTES"]

SLOT_BYTES = SGE.size


class SlotWindow(wiring.Component):
    """Shows the next beat of an element behind the end of the one before, and picks a slot.

    The fixed part of an element has a length of its own, so each slot lies at a fixed place of the
    beats, or of two in a row: counted from ``pad`` bytes before the element, slots begin at
    multiples of their size.
    Parameters: ``fixed_bytes``: length of what comes before the slots.
    Members: ``i`` beats; ``advance`` (a cycle): goes on to the next beat, and asks for none once
    the element has ``ended``; ``none``: the element has no beats; ``rewind``: the next slot is
    the element's first; ``align``: the next beat but one is the first that ends a slot (where a
    beat is shorter than a slot); ``close``: the element is done with. ``choose`` (a cycle): the
    slot at hand is ``slot`` in the next cycle, and ``slot_valid`` is high. ``whole``: the slot at
    hand is all there; ``final``: no other slot begins in the beat at hand. ``has_first``,
    ``is_final`` (Python): whether the beat that ends the fixed part begins a slot, and whether
    that is its final one.
    Latency: 1 cycle. Throughput: one slot a cycle where a beat is as long as a slot. Errors: none.
    Reset: no beat is kept.
    """

    def __init__(self, *, width: int, fixed_bytes: int):
        self._lanes = width // 8
        self._pad = -fixed_bytes % SLOT_BYTES
        self._per_beat = max(1, self._lanes // SLOT_BYTES)
        self._first = (fixed_bytes + self._pad) // SLOT_BYTES % self._per_beat
        flags = ("advance", "none", "rewind", "align", "close", "choose")
        super().__init__(
            {name: In(1) for name in flags}
            | {
                "i": In(stream.Signature(flow_beat(width))),
                "slot": Out(8 * SLOT_BYTES),
                "slot_valid": Out(1),
                "whole": Out(1),
                "final": Out(1),
                "ended": Out(1),
            }
        )

    @property
    def has_first(self) -> bool:
        return self._first != 0

    @property
    def is_final(self) -> bool:
        return self._first in (0, self._per_beat - 1)

    def elaborate(self, platform):
        m = Module()
        kept_bytes = self._pad + max(0, SLOT_BYTES - self._lanes)
        kept = Signal(8 * kept_bytes, reset_less=True)
        beat = self.i.payload
        window = Cat(kept, beat.data)
        m.d.comb += self.i.ready.eq(self.advance & ~self.ended)
        with m.If(self.advance):
            m.d.sync += [kept.eq(window[-len(kept) :]), self.ended.eq(self.ended | beat.last)]
        with m.If(self.none):
            m.d.sync += self.ended.eq(1)
        with m.If(self.close):
            m.d.sync += self.ended.eq(0)

        at = Signal(range(self._per_beat), init=self._first)  # the slot at hand
        slots = window[: self._per_beat * 8 * SLOT_BYTES]
        slot = Signal(8 * SLOT_BYTES, reset_less=True)
        m.d.sync += [
            slot.eq(slots.word_select(at, 8 * SLOT_BYTES)),
            self.slot_valid.eq(self.choose),
        ]
        m.d.comb += self.slot.eq(slot)
        m.d.comb += self.final.eq(at == self._per_beat - 1)
        if self._per_beat > 1:
            with m.If(self.choose):
                m.d.sync += at.eq(at + 1)
            with m.If(self.rewind):
                m.d.sync += at.eq(self._first)
        if self._lanes < SLOT_BYTES:
            # Every other beat ends a slot.
            phase = Signal()
            m.d.comb += self.whole.eq(phase)
            with m.If(self.advance):
                m.d.sync += phase.eq(~phase)
            with m.If(self.align):
                m.d.sync += phase.eq(0)
        else:
            m.d.comb += self.whole.eq(1)
        return m
