"""Puts the GRH area of a datagram in front of its payload."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_rdma import GRH_SIZE
from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_beat, packet_stream
from hdl.common.ram import BLOCK_ROWS
from hdl.common.skid import Stage
from hdl.ports.headers import RxHeader
from hdl.wire.constants import IP_PROTOCOL_UDP
from hdl.wire.headers import DETH, IPV4
from hdl.wire.opcodes import ROCE_OPCODES

from .rows import KEPT, atomic_or_gid, expanded, reth_or_ip

__all__ = ["DATAGRAMS", "GrhJoin", "grh_area"]

#: Opcodes of datagrams.
DATAGRAMS = tuple(code for code, row in ROCE_OPCODES.items() if DETH in row.headers)


class _Plan(data.Struct):
    """A packet whose header has been taken."""

    datagram: 1
    empty: 1  # it has no payload
    area: 8 * GRH_SIZE


def grh_area(kept) -> Cat:
    """The GRH area from a datagram's row of ``KEPT``: its IPv6, or zeros and its IPv4 header.

    What a row has no field for lies in those of other headers."""
    ip, destination = reth_or_ip(kept), atomic_or_gid(kept).gid
    ipv4 = Cat(
        Const(0, 8 * (GRH_SIZE - IPV4.size)),
        Const(4 << 4 | IPV4.size // 4, 8),
        kept.traffic_class,
        ip.ipv4.middle,
        kept.hop_limit,
        Const(IP_PROTOCOL_UDP, 8),
        ip.ipv4.checksum,
        kept.src_gid[96:],
        destination[96:],
    )
    return Mux(kept.ipv6, Cat(ip.ipv6, kept.src_gid, destination), ipv4)


class GrhJoin(wiring.Component):
    """Delivers headers, and payload of which that of a datagram begins with its GRH area.

    Spec: virtio-rdma VR-5.23; IBTA Annex A17, A17.4.5.2.
    Members: ``kept``, ``payload`` In: rows and payload of good packets; ``header``, ``o`` Out: the
    same, where ``length`` of a datagram counts the area. A packet's payload leaves when its header
    has been taken.
    Latency: none for the header, 4 cycles from it to the payload, 1 from payload to ``o``.
    Throughput: one beat per cycle, one packet per cycle; a datagram has the beats of its area more.
    Errors: none. Reset: empty.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "kept": In(stream.Signature(KEPT)),
                "payload": In(packet_stream(width)),
                "header": Out(stream.Signature(RxHeader)),
                "o": Out(packet_stream(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.plans = plans = StreamFifo(shape=_Plan, depth=BLOCK_ROWS)
        # The output of a block RAM settles late.
        m.submodules.next = following = Stage(shape=_Plan)
        connect(m, plans.o, following.i)
        m.submodules.out = out = Stage(shape=packet_beat(self._width))
        connect(m, out.o, flipped(self.o))
        kept, empty = self.kept.payload, Signal()
        plan = plans.i.payload
        m.d.comb += [
            empty.eq(kept.length == 0),
            *expanded(self.header.payload, kept),
            self.header.payload.length.eq(kept.total),
            self.header.valid.eq(self.kept.valid & plans.i.ready),
            self.kept.ready.eq(self.header.ready & plans.i.ready),
            plans.i.valid.eq(self.kept.valid & self.header.ready & (kept.datagram | ~empty)),
            plan.datagram.eq(kept.datagram),
            plan.empty.eq(empty),
            plan.area.eq(grh_area(kept)),
        ]
        self._join(m, following.o, out.i)
        return m

    def _join(self, m: Module, plans, out) -> None:
        """One beat after the other: of the area, of both, of payload behind it."""
        size = self._width // 8
        whole, tail = divmod(GRH_SIZE, size)  # beats of the area alone, bytes that share one
        room = size - tail
        plan, beat, payload = plans.payload, out.payload, self.payload.payload
        number = Signal(range(whole + 2))  # beats of the area alone that have left, and 1 behind
        spare = Signal(max(1, 8 * tail), reset_less=True)  # payload that the next beat begins with
        spare_keep, flushing, first = Signal(max(1, tail)), Signal(), Signal(init=1)
        in_area, behind, ends, taken = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            in_area.eq(plan.datagram & (number < whole)),
            behind.eq(number > whole),
            taken.eq(out.valid & out.ready),
            plans.ready.eq(taken & ends),
            beat.first.eq(first),
            beat.last.eq(ends),
            beat.error.eq(payload.error & self.payload.ready),
        ]
        alone = plan.datagram & (in_area | plan.empty | flushing)  # needs no payload
        before = Mux(behind, spare, plan.area[8 * (GRH_SIZE - tail) :]) if tail else Const(0, 0)
        joined = Cat(before, payload.data[: 8 * room])
        m.d.comb += [
            out.valid.eq(plans.valid & (alone | self.payload.valid)),
            self.payload.ready.eq(plans.valid & ~alone & out.ready),
            beat.data.eq(Mux(plan.datagram, joined, payload.data)),
            beat.keep.eq(payload.keep),
            ends.eq(payload.last),
        ]
        with m.If(in_area):
            beats = Cat(plan.area, Const(0, 8 * size * (whole + 1) - 8 * GRH_SIZE))
            m.d.comb += [
                beat.data.eq(beats.word_select(number, self._width)),
                beat.keep.eq(~0),
                ends.eq(plan.empty & (number == whole - 1) & (tail == 0)),
            ]
        with m.Elif(plan.datagram & (plan.empty | flushing)):
            keep = Mux(flushing, spare_keep, Const((1 << tail) - 1, max(1, tail)))
            m.d.comb += [beat.keep.eq(keep), ends.eq(1)]
        with m.Elif(plan.datagram):
            more = payload.keep[room] if tail else Const(0, 1)
            m.d.comb += [
                beat.keep.eq(Cat(Const((1 << tail) - 1, tail), payload.keep[:room])),
                ends.eq(payload.last & ~more),
            ]
        with m.If(taken):
            m.d.sync += first.eq(ends)
            with m.If(number != whole + 1):
                m.d.sync += number.eq(number + 1)
            with m.If(ends | ~plan.datagram):
                m.d.sync += number.eq(0)
            m.d.sync += flushing.eq(plan.datagram & ~alone & payload.last & ~ends)
            if tail:
                m.d.sync += [
                    spare.eq(payload.data[8 * room :]),
                    spare_keep.eq(payload.keep[room:]),
                ]
