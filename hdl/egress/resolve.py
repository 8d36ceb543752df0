"""``TxHeader`` -> the row of its source address, the packet's lengths and the IPv4 header."""

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.delay import delayed
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.headers import GidRow, TxHeader
from hdl.wire.constants import ICRC_BYTES, IP_PROTOCOL_UDP, mapped_gid
from hdl.wire.gateware import build, swap
from hdl.wire.headers import BTH, IPV4, UDP

from .rows import built_bytes, sent_opcodes

__all__ = ["Resolve", "Resolved"]


class Resolved(data.Struct):
    """What a packet's headers need beside its ``TxHeader``."""

    row: GidRow
    ipv6: 1
    ipv4: 8 * IPV4.size  # the header without its checksum
    segment: 16  # bytes from the UDP header to the ICRC
    extended: 5  # bytes of the headers behind the BTH
    error: 1  # an invalid GID row, or an opcode that is not sent


class Resolve(wiring.Component):
    """Looks up the source GID of each packet and computes its lengths and its IPv4 header.

    Spec: RFC 791 (DF set, identification 0 as RFC 6864, 4.1 allows).
    Members: ``i`` In: a row in each cycle; ``o`` Out: what was found for it; ``gid`` reads the GID
    table, 2 cycles.
    Latency: ``LATENCY`` cycles. Throughput: one packet per cycle. Errors: ``o.error``.
    Reset: none, as no row has a valid bit here.
    """

    LATENCY = 4

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__({"i": In(TxHeader), "gid": Out(TableRead(8, GidRow)), "o": Out(Resolved)})

    def elaborate(self, platform):
        m = Module()
        job = self.i
        # 1 to 3: the GID row.
        m.d.comb += self.gid.enable.eq(1)
        m.d.sync += self.gid.index.eq(job.av.sgid_index)
        row3 = Signal(GidRow, reset_less=True)
        m.d.sync += row3.eq(self.gid.row)
        opcode1 = delayed(m, job.opcode, 1, name="opcode")
        length1 = delayed(m, job.length, 1, name="length")
        extended, known = Signal(5), Signal()
        with m.Switch(opcode1):
            for code, opcode in sent_opcodes(self._config).items():
                with m.Case(code):
                    m.d.comb += [extended.eq(built_bytes(opcode)), known.eq(1)]
        pad1 = Signal(2)
        m.d.comb += pad1.eq(-length1)
        extended2 = delayed(m, extended, 1, name="extended")
        data2 = delayed(m, length1 + pad1, 1, name="data")
        # From the UDP header to the ICRC.
        segment3 = delayed(
            m, (data2 + extended2 + (UDP.size + BTH.size + ICRC_BYTES))[:16], 1, name="segment"
        )
        traffic_class3 = delayed(m, job.av.traffic_class, 3, name="traffic_class")
        hop_limit3 = delayed(m, job.av.hop_limit, 3, name="hop_limit")
        destination3 = delayed(m, job.av.dgid[96:], 3, name="destination")
        ipv6_3 = Const(0)
        if self._config.ipv6:
            ipv6_3 = row3.gid[:96] != int.from_bytes(mapped_gid(bytes(4))[:12], "little")

        # 4: the IPv4 header without its checksum.
        ipv4 = build(
            IPV4,
            {
                "version": 4,
                "ihl": IPV4.size // 4,
                "traffic_class": traffic_class3,
                "total_length": segment3 + IPV4.size,
                "dont_fragment": 1,
                "ttl": hop_limit3,
                "protocol": IP_PROTOCOL_UDP,
                "source": swap(row3.gid[96:]),
                "destination": swap(destination3),
            },
        )
        entry4 = Signal(Resolved, reset_less=True)
        m.d.sync += [
            entry4.row.eq(row3),
            entry4.ipv6.eq(ipv6_3),
            entry4.ipv4.eq(ipv4),
            entry4.segment.eq(segment3),
            entry4.extended.eq(delayed(m, extended2, 1, name="extended_late")),
            entry4.error.eq(~row3.valid | ~delayed(m, known, 2, name="known")),
        ]
        m.d.comb += self.o.eq(entry4)
        return m
