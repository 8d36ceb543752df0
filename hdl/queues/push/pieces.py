"""Beats of the push window, put together to pieces."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.abi.push import PUSH_PIECE, PUSH_SLOT_BYTES
from hdl.config import NicConfig
from hdl.ports.host import push_beat

from .types import Piece

__all__ = ["PushPieces"]

#: Cycles for which the next beat of a piece is waited for.
PATIENCE = 256


class PushPieces(wiring.Component):
    """Gives a piece for each 64 bytes of a slot that are written, whole or not.

    Spec: docs/extensions.md, "WQEs with their doorbell".
    Members: ``i`` beats; ``o`` pieces. A piece is whole when its beats came in ascending order,
    with nothing between and all bytes written; ``data`` of any other is anything.
    Latency: 1 cycle behind the last beat, none where a beat is a piece. Throughput: a beat a cycle.
    Errors: beats that do not go on where the ones before have ended, or do not come in time, give a
    piece that is not whole, for each slot that they are of. Reset: nothing is held.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(push_beat(config.width))),
                "o": Out(stream.Signature(Piece)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beats = PUSH_PIECE.size // self._config.bytes_per_beat
        if beats == 1:
            beat, piece = self.i.payload, self.o.payload
            m.d.comb += [
                self.i.ready.eq(self.o.ready),
                self.o.valid.eq(self.i.valid),
                piece.whole.eq(beat.strb.all()),
                piece.data.eq(beat.data),
                *self._names(piece, beat),
            ]
            return m
        piece, valid = Signal(Piece, reset_less=True), Signal()
        m.d.comb += [self.o.valid.eq(valid), self.o.payload.eq(piece)]
        with m.If(self.o.ready):
            m.d.sync += valid.eq(0)
        self._collect(m, piece, valid, ~valid | self.o.ready, beats)
        return m

    @staticmethod
    def _names(piece, beat) -> list:
        """Which piece of which slot the beat is of."""
        low, high = ceil_log2(PUSH_PIECE.size), ceil_log2(PUSH_SLOT_BYTES)
        return [
            piece.function.eq(beat.function),
            piece.number.eq(beat.addr[low:high]),
            piece.pair.eq(beat.addr[high:]),
        ]

    def _collect(self, m: Module, piece, valid, free, beats: int) -> None:
        """Several beats are a piece."""
        width, beat = self._config.width, self.i.payload
        lanes, low = ceil_log2(self._config.bytes_per_beat), ceil_log2(PUSH_PIECE.size)
        at = Signal(range(beats))  # the beat that is to come next
        place = Signal(range(beats))  # of the beat in its piece
        slot = Signal(len(beat.addr) - low, reset_less=True)
        waited = Signal(range(PATIENCE))
        goes_on, begun = Signal(), Signal()
        m.d.comb += [
            begun.eq(at != 0),
            place.eq(beat.addr[lanes:low]),
            goes_on.eq(
                (place == at)
                & beat.strb.all()
                & (~begun | ((slot == beat.addr[low:]) & (piece.function == beat.function)))
            ),
        ]
        with m.If(~free):
            pass
        with m.Elif(self.i.valid & goes_on):
            m.d.comb += self.i.ready.eq(1)
            m.d.sync += [
                at.eq(at + 1),
                waited.eq(0),
                piece.data.word_select(place, width).eq(beat.data),
                piece.whole.eq(1),
                valid.eq(at == beats - 1),
                slot.eq(beat.addr[low:]),
            ]
            m.d.sync += self._names(piece, beat)
        with m.Elif(begun):
            # What has begun is torn when another beat comes, which is looked at anew then.
            m.d.sync += waited.eq(waited + 1)
            with m.If(self.i.valid | (waited == PATIENCE - 1)):
                m.d.sync += [at.eq(0), waited.eq(0), piece.whole.eq(0), valid.eq(1)]
        with m.Elif(self.i.valid):
            m.d.comb += self.i.ready.eq(1)
            m.d.sync += [piece.whole.eq(0), valid.eq(1)]
            m.d.sync += self._names(piece, beat)
