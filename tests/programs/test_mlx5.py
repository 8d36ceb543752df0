"""Calls of libmlx5 on this card: raw elements, and copies inside the host's memory."""

from __future__ import annotations

import ctypes
import errno
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hdl.abi.enums import QpState, SendFlags, WcStatus, WrOpcode
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import AH
from sim.guest.verbs import SGE as GuestSGE
from sim.guest.verbs import SendWR as GuestSendWR
from sim.guest.verbs.address import AHAttr, GlobalRoute
from sim.programs.pyverbs.providers.mlx5 import mlx5_enums as dv
from sim.programs.pyverbs.providers.mlx5.wqe import Wqe, WqeCtrlSeg, WqeDataSeg, WqeSeg, translate
from tests.programs.running import script
from tests.programs.test_scripts import PAIR
from tests.programs.test_suite import run

KEY, ADDR, RKEY, REMOTE = 0x2B01, 0x10000, 0x2A01, 0x7F0000001000
_SIGNALLED = dv.MLX5_WQE_CTRL_CQ_UPDATE


class Remote(WqeSeg):
    """The segment of a peer's address, as a program would write it."""

    layout, names = struct.Struct(">QI4x"), ("raddr", "rkey")


class Operands(WqeSeg):
    """What an atomic writes, and compares with."""

    layout, names = struct.Struct(">QQ"), ("swap_add", "compare")


def element(opcode: int, *segments: WqeSeg, flags: int = 0, imm: int = 0, units: int = 0) -> Wqe:
    """An element with its length, unless ``units`` says another one."""
    count = units or 1 + sum(one.sizeof() for one in segments) // 16
    control = WqeCtrlSeg(9, opcode, qp_num=5, fm_ce_se=flags, ds=count)
    control.imm = imm
    return Wqe([control, *segments])


def request(wqe: Wqe, datagrams: bool = False) -> GuestSendWR:
    """What the card is asked for."""
    return translate(wqe.address, 7, SimpleNamespace(pdn=3), datagrams)


def built(opcode: WrOpcode, sg: Any = None, flags: int = 0, **fields: Any) -> GuestSendWR:
    """The same request as a program would post it."""
    sg = [GuestSGE(ADDR, 64, KEY)] if sg is None else sg
    return GuestSendWR(7, opcode, sg, SendFlags(flags), **fields)


def addressed(wr: GuestSendWR) -> GuestSendWR:
    wr.set_wr_rdma(RKEY, REMOTE)
    return wr


def atomic(wr: GuestSendWR, *operands: int) -> GuestSendWR:
    wr.set_wr_atomic(RKEY, REMOTE, *operands)
    return wr


def data() -> WqeDataSeg:
    return WqeDataSeg(64, KEY, ADDR)


#: Opcode, segments behind the control segment, its last word, and what it becomes.
ROWS: dict[str, tuple[int, list[WqeSeg], int, GuestSendWR]] = {
    "send": (dv.MLX5_OPCODE_SEND, [data()], 0, built(WrOpcode.SEND)),
    "send_imm": (
        dv.MLX5_OPCODE_SEND_IMM,
        [data()],
        0x11223344,
        built(WrOpcode.SEND_WITH_IMM, imm_data=0x11223344),
    ),
    "send_inval": (
        dv.MLX5_OPCODE_SEND_INVAL,
        [data()],
        RKEY,
        built(WrOpcode.SEND_WITH_INV, invalidate_rkey=RKEY),
    ),
    "write": (
        dv.MLX5_OPCODE_RDMA_WRITE,
        [Remote(REMOTE, RKEY), data()],
        0,
        addressed(built(WrOpcode.RDMA_WRITE)),
    ),
    "write_imm": (
        dv.MLX5_OPCODE_RDMA_WRITE_IMM,
        [Remote(REMOTE, RKEY), data(), WqeDataSeg(8, KEY + 1, ADDR + 99)],
        5,
        addressed(
            built(
                WrOpcode.RDMA_WRITE_WITH_IMM,
                [GuestSGE(ADDR, 64, KEY), GuestSGE(ADDR + 99, 8, KEY + 1)],
                imm_data=5,
            )
        ),
    ),
    "read": (
        dv.MLX5_OPCODE_RDMA_READ,
        [Remote(REMOTE, RKEY), data()],
        0,
        addressed(built(WrOpcode.RDMA_READ)),
    ),
    "compare_swap": (
        dv.MLX5_OPCODE_ATOMIC_CS,
        [Remote(REMOTE, RKEY), Operands(111, 222), WqeDataSeg(8, KEY, ADDR)],
        0,
        atomic(built(WrOpcode.ATOMIC_CMP_AND_SWP, [GuestSGE(ADDR, 8, KEY)]), 222, 111),
    ),
    "fetch_add": (
        dv.MLX5_OPCODE_ATOMIC_FA,
        [Remote(REMOTE, RKEY), Operands(111, 0), WqeDataSeg(8, KEY, ADDR)],
        0,
        atomic(built(WrOpcode.ATOMIC_FETCH_AND_ADD, [GuestSGE(ADDR, 8, KEY)]), 111),
    ),
    "local_inval": (
        dv.MLX5_OPCODE_LOCAL_INVAL,
        [],
        KEY,
        built(WrOpcode.LOCAL_INV, [], invalidate_rkey=KEY),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_each_opcode_becomes_its_request(name: str) -> None:
    """T-R2: the element that reaches the card is the one of the builder, signalled and not."""
    opcode, segments, last, wanted = ROWS[name]
    flags = {
        0: 0,
        _SIGNALLED: SendFlags.SIGNALED,
        dv.MLX5_WQE_CTRL_SOLICITED: SendFlags.SOLICITED,
        _SIGNALLED | dv.MLX5_WQE_CTRL_FENCE: SendFlags.SIGNALED | SendFlags.FENCE,
    }
    for theirs, ours in flags.items():
        wanted.send_flags = SendFlags(ours)
        found = request(element(opcode, *segments, flags=theirs, imm=last))
        assert found.pack(None) == wanted.pack(None)


@pytest.mark.parametrize("size", [0, 1, 12, 13, 64])
def test_inline_bytes_follow_their_length(size: int) -> None:
    octets = bytes(range(size))
    whole = struct.pack(">I", 1 << 31 | size) + octets
    whole += bytes(-len(whole) % 16)
    control = WqeCtrlSeg(0, dv.MLX5_OPCODE_SEND, ds=1 + len(whole) // 16)
    memory = ctypes.create_string_buffer(16 + len(whole))
    Wqe([control], ctypes.addressof(memory))
    ctypes.memmove(ctypes.addressof(memory) + 16, whole, len(whole))
    found = translate(ctypes.addressof(memory), 7, None, False)
    assert found.inline_data == octets and found.send_flags == SendFlags.INLINE and not found.sg


def test_datagrams_have_an_address() -> None:
    gid, mac = bytes(range(16)), bytes(range(6))
    where = struct.Struct(">I4xIBBH4x6sBBI16s")
    control = WqeCtrlSeg(0, dv.MLX5_OPCODE_SEND, ds=5)
    memory = ctypes.create_string_buffer(16 * 5)
    Wqe([control], ctypes.addressof(memory))
    flow = 1 << 30 | 4 << 20 | 0x12345
    octets = where.pack(0x80010000, 1 << 31 | 0x17, 3, 0, 0xC001, mac, 0x22, 64, flow, gid)
    ctypes.memmove(ctypes.addressof(memory) + 16, octets, 48)
    Wqe([data()], ctypes.addressof(memory) + 64)
    found = translate(ctypes.addressof(memory), 7, SimpleNamespace(pdn=3), True)
    wanted = built(WrOpcode.SEND)
    route = GlobalRoute(gid, 0x12345, 4, 64, 0x22)
    pd: Any = SimpleNamespace(pdn=3)
    wanted.set_wr_ud(AH(pd, AHAttr(route, sl=3, roce_dmac=mac)), 0x17, 0x80010000)
    assert found.pack(None) == wanted.pack(None)


@pytest.mark.parametrize(
    ("wqe", "number"),
    [
        (element(dv.MLX5_OPCODE_UMR), errno.EOPNOTSUPP),
        (element(dv.MLX5_OPCODE_MMO), errno.EOPNOTSUPP),
        (element(dv.MLX5_OPCODE_NOP), errno.EOPNOTSUPP),
        (element(0x77), errno.EOPNOTSUPP),
        (element(dv.MLX5_OPCODE_RDMA_WRITE), errno.EINVAL),
        (element(dv.MLX5_OPCODE_ATOMIC_FA, Remote(1, 2)), errno.EINVAL),
        (element(dv.MLX5_OPCODE_LOCAL_INVAL, data()), errno.EINVAL),
        (element(dv.MLX5_OPCODE_SEND, WqeDataSeg(1 << 31 | 99, 0, 0)), errno.EINVAL),
        (element(dv.MLX5_OPCODE_SEND, data(), WqeDataSeg(1 << 31 | 4, 0, 0)), errno.EINVAL),
        (element(dv.MLX5_OPCODE_SEND, units=64), errno.EINVAL),
    ],
)
def test_what_has_no_counterpart_is_refused(wqe: Wqe, number: int) -> None:
    """T-R3: opcodes, and elements that are too short, too long, or contradict themselves. (Of a
    length of 64 units six bits are left: 0, which is less than the control segment.)"""
    with pytest.raises(RdmaError) as refused:
        request(wqe)
    assert refused.value.errno == number


def test_segments_are_read_back() -> None:
    control = WqeCtrlSeg(1, dv.MLX5_OPCODE_SEND, 2, 3, _SIGNALLED, 4, 5, 0x01020304)
    assert control.opmod_idx_opcode == 2 << 24 | 1 << 8 | dv.MLX5_OPCODE_SEND
    assert (control.qpn_ds, control.signature, control.imm) == (3 << 8 | 4, 5, 0x04030201)
    control.qpn_ds = 77
    assert control.qpn_ds == 77 and "qpn ds" in str(control) and WqeCtrlSeg.sizeof() == 16
    place = WqeDataSeg(2.0, 3, 4.0)
    place.lkey = 9
    assert (place.byte_count, place.lkey, place.addr) == (2, 9, 4)
    with pytest.raises(TypeError, match="colour"):
        WqeCtrlSeg(colour=1)


#: A pair of queue pairs with the calls, and elements for it.
RAW = (
    PAIR
    + """
import pyverbs.providers.mlx5.mlx5_enums as dve
from pyverbs.providers.mlx5.mlx5dv import (
    Mlx5Context, Mlx5DVContextAttr, Mlx5DVQPInitAttr, Mlx5QP, Wqe, WqeCtrlSeg, WqeDataSeg)
from pyverbs.qp import QPInitAttrEx

ctx = Mlx5Context(Mlx5DVContextAttr(), name="rocinante0")
pd = PD(ctx)


def QP(_, init):
    calls = dve.MLX5DV_QP_EX_WITH_RAW_WQE | dve.MLX5DV_QP_EX_WITH_MEMCPY
    attr = Mlx5DVQPInitAttr(dve.MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS, send_ops_flags=calls)
    return Mlx5QP(ctx, QPInitAttrEx(init.qp_type, scq=init.send_cq, rcq=init.recv_cq, cap=init.cap,
                                    sq_sig_all=0, comp_mask=e.IBV_QP_INIT_ATTR_PD, pd=pd), attr)


def raw(opcode, *segments, signalled=True, imm=0):
    flags = dve.MLX5_WQE_CTRL_CQ_UPDATE if signalled else 0
    control = WqeCtrlSeg(0, opcode, fm_ce_se=flags, ds=1 + len(segments))
    control.imm = imm
    return Wqe([control, *segments])


def post(qp, *steps):
    qp.wr_start()
    for step in steps:
        step()
    qp.wr_complete()


cq = CQEX(ctx, CqInitAttrEx(cqe=64))


def opcodes(count):
    found = []
    while len(found) < count:
        if cq.start_poll() == 0:
            found.append((cq.wr_id, cq.status, cq.read_opcode()))
            cq.end_poll()
    return found


def build(name, *arguments, signalled=True):
    def step():
        qp.wr_flags = e.IBV_SEND_SIGNALED if signalled else 0
        getattr(qp, "wr_" + name)(*arguments)
        qp.wr_set_sge(SGE(mr.buf, 64, mr.lkey))
    return step


qp, _ = pair(cq)
mr = MR(pd, 4096, ALL)
place = WqeDataSeg(64, mr.lkey, mr.buf)
remote = WqeDataSeg(0, 0, 0)  # as long as the segment of an address
remote.byte_count, remote.lkey = (mr.buf + 1024) >> 32, (mr.buf + 1024) & 0xFFFFFFFF
remote.addr = mr.rkey << 32
"""
)


def test_raw_and_built_requests_take_turns(tmp_path: Path) -> None:
    """T-R1: each completion has the opcode of its own request, also behind unsignalled ones."""
    said = script(
        RAW
        + """
mr.write(b"w" * 64, 64)
write = raw(dve.MLX5_OPCODE_RDMA_WRITE, remote, place)
quiet = raw(dve.MLX5_OPCODE_RDMA_WRITE, remote, place, signalled=False)
for turn in range(50):
    qp.wr_id = turn
    post(qp, build("rdma_write", mr.rkey, mr.buf + 512, signalled=False),
         lambda: qp.wr_raw_wqe(write), lambda: qp.wr_raw_wqe(quiet),
         build("rdma_write", mr.rkey, mr.buf + 512))
    assert opcodes(2) == [(turn, 0, e.IBV_WC_DRIVER2), (turn, 0, e.IBV_WC_RDMA_WRITE)], turn
print(mr.read(64, 1024) == mr.read(64, 512) == b"w" * 64)
""",
        tmp_path,
        options=("--as", "mlx5"),
    )
    assert said == "True\n"


def test_a_bad_element_undoes_its_batch(tmp_path: Path) -> None:
    """T-R3: nothing of the batch is posted; nor of one that is longer than the queue."""
    said = script(
        RAW
        + """
write = raw(dve.MLX5_OPCODE_RDMA_WRITE, remote, place)
steps = [build("rdma_write", mr.rkey, mr.buf + 512)]
refused(post, qp, *steps, lambda: qp.wr_raw_wqe(raw(dve.MLX5_OPCODE_UMR)))
refused(post, qp, *steps, lambda: qp.wr_raw_wqe(raw(dve.MLX5_OPCODE_RDMA_WRITE)))
refused(post, qp, *steps * 9)
refused(post, qp, *steps, lambda: qp.wr_memcpy(mr.lkey, mr.buf, mr.lkey, mr.buf, 0))
print(cq.start_poll(), mr.read(64, 512) == bytes(64))
qp.wr_id = 5
post(qp, lambda: qp.wr_raw_wqe(write))
print(opcodes(1))
mr.write(b"c" * 100, 100)
qp.wr_flags = e.IBV_SEND_SIGNALED
post(qp, lambda: qp.wr_memcpy(mr.lkey, mr.buf + 2000, mr.lkey, mr.buf, 100))
print(opcodes(1), mr.read(100, 2000) == b"c" * 100)
print(ctx.query_mlx5_device().max_wr_memcpy_length, ctx.query_device().vendor_id)
refused(Mlx5Context, Mlx5DVContextAttr(flags=1), "rocinante0")
refused(Mlx5QP, ctx, QPInitAttrEx(e.IBV_QPT_RC), Mlx5DVQPInitAttr(send_ops_flags=32, comp_mask=4))
refused(Mlx5QP, ctx, QPInitAttrEx(e.IBV_QPT_UC), Mlx5DVQPInitAttr(send_ops_flags=16, comp_mask=4))
""",
        tmp_path,
        options=("--as", "mlx5"),
    )
    lines = said.splitlines()
    failed = "PyverbsRDMAError {} Failed to complete work requests"
    numbers = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOMEM, errno.EINVAL)
    for line, number in zip(lines, numbers, strict=False):
        assert line.startswith(failed.format(number)), said
    assert lines[4:8] == [
        "2 True",
        "[(5, 0, 136)]",
        "[(5, 0, 137)] True",
        f"{1 << 30} {0x02C9}",
    ]
    assert all("95 Failed to" in line for line in lines[8:]) and len(lines) == 11


def test_layouts(tmp_path: Path) -> None:
    """T-K9, as far as the library refuses: nothing of a batch with a bad layout is posted."""
    said = script(
        """
import pyverbs.enums as e
import pyverbs.providers.mlx5.mlx5_enums as dve
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.providers.mlx5.mlx5dv import Mlx5Context, Mlx5DVContextAttr, Mlx5DVQPInitAttr, Mlx5QP
from pyverbs.providers.mlx5.mlx5dv_mkey import Mlx5Mkey, Mlx5MkeyConfAttr, Mlx5MrInterleaved
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QPAttr, QPCap, QPInitAttrEx
from pyverbs.wr import SGE

ctx = Mlx5Context(Mlx5DVContextAttr(), name="rocinante0")
pd, cq = PD(ctx), CQ(ctx, 8)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)

def refused(call, *args):
    try:
        call(*args)
    except PyverbsRDMAError as error:
        print(error.error_code)
    else:
        print("not refused")

INDIRECT = dve.MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT
refused(Mlx5Mkey, pd, 0, 2)
refused(Mlx5Mkey, pd, INDIRECT | dve.MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 2)
mkey = Mlx5Mkey(pd, INDIRECT, 2)
print(mkey.lkey == mkey.rkey, mkey.max_entries)

def made(calls, qp_type=e.IBV_QPT_RC):
    mask = dve.MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS
    init = QPInitAttrEx(qp_type, scq=cq, rcq=cq, pd=pd, cap=QPCap(8, 8, 2, 2, 64),
                        comp_mask=e.IBV_QP_INIT_ATTR_PD)
    return Mlx5QP(ctx, init, Mlx5DVQPInitAttr(mask, send_ops_flags=calls))

refused(made, dve.MLX5DV_QP_EX_WITH_MR_LIST, e.IBV_QPT_UC)
qp = made(dve.MLX5DV_QP_EX_WITH_MR_LIST | dve.MLX5DV_QP_EX_WITH_MKEY_CONFIGURE)
sges = [SGE(mr.buf, 8, mr.lkey), SGE(mr.buf + 64, 8, mr.lkey)]
rows = [Mlx5MrInterleaved(mr.buf, 8, 2, mr.lkey)]
write = e.IBV_ACCESS_LOCAL_WRITE
refused(qp.wr_mr_interleaved, mkey, write, 3, rows)  # not one of its calls

def post(flags, *calls):
    qp.wr_start()
    qp.wr_flags = flags
    for call, *args in calls:
        call(*args)
    qp.wr_complete()

inline = e.IBV_SEND_INLINE | e.IBV_SEND_SIGNALED
refused(post, 0, (qp.wr_mr_list, mkey, write, sges))
refused(post, inline, (qp.wr_mr_list, mkey, e.IBV_ACCESS_MW_BIND, sges))
refused(post, inline, (qp.wr_mr_list, mkey, write, []))
refused(post, inline, (qp.wr_mr_list, mkey, write, sges + sges))
configure = (qp.wr_mkey_configure, mkey, 2, Mlx5MkeyConfAttr())
access = (qp.wr_set_mkey_access_flags, write)
refused(post, inline, configure, access)  # a setter is missing
refused(post, inline, (qp.wr_mkey_configure, mkey, 2, Mlx5MkeyConfAttr(1)), access,
        (qp.wr_set_mkey_layout_list, sges))
print(cq.poll()[0])
""",
        tmp_path,
        options=("--as", "mlx5"),
    )
    unsupported, memory = errno.EOPNOTSUPP, errno.ENOMEM
    wanted = [unsupported, unsupported, "True 2", unsupported, unsupported, unsupported]
    wanted += [errno.EINVAL, memory, memory, errno.EINVAL, unsupported, 0]
    assert said.splitlines() == [str(one) for one in wanted]


def test_rdma_cores_cases_of_layouts(tmp_path: Path) -> None:
    """Its tests of indirect keys; those with signatures find that there are none."""
    found = run(tmp_path, "--as", "mlx5", "test_mlx5_mkey")
    ended = [one["how"] for each in found.values() for one in each]
    assert sorted(ended) == ["passed"] * 6 + ["skipped"] * 5


def test_rdma_cores_cases(tmp_path: Path) -> None:
    """Its tests of raw elements and of copies but for the one that registers a gigabyte."""
    copies = "test_mlx5_dma_memcpy.DmaGgaMemcpy.test_dma_memcpy_"
    names = [copies + kind for kind in ("data", "different_pd_bad_flow", "protection_bad_flow")]
    found = run(tmp_path, "--as", "mlx5", "test_mlx5_raw_wqe", *names)
    ended = [one["how"] for each in found.values() for one in each]
    assert ended == ["passed"] * 4


#: An initiator and a target on one card.
DC = (
    PAIR
    + """
import pyverbs.providers.mlx5.mlx5_enums as dve
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.providers.mlx5.mlx5dv import (
    Mlx5Context, Mlx5DVContextAttr, Mlx5DVDCInitAttr, Mlx5DVQPInitAttr, Mlx5QP)
from pyverbs.qp import QPAttr, QPCap, QPInitAttrEx
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

ctx = Mlx5Context(Mlx5DVContextAttr(), name="rocinante0")
pd, cq = PD(ctx), CQ(ctx, 64)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
srq = SRQ(pd, SrqInitAttr(SrqAttr(16, 1)))


def make(dc, send_ops=0, comp_mask=dve.MLX5DV_QP_INIT_ATTR_MASK_DC, calls=0):
    mask = e.IBV_QP_INIT_ATTR_PD | (e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS if send_ops else 0)
    init = QPInitAttrEx(e.IBV_QPT_DRIVER, scq=cq, rcq=cq, srq=srq, cap=QPCap(8, 0, 1, 0), pd=pd,
                        comp_mask=mask, send_ops_flags=send_ops, sq_sig_all=1)
    mask = comp_mask | (dve.MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS if calls else 0)
    return Mlx5QP(ctx, init, Mlx5DVQPInitAttr(mask, dc_init_attr=dc, send_ops_flags=calls))


sends = e.IBV_QP_EX_WITH_SEND | e.IBV_QP_EX_WITH_RDMA_WRITE
route = GlobalRoute(dgid=ctx.query_gid(1, 0), sgid_index=0)
attr = QPAttr()
attr.ah_attr = AHAttr(is_global=1, gr=route)
attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 1, 14, 7, 7
attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
target = make(Mlx5DVDCInitAttr(dve.MLX5DV_DCTYPE_DCT, 0x1234))
target.to_rtr(attr)
qp = make(Mlx5DVDCInitAttr(), sends, calls=dve.MLX5DV_QP_EX_WITH_MEMCPY)
qp.to_rts(attr)
ah = AH(pd, attr=attr.ah_attr)
"""
)


def test_dynamic_connections(tmp_path: Path) -> None:
    """A WRITE with the key, a copy, one with another key, and what cannot be made."""
    said = script(
        DC
        + """
def write(number, key, *, addr=True):
    qp.wr_start()
    qp.wr_id, qp.wr_flags = number, e.IBV_SEND_SIGNALED
    qp.wr_rdma_write(mr.rkey, mr.buf + 1024)
    if addr:
        qp.wr_set_dc_addr(ah, target.qp_num, key)
    qp.wr_set_sge(SGE(mr.buf, 64, mr.lkey))
    qp.wr_complete()


def ended():
    while not (found := cq.poll(4)[1]):
        pass
    return [(wc.wr_id, wc.status, wc.qp_num == qp.qp_num) for wc in found]


mr.write(b"d" * 64, 64)
write(1, 0x1234)
print(ended(), mr.read(64, 1024) == b"d" * 64)
qp.wr_start()
qp.wr_id, qp.wr_flags = 5, e.IBV_SEND_SIGNALED
qp.wr_memcpy(mr.lkey, mr.buf + 2048, mr.lkey, mr.buf, 64)
qp.wr_complete()
print(ended(), mr.read(64, 2048) == b"d" * 64)
write(2, 0x1235)
print(ended(), qp.query(e.IBV_QP_STATE)[0].qp_state)
reset = QPAttr(qp_state=e.IBV_QPS_RESET)
qp.modify(reset, e.IBV_QP_STATE)
qp.to_rts(attr)
write(3, 0, addr=False)  # it names no destination
print(ended())
refused(target.to_rts, attr)
refused(make, None)
refused(make, Mlx5DVDCInitAttr(7))
refused(make, Mlx5DVDCInitAttr(dve.MLX5DV_DCTYPE_DCT), sends)
refused(make, Mlx5DVDCInitAttr(), 0, 0)
refused(make, Mlx5DVDCInitAttr(), calls=dve.MLX5DV_QP_EX_WITH_RAW_WQE)
refused(make, Mlx5DVDCInitAttr(dve.MLX5DV_DCTYPE_DCT), calls=dve.MLX5DV_QP_EX_WITH_MEMCPY)
Mlx5QP.map_ah_to_qp(ah, qp.qp_num)  # there is nothing to take over from it
refused(Mlx5QP.map_ah_to_qp, ah, 1 << 24)
refused(Mlx5QP.map_ah_to_qp, qp, qp.qp_num)
refused(write, 4, 5)
qp.close(), target.close(), ah.close(), mr.close(), srq.close(), pd.close()
""",
        tmp_path,
        options=("--as", "mlx5"),
    )
    lines = said.splitlines()
    access, operation = WcStatus.REM_ACCESS_ERR, WcStatus.LOC_QP_OP_ERR
    assert lines[:4] == [
        "[(1, 0, True)] True",
        "[(5, 0, True)] True",
        f"[(2, {int(access)}, True)] {int(QpState.ERR)}",
        f"[(3, {int(operation)}, True)]",
    ], said
    numbers = [line.split()[1] for line in lines[4:]]
    invalid, unsupported = errno.EINVAL, errno.EOPNOTSUPP
    wanted = [*[invalid] * 5, *[unsupported] * 2, *[invalid] * 2]
    assert numbers[: len(wanted)] == [str(number) for number in wanted], said


def test_a_part_of_rdma_cores_cases_of_dynamic_connections(tmp_path: Path) -> None:
    case = "test_mlx5_dc.DCTest.test_dc_"
    names = [case + what for what in ("rdma_write", "send", "ah_to_qp_mapping")]
    (found,) = run(tmp_path, "--as", "mlx5", *names).values()
    assert [one["how"] for one in found] == ["passed"] * 3


@pytest.mark.slow
def test_rdma_cores_cases_of_dynamic_connections(tmp_path: Path) -> None:
    """Its tests of DC: five pass; the others need what the card has not."""
    (found,) = run(tmp_path, "--as", "mlx5", "test_mlx5_dc").values()
    passed = {one["name"].split(".")[-1] for one in found if one["how"] == "passed"}
    kinds = ("rdma_write", "send", "rdma_write_stream", "send_stream_bad_flow")
    assert passed == {f"test_dc_{kind}" for kind in (*kinds, "send_stream_bad_flow_qp")}
    assert all(one["how"] == "skipped" for one in found if one["name"].split(".")[-1] not in passed)
