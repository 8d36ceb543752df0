"""LOCAL_INV, REG_MR and BIND_MW in the requester: order, completions, errors, going back."""

from dataclasses import replace

import pytest

from hdl.abi.enums import Access, WcStatus, WrOpcode
from tests.transport.send_side import CONFIG, World, run, wqe

MTU = 256
KEY = 0x5_17


class KeyWorld(World):
    """The owner of the regions' keys and the receive side play along.

    ``changes``: what was asked of the keys, with the jobs handed over and the WQEs settled before.
    """

    def __init__(self, dut):
        super().__init__(dut)
        self.changes, self.allowed, self.settled = [], True, 0

    async def owner(self, ctx):
        r = self.dut.requester
        while True:
            ctx.set(r.keys.req.ready, 0)
            *_, valid, request = await ctx.tick().sample(r.keys.req.valid, r.keys.req.payload)
            if not valid:
                continue
            self.changes.append((request, len(self.handed), self.settled))
            ctx.set(r.keys.req.ready, 1)
            await ctx.tick()
            ctx.set(r.keys.req.ready, 0)
            await ctx.tick().repeat(5)
            ctx.set(r.keys.rsp.payload, self.allowed)
            ctx.set(r.keys.rsp.valid, 1)
            await ctx.tick()
            ctx.set(r.keys.rsp.valid, 0)

    async def receive(self, ctx):
        r = self.dut.requester
        while True:
            await ctx.tick().until(r.settle)
            await ctx.tick().repeat(7)
            self.settled += 1
            ctx.set(r.settled, 1)
            await ctx.tick()
            ctx.set(r.settled, 0)

    @property
    def models(self):
        return (*super().models, self.owner, self.receive)


def local_inv(key=KEY, **fields):
    return wqe(WrOpcode.LOCAL_INV, 0, imm=key, num_sge=0, **fields)


def reg_mr(key=KEY, access=Access.LOCAL_WRITE, mrn=KEY >> 8, **fields):
    return wqe(
        WrOpcode.REG_MR, 0, remote_addr=mrn | key << 32, rkey=int(access), num_sge=0, **fields
    )


def bind_mw(key=KEY, access=Access.REMOTE_WRITE, lkey=0x7_31, length=0x123_4567_89AB, **fields):
    """Its fields lie where others have an address, a key and an address vector."""
    there = {
        "pd": lkey,
        "flow_label": length & 0xF_FFFF,
        "traffic_class": length >> 20 & 0xFF,
        "sl": length >> 28 & 0xF,
        "dgid": length >> 32 | key << 32,
    }
    fields |= {"remote_addr": 0xFEDC_BA98_7654_3210, "rkey": int(access), "destination": there}
    return wqe(WrOpcode.BIND_MW, 0, num_sge=0, **fields)


async def entries(ctx, world, qp):
    """All outstanding entries, taken away: position, status, complete, number of PSNs."""
    found = []
    while (entry := await world.oldest(ctx, qp)) is not None:
        count = (entry.last_psn - entry.first_psn + 1) & 0xFFFFFF
        found.append((entry.position, entry.status, entry.complete, count))
        await world.pop(ctx, qp)
    return found


def test_registration_takes_effect_between_its_neighbours():
    """The packet before is handed over before it, the one behind it after; no packet of its own,
    one entry, and a poke when it is the oldest one."""

    async def scenario(ctx, world):
        await world.connect(ctx, 2, pd=9, function=1)
        rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        world.queues[2] = [wqe(length=1), reg_mr(access=rights), wqe(length=2)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == 2)
        ((request, handed, settled),) = world.changes
        assert (request.register, request.key, request.mrn) == (1, KEY, KEY >> 8)
        assert (request.access, request.pd, request.function) == (int(rights), 9, 1)
        assert (handed, settled) == (1, 0)
        assert [job.header.psn for job in world.jobs] == [0x100, 0x101]
        await ctx.tick().repeat(50)
        world.pokes.clear()
        await world.pop(ctx, 2)
        await ctx.tick().repeat(10)
        assert world.pokes == [2], "the registration is the oldest now, and nothing else ends it"
        assert await entries(ctx, world, 2) == [(1, 0, 1, 0), (2, 0, 1, 1)]
        assert world.pokes == [2]

    run(scenario, world=KeyWorld)


@pytest.mark.parametrize("zero_based", [0, 1])
def test_a_window_is_bound_between_its_neighbours(zero_based):
    """All fields of the request reach the owner of the keys; nothing is sent for it."""

    async def scenario(ctx, world):
        await world.connect(ctx, 2, pd=9, function=1, binds=1)
        rights = Access.REMOTE_READ | Access.REMOTE_ATOMIC
        access = rights | (Access.ZERO_BASED if zero_based else 0)
        world.queues[2] = [wqe(length=1), bind_mw(access=access), wqe(length=2)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == 2)
        ((request, handed, settled),) = world.changes
        assert (request.register, request.bind, request.zero_based) == (0, 1, zero_based)
        assert (request.key, request.lkey, request.access) == (KEY, 0x7_31, int(rights))
        assert (request.va, request.length) == (0xFEDC_BA98_7654_3210, 0x123_4567_89AB)
        assert (request.qp, request.pd, request.function) == (2, 9, 1)
        assert (handed, settled) == (1, 0)
        assert await entries(ctx, world, 2) == [(0, 0, 1, 1), (1, 0, 1, 0), (2, 0, 1, 1)]

    run(scenario, world=KeyWorld)


def test_invalidation_waits_for_all_before_it():
    """For the end of the WQEs before it, and for what they received to be decided; what is behind
    it waits for it."""

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=1), wqe(length=1), local_inv(), wqe(length=2)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == 2)
        for ended in (1, 2):
            await ctx.tick().repeat(300)
            assert not world.changes and len(world.handed) == 2
            await world.oldest(ctx, 2)
            await world.pop(ctx, 2)
            await world.wake(ctx, 2, position=ended, psn=0x100 + ended, wake_generation=ended)
        await world.until(ctx, lambda: len(world.jobs) == 3)
        ((request, handed, settled),) = world.changes
        assert (request.register, request.key, handed, settled) == (0, KEY, 2, 1)
        assert world.pokes == [2], "nothing is before it"
        assert await entries(ctx, world, 2) == [(2, 0, 1, 0), (3, 0, 1, 1)]

    run(scenario, world=KeyWorld)


def test_fenced_registration_waits_for_what_was_received():
    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [reg_mr(fence=1)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: world.changes)
        assert world.changes[0][2] == 1

    run(scenario, world=KeyWorld)


ILLEGAL = [
    Access.REMOTE_WRITE,
    Access.REMOTE_ATOMIC | Access.REMOTE_READ,
    Access.LOCAL_WRITE | Access.ZERO_BASED,
    Access.MW_BIND,
    1 << 31,
]


UNFIT = [Access.LOCAL_WRITE, Access.MW_BIND, Access.HUGETLB, 1 << 8]


@pytest.mark.parametrize(
    "element,allowed,status",
    [
        (bind_mw(), False, WcStatus.MW_BIND_ERR),
        *((bind_mw(access=access), True, WcStatus.MW_BIND_ERR) for access in UNFIT),
        (local_inv(), False, WcStatus.LOC_PROT_ERR),
        (reg_mr(), False, WcStatus.MW_BIND_ERR),
        *((reg_mr(access=access), True, WcStatus.MW_BIND_ERR) for access in ILLEGAL),
    ],
)
def test_what_is_refused_fails_in_order(element, allowed, status):
    async def scenario(ctx, world):
        world.allowed = allowed
        await world.connect(ctx, 2, binds=1)
        world.queues[2] = [element, wqe(), reg_mr()]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.pokes) >= 3)
        flushed = (WcStatus.WR_FLUSH_ERR, 1, 0)
        assert await entries(ctx, world, 2) == [(0, status, 1, 0), (1, *flushed), (2, *flushed)]
        assert not world.handed and len(world.changes) == (not allowed)

    run(scenario, world=KeyWorld)


def test_no_window_is_bound_without_the_extension():
    """The driver has not negotiated it: the opcode is none (VR-4.4)."""

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [bind_mw()]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: world.pokes)
        assert await entries(ctx, world, 2) == [(0, WcStatus.LOC_QP_OP_ERR, 1, 0)]
        assert not world.changes

    run(scenario, world=KeyWorld)


@pytest.mark.parametrize("wqes", [2, 3])
def test_a_qp_that_goes_back_registers_nothing_again(wqes):
    """Whether or not something is behind the registration."""

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=2 * MTU), reg_mr(), wqe(length=MTU + 1)][:wqes]
        packets = 2 * wqes - 2
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == packets and world.changes)
        await ctx.tick().repeat(100)
        before = [(job.header.psn, job.header.opcode) for job in world.jobs]
        world.jobs.clear()
        await world.acknowledge(ctx, 2, psn=0x101, start=0x100)
        await world.restart(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == packets - 1)
        world.queues[2].append(wqe(length=3))
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == packets)
        sent = [(job.header.psn, job.header.opcode) for job in world.jobs]
        assert sent[:-1] == before[1:] and sent[-1][0] == 0x100 + packets
        assert len(world.changes) == 1
        positions = [position for position, *_ in await entries(ctx, world, 2)]
        assert positions == list(range(len(world.queues[2])))

    run(scenario, world=KeyWorld)


@pytest.mark.parametrize("opcode", [7, 8, 9, 11, 0x20])
def test_a_card_without_the_feature_has_none_of_them(opcode):
    """The rows of the tables are those of the card's features; the model reads the same ones."""
    config = replace(CONFIG, fast_registration=False)

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(opcode, 0)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: world.pokes)
        assert await entries(ctx, world, 2) == [(0, WcStatus.LOC_QP_OP_ERR, 1, 0)]
        assert not world.handed and not world.changes

    run(scenario, config=config, world=KeyWorld)
