"""What ends a WQE's turn: what the row, the outstanding table and the scheduler get, and when."""

import pytest
from amaranth.hdl import Value

from hdl.abi.enums import WcStatus
from hdl.transport.send.redirect import Redirect, RequestRedirect
from tests.simulate import simulate

#: Pulses to the row, as a bench notes them.
PULSES = ("load", "move", "skip", "error", "save", "done")
QP, OTHER = 5, 9


def run(scenario) -> None:
    dut = RequestRedirect()

    async def testbench(ctx):
        ctx.set(dut.qp, QP)
        ctx.set(dut.row, {"position": 20})
        ctx.set(dut.wqe, {"position": 20})
        ctx.set(dut.known, 1)
        ctx.set(dut.released, 1)
        await scenario(ctx, dut)

    simulate(dut, testbench, deadline=500)


async def cycle(ctx, dut) -> set[str]:
    """The pulses of this cycle, with ``fail`` if a failure is offered; then the next one."""
    seen = {name for name in PULSES if ctx.get(getattr(dut, name))}
    seen |= {"fail"} if ctx.get(dut.fail.valid) else set()
    seen |= {"refused"} if ctx.get(dut.refused.ready) else set()
    await ctx.tick()
    return seen


async def start(ctx, dut, way: Redirect) -> None:
    ctx.set(dut.start, 1)
    ctx.set(Value.cast(dut.way), way.value)
    assert await cycle(ctx, dut) == set()
    ctx.set(dut.start, 0)


@pytest.mark.parametrize(
    ("way", "error", "fails"),
    [
        (Redirect.REPORTED, True, False),
        (Redirect.FAILED, True, True),
        (Redirect.STOPPED, True, True),
        (Redirect.EXECUTED, False, False),
    ],
)
def test_a_wqe_is_left_behind(way, error, fails):
    async def scenario(ctx, dut):
        ctx.set(dut.status, WcStatus.LOC_LEN_ERR)
        await start(ctx, dut, way)
        assert await cycle(ctx, dut) == ({"skip", "error"} if error else {"skip"})
        assert "save" in await cycle(ctx, dut)  # the row as it is behind the WQE
        seen = set()
        for _ in range(6):
            seen |= await cycle(ctx, dut)
            if ctx.get(dut.fail.valid):
                status = WcStatus.WR_FLUSH_ERR if way == Redirect.STOPPED else WcStatus.LOC_LEN_ERR
                fail = ctx.get(dut.fail.payload)
                assert (fail.qp, fail.position, fail.status) == (QP, 20, status)
                ctx.set(dut.fail.ready, 1)
        assert "done" in seen and ("fail" in seen) == fails

    run(scenario)


@pytest.mark.parametrize("entering", [0, 1, 12])
def test_a_refused_packet_fails_its_wqe_once(entering):
    """However long the entry of another QP's WQE is being made meanwhile."""

    async def scenario(ctx, dut):
        ctx.set(dut.refused.payload, {"qp": OTHER, "position": 7, "status": WcStatus.LOC_PROT_ERR})
        ctx.set(dut.refused.valid, 1)
        ctx.set(dut.entering, entering > 0)
        ctx.set(dut.fail.ready, 1)
        await start(ctx, dut, Redirect.REFUSED)
        failed, saved = [], 0
        for now in range(24):
            ctx.set(dut.entering, now < entering)
            if ctx.get(dut.fail.valid):
                fail = ctx.get(dut.fail.payload)
                failed.append((fail.qp, fail.position, fail.status))
            if ctx.get(dut.refused.ready):
                assert now >= entering
            seen = await cycle(ctx, dut)
            saved += "save" in seen
            if "refused" in seen:
                ctx.set(dut.refused.valid, 0)
        assert failed == [(OTHER, 7, WcStatus.LOC_PROT_ERR)]
        assert saved and not ctx.get(dut.refused.valid)

    run(scenario)
