"""MODIFY_QP: every value at its edge."""

import itertools

import pytest

from firmware.qp import udp_source_port
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.config import NicConfig
from tests.firmware.test_qp import AH, QpBench


def test_current_state():
    bench = QpBench(state=S.RTS)
    mask = M.STATE | M.CUR_STATE
    bench.modify(mask, qp_state=S.RTS, cur_qp_state=S.RTS)
    for claim in (S.RTR, S.SQD, S.SQE, S.ERR, 9):
        assert "but the QP is in RTS" in bench.refuse(mask, qp_state=S.RTS, cur_qp_state=claim)
    assert "qp_state 7 does not exist" in bench.refuse(M.STATE, qp_state=7)


@pytest.mark.parametrize(
    ("start", "name", "good", "bad"),
    [
        (S.RESET, "pkey_index", [0], [16, 65535]),
        (S.RESET, "port_num", [1], [0, 2, 255]),
        (S.INIT, "path_mtu", [1, 5], [0, 6, 255]),
        (S.INIT, "dest_qp_num", [0, 0xFFFFFF], [1 << 24, (1 << 32) - 1]),
        (S.INIT, "rq_psn", [0, 0xFFFFFF], [1 << 24]),
        (S.INIT, "max_dest_rd_atomic", [0, 1, 16], [17, 255]),
        (S.INIT, "min_rnr_timer", [0, 31], [32, 255]),
        (S.RTR, "sq_psn", [0, 0xFFFFFF], [1 << 24]),
        (S.RTR, "timeout", [0, 31], [32]),
        (S.RTR, "retry_cnt", [0, 7], [8]),
        (S.RTR, "rnr_retry", [0, 7], [8]),
        (S.RTR, "max_rd_atomic", [0, 16], [17]),
    ],
)
def test_values(start, name, good, bad):
    end = {S.RESET: S.INIT, S.INIT: S.RTR, S.RTR: S.RTS}[start]
    for value in good:
        bench = QpBench(state=start)
        bench.go(end, **{name: value})
        assert bench.query()[name] == value
    bench = QpBench(state=start)
    for value in bad:
        assert f"{name} cannot be {value}" in bench.refuse(
            bench.mask(end), qp_state=end, **{name: value}
        )


def test_smaller_port_mtu():
    config = NicConfig(qps=16, cqs=8, mrs=32, gids=4, mtu=1024)
    bench = QpBench(state=S.INIT, config=config)
    assert "path_mtu cannot be 4" in bench.refuse(bench.mask(S.RTR), qp_state=S.RTR, path_mtu=4)
    bench.go(S.RTR)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ah_flags": 0}, "needs a global route"),
        ({"port_num": 0}, "port_num cannot be 0"),
        ({"port_num": 2}, "port_num cannot be 2"),
        ({"sl": 8}, "sl cannot be 8"),
        ({"grh": {"sgid_index": 0}}, "sgid_index 0 has no GID"),
        ({"grh": {"sgid_index": 255}}, "sgid_index 255 has no GID"),
        ({"grh": {"flow_label": 1 << 20}}, "flow_label cannot be 0x100000"),
        ({"grh": {"dgid": bytes(16)}}, "dgid is zero"),
        ({"grh": {"dgid": bytes(15) + b"\1"}}, "dgid is of another address family"),
        ({"grh": {"dgid": b"\xfe\x80" + bytes(13) + b"\1"}}, "dgid is of another address family"),
    ],
)
def test_addresses_refused(change, reason):
    bench = QpBench(state=S.INIT)
    ah = AH | change | {"grh": AH["grh"] | change.get("grh", {})}
    assert reason in bench.refuse(bench.mask(S.RTR), qp_state=S.RTR, ah_attr=ah)


def test_other_values():
    bench = QpBench(state=S.INIT)
    bench.modify(M.ACCESS_FLAGS, qp_access_flags=0xFFFFFF00 | 2)  # unknown bits are ignored
    assert bench.query().qp_access_flags & 0x1FF == 2
    bench = QpBench(state=S.RTS)
    bench.modify(M.PATH_MIG_STATE, path_mig_state=0)
    assert "path_mig_state" in bench.refuse(M.PATH_MIG_STATE, path_mig_state=1)
    mask = M.STATE | M.EN_SQD_ASYNC_NOTIFY
    assert "en_sqd" in bench.refuse(mask, qp_state=S.SQD, en_sqd_async_notify=1)


def test_source_port():
    for qpn, dest, label in itertools.product((2, 17, 0xFFFFFF), (1, 0xABCDEF), (0, 1, 0xFFFFF)):
        port = udp_source_port(qpn, dest, label)
        assert 0xC000 <= port <= 0xFFFF
        assert label or port == udp_source_port(dest, qpn, 0)
    assert udp_source_port(1, 1, 0x12345) == 0xC000 | (0x2345 ^ 0x4)


def test_reserved_fields_are_ignored():
    """The reserved bytes of CREATE_QP, fields of extensions that were not negotiated among
    them, and outputs that a driver writes (VR-3.24, VR-3.29)."""
    bench = QpBench()
    reserved = {"dc_key": (1 << 64) - 1, "reserved": b"\xff" * 7}
    reserved |= {"log_streams": 0xFF, "log_errored": 0xFF, "create_flags": 0xFFFF}
    reserved |= {"mp_wr_buffer": 0xFFFFFFFF, "mp_wr_align_log2": 0xFF}
    bench.qpn = bench.create(srqn=0xFFFFFFFF, xrcdn=0xFFFFFFFF, **reserved)
    bench.go(S.INIT, sq_draining=1, alt_port_num=9, alt_timeout=99)
    attr = bench.query()
    assert (attr.qp_state, attr.sq_draining, attr.alt_port_num) == (S.INIT, 0, 0)
