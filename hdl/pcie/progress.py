"""What is left of each read: where its next completion must begin."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .completions import known_rest, place, rest
from .tags import PAGE_BITS, read_piece

__all__ = ["Progress", "misplaced"]


def misplaced(head, _state, at):
    """See ``Misplaced``. A header has seven bits of the address; the byte count tells the rest."""

    def differs(left):
        return (head.lower_addr[: len(left.low)] != left.low) | (head.byte_count != left.bytes)

    # Both are compared, as which of them counts is known last.
    return Mux(at.moved, differs(at.latest), differs(at.first))


class Progress(wiring.Component):
    """Knows what is left of each tag's piece, so that a completion that is lost in the middle is
    found by the next one. AMD's block should find it as well; P-Tile does not.

    Parameters: ``tags``. Members: ``begins`` In: a piece is asked for; ``moved`` In: a completion
    of a tag has come, and this is left behind it; ``tag`` In and ``at`` Out: what is left of that
    tag's piece, in the same cycle.
    Latency: 1 cycle until a change is seen. Throughput: one of each kind a cycle. Errors: none.
    Reset: nothing is known of a tag until its piece is asked for.
    """

    def __init__(self, *, tags: int):
        self._tags = tags
        super().__init__(
            {
                "begins": In(stream.Signature(read_piece(), always_ready=True)),
                "moved": In(stream.Signature(place(), always_ready=True)),
                "tag": In(8),
                "at": Out(known_rest()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # One table that the beginning writes and one that completions do. The second one counts if
        # both have the same turn.
        row = data.StructLayout({"rest": rest(), "turn": 1})
        m.submodules.asked = asked = memory.Memory(shape=row, depth=self._tags, init=[])
        m.submodules.moves = moves = memory.Memory(shape=row, depth=self._tags, init=[])
        begin, begun = asked.write_port(), asked.read_port(domain="comb")
        asks = asked.read_port(domain="comb")
        move, moved = moves.write_port(), moves.read_port(domain="comb")
        newest = moves.read_port(domain="comb")
        piece = self.begins.payload
        m.d.comb += [
            newest.addr.eq(piece.tag),
            begin.en.eq(self.begins.valid),
            begin.addr.eq(piece.tag),
            begin.data.rest.low.eq(piece.addr),
            begin.data.rest.bytes.eq(piece.stop - piece.addr[:PAGE_BITS] + 1),
            begin.data.turn.eq(~newest.data.turn),
            asks.addr.eq(self.moved.p.tag),
            move.en.eq(self.moved.valid),
            move.addr.eq(self.moved.p.tag),
            move.data.rest.eq(self.moved.p.rest),
            move.data.turn.eq(asks.data.turn),
            begun.addr.eq(self.tag),
            moved.addr.eq(self.tag),
            self.at.first.eq(begun.data.rest),
            self.at.latest.eq(moved.data.rest),
            self.at.moved.eq(begun.data.turn == moved.data.turn),
        ]
        return m
