"""An imaginary kind of indirect key: a list of two entries, which lie in host memory."""

from __future__ import annotations

import struct

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring

from hdl.config import NicConfig
from hdl.memory.resolve import WALKS, walk_members
from hdl.memory.types import KeyedRequest
from hdl.ports.keys import KEYS, KeyRules, Resolves
from hdl.ports.rows import MrType

__all__ = ["PAIR", "declare", "entries", "pair_row"]

PAIR = 3
TABLE = 0x7000

#: ``start``: the bytes of the entries in front.
ENTRY = data.StructLayout({"addr": 64, "start": 64, "count": 32, "skip": 32, "lkey": 32, "pad": 32})


class PairWalk(wiring.Component):
    """Reads both entries at once and gives the one or two ranges that a request has in them."""

    def __init__(self, *, config: NicConfig):
        super().__init__(walk_members(config))

    def elaborate(self, platform):
        m = Module()
        walked, failed = Signal(KeyedRequest), Signal()
        words, number = Signal(data.ArrayLayout(64, 8)), Signal(3)
        first, second = (data.View(ENTRY, words.as_value()[n : n + 256]) for n in (0, 256))
        request, ask, answer = walked.request, self.read_client.req, self.read_client.rsp
        offset, end, of_first = Signal(64), Signal(65), Signal(32)
        m.d.comb += [
            offset.eq(request.va),
            end.eq(offset + request.length),
            of_first.eq(Mux(end > first.count, first.count - offset, request.length)),
            ask.p.function.eq(request.function),
            ask.p.addr.eq(Cat(Const(0, 6), walked.row.block)),
            ask.p.length.eq(64),
        ]
        with m.FSM():
            # IDLE: takes a request.
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += walked.eq(self.i.payload)
                with m.If(self.i.valid):
                    m.next = "ASK"
            # ASK: asks for the entries; ends when that is taken.
            with m.State("ASK"):
                m.d.comb += ask.valid.eq(1)
                with m.If(ask.ready):
                    m.next = "READ"
            # READ: takes them; ends with the last word.
            with m.State("READ"):
                with m.If(answer.valid):
                    m.d.sync += [number.eq(number + 1), words[number].eq(answer.p.data)]
                    m.d.sync += failed.eq(answer.p.error)
                    with m.If(answer.p.last):
                        m.next = "SECOND"
                        with m.If((offset < first.count) & ~answer.p.error):
                            m.next = "FIRST"
            # FIRST: gives the range in the first entry; ends when it is taken.
            with m.State("FIRST"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.p.key.eq(first.lkey),
                    self.o.p.va.eq(first.addr + offset),
                    self.o.p.length.eq(of_first),
                    self.o.p.last.eq(end <= first.count),
                ]
                with m.If(self.o.ready):
                    m.d.sync += [request.va.eq(first.count), request.length.eq(end - first.count)]
                    m.next = "SECOND"
                    with m.If(self.o.p.last):
                        m.next = "IDLE"
            # SECOND: gives that in the second one; ends when it is taken.
            with m.State("SECOND"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.p.key.eq(second.lkey),
                    self.o.p.va.eq(second.addr + offset - second.start),
                    self.o.p.length.eq(request.length),
                    self.o.p.refused.eq(failed | (end > second.start + second.count)),
                    self.o.p.last.eq(1),
                ]
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m


def declare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare the kind: its rules, and what walks its entries."""
    assert PAIR not in {kind.value for kind in MrType}
    monkeypatch.setitem(KEYS, PAIR, KeyRules(Resolves.ENTRIES))
    monkeypatch.setitem(WALKS, PAIR, PairWalk)


def entries(first: tuple[int, int, int], second: tuple[int, int, int]) -> bytes:
    """The two entries as they lie in host memory, each {address, bytes, key}."""
    start, found = 0, b""
    for addr, count, key in (first, second):
        found += struct.pack("<QQIIII", addr, start, count, 0, key, 0)
        start += count
    return found


def pair_row(total: int, **fields: int) -> dict[str, int]:
    """The row of such a key: ``total`` bytes from address 0 on, with its entries at ``TABLE``."""
    return {"type": PAIR, "length": total, "block": fields.pop("table", TABLE) // 64, **fields}
