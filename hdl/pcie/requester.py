"""The card's requests on AMD's block (RQ)."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.shift import keep_mask
from hdl.common.skid import Skid

from .bus import packet_beat
from .descriptors import rq_user
from .requests import WORDS, request_beat

__all__ = ["HEAD", "Requester"]

#: Words of a request's descriptor.
HEAD = 4


class Requester(wiring.Component):
    """Puts descriptors before the requests of ``Requests``, in the words that these leave free.

    Members: ``i``: requests; ``rq``: the block's stream, without straddle.
    Latency: 1 cycle. Throughput: a beat of RQ a cycle; a descriptor takes 16 bytes of these.
    Errors: none. Reset: empty. Source: PG213, "Requester Interface".
    """

    def __init__(self):
        super().__init__(
            {
                "i": In(stream.Signature(request_beat())),
                "rq": Out(stream.Signature(packet_beat(rq_user()))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.out = out = Skid(shape=packet_beat(rq_user()))
        beat, packet = self.i.payload, out.i.payload
        head = beat.side.head.as_value()
        m.d.comb += [
            out.i.valid.eq(self.i.valid),
            self.i.ready.eq(out.i.ready),
            packet.data.eq(
                Cat(Mux(beat.first, head, beat.data[: len(head)]), beat.data[len(head) :])
            ),
            packet.keep.eq(Mux(beat.last, keep_mask(beat.side.end, WORDS) << 1 | 1, ~0)),
            packet.last.eq(beat.last),
            packet.user.first_be.eq(beat.side.first_be),
            packet.user.last_be.eq(beat.side.last_be),
            packet.user.sop.eq(beat.first),
            packet.user.eop.eq(beat.last),
            packet.user.eop_ptr.eq(beat.side.end),
            packet.user.seq_num0.eq(beat.side.sequence),
        ]
        wiring.connect(m, out.o, wiring.flipped(self.rq))
        return m
