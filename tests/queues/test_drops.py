"""QueueDrops: the driver's resets and the firmware's drops, one at a time, to all engines."""

from amaranth.sim import Simulator

from hdl.queues.drops import QueueDrops

ENGINES = 3


def test_one_at_a_time_and_done_when_all_have_taken_it():
    dut = QueueDrops(engines=ENGINES)
    ports = [getattr(dut, f"o{n}") for n in range(ENGINES)]
    seen = [[] for _ in ports]

    def engine(n):
        async def run(ctx):
            for cycle in range(200):
                ctx.set(ports[n].ready, (cycle + n) % (3 + 2 * n) == 0)
                _, _, valid, ready, row = await ctx.tick().sample(
                    ports[n].valid, ports[n].ready, ports[n].payload
                )
                if valid and ready:
                    seen[n].append((row.queue, row.keep_index))

        return run

    async def main(ctx):
        ctx.set(dut.reset.payload, 5)
        ctx.set(dut.drop.payload, {"queue": 9, "keep_index": 1})
        ctx.set(dut.reset.valid, 1)
        ctx.set(dut.drop.valid, 1)
        finished = []
        for _ in range(100):
            _, _, reset, drop = await ctx.tick().sample(dut.reset.ready, dut.drop.ready)
            if reset:
                finished.append("reset")
                ctx.set(dut.reset.valid, 0)
            if drop:
                finished.append("drop")
                ctx.set(dut.drop.valid, 0)
        assert finished == ["reset", "drop"]

    simulator = Simulator(dut)
    simulator.add_clock(4e-9)
    simulator.add_testbench(main)
    for n in range(ENGINES):
        simulator.add_testbench(engine(n), background=True)
    simulator.run()
    assert seen == [[(5, 0), (9, 1)]] * ENGINES
