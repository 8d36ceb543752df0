"""Requests of the host (CQ) as accesses of the registers, and their completions (CC)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.skid import Skid
from hdl.ports.host import MmioPort

from .descriptors import WIDTH, CompletionStatus, RequestType, cc_descriptor, cq_descriptor, cq_user

__all__ = ["Completer", "cc_beat", "cq_beat"]

#: Bits of an offset within a BAR: those of the largest one, the management function's.
OFFSET_BITS = 20


def cq_beat() -> data.StructLayout:
    """A beat of CQ."""
    return data.StructLayout({"data": WIDTH, "user": cq_user(), "last": 1})


def cc_beat() -> data.StructLayout:
    """A packet of CC, which is one beat: ``words`` of ``data`` are valid."""
    return data.StructLayout({"data": 256, "words": 4})


class Completer(wiring.Component):
    """Makes an access of the host port of each request of one word.

    Members: ``cq``, ``cc``: the block's streams; ``mmio``: the host port; ``refused``: a pulse for
    each request that is none of one word of memory.
    Waits: for the card's answers, and for ``cc`` (``Answers``).
    Errors: a refused request that needs a completion gets UR, with the bytes that it has asked for
    (PCI Express Base Specification, 2.3.1.1) and its descriptor for the block's header log. A
    refused write or message is dropped, and so is a packet with ``discontinue``.
    Latency: 3 cycles from a request to ``mmio``, 1 from its answer to ``cc``.
    Throughput: a write in 3 cycles; a read waits for the one before it. Reset: nothing on its way.
    Source: PG213, "Completer Interface".
    """

    def __init__(self):
        super().__init__(
            {
                "cq": In(stream.Signature(cq_beat())),
                "cc": Out(stream.Signature(cc_beat())),
                "mmio": In(MmioPort()),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.skid = skid = Skid(shape=cq_beat())
        wiring.connect(m, wiring.flipped(self.cq), skid.i)
        beat, head = skid.o.payload, Signal(cq_descriptor())
        strb, last_be, written = Signal(4), Signal(4), Signal(32)
        more, dropped = Signal(), Signal()  # beats follow; the packet ended early
        answer, status = Signal(32), Signal(CompletionStatus)
        access, word, request = Signal(), Signal(), self.mmio.req
        mask = Cat((head.aperture > bit) for bit in range(2, OFFSET_BITS))
        m.d.comb += [
            word.eq((head.words == 1) & (last_be == 0)),
            access.eq(word & ((head.type == RequestType.MEM_READ) | self._is_write(head))),
            request.payload.function.eq(head.function),
            request.payload.bar.eq(head.bar),
            request.payload.addr.eq((head.addr[: OFFSET_BITS - 2] & mask) << 2),
            request.payload.write.eq(self._is_write(head)),
            request.payload.strb.eq(strb),
            request.payload.data.eq(written),
        ]
        self._complete(m, head, Cat(strb, last_be), answer, status)
        with m.FSM(name="request"):
            # IDLE: takes the first beat of a packet; ends with it.
            with m.State("IDLE"):
                m.d.comb += skid.o.ready.eq(1)
                m.d.sync += [
                    head.eq(beat.data),
                    written.eq(beat.data[128:160]),
                    strb.eq(beat.user.first_be),
                    last_be.eq(beat.user.last_be),
                    dropped.eq(beat.user.discontinue),
                    more.eq(~beat.last),
                ]
                with m.If(skid.o.valid):
                    m.next = "REST"
            # REST: drops the beats that follow; ends behind the last one, with the verdict.
            with m.State("REST"):
                m.d.comb += skid.o.ready.eq(more)
                with m.If(skid.o.valid & more):
                    m.d.sync += [
                        more.eq(~beat.last),
                        dropped.eq(dropped | beat.user.discontinue),
                    ]
                with m.If(~more):
                    m.d.comb += self.refused.eq(~access & ~dropped)
                    m.d.sync += status.eq(CompletionStatus.UR)
                    posted = self._is_write(head) | (head.type >= RequestType.MSG)
                    with m.If(dropped | (~access & posted)):
                        m.next = "IDLE"
                    with m.Elif(access):
                        m.next = "ACCESS"
                    with m.Else():
                        m.next = "COMPLETE"
            # ACCESS: hands the request to the card; ends when that takes it, or at once for a
            # write of no bytes.
            with m.State("ACCESS"):
                nothing = self._is_write(head) & (strb == 0)
                m.d.comb += request.valid.eq(~nothing)
                with m.If(request.ready | nothing):
                    m.next = "ANSWER"
                    with m.If(self._is_write(head)):
                        m.next = "IDLE"
            # ANSWER: waits for the card's answer; ends with it.
            with m.State("ANSWER"):
                m.d.comb += self.mmio.rsp.ready.eq(1)
                m.d.sync += [answer.eq(self.mmio.rsp.payload), status.eq(CompletionStatus.SC)]
                with m.If(self.mmio.rsp.valid):
                    m.next = "COMPLETE"
            # COMPLETE: offers the completion; ends when it is taken.
            with m.State("COMPLETE"):
                m.d.comb += self.cc.valid.eq(1)
                with m.If(self.cc.ready):
                    m.next = "IDLE"
        return m

    @staticmethod
    def _is_write(head):
        return head.type == RequestType.MEM_WRITE

    def _complete(self, m, head, enables, answer, status) -> None:
        """The completion of the request ``head``: a word of data, or what the header log needs."""
        done, first_be, good = Signal(cc_descriptor()), enables[:4], status == CompletionStatus.SC
        low = Mux(first_be[0], 0, Mux(first_be[1], 1, Mux(first_be[2], 2, first_be[3] * 3)))
        final = Mux(head.words == 1, first_be, enables[4:])
        beyond = Mux(final[3], 0, Mux(final[2], 1, Mux(final[1], 2, 3)))
        memory, spared = Signal(), Signal(3)  # bytes of the words that are not asked for
        # In the state behind the request's first beat, in which nothing is completed.
        m.d.sync += [memory.eq(head.type == RequestType.MEM_READ), spared.eq(low + beyond)]
        m.d.comb += [
            done.lower_addr.eq(Mux(memory, Cat(low[:2], head.addr[:5]), 0)),
            done.at.eq(head.at),
            done.byte_count.eq(Mux(memory, (head.words << 2) - spared, 4)),
            done.words.eq(good),
            done.status.eq(status),
            done.requester.eq(head.requester),
            done.tag.eq(head.tag),
            done.function.eq(head.function),
            done.tc.eq(head.tc),
            done.attr.eq(head.attr),
            self.cc.payload.words.eq(Mux(good, 4, 8)),
            self.cc.payload.data.eq(
                Cat(done.as_value(), Mux(good, answer, enables), head.as_value())
            ),
        ]
