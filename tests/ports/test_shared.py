"""Bits that kinds of work requests have in common: they lie in a row as in the element."""

from __future__ import annotations

import random

import pytest
from amaranth.hdl import Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.virtio_rdma import POST_SEND, WR_BIND, WR_RDMA, WR_REG, WR_UD
from hdl.abi.wqe_formats import card_formats
from hdl.config import NicConfig
from hdl.ports.headers import RxHeader
from hdl.ports.jobs import SendWqe
from hdl.ports.shared import EX, IN_VA, OPERANDS, VA, operands
from hdl.queues.wqe.format import ElementFields
from tests.fields import places
from tests.simulate import simulate


class Kept(wiring.Component):
    """The fixed part of an element, as the decoders keep it, and its operands."""

    def __init__(self):
        super().__init__({"element": In(8 * POST_SEND.size), "found": Out(OPERANDS.size)})

    def elaborate(self, platform):
        m, config = Module(), NicConfig()
        fields = ElementFields(
            config,
            self.element,
            formats=card_formats(config),
            number=Const(0),
            receive=False,
        )
        wqe = Signal(SendWqe)
        m.d.comb += [wqe[name].eq(fields[name]) for name in ("remote_addr", "rkey")]
        m.d.sync += self.found.eq(operands(wqe, fields.destination(m)))
        return m


def test_operands_lie_as_in_the_element():
    dut, rng = Kept(), random.Random(1)

    async def bench(ctx):
        for _ in range(20):
            element = rng.randbytes(POST_SEND.size)
            ctx.set(dut.element, int.from_bytes(element, "little"))
            await ctx.tick()
            start = POST_SEND.offset("wr")
            wanted = element[start : start + OPERANDS.size // 8]
            assert ctx.get(dut.found).to_bytes(len(wanted), "little") == wanted

    simulate(dut, bench)


@pytest.mark.parametrize(
    "member, struct", [("rdma", WR_RDMA), ("reg", WR_REG), ("bind", WR_BIND), ("ud", WR_UD)]
)
def test_members_are_those_of_the_abi(member, struct):
    found = {name: place.offset for name, place in places(OPERANDS[member].shape).items()}
    names = [field.name for field in struct.fields if field.name != "av"]
    assert found == {name: 8 * struct.offset(name) for name in names}


def test_fields_in_va_are_those_of_the_header():
    """Each has the width of its field in ``RxHeader``, and all of them lie in 64 bits."""
    header = places(RxHeader)
    assert (VA.size, EX.size) == (header["va"].width, header["imm"].width)
    for name, member in IN_VA.items():
        assert places(VA[member].shape)[name].width == header[name].width
    assert isinstance(VA, data.UnionLayout) and isinstance(EX, data.UnionLayout)
