"""Queues get another size: what is refused, and what QUERY says afterwards."""

import dataclasses

import pytest

from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpState as S
from hdl.abi.enums import RdmaFeature, SrqAttrMask
from hdl.csr.map import row_map
from hdl.host.virtio_common import offered_features
from tests.firmware.fake_hardware import CONFIG
from tests.firmware.test_qp import QpBench

BOTH = RdmaFeature.RESIZE.mask | RdmaFeature.SRQ.mask
SIZE = SrqAttrMask.MAX_WR


class ResizeBench(QpBench):
    """With a QP and an SRQ, whose virtqueues have 16 entries each."""

    def __init__(self, **options):
        super().__init__(**options)
        self.hardware.features = BOTH
        self.srqn = self.ok(X.CREATE_SRQ, pdn=0, max_wr=8, max_sge=2).srqn
        row = row_map("queue").pack({"enabled": 1, "size_log2": 4})
        for queue in range(CONFIG.queues):
            self.hardware.rows["queue"][queue] = row

    def sizes(self):
        attr = self.ok(C.QUERY_QP, qpn=self.qpn).attr
        return attr.cap.max_send_wr, attr.cap.max_recv_wr


@pytest.mark.parametrize("command", [X.RESIZE_CQ, X.RESIZE_QP])
def test_unknown_without_the_feature(command):
    bench = QpBench()
    bench.hardware.features = RdmaFeature.SRQ.mask
    fields = {"cqn": 0, "cqe": 1} if command == X.RESIZE_CQ else {"qpn": bench.qpn}
    assert bench.err(command, **fields) == f"unknown command {command.value}"


@pytest.mark.parametrize("state", [S.RESET, S.RTS, S.ERR])
def test_what_can_be(state):
    bench = ResizeBench(state=state)
    for size in (1, 16):
        bench.ok(X.RESIZE_CQ, cqn=1, cqe=size)
        bench.ok(X.RESIZE_QP, qpn=bench.qpn, max_send_wr=size, max_recv_wr=17 - size)
        assert bench.sizes() == (size, 17 - size)
        bench.ok(X.MODIFY_SRQ, srqn=bench.srqn, attr_mask=SIZE, max_wr=size)
        assert bench.ok(X.QUERY_SRQ, srqn=bench.srqn).max_wr == size
    bench.ok(X.RESIZE_QP, qpn=bench.qpn)
    assert bench.sizes() == (0, 0)


def test_what_cannot_be():
    bench = ResizeBench()
    qp, srq = {"qpn": bench.qpn}, {"srqn": bench.srqn, "attr_mask": SIZE}
    for command, fields, reason in (
        (X.RESIZE_CQ, {"cqn": 5, "cqe": 4}, "No CQ"),
        (X.RESIZE_CQ, {"cqn": 0, "cqe": 0}, "max_cqe"),
        (X.RESIZE_CQ, {"cqn": 0, "cqe": 17}, "a ring with 16"),
        (X.RESIZE_CQ, {"cqn": 0, "cqe": CONFIG.queue_size + 1}, "max_cqe"),
        (X.RESIZE_CQ, {"cqn": 0, "cqe": 4, "reserved": [0, 1]}, "reserved"),
        (X.RESIZE_QP, {"qpn": 7}, "No QP"),
        (X.RESIZE_QP, qp | {"max_send_wr": 17}, "a ring with 16"),
        (X.RESIZE_QP, qp | {"max_recv_wr": 17}, "a ring with 16"),
        (X.RESIZE_QP, qp | {"max_recv_wr": CONFIG.queue_size + 1}, "max_qp_wr"),
        (X.RESIZE_QP, qp | {"reserved": [1]}, "reserved"),
        (X.MODIFY_SRQ, srq | {"max_wr": 0}, "max_srq_wr"),
        (X.MODIFY_SRQ, srq | {"max_wr": 17}, "a ring with 16"),
    ):
        assert reason in bench.err(command, **fields)
    bench.qpn = bench.create(srqn=bench.srqn, max_recv_wr=0)
    assert "SRQ" in bench.err(X.RESIZE_QP, qpn=bench.qpn, max_send_wr=4, max_recv_wr=1)
    bench.ok(X.RESIZE_QP, qpn=bench.qpn, max_send_wr=4)


def test_a_virtqueue_that_is_not_enabled_has_any_size():
    bench = ResizeBench()
    bench.hardware.rows["queue"].clear()
    bench.ok(X.RESIZE_CQ, cqn=0, cqe=CONFIG.queue_size)


def test_both_attributes_of_an_srq_or_none():
    """A limit above the new size is refused, and so is a size below the limit."""
    bench = ResizeBench()
    bench.hardware.features = BOTH | RdmaFeature.EVENTS.mask
    both = {"srqn": bench.srqn, "attr_mask": SIZE | SrqAttrMask.LIMIT}
    assert "srq_limit 5 of 4" in bench.err(X.MODIFY_SRQ, max_wr=4, srq_limit=5, **both)
    bench.ok(X.MODIFY_SRQ, max_wr=4, srq_limit=4, **both)
    assert "srq_limit 4 of 3" in bench.err(X.MODIFY_SRQ, srqn=bench.srqn, attr_mask=SIZE, max_wr=3)
    assert dict(bench.ok(X.QUERY_SRQ, srqn=bench.srqn)) == {
        "max_wr": 4,
        "max_sge": 2,
        "srq_limit": 4,
    }


def test_a_card_without_offers_nothing():
    without = dataclasses.replace(CONFIG, resize=False)
    assert offered_features(CONFIG) ^ offered_features(without) == RdmaFeature.RESIZE.mask
