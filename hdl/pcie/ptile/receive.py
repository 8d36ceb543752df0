"""P-Tile's receive stream: packets of one segment or more become packets of whole beats."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import Out

from hdl.common.fifo import StreamFifo
from hdl.common.skid import Skid
from hdl.pcie.descriptors import WIDTH

from .bus import RX_LATENCY, SEGMENT, SEGMENTS, stream_pins
from .tlp import HEADER_BITS

__all__ = ["Receive", "received"]

#: Beats that are held, and those that still come when ready is taken back.
DEPTH = 64
ROOM = RX_LATENCY + 5


def received() -> data.StructLayout:
    """A beat of one packet, which begins in lane 0. ``header``, ``bar``, ``function``: on
    ``first``; ``abort``: the packet is no good."""
    return data.StructLayout(
        {
            "data": WIDTH, "header": HEADER_BITS, "bar": 3, "function": 3, "abort": 1, "first": 1,
            "last": 1,
        }
    )  # fmt: skip


def segment() -> data.StructLayout:
    """A segment of a beat."""
    return data.StructLayout(
        {
            "data": SEGMENT, "header": HEADER_BITS, "bar": 3, "function": 3, "abort": 1, "sop": 1,
            "eop": 1, "valid": 1,
        }
    )  # fmt: skip


class Receive(wiring.Component):
    """Holds what comes after ready is taken back, and gives each beat to one packet.

    Two packets may share a beat of P-Tile: one ends in its lower half, the next begins in the upper
    one. The segments of a packet are then joined anew, so that it begins in lane 0.

    Members: ``rx_st_*``: the block's pins; ``o``: packets.
    Latency: 4 cycles, 5 for a packet that begins in the upper half. Throughput: a beat a cycle; a
    packet with an odd number of segments takes half a beat more.
    Errors: a segment outside of a packet is taken for one. Reset: empty.
    Source: UG683059, "Avalon-ST RX Interface".
    """

    def __init__(self):
        pins = {name: pin for name, pin in stream_pins().items() if name.startswith("rx_")}
        super().__init__({**pins, "o": Out(stream.Signature(received()))})

    def elaborate(self, platform):
        m = Module()
        beat = data.ArrayLayout(segment(), SEGMENTS)
        m.submodules.fifo = fifo = StreamFifo(shape=beat, depth=DEPTH)
        m.submodules.out = out = Skid(shape=received())
        arrived = Signal(beat, reset_less=True)
        m.d.comb += fifo.i.payload.eq(arrived)
        m.d.sync += [
            self.rx_st_ready.eq(fifo.level < DEPTH - ROOM),
            fifo.i.valid.eq(self.rx_st_valid.any()),
        ]
        for n in range(SEGMENTS):
            one = arrived[n]
            m.d.sync += [
                one.data.eq(self.rx_st_data.word_select(n, SEGMENT)),
                one.header.eq(self.rx_st_hdr.word_select(n, HEADER_BITS)),
                one.bar.eq(self.rx_st_bar_range.word_select(n, 3)),
                one.function.eq(self.rx_st_func_num.word_select(n, 3)),
                one.abort.eq(self.rx_st_tlp_abort[n]),
                one.sop.eq(self.rx_st_sop[n]),
                one.eop.eq(self.rx_st_eop[n]),
                one.valid.eq(self.rx_st_valid[n]),
            ]
        self._pack(m, fifo.o, out.i)
        wiring.connect(m, out.o, wiring.flipped(self.o))
        return m

    def _pack(self, m: Module, beats, packets) -> None:
        """Beats of one packet, of a segment that is held and those of a beat."""
        held, holds = Signal(segment(), reset_less=True), Signal()
        upper = Signal()  # the lower half of the beat has been used
        low, high = beats.payload[0], beats.payload[1]
        begins, ends = Signal(segment()), Signal(segment())  # the first segment, the last
        takes_low, takes_high = Signal(), Signal()
        has_low, whole = Signal(), Signal()
        m.d.comb += [
            has_low.eq(low.valid & ~upper),
            # The lower half goes alone, or behind the held one: then the upper half is left.
            takes_low.eq(has_low & (holds | low.eop)),
            whole.eq(has_low & ~takes_low),
            takes_high.eq(whole | (~has_low & high.eop)),
            begins.eq(Mux(holds, held, Mux(has_low, low, high))),
            ends.eq(Mux(takes_low, low, high)),
        ]
        left, keeps, gives, moves = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            left.eq(takes_low & high.valid & high.eop),  # a packet ends in it: a beat of its own
            keeps.eq(high.valid & ~high.eop & ~whole),
            gives.eq(beats.valid & (takes_low | takes_high)),
            packets.valid.eq(gives),
            moves.eq(beats.valid & (packets.ready | ~gives)),
            beats.ready.eq(moves & ~left),
            packets.p.data[:SEGMENT].eq(begins.data),
            packets.p.data[SEGMENT:].eq(Mux(takes_low, low.data, high.data)),
            packets.p.header.eq(begins.header),
            packets.p.bar.eq(begins.bar),
            packets.p.function.eq(begins.function),
            packets.p.abort.eq(begins.abort | ends.abort),
            packets.p.first.eq(begins.sop),
            packets.p.last.eq(ends.eop),
        ]
        with m.If(moves):
            m.d.sync += [upper.eq(left), holds.eq(keeps & ~left)]
            with m.If(keeps):
                m.d.sync += held.eq(high)
