"""DC: its commands, every refusal, connections of one firmware with a network that a test plays."""

import dataclasses
import itertools
import json

import pytest

from firmware import records
from firmware.dc.packets import (
    CloseRequest,
    Connect,
    Disconnect,
    DisconnectAck,
    EndStatus,
    Reply,
    ReplyStatus,
    keep_ns,
    parse,
)
from firmware.machine import Machine
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import EventType, RdmaFeature, WcStatus
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from hdl.abi.virtio_rdma import EXTENSIONS
from hdl.csr.map import row_map
from hdl.wire.constants import mapped_gid
from tests.firmware.fake_hardware import ALL_TYPES, CONFIG, Bench, FakeHardware, finish
from tests.firmware.test_qp import ATTRS, CREATION
from tests.firmware.transition_table import DC_TYPES, TABLE

DC = dataclasses.replace(CONFIG, dc=True, xrc=True, mp_wr=True)
FEATURES = RdmaFeature.SRQ.mask | RdmaFeature.DC.mask
KEY, PEER, MAC = 0x1122334455667788, mapped_gid(b"\x0a\0\0\2"), b"\2\0\0\0\0\x09"
SRQ = dict(pdn=0, max_wr=8, max_sge=2)
DCT = dict(qp_type=T.DCT, recv_cqn=1, sq_sig_type=0, pdn=0, dc_key=KEY)
DCI = CREATION | dict(qp_type=T.DCI, max_recv_wr=0, max_recv_sge=0, recv_cqn=0)
WAY = dict(pdn=0, dc_key=KEY, dgid=PEER, sgid_index=1, hop_limit=64, dmac=MAC)


class FakeConnections:
    """``ConnectionHardware`` in memory, and the firmware's clock: ``time``, ns. ``sent``: packets;
    ``waits``: pair -> destination and stream."""

    def __init__(self):
        self.time, self.inbox, self.sent, self.waits = 0, [], [], {}

    async def asks(self):
        return len(self.waits)

    async def received(self):
        return self.inbox.pop(0) if self.inbox else None

    async def send(self, row):
        data = row["content"].to_bytes(28, "little")
        self.sent.append(parse(row["opcode"], row["dest_qp"], row["psn"], data))
        self.row = row

    async def asked(self, pair):
        return self.waits.get(pair)

    async def forget(self, pair):
        self.waits.pop(pair, None)


class DcBench(Bench):
    """With a PD, two CQs, an address, an SRQ and a target in RTR."""

    def __init__(self, *, config=DC, state=S.RTR):
        FakeHardware.connections = self.net = FakeConnections()
        try:
            machine = Machine(clock=lambda: self.net.time)
            super().__init__(config=config, qp_types=ALL_TYPES | {*DC_TYPES}, machine=machine)
        finally:
            FakeHardware.connections = None
        self.hardware.features = FEATURES
        self.ok(C.CREATE_PD)
        self.ok(C.CREATE_CQ, cqe=8)
        self.ok(C.CREATE_CQ, cqe=8)
        self.ok(C.ADD_GID, gid=mapped_gid(b"\x0a\0\0\1"), gid_type=2, index=1, port_num=1)
        self.srqn = self.ok(X.CREATE_SRQ, **SRQ).srqn
        self.dct = self.ok(C.CREATE_QP, **DCT, srqn=self.srqn).qpn
        self.bring(self.dct, state)

    def bring(self, qpn, state):
        """A QP of DC to a state, step by step."""
        type_ = self.type_of(qpn)
        path = [S.INIT, S.RTR, S.RTS]
        before = S.RESET
        for step in path[: path.index(state) + 1] if state in path else [state][: state != S.RESET]:
            self.modify(qpn, M.STATE | TABLE[type_, before, step][0], step)
            before = step

    def type_of(self, qpn):
        return self.function.commands.objects.qps.find(qpn % CONFIG.qps).type

    def modify(self, qpn, mask, state):
        return self.ok(C.MODIFY_QP, qpn=qpn, attr_mask=mask, attrs=ATTRS | {"qp_state": state})

    def initiator(self, **more):
        qpn = self.ok(C.CREATE_QP, **DCI | more).qpn
        self.bring(qpn, S.RTS)
        return qpn

    def step(self, count=1):
        for _ in range(count):
            finish(self.firmware.step())
        sent, self.net.sent = self.net.sent, []
        return sent

    def receive(self, packet, *, gid=PEER, pkey=0xFFFF):
        """A packet comes; what is sent then."""
        self.net.inbox.append(self.row_of(packet, gid=gid, pkey=pkey))
        return self.step()

    @staticmethod
    def row_of(packet, *, gid=PEER, pkey=0xFFFF):
        """A packet, as the card has it."""
        return {
            "opcode": packet.OPCODE,
            "dest_qp": packet.dest,
            "psn": packet.psn,
            "pkey": pkey,
            "function": 1,
            "gid_index": 1,
            "src_gid": int.from_bytes(gid, "little"),
            "src_mac": int.from_bytes(MAC, "little"),
            "content": int.from_bytes(packet.pack(), "little"),
        }

    @property
    def gids(self):
        """Addresses of one function."""
        return self.function.commands.limits.config.gids

    def asks(self, **changes):
        plain = dict(dest=self.dct, psn=0x5000, mtu=1, depth=4, channel=0x400011)
        return Connect(**plain | dict(key=KEY, nonce=99, keep=20) | changes)

    def pair_row(self, number):
        return self.hardware.row("qp_cfg", number % CONFIG.qps)


@pytest.mark.parametrize("command", EXTENSIONS[RdmaFeature.DC])
def test_unknown_without_the_feature(command):
    bench = DcBench()
    bench.hardware.features = RdmaFeature.SRQ.mask
    assert bench.err(command) == f"unknown command {command.value}"


def test_no_queue_pairs_without_the_feature():
    bench = DcBench()
    bench.hardware.features = RdmaFeature.SRQ.mask
    for type_ in DC_TYPES:
        assert f"type {int(type_)}" in bench.err(C.CREATE_QP, qp_type=type_)


@pytest.mark.parametrize(
    ("base", "field"),
    [
        *((DCI, name) for name in ("max_recv_wr", "max_recv_sge", "recv_cqn", "srqn", "dc_key")),
        *((DCI, name) for name in ("log_streams", "log_errored")),
        *((DCT, name) for name in ("send_cqn", "max_send_wr", "max_send_sge", "max_recv_wr")),
        *((DCT, name) for name in ("max_inline_data", "max_recv_sge", "create_flags")),
        (CREATION, "dc_key"),
    ],
)
def test_t_d23_fields_of_others(base, field):
    """T-D23: what a type has no use for must be 0, and there are no streams."""
    bench = DcBench()
    fields = base | ({"srqn": bench.srqn} if base is DCT else {}) | {field: 1}
    assert f"{field} must be 0, not" in bench.err(C.CREATE_QP, **fields)


def test_t_d23_receive_queue_of_a_target():
    """T-D23: a target needs an SRQ, and none of XRC or whose requests take several packets."""
    bench = DcBench()
    assert "needs an SRQ" in bench.err(C.CREATE_QP, **DCT)
    bench.hardware.features |= RdmaFeature.MP_WR.mask | RdmaFeature.XRC.mask
    pieces = bench.ok(X.CREATE_SRQ, **SRQ, mp_wr_buffer=4096, mp_wr_align_log2=6).srqn
    assert "several packets" in bench.err(C.CREATE_QP, **DCT, srqn=pieces)
    bench.ok(X.ALLOC_XRCD)
    named = bench.ok(X.CREATE_XRC_SRQ, **SRQ, xrcdn=1, cqn=1).srqn
    assert "XRC domain" in bench.err(C.CREATE_QP, **DCT, srqn=named)
    assert "No SRQ" in bench.err(C.CREATE_QP, **DCT, srqn=3)
    assert "used by 1 QPs" in bench.err(X.DESTROY_SRQ, srqn=bench.srqn)


@pytest.mark.parametrize("type_", DC_TYPES)
@pytest.mark.parametrize("start", [S.RESET, S.INIT, S.RTR, S.RTS])
def test_t_d20_transitions(type_, start):
    """T-D20: each attribute that is missing or too much is refused; DEST_QPN, RQ_PSN and
    MAX_DEST_RD_ATOMIC are always."""
    if (type_, start) == (T.DCT, S.RTS):
        return  # a target stays in RTR
    bench = DcBench()
    for end in (S.INIT, S.RTR, S.RTS, S.SQD):
        qpn = bench.ok(C.CREATE_QP, **DCT | {"srqn": bench.srqn} if type_ == T.DCT else DCI).qpn
        bench.bring(qpn, start)
        plain = dict(qpn=qpn, attrs=ATTRS | {"qp_state": end, "cur_qp_state": start})
        if (type_, start, end) not in TABLE:
            assert "No transition" in bench.err(C.MODIFY_QP, attr_mask=M.STATE, **plain)
        else:
            required, optional = TABLE[type_, start, end]
            for bit in M:
                if bit & required:
                    mask = M.STATE | required & ~bit
                    assert "missing" in bench.err(C.MODIFY_QP, attr_mask=mask, **plain)
                elif not bit & (optional | M.STATE):
                    mask = M.STATE | required | bit
                    reason = bench.err(C.MODIFY_QP, attr_mask=mask, **plain)
                    assert "not allowed" in reason or "cur_qp_state" in reason
            bench.ok(C.MODIFY_QP, attr_mask=M.STATE | required | optional, **plain)
        bench.ok(C.DESTROY_QP, qpn=qpn)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pdn": 9}, "No PD"),
        ({"dctn": 1 << 24}, "more than 24 bits"),
        ({"dgid": bytes(16)}, "dgid is zero"),
        ({"dgid": b"\xfd" + bytes(14) + b"\1"}, "another address family"),
        ({"sgid_index": 0}, "has no GID"),
        ({"flow_label": 1 << 20}, "flow_label"),
        ({"sl": 8}, "sl cannot be 8"),
        ({"reserved": b"\0\1"}, "reserved"),
    ],
)
def test_destination_refused(change, reason):
    assert reason in DcBench().err(X.CREATE_DC_DESTINATION, **WAY | {"dctn": 5} | change)


def test_destinations():
    bench = DcBench()
    assert [bench.ok(X.CREATE_DC_DESTINATION, **WAY).destination for _ in range(3)] == [1, 2, 3]
    bench.ok(X.DESTROY_DC_DESTINATION, destination=2)
    for number in (0, 2, 4, 1 << 31):
        assert "No destination" in bench.err(X.DESTROY_DC_DESTINATION, destination=number)
    assert bench.ok(X.CREATE_DC_DESTINATION, **WAY).destination == 2
    assert "used by" in bench.err(C.DESTROY_PD, pdn=0)


def test_a_target_by_itself_receives_nothing():
    """Packets to its own number find a row in RESET: only its ends receive."""
    bench = DcBench()
    assert "state" not in bench.pair_row(bench.dct)
    assert bench.ok(C.QUERY_QP, qpn=bench.dct, attr_mask=0).attr.qp_state == S.RTR


def test_connect():
    """An end has a row of its own, with the target's number, rights and receive queue; the same
    CONNECT again has the same reply, and a DISCONNECT frees it, after some time."""
    bench = DcBench()
    (reply,) = bench.receive(bench.asks())
    assert (reply.status, reply.depth, reply.keep, reply.dest) == (0, 4, 20, 0x400011)
    assert bench.receive(bench.asks()) == [reply]
    row = bench.pair_row(reply.context)
    expected = {"type": None, "state": S.RTR, "source.kind": 1, "source.number": bench.srqn}
    expected |= {"qpn": reply.context, "dest_qpn": 0x400011, "path_mtu": 1, "recv_cq": 1}
    expected |= {"max_dest_rd_atomic": 4, "remote_write": 1, "av.sgid_index": 1}
    assert {name: row.get(name) for name in expected} == expected
    number = row.get("max_rd_atomic", 0) | row.get("max_inline", 0) << 8
    assert number | row.get("max_send_sge", 0) << 18 == bench.dct
    assert bench.hardware.row("qp_rx", reply.context % CONFIG.qps)["psn"] == 0x5000
    asked = bench.ok(X.QUERY_DCT, qpn=bench.dct)
    assert (asked.state, asked.contexts, asked.connects) == (1, 1, 1)
    wrong = Disconnect(reply.context, 0x5001, 0x400011, nonce=98)
    (refused,) = bench.receive(wrong)
    assert refused.status == EndStatus.UNKNOWN and bench.pair_row(reply.context)
    goodbye = dataclasses.replace(wrong, nonce=99)
    assert bench.receive(goodbye, gid=mapped_gid(b"\x0a\0\0\3"))[0].status == EndStatus.UNKNOWN
    expected = DisconnectAck(0x400011, 0x5001, reply.context, 99)
    assert bench.receive(goodbye) == [expected]
    assert bench.pair_row(reply.context) == {}
    assert bench.receive(goodbye)[0].status == EndStatus.UNKNOWN
    (other,) = bench.receive(bench.asks(nonce=100))
    assert other.context % CONFIG.qps != reply.context % CONFIG.qps
    bench.net.time += 20_000_000
    bench.step()
    bench.receive(Disconnect(other.context, 0, 0x400011, nonce=100))
    (third,) = bench.receive(bench.asks(nonce=101))
    assert third.context % CONFIG.qps == reply.context % CONFIG.qps
    assert third.context != reply.context


@pytest.mark.parametrize("state", [S.RESET, S.INIT, S.ERR])
def test_t_d4_not_in_rtr(state):
    """T-D4: a target that does not receive."""
    bench = DcBench(state=state)
    (reply,) = bench.receive(bench.asks())
    assert reply.status == ReplyStatus.REFUSED


def test_t_d4_wrong_key():
    """T-D4: counted for the target, with one event until it is asked; a wrong number is not."""
    bench, reported = DcBench(), []
    commands = bench.function.commands
    commands.dc.targets._report = lambda event, **fields: reported.append((event, fields))
    for _ in range(2):
        (reply,) = bench.receive(bench.asks(key=KEY ^ 1 << 63))
        assert reply.status == ReplyStatus.REFUSED
    assert bench.receive(bench.asks(dest=bench.dct ^ 1 << 20))[0].status == ReplyStatus.REFUSED
    assert reported == [(EventType.DCT_KEY_VIOLATION, {"number": bench.dct})]
    assert bench.ok(X.QUERY_DCT, qpn=bench.dct).key_violations == 2
    bench.receive(bench.asks(key=0))
    assert len(reported) == 2
    assert "is no target" in bench.err(X.QUERY_DCT, qpn=bench.initiator())


def fail(bench, pair, syndrome):
    """A request to an end breaks a rule; what is reported."""
    reported = []
    commands = bench.function.commands
    commands.dc.targets._report = lambda event, **fields: reported.append((event, fields))
    row = {"psn": 0x5001, "msn": 0x123456, "error": 1, "syndrome": syndrome}
    bench.hardware.rows["qp_rx"][pair] = row_map("qp_rx").pack(row)
    return reported


@pytest.mark.parametrize(
    ("syndrome", "name", "event"),
    [
        (0x61, "request_errors", EventType.DCT_REQ_ERR),
        (0x62, "access_errors", EventType.DCT_ACCESS_ERR),
        (0x63, None, None),
    ],
)
def test_d_6_a_dead_end_repeats_its_nak(syndrome, name, event):
    """D-6, T-D14: to its channel, with the PSN and the MSN of the request, ever more seldom, until
    a DISCONNECT; it is counted, and an event, once."""
    bench = DcBench()
    (reply,) = bench.receive(bench.asks())
    reported, sent = fail(bench, reply.context % CONFIG.qps, syndrome), []
    bench.net.send = None

    async def send(row):
        sent.append((bench.net.time, row))

    bench.net.send = send
    for _ in range(100):
        bench.net.time += 10_000
        bench.step()
    times = [time for time, _ in sent]
    assert [b - a for a, b in itertools.pairwise(times)] == [200_000, 400_000]
    for _, row in sent:
        assert (row["opcode"], row["dest_qp"], row["psn"]) == (0xD1, 0x400011, 0x5001)
        assert row["content"] == (syndrome << 24 | 0x123456) << 160 and not row["ack_request"]
        assert row["av.dgid"] == int.from_bytes(PEER, "little")
    assert reported == ([(event, {"number": bench.dct})] if event else [])
    asked = bench.ok(X.QUERY_DCT, qpn=bench.dct)
    errors = {one: asked[one] for one in ("access_errors", "request_errors")}
    assert errors == dict.fromkeys(errors, 0) | ({name: 1} if name else {})
    bench.receive(Disconnect(reply.context, 0, 0x400011, nonce=99))
    count = len(sent)
    for _ in range(50):
        bench.net.time += 100_000
        bench.step()
    assert len(sent) == count


def test_d_4_quiet_ends_are_asked_to_close():
    """D-4: when few rows are left, the one that is quiet longest, once in an eighth of its keep
    time, and not in the middle of a message; never when there is room."""
    bench = DcBench()
    replies = [bench.receive(bench.asks(nonce=0, channel=0x400010))[0]]
    bench.net.time += 1_000_000
    bench.hardware.rows["qp_rx"][replies[0].context % CONFIG.qps] = row_map("qp_rx").pack(
        {"psn": 0x5000, "message": 1}
    )
    assert bench.step(3) == []
    while True:
        n = len(replies)
        (reply,) = bench.receive(bench.asks(nonce=n, channel=0x400010 + n))
        if reply.status != ReplyStatus.ACCEPTED:
            break
        replies.append(reply)
        bench.net.time += 1000
    bench.net.time += 30_000
    asked = bench.step(20)
    assert [type(one) for one in asked] == [CloseRequest] * (len(replies) - 1)
    order = [(one.dest, one.number, one.nonce) for one in asked]
    assert order == [(0x400010 + n, replies[n].context, n) for n in range(1, len(replies))]
    bench.net.time += keep_ns(20) // 8
    assert len(bench.step(20)) == len(replies) - 1


def test_t_d17_mtu_and_version():
    """T-D17: a path MTU beyond the target's; another version."""
    bench = DcBench()
    assert bench.receive(bench.asks(mtu=4))[0].status == ReplyStatus.IMPOSSIBLE
    assert bench.receive(bench.asks(version=2))[0].status == ReplyStatus.IMPOSSIBLE


def test_t_d18_another_function():
    """T-D18: the target of one function is none of another's, whose addresses are others."""
    bench = DcBench(config=dataclasses.replace(DC, functions=2))
    row = bench.row_of(bench.asks()) | {"function": 2, "gid_index": bench.gids + 1}
    bench.net.inbox.append(row)
    (reply,) = bench.step()
    assert reply.status == ReplyStatus.REFUSED
    assert bench.net.row["av.sgid_index"] == bench.gids + 1
    (reply,) = bench.receive(bench.asks())
    assert (reply.status, bench.net.row["av.sgid_index"]) == (ReplyStatus.ACCEPTED, 1)


def test_another_partition_is_dropped():
    assert DcBench().receive(DcBench().asks(), pkey=0x8001) == []


def test_t_d3_busy():
    """T-D3: the last eighth of the rows is left for queue pairs; with one that is given back there
    is room."""
    bench = DcBench()
    qps = bench.function.commands.objects.qps
    free = len(qps._free)
    replies = [bench.receive(bench.asks(nonce=n))[0] for n in range(14)]
    accepted = [one for one in replies if one.status == ReplyStatus.ACCEPTED]
    busy = [one for one in replies if one.status == ReplyStatus.BUSY]
    assert len(accepted) == free - (CONFIG.qps - 2) // 8 and busy[0].rnr_timer == 12
    assert len(accepted) + len(busy) == 14
    bench.ok(C.DESTROY_QP, qpn=bench.ok(C.CREATE_QP, **DCI).qpn)
    assert bench.ok(X.QUERY_DCT, qpn=bench.dct).refused_busy == len(busy)
    bench.receive(Disconnect(accepted[0].context, 0, 0x400011, nonce=0))
    assert bench.receive(bench.asks(nonce=50))[0].status == ReplyStatus.BUSY
    bench.net.time += 17_000_000
    bench.step()
    assert bench.receive(bench.asks(nonce=50))[0].status == ReplyStatus.ACCEPTED


def test_t_d15_keep_time():
    """T-D15: an end that hears nothing new for its keep time goes, and what it holds is flushed;
    one that hears something does not."""
    bench = DcBench()
    (reply,) = bench.receive(bench.asks())
    pair, flushed = reply.context % CONFIG.qps, []
    bench.net.time += 4_000_000_000
    bench.hardware.rows["qp_rx"][pair] = row_map("qp_rx").pack({"psn": 0x5001, "message": 1})
    bench.step()
    bench.net.time += 4_000_000_000
    bench.step()
    assert bench.pair_row(pair)

    def flush(number):
        flushed.append(number)
        bench.hardware.rows["qp_rx"][number] = row_map("qp_rx").pack({})

    bench.hardware.on_flush.append(flush)
    bench.net.time += 4_000_000_000
    bench.step()
    assert bench.pair_row(pair) == {} and flushed == [pair]


@pytest.mark.parametrize("how", ["destroy", "reset", "error", "function"])
def test_t_d16_targets_that_go(how):
    """T-D16: their connections end with them, before the command is answered."""
    bench = DcBench(config=dataclasses.replace(DC, functions=2))
    (reply,) = bench.receive(bench.asks())
    if how == "destroy":
        bench.ok(C.DESTROY_QP, qpn=bench.dct)
    elif how == "function":
        bench.hardware.waiting.add(bench.function.number)
        assert bench.settle()
    else:
        bench.modify(bench.dct, M.STATE, {"reset": S.RESET, "error": S.ERR}[how])
    pair = reply.context % CONFIG.qps
    assert bench.hardware.row("qp_cfg", pair) == {}
    unknown = DisconnectAck(0x400011, 0, reply.context, 99, EndStatus.UNKNOWN)
    assert bench.receive(Disconnect(reply.context, 0, 0x400011, 99)) == [unknown]


class Initiator(DcBench):
    """An initiator of which a request waits for destination 1. ``more``: of its creation."""

    def __init__(self, stream=0, more=None, **options):
        super().__init__(**options)
        self.qpn = self.initiator(**more or {})
        self.pair = self.qpn % CONFIG.qps
        self.ok(X.CREATE_DC_DESTINATION, **WAY, dctn=0x33)
        self.net.waits[self.pair] = 1, stream

    def open(self, sent=None):
        """Answers the CONNECT among ``sent``, or that of the next step."""
        (connect,) = self.step() if sent is None else sent
        reply = Reply(connect.channel, connect.psn, connect.nonce, depth=2, context=0x77, keep=20)
        assert self.receive(reply) == []
        return connect


def test_initiator_connects():
    """The card holds the request; the firmware connects, and says where to in the row."""
    bench = Initiator()
    assert "recv_pd" not in bench.pair_row(bench.pair)
    connect = bench.open()
    assert (connect.dest, connect.key, connect.mtu, connect.depth) == (0x33, KEY, 3, 9)
    assert bench.net.row["av.dgid"] == int.from_bytes(PEER, "little")
    row = bench.pair_row(bench.pair)
    expected = {"recv_pd": 1, "dest_qpn": 0x77, "qpn": connect.channel, "max_rd_atomic": 2}
    expected |= {"source.kind": 2, "state": S.RTS, "av.dgid": int.from_bytes(PEER, "little")}
    assert {name: row.get(name) for name in expected} == expected
    number = row.get("max_dest_rd_atomic", 0) | row.get("read_base", 0) << 8
    assert number == bench.qpn and connect.channel % CONFIG.qps == bench.pair
    for table in ("qp_tx", "qp_ack", "qp_sent"):
        assert bench.hardware.row(table, bench.pair)["psn"] == connect.psn
    log = [entry[0] for entry in bench.hardware.log]
    assert "wake" in log and bench.net.waits == {}


def test_initiator_closes_when_it_is_quiet():
    bench = Initiator()
    connect = bench.open()
    assert bench.step() == []
    bench.net.time += 200_000
    (goodbye,) = bench.step()
    assert goodbye == Disconnect(0x77, connect.psn, connect.channel, connect.nonce)
    assert "recv_pd" not in bench.pair_row(bench.pair)
    assert bench.receive(DisconnectAck(connect.channel, connect.psn, 0x77, connect.nonce)) == []
    assert bench.step(3) == []
    bench.net.waits[bench.pair] = 1, 0
    (again,) = bench.step()
    assert again.channel != connect.channel and again.nonce != connect.nonce


def test_initiator_changes_its_target():
    """First no request begins, then all that have begun end, and then the connection does."""
    bench = Initiator()
    bench.ok(X.CREATE_DC_DESTINATION, **WAY, dctn=0x44)
    connect = bench.open()
    tables = bench.hardware.rows
    tables["qp_tx"][bench.pair] = row_map("qp_tx").pack({"high": 2, "psn": connect.psn + 2})
    bench.net.waits[bench.pair] = 2, 0
    assert bench.step(3) == []
    assert "recv_pd" not in bench.pair_row(bench.pair)
    ended = {"position": 2, "psn": connect.psn + 2}
    tables["qp_ack"][bench.pair] = row_map("qp_ack").pack(ended)
    (goodbye,) = bench.step()
    assert goodbye.psn == connect.psn + 2
    done = DisconnectAck(connect.channel, goodbye.psn, 0x77, connect.nonce)
    (other,) = bench.receive(done)
    assert other.dest == 0x44


@pytest.mark.parametrize(
    ("status", "wc"),
    [
        (ReplyStatus.REFUSED, WcStatus.REM_ACCESS_ERR),
        (ReplyStatus.IMPOSSIBLE, WcStatus.REM_INV_REQ_ERR),
    ],
)
def test_t_d4_initiator_is_refused(status, wc):
    """T-D4, T-D17: the card ends the request with what has come of it."""
    bench = Initiator()
    (connect,) = bench.step()
    bench.receive(Reply(connect.channel, connect.psn, connect.nonce, status))
    row = bench.pair_row(bench.pair)
    assert (row["recv_pd"], row["min_rnr_timer"]) == (1, wc)
    assert bench.step(3) == []


def test_t_d5_nobody_answers():
    """T-D5: retry_cnt 6: seven CONNECTs."""
    bench, sent = Initiator(), 0
    for _ in range(20):
        sent += len(bench.step())
        bench.net.time += 4096 << 14
    assert sent == 7
    assert bench.pair_row(bench.pair)["min_rnr_timer"] == WcStatus.RETRY_EXC_ERR


def test_a_reply_from_somebody_else_is_dropped():
    bench = Initiator()
    (connect,) = bench.step()
    reply = Reply(connect.channel, connect.psn, connect.nonce, context=0x77, keep=20)
    bench.receive(reply, gid=mapped_gid(b"\x0a\0\0\3"))
    assert "recv_pd" not in bench.pair_row(bench.pair)


def test_no_such_destination():
    bench = Initiator()
    bench.net.waits[bench.pair] = 9, 0
    assert bench.step() == []
    row = bench.pair_row(bench.pair)
    assert (row["recv_pd"], row["min_rnr_timer"]) == (9, WcStatus.LOC_QP_OP_ERR)


@pytest.mark.parametrize("how", ["destroy", "reset", "error", "card"])
def test_t_d16_initiators_that_go(how):
    """T-D16: the target is told once, and the pair is as new."""
    bench = Initiator()
    connect = bench.open()
    bench.net.sent.clear()
    if how == "destroy":
        bench.ok(C.DESTROY_QP, qpn=bench.qpn)
    elif how == "card":
        bench.hardware.rows["qp_ack"][bench.pair] = row_map("qp_ack").pack({"error": 1})
    else:
        bench.modify(bench.qpn, M.STATE, {"reset": S.RESET, "error": S.ERR}[how])
    goodbye = bench.step(3)
    assert goodbye == [Disconnect(0x77, connect.psn, connect.channel, connect.nonce)]
    if how == "reset":
        bench.bring(bench.qpn, S.RTS)
        bench.net.waits[bench.pair] = 1, 0
        assert bench.open().nonce != connect.nonce


def test_journal():
    """A firmware that comes after this one has the same destinations."""
    bench = Initiator()
    whole = records.Record()
    records.merge(whole, records.everything(bench.function.commands))
    whole = json.loads(json.dumps(whole))
    other = DcBench()
    other.function.commands.forget()
    records.restore(other.function.commands, whole)
    before, after = (one.function.commands.objects.destinations.all() for one in (bench, other))
    assert [(one.dctn, one.key, one.number) for one in after] == [(0x33, KEY, 1)]
    assert dict(after[0].ah["grh"]) == dict(before[0].ah["grh"])
    assert after[0].pd.users == before[0].pd.users


STREAMS = dict(create_flags=1, log_streams=2, log_errored=1)


class Streamer(Initiator):
    """An initiator with streams, two of which may fail; its first request is of stream 7."""

    def __init__(self):
        super().__init__(7, STREAMS)

    def set(self, table, **changes):
        """What the card has done to a row."""
        row = self.hardware.row(table, self.pair)
        self.hardware.rows[table][self.pair] = row_map(table).pack({**row, **changes})

    def fails(self):
        """A request has failed, and what was behind it is flushed."""
        for table in ("qp_tx", "qp_ack"):
            self.set(table, error=1)

    @property
    def row(self):
        return self.pair_row(self.pair)

    @property
    def at(self):
        """Destination and stream of the row, and whether it flushes."""
        stream = self.row.get("recv_cq", 0) | self.row.get("max_recv_sge", 0) << 14
        error = self.hardware.row("qp_tx", self.pair).get("error", 0)
        return self.row.get("recv_pd", 0), stream, error

    def state(self):
        return self.ok(C.QUERY_QP, qpn=self.qpn, attr_mask=0).attr.qp_state


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"create_flags": 3}, "create_flags must be 0"),
        ({"create_flags": 0}, "without streams"),
        ({"log_streams": 17}, "max_dci_log_streams"),
        ({"log_errored": 9}, "max_dci_log_errored"),
    ],
)
def test_t_d23_streams(change, reason):
    assert reason in DcBench().err(C.CREATE_QP, **DCI | STREAMS | change)


def test_d_8_an_error_ends_a_stream():
    """D-8, D-14: what is of it is flushed, and its connection ends; a request of another stream
    connects anew, and one of the first stream is flushed, to whatever destination it goes."""
    bench = Streamer()
    connect = bench.open()
    assert bench.at == (1, 7, 0) and bench.row["remote_write"] == 1
    bench.fails()
    (goodbye,) = bench.step()
    assert isinstance(goodbye, Disconnect) and bench.at == (1, 7, 1)
    end = DisconnectAck(connect.channel, goodbye.psn, 0x77, connect.nonce)
    bench.receive(end)
    bench.net.waits[bench.pair] = 1, 0xFFFF
    bench.step()
    assert bench.at == (0, 7, 0)  # the error is taken away, and no request begins
    bench.open()
    assert bench.at == (1, 0xFFFF, 0) and bench.state() == S.RTS
    bench.net.waits[bench.pair] = 9, 7
    goodbye = bench.step()[-1]
    assert isinstance(goodbye, Disconnect)
    bench.receive(DisconnectAck(goodbye.number, goodbye.psn, 0x77, goodbye.nonce))
    bench.step()
    assert bench.at == (9, 7, 1) and not bench.net.waits
    assert bench.state() == S.RTS


def test_d_13_streams_of_one_destination_share_a_connection():
    """D-13, D-14: one stream at a time; the next one has to wait until all before it has ended."""
    bench = Streamer()
    bench.open()
    bench.set("qp_tx", high=1)
    bench.net.waits[bench.pair] = 1, 8
    assert bench.step() == [] and bench.at == (0, 7, 0)  # it is held
    bench.set("qp_ack", position=1)
    assert bench.step() == [] and bench.at == (1, 8, 0)
    assert bench.row["dest_qpn"] == 0x77 and not bench.net.waits


def test_d_9_d_10_as_many_as_may_fail():
    """D-9, D-10, T-D12: the initiator fails with the second stream, and nobody sees the error
    before that; the same one twice counts once. After RESET none has failed."""
    bench, seen = Streamer(), []
    bench.function.commands.events.report = lambda event, **fields: seen.append((event, fields))
    bench.open()
    for _ in range(2):
        bench.fails()
        assert bench.state() == S.RTS
    (goodbye,) = bench.step()
    bench.receive(DisconnectAck(goodbye.number, goodbye.psn, 0x77, goodbye.nonce))
    bench.net.waits[bench.pair] = 1, 8
    bench.step()
    bench.open()
    bench.fails()
    assert bench.state() == S.ERR and bench.row["state"] == S.ERR  # all else is flushed
    assert "not in RTS" in bench.err(X.RESET_STREAM, qpn=bench.qpn, stream_id=8)
    bench.modify(bench.qpn, M.STATE, S.RESET)
    for table in ("qp_tx", "qp_ack"):
        assert not bench.hardware.row(table, bench.pair).get("error")
    bench.bring(bench.qpn, S.RTS)
    assert "has not failed" in bench.err(X.RESET_STREAM, qpn=bench.qpn, stream_id=7)


def test_a_queue_that_overflows_takes_the_initiator():
    """It is the error of no stream: all is flushed, and RESET helps."""
    bench = Streamer()
    bench.open()
    bench.set("qp_rx", error=1)
    assert bench.state() == S.ERR and bench.row["state"] == S.ERR
    assert bench.at == (1, 7, 0)
    bench.modify(bench.qpn, M.STATE, S.RESET)
    bench.bring(bench.qpn, S.RTS)
    assert bench.state() == S.RTS


def test_d_11_reset_of_a_stream():
    """D-11: it goes on; refused for a stream that has not failed, or is still flushed, and of an
    initiator without streams."""
    bench = Streamer()
    connect = bench.open()
    plain = dict(qpn=bench.qpn, stream_id=7)
    assert "has not failed" in bench.err(X.RESET_STREAM, **plain)
    bench.fails()
    assert "has not failed" in bench.err(X.RESET_STREAM, **plain | {"stream_id": 8})
    bench.set("qp_tx", high=1)
    assert "being flushed" in bench.err(X.RESET_STREAM, **plain)
    bench.set("qp_ack", position=1)
    assert "reserved" in bench.err(X.RESET_STREAM, **plain, reserved=1)
    bench.ok(X.RESET_STREAM, **plain)
    assert bench.at == (0, 7, 0)
    bench.net.waits[bench.pair] = 1, 7
    goodbye = bench.step()[-1]  # not on the connection of before
    assert isinstance(goodbye, Disconnect) and goodbye.number == connect.channel
    bench.open(bench.receive(DisconnectAck(goodbye.number, goodbye.psn, 0x77, goodbye.nonce)))
    assert bench.at == (1, 7, 0)
    other = bench.ok(C.CREATE_QP, **DCI).qpn
    assert "no streams" in bench.err(X.RESET_STREAM, qpn=other)


def test_a_stream_without_streams():
    """The request ends with LOC_QP_OP_ERR."""
    bench = Initiator()
    bench.net.waits[bench.pair] = 1, 3
    assert bench.step() == []
    row = bench.pair_row(bench.pair)
    assert (row["recv_pd"], row["recv_cq"]) == (1, 3)
    assert row["min_rnr_timer"] == WcStatus.LOC_QP_OP_ERR


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_one_initiator_reaches_many_targets(count):
    """Each request goes to another target: one connection after the other, each with a nonce of its
    own. A destination is forgotten when the next one is needed, so there are more of them in time
    than at a time."""
    bench, nonces, to = Initiator(), set(), 1
    for dctn in range(1, count + 1):
        bench.net.waits[bench.pair] = to, 0
        connect = bench.open()
        nonces.add(connect.nonce)
        assert bench.pair_row(bench.pair)["recv_pd"] == to
        bench.net.time += 200_000
        (goodbye,) = bench.step()
        assert goodbye == Disconnect(0x77, connect.psn, connect.channel, connect.nonce)
        assert bench.receive(DisconnectAck(connect.channel, 0, 0x77, connect.nonce)) == []
        before, to = to, bench.ok(X.CREATE_DC_DESTINATION, **WAY, dctn=dctn).destination
        bench.ok(X.DESTROY_DC_DESTINATION, destination=before)
    assert len(nonces) == count and len(bench.function.commands.objects.destinations) == 1
