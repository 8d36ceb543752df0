"""Counters of every QP: what the receive side has met, by rdma-core's names."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.common.tables import TableProgram
from hdl.config import NicConfig
from hdl.ports.counter_names import QP_COUNTER_INDEX, QP_COUNTER_SLOTS, QP_COUNTERS
from hdl.ports.jobs import ClearCounters

from .event_words import EventWords
from .types import Counted

__all__ = ["QpCounters"]


class QpCounters(wiring.Component):
    """A word for each QP and counter of ``QP_COUNTERS``, one after the other in one RAM.

    Two words make a row: a RAM of half the depth needs half as many blocks side by side.

    Members: ``counted`` In: what to count. ``clear`` In: a QP whose counters begin at 0; until its
    first clear after reset a QP counts nothing and reads 0. ``guest`` and ``program`` In: readers;
    the index is ``QP_COUNTER_SLOTS`` times the pair plus the counter. A write replaces a word.
    ``ready`` Out: the clearing after reset is done.
    Latency: 7 cycles until an event is counted, 3 for a read. Throughput: an event in 2 cycles, a
    clear in 17. The receive side needs 3 cycles and more for a packet, which causes one event, and
    3 at the most when it breaks its QP; no more than 35 come at once, so none is ever lost.
    Errors: none; words wrap at 2**32. Reset: every QP reads 0.
    """

    def __init__(self, *, config: NicConfig):
        if len(QP_COUNTERS) > QP_COUNTER_SLOTS:
            raise ValueError(f"{len(QP_COUNTERS)} counters do not fit {QP_COUNTER_SLOTS} slots")
        self._config, self._qps = config, config.qps
        super().__init__(
            {
                "counted": In(stream.Signature(Counted, always_ready=True)),
                "clear": In(stream.Signature(ClearCounters)),
                "guest": In(TableProgram(QP_COUNTER_INDEX, 32)),
                "program": In(TableProgram(QP_COUNTER_INDEX, 32)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.events = events = EventWords(config=self._config)
        wiring.connect(m, wiring.flipped(self.counted), events.counted)
        m.submodules.words = words = Ram(
            shape=data.ArrayLayout(32, 2), depth=self._qps * QP_COUNTER_SLOTS // 2
        )
        m.submodules.begun = begun = Ram(shape=1, depth=self._qps, forward=False)
        slots, pairs = ceil_log2(QP_COUNTER_SLOTS), ceil_log2(self._qps)
        step = Signal(slots - 1)
        cleared = Signal(range(self._qps + 1))
        word = Signal(range(self._qps * QP_COUNTER_SLOTS))
        asked = Signal.like(word, reset_less=True)
        # What was read: the word's place, its row, and whether its pair has been cleared once. A
        # word that counts is written while the next one is read, which may be the same.
        place = Signal.like(word, reset_less=True)
        row, known = Signal(words.write.row.shape(), reset_less=True), Signal(reset_less=True)
        old, new, grown = Signal(32), Signal(32), Signal(32)
        of_event, turn = Signal(), Signal()  # what it is read for; turn 0: the guest
        storing = Signal()
        # Which half bytes of each word are full, known from the RAM: no byte waits for one below.
        # Looked at in the cycle after READ alone, so it need not wait for that.
        full, filled = Signal(data.ArrayLayout(6, 2), reset_less=True), Signal(6)
        m.d.comb += [
            self.ready.eq(cleared == self._qps),
            words.read0.index.eq(word >> 1),
            begun.read0.index.eq(word >> slots),
            begun.read0.enable.eq(words.read0.enable),
            old.eq(row[place[0]]),
            filled.eq(full[place[0]]),
            grown.eq(Cat((old.word_select(n, 8) + filled[: 2 * n].all())[:8] for n in range(4))),
            new.eq(Mux(storing, grown, self.program.row)),
            words.write.index.eq(place >> 1),
            words.write.row.eq(row),
            words.write.row[place[0]].eq(new),
            begun.write.index.eq(self.clear.payload.qp),
            begun.write.row.eq(1),
        ]
        m.d.sync += full.eq(
            Cat(half.word_select(n, 4).all() for half in words.read0.row for n in range(6))
        )
        for reader in (self.guest, self.program):
            m.d.comb += reader.read_row.eq(Mux(known, old, 0))
        with m.FSM(name="qp_counters"):
            # RESET: writes each pair as not begun after reset; ends with the last pair.
            with m.State("RESET"):
                m.d.comb += [
                    begun.write.index.eq(cleared),
                    begun.write.row.eq(0),
                    begun.write.enable.eq(1),
                ]
                m.d.sync += cleared.eq(cleared + 1)
                with m.If(cleared == self._qps - 1):
                    m.next = "IDLE"
            # IDLE: reads the word of an event, of a reader, or begins to clear; ends with one.
            with m.State("IDLE"):
                m.d.comb += [words.read0.enable.eq(1), words.write.enable.eq(storing)]
                m.d.sync += [step.eq(0), asked.eq(word), storing.eq(0)]
                with m.If(events.o.valid):
                    m.d.comb += word.eq(events.o.payload)
                    m.d.sync += of_event.eq(1)
                    m.next = "READ"
                with m.Elif(self.clear.valid & ~events.waits):
                    m.next = "CLEAR"
                with m.Elif(self.guest.read):
                    m.d.comb += word.eq(self.guest.index)
                    m.d.sync += [of_event.eq(0), turn.eq(0)]
                    m.next = "READ"
                with m.Elif(self.program.read | self.program.write):
                    m.d.comb += word.eq(self.program.index)
                    m.d.sync += [of_event.eq(0), turn.eq(1)]
                    m.next = "READ"
            # READ: keeps what was read, to be counted up or shown; ends by itself.
            with m.State("READ"):
                m.d.comb += events.o.ready.eq(of_event)
                m.d.sync += [
                    row.eq(words.read0.row),
                    known.eq(begun.read0.row),
                    place.eq(asked),
                    storing.eq(of_event),
                ]
                m.next = "ANSWER"
                with m.If(of_event):
                    m.next = "IDLE"
            # ANSWER: answers the reader; ends by itself.
            with m.State("ANSWER"):
                m.d.comb += [
                    self.guest.done.eq(~turn),
                    self.program.done.eq(turn),
                    words.write.enable.eq(turn & self.program.write),
                ]
                m.next = "IDLE"
            # CLEAR: clears a pair's words, a row in each cycle; ends with the last.
            with m.State("CLEAR"):
                m.d.comb += [
                    words.write.index.eq(Cat(step, self.clear.payload.qp[:pairs])),
                    words.write.row.eq(0),
                    words.write.enable.eq(1),
                    begun.write.enable.eq(1),
                    self.clear.ready.eq(step == QP_COUNTER_SLOTS // 2 - 1),
                ]
                m.d.sync += step.eq(step + 1)
                with m.If(self.clear.ready):
                    m.next = "IDLE"
        return m
