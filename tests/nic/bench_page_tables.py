"""Two whole cards: regions whose page list has two levels, and entries in it that name nothing."""

import cocotb
import numpy as np

from hdl.abi.enums import Access, MwType, WcOpcode, WcStatus, WrOpcode
from hdl.abi.virtio_rdma import PAGE_SIZE, TABLE_PAGE_ENTRIES
from sim.bench.system import connect
from sim.guest.verbs import MR, MW, RecvWR, SendWR
from tests.nic.bench_nic import DATA, Pair
from tests.nic.card import CONFIG

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE | Access.MW_BIND
WRITE, READ = WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ
OK, REFUSED = WcStatus.SUCCESS, WcStatus.REM_ACCESS_ERR
#: Bytes that a page of the list stands for, and a region with three of them.
TABLE = TABLE_PAGE_ENTRIES * PAGE_SIZE
OFFSET = 77
SIZE = 2 * TABLE + 9 * PAGE_SIZE + 1_000
PART = 9_001
#: Where the tests go: both ends, and across the ends of the list's pages.
PLACES = (0, TABLE - OFFSET - 4_000, 2 * TABLE - OFFSET - 1, SIZE - PART)


async def up(dut):
    """Two cards, each with such a region."""
    p = await Pair.up(dut, config=CONFIG)
    regions = [await MR.create(pd, SIZE, RIGHTS, offset=OFFSET, levels=2) for pd in p.pds]
    for mr in regions:
        gaps = np.diff(mr.table.tables.astype(np.int64))
        assert len(gaps) == 2 and (gaps != PAGE_SIZE).all(), "the list's pages are apart"
    return p, regions


async def accessed(p, opcode, sge, key, addr, qps=None):
    """The status of one request of the first card."""
    wr = SendWR(1, opcode, [sge])
    wr.set_wr_rdma(key, addr)
    await (qps or p.qps)[0].post_send(wr)
    (wc,) = await p.done(0, 1)
    return wc.status


@cocotb.test()
async def where_the_bytes_are(dut):
    """WRITE, READ and SEND from and into regions of 1034 pages: what was named is moved, and
    nothing else changes. Not a byte beyond either end."""
    p, (ours, theirs) = await up(dut)
    ours.write(DATA[:1], 0)
    theirs.fill(0)
    expected = np.zeros(SIZE, np.uint8)
    for number, place in enumerate(PLACES):
        ours.write(DATA[number * PART : (number + 1) * PART], place)
        sge = ours.sge(place, PART)
        assert await accessed(p, WRITE, sge, theirs.rkey, theirs.iova + place) is OK
        expected[place : place + PART] = DATA[number * PART : (number + 1) * PART]
    assert np.array_equal(theirs.read(SIZE), expected)
    ours.fill(0)
    for place in PLACES:
        assert (
            await accessed(p, READ, ours.sge(place, PART), theirs.rkey, theirs.iova + place) is OK
        )
    assert np.array_equal(ours.read(SIZE), expected)
    theirs.fill(0)
    for place in PLACES:
        await p.qps[1].post_recv(RecvWR(2, [theirs.sge(place, PART)]))
        await p.qps[0].post_send(SendWR(3, WrOpcode.SEND, [ours.sge(place, PART)]))
        await p.good(0)
        await p.good(1)
    assert np.array_equal(theirs.read(SIZE), expected)
    for addr, length in ((theirs.iova - 1, 2), (theirs.iova + SIZE - 1, 2)):
        for opcode in (WRITE, READ):
            qps = await connect(p.nodes, p.pds, p.cqs)
            sge = ours.sge(0, length)
            assert await accessed(p, opcode, sge, theirs.rkey, addr, qps) is REFUSED


@cocotb.test()
async def a_window_and_another_list(dut):
    """A window across the end of a page of the list. The region then gets a list of one level, and
    two again."""
    p, (ours, theirs) = await up(dut)
    window = await MW.create(p.pds[1], MwType.TYPE_1)
    place = PLACES[1]
    await p.qps[1].post_send(window.bind_wr(theirs, place, PART, Access.REMOTE_WRITE))
    (wc,) = await p.good(1)
    assert wc.opcode == WcOpcode.BIND_MW
    theirs.fill(0)
    ours.write(DATA[:PART])
    assert await accessed(p, WRITE, ours.sge(0, PART), window.key, window.iova) is OK
    expected = np.zeros(SIZE, np.uint8)
    expected[place : place + PART] = DATA[:PART]
    assert np.array_equal(theirs.read(SIZE), expected)
    await window.close()
    for levels in (1, 2):
        old = theirs.rkey
        await theirs.reregister(length=SIZE, offset=3, levels=levels)
        theirs.fill(0)
        for there in PLACES:
            sge = ours.sge(0, PART)
            assert await accessed(p, WRITE, sge, theirs.rkey, theirs.iova + there) is OK
            assert np.array_equal(theirs.read(PART, there), DATA[:PART])
        assert theirs.rkey == old


async def lost(p, ours, theirs, page):
    """What the entry stands for is refused to its QP, on either side, and others go on."""
    inside = max(page * PAGE_SIZE - OFFSET, 0)
    for opcode in (WRITE, READ):
        qps = await connect(p.nodes, p.pds, p.cqs)
        wr = SendWR(1, opcode, [ours.sge(0, 100)])
        wr.set_wr_rdma(theirs.rkey, theirs.iova + inside)
        good = [SendWR(2 + n, WRITE, [ours.sge(0, PART)]) for n in range(3)]
        for one in good:
            one.set_wr_rdma(p.mrs[1].rkey, p.mrs[1].iova)
        await p.qps[0].post_send(good[0])
        await qps[0].post_send([wr, SendWR(9, WrOpcode.SEND, [])])
        await p.qps[0].post_send(good[1:])
        found = {wc.wr_id: wc.status for wc in await p.done(0, 5)}
        assert found == {1: REFUSED, 9: WcStatus.WR_FLUSH_ERR} | dict.fromkeys((2, 3, 4), OK)
        # As an SGE of the second card's own.
        qps = await connect(p.nodes, p.pds, p.cqs)
        wr = SendWR(1, opcode, [theirs.sge(inside, 100)])
        wr.set_wr_rdma(p.mrs[0].rkey, p.mrs[0].iova)
        await qps[1].post_send(wr)
        (wc,) = await p.done(1)
        assert wc.status is WcStatus.LOC_PROT_ERR


@cocotb.test()
async def an_entry_that_names_nothing(dut):
    """In either level: not a multiple of 4 KiB, or (in the first) an address that the host does not
    serve. The rest of the region serves on."""
    p, (ours, theirs) = await up(dut)
    host, outside = p.nodes[1].host, 1 << 40
    last = len(theirs.table.pages) - 1  # each of a line of its own, because lines are remembered
    cases = [(1, 600, 8), (2, 700, 8), (2, 800, outside), (1, last, 1)]
    for level, page, wrong in cases:
        entry = theirs.table.entry(page, level)
        right = int(entry[0])
        entry[0] = right + wrong
        await lost(p, ours, theirs, page)
        near = (page + 1) * PAGE_SIZE - OFFSET if level == 1 else 0
        if near + 100 > SIZE:
            near = 0
        sge = ours.sge(0, 100)
        assert await accessed(p, WRITE, sge, theirs.rkey, theirs.iova + near) is OK
        entry[0] = right
        if level == 2:  # not remembered
            there = theirs.iova + page * PAGE_SIZE - OFFSET
            assert await accessed(p, WRITE, sge, theirs.rkey, there) is OK
        assert all(fault.addr >= outside and not fault.write for fault in host.faults)
        assert bool(host.faults) == (wrong == outside)
        host.faults.clear()
