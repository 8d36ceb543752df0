"""Two whole cards: a request of every class that functional coverage knows, and a refused command
of every kind. What each message moves is compared."""

from itertools import groupby

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Access, ControlCommand, ExtensionCommand, QpType, SendFlags, WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.abi.virtio_rdma import GRH_SIZE
from hdl.wire.opcodes import ATOMIC_BYTES, Kind, Transport, services
from sim.bench.coverage import COVERAGE, bins
from sim.bench.system import QpOptions, connect
from sim.guest.driver.errors import CommandError
from sim.guest.verbs import MR, SRQ, FastMR, RecvWR, SendWR
from tests.nic.bench_nic import Pair
from tests.nic.bench_services import QKEY, handle
from tests.nic.card import CONFIG

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
PAGE, LINE, AREA = 4096, 64, 1 << 18
#: Bytes of a message of a size class, SGEs of a class, and those that 64 KiB within pages take.
SIZES = {"0": 0, "1-256": 250, "257-4096": 3000, "4097-65535": 9000, "65536-": 65536}
COUNTS = {"-": 0, "1 SGE": 1, "2-4 SGEs": 3, "5- SGEs": 6}
MANY = 32
#: Where the peer's bytes are, and pages between two SGEs.
THERE, APART = 5, 20


def sges_of(mr, size, alignment, count, pages):
    """SGEs of the class; the first one is large, and the others are small where that matters."""
    if pages == "page" and size > count * PAGE:
        count = MANY
    even = [size // count + (n < size % count) for n in range(count)]
    first = [size - (count - 1), *[1] * (count - 1)] if size < count * LINE else None
    sizes = even if pages == "page" else first or [size - 4 * (count - 1), *[4] * (count - 1)]
    sges = []
    for n, length in enumerate(sizes):
        odd = 0 if alignment == "64 B" else 1
        at = odd if pages == "page" or n else PAGE - LINE + (LINE - 1) * odd
        page = n if count == MANY else n and APART + n
        sges.append(mr.sge(page * PAGE + at, length))
    return sges


class Player:
    """Sends messages of one service from card 0 to card 1, and compares them."""

    def __init__(self, p, qps, mrs, fast):
        self.p, self.qps, self.mrs, self.fast = p, qps, mrs, fast
        self.rng = np.random.default_rng(1)

    async def play(self, opcode, size_class, alignment, sge_class, pages):
        request, (mine, theirs) = WORK_REQUESTS[opcode], self.mrs
        inline = sge_class == "inline"
        size = SIZES[size_class] if request.kind != Kind.ATOMIC else ATOMIC_BYTES
        sges = []
        if size and not inline:
            sges = sges_of(mine, size, alignment, COUNTS[sge_class], pages)
        for mr in self.mrs:
            mr.write(self.rng.integers(0, 256, AREA, np.uint8))
        wr = SendWR(1, opcode, sges, imm_data=7)
        wanted = np.concatenate([mine.read(s.length, s.addr - mine.iova) for s in sges] or [[]])
        if inline:
            wanted = self.rng.integers(0, 256, size, np.uint8)
            wr.send_flags |= SendFlags.INLINE
            wr.inline_data = wanted.tobytes()
        datagram = self.qps[0].qp_type == QpType.UD
        at = THERE + GRH_SIZE * datagram
        if datagram:
            wr.set_wr_ud(handle(self.p, 0), self.qps[1].qp_num, QKEY)
        elif request.kind == Kind.ATOMIC:
            wr.set_wr_atomic(theirs.rkey, theirs.iova, 3, 4)
            wanted = theirs.read(size)
        elif request.kind != Kind.SEND:
            wr.set_wr_rdma(theirs.rkey, theirs.iova + THERE)
        if request.data and request.kind != Kind.ATOMIC:
            wanted = theirs.read(size, THERE)
        if opcode == WrOpcode.SEND_WITH_INV:
            wr.invalidate_rkey = self.fast[1].key
        if opcode == WrOpcode.RDMA_READ_WITH_INV:
            wr.invalidate_rkey = self.fast[0].key
        if request.receive:
            await self.qps[1].post_recv(RecvWR(2, [theirs.sge(THERE, size + GRH_SIZE + 1)]))
        await self.qps[0].post_send(wr)
        await self.p.good(0)
        if request.receive:
            (wc,) = await self.p.good(1)
            assert wc.byte_len == size + GRH_SIZE * datagram
        elif not request.data:
            await Timer(20, "us")  # what UC writes comes without a word
        if request.data:
            found = np.concatenate([mine.read(s.length, s.addr - mine.iova) for s in sges] or [[]])
        else:
            found = theirs.read(size, at)
        assert np.array_equal(found, wanted), (opcode, size_class, alignment, sge_class, pages)


@cocotb.test()
async def every_class_of_request(dut):
    """All of them have been seen at the end."""
    p = await Pair.up(dut, config=CONFIG, deadline_cycles=8_000_000)
    mrs = [await MR.create(pd, AREA, RIGHTS) for pd in p.pds]
    fast = [await FastMR.create(pd, 4) for pd in p.pds]
    wanted = [one for one in bins() if one[0] == "request" and one[3] != "-"]
    # Others are a matter of cards that have them (``test_placement.py``, ``test_xrc.py``).
    wanted = [one for one in wanted if WORK_REQUESTS[WrOpcode[one[2]]].feature in CONFIG.features]
    wanted = [one for one in wanted if Transport[one[1]] in services(CONFIG)]
    for service, group in groupby(sorted(wanted, key=lambda one: one[1]), lambda one: one[1]):
        p.qps = await connect(
            p.nodes, p.pds, p.cqs, QpOptions(type=QpType[service], qkey=QKEY, access=RIGHTS)
        )
        player = Player(p, p.qps, mrs, fast)
        for _, _, opcode, *kind in group:
            if WORK_REQUESTS[WrOpcode[opcode]].kind != Kind.LOCAL:
                await player.play(WrOpcode[opcode], *kind)
    local = {one.name for one in WORK_REQUESTS.values() if one.kind == Kind.LOCAL}
    assert not [one for one in wanted if not COVERAGE.seen[one] and one[2] not in local]


#: A request of each command that no device can grant: the handles and places do not exist.
REFUSED = {
    ControlCommand.QUERY_PORT: {"port": 9},
    ControlCommand.CREATE_CQ: {"cqe": 0},
    ControlCommand.DESTROY_CQ: {"cqn": 9999},
    ControlCommand.DESTROY_PD: {"pdn": 9999},
    ControlCommand.GET_DMA_MR: {"pdn": 9999},
    ControlCommand.CREATE_MR: {"pdn": 9999, "max_num_sg": 1},
    ControlCommand.MAP_MR_SG: {"mrn": 99999},
    ControlCommand.REG_USER_MR: {"pdn": 9999},
    ControlCommand.DEREG_MR: {"mrn": 99999},
    ControlCommand.CREATE_QP: {"pdn": 9999},
    ControlCommand.MODIFY_QP: {"qpn": 99999},
    ControlCommand.QUERY_QP: {"qpn": 99999},
    ControlCommand.DESTROY_QP: {"qpn": 99999},
    ControlCommand.QUERY_PKEY: {"port": 1, "index": 99},
    ControlCommand.ADD_GID: {"index": 999, "port_num": 1},
    ControlCommand.DEL_GID: {"index": 999, "port": 1},
    ControlCommand.REQ_NOTIFY_CQ: {"cqn": 9999},
    ExtensionCommand.CREATE_SRQ: {"pdn": 9999},
    ExtensionCommand.MODIFY_SRQ: {"srqn": 9999},
    ExtensionCommand.QUERY_SRQ: {"srqn": 9999},
    ExtensionCommand.DESTROY_SRQ: {"srqn": 9999},
    ExtensionCommand.ALLOC_XRCD: {"reserved": 1},
    ExtensionCommand.DEALLOC_XRCD: {"xrcdn": 9999},
    ExtensionCommand.CREATE_XRC_SRQ: {"pdn": 9999},
    ExtensionCommand.CREATE_DC_DESTINATION: {"pdn": 9999},
    ExtensionCommand.DESTROY_DC_DESTINATION: {"destination": 99999},
    ExtensionCommand.RESET_STREAM: {"qpn": 99999},
    ExtensionCommand.QUERY_DCT: {"qpn": 99999},
    ExtensionCommand.CREATE_MKEY: {"pdn": 9999},
    ExtensionCommand.REREG_MR: {"mrn": 99999},
    ExtensionCommand.REG_USER_MR_PAGES: {"pdn": 9999},
    ExtensionCommand.REG_USER_MR_TABLE: {"pdn": 9999, "levels": 2},
    ExtensionCommand.ALLOC_MW: {"pdn": 9999},
    ExtensionCommand.DEALLOC_MW: {"mwn": 99999},
    ExtensionCommand.ATTACH_MCAST: {"qpn": 99999},
    ExtensionCommand.DETACH_MCAST: {"qpn": 99999},
    ExtensionCommand.RESIZE_CQ: {"cqn": 9999},
    ExtensionCommand.RESIZE_QP: {"qpn": 99999},
}


@cocotb.test()
async def a_refused_command_of_each_kind(dut):
    """Each is answered with ERR, and what was there before works. CREATE_PD names nothing: it is
    refused when there are no more (tests/firmware/test_leaks.py)."""
    p = await Pair.up(dut, config=CONFIG)
    context = p.nodes[0].context
    srq = await SRQ.create(p.pds[0])
    commands = {*ControlCommand, *ExtensionCommand} - {ControlCommand.CREATE_PD}
    assert set(REFUSED) == commands
    for command, fields in REFUSED.items():
        try:
            await context.command(command, **fields)
        except CommandError:
            continue
        raise AssertionError(f"{command.name} {fields} was granted")
    await srq.close()
    mine, theirs = p.mrs
    await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [mine.sge(0, 700)], offset=9))
    await p.good()
    assert np.array_equal(theirs.read(700, 9), mine.read(700))
