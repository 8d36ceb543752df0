"""DoorbellRouter and FreeLines in Amaranth's simulator."""

from __future__ import annotations

import pytest
from amaranth.sim import Simulator

from hdl.config import NicConfig
from hdl.queues.doorbell import FLAG_DOORBELL, FLAG_NEXT, DoorbellRouter
from hdl.queues.wqe.lines import FreeLines

CONFIG = NicConfig(width=64, qps=4, cqs=2)
OUTPUTS = ("control", "send", "receive", "ahead", "arm")


def route(doorbells: list[dict], *, slow: bool, config: NicConfig = CONFIG) -> tuple[list, int]:
    """What comes out of the router, and how many it dropped."""
    dut = DoorbellRouter(config=config, receive_flags=2)
    out: list = []
    sim = Simulator(dut)
    sim.add_clock(4e-9)

    async def feed(ctx):
        for one in doorbells:
            ctx.set(dut.i.payload, one)
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

    async def watch(ctx):
        for cycle in range(20 + 10 * len(doorbells)):
            ready = not slow or cycle % 3 == 0
            for name in OUTPUTS:
                ctx.set(getattr(dut, name).ready, ready)
            for name in OUTPUTS:
                port = getattr(dut, name)
                if ctx.get(port.valid) and ready:
                    value = ctx.get(port.payload)
                    if name == "control":
                        out.append((name, value.queue))
                    elif name == "arm":
                        out.append((name, value.cq, value.seen, value.solicited))
                    elif name == "send":
                        out.append((name, value.qp, value.flags, value.data))
                    else:
                        out.append((name, value.qp, value.flags))
            await ctx.tick()
        out.append(ctx.get(dut.drops))

    sim.add_testbench(feed, background=True)
    sim.add_testbench(watch)
    sim.run()
    return out[:-1], out[-1]


@pytest.mark.parametrize("slow", [False, True])
def test_every_queue_number(slow: bool) -> None:
    doorbells = [{"queue": q, "has_next": q % 2, "next": 0x8000 + q} for q in range(16)]
    doorbells += [{"queue": 0xFFFF, "has_next": 0, "next": 0}]
    got, drops = route(doorbells, slow=slow)
    expected: list = [("control", 0)]
    for qp in (1, 2, 3):
        queue = CONFIG.sq_queue(qp)
        flags = FLAG_DOORBELL | (FLAG_NEXT if queue % 2 else 0)
        expected.append(("send", qp, flags, 0x8000 + queue))
        expected.append(("receive", qp, 2))
        expected.append(("ahead", qp, 2))
    assert got == expected
    # Queue pair 0 (two), those beyond the last queue, 0xFFFF; completion queues are no error.
    assert drops == 2 + (16 - CONFIG.queues) + 1


@pytest.mark.parametrize("slow", [False, True])
def test_what_arms(slow: bool) -> None:
    """A doorbell of four bytes arms the completion queue that it names, and no other queue."""
    doorbells = [{"queue": q, "arms": 1, "next": 0x8000 * (q % 2) + q} for q in range(16)]
    got, drops = route(doorbells, slow=slow)
    assert [one for one in got if one[0] == "arm"] == [
        ("arm", n, CONFIG.cq_queue(n), CONFIG.cq_queue(n) % 2) for n in (0, 1)
    ]
    assert [one[:2] for one in got if one[0] != "arm"] == [("control", 0)] + [
        (name, qp) for qp in (1, 2, 3) for name in ("send", "receive", "ahead")
    ]
    assert drops == 2 + (16 - CONFIG.queues)


def test_whose_queue_is_armed() -> None:
    """The card's number of a CQ has its function's ordinal."""
    config = NicConfig(width=64, functions=2, qps=8, cqs=4, mrs=4, gids=2, vectors=8)
    other = 1 << config.number_bits["queues"]
    doorbells = [
        {"queue": base + config.cq_queue(n), "arms": 1, "next": 7}
        for base in (0, other)
        for n in range(config.guest.cqs)
    ]
    got, drops = route(doorbells, slow=False, config=config)
    assert got == [("arm", n, 7, 0) for n in range(config.cqs)] and not drops


def test_free_lines() -> None:
    dut = FreeLines(lines=4)
    seen: list[int] = []
    sim = Simulator(dut)
    sim.add_clock(4e-9)

    async def process(ctx):
        held: list[int] = []
        for cycle in range(120):
            give = bool(held) and cycle % 5 in (0, 3)
            ctx.set(dut.i.valid, give)
            if give:
                assert ctx.get(dut.i.ready)
                ctx.set(dut.i.payload, held[0])
            take = cycle % 4 != 1
            ctx.set(dut.o.ready, take)
            if take and ctx.get(dut.o.valid):
                line = ctx.get(dut.o.payload)
                assert line not in held, "given out twice"
                held.append(line)
                seen.append(line)
                assert len(held) <= 4
            await ctx.tick()
            if give:
                held.pop(0)

    sim.add_testbench(process)
    sim.run()
    assert len(seen) > 20 and set(seen) == set(range(4))


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_bad_parameters() -> None:
    with pytest.raises(ValueError, match="not 16"):
        DoorbellRouter(config=CONFIG, receive_flags=16)
    with pytest.raises(ValueError, match="not 3"):
        FreeLines(lines=3)
