"""The bytes of pushed elements, as they would come from host memory."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.common.tables import TableRead

from .types import ENTRIES, PIECES, ROW_BITS, Entry, Mark

__all__ = ["PushStore"]

WORD = 64
#: Words of a row, each in a memory of its own, and words of the element in a piece.
WORDS = ROW_BITS // WORD
PIECE_WORDS = WORDS - Mark.as_shape().size // WORD


class PushStore(wiring.Component):
    """Takes pieces with their marks, in any order, and shows the element without them.

    Word n of an element lies in memory n modulo 8, so a piece of seven words goes to seven of them,
    in one row or in two that follow each other, and each row holds 64 bytes of the element.
    Members: ``write`` (a cycle): ``data`` of piece ``number`` of ``entry``; ``row``: reads entry
    and row. Latency: 1 cycle, each way. Throughput: one of each a cycle. Errors: none.
    Reset: contents are kept.
    """

    def __init__(self):
        super().__init__(
            {
                "write": In(1),
                "entry": In(Entry),
                "number": In(ceil_log2(PIECES)),
                "data": In(ROW_BITS),
                "row": In(TableRead(ceil_log2(ENTRIES * PIECES), ROW_BITS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        words = self.data[ROW_BITS - PIECE_WORDS * WORD :]
        given = []
        for n in range(WORDS):
            m.submodules[f"words{n}"] = ram = Ram(shape=WORD, depth=ENTRIES * PIECES, forward=False)
            row = Signal(ceil_log2(PIECES), name=f"row{n}")
            with m.Switch(self.number):
                for piece in range(PIECES):
                    # The word of this piece that belongs here, if one does.
                    nth = (n - PIECE_WORDS * piece) % WORDS
                    with m.Case(piece):
                        if nth < PIECE_WORDS:
                            m.d.comb += [
                                ram.write.enable.eq(self.write),
                                ram.write.row.eq(words.word_select(Const(nth, 3), WORD)),
                                row.eq((PIECE_WORDS * piece + nth) // WORDS),
                            ]
            m.d.comb += [
                ram.write.index.eq(Cat(row, self.entry)),
                ram.read0.index.eq(self.row.index),
                ram.read0.enable.eq(self.row.enable),
            ]
            given.append(ram.read0.row)
        m.d.comb += self.row.row.eq(Cat(given))
        return m
