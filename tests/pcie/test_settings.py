"""What AMD's block tells of its functions and of its credits, in Amaranth's simulator."""

import random

import pytest

from hdl.config import NicConfig
from hdl.pcie.read_credits import MOST, ReadCredits
from hdl.pcie.settings import BlockSettings
from tests.simulate import simulate

#: Words of the configuration space: the capability is at 0x70, with Device Control 8 bytes and
#: Device Control 2 40 bytes behind its beginning.
DEVICE_CONTROL, DEVICE_CONTROL_2 = (0x70 + 8) // 4, (0x70 + 40) // 4


@pytest.mark.parametrize("config", [NicConfig(), NicConfig(functions=2), NicConfig(network=1)])
def test_settings(config):
    """Sizes are the least of all functions that ask and of function 0; tags are each function's."""
    dut = BlockSettings(config=config)
    guests = config.driven_functions
    words: dict[tuple[int, int], int] = {}

    async def block(ctx):
        rng = random.Random(2)
        while True:
            await ctx.tick().until(dut.mgmt_read)
            for _ in range(rng.randint(0, 6)):
                await ctx.tick()
                assert ctx.get(dut.mgmt_read)
            place = ctx.get(dut.mgmt_function_number), ctx.get(dut.mgmt_addr)
            ctx.set(dut.mgmt_read_data, words[place])
            ctx.set(dut.mgmt_read_write_done, 1)
            await ctx.tick()
            ctx.set(dut.mgmt_read_write_done, 0)
            ctx.set(dut.mgmt_read_data, rng.getrandbits(32))
            await ctx.tick()
            assert not ctx.get(dut.mgmt_read) or place != (
                ctx.get(dut.mgmt_function_number),
                ctx.get(dut.mgmt_addr),
            )

    async def bench(ctx):
        rng = random.Random(1)
        assert ctx.get(dut.max_payload) == ctx.get(dut.max_read) == 0
        assert ctx.get(dut.extended_tags) == ctx.get(dut.expires) == 0
        for _ in range(40):
            size = {n: (rng.randrange(4), rng.randrange(6)) for n in {0, *guests}}
            tags = {n: rng.random() < 0.5 for n in guests}
            patient = {n: rng.random() < 0.3 for n in guests}
            for n in guests:
                payload, read = size[n]
                control = payload << 5 | tags[n] << 8 | read << 12 | rng.getrandbits(5)
                words[n, DEVICE_CONTROL] = control | rng.getrandbits(16) << 16
                words[n, DEVICE_CONTROL_2] = rng.getrandbits(32) & ~16 | patient[n] << 4
            ctx.set(dut.pf0_payload, size[0][0])
            ctx.set(dut.pf0_read, size[0][1])
            await ctx.tick().repeat(100)
            assert ctx.get(dut.max_payload) == min(one for one, _ in size.values())
            assert ctx.get(dut.max_read) == min(one for _, one in size.values())
            assert ctx.get(dut.extended_tags) == sum(tags[n] << n for n in guests)
            assert ctx.get(dut.expires) == (not any(patient.values()))

    words.update({(n, word): 0x10 for n in guests for word in (DEVICE_CONTROL, DEVICE_CONTROL_2)})
    simulate(dut, bench, background=(block,), deadline=10_000)


@pytest.mark.parametrize("late", [0, 2, 8])
def test_read_credits(late):
    """No read gets in line without a credit, however late the block tells of those that are spent;
    with credits enough, a read gets in line in each cycle."""
    dut = ReadCredits()

    async def bench(ctx):
        rng = random.Random(late)
        limit, spent, told, line = 0, 0, [0] * (late + 1), 0
        at_once = most = 0
        for cycle in range(4000):
            limit += rng.random() < 0.4 if cycle < 3000 else 2
            told.append(max(0, min(MOST, limit - spent)))
            ctx.set(dut.nph_av, told.pop(0))
            take = bool(ctx.get(dut.may_read)) and rng.random() < 0.8
            sends = line > 0 and rng.random() < 0.7
            ctx.set(dut.taken, take)
            ctx.set(dut.sent, sends)
            at_once = at_once + 1 if take else 0
            most = max(most, at_once)
            line += take - sends
            spent += sends
            assert spent + line <= limit
            await ctx.tick()
        assert most >= 5 and spent > 1000

    simulate(dut, bench, deadline=10_000)
