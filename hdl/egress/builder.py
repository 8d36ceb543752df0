"""``TxHeader`` -> all headers of the packet as bytes."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.checksum import WordSum
from hdl.common.delay import Delay
from hdl.common.fifo import StreamFifo
from hdl.common.ram import WIDE_BITS
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.headers import GidRow, TxHeader
from hdl.ports.shared import control_content, ex, in_va, sent_srq, wire_flush
from hdl.wire.constants import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_VLAN,
    ICRC_BYTES,
    IP_PROTOCOL_UDP,
    MIN_FRAME,
    ROCE_PORT,
    bth_offset,
)
from hdl.wire.gateware import build, swap
from hdl.wire.headers import (
    AETH,
    ATOMIC_ACK_ETH,
    ATOMIC_ETH,
    BTH,
    DETH,
    ETHERNET,
    FETH,
    IETH,
    IMM_DT,
    IPV4,
    IPV6,
    RETH,
    UDP,
    VLAN,
    XRCETH,
)

from .resolve import Resolve
from .rows import CONTENTS, extended_bytes, head, head_bytes, lengths, sent_opcodes

__all__ = ["HeaderBuilder"]

#: Headers built ahead of the packet being sent.
AHEAD = 16


class HeaderBuilder(wiring.Component):
    """Looks up the source GID, computes lengths and the IPv4 checksum, lays the bytes out.

    Spec: RFC 791 (DF set, identification 0 as RFC 6864, 4.1 allows), RFC 8200, RFC 768 (checksum
    0), IEEE 802.1Q, IBTA vol 1, 9.2 and 9.3 (MigReq 0).
    Members: ``i`` rows; ``gid`` reads the GID table; ``mac_address``; ``o`` see ``head``;
    ``headers``: the packets' headers as bytes; the user takes each after the packet's ``o``.
    Latency: 8 cycles to the FIFOs of ``AHEAD`` packets, 2 through them. Throughput: one packet per
    cycle. Errors: an invalid GID row or an opcode whose fields a ``TxHeader`` does not have mark
    the packet with ``error``. Reset: empty.
    """

    #: Cycles to the bytes, and to the checksum, which has a FIFO of its own.
    BUILT = Resolve.LATENCY + 1
    STAGES = Resolve.LATENCY + WordSum.LATENCY

    def __init__(self, *, config: NicConfig):
        self._config, self._width = config, config.width
        width = config.width
        super().__init__(
            {
                "i": In(stream.Signature(TxHeader)),
                "gid": Out(TableRead(8, GidRow)),
                "mac_address": In(48),
                "o": Out(stream.Signature(head(width))),
                "headers": Out(stream.Signature(8 * head_bytes(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        layout, ahead = lengths(self._width), min(AHEAD, self._config.packets_ahead)
        m.submodules.queue = queue = StreamFifo(shape=layout, depth=ahead)
        m.submodules.bytes_queue = bytes_queue = StreamFifo(
            shape=8 * head_bytes(self._config),
            depth=ahead,
            block=self._width >= WIDE_BITS and ahead > 1,
        )
        m.submodules.sums = sums = StreamFifo(shape=16, depth=ahead)
        valid = Signal(self.STAGES)
        credit = Signal(range(ahead + 1), init=ahead)
        take, done = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(credit != 0),
            take.eq(self.i.valid & self.i.ready),
            done.eq(self.headers.valid & self.headers.ready),
            queue.i.valid.eq(valid[self.BUILT - 1]),
            bytes_queue.i.valid.eq(valid[self.BUILT - 1]),
            sums.i.valid.eq(valid[-1]),
            # The checksum is the last to come.
            self.o.valid.eq(sums.o.valid),
            self.o.p.lengths.eq(queue.o.payload),
            self.o.p.checksum.eq(sums.o.payload),
            queue.o.ready.eq(sums.o.valid & self.o.ready),
            sums.o.ready.eq(self.o.ready),
        ]
        wiring.connect(m, bytes_queue.o, wiring.flipped(self.headers))
        m.d.sync += [valid.eq(valid << 1 | take), credit.eq(credit - take + done)]

        # 1 to 4: the GID row, lengths and the IPv4 header; 4 to 8: its checksum, for IPv4 only.
        job = self.i.payload
        m.submodules.resolve = resolve = Resolve(config=self._config)
        job3 = self._delayed(m, job, take, ahead)
        m.submodules.sum = header_sum = WordSum(words=IPV4.size // 2)
        wiring.connect(m, resolve.gid, wiring.flipped(self.gid))
        entry4 = resolve.o
        m.d.comb += [
            resolve.i.eq(job),
            header_sum.data.eq(entry4.ipv4),
            sums.i.payload.eq(~header_sum.sum),
        ]

        # 5: the bytes.
        job4 = Signal(TxHeader, reset_less=True)  # a block RAM's output is late
        m.d.sync += job4.eq(job3)
        ipv6_4 = build(
            IPV6,
            {
                "version": 6,
                "traffic_class": job4.av.traffic_class,
                "flow_label": job4.av.flow_label,
                "payload_length": entry4.segment,
                "next_header": IP_PROTOCOL_UDP,
                "hop_limit": job4.av.hop_limit,
                "source": swap(entry4.row.gid),
                "destination": swap(job4.av.dgid),
            },
        )
        # The headers in each of their four orders, of which one is chosen; likewise the lengths.
        transport = self._transport(m, job4, entry4.segment)
        addresses = Cat(job4.av.dmac, self.mac_address)
        assert ETHERNET.size == 14  # addresses and EtherType
        packet = Signal(8 * head_bytes(self._config), reset_less=True)
        base = Signal(7)  # headers to BTH
        before = Signal(7)  # those in front of UDP
        vlan4 = entry4.row.vlan_valid
        with m.Switch(Cat(vlan4, entry4.ipv6)):
            for vlan, v6 in ((0, 0), (1, 0), (0, 1), (1, 1)):
                kind = swap(Const(ETHERTYPE_IPV6 if v6 else ETHERTYPE_IPV4, 16))
                tag = build(
                    VLAN,
                    {"pcp": job4.av.sl, "vlan_id": entry4.row.vlan_id, "ethertype": swap(kind)},
                )
                link = Cat(swap(Const(ETHERTYPE_VLAN, 16)), tag) if vlan else kind
                size = bth_offset(vlan=bool(vlan), ipv6=bool(v6)) + BTH.size
                with m.Case(vlan | v6 << 1):
                    m.d.sync += packet.eq(
                        Cat(addresses, link, ipv6_4 if v6 else entry4.ipv4, transport)
                    )
                    m.d.comb += [base.eq(size), before.eq(size - UDP.size - BTH.size)]
        result = Signal(layout, reset_less=True)
        lane_bits = ceil_log2(self._width // 8)
        length = job4.length
        whole = Signal(14)  # with the ICRC
        short = whole < MIN_FRAME
        m.d.comb += whole.eq(before + entry4.segment)
        m.d.sync += [
            result.size.eq(base + entry4.extended),
            result.beats.eq(length[lane_bits:] + length[:lane_bits].any()),
            result.check.eq(whole - ICRC_BYTES),
            result.frame.eq(Mux(short, MIN_FRAME, whole)),
            result.last_beat.eq(Mux(short, MIN_FRAME - 1, whole - 1) >> lane_bits),
            result.vlan.eq(vlan4),
            result.ipv6.eq(entry4.ipv6),
            result.error.eq(entry4.error),
            result.told.eq(job4.told),
            result.departure.eq(job4.departure),
        ]
        m.d.comb += [queue.i.payload.eq(result), bytes_queue.i.payload.eq(packet)]
        return m

    @staticmethod
    def _delayed(m: Module, job, take: Signal, ahead: int):
        """A job that was taken, in its fourth cycle; the only one of its time stays longer."""
        if ahead == 1:
            held = Signal(TxHeader, reset_less=True)
            with m.If(take):
                m.d.sync += held.eq(job)
            return held
        m.submodules.jobs = jobs = Delay(shape=TxHeader, cycles=Resolve.LATENCY - 1, block=True)
        m.d.comb += [jobs.i.eq(job), jobs.i_valid.eq(take)]
        return jobs.o

    def _transport(self, m: Module, job, segment: Value) -> Value:
        """UDP, BTH and extended headers; zeros behind them."""
        udp = build(
            UDP,
            {
                "source_port": job.av.udp_source,
                "destination_port": ROCE_PORT,
                "length": segment,
            },
        )
        pad = Signal(2)
        m.d.comb += pad.eq(-job.length)
        bth = build(
            BTH,
            {
                "opcode": job.opcode,
                "solicited": job.solicited,
                "pad_count": pad,
                "pkey": job.pkey,
                "dest_qp": job.dest_qp,
                "ack_request": job.ack_request,
                "psn": job.psn,
            },
        )
        deth = in_va(job).deth
        fields = {
            RETH: {"va": job.va, "rkey": job.rkey, "dma_length": job.dma_length},
            AETH: {"syndrome": job.syndrome, "msn": job.msn},
            IMM_DT: {"imm": swap(ex(job).imm_data)},
            IETH: {"rkey": job.rkey},
            ATOMIC_ETH: {"va": job.va, "rkey": job.rkey},
            ATOMIC_ACK_ETH: {"original": job.va},
            DETH: {"qkey": deth.qkey, "src_qp": deth.src_qp},
            XRCETH: {"srq": sent_srq(job)},
            FETH: {"sel": wire_flush(job).level, "plt": wire_flush(job).type.as_value()},
        }
        sent = sent_opcodes(self._config)
        extended = Signal(8 * extended_bytes(self._config))
        kinds = {opcode.headers for opcode in sent.values() if opcode.headers}
        with m.Switch(job.opcode):
            for headers in sorted(kinds, key=repr):
                codes = [code for code, one in sent.items() if one.headers == headers]
                with m.Case(*codes):
                    if headers[0] in CONTENTS:
                        m.d.comb += extended.eq(control_content(job)[: 8 * headers[0].size])
                    else:
                        m.d.comb += extended.eq(Cat(build(h, fields[h]) for h in headers))
        return Cat(udp, bth, extended)
