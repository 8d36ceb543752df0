"""Two cards on a bad network: everything arrives once, or its WQE says that it did not."""

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import Mtu, QpAttrMask, QpState, WcStatus, WrOpcode
from sim.bench.system import QpOptions
from sim.guest.verbs import QPAttr
from sim.models.impairments import Impairments
from sim.models.platform import now_ns
from tests.nic.lossy import CONFIG, OPCODES, SEED, WAIT_NS, Lossy

#: A timer is seen to be over in one of the two sweeps behind its end: 4 cycles of 4 ns for each QP.
SWEEPS_NS = 2 * 4 * 4 * CONFIG.qps
#: What a timer lasts at most, beside the sweeps, in parts of its nominal duration.
LONGEST_TIMEOUT, LONGEST_PAUSE = 1.25, 1.024 * 1.1
#: From a WQE's fetch to its last answer, at most: two messages of 3,000 bytes at 64 bits.
TRIP_NS = 6000
#: Until what has been handed over has left: 64 packets of 1 KiB (``PacketGate``) at 64 bits.
ON_THE_WAY_NS = 64 * 1200 * 8 * 4 // 64


@cocotb.test()
@cocotb.parametrize(
    bad=[
        "loss=1%",
        "loss=10%",
        # Not a period that what is left to send may have: the first packet of each round would be
        # lost, as often as a QP tries.
        "every=23",
        "loss=1%,burst=8",
        "duplicate=20%",
        "reorder=4,overtaken=5%",
        "corrupt=5%",
        "loss=2%,duplicate=2%,corrupt=2%,reorder=8,overtaken=2%,jitter_us=3",
    ]
)
async def bad_networks(dut, bad):
    """All operations on some QPs from both sides: data intact, completions once and in order."""
    p = await Lossy.up(dut)
    qps = [await p.connect() for _ in range(2)]
    for n, wire in enumerate(p.wires):
        wire.impair(Impairments.parse(f"{bad},seed={SEED + n}"))
    before = await p.counters()
    for _ in range(2):
        await p.traffic(qps)
    await Timer(20, "us")
    await p.damage(before)
    await p.well()


@cocotb.test()
async def dead_peer(dut):
    """No answer: the WQE ends when it has been sent 1 + ``retry_cnt`` times; others go on."""
    p = await Lossy.up(dut)
    other = await p.connect()
    for retries, code, opcode in ((0, 1, WrOpcode.SEND), (3, 4, WrOpcode.RDMA_READ)):
        pair = await p.connect(QpOptions(mtu=Mtu.MTU_1024, timeout=code, retry_cnt=retries))
        before = await p.counters()
        p.wires[1].impair(Impairments(loss=1))
        begun, nominal = now_ns(), 4096 << code
        await pair[0].post_send([p.message(0, opcode, n, 1000, n)[0] for n in range(3)])
        found = await p.sides[0].cq.wait(3, timeout_ns=WAIT_NS)
        took = now_ns() - begun
        statuses = [wc.status for wc in found]
        assert statuses == [WcStatus.RETRY_EXC_ERR] + 2 * [WcStatus.WR_FLUSH_ERR], found
        longest = (1 + retries) * (LONGEST_TIMEOUT * nominal + SWEEPS_NS + TRIP_NS)
        assert (1 + retries) * nominal <= took <= longest, took
        after = await p.counters()
        asked = 3 * (1 + retries)
        assert after[0]["requests_sent"] - before[0]["requests_sent"] == asked
        for name, count in (
            ("local_ack_timeout_err", 1 + retries),
            ("req_transport_retries_exceeded", 1),
        ):
            assert after[0][name] - before[0][name] == count, name
        p.wires[1].impair()
        await p.traffic([other], messages=3)
    await p.well()


@cocotb.test()
async def late_receiver(dut):
    """RNR NAKs: the message goes on at the packet that was refused, when the time is over."""
    p = await Lossy.up(dut)
    code, nominal = 4, 40_000
    pair = await p.connect(QpOptions(mtu=Mtu.MTU_1024, timeout=10, min_rnr_timer=code))
    begun = now_ns()
    messages = [(WrOpcode.SEND, n, 3000) for n in range(2)]
    await p.completions(await p.send(pair, 0, messages, late_ns=70_000))
    took, after = now_ns() - begun, await p.counters()
    assert 2 * nominal <= took <= 2 * (LONGEST_PAUSE * nominal + SWEEPS_NS) + 3 * TRIP_NS, took
    assert after[0]["rnr_nak"] == after[1]["out_of_buffer"] == 2
    assert after[0]["local_ack_timeout_err"] == 0

    pair = await p.connect(QpOptions(mtu=Mtu.MTU_1024, rnr_retry=2, min_rnr_timer=1))
    await pair[0].post_send([p.message(0, WrOpcode.SEND, n, 3000, n)[0] for n in range(2)])
    found = await p.sides[0].cq.wait(2, timeout_ns=WAIT_NS)
    assert [wc.status for wc in found] == [WcStatus.RNR_RETRY_EXC_ERR, WcStatus.WR_FLUSH_ERR]
    after = await p.counters()
    assert after[0]["rnr_nak"] == 2 + 3 and after[0]["req_rnr_retries_exceeded"] == 1
    await p.well()


@cocotb.test()
async def reset_while_going_back(dut):
    """A QP is dropped and made anew while it waits, resends or is answered; the next one works."""
    p = await Lossy.up(dut)
    pair = await p.connect(QpOptions(mtu=Mtu.MTU_1024, timeout=1, min_rnr_timer=1))
    for turn in range(12):
        bad = p.rng.choice(["loss=100%", "loss=30%", "drop=ack:1-", "reorder=8,overtaken=50%"])
        for n, wire in enumerate(p.wires):
            wire.impair(Impairments.parse(f"{bad},seed={SEED + 2 * turn + n}"))
        wrs = [p.message(0, p.rng.choice(OPCODES), n, 3000, n)[0] for n in range(4)]
        await pair[0].post_send(wrs)
        await Timer(p.rng.randrange(100, 60_000), "ns")
        for wire in p.wires:
            wire.impair()
        for qp in pair:
            if p.rng.random() < 0.5:
                await qp.modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
            await qp.close()
        pair = await p.connect(QpOptions(mtu=Mtu.MTU_1024, timeout=1, min_rnr_timer=1))
        for side in p.sides:
            while await side.cq.poll(16):
                pass
        await p.traffic([pair], messages=3)
    await p.well()


@cocotb.test()
@cocotb.parametrize(bad=["loss=0", "loss=10%", "loss=3%,reorder=4,overtaken=5%,duplicate=5%"])
async def drains(dut, bad):
    """SQD at any moment: what has begun ends, though it is lost, and the rest goes on in RTS."""
    p = await Lossy.up(dut)
    pair = await p.connect()
    for turn in range(6):
        for n, wire in enumerate(p.wires):
            wire.impair(Impairments.parse(f"{bad},seed={SEED + 2 * turn + n}"))
        messages = [(p.rng.choice(OPCODES), n, p.rng.randrange(1, 6000)) for n in range(16)]
        sent = await p.send(pair, 0, messages)
        await Timer(p.rng.randrange(100, 12_000), "ns")
        await pair[0].modify(QPAttr(qp_state=QpState.SQD), QpAttrMask.STATE)
        for _ in range(400):
            if not (await pair[0].query()).sq_draining:
                break
            await Timer(1, "us")
        else:
            raise AssertionError("the QP drains without end")
        drained = await p.counters()
        # What was sent again before the answer to its first time came is on its way through the
        # card, and leaves: the peer sees duplicates.
        await Timer(ON_THE_WAY_NS, "ns")
        before = await p.counters()
        await Timer(40, "us")
        after = await p.counters()
        assert after[0]["requests_sent"] == drained[0]["requests_sent"], "a WQE goes on"
        assert after[0]["tx_packets"] == before[0]["tx_packets"], "something is sent"
        await pair[0].modify(QPAttr(qp_state=QpState.RTS), QpAttrMask.STATE)
        await p.completions(sent)
    await p.well()
