"""Two whole cards whose QPs get no answers: UC, UD and GSI."""

import os
import random
from pathlib import Path

import cocotb
import numpy as np
from cocotb.triggers import Timer
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from hdl.abi.enums import (
    Mtu,
    QpAttrMask,
    QpState,
    QpType,
    SendFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from hdl.abi.virtio_rdma import GRH_SIZE, GSI_QKEY
from hdl.wire.opcodes import OPCODES, Kind, Position
from sim.bench.system import QpOptions, System, connect
from sim.guest.verbs import (
    AH,
    CQ,
    MR,
    QP,
    SGE,
    AHAttr,
    DmaMR,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from sim.models.impairments import Impairments
from sim.wire import packets as pk
from sim.wire.pcap import read_pcap
from tests.nic.bench_nic import RIGHTS, Pair, gathered, pieces
from tests.nic.card import CONFIG

UC = QpOptions(type=QpType.UC, mtu=Mtu.MTU_1024, psns=(0xFFFFF0, 0xFFFFFE))
SENDS = (WrOpcode.SEND, WrOpcode.SEND_WITH_IMM)


async def gained(node, before):
    """What has been counted since ``before``, without what did not change."""
    after = await node.counters()
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


@cocotb.test()
async def uc_operations(dut):
    """SEND and WRITE with and without immediate, both ways, at lengths around beat and packet."""
    p = await Pair.up(dut, qp=UC)
    p.system.stop_firmware()
    rng, beat = random.Random(4), CONFIG.width // 8
    before = [await node.counters() for node in p.nodes]
    for number, length in enumerate((0, 1, beat + 1, 1023, 1024, 1025, 3 * 1024, 9_001)):
        for opcode in (*SENDS, WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM):
            side = number % 2
            mine, theirs = p.mrs[side], p.mrs[1 - side]
            mine.write(np.frombuffer(rng.randbytes(20_000), np.uint8))
            sges = pieces(rng, mine, length, rng.choice((1, 3)))
            sent, offset, imm = gathered(mine, sges), rng.randrange(1, 99), rng.getrandbits(32)
            sink = [theirs.sge(offset, length)]
            takes = opcode != WrOpcode.RDMA_WRITE
            if takes:
                await p.qps[1 - side].post_recv(RecvWR(number, sink))
            wr = SendWR(77 + number, opcode, sges, imm_data=imm)
            if opcode not in SENDS:
                wr.set_wr_rdma(theirs.rkey, theirs.iova + offset)
            await p.qps[side].post_send(wr)
            (wc,) = await p.good(side)
            assert wc.wr_id == 77 + number
            if takes:
                (got,) = await p.good(1 - side)
                assert (got.byte_len, got.wr_id) == (length, number)
                assert (got.qp_num, got.src_qp) == (p.qps[1 - side].qp_num, p.qps[side].qp_num)
                wanted = WcOpcode.RECV if opcode in SENDS else WcOpcode.RECV_RDMA_WITH_IMM
                with_imm = opcode != WrOpcode.SEND
                assert got.opcode == wanted
                assert got.wc_flags == (WcFlags.WITH_IMM if with_imm else WcFlags(0))
                assert not with_imm or got.imm_data == imm
            else:
                await Timer(10, "us")
            assert np.array_equal(theirs.read(length, offset), sent), (opcode, length)
    for node, old in zip(p.nodes, before, strict=True):
        change = await gained(node, old)
        assert not {"acks_sent", "naks_sent", "out_of_sequence", "qp_state"} & set(change), change


@cocotb.test()
async def uc_is_no_rc(dut):
    """READ is none of its operations; a bad key of its own ends a WQE; a bad one of the peer's, or
    no receive WQE, is dropped there and counted, and the QP goes on."""
    p = await Pair.up(dut, qp=UC)
    ok = p.mrs[0].sge(0, 3000)
    for wr, status in (
        (p.request(WrOpcode.RDMA_READ, [ok]), WcStatus.LOC_QP_OP_ERR),
        (
            p.request(WrOpcode.SEND, [SGE(p.mrs[0].iova, 9, p.mrs[0].lkey ^ 1)]),
            WcStatus.LOC_PROT_ERR,
        ),
    ):
        qps = await connect(p.nodes, p.pds, p.cqs, UC)
        await qps[0].post_send([wr, p.request(WrOpcode.SEND, [ok], number=2)])
        found = await p.done(count=2)
        assert [wc.status for wc in found] == [status, WcStatus.WR_FLUSH_ERR]
    before = await p.nodes[1].counters()
    bad = p.request(WrOpcode.RDMA_WRITE_WITH_IMM, [ok])
    bad.set_wr_rdma(p.mrs[1].rkey ^ 1, p.mrs[1].iova)
    beyond = p.request(WrOpcode.RDMA_WRITE, [ok], offset=p.mrs[1].length - 2999)
    untouched = p.mrs[1].read(p.mrs[1].length)
    for wr in (bad, beyond, p.request(WrOpcode.SEND, [ok])):
        await p.qps[0].post_send(wr)
        await p.good()
        await Timer(5, "us")
    assert np.array_equal(p.mrs[1].read(p.mrs[1].length), untouched)
    change = await gained(p.nodes[1], before)
    assert change["resp_remote_access_errors"] == 2 and change["out_of_buffer"] == 1
    assert change["rx_packets"] == 9 and change["out_of_sequence"] == 6
    await p.qps[1].post_recv(RecvWR(5, [p.mrs[1].sge(7, 3000)]))
    await p.qps[0].post_send(p.request(WrOpcode.SEND, [ok]))
    (got,) = await p.good(1)
    assert got.wr_id == 5 and np.array_equal(p.mrs[1].read(3000, 7), p.mrs[0].read(3000))


@cocotb.test()
async def uc_goes_on_behind_a_send_error(dut):
    """The send side has stopped: QUERY_QP says SQE, receiving goes on with the WQEs that were there
    before, and MODIFY_QP leads back to RTS, where both directions work again."""
    p = await Pair.up(dut, qp=UC)
    ok = p.mrs[0].sge(0, 3000)
    bad = SGE(p.mrs[0].iova, 9, p.mrs[0].lkey ^ 1)
    for turn, wr in enumerate(
        (p.request(WrOpcode.RDMA_READ, [ok]), p.request(WrOpcode.SEND, [bad]))
    ):
        await p.qps[0].post_recv(RecvWR(90, [p.mrs[0].sge(4000, 3000)]))
        await p.qps[0].post_send([wr, p.request(WrOpcode.SEND, [ok], number=2)])
        found = await p.done(count=2)
        assert found[0].status != WcStatus.SUCCESS and found[1].status == WcStatus.WR_FLUSH_ERR
        assert (await p.qps[0].query()).qp_state == QpState.SQE
        sge = p.mrs[1].sge(0, 3000)
        await p.qps[1].post_send(p.request(WrOpcode.SEND, [sge], number=40))
        (wc,), (got,) = await p.good(1), await p.good(0)
        assert (wc.wr_id, got.wr_id, got.byte_len) == (40, 90, 3000)
        attr = QPAttr(qp_state=QpState.RTS, cur_qp_state=QpState.SQE)
        await p.qps[0].modify(attr, QpAttrMask.STATE | QpAttrMask.CUR_STATE)
        assert (await p.qps[0].query()).qp_state == QpState.RTS
        for source, sink in ((0, 1), (1, 0)):
            await p.qps[sink].post_recv(RecvWR(turn, [p.mrs[sink].sge(4000, 3000)]))
            sge = p.mrs[source].sge(0, 3000)
            await p.qps[source].post_send(p.request(WrOpcode.SEND, [sge], number=50 + turn))
            (wc,), (got,) = await p.good(source), await p.good(sink)
            assert (wc.wr_id, got.wr_id, got.byte_len) == (50 + turn, turn, 3000)
            assert np.array_equal(p.mrs[sink].read(3000, 4000), p.mrs[source].read(3000))


@cocotb.test()
async def payload_that_cannot_be_read(dut):
    """The host does not answer for a packet of a message: its frame is spoiled, so nothing of the
    message arrives, and the WQE ends in error. The QP is in SQE, others go on."""
    p = await Pair.up(dut, qp=UC)
    ok, dma = p.mrs[0].sge(0, 1500), await DmaMR.create(p.pds[0])
    nowhere = SGE(1 << 45, 100, dma.lkey)
    for kind, sges in (
        (UC, [nowhere]),
        (UC, [ok, nowhere, ok]),
        (UC, [nowhere, ok, ok]),
        (UC, [ok, ok, nowhere]),
        (UD, [nowhere]),
    ):
        qps = await connect(p.nodes, p.pds, p.cqs, kind)
        datagrams = kind is UD
        wr = p.request(WrOpcode.SEND, sges, number=7)
        good = p.request(WrOpcode.SEND, [ok], number=8)
        for one in (wr, good):
            if datagrams:
                one.set_wr_ud(handle(p, 0), qps[1].qp_num, QKEY)
        await qps[1].post_recv([RecvWR(n, [p.mrs[1].sge(0, 5000)]) for n in range(2)])
        await qps[0].post_send(wr)
        (wc,) = await p.done()
        assert (wc.wr_id, wc.status) == (7, WcStatus.GENERAL_ERR)
        assert (await qps[0].query()).qp_state == QpState.SQE
        assert not await p.cqs[1].poll(1)
        attr = QPAttr(qp_state=QpState.RTS, cur_qp_state=QpState.SQE)
        await qps[0].modify(attr, QpAttrMask.STATE | QpAttrMask.CUR_STATE)
        await qps[0].post_send(good)
        await p.good()
        (got,) = await p.good(1)
        assert got.byte_len == 1500 + (GRH_SIZE if datagrams else 0)
    assert p.nodes[0].host.faults
    p.nodes[0].host.faults.clear()


@cocotb.test()
@cocotb.parametrize(bad=["every=5", "loss=15%", "reorder=2,overtaken=20%", "duplicate=20%"])
async def uc_on_a_bad_network(dut, bad):
    """What arrives is whole and in order, what is broken takes no receive WQE with it, and nothing
    is sent again."""
    p = await Pair.up(dut, qp=UC)
    rng, count, size = random.Random(bad), 40, 4096
    lengths = [rng.choice((1, 900, 1024, 2500, 4000)) for _ in range(count)]
    for number in range(30):
        sink = [p.mrs[1].sge(number * size % (p.mrs[1].length - size), size)]
        await p.qps[1].post_recv(RecvWR(number, sink))
    before = [await node.counters() for node in p.nodes]
    p.system.testbench.wires[0].impair(Impairments.parse(f"{bad},seed=3"))
    for number, length in enumerate(lengths):
        wr = SendWR(number, WrOpcode.SEND_WITH_IMM, [p.mrs[0].sge(number, length)], imm_data=number)
        await p.qps[0].post_send(wr)
    found = []
    while len(found) < count:
        found += await p.good()
    assert [wc.wr_id for wc in found] == list(range(count))
    await Timer(20, "us")
    got = []
    while wcs := await p.cqs[1].poll(16):
        got += wcs
    changes = [await gained(node, old) for node, old in zip(p.nodes, before, strict=True)]
    assert [wc.wr_id for wc in got] == list(range(len(got))), "each takes the next one"
    assert len(got) >= 5 and all(wc.status == WcStatus.SUCCESS for wc in got)
    for wc in got:
        length, at = lengths[wc.imm_data], wc.wr_id * size % (p.mrs[1].length - size)
        assert wc.byte_len == length
        if len(got) <= p.mrs[1].length // size:
            assert np.array_equal(p.mrs[1].read(length, at), p.mrs[0].read(length, wc.imm_data))
    packets = sum(max(1, -(-length // 1024)) for length in lengths)
    assert changes[0]["tx_packets"] == changes[0]["requests_sent"] == packets
    if bad != "duplicate=20%" and "reorder" not in bad:
        arrived = [wc.imm_data for wc in got]
        assert arrived == sorted(arrived)
        assert changes[1]["out_of_sequence"] and len(got) < count


QKEY = 0x11223344
#: Captures of Linux, and bytes of a buffer for one message of them.
GOLDEN, SLOT = Path(__file__).parents[1] / "data" / "golden", 8192
#: Byte of a frame over IPv4 that the BTH begins with.
OPCODE_AT = 42
UD = QpOptions(type=QpType.UD, qkey=QKEY, psns=(0xFFFFFE, 5))


def handle(p, side, *, pd=None, index=0, **route):
    """An address handle of a side for the other side's address ``index``."""
    other = p.nodes[1 - side]
    dgid = route.pop("dgid", other.context.query_gid(1, index))
    gr = GlobalRoute(dgid=dgid, **{"sgid_index": index, **route})
    return AH(pd or p.pds[side], AHAttr(gr=gr, sl=3, roce_dmac=other.mac))


def datagram(p, side, sges, ah=None, *, qkey=QKEY, qpn=None, opcode=WrOpcode.SEND, **fields):
    """A SEND of a side to the other side's QP."""
    wr = SendWR(fields.pop("number", 1), opcode, sges, **fields)
    qpn = p.qps[1 - side].qp_num if qpn is None else qpn
    wr.set_wr_ud(ah or handle(p, side), qpn, qkey)
    return wr


@cocotb.test()
@cocotb.parametrize(kind=[QpType.UD, QpType.GSI], ipv6=[False, True])
async def datagrams(dut, kind, ipv6):
    """SENDs with and without immediate, both ways, of every kind of WQE: the GRH area, what lies
    behind it, and the CQE. T-S4: in the place of a Q_Key with bit 31 the QP's own one goes out."""
    options = QpOptions(type=kind, qkey=QKEY, psns=(0xFFFFFE, 5))
    p = await Pair.up(dut, qp=options)
    if ipv6:
        for side, node in enumerate(p.nodes):
            await node.context.add_gid(1, f"fd00::{side + 1}")
    p.system.stop_firmware()
    assert kind != QpType.GSI or [qp.qp_num for qp in p.qps] == [1, 1]
    path = os.environ.get("ROCINANTE_PCAP", "datagrams.pcap")
    p.system.testbench.wires[0].capture(path)
    rng, beat, grhs = random.Random(7), CONFIG.width // 8, []
    before = [await node.counters() for node in p.nodes]
    for number, length in enumerate((0, 1, 24, beat, 200, 1023, 1024, 4095, 4096)):
        for opcode in SENDS:
            side = (number + opcode) % 2
            mine, theirs = p.mrs[side], p.mrs[1 - side]
            # Of three SGEs, of many, and inline: read in one piece, by the slow path, and copied.
            inline = length in (24, 200)
            sges = [] if inline else pieces(rng, mine, length, rng.choice((1, 3, 20)))
            route = {"traffic_class": 0x2C, "hop_limit": 9, "flow_label": 0xABCDE * ipv6}
            wr = datagram(
                p,
                side,
                sges,
                handle(p, side, index=int(ipv6), **route),
                qkey=1 << 31 if number % 2 else QKEY if kind == QpType.UD else GSI_QKEY,
                opcode=opcode,
                number=number,
                imm_data=rng.getrandbits(32),
            )
            if inline:
                wr.send_flags |= SendFlags.INLINE
                wr.inline_data = rng.randbytes(length)
            sent = np.frombuffer(wr.inline_data, np.uint8) if inline else gathered(mine, sges)
            at = rng.randrange(1, 90)
            await p.qps[1 - side].post_recv(RecvWR(60 + number, [theirs.sge(at, 40 + length)]))
            await p.qps[side].post_send(wr)
            (wc,) = await p.good(side)
            assert (wc.wr_id, wc.opcode) == (number, WcOpcode.SEND)
            (got,) = await p.good(1 - side)
            assert (got.wr_id, got.opcode) == (60 + number, WcOpcode.RECV)
            assert got.byte_len == GRH_SIZE + length
            assert (got.src_qp, got.qp_num) == (p.qps[side].qp_num, p.qps[1 - side].qp_num)
            imm = opcode == WrOpcode.SEND_WITH_IMM
            assert got.wc_flags == WcFlags.GRH | (WcFlags.WITH_IMM if imm else WcFlags(0))
            assert not imm or got.imm_data == wr.imm_data
            assert (got.pkey_index, got.sl, got.port_num) == (0, 0, 1)
            grhs.append(theirs.read(GRH_SIZE, at).tobytes())
            assert np.array_equal(theirs.read(length, at + GRH_SIZE), sent), (opcode, length)
    p.system.testbench.wires[0].end_capture()
    frames = [frame for _, frame in read_pcap(path)]
    assert grhs == [pk.grh_area(frame) for frame in frames]
    for frame in frames:
        ip = Ether(frame)[IPv6 if ipv6 else IP]
        fields = (ip.tc, ip.hlim, ip.fl) if ipv6 else (ip.tos, ip.ttl, 0xABCDE)
        assert fields == (0x2C, 9, 0xABCDE) and pk.dissect(frame).icrc_good
    for node, old in zip(p.nodes, before, strict=True):
        change = await gained(node, old)
        names = {"rx_packets", "rx_send_requests", "tx_packets", "requests_sent", "completions"}
        assert {change[name] for name in names - {"completions"}} == {9}, change


@cocotb.test()
async def datagrams_that_do_not_arrive(dut):
    """Dropped without a word and counted; the next good one takes the receive WQE."""
    p = await Pair.up(dut, qp=UD)
    mr = p.mrs[0]
    await p.qps[1].post_recv(RecvWR(5, [p.mrs[1].sge(0, 40 + 8)]))
    before = await p.nodes[1].counters()
    cases = [
        ("bad_qkey", datagram(p, 0, [mr.sge(0, 8)], qkey=QKEY ^ 1)),
        ("bad_qkey", datagram(p, 0, [mr.sge(0, 8)], qkey=0)),
        ("unknown_qp", datagram(p, 0, [mr.sge(0, 8)], qpn=0x700002)),
        ("unknown_qp", datagram(p, 0, [mr.sge(0, 8)], qpn=0)),
        ("resp_local_length_error", datagram(p, 0, [mr.sge(0, 9)])),
    ]
    for _, wr in cases:
        await p.qps[0].post_send(wr)
        await p.good()
    await Timer(3, "us")
    change = await gained(p.nodes[1], before)
    for name in {cause for cause, _ in cases}:
        assert change[name] == sum(cause == name for cause, _ in cases), name
    await p.qps[0].post_send(datagram(p, 0, [mr.sge(3, 8)]))
    await p.good()
    (got,) = await p.good(1)
    assert got.wr_id == 5 and np.array_equal(p.mrs[1].read(8, 40), mr.read(8, 3))
    before = await p.nodes[1].counters()
    await p.qps[0].post_send(datagram(p, 0, [mr.sge(0, 8)]))
    await p.good()
    await Timer(3, "us")
    assert (await gained(p.nodes[1], before))["out_of_buffer"] == 1
    # To the other card's QP1 only who has its Q_Key: no user can name it. The P_Key may be any of
    # the other card's table.
    p.nodes[0].function.set_pkey(1, 0x0003)
    for index, pkey in ((1, 0x8009), (4, 0x8003)):
        p.nodes[1].function.set_pkey(index, pkey)
    p.nodes[0].function.set_vlan(2, 7)
    await p.nodes[0].context.add_gid(2, "10.0.0.77")
    options = QpOptions(type=QpType.GSI, qkey=QKEY, pkey_index=1)
    gsi = await connect(p.nodes, p.pds, p.cqs, options)
    await gsi[1].post_recv(RecvWR(6, [p.mrs[1].sge(0, 48)]))
    await p.qps[0].post_send(datagram(p, 0, [mr.sge(0, 8)], qpn=1, qkey=GSI_QKEY))
    await p.good()
    tagged = handle(p, 0, sgid_index=2)
    await gsi[0].post_send(datagram(p, 0, [mr.sge(0, 8)], tagged, qpn=1, qkey=GSI_QKEY))
    await p.good()
    (got,) = await p.good(1)
    assert (got.wr_id, got.src_qp, got.pkey_index, got.sl) == (6, 1, 4, 3)
    p.nodes[1].function.set_pkey(4, None)
    await p.nodes[1].context.query_port()  # behind the firmware's next step
    await gsi[0].post_send(datagram(p, 0, [mr.sge(0, 8)], qpn=1, qkey=GSI_QKEY))
    await p.good()
    await Timer(3, "us")
    assert (await p.nodes[1].counters())["bad_pkey"] == 1
    assert (await p.nodes[1].counters())["bad_qkey"] == 3
    assert (await p.nodes[1].context.query_port()).qkey_viol_cntr == 3


@cocotb.test()
async def datagrams_that_do_not_go(dut):
    """A WQE whose address or length is not right ends in error; others of the card go on."""
    p = await Pair.up(dut, qp=UD)
    other_pd = await p.nodes[0].context.alloc_pd()
    ok = [p.mrs[0].sge(0, 9)]
    write = p.request(WrOpcode.RDMA_WRITE, ok)
    for wr, status in (
        (datagram(p, 0, ok, handle(p, 0, pd=other_pd)), WcStatus.LOC_QP_OP_ERR),
        (datagram(p, 0, ok, handle(p, 0, sgid_index=1)), WcStatus.LOC_QP_OP_ERR),
        (datagram(p, 0, ok, handle(p, 0, sgid_index=200)), WcStatus.LOC_QP_OP_ERR),
        (datagram(p, 0, ok, handle(p, 0, dgid="fd00::2")), WcStatus.LOC_QP_OP_ERR),
        (datagram(p, 0, [p.mrs[0].sge(0, 4097)]), WcStatus.LOC_LEN_ERR),
        (datagram(p, 0, [SGE(p.mrs[0].iova, 9, p.mrs[0].lkey ^ 1)]), WcStatus.LOC_PROT_ERR),
        (write, WcStatus.LOC_QP_OP_ERR),
    ):
        qps = await connect(p.nodes, p.pds, p.cqs, UD)
        await qps[0].post_send([wr, datagram(p, 0, ok, number=2)])
        found = await p.done(count=2)
        assert [(wc.wr_id, wc.status) for wc in found] == [(1, status), (2, WcStatus.WR_FLUSH_ERR)]
    await p.qps[1].post_recv(RecvWR(5, [p.mrs[1].sge(0, 100)]))
    await p.qps[0].post_send(datagram(p, 0, ok))
    await p.good()
    await p.good(1)


@cocotb.test()
async def hostile_datagrams(dut):
    """Frames that are cut, damaged, or of one who guesses: each is counted once, none lands."""
    system = await System.start(dut, CONFIG, cards=1, connect=False)
    (node,), rng = system.nodes, random.Random(11)
    pd, cq = await node.context.alloc_pd(), await CQ.create(node.context, 16)
    mr = await MR.create(pd, 1 << 14, RIGHTS)
    qps = await connect((node, node), (pd, pd), (cq, cq), UD)
    qp, wire = qps[0], system.testbench.wires[0]
    await qp.post_recv(RecvWR(5, [mr.sge(0, 5000)]))
    route = {"src_gid": pk.gid_bytes("10.9.9.9"), "dst_gid": node.context.query_gid(1, 0)}
    route |= {"dst_mac": node.mac, "dest_qp": qp.qp_num, "src_qp": 77}
    untouched = mr.read(mr.length)
    before = await node.counters()
    good = []
    for length in (0, 9, 300):
        for more in ({}, {"imm": b"abcd"}):
            fields = route | more | {"qkey": QKEY, "payload": rng.randbytes(length)}
            good.append(pk.build(0x65 if more else 0x64, **fields))
    bad = []
    for frame in good:
        bad += [frame[:-4], frame[: rng.randrange(42, len(frame))], frame[:62] + frame[66:]]
        at = rng.choice([n for n in range(OPCODE_AT, 60) if n != OPCODE_AT + 4])  # not in the ICRC
        bad.append(frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :])
    bad += [pk.build(0x64, qkey=rng.getrandbits(31), payload=bytes(9), **route) for _ in range(9)]
    bad += [
        pk.reseal(good[-1][:OPCODE_AT] + bytes([code]) + good[-1][OPCODE_AT + 1 :])
        for code in (0x60, 0x66, 0x6A)
    ]
    for frame in bad:
        wire.inject(frame)
    await Timer(10, "us")
    assert not await cq.poll(1) and np.array_equal(mr.read(mr.length), untouched)
    change = await gained(node, before)
    drops = sum(n for name, n in change.items() if name.startswith("rx_drops"))
    refused = change.get("bad_qkey", 0) + change.get("unknown_qp", 0)
    assert drops + refused == len(bad) and change["bad_qkey"] >= 9, change
    for frame in good:
        wire.inject(frame)
        (wc,) = await cq.wait(1, timeout_ns=100_000)
        found = pk.dissect(frame)
        assert wc.status == WcStatus.SUCCESS and wc.src_qp == 77
        assert mr.read(40).tobytes() == pk.grh_area(frame)
        assert mr.read(len(found.payload), 40).tobytes() == found.payload
        await qp.post_recv(RecvWR(5, [mr.sge(0, 5000)]))


@cocotb.test()
@cocotb.parametrize(
    name=["agent_uc", "uc_pingpong_s4096", "agent_ud", "ud_pingpong_s1000", "rping"]
)
async def recorded_by_linux(dut, name):
    """What Linux has sent to a QP of its peer, the card takes in that QP's place."""
    system = await System.start(dut, CONFIG, cards=2, connect=False)
    node, wire = system.nodes[1], system.testbench.wires[1]
    here = node.context.query_gid(1, 0)
    frames = pk.roce_frames(frame for _, frame in read_pcap(GOLDEN / f"{name}.pcap"))
    found = [(frame, pk.dissect(frame)) for frame in frames]
    found = [(f, d) for f, d in found if d.path["dst_gid"] == here and d.fields["opcode"] >> 5]
    first = found[0][1]
    kind = {1: QpType.UC, 3: QpType.UD}[first.fields["opcode"] >> 5]
    pd, cq = await node.context.alloc_pd(), await CQ.create(node.context, 64)
    regions, wanted = {}, {}
    for _, packet in found:
        if (rkey := packet.fields.get("rkey")) and packet.fields["dma_length"]:
            end = packet.fields["va"] + packet.fields["dma_length"]
            low, high = regions.get(rkey, (end, 0))
            regions[rkey] = min(low, packet.fields["va"]), max(high, end)
    for rkey, (low, high) in regions.items():
        node.function.hints.mr_key(rkey)
        region = await MR.create(pd, high - low, RIGHTS, offset=low % 4096, virt_addr=low)
        wanted[rkey] = region, bytearray(region.read(region.length))
    sink = await MR.create(pd, 32 * SLOT, RIGHTS)
    qpn = first.fields["dest_qp"]
    if qpn == 1:
        kind = QpType.GSI
    else:
        node.function.hints.qpn(qpn)
    cap = QPCap(max_recv_wr=32, max_recv_sge=1)
    qp = await QP.create(pd, QPInitAttr(kind, cq, cq, cap))
    route = GlobalRoute(dgid=first.fields["src_gid"], sgid_index=0)
    attr = QPAttr(dest_qp_num=9, rq_psn=first.fields["psn"], qkey=first.fields.get("qkey", 0))
    attr.ah_attr = AHAttr(gr=route, roce_dmac=first.fields["src_mac"])
    await qp.to_rts(attr)
    await qp.post_recv([RecvWR(n, [sink.sge(n * SLOT, SLOT)]) for n in range(32)])
    data, place, takers = b"", None, []
    for frame, packet in found:
        row = OPCODES[packet.fields["opcode"]]
        if row.position in (Position.FIRST, Position.ONLY):
            data, place = b"", (packet.fields.get("rkey"), packet.fields.get("va"))
        data += (pk.grh_area(frame) if kind != QpType.UC else b"") + packet.payload
        wire.inject(frame)
        if row.position not in (Position.LAST, Position.ONLY):
            continue
        if row.receive:
            takers.append((row, data if row.kind is Kind.SEND else b"", len(data), packet))
        if row.kind is Kind.WRITE and data:
            region, content = wanted[place[0]]
            at = place[1] - region.iova
            content[at : at + len(data)] = data
    await Timer(30, "us")
    for number, (row, data, length, packet) in enumerate(takers):
        (wc,) = await cq.wait(1, timeout_ns=100_000)
        assert (wc.wr_id, wc.status, wc.byte_len) == (number, WcStatus.SUCCESS, length), wc
        assert not row.immediate or wc.imm_data == int.from_bytes(packet.fields["imm"], "big")
        assert wc.src_qp == packet.fields.get("src_qp", 9)
        assert sink.read(len(data), number * SLOT).tobytes() == data
    for region, content in wanted.values():
        assert region.read(region.length).tobytes() == bytes(content)
    assert not await cq.poll(1) and (await node.counters())["out_of_sequence"] == 0
