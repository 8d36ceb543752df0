"""Receive requests that take several packets (MP WR): where the next packet's data lie."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.limits import MAX_MP_WR_ALIGN
from hdl.abi.pieces import FIELDS, UNIT, UNIT_LOG2
from hdl.common.ram import Ram
from hdl.common.tables import TableRead, TableWrite
from hdl.config import NicConfig
from hdl.ports.boxes import Dropped
from hdl.ports.numbers import QpNumber
from hdl.ports.sources import pieces_of, source_of
from hdl.wire.opcodes import Kind

from .types import ResponderWork

__all__ = ["OpenRequest", "OpenRequests", "Piece", "bytes_at", "load", "place"]


_SIZE = FIELDS["size"]


class OpenRequest(data.Struct):
    """The request of a receive source that has taken packets, and has room for more."""

    open: 1  # there is one
    head: 16  # first descriptor of it
    left: _SIZE  # what no packet has taken yet, in units


class Piece(data.Struct):
    """The responder's registers for a packet that is put into such a request. Lengths and places
    are in units of ``UNIT`` bytes."""

    open: 1  # its source has an open request,
    head: 16
    left: _SIZE  # or else this is all of the next one
    need: 8  # what the packet takes: whole segments, one at least
    at: _SIZE  # where its first byte lies
    rest: _SIZE  # what is left behind it
    closes: 1  # it does not fit: the open request goes back first
    ends: 1  # it takes the last segment, if it does not close
    told: 1  # that the message before it has broken off
    # The last answer of RecvFetch is an open request, whose: it stays valid until the next one.
    kept: 1
    kept_of: QpNumber
    at_hand: 1  # it is that of the packet's source


#: Units of the largest segment.
_LARGEST = MAX_MP_WR_ALIGN // UNIT


def load(m: Module, config: NicConfig, piece: Piece, work: ResponderWork, row: OpenRequest) -> list:
    """Assign what is known of the packet of ``work`` by itself, and the row of its source, which a
    RAM has read: what it needs is the next multiple of the segment, one at least."""
    length, send = work.header.length, work.operation.kind == Kind.SEND
    pieces = pieces_of(config, work.cfg)
    beyond = Signal(range(_LARGEST), name="beyond_units")  # in the last units of a segment: ones
    with m.Switch(pieces.align):
        for log2 in range(_LARGEST.bit_length()):
            with m.Case(log2):
                m.d.comb += beyond.eq((1 << log2) - 1)
    data = send & (length != 0)  # of a WRITE with immediate none lie here
    last = Mux(data, (length - 1)[UNIT_LOG2 : len(length)], 0)
    return [
        piece.open.eq(row.open),
        piece.head.eq(row.head),
        piece.left.eq(Mux(row.open, row.left, pieces.size)),
        piece.need.eq((last | beyond) + 1),
        piece.at_hand.eq(piece.kept & row.open & (piece.kept_of == work.cfg.source.number)),
    ]


def fits(piece: Piece) -> Value:
    """Whether the packet goes into the open request, and leaves something of it."""
    return piece.open & (piece.need < piece.left)


def remember(verdict: data.View, work: ResponderWork, last: Value) -> list:
    """Assign whose request an answer is that has just come; ``last``: it is given back already."""
    return [verdict.piece.kept.eq(~last), verdict.piece.kept_of.eq(work.cfg.source.number)]


def place(config: NicConfig, work: ResponderWork, piece: Piece) -> list:
    """Assign where the packet lies, if it fits."""
    return [
        piece.at.eq(pieces_of(config, work.cfg).size - piece.left),
        piece.rest.eq(piece.left - piece.need),
        piece.closes.eq(piece.open & (piece.need > piece.left)),
        piece.ends.eq(piece.need == piece.left),
    ]


def bytes_at(place: Value) -> Value:
    """A number of units in bytes."""
    return Cat(Const(0, UNIT_LOG2), place)


class OpenRequests(wiring.Component):
    """The open request of each receive source. It is speculative, as what the responder decides,
    and never rolled back: packets of other QPs may lie behind one that is undone.

    Members: ``read``, ``write``: the responder's; ``dropped`` In: a virtqueue of which nothing is
    under way any more: what was open of it is forgotten. ``ready``: all rows are cleared.
    Latency: 1 cycle; a write is seen by a read of the next cycle. Throughput: one each a cycle.
    Errors: none. Reset: rows are cleared, one a cycle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "read": In(TableRead(QpNumber, OpenRequest)),
                "write": In(TableWrite(QpNumber, OpenRequest)),
                "dropped": In(Dropped()),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = self._config.qps
        # No row is used that was read in the cycle in which it was written.
        m.submodules.rows = rows = Ram(shape=OpenRequest, depth=depth, forward=False)
        clear, gone, waits = Signal(range(depth)), Signal(QpNumber, reset_less=True), Signal()
        valid, number = source_of(self._config, self.dropped.queue)
        m.d.comb += [
            rows.read0.index.eq(self.read.index),
            rows.read0.enable.eq(self.read.enable),
            self.read.row.eq(rows.read0.row),
            rows.write.index.eq(Mux(self.ready, gone, clear)),
            rows.write.row.eq(0),
            rows.write.enable.eq(~self.ready | waits),
        ]
        with m.If(self.write.enable):
            m.d.comb += [
                rows.write.index.eq(self.write.index),
                rows.write.row.eq(self.write.row),
                rows.write.enable.eq(1),
            ]
        with m.Else():
            m.d.sync += waits.eq(0)
        with m.If(self.dropped.valid):
            m.d.sync += [gone.eq(number), waits.eq(valid)]
        with m.If(~self.ready):
            m.d.sync += [clear.eq(clear + 1), self.ready.eq(clear == depth - 1)]
        return m
