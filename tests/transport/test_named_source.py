"""Intake and NamedSource: a packet of XRC gets what the receive queue that it names has, whether
that is looked up ahead or in its turn."""

import random
from itertools import pairwise

import pytest

from hdl.abi.enums import QpType
from hdl.config import NicConfig
from hdl.ports.operations import early_facts
from hdl.ports.rows import QpState, RxMessage, SourceKind
from hdl.transport.receive.intake import Intake
from hdl.wire.opcodes import QP_CODE, XRC_QUEUE
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=16, xrc=True, mp_wr=True)
RC, SEND_XRC, WRITE_XRC, SEND_RC, WRITE_RC = QP_CODE[QpType.RC], 0xA4, 0xAA, 0x04, 0x0A
FUNCTION = 1


def target(qpn, domain):
    return {
        "state": QpState.RTR,
        "type": QP_CODE[QpType.XRC_TGT],
        "function": FUNCTION,
        "pd": domain,
        "qpn": qpn,
        "pkey": 0xFFFF,
        "source": {"kind": SourceKind.NAMED, "number": 0},
    }


def queue(number, domain, *, function=FUNCTION):
    return {
        "type": XRC_QUEUE,
        "function": function,
        "qpn": number,
        "pd": domain,
        "recv_pd": 0x100 + number,
        "recv_cq": number & 0xF,
        "qkey": number << 8,
    }


#: Pair -> its row. The number of a queue has its pair in the low four bits.
ROWS = {
    3: target(3, 0x55) | {"type": RC, "recv_pd": 0x56, "recv_cq": 7, "source": {"number": 3}},
    4: target(4, 1),
    5: target(5, 2),
    8: queue(0x138, 1),
    9: queue(0x249, 1),
    10: queue(0x10A, 2),
    11: queue(0x10B, 1, function=FUNCTION + 1),
}
#: What requests name: live queues, an old number, another function's, none.
NUMBERS = (0x138, 0x249, 0x10A, 0x148, 0x10B, 0x10C)


def expected(opcode, qp, number):
    """Protection domain, CQ, source, and whether the queue is none of the QP's domain."""
    if opcode in (SEND_RC, WRITE_RC):
        return 0x55, 0x56, 7, (SourceKind.PRIVATE, 3), False
    row = ROWS.get(number & 0xF, {})
    found = {"qpn": number, "type": XRC_QUEUE, "function": FUNCTION, "pd": ROWS[qp]["pd"]}
    if any(row.get(name) != value for name, value in found.items()):
        return (True,)
    return row["recv_pd"], row["recv_pd"], row["recv_cq"], (SourceKind.SHARED, number & 0xF), False


def play(packets, *, holds, late=lambda: 0, gap=lambda: 0):
    """Hand over ``packets`` (opcode, QP, number). ``holds``: cycles that the responder has each.
    ``late``: cycles by which rows come too late. Returns the cycle in which each was done with."""
    dut, done, told = Intake(config=CONFIG), [], []
    clock = [0]

    async def table(ctx):
        look, wait, asked = dut.context, 0, None
        ctx.set(look.valid, 1)
        while True:
            *_, enable, number, hint, pair = await ctx.tick().sample(
                look.enable, look.number, dut.upcoming.valid, dut.upcoming.source.number
            )
            clock[0] += 1
            if hint:
                told.append(pair)
            if enable:
                asked, wait = number & 0xF, late()
            elif wait:
                wait -= 1
            if asked is not None:
                ctx.set(look.valid, wait == 0)
                ctx.set(look.rows.cfg, ROWS.get(asked, {}) if wait == 0 else {"pd": 0xDEAD})

    async def wire(ctx):
        header = dut.header
        for opcode, qp, number in packets:
            if pause := gap():
                await ctx.tick().repeat(pause)
            row = {"opcode": opcode, "dest_qp": qp, "function": FUNCTION, "pkey": 0xFFFF}
            takes = opcode in early_facts(CONFIG)["takes"]
            ctx.set(header.payload, row | {"src_mac": number, "takes": takes})
            ctx.set(header.valid, 1)
            await ctx.tick().until(header.ready)
            ctx.set(header.valid, 0)

    async def responder(ctx):
        work = dut.responder.payload
        for n, (opcode, qp, number) in enumerate(packets):
            before, begins = None, (work.lost, work.srq, work.cfg.pd, work.cfg.source.number)
            while not ctx.get(dut.responder.valid):
                assert not ctx.get(dut.dropper.valid), n
                before = [ctx.get(one) for one in begins]
                await ctx.tick()
            # The responder looks at its work in the cycle before, too.
            assert before == [ctx.get(one) for one in begins], n
            cfg, wanted = work.cfg, expected(opcode, qp, number)
            assert ctx.get(work.qp) == qp and ctx.get(work.header.opcode) == opcode, n
            if opcode in (SEND_XRC, WRITE_XRC):
                assert ctx.get(work.srq) == number, n
                assert ctx.get(work.lost) == wanted[-1], (n, hex(number))
            if len(wanted) > 1:
                source = ctx.get(cfg.source.kind), ctx.get(cfg.source.number)
                found = (ctx.get(cfg.pd), ctx.get(cfg.recv_pd), ctx.get(cfg.recv_cq), source)
                assert found == wanted[:-1], (n, found)
                if opcode in (SEND_XRC, SEND_RC):
                    assert source[1] in told, n
            if wanted[-1] is False and opcode == SEND_XRC:
                assert ctx.get(cfg.qkey) == number << 8
            await ctx.tick().repeat(holds(opcode) - 1)
            ctx.set(dut.responder.ready, 1)
            await ctx.tick()
            done.append(clock[0])
            ctx.set(dut.responder.ready, 0)

    simulate(dut, wire, responder, background=(table,))
    return done


@pytest.mark.parametrize("seed", range(6))
def test_any_packets_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    opcodes = (SEND_XRC, SEND_XRC, WRITE_XRC, SEND_RC, WRITE_RC)
    packets = []
    for _ in range(300):
        opcode = rng.choice(opcodes)
        xrc = opcode in (SEND_XRC, WRITE_XRC)
        packets.append((opcode, rng.choice((4, 5)) if xrc else 3, rng.choice(NUMBERS)))
    play(
        packets,
        holds=lambda _: rng.randint(2, 8),
        late=(lambda: 0) if seed % 2 else (lambda: rng.choice((0, 0, 1, 3))),
        gap=lambda: rng.choice((0, 0, 0, 1, 2, 7)),
    )


def test_sends_as_fast_as_those_of_other_services() -> None:
    """The responder takes 5 cycles for a SEND and 2 for a WRITE. The look-up of a queue takes 3
    cycles, but for those of packets behind a SEND, which are hidden."""
    sends = [(SEND_XRC, 4 + n % 2, (0x138, 0x10A)[n % 2]) for n in range(20)]
    for packets in (sends, [(SEND_RC, 3, 0)] * 20):
        done = play(packets, holds=lambda _: 5)
        assert {b - a for a, b in pairwise(done[1:])} == {6}
    writes = [(WRITE_XRC, qp, number) for _, qp, number in sends]
    done = play(writes, holds=lambda _: 2)
    assert {b - a for a, b in pairwise(done[1:])} == {6}


def test_a_flush_of_what_a_message_holds() -> None:
    """A poke finds the queue that the QP's current message has named."""
    dut, found = Intake(config=CONFIG), []

    async def table(ctx):
        look = dut.context
        ctx.set(look.valid, 1)
        held = {"message": RxMessage.SEND, "srq": 0x249, "error": 1}
        while True:
            *_, enable, number = await ctx.tick().sample(look.enable, look.number)
            if enable:
                ctx.set(look.rows.cfg, ROWS[number])
                ctx.set(look.rows.rx_ahead, held if number == 4 else {})

    async def poke(ctx):
        ctx.set(dut.poke.payload, {"qp": 4, "flags": 2})
        ctx.set(dut.poke.valid, 1)
        await ctx.tick().until(dut.poke.ready)
        ctx.set(dut.poke.valid, 0)
        await ctx.tick().until(dut.responder.valid)
        work = dut.responder.payload
        assert ctx.get(work.flush) and not ctx.get(work.lost)
        found.append((ctx.get(work.cfg.source.number), ctx.get(work.cfg.recv_cq)))

    simulate(dut, poke, background=(table,))
    assert found == [(9, 9)]
