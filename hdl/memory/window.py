"""How much payload is asked for ahead: as much as the host's latency takes, and little more."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require
from hdl.common.sums import at_most
from hdl.config import NicConfig

from .types import PAGE_BITS

__all__ = ["ReadWindow"]

#: Bytes that are to wait in the buffer: what comes later than usual is late by less.
WAITING_BYTES = 8192
#: One place in so many that come free is withheld while more wait. What is under way comes with
#: the window of a round trip ago, so a window that closes faster would close too far.
PACE = 16
#: Cycles of an empty buffer after which it opens. Beats come unevenly, so there are always some,
#: most after a pause: all of a window is asked for at once then, and waits for each other in the
#: host. What is empty for that reason needs no wider window, which would only be more to send when
#: a QP goes back.
PATIENCE = 128


class ReadWindow(wiring.Component):
    """Credits for the places of a buffer, one for each beat that is asked for.

    Payload that waits in the buffer goes out even if its QP goes back meanwhile, and it stands in
    front of every other packet. So the window closes slowly while more than ``WAITING_BYTES`` wait:
    places that come free are withheld. It opens by a page when the buffer has been empty for
    ``PATIENCE`` cycles although more would have been asked for: then the host's latency takes a
    wider window.

    Members: ``beats``: those of the next read, less one; ``fits``: there is room for them;
    ``asked``: the read is issued, with ``fits`` alone; ``freed``: a place has come free; ``level``:
    places taken by beats that have come; ``dry``: a read is held back, and the buffer is empty.
    Latency: a place that comes free counts in the next cycle. Errors: none. Reset: the window is
    the whole buffer of ``gather_bytes``.
    """

    def __init__(self, *, config: NicConfig):
        self._places = config.gather_bytes // config.bytes_per_beat
        self._page = (1 << PAGE_BITS) // config.bytes_per_beat
        self._waiting = min(WAITING_BYTES, config.gather_bytes // 2) // config.bytes_per_beat
        super().__init__(
            {
                "beats": In(range(self._page)),
                "fits": Out(1),
                "asked": In(1),
                "freed": In(1),
                "level": In(range(self._places + 1)),
                "dry": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # Each place is taken, free (``room``) or withheld.
        room = Signal(range(self._places + 1), init=self._places)
        withheld = Signal(range(self._places + 1))
        turn, full, withhold, back = Signal(range(PACE)), Signal(), Signal(), Signal()
        empty, page = Signal(range(PATIENCE)), Signal.like(withheld)
        beats = Cat(self.beats, Const(0, len(room) - len(self.beats)))
        m.d.comb += [
            self.fits.eq(~at_most(room, beats, block=4)),
            withhold.eq(self.freed & full & (turn == 0)),
            back.eq(self.freed & ~withhold),
        ]
        m.d.sync += [
            full.eq(self.level > self._waiting),
            turn.eq(turn + self.freed),
            withheld.eq(withheld + withhold),
            page.eq(Mux(withheld < self._page, withheld, self._page)),
        ]
        text = "a read is issued only when there is room for it"
        require(m, platform, self.fits | ~self.asked, text)
        text = "no more places are free or withheld than there are"
        require(m, platform, room + withheld <= self._places, text)
        with m.If(self.dry):
            m.d.sync += empty.eq(empty + 1)
        with m.Elif(self.freed & (turn == 0) & (empty != 0)):
            m.d.sync += empty.eq(empty - 1)
        with m.If(self.asked):
            m.d.sync += room.eq(room - self.beats - ~back)
        with m.Elif(self.dry & (empty == PATIENCE - 1)):
            m.d.sync += [room.eq(room + page + self.freed), withheld.eq(withheld - page)]
        with m.Else():
            m.d.sync += room.eq(room + back)
        return m
