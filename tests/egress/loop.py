"""Egress joined to ingress: what goes in as rows comes out as rows."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.packet import packet_stream
from hdl.config import NicConfig
from hdl.egress.egress import Egress, EgressCounters
from hdl.ingress.counters import IngressCounters
from hdl.ingress.ingress import Ingress
from hdl.ports.headers import GidRow, RxHeader, TxHeader


class EgressTop(wiring.Component):
    """Egress with the rows of its GID table side by side on a port, ``gids``."""

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "header": In(stream.Signature(TxHeader)),
                "payload": In(packet_stream(config.width)),
                "gids": In(data.ArrayLayout(GidRow, config.gids)),
                "mac_address": In(48),
                "o": Out(packet_stream(config.width)),
                "sent": Out(1),
                "spoiled": Out(1),
                "counters": Out(EgressCounters),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.egress = egress = Egress(config=self._config)
        connect(m, flipped(self.header), egress.header)
        connect(m, flipped(self.payload), egress.payload)
        connect(m, egress.o, flipped(self.o))
        m.d.comb += [
            egress.mac_address.eq(self.mac_address),
            self.counters.eq(egress.counters),
            self.sent.eq(egress.sent),
            self.spoiled.eq(egress.spoiled),
        ]
        with m.Switch(egress.gid.index):
            for n in range(self._config.gids):
                with m.Case(n):
                    m.d.sync += egress.gid.row.eq(self.gids[n])
            with m.Default():
                m.d.sync += egress.gid.row.eq(0)
        return m


class Loop(wiring.Component):
    """``header`` and ``payload`` through egress and ingress to ``rx_header`` and ``rx_payload``."""

    def __init__(self, *, config: NicConfig):
        self._config = config
        gids = data.ArrayLayout(GidRow, config.gids)
        super().__init__(
            {
                "header": In(stream.Signature(TxHeader)),
                "payload": In(packet_stream(config.width)),
                "gids": In(gids),
                "peer_gids": In(gids),
                "mac_address": In(48),
                "peer_mac_address": In(48),
                "rx_header": Out(stream.Signature(RxHeader)),
                "rx_payload": Out(packet_stream(config.width)),
                "counters": Out(IngressCounters),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.egress = egress = EgressTop(config=self._config)
        m.submodules.ingress = ingress = Ingress(config=self._config)
        connect(m, flipped(self.header), egress.header)
        connect(m, flipped(self.payload), egress.payload)
        connect(m, egress.o, ingress.i)
        connect(m, ingress.header, flipped(self.rx_header))
        connect(m, ingress.payload, flipped(self.rx_payload))
        m.d.comb += [
            egress.gids.eq(self.gids),
            egress.mac_address.eq(self.mac_address),
            ingress.gids.eq(self.peer_gids),
            ingress.mac_address.eq(self.peer_mac_address),
            ingress.lossless.eq(1),
            self.counters.eq(ingress.counters),
        ]
        return m
