"""Frames on GMII: preamble, padding, frame check sequence and gap. Spec: IEEE 802.3, 3.1, 4.2, 35.

The frame check sequence is ``amaranth.lib.crc``'s CRC-32. RGMII carries the same bytes in half the
wires (RGMII 2.0); a board's double data rate registers make one of the other.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import crc, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.packet import packet_beat, packet_stream

__all__ = ["GmiiRx", "GmiiTx"]

PREAMBLE, START = 0x55, 0xD5
PREAMBLE_BYTES, FCS_BYTES, GAP_BYTES = 7, 4, 12
#: Shortest frame without its frame check sequence, bytes.
LEAST = 60


class GmiiTx(wiring.Component):
    """Sends frames: adds preamble, zeros up to 60 bytes, frame check sequence and gap.

    Members: ``i``: a byte a beat; ``data``, ``en``, ``er`` Out: TXD, TX_EN, TX_ER.
    Latency: 10 cycles to the first byte. Throughput: a byte per cycle within a frame, and 24 cycles
    of overhead between the bytes of two frames.
    Errors: a frame with ``error``, or that is not there in time, ends with TX_ER and a complemented
    frame check sequence; the rest of a late one is dropped, counted in ``underruns`` (wraps).
    Reset: between frames.
    """

    def __init__(self):
        super().__init__(
            {
                "i": In(packet_stream(8)),
                "data": Out(8),
                "en": Out(1),
                "er": Out(1),
                "underruns": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.check = check = crc.catalog.CRC32_ETHERNET(data_width=8).create()
        count = Signal(range(LEAST + 1))  # bytes of the state, at most LEAST of a frame
        spoiled, late = Signal(), Signal()
        byte, sends = Signal(8), Signal()
        m.d.comb += check.data.eq(byte)
        m.d.sync += [self.data.eq(byte), self.en.eq(sends), self.er.eq(0), count.eq(count + 1)]
        with m.FSM():
            # IDLE: nothing is sent; ends when there is a frame.
            with m.State("IDLE"):
                m.d.sync += [count.eq(0), spoiled.eq(0), late.eq(0)]
                with m.If(self.i.valid):
                    m.next = "PREAMBLE"
            # PREAMBLE: sends preamble and start delimiter; ends after both.
            with m.State("PREAMBLE"):
                ends = count == PREAMBLE_BYTES
                m.d.comb += [sends.eq(1), byte.eq(Mux(ends, START, PREAMBLE)), check.start.eq(1)]
                with m.If(ends):
                    m.d.sync += count.eq(0)
                    m.next = "DATA"
            # DATA: sends the frame's bytes; ends with the last one, or when one is late.
            with m.State("DATA"):
                m.d.comb += [sends.eq(1), byte.eq(self.i.p.data), self.i.ready.eq(1)]
                m.d.comb += check.valid.eq(self.i.valid)
                with m.If(count == LEAST):
                    m.d.sync += count.eq(count)
                with m.If(~self.i.valid):
                    m.d.sync += [spoiled.eq(1), late.eq(1), self.er.eq(1), count.eq(0)]
                    m.d.sync += self.underruns.eq(self.underruns + 1)
                    m.next = "FCS"
                with m.Elif(self.i.p.last):
                    m.d.sync += [spoiled.eq(self.i.p.error), self.er.eq(self.i.p.error)]
                    m.next = "PAD"
                    with m.If(count >= LEAST - 1):
                        m.d.sync += count.eq(0)
                        m.next = "FCS"
            # PAD: sends zeros; ends when the frame is long enough.
            with m.State("PAD"):
                m.d.comb += [sends.eq(1), check.valid.eq(1)]
                with m.If(count == LEAST - 1):
                    m.d.sync += count.eq(0)
                    m.next = "FCS"
            # FCS: sends the frame check sequence; ends after it.
            with m.State("FCS"):
                right = check.crc.word_select(count[:2], 8)
                m.d.comb += [sends.eq(1), byte.eq(Mux(spoiled, ~right, right))]
                with m.If(count == FCS_BYTES - 1):
                    m.d.sync += count.eq(0)
                    m.next = "GAP"
            # GAP: sends nothing; ends when the gap has passed, with the cycle of IDLE.
            with m.State("GAP"):
                with m.If(count == GAP_BYTES - 2):
                    m.next = "IDLE"
                    with m.If(late):
                        m.next = "DROP"
            # DROP: drops the rest of a late frame; ends with its last byte.
            with m.State("DROP"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid & self.i.p.last):
                    m.next = "IDLE"
        return m


class GmiiRx(wiring.Component):
    """Receives frames: removes preamble and frame check sequence, which it checks.

    Members: ``data``, ``dv``, ``er`` In: RXD, RX_DV, RX_ER; ``o``: a byte a beat, always taken.
    Latency: 6 cycles. Throughput: a byte per cycle.
    Errors: ``error`` on the last beat: the check sequence is wrong or the PHY said so. What has no
    start delimiter, or no byte before a check sequence, is not a frame and leaves no trace.
    Reset: between frames.
    """

    def __init__(self):
        frames = stream.Signature(packet_beat(8), always_ready=True)
        super().__init__({"data": In(8), "dv": In(1), "er": In(1), "o": Out(frames)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.check = check = crc.catalog.CRC32_ETHERNET(data_width=8).create()
        held = Signal(8 * (FCS_BYTES + 1))  # the latest bytes, of which four may be the check
        count = Signal(range(FCS_BYTES + 2))  # how many of them there are
        first, bad = Signal(), Signal()
        full = count == FCS_BYTES + 1
        m.d.comb += check.data.eq(self.data)
        m.d.sync += [
            self.o.valid.eq(0),
            self.o.p.data.eq(held[:8]),
            self.o.p.keep.eq(1),
            self.o.p.first.eq(first),
            self.o.p.last.eq(~self.dv),
            self.o.p.error.eq(~self.dv & (bad | ~check.match_detected)),
        ]
        with m.FSM():
            # WAIT: waits for a start delimiter behind a preamble; ends with it, or with another
            # byte.
            with m.State("WAIT"):
                m.d.comb += check.start.eq(1)
                m.d.sync += [count.eq(0), first.eq(1), bad.eq(0)]
                with m.If(self.dv & (self.data == START)):
                    m.next = "FRAME"
                with m.Elif(self.dv & (self.data != PREAMBLE)):
                    m.next = "SKIP"
            # FRAME: passes a byte on when five have come after it was taken; ends when RX_DV falls.
            with m.State("FRAME"):
                m.d.comb += check.valid.eq(self.dv)
                m.d.sync += self.o.valid.eq(full)
                with m.If(full):
                    m.d.sync += first.eq(0)
                with m.If(self.dv):
                    m.d.sync += [held.eq(held[8:]), held[-8:].eq(self.data), bad.eq(bad | self.er)]
                    with m.If(~full):
                        m.d.sync += count.eq(count + 1)
                with m.Else():
                    m.next = "WAIT"
            # SKIP: passes nothing on; ends when RX_DV falls.
            with m.State("SKIP"):
                with m.If(~self.dv):
                    m.next = "WAIT"
        return m
