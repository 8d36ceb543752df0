"""Frames on the client's streams of Intel's E-tile Hard IP for Ethernet at 100 Gb/s.

The streams (UG20160, "TX MAC Interface", "RX MAC Interface") are Avalon streams of 512 bits whose
first byte is the highest one. The MAC adds and removes preamble and frame check sequence, and wants
a frame without gaps, as ``CmacCrossing`` gives it.
"""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.packet import packet_stream

__all__ = ["EtileStreams"]

ERRORS = 6


def _reversed(data):
    """The bytes of a beat in the other order."""
    return Cat(data.word_select(n, 8) for n in reversed(range(len(data) // 8)))


class EtileStreams(wiring.Component):
    """Joins packet streams to the MAC's pins, which it has by their names.

    Members: ``tx``, ``rx``: frames without FCS; ``rx`` is never held. Other members: pins.
    Latency: 0 cycles. Throughput: a beat per cycle. Errors: a received frame with any of the MAC's
    errors has ``error``; a sent one with ``error`` is marked as such. Reset: none.
    """

    def __init__(self, *, width: int):
        octets = width // 8
        if width < 16 or octets & (octets - 1):
            raise ValueError(f"Width must be a power of two, at least 16 bits, not {width!r}")
        self._octets, empty = octets, (octets - 1).bit_length()
        super().__init__(
            {
                "tx": In(packet_stream(width)),
                "rx": Out(packet_stream(width)),
                "o_tx_ready": In(1),
                "i_tx_valid": Out(1),
                "i_tx_data": Out(width),
                "i_tx_startofpacket": Out(1),
                "i_tx_endofpacket": Out(1),
                "i_tx_empty": Out(empty),
                "i_tx_error": Out(1),
                "o_rx_valid": In(1),
                "o_rx_data": In(width),
                "o_rx_startofpacket": In(1),
                "o_rx_endofpacket": In(1),
                "o_rx_empty": In(empty),
                "o_rx_error": In(ERRORS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tx, rx = self.tx.payload, self.rx.payload
        # The keep bits are contiguous: the number of those that are 0 is where they end.
        empty = sum((~tx.keep[n] & 1 for n in range(self._octets)), start=0)
        m.d.comb += [
            self.i_tx_valid.eq(self.tx.valid),
            self.tx.ready.eq(self.o_tx_ready),
            self.i_tx_data.eq(_reversed(tx.data)),
            self.i_tx_startofpacket.eq(tx.first),
            self.i_tx_endofpacket.eq(tx.last),
            self.i_tx_empty.eq(Mux(tx.last, empty, 0)),
            self.i_tx_error.eq(tx.error & tx.last),
            self.rx.valid.eq(self.o_rx_valid),
            rx.data.eq(_reversed(self.o_rx_data)),
            rx.first.eq(self.o_rx_startofpacket),
            rx.last.eq(self.o_rx_endofpacket),
            rx.keep.eq(Mux(self.o_rx_endofpacket, (1 << self._octets) - 1 >> self.o_rx_empty, ~0)),
            rx.error.eq(self.o_rx_endofpacket & self.o_rx_error.any()),
        ]
        return m
