"""What the verbs refuse, and what they say about a device that misbehaves."""

import asyncio
import errno

import pytest

from hdl.abi.enums import Access, QpAttrMask, QpState, QpType, SendFlags, WcStatus, WrOpcode
from hdl.abi.virtio_rdma import CQE
from sim.guest.driver.device import DriverOptions
from sim.guest.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    CommandError,
    Context,
    DeviceError,
    DriverTimeout,
    QPAttr,
    QPCap,
    QPInitAttr,
    RdmaError,
    RecvWR,
    SendWR,
    gid_bytes,
)
from tests.sim.fake_device import MAX_CQ, FakeRdma, Refused
from tests.sim.test_verbs import CAP, Pair


def check(code, message, call):
    """The awaitable made by ``call(pair)`` raises RdmaError with this errno and message."""

    async def main():
        p = await Pair.create()
        before = len(p.device.memory._sizes)
        with pytest.raises(RdmaError, match=message) as caught:
            await call(p)
        assert caught.value.errno == code
        assert len(p.device.memory._sizes) == before
        return caught.value

    return asyncio.run(main())


def qp(p, **changes):
    init = dict(scq=p.cqs[0], rcq=p.cqs[0], cap=CAP) | changes
    return QP.create(p.pd, QPInitAttr(**init))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("CREATE_CQ refused", lambda p: CQ.create(p.ctx, 1025)),
        ("completion queue of 0 entries", lambda p: CQ.create(p.ctx, 0)),
        ("completion queue of 40000 entries", lambda p: CQ.create(p.ctx, 40000)),
        ("takes 256 entries, not 512", lambda p: CQ.create(p.ctx, 300)),
        ("REG_USER_MR refused", lambda p: MR.create(PD(p.ctx, 99), 100)),
        ("REG_USER_MR refused", lambda p: MR.create(p.pd, 100, Access.REMOTE_WRITE)),
        ("region of 0 bytes", lambda p: MR.create(p.pd, 0)),
        ("from offset 4096", lambda p: MR.create(p.pd, 1, offset=4096)),
        ("needs a send and a receive CQ", lambda p: qp(p, rcq=None)),
        ("CREATE_QP refused", lambda p: qp(p, cap=QPCap(max_send_wr=257))),
        ("takes 256 entries, not 512", lambda p: qp(p, cap=QPCap(max_recv_wr=300))),
        ("DESTROY_PD refused", lambda p: p.pd.close()),
        ("DESTROY_CQ refused", lambda p: p.cqs[0].close()),
        ("QUERY_PORT refused", lambda p: p.ctx.query_port(9)),
        ("QUERY_PKEY refused", lambda p: p.ctx.query_pkey(1, 1)),
        ("DEL_GID refused", lambda p: p.ctx.del_gid(1)),
    ],
)
def test_refused_objects(message, call):
    check(errno.EINVAL, message, call)


def test_many_cqs():
    async def call(p):
        for _ in range(MAX_CQ + 1 - len(p.cqs)):
            await CQ.create(p.ctx, 1)

    async def main():
        p = await Pair.create()
        with pytest.raises(CommandError, match="CREATE_CQ"):
            await call(p)

    asyncio.run(main())


def test_out_of_pages():
    check(errno.ENOMEM, "pages left", lambda p: MR.create(p.pd, 1 << 30))


async def smi(p):
    p.qps[0].qp_type = QpType.SMI
    await p.qps[0].to_init(QPAttr())


def test_no_transition_table():
    check(errno.EOPNOTSUPP, "SMI has no transition table", smi)


@pytest.mark.parametrize(
    ("code", "message", "request_"),
    [
        (errno.EINVAL, "9 SGEs to send, at most 8", SendWR(sg=[SGE(0, 1, 0)] * 9)),
        (
            errno.EINVAL,
            "65 bytes inline, at most 64",
            SendWR(send_flags=SendFlags.INLINE, inline_data=bytes(65)),
        ),
        (
            errno.EINVAL,
            "No region with lkey 0x99",
            SendWR(send_flags=SendFlags.INLINE, sg=[SGE(0, 1, 0x99)]),
        ),
    ],
)
def test_refused_sends(code, message, request_):
    """The list stops at the bad one, which the exception names; those before it are posted."""

    async def call(p):
        await p.qps[1].post_recv(RecvWR(1, []))
        try:
            await p.qps[0].post_send([SendWR(4), request_, SendWR(5)])
        finally:
            assert [wc.wr_id for wc in await p.cqs[0].wait(1)] == [4]
            assert not await p.cqs[0].poll(1)

    assert check(code, message, call).bad_wr is request_


def test_full_queues():
    async def send(p):
        await p.qps[0].post_send([SendWR(i) for i in range(17)])

    async def receive(p):
        await p.qps[0].post_recv([RecvWR(i, []) for i in range(17)])

    assert check(errno.ENOMEM, "SQ 0x102: full, 16 requests", send).bad_wr.wr_id == 16
    assert check(errno.ENOMEM, "RQ 0x102: full, 16 requests", receive).bad_wr.wr_id == 16
    check(
        errno.EINVAL,
        "9 SGEs to receive, at most 8",
        lambda p: p.qps[0].post_recv(RecvWR(1, [SGE(0, 1, 0)] * 9)),
    )


@pytest.mark.parametrize("state", [QpState.RESET, QpState.INIT, QpState.RTR])
def test_states_that_cannot_send(state):
    async def call(p):
        fresh = await qp(p)
        if state != QpState.RESET:
            await getattr(fresh, f"to_{state.name.lower()}")(QPAttr())
            await fresh.post_recv(RecvWR(1, []))
        else:
            with pytest.raises(RdmaError, match="cannot receive in RESET"):
                await fresh.post_recv(RecvWR(1, []))
        try:
            await fresh.post_send(SendWR())
        finally:
            await fresh.close()

    check(errno.EINVAL, f"cannot send in {state.name}", call)


def test_completions_in_error():
    async def main():
        p = await Pair.create()
        (a, b), (cq_a, cq_b), mr_a = p.qps, p.cqs, p.mrs[0]
        for bad, status in (
            (SendWR(1, sg=[SGE(mr_a.iova, 4, 0x77)]), WcStatus.LOC_PROT_ERR),
            (SendWR(1, sg=[mr_a.sge(19990, 11)]), WcStatus.LOC_PROT_ERR),
            (SendWR(1, WrOpcode.RDMA_WRITE, [mr_a.sge(0, 4)]), WcStatus.REM_ACCESS_ERR),
            (SendWR(1, 12, []), WcStatus.LOC_QP_OP_ERR),
        ):
            await b.post_recv(RecvWR(9, []))
            await a.post_recv(RecvWR(8, []))
            await a.post_send([bad, SendWR(2)])
            found = await cq_a.wait(3)
            assert [(wc.wr_id, wc.status) for wc in found] == [
                (1, status),
                (2, WcStatus.WR_FLUSH_ERR),
                (8, WcStatus.WR_FLUSH_ERR),
            ]
            assert (await a.query()).qp_state == QpState.ERR
            await a.post_send(SendWR(5))
            assert (await cq_a.wait())[0].status == WcStatus.WR_FLUSH_ERR
            await a.modify(QPAttr(), QpAttrMask.STATE)
            await a.to_rts(QPAttr(dest_qp_num=b.qp_num))
        assert not await cq_b.poll(1)

    asyncio.run(main())


@pytest.mark.parametrize("refused", [QpState.RTR, QpState.RTS])
@pytest.mark.parametrize("start", [QpState.RESET, QpState.INIT])
def test_a_way_to_rts_that_is_refused_changes_nothing(start, refused):
    """The next way takes each step anew, with its own attributes; receives posted before stay."""

    async def main():
        p = await Pair.create()
        a, b = p.qps
        device_takes, asked = p.device.modify_qp, []

        def refuse(values):
            asked.append(QpState(values.attrs.qp_state))
            if asked[-1] == refused:
                raise Refused
            device_takes(values)

        async def begin(qp):
            await qp.modify(QPAttr(), QpAttrMask.STATE)
            if start == QpState.INIT:
                await qp.to_init(QPAttr(qp_access_flags=Access.REMOTE_READ))
                await qp.post_recv([RecvWR(n, [p.mrs[1].sge(100 * n, 100)]) for n in (1, 2)])

        await begin(b)
        p.device.modify_qp = refuse
        with pytest.raises(CommandError):
            await b.to_rts(QPAttr(dest_qp_num=999))
        p.device.modify_qp = device_takes
        assert b.state == (await b.query()).qp_state == start
        assert b.rq.outstanding == (2 if start == QpState.INIT else 0)
        if refused == QpState.RTS or start == QpState.RESET:
            assert asked[-1] == start  # it has gone some steps and back
        await b.to_rts(QPAttr(dest_qp_num=a.qp_num))
        assert (await b.query()).dest_qp_num == a.qp_num
        if start == QpState.RESET:
            await b.post_recv([RecvWR(n, [p.mrs[1].sge(100 * n, 100)]) for n in (1, 2)])
        for number in (1, 2):
            await a.post_send(SendWR(7, WrOpcode.SEND, [p.mrs[0].sge(0, 50)]))
            assert [wc.wr_id for wc in await p.cqs[1].wait()] == [number]

    asyncio.run(main())


def test_a_wait_that_ends():
    check(
        errno.ETIMEDOUT,
        "CQ 0: 2 completions not within 30000 ns, only \\[WC\\(wr_id=3",
        wait_for_two,
    )


async def wait_for_two(p):
    await p.qps[1].post_recv(RecvWR(1, []))
    await p.qps[0].post_send(SendWR(3))
    await p.cqs[0].wait(2, timeout_ns=30_000)


def test_no_event():
    async def main():
        p = await Pair.create()
        with pytest.raises(DriverTimeout, match="completion event not within 9000 ns"):
            await p.cqs[0].get_event(9000)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("size", "fields", "message"),
    [
        (37, {}, "a completion of 37 bytes, not 38"),
        (38, {"status": 22}, "22 is not a valid WcStatus"),
        (38, {"opcode": 7}, "7 is not a valid WcOpcode"),
        (38, {"wc_flags": 16}, "wc_flags 0x10"),
    ],
)
def test_impossible_completions(size, fields, message):
    async def call(p):
        index = p.cqs[0].queue.index
        chain = p.device.take(index)
        p.device.scatter(chain, CQE.pack(fields))
        p.device.give_back(index, chain.head, size)
        await p.cqs[0].poll(1)

    check(errno.EIO, message, call)


def test_written_send_element():
    async def call(p):
        ring = p.qps[0].rq.ring
        await p.qps[0].post_recv(RecvWR(1, []))
        chain = p.device.take(ring.index)
        p.device.give_back(ring.index, chain.head, 4)
        await p.qps[0].post_recv(RecvWR(2, []))

    check(errno.EIO, "says 4 bytes were written, but the chain has 0 writable", call)


@pytest.mark.parametrize(
    ("command", "answer", "message", "call"),
    [
        ("create_cq", {"cqn": 6}, "CREATE_CQ returned cqn 6 of 6", lambda p: CQ.create(p.ctx, 8)),
        ("create_qp", {"qpn": 1 << 24}, "returned QPN 0x1000000 of 8 pairs", qp),
        ("create_cq", {"cqn": 0}, "Queue 1 is in use", lambda p: CQ.create(p.ctx, 8)),
        (
            "query_qp",
            {"attr": {"qp_state": 9}},
            "QUERY_QP of 0x102: 9 is not a valid QpState",
            lambda p: p.qps[0].query(),
        ),
    ],
)
def test_impossible_answers(command, answer, message, call):
    async def main():
        p = await Pair.create()
        setattr(p.device, command, lambda values: answer)
        for name in ("destroy_cq", "destroy_qp"):
            setattr(p.device, name, lambda values: None)
        with pytest.raises(RdmaError, match=message):
            await call(p)

    asyncio.run(main())


def test_raw_elements():
    """A work request that the verbs would not build reaches the device as it is."""

    async def main():
        p = await Pair.create()
        await p.qps[0].post_raw(p.qps[0].sq, b"\0" * 40 + b"\1" * 60)
        with pytest.raises(RdmaError, match="an element of 4000 bytes"):
            await p.qps[0].post_raw(p.qps[0].sq, bytes(4000))

    asyncio.run(main())


def test_gids():
    async def main():
        context = await Context.open(FakeRdma().platform, 1, DriverOptions(timeout_ns=50_000))
        async with context as ctx:
            await ctx.add_gid(2, "fe80::1")
            assert ctx.query_gid(1, 2) == gid_bytes("fe80::1")
            await ctx.del_gid(2)
            with pytest.raises(RdmaError, match="Port 1 has no GID 2") as caught:
                ctx.query_gid(1, 2)
            assert caught.value.errno == errno.ENODATA
            assert (await ctx.query_port()).state == 4
            assert await ctx.query_pkey() == 0xFFFF
            assert ctx.query_device().max_pkeys == 1

    asyncio.run(main())
    assert gid_bytes("1.2.3.4") == bytes(10) + b"\xff\xff\1\2\3\4"
    with pytest.raises(ValueError, match="A GID has 16 bytes, not b'abc'"):
        gid_bytes(b"abc")
    with pytest.raises(ValueError, match="not-an-address"):
        gid_bytes("not-an-address")


def test_device_error_is_an_oserror():
    assert issubclass(DeviceError, OSError) and issubclass(CommandError, RdmaError)
