"""Receive queues whose requests take several packets: every refusal, and the rows that follow.
T-M8; T-M9, as far as the driver's library refuses, is in ``tests/sim/test_mp_wr.py``."""

import dataclasses
import json

import pytest

from firmware import records
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from hdl.abi.enums import RdmaFeature
from hdl.ports.rows import QpCfg
from hdl.ports.sources import PIECES
from tests.firmware.fake_hardware import ALL_TYPES, CONFIG
from tests.firmware.test_qp import CREATION, XRC_CREATION, QpBench
from tests.firmware.transition_table import XRC_TYPES

CARD = dataclasses.replace(CONFIG, xrc=True, mp_wr=True)
LAST = CONFIG.qps - 1
PIECES_OF = dict(mp_wr_buffer=65536, mp_wr_align_log2=9)
SRQ = dict(pdn=0, max_wr=8, max_sge=2)
LARGEST = 1 << 24


class MpWrBench(QpBench):
    """A card that has them, with an XRC domain."""

    def __init__(self, *, features=None):
        super().__init__(T.RC, config=CARD, qp_types=ALL_TYPES | {*XRC_TYPES})
        names = (RdmaFeature.SRQ, RdmaFeature.XRC, RdmaFeature.MP_WR)
        self.hardware.features = sum(name.mask for name in names) if features is None else features
        if features is None:
            self.ok(X.ALLOC_XRCD)

    def pieces(self, pair, datagram=False):
        """What the card finds in the row of a pair."""
        row = self.hardware.row("qp_cfg", pair)
        word = row.get("av.dmac" if datagram else "qkey", 0)
        fields = PIECES.from_bits(word & (1 << PIECES.size) - 1)
        return (fields.on, fields.align, fields.size)


def test_place_of_the_word():
    assert PIECES.size <= min(QpCfg.as_shape()["qkey"].width, 48)


@pytest.mark.parametrize("type_", [T.RC, T.UC, T.UD])
def test_row_of_a_queue_pair(type_):
    bench = MpWrBench()
    pair = bench.create(type_, mp_wr_buffer=10_112, mp_wr_align_log2=7) % CONFIG.qps
    assert bench.pieces(pair, type_ == T.UD) == (1, 1, 158)
    plain = bench.create(type_) % CONFIG.qps
    assert bench.pieces(plain, type_ == T.UD) == (0, 0, 0)


def test_q_key_of_datagrams_stays():
    bench = MpWrBench()
    bench.type = T.UD
    bench.qpn = bench.create(T.UD, **PIECES_OF)
    bench.pair = bench.qpn % CONFIG.qps
    bench.go(S.INIT)
    row = bench.hardware.row("qp_cfg", bench.pair)
    assert row["qkey"] == 0x11111111 and bench.pieces(bench.pair, True) == (1, 3, 1024)


def test_row_of_a_shared_queue():
    """The row of each QP that takes from it has it, and that of an XRC queue's own pair."""
    bench = MpWrBench()
    srqn = bench.ok(X.CREATE_SRQ, **SRQ, **PIECES_OF).srqn
    for type_ in (T.RC, T.UD):
        pair = bench.create(type_, srqn=srqn, max_recv_wr=0) % CONFIG.qps
        assert bench.pieces(pair, type_ == T.UD) == (1, 3, 1024)
    made = bench.ok(X.CREATE_XRC_SRQ, **SRQ, **PIECES_OF, xrcdn=1, cqn=1)
    assert bench.pieces(made.srqn) == (1, 3, 1024)
    bench.ok(X.DESTROY_SRQ, srqn=made.srqn)
    assert bench.pieces(made.srqn) == (0, 0, 0)


BAD = [
    ({"mp_wr_buffer": LARGEST + 4096, "mp_wr_align_log2": 12}, "max_mp_wr_buffer"),
    ({"mp_wr_align_log2": 13}, "mp_wr_align_log2"),
    ({"mp_wr_align_log2": 5}, "mp_wr_align_log2"),  # 32 bytes
    ({"mp_wr_align_log2": 255}, "mp_wr_align_log2"),
    ({"mp_wr_align_log2": 0}, "mp_wr_align_log2"),
    ({"mp_wr_buffer": 0}, "max_mp_wr_buffer"),
    ({"mp_wr_buffer": 65536 + 256}, "multiple"),
    ({"mp_wr_buffer": 4096 - 512}, "max_mp_wr_buffer"),
]


@pytest.mark.parametrize(("change", "reason"), BAD)
def test_t_m8_refused(change, reason):
    """T-M8: buffer and alignment beyond the limits, of 32 bytes, no whole segments."""
    bench, asked = MpWrBench(), PIECES_OF | change
    assert reason in bench.err(C.CREATE_QP, **CREATION | asked)
    assert reason in bench.err(X.CREATE_SRQ, **SRQ, **asked)
    assert reason in bench.err(X.CREATE_XRC_SRQ, **SRQ, **asked, xrcdn=1, cqn=1)


def test_t_m8_the_largest():
    bench = MpWrBench()
    limits = bench.function.commands.limits.device
    assert (limits["max_mp_wr_buffer"], limits["max_mp_wr_align"]) == (LARGEST, 4096)
    pair = bench.create(mp_wr_buffer=LARGEST, mp_wr_align_log2=12) % CONFIG.qps
    assert bench.pieces(pair) == (1, 6, LARGEST // 64)
    pair = bench.create(mp_wr_buffer=4096, mp_wr_align_log2=6) % CONFIG.qps
    assert bench.pieces(pair) == (1, 0, 64)


def test_t_m8_types():
    """T-M8: no QP without a receive queue of its own, and no datagrams that do not fit."""
    bench = MpWrBench()
    for type_ in (T.GSI, T.XRC_INI, T.XRC_TGT):
        asked = CREATION | XRC_CREATION.get(type_, {}) | PIECES_OF | {"qp_type": type_}
        assert "no receive queue" in bench.err(C.CREATE_QP, **asked)
    srqn = bench.ok(X.CREATE_SRQ, **SRQ).srqn
    asked = CREATION | PIECES_OF | {"srqn": srqn, "max_recv_wr": 0}
    assert "no receive queue" in bench.err(C.CREATE_QP, **asked)
    small = {"mp_wr_buffer": 4096, "mp_wr_align_log2": 6}
    assert "datagram" in bench.err(C.CREATE_QP, **CREATION | small | {"qp_type": T.UD})
    srqn = bench.ok(X.CREATE_SRQ, **SRQ, **small).srqn
    asked = CREATION | {"qp_type": T.UD, "srqn": srqn, "max_recv_wr": 0}
    assert "datagram" in bench.err(C.CREATE_QP, **asked)


def test_one_cq_of_a_shared_queue():
    """M-5: the last completion of a request is the last one in its CQ, so there is one."""
    bench = MpWrBench()
    srqn = bench.ok(X.CREATE_SRQ, **SRQ, **PIECES_OF).srqn
    of = {"srqn": srqn, "max_recv_wr": 0}
    bench.create(recv_cqn=1, **of)
    bench.create(recv_cqn=1, **of)
    assert "recv_cqn 0" in bench.err(C.CREATE_QP, **CREATION | of | {"recv_cqn": 0})
    plain = bench.ok(X.CREATE_SRQ, **SRQ).srqn
    for cqn in (0, 1):
        bench.create(srqn=plain, max_recv_wr=0, recv_cqn=cqn)


def test_without_the_feature():
    """The fields of CREATE_QP mean nothing; a receive queue is not what it would have to be."""
    bench = MpWrBench(features=RdmaFeature.SRQ.mask)
    pair = bench.create(**PIECES_OF) % CONFIG.qps
    assert bench.pieces(pair) == (0, 0, 0)
    assert "one message" in bench.err(X.CREATE_SRQ, **SRQ, **PIECES_OF)


def test_journal():
    """A firmware that comes after this one gives the same rows."""
    bench = MpWrBench()
    srqn = bench.ok(X.CREATE_SRQ, **SRQ, **PIECES_OF).srqn
    bench.create(srqn=srqn, max_recv_wr=0)
    bench.create(**PIECES_OF)
    whole = records.Record()
    records.merge(whole, records.everything(bench.function.commands))
    whole = json.loads(json.dumps(whole))
    other = MpWrBench()
    other.function.commands.forget()
    records.restore(other.function.commands, whole)
    before, after = (one.function.commands.objects for one in (bench, other))
    for name in ("srqs", "qps"):
        pairs = zip(getattr(before, name).all(), getattr(after, name).all(), strict=True)
        for one, same in pairs:
            assert repr(one) == repr(same) and one.pieces == same.pieces
