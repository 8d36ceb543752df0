"""Queue pairs: creation, every transition, every value, the rows that follow."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firmware.qp import udp_source_port
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from hdl.abi.enums import RdmaFeature
from hdl.abi.virtio_rdma import CMD_MODIFY_QP
from hdl.csr.map import row_map
from hdl.wire.constants import mapped_gid
from tests.firmware.fake_hardware import ALL_TYPES, CONFIG, Bench, finish
from tests.firmware.transition_table import TABLE, XRC_TYPES

AH = dict(
    grh=dict(
        dgid=bytes(10) + b"\xff\xff\x0a\0\0\2",
        flow_label=0,
        sgid_index=1,
        hop_limit=64,
        traffic_class=8,
    ),
    sl=3,
    port_num=1,
    ah_flags=1,
    roce_dmac=b"\x02\0\0\0\0\x09",
)
ATTRS = dict(
    path_mtu=3,
    qkey=0x11111111,
    rq_psn=0x123456,
    sq_psn=0xFEDCBA,
    dest_qp_num=0xABCDEF,
    qp_access_flags=7,
    max_rd_atomic=9,
    max_dest_rd_atomic=5,
    min_rnr_timer=12,
    port_num=1,
    timeout=14,
    retry_cnt=6,
    rnr_retry=5,
    ah_attr=AH,
)


CREATION = dict(
    pdn=0,
    qp_type=T.RC,
    sq_sig_type=0,
    max_send_wr=64,
    max_send_sge=32,
    send_cqn=0,
    max_recv_wr=64,
    max_recv_sge=32,
    recv_cqn=1,
    max_inline_data=512,
)


#: What CREATE_QP names of a QP of these types: nothing of a receiver, or a domain alone.
XRC_CREATION = {
    T.XRC_INI: dict(max_recv_wr=0, max_recv_sge=0, recv_cqn=0),
    T.XRC_TGT: dict.fromkeys(CREATION, 0) | {"xrcdn": 1},
}
EXTENDED = dataclasses.replace(CONFIG, xrc=True)


class QpBench(Bench):
    """With a PD, two CQs, a GID and one QP of a type; of XRC, with a domain as well."""

    def __init__(self, type_=T.RC, state=S.RESET, **options):
        if type_ in XRC_TYPES:
            options = {"config": EXTENDED, "qp_types": ALL_TYPES | {*XRC_TYPES}} | options
        super().__init__(**options)
        if type_ in XRC_TYPES:
            self.hardware.features = RdmaFeature.SRQ.mask | RdmaFeature.XRC.mask
            self.ok(X.ALLOC_XRCD)
        self.ok(C.CREATE_PD)
        self.ok(C.CREATE_CQ, cqe=8)
        self.ok(C.CREATE_CQ, cqe=8)
        self.ok(C.ADD_GID, gid=mapped_gid(b"\x0a\0\0\1"), gid_type=2, index=1, port_num=1)
        self.qpn = self.create(type_)
        self.pair = self.qpn % 16
        self.type = type_
        path = {
            S.RESET: [],
            S.INIT: [S.INIT],
            S.RTR: [S.INIT, S.RTR],
            S.RTS: [S.INIT, S.RTR, S.RTS],
            S.SQD: [S.INIT, S.RTR, S.RTS, S.SQD],
            S.SQE: [S.INIT, S.RTR, S.RTS],
            S.ERR: [S.ERR],
        }[state]
        for step in path:
            self.go(step)
        if state == S.SQE:
            self.stop_sending()

    def create(self, type_=T.RC, **changes):
        extended = XRC_CREATION.get(type_, {})
        return self.ok(C.CREATE_QP, **CREATION | extended | {"qp_type": type_} | changes).qpn

    def mask(self, state):
        """The attributes that the way to ``state`` needs."""
        before = {S.INIT: S.RESET, S.RTR: S.INIT, S.RTS: S.RTR}.get(state)
        required, _ = TABLE.get((self.type, before, state), (M(0), M(0)))
        return M.STATE | required

    def stop_sending(self, table="qp_tx"):
        """The hardware finds an error on the send side."""
        row = finish(self.hardware.read_row(table, self.pair))
        self.hardware.rows[table][self.pair] = row_map(table).pack(row | {"error": 1})

    def go(self, state, mask=None, **changes):
        mask = self.mask(state) if mask is None else mask
        return self.modify(mask, qp_state=state, **changes)

    def modify(self, mask, **changes):
        return self.ok(C.MODIFY_QP, qpn=self.qpn, attr_mask=mask, attrs=ATTRS | changes)

    def refuse(self, mask, **changes):
        return self.err(C.MODIFY_QP, qpn=self.qpn, attr_mask=mask, attrs=ATTRS | changes)

    def query(self):
        return self.ok(C.QUERY_QP, qpn=self.qpn, attr_mask=0).attr

    def row(self, table):
        return self.hardware.row(table, self.pair)


@pytest.mark.parametrize("type_", [T.RC, T.UC, T.UD, T.GSI])
def test_create(type_):
    bench = QpBench(type_)
    assert bench.pair == (1 if type_ == T.GSI else 2)
    row = bench.row("qp_cfg")
    expected = dict(
        type=type_, function=1, recv_cq=1, signal_all=1, qpn=bench.qpn, pkey=0xFFFF, max_inline=512
    )
    assert {name: row.get(name) for name in expected} == expected
    assert "state" not in row and row["max_send_sge"] == row["max_recv_sge"] == 32
    attr = bench.query()
    assert attr.qp_state == S.RESET
    assert (attr.cap.max_send_wr, attr.cap.max_inline_data) == (64, 512)
    assert "used by 1 objects" in bench.err(C.DESTROY_PD, pdn=0)
    assert "used by 1 work queues" in bench.err(C.DESTROY_CQ, cqn=0)
    bench.ok(C.DESTROY_QP, qpn=bench.qpn)
    assert bench.row("qp_cfg") == {}
    for cqn in (0, 1):
        bench.ok(C.DESTROY_CQ, cqn=cqn)
    bench.ok(C.DESTROY_PD, pdn=0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pdn": 1}, "No PD"),
        ({"send_cqn": 2}, "No CQ"),
        ({"recv_cqn": 7}, "No CQ"),
        ({"qp_type": T.SMI}, "type 0"),
        ({"qp_type": 5}, "type 5"),
        ({"qp_type": 255}, "type 255"),
        ({"sq_sig_type": 2}, "sq_sig_type 2"),
        ({"max_send_wr": 65}, "max_qp_wr"),
        ({"max_recv_wr": 65}, "max_qp_wr"),
        ({"max_send_sge": 33}, "max_send_sge"),
        ({"max_recv_sge": 33}, "max_recv_sge"),
        ({"max_inline_data": 513}, "513 bytes inline"),
    ],
)
def test_create_refused(change, reason):
    bench = QpBench()
    good = dict(pdn=0, qp_type=2, max_send_wr=1, max_recv_wr=1, recv_cqn=1)
    assert reason in bench.err(C.CREATE_QP, **good | change)


def test_numbers():
    """The low bits are the pair, the upper ones change; GSI is QP 1 and there is one of it."""
    bench = QpBench()
    seen = {bench.qpn} | {bench.create() for _ in range(13)}
    assert sorted(seen) == list(range(2, 16))
    assert "All 14 QP pairs are in use" in bench.err(C.CREATE_QP, qp_type=2, recv_cqn=1)
    for _ in range(50):
        bench.ok(C.DESTROY_QP, qpn=bench.qpn)
        assert "No QP" in bench.err(C.QUERY_QP, qpn=bench.qpn)
        bench.qpn = bench.create()
        assert bench.qpn % 16 == 2 and bench.qpn not in seen
        assert bench.row("qp_cfg")["qpn"] == bench.qpn
        seen.add(bench.qpn)
    assert bench.create(T.GSI) == 1
    assert "QP pair 1 is in use" in bench.err(C.CREATE_QP, qp_type=T.GSI, recv_cqn=1)
    for qpn in (0, 0x7FFFF2, 0xFFFFFF, 1 << 24, 0xFFFFFFFF):
        assert "No QP" in bench.err(C.DESTROY_QP, qpn=qpn)


def test_unserved_type():
    bench = QpBench(qp_types=frozenset({T.RC}))
    assert "QP type 4 is not supported" in bench.err(C.CREATE_QP, qp_type=T.UD)


def test_hints():
    bench = QpBench()
    bench.function.hints.qpn(0xABCD15)
    bench.function.hints.start(qp_rx={"msn": 7}, qp_ack={"wake_generation": 3})
    bench.qpn, bench.pair = bench.create(), 5
    assert bench.qpn == 0xABCD15
    bench.go(S.INIT)
    bench.go(S.RTR)
    assert bench.row("qp_rx") == {"psn": 0x123456, "ack_psn": 0x123455, "msn": 7}
    bench.function.hints.qpn(0x000015)
    assert "QP pair 5 is in use" in bench.err(C.CREATE_QP, qp_type=2, recv_cqn=1)
    for bad in (0x10, 0x11, 1 << 24, -1):
        with pytest.raises(ValueError, match="QPN must have 24 bits and a user pair"):
            bench.function.hints.qpn(bad)


def test_way_to_rts():
    bench = QpBench()
    config = bench.function.commands.limits.config
    bench.hardware.rows["used"][config.sq_queue(bench.pair)] = [0x11]
    bench.go(S.INIT)
    assert bench.row("qp_fetch") == {"position": 0x11, "asked": 0x11, "available": 0x11}
    assert bench.row("qp_tx") == {"position": 0x11, "high": 0x11}
    assert bench.row("qp_rx") == {}
    assert bench.row("qp_cfg")["state"] == S.INIT
    assert ("wake", bench.pair) not in bench.hardware.log

    bench.go(S.RTR)
    assert bench.row("qp_rx") == {"psn": 0x123456, "ack_psn": 0x123455}
    written = [entry[1] for entry in bench.hardware.log]
    assert written.index("qp_rx") < written.index("qp_cfg"), "the row is right before it is used"
    row = bench.row("qp_cfg")
    expected = {
        "state": S.RTR,
        "path_mtu": 3,
        "dest_qpn": 0xABCDEF,
        "remote_write": 1,
        "remote_read": 1,
        "max_dest_rd_atomic": 8,
        "min_rnr_timer": 12,
        "av.sgid_index": 1,
        "av.dgid": int.from_bytes(AH["grh"]["dgid"], "little"),
        "av.dmac": int.from_bytes(AH["roce_dmac"], "little"),
        "av.traffic_class": 8,
        "av.hop_limit": 64,
        "av.sl": 3,
        "av.udp_source": udp_source_port(bench.qpn, 0xABCDEF, 0),
    }
    assert {name: row.get(name) for name in expected} == expected
    assert not {"remote_atomic", "timeout", "retry_count", "max_rd_atomic"} & row.keys()

    bench.go(S.RTS)
    assert bench.row("qp_tx") == {"position": 0x11, "high": 0x11, "psn": 0xFEDCBA}
    assert bench.row("qp_ack") == {"position": 0x11, "psn": 0xFEDCBA, "start": 0xFEDCBA}
    written = [entry[1] for entry in bench.hardware.log]
    assert written.index("qp_tx") < written.index("qp_cfg") and written.index("qp_ack") < (
        written.index("qp_cfg")
    )
    assert bench.hardware.log[-1] == ("wake", bench.pair)
    row = bench.row("qp_cfg")
    assert (row["timeout"], row["retry_count"], row["rnr_retry"]) == (14, 6, 5)
    assert (row["state"], row["max_rd_atomic"]) == (S.RTS, 9)

    attr = bench.query()
    for name, value in ATTRS.items():
        found = attr[name]
        if name == "qkey":
            assert found == 0  # not set on the way of an RC QP
        elif name == "ah_attr":
            assert {k: found[k] for k in value if k != "grh"} | {"grh": dict(found.grh)} == value
        else:
            assert found == value, name
    assert attr.qp_state == attr.cur_qp_state == S.RTS


def test_to_error_and_reset():
    bench = QpBench(state=S.RTS)
    bench.go(S.ERR)
    assert bench.row("qp_cfg")["state"] == S.ERR
    assert bench.hardware.log == [("write", "qp_cfg", 2), ("wake", 2)]
    bench.go(S.RESET)
    log = bench.hardware.log
    assert log[:3] == [("write", "qp_cfg", 2), ("drain",), ("drop", 2)]
    queues = (CONFIG.sq_queue(2), CONFIG.rq_queue(2))
    assert log[-2:] == [("drop_queue", queue) for queue in queues]
    del log[-2:]
    tables = {"qp_fetch", "qp_tx", "qp_ack", "qp_sent", "qp_rx", "qp_reply"}
    assert {entry[1] for entry in log[3:]} == tables
    # What was fetched before is of an older generation than all that will be.
    left = {"qp_fetch": {"generation": 1}, "qp_tx": {"generation": 1}}
    assert all(bench.row(table) == left.get(table, {}) for table in tables)
    for step in (S.INIT, S.RTR, S.RTS):
        bench.go(step)
    assert bench.row("qp_tx")["generation"] == bench.row("qp_fetch")["generation"] == 1
    bench.ok(C.DESTROY_QP, qpn=bench.qpn)
    assert all(not bench.row(t) for t in ("qp_cfg", "qp_sent", "qp_rx", "qp_ack"))
    assert bench.row("qp_tx") == {"generation": 2}


@pytest.mark.parametrize("type_", [T.UC, T.UD, T.GSI])
@pytest.mark.parametrize("table", ["qp_tx", "qp_ack"])
def test_send_error_of_unreliable_types(type_, table):
    """The send side alone stops (SQE), and goes on when the driver says so."""
    bench = QpBench(type_, S.RTS)
    bench.stop_sending(table)
    assert bench.query().qp_state == bench.query().cur_qp_state == S.SQE
    before = bench.row(table)
    bench.go(S.RTS, M.STATE | M.CUR_STATE, cur_qp_state=S.SQE)
    log, cfg = bench.hardware.log, ("write", "qp_cfg", bench.pair)
    assert log[:2] == [cfg, ("drain",)] and log[-2:] == [cfg, ("wake", bench.pair)]
    assert bench.row(table) == {name: value for name, value in before.items() if name != "error"}
    assert bench.query().qp_state == S.RTS == bench.row("qp_cfg")["state"]
    bench.hardware.rows["qp_rx"][bench.pair] = row_map("qp_rx").pack(error=1)
    bench.stop_sending(table)
    assert bench.query().qp_state == S.ERR


@pytest.mark.parametrize("table", ["qp_tx", "qp_ack", "qp_rx"])
def test_error_of_the_hardware(table):
    """A side that has stopped puts the QP in ERR for the driver: only RESET and ERR are left."""
    bench = QpBench(state=S.RTS)
    bench.hardware.rows[table][2] = row_map(table).pack(error=1)
    assert bench.query().qp_state == S.ERR
    assert "No transition from ERR to RTS" in bench.refuse(M.STATE, qp_state=S.RTS)
    bench.go(S.ERR)
    assert bench.hardware.log[-1] == ("wake", 2)
    bench.go(S.RESET)
    assert bench.query().qp_state == S.RESET


def test_live_numbers():
    """QUERY_QP tells the next PSNs, and whether a WQE of a QP in SQD has begun and not ended."""
    bench = QpBench(state=S.SQD)
    bench.hardware.rows["qp_tx"][2] = row_map("qp_tx").pack(psn=9, high=5)
    bench.hardware.rows["qp_rx"][2] = row_map("qp_rx").pack(psn=77)
    attr = bench.query()
    assert (attr.sq_psn, attr.rq_psn, attr.sq_draining) == (9, 77, 1)
    bench.hardware.rows["qp_ack"][2] = row_map("qp_ack").pack(psn=9, position=4)
    assert bench.query().sq_draining == 1  # it has gone back, or waits for the data of a READ
    bench.hardware.rows["qp_ack"][2] = row_map("qp_ack").pack(psn=9, position=5)
    assert bench.query().sq_draining == 0


def test_read_resources():
    """Slices never overlap, go back with RESET, and the pool can be used up."""
    bench = QpBench(state=S.INIT)
    used = []
    for i in range(1, 8):
        bench.go(S.RTR, max_dest_rd_atomic=i * 2)
        row = bench.row("qp_cfg")
        base, size = row.get("read_base", 0), row["max_dest_rd_atomic"]
        assert size >= i * 2 and size & (size - 1) == 0 and base % size == 0
        used += range(base, base + size)
        assert len(used) == len(set(used)) and max(used) < CONFIG.read_resources
        if len(used) + 16 > CONFIG.read_resources:
            break
        bench.qpn = bench.create()
        bench.pair = bench.qpn
        bench.go(S.INIT)
    bench.qpn = bench.pair = bench.create()
    bench.go(S.INIT)
    mask = bench.mask(S.RTR)
    assert "No 16 READ requests left of 64" in bench.refuse(
        mask, qp_state=S.RTR, max_dest_rd_atomic=16
    )
    first = bench.qpn
    bench.qpn = bench.pair = 5
    bench.go(S.RESET)
    bench.qpn = bench.pair = first
    bench.go(S.RTR, max_dest_rd_atomic=8)


def test_read_resources_while_draining():
    bench = QpBench(state=S.SQD)
    bench.modify(M.MAX_DEST_RD_ATOMIC, max_dest_rd_atomic=8)
    bench.modify(M.MAX_DEST_RD_ATOMIC, max_dest_rd_atomic=2)
    assert bench.row("qp_cfg")["max_dest_rd_atomic"] == 8
    assert "9 READ requests" in bench.refuse(M.MAX_DEST_RD_ATOMIC, max_dest_rd_atomic=9)


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 7),
            st.sampled_from([None, 0, int(M.STATE), int(M.STATE | M.AV)])
            | st.integers(0, (1 << 26) - 1),
        ),
        max_size=12,
    )
)
def test_random_walk(steps):
    """Any sequence of modifications leaves the row in the state that QUERY_QP tells."""
    bench = WALK
    bench.qpn = bench.create()
    bench.pair = bench.qpn % 16
    for state, drawn in steps:
        mask = bench.mask(state) if drawn is None else drawn
        before = bench.snapshot()
        fields = dict(qpn=bench.qpn, attr_mask=mask, attrs=ATTRS | {"qp_state": state})
        response = bench.raw(bytes([C.MODIFY_QP]) + CMD_MODIFY_QP.pack(fields))
        if response == b"\1":
            assert bench.snapshot() == before
        assert bench.query().qp_state == bench.row("qp_cfg").get("state", 0)
    bench.ok(C.DESTROY_QP, qpn=bench.qpn)
    assert not bench.function.commands.objects.slices._taken


WALK = QpBench()
WALK.ok(C.DESTROY_QP, qpn=WALK.qpn)
