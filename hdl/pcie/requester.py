"""The card's requests on AMD's block (RQ)."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.skid import Skid

from .bus import packet_beat
from .descriptors import WIDTH, rq_user
from .requests import request_beat

__all__ = ["HEAD", "Requester"]

#: Words of a request's descriptor.
HEAD = 4
#: What the block calls the upper half of a beat, where a packet begins.
UPPER = 2


class Requester(wiring.Component):
    """Puts descriptors before the requests of ``Requests``, in the words that these leave free.

    Members: ``i``: requests; ``rq``: the block's stream, with straddle: a request begins with the
    lower or the upper half of a beat, and ``keep`` and ``last`` mean nothing.
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
        beat, packet, user = self.i.payload, out.i.payload, out.i.payload.user
        head = beat.side.head.as_value()
        upper = WIDTH // 2
        m.d.comb += [
            out.i.valid.eq(self.i.valid),
            self.i.ready.eq(out.i.ready),
            packet.data.eq(beat.data),
            packet.keep.eq(~0),
            packet.last.eq(beat.last),
            user.first_be.eq(beat.side.first_be),
            user.last_be.eq(beat.side.last_be),
            user.sop.eq(beat.first),
            user.sop_ptr.eq(Mux(beat.tail, UPPER, 0)),
            user.eop.eq(Cat(beat.last | beat.tail, beat.last & beat.tail)),
            user.eop_ptr.eq(Cat(Mux(beat.tail, beat.before.end, beat.side.end), beat.side.end)),
            user.seq_num0.eq(beat.side.sequence.number),
        ]
        with m.If(beat.tail):
            m.d.comb += packet.data[upper : upper + len(head)].eq(head)
        with m.Elif(beat.first):
            m.d.comb += packet.data[: len(head)].eq(head)
        wiring.connect(m, out.o, wiring.flipped(self.rq))
        return m
