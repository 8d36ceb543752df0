"""Walks over the tags of a translation cache: to clear them, or to drop one region's."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.tables import TableRead

__all__ = ["Sweep", "tag_row"]


def tag_row(mr_bits: int, high_bits: int) -> data.StructLayout:
    """A cache line's tag: region and the upper bits of the line's number within it."""
    return data.StructLayout({"valid": 1, "mr": mr_bits, "high": high_bits})


class Sweep(wiring.Component):
    """Drops all lines after reset, or the lines of ``mr`` on ``start``; one line a cycle.

    Members: ``start`` pulse (ignored while busy), ``mr`` taken with it, ``done`` high when idle;
    ``tags`` a read port of its own; ``drop`` with ``index``: write that tag invalid in this cycle;
    ``clearing``: the sweep after reset runs, nothing in the tags counts yet.
    Reset: clears again.
    """

    def __init__(self, *, lines: int, row: data.StructLayout):
        if lines < 2 or lines & (lines - 1):
            raise ValueError(f"Lines must be a power of two, at least 2, not {lines!r}")
        self._bits = ceil_log2(lines)
        self._mr = Shape.cast(row["mr"].shape).width
        super().__init__(
            {
                "start": In(1),
                "mr": In(16),
                "done": Out(1),
                "clearing": Out(1, init=1),
                "tags": Out(TableRead(self._bits, row)),
                "drop": Out(1),
                "index": Out(self._bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        place, seen, wanted = Signal(self._bits), Signal(self._bits), Signal(16)
        reading, looking, looked, found = Signal(), Signal(), Signal(), Signal()
        at, matches = Signal(self._bits), Signal(3)
        first, dropped = Signal(init=1), Signal(self._bits, reset_less=True)  # first: after reset
        row, half = self.tags.row, self._mr // 2
        m.d.comb += [
            self.tags.index.eq(place),
            self.tags.enable.eq(reading),
            self.done.eq(~(self.clearing | reading | looking | looked | found)),
            self.drop.eq(found),
            self.index.eq(dropped),
        ]
        # Registered: a drop holds up lookups, and the tags come late. A tag that was written in the
        # meantime goes with it, which costs a miss.
        m.d.sync += [
            looking.eq(reading),
            seen.eq(place),
            looked.eq(looking),
            at.eq(seen),
            matches.eq(
                Cat(
                    row.valid,
                    row.mr[:half] == wanted[:half],
                    row.mr[half:] == wanted[half : self._mr],
                )
            ),
            found.eq(first | (looked & matches.all())),
            dropped.eq(Mux(first, place, at)),
            self.clearing.eq(first),
        ]
        with m.If(first | reading):
            m.d.sync += place.eq(place + 1)
            with m.If(place.all()):
                m.d.sync += [first.eq(0), reading.eq(0)]
        with m.Elif(self.start & self.done):
            m.d.sync += [reading.eq(1), wanted.eq(self.mr)]
        return m
