"""Connections: packets of DcControl to and from the firmware, and what initiators wait for."""

import json
import random
from pathlib import Path

from hdl.config import NicConfig
from hdl.ports.shared import control_content
from hdl.transport.connections import WAITING, Connections
from hdl.wire.headers import ATOMIC_ETH
from hdl.wire.opcodes import DC_CONTROL
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=16, dc=True)
VECTORS = json.loads((Path(__file__).parents[1] / "data" / "dc.json").read_text())
#: The bytes behind the BTH of a CONNECT.
CONTENT = bytes.fromhex(VECTORS["V-D1"])[12:-4]


def test_packets_that_came():
    """Those of connections go to the firmware with what follows the BTH, as long as there is room,
    and are dropped and counted then; all others go on, in order, whatever waits."""
    dut, rng = Connections(config=CONFIG), random.Random(1)
    numbers = ATOMIC_ETH.unpack(CONTENT)
    opcodes = [rng.choice((0xC4, 0x04, 0xD1, *DC_CONTROL)) for _ in range(120)]
    passed, got = [], []

    async def send(ctx):
        for n, opcode in enumerate(opcodes):
            ctx.set(dut.header.p, {"opcode": opcode, "psn": n, "src_gid": n << 64, **numbers})
            ctx.set(dut.header.valid, 1)
            await ctx.tick().until(dut.header.ready)
            ctx.set(dut.header.valid, 0)

    async def take(ctx):
        while len(passed) < sum(one not in DC_CONTROL for one in opcodes):
            ready = rng.random() < 0.6
            ctx.set(dut.passed.ready, ready)
            *_, valid, row = await ctx.tick().sample(dut.passed.valid, dut.passed.p)
            if ready and valid:
                passed.append((row.opcode, row.psn))

    async def serve(ctx):
        await send(ctx)
        ctx.set(dut.port.received.ready, 1)
        for _ in range(2 * WAITING):
            *_, valid, row = await ctx.tick().sample(dut.port.received.valid, dut.port.received.p)
            if valid:
                got.append((row.opcode, row.psn, row.src_gid >> 64, row.content))
        wanted = [(o, n) for n, o in enumerate(opcodes) if o in DC_CONTROL]
        content = int.from_bytes(CONTENT, "little")
        assert got == [(o, n, n, content) for o, n in wanted[: len(got)]]
        assert len(got) >= WAITING
        assert ctx.get(dut.port.dropped) == len(wanted) - len(got)

    simulate(dut, serve, take)
    assert passed == [(o, n) for n, o in enumerate(opcodes) if o not in DC_CONTROL]


def test_packets_to_send():
    """The firmware's come between the answers, with all that they say; none of either is lost."""
    dut, rng = Connections(config=CONFIG), random.Random(2)
    sent = []
    content = int.from_bytes(CONTENT[:25], "little")

    async def answers(ctx):
        for n in range(40):
            ctx.set(dut.answer.p, {"opcode": 0xD1, "psn": n})
            ctx.set(dut.answer.valid, 1)
            await ctx.tick().until(dut.answer.ready)
            ctx.set(dut.answer.valid, 0)

    async def firmware(ctx):
        for n in range(10):
            packet = {"opcode": 0xD8, "psn": n, "dest_qp": 7, "pkey": 9, "ack_request": 1}
            ctx.set(dut.port.sent.p, packet | {"content": content, "av": {"hop_limit": 64}})
            ctx.set(dut.port.sent.valid, 1)
            await ctx.tick().until(dut.port.sent.ready)
            ctx.set(dut.port.sent.valid, 0)
            await ctx.tick().repeat(rng.randrange(1, 5))

    async def wire(ctx):
        whole = control_content(dut.o.p)
        while len(sent) < 50:
            ready = rng.random() < 0.7
            ctx.set(dut.o.ready, ready)
            *_, valid, row, bits = await ctx.tick().sample(dut.o.valid, dut.o.p, whole)
            if ready and valid:
                sent.append((row.opcode, row.psn))
                if row.opcode == 0xD8:
                    assert (bits, row.dest_qp, row.pkey, row.ack_request) == (content, 7, 9, 1)
                    assert (row.av.hop_limit, row.length, row.departure.counts) == (64, 0, 0)

    simulate(dut, wire, answers, firmware)
    assert [psn for opcode, psn in sent if opcode == 0xD1] == list(range(40))
    assert [psn for opcode, psn in sent if opcode == 0xD8] == list(range(10))


def test_what_initiators_wait_for():
    """The last destination that was asked for, until the firmware forgets it; a request that is
    held in the cycle in which it does so is not forgotten."""
    dut = Connections(config=CONFIG)

    async def ask(ctx, qp, destination, stream=0):
        row = {"valid": 1, "qp": qp, "destination": destination, "stream": stream}
        ctx.set(dut.apart, row)
        await ctx.tick()
        ctx.set(dut.apart.valid, 0)

    async def look(ctx, qp):
        ctx.set(dut.port.qp, qp)
        await ctx.tick().repeat(2)
        names = ("asked", "destination", "stream")
        return tuple(ctx.get(getattr(dut.port, name)) for name in names)

    async def forget(ctx, qp):
        ctx.set(dut.port.qp, qp)
        ctx.set(dut.port.forget, 1)
        await ctx.tick()
        ctx.set(dut.port.forget, 0)

    async def play(ctx):
        assert await look(ctx, 3) == (0, 0, 0)
        await ask(ctx, 3, 0x1234, 0xFFFF)
        await ask(ctx, 4, 7)
        assert await look(ctx, 3) == (1, 0x1234, 0xFFFF)
        assert await look(ctx, 4) == (1, 7, 0)
        assert ctx.get(dut.port.asks) == 2
        await forget(ctx, 3)
        await ask(ctx, 4, 8)
        await ctx.tick()
        assert await look(ctx, 3) == (0, 0, 0)
        assert await look(ctx, 4) == (1, 8, 0)

    simulate(dut, play)
