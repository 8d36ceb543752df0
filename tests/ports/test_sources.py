"""An imaginary kind of receive source: a row of the table, and nothing else."""

import random

import pytest
from amaranth.hdl import Value

from hdl.config import FUNCTION_RDMA, CardFeature, NicConfig
from hdl.ports.activations import ReceiveFlags
from hdl.ports.jobs import FetchStatus, RecvFetched
from hdl.ports.rows import QpState, SourceKind
from hdl.ports.sources import SOURCES, SourceRules
from hdl.queues.receive.fetch import RecvFetch
from hdl.transport.receive.receive import Receive
from tests.queues import wqes
from tests.queues.test_one_by_one import CONFIG, DEADLINE, Host, answer, offer
from tests.simulate import simulate

KIND = 3


@pytest.fixture
def imaginary(monkeypatch):
    """Declares the kind with these rules."""

    def declare(**rules) -> None:
        monkeypatch.setitem(SOURCES, KIND, SourceRules(**rules))

    assert KIND not in {kind.value for kind in SourceKind}
    return declare


def fetched(config: NicConfig = CONFIG) -> tuple[dict, dict]:
    """What RecvFetch answers for a WQE of such a source, and what that WQE is."""
    dut, rng = RecvFetch(config=config), random.Random(1)
    host = Host(dut)
    queue = host.queue(config.rq_queue(1), 16)
    data, expected = wqes.recv_wqe(rng, wqes.random_sges(rng, 2))
    found = {}

    async def bench(ctx):
        await ctx.tick().repeat(config.recv_lines)
        head = offer(queue, data, rng)
        request = {"function": FUNCTION_RDMA, "qp": 3, "last": 1, "source": {"number": 1}}
        ctx.set(dut.req.payload, request)
        ctx.set(Value.cast(dut.req.payload.source.kind), KIND)
        found.update(await answer(ctx, dut, None, RecvFetched))
        assert found["status"] == wqes.EMPTY or found["head"] == head

    simulate(dut, bench, deadline=DEADLINE, background=[host.serve])
    return found, expected


def flushed() -> bool:
    """Whether Receive asks for a WQE of such a source, when its QP is flushed."""
    sizes = {"width": 64, "qps": 8, "cqs": 4, "mrs": 16, "gids": 2, "outstanding": 8}
    receive = Receive(config=NicConfig(**sizes))
    asked = []

    async def bench(ctx):
        row = {"state": QpState.ERR, "type": 2, "qpn": 3, "source": {"number": 5}}
        ctx.set(receive.context.rows.cfg, row)
        ctx.set(Value.cast(receive.context.rows.cfg.source.kind), KIND)
        for look in (receive.context, receive.committed):
            ctx.set(look.valid, 1)
        ctx.set(receive.poke.payload, {"qp": 3, "flags": ReceiveFlags.FLUSH.value})
        ctx.set(receive.poke.valid, 1)
        await ctx.tick().until(receive.poke.ready)
        ctx.set(receive.poke.valid, 0)
        ctx.set(receive.fetch_req.ready, 1)
        ctx.set(receive.fetch_rsp.payload, {"status": FetchStatus.EMPTY})
        ctx.set(receive.fetch_rsp.valid, 1)
        for _ in range(60):
            if ctx.get(receive.fetch_req.valid):
                asked.append(ctx.get(receive.fetch_req.payload.source.number))
            await ctx.tick()
        assert {*asked} <= {5}

    simulate(receive, bench, deadline=1000)
    return bool(asked)


def test_imaginary_kind_gives_its_wqes(imaginary):
    imaginary()
    found, expected = fetched()
    assert (found["status"], found["wqe"]) == (wqes.OK, expected)


def test_kind_in_no_table_has_none():
    assert fetched()[0]["status"] == wqes.EMPTY


def test_imaginary_kind_of_a_feature_that_is_off_has_none(imaginary):
    imaginary(feature=CardFeature.LATENCY)
    assert CardFeature.LATENCY not in CONFIG.features
    assert fetched()[0]["status"] == wqes.EMPTY


@pytest.mark.parametrize("private", (False, True))
def test_flush_ends_the_wqes_of_one_qp_alone(imaginary, private):
    imaginary(private=private)
    assert flushed() == private
