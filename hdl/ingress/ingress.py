"""From MAC beats to parsed and checked packets."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.abi.virtio_rdma import GRH_SIZE
from hdl.common.address import folded
from hdl.common.checksum import BeatSum
from hdl.common.contract import keeps_offers
from hdl.common.count import increment
from hdl.common.delay import Delay, delayed
from hdl.common.packet import packet_stream
from hdl.common.ram import WIDE_BITS
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.counter_names import DROP_REASONS
from hdl.ports.headers import GidRow, GroupAddress, GroupRow, PkeyRow, RxHeader
from hdl.ports.latency import ReceiveSteps
from hdl.ports.operations import early_facts
from hdl.ports.shared import in_va
from hdl.ports.trace import Verdict

from .buffer import ReceiveBuffer
from .checks import IcrcCheck, UdpSum
from .collector import LENGTH_BITS, HeaderCollector, header_beats
from .counters import Cause, IngressCounters
from .decoder import Decoder
from .grh import DATAGRAMS, GrhJoin
from .parser import HeaderChecks, HeaderParser
from .partition import PartitionMatch
from .realign import Realign
from .replicator import Replicator
from .rows import KEPT, expanded

__all__ = ["Ingress"]

#: Cycles from a beat in the collector to the decision about the packet that it ends.
DECISION = Decoder.LATENCY + UdpSum.LATENCY + 1
#: Most beats that are accepted but not yet in the buffer when ``ready`` falls, with a margin.
RESERVE = DECISION + 8


#: Bytes of buffer for each packet that it can list. 10 us of acknowledgements at 100 Gb/s are
#: 1,488 packets, and the transport takes one in 11 cycles.
BYTES_A_PACKET = 128


class Ingress(wiring.Component):
    """Parses frames, checks them, strips the headers and delivers payload of good packets.

    Spec: RoCE v2 (IBTA Annex A17); IBTA vol 1, 9.6; RFC 791, 8200, 768; docs/ingress.md lists
    the checks, their order and the counter of each.
    Parameters: config (width, gids, receive_bytes).
    Members: ``i`` frames without FCS, ``error`` on the last beat = bad frame; ``gids`` the GID
    table; ``pkeys``: the P_Key tables; ``mac_address`` (raw bytes): frames to any other are
    dropped, but for those to ``groups``; ``group_rows``: reads who their members are;
    ``lossless``: hold ``i`` back instead of dropping when the buffer fills; ``header``,
    ``payload``: one row per good packet, and its payload as a packet unless empty (the two streams
    do not wait for each other, but between the copies of a datagram to a group); ``counters``;
    ``verdict``: what has been decided about each frame, in order, for a trace or for the network
    function; ``steps``: what happens to packets with payload, ``kept`` ``KEPT_LATENCY`` cycles
    after a frame's last beat.
    Latency: 16 cycles from a frame's last beat to its ``header``, 18 to its payload.
    Throughput: one beat per cycle, one packet per cycle, at every length. Without ``lossless``
    ``i`` is never held back.
    Errors: every packet not delivered is counted under one cause. Reset: empty, counters 0; a frame
    must start at its first beat (``RxGuard``).
    """

    KEPT_LATENCY = HeaderCollector.LATENCY + DECISION

    def __init__(self, *, config: NicConfig):
        self._config = config
        width = config.width
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "gids": In(data.ArrayLayout(GidRow, config.gids)),
                "pkeys": Out(TableRead(8, PkeyRow)),
                "groups": In(data.ArrayLayout(GroupAddress, config.groups)),
                "group_rows": Out(TableRead(8, GroupRow)),
                "mac_address": In(48),
                "lossless": In(1),
                "header": Out(stream.Signature(RxHeader)),
                "payload": Out(packet_stream(width)),
                "counters": Out(IngressCounters),
            }
            | ({"verdict": Out(Verdict)} if config.trace_frames or config.network else {})
            | ({"steps": Out(ReceiveSteps)} if config.latency else {})
        )

    def elaborate(self, platform):
        m = Module()
        width = self._config.width
        depth = self._config.receive_bytes // self._config.bytes_per_beat
        m.submodules.collector = collector = HeaderCollector(config=self._config)
        m.submodules.decoder = decoder = Decoder(config=self._config)
        m.submodules.icrc = icrc = IcrcCheck(width=width)
        m.submodules.udp = udp = UdpSum(width=width)
        m.submodules.parser = parser = HeaderParser(
            bits=header_beats(self._config) * width, config=self._config
        )
        m.submodules.realign = realign = Realign(width=width)
        m.submodules.buffer = buffer = ReceiveBuffer(
            width=width,
            depth=depth,
            packets=self._config.receive_bytes // BYTES_A_PACKET,
            reserve=RESERVE,
            multicast=self._config.multicast,
            watched=self._config.latency,
        )
        if self._config.latency:
            m.d.comb += self.steps.eq(buffer.steps)

        # The pipeline never stalls; only its input can be held back.
        # During a reset, beats are taken and lost.
        ready = Signal(init=1)
        m.d.sync += ready.eq(buffer.room | ~self.lossless)
        m.d.comb += [
            self.i.ready.eq(ready),
            collector.valid.eq(self.i.valid & self.i.ready),
            collector.beat.eq(self.i.payload),
            decoder.i_valid.eq(collector.o_valid),
            decoder.i.eq(collector.o),
            icrc.valid.eq(decoder.o_valid),
            icrc.i.eq(decoder.o),
            udp.valid.eq(decoder.o_valid),
            udp.i.eq(decoder.o),
            parser.gids.eq(self.gids),
            parser.groups.eq(self.groups),
            parser.mac_address.eq(self.mac_address),
            parser.headers.eq(collector.o.headers),
            parser.frame_length.eq(self._frame_length(m, collector.o)),
        ]

        # Payload: realigned so that a packet's last beat is written when the decision falls.
        wait = DECISION - 1 - Realign.LATENCY
        wide = width >= WIDE_BITS
        m.submodules.beats = beats = Delay(shape=width, cycles=wait, block=wide)
        later = wait - Decoder.PLAN_LATENCY
        valid = Signal(later)
        m.d.sync += valid.eq(valid << 1 | decoder.plan_valid)
        m.d.comb += [
            beats.i.eq(collector.o.beat.data),
            beats.i_valid.eq(collector.o_valid),
            realign.valid.eq(valid[-1]),
            realign.data.eq(beats.o),
            Value.cast(realign.plan).eq(delayed(m, Value.cast(decoder.plan), later, name="plan")),
            buffer.write.eq(realign.o_valid),
            buffer.data.eq(realign.o),
        ]

        # The row, as old as the decision.
        ends = Signal(DECISION)
        m.d.sync += ends.eq(ends << 1 | (collector.o_valid & collector.o.beat.last))
        parsed, laid_out = HeaderParser.LATENCY, HeaderParser.ROW_LATENCY
        bounded = Decoder.PLAN_LATENCY
        m.submodules.rows = rows = Delay(shape=KEPT, cycles=DECISION - laid_out, block=wide)
        late = {
            "gid_index": (parser.gid_index, parsed),
            "function": (parser.function, parsed),
            "length": (decoder.bounds.length, bounded),
            **self._told(parser.o.opcode, laid_out),
        }
        late = {
            name: delayed(m, value, DECISION - stage, name=name)
            for name, (value, stage) in late.items()
        }
        late["total"] = late["length"] + Mux(late["datagram"], GRH_SIZE, 0)
        if self._config.multicast:
            to_group = delayed(m, parser.multicast, DECISION - parsed, name="multicast")
            found = delayed(m, parser.found.as_value(), DECISION - parsed, name="found")
            late["multicast"] = to_group
            late["dest_qp"] = Mux(to_group, found, rows.o.dest_qp)
        m.d.comb += [
            rows.i.eq(parser.o),
            rows.i_valid.eq(ends[laid_out - 1]),
            buffer.row.eq(rows.o),
            *(buffer.row[name].eq(value) for name, value in late.items()),
            udp.pseudo.eq(
                delayed(
                    m,
                    parser.udp_pseudo,
                    Decoder.LATENCY + BeatSum.LATENCY - parsed,
                    name="pseudo",
                )
            ),
        ]

        # The decision: of all checks that fail, the first in order counts.
        conditions = self._conditions(m, parser, decoder, icrc, udp, collector)
        failed = Cat(condition for _, condition in conditions)
        first = [failed[n] & ~failed[:n].any() for n in range(len(failed))]
        causes = Signal(len(Cause), reset_less=True)
        good = Signal(reset_less=True)
        m.d.sync += good.eq(~failed.any())
        for cause in Cause:
            ours = [n for n, (of, _) in enumerate(conditions) if of is cause]
            m.d.sync += causes[cause.value].eq(Cat(first[n] for n in ours).any())
        end = Signal(17)
        m.d.comb += [
            buffer.finish.eq(ends[-1]),
            buffer.keep.eq(good),
            end.eq(delayed(m, decoder.bounds.end, DECISION - bounded, name="end")),
        ]
        if self._config.ud:
            self._partition(m, parser, late["datagram"], buffer.row)
        self._deliver(m, buffer)
        self._count(m, ends[-1], causes, good & buffer.full, good & ~buffer.full, end)
        keeps_offers(m, platform, self)
        return m

    def _told(self, opcode: Value, stage: int) -> dict[str, tuple[Value, int]]:
        """What the opcode says, as old as that."""
        codes = early_facts(self._config) | {"datagram": DATAGRAMS if self._config.ud else ()}
        return {name: (opcode.matches(*those), stage) for name, those in codes.items()}

    def _partition(self, m: Module, parser, datagram: Value, row) -> None:
        """Of a datagram what its CQE says of its P_Key and its priority."""
        m.submodules.partition = partition = PartitionMatch(config=self._config)
        connect(m, partition.table, flipped(self.pkeys))
        parsed, laid_out = HeaderParser.LATENCY, HeaderParser.ROW_LATENCY
        pkey = delayed(m, parser.o.pkey, parsed + 1 - laid_out, name="pkey")
        m.d.comb += [partition.pkey.eq(pkey), partition.function.eq(parser.function)]
        matched = DECISION - parsed - PartitionMatch.LATENCY
        late = {
            "priority": delayed(m, parser.priority, DECISION - laid_out, name="priority"),
            "pkey_hit": delayed(m, partition.hit, matched, name="pkey_hit"),
            "pkey_index": delayed(m, partition.index, matched, name="pkey_index"),
        }
        with m.If(datagram):
            m.d.comb += [in_va(row).deth[name].eq(value) for name, value in late.items()]

    def _deliver(self, m: Module, buffer) -> None:
        """Rows and payload, that of datagrams with its GRH area."""
        if self._config.ud:
            m.submodules.grh = grh = GrhJoin(width=self._config.width)
            kept = self._replicate(m, buffer) if self._config.multicast else buffer.header
            connect(m, kept, grh.kept)
            connect(m, buffer.payload, grh.payload)
            connect(m, grh.header, flipped(self.header))
            connect(m, grh.o, flipped(self.payload))
            return
        connect(m, buffer.payload, flipped(self.payload))
        m.d.comb += [
            self.header.valid.eq(buffer.header.valid),
            *expanded(self.header.payload, buffer.header.payload),
            buffer.header.ready.eq(self.header.ready),
            # Behind this a peer's address is a few bits, where the card has few.
            self.header.payload.va.eq(folded(self._config, buffer.header.payload.va)),
        ]

    def _replicate(self, m: Module, buffer):
        """Rows with those of multicast datagrams once for each member; their counters."""
        m.submodules.replicator = replicator = Replicator(config=self._config)
        connect(m, buffer.header, replicator.kept)
        connect(m, replicator.again, buffer.again)
        connect(m, replicator.table, flipped(self.group_rows))
        with m.If(replicator.copied):
            increment(m, self.counters.multicast_copies)
        with m.If(replicator.unclaimed):
            increment(m, self.counters.drops_unclaimed)
        return replicator.o

    def _frame_length(self, m: Module, now) -> Signal:
        """Bytes of the frame up to this beat, two cycles later."""
        size = self._config.bytes_per_beat
        lane_bits = ceil_log2(size)
        keep = now.beat.keep
        top = keep & ~(keep >> 1)  # keep is contiguous: one bit, the last byte's
        lane = Signal(lane_bits, reset_less=True)
        number = Signal.like(now.number, reset_less=True)
        length = Signal(LENGTH_BITS, reset_less=True, name="frame_length")
        m.d.sync += [
            lane.eq(
                Cat(
                    Cat(top[n] for n in range(size) if n >> bit & 1).any()
                    for bit in range(lane_bits)
                )
            ),
            number.eq(now.number),
            length.eq(Cat(lane, number) + 1),
        ]
        return length

    def _conditions(self, m, parser, decoder, icrc, udp, collector) -> list:
        """(cause, check failed) in the order in which checks count; a cycle before the decision."""
        now = DECISION - 1

        def since(value: Value, stage: int, name: str) -> Value:
            return delayed(m, Value.cast(value), now - stage, name=name)

        parsed = HeaderParser.LATENCY
        checks = data.View(HeaderChecks, since(parser.checks, parsed, "checks"))
        bad = since(decoder.bounds.bad, Decoder.PLAN_LATENCY, "bad")
        oversize = since(decoder.bounds.oversize, Decoder.PLAN_LATENCY, "oversize")
        summed = since(parser.udp_sum, parsed, "udp_sum")
        return [
            (Cause.FRAME, since(collector.o.beat.error, 0, "error")),
            (Cause.SHORT, checks.short_ethernet),
            (Cause.MAC, checks.mac),
            (Cause.MULTICAST, checks.multicast),
            (Cause.ETHERTYPE, checks.ethertype),
            (Cause.SHORT, checks.short_ip),
            (Cause.IP_HEADER, checks.ip_version),
            (Cause.IPV4_CHECKSUM, checks.ipv4_checksum),
            (Cause.IP_HEADER, checks.fragment),
            (Cause.IP_LENGTH, checks.ip_length),
            (Cause.SHORT, checks.short_packet),
            (Cause.NOT_ROCE, checks.protocol),
            (Cause.UDP_LENGTH, checks.udp_room),
            (Cause.NOT_ROCE, checks.port),
            (Cause.UDP_LENGTH, checks.udp_length),
            (Cause.UDP_CHECKSUM, summed & ~udp.ok),
            (Cause.LENGTH, checks.bth_room),
            (Cause.TVER, checks.tver),
            (Cause.OPCODE, checks.opcode),
            (Cause.LENGTH, bad),
            (Cause.OVERSIZE, oversize),
            (Cause.PKEY, checks.pkey),
            (Cause.ADDRESS, checks.address),
            (
                Cause.ICRC,
                ~since(icrc.ok, Decoder.LATENCY + IcrcCheck.LATENCY, "icrc_ok"),
            ),
            (Cause.CNP, since(parser.cnp, parsed, "cnp")),
        ]

    def _count(self, m: Module, ends, causes, full, good, end) -> None:
        """Counters, a cycle after the decision."""
        ended, delivered = Signal(), Signal()
        size = Signal(17, reset_less=True)
        hit = Signal(len(Cause), reset_less=True)
        if self._config.trace_frames or self._config.network:
            m.d.comb += self.verdict.valid.eq(ended)
            for cause in Cause:
                reason = DROP_REASONS.index(f"rx_drops_{cause.name.lower()}")
                m.d.comb += self.verdict.reasons[reason].eq(hit[cause.value])
        m.d.sync += [ended.eq(ends), delivered.eq(ends & good), size.eq(end)]
        m.d.sync += hit.eq(causes | full << Cause.BUFFER.value)
        counters = self.counters
        with m.If(delivered):
            increment(m, counters.packets)
            m.d.sync += counters.bytes.eq(counters.bytes + size)
        for cause in Cause:
            counter = getattr(counters, f"drops_{cause.name.lower()}")
            with m.If(ended & hit[cause.value]):
                increment(m, counter)
