"""Guards between the MAC and rooms that a device reset stops in the middle of a frame."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.count import increment
from hdl.common.packet import packet_beat, packet_stream
from hdl.wire.constants import MAC_IPV4_GROUP, MAC_IPV6_GROUP

__all__ = ["RxGuard", "TxGuard"]


class TxGuard(wiring.Component):
    """Passes frames. A frame that ``source_reset`` cuts off ends with ``error``, to be spoiled.

    Parameters: width in bits. Members: ``i`` from the core, ``o`` to the MAC; ``source_reset``: the
    core is in reset, for at least one cycle; ``i`` is ignored meanwhile. ``mac_address`` (raw
    bytes), ``turns``: frames to this address turn round; ``local`` Out: the frame at ``o`` does.
    ``copies``: frames to IP multicast groups turn round too; ``group`` Out: that at ``o`` does.
    Latency: 1 cycle. Throughput: one beat per cycle; ``i.ready`` follows ``o.ready``. Errors: a cut
    frame gets one byte more and ``error``, however long the MAC takes; counted in ``cut_frames``.
    Reset: between frames. It is not reset itself by a device reset.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "o": Out(packet_stream(width)),
                "source_reset": In(1),
                "mac_address": In(48),
                "turns": In(1),
                "local": Out(1),
                "copies": In(1),
                "group": Out(1),
                "cut_frames": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        shape = packet_beat(self._width)
        output, beat = Signal(shape, reset_less=True), Signal(shape)
        valid, free = Signal(), Signal()
        inside = Signal()  # the last beat passed on was not the end of its frame
        end_pending = Signal()  # the MAC may take the end only when the core is out of reset again
        m.d.comb += [
            self.o.payload.eq(output),
            free.eq(~self.o.valid | self.o.ready),
        ]
        with m.If(self.source_reset | end_pending):
            m.d.comb += [valid.eq(inside), beat.keep.eq(1), beat.last.eq(1), beat.error.eq(1)]
            m.d.sync += end_pending.eq(inside & ~free)
            with m.If(inside & free):
                increment(m, self.cut_frames)
        with m.Else():
            m.d.comb += [
                valid.eq(self.i.valid),
                beat.eq(self.i.payload),
                self.i.ready.eq(free),
            ]
        with m.If(free):
            m.d.sync += [self.o.valid.eq(valid), output.eq(beat)]
        with m.If(valid & free):
            m.d.sync += inside.eq(~beat.last)
            with m.If(~inside):
                # The destination address is the first of a frame, and in its first beat.
                m.d.sync += [
                    self.local.eq(self.turns & (self.i.p.data[:48] == self.mac_address)),
                    self.group.eq(self.copies & self._to_group(self.i.p.data)),
                ]
        return m

    @staticmethod
    def _to_group(start: Value) -> Value:
        """Whether the destination address is that of a group (RFC 1112, 6.4; RFC 2464, 7)."""
        prefixes = (MAC_IPV4_GROUP, MAC_IPV6_GROUP)
        return Cat(start[: 8 * len(p)] == int.from_bytes(p, "little") for p in prefixes).any()


class RxGuard(wiring.Component):
    """Drops beats until the first one of a frame: the rest of a frame that a reset has cut.

    Parameters: width in bits. Members: ``i`` from the MAC, ``o`` to the core.
    Latency: 0 cycles; the core registers each beat. Throughput: one beat per cycle. Errors: none.
    Reset: with the core; then waits for a first beat.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__({"i": In(packet_stream(width)), "o": Out(packet_stream(width))})

    def elaborate(self, platform):
        m = Module()
        inside, passes = Signal(), Signal()
        m.d.comb += [
            passes.eq(inside | self.i.p.first),
            self.o.valid.eq(self.i.valid & passes),
            self.o.payload.eq(self.i.payload),
            self.i.ready.eq(self.o.ready),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += inside.eq(passes & ~self.i.p.last)
        return m
