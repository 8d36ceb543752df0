"""Dynamic connections in the numbers of their specification's tests."""

import cocotb

from tests.nic.dc import more_initiators_than_contexts, three_targets_in_turn


@cocotb.test()
async def t_d2_a_thousand_requests(dut):
    """T-D2: one initiator, three targets on two cards in turn, 1000 requests."""
    await three_targets_in_turn(dut, 1000)


@cocotb.test()
async def t_d3_twenty_initiators(dut):
    """T-D3: 20 initiators and one target with four contexts."""
    await more_initiators_than_contexts(dut, 20, 4)
