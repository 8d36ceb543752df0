"""Collects the first bytes of a frame while its beats pass."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.packet import packet_beat
from hdl.config import NicConfig
from hdl.wire.constants import bth_offset
from hdl.wire.headers import BTH
from hdl.wire.opcodes import max_extended

__all__ = ["HeaderCollector", "collected", "header_beats"]

#: Bits of a byte count in a frame: an IP packet of 65535 bytes and its Ethernet header.
LENGTH_BITS = 18


def header_beats(config: NicConfig) -> int:
    """Beats that hold all headers a packet can have that the card delivers."""
    size = bth_offset(vlan=True, ipv6=True) + BTH.size + max_extended(config)
    return -(-8 * size // config.width)


def collected(config: NicConfig) -> data.StructLayout:
    """A beat with the headers up to and including it; ``number`` counts beats and saturates."""
    return data.StructLayout(
        {
            "beat": packet_beat(config.width),
            "number": LENGTH_BITS - ceil_log2(config.bytes_per_beat),
            "headers": header_beats(config) * config.width,
        }
    )


class HeaderCollector(wiring.Component):
    """Registers each beat and puts it into its place of the header word.

    Places not yet reached hold bytes of an earlier frame: a user must not let a decision about byte
    n depend on bytes behind the beat of byte n.
    Members: ``valid``, ``beat`` In; ``o_valid``, ``o`` Out. Latency: 1 cycle. Throughput: one beat
    per cycle, no stall. Reset: nothing in flight.
    """

    LATENCY = 1

    def __init__(self, *, config: NicConfig):
        self._config, self._width = config, config.width
        super().__init__(
            {
                "valid": In(1),
                "beat": In(packet_beat(config.width)),
                "o_valid": Out(1),
                "o": Out(collected(config)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        headers = Signal.like(self.o.headers, reset_less=True)
        beat = Signal(packet_beat(self._width), reset_less=True)
        number = Signal.like(self.o.number)
        current = Signal.like(number)
        m.d.comb += [
            self.o.beat.eq(beat),
            self.o.number.eq(number),
            self.o.headers.eq(headers),
        ]
        with m.If(~self.beat.first):
            m.d.comb += current.eq(Mux(number.all(), number, number + 1))
        m.d.sync += self.o_valid.eq(self.valid)
        with m.If(self.valid):
            m.d.sync += [beat.eq(self.beat), number.eq(current)]
            for place in range(header_beats(self._config)):
                # Of the number before: ``current`` stands behind a carry chain.
                here = ~self.beat.first & (number == place - 1) if place else self.beat.first
                with m.If(here):
                    m.d.sync += headers.word_select(place, self._width).eq(self.beat.data)
        return m
