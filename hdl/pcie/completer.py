"""Requests of the host (CQ) as accesses of the registers, and their completions (CC)."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.push import PUSH_BAR, PUSH_PIECE
from hdl.common.skid import Skid
from hdl.ports.host import MmioPort, push_beat

from .descriptors import WIDTH, CompletionStatus, RequestType, cc_descriptor, cq_descriptor, cq_user

__all__ = ["MOST_READ", "MOST_WRITTEN", "Completer", "cc_beat", "cq_beat"]

#: Bits of an offset within a BAR: those of the largest one, the management function's.
OFFSET_BITS = 20
#: And of one within a push window.
ADDRESS_BITS = 22
#: Words of the longest read that is answered: 64 bytes, the most that a processor reads at once, at
#: any offset.
MOST_READ = 17
#: Words of the longest write that is carried out: 16 bytes at any offset. The first beat has them.
MOST_WRITTEN = 5


def cq_beat() -> data.StructLayout:
    """A beat of CQ."""
    return data.StructLayout({"data": WIDTH, "user": cq_user(), "last": 1})


def cc_beat() -> data.StructLayout:
    """A packet of CC: ``words`` of ``data`` are valid behind its descriptor."""
    return data.StructLayout(
        {"head": cc_descriptor(), "data": 32 * MOST_READ, "words": range(MOST_READ + 1)}
    )


class Completer(wiring.Component):
    """Makes accesses of the host port, a word each, of the host's requests.

    Members: ``cq``: the block's stream; ``cc``: completions, a packet each; ``mmio``: the host
    port; ``refused``: a pulse for each request that is none of memory, or too long, or whose byte
    enables are not allowed.
    A read has ``MOST_READ`` words at the most and is answered by one completion, a write
    ``MOST_WRITTEN``. The words of a request are accessed in the order of their addresses, each
    with its byte enables; a word of a write without any is skipped.
    Parameters: ``push``: the card has push windows. A write to one of these is no access but a beat
    of ``push`` Out: whole if the request is one of 64 aligned bytes, else of its first byte alone.
    Waits: for the card's answers, and for ``cc`` (``Answers``).
    Errors: a refused request that needs a completion gets UR, with the bytes that it has asked for
    (PCI Express Base Specification, 2.3.1.1) and its descriptor for the block's header log. A
    refused write or message is dropped, and so is a packet with ``discontinue``.
    Latency: 3 cycles from a request to ``mmio``, 1 from its last answer to ``cc``.
    Throughput: a write in 3 cycles, with 1 more for each word behind the first; a read waits for
    the one before it. Reset: nothing on its way.
    Source: PG213, "Completer Interface"; PCI Express Base Specification, "First/Last DW Byte
    Enables Rules" and "Completion Rules".
    """

    def __init__(self, *, push: bool = False):
        self._push = push
        super().__init__(
            {
                "cq": In(stream.Signature(cq_beat())),
                "cc": Out(stream.Signature(cc_beat())),
                "mmio": In(MmioPort()),
                "refused": Out(1),
            }
            | ({"push": Out(stream.Signature(push_beat(WIDTH)))} if push else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.skid = skid = Skid(shape=cq_beat())
        wiring.connect(m, wiring.flipped(self.cq), skid.i)
        beat, head = skid.o.payload, Signal(cq_descriptor())
        first_be, last_be = Signal(4), Signal(4)
        more, dropped = Signal(), Signal()  # beats follow; the packet ended early
        # ``last``: ``word`` is, known before it is its turn.
        status, word, last = Signal(CompletionStatus), Signal(range(MOST_READ)), Signal()
        words = Signal(data.ArrayLayout(32, MOST_READ))  # that are read, or written
        access, request, place = Signal(), self.mmio.req, Signal(OFFSET_BITS - 2)
        mask = Cat((head.aperture > bit) for bit in range(2, OFFSET_BITS))
        m.d.comb += [
            access.eq(self._is_access(head, first_be, last_be)),
            request.payload.function.eq(head.function),
            request.payload.bar.eq(head.bar),
            request.payload.addr.eq(place << 2),
            request.payload.write.eq(self._is_write(head)),
            request.payload.strb.eq(Mux(word == 0, first_be, Mux(last, last_be, 0b1111))),
            request.payload.data.eq(Array(words[n] for n in range(MOST_WRITTEN))[word]),
        ]
        written = [beat.data[128:].word_select(n, 32) for n in range(MOST_WRITTEN)]
        goes_on = [word.eq(word + 1), last.eq(word + 2 == head.words), place.eq(place + 1)]
        self._complete(m, head, first_be, last_be, words, status)
        refused = ~access & ~dropped
        if self._push:
            pushes = self._pushes(m, skid.o, more, head, first_be, last_be)
            refused = refused & ~pushes
        with m.FSM(name="request"):
            # IDLE: takes the first beat of a packet; ends with it.
            with m.State("IDLE"):
                m.d.comb += skid.o.ready.eq(1)
                m.d.sync += [
                    head.eq(beat.data),
                    first_be.eq(beat.user.first_be),
                    last_be.eq(beat.user.last_be),
                    dropped.eq(beat.user.discontinue),
                    more.eq(~beat.last),
                    word.eq(0),
                ]
                m.d.sync += [words[n].eq(written[n]) for n in range(MOST_WRITTEN)]
                with m.If(skid.o.valid):
                    m.next = "REST"
            # REST: drops the beats that follow; ends behind the last one, with the verdict.
            with m.State("REST"):
                m.d.comb += skid.o.ready.eq(more)
                m.d.sync += [place.eq(head.addr & mask), last.eq(head.words == 1)]
                with m.If(skid.o.valid & more):
                    m.d.sync += [
                        more.eq(~beat.last),
                        dropped.eq(dropped | beat.user.discontinue),
                    ]
                with m.If(~more):
                    m.d.comb += self.refused.eq(refused)
                    m.d.sync += status.eq(CompletionStatus.UR)
                    posted = self._is_write(head) | (head.type >= RequestType.MSG)
                    with m.If(dropped | (~access & posted)):
                        m.next = "IDLE"
                    with m.Elif(access):
                        m.next = "ACCESS"
                    with m.Else():
                        m.next = "COMPLETE"
                    if self._push:
                        with m.If(pushes & ~dropped):
                            m.next = "PUSH"
            # ACCESS: hands a word to the card; ends when that takes it, or at once for a write of
            # no bytes. The last word of a write ends the request.
            with m.State("ACCESS"):
                nothing = self._is_write(head) & (request.payload.strb == 0)
                m.d.comb += request.valid.eq(~nothing)
                with m.If(request.ready | nothing):
                    with m.If(~self._is_write(head)):
                        m.next = "ANSWER"
                    with m.Else():
                        m.d.sync += goes_on
                        with m.If(last):
                            m.next = "IDLE"
            # ANSWER: waits for the card's answer; ends with it.
            with m.State("ANSWER"):
                m.d.comb += self.mmio.rsp.ready.eq(1)
                m.d.sync += [words[word].eq(self.mmio.rsp.payload), status.eq(CompletionStatus.SC)]
                with m.If(self.mmio.rsp.valid):
                    m.d.sync += goes_on
                    m.next = "ACCESS"
                    with m.If(last):
                        m.next = "COMPLETE"
            if self._push:
                # PUSH: offers what is written to a push window; ends when that is taken.
                with m.State("PUSH"):
                    m.d.comb += self.push.valid.eq(1)
                    with m.If(self.push.ready):
                        m.next = "IDLE"
            # COMPLETE: offers the completion; ends when it is taken.
            with m.State("COMPLETE"):
                m.d.comb += self.cc.valid.eq(1)
                with m.If(self.cc.ready):
                    m.next = "IDLE"
        return m

    def _pushes(self, m: Module, packet, more, head, first_be, last_be) -> Value:
        """Keep what a write to a push window brings. Returns whether the request is one."""
        first = WIDTH - Shape.cast(head.shape()).width  # bits of data in the first beat
        data, beat = Signal(WIDTH, reset_less=True), packet.payload.data
        tail = Signal()  # the second beat is the next one
        piece = 8 * PUSH_PIECE.size // 32
        out, place = self.push.payload, Signal(ADDRESS_BITS - 2)
        whole = (
            (head.words == piece)
            & (place[: piece.bit_length() - 1] == 0)
            & first_be.all()
            & last_be.all()
        )
        with m.If(packet.valid & packet.ready):
            m.d.sync += tail.eq(~more)
            with m.If(~more):
                m.d.sync += data.eq(beat[-first:])
            with m.Elif(tail):
                m.d.sync += data[first:].eq(beat)
        m.d.comb += [
            place.eq(head.addr & Cat((head.aperture > bit) for bit in range(2, ADDRESS_BITS))),
            out.function.eq(head.function),
            out.addr.eq(Cat(Const(0, 6), place[4:])),
            out.data.eq(data),
            out.strb.eq(Mux(whole, ~0, 1)),
        ]
        return self._is_write(head) & (head.bar == PUSH_BAR)

    @staticmethod
    def _is_write(head):
        return head.type == RequestType.MEM_WRITE

    def _is_access(self, head, first_be, last_be):
        """Whether the request is one of memory that the card carries out. One word has no last
        byte enables; of several words the first and the last have some bytes."""
        one = (head.words == 1) & (last_be == 0)
        several = (head.words > 1) & first_be.any() & last_be.any()
        short = (one | several) & (head.words <= Mux(self._is_write(head), MOST_WRITTEN, MOST_READ))
        return short & ((head.type == RequestType.MEM_READ) | self._is_write(head))

    def _complete(self, m, head, first_be, last_be, words, status) -> None:
        """The completion of the request ``head``: its data, or what the header log needs."""
        done, good = self.cc.payload.head, status == CompletionStatus.SC
        end = Mux(head.words == 1, first_be, last_be)
        low = Mux(first_be[0], 0, Mux(first_be[1], 1, Mux(first_be[2], 2, first_be[3] * 3)))
        beyond = Mux(end[3], 0, Mux(end[2], 1, Mux(end[1], 2, 3)))
        log = Cat(first_be, last_be, Const(0, 24), head.as_value())
        memory, spared = Signal(), Signal(3)  # bytes of the words that are not asked for
        # In the state behind the request's first beat, in which nothing is completed.
        m.d.sync += [memory.eq(head.type == RequestType.MEM_READ), spared.eq(low + beyond)]
        m.d.comb += [
            done.lower_addr.eq(Mux(memory, Cat(low[:2], head.addr[:5]), 0)),
            done.at.eq(head.at),
            done.byte_count.eq(Mux(memory, (head.words << 2) - spared, 4)),
            done.words.eq(Mux(good, head.words, 0)),
            done.status.eq(status),
            done.requester.eq(head.requester),
            done.tag.eq(head.tag),
            done.function.eq(head.function),
            done.tc.eq(head.tc),
            done.attr.eq(head.attr),
            self.cc.payload.words.eq(Mux(good, head.words, len(log) // 32)),
            self.cc.payload.data.eq(Mux(good, words.as_value(), log)),
        ]
