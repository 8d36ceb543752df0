"""The express path: many short WQEs on their way through the host's latency at a time."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import WQE_LINE_BITS

from .decode import RECV_BYTES, SEND_BYTES, Slot
from .descriptor import ShortDescriptors
from .heads import RingHeads
from .short import SHORT_RECV, SHORT_SEND, ShortWqes
from .types import ExpressJob, Verdict

__all__ = ["Express"]

#: Most queues whose ring entries are at hand.
LINES = 64


class Express(wiring.Component):
    """RingHeads, ShortDescriptors and ShortWqes one behind the other, each with up to ``depth``
    jobs in flight.

    Parameters: ``receive`` as in ShortWqes; these are fetched ahead, so nothing is spent on how
    long one takes: no heads are guessed, and read data pass FIFOs.
    Members: ``i`` and, without ``receive``, ``in_order`` as in RingHeads; ``line``, ``slot``,
    ``slot_line``, ``slot_valid``, ``o`` as in ShortWqes; ``flush``; ``read_client0`` ring,
    ``read_client1`` descriptors, ``read_client2`` elements. Nobody waits for anything but host
    reads and, at the end, ``line`` and ``o``.
    Latency: two host reads (three without ring entries at hand and without a right guess) and 20
    cycles, 26 with ``receive``. Throughput: a job in 4 cycles, 14 at 64 bits; with ``depth`` jobs a
    stage, and no faster than the read client.
    Errors: see ShortWqes. Reset: empty; nothing may be in flight.
    """

    def __init__(self, *, config: NicConfig, depth: int, receive: bool = False):
        self._config, self._depth, self._receive = config, depth, receive
        read = Out(ReadClient(config.width))
        members = {
            "i": In(stream.Signature(ExpressJob)),
            "slot": Out(Slot),
            "slot_line": Out(WQE_LINE_BITS),
            "slot_valid": Out(1),
            "o": Out(stream.Signature(Verdict)),
            "flush": In(1),
            "read_client0": read,
            "read_client1": read,
            "read_client2": read,
        }
        send_only = {"in_order": In(1), "line": In(stream.Signature(8))}
        super().__init__(members | ({} if receive else send_only))

    def elaborate(self, platform):
        m = Module()
        config, depth = self._config, self._depth
        lines = min(LINES, 1 << ceil_log2(config.qps))
        m.submodules.heads = heads = RingHeads(
            config=config, lines=lines, depth=depth, bypass=not self._receive
        )
        m.submodules.descriptors = descriptors = ShortDescriptors(
            config=config,
            least=RECV_BYTES if self._receive else SEND_BYTES,
            most=SHORT_RECV if self._receive else SHORT_SEND,
            depth=depth,
            guesses=not self._receive,
            bypass=not self._receive,
        )
        m.submodules.wqes = wqes = ShortWqes(config=config, depth=depth, receive=self._receive)
        connect(m, flipped(self.i), heads.i)
        connect(m, heads.o, descriptors.i)
        connect(m, descriptors.o, wqes.i)
        connect(m, wqes.o, flipped(self.o))
        if not self._receive:
            connect(m, flipped(self.line), wqes.line)
            connect(m, heads.guess, descriptors.guess)
            m.d.comb += heads.in_order.eq(self.in_order)
        connect(m, heads.read_client, flipped(self.read_client0))
        connect(m, descriptors.read_client, flipped(self.read_client1))
        connect(m, wqes.read_client, flipped(self.read_client2))
        m.d.comb += [
            heads.flush.eq(self.flush),
            self.slot.eq(wqes.slot),
            self.slot_line.eq(wqes.slot_line),
            self.slot_valid.eq(wqes.slot_valid),
        ]
        return m
