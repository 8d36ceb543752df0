"""Request packets that have been handed to the gather, until their checks have come."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import ceil_log2

from hdl.abi.enums import WcStatus
from hdl.common.contract import require, taken_at_once
from hdl.common.count import COUNT, increment
from hdl.common.drain import Drain
from hdl.common.fifo import StreamFifo
from hdl.common.ram import BLOCK_ROWS, Ram
from hdl.common.skid import Register
from hdl.config import CardFeature, NicConfig
from hdl.ports.jobs import TxChecked
from hdl.ports.numbers import QpNumber

from ..outstanding.types import Fail, Finish

__all__ = ["Handed", "RequestChecks"]

#: Packets whose checks are pending, and lines to be given back behind them.
PENDING = 32
#: As many of them when they are large: what waits here stands in front of others.
LARGE = 4
#: Packets that nothing answers, between their checks and their way.
UNSENT = 2 * BLOCK_ROWS
#: Features of services without answers.
UNANSWERED = {CardFeature.UC, CardFeature.UD}


class Handed(data.Struct):
    """A packet handed to the gather (``job``), or only a line to give back in its turn.

    ``begins``: the first of its WQE, which must have its outstanding entry before it goes out.
    ``release``: ``line`` is not needed after it. ``finish``: entry ``number`` is complete then.
    ``told``: nothing answers it, so egress tells when it has been sent; if it ``ends`` its WQE,
    that is complete then. ``copied``: it is a piece of a MEMCPY."""

    job: 1
    copied: 1
    begins: 1
    release: 1
    finish: 1
    told: 1
    ends: 1
    qp: QpNumber
    position: 16
    number: 16
    line: 8


def unsent_layout(number_bits: int) -> data.StructLayout:
    """A packet that nothing answers, between its check and its way."""
    return data.StructLayout(
        {
            "qp": QpNumber,
            "position": 16,
            "number": number_bits,  # of its WQE's entry
            "ends": 1,  # it is the last one of its WQE
            "generation": 1,  # of the drain
            "begins": 1,  # it is the first one
            "bad": 1,  # its check was not good,
            "absent": 1,  # so it is not on its way; or there has been none
        }
    )


class RequestChecks(wiring.Component):
    """Pairs each packet with the gather's answer, in order, and passes on those refused.

    This is the in-order commit stage of the requester. The rows are speculative: they count a
    packet as sent when it is handed over. A good answer leaves it at that; ``RequestRedirect``
    stops the QP of a packet that is ``refused``.
    The payload is read behind the check. So a WQE that nothing answers is finished only when egress
    says that its last packet is on its way: packets leave in the order of their checks. One of
    them that goes out ``spoiled``, as its payload could not be read, ends the WQE in error. A bit
    for each QP says so to the packets behind it, until the QP's next WQE begins: WQEs of several
    QPs may fail at once, and none of them may end that of another one.

    Members: ``i`` one for each job, and lines without one; ``large``: the packet that would be next
    may be large (``RequestPackets`` says), ``room``: it may be handed over (a place is kept for one
    without a job, which only needs ``i.ready``); ``begun``: pulse, an entry of a WQE with packets
    has been appended; ``sent``, ``spoiled``: see ``Egress``; ``checked`` the
    gather's answers; ``release``, ``finish``: what a packet leaves to do, whatever its answer;
    ``refused``: its WQE ends with that status, or, with ``refused_copy``, with its last piece.
    Until that is taken, when all of it has been done, no further answer is. ``drain_start``,
    ``drain_done``: see ``Drain``; done when all handed over before has been dealt with, refusals
    included.
    ``packets``: counter (``COUNT`` bits, wraps) of those sent.
    Latency: 3 cycles from ``i`` to the earliest answer taken. Throughput: one in 2 cycles.
    Errors: ``refused``. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(Handed)),
                "large": In(1),
                "room": Out(1),
                "begun": In(1),
                "sent": In(1),
                "spoiled": In(1),
                "checked": In(stream.Signature(TxChecked)),
                "release": Out(stream.Signature(8)),
                "finish": Out(stream.Signature(Finish)),
                "refused": Out(stream.Signature(Fail)),
                "refused_copy": Out(1),
                "packets": Out(COUNT),
                "drain_start": In(1),
                "drain_done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        entry = data.StructLayout({"handed": Handed, "generation": 1})
        m.submodules.queue = queue = StreamFifo(shape=entry, depth=PENDING)
        m.submodules.drain = drain = Drain()
        oldest = queue.o.payload.handed
        begun = Signal(range(PENDING + 1))  # appended, first packets not yet released
        any_begun = Signal()  # ``begun`` is not 0
        refused_generation = Signal()
        free, bad, taken, told = Signal(), Signal(), Signal(), Signal()
        leaving = Signal()  # there is room for a packet on its way to egress
        # What ``queue.level`` is in this cycle, worked out in the one before.
        few, some, entered = Signal(init=1), Signal(init=1), Signal()
        for flag, limit in ((few, LARGE), (some, PENDING - 1)):
            with m.If(entered == taken):
                m.d.sync += flag.eq(queue.level < limit)
            with m.Elif(entered):
                m.d.sync += flag.eq(queue.level < limit - 1)
            with m.Else():
                m.d.sync += flag.eq(queue.level < limit + 1)
        m.d.comb += [
            queue.i.valid.eq(self.i.valid),
            queue.i.payload.handed.eq(self.i.payload),
            queue.i.payload.generation.eq(drain.epoch),
            self.i.ready.eq(queue.i.ready),
            entered.eq(queue.i.valid & queue.i.ready),
            self.room.eq(Mux(self.large, few, some)),
            free.eq(
                queue.o.valid
                & ~self.release.valid
                & ~self.finish.valid
                & ~self.refused.valid
                & (~oldest.begins | any_begun)
                & (~oldest.told | leaving)
            ),
            self.checked.ready.eq(free & oldest.job),
            taken.eq(free & (~oldest.job | self.checked.valid)),
            bad.eq(oldest.job & (self.checked.payload.status != 0)),
            told.eq(oldest.job & oldest.told),
            queue.o.ready.eq(taken),
            drain.start.eq(self.drain_start),
            self.drain_done.eq(drain.done & ~self.finish.valid),
            drain.enter.eq(self.i.valid & self.i.ready),
            drain.leave0.eq(taken & ~bad & ~told),
            drain.epoch0.eq(queue.o.payload.generation),
            drain.leave1.eq(self.refused.valid & self.refused.ready),
            drain.epoch1.eq(refused_generation),
        ]
        for port in (self.release, self.finish, self.refused):
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
        first = taken & oldest.begins
        _count(m, begun, self.begun, first)
        m.d.sync += [
            any_begun.eq(self.begun | Mux(first, begun > 1, begun != 0)),
        ]
        handed = self.i.valid & self.i.payload.job
        require(
            m, platform, ~handed | self.i.ready, "each packet that is handed over is remembered"
        )
        require(m, platform, ~first | (begun != 0), "no packet leaves before its entry is made")
        text = "no more entries are made than packets wait that begin a WQE"
        require(m, platform, ~self.begun | (begun != PENDING), text)
        with m.If(taken):
            m.d.sync += [
                self.release.valid.eq(oldest.release),
                self.release.payload.eq(oldest.line),
                self.finish.valid.eq(oldest.finish & ~bad & ~told),
                self.refused.valid.eq(bad),
            ]
            with m.If(oldest.job & ~bad):
                increment(m, self.packets)
        # What is refused and what is finished, if anything is, before it is known whether.
        with m.If(~self.refused.valid):
            m.d.sync += [
                self.refused.payload.qp.eq(oldest.qp),
                self.refused.payload.position.eq(oldest.position),
                self.refused.payload.status.eq(self.checked.payload.status),
                self.refused_copy.eq(oldest.copied),
                refused_generation.eq(queue.o.payload.generation),
            ]
        with m.If(~self.finish.valid):
            m.d.sync += [
                self.finish.payload.qp.eq(oldest.qp),
                self.finish.payload.number.eq(oldest.number),
                self.finish.payload.ends.eq(0),
            ]
        if self._config.features & UNANSWERED:
            self._unanswered(m, platform, (taken, bad), leaving, refused_generation)
        return m

    def _unanswered(
        self,
        m: Module,
        platform,
        packet: tuple[Signal, ...],
        leaving: Signal,
        refused_generation: Signal,
    ) -> None:
        """Packets that nothing answers wait until they are on their way; then their WQEs end."""
        taken, bad = packet
        waiting, spoiled, some_gone, sends = self._await(m, platform, taken, bad, leaving)
        leaves, void = self._judge(m, waiting, spoiled, some_gone, taken, sends)
        refused, finish = self.refused, self.finish
        # What is refused and what is finished, if anything is, before it is known whether.
        with m.If(~refused.valid & ~taken):
            m.d.sync += [
                refused.payload.qp.eq(waiting.qp),
                refused.payload.position.eq(waiting.position),
                refused.payload.status.eq(WcStatus.GENERAL_ERR),
                self.refused_copy.eq(0),
                refused_generation.eq(waiting.generation),
            ]
        with m.If(leaves & spoiled & ~void):
            m.d.sync += refused.valid.eq(1)
        with m.Elif(leaves):
            m.d.sync += finish.valid.eq(waiting.ends & ~void)
        with m.If(~finish.valid & ~taken):
            m.d.sync += [
                finish.payload.qp.eq(waiting.qp),
                finish.payload.number.eq(waiting.number),
                finish.payload.ends.eq(1),
            ]
        # It leaves the drain a cycle later; nothing is refused in that cycle.
        drain, left, left_generation = m.submodules.drain, Signal(), Signal()
        m.d.sync += [left.eq(sends & (void | ~spoiled)), left_generation.eq(waiting.generation)]
        with m.If(left):
            m.d.comb += [drain.leave1.eq(1), drain.epoch1.eq(left_generation)]

    def _await(self, m: Module, platform, taken: Signal, bad: Signal, leaving: Signal):
        """Keep packets, and what egress says of them, in the order of their checks.

        Returns the oldest packet, whether it is spoiled, whether egress has said so of any that
        wait, and a signal for the caller to drive: the oldest packet leaves."""
        queue = m.submodules.queue
        oldest, bits = queue.o.payload.handed, ceil_log2(self._config.outstanding)
        entry = unsent_layout(bits)
        m.submodules.unsent = unsent = StreamFifo(shape=entry, depth=UNSENT)
        # Much is decided by what comes out of its RAM.
        m.submodules.next = next_ = Register(shape=entry)
        connect(m, unsent.o, next_.i)
        m.submodules.spoils = spoils = memory.Memory(shape=1, depth=UNSENT, init=[])
        keep, look = spoils.write_port(), spoils.read_port(domain="comb")
        gone, some_gone = Signal(range(UNSENT + 1)), Signal()  # sent, of those that wait; not 0
        out, out_spoiled = Signal(), Signal()  # egress says so late
        m.d.sync += [out.eq(self.sent), out_spoiled.eq(self.spoiled)]
        sends = Signal()
        m.d.comb += [
            keep.data.eq(out_spoiled),
            keep.en.eq(out),
            unsent.i.valid.eq(taken & oldest.told & (oldest.job | oldest.begins)),
            unsent.i.payload.qp.eq(oldest.qp),
            unsent.i.payload.position.eq(oldest.position),
            unsent.i.payload.number.eq(oldest.number),
            unsent.i.payload.ends.eq(oldest.ends),
            unsent.i.payload.generation.eq(queue.o.payload.generation),
            unsent.i.payload.begins.eq(oldest.begins),
            unsent.i.payload.bad.eq(bad),
            unsent.i.payload.absent.eq(bad | ~oldest.job),
            leaving.eq(unsent.i.ready),
        ]
        m.d.sync += [
            keep.addr.eq(keep.addr + out),
            some_gone.eq(out | Mux(sends, gone > 1, gone != 0)),
        ]
        # That is late: no sum stands behind it.
        with m.If(sends):
            m.d.sync += look.addr.eq(look.addr + 1)
        _count(m, gone, out, sends)
        taken_at_once(m, platform, unsent.i, "each packet on its way to egress is remembered")
        require(
            m, platform, ~out | (gone != UNSENT), "no more packets are sent than are on their way"
        )
        return next_.o.payload, look.data, some_gone, sends

    def _judge(self, m: Module, waiting, spoiled, some_gone, taken, sends: Signal):
        """Take the oldest packet when it has been sent. Returns when, and whether it is of a WQE
        that has failed before, or no packet at all, so that nothing ends with it.

        A WQE has failed once one of its packets is ``bad`` or spoiled, and its entry may be
        another's from then on. Packets of one QP pass here one WQE after the other, so one bit for
        each QP, which each beginning sets anew, knows that of its WQE at hand. What is no packet on
        its way (``absent``) passes here for the sake of this bit only."""
        next_, leaves, void = m.submodules.next, Signal(), Signal()
        m.submodules.failed = failed = Ram(shape=1, depth=self._config.qps, forward=False)
        looked = Signal()  # the bit of the QP that waits has been read
        wrong = Signal()
        m.d.comb += [
            leaves.eq(
                next_.o.valid
                & looked
                & (waiting.absent | some_gone)
                & ~taken
                & ~self.finish.valid
                & ~self.refused.valid
            ),
            next_.o.ready.eq(leaves),
            sends.eq(leaves & ~waiting.absent),
            wrong.eq(spoiled & ~waiting.absent),
            void.eq(waiting.absent | (failed.read0.row & ~waiting.begins)),
            failed.read0.index.eq(waiting.qp),
            failed.read0.enable.eq(next_.o.valid),
            failed.write.index.eq(waiting.qp),
            failed.write.row.eq(waiting.bad | wrong | (failed.read0.row & ~waiting.begins)),
            failed.write.enable.eq(leaves),
        ]
        m.d.sync += looked.eq(next_.o.valid & ~leaves)
        return leaves, void


def _count(m: Module, count: Signal, rises: Value, falls: Value) -> None:
    """Count up and down. ``falls`` is late, and so chooses between sums that are there already."""
    # no Mux: Yosys would make one sum of them, behind the choice
    up, down = (rises & ~falls).replicate(len(count)), (falls & ~rises).replicate(len(count))
    more, less = Signal.like(count), Signal.like(count)
    m.d.comb += [more.eq(count + 1), less.eq(count - 1)]
    m.d.sync += count.eq((more & up) | (less & down) | (count & ~(up | down)))
