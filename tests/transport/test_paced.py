"""QPs with a rate limiter, played by the test: what scheduler and requester do for it."""

from collections import deque
from itertools import pairwise

from hdl.ports.activations import SendFlags
from tests.transport.send_side import CONFIG, World, run, wqe

MTU = 256
#: Of the limiter: a QP may send so many packets in so many cycles. It notices a little late.
PACKETS, PERIOD, LATE = 8, 1500, 30


class Limited(World):
    """Takes the credit of QP 2 when it has sent its packets, and gives it back at each period."""

    async def limiter(self, ctx):
        write, activate = self.dut.spent.write, self.dut.scheduler.activate
        ctx.set(write.index, 2)
        counted = cycle = 0
        spent, self.credits, late = False, [], deque()
        async for _ in ctx.tick():
            cycle += 1
            ctx.set(write.enable, 0)
            if ctx.get(activate.ready):
                ctx.set(activate.valid, 0)
            late.append(sum(job.qp == 2 for job in self.handed))
            sent = late.popleft() if len(late) > LATE else 0
            if cycle % PERIOD == 0:
                self.credits.append((cycle, late[-1]))
                counted = late[-1]
                if spent:
                    ctx.set(activate.payload, {"qp": 2, "flags": SendFlags.AGAIN})
                    ctx.set(activate.valid, 1)
            now = sent - counted >= PACKETS
            if now != spent:
                spent = now
                ctx.set(write.row, spent)
                ctx.set(write.enable, 1)

    @property
    def models(self):
        return (*super().models, self.limiter)


def psns(world, qp):
    return [job.header.psn for job in world.jobs if job.qp == qp]


def played(messages, *, least, more):
    """Post messages of QP 2, beside some of QP 3. See that each packet goes once, and that in a
    period no more than ``more`` packets go beyond what the limiter allows."""

    async def scenario(ctx, world):
        for qp in (2, 3):
            await world.connect(ctx, qp)
        world.queues[2] = [wqe(length=length) for length in messages]
        world.queues[3] = [wqe(length=MTU) for _ in range(6)]
        wanted = sum(-(-length // MTU) for length in messages)
        for qp in (2, 3):
            await world.ring(ctx, qp)
        ended = 0
        while len(psns(world, 2)) < wanted:
            # The driver rings while the QP has no credit, too.
            if ctx.get(world.dut.scheduler.doorbell.ready) and len(world.jobs) % 5 == 4:
                await world.ring(ctx, 2)
            entry = await world.oldest(ctx, 2)
            if entry is not None and entry.complete and entry.last_psn in psns(world, 2):
                await world.pop(ctx, 2)
                ended += 1
                row = {"psn": entry.last_psn + 1, "start": entry.last_psn + 1}
                await world.wake(ctx, 2, position=ended, wake_generation=ended, **row)
            await ctx.tick().repeat(4)
            if len(world.credits) == 1 and len(psns(world, 2)) < wanted:
                assert len(psns(world, 3)) == 6, "the other QP is not held"
        await ctx.tick().repeat(300)
        assert psns(world, 2) == list(range(0x100, 0x100 + wanted))
        counts = [0, *(count for _, count in world.credits)]
        steps = [after - before for before, after in pairwise(counts)]
        assert len(steps) >= least
        assert max(steps) <= PACKETS + more, steps
        asked = [position for _, qp, position in world.asked if qp == 2]
        assert len(asked) <= 2 * len(messages) + 2 * len(steps), "it is not fetched over and over"

    run(scenario, world=Limited, paced=True)


def test_short_messages_go_at_the_rate_of_their_qp():
    played([MTU] * 60, least=3, more=4)


def test_a_long_message_stops_in_its_middle():
    # Until the limiter notices, and then to the end of a turn.
    played([60 * MTU], least=3, more=LATE // 3 + 2 * CONFIG.quantum)
