"""XRC: its commands, every refusal, the rows that they leave. T-X10."""

import dataclasses
import json

import pytest

from firmware import records
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import EventType, RdmaFeature
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from hdl.abi.virtio_rdma import EXTENSIONS
from hdl.csr.map import row_map
from tests.firmware.fake_hardware import ALL_TYPES, CONFIG, Bench, finish
from tests.firmware.test_qp import CREATION, EXTENDED, XRC_CREATION, QpBench
from tests.firmware.transition_table import XRC_TYPES

LAST = CONFIG.qps - 1
SRQ = dict(pdn=1, max_wr=8, max_sge=2, xrcdn=1, cqn=1)


class XrcBench(QpBench):
    """With a receive queue in the domain, and a PD of its own."""

    def __init__(self, type_=T.XRC_TGT, **options):
        super().__init__(type_, **options)
        self.ok(C.CREATE_PD)
        made = self.ok(X.CREATE_XRC_SRQ, **SRQ)
        self.srqn, self.srq_num = made.srqn, made.srq_num


@pytest.mark.parametrize("command", EXTENSIONS[RdmaFeature.XRC])
def test_unknown_without_the_feature(command):
    bench = Bench(config=EXTENDED)
    bench.hardware.features = RdmaFeature.SRQ.mask
    assert bench.err(command) == f"unknown command {command.value}"


def test_no_queue_pairs_without_the_feature():
    bench = Bench(config=EXTENDED, qp_types=ALL_TYPES | {*XRC_TYPES})
    bench.hardware.features = RdmaFeature.SRQ.mask
    for type_ in XRC_TYPES:
        assert f"type {int(type_)}" in bench.err(C.CREATE_QP, qp_type=type_)


def test_rows():
    """The pair of the receive queue has what packets that name it need; the two ends of a
    connection have their types on the card, and receive requests of neither's own."""
    bench = XrcBench()
    row = bench.hardware.row("qp_cfg", bench.srqn)
    assert bench.srqn == LAST and bench.srq_num % CONFIG.qps == LAST
    assert row == dict(type=7, function=1, qpn=bench.srq_num, pd=1, recv_pd=1, recv_cq=1)
    target = bench.row("qp_cfg")
    assert (target["type"], target["pd"], target["source.kind"]) == (6, 1, 2)
    assert not {"send_cq", "recv_cq", "recv_pd", "max_send_sge", "max_recv_sge"} & set(target)
    pair = bench.create(T.XRC_INI) % CONFIG.qps
    initiator = bench.hardware.row("qp_cfg", pair)
    assert (initiator["type"], initiator["source.kind"]) == (5, 2)
    bench.ok(X.DESTROY_SRQ, srqn=bench.srqn)
    assert bench.hardware.row("qp_cfg", LAST) == {}
    log = [entry[0] for entry in bench.hardware.log]
    assert log.index("drain") < log.index("drop_queue")


def test_numbers_change():
    """Another queue in the same pair has another number, so late packets miss it."""
    bench = XrcBench()
    seen = {bench.srq_num}
    for _ in range(20):
        bench.ok(X.DESTROY_SRQ, srqn=bench.srqn)
        made = bench.ok(X.CREATE_XRC_SRQ, **SRQ)
        assert made.srqn == bench.srqn and made.srq_num not in seen
        seen.add(made.srq_num)


def test_domains():
    bench = XrcBench()
    assert [bench.ok(X.ALLOC_XRCD).xrcdn for _ in range(3)] == [2, 3, 4]
    assert "reserved" in bench.err(X.ALLOC_XRCD, reserved=1)
    bench.ok(X.DEALLOC_XRCD, xrcdn=3)
    assert bench.ok(X.ALLOC_XRCD).xrcdn == 3
    for number in (0, 9, 1 << 31):
        assert "No XRC domain" in bench.err(X.DEALLOC_XRCD, xrcdn=number)
    left = bench.function.commands.limits.device["max_xrcd"] - 4
    for _ in range(left):
        bench.ok(X.ALLOC_XRCD)
    assert "in use" in bench.err(X.ALLOC_XRCD)


def test_t_x10_in_use():
    """T-X10: what is used cannot go; when its user has gone, it can."""
    bench = XrcBench()
    assert "used by 2 objects" in bench.err(X.DEALLOC_XRCD, xrcdn=1)
    assert "used by 1 work queues" in bench.err(C.DESTROY_CQ, cqn=1)
    assert "used by 1 objects" in bench.err(C.DESTROY_PD, pdn=1)
    bench.ok(C.DESTROY_QP, qpn=bench.qpn)
    assert "used by 1 objects" in bench.err(X.DEALLOC_XRCD, xrcdn=1)
    bench.ok(X.DESTROY_SRQ, srqn=bench.srqn)
    bench.ok(X.DEALLOC_XRCD, xrcdn=1)
    bench.ok(C.DESTROY_CQ, cqn=1)
    bench.ok(C.DESTROY_PD, pdn=1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pdn": 9}, "No PD"),
        ({"xrcdn": 0}, "No XRC domain"),
        ({"xrcdn": 2}, "No XRC domain"),
        ({"cqn": 2}, "No CQ"),
        ({"max_wr": 0}, "max_srq_wr"),
        ({"max_sge": CONFIG.max_sge + 1}, "max_srq_sge"),
        ({"srq_limit": 1}, "there are no events"),
        ({"reserved": bytes(18) + b"\1"}, "reserved"),
    ],
)
def test_t_x10_receive_queue_refused(change, reason):
    """T-X10: as CREATE_SRQ, and what names nothing."""
    assert reason in XrcBench().err(X.CREATE_XRC_SRQ, **SRQ | change)


@pytest.mark.parametrize(
    ("type_", "field"),
    [
        *((T.XRC_INI, name) for name in ("max_recv_wr", "max_recv_sge", "recv_cqn", "srqn")),
        (T.XRC_INI, "xrcdn"),
        *((T.XRC_TGT, name) for name in CREATION if name not in ("qp_type", "sq_sig_type")),
        (T.XRC_TGT, "srqn"),
        (T.RC, "xrcdn"),
    ],
)
def test_t_x10_fields_of_others(type_, field):
    """T-X10: what a type has no use for must be 0: a target has no PD, an initiator no receives."""
    bench = XrcBench()
    fields = CREATION | XRC_CREATION.get(type_, {}) | {"qp_type": type_, field: 1}
    assert f"{field} must be 0, not 1" in bench.err(C.CREATE_QP, **fields)


def test_t_x10_queue_pairs_refused():
    """T-X10: a target needs a domain that there is; an XRC queue serves targets alone."""
    bench = XrcBench()
    target = CREATION | XRC_CREATION[T.XRC_TGT] | {"qp_type": T.XRC_TGT}
    for number in (0, 2):
        assert "No XRC domain" in bench.err(C.CREATE_QP, **target | {"xrcdn": number})
    fields = CREATION | {"max_recv_wr": 0, "srqn": bench.srqn}
    assert "XRC domain" in bench.err(C.CREATE_QP, **fields)


@pytest.mark.parametrize("type_", XRC_TYPES)
def test_resize(type_):
    bench = QpBench(type_)
    bench.hardware.features |= RdmaFeature.RESIZE.mask
    sizes = dict(qpn=bench.qpn, max_send_wr=3, max_recv_wr=0)
    if type_ == T.XRC_TGT:
        assert "no queues" in bench.err(X.RESIZE_QP, **sizes)
        return
    bench.ok(X.RESIZE_QP, **sizes)
    assert "must be 0 of an initiator" in bench.err(X.RESIZE_QP, **sizes | {"max_recv_wr": 1})


def test_what_a_target_holds_ends_flushed():
    """Before its rows are cleared, as with a QP of a shared queue."""
    bench = XrcBench()
    bench.go(S.INIT)
    rows, seen = bench.hardware.rows["qp_rx"], []

    def flush(number):
        seen.append((number, bench.hardware.row("qp_cfg", number)["state"]))
        rows[number] = [0] * len(rows[number])

    bench.hardware.on_flush.append(flush)
    rows[bench.pair] = row_map("qp_rx").pack({"message": 1, "head": 3, "srq": bench.srq_num})
    bench.go(S.RESET)
    assert seen == [(bench.pair, S.ERR)]


def test_events_of_a_target():
    """QP_FATAL when the card has stopped it, LAST_WQE_REACHED when it holds nothing, CQ_ERR of a
    CQ of its domain before both."""
    config = dataclasses.replace(EXTENDED, events=True)
    bench = XrcBench(config=config)
    commands = bench.function.commands
    bench.hardware.features |= RdmaFeature.EVENTS.mask
    commands.events.wanted = True
    for state in (S.INIT, S.RTR):
        bench.go(state)
    bench.stop_sending("qp_rx")
    bench.hardware.rows["cq"][1] = row_map("cq").pack({"error": 1})
    reported = []
    commands.events.report = lambda event, **fields: reported.append((event, fields["number"]))
    finish(commands.events._look_at_qp(commands.objects.qps.get(bench.pair)))
    assert reported == [
        (EventType.CQ_ERR, 1),
        (EventType.QP_FATAL, bench.qpn),
        (EventType.QP_LAST_WQE_REACHED, bench.qpn),
    ]


def test_journal():
    """A firmware that comes after this one has the same objects, used as often, and does not give a
    number again."""
    bench = XrcBench()
    bench.create(T.XRC_INI)
    whole = records.Record()
    records.merge(whole, records.everything(bench.function.commands))
    whole = json.loads(json.dumps(whole))
    other = QpBench(T.XRC_TGT)
    other.function.commands.forget()
    records.restore(other.function.commands, whole)
    before, after = (one.function.commands.objects for one in (bench, other))
    for name in ("srqs", "qps", "xrcds", "pds", "cqs"):
        pairs = zip(getattr(before, name).all(), getattr(after, name).all(), strict=True)
        for one, same in pairs:
            assert repr(one) == repr(same)
    assert after.generations == before.generations


def test_device_reset_forgets_all():
    bench = XrcBench()
    bench.hardware.resets_seen += 1
    assert finish(bench.firmware.step())
    assert bench.ok(X.ALLOC_XRCD).xrcdn == 1
    bench.ok(C.CREATE_PD)
    bench.ok(C.CREATE_CQ, cqe=8)
    assert bench.ok(X.CREATE_XRC_SRQ, **SRQ | {"pdn": 0, "cqn": 0}).srqn == LAST


def test_reset_of_one_of_two_functions():
    """The rows of its receive queues are cleared with those of its queue pairs."""
    bench = XrcBench(config=dataclasses.replace(EXTENDED, functions=2))
    bench.hardware.waiting.add(bench.function.number)
    assert bench.settle()
    assert bench.hardware.row("qp_cfg", bench.srqn) == {}
