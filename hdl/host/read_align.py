"""Turns a request's address-aligned beats into beats whose byte 0 is in lane 0."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.ports.host import read_beat

__all__ = ["ReadAlign", "slot_beat", "rotate_right"]


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


def rotate_right(m: Module, value, amount, stages: range, name: str):
    """``value`` rotated right by the bytes that bits ``stages`` of ``amount`` stand for."""
    for k in stages:
        shifted = Signal(len(value), name=f"{name}{k}")
        m.d.comb += shifted.eq(Mux(amount[k], value.rotate_right(8 << k), value))
        value = shifted
    return value


class ReadAlign(wiring.Component):
    """Rotates every beat, then joins each with the next of its request.

    Members: ``beat`` with ``valid``: a beat's facts; ``data``: its data; ``o``: the aligned beat,
    for the client whose bit in ``o_valid`` is set; ``busy``: something is inside.
    Latency: 4 cycles; 3 for a request of one beat that finds nobody waiting for a next one.
    Throughput: one beat per cycle in. The last beat of a request makes no beat of its own when all
    its bytes fit into the one before. A beat that is not its request's last waits here for the next
    one. Reset: empty.
    """

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

    def elaborate(self, platform):
        m = Module()
        width, count = self._width, self._width // 8
        lanes = ceil_log2(count)
        facts = slot_beat(width, self._clients)
        split = lanes // 2

        # Rotation in two steps.
        half_valid, half = Signal(), Signal(facts, reset_less=True)
        half_data = Signal(width, reset_less=True)
        m.d.sync += [
            half_valid.eq(self.valid),
            half.eq(self.beat),
            half_data.eq(
                rotate_right(m, self.data, self.beat.offset, range(split, lanes), "coarse")
            ),
        ]
        valid, beat = Signal(), Signal(facts, reset_less=True)
        rotated = Signal(width, reset_less=True)
        spare = Signal(reset_less=True)  # the request's last beat makes no response beat of its own
        joined = Signal(count, reset_less=True)  # lanes that the next beat fills
        m.d.sync += [
            valid.eq(half_valid),
            beat.eq(half),
            rotated.eq(rotate_right(m, half_data, half.offset, range(split), "fine")),
            spare.eq(half.last & ~half.first & (half.offset + half.end >= count)),
            joined.eq(Cat(Const(0, 1), (half.offset >= count - lane for lane in range(1, count)))),
        ]

        # ``held`` goes out when it is its request's last, or joined with the beat that follows it.
        held_valid, held = Signal(), Signal(facts, reset_less=True)
        held_data = Signal(width, reset_less=True)
        held_spare = Signal(reset_less=True)
        held_joined = Signal(count, reset_less=True)
        error = Signal(reset_less=True)  # of the request, up to and with ``held``
        free, ends = Signal(), Signal()
        alone = Signal()  # a request of one beat, and nothing is held: it goes out at once
        m.d.comb += [
            alone.eq(valid & ~held_valid & beat.first & beat.last),
            free.eq(~held_valid | held.last | valid),
            ends.eq(alone | held.last | (valid & spare)),
        ]
        with m.If(free):
            m.d.sync += [
                held_valid.eq(valid & ~alone),
                held.eq(beat),
                held_data.eq(rotated),
                held_spare.eq(spare),
                held_joined.eq(joined),
                error.eq((error & ~beat.first) | beat.error),
            ]
        end = Mux(held.last & ~alone, held.end, beat.end)
        masks = Cat((lane | alone).replicate(8) for lane in held_joined)
        m.d.sync += [
            self.o_valid.eq(0),
            self.o.data.eq((rotated & masks) | (held_data & ~masks)),
            self.o.keep.eq(Cat(Const(1, 1), (~ends | (end >= lane) for lane in range(1, count)))),
            self.o.first.eq(alone | held.first),
            self.o.last.eq(ends),
            self.o.error.eq(Mux(alone, beat.error, ends & (error | (~held.last & beat.error)))),
        ]
        with m.If(alone):
            m.d.sync += self.o_valid.eq(1 << beat.client)
        with m.Elif(held_valid & free & ~held_spare):
            m.d.sync += self.o_valid.eq(1 << held.client)
        m.d.comb += self.busy.eq(half_valid | valid | held_valid | self.o_valid.any())
        return m
