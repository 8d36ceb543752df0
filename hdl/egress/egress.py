"""From rows and payload to frames for the MAC."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.contract import keeps_offers, require
from hdl.common.count import BYTES, COUNT, increment
from hdl.common.packet import packet_beat, packet_stream
from hdl.common.skid import Skid
from hdl.common.streams import passes
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.headers import Departure, GidRow, TxHeader
from hdl.ports.latency import PACKET_KEY, packet_key

from .builder import HeaderBuilder
from .lanes import HeaderLanes
from .merge import Merge
from .seal import Seal

__all__ = ["Egress", "EgressCounters"]

#: Beats between ``Merge`` and the MAC: more than the pipeline holds, so the MAC never starves.
QUEUE = 32


class EgressCounters(data.Struct):
    """Frames built without and with ``error``; bytes of the good ones without FCS."""

    packets: COUNT
    bytes: BYTES
    errors: COUNT


class Egress(wiring.Component):
    """Builds the headers, joins them with the payload, adds pad and ICRC.

    Spec: RoCE v2 (IBTA Annex A17); the parts name their own.
    Parameters: config (width).
    Members: ``header`` one row per packet; ``answer`` likewise, of packets without payload that may
    pass those; ``payload`` one packet for each row with ``length`` > 0;
    ``gid`` reads the GID table; ``mac_address`` (raw bytes); ``o`` frames without FCS, at least 60
    bytes; ``sent``: pulse, a packet whose sender wants to be told is on its way, and needs its
    payload no more; ``spoiled`` then: its frame is, by one of the errors below; ``departed``: a
    packet of which something is to be noted is on its way, spoiled or not; ``enters`` with
    ``entering``: a header begins to be built, and its ``packet_key``; ``counters``.
    Latency: 20 cycles from ``header`` to the first beat.
    Throughput: one beat per cycle, frames back to back, at every length.
    Waits: a frame waits for its payload, also in its middle.
    Errors: ``error`` of the payload, an invalid GID row or an opcode that is not sent: the
    frame's last beat has ``error``, its ICRC is wrong; counted in ``errors``. Reset: empty; a frame
    may be cut (``TxGuard``).
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "header": In(stream.Signature(TxHeader)),
                "answer": In(stream.Signature(TxHeader)),
                "payload": In(packet_stream(config.width)),
                "gid": Out(TableRead(8, GidRow)),
                "mac_address": In(48),
                "o": Out(packet_stream(config.width)),
                "sent": Out(1),
                "spoiled": Out(1),
                "departed": Out(stream.Signature(Departure, always_ready=True)),
                "enters": Out(1),
                "entering": Out(PACKET_KEY),
                "counters": Out(EgressCounters),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = self._config.width
        m.submodules.payload_skid = payload_skid = Skid(shape=packet_beat(width))
        m.submodules.builder = builder = HeaderBuilder(config=self._config)
        m.submodules.merge = merge = Merge(config=self._config)
        m.submodules.seal = seal = Seal(width=width, depth=QUEUE)
        m.submodules.lanes = lanes = HeaderLanes(config=self._config)
        connect(m, flipped(self.header), lanes.header)
        connect(m, flipped(self.answer), lanes.answer)
        connect(m, lanes.o, builder.i)
        connect(m, flipped(self.payload), payload_skid.i)
        connect(m, payload_skid.o, merge.payload)
        connect(m, builder.o, merge.heads)
        connect(m, builder.gid, flipped(self.gid))
        connect(m, builder.headers, merge.headers)
        connect(m, seal.o, flipped(self.o))
        connect(m, merge.departed, flipped(self.departed))
        m.d.comb += [
            builder.mac_address.eq(self.mac_address),
            lanes.stepped.eq(passes(merge.payload)),
            self.enters.eq(passes(lanes.o)),
            self.entering.eq(packet_key(lanes.o.payload)),
            self.sent.eq(merge.sent),
            self.spoiled.eq(merge.spoiled),
            seal.valid.eq(merge.o_valid),
            seal.i.eq(merge.o),
        ]

        # A beat starts only when the FIFO has a place for it, so nothing behind it ever stalls.
        credit = Signal(range(QUEUE + 1), init=QUEUE)
        left = Signal()
        m.d.comb += [merge.go.eq(credit != 0), left.eq(self.o.valid & self.o.ready)]
        with m.If(merge.stepped != left):  # which come late
            m.d.sync += credit.eq(Mux(left, credit + 1, credit - 1))
        text = "no beat is begun for which the FIFO has no place, and none leaves twice"
        lasts = Mux(left, credit != QUEUE, credit != 0)
        require(m, platform, lasts | (merge.stepped == left), text)

        counters, done = self.counters, merge.o_valid & merge.o.last
        with m.If(done & merge.o.error):
            increment(m, counters.errors)
        with m.Elif(done):
            increment(m, counters.packets)
            m.d.sync += counters.bytes.eq(counters.bytes + merge.o.frame)
        keeps_offers(m, platform, self)
        return m
