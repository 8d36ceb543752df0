"""Requests out of bytes: where they begin, their check, their data."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import crc, memory, wiring
from amaranth.lib.wiring import In, Out

from .protocol import MOST_WORDS, SYNC, WORD_BYTES, Command

__all__ = ["MASKED_BYTES", "RequestParser"]

#: Bytes of command, argument and address; of a word with its strobes; of a register.
HEADER_BYTES, MASKED_BYTES, REGISTER_BYTES = 6, WORD_BYTES + 1, 4


class RequestParser(wiring.Component):
    """Takes requests out of the bytes that come.

    Parameters: ``patience``: cycles that a request may pause for.
    Members: ``data``, ``valid``, ``broken`` In: bytes; ``start`` Out, one cycle: a request is here,
    ``good``: its check is right; ``command``, ``argument``, ``address`` Out: it, until ``done`` In;
    ``index`` In, ``masked`` Out: its data, in words of 8 bytes with strobes above.
    Bytes that come before ``done`` are lost. Reset: waits for a request.
    """

    def __init__(self, *, patience: int):
        self._patience = patience
        super().__init__(
            {
                "data": In(8),
                "valid": In(1),
                "broken": In(1),
                "start": Out(1),
                "good": Out(1),
                "command": Out(8),
                "argument": Out(8),
                "address": Out(32),
                "done": In(1),
                "index": In(range(MOST_WORDS)),
                "masked": Out(8 * MASKED_BYTES),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.check = check = crc.catalog.CRC16_IBM_3740(data_width=8).create()
        m.submodules.words = words = memory.Memory(
            shape=8 * MASKED_BYTES, depth=MOST_WORDS, init=[]
        )
        store, load = words.write_port(), words.read_port(domain="comb")
        header, word = Signal(8 * HEADER_BYTES), Signal(8 * MASKED_BYTES)
        count, index = Signal(4), Signal(range(MOST_WORDS))
        wrong, late = Signal(), Signal(range(self._patience + 1))
        is_word = self.command == Command.WRITE_MEMORY
        has_data = (is_word & (self.argument != 0) & (self.argument <= MOST_WORDS)) | (
            self.command == Command.WRITE_REGISTER
        )
        shifted = Cat(word[8:], self.data)
        m.d.comb += [
            Cat(self.command, self.argument, self.address).eq(header),
            check.data.eq(self.data),
            # Data of a register have no strobes and end in the upper bytes of a word.
            store.data.eq(shifted),
            store.addr.eq(index),
            load.addr.eq(self.index),
            self.masked.eq(load.data),
        ]
        m.d.sync += late.eq(Mux(self.valid, 0, late + 1))
        with m.If(self.valid):
            m.d.sync += [count.eq(count + 1), wrong.eq(wrong | self.broken)]
        with m.FSM():
            # IDLE: skips what is no request; ends with the first byte of one.
            with m.State("IDLE"):
                m.d.comb += check.start.eq(1)
                m.d.sync += [count.eq(0), index.eq(0), wrong.eq(0)]
                with m.If(self.valid & ~self.broken & (self.data == SYNC)):
                    m.next = "HEADER"
            # HEADER: takes command, argument and address; ends with the last byte of them.
            with m.State("HEADER"):
                self._gives_up(m, late)
                m.d.comb += check.valid.eq(self.valid)
                with m.If(self.valid):
                    m.d.sync += header.eq(Cat(header[8:], self.data))
                    with m.If(count == HEADER_BYTES - 1):
                        m.d.sync += count.eq(0)
                        m.next = "LENGTH"
            # LENGTH: looks whether data follow; ends at once: a byte takes longer than a cycle.
            with m.State("LENGTH"):
                m.next = "CHECK"
                with m.If(has_data):
                    m.next = "DATA"
            # DATA: takes data; ends with the last byte of them.
            with m.State("DATA"):
                self._gives_up(m, late)
                m.d.comb += check.valid.eq(self.valid)
                with m.If(self.valid):
                    m.d.sync += word.eq(shifted)
                    with m.If(count == Mux(is_word, MASKED_BYTES, REGISTER_BYTES) - 1):
                        m.d.comb += store.en.eq(1)
                        m.d.sync += [count.eq(0), index.eq(index + 1)]
                        with m.If(~is_word | (index == (self.argument - 1)[:4])):
                            m.next = "CHECK"
            # CHECK: takes the check; ends with its second byte.
            with m.State("CHECK"):
                self._gives_up(m, late)
                right = Mux(count[0], check.crc[8:], check.crc[:8])
                with m.If(self.valid):
                    m.d.sync += wrong.eq(wrong | self.broken | (self.data != right))
                    with m.If(count[0]):
                        m.next = "START"
            # START: hands the request over; ends at once.
            with m.State("START"):
                m.d.comb += [self.start.eq(1), self.good.eq(~wrong)]
                m.next = "WAIT"
            # WAIT: the request is being executed; ends when its answer has been sent.
            with m.State("WAIT"):
                with m.If(self.done):
                    m.next = "IDLE"
        return m

    def _gives_up(self, m: Module, late: Signal) -> None:
        """In a state that waits for bytes: the request is forgotten when none has come for long."""
        with m.If(late == self._patience):
            m.next = "IDLE"
