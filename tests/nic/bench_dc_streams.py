"""Streams of an initiator of DC: an error ends one of them, and the others go on."""

import cocotb
import numpy as np

from hdl.abi.enums import EventType, QpAttrMask, QpState, SendFlags, WcStatus, WrOpcode
from sim.guest.verbs import CommandError, DcStreams, QPAttr, query_dct, reset_stream
from tests.nic.dc import Dc
from tests.nic.initiator import LENGTH

RESET = QPAttr(qp_state=QpState.RESET)
ACCESS, FLUSHED, GOOD = WcStatus.REM_ACCESS_ERR, WcStatus.WR_FLUSH_ERR, WcStatus.SUCCESS


async def streams(dut, log_streams, log_errored, **more):
    """An initiator with streams, and one target."""
    p = await Dc.up(dut, **more)
    p.qp = await p.initiator(streams=DcStreams(log_streams, log_errored))
    return p


def write(p, number, stream, *, bad=False, length=64, **more):
    """A WRITE of a stream; a bad one goes beyond the region."""
    at = LENGTH - 32 if bad else 256 * number
    return p.request(WrOpcode.RDMA_WRITE, 0, length, number, place=at, stream=stream, **more)


async def statuses(p, count):
    return [(wc.wr_id, wc.status) for wc in await p.done(count)]


async def works(p):
    """T-D13: a plain SEND of another initiator arrives: the target has never left RTR."""
    (target,) = p.targets
    await target.post(0)
    own, p.qp = p.qp, await p.initiator()
    await p.qp.post_send(p.send(0, 64, 99))
    await p.good()
    await target.done()
    assert (await query_dct(target.qp)).state == 1
    p.qp = own
    await p.well()


@cocotb.test()
async def t_d10_one_of_many_fails(dut):
    """T-D10, T-D13: streams 0 to 40, more than there are at a time, each with three requests. The
    second one of stream 5 fails: its last one is flushed, though it is not signalled, and is not
    executed; all others are, in order."""
    p = await streams(dut, 2, 4)
    (target,) = p.targets
    target.mr.write(bytes(LENGTH))
    requests = []
    for stream in range(41):
        for turn in range(3):
            number, quiet = 3 * stream + turn, stream == 5 and turn == 2
            flags = SendFlags(0) if quiet else SendFlags.SIGNALED
            bad = stream == 5 and turn == 1
            requests.append(write(p, number, stream, bad=bad, send_flags=flags))
    expected = [(n, {16: ACCESS, 17: FLUSHED}.get(n, GOOD)) for n in range(len(requests))]
    found = []
    for first in range(0, len(requests), 48):
        batch = requests[first : first + 48]
        await p.qp.post_send(batch)
        found += await statuses(p, len(batch))
    assert found == expected
    for n, status in expected:
        if n != 16:
            same = np.array_equal(target.mr.read(64, 256 * n), p.data[:64])
            assert same == (status == GOOD), n
    assert (await p.qp.query()).qp_state == QpState.RTS
    await works(p)


@cocotb.test()
async def t_d11_t_d12_as_many_as_may_fail(dut):
    """T-D11, T-D12: with room for four, three streams fail, one of them twice, one is let go on and
    fails anew, and another one: then the initiator is in ERR, with an event, and all is flushed."""
    p = await streams(dut, 2, 2)
    for stream in (1, 2, 2, 3):
        await p.qp.post_send(write(p, stream, stream, bad=True))
        (first,) = await statuses(p, 1)
        assert (await p.qp.query()).qp_state == QpState.RTS
        assert first[1] in (ACCESS, FLUSHED)
    for wrong in (4, 0, 0xFFFF):
        try:
            await reset_stream(p.qp, wrong)
        except CommandError:
            continue
        raise AssertionError(f"stream {wrong} has not failed")
    await reset_stream(p.qp, 3)
    await p.qp.post_send([write(p, 10, 3), write(p, 11, 1), write(p, 12, 3, bad=True)])
    assert await statuses(p, 3) == [(10, GOOD), (11, FLUSHED), (12, ACCESS)]
    assert (await p.qp.query()).qp_state == QpState.RTS
    await p.qp.post_send([write(p, 13, 77, bad=True), write(p, 14, 77), write(p, 15, 8)])
    assert await statuses(p, 3) == [(13, ACCESS), (14, FLUSHED), (15, FLUSHED)]
    assert (await p.qp.query()).qp_state == QpState.ERR
    events = p.node.context.events
    event = await events.get()
    while event.event == EventType.GID_CHANGE:
        event = await events.get()
    assert (event.event, event.number) == (EventType.QP_FATAL, p.qp.qp_num)
    await p.qp.modify(RESET, QpAttrMask.STATE)
    await p.qp.to_rts(p.attr)
    await p.qp.post_send([write(p, n, 1) for n in range(3)])
    assert await statuses(p, 3) == [(n, GOOD) for n in range(3)]
    await works(p)


@cocotb.test()
async def d_8_errors_of_all_kinds(dut):
    """D-8: what fails at the initiator's card, at the target's, and for want of a destination, each
    in the middle of what other streams have posted; long messages among them."""
    p = await streams(dut, 2, 4)
    (target,) = p.targets
    wrong = await p.way(target, key=1)
    local = write(p, 1, 1)
    local.sg[0].lkey ^= 0x5A
    long = write(p, 4, 0, length=9000)
    reads = p.request(WrOpcode.RDMA_READ, 20000, 3000, 7, place=LENGTH - 32, stream=3)
    nowhere = write(p, 9, 5)
    nowhere.set_wr_dc(0, 5)
    requests = [
        *(write(p, 0, 0), local, write(p, 2, 1), write(p, 3, 0), long),
        *(write(p, 5, 2, way=wrong), write(p, 6, 0), reads, write(p, 8, 3), nowhere),
        *(write(p, 10, 5), write(p, 11, 2), write(p, 12, 0), write(p, 13, 1)),
    ]
    await p.qp.post_send(requests)
    fails = {1: WcStatus.LOC_PROT_ERR, 5: ACCESS, 7: ACCESS, 9: WcStatus.LOC_QP_OP_ERR}
    flushed = dict.fromkeys((2, 8, 10, 11, 13), FLUSHED)
    expected = [(n, (fails | flushed).get(n, GOOD)) for n in range(14)]
    found = await statuses(p, 14)
    assert found == expected, [
        pair for pair in zip(found, expected, strict=True) if len({*pair}) > 1
    ]
    for stream in (1, 2, 3, 5):
        await reset_stream(p.qp, stream)
        await p.qp.post_send(write(p, stream, stream))
    assert await statuses(p, 4) == [(n, GOOD) for n in (1, 2, 3, 5)]
    await works(p)


@cocotb.test()
async def no_destination(dut):
    """A request of an initiator without streams that names no destination, or a stream: it ends
    with LOC_QP_OP_ERR, and nothing of it goes out, also when the initiator has just been
    connected."""
    p = await Dc.up(dut)
    (target,) = p.targets
    await target.post(0)
    for destination, stream in ((0, 0), (p.ways[0].number, 3), (0x7FFF, 0)):
        wr = p.send(0, 64, 1)
        wr.set_wr_dc(destination, stream)
        await p.qp.post_send([write(p, 0, 0), wr, write(p, 2, 0)])
        wanted = [(0, GOOD), (1, WcStatus.LOC_QP_OP_ERR), (2, FLUSHED)]
        assert await statuses(p, 3) == wanted
        await p.qp.modify(RESET, QpAttrMask.STATE)
        await p.qp.to_rts(p.attr)
        wr.wr_id = 7
        await p.qp.post_send(wr)
        assert await statuses(p, 1) == [(7, WcStatus.LOC_QP_OP_ERR)]
        await p.qp.modify(RESET, QpAttrMask.STATE)
        await p.qp.to_rts(p.attr)
    await p.qp.post_send(p.send(0, 64))
    await p.good()
    await target.done()
    await p.well()
