"""Finds the READ request that a duplicate asks for again."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.sums import at_most, wide_difference, wide_sum
from hdl.common.tables import TableRead
from hdl.ports.rows import ReadResource

from ..recovery.segment import MTU_CODES

__all__ = ["ReadSearch", "SearchFound", "SearchRequest"]


class SearchRequest(data.Struct):
    """A duplicate READ or atomic, and where its QP's resources lie."""

    psn: 24
    va: 64
    rkey: 32
    length: 32
    atomic: 1
    path_mtu: 3
    base: 16
    slots: 8  # power of two
    tail: 8
    held: 8  # resources to look at, back from ``tail``


class SearchFound(data.Struct):
    """``number`` (modulo 256) is the resource that contains it, ``skip`` packets before it."""

    found: 1
    number: 8
    skip: 24


class ReadSearch(wiring.Component):
    """Looks through the last resources of a QP, newest first, for one of which a READ is a part.

    A part: same R_Key, PSN and VA advanced by the same packets, and no byte beyond the original. An
    atomic is a part of an atomic, which it is the same as.
    Spec: IBTA vol 1, 9.7.5.1.4 (duplicate RDMA READ), 9.7.5.1.5 (duplicate ATOMIC).
    Members: ``i`` SearchRequest, ``o`` SearchFound, ``resource`` the pool.
    Latency: 7 cycles, and one for each resource looked at (at most max_dest_rd_atomic).
    Throughput: one search at a time; duplicates are rare. Reset: idle.
    """

    def __init__(self):
        super().__init__(
            {
                "i": In(stream.Signature(SearchRequest)),
                "o": Out(stream.Signature(SearchFound)),
                "resource": Out(TableRead(16, ReadResource)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        wanted = Signal(SearchRequest, reset_less=True)
        result = Signal(SearchFound, reset_less=True)
        number, left = Signal(8), Signal(8)  # the next to read, and how many remain
        m.d.comb += [
            self.resource.index.eq(wanted.base + (number & (wanted.slots - 1))),
            self.o.payload.eq(result),
        ]

        # Behind the RAM's read: its output in a register, differences, sums, result. Of each stage
        # whether something is in it, and which resource that is.
        stages = 5
        filled, numbers = Signal(stages), [Signal(8, name=f"number{n}") for n in range(stages)]
        row = Signal(ReadResource, reset_less=True)
        packets, distance = Signal(24, reset_less=True), Signal(64, reset_less=True)
        length, same_key = Signal(32, reset_less=True), Signal(reset_less=True)
        until, limit = Signal(33, reset_less=True), Signal(33, reset_less=True)
        part, skipped = Signal(reset_less=True), Signal(24, reset_less=True)
        match, skip = Signal(reset_less=True), Signal(24, reset_less=True)
        apart = wide_difference(m, wanted.va, row.va)[:64]
        total = wide_sum(m, distance[:32], wanted.length)
        aligned = Signal()  # the VA is as many packets on as the PSN
        m.d.comb += aligned.eq((distance[8:32] == packets) & (distance[:8] == 0))
        with m.Switch(wanted.path_mtu):
            for code in MTU_CODES:
                with m.Case(code):
                    log2 = code + 7
                    whole, rest = distance[log2:32], distance[:log2]
                    m.d.comb += aligned.eq((whole == packets) & (rest == 0))
        m.d.sync += [
            filled.eq(Cat(self.resource.enable, filled[:-1])),
            numbers[0].eq(number),
            *(after.eq(before) for before, after in pairwise(numbers)),
            row.eq(self.resource.row),
            packets.eq(wanted.psn - row.psn),
            distance.eq(apart),
            same_key.eq((wanted.rkey == row.rkey) & (wanted.atomic == row.atomic)),
            length.eq(row.length),
            until.eq(total),
            limit.eq(length),
            part.eq(
                same_key & aligned & (distance[32:] == 0) & ((wanted.length != 0) | (length == 0))
            ),
            skipped.eq(packets),
            match.eq(part & at_most(until, limit)),
            skip.eq(skipped),
        ]

        quiet = ~filled.any()
        with m.FSM(name="search"):
            # IDLE: takes a request; ends with it.
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [
                    wanted.eq(self.i.payload),
                    number.eq(self.i.payload.tail - 1),
                    left.eq(self.i.payload.held),
                    result.found.eq(0),
                ]
                with m.If(self.i.valid):
                    m.next = "SEARCH"
            # SEARCH: asks for one saved READ after the other, the latest first, and compares those
            # that have come; ends with a match, or when all have been compared.
            with m.State("SEARCH"):
                with m.If(left != 0):
                    m.d.comb += self.resource.enable.eq(1)
                    m.d.sync += [number.eq(number - 1), left.eq(left - 1)]
                with m.If(filled[-1] & match):
                    m.d.sync += [
                        result.found.eq(1),
                        result.number.eq(numbers[-1]),
                        result.skip.eq(skip),
                    ]
                    m.next = "DRAIN"
                with m.Elif((left == 0) & quiet):
                    m.next = "ANSWER"
            # DRAIN: lets the answers that are on their way come; ends with the last of them.
            with m.State("DRAIN"):
                with m.If(quiet):
                    m.next = "ANSWER"
            # ANSWER: answers; ends when that is taken.
            with m.State("ANSWER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m
