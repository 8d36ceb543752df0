"""One row of any table, on its way between the table and 32-bit words."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .blocks import TABLES, row_bits, row_layout

__all__ = ["LANES", "ROW_WORDS", "RowRegister"]

#: Words of the widest row.
ROW_WORDS = max(-(-row_bits(table) // 32) for table in TABLES)

#: Where in the register the row of each table lies: ``lane`` to choose it, and its first word.
#: Two bits of ``lane`` choose one of four for one LUT a bit: first the shift (0) or a long row,
#: then that or a short row. So words in which no short row lies cost one LUT a bit in all.
LANES: dict[int, dict[str, int]] = {
    1: {"qp_cfg": 0},
    2: {"qp_rx": 0},
    3: {"queue": 0, "mr": 7},
    4: {"qp_tx": 0, "used": 5, "pkey": 6},
    8: {"qp_fetch": 0, "qp_reply": 2, "qp_counters": 4, "group": 5},
    12: {"qp_ack": 0, "cq": 4, "qp_sent": 6, "gid": 8},
}
LANE_BITS = 4


class RowRegister(wiring.Component):
    """``ROW_WORDS`` words: loaded with a table's row at once, or shifted by a word.

    Members: ``<table>_read`` In, the row that a table shows; ``<table>_row`` Out, the row that the
    register holds; ``enable`` In with ``lane``: 0 shifts ``i`` in at the top and ``o``, the lowest
    word, out; another value loads the rows of its tables, each at its words.
    Words outside of the rows loaded are undefined. Latency: 1 cycle.
    """

    def __init__(self):
        members = {"enable": In(1), "lane": In(LANE_BITS), "i": In(32), "o": Out(32)}
        for table in TABLES:
            members[f"{table}_read"] = In(row_layout(table))
            members[f"{table}_row"] = Out(row_layout(table))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        words = [Signal(32, reset_less=True, name=f"word{n}") for n in range(ROW_WORDS)]
        m.d.comb += self.o.eq(words[0])
        loads: list[dict[int, Signal]] = [{} for _ in words]  # of each word: lane -> its bits
        for lane, tables in LANES.items():
            for table, first in tables.items():
                row = Cat(getattr(self, f"{table}_read"))
                for n in range(-(-len(row) // 32)):
                    loads[first + n][lane] = row[32 * n : 32 * n + 32]
                m.d.comb += getattr(self, f"{table}_row").eq(Cat(words)[32 * first :])
        with m.If(self.enable):
            for word, above, lanes in zip(words, [*words[1:], self.i], loads, strict=True):
                m.d.sync += word.eq(self._choice({0: above, **lanes}))
        return m

    def _choice(self, lanes):
        """The word that ``lane`` chooses; bits that no row has there are undefined."""
        nothing = Const(0, 0)

        def four(select, default, step):
            parts = [lanes.get(step * n, nothing) for n in (1, 2, 3)]
            first, *others = [default, *(Cat(part, default[len(part) :]) for part in parts)]
            return Mux(
                select[1], Mux(select[0], others[2], others[1]), Mux(select[0], others[0], first)
            )

        return four(self.lane[2:], four(self.lane[:2], lanes[0], 1), 4)
