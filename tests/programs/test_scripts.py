"""Scripts that use pyverbs: errors, threads, memory, events, and how a script ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.programs.running import COMMAND, command, script

#: A pair of queue pairs on one card, connected.
PAIR = """
import ctypes, errno, sys, threading
import pyverbs.device as d
import pyverbs.enums as e
from pyverbs import mem_alloc
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

ctx = d.Context(name=d.get_device_list()[0].name.decode())
pd = PD(ctx)
ALL = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ


def pair(cq, kind=e.IBV_QPT_RC, srq=None, **attributes):
    cap = QPCap(max_send_wr=8, max_recv_wr=8, max_inline_data=64)
    both = [QP(pd, QPInitAttr(kind, scq=cq, rcq=cq, cap=cap, srq=srq)) for _ in range(2)]
    for qp, peer in zip(both, reversed(both)):
        attr = QPAttr(path_mtu=e.IBV_MTU_1024)
        attr.qp_access_flags, attr.dest_qp_num = ALL, peer.qp_num
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        route = GlobalRoute(dgid=ctx.query_gid(1, 0), sgid_index=0)
        attr.ah_attr = AHAttr(is_global=1, gr=route)
        for name, value in attributes.items():
            setattr(attr, name, value)
        qp.to_rts(attr)
    return both


def wait(cq):
    while not (found := cq.poll())[0]:
        pass
    return found[1][0]


def refused(what, *arguments, **named):
    try:
        what(*arguments, **named)
    except PyverbsError as error:
        print(type(error).__name__, error.error_code, error)
    else:
        print("not refused")
"""


def test_errors_have_texts_and_numbers(tmp_path: Path) -> None:
    said = script(
        PAIR
        + """
from pyverbs.xrcd import XRCD, XRCDInitAttr
from pyverbs.providers.mlx5.mlx5dv import Mlx5Context, Mlx5DVContextAttr
refused(d.Context, name="nobody")
refused(MR, pd, 100, e.IBV_ACCESS_REMOTE_WRITE)
refused(CQ, ctx, 1 << 20)
refused(XRCD, ctx, XRCDInitAttr(3, 0, 0))
refused(Mlx5Context, Mlx5DVContextAttr(), name="rocinante0")
qp, _ = pair(CQ(ctx, 10))
refused(qp.post_recv, RecvWR(num_sge=2, sg=[SGE(), SGE()]))
refused(SendWR, opcode=e.IBV_WR_SEND)
refused(ctx.query_gid_ex, 1, 9)
mr = MR(pd, 100, ALL)
refused(mr.write, "x" * 101, 101)
refused(MR, pd, 100, ALL, address=4096)
""",
        tmp_path,
    )
    assert said.splitlines() == [
        "PyverbsRDMAError 19 Failed to open device nobody. Errno: 19, No such device",
        "PyverbsRDMAError 22 Failed to register a MR. length: 100, access flags: 2. "
        "Errno: 22, Invalid argument",
        "PyverbsRDMAError 22 Failed to create a CQ. Errno: 22, Invalid argument",
        "PyverbsRDMAError 11 Failed to allocate XRCD. Errno: 11, Resource temporarily unavailable",
        "PyverbsRDMAError 95 Failed to open mlx5 context. Errno: 95, Operation not supported",
        "PyverbsRDMAError 22 Failed to post recv. Errno: 22, Invalid argument",
        "PyverbsUserError -1 A WR needs at least one SGE",
        "PyverbsRDMAError 61 Failed to query gid table of port 1 and gid index 9. "
        "Errno: 61, No data available",
        "PyverbsError -1 101 bytes at 0 of a region of 100",
        "PyverbsRDMAError 14 Failed to register a MR. length: 100, access flags: 7. "
        "Errno: 14, Bad address",
    ]


def test_memory_of_the_program(tmp_path: Path) -> None:
    """Regions that share pages, anywhere in a page, of memory that the program has itself."""
    said = script(
        PAIR
        + """
cq = CQ(ctx, 10)
qp, _ = pair(cq)
memory = mem_alloc.mmap(length=5 * 4096)
first = MR(pd, 6000, ALL, address=memory + 100)
second = MR(pd, 6000, ALL, address=memory + 100 + 6000)
data = bytes(i * 7 & 0xFF for i in range(6000))
ctypes.memmove(memory + 100, data, 6000)
wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(first.buf, 6000, first.lkey)])
wr.set_wr_rdma(second.rkey, second.buf)
qp.post_send(wr)
print(wait(cq).status, ctypes.string_at(memory + 6100, 6000) == data)
first.close()
wr = SendWR(opcode=e.IBV_WR_RDMA_READ, num_sge=1, sg=[SGE(second.buf, 8, second.lkey)])
wr.set_wr_rdma(second.rkey, second.buf + 8)
qp.post_send(wr)
print(wait(cq).status, second.read(8, 0) == data[8:16])
inline = ctypes.create_string_buffer(b"inline, no key", 14)
wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(ctypes.addressof(inline), 14, 0)],
            send_flags=e.IBV_SEND_SIGNALED | e.IBV_SEND_INLINE)
wr.set_wr_rdma(second.rkey, second.buf)
qp.post_send(wr)
inline[0] = b"X"
print(wait(cq).status, second.read(14, 0))
wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(first.buf, 8, second.lkey)])
wr.set_wr_rdma(second.rkey, second.buf)
qp.post_send(wr)
print(wait(cq).status == e.IBV_WC_LOC_PROT_ERR)
""",
        tmp_path,
    )
    assert said.splitlines() == ["0 True", "0 True", "0 b'inline, no key'", "True"]


def test_memory_that_is_taken_away(tmp_path: Path) -> None:
    """The card goes on, as with pages that a kernel has pinned; the program's own access faults."""
    text = (
        PAIR
        + """
cq = CQ(ctx, 10)
qp, _ = pair(cq)
memory = mem_alloc.mmap(length=3 * 4096)
gone, here = MR(pd, 3 * 4096, ALL, address=memory), MR(pd, 100, ALL)
mem_alloc.munmap(memory, 3 * 4096)
for opcode in (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ):
    wr = SendWR(opcode=opcode, num_sge=1, sg=[SGE(here.buf, 100, here.lkey)])
    wr.set_wr_rdma(gone.rkey, memory + 4000)
    qp.post_send(wr)
    print(wait(cq).status, flush=True)
ctypes.string_at(memory + 2 * 4096, 1)
"""
    )
    (tmp_path / "script.py").write_text(text)
    done = command("pyverbs", "--cards", "1", "script.py", folder=tmp_path)
    assert done.stdout == "0\n0\n" and done.returncode != 0, done.stderr


def test_threads_wait_at_the_same_time(tmp_path: Path) -> None:
    """One waits for an event, one polls; a receive request that comes late ends RNR pauses."""
    said = script(
        PAIR
        + """
channel = CompChannel(ctx)
cq, other = CQ(ctx, 10, None, channel), CQ(ctx, 10)
a, b = pair(other)[0], None
cap = QPCap(max_send_wr=8, max_recv_wr=8)
a, b = (QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=one, rcq=one, cap=cap)) for one in (other, cq))
for qp, peer in ((a, b), (b, a)):
    attr = QPAttr(path_mtu=e.IBV_MTU_1024)
    attr.qp_access_flags, attr.dest_qp_num = ALL, peer.qp_num
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
    attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=ctx.query_gid(1, 0)))
    qp.to_rts(attr)
mr = MR(pd, 4096, ALL)
cq.req_notify()


def receive():
    channel.get_cq_event(cq)
    print("event", cq.poll()[1][0].wr_id)


thread = threading.Thread(target=receive)
thread.start()
mr.write("hello", 5)
a.post_send(SendWR(num_sge=1, sg=[SGE(mr.buf, 5, mr.lkey)]))
print("nothing yet", other.poll()[0])
b.post_recv(RecvWR(wr_id=5, num_sge=1, sg=[SGE(mr.buf + 100, 100, mr.lkey)]))
print("sent", wait(other).status)
thread.join()
print(mr.read(5, 100))
""",
        tmp_path,
    )
    assert sorted(said.splitlines()) == ["b'hello'", "event 5", "nothing yet 0", "sent 0"]


def test_time_outs_take_wall_time(tmp_path: Path) -> None:
    """A peer that is not there: 2 retries of 17 ms each, in no less than that."""
    said = script(
        PAIR
        + """
import time
cq = CQ(ctx, 10)
qp, gone = pair(cq, timeout=12, retry_cnt=2)
gone.close()
mr = MR(pd, 100, ALL)
wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(mr.buf, 8, mr.lkey)])
wr.set_wr_rdma(mr.rkey, mr.buf)
began = time.monotonic()
qp.post_send(wr)
print(wait(cq).status == e.IBV_WC_RETRY_EXC_ERR, time.monotonic() - began > 3 * 0.0167)
""",
        tmp_path,
    )
    assert said == "True True\n"


def test_extended_queues_and_events_of_the_device(tmp_path: Path) -> None:
    said = script(
        PAIR
        + """
cq = CQEX(ctx, CqInitAttrEx(cqe=10, wc_flags=e.IBV_WC_STANDARD_FLAGS))
print("empty", cq.start_poll())
srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=8)))
a, b = pair(cq, srq=srq)
mr = MR(pd, 4096, ALL)
for number in range(3):
    srq.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[SGE(mr.buf, 100, mr.lkey)]))
srq.modify(SrqAttr(srq_limit=3), e.IBV_SRQ_LIMIT)
print("limit", srq.query().srq_limit)
a.post_send(SendWR(opcode=e.IBV_WR_SEND_WITH_IMM, imm_data=0x01020304, num_sge=1,
                   sg=[SGE(mr.buf, 10, mr.lkey)]))
event = ctx.get_async_event()
print("event", event.event_type == e.IBV_EVENT_SRQ_LIMIT_REACHED)
event.ack()
seen = []
while len(seen) < 2:
    if cq.start_poll() == 0:
        seen.append((cq.read_opcode() == e.IBV_WC_RECV, cq.status, cq.read_byte_len()))
        if seen[-1][0]:
            print("imm", hex(cq.read_imm_data()))
cq.end_poll()
print(sorted(seen)[-1])
""",
        tmp_path,
    )
    assert said.splitlines() == [
        *("empty 2", "limit 3", "event True", "imm 0x1020304", "(True, 0, 10)"),
    ]


def test_what_is_looked_up_in_linux(tmp_path: Path) -> None:
    """With commands, in whose eyes the devices are Linux's."""
    said = script(
        """
import json, subprocess
look = lambda *words: subprocess.check_output(words, text=True)
print(look("cat", "/sys/class/infiniband/rocinante1/ports/1/pkeys/0").strip())
print(look("ls", "/sys/class/infiniband/").split())
print([link["ifname"] for link in json.loads(look("rdma", "link", "show", "-j"))])
print(look("cat", "script.py").startswith("\\nimport json"))
""",
        tmp_path,
        cards=2,
    )
    devices = "['rocinante0', 'rocinante1']"
    assert said.splitlines() == ["0xffff", devices, devices, "True"]


@pytest.mark.parametrize("what", ["channel.get_cq_event(cq)", "while True: sum(range(9))"])
def test_ctrl_c(what: str, tmp_path: Path) -> None:
    """While it waits for the card, and while it does not."""
    (tmp_path / "script.py").write_text(
        PAIR
        + f"""
channel = CompChannel(ctx)
cq = CQ(ctx, 10, None, channel)
print("begins", flush=True)
try:
    {what}
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(5)
"""
    )
    words = [*COMMAND, "pyverbs", "--cards", "1", "script.py"]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "begins\n"
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.read() == "interrupted\n" and process.wait(60) == 5


def test_no_simulation_stays_behind(tmp_path: Path) -> None:
    """It ends with the command, however that ends."""
    (tmp_path / "script.py").write_text("import os, time; print(os.getpid(), flush=True)\n"
                                        "time.sleep(600)\n")  # fmt: skip
    words = [*COMMAND, "pyverbs", "--cards", "1", "script.py"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        simulation = int(process.stdout.readline())
        process.kill()
    until = time.monotonic() + 60
    while Path(f"/proc/{simulation}/cmdline").exists() and time.monotonic() < until:
        if not Path(f"/proc/{simulation}/cmdline").read_bytes():
            break  # it has ended, and nobody has asked how
        time.sleep(0.1)
    else:
        assert time.monotonic() < until, "the simulation goes on"


def test_how_a_script_ends(tmp_path: Path) -> None:
    assert script("import sys; print(sys.argv[1:]); sys.exit(7)", tmp_path, "a", "-b", status=7)
    (tmp_path / "script.py").write_text("1 / 0\n")
    done = command("pyverbs", str(tmp_path / "script.py"), folder=tmp_path)
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
    assert command("pyverbs", "nowhere.py", folder=tmp_path).returncode == 2


def test_xrc_domains_and_queues(tmp_path: Path) -> None:
    """Two receive queues of a domain that a file names: each gets what names it. Handles of one
    file share the domain, and it ends with the last of them."""
    said = script(
        PAIR
        + """
import os, tempfile
from pyverbs.qp import QPInitAttrEx
from pyverbs.srq import SrqInitAttrEx
from pyverbs.xrcd import XRCD, XRCDInitAttr

file = tempfile.NamedTemporaryFile()
BOTH = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS
refused(XRCD, ctx, XRCDInitAttr(BOTH, 0, file.fileno()))
refused(XRCD, ctx, XRCDInitAttr(BOTH, os.O_CREAT, 999))
domain = XRCD(ctx, XRCDInitAttr(BOTH, os.O_CREAT, file.fileno()))
refused(XRCD, ctx, XRCDInitAttr(BOTH, os.O_CREAT | os.O_EXCL, file.fileno()))
same = XRCD(ctx, XRCDInitAttr(BOTH, 0, file.fileno()))
other = XRCD(ctx, XRCDInitAttr(BOTH, 0, -1))
print(domain.guest is same.guest, domain.guest is other.guest)
same.close()

ALL |= e.IBV_ACCESS_REMOTE_ATOMIC
mr, sends = MR(pd, 4096, ALL), CQ(ctx, 16)
cqs = [CQ(ctx, 16) for _ in range(2)]


def queue(cq):
    attr = SrqInitAttrEx(max_wr=8)
    attr.srq_type, attr.pd, attr.xrcd, attr.cq = e.IBV_SRQT_XRC, pd, domain, cq
    attr.comp_mask = (e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD
                      | e.IBV_SRQ_INIT_ATTR_XRCD | e.IBV_SRQ_INIT_ATTR_CQ)
    return SRQ(ctx, attr)


queues = [queue(cq) for cq in cqs]
target = QP(ctx, QPInitAttrEx(e.IBV_QPT_XRC_RECV, comp_mask=e.IBV_QP_INIT_ATTR_XRCD, xrcd=domain))
source = QP(ctx, QPInitAttrEx(e.IBV_QPT_XRC_SEND, scq=sends, pd=pd, sq_sig_all=1,
                              cap=QPCap(max_send_wr=8, max_recv_wr=0, max_recv_sge=0),
                              comp_mask=e.IBV_QP_INIT_ATTR_PD))
for qp, peer in ((target, source), (source, target)):
    attr = QPAttr()
    attr.qp_access_flags, attr.dest_qp_num = ALL, peer.qp_num
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
    attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=ctx.query_gid(1, 0), sgid_index=0))
    qp.to_rts(attr)
for number, srq in enumerate(queues):
    srq.post_recv(RecvWR(10 + number, 1, [SGE(mr.buf + 1024 * (1 + number), 64, mr.lkey)]))
for number in (1, 0):
    mr.write(bytes([65 + number]) * 64, 64)
    wr = SendWR(number, num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)])
    wr.set_qp_type_xrc(queues[number].get_srq_num())
    source.post_send(wr)
    done, got = wait(sends), wait(cqs[number])
    print(done.wr_id, done.status, got.wr_id, got.qp_num == target.qp_num,
          mr.read(64, 1024 * (1 + number)) == bytes([65 + number]) * 64)
refused(target.post_send, wr)
refused(source.post_recv, RecvWR(1, 1, [SGE(mr.buf, 64, mr.lkey)]))
domain.close()
XRCD(ctx, XRCDInitAttr(BOTH, os.O_CREAT | os.O_EXCL, file.fileno()))
""",
        tmp_path,
    )
    assert [line.split(".")[0] for line in said.splitlines()] == [
        "PyverbsRDMAError 11 Failed to allocate XRCD",
        "PyverbsRDMAError 9 Failed to allocate XRCD",
        "PyverbsRDMAError 22 Failed to allocate XRCD",
        "True False",
        "1 0 11 True True",
        "0 0 10 True True",
        "PyverbsRDMAError 22 Failed to post send",
        "PyverbsRDMAError 22 Failed to post recv",
    ]


def test_requests_that_take_several_packets(tmp_path: Path) -> None:
    """By the names of the proposal to libibverbs: of a queue pair's own receive queue, and of a
    shared one. Both tell sizes that are rounded up; a completion queue must tell where packets
    lie."""
    said = script(
        PAIR
        + """
from pyverbs.mp_wr import *
from pyverbs.qp import QPInitAttrEx
from pyverbs.srq import SrqInitAttrEx

caps = ctx.query_device_ex().mp_wr_caps
print(caps.max_wr_buffer_sz, caps.max_packet_align_sz)
mr, sends = MR(pd, 1 << 16, ALL), CQ(ctx, 16)
cq = CQEX(ctx, CqInitAttrEx(cqe=256, wc_flags=IBV_WC_EX_WITH_MP_WR))
pieces = MpWrAttr(5000, 100)
shared = SrqInitAttrEx(max_wr=8)
shared.pd, shared.srq_type, shared.mp_wr = pd, e.IBV_SRQT_BASIC, pieces
shared.comp_mask = e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_MP_WR
srq = SRQ(ctx, shared)
print(pieces.wr_buffer_sz, pieces.packet_align_sz)


def receiver(rcq, **more):
    cap = QPCap(max_send_wr=8, max_recv_wr=0 if "srq" in more else 8)
    mask = e.IBV_QP_INIT_ATTR_PD | (IBV_QP_INIT_ATTR_MP_WR if "mp_wr" in more else 0)
    return QP(ctx, QPInitAttrEx(e.IBV_QPT_RC, scq=sends, rcq=rcq, cap=cap, pd=pd,
                                comp_mask=mask, **more))


refused(receiver, sends, mp_wr=MpWrAttr(4096, 1024))
refused(receiver, cq, mp_wr=MpWrAttr(1 << 30, 64))
refused(receiver, cq, mp_wr=None)
refused(receiver, cq, mp_wr=MpWrAttr(4096, 64), srq=srq)
data = bytes(n % 251 for n in range(6000))
mr.write(data, 6000)
for target in (receiver(cq, mp_wr=MpWrAttr(4096, 1024)), receiver(cq, srq=srq)):
    source = QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=sends, rcq=sends, cap=QPCap(max_send_wr=8)))
    for qp, peer in ((target, source), (source, target)):
        attr = QPAttr(path_mtu=e.IBV_MTU_1024)
        attr.qp_access_flags, attr.dest_qp_num = ALL, peer.qp_num
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=ctx.query_gid(1, 0), sgid_index=0))
        qp.to_rts(attr)
    queue, size = (srq, 5120) if target.srq else (target, 4096)
    for n in range(2):
        queue.post_recv(RecvWR(n, 1, [SGE(mr.buf + 16384 + 8192 * n, size, mr.lkey)]))
    source.post_send(SendWR(9, num_sge=1, sg=[SGE(mr.buf, 6000, mr.lkey)],
                            send_flags=e.IBV_SEND_SIGNALED))
    print(wait(sends).status)
    for _ in range(6):
        while cq.start_poll():
            pass
        print(cq.wr_id, cq.status, cq.read_mp_wr_offset(), cq.read_byte_len(),
              cq.read_wc_flags(), cq.read_qp_num() == target.qp_num)
        cq.end_poll()
    print(mr.read(size, 16384) + mr.read(6000 - size, 16384 + 8192) == data)
""",
        tmp_path,
    )
    more, consumed = 1 << 7, 1 << 8
    lines = [line.split(".")[0] for line in said.splitlines()]
    refusals, told = lines[2:6], lines[6:]
    assert lines[:2] == [f"{16 << 20} 4096", "5120 128"]
    assert refusals == ["PyverbsRDMAError 22 Failed to create QP"] * 4
    for size in (4096, 5120):
        pieces = [(n * 1024 // size, n * 1024 % size, min(1024, 6000 - n * 1024)) for n in range(6)]
        found, told = told[:8], told[8:]
        assert (found[0], found[-1]) == ("0", "True")
        for (wr, place, octets), line in zip(pieces, found[1:-1], strict=True):
            flags = more * (octets == 1024) | consumed * (place + 1024 == size)
            assert line == f"{wr} 0 {place} {octets} {flags} True"
    assert not told
