"""Host memory in block RAM, which the card and the bridge share."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.count import increment
from hdl.common.ram import Ram
from hdl.ports.host import edge_read_beat, edge_read_request, edge_write_beat

from .protocol import BLOCK_BYTES, MESSAGE_WINDOW, MESSAGES, WORD_BYTES

__all__ = ["HostRam"]

WIDTH = 8 * WORD_BYTES
#: Bits of an address within a block and within the window of messages.
_BLOCK, _WINDOW = ceil_log2(BLOCK_BYTES), 2 + ceil_log2(MESSAGES)


class HostRam(wiring.Component):
    """Serves the host port's reads and writes, and a word at a time those of the bridge.

    Parameters: ``size`` in bytes, a power of two: addresses 0 to ``size`` - 1.
    Members: ``rd_req``, ``rd_rsp``, ``wr``: the host port. ``access``: the bridge's words, each
    with ``index``, ``write``, ``data``, ``strb``; ``word``, ``word_valid`` Out: what a read found.
    ``interrupts`` Out: messages that have arrived; ``take`` In: those that are told now and so
    forgotten. ``scan`` In: look for a block that the card has written; ``scanned`` Out, one cycle:
    ``found`` and ``block`` say which, and it counts as not written from then on.
    Order: a write is visible to every read that is taken after it. What the card writes after a
    block was found marks the block again, so nothing is missed if it is read then.
    Latency: a read 2 cycles, a scan 2 cycles for each block it looks at. Throughput: a beat per
    cycle each way; the bridge goes first.
    Errors: a read outside memory ends with ``error``; a write outside memory and messages is lost;
    both are counted in ``faults``, modulo 2**16.
    Reset: contents and marks are kept.
    """

    def __init__(self, *, size: int):
        if size < 4096 or size & (size - 1):
            raise ValueError(f"Size must be a power of two, at least 4096 bytes, not {size!r}")
        self._size = size
        self._index = ceil_log2(size // WORD_BYTES)
        access = data.StructLayout(
            {"index": self._index, "write": 1, "data": WIDTH, "strb": WORD_BYTES}
        )
        super().__init__(
            {
                "rd_req": In(stream.Signature(edge_read_request())),
                "rd_rsp": Out(stream.Signature(edge_read_beat(WIDTH), always_ready=True)),
                "wr": In(stream.Signature(edge_write_beat(WIDTH))),
                "access": In(stream.Signature(access, always_ready=True)),
                "word": Out(WIDTH),
                "word_valid": Out(1),
                "interrupts": Out(MESSAGES),
                "take": In(MESSAGES),
                "scan": In(1),
                "scanned": Out(1),
                "found": Out(1),
                "block": Out(ceil_log2(size // BLOCK_BYTES)),
                "faults": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = [Ram(shape=8, depth=self._size // 8) for _ in range(WORD_BYTES)]
        index, enable = Signal(self._index), Signal()
        for n, lane in enumerate(lanes):
            m.submodules[f"lane{n}"] = lane
            m.d.comb += [
                lane.read0.index.eq(index),
                lane.read0.enable.eq(enable),
                self.word.word_select(n, 8).eq(lane.read0.row),
            ]
        written = self._writes(m, lanes)
        self._reads(m, index, enable)
        self._scan(m, written)
        return m

    def _writes(self, m: Module, lanes: list[Ram]):
        """Writes of the bridge, else of the card; returns when a block is marked, and which."""
        bridge, card = self.access.p, self.wr.p
        bridge_writes, card_writes, inside = Signal(), Signal(), Signal()
        place = card.addr[3:][: self._index]
        m.d.comb += [
            bridge_writes.eq(self.access.valid & bridge.write),
            self.wr.ready.eq(~bridge_writes),
            inside.eq(card.addr[ceil_log2(self._size) :] == 0),
            card_writes.eq(self.wr.valid & self.wr.ready & inside),
        ]
        for n, lane in enumerate(lanes):
            m.d.comb += [
                lane.write.index.eq(Mux(bridge_writes, bridge.index, place)),
                lane.write.row.eq(
                    Mux(bridge_writes, bridge.data.word_select(n, 8), card.data.word_select(n, 8))
                ),
                lane.write.enable.eq(
                    Mux(bridge_writes, bridge.strb[n], card_writes & card.strb[n])
                ),
            ]
        arrived = Signal(MESSAGES)
        m.d.sync += self.interrupts.eq((self.interrupts & ~self.take) | arrived)
        with m.If(self.wr.valid & self.wr.ready & ~inside):
            with m.If(card.addr[_WINDOW:] == MESSAGE_WINDOW >> _WINDOW):
                number = card.addr[3:_WINDOW]
                m.d.comb += [
                    arrived.bit_select(number << 1, 1).eq(card.strb[:4].any()),
                    arrived.bit_select((number << 1) | 1, 1).eq(card.strb[4:].any()),
                ]
            with m.Else():
                increment(m, self.faults)
        return card_writes, card.addr[_BLOCK:]

    def _reads(self, m: Module, index: Signal, enable: Signal) -> None:
        """Reads of the bridge, else beats of the card's request."""
        request = self.rd_req.p
        tag, place, left = Signal(8), Signal(self._index), Signal(10)
        busy, bad = Signal(), Signal()
        bridge_reads, beat = Signal(), Signal()
        m.d.comb += [
            bridge_reads.eq(self.access.valid & ~self.access.p.write),
            beat.eq(busy & ~bridge_reads),
            index.eq(Mux(bridge_reads, self.access.p.index, place)),
            enable.eq(bridge_reads | beat),
            self.rd_req.ready.eq(~busy),
            self.rd_rsp.p.data.eq(self.word),
        ]
        m.d.sync += [
            self.word_valid.eq(bridge_reads),
            self.rd_rsp.valid.eq(beat),
            self.rd_rsp.p.tag.eq(tag),
            self.rd_rsp.p.last.eq(bad | (left == 0)),
            self.rd_rsp.p.error.eq(bad),
        ]
        with m.If(self.rd_req.valid & self.rd_req.ready):
            last = Signal(13)  # byte, counted from the first beat
            m.d.comb += last.eq(request.addr[:3] + request.length - 1)
            outside = request.addr[ceil_log2(self._size) :] != 0
            m.d.sync += [
                busy.eq(1),
                bad.eq(outside),
                tag.eq(request.tag),
                place.eq(request.addr[3:]),
                left.eq(last[3:]),
            ]
            with m.If(outside & ~(self.wr.valid & self.wr.ready)):
                increment(m, self.faults)
        with m.If(beat):
            m.d.sync += [place.eq(place + 1), left.eq(left - 1)]
            with m.If(bad | (left == 0)):
                m.d.sync += busy.eq(0)

    def _scan(self, m: Module, written) -> None:
        """Marks of blocks, and the search for one."""
        marks, block = written
        blocks = self._size // BLOCK_BYTES
        m.submodules.map = table = Ram(shape=1, depth=blocks)
        cursor, tries = Signal(range(blocks)), Signal(range(blocks))
        clears = Signal()
        m.d.comb += [
            table.write.index.eq(Mux(marks, block, cursor)),
            table.write.row.eq(marks),
            table.write.enable.eq(marks | clears),
            table.read0.index.eq(cursor),
            self.block.eq(cursor),
        ]
        with m.FSM(name="scan_state"):
            # IDLE: nobody looks for a block; ends when somebody does.
            with m.State("IDLE"):
                m.d.sync += tries.eq(blocks - 1)
                with m.If(self.scan):
                    m.next = "READ"
            # READ: fetches a block's mark; ends at once.
            with m.State("READ"):
                m.d.comb += table.read0.enable.eq(1)
                m.next = "LOOK"
            # LOOK: a mark is here; ends the search if it is set, or when all were looked at.
            with m.State("LOOK"):
                with m.If(table.read0.row):
                    m.next = "CLEAR"
                with m.Elif(tries == 0):
                    m.d.comb += self.scanned.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.d.sync += [cursor.eq(cursor + 1), tries.eq(tries - 1)]
                    m.next = "READ"
            # CLEAR: takes the mark away; ends in a cycle in which the card writes nothing.
            with m.State("CLEAR"):
                m.d.comb += clears.eq(~marks)
                with m.If(clears):
                    m.d.comb += [self.scanned.eq(1), self.found.eq(1)]
                    m.next = "IDLE"
