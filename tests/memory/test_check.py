"""Checker in Amaranth's simulator: addresses that a card with few address bits does not have."""

from __future__ import annotations

import pytest
from amaranth.sim import Simulator

from hdl.config import NicConfig
from hdl.memory.check import Checker
from hdl.memory.types import CheckSource
from hdl.ports.rows import MrRow
from tests.fields import pack
from tests.memory.model import DMA, LOC_PROT_ERR, OK, PAGE, REM_ACCESS_ERR

DEADLINE = 100
FUNCTION, PD, KEY = 1, 7, 0x35A
BITS = 24


@pytest.mark.parametrize("source", CheckSource)
@pytest.mark.parametrize(
    "va, good",
    [
        (0x1000, True),
        ((1 << BITS) - PAGE, True),
        ((1 << BITS) - PAGE + 1, False),
        *((1 << bit | 0x1000, False) for bit in (BITS, BITS + 1, 40, 63)),
        ((1 << 64) - PAGE, False),
    ],
)
def test_addresses_beyond_the_bits(source, va, good):
    """Neither an SGE nor a peer reaches through what the card does not keep of an address."""
    config = NicConfig(
        width=64, address_bits=BITS, page_sizes=False, two_level=False, translation_lines=8
    )
    dut = Checker(config=config, access=0)
    row = {"type": DMA, "function": FUNCTION, "pd": PD, "tag": KEY & 0xFF, "access": 15}
    row |= {"length": (1 << BITS) - 1}
    job = {"source": source, "function": FUNCTION, "pd": PD, "num_sge": 1, "length": PAGE}
    by_key = source == CheckSource.KEY
    if by_key:
        job |= {"va": va, "key": KEY}

    async def testbench(ctx):
        ctx.set(dut.mr.row.as_value(), pack(MrRow, row))
        ctx.set(dut.slot_data, va | PAGE << 64 | KEY << 96)
        ctx.set(dut.job.payload, job)
        ctx.set(dut.job.valid, 1)
        ctx.set(dut.result.ready, 1)
        ctx.set(dut.chunks.ready, 1)
        found, chunks = None, []
        for _ in range(DEADLINE):
            if ctx.get(dut.job.valid) and ctx.get(dut.job.ready):
                await ctx.tick()
                ctx.set(dut.job.valid, 0)
                continue
            if ctx.get(dut.result.valid):
                found = ctx.get(dut.result.payload.status)
            if ctx.get(dut.chunks.valid):
                chunks.append((ctx.get(dut.chunks.payload.addr), ctx.get(dut.chunks.p.length)))
            await ctx.tick()
        assert found == (OK if good else REM_ACCESS_ERR if by_key else LOC_PROT_ERR)
        assert chunks == ([(va, PAGE)] if good else [])

    sim = Simulator(dut)
    sim.add_clock(4e-9)
    sim.add_testbench(testbench)
    sim.run()
