"""The card's requests and completions on P-Tile's transmit stream."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require
from hdl.common.fifo import StreamFifo
from hdl.common.skid import Stage
from hdl.pcie.completer import MOST_READ, cc_beat
from hdl.pcie.descriptors import WIDTH
from hdl.pcie.requests import request_beat

from .bus import SEGMENT, TX_LATENCY, stream_pins
from .credits import Credits
from .tlp import HEADER_BITS, completion_header, identity, request_header

__all__ = ["Transmit"]

#: Beats that are held until a packet is whole: more than the longest one has.
DEPTH = 64
#: Units of data of the longest packet and of the longest completion: of 16 bytes.
UNITS, ANSWER_UNITS = 4096 // 16, -(-MOST_READ // 4)


def _beat() -> data.StructLayout:
    """A beat of a packet; ``units``: credits of data that its packet needs, if it is ``posted``."""
    return data.StructLayout(
        {
            "data": WIDTH, "header": HEADER_BITS, "units": range(UNITS + 1), "posted": 1,
            "upper": 1, "first": 1, "last": 1,
        }
    )  # fmt: skip


def _whole() -> data.StructLayout:
    """What a packet needs that is in line with its last beat."""
    return data.StructLayout({"posted": 1, "units": range(UNITS + 1)})


class Transmit(wiring.Component):
    """Sends packets one after the other, each from the lower half of a beat on.

    P-Tile wants a packet without a gap, so a packet waits until it is whole. It wants a credit of
    the link partner for each packet. Posted requests wait for theirs here, and what is behind them
    waits too, as it may not pass them. Completions wait before they are put in line, and reads
    before they become requests (``ReadsInFlight``), so neither ever holds a posted request.

    Members: ``requests``: of ``Requests``; ``completions``: of ``Completer``; ``who``: identity of
    the function of ``function`` Out; ``completer``: that of the completion's function, of
    ``completer_function`` Out; ``may_write`` In: ``function`` may use the bus; ``read_spends`` In:
    a read has been asked for; ``read_credit`` Out: one more may be; ``done`` Out: a write has been
    put in line, so no later completion passes it; ``lost`` Out: a pulse for each write that is
    dropped since its function may not use the bus; ``tx_*``: the block's pins.
    Latency: 8 cycles for a packet of one beat. Throughput: a beat a cycle; a packet, an answer and
    a read in every other cycle. Reset: empty.
    Errors: none. Source: UG683059, "Avalon-ST TX Interface" and "TX Flow Control Interface".
    """

    def __init__(self):
        pins = {name: pin for name, pin in stream_pins().items() if name.startswith("tx_")}
        super().__init__(
            {
                **pins,
                "requests": In(stream.Signature(request_beat())),
                "completions": In(stream.Signature(cc_beat())),
                "function": Out(8),
                "who": In(identity()),
                "may_write": In(1),
                "completer_function": Out(8),
                "completer": In(identity()),
                "read_credit": Out(1),
                "read_spends": In(1),
                "done": Out(1),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = StreamFifo(shape=_beat(), depth=DEPTH)
        line = self._line(m, platform)
        wiring.connect(m, line.o, fifo.i)
        m.submodules.wholes = wholes = StreamFifo(shape=_whole(), depth=DEPTH)
        m.d.comb += [
            # A packet is at least a beat, so there is always room.
            wholes.i.valid.eq(fifo.i.valid & fifo.i.ready & fifo.i.p.last),
            wholes.i.p.posted.eq(fifo.i.p.posted),
            wholes.i.p.units.eq(fifo.i.p.units),
        ]
        self._send(m, fifo.o, self._grants(m, wholes.o))
        return m

    def _credits(self, m: Module, name: str, *, index: int, bits: int, most: int) -> Credits:
        """Credits of one kind, joined to the pins."""
        credits = Credits(index=index, bits=bits, most=most)
        m.submodules[name] = credits
        m.d.comb += [
            credits.limit.eq(self.tx_cdts_limit),
            credits.index.eq(self.tx_cdts_limit_tdm_idx),
        ]
        return credits

    def _line(self, m: Module, platform) -> Stage:
        """Requests and completions as one stream of beats with headers."""
        m.submodules.line = line = Stage(shape=_beat())
        kinds = {
            "completion_heads": (2, 12, 1),
            "completion_units": (6, 16, ANSWER_UNITS),
            "reads": (1, 12, 1),
        }
        heads, units, reads = (
            self._credits(m, name, index=index, bits=bits, most=most)
            for name, (index, bits, most) in kinds.items()
        )
        m.d.comb += [
            reads.need.eq(1),
            reads.asks.eq(1),
            reads.spend.eq(self.read_spends),
            self.read_credit.eq(reads.enough),
        ]
        beat, answer = self.requests.payload, self.completions.payload
        side, inside, drops, dropping = beat.side, Signal(), Signal(), Signal()
        done = answer.head
        write = side.sequence.write
        # A completion is sent; it is its second beat's turn; it needs a second beat.
        answers, later, longer = Signal(), Signal(), Signal()
        m.d.comb += [
            self.function.eq(side.head.requester),
            self.completer_function.eq(done.function),
            drops.eq(Mux(beat.first, write & ~self.may_write, dropping)),
            heads.need.eq(1),
            heads.asks.eq(self.completions.valid & ~later),
            units.need.eq((done.words + 3) >> 2),
            units.asks.eq(self.completions.valid & ~later),
            longer.eq((done.words > WIDTH // 32) & ~later),
            # One that has enough waits since the cycle before.
            answers.eq(later | (~inside & heads.enough & units.enough)),
            heads.spend.eq(answers & line.i.ready & ~later),
            units.spend.eq(answers & line.i.ready & ~later),
            self.completions.ready.eq(answers & line.i.ready & ~longer),
            self.requests.ready.eq(~answers & line.i.ready),
            line.i.valid.eq(answers | (self.requests.valid & ~drops)),
        ]
        require(m, platform, ~answers | self.completions.valid, "a completion has its credits")
        taken = self.requests.valid & self.requests.ready
        m.d.comb += [
            self.done.eq(taken & beat.last & write),
            self.lost.eq(taken & beat.first & drops),
        ]
        with m.If(taken):
            m.d.sync += [inside.eq(~beat.last), dropping.eq(drops)]
        with m.If(answers & line.i.ready):
            m.d.sync += later.eq(longer)
        one = line.i.payload
        header = request_header(m, side, self.who).as_value()
        with m.If(answers):
            m.d.comb += [
                one.data.eq(Mux(later, answer.data[WIDTH:], answer.data[:WIDTH])),
                one.header.eq(completion_header(m, done, self.completer).as_value()),
                one.upper.eq((done.words > SEGMENT // 32) & ~later),
                one.first.eq(~later),
                one.last.eq(~longer),
            ]
        with m.Else():
            last_half = side.end >= SEGMENT // 32
            m.d.comb += [
                one.data.eq(beat.data),
                one.header.eq(header),
                one.units.eq((side.head.words + 3) >> 2),
                one.posted.eq(write),
                one.upper.eq(write & (~beat.last | last_half)),
                one.first.eq(beat.first),
                one.last.eq(beat.last),
            ]
        return line

    def _grants(self, m: Module, wholes) -> tuple[Signal, Signal]:
        """Count packets that are whole and have their credits, ahead of sending them; the other
        signal takes one."""
        heads = self._credits(m, "posted_heads", index=0, bits=12, most=1)
        units = self._credits(m, "posted_units", index=4, bits=16, most=UNITS)
        granted, starts = Signal(range(DEPTH + 1)), Signal()
        one, grants = wholes.payload, Signal()
        m.d.comb += [
            heads.need.eq(one.posted),
            units.need.eq(Mux(one.posted, one.units, 0)),
            heads.asks.eq(wholes.valid),
            units.asks.eq(wholes.valid),
            grants.eq(wholes.valid & heads.enough & units.enough),
            wholes.ready.eq(grants),
            heads.spend.eq(grants),
            units.spend.eq(grants),
        ]
        m.d.sync += granted.eq(granted + grants - starts)
        return granted, starts

    def _send(self, m: Module, beats, packets) -> None:
        """Put beats on the pins in the cycles that P-Tile has given; a packet has no gap."""
        beat, (granted, starts) = beats.payload, packets
        inside, goes, given = Signal(), Signal(), Signal(TX_LATENCY - 1)
        begins = Signal()  # a packet may begin
        m.d.sync += given.eq(Cat(self.tx_st_ready, given))
        m.d.comb += [
            begins.eq(granted != 0),
            goes.eq(beats.valid & given[-1] & (inside | begins)),
            beats.ready.eq(goes),
            starts.eq(goes & ~inside),
        ]
        with m.If(goes):
            m.d.sync += inside.eq(~beat.last)
        m.d.sync += [
            self.tx_st_valid.eq(Mux(goes, Cat(1, beat.upper), 0)),
            self.tx_st_sop.eq(beat.first),
            self.tx_st_eop.eq(Cat(beat.last & ~beat.upper, beat.last & beat.upper)),
            self.tx_st_data.eq(beat.data),
            self.tx_st_hdr.eq(beat.header),
        ]
