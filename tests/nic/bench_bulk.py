"""The bulk loader against the command path: the same tables, driver and firmware, byte for byte."""

import contextlib

import cocotb
import numpy as np
import pytest

from hdl.abi.enums import Access, Mtu, QpAttrMask, QpState, QpType, SendFlags, WcStatus, WrOpcode
from sim.bench.bulk.loader import DirectTables, bulk
from sim.bench.bulk.memories import scopes, words
from sim.bench.system import QpOptions, System, connect
from sim.guest.driver.memory import view
from sim.guest.verbs import CQ, MR, QP, QPAttr, QPCap, QPInitAttr, SendWR
from tests.nic.card import CONFIG

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
DATA = np.random.default_rng(2).integers(0, 256, 1 << 14, np.uint8)

#: Memories that keep what has passed: requests of the control queue, and when each receive queue
#: was asked for last.
PASSED = (
    "tables.counter_bank.",
    "queues.control.",  # its ring, its descriptors
    "host_side.reads.",  # reorder storage of host reads
    "host_side.writes.",  # bytes on their way to the host
    "tables.management.",  # the mailbox, the windows' shadows
    "queues.recv_fetch.sources.rows.",
)

VARIANTS = [
    QpOptions(),
    QpOptions(mtu=Mtu.MTU_256, psns=(0, 0xFFFFFF), sq_sig_all=1, max_rd_atomic=1),
    QpOptions(cap=QPCap(1, 1, 1, 1, 0), max_rd_atomic=16, traffic_class=0x68, rnr_retry=0),
    QpOptions(cap=QPCap(200, 7, 3, 9, 512), mtu=Mtu.MTU_1024, max_rd_atomic=0, priority=5),
    QpOptions(access=Access.LOCAL_WRITE, psns=(5, 6), gid=1),
]


async def objects(system):
    """CQs on different vectors, regions, connected QPs of every kind, QPs in other states."""
    nodes = system.nodes
    pds = [await node.context.alloc_pd() for node in nodes]
    regions = [await MR.create(pd, DATA.size, RIGHTS, virt_addr=0x5500_0000) for pd in pds]
    cqs = [
        [await CQ.create(node.context, 30 + i, comp_vector=i) for i in range(3)] for node in nodes
    ]
    pairs = []
    for i, options in enumerate(VARIANTS * 2):
        pairs.append(await connect(nodes, pds, [side[i % 3] for side in cqs], options))
    for pd, side in zip(pds, cqs, strict=True):
        init = QPInitAttr(QpType.RC, side[0], side[1], QPCap(4, 8, 2, 2, 16))
        await QP.create(pd, init)
        await (await QP.create(pd, init)).to_init(QPAttr(qp_access_flags=RIGHTS))
        failed = await QP.create(pd, init)
        await failed.modify(QPAttr(qp_state=QpState.ERR), QpAttrMask.STATE)
    return regions, cqs, pairs


def plain(thing):
    """The values of an object, for a comparison; other objects that it leads to left out."""
    values = {name: repr(value) for name, value in sorted(vars(thing).items())}
    return {name: value for name, value in values.items() if " object at " not in value}


def everything(node):
    """What a card's memories, its firmware and its driver hold, apart from the control queue."""
    found = {}
    for scope in scopes():
        place = scope.partition(f"nic{node.index}.")[2]
        if place and not place.startswith(PASSED):
            found[place] = words(scope).copy()
    for copy in range(2):
        found[f"queues.completion.tables.indices.copy{copy}"][0] = 0
    host, driver = node.host, node.context
    made = node.function.commands.objects
    for name in ("pds", "cqs", "mrs", "qps", "slices"):
        found[f"firmware {name}"] = plain(getattr(made, name))
    found["firmware"] = repr((made.gids, made.tags, made.generations))
    control = driver.device.control
    for index, queue in driver.device.queues.items():
        if queue is not control:
            found[f"queue {index}"] = plain(queue)
    for number, qp in driver.qps.items():
        facts = (qp.state, qp.qp_type, qp.cap, qp.pd.pdn, plain(qp.sq), plain(qp.rq))
        found[f"QP {number:#x}"] = repr(facts)
    found["heap"] = repr((host.memory._holes, sorted(host.memory._sizes.items())))
    for addr, size in host.memory._sizes.items():
        if addr not in (control.desc, control.avail, control.used):
            found[f"memory {addr:#x}"] = view(host.memory, addr, size).copy()
    return found


def same(one, other):
    """The names of what differs."""
    assert one.keys() == other.keys()
    return [name for name in one if not np.array_equal(one[name], other[name])]


async def start(dut):
    for scope in scopes():
        words(scope)[:] = 0
    system = await System.start(dut, CONFIG, deadline_cycles=5_000_000)
    for node in system.nodes:
        await node.add_address(1, f"fd00::1:{node.index + 1:x}")
        node.host.set(mmio_latency_ns=0)
    return system


@cocotb.test()
async def same_as_the_command_path(dut):
    """Every table, the firmware's objects, the driver's rings; then traffic on all that is up."""
    left = []
    for load in (False, True):
        system = await start(dut)
        requests = [(await node.counters())["control_requests"] for node in system.nodes]
        with contextlib.ExitStack() as loading:
            for node in system.nodes if load else ():
                loading.enter_context(bulk(node))
            regions, cqs, pairs = await objects(system)
        await system.testbench.cycles(3000)
        for node, before in zip(system.nodes, requests, strict=True):
            asked = (await node.counters())["control_requests"] - before
            assert asked == 0 if load else asked > 40, asked
        left.append([everything(node) for node in system.nodes])
        if not load:
            system.stop_firmware()
            system.testbench.stop()
    for number in (0, 1):
        different = same(left[0][number], left[1][number])
        assert not different, different
        # Something is there to be compared, and one other bit of it is noticed.
        tables = ("qp_cfg", "qp_tx", "qp_ack", "qp_rx", "qp_rx_ahead")
        for table in (
            *(f"tables.qp_context.{one}" for one in tables),
            "host_side.guests.function0.queues",
        ):
            name = f"{table}.rows.copy1"
            changed = dict(left[0][number])
            assert np.count_nonzero(changed[name]) > 10, table
            changed[name] = changed[name].copy()
            changed[name][5, 2] ^= 1
            assert same(changed, left[1][number]) == [name]
    await traffic(system, regions, cqs, pairs)


async def traffic(system, regions, cqs, pairs):
    """A WRITE each way on every connection; then the command path takes over."""
    sizes = [1000 + 13 * i for i in range(len(pairs))]
    for one, other in ((0, 1), (1, 0)):
        regions[one].write(DATA)
        for i, (pair, size) in enumerate(zip(pairs, sizes, strict=True)):
            regions[other].write(np.zeros(DATA.size, np.uint8))
            request = SendWR(
                i, WrOpcode.RDMA_WRITE, [regions[one].sge(i, size)], SendFlags.SIGNALED
            )
            request.set_wr_rdma(regions[other].rkey, regions[other].iova + 7)
            await pair[one].post_send(request)
            (done,) = await cqs[one][i % 3].wait(1)
            if VARIANTS[i % len(VARIANTS)].access & Access.REMOTE_WRITE:
                assert (done.wr_id, done.status) == (i, WcStatus.SUCCESS), done
                await system.testbench.cycles(500)
                assert np.array_equal(regions[other].read(size, 7), DATA[i : i + size])
            else:
                assert done.status == (WcStatus.REM_INV_REQ_ERR, WcStatus.WR_FLUSH_ERR)[one], done
    pair = pairs.pop()
    for qp in pair:
        await qp.close()
    ends = [region.pd for region in regions]
    await connect(system.nodes, ends, [side[0] for side in cqs])


@cocotb.test()
async def what_needs_the_card_is_refused(dut):
    """A queue's reset, and registers that a driver does not touch so."""
    system = await start(dut)
    node = system.nodes[0]
    cq = await CQ.create(node.context, 4)
    with bulk(node):
        with pytest.raises(ValueError, match="queue_reset of queue 1"):
            await cq.close()
    with pytest.raises(KeyError, match="No memory"):
        words("testbench.nic0.nothing")
    assert await DirectTables(node).read_row("qp_cfg", 3) == await node.registers.read_row(
        "qp_cfg", 3
    )
    system.stop_firmware()
