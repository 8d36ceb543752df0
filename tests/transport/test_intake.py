"""Intake: the rows that it hands over with a packet or poke are what was written last."""

import pytest

from hdl.abi.enums import QpType
from hdl.config import NicConfig
from hdl.ports.activations import ReceiveFlags
from hdl.ports.rows import QpState
from hdl.transport.receive.intake import Intake
from hdl.wire.opcodes import Operation
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=16)
QP, OTHER = 3, 4
BEFORE, AFTER = 5, 7


def handed_over(*, written_qp: int, cycle: int) -> int:
    """Poke a QP, and write the row ``QpAck`` of ``written_qp`` in some cycle. Returns the PSN of
    the row that the completer gets; it takes its work long after."""
    dut = Intake(config=CONFIG)
    rows = {QP: BEFORE, OTHER: BEFORE}
    found = []

    async def table(ctx):
        """A row that is written in the cycle in which it is read comes as it was before."""
        look, written = dut.context, dut.ack_written
        ctx.set(look.rows.cfg, {"state": QpState.RTS})
        ctx.set(look.valid, 1)
        while True:
            *_, enable, index, writes, place, row = await ctx.tick().sample(
                look.enable, look.number, written.enable, written.index, written.row
            )
            if enable:
                ctx.set(look.rows.ack, {"psn": rows.get(index, 0)})
            if writes:
                rows[place] = row.psn

    async def poke(ctx):
        ctx.set(dut.poke.payload, {"qp": QP, "flags": ReceiveFlags.FINISH.value})
        ctx.set(dut.poke.valid, 1)
        await ctx.tick().until(dut.poke.ready)
        ctx.set(dut.poke.valid, 0)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.completer.valid) and ctx.get(dut.completer.payload.qp) == QP
        found.append(ctx.get(dut.completer.payload.ack.psn))

    async def write(ctx):
        await ctx.tick().repeat(cycle)
        ctx.set(dut.ack_written.index, written_qp)
        ctx.set(dut.ack_written.row, {"psn": AFTER})
        ctx.set(dut.ack_written.enable, 1)
        await ctx.tick()
        ctx.set(dut.ack_written.enable, 0)

    simulate(dut, poke, write, background=(table,))
    return found[0]


@pytest.mark.parametrize("cycle", range(1, 11))
def test_row_written_at_any_time(cycle: int) -> None:
    assert handed_over(written_qp=QP, cycle=cycle) == AFTER
    assert handed_over(written_qp=OTHER, cycle=cycle) == BEFORE


PKEY = 0xFFFF


def packet(qp: int, opcode: int) -> dict:
    return {"opcode": opcode, "dest_qp": qp, "pkey": PKEY}


def beside(*, cycle: int, ends: int) -> tuple[list[int], int]:
    """The completer is at QP; a request of OTHER comes, and behind it an ACK of QP. The completer
    writes QP's row in ``cycle`` and has done in ``ends``. Returns the cycles in which the responder
    got its request, and the PSN of the row that the completer gets with the ACK."""
    dut = Intake(config=CONFIG)
    rows = {QP: BEFORE, OTHER: BEFORE}
    begun, found = [], []

    async def table(ctx):
        look, written = dut.context, dut.ack_written
        ctx.set(look.valid, 1)
        while True:
            *_, enable, index, writes, place, row = await ctx.tick().sample(
                look.enable, look.number, written.enable, written.index, written.row
            )
            if enable:
                cfg = {"state": QpState.RTS, "type": QpType.RC, "qpn": index, "pkey": PKEY}
                ctx.set(look.rows.cfg, cfg)
                ctx.set(look.rows.ack, {"psn": rows.get(index, 0)})
            if writes:
                rows[place] = row.psn

    async def packets(ctx):
        for header in (packet(OTHER, Operation.WRITE_ONLY), packet(QP, Operation.ACKNOWLEDGE)):
            ctx.set(dut.header.payload, header)
            ctx.set(dut.header.valid, 1)
            await ctx.tick().until(dut.header.ready)
        ctx.set(dut.header.valid, 0)
        await ctx.tick().until(dut.completer.valid)
        assert ctx.get(dut.completer.payload.qp) == QP
        found.append(ctx.get(dut.completer.payload.ack.psn))

    async def completer(ctx):
        ctx.set(dut.completer_qp, QP)
        ctx.set(dut.completer_busy, 1)
        ctx.set(dut.completer_beside, 1)
        ctx.set(dut.ack_written.index, QP)
        ctx.set(dut.ack_written.row, {"psn": AFTER})
        for passed in range(ends):
            ctx.set(dut.ack_written.enable, passed == cycle)
            await ctx.tick()
        ctx.set(dut.completer_busy, 0)

    async def responder(ctx):
        for passed in range(40):
            valid = ctx.get(dut.responder.valid)
            begun.extend([passed] * valid)
            ctx.set(dut.responder.ready, valid and len(begun) >= 4)
            await ctx.tick()

    simulate(dut, packets, completer, responder, background=(table,))
    return begun, found[0]


@pytest.mark.parametrize("cycle", range(16))
def test_a_request_passes_beside_the_completer(cycle: int) -> None:
    begun, psn = beside(cycle=cycle, ends=20)
    assert begun and begun[0] < 8, "a request of another QP does not wait"
    assert psn == AFTER, "an ACK that came meanwhile has the row that the completer wrote"
