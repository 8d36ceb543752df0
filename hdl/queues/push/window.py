"""The push window: pieces of WQEs that come with their doorbell, put together and kept a while."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.abi.push import PUSH_MAGIC, PUSH_MOST_BYTES, PUSH_PIECE_BYTES
from hdl.abi.virtio_rdma import GSI_QP_INDEX
from hdl.common.activation import activation_layout
from hdl.common.contract import keeps_offers, require
from hdl.config import NicConfig
from hdl.ports.activations import SendFlags
from hdl.ports.boxes import PushInput
from hdl.ports.numbers import QpNumber, card_number, of_function, ordinal_of
from hdl.ports.push import PushCounts

from .pieces import PushPieces
from .store import PushStore
from .types import ENTRIES, PIECES, ROW_BITS, Entry, Mark, PushPort

__all__ = ["PushWindow"]

#: Cycles after which a push is a doorbell if it is not complete: once to twice as many.
PATIENCE = 128


class _Push(data.Struct):
    """A push. It is being put together, then ``ready``, then ``taken`` by who asks for it."""

    used: 1
    ready: 1
    taken: 1
    qp: QpNumber
    position: 16
    head: 16
    length: 16
    have: PIECES  # pieces that have come
    old: 1  # it has waited for half of its time
    expired: 1  # it is a doorbell, as soon as one can be given


class _Named(data.Struct):
    """A piece, and what is known of it."""

    qp: QpNumber
    mark: Mark
    number: ceil_log2(PIECES)
    data: ROW_BITS
    allowed: 1  # its function may push there
    sound: 1  # it is whole, and its mark can be
    needed: PIECES  # all pieces of its push


class _Facts(data.Struct):
    """What a piece is to each push."""

    same_qp: ENTRIES
    same_mark: ENTRIES
    ends: ENTRIES  # with the piece it is whole
    room: 1  # one is not used:
    vacant: Entry


class PushWindow(wiring.Component):
    """Puts pushes together, rings their doorbells, and gives them to who fetches send WQEs.

    Spec: docs/extensions.md, "WQEs with their doorbell".
    Parameters: ``least``: bytes of the shortest element.
    Members: ``push`` In: what functions write, and which of them may; ``ring`` Out: doorbells of
    send queues, as the scheduler takes them, with the avail index behind a push that is complete,
    without it otherwise; ``port`` In: see ``PushPort``; ``counts`` Out.
    Up to ``ENTRIES`` pushes are here at a time, one of each QP and those that are taken. One for
    which there is no room takes the place of another, in turn.
    Latency: 2 cycles from the last beat to ``ring``, 3 where a piece has several; one more behind a
    piece that has just been taken. From there on ``port`` gives it.
    Throughput: a piece in 2 cycles, as it is compared in one and taken in the next.
    Errors: what is not a push of the function's own is counted, and is a doorbell of the queue
    whose slot it was written to, unless the function may not push at all.
    Each push that is given up before it was complete is such a doorbell, so none is lost.
    Reset: empty.
    """

    def __init__(self, *, config: NicConfig, least: int):
        self._config, self._least = config, least
        super().__init__(
            {
                "push": In(PushInput(config)),
                "ring": Out(stream.Signature(activation_layout(16))),
                "port": In(PushPort()),
                "counts": Out(PushCounts()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.pieces = pieces = PushPieces(config=self._config)
        m.submodules.store = store = PushStore()
        connect(m, flipped(self.push.beats), pieces.i)
        connect(m, flipped(self.port.row), store.row)
        pushes = [Signal(_Push, name=f"push{n}") for n in range(ENTRIES)]
        piece, valid, done = Signal(_Named, reset_less=True), Signal(), Signal()
        coming, compared = Signal(_Named), Signal()  # compared: the piece at hand, with all pushes
        m.d.comb += pieces.o.ready.eq(~valid | done)
        self._name(m, pieces.o.payload, coming)
        with m.If(pieces.o.ready):
            m.d.sync += [valid.eq(pieces.o.valid), piece.eq(coming)]
        # Who asks goes first.
        busy = self.port.ask | self.port.forget
        free = Signal()  # a doorbell can be given
        m.d.comb += free.eq(~self.ring.valid | self.ring.ready)
        with m.If(self.ring.ready):
            m.d.sync += self.ring.valid.eq(0)
        self._age(m, pushes)
        facts = self._compare(m, pushes, Mux(valid, piece.as_value(), coming.as_value()))
        acts = compared & ~busy & free
        waits = self._take(m, pushes, piece, facts, acts, done, busy)
        # One that comes behind another is compared with what that one has made of the pushes.
        m.d.sync += compared.eq(Mux(valid, ~done & ~waits, pieces.o.valid))
        self._give(m, platform, pushes)
        keeps_offers(m, platform, self)
        return m

    def _name(self, m: Module, found, piece) -> None:
        """Whose a piece is, and whether it can be one."""
        config, mark = self._config, Mark(found.data[: Mark.as_shape().size])
        ordinal = ordinal_of(config, found.function)
        needed = Cat(mark.length > n * PUSH_PIECE_BYTES for n in range(PIECES))
        m.d.comb += [
            piece.qp.eq(card_number(config, "qps", ordinal, found.pair)),
            piece.mark.eq(mark),
            piece.number.eq(found.number),
            piece.data.eq(found.data),
            piece.needed.eq(needed),
            piece.allowed.eq(
                of_function(config, self.push.pushes, found.function)
                & (found.pair >= GSI_QP_INDEX)
                & ~found.pair[config.number_bits["qps"] :].any()
            ),
            piece.sound.eq(
                found.whole
                & (mark.magic == PUSH_MAGIC)
                & (mark.length >= self._least)
                & (mark.length <= PUSH_MOST_BYTES)
                & needed.bit_select(found.number, 1)
            ),
        ]

    def _ring(self, m: Module, qp: Value, following: Value | None = None) -> None:
        """A doorbell, with the avail index if it is known."""
        ring = self.ring.payload
        flags = SendFlags.DOORBELL | (SendFlags.NEXT if following is not None else 0)
        m.d.sync += [self.ring.valid.eq(1), ring.qp.eq(qp), ring.flags.eq(flags)]
        if following is not None:
            m.d.sync += ring.data.eq(following)

    def _age(self, m: Module, pushes: list) -> None:
        """Time passes for pushes that are not complete."""
        filling = Cat(one.used & ~one.ready for one in pushes)  # an idle card stands still
        time = Signal(range(PATIENCE))
        with m.If(filling.any()):
            m.d.sync += time.eq(time + 1)
        for one in pushes:
            with m.If(one.used & ~one.ready & (time == PATIENCE - 1)):
                m.d.sync += [one.old.eq(1), one.expired.eq(one.old)]

    @staticmethod
    def _compare(m: Module, pushes: list, named: Value) -> Signal:
        """What a piece is to the pushes, a cycle later. A push begins with a piece and with nothing
        else, so one that is vacant then stays so."""
        piece, facts = data.View(_Named, named), Signal(_Facts)
        m.d.sync += facts.room.eq(Cat(~one.used for one in pushes).any())
        for n, one in reversed(list(enumerate(pushes))):
            with m.If(~one.used):
                m.d.sync += facts.vacant.eq(n)
            m.d.sync += [
                facts.same_qp[n].eq(one.qp == piece.qp),
                facts.same_mark[n].eq(
                    (one.position == piece.mark.position)
                    & (one.head == piece.mark.head)
                    & (one.length == piece.mark.length)
                ),
                facts.ends[n].eq((one.have | 1 << piece.number) == piece.needed),
            ]
        return facts

    def _take(
        self, m: Module, pushes: list, piece: _Named, facts, acts: Value, done: Signal, busy: Value
    ) -> Value:
        """The piece at hand, if a doorbell can be given; else the doorbell of one that is given
        up. Returns whether the piece waits for another to make room."""
        store, counts = m.submodules.store, self.counts
        bit, waits, same_mark, vacant = Signal(PIECES), Signal(), facts.same_mark, facts.vacant
        mine = facts.same_qp & Cat(one.used & ~one.taken for one in pushes)
        fits = mine & same_mark & Cat(~one.ready & ~one.expired for one in pushes)
        m.d.comb += [
            bit.eq(1 << piece.number),
            store.number.eq(piece.number),
            store.data.eq(piece.data),
        ]
        victim, place = Signal(Entry), Signal(Entry)
        chosen = Array(pushes)[place]
        # A QP has one push that is not taken.
        named = [Cat(mine[n] for n in range(ENTRIES) if n >> at & 1) for at in range(len(place))]
        m.d.comb += [
            place.eq(Cat(bits.any() for bits in named) | Mux(mine.any(), 0, vacant)),
            store.entry.eq(place),
        ]
        with m.If(acts):
            with m.If(~piece.allowed):
                m.d.comb += [done.eq(1), counts.refused.eq(1)]
            with m.Elif(~piece.sound):
                m.d.comb += [done.eq(1), counts.torn.eq(1)]
                self._ring(m, piece.qp)
                for n, one in enumerate(pushes):
                    with m.If(mine[n]):
                        m.d.sync += one.used.eq(0)
            with m.Elif(fits.any()):
                m.d.comb += [done.eq(1), store.write.eq(1)]
                m.d.sync += chosen.have.eq(chosen.have | bit)
                with m.If((facts.ends & mine).any()):
                    m.d.sync += [chosen.ready.eq(1), chosen.expired.eq(0)]
                    self._ring(m, piece.qp, piece.mark.position + 1)
            with m.Elif(mine.any() | facts.room):
                m.d.comb += [done.eq(1), store.write.eq(1), counts.replaced.eq(mine.any())]
                m.d.sync += [
                    chosen.eq(0),
                    chosen.used.eq(1),
                    chosen.qp.eq(piece.qp),
                    chosen.position.eq(piece.mark.position),
                    chosen.head.eq(piece.mark.head),
                    chosen.length.eq(piece.mark.length),
                    chosen.have.eq(bit),
                ]
            with m.Else():
                m.d.comb += waits.eq(1)
                self._give_up(m, pushes, victim)
        late = Cat(one.used & one.expired for one in pushes)
        with m.If(~acts & ~busy & ~self.ring.valid & late.any()):
            m.d.comb += counts.incomplete.eq(1)
            for n, one in enumerate(pushes):
                with m.If(late[n] & ~late[:n].any()):
                    self._ring(m, one.qp)
                    m.d.sync += one.used.eq(0)
        return waits

    def _give_up(self, m: Module, pushes: list, victim: Signal) -> None:
        """There is no room: another push is given up, if it is not taken; the piece waits."""
        m.d.sync += victim.eq(victim + 1)
        one = Array(pushes)[victim]
        with m.If(~one.taken):
            m.d.sync += one.used.eq(0)
            m.d.comb += self.counts.replaced.eq(1)
            with m.If(~one.ready):
                self._ring(m, one.qp)

    def _give(self, m: Module, platform, pushes: list) -> None:
        """What is asked for."""
        port = self.port
        for n, one in enumerate(pushes):
            mine = one.used & ~one.taken & (one.qp == port.qp)
            hit = mine & one.ready & (one.position == port.position)
            with m.If(hit):
                m.d.comb += [
                    port.hit.eq(1),
                    port.entry.eq(n),
                    port.head.eq(one.head),
                    port.length.eq(one.length),
                ]
            with m.If(port.ask & mine & one.ready):
                m.d.comb += [
                    self.counts.late.eq(~hit),
                    self.counts.behind.eq(hit & ~port.take),
                ]
                m.d.sync += [one.taken.eq(hit & port.take), one.used.eq(hit & port.take)]
            back = port.release & (port.released == n)
            unfit = port.unfit & (port.unfit_entry == n)
            with m.If(back | unfit):
                text = "who gives a push back has taken it"
                require(m, platform, one.used & one.taken, text)
                m.d.sync += [one.used.eq(0), one.taken.eq(0)]
            with m.If(port.forget):
                m.d.sync += one.expired.eq(one.used & ~one.ready)
                with m.If(one.ready & ~one.taken):
                    m.d.sync += one.used.eq(0)
        m.d.comb += [
            self.counts.unfit.eq(port.unfit),
            self.counts.taken.eq(port.release),
        ]
