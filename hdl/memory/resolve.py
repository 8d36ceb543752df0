"""Key resolution: from keys of any kind to direct keys, each with the row that it names."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.contract import keeps_offers, require
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.keys import LayoutWrite, decode_key, indirect_kinds
from hdl.ports.numbers import card_number, ordinal_of
from hdl.ports.rows import MrRow, MrType

from .layout import LayoutWalk
from .types import KeyedRequest, KeyEntry, TranslateRequest

__all__ = [
    "MOST_ENTRIES",
    "WALKS",
    "KeyEntry",
    "KeyLookup",
    "KeyResolve",
    "layout_members",
    "region_number",
    "walk_members",
]

#: Ranges that the entries of a packet's indirect keys may give it. They all wait for its verdict.
MOST_ENTRIES = 64


def walk_members(config: NicConfig) -> dict:
    """Return the members of a component that walks the entries of a kind of indirect key.

    ``i``: a request and its key's row, one at a time. ``o``: the ranges that its bytes are, in
    order and without gaps, the last with ``last``: no more bytes than the request has, however
    wrong the row and the entries are, because nobody has checked either. It is looked up in the
    cycle in which it is offered, so offers come from registers. ``read_client``: reads of entries;
    what has been asked for is answered before ``last`` is offered. A component with ``ON_CARD`` has
    ``layout`` in its place: an entry is set.
    """
    return {
        "i": In(stream.Signature(KeyedRequest)),
        "o": Out(stream.Signature(KeyEntry)),
        "read_client": Out(ReadClient(config.width)),
    }


#: Kind of an indirect key -> the component with ``walk_members`` that walks its entries.
WALKS: dict[int, type[wiring.Component]] = {MrType.MKEY.value: LayoutWalk}


def layout_members(config: NicConfig) -> dict:
    """Members that all have who stand around a KeyResolve, on cards with indirect keys: an entry is
    set."""
    return {"layout": In(LayoutWrite)} if config.mkeys else {}


def _on_card(kind: int) -> bool:
    """Whether the entries of an indirect kind are on the card."""
    return getattr(WALKS[kind], "ON_CARD", False)


def region_number(config: NicConfig, request) -> Value:
    """The row that a request's key names: that of a region of the function that asks."""
    owner = ordinal_of(config, request.function)
    return card_number(config, "mrs", owner, request.key[8:])


class KeyLookup(wiring.Component):
    """Reads the row that each request's key names.

    Members: ``i`` stream of TranslateRequest; ``again`` the same, which goes before ``i``; ``hold``
    In: nothing of ``i`` enters in this cycle; ``o`` stream of KeyedRequest, in the order in which
    they entered; ``mr`` read port of the table.
    Latency: a cycle. Throughput: a request per cycle. ``i.ready`` is a register. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        requests = stream.Signature(TranslateRequest)
        super().__init__(
            {
                "i": In(requests),
                "again": In(requests),
                "hold": In(1),
                "o": Out(stream.Signature(KeyedRequest)),
                "mr": Out(TableRead(16, MrRow)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        asked, valid = Signal(TranslateRequest, reset_less=True), Signal()
        # One that comes while it may not enter waits in ``spare``.
        spare, spare_valid = Signal(TranslateRequest, reset_less=True), Signal()
        entering, offered, enters, room = Signal(TranslateRequest), Signal(), Signal(), Signal()
        m.d.comb += [
            room.eq(~valid | self.o.ready),
            offered.eq(spare_valid | self.i.valid),
            enters.eq((offered & ~self.hold) | self.again.valid),
            entering.eq(Mux(spare_valid, spare, self.i.payload)),
            self.i.ready.eq(~spare_valid),
            self.again.ready.eq(room),
            self.mr.index.eq(region_number(self._config, entering)),
            self.mr.enable.eq(enters & room),
            self.o.valid.eq(valid),
            self.o.p.request.eq(asked),
            self.o.p.row.eq(self.mr.row),
        ]
        with m.If(self.again.valid):
            m.d.comb += entering.eq(self.again.payload)
        with m.If(room):
            m.d.sync += [asked.eq(entering), valid.eq(enters)]
        with m.If(room & ~self.hold & ~self.again.valid):
            m.d.sync += spare_valid.eq(0)
        with m.Else():
            m.d.sync += spare_valid.eq(offered)
        with m.If(~spare_valid):
            m.d.sync += spare.eq(self.i.payload)
        return m


class KeyResolve(wiring.Component):
    """Looks up the row of each request's key, and puts the ranges of its entries in the place of a
    request whose key is indirect.

    Spec: virtio-rdma VR-3.18 (keys: region number << 8 | tag).
    Members: ``i`` stream of TranslateRequest; ``o`` stream of KeyedRequest, in the same order;
    ``mr`` read port of the table; ``entries``: a read client for each of the card's indirect kinds
    (``indirect_kinds``) whose entries are in host memory; ``layout``: see ``layout_members``.
    Without such kinds the component is a KeyLookup.
    A request of a direct key leaves as it came. One of an indirect key leaves with ``check_only``
    and without ``end``, so that the indirect key is checked as every key is; behind it come the
    requests of its entries, with ``entry``. Their keys are looked up here as well: key -> entry ->
    key. The last of them has ``end`` if the request had it. An entry whose key is indirect leaves
    as it came, which the key check refuses: a chain ends there. Requests of no bytes and those with
    ``check_only`` have no entries.
    Latency: a cycle. Throughput: a request of a direct key per cycle; one of an indirect key
    holds up those behind it until its walk has ended.
    Errors: a range that the walk refuses, that lies beyond the card's addresses, or that is behind
    ``MOST_ENTRIES`` of its packet, leaves as ``wrapped``, which the key check refuses.
    Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._kinds = config, indirect_kinds(config)
        if missing := [kind for kind in self._kinds if kind not in WALKS]:
            raise ValueError(f"Nothing walks the entries of keys of the kinds {missing!r}")
        self._reading = [kind for kind in self._kinds if not _on_card(kind)]
        super().__init__(
            {
                "i": In(stream.Signature(TranslateRequest)),
                "o": Out(stream.Signature(KeyedRequest)),
                "mr": Out(TableRead(16, MrRow)),
                "entries": Out(ReadClient(config.width)).array(len(self._reading)),
                **layout_members(config),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.lookup = lookup = KeyLookup(config=self._config)
        connect(m, flipped(self.i), lookup.i)
        connect(m, lookup.mr, flipped(self.mr))
        if self._kinds:
            self._loop(m, platform, lookup)
        else:
            connect(m, lookup.o, flipped(self.o))
        return m

    def _loop(self, m: Module, platform, lookup: KeyLookup) -> None:
        """Replace requests of indirect keys: their entries go through the lookup in their place."""
        found, request = lookup.o.payload, lookup.o.payload.request
        replaced = Signal()  # the request that has been looked up has entries
        walked = Signal(KeyedRequest, reset_less=True)  # the one whose entries are walked
        walking, waits = Signal(), Signal()  # they are; the walk has not begun
        m.d.comb += [
            replaced.eq(
                lookup.o.valid
                & decode_key(self._config, found.row.type).entries
                & ~(request.entry | request.check_only | (request.length == 0))
            ),
            self.o.valid.eq(lookup.o.valid),
            self.o.payload.eq(found),
            self.o.p.request.check_only.eq(request.check_only | replaced),
            self.o.p.request.end.eq(request.end & ~replaced),
            lookup.o.ready.eq(self.o.ready),
            lookup.hold.eq(replaced | walking),
        ]
        with m.If(replaced & self.o.ready):
            m.d.sync += [walked.eq(found), walking.eq(1), waits.eq(1)]

        keeps_offers(m, platform, self)
        entry = self._walk(m, walked, waits)
        # Ranges of the packet so far: all are kept until its verdict.
        ranges, excess = Signal(range(MOST_ENTRIES + 1)), Signal()
        again, refused = lookup.again.payload, Signal()
        bits = self._config.address_bits
        m.d.comb += [
            excess.eq(ranges == MOST_ENTRIES),
            refused.eq(Cat(entry.p.refused, excess, entry.p.va[bits:]).any()),
            lookup.again.valid.eq(walking & entry.valid & (~excess | entry.p.last)),
            entry.ready.eq(walking & (lookup.again.ready | (excess & ~entry.p.last))),
            again.eq(walked.request),
            again.key.eq(entry.p.key),
            again.va.eq(entry.p.va),
            again.length.eq(Mux(refused, 1, entry.p.length)),  # of no bytes nothing is refused
            again.wrapped.eq(refused),
            again.entry.eq(1),
            again.end.eq(walked.request.end & entry.p.last),
        ]
        with m.If(entry.valid & entry.ready):
            require(m, platform, entry.p.refused | (entry.p.length != 0), "a range is not empty")
            with m.If(~excess):
                m.d.sync += ranges.eq(ranges + 1)
            with m.If(entry.p.last):
                m.d.sync += walking.eq(0)
                with m.If(walked.request.end):
                    m.d.sync += ranges.eq(0)
        with m.If(lookup.o.valid & lookup.o.ready & request.end & ~replaced):
            m.d.sync += ranges.eq(0)

    def _walk(self, m: Module, walked, waits: Signal):
        """Have the entries of ``walked`` walked by the component of its kind, which ``waits`` for
        that. Returns the stream of its ``KeyEntry``."""
        entry = stream.Signature(KeyEntry).create(path=("entry",))
        for number, kind in enumerate(self._kinds):
            m.submodules[f"walk{number}"] = walk = WALKS[kind](config=self._config)
            if _on_card(kind):
                m.d.comb += walk.layout.eq(self.layout)
            else:
                at = self._reading.index(kind)
                connect(m, walk.read_client, flipped(self.entries[at]))
            m.d.comb += walk.i.payload.eq(walked)
            with m.If(Value.cast(walked.row.type) == kind):
                m.d.comb += [
                    walk.i.valid.eq(waits),
                    entry.valid.eq(walk.o.valid),
                    entry.payload.eq(walk.o.payload),
                    walk.o.ready.eq(entry.ready),
                ]
                with m.If(walk.i.valid & walk.i.ready):
                    m.d.sync += waits.eq(0)
        return entry
