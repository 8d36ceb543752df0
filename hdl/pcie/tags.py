"""Tags of reads in flight, for any PCI Express block: what to ask for, and what is outstanding."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.contract import taken_at_once
from hdl.common.count import increment
from hdl.common.fifo import StreamFifo
from hdl.common.skid import Skid
from hdl.config import NicConfig
from hdl.ports.host import edge_read_request

from .control import FUNCTIONS
from .tag_pool import QUARANTINE, TagPool, fate, quarantined

__all__ = ["PAGE_BITS", "ReadTags", "outstanding", "read_piece", "size_mask", "verdict"]

#: Bits of an address within the 4 KiB that no request crosses.
PAGE_BITS = 12


def size_mask(code):
    """The address bits below Max_Payload_Size or Max_Read_Request_Size; ``code``: the register's.

    0 means 128 bytes (PCI Express Base Specification, "Device Control Register").
    """
    return Cat((bit < code + 7) for bit in range(PAGE_BITS))


def read_piece() -> data.StructLayout:
    """A read from ``addr`` to the byte whose address modulo 4 KiB is ``stop``; ``tag``: on the
    bus."""
    return data.StructLayout({"tag": 8, "function": 8, "addr": 64, "stop": PAGE_BITS})


def outstanding() -> data.StructLayout:
    """What is known of a tag: ``live``: a piece is outstanding; ``late``: for too long; ``end``:
    the address behind its last byte, modulo 4 KiB; ``final``: the last piece of its request;
    ``bad``, ``astray``: the verdict on its completions so far; ``host``: the tag of its request at
    the host port; ``quarantine``: of a tag that is not live."""
    return data.StructLayout(
        {
            "live": 1, "late": 1, "end": PAGE_BITS, "final": 1, "bad": 1, "astray": 1, "host": 8,
            "quarantine": quarantined(),
        }
    )  # fmt: skip


def verdict() -> data.StructLayout:
    """Whether the completions of ``tag`` so far are ``bad``, and for being where none was expected
    (``astray``); the last one's clears it."""
    return data.StructLayout({"tag": 8, "bad": 1, "astray": 1})


class ReadTags(wiring.Component):
    """Gives the host port's reads tags of the bus, and cuts them at multiples of
    Max_Read_Request_Size.

    A tag of the host port may be used again at once, one of the bus only when nothing can come of
    its last request any more (``TagPool``). A request keeps its tag of the bus, so one piece of it
    is outstanding at a time. Its next piece is asked for when the one before is complete
    (``again``). With ``read_bytes`` at most that size, a request is one piece.

    Parameters: ``timeout``: cycles after which a piece is late, at the latest after twice as many;
    ``quarantine``: see ``TagPool``.
    Members: ``rd_req``: the host port; ``piece``: what to ask the host for; ``again`` In: a tag
    whose piece is complete and not the final one; ``max_read`` In: the size's code; ``may_ask``,
    ``extended_tags`` In: bits of the functions that may use the bus, and 8 bits of tag;
    ``tag`` In and ``state`` Out: what is known of a tag, in the same cycle; ``end`` In: the piece
    of ``tag`` is over; ``verdict`` In: what ``state`` then says of a tag; ``fate`` In: what becomes
    of a tag whose request is over, or that is in quarantine; ``busy``, ``busy_tag``, ``expires``
    In: see ``TagPool``;
    ``overdue``: tags that were late a few cycles ago; ``denied``: tags of the host port whose
    request has none of the bus, so that it fails at once: its function may not use the bus, or each
    tag that it may use is in quarantine; ``denials``, ``tags_quarantined``, ``tags_returned`` Out:
    such requests, and tags that came into quarantine and left it, which wrap.
    Latency: 2 cycles. Throughput: a piece a cycle. A request waits for a tag, which comes free with
    the end of a request at the latest; a piece waits for ``piece`` to be taken.
    Errors: a tag that is not this card's is not ``live``. Reset: nothing is asked for during the
    first ``read_tags`` cycles.
    """

    def __init__(self, *, config: NicConfig, timeout: int, quarantine: int = QUARANTINE):
        if timeout < 8 * config.read_tags:
            raise ValueError(f"Timeout must be at least 8 cycles a tag, not {timeout!r}")
        self._tags, self._timeout = config.read_tags, timeout
        self._quarantine = quarantine
        super().__init__(
            {
                "rd_req": In(stream.Signature(edge_read_request())),
                "piece": Out(stream.Signature(read_piece())),
                "again": In(stream.Signature(8, always_ready=True)),
                "max_read": In(3),
                "may_ask": In(FUNCTIONS),
                "extended_tags": In(FUNCTIONS),
                "tag": In(8),
                "state": Out(outstanding()),
                "end": In(1),
                "verdict": In(stream.Signature(verdict(), always_ready=True)),
                "busy": In(1),
                "busy_tag": In(8),
                "fate": In(stream.Signature(fate(), always_ready=True)),
                "expires": In(1),
                "overdue": Out(stream.Signature(8)),
                "denied": Out(stream.Signature(8)),
                "denials": Out(16),
                "tags_quarantined": Out(16),
                "tags_returned": Out(16),
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
        valid, ready = Signal(), Signal()
        whole = self._name(m, cleared, valid, ready)
        taken_at_once(m, platform, repeats.i, "a tag's next piece is asked for once")
        m.d.comb += [
            # A tag is in it once at most, so there is always room.
            repeats.i.payload.eq(self.again.payload),
            repeats.i.valid.eq(self.again.valid),
            get.addr.eq(repeats.o.payload),
            chosen.i.payload.eq(Mux(repeats.o.valid, get.data, whole)),
            chosen.i.valid.eq(repeats.o.valid | valid),
            repeats.o.ready.eq(chosen.i.ready),
            ready.eq(chosen.i.ready & ~repeats.o.valid),
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

    def _name(self, m: Module, cleared, valid, ready):
        """Returns the host port's request with a tag of the bus, if it is ``valid``; a request that
        gets none is denied."""
        m.submodules.pool = pool = TagPool(tags=self._tags, quarantine=self._quarantine)
        m.submodules.refusals = refusals = Skid(shape=8)
        connect(m, refusals.o, flipped(self.denied))
        connect(m, flipped(self.fate), pool.fate)
        request, whole, deny = self.rd_req.payload, Signal(read_piece()), Signal()
        # The tag at the host port of each tag of the bus.
        m.submodules.hosts = hosts = memory.Memory(shape=8, depth=self._tags, init=[])
        name, named_as = hosts.write_port(), hosts.read_port(domain="comb")

        def allowed(functions):
            return functions.bit_select(request.function[: (FUNCTIONS - 1).bit_length()], 1)

        m.d.comb += [
            pool.plain.eq(~allowed(self.extended_tags)),
            pool.expires.eq(self.expires),
            pool.tag.eq(self.tag),
            pool.busy.eq(self.busy),
            pool.busy_tag.eq(self.busy_tag),
            self.state.quarantine.eq(pool.state),
            self.tags_quarantined.eq(pool.entered),
            self.tags_returned.eq(pool.left),
            deny.eq(~allowed(self.may_ask) | pool.none),
            whole.tag.eq(pool.o.payload),
            whole.function.eq(request.function),
            whole.addr.eq(request.addr),
            whole.stop.eq(request.addr[:PAGE_BITS] + request.length - 1),
            valid.eq(self.rd_req.valid & cleared & ~deny & pool.o.valid),
            pool.o.ready.eq(self.rd_req.valid & cleared & ~deny & ready),
            refusals.i.payload.eq(request.tag),
            refusals.i.valid.eq(self.rd_req.valid & cleared & deny),
            self.rd_req.ready.eq(cleared & Mux(deny, refusals.i.ready, ready & pool.o.valid)),
            name.en.eq(valid & ready),
            name.addr.eq(pool.o.payload),
            name.data.eq(request.tag),
            named_as.addr.eq(self.tag),
            self.state.host.eq(named_as.data),
        ]
        with m.If(refusals.i.valid & refusals.i.ready):
            increment(m, self.denials)
        return whole

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

        found, lives, lates = look(self.tag)
        # Stored a cycle later; until then it is seen here. A tag begins anew later than that.
        over, over_tag, over_turn = Signal(), Signal(8), Signal()
        live, late = Signal(), Signal()
        m.d.sync += [over.eq(self.end), over_tag.eq(self.tag), over_turn.eq(found.turn)]
        m.d.comb += [
            live.eq(lives & ~(over & (over_tag == self.tag))),
            late.eq(lates & ~(over & (over_tag == self.tag))),
        ]
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
            ended.en.eq(over | ~cleared),
            ended.addr.eq(Mux(cleared, over_tag, clear)),
            ended.data.eq(over_turn & cleared),
        ]
        opinion = data.StructLayout({"bad": 1, "astray": 1})
        m.submodules.verdicts = verdicts = memory.Memory(shape=opinion, depth=self._tags, init=[])
        note, noted = verdicts.write_port(), verdicts.read_port(domain="comb")
        # A bad one is seen at once. That a tag's last completion clears it matters to the next
        # piece only, which is far.
        fresh, storing = self.verdict.payload, self.verdict.valid
        m.d.comb += [
            note.en.eq(storing | ~cleared),
            note.addr.eq(Mux(cleared, fresh.tag, clear)),
            noted.addr.eq(self.tag),
        ]
        for name in opinion.members:
            newer = storing & fresh[name] & (fresh.tag == self.tag)
            m.d.comb += [
                note.data[name].eq(fresh[name] & cleared),
                self.state[name].eq(noted.data[name] | newer),
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
