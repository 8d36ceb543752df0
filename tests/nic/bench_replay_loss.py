"""Two cards talk over a bad network; then one card takes the place of each in the recording."""

import random
from pathlib import Path

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import Mtu, WcStatus, WrOpcode
from sim.bench.system import QpOptions
from sim.guest.verbs import RecvWR
from sim.models.impairments import Impairments
from sim.models.platform import Wire
from sim.replay.bench import play_run
from sim.replay.plan import Plan
from sim.wire.pcap import read_pcap, write_pcap
from tests.nic.lossy import CONFIG, SEED, WAIT_NS, Lossy
from tests.slow import QUICK

PATH = Path("lossy.pcap").resolve()
#: The networks of both directions.
NETWORKS = {
    "loss": "loss=8%",
    "duplication": "duplicate=20%,loss=2%",
    "reordering": "reorder=5,overtaken=15%",
    "delay": "delay_us=20,jitter_us=10",
    "everything": "loss=3%,duplicate=3%,corrupt=3%,reorder=4,overtaken=3%,jitter_us=4",
}


async def record(dut, network, seed, **traffic):
    """Random traffic over a bad network, in ``PATH``."""
    p = await Lossy.up(dut)
    p.rng = random.Random(seed)
    qps = [await p.connect() for _ in range(traffic.pop("pairs", 1))]
    p.system.stop_firmware()
    for n, wire in enumerate(p.wires):
        wire.impair(Impairments.parse(f"{network},seed={seed + n}"))
    Wire.capture(str(PATH))
    await p.traffic(qps, **traffic)
    await Timer(10, "us")
    Wire.end_capture()
    p.system.testbench.stop()


async def agrees(dut, path, log):
    """Both sides of a capture agree; the reports."""
    plan = Plan(path)
    for one in plan.connections:
        assert not one.reason, one.reason
        assert not any(one.refusals), one.refusals
    reports = []
    for letter in "AB":
        runs, refused = plan.runs(letter, CONFIG)
        assert not refused, refused
        for run in runs:
            report = await play_run(dut, CONFIG, path.name, run)
            found = [str(one)[:200] for one in report.differences[:5]]
            missing = [str(v) for v in report.verdicts if v.result == "missing"][:3]
            assert report.good, (report.side, report.error, found, missing)
            log.info("%s: %s", letter, report.free)
            reports.append(report)
    return plan, reports


@cocotb.test()
@cocotb.parametrize(network=list(NETWORKS))
async def network(dut, network):
    """A capture of what was sent, before it was lost."""
    await record(dut, NETWORKS[network], SEED, messages=6)
    plan, _ = await agrees(dut, PATH, dut._log)
    dut._log.info("lost %s", [sorted(one.lost) for one in plan.connections])


@cocotb.test(skip=QUICK)
async def taps(dut):
    """The same network seen from elsewhere: behind the losses of one direction, or of both."""
    await record(dut, NETWORKS["loss"], SEED, messages=8)
    (connection,) = Plan(PATH).connections
    frames = list(read_pcap(PATH))
    gone = {0: set(), 1: set()}
    for packet in connection.packets:
        if packet.number in connection.lost:
            gone[packet.side].add(packet.number)
    assert gone[0] | gone[1]
    for number, missing in enumerate((gone[0], gone[1], gone[0] | gone[1])):
        path = PATH.with_name(f"tap{number}.pcap")
        write_pcap(path, [one for n, one in enumerate(frames, 1) if n not in missing])
        plan, _ = await agrees(dut, path, dut._log)
        (seen,) = plan.connections
        dut._log.info("without %s: lost %s", sorted(missing), sorted(seen.lost))


@cocotb.test(skip=QUICK)
async def errors(dut):
    """What ends a connection: refused keys and sizes, and peers that are late, or gone."""
    p = await Lossy.up(dut)
    Wire.capture(str(PATH))
    faults = {no_region: 2, too_small: 2, late: 7, never_ready: 2, dead: 2}
    for fault, rnr_retry in faults.items():
        options = QpOptions(
            mtu=Mtu.MTU_1024, timeout=3, min_rnr_timer=1, retry_cnt=3, rnr_retry=rnr_retry
        )
        await fault(p, await p.connect(options))
    p.system.stop_firmware()
    await Timer(10, "us")
    Wire.end_capture()
    p.system.testbench.stop()
    plan, reports = await agrees(dut, PATH, dut._log)
    assert [[m.failure for m in one.ends[0].messages] for one in plan.suitable] == [
        [None, WcStatus.REM_ACCESS_ERR],
        [WcStatus.REM_OP_ERR],
        [None],
        [WcStatus.RNR_RETRY_EXC_ERR],
        [None, WcStatus.RETRY_EXC_ERR],
    ]
    # One for each message, and for each receive.
    assert [report.memory["completions"] for report in reports] == [7, 2]


async def ended(p, *statuses):
    """The next completions of side 0."""
    found = await p.sides[0].cq.wait(len(statuses), timeout_ns=WAIT_NS)
    assert [wc.status for wc in found] == list(statuses), found


async def no_region(p, pair):
    """A WRITE that is good, and one under a key that nobody has."""
    (good, _), (bad, _) = (p.message(0, WrOpcode.RDMA_WRITE, n, 3000, n) for n in (1, 2))
    bad.set_wr_rdma(0xFF77, 0x1000)
    await pair[0].post_send([good, bad])
    await ended(p, WcStatus.SUCCESS, WcStatus.REM_ACCESS_ERR)


async def too_small(p, pair):
    """A SEND of three packets into a receive that is too small for the third."""
    wr, _ = p.message(0, WrOpcode.SEND, 3, 3000, 3)
    await pair[1].post_recv([RecvWR(3, [p.sides[1].sink.sge(0, 2500)])])
    await pair[0].post_send([wr])
    await ended(p, WcStatus.REM_OP_ERR)


async def late(p, pair):
    """A receive that comes after a few RNR NAKs."""
    await p.send(pair, 0, [(WrOpcode.SEND, 4, 2000)], late_ns=35_000)
    await ended(p, WcStatus.SUCCESS)


async def never_ready(p, pair):
    """RNR NAKs until the requester gives up."""
    await pair[0].post_send([p.message(0, WrOpcode.SEND, 5, 2000, 5)[0]])
    await ended(p, WcStatus.RNR_RETRY_EXC_ERR)


async def dead(p, pair):
    """A peer that gets nothing more after the first message, until the requester gives up."""
    for number, status in ((6, WcStatus.SUCCESS), (7, WcStatus.RETRY_EXC_ERR)):
        await pair[0].post_send([p.message(0, WrOpcode.RDMA_WRITE, number, 2000, number)[0]])
        await ended(p, status)
        p.wires[0].impair(Impairments(loss=1))
