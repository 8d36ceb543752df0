"""Several functions on one card: what one of them does stays among its own rows."""

import asyncio

import pytest

from firmware.device import Request
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import RdmaFeature
from hdl.config import NicConfig
from tests.firmware.fake_hardware import Bench
from tests.firmware.test_commands import region

CONFIG = NicConfig(qps=32, cqs=16, mrs=64, gids=8, functions=2)
GUEST = CONFIG.guest


@pytest.fixture
def bench() -> Bench:
    return Bench(config=CONFIG)


def populate(bench: Bench, gid: bytes) -> int:
    """One object of each kind, and a QP in INIT; returns its number."""
    assert bench.ok(C.CREATE_PD).pdn == 0
    assert bench.ok(C.CREATE_CQ, cqe=4).cqn == 0
    assert bench.ok(C.REG_USER_MR, **region()).mrn == 0
    bench.ok(C.ADD_GID, gid=gid, gid_type=2, index=1, port_num=1)
    qpn = bench.ok(C.CREATE_QP, qp_type=2).qpn
    attrs = {"qp_state": S.INIT, "port_num": 1}
    mask = M.STATE | M.PKEY_INDEX | M.PORT | M.ACCESS_FLAGS
    bench.ok(C.MODIFY_QP, qpn=qpn, attr_mask=mask, attrs=attrs)
    return int(qpn)


def test_same_numbers_in_every_function(bench):
    """Each function numbers its objects from 0; the rows of the second lie behind the first's."""
    first, second = bench.firmware.functions
    qpns = []
    for function, gid in ((first, b"\1" * 16), (second, b"\2" * 16)):
        bench.function = function
        qpns.append(populate(bench, gid))
    assert qpns[0] == qpns[1] == 2
    row = bench.hardware.row
    for ordinal in (0, 1):
        qp = row("qp_cfg", ordinal * GUEST.qps + 2)
        assert qp["function"] == 1 + ordinal and qp["qpn"] == 2
        assert qp.get("send_cq", 0) == qp.get("recv_cq", 0) == ordinal * GUEST.cqs
        assert qp["source.number"] == ordinal * GUEST.qps + 2
        assert qp.get("av.sgid_index", 0) == ordinal * GUEST.gids
        assert row("mr", ordinal * GUEST.mrs)["function"] == 1 + ordinal
        assert row("gid", ordinal * GUEST.gids + 1)["function"] == 1 + ordinal


def test_handles_of_another_function(bench):
    """What one function has created is nothing to the other."""
    populate(bench, b"\1" * 16)
    bench.function = bench.firmware.functions[1]
    for command, fields in (
        (C.DESTROY_PD, dict(pdn=0)),
        (C.DESTROY_CQ, dict(cqn=0)),
        (C.REQ_NOTIFY_CQ, dict(cqn=0, flags=2)),
        (C.DEREG_MR, dict(mrn=0)),
        (C.REG_USER_MR, region()),
        (C.GET_DMA_MR, dict(pdn=0)),
        (C.CREATE_QP, dict(qp_type=2)),
        (C.QUERY_QP, dict(qpn=2)),
        (C.DESTROY_QP, dict(qpn=2)),
    ):
        assert bench.err(command, **fields).startswith("No "), command
    taken = dict(gid=b"\1" * 16, gid_type=2, index=0, port_num=1)
    assert bench.err(C.ADD_GID, **taken) == "another function has the GID"
    bench.ok(C.DEL_GID, index=1, port=1)  # its own entry 1, which is empty
    assert bench.hardware.row("gid", 1)["gid"] == int.from_bytes(b"\1" * 16, "little")


def test_groups_of_one_address(bench):
    """Each function has its own row of a group, with its own members; a reset takes one away."""
    group, features = b"\xff\x02" + bytes(14), RdmaFeature.MCAST.mask
    bench.hardware.features = features
    qpns = []
    for function, gid in zip(bench.firmware.functions, (b"\1" * 16, b"\2" * 16), strict=True):
        bench.function = function
        populate(bench, gid)
        qpns.append(bench.ok(C.CREATE_QP, qp_type=4).qpn)
        bench.ok(X.ATTACH_MCAST, qpn=qpns[-1], gid=group)
        assert "All 16 multicast groups" in fill(bench, qpns[-1])
    for ordinal, qpn in enumerate(qpns):
        row = bench.hardware.row("group", ordinal * GUEST.groups)
        assert row["member0"] == qpn and "member1" not in row
    second = bench.firmware.functions[1]
    bench.hardware.waiting.add(second.number)
    assert bench.settle()
    rows = [bool(bench.hardware.row("group", n)) for n in range(CONFIG.groups)]
    assert rows == [True] * GUEST.groups + [False] * GUEST.groups


def fill(bench, qpn: int) -> str:
    """All groups that are left get a member; why there are no more."""
    for number in range(1, GUEST.groups):
        bench.ok(X.ATTACH_MCAST, qpn=qpn, gid=b"\xff\x05" + bytes([number] * 14))
    return str(bench.err(X.ATTACH_MCAST, qpn=qpn, gid=b"\xff" * 16))


def test_all_of_a_share(bench):
    """A function has its share and no more, and none of it is taken from another."""
    for function in bench.firmware.functions:
        bench.function = function
        cqns = [bench.ok(C.CREATE_CQ, cqe=1).cqn for _ in range(GUEST.cqs)]
        assert cqns == list(range(GUEST.cqs))
        assert "in use" in bench.err(C.CREATE_CQ, cqe=1)


def test_reset_of_one(bench):
    """All of the one is taken back before its reset ends, nothing of the other."""
    first, second = bench.firmware.functions
    for function, gid in ((first, b"\1" * 16), (second, b"\2" * 16)):
        bench.function = function
        populate(bench, gid)
        gone = bench.ok(C.CREATE_QP, qp_type=2).qpn  # of which only its counters will be left
        bench.ok(C.DESTROY_QP, qpn=gone)
    hardware = bench.hardware
    before = hardware.state()
    enabled = [0, GUEST.cq_queue(0), GUEST.sq_queue(2), GUEST.rq_queue(2)]
    numbers = [(1 << CONFIG.number_bits["queues"]) + queue for queue in enabled]
    for queue in (*enabled, *numbers):
        asyncio.run(hardware.write_row("queue", queue, {"enabled": 1}))
    hardware.log.clear()
    hardware.waiting.add(second.number)
    hardware.inbox.append(Request(second.number, bytes([C.CREATE_PD]), 1, 100))
    assert bench.settle()
    assert hardware.outbox.pop() == b"", "a request from before the reset gets no answer"
    assert not hardware.waiting and hardware.log[-1] == ("reset_done", 2)
    restarted = [what[1] for what in hardware.log if what[0] == "restart_queue"]
    assert restarted == numbers
    assert ("drop", GUEST.qps + 2) in hardware.log and ("invalidate", GUEST.mrs) in hardware.log
    cleared = [what[1] for what in hardware.log if what[0] == "clear_counters"]
    assert cleared == [GUEST.qps + 2, GUEST.qps + abi.qp_index(gone, GUEST.qps)]
    assert ("drop", 2) not in hardware.log and ("invalidate", 0) not in hardware.log
    for table, index in (("qp_cfg", GUEST.qps + 2), ("mr", GUEST.mrs), ("gid", GUEST.gids + 1)):
        assert not hardware.row(table, index)
    shares = {"qp_cfg": GUEST.qps, "mr": GUEST.mrs, "gid": GUEST.gids, "cq": GUEST.cqs}
    kept = {key: row for key, row in before.items() if key[1] < shares.get(key[0], 0)}
    assert kept and all(hardware.state()[key] == row for key, row in kept.items())
    bench.function = second
    assert populate(bench, b"\2" * 16) != 2, "late packets of before do not fit"
