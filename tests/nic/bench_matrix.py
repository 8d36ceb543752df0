"""Each operation with each fault of the network or the peer; and what others' designs fail at."""

import random
from itertools import product

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import Mtu, QpAttrMask, QpState, WcStatus, WrOpcode
from sim.bench.system import QpOptions
from sim.guest.verbs import QPAttr
from sim.models.impairments import Drop, Impairments
from tests.nic.lossy import OPCODES, SEED, TAKERS, WAIT_NS, Lossy

#: Name -> the network of both directions, as text; "" is a good one.
NETWORKS = {
    "loss": "loss=10%",
    "burst": "loss=4%,burst=6",
    "periodic": "every=13",
    "duplication": "duplicate=40%",
    "reordering": "reorder=6,overtaken=20%",
    "corruption": "corrupt=10%",
    "delay_beyond_the_timeout": "delay_us=30,jitter_us=10",
    "slow_line_with_a_short_queue": "gbps=2,queue=6000",
    "everything": "loss=3%,duplicate=3%,corrupt=3%,reorder=4,overtaken=3%,jitter_us=4",
}
#: Roles of an operation's packets, and of the answers.
_PLACES = ("first", "middle", "last", "only")
ROLES = {
    WrOpcode.SEND: ([f"send_{place}" for place in _PLACES], ["ack"]),
    WrOpcode.SEND_WITH_IMM: (
        ["send_first", "send_middle", "send_last_imm", "send_only_imm"],
        ["ack"],
    ),
    WrOpcode.RDMA_WRITE: ([f"write_{place}" for place in _PLACES], ["ack"]),
    WrOpcode.RDMA_WRITE_WITH_IMM: (
        ["write_first", "write_middle", "write_last_imm", "write_only_imm"],
        ["ack"],
    ),
    WrOpcode.RDMA_READ: (["read_request"], [f"read_resp_{place}" for place in _PLACES]),
}
#: First PSNs of a QP's two ways, which wrap on the way.
PSNS = (0xFFFFFF - random.Random(SEED).randrange(12), 0xFFFFFC)
#: Lengths with all places of a packet at an MTU of 1024.
LENGTHS = (3000, 700, 5000, 1)


def options(**more):
    """QPs that find out soon."""
    return QpOptions(
        **({"mtu": Mtu.MTU_1024, "timeout": 3, "min_rnr_timer": 1, "psns": PSNS} | more)
    )


def messages(opcode, lengths=LENGTHS):
    return [(opcode, n, length + n) for n, length in enumerate(lengths)]


@cocotb.test()
@cocotb.parametrize(network=list(NETWORKS))
async def network(dut, network):
    """Each operation, a few times, over a bad network."""
    p = await Lossy.up(dut)
    before = await p.counters()
    for n, wire in enumerate(p.wires):
        wire.impair(Impairments.parse(f"{NETWORKS[network]},seed={SEED + n}"))
    for opcode in OPCODES:
        pair = await p.connect(options())
        for turn in range(2):
            await p.completions(await p.send(pair, 0, messages(opcode), first=4 * turn))
    await Timer(200, "us")  # copies are on their way
    await p.damage(before)
    await p.well()


@cocotb.test()
async def each_role(dut):
    """The first, or the first two, of each role of packet of each operation."""
    p = await Lossy.up(dut)
    for opcode, roles in ROLES.items():
        for side, names in enumerate(roles):
            for role, count in product(names, (1, 2)):
                pair = await p.connect(options())
                p.wires[side].impair(Impairments(drop=Drop(role, 1, count)))
                await p.completions(await p.send(pair, 0, messages(opcode)))
                assert p.wires[side].outward.dropped == count, (opcode.name, role)
                p.wires[side].impair()
    await p.well()


@cocotb.test()
async def receiver_not_ready(dut):
    """Receives come late; of a WRITE with immediate it is the last packet that must wait."""
    p = await Lossy.up(dut)
    for opcode in TAKERS:
        pair = await p.connect(options())
        before = await p.counters()
        await p.completions(await p.send(pair, 0, messages(opcode), late_ns=35_000))
        after = await p.counters()
        refused = after[0]["rnr_nak"] - before[0]["rnr_nak"]
        assert refused == after[1]["out_of_buffer"] - before[1]["out_of_buffer"] > 1, opcode.name
    await p.well()


@cocotb.test()
@cocotb.parametrize(fault=["dead", "destroyed", "reset"])
async def peer(dut, fault):
    """The peer answers no more: the WQE ends in error, those behind it flushed, in order."""
    p = await Lossy.up(dut)
    for opcode in OPCODES:
        pair = await p.connect(options(timeout=1, retry_cnt=2))
        await p.completions(await p.send(pair, 0, messages(opcode)))
        if fault == "dead":
            p.wires[1].impair(Impairments(loss=1))
        elif fault == "destroyed":
            await pair[1].close()
        else:
            await pair[1].modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
        wrs = [p.message(0, *one, 8 + n)[0] for n, one in enumerate(messages(opcode))]
        await pair[0].post_send(wrs)
        found = await p.sides[0].cq.wait(len(wrs), timeout_ns=WAIT_NS)
        assert [wc.wr_id for wc in found] == [wr.wr_id for wr in wrs], opcode.name
        statuses = [wc.status for wc in found]
        flushed = (len(wrs) - 1) * [WcStatus.WR_FLUSH_ERR]
        assert statuses == [WcStatus.RETRY_EXC_ERR, *flushed], (opcode.name, statuses)
        p.wires[1].impair()
    await p.well()


@cocotb.test()
async def queue_pair_reset_and_used_again(dut):
    """Answers from before a reset are late, and mean nothing to the QP that is up again."""
    p = await Lossy.up(dut)
    for opcode in OPCODES:
        pair = await p.connect(options(psns=(100, 200)))
        p.wires[1].impair(Impairments(delay_us=25))  # the answers
        wrs = [p.message(0, *one, n)[0] for n, one in enumerate(messages(opcode))]
        await pair[0].post_send(wrs)
        await Timer(12, "us")
        for qp in pair:
            await qp.close()
        p.wires[1].impair()
        pair = await p.connect(options(psns=(100, 200)))
        await p.completions(await p.send(pair, 0, messages(opcode, (5000, 900)), first=50))
        await Timer(40, "us")
        for side in p.sides:
            assert await side.cq.poll(1) == [], opcode.name
    await p.well()


# What users of open designs report: each by its name.


@cocotb.test()
async def last_packet_of_a_message_is_lost(dut):
    """Nothing behind it shows the gap: the timer must."""
    p = await Lossy.up(dut)
    for opcode, role in ((WrOpcode.RDMA_WRITE, "write_last"), (WrOpcode.SEND, "send_last")):
        pair = await p.connect(options())
        before = await p.counters()
        p.wires[0].impair(Impairments(drop=Drop(role)))
        await p.completions(await p.send(pair, 0, [(opcode, 0, 5000)]))
        after = await p.counters()
        assert after[0]["local_ack_timeout_err"] == before[0]["local_ack_timeout_err"] + 1
        # None of its packets was acknowledged.
        assert after[1]["rx_packets"] - before[1]["rx_packets"] == 4 + 5
    await p.well()


@cocotb.test()
async def ack_of_the_last_message_is_lost(dut):
    """The message is sent again, acknowledged again, and executed once."""
    p = await Lossy.up(dut)
    for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.SEND, WrOpcode.RDMA_WRITE_WITH_IMM):
        pair = await p.connect(options())
        p.wires[1].impair(Impairments(drop=Drop("ack")))
        sent = await p.send(pair, 0, [(opcode, 0, 2500)])
        await p.completions(sent)
        assert p.wires[1].outward.dropped == 1
        p.wires[1].impair()
        await Timer(50, "us")
        for side in p.sides:
            assert await side.cq.poll(1) == [], "a second completion"
    await p.well()


@cocotb.test()
async def new_work_is_posted_while_old_work_is_sent_again(dut):
    """Each doorbell comes at another moment of a retry."""
    p = await Lossy.up(dut)
    pair = await p.connect(options(timeout=1))
    for n, wire in enumerate(p.wires):
        wire.impair(Impairments(loss=0.15, seed=SEED + n))
    sent = {}
    for number in range(40):
        opcode = p.rng.choice(OPCODES)
        sent |= await p.send(pair, 0, [(opcode, number, 2000)], first=number)
        await Timer(p.rng.randrange(200, 9000), "ns")
    await p.completions(sent)
    await p.well()


@cocotb.test()
@cocotb.parametrize(limit=[1, 4])
async def read_request_is_duplicated(dut, limit):
    """A copy is answered again, whole or in part, and changes nothing for the READs behind it.

    None of these is refused, though the card still answers the copy when it comes: one NAK would
    end the QP."""
    p = await Lossy.up(dut)
    pair = await p.connect(options(max_rd_atomic=limit, retry_cnt=0))
    before = await p.counters()
    p.wires[0].impair(Impairments(duplicate=1))
    for turn in range(4):
        what = [(WrOpcode.RDMA_READ, n, 2100 + n) for n in range(6)]
        await p.completions(await p.send(pair, 0, what, first=6 * turn))
    after = await p.counters()
    assert after[1]["duplicate_request"] == before[1]["duplicate_request"] + 24
    for side, name in ((0, "packet_seq_err"), (1, "out_of_sequence"), (1, "duplicate_read_lost")):
        assert after[side][name] == before[side][name], name
    await p.well()


@cocotb.test()
async def receiver_is_not_ready_in_the_middle_of_a_message(dut):
    """Its first packets have been executed; it goes on at the one that was refused."""
    p = await Lossy.up(dut)
    pair = await p.connect(options())
    before = await p.counters()
    what = [(WrOpcode.RDMA_WRITE_WITH_IMM, 0, 8000)]
    await p.completions(await p.send(pair, 0, what, late_ns=30_000))
    after = await p.counters()
    refused = after[0]["rnr_nak"] - before[0]["rnr_nak"]
    sent = after[1]["rx_packets"] - before[1]["rx_packets"]
    assert refused > 1 and sent == 8 + refused, (refused, sent)
    await p.well()


@cocotb.test()
async def psn_wraps_while_it_is_sent_again(dut):
    """Whichever of 16 packets across the wrap is lost."""
    p = await Lossy.up(dut)
    for at in range(1, 17, 3):
        for opcode, role in ((WrOpcode.RDMA_WRITE, "write_middle"), (WrOpcode.RDMA_READ, None)):
            pair = await p.connect(options(psns=(0xFFFFF8, 0xFFFFF8)))
            drop = Drop(role, at) if role else Drop("read_resp_middle", at)
            p.wires[0 if role else 1].impair(Impairments(drop=drop))
            what = [(opcode, n, 8000) for n in range(3)]
            await p.completions(await p.send(pair, 0, what))
            assert p.wires[0 if role else 1].outward.dropped == 1
            for wire in p.wires:
                wire.impair()
    await p.well()
