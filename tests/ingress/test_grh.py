"""The GRH area in front of datagrams, among packets that have none, at every width."""

import random

import pytest

from hdl.ingress.grh import GrhJoin
from tests.simulate import simulate

DATAGRAM, OTHER = (0x64, 0x65), (0x04, 0x11, 0x24)


def rows(rng, packets):
    """Header rows, and the area of each datagram. Of an IPv6 header the row has every byte."""
    found = []
    for opcode, length in packets:
        area = rng.randbytes(40)
        words = [int.from_bytes(area[at : at + 4], "little") for at in (0, 4)]
        gids = [int.from_bytes(area[at : at + 16], "little") for at in (8, 24)]
        row = {"opcode": opcode, "length": length, "ipv6": 1, "src_gid": gids[0]}
        size = len(area) if opcode in DATAGRAM else 0
        row |= {"datagram": opcode in DATAGRAM, "total": length + size}
        row |= {"rkey": words[0], "dma_length": words[1]}
        row |= {"swap_add": gids[1] % (1 << 64), "compare": gids[1] >> 64}
        found.append((row, area if opcode in DATAGRAM else b""))
    return found


@pytest.mark.parametrize("width", [64, 128, 256, 512])
@pytest.mark.parametrize("pauses", [0, 0.3])
def test_datagrams_among_others(width, pauses):
    size, rng = width // 8, random.Random(width)
    lengths = (0, 1, 7, 8, 9, 23, 24, 25, size - 1, size, size + 1, 3 * size, 3 * size + 5)
    packets = [(rng.choice(DATAGRAM + OTHER), rng.choice(lengths)) for _ in range(100)]
    made, bodies = rows(rng, packets), [rng.randbytes(length) for _, length in packets]
    wanted = [area + body for (_, area), body in zip(made, bodies, strict=True) if area or body]
    dut, taken = GrhJoin(width=width), []

    async def pause(ctx):
        while rng.random() < pauses:
            await ctx.tick()

    async def put(ctx, port, payload):
        ctx.set(port.payload, payload)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)
        await pause(ctx)

    async def headers(ctx):
        for row, _ in made:
            await put(ctx, dut.kept, row)

    async def payload(ctx):
        for body in bodies:
            for at in range(0, len(body), size):
                part, last = body[at : at + size], at + size >= len(body)
                beat = {"data": int.from_bytes(part, "little"), "keep": (1 << len(part)) - 1}
                await put(ctx, dut.payload, beat | {"first": at == 0, "last": last})

    async def taker(ctx):
        ctx.set(dut.header.ready, 1)
        while True:
            *_, header = await ctx.tick().sample(dut.header.payload).until(dut.header.valid)
            taken.append(header.length)

    async def bench(ctx):
        got, body = [], b""
        while len(got) < len(wanted):
            ctx.set(dut.o.ready, rng.random() >= pauses)
            *_, valid, ready, beat = await ctx.tick().sample(
                dut.o.valid, dut.o.ready, dut.o.payload
            )
            if not (valid and ready):
                continue
            count = beat.keep.bit_count()
            assert beat.keep == (1 << count) - 1 and (count == size or beat.last)
            assert beat.first == (not body)
            body += beat.data.to_bytes(size, "little")[:count]
            if beat.last:
                got.append(body)
                body = b""
        assert got == wanted
        assert taken == [len(area) + row["length"] for row, area in made]

    simulate(dut, bench, deadline=20_000, background=[headers, payload, taker])
