"""The rooms' counters at their full width, in one memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.count import BYTES, COUNT
from hdl.common.ram import Ram
from hdl.common.tables import TableProgram
from hdl.ports.counter_names import COUNTER_INDEX

__all__ = ["CounterBank"]

LOW, HIGH = "_low", "_high"
#: Cycles from the choice of a counter to its answer.
STEP = 6
#: The bit, from the top, that changes with each eighth of what a count can hold.
EIGHTH = 3
#: Most bytes that the port moves in a cycle, and those of a frame, which count at its end.
BEAT, FRAME = 64, 9216


def choose(values, index):
    """One of ``values`` by a tree of two-way choices; a 6-input table makes two of its levels."""
    if len(values) == 1:
        return values[0]
    odd = [
        Mux(index[0], *pair[::-1]) if len(pair) == 2 else pair[0]
        for pair in (values[n : n + 2] for n in range(0, len(values), 2))
    ]
    return choose(odd, index[1:])


class CounterBank(wiring.Component):
    """Adds up the rooms' counts, which have few bits, to words of ``bits`` bits.

    A read visits its counter: the word grows by as many as the room has counted since the last
    visit, so each answer is up to date. All counters are visited in turn when one has counted an
    eighth of what it can hold. This is rare, so a simulation can leave idle cycles out.
    Parameters: ``names`` of the counters, in the order of their words; ``bits`` of a word.
    ``<name>_low`` counts bytes; ``<name>_high`` behind it counts how often that one has wrapped.
    Members: ``values`` In: the rooms' counts, which wrap (``COUNT`` bits, ``BYTES`` those of
    bytes); ``guest`` and ``program`` In: readers by number, writes have no effect; ``ready`` Out:
    the words are cleared after reset.
    Latency: an answer in 12 cycles, 24 when both read, more while it clears. Throughput: a visit
    in 6 cycles. Every second visit is for a reader, so a round takes at most 12 for each counter.
    Errors: ValueError for so many counters that one could wrap unseen. Reset: every word is 0, as
    the rooms' counts must be.
    """

    def __init__(self, *, names: tuple[str, ...], bits: int = 32):
        # One tour that is under way, and one more, with a reader at every second visit.
        tours = 2 * 2 * STEP * (len(names) + 1)
        for width, each in ((COUNT, 1), (BYTES, BEAT)):
            if (1 << width - EIGHTH) + tours * each + (each > 1) * FRAME >= 1 << width:
                raise ValueError(f"{len(names)} counters are too many to visit each one in time")
        if not BYTES < bits <= 32:
            raise ValueError(f"Words must have {BYTES + 1} to 32 bits, not {bits!r}")
        self._names, self._bits = names, bits
        self._low = [n for n, name in enumerate(names) if name.endswith(LOW)]
        self._high = [n for n, name in enumerate(names) if name.endswith(HIGH)]
        super().__init__(
            {
                "values": In(data.ArrayLayout(BYTES, len(names))),
                "guest": In(TableProgram(COUNTER_INDEX, 32)),
                "program": In(TableProgram(COUNTER_INDEX, 32)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        count, bits = len(self._names), self._bits
        # A counter as software reads it, and the room's count at its last visit.
        word_layout = data.StructLayout({"total": bits, "seen": BYTES})
        m.submodules.words = words = Ram(
            shape=word_layout, depth=1 << ceil_log2(count), forward=False
        )
        low, high = self._low, self._high

        # A tour is due when one of these bits changes.
        flips = Cat(
            self.values[n][(BYTES if n in low else COUNT) - EIGHTH]
            for n in range(count)
            if n not in high
        )
        were, again, touring = Signal(len(flips)), Signal(), Signal()
        m.d.sync += were.eq(flips)
        with m.If(were != flips):
            m.d.sync += again.eq(1)

        tour, index = Signal(range(count)), Signal(range(count))
        readers = (self.guest, self.program)
        reading = Signal(len(readers))  # the reader of this visit; none: the tour's
        was_read, turn = Signal(), Signal()  # the reader that goes first
        word, now = Signal(word_layout, reset_less=True), Signal(BYTES, reset_less=True)
        more, carry = Signal(BYTES, reset_less=True), Signal(reset_less=True)
        wrapped = Signal(len(low))  # of each low word, not yet counted in the high one
        total = Signal(bits + 1)
        m.d.comb += [
            words.read0.index.eq(index),
            words.write.index.eq(index),
            words.write.row.total.eq(total[:bits]),
            words.write.row.seen.eq(now),
            # The lower half of the sum is in the word already, and its carry waits.
            total.eq(Cat(word.total[:BYTES], word.total[BYTES:] + carry)),
        ]
        for reader in readers:
            m.d.comb += reader.read_row.eq(total[:bits])

        chosen = choose([self.values[n] for n in range(count)], index)
        with m.FSM(name="counters") as fsm:
            with m.State("CLEAR"):
                # CLEAR: sets one word after the other to 0; ends with the last one.
                m.d.comb += [words.write.row.eq(0), words.write.enable.eq(1)]
                m.d.sync += index.eq(index + 1)
                with m.If(index == count - 1):
                    m.next = "CHOOSE"
            with m.State("CHOOSE"):
                # CHOOSE: takes a counter, a reader's or the tour's; ends when there is one.
                m.d.sync += [was_read.eq(0), reading.eq(0), index.eq(tour)]
                with m.If(touring & was_read):
                    m.next = "READ"
                for number, (reader, other) in enumerate((readers, readers[::-1])):
                    with m.Elif(reader.read & ~(other.read & (turn != number))):
                        m.d.sync += [
                            was_read.eq(1),
                            turn.eq(1 - number),
                            reading.eq(1 << number),
                            index.eq(reader.index),
                        ]
                        m.next = "READ"
                with m.Elif(touring):
                    m.next = "READ"
                with m.Elif(again):
                    m.d.sync += [touring.eq(1), again.eq(were != flips)]
            with m.State("READ"):
                # READ: reads its word; one cycle.
                m.d.comb += words.read0.enable.eq(1)
                m.next = "LOAD"
            with m.State("LOAD"):
                # LOAD: registers the word and the room's count; one cycle.
                m.d.sync += word.eq(words.read0.row)
                m.d.sync += now.eq(chosen)
                m.next = "COMPARE"
            with m.State("COMPARE"):
                # COMPARE: finds how many were counted since the last visit; one cycle.
                self._compare(m, index, now - word.seen, more, wrapped)
                m.next = "ADD"
            with m.State("ADD"):
                # ADD: adds these to the lower half of the word; one cycle.
                m.d.sync += Cat(word.total[:BYTES], carry).eq(word.total[:BYTES] + more)
                m.next = "STORE"
            with m.State("STORE"):
                # STORE: adds the carry, writes the word and answers the reader; one cycle.
                m.d.comb += words.write.enable.eq(1)
                m.d.comb += Cat(reader.done for reader in readers).eq(reading)
                for number, place in enumerate(low):
                    with m.If((index == place) & total[bits]):
                        m.d.sync += wrapped[number].eq(1)
                with m.If(reading == 0):
                    last = tour == count - 1
                    m.d.sync += [tour.eq(Mux(last, 0, tour + 1)), touring.eq(~last)]
                m.next = "CHOOSE"
        m.d.comb += self.ready.eq(~fsm.ongoing("CLEAR"))
        return m

    def _compare(self, m, index, growth, more, wrapped) -> None:
        """``more``: what the room has counted, or for a high word that its low one has wrapped."""
        m.d.sync += more.eq(growth[:COUNT])
        for place in self._low:
            with m.If(index == place):
                m.d.sync += more.eq(growth)
        for number, place in enumerate(self._high):
            with m.If(index == place):
                m.d.sync += [more.eq(wrapped[number]), wrapped[number].eq(0)]
