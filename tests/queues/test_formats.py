"""Queues of two WQE formats on one card: virtio-rdma's, and an imaginary one that is a row."""

from __future__ import annotations

import random
from functools import cache
from itertools import count

import pytest

from hdl.abi.wqe_formats import WQE_FORMATS, Layout, Place, WqeFormat, card_formats
from hdl.config import FUNCTION_RDMA, CardFeature, NicConfig
from hdl.ports.jobs import Destination, RecvFetched, SendFetched
from hdl.queues.receive.fetch import RecvFetch
from hdl.queues.send import SendFetch
from hdl.queues.wqe.whole import WholeWqes
from tests.fields import unpack
from tests.queues import segment_format, wqes
from tests.queues.segment_format import FORMAT, SEGMENTS
from tests.queues.test_one_by_one import CONFIG, DEADLINE, Host, answer, offer, slots
from tests.queues.top import small_config
from tests.simulate import Prepared, simulate

NATIVE, OTHER = 1, 3
#: A card that reads one WQE at a time, and one with the fast path.
CARDS = {1: CONFIG, 64: small_config(64)}
#: Kinds of bad elements: what is wrong, and how the WQE completes.
BAD = {
    "segments that the length contradicts": wqes.LOC_QP_OP_ERR,
    "shorter than its fixed part": wqes.LOC_QP_OP_ERR,
    "inline with SGEs": wqes.LOC_QP_OP_ERR,
    "SGEs of more than 2**31 bytes": wqes.LOC_LEN_ERR,
    "too long inline": wqes.LOC_LEN_ERR,
}


@pytest.fixture(autouse=True)
def _imaginary(monkeypatch):
    assert FORMAT not in WQE_FORMATS
    monkeypatch.setitem(WQE_FORMATS, FORMAT, SEGMENTS)


@cache
def send_fetch(ahead: int) -> Prepared:
    return Prepared(SendFetch(config=CARDS[ahead]))


@cache
def recv_fetch(ahead: int) -> Prepared:
    return Prepared(RecvFetch(config=CARDS[ahead]))


class SendBench:
    """A SendFetch and a send queue of each format."""

    def __init__(self, ahead: int):
        self.prepared = send_fetch(ahead)
        self.dut, self.config = self.prepared.component, CARDS[ahead]
        self.host = Host(self.dut)
        self.queues = {
            qp: self.host.queue(self.config.sq_queue(qp), 4, wqe_format=number)
            for qp, number in ((NATIVE, 0), (OTHER, FORMAT))
        }

    async def fetch(self, ctx, qp: int, data: bytes, rng: random.Random) -> dict:
        """The answer to a request for an element that is offered."""
        queue = self.queues[qp]
        request = {"function": FUNCTION_RDMA, "qp": qp, "queue": queue.number}
        request |= {"position": queue.avail}
        head = offer(queue, data, rng)
        found = await answer(ctx, self.dut, request | {"known": queue.avail}, SendFetched)
        assert (found["qp"], found["head"]) == (qp, head)
        queue.spare = [k for k in range(4) if k != head] + [head]
        return found

    async def line(self, ctx, found: dict, count: int) -> tuple[bytes, bytes, dict]:
        """What the line of a WQE holds: slots, operands, and the address vector beside them."""
        dut, line = self.dut, found["line"]
        held = await slots(ctx, dut, line, count)
        ctx.set(dut.slot, {"line": line, "slot": wqes.OPERAND_SLOT})
        ctx.set(dut.slot_enable, 1)
        ctx.set(dut.destination.index, line)
        ctx.set(dut.destination.enable, 1)
        await ctx.tick()
        ctx.set(dut.slot_enable, 0)
        ctx.set(dut.destination.enable, 0)
        operands = ctx.get(dut.slot_data).to_bytes(16, "little")
        vector = unpack(Destination, ctx.get(dut.destination.row.as_value()))
        ctx.set(dut.release.payload, line)
        ctx.set(dut.release.valid, 1)
        await ctx.tick().until(dut.release.ready)
        ctx.set(dut.release.valid, 0)
        return held, operands, vector


@pytest.mark.parametrize("ahead", CARDS)
def test_send_wqes_of_both_formats(ahead):
    """Each field, SGE, inline byte, operand and address of WQEs of both queues in any order."""
    bench, rng = SendBench(ahead), random.Random(ahead)
    opcodes = [*segment_format.OPCODES] * 3
    makes = {NATIVE: wqes.send_wqe, OTHER: segment_format.send_element}

    async def run(ctx):
        for n in count():
            if not opcodes:
                break
            qp = rng.choice((NATIVE, OTHER))
            sges, fields = wqes.random_sges(rng, rng.randrange(4)), {}
            inline = rng.randbytes(rng.randrange(1, 60)) if n % 3 == 0 else None
            if qp == OTHER and inline is None:
                fields["opcode"] = opcodes.pop()
            if inline is not None:
                sges, fields = [], {"opcode": 0x0A if qp == OTHER else 2}
            data, expected = makes[qp](rng, sges, inline, **fields)
            found = await bench.fetch(ctx, qp, data, rng)
            assert (found["status"], found["wqe"]) == (wqes.OK, expected), n
            native = inline if inline is not None else wqes.sge_bytes(sges)
            held, operands, vector = await bench.line(ctx, found, len(native))
            assert held == native
            if expected.operands:
                assert operands == expected.operands
            assert vector == dict.fromkeys(vector, 0) | expected.destination

    simulate(bench.prepared, run, deadline=DEADLINE, background=[bench.host.serve])


def bad_element(rng: random.Random, what: str) -> bytes:
    """An element of the imaginary format in which that is wrong."""
    make, sges = segment_format.send_element, wqes.random_sges(rng, 2)
    if what == "segments that the length contradicts":
        return make(rng, sges, segments=5, opcode=0x0A)[0]
    if what == "shorter than its fixed part":
        return make(rng, [], opcode=0x11)[0][:-1]
    if what == "inline with SGEs":
        return make(rng, [], bytes(32), segments=4, opcode=0x0A)[0]
    if what == "SGEs of more than 2**31 bytes":
        return make(rng, [(0, 1 << 31, 0), (0, 1, 0)], opcode=0x0A)[0]
    return make(rng, [], bytes(CONFIG.max_inline + 1), opcode=0x0A)[0]


@pytest.mark.parametrize("ahead", CARDS)
def test_bad_elements_complete_with_their_error(ahead):
    """And the WQEs behind them, of both queues, are as good as before."""
    bench, rng = SendBench(ahead), random.Random(1)

    async def run(ctx):
        for what, error in BAD.items():
            found = await bench.fetch(ctx, OTHER, bad_element(rng, what), rng)
            assert (found["status"], found["error"]) == (wqes.WQE_ERROR, error), what
            for qp, make in ((OTHER, segment_format.send_element), (NATIVE, wqes.send_wqe)):
                data, expected = make(rng, wqes.random_sges(rng, 1))
                found = await bench.fetch(ctx, qp, data, rng)
                assert (found["status"], found["wqe"]) == (wqes.OK, expected), what
                await bench.line(ctx, found, 0)

    simulate(bench.prepared, run, deadline=DEADLINE, background=[bench.host.serve])


def test_unknown_opcode_is_no_operation():
    """The requester refuses it, as it does for an opcode that virtio-rdma does not have."""
    bench, rng = SendBench(1), random.Random(1)

    async def run(ctx):
        data, _ = segment_format.send_element(rng, [], opcode=0x0A)
        found = await bench.fetch(ctx, OTHER, data[:3] + b"\x25" + data[4:], rng)
        assert found["status"] == wqes.OK
        assert found["wqe"]["operation"] == dict.fromkeys(found["wqe"]["operation"], 0) | {
            "packets": dict.fromkeys(found["wqe"]["operation"]["packets"], 0)
        }

    simulate(bench.prepared, run, deadline=DEADLINE, background=[bench.host.serve])


@pytest.mark.parametrize("ahead", CARDS)
def test_receive_wqes_of_both_formats(ahead):
    """Each field and SGE of WQEs of both queues."""
    prepared, rng = recv_fetch(ahead), random.Random(ahead)
    dut, config = prepared.component, CARDS[ahead]
    host = Host(dut)
    queues = {
        qp: host.queue(config.rq_queue(qp), 16, wqe_format=number)
        for qp, number in ((NATIVE, 0), (OTHER, FORMAT))
    }
    makes = {NATIVE: wqes.recv_wqe, OTHER: segment_format.recv_element}

    async def run(ctx):
        await ctx.tick().repeat(config.recv_lines)
        ctx.set(dut.doorbell.valid, 1)
        for n in range(16):
            qp = rng.choice((NATIVE, OTHER))
            sges = wqes.random_sges(rng, rng.randrange(1, 4))
            data, expected = makes[qp](rng, sges)
            head = offer(queues[qp], data, rng)
            queues[qp].spare = [k for k in range(16) if k != head] + [head]
            ctx.set(dut.doorbell.payload, {"qp": qp, "flags": 1})
            request = {"function": FUNCTION_RDMA, "qp": qp, "last": 1, "source": {"number": qp}}
            found = await answer(ctx, dut, request, RecvFetched)
            assert (found["status"], found["head"]) == (wqes.OK, head), n
            assert found["wqe"] == expected, n
            assert await slots(ctx, dut, found["line"], 16 * len(sges)) == wqes.sge_bytes(sges)

    simulate(prepared, run, deadline=DEADLINE, background=[host.serve])


def test_format_of_a_feature_that_is_off_is_none(monkeypatch):
    off = next(one for one in CardFeature if one not in NicConfig().features)
    row = WqeFormat("off", Place(0, 1), None, SEGMENTS.send, SEGMENTS.receive, {}, feature=off)
    monkeypatch.setitem(WQE_FORMATS, 2, row)
    assert [*card_formats(NicConfig())] == [0, FORMAT]


def test_number_of_a_format_has_room(monkeypatch):
    monkeypatch.setitem(WQE_FORMATS, 4, SEGMENTS)
    with pytest.raises(ValueError, match=r"2 bits, not \[4\]"):
        card_formats(NicConfig())


def test_fields_lie_in_their_fixed_part():
    with pytest.raises(ValueError, match="rkey lies beyond a fixed part of 16 bytes"):
        Layout(16, {"rkey": Place(14, 4)})
    with pytest.raises(ValueError, match="4 bytes have no bits 28 to 33"):
        Place(0, 4, 28, 5)


def test_fast_path_has_one_length_of_the_fixed_part(monkeypatch):
    monkeypatch.setitem(WQE_FORMATS, 0, SEGMENTS)
    with pytest.raises(ValueError, match="Fixed parts of the first format must be equal"):
        WholeWqes(config=CARDS[64], depth=2)
