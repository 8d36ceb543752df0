"""Virtqueues that the card has found broken: the objects that use them, and nobody else's."""

from dataclasses import replace

import pytest

from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import EventType as E
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from hdl.abi.enums import RdmaFeature
from tests.firmware.fake_hardware import CONFIG, finish
from tests.firmware.fake_hardware import Bench as Bare
from tests.firmware.test_events import EventBench

FEATURES = RdmaFeature.EVENTS.mask | RdmaFeature.SRQ.mask | RdmaFeature.QUEUE_ERROR.mask


class Bench(EventBench):
    """A QP in RTS with CQs 0 and 1, and others beside it."""

    def __init__(self, **options):
        super().__init__(state=S.RTS, features=FEATURES, **options)

    def another(self, state=S.RTS, **fields):
        """One more QP, in ``state``; its number."""
        qpn, pair = self.qpn, self.pair
        self.qpn = self.create(**fields)
        self.pair = self.qpn % CONFIG.qps
        for step in (S.INIT, S.RTR, S.RTS):
            if state >= step:
                self.go(step)
        made, (self.qpn, self.pair) = self.qpn, (qpn, pair)
        return made

    def breaks(self, queue):
        """The card finds a virtqueue broken; the events that follow."""
        self.hardware.broken.append(queue)
        self.settle()
        assert not self.hardware.broken
        return self.told()

    def state(self, qpn):
        return S(self.ok(C.QUERY_QP, qpn=qpn).attr.qp_state)


@pytest.mark.parametrize("queue", [CONFIG.sq_queue, CONFIG.rq_queue])
@pytest.mark.parametrize("state", [S.INIT, S.RTR, S.RTS])
def test_queue_of_a_qp(queue, state):
    """It goes to ERR and is woken, which flushes what it has; the other one stays."""
    bench = Bench()
    broken = bench.another(state)
    bench.hardware.log.clear()
    pair = broken % CONFIG.qps
    assert bench.breaks(queue(pair)) == [(E.QP_FATAL, broken, 0, 0)]
    assert ("wake", pair) in bench.hardware.log
    assert bench.hardware.row("qp_cfg", pair)["state"] == S.ERR
    assert bench.state(broken) == S.ERR and bench.state(bench.qpn) == S.RTS
    assert bench.breaks(queue(pair)) == [], "it is in ERR already"


def test_in_reset_nothing_happens():
    bench = Bench()
    idle = bench.another(S.RESET)
    assert bench.breaks(CONFIG.sq_queue(idle % CONFIG.qps)) == []
    assert bench.state(idle) == S.RESET


def test_completion_queue():
    """Its event, then those of all QPs that use it, in either direction; one QP in each step."""
    bench = Bench()
    other = bench.ok(C.CREATE_CQ, cqe=4).cqn
    sends = bench.another(send_cqn=other)
    receives = bench.another(recv_cqn=other)
    idle = bench.another(S.RESET, send_cqn=other)
    bench.hardware.broken.append(CONFIG.cq_queue(other))
    for failed in (1, 2):
        assert finish(bench.firmware.step())
        found = [bench.hardware.row("qp_cfg", n % CONFIG.qps)["state"] for n in (sends, receives)]
        assert found.count(S.ERR) == failed and bench.hardware.broken
    assert finish(bench.firmware.step()) and not bench.hardware.broken
    wanted = [(E.CQ_ERR, other, 0, 0), (E.QP_FATAL, sends, 0, 0), (E.QP_FATAL, receives, 0, 0)]
    assert bench.told() == wanted
    assert bench.state(bench.qpn) == S.RTS
    assert bench.state(idle) == S.RESET
    assert bench.breaks(CONFIG.cq_queue(other)) == [], "once in its life"


def test_shared_receive_queue():
    """Its event, then those of the QPs that take from it; not of the pair that has its number."""
    bench = Bench()
    srq = bench.srq()
    qps = [bench.another(srqn=srq, max_recv_wr=0) for _ in range(2)]
    wanted = [(E.SRQ_ERR, srq, 0, 0), *((E.QP_FATAL, qpn, 0, 0) for qpn in qps)]
    found = bench.breaks(CONFIG.rq_queue(srq))
    assert [one for one in found if one[0] != E.QP_LAST_WQE_REACHED] == wanted
    assert [bench.state(one) for one in (*qps, bench.qpn)] == [S.ERR, S.ERR, S.RTS]


def test_receive_queue_of_a_qp_with_an_srq_is_nobodys():
    bench = Bench()
    qpn = bench.another(srqn=bench.srq(), max_recv_wr=0)
    assert bench.breaks(CONFIG.rq_queue(qpn % CONFIG.qps)) == []
    assert bench.state(qpn) == S.RTS


def test_nobodys_queue():
    """Objects that do not exist any more, or never did."""
    bench = Bench()
    for queue in range(CONFIG.queues):
        used = (CONFIG.sq_queue(bench.pair), CONFIG.rq_queue(bench.pair), 1, 2)
        if queue not in used:
            assert bench.breaks(queue) == [], queue
    assert bench.state(bench.qpn) == S.RTS


def test_again_in_the_next_life():
    """After RESET, and with a new QP of the same number, it is told anew."""
    bench = Bench()
    queue = CONFIG.sq_queue(bench.pair)
    for _ in range(2):
        assert bench.breaks(queue) == [(E.QP_FATAL, bench.qpn, 0, 0)]
        bench.hardware.log.clear()
        bench.go(S.RESET)
        assert ("drop_queue", queue) in bench.hardware.log  # which makes it as new for the card
        for state in (S.INIT, S.RTR, S.RTS):
            bench.go(state)


def test_requests_are_served_between():
    """A CQ with many QPs that breaks does not keep a request waiting for more than a step."""
    bench = Bench()
    qps = [bench.qpn] + [bench.another() for _ in range(5)]
    bench.hardware.broken.append(CONFIG.cq_queue(0))
    bench.ok(C.QUERY_PORT, port=1)

    def failed():
        rows = [bench.hardware.row("qp_cfg", one % CONFIG.qps) for one in qps]
        return sum(row["state"] == S.ERR for row in rows)

    assert 0 < failed() <= 2
    bench.settle()
    assert failed() == len(qps)


def test_without_events():
    """A driver that takes this feature alone finds the state by a query."""
    bench = Bench()
    bench.features = RdmaFeature.QUEUE_ERROR.mask
    quiet = EventBench(state=S.RTS, features=RdmaFeature.QUEUE_ERROR.mask)
    quiet.hardware.broken.append(CONFIG.rq_queue(quiet.pair))
    quiet.settle()
    assert quiet.told() == []
    assert quiet.ok(C.QUERY_QP, qpn=quiet.qpn).attr.qp_state == S.ERR


def test_events_wait_for_buffers():
    """None of an object is lost, whoever makes many; one whose object goes is dropped. While the
    event queue is not enabled, all are lost."""
    bench = Bench()
    bench.set("queue", CONFIG.event_queue, enabled=1)
    qps = [bench.another() for _ in range(5)]
    bench.hardware.buffers = 2
    for qpn in qps:
        bench.hardware.broken.append(CONFIG.sq_queue(qpn % CONFIG.qps))
    bench.settle()
    assert bench.told() == [(E.QP_FATAL, qpn, 0, 0) for qpn in qps[:2]]
    assert bench.told() == []
    bench.ok(C.DESTROY_QP, qpn=qps[3])
    bench.hardware.buffers = 9
    assert bench.told() == [(E.QP_FATAL, qps[2], 0, 0), (E.QP_FATAL, qps[4], 0, 0)]
    bench.hardware.buffers = 0
    bench.set("queue", CONFIG.event_queue, enabled=0)
    assert bench.breaks(CONFIG.sq_queue(bench.pair)) == []
    bench.hardware.buffers = 9
    bench.function.set_pkey(1, 0x8001)
    assert bench.told() == [(E.PKEY_CHANGE, 0, 1, 1)]


def test_events_of_the_port_are_lost_all_the_same():
    """They do not wait without end behind one that waits."""
    bench = Bench()
    bench.set("queue", CONFIG.event_queue, enabled=1)
    bench.hardware.buffers = 0
    bench.breaks(CONFIG.sq_queue(bench.pair))
    for number in range(1, 2001):
        bench.function.set_pkey(1, 0x8000 + number)
        finish(bench.firmware.step())
    bench.hardware.buffers = 10_000
    found = bench.told(3000)
    assert found[0] == (E.QP_FATAL, bench.qpn, 0, 2000 - 1024)
    assert len(found) == 1025 and not any(one[3] for one in found[1:])


def test_each_function_has_its_own():
    """The card's number of the virtqueue says whose it is. Of one in reset it is nobody's."""
    bench = Bare(config=replace(CONFIG, functions=2, qps=32, cqs=16, gids=8))
    bench.hardware.features = FEATURES
    qps = []
    for function in bench.firmware.functions:
        bench.function = function
        bench.ok(C.CREATE_PD)
        bench.ok(C.CREATE_CQ, cqe=4)
        qps.append(bench.ok(C.CREATE_QP, qp_type=T.RC).qpn)
        change = dict(qpn=qps[-1], attrs={"qp_state": S.INIT, "port_num": 1})
        bench.ok(C.MODIFY_QP, **change, attr_mask=M.STATE | M.PKEY_INDEX | M.PORT | M.ACCESS_FLAGS)
    assert qps[0] == qps[1]
    first = 1 << bench.hardware.queue_bits
    bench.hardware.broken.append(first + CONFIG.sq_queue(qps[0]))
    bench.settle()
    rows = [bench.hardware.row("qp_cfg", n * CONFIG.qps + qps[0])["state"] for n in (0, 1)]
    assert rows == [S.INIT, S.ERR]
    bench.hardware.broken.append(CONFIG.sq_queue(qps[0]))
    bench.hardware.waiting.add(bench.firmware.functions[0].number)
    bench.settle()
    assert not bench.hardware.broken


def test_srq_made_anew():
    bench = Bench()
    srq = bench.srq()
    assert bench.breaks(CONFIG.rq_queue(srq)) == [(E.SRQ_ERR, srq, 0, 0)]
    bench.ok(X.DESTROY_SRQ, srqn=srq)
    assert ("drop_queue", CONFIG.rq_queue(srq)) in bench.hardware.log
    assert bench.srq() == srq
    assert bench.breaks(CONFIG.rq_queue(srq)) == [(E.SRQ_ERR, srq, 0, 0)]
