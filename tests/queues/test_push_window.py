"""The push window: pieces in any order, torn or bad; who asks for what; random enemies."""

from __future__ import annotations

from random import Random

import pytest

from hdl.abi.push import PUSH_MOST_BYTES, PUSH_PIECE, push_pieces
from hdl.queues.push.types import ENTRIES
from hdl.queues.push.window import PATIENCE
from tests.queues.push_bench import FIRST, Bench, beats, play

WIDTHS = (64, 512)
#: Card's number of pair 3 of the second function: each has 16 pairs.
OTHER = 16 + 3
LONG = 3 * PATIENCE


def element(seed: int, size: int = 123) -> bytes:
    return Random(seed).randbytes(size)


def pieces(position: int, seed: int = 1, size: int = 123, head: int = 7) -> dict[int, bytes]:
    return dict(enumerate(push_pieces(position, head, element(seed, size))))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("size", [75, 112, 113, 168, PUSH_MOST_BYTES])
def test_whole(width: int, size: int) -> None:
    """Each length: a doorbell with the index, then the element byte by byte, once."""

    async def scene(bench: Bench) -> None:
        await bench.push(FIRST, 3, pieces(0xFFFF, size=size))
        await bench.idle(4)
        assert [ring[1:] for ring in bench.rings] == [(3, 0)]
        got = await bench.ask(3, 0xFFFF)
        assert (got.head, got.element) == (7, element(1, size))
        assert not (await bench.ask(3, 0xFFFF)).hit
        assert bench.counts == dict.fromkeys(bench.counts, 0) | {"taken": 1}

    play(width, scene)


def test_a_piece_takes_two_cycles() -> None:
    """At 512 bits, where a beat is a piece: pushes of 2, 3 and 4 pieces in a row ring 2 cycles for
    each piece behind the first beat."""

    async def scene(bench: Bench) -> None:
        spent = []
        for position, size in enumerate((75, 123, 192)):
            bench.rings.clear()
            await bench.idle(8)
            begun = bench.time
            await bench.push(FIRST, 3, pieces(position, size=size))
            await bench.idle(12)
            ((seen, *_),) = bench.rings
            spent.append(seen - begun)
            await bench.ask(3, position)
        assert spent == [4, 6, 8]

    play(512, scene)


@pytest.mark.parametrize("width", WIDTHS)
def test_any_order_of_two_functions(width: int) -> None:
    """Pieces of two QPs in turn, in reverse order; the pair is the function's own."""

    async def scene(bench: Bench) -> None:
        one, other = pieces(5, 1), pieces(5, 2, head=9)
        for number in reversed(one):
            await bench.push(FIRST, 3, {number: one[number]})
            await bench.push(FIRST + 1, 3, {number: other[number]})
        await bench.idle(4)
        assert sorted(ring[1:] for ring in bench.rings) == [(3, 6), (OTHER, 6)]
        got = await bench.ask(OTHER, 5)
        assert (got.head, got.element) == (9, element(2))
        assert (await bench.ask(3, 5)).element == element(1)

    play(width, scene)


TORN = {
    "hole": lambda piece: piece[:20],
    "word": lambda piece: piece[:4],
    "magic": lambda piece: b"\0" + piece[1:],
    "too long": lambda piece: piece[:6] + (PUSH_MOST_BYTES + 1).to_bytes(2, "little") + piece[8:],
    "too short": lambda piece: piece[:6] + (74).to_bytes(2, "little") + piece[8:],
    "garbage": lambda piece: bytes(64),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("what", TORN)
def test_torn(width: int, what: str) -> None:
    """A bad piece among good ones: a doorbell without an index, and nothing to take."""

    async def scene(bench: Bench) -> None:
        good = pieces(5)
        await bench.push(FIRST, 3, {0: good[0], 1: good[1]})
        await bench.push(FIRST, 3, {2: TORN[what](good[2])})
        await bench.idle(LONG)
        assert bench.rings and {ring[1:] for ring in bench.rings} == {(3, None)}
        assert not (await bench.ask(3, 5)).hit
        assert bench.counts["torn"] and not bench.counts["taken"]

    play(width, scene)


@pytest.mark.parametrize("width", WIDTHS)
def test_stops_in_the_middle(width: int) -> None:
    """What is never completed is a doorbell after a while, also in the middle of a piece."""

    async def scene(bench: Bench) -> None:
        good = pieces(5)
        await bench.push(FIRST, 3, {0: good[0], 2: good[2]})
        await bench.idle(LONG)
        assert [ring[1:] for ring in bench.rings] == [(3, None)]
        assert bench.counts["incomplete"] == 1
        await bench.push(FIRST, 3, {1: good[1]})
        await bench.write(*beats(width, FIRST + 1, 3, 0, good[0][:40]))
        await bench.idle(LONG)
        assert sorted(ring[1] for ring in bench.rings[1:]) == [3, OTHER]
        assert not (await bench.ask(3, 5)).hit

    play(width, scene)


@pytest.mark.parametrize("width", WIDTHS)
def test_pieces_of_two_pushes_do_not_mix(width: int) -> None:
    """Old and new pieces of one slot differ in their marks: neither is complete."""

    async def scene(bench: Bench) -> None:
        old, new = pieces(5, 1), pieces(6, 2)
        await bench.push(FIRST, 3, {0: old[0], 1: old[1], 2: new[2]})
        await bench.idle(LONG)
        assert not (await bench.ask(3, 5)).hit and not (await bench.ask(3, 6)).hit
        await bench.push(FIRST, 3, {0: new[0], 1: new[1], 2: new[2]})
        await bench.idle(4)
        assert (await bench.ask(3, 6)).element == element(2)

    play(width, scene)


@pytest.mark.parametrize("width", WIDTHS)
def test_another_position_is_asked_for(width: int) -> None:
    """It is forgotten then, and is not there when its position comes: the ring counts."""

    async def scene(bench: Bench) -> None:
        for asked in (4, 6):
            await bench.push(FIRST, 3, pieces(5))
            await bench.idle(4)
            assert not (await bench.ask(3, asked)).hit
            assert not (await bench.ask(3, 5)).hit
        await bench.push(FIRST, 3, pieces(5))
        await bench.idle(4)
        assert (await bench.ask(3, 5, take=False)).hit
        assert not (await bench.ask(3, 5)).hit
        assert bench.counts["late"] == 2 and bench.counts["behind"] == 1

    play(width, scene)


@pytest.mark.parametrize("width", WIDTHS)
def test_who_may_not_push(width: int) -> None:
    """Functions that have not negotiated it, pair 0, slots of no pair: nothing at all happens."""

    async def scene(bench: Bench) -> None:
        bench.ctx.set(bench.dut.push.pushes, 0b01)
        await bench.push(FIRST + 1, 3, pieces(5))
        await bench.push(FIRST, 0, pieces(5))
        await bench.push(FIRST, 16 + 3, pieces(5))
        await bench.idle(LONG)
        assert bench.rings == [] and bench.counts["refused"] == 9
        assert not (await bench.ask(OTHER, 5)).hit

    play(width, scene)


@pytest.mark.parametrize("width", WIDTHS)
def test_queue_reset(width: int) -> None:
    """In the middle of a push, and behind a whole one."""

    async def scene(bench: Bench) -> None:
        good = pieces(5)
        await bench.push(FIRST, 4, pieces(8))
        await bench.push(FIRST, 3, {0: good[0], 1: good[1]})
        await bench.idle(4)
        bench.ctx.set(bench.dut.port.forget, 1)
        await bench.cycle()
        bench.ctx.set(bench.dut.port.forget, 0)
        await bench.push(FIRST, 3, {2: good[2]})
        await bench.idle(LONG)
        assert not (await bench.ask(3, 5)).hit and not (await bench.ask(4, 8)).hit
        assert (3, None) in [ring[1:] for ring in bench.rings]

    play(width, scene)


@pytest.mark.parametrize("width", WIDTHS)
def test_more_than_there_is_room_for(width: int) -> None:
    """Each QP gets a doorbell, and the last ones may be taken."""

    async def scene(bench: Bench) -> None:
        qps = range(1, 2 + 2 * ENTRIES)
        for qp in qps:
            first, *_ = pieces(qp, qp).items()
            await bench.push(FIRST, qp, dict([first]))
        await bench.idle(LONG)
        assert {ring[1] for ring in bench.rings} == set(qps)
        for qp in qps:
            await bench.push(FIRST, qp, pieces(qp, qp))
        await bench.idle(4)
        taken = [qp for qp in qps if (await bench.ask(qp, qp)).hit]
        assert len(taken) == ENTRIES == bench.counts["taken"]

    play(width, scene)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", range(6))
def test_enemies(width: int, seed: int) -> None:
    """Two functions write what they like, and others ask: what is given had been written whole, as
    one push, by its own function; and no write goes without a doorbell behind it."""
    random = Random(seed)
    print(f"seed {seed}")

    async def scene(bench: Bench) -> None:
        written: dict[int, dict[tuple[int, int], dict[int, bytes]]] = {}
        wrote: dict[int, int] = {}
        given = 0
        for _ in range(150):
            function, pair = random.randrange(2), random.randrange(1, 5)
            qp, position = 16 * function + pair, random.randrange(3)
            dice = random.random()
            if dice < 0.25:
                got = await bench.ask(qp, position, take=random.random() < 0.9)
                if got.element:
                    given += 1
                    key = (position, len(got.element))
                    parts = written[qp].pop(key)
                    whole = b"".join(parts[n] for n in sorted(parts))
                    assert got.element == whole[: len(got.element)]
                continue
            size = random.choice((75, 123, 150))
            seeds = random.randrange(2)
            good = pieces(position, seeds, size, head=qp)
            order = random.sample(list(good), len(good))
            if dice > 0.8:
                order = order[: random.randrange(1, len(good))]
            for number in order:
                piece = good[number]
                if dice > 0.95:
                    piece = random.choice(list(TORN.values()))(piece)
                else:
                    parts = written.setdefault(qp, {}).setdefault((position, size), {})
                    parts[number] = piece[PUSH_PIECE.offset("data") :]
                await bench.push(FIRST + function, pair, {number: piece})
                wrote[qp] = bench.time
            await bench.idle(random.choice((0, 0, 3, 30)))
        await bench.idle(LONG)
        last = {qp: time for time, qp, _ in bench.rings}
        # A piece passes two registers before it is looked at.
        assert set(last) == set(wrote) and all(last[qp] >= wrote[qp] for qp in wrote)
        assert given and given == bench.counts["taken"]

    play(width, scene, deadline=60_000)
