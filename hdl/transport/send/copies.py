"""How a MEMCPY is cut: a check of both its ranges, its pieces, or an early end."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.sums import wide_sum
from hdl.ports.jobs import SendFetched
from hdl.ports.rows import QpTx

__all__ = ["PIECE", "CopyPieces"]


#: Members of ``CopyPieces``.
PIECE = wiring.Signature(
    {
        "copies": In(1),
        "wqe": In(SendFetched),
        "row": In(QpTx),
        "idle": In(1),
        "stopped": In(1),
        "offering": In(1),
        "advance": In(1),
        "payload": In(13),
        "begins": Out(1),
        "check": Out(1),
        "ending": Out(1),
        "bare": Out(1),
        "resume": Out(1),
        "source": Out(32),
    }
)


class CopyPieces(wiring.Component):
    """Says what the next piece of a MEMCPY is, for ``RequestPackets``, which hands it over.

    Its line is read as one message of twice its length: the bytes of the first SGE, the
    destination, and behind them those of the second one, the source.

    Members: ``copies``: the WQE at hand is a MEMCPY; ``wqe``, ``row``: that and its QP's row;
    ``idle``: its first piece is still to come, so that all this is worked out; ``stopped``: its QP
    is in error; ``offering``: the piece is offered, and must stay as it is; ``advance``: it has
    been taken, with the ``payload`` of its step. ``begins``: it is the first one. ``check``: it is
    the check of both ranges, in front of the bytes, and once more where the QP goes back;
    ``ending``: it is the last one before its time, so that the entry ends; ``bare``: it has no
    bytes, as it is one of these; ``resume``: it begins where the one before ended; ``source``: byte
    of that message.
    Latency: ``ending`` a cycle. Errors: none. Reset: none needed.
    """

    def __init__(self):
        super().__init__(PIECE)

    def elaborate(self, platform):
        m = Module()
        checked, kept = Signal(), Signal()
        start = wide_sum(m, self.wqe.wqe.length, self.row.offset)[:32]
        m.d.comb += [
            self.ending.eq(self.copies & Mux(self.offering, kept, self.stopped)),
            self.begins.eq(self.copies & ~checked & (self.row.offset == 0)),
            self.check.eq(self.begins & ~self.ending),
            self.bare.eq(self.check | self.ending),
        ]
        m.d.sync += kept.eq(self.ending)
        with m.If(self.idle):
            m.d.sync += [
                checked.eq(0),
                self.resume.eq(0),
                self.source.eq(start),
            ]
        with m.Elif(self.advance):
            # What a whole piece takes is a multiple of 256; behind the last one nothing follows.
            m.d.sync += [
                checked.eq(1),
                self.resume.eq(~self.check),
                self.source[8:].eq(self.source[8:] + self.payload[8:]),
            ]
        return m
