"""Two whole cards that connect through QP1: the connection manager's MADs on the wire."""

import os

import cocotb
import pytest
from cocotb.triggers import Timer

from hdl.abi import mad
from hdl.abi.enums import Access, QpAttrMask, QpState, QpType, WcStatus
from hdl.abi.mad import Reason
from sim.bench.system import System
from sim.guest.cm.agent import Agent
from sim.guest.cm.params import ConnParam, Rejected
from sim.guest.cm.timing import Timing
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import CQ, MR, QP, QPAttr, QPCap, QPInitAttr, RecvWR, SendWR
from sim.models.impairments import Impairments
from sim.wire import packets as pk
from sim.wire.pcap import read_pcap
from tests.nic.card import CONFIG

PORT = 7471
#: 131 us, more than commands and MADs take here without loss.
QUICK = Timing(response_timeout=5, retries=15)
WAIT_NS = 4_000_000
CAP = QPCap(max_send_wr=8, max_recv_wr=8)


class End:
    """A node with its agent, a region, and a CQ."""

    def __init__(self, node):
        self.node, self.ctx = node, node.context

    @classmethod
    async def up(cls, node, neighbours, seed):
        self = cls(node)
        node.host.set(mmio_latency_ns=0)
        self.agent = await Agent.open(self.ctx, neighbours.get, timing=QUICK, seed=seed)
        cocotb.start_soon(self.agent.run())
        self.pd = await self.ctx.alloc_pd()
        self.cq = await CQ.create(self.ctx, 64)
        self.mr = await MR.create(self.pd, 8192, Access.LOCAL_WRITE)
        return self

    @property
    def gid(self):
        return self.ctx.query_gid(1, 0)

    async def qp(self, kind=QpType.RC):
        """A queue pair in INIT, so that receives can be posted."""
        qp = await QP.create(self.pd, QPInitAttr(kind, self.cq, self.cq, CAP))
        await qp.to_init(QPAttr(qkey=mad.UDP_QKEY))
        return qp

    async def good(self):
        (wc,) = await self.cq.wait(1, timeout_ns=WAIT_NS)
        assert wc.status == WcStatus.SUCCESS, wc
        return wc


async def ends(dut):
    system = await System.start(dut, CONFIG, cards=2)
    neighbours = {node.context.query_gid(1, 0): node.mac for node in system.nodes}
    return system, [await End.up(node, neighbours, n) for n, node in enumerate(system.nodes)]


async def serve(listener, end, kind=QpType.RC, greeting=b"welcome"):
    """Accept one connection with a queue pair that has a receive posted."""
    one = await listener.get_request(timeout_ns=WAIT_NS)
    qp = await end.qp(kind)
    await qp.post_recv(RecvWR(7, [end.mr.sge(4096, 4096)]))
    await one.accept(qp, ConnParam(greeting, initiator_depth=2, responder_resources=2))
    return one


async def exchange(source, sink, source_qp, sink_qp, text):
    """A SEND to a peer that has posted a receive."""
    source.mr.write(text)
    await source_qp.post_send(SendWR(1, sg=[source.mr.sge(0, len(text))]))
    await source.good()
    got = await sink.good()
    assert (got.wr_id, got.byte_len, got.qp_num) == (7, len(text), sink_qp.qp_num)
    assert sink.mr.read(len(text), 4096).tobytes() == text


async def connected(a, b, kind=QpType.RC):
    """A connection that ``a`` has asked for: both ends, and the listener."""
    listener = b.agent.listen(PORT)
    accepting = cocotb.start_soon(serve(listener, b, kind))
    qp = await a.qp(kind)
    await qp.post_recv(RecvWR(7, [a.mr.sge(4096, 4096)]))
    # 33 us until a lost packet is sent again: the REQ tells it to the other side too.
    param = ConnParam(b"hello", responder_resources=3, ack_timeout=3)
    one = await a.agent.connect(qp, b.gid, PORT, param)
    return one, await accepting, listener


async def told(one):
    """The private data of the peer's DREQ, and the own end of the connection."""
    private = await one.disconnected()
    await one.disconnect()
    return private


def messages(path):
    """Names of the MADs in a capture, in order; each with P_Key, Q_Key and QPs of QP1."""
    names = []
    for frame in pk.roce_frames(frame for _, frame in read_pcap(path)):
        found = pk.dissect(frame)
        if found.fields.get("dest_qp") != 1:
            continue
        assert found.icrc_good and found.fields["opcode"] == 0x64
        assert (found.fields["src_qp"], found.fields["pkey"]) == (1, 0xFFFF)
        assert found.fields["qkey"] == 0x80010000
        names.append(mad.unpack(found.payload).kind.name)
    return names


@cocotb.test()
@cocotb.parametrize(kind=[QpType.RC, QpType.UC])
async def connect_and_disconnect(dut, kind):
    """REQ, REP, RTU with private data; SENDs both ways; DREQ, DREP; both QPs are in error then."""
    system, (a, b) = await ends(dut)
    path = os.environ.get("ROCINANTE_PCAP", "cm.pcap")
    system.testbench.wires[0].capture(path)
    one, other, listener = await connected(a, b, kind)
    assert other.private_data.startswith(b"hello\0") and one.private_data.startswith(b"welcome\0")
    assert (other.peer.source, other.peer.destination) == (a.gid, b.gid)
    attrs = [await end.qp.query() for end in (one, other)]
    assert [attr.qp_state for attr in attrs] == [QpState.RTS] * 2
    assert [attr.dest_qp_num for attr in attrs] == [other.qp.qp_num, one.qp.qp_num]
    if kind == QpType.RC:
        assert [attr.timeout for attr in attrs] == [3, 3]
        assert [attr.max_rd_atomic for attr in attrs] == [1, 2]
        assert [attr.max_dest_rd_atomic for attr in attrs] == [3, 2]
    await exchange(a, b, one.qp, other.qp, b"ping" * 100)
    await exchange(b, a, other.qp, one.qp, b"pong" * 200)
    telling = cocotb.start_soon(told(other))
    await one.disconnect(b"bye")
    assert (await telling).startswith(b"bye\0")
    assert [(await end.qp.query()).qp_state for end in (one, other)] == [QpState.ERR] * 2
    for end in (a, b):
        assert not end.agent.manager.counters and not end.agent.gsi.counters
        await end.agent.close()
    listener.close()
    system.testbench.wires[0].end_capture()
    assert [name for name in messages(path) if name in ("REQ", "RTU", "DREQ")] == [
        "REQ",
        "RTU",
        "DREQ",
    ]


@cocotb.test()
async def on_a_bad_network(dut):
    """With each tenth frame lost both ways: what is lost is sent again until both sides agree."""
    system, (a, b) = await ends(dut)
    for number, wire in enumerate(system.testbench.wires):
        wire.impair(Impairments.parse(f"loss=10%,duplicate=10%,seed={number + 3}"))
    for turn in range(6):
        source, sink = (a, b) if turn % 2 else (b, a)
        one, other, listener = await connected(source, sink)
        await exchange(source, sink, one.qp, other.qp, bytes([turn]) * 500)
        await exchange(sink, source, other.qp, one.qp, bytes([turn + 9]) * 500)
        telling = cocotb.start_soon(told(other))
        await one.disconnect()
        await telling
        listener.close()
    repeated = sum(end.agent.manager.counters["duplicate"] for end in (a, b))
    assert repeated, "nothing was lost or doubled"
    for end in (a, b):
        assert not end.agent.manager.counters["malformed"] and not end.agent.gsi.counters


@cocotb.test()
async def refused(dut):
    """Nobody listens; the consumer refuses; a queue pair of another type; a peer that is not there:
    each says why, and the queue pair connects afterwards."""
    _, (a, b) = await ends(dut)
    qp = await a.qp()
    with pytest.raises(Rejected) as caught:
        await a.agent.connect(qp, b.gid, PORT)
    assert caught.value.reason == Reason.INVALID_SERVICE_ID
    with pytest.raises(RdmaError, match="No neighbour"):
        await a.agent.connect(qp, "10.0.0.99", PORT)

    async def refuse(listener):
        one = await listener.get_request(timeout_ns=WAIT_NS)
        with pytest.raises(RdmaError, match="not for a UC"):
            await one.accept(await b.qp(QpType.UC))
        one.reject(b"full")

    listener = b.agent.listen(PORT)
    refusing = cocotb.start_soon(refuse(listener))
    with pytest.raises(Rejected) as caught:
        await a.agent.connect(qp, b.gid, PORT)
    assert caught.value.reason == Reason.CONSUMER
    assert caught.value.private_data.startswith(b"full\0")
    await refusing
    accepting = cocotb.start_soon(serve(listener, b))
    await qp.post_recv(RecvWR(7, [a.mr.sge(4096, 4096)]))
    one = await a.agent.connect(qp, b.gid, PORT)
    other = await accepting
    await exchange(b, a, other.qp, one.qp, b"at last")


@cocotb.test()
async def forgotten(dut):
    """One side starts anew and connects with the same queue pair: the other side's goes to ERR, its
    user is told, and the next REQ makes a connection."""
    _, (a, b) = await ends(dut)
    one, other, listener = await connected(a, b)
    qp = one.qp
    await a.agent.close()
    a.agent = await Agent.open(a.ctx, a.agent.gsi.neighbour, timing=QUICK, seed=77)
    cocotb.start_soon(a.agent.run())
    await qp.modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
    with pytest.raises(Rejected) as caught:
        await a.agent.connect(qp, b.gid, PORT, ConnParam(ack_timeout=3))
    assert caught.value.reason == Reason.STALE_CONNECTION and listener.take() is None
    assert await other.disconnected() == b""
    for _ in range(100):
        if (await other.qp.query(QpAttrMask.STATE)).qp_state == QpState.ERR:
            break
    else:
        raise AssertionError("The queue pair of the stale connection is not in error")
    assert b.agent.manager.counters["stale"] == 1
    (flushed,) = await b.cq.wait(1, timeout_ns=WAIT_NS)
    assert flushed.status == WcStatus.WR_FLUSH_ERR
    await b.agent.wait_until(lambda: other.connection.closed, "DREP", WAIT_NS)
    accepting = cocotb.start_soon(serve(listener, b))
    await qp.to_init(QPAttr())
    await qp.post_recv(RecvWR(7, [a.mr.sge(4096, 4096)]))
    again = await a.agent.connect(qp, b.gid, PORT, ConnParam(ack_timeout=3))
    await exchange(b, a, (await accepting).qp, again.qp, b"once more")


@cocotb.test()
async def datagrams_by_sidr(dut):
    """Who asks for the port of a service gets QP number and Q_Key, and reaches it."""
    system, (a, b) = await ends(dut)
    with pytest.raises(RdmaError, match="SIDR status 1"):
        await a.agent.resolve(a.pd, b.gid, PORT)
    sink, source = await b.qp(QpType.UD), await a.qp(QpType.UD)
    for qp in (sink, source):
        await qp.to_rts(QPAttr(qkey=mad.UDP_QKEY))
    b.agent.serve(PORT, sink, b"come in")
    system.testbench.wires[0].impair(Impairments.parse("every=2"))
    await Timer(1, "us")
    found = await a.agent.resolve(a.pd, b.gid, PORT)
    system.testbench.wires[0].impair(Impairments())
    assert (found.qpn, found.qkey) == (sink.qp_num, mad.UDP_QKEY)
    assert found.private_data.startswith(b"come in\0")
    await sink.post_recv(RecvWR(9, [b.mr.sge(0, 4096)]))
    a.mr.write(b"datagram")
    request = SendWR(1, sg=[a.mr.sge(0, 8)])
    request.set_wr_ud(found.ah, found.qpn, found.qkey)
    await source.post_send(request)
    await a.good()
    got = await b.good()
    assert (got.wr_id, got.src_qp) == (9, source.qp_num)
    assert b.mr.read(8, 40).tobytes() == b"datagram"


@cocotb.test()
async def qp1_goes_on_behind_a_send_error(dut):
    """A MAD from an address that the card no longer has ends in error; later ones go out."""
    _, (a, b) = await ends(dut)
    await a.ctx.add_gid(1, "fd00::1")
    qp = await a.qp()
    asking = cocotb.start_soon(a.agent.connect(qp, b.gid, PORT, sgid_index=1))
    await Timer(400, "us")  # three times the wait for an answer
    assert a.agent.gsi.counters["send_error"] >= 2
    asking.cancel()
    one, other, _ = await connected(a, b)
    await exchange(a, b, one.qp, other.qp, b"still here")
    assert (await qp.query(QpAttrMask.STATE)).qp_state == QpState.INIT
