"""What the bridge's requests do, and the answers."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import crc, data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.ports.host import MmioPort

from .parser import MASKED_BYTES
from .protocol import (
    ANSWER,
    BLOCK_BYTES,
    MESSAGES,
    MOST_WORDS,
    NO_BLOCK,
    WORD_BYTES,
    Command,
    Status,
)

__all__ = ["Executor"]

#: Bytes of the answers to READ_REGISTER and, in front of the block, to POLL.
REGISTER_BYTES, POLL_BYTES = 4, 8
BLOCK_WORDS = BLOCK_BYTES // WORD_BYTES
#: Bits of an offset and of a BAR in the address of a register (docs/core.md).
OFFSET_BITS, BAR_BITS = 20, 3
WIDTH = 8 * WORD_BYTES


class Executor(wiring.Component):
    """Does what a request asks for, and sends the answer.

    Parameters: ``size``: bytes of memory.
    Members: ``start``, ``good``, ``command``, ``argument``, ``address`` In, ``index`` Out,
    ``masked`` In, ``done`` Out: the request (see ``RequestParser``). ``mmio``: registers.
    ``access``, ``word``, ``word_valid``, ``interrupts``, ``take``, ``scan``, ``scanned``,
    ``found``, ``block``: memory (see ``HostRam``). ``o`` Out: bytes of the answer.
    Latency: some cycles, or what the register or the search takes. Reset: waits for a request.
    """

    def __init__(self, *, size: int):
        self._size = size
        self._index = ceil_log2(size // WORD_BYTES)
        access = data.StructLayout(
            {"index": self._index, "write": 1, "data": WIDTH, "strb": WORD_BYTES}
        )
        super().__init__(
            {
                "start": In(1),
                "good": In(1),
                "command": In(8),
                "argument": In(8),
                "address": In(32),
                "index": Out(range(MOST_WORDS)),
                "masked": In(8 * MASKED_BYTES),
                "done": Out(1),
                "mmio": In(MmioPort()),
                "access": Out(stream.Signature(access, always_ready=True)),
                "word": In(WIDTH),
                "word_valid": In(1),
                "interrupts": In(MESSAGES),
                "take": Out(MESSAGES),
                "scan": Out(1),
                "scanned": In(1),
                "found": In(1),
                "block": In(ceil_log2(size // BLOCK_BYTES)),
                "o": Out(stream.Signature(8)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        status, length = Signal(Status), Signal(8)
        words, cursor = Signal(range(MOST_WORDS + 1)), Signal(self._index)
        shift, left = Signal(WIDTH), Signal(range(WORD_BYTES + 1))
        place = self.address[3:][: self._index]
        m.d.comb += [
            self.mmio.req.p.addr.eq(self.address[:OFFSET_BITS]),
            self.mmio.req.p.bar.eq(self.address[OFFSET_BITS:]),
            self.mmio.req.p.function.eq(self.address[OFFSET_BITS + BAR_BITS :]),
            self.mmio.req.p.strb.eq(self.argument),
            self.mmio.req.p.data.eq(self.masked[-8 * REGISTER_BYTES :]),
            self.mmio.req.p.write.eq(self.command == Command.WRITE_REGISTER),
            self.access.p.index.eq(cursor),
            self.access.p.data.eq(self.masked[:WIDTH]),
            self.access.p.strb.eq(self.masked[WIDTH:]),
            self.access.p.write.eq(self.command == Command.WRITE_MEMORY),
        ]
        with m.FSM(name="execute"):
            # IDLE: waits for a request; ends with one, which is executed or refused.
            with m.State("IDLE"):
                m.d.sync += [self.index.eq(0), words.eq(0), left.eq(0), length.eq(0)]
                m.d.sync += [cursor.eq(place), status.eq(Status.OK)]
                with m.If(self.start):
                    self._begin(m, status, words, length)
            # REGISTER: hands an access to the card; ends when that takes it.
            with m.State("REGISTER"):
                m.d.comb += self.mmio.req.valid.eq(1)
                with m.If(self.mmio.req.ready):
                    m.next = "VALUE"
                    with m.If(self.mmio.req.p.write):
                        m.next = "ANSWER"
            # VALUE: waits for what the card answers; ends with it.
            with m.State("VALUE"):
                m.d.comb += self.mmio.rsp.ready.eq(1)
                m.d.sync += [shift.eq(self.mmio.rsp.payload), left.eq(REGISTER_BYTES)]
                m.d.sync += length.eq(REGISTER_BYTES)
                with m.If(self.mmio.rsp.valid):
                    m.next = "ANSWER"
            # WRITE: writes a word a cycle; ends with the last one.
            with m.State("WRITE"):
                m.d.comb += self.access.valid.eq(1)
                m.d.sync += [self.index.eq(self.index + 1), cursor.eq(cursor + 1)]
                with m.If(self.index == (self.argument - 1)[: len(self.index)]):
                    m.next = "ANSWER"
            # SCAN: looks for a block that the card has written; ends when the search does.
            with m.State("SCAN"):
                found = Mux(self.found, self.block, Const(NO_BLOCK, 32))
                m.d.sync += [
                    shift.eq(Cat(self.interrupts, found)),
                    left.eq(POLL_BYTES),
                    words.eq(Mux(self.found, BLOCK_WORDS, 0)),
                    length.eq(POLL_BYTES + Mux(self.found, BLOCK_BYTES, 0)),
                    cursor.eq(self.block << ceil_log2(BLOCK_WORDS)),
                ]
                with m.If(self.scanned):
                    m.d.comb += self.take.eq(self.interrupts)
                    m.next = "ANSWER"
            self._answer(m, (status, length), (words, cursor), (shift, left))
        return m

    def _begin(self, m: Module, status: Signal, words: Signal, length: Signal) -> None:
        """Where a request goes: to its state, or to an answer that says why not."""
        outside = self.address[ceil_log2(self._size) :].any() | self.address[:3].any()
        fits = (self.argument != 0) & (self.argument <= MOST_WORDS)
        m.next = "ANSWER"
        with m.If(~self.good):
            m.d.sync += status.eq(Status.BAD_CHECK)
        with m.Else():
            with m.Switch(self.command):
                with m.Case(Command.READ_REGISTER, Command.WRITE_REGISTER):
                    m.next = "REGISTER"
                with m.Case(Command.READ_MEMORY, Command.WRITE_MEMORY):
                    with m.If(~fits):
                        m.d.sync += status.eq(Status.BAD_REQUEST)
                    with m.Elif(outside):
                        m.d.sync += status.eq(Status.BAD_ADDRESS)
                    with m.Elif(self.command == Command.WRITE_MEMORY):
                        m.next = "WRITE"
                    with m.Else():
                        m.d.sync += [words.eq(self.argument), length.eq(self.argument << 3)]
                with m.Case(Command.POLL):
                    m.d.comb += self.scan.eq(1)
                    m.next = "SCAN"
                with m.Default():
                    m.d.sync += status.eq(Status.BAD_REQUEST)

    def _answer(self, m: Module, head, memory, octets) -> None:
        """The states that send the answer: head, bytes at hand, words of memory, check."""
        (status, length), (words, cursor), (shift, left) = head, memory, octets
        m.submodules.check = check = crc.catalog.CRC16_IBM_3740(data_width=8).create()
        count = Signal(2)
        sent = self.o.valid & self.o.ready
        m.d.comb += check.data.eq(self.o.payload)
        # ANSWER: sends what comes first in every answer; ends with the length.
        with m.State("ANSWER"):
            m.d.comb += [
                self.o.valid.eq(1),
                self.o.payload.eq(Array([ANSWER, self.command, status, length])[count]),
                check.start.eq(count == 0),
                check.valid.eq(sent & (count != 0)),
            ]
            with m.If(sent):
                m.d.sync += count.eq(count + 1)
                with m.If(count == 3):
                    m.next = "BYTES"
        # BYTES: sends the bytes at hand; ends when there are none and no words are to come.
        with m.State("BYTES"):
            m.d.comb += [self.o.valid.eq(left != 0), self.o.payload.eq(shift[:8])]
            m.d.comb += check.valid.eq(sent)
            with m.If(sent):
                m.d.sync += [shift.eq(shift[8:]), left.eq(left - 1)]
            with m.If(left == 0):
                m.next = "CHECK"
                with m.If(words != 0):
                    m.next = "FETCH"
        # FETCH: asks for a word of memory; ends at once.
        with m.State("FETCH"):
            m.d.comb += self.access.valid.eq(1)
            m.d.sync += [cursor.eq(cursor + 1), words.eq(words - 1)]
            m.next = "LOAD"
        # LOAD: takes the word; ends with it.
        with m.State("LOAD"):
            m.d.sync += [shift.eq(self.word), left.eq(WORD_BYTES)]
            with m.If(self.word_valid):
                m.next = "BYTES"
        # CHECK: sends the check; ends the request with its second byte.
        with m.State("CHECK"):
            m.d.comb += self.o.valid.eq(1)
            m.d.comb += self.o.payload.eq(check.crc.word_select(count[0], 8))
            with m.If(sent):
                m.d.sync += count.eq(count + 1)
                with m.If(count[0]):
                    m.d.comb += self.done.eq(1)
                    m.d.sync += count.eq(0)
                    m.next = "IDLE"
