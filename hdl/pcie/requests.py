"""The card's reads and writes as memory requests, for any PCI Express block."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.shift import lowest_lane
from hdl.common.skid import Skid, Stage
from hdl.ports.host import edge_write_beat

from .descriptors import WIDTH, RequestType, rq_descriptor
from .posted import BITS, READ, following, sequence
from .realign import Realign, realigned_beat
from .tags import PAGE_BITS, read_piece, size_mask

__all__ = ["WORDS", "Requests", "request_beat", "request_side"]

#: Words of a beat.
WORDS = WIDTH // 32
HALF = WORDS // 2
#: Address bits within a beat.
LANES = (WIDTH // 8 - 1).bit_length()


def request_side() -> data.StructLayout:
    """What is known of a request: its descriptor, its number, its byte enables, and ``end``: the
    lane of the last valid word of its last beat."""
    return data.StructLayout(
        {"head": rq_descriptor(), "sequence": sequence(), "first_be": 4, "last_be": 4, "end": 4}
    )


def request_beat() -> data.StructLayout:
    """A beat of a request, see ``realigned_beat``; ``side`` is the same in all of its beats."""
    return realigned_beat(WIDTH, request_side())


class Requests(wiring.Component):
    """Makes a request of each piece of a read, and of what a write burst has in each block of
    Max_Payload_Size bytes.

    Parameters: ``head``: words that are left free before the data of a request. ``straddle``: a
    request may begin in the upper half of the beat in whose lower half the one before ends.
    Members: ``piece``: reads, of ``ReadTags``; ``wr``: the host port; ``o``: requests; a read has
    no data, and one beat; ``max_payload`` In: the size's code; ``may_write`` In: a write's request
    may be taken; ``taken`` Out: one is taken in this cycle, see ``PostedWrites``.
    Order: requests leave in the order in which they are taken, so no read passes a write that was
    taken before it. Relaxed ordering and ID-based ordering are not used. Reads and writes take
    turns, by requests.
    Latency: 7 cycles, 8 for a write whose first beat does not fill one. Throughput: a beat a cycle.
    With straddle, the last words of a write that have a beat of their own share it with the request
    that directly follows.
    Errors: none. Reset: empty; a request that was cut off at the block ends with the block's reset.
    """

    def __init__(self, *, head: int, straddle: bool = False):
        most = HALF if straddle else WORDS
        if head not in range(most):
            raise ValueError(f"A head must have less than {most} words, not {head!r}")
        self._head, self._straddle = head, straddle
        # Address bits below Max_Payload_Size, decoded a cycle before; after reset those of code 0.
        self._mask = Signal(PAGE_BITS, init=(1 << 7) - 1, name="mask")
        super().__init__(
            {
                "piece": In(stream.Signature(read_piece())),
                "wr": In(stream.Signature(edge_write_beat(WIDTH))),
                "max_payload": In(3),
                "may_write": In(1),
                "taken": Out(1),
                "o": Out(stream.Signature(request_beat())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.realign = realign = Realign(width=WIDTH, side=request_side())
        m.d.sync += self._mask.eq(size_mask(self.max_payload))
        beats = self._bounds(m, self._place(m, self._choose(m)))
        self._requests(m, beats, realign.i)
        wiring.connect(m, realign.o, wiring.flipped(self.o))
        return m

    def _choose(self, m: Module):
        """Reads and beats of writes as one stream; a write's request is never interrupted."""
        shape = data.StructLayout(
            {"read": 1, "piece": read_piece(), "beat": edge_write_beat(WIDTH)}
        )
        m.submodules.taken = taken = Skid(shape=shape)
        inside, turn, read = Signal(), Signal(), Signal()
        block_ends = Signal()  # with this beat, so may the request
        writes = Signal()  # a write waits that may be taken
        m.d.comb += [
            writes.eq(self.wr.valid & (inside | self.may_write)),
            read.eq(self.piece.valid & ~inside & (turn | ~writes)),
            taken.i.payload.read.eq(read),
            taken.i.payload.piece.eq(self.piece.payload),
            taken.i.payload.beat.eq(self.wr.payload),
            taken.i.valid.eq(read | writes),
            self.piece.ready.eq(taken.i.ready & read),
            self.wr.ready.eq(taken.i.ready & ~read & (inside | self.may_write)),
            self.taken.eq(self.wr.valid & self.wr.ready & ~inside),
            block_ends.eq(self._last_of_block(self.wr.p.addr) | self.wr.p.last),
        ]
        with m.If(taken.i.valid & taken.i.ready):
            m.d.sync += [inside.eq(~read & ~block_ends), turn.eq(~read)]
        return taken.o

    def _last_of_block(self, addr):
        """Whether the beat at ``addr`` is the last one of its block of Max_Payload_Size."""
        return (addr[LANES:PAGE_BITS] | ~self._mask[LANES:]).all()

    def _place(self, m: Module, taken):
        """The first byte of each beat; ``stop``: a read's last byte; ``rest``: a burst's bytes less
        one."""
        shape = data.StructLayout(
            {
                "read": 1, "tag": 8, "function": 8, "addr": 64, "stop": PAGE_BITS,
                "rest": PAGE_BITS, "data": WIDTH, "first": 1, "last": 1,
            }
        )  # fmt: skip
        m.submodules.placed = placed = Stage(shape=shape)
        piece, beat, found = taken.p.piece, taken.p.beat, placed.i.payload
        lane = Mux(beat.first, lowest_lane(beat.strb), 0)
        m.d.comb += [
            placed.i.valid.eq(taken.valid),
            taken.ready.eq(placed.i.ready),
            found.read.eq(taken.p.read),
            found.tag.eq(piece.tag),
            found.function.eq(Mux(taken.p.read, piece.function, beat.function)),
            found.addr.eq(Mux(taken.p.read, piece.addr, Cat(lane[:LANES], beat.addr[LANES:]))),
            found.stop.eq(piece.stop),
            found.rest.eq(beat.length - 1),
            found.data.eq(beat.data),
            found.first.eq(beat.first),
            found.last.eq(beat.last | self._last_of_block(beat.addr)),
        ]
        return placed.o

    def _bounds(self, m: Module, placed):
        """Where requests begin and end, and where their words go.

        ``addr`` and ``stop`` are a request's first and last byte, the latter modulo 4 KiB; ``up``,
        ``late``: see ``realign_beat``, of a request that begins with a beat; ``joins``: it may
        begin in the upper half of one.
        """
        shape = data.StructLayout(
            {
                "read": 1, "tag": 8, "function": 8, "addr": 64, "stop": PAGE_BITS, "data": WIDTH,
                "first": 1, "last": 1, "up": 4, "late": 1, "joins": 1,
            }
        )  # fmt: skip
        m.submodules.bounds = bounds = Stage(shape=shape)
        beat, found = placed.payload, bounds.i.payload
        start, stop = beat.addr[:PAGE_BITS], Signal(PAGE_BITS)  # of the burst
        kept, begins, mask = Signal(PAGE_BITS), Signal(init=1), self._mask
        # The burst's last byte from the block's first one on: its sum does not wait for ``stop``.
        reach, further = Signal(PAGE_BITS), Signal()
        lane = beat.addr[2:LANES]
        m.d.comb += [
            bounds.i.valid.eq(placed.valid),
            placed.ready.eq(bounds.i.ready),
            stop.eq(Mux(beat.first, start + beat.rest, kept)),
            reach.eq((start & mask) + beat.rest),
            further.eq((Mux(beat.first, reach, kept ^ start) & ~mask).any()),
            found.read.eq(beat.read),
            found.tag.eq(beat.tag),
            found.function.eq(beat.function),
            found.addr.eq(beat.addr),
            found.data.eq(beat.data),
            found.first.eq(beat.read | begins),
            found.last.eq(beat.read | beat.last),
            found.up.eq(Mux(beat.read, 0, self._head - lane)),
            found.late.eq(~beat.read & (lane > self._head)),
            found.joins.eq(beat.read | (lane <= self._head + HALF)),
        ]
        with m.If(beat.read):
            m.d.comb += found.stop.eq(beat.stop)
        with m.Else():
            m.d.comb += found.stop.eq(Mux(further, start | mask, stop))
        with m.If(placed.valid & placed.ready & ~beat.read):
            m.d.sync += [kept.eq(stop), begins.eq(beat.last)]
        return bounds.o

    def _requests(self, m: Module, beats, moved) -> None:
        """Descriptor, byte enables and place of each request, held for its later beats."""
        p = beats.payload
        side, head = request_side(), Signal(4)
        fresh, kept = Signal(side), Signal(side, reset_less=True)
        first_word, last_word = p.addr[2:PAGE_BITS], p.stop[2:]
        words = Signal(PAGE_BITS - 1)
        first_be = (Const(0b1111, 4) << p.addr[:2])[:4]
        last_be = Const(0b1111, 4) >> ~p.stop[:2]  # 3 less the byte
        up, kept_up = Signal(4), Signal(4, reset_less=True)
        late, kept_late = Signal(), Signal(reset_less=True)
        number = Signal(BITS)  # of the next write
        # Lane of the request's last word, and whether that is in the next beat of the last one.
        end, spill = Signal(4), Signal()
        # The last beat that was sent spills into a lower half, and nothing is behind it.
        follows, joined = Signal(), Signal()
        m.d.comb += [
            # The lower half is left free as well if it is not the request's.
            joined.eq(follows & p.first & p.joins),
            head.eq(Mux(joined, self._head + HALF, self._head)),
            words.eq(last_word - first_word + 1),
            fresh.head.addr.eq(p.addr[2:]),
            fresh.head.words.eq(words),
            fresh.head.type.eq(Mux(p.read, RequestType.MEM_READ, RequestType.MEM_WRITE)),
            fresh.head.requester.eq(p.function),
            fresh.head.tag.eq(p.tag),
            fresh.sequence.number.eq(Mux(p.read, READ, number)),
            fresh.sequence.write.eq(~p.read),
            fresh.first_be.eq(Mux(words == 1, first_be & last_be, first_be)),
            fresh.last_be.eq(Mux(words == 1, 0, last_be)),
            fresh.end.eq(Mux(p.read, head - 1, end)),
            up.eq(Mux(p.first, p.up + Mux(joined & ~p.read, HALF, 0), kept_up)),
            late.eq(Mux(p.first, p.late & ~joined, kept_late)),
            Cat(end, spill).eq(last_word[: len(end)] + up),
            moved.valid.eq(beats.valid),
            beats.ready.eq(moved.ready),
            moved.payload.data.eq(p.data),
            moved.payload.up.eq(up),
            moved.payload.late.eq(late),
            moved.payload.first.eq(p.first),
            moved.payload.last.eq(p.last),
            moved.payload.spill.eq(~p.read & spill & ~(late & p.first)),
            moved.payload.joined.eq(joined),
            moved.payload.side.eq(Mux(p.first, fresh, kept)),
        ]
        if self._straddle:
            with m.If(moved.ready):  # else that beat still waits before the rotator
                sent = moved.payload
                m.d.sync += follows.eq(beats.valid & sent.spill & p.last & (end < HALF))
        with m.If(beats.valid & beats.ready):
            m.d.sync += [kept.eq(moved.payload.side), kept_up.eq(up), kept_late.eq(late)]
            with m.If(p.last & ~p.read):
                m.d.sync += number.eq(following(number))
