"""Turns a request's address-aligned beats into beats whose byte 0 is in lane 0."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.shift import keep_mask, shifted
from hdl.ports.host import read_beat

__all__ = ["ReadAlign", "ReadPass", "slot_beat"]


def slot_beat(width: int, clients: int) -> data.StructLayout:
    """Facts of one beat out of the reorder RAM."""
    lanes = ceil_log2(width // 8)
    return data.StructLayout(
        {
            "client": range(max(2, clients)),
            "offset": lanes,  # lane of the request's byte 0
            "end": lanes,  # (request length - 1) modulo a beat
            "first": 1,  # of the request
            "last": 1,  # of the request
            "error": 1,
        }
    )


class _Way(wiring.Component):
    """From the beats of slots to the clients."""

    def __init__(self, *, width: int, clients: int):
        self._width, self._clients = width, clients
        super().__init__(
            {
                "valid": In(1),
                "beat": In(slot_beat(width, clients)),
                "data": In(width),
                "o_valid": Out(clients),
                "o": Out(read_beat(width)),
                "busy": Out(1),
            }
        )


class ReadAlign(_Way):
    """Joins each beat with the next one of its request and shifts both to one aligned beat.

    Members: ``beat`` with ``valid``: a beat's facts; ``data``: its data; ``o``: the aligned beat,
    for the client whose bit in ``o_valid`` is set; ``busy``: something is inside.
    Latency: 3 cycles. Throughput: one beat per cycle in. The last beat of a request makes no beat
    of its own when all its bytes fit into the one before. A beat that is not its request's last
    waits here for the next one. Reset: empty.
    """

    def elaborate(self, platform):
        m = Module()
        width, count = self._width, self._width // 8
        fine = 2  # bits of the shift that are left to the last cycle
        facts = slot_beat(width, self._clients)

        # ``held`` goes on when it is its request's last, or with the beat that follows it.
        beat = self.beat
        held_valid, held = Signal(), Signal(facts, reset_less=True)
        held_data = Signal(width, reset_less=True)
        spare, held_spare = Signal(), Signal(reset_less=True)  # makes no response beat of its own
        error = Signal(reset_less=True)  # of the request, up to and with ``held``
        free, ends = Signal(), Signal()
        m.d.comb += [
            spare.eq(beat.last & ~beat.first & (beat.offset + beat.end >= count)),
            free.eq(~held_valid | held.last | self.valid),
            ends.eq(held.last | (self.valid & spare)),
        ]
        with m.If(free):
            m.d.sync += [
                held_valid.eq(self.valid),
                held.eq(beat),
                held_data.eq(self.data),
                held_spare.eq(spare),
                error.eq((error & ~beat.first) | beat.error),
            ]

        # Coarse shift over ``held`` and the beat after it.
        valid, now = Signal(), Signal(facts, reset_less=True)
        window = Cat(held_data, self.data)[:-8]  # the request's byte 0 is in ``held``
        coarse = Signal(width + (8 << fine) - 8, reset_less=True)
        m.d.sync += [
            valid.eq(held_valid & free & ~held_spare),
            coarse.eq(shifted(m, window, held.offset[fine:], 8 << fine, "coarse")),
            now.client.eq(held.client),
            now.offset.eq(held.offset),
            now.end.eq(Mux(held.last, held.end, beat.end)),
            now.first.eq(held.first),
            now.last.eq(ends),
            now.error.eq(ends & (error | (~held.last & beat.error))),
        ]

        # The rest of the shift.
        m.d.sync += [
            self.o_valid.eq(0),
            self.o.data.eq(shifted(m, coarse, now.offset[:fine], 8, "fine")),
            self.o.keep.eq(keep_mask(now.end, count - 1) << 1 | 1),
            self.o.first.eq(now.first),
            self.o.last.eq(now.last),
            self.o.error.eq(now.error),
        ]
        with m.If(~now.last):
            m.d.sync += self.o.keep.eq(Const(-1, count))
        with m.If(valid):
            m.d.sync += self.o_valid.eq(1 << now.client)
        m.d.comb += self.busy.eq(held_valid | valid | self.o_valid.any())
        return m


class ReadPass(_Way):
    """Takes the place of ReadAlign for clients that take their data in address lanes.

    Members: as of ReadAlign. ``o.keep`` is not given: the client knows what it has asked for.
    Latency: none. Throughput: one beat per cycle, for each aligned beat that the request touches.
    Reset: nothing is offered.
    """

    def elaborate(self, platform):
        m = Module()
        beat = self.beat
        before, error = Signal(reset_less=True), Signal()  # a beat of the request was an error
        m.d.comb += error.eq((before & ~beat.first) | beat.error)
        with m.If(self.valid):
            m.d.sync += before.eq(error)
            m.d.comb += self.o_valid.eq(1 << beat.client if self._clients > 1 else 1)
        m.d.comb += [
            self.o.data.eq(self.data),
            self.o.first.eq(beat.first),
            self.o.last.eq(beat.last),
            self.o.error.eq(beat.last & error),
        ]
        return m
