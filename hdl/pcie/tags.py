"""Tags of reads in flight, for any PCI Express block: what to ask for, and what is outstanding."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.skid import Skid
from hdl.config import NicConfig
from hdl.ports.host import edge_read_request

__all__ = ["PAGE_BITS", "ReadTags", "outstanding", "read_piece", "size_mask", "verdict"]

#: Bits of an address within the 4 KiB that no request crosses.
PAGE_BITS = 12


def size_mask(code):
    """The address bits below Max_Payload_Size or Max_Read_Request_Size; ``code``: the register's.

    0 means 128 bytes (PCI Express Base Specification, "Device Control Register").
    """
    return Cat((bit < code + 7) for bit in range(PAGE_BITS))


def read_piece() -> data.StructLayout:
    """A read from ``addr`` to the byte whose address modulo 4 KiB is ``stop``."""
    return data.StructLayout({"tag": 8, "function": 8, "addr": 64, "stop": PAGE_BITS})


def outstanding() -> data.StructLayout:
    """What is known of a tag: ``live``: a piece is outstanding; ``late``: for too long; ``end``:
    the address behind its last byte, modulo 4 KiB; ``final``: the last piece of its request;
    ``bad``: the verdict on its completions so far."""
    return data.StructLayout({"live": 1, "late": 1, "end": PAGE_BITS, "final": 1, "bad": 1})


def verdict() -> data.StructLayout:
    """Whether the completions of ``tag`` so far are ``bad``; the last one's clears it."""
    return data.StructLayout({"tag": 8, "bad": 1})


class ReadTags(wiring.Component):
    """Cuts the host port's reads at multiples of Max_Read_Request_Size.

    A request keeps its tag, so one piece of it is outstanding at a time. Its next piece is asked
    for when the one before is complete (``again``). With ``read_bytes`` at most that size, a
    request is one piece.

    Parameters: ``timeout``: cycles after which a piece is late, at the latest after twice as many.
    Members: ``rd_req``: the host port; ``piece``: what to ask the host for; ``again`` In: a tag
    whose piece is complete and not the final one; ``max_read`` In: the size's code;
    ``tag`` In and ``state`` Out: what is known of a tag, in the same cycle; ``end`` In: the piece
    of ``tag`` is over; ``verdict`` In: what ``state`` then says of a tag; ``overdue``: tags that
    were late a few cycles ago.
    Latency: 2 cycles. Throughput: a piece a cycle. A piece waits for ``piece`` to be taken.
    Errors: a tag that is not this card's is not ``live``. Reset: nothing is asked for during the
    first ``read_tags`` cycles.
    """

    def __init__(self, *, config: NicConfig, timeout: int):
        if timeout < 8 * config.read_tags:
            raise ValueError(f"Timeout must be at least 8 cycles a tag, not {timeout!r}")
        self._tags, self._timeout = config.read_tags, timeout
        super().__init__(
            {
                "rd_req": In(stream.Signature(edge_read_request())),
                "piece": Out(stream.Signature(read_piece())),
                "again": In(stream.Signature(8, always_ready=True)),
                "max_read": In(3),
                "tag": In(8),
                "state": Out(outstanding()),
                "end": In(1),
                "verdict": In(stream.Signature(verdict(), always_ready=True)),
                "overdue": Out(stream.Signature(8)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self._tags)
        clear, cleared = Signal(bits + 1), Signal()
        m.d.comb += cleared.eq(clear[bits])
        with m.If(~cleared):
            m.d.sync += clear.eq(clear + 1)
        m.submodules.out = out = Skid(shape=read_piece())
        wiring.connect(m, out.o, wiring.flipped(self.piece))
        asked, issue = out.i.payload, Signal()
        m.d.comb += issue.eq(out.i.valid & out.i.ready)

        # What is left of a request behind the piece that was asked for.
        m.submodules.rests = rests = memory.Memory(shape=read_piece(), depth=self._tags, init=[])
        put, get = rests.write_port(), rests.read_port(domain="comb")
        m.submodules.repeats = repeats = StreamFifo(shape=8, depth=self._tags)
        m.submodules.chosen = chosen = Skid(shape=read_piece())
        whole = Signal(read_piece())
        m.d.comb += [
            whole.tag.eq(self.rd_req.p.tag),
            whole.function.eq(self.rd_req.p.function),
            whole.addr.eq(self.rd_req.p.addr),
            whole.stop.eq(self.rd_req.p.addr[:PAGE_BITS] + self.rd_req.p.length - 1),
            # A tag is in it once at most, so there is always room.
            repeats.i.payload.eq(self.again.payload),
            repeats.i.valid.eq(self.again.valid),
            get.addr.eq(repeats.o.payload),
            chosen.i.payload.eq(Mux(repeats.o.valid, get.data, whole)),
            chosen.i.valid.eq(repeats.o.valid | (self.rd_req.valid & cleared)),
            repeats.o.ready.eq(chosen.i.ready),
            self.rd_req.ready.eq(chosen.i.ready & cleared & ~repeats.o.valid),
        ]
        request, rest = chosen.o.payload, put.data
        cut, final, mask = Signal(PAGE_BITS), Signal(), size_mask(self.max_read)
        m.d.comb += [
            cut.eq(request.addr[:PAGE_BITS] | mask),
            final.eq((request.stop | mask) == cut),
            asked.eq(request),
            asked.stop.eq(Mux(final, request.stop, cut)),
            out.i.valid.eq(chosen.o.valid),
            chosen.o.ready.eq(out.i.ready),
            put.en.eq(issue),
            put.addr.eq(request.tag),
            rest.eq(request),
            rest.addr[:PAGE_BITS].eq(cut + 1),
        ]
        # A cycle later, which is soon enough for whatever answers.
        begun, begun_final, begins = Signal(read_piece()), Signal(), Signal()
        m.d.sync += [begun.eq(asked), begun_final.eq(final), begins.eq(issue)]
        self._outstanding(m, begun.tag, begun.stop + 1, begun_final, begins, clear, cleared)
        return m

    def _outstanding(self, m: Module, tag, end, final, issue, clear, cleared) -> None:
        """One table that issue writes and one that the end does: a tag is live if they differ."""
        row = data.StructLayout({"turn": 1, "time": 2, "end": PAGE_BITS, "final": 1})
        m.submodules.begins = begins = memory.Memory(shape=row, depth=self._tags, init=[])
        m.submodules.ends = ends = memory.Memory(shape=1, depth=self._tags, init=[])
        begin, ended = begins.write_port(), ends.write_port()
        newest = ends.read_port(domain="comb")
        tick = Signal(range(self._timeout), init=self._timeout - 1)
        time = Signal(2)
        with m.If(tick == 0):
            m.d.sync += [tick.eq(self._timeout - 1), time.eq(time + 1)]
        with m.Else():
            m.d.sync += tick.eq(tick - 1)

        def look(number):
            """The state of tag ``number`` and the turn in which it began."""
            of_begin, of_end = begins.read_port(domain="comb"), ends.read_port(domain="comb")
            m.d.comb += [of_begin.addr.eq(number), of_end.addr.eq(number)]
            live = of_begin.data.turn != of_end.data
            age = Signal(2)
            m.d.comb += age.eq(time - of_begin.data.time)
            return of_begin.data, live, live & age[1]

        found, live, late = look(self.tag)
        m.d.comb += [
            self.state.live.eq(live & (self.tag < self._tags)),
            self.state.late.eq(late & (self.tag < self._tags)),
            self.state.end.eq(found.end),
            self.state.final.eq(found.final),
            newest.addr.eq(tag),
            begin.en.eq(issue | ~cleared),
            begin.addr.eq(Mux(cleared, tag, clear)),
            begin.data.turn.eq(~newest.data & cleared),
            begin.data.time.eq(time),
            begin.data.end.eq(end),
            begin.data.final.eq(final),
            ended.en.eq(self.end | ~cleared),
            ended.addr.eq(Mux(cleared, self.tag, clear)),
            ended.data.eq(found.turn & cleared),
        ]
        m.submodules.verdicts = verdicts = memory.Memory(shape=1, depth=self._tags, init=[])
        note, noted = verdicts.write_port(), verdicts.read_port(domain="comb")
        # Stored a cycle later: until then a bad one is seen here. That a tag's last completion
        # clears it matters to the next piece only, which is far.
        fresh, storing = Signal(verdict()), Signal()
        m.d.sync += [fresh.eq(self.verdict.payload), storing.eq(self.verdict.valid)]
        m.d.comb += [
            note.en.eq(storing | ~cleared),
            note.addr.eq(Mux(cleared, fresh.tag, clear)),
            note.data.eq(fresh.bad & cleared),
            noted.addr.eq(self.tag),
            self.state.bad.eq(noted.data | (storing & fresh.bad & (fresh.tag == self.tag))),
        ]
        scanned = Signal(8)
        scanning = Signal(range(self._tags))
        _, _, overdue = look(scanning)
        with m.If(~self.overdue.valid | self.overdue.ready):
            m.d.sync += [
                scanning.eq(scanning + 1),
                scanned.eq(scanning),
                self.overdue.valid.eq(overdue & cleared),
            ]
        m.d.comb += self.overdue.payload.eq(scanned)
