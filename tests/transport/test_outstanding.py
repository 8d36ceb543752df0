"""OutstandingTable against lists in plain Python, its operations without a cycle in between."""

import random
from collections import Counter, deque
from itertools import pairwise

import pytest

from hdl.config import NicConfig
from hdl.transport.outstanding.table import OutstandingTable
from hdl.transport.recovery.qp_timers import TimerKind
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=4, cqs=2, mrs=2, gids=1, outstanding=8)


async def hand_over(ctx, port, payload):
    ctx.set(port.payload, payload)
    ctx.set(port.valid, 1)
    await ctx.tick().until(port.ready)
    ctx.set(port.valid, 0)


async def take_place(ctx, table):
    """A free place in the pool."""
    ctx.set(table.places.ready, 1)
    *_, number = await ctx.tick().sample(table.places.payload).until(table.places.valid)
    ctx.set(table.places.ready, 0)
    return number


@pytest.mark.parametrize("seed", range(3))
def test_lists_of_all_qps_in_one_pool(seed):
    rng, table = random.Random(seed), OutstandingTable(config=CONFIG)
    lists = {qp: deque() for qp in range(CONFIG.qps)}  # (entry, number in the pool)
    complete, fullest, foreseen = {}, 0, Counter()
    watched, unsent, pokes, poked = set(), set(), [], []
    timers, timed = [], []
    sinks, wanted, dropped = {}, [], []  # of READs: of all, and of those whose list was dropped

    async def count_pokes(ctx):
        while True:
            ctx.set(table.poke.ready, rng.random() < 0.3)
            *_, valid, ready, poke = await ctx.tick().sample(
                table.poke.valid, table.poke.ready, table.poke.payload
            )
            if valid and ready:
                poked.append(poke.qp)

    async def note_timers(ctx):
        while True:
            *_, valid, timer = await ctx.tick().sample(table.timer.valid, table.timer.payload)
            if valid:
                kind = TimerKind(timer.kind)
                timed.append((timer.qp, kind, timer.code, timer.idle if timer.code else 0))

    async def note_dropped(ctx):
        while True:
            *_, valid, sink = await ctx.tick().sample(table.dropped.valid, table.dropped.payload)
            if valid:
                dropped.append((sink.number, sink.long))

    async def shows_oldest(ctx, qp):
        *_, answer, early = (
            await ctx.tick()
            .sample(table.head_rsp.payload, table.foreseen)
            .until(table.head_rsp.valid)
        )
        assert answer.valid == bool(lists[qp])
        foreseen[early.valid] += 1
        if answer.valid:
            step, _ = lists[qp][0]
            if early.valid:
                found = (early.first_psn, early.last_psn, early.completion)
                assert found == (step, step + 3, step % 50)
            assert answer.entry.wr_id == step
            assert (answer.entry.complete, answer.entry.status) == complete[step]

    async def bench(ctx):
        nonlocal fullest
        while not ctx.get(table.ready):
            await ctx.tick()
        ctx.set(table.head_rsp.ready, 1)
        for step in range(1500):
            used = sum(map(len, lists.values()))
            fullest = max(fullest, used)
            assert used < CONFIG.outstanding or not ctx.get(table.places.valid)
            qp = rng.randrange(CONFIG.qps)
            # Fills up and drains in turn.
            what = rng.random() + (0.3 if step // 40 % 2 else -0.2)
            if what < 0.4 and used < CONFIG.outstanding:
                reads = rng.randrange(2)
                sink = {"number": step, "long": step % 2}
                entry = {"position": step, "wr_id": step, "data": reads, "sink": sink}
                entry |= {"first_psn": step, "last_psn": step + 3, "completion": step % 50}
                alone = rng.random() < 0.2  # no answer ends it
                number = await take_place(ctx, table)
                append = {"qp": qp, "number": number, "entry": entry, "unsent": alone}
                await hand_over(ctx, table.append, append)
                if alone:
                    unsent.add(step)
                if reads:
                    sinks[step] = step % 2
                taken = {n for one in lists.values() for _, n in one}
                assert number not in taken, "an entry was given out twice"
                lists[qp].append((step, number))
                complete[step] = (0, 0)
                if qp in watched or alone:
                    pokes.append(qp)
            elif what < 0.6 and lists[qp]:
                step_, number = rng.choice(lists[qp])
                if rng.random() < 0.5:
                    ends = rng.randrange(2)  # no answer has to come
                    await hand_over(ctx, table.finish, {"qp": qp, "number": number, "ends": ends})
                    complete[step_] = (1, complete[step_][1])
                    if qp in watched or (ends and step_ == lists[qp][0][0]):
                        pokes.append(qp)
                else:
                    await hand_over(
                        ctx, table.fail, {"qp": qp, "position": step_, "status": 1 + step % 9}
                    )
                    complete[step_] = (1, complete[step_][1] or 1 + step % 9)
                    watched.add(qp)
                    pokes.append(qp)
            elif what < 0.8:
                stopped = rng.random() < 0.02
                await hand_over(ctx, table.head_req, {"qp": qp, "stopped": stopped})
                if stopped:
                    watched.add(qp)
                await shows_oldest(ctx, qp)
            elif what < 1.2:
                look, timeout = rng.random() < 0.7, rng.choice((0, 3, 17))
                idle = rng.randrange(2)
                pop = {"qp": qp, "look": look, "timeout": timeout, "idle": idle}
                await hand_over(ctx, table.pop, pop)
                if lists[qp]:
                    lists[qp].popleft()
                    kind = TimerKind.ANSWER if lists[qp] else TimerKind.OFF
                    timers.extend([(qp, kind, timeout, idle)] * (timeout != 0))
                    if lists[qp] and (qp in watched or lists[qp][0][0] in unsent):
                        pokes.append(qp)
                if look:
                    await shows_oldest(ctx, qp)
                await ctx.tick().repeat(3)  # ``room`` is looked at above
            elif rng.random() < 0.1:
                await hand_over(ctx, table.drop, {"qp": qp})
                timers.append((qp, TimerKind.OFF, 0, 0))
                wanted.extend((step, sinks[step]) for step, _ in lists[qp] if step in sinks)
                lists[qp].clear()
                watched.discard(qp)
                await ctx.tick().repeat(2 * CONFIG.outstanding + 4)
        await ctx.tick().repeat(100)
        assert fullest == CONFIG.outstanding and poked == pokes and pokes
        assert foreseen[1]
        assert dropped == wanted and wanted
        assert timed == timers and {kind for _, kind, *_ in timed} > {TimerKind.OFF}

    simulate(table, bench, deadline=30_000, background=(count_pokes, note_timers, note_dropped))


def test_pops_that_look_take_two_cycles_each():
    """A list is taken apart with a look and pops, also while more is appended to it."""
    table, entries, spent = OutstandingTable(config=CONFIG), 6, []

    async def bench(ctx):
        while not ctx.get(table.ready):
            await ctx.tick()
        places = [await take_place(ctx, table) for _ in range(entries + 1)]
        for number in range(entries):
            append = {"qp": 1, "number": places[number], "entry": {"wr_id": number}}
            await hand_over(ctx, table.append, append)
        await ctx.tick().repeat(2)
        ctx.set(table.head_rsp.ready, 1)
        await hand_over(ctx, table.head_req, {"qp": 1})
        for number in range(entries):
            if number == entries - 1:  # the last one known gets a successor after it was shown
                await ctx.tick().until(table.head_rsp.valid)
                append = {"qp": 1, "number": places[entries], "entry": {"wr_id": entries}}
                await hand_over(ctx, table.append, append)
            else:
                *_, answer = (
                    await ctx.tick().sample(table.head_rsp.payload).until(table.head_rsp.valid)
                )
                assert answer.valid and answer.entry.wr_id == number
            cycles = 1
            ctx.set(table.pop.payload, {"qp": 1, "look": 1})
            ctx.set(table.pop.valid, 1)
            while not ctx.get(table.pop.ready):
                await ctx.tick()
                cycles += 1
            await ctx.tick()
            ctx.set(table.pop.valid, 0)
            while not ctx.get(table.head_rsp.valid):
                await ctx.tick()
                cycles += 1
            spent.append(cycles + 1)
        assert ctx.get(table.head_rsp.payload.valid)
        assert ctx.get(table.head_rsp.payload.entry.wr_id) == entries
        assert spent[: entries - 1] == [2] * (entries - 1)

    simulate(table, bench, deadline=500)


@pytest.mark.parametrize("gap, seen", [(0, False), (1, True), (5, True)])
def test_what_a_packet_is_compared_with_is_foreseen(gap, seen):
    """Of an entry that comes with the pop of the one before, if that is ``gap`` cycles behind its
    own look: the table reads it in the first of them. Also of the one that is appended meanwhile;
    not of the first one, nor of an end."""
    table, entries, found = OutstandingTable(config=CONFIG), 6, []

    async def append(ctx, number):
        entry = {"wr_id": number, "first_psn": 3 * number, "last_psn": 3 * number + 2}
        place = await take_place(ctx, table)
        await hand_over(ctx, table.append, {"qp": 1, "number": place, "entry": entry})

    async def shown(ctx):
        *_, answer, early = (
            await ctx.tick()
            .sample(table.head_rsp.payload, table.foreseen)
            .until(table.head_rsp.valid)
        )
        found.append(early.valid)
        if early.valid:
            entry = answer.entry
            assert (early.first_psn, early.last_psn) == (entry.first_psn, entry.last_psn)
        return answer

    async def bench(ctx):
        while not ctx.get(table.ready):
            await ctx.tick()
        for number in range(entries):
            await append(ctx, number)
        ctx.set(table.head_rsp.ready, 1)
        await hand_over(ctx, table.head_req, {"qp": 1})
        for number in range(entries + 1):
            assert (await shown(ctx)).entry.wr_id == number
            if number == entries - 1:  # the last one gets a successor
                await append(ctx, entries)
                await ctx.tick().repeat(2)
            if gap:
                await ctx.tick().repeat(gap)
            await hand_over(ctx, table.pop, {"qp": 1, "look": 1})
        assert not (await shown(ctx)).valid
        assert found[1 : entries - 1] == [seen] * (entries - 2) and found[entries]
        assert not found[0] and not found[-1]

    simulate(table, bench, deadline=500)


@pytest.mark.parametrize("seed", range(4))
def test_unanswered_entries_all_end(seed):
    """Entries of several QPs are appended, finished in order and taken off at the same time, each
    by who does it on a card. Who takes off comes for a poke, and goes on while entries are
    complete. None is forgotten, though only a finish of an oldest entry gives a poke."""
    rng, table, each = random.Random(seed), OutstandingTable(config=CONFIG), 60
    appended = {qp: deque() for qp in range(CONFIG.qps)}
    ended = {qp: [] for qp in appended}
    listed, spare = deque(), deque()

    async def pause(ctx):
        if rng.random() < 0.3:
            await ctx.tick().repeat(rng.choice((1, 2, 3, 40)))

    async def append(ctx):
        while not ctx.get(table.ready):
            await ctx.tick()
        order = [qp for qp in appended for _ in range(each)]
        rng.shuffle(order)
        for n, qp in enumerate(order):
            number = await take_place(ctx, table)
            entry = {"qp": qp, "number": number, "entry": {"wr_id": n}}
            appended[qp].append(n)
            await hand_over(ctx, table.append, entry)
            spare.append((qp, number))
            await pause(ctx)

    async def finish(ctx):
        for _ in range(each * CONFIG.qps):
            while not spare:
                await ctx.tick()
            qp, number = spare.popleft()
            await hand_over(ctx, table.finish, {"qp": qp, "number": number, "ends": 1})
            await pause(ctx)

    async def keep_pokes(ctx):
        """As the list of QPs does it: a QP is in it once."""
        while True:
            ctx.set(table.poke.ready, rng.random() < 0.5)
            *_, valid, ready, poke = await ctx.tick().sample(
                table.poke.valid, table.poke.ready, table.poke.payload
            )
            if valid and ready and poke.qp not in listed:
                listed.append(poke.qp)

    async def take_off(ctx):
        ctx.set(table.head_rsp.ready, 1)
        while any(len(found) < each for found in ended.values()):
            if not listed:
                await ctx.tick()
                continue
            qp = listed.popleft()
            await hand_over(ctx, table.head_req, {"qp": qp})
            while True:
                *_, oldest = (
                    await ctx.tick().sample(table.head_rsp.payload).until(table.head_rsp.valid)
                )
                if not (oldest.valid and oldest.entry.complete):
                    break
                ended[qp].append(oldest.entry.wr_id)
                await pause(ctx)
                await hand_over(ctx, table.pop, {"qp": qp, "look": 1})
        assert all(ended[qp] == list(appended[qp]) for qp in appended)

    simulate(table, take_off, deadline=30_000, background=(append, finish, keep_pokes))


def test_an_append_follows_a_finish_at_once():
    """The next append reads its list while a finish looks at another one."""
    table, entries, appends = OutstandingTable(config=CONFIG), 4, []

    async def bench(ctx):
        while not ctx.get(table.ready):
            await ctx.tick()
        ctx.set(table.poke.ready, 1)
        places = [await take_place(ctx, table) for _ in range(2 * entries)]
        for n in range(entries):
            await hand_over(ctx, table.append, {"qp": 1, "number": places[n]})
        await ctx.tick().repeat(2)
        # Both are there all the time; none of those that finish is the oldest of its list.
        ctx.set(table.finish.payload, {"qp": 1, "number": places[1], "ends": 1})
        ctx.set(table.finish.valid, 1)
        ctx.set(table.append.payload, {"qp": 2, "number": places[entries]})
        ctx.set(table.append.valid, 1)
        for cycle in range(12):
            *_, ready = await ctx.tick().sample(table.append.ready)
            if ready:
                appends.append(cycle)
        assert [b - a for a, b in pairwise(appends)] == [3] * 3

    simulate(table, bench, deadline=500)
