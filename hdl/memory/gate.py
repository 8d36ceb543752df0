"""The commit point of the sending side: which packets really go out, decided in their order."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.contract import taken_at_once
from hdl.common.count import COUNT, increment
from hdl.common.fifo import StreamFifo
from hdl.common.skid import Register
from hdl.common.tables import TableRead
from hdl.ports.headers import TxHeader
from hdl.ports.jobs import PACKET_GENERATION
from hdl.ports.numbers import QpNumber
from hdl.ports.shared import copy_piece

from .types import BLOCKS, CheckedPacket, PayloadPacket

__all__ = ["HeaderGate", "PacketGate"]

#: Packets that have been checked and wait for the payload of those before them.
PACKETS = 64


class PacketGate(wiring.Component):
    """Keeps checked packets until their payload can be fetched, and drops those that are stale.

    Spec: IBTA vol 1, 9.7.5.1 (retry). A QP that goes back sends everything from there on again.
    What it had handed over before would only take the wire's time. So a request of an older
    generation than its QP's (``TxJob``) is dropped here: nothing of it is read, and no header goes
    out. Inline packets are not dropped, as their bytes have been copied already.

    Members: ``i`` stream of CheckedPacket; ``generation``: reads the generation of a QP; ``o``
    stream of PayloadPacket: those with chunks or inline bytes, the dropped ones as not ``good``.
    ``decided`` with ``good``: the verdict of the next packet, for HeaderGate, which has ``blocks``
    of payload. ``finished`` with
    ``epoch``, a cycle later: that packet reads nothing. ``stale``: requests dropped (``COUNT``
    bits, wraps). Latency: 3 cycles. Throughput: a packet in 2 cycles. Errors: none. Reset: empty.
    """

    def __init__(self):
        super().__init__(
            {
                "i": In(stream.Signature(CheckedPacket)),
                "generation": Out(TableRead(QpNumber, PACKET_GENERATION)),
                "o": Out(stream.Signature(PayloadPacket)),
                "decided": Out(1),
                "good": Out(1),
                "finished": Out(1),
                "epoch": Out(1),
                "blocks": Out(BLOCKS),
                "stale": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.packets = packets = StreamFifo(shape=CheckedPacket, depth=PACKETS)
        connect(m, flipped(self.i), packets.i)
        head, generation = packets.o.payload, self.generation
        fetched, looked, stale = (Signal() for _ in range(3))
        m.d.comb += [
            # Read anew in each cycle in which the packet waits: the latest generation decides.
            generation.index.eq(head.qp),
            generation.enable.eq(packets.o.valid),
            stale.eq(head.request & ~head.inline & (generation.row != head.generation)),
            fetched.eq(head.reads | head.inline),
            self.good.eq(head.good & ~stale),
            self.o.valid.eq(looked & fetched),
            self.o.payload.inline.eq(head.inline),
            self.o.payload.good.eq(self.good),
            self.o.payload.function.eq(head.function),
            self.o.payload.epoch.eq(head.epoch),
            self.blocks.eq(head.blocks),
            self.decided.eq(looked & (self.o.ready | ~fetched)),
            packets.o.ready.eq(self.decided),
        ]
        m.d.sync += [
            # The row belongs to the packet in front from its second cycle there on.
            looked.eq(packets.o.valid & ~self.decided),
            self.finished.eq(self.decided & ~(head.reads & self.good)),
            self.epoch.eq(head.epoch),
        ]
        with m.If(self.decided & head.good & stale):
            increment(m, self.stale)
        return m


class HeaderGate(wiring.Component):
    """Keeps headers until their packets are decided; those of good packets go on, in order.

    Parameters: ``depth``: headers that may wait.
    Members: ``i``, ``o`` streams of TxHeader; ``decided`` In pulse, with ``good``: the oldest
    header without a verdict gets one. There is always room for it, as its header waits in a list
    that is no longer than the verdicts'.
    With ``copies`` a piece of a MEMCPY goes on whatever its verdict is, which it then tells
    (``COPY``).
    Latency: 2 cycles behind the verdict. Throughput: a good packet in 2 cycles, as PacketGate
    decides no sooner; a bad one in a cycle.
    Reset: empty.
    """

    def __init__(self, *, depth: int, copies: bool = False):
        self._depth, self._copies = depth, copies
        headers = stream.Signature(TxHeader)
        super().__init__({"i": In(headers), "o": Out(headers), "decided": In(1), "good": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.headers = headers = StreamFifo(shape=TxHeader, depth=self._depth)
        m.submodules.verdicts = verdicts = StreamFifo(shape=1, depth=self._depth)
        m.submodules.output = output = Register(shape=TxHeader)
        connect(m, flipped(self.i), headers.i)
        connect(m, output.o, flipped(self.o))
        good, passes = verdicts.o.payload, Signal()
        piece = headers.o.payload.copied if self._copies else 0
        m.d.comb += [
            passes.eq(good | piece),
            verdicts.i.valid.eq(self.decided),
            verdicts.i.payload.eq(self.good),
            output.i.payload.eq(headers.o.payload),
            output.i.valid.eq(headers.o.valid & verdicts.o.valid & passes),
            headers.o.ready.eq(verdicts.o.valid & (output.i.ready | ~passes)),
            verdicts.o.ready.eq(headers.o.valid & (output.i.ready | ~passes)),
        ]
        if self._copies:
            with m.If(piece & ~good):
                m.d.comb += [
                    output.i.payload.length.eq(0),
                    copy_piece(output.i.payload).refused.eq(1),
                ]
        taken_at_once(m, platform, verdicts.i, "there is room for each verdict")
        return m
