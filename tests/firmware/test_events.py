"""Asynchronous events: what the firmware notices, and what it writes to the event queue."""

import dataclasses

import pytest

from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import EventType as E
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from hdl.abi.enums import RdmaFeature, SrqAttrMask
from hdl.csr.map import row_map
from hdl.wire.constants import mapped_gid
from tests.firmware.fake_hardware import CONFIG, finish
from tests.firmware.test_qp import QpBench

BOTH = RdmaFeature.EVENTS.mask | RdmaFeature.SRQ.mask


class EventBench(QpBench):
    """With a driver that has negotiated events. ``told`` gives those that have come since."""

    def __init__(self, *args, features=BOTH, **options):
        self.features = features
        super().__init__(*args, **options)
        self.told()

    def ok(self, command, /, **fields):
        self.hardware.features = self.features
        return super().ok(command, **fields)

    def told(self, steps=8):
        for _ in range(steps):
            assert not finish(self.firmware.step())
        events = [(E(one.event), one.number, one.index, one.lost) for _, one in self.events()]
        self.hardware.events.clear()
        return events

    def events(self):
        assert all(queue == CONFIG.event_queue for queue, _ in self.hardware.events)
        return self.hardware.events

    def set(self, table, index, **fields):
        """What the hardware does to a row."""
        row = finish(self.hardware.read_row(table, index))
        self.hardware.rows[table][index] = row_map(table).pack(row | fields)

    def srq(self, **fields):
        return self.ok(X.CREATE_SRQ, **{"pdn": 0, "max_wr": 8, "max_sge": 1} | fields).srqn


def test_nothing_without_the_feature():
    bench = EventBench(state=S.RTS, features=RdmaFeature.SRQ.mask)
    bench.stop_sending("qp_rx")
    bench.function.set_pkey(3, 0x8001)
    bench.hardware.link = False
    assert bench.told() == []
    sqd = dict(attr_mask=M.STATE | M.EN_SQD_ASYNC_NOTIFY)
    fine = EventBench(state=S.RTS, features=0)
    attrs = dict(qp_state=S.SQD, en_sqd_async_notify=1)
    assert "no events" in fine.err(C.MODIFY_QP, qpn=fine.qpn, attrs=attrs, **sqd)


def test_nothing_on_a_card_without():
    config = dataclasses.replace(CONFIG, events=False)
    bench = EventBench(state=S.RTS, config=config)
    bench.stop_sending("qp_rx")
    assert not bench.told()


@pytest.mark.parametrize("table", ["qp_rx", "qp_ack", "qp_tx"])
def test_qp_fatal(table):
    """Once, with the queue pair's number; again in its next life."""
    bench = EventBench(state=S.RTS)
    assert bench.told() == []
    for _ in range(2):
        bench.stop_sending(table)
        assert bench.told() == [(E.QP_FATAL, bench.qpn, 0, 0)]
        assert bench.told() == []
        for state in (S.RESET, S.INIT, S.RTR, S.RTS):
            bench.go(state)


def test_sqe_and_err_by_the_driver_are_no_events():
    bench = EventBench(T.UC, state=S.RTS)
    bench.stop_sending("qp_ack")
    assert bench.told() == []
    bench.go(S.ERR)
    assert bench.told() == []


def test_cq_error():
    """An overflow stops a QP; the queue is named before it, once for all its queue pairs."""
    bench = EventBench(state=S.RTS)
    bench.set("cq", 1, error=1)
    bench.stop_sending("qp_rx")
    assert bench.told() == [(E.CQ_ERR, 1, 0, 0), (E.QP_FATAL, bench.qpn, 0, 0)]
    bench.qpn = bench.create()
    bench.pair = bench.qpn % 16
    for state in (S.INIT, S.RTR, S.RTS):
        bench.go(state)
    bench.stop_sending("qp_rx")
    assert bench.told() == [(E.QP_FATAL, bench.qpn, 0, 0)]


def test_sq_drained():
    """When the WQEs that have begun have ended; only for the transition that asks for it."""
    bench = EventBench(state=S.RTS)
    bench.set("qp_tx", bench.pair, high=7)
    bench.set("qp_ack", bench.pair, position=4)
    mask = M.STATE | M.EN_SQD_ASYNC_NOTIFY
    bench.go(S.SQD, mask, en_sqd_async_notify=1)
    assert ("drain",) in bench.hardware.log
    assert bench.told() == []
    bench.set("qp_ack", bench.pair, position=7)
    assert bench.told() == [(E.SQ_DRAINED, bench.qpn, 0, 0)]
    assert bench.told() == []
    bench.go(S.RTS, M.STATE)
    bench.go(S.SQD, M.STATE)
    assert bench.told() == []
    bench.go(S.RTS, M.STATE)
    bench.set("qp_tx", bench.pair, high=9)
    bench.go(S.SQD, mask, en_sqd_async_notify=1)
    bench.go(S.RTS, M.STATE)
    bench.set("qp_ack", bench.pair, position=9)
    assert bench.told() == [], "it has left SQD before"


@pytest.mark.parametrize("by_driver", [False, True])
def test_last_wqe_reached(by_driver):
    """A queue pair of a shared receive queue is in ERR and holds none of its WQEs any more."""
    bench = EventBench()
    bench.qpn = bench.create(srqn=bench.srq(), max_recv_wr=0)
    bench.pair = bench.qpn % 16
    for state in (S.INIT, S.RTR, S.RTS):
        bench.go(state)
    bench.set("qp_rx", bench.pair, message=1, error=int(not by_driver))
    if by_driver:
        bench.go(S.ERR)
    fatal = [] if by_driver else [(E.QP_FATAL, bench.qpn, 0, 0)]
    assert bench.told() == fatal
    bench.set("qp_rx", bench.pair, message=0, held=1)
    assert bench.told() == []
    bench.set("qp_rx", bench.pair, message=0, held=0)
    assert bench.told() == [(E.QP_LAST_WQE_REACHED, bench.qpn, 0, 0)]
    assert bench.told() == []


@pytest.mark.parametrize("start", [0, 0xFFFC])
def test_srq_limit(start):
    """Fewer requests than the limit are left: one event, and the limit is gone. Armed again it
    comes again. Both indices wrap."""
    bench = EventBench()
    srqn = bench.srq(srq_limit=3)
    queue = CONFIG.rq_queue(srqn)
    bench.hardware.rows["used"][queue] = row_map("used").pack({"value": start})
    bench.hardware.available[queue] = (start + 3) & 0xFFFF
    assert bench.told() == []
    assert bench.ok(X.QUERY_SRQ, srqn=srqn).srq_limit == 3
    bench.hardware.rows["used"][queue] = row_map("used").pack({"value": (start + 1) & 0xFFFF})
    assert bench.told() == [(E.SRQ_LIMIT_REACHED, srqn, 0, 0)]
    assert bench.told() == [] and bench.ok(X.QUERY_SRQ, srqn=srqn).srq_limit == 0
    bench.ok(X.MODIFY_SRQ, srqn=srqn, attr_mask=SrqAttrMask.LIMIT, srq_limit=2)
    assert bench.told() == []
    bench.ok(X.MODIFY_SRQ, srqn=srqn, attr_mask=SrqAttrMask.LIMIT, srq_limit=8)
    bench.hardware.slow = 2
    assert bench.told() == [(E.SRQ_LIMIT_REACHED, srqn, 0, 0)]
    modify = {"srqn": srqn, "attr_mask": SrqAttrMask.LIMIT}
    assert "srq_limit 9 of 8" in bench.err(X.MODIFY_SRQ, srq_limit=9, **modify)


def test_srq_that_is_gone():
    """Its avail index comes when it does not exist any more."""
    bench = EventBench()
    srqn = bench.srq(srq_limit=3)
    bench.hardware.slow = 3
    assert bench.told(1) == []
    assert bench.hardware.posting is not None
    bench.ok(X.DESTROY_SRQ, srqn=srqn)
    assert bench.told() == []


def test_port_and_tables():
    bench = EventBench()
    for up, event in ((False, E.PORT_ERR), (True, E.PORT_ACTIVE)):
        bench.hardware.link = up
        finish(bench.firmware.step())
        finish(bench.firmware.step())
        assert [one.port_num for _, one in bench.events()] == [1]
        assert bench.told() == [(event, 0, 0, 0)]
    bench.function.set_pkey(3, 0x8001)
    assert bench.told() == [(E.PKEY_CHANGE, 0, 3, 0)]
    bench.ok(C.ADD_GID, gid=mapped_gid(b"\x0a\0\0\3"), gid_type=2, index=2, port_num=1)
    bench.ok(C.DEL_GID, index=2, port=1)
    bench.ok(C.DEL_GID, index=2, port=1)  # there was none
    assert bench.told() == [(E.GID_CHANGE, 0, 2, 0)] * 2


def test_lost_events_are_told():
    """Without a buffer an event is lost; the next one says how many were."""
    bench = EventBench()
    bench.hardware.buffers = 1
    for index in (1, 2, 3, 4):
        bench.function.set_pkey(index, 0x8001)
    assert bench.told(20) == [(E.PKEY_CHANGE, 0, 1, 0)]
    bench.hardware.buffers = 9
    for index in (5, 6):
        bench.function.set_pkey(index, 0x8001)
    assert bench.told() == [(E.PKEY_CHANGE, 0, 5, 3), (E.PKEY_CHANGE, 0, 6, 0)]


def test_waits_for_the_hardware():
    """An event is begun and not waited for, as the hardware may wait for a response; requests are
    answered meanwhile. Events keep their order."""
    bench = EventBench()
    bench.hardware.slow = 30
    for index in (1, 2):
        bench.function.set_pkey(index, 0x8001)
    for _ in range(5):
        bench.ok(C.QUERY_PORT, port=1)
    assert bench.told(1) == [] and bench.hardware.posting is not None
    bench.hardware.slow = 0
    assert bench.told() == [(E.PKEY_CHANGE, 0, 1, 0), (E.PKEY_CHANGE, 0, 2, 0)]


def test_reset_forgets_events():
    """What is under way at a device reset is not counted for the next driver, which must negotiate
    events itself."""
    bench = EventBench()
    bench.hardware.buffers = 0
    for index in (1, 2, 3):
        bench.function.set_pkey(index, 0x8001)
    finish(bench.firmware.step())
    bench.hardware.slow = 1
    finish(bench.firmware.step())
    assert bench.hardware.posting is not None
    bench.hardware.resets_seen += 1
    assert finish(bench.firmware.step())
    bench.function.set_pkey(4, 0x8001)
    assert bench.told() == [] and bench.hardware.posting is None
    bench.hardware.buffers = 9
    bench.ok(C.QUERY_PORT, port=1)
    bench.function.set_pkey(5, 0x8001)
    assert bench.told() == [(E.PKEY_CHANGE, 0, 5, 0)]
