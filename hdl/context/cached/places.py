"""Which QP each place of the cache has, and which one leaves for a QP that is asked for."""

from collections.abc import Collection

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, Signature
from amaranth.utils import ceil_log2

from hdl.common.contract import require
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.ports.context import BackingRequest

from .look import Look

__all__ = ["FILLS", "LookPort", "OwnerPort", "Places", "encoded"]

#: Reads of the backing store that are under way at a time.
FILLS = 4


class LookPort(Signature):
    """One machine's requests and where their rows are, seen from who asks; see ``Look``. ``at``:
    the place that has the QP, as a number; ``hits``: the same, a bit each."""

    def __init__(self, bits: int, places: int):
        super().__init__(
            {
                "number": Out(bits),
                "enable": Out(1),
                "drop": Out(1),
                "asks": In(bits),
                "looks": In(1),
                "hits": In(places),
                "valid": In(1),
                "at": In(range(places)),
            }
        )


class OwnerPort(Signature):
    """Where a row is written, seen from its owner: of which QP, and its place, in that cycle."""

    def __init__(self, bits: int, places: int):
        super().__init__({"number": Out(bits), "enable": Out(1), "at": In(range(places))})


def encoded(bits: Value) -> Value:
    """Return the number of the only bit that is set."""
    width = max(1, ceil_log2(len(bits)))
    return Cat(Cat(bits[n] for n in range(len(bits)) if n >> bit & 1).any() for bit in range(width))


def _lowest(bits: Value) -> Value:
    """Return the lowest bit that is set, alone."""
    return bits & (~bits + 1)[: len(bits)]


class Places(wiring.Component):
    """Tags of the places, and what becomes of a miss; the rows themselves lie in ``RowCache``.

    A place is free, is being filled, or is here; a place that is here is dirty when a row of it has
    been written. A miss takes a place that nobody pins, in turn. Its old rows are read out if they
    are dirty, the new ones are asked for, then the old ones are written: a QP's record has been
    handed over before the next request, so it cannot be asked for before it has been written.
    A QP whose record was never written since reset has none: its rows are zeros, and the backing
    store is not asked.

    Parameters: ``qps``, ``places``; ``looks``: who asks; ``behind``: those of them that may write
    rows of the QP that they were answered for before the last one, too; ``pins``: who names a QP
    that must stay; ``owners``: tables whose rows are written.
    Members: ``look_<name>`` (``LookPort``), ``owner_<name>`` (``OwnerPort``); ``pin_<name>`` In: a
    QP whose place stays while ``held`` (it is here already). ``soil`` In: a row of this place is
    written by the firmware in this cycle. ``leave`` Out: the rows of the place ``leaving``
    are read out; ``holds`` Out: from then on until ``gone`` In: their record is handed over.
    ``request`` Out: to the backing store. ``fill`` Out: places in the order of the reads, ``clear``
    Out: one that gets zeros; ``filled`` In: the rows of ``filled_at`` are here, with ``lost`` as
    zeros instead of those in its record. ``missed``: a place is taken for a QP that was not here.
    ``ready`` Out: nothing is stored any more, a cycle for each QP after reset.
    Latency: 5 cycles from a miss to the request, one more when rows are read out. Throughput: one
    miss at a time up to there; ``FILLS`` reads are under way. Errors: none. Reset: all places are
    free.
    """

    def __init__(
        self,
        *,
        qps: int,
        places: int,
        looks: Collection[str],
        behind: Collection[str] = (),
        pins: Collection[str] = (),
        owners: Collection[str] = (),
    ):
        pinned = len(looks) + 2 * len(behind) + len(pins)
        if places & (places - 1) or places < 2:
            raise ValueError(f"Places must be a power of two, at least 2, not {places!r}")
        self._qps, self._places, self._most = qps, places, pinned
        self._looks, self._behind = tuple(looks), frozenset(behind)
        self._pins, self._owners = tuple(pins), tuple(owners)
        self._bits = bits = max(1, ceil_log2(qps))
        place = range(places)
        super().__init__(
            {f"look_{name}": In(LookPort(bits, places)) for name in looks}
            | {f"owner_{name}": In(OwnerPort(bits, places)) for name in owners}
            | {f"pin_{name}": In(Signature({"number": Out(bits), "held": Out(1)})) for name in pins}
            | {
                "soil": In(places),
                "leave": Out(1),
                "leaving": Out(place),
                "holds": Out(1),
                "gone": In(1),
                "request": Out(stream.Signature(BackingRequest)),
                "fill": Out(stream.Signature(place)),
                "clear": Out(stream.Signature(place)),
                "filled": In(1),
                "filled_at": In(place),
                "lost": In(1),
                "missed": Out(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        places = self._places
        tags = Signal(data.ArrayLayout(self._bits, places))
        here, filling, dirty = Signal(places), Signal(places), Signal(places)
        open_ = Signal(places, init=-1, name="open")  # answer looks: all but one that may be taken
        pins = self._ask(m, tags, here, open_)
        written = self._write(m, platform, tags, here)
        taken = Signal(places)
        pinned = Signal(places)  # a cycle ago
        m.d.sync += [pinned.eq(pins), dirty.eq(dirty | written | self.soil)]

        # Whose record is in the backing store.
        m.submodules.stored = stored = Ram(shape=1, depth=self._qps, forward=False)
        cleared = Signal(range(self._qps + 1))
        m.d.comb += self.ready.eq(cleared == self._qps)
        with m.If(~self.ready):
            m.d.comb += [stored.write.index.eq(cleared), stored.write.enable.eq(1)]
            m.d.sync += cleared.eq(cleared + 1)

        m.submodules.fills = fills = StreamFifo(shape=range(places), depth=FILLS)
        wiring.connect(m, fills.o, wiring.flipped(self.fill))

        chosen, turn = Signal(places), Signal(places)  # a place; those behind the last one chosen
        want, old = Signal(self._bits), Signal(self._bits)
        known, soiled, place = Signal(), Signal(), Signal(range(places))
        free = ~(pinned | filling)
        late = free & turn
        m.d.comb += [
            stored.read0.index.eq(want),
            self.leaving.eq(place),
            self.clear.payload.eq(place),
            fills.i.payload.eq(place),
            self.request.payload.qp.eq(Mux(self.request.payload.write, old, want)),
        ]
        with m.FSM(name="miss"):
            # MISS: looks for a request whose rows are not here; ends with one.
            with m.State("MISS"):
                m.d.sync += want.eq(self._next)
                with m.If(self._missing & self.ready):
                    m.next = "SEEK"
            # SEEK: whether the rows are on their way, and which place is next; one cycle.
            with m.State("SEEK"):
                used = here | filling
                m.d.comb += stored.read0.enable.eq(1)
                m.d.sync += [
                    known.eq(Cat(used[n] & (tags[n] == want) for n in range(places)).any()),
                    chosen.eq(Mux(late.any(), _lowest(late), _lowest(free))),
                ]
                m.next = "CLOSE"
            # CLOSE: that place answers nobody from the next cycle on; one cycle.
            with m.State("CLOSE"):
                m.d.sync += [place.eq(encoded(chosen)), soiled.eq((chosen & dirty).any())]
                m.next = "SEEK"
                with m.If(known):
                    m.next = "MISS"
                with m.Elif(chosen.any()):
                    m.d.sync += open_.eq(~chosen)
                    m.next = "TAKE"
            # TAKE: the place is the new QP's, if it has answered nobody who pins it; one cycle.
            with m.State("TAKE"):
                m.d.sync += open_.eq(~0)
                m.next = "SEEK"
                with m.If(~(chosen & pinned).any()):
                    m.d.comb += [taken.eq(chosen), self.missed.eq(1)]
                    m.d.sync += [
                        turn.eq(~(chosen | (chosen - 1)[:places])),
                        old.eq(tags[place]),
                        tags[place].eq(want),
                    ]
                    m.next = "ASK"
                    with m.If(soiled):
                        m.next = "LEAVE"
            self._exchange(m, stored, fills, soiled, old)
        holding = Signal()
        m.d.sync += holding.eq((holding | self.leave) & ~self.gone)
        m.d.comb += self.holds.eq(holding | self.leave)
        arrived = Signal(places)
        m.d.comb += arrived.eq(Cat(self.filled & (self.filled_at == n) for n in range(places)))
        m.d.sync += [
            here.eq((here & ~taken) | arrived),
            filling.eq((filling | taken) & ~arrived),
        ]
        with m.If(self.filled):  # what is lost stays so
            changed = dirty | written | self.soil
            m.d.sync += dirty.eq(Mux(self.lost, changed | arrived, changed & ~arrived))
        self._contract(m, platform, here, filling, pinned, fills)
        return m

    def _exchange(self, m: Module, stored, fills, soiled, old) -> None:
        """The old rows leave, if they are ``soiled``, and the new ones are asked for."""
        # LEAVE: reads the old rows out; one cycle.
        with m.State("LEAVE"):
            m.d.comb += self.leave.eq(1)
            m.next = "ASK"
        # ASK: asks for the new rows; ends when that is taken, or when they are zeros, and that
        # is noted.
        with m.State("ASK"):
            m.d.comb += [
                self.request.valid.eq(stored.read0.row & fills.i.ready),
                self.clear.valid.eq(~stored.read0.row),
            ]
            with m.If(self.request.valid & self.request.ready):
                m.next = "NOTE"
            with m.Elif(self.clear.valid & self.clear.ready):
                m.next = "MISS"
                with m.If(soiled):
                    m.next = "WRITE"
        # NOTE: notes whose rows come next; one cycle.
        with m.State("NOTE"):
            m.d.comb += fills.i.valid.eq(1)
            m.next = "MISS"
            with m.If(soiled):
                m.next = "WRITE"
        # WRITE: hands the old rows over; ends when the backing store takes them.
        with m.State("WRITE"):
            m.d.comb += [self.request.valid.eq(1), self.request.payload.write.eq(1)]
            with m.If(self.request.ready):
                m.next = "GONE"
        # GONE: the record is stored; ends when its last beat has been taken.
        with m.State("GONE"):
            with m.If(self.gone):
                m.d.comb += [
                    stored.write.index.eq(old),
                    stored.write.row.eq(1),
                    stored.write.enable.eq(1),
                ]
                m.next = "MISS"

    def _ask(self, m: Module, tags, here, open_) -> Value:
        """Everybody's look; drives which miss is next. Returns the places that must stay."""
        self._next, self._missing = Signal(self._bits, name="next"), Signal(name="missing")
        looks, pins = [], []
        for name in self._looks:
            port = getattr(self, f"look_{name}")
            m.submodules[f"look_{name}"] = look = Look(
                bits=self._bits, places=self._places, behind=name in self._behind
            )
            m.d.comb += [
                look.number.eq(port.number),
                look.enable.eq(port.enable),
                look.drop.eq(port.drop),
                look.tags.eq(tags),
                look.here.eq(here),
                look.open.eq(open_),
                port.asks.eq(look.asks),
                port.looks.eq(look.looks),
                port.hits.eq(look.hits),
                port.valid.eq(look.valid),
                port.at.eq(encoded(look.hits)),
            ]
            looks.append(look)
            pins.append(look.pins)
        # A request that has just been answered, or replaced, may seem to miss for a cycle more:
        # then nothing comes of it, or rows that nobody waits for.
        missing, last = Signal(len(looks)), Signal(range(max(2, len(looks))))
        m.d.sync += missing.eq(Cat(look.misses for look in looks))
        m.d.comb += [self._missing.eq(missing.any()), self._next.eq(looks[0].asks)]
        with m.Switch(last):
            for before in range(len(looks)):
                with m.Case(before):
                    for step in reversed(range(1, len(looks) + 1)):
                        one = (before + step) % len(looks)
                        with m.If(missing[one]):
                            m.d.comb += self._next.eq(looks[one].asks)
                            m.d.sync += last.eq(one)
        held = Signal(self._places)
        for name in self._pins:
            port, bits = getattr(self, f"pin_{name}"), Signal(self._places, name=f"held_{name}")
            m.d.comb += bits.eq(
                Cat(port.held & here[n] & (tags[n] == port.number) for n in range(self._places))
            )
            pins.append(bits)
        for one in pins:
            held = held | one
        return held

    def _write(self, m: Module, platform, tags, here) -> Value:
        """The place of each row that is written. Returns the places that get dirty."""
        written = Signal(self._places)
        soils = []
        for name in self._owners:
            port = getattr(self, f"owner_{name}")
            hits = Signal(self._places, name=f"written_{name}")
            m.d.comb += [
                hits.eq(Cat(here[n] & (tags[n] == port.number) for n in range(self._places))),
                port.at.eq(encoded(hits)),
            ]
            with m.If(port.enable):
                require(m, platform, hits.any(), f"{name}: the row that is written is here")
            soils.append(hits & port.enable.replicate(self._places))
        for one in soils:
            written = written | one
        return written

    def _contract(self, m: Module, platform, here, filling, pinned, fills) -> None:
        def count(bits: Value) -> Value:
            return sum((bits[n] for n in range(1, len(bits))), start=bits[0])

        require(m, platform, (here & filling) == 0, "a place that is filled is not here")
        require(m, platform, count(pinned) <= self._most, "nobody pins more than his share")
        require(m, platform, fills.i.ready | ~fills.i.valid, "each read is noted")
