"""MODIFY_QP: every type, transition and mask bit, compared with the InfiniBand tables; T-X13 among
them."""

import pytest

from firmware.objects import Refused
from firmware.transitions import TRANSITIONS, next_state
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from tests.firmware.test_qp import QpBench
from tests.firmware.transition_table import TABLE, TYPES, XRC_TYPES

#: In the tables, but without a meaning here: there is no path migration (VR-3.25).
NOT_OFFERED = M.ALT_PATH
ALL = (*TYPES, *XRC_TYPES)


class Walker:
    """Tries MODIFY_QP from one state; a QP that has moved is made anew."""

    def __init__(self, type_, start):
        self.type, self.start = type_, start
        self.bench = QpBench(type_, start)

    def allowed(self, mask, end):
        self.bench.modify(mask, qp_state=end, cur_qp_state=self.start)
        state = end if mask & M.STATE else self.start
        assert self.bench.query().qp_state == state == self.bench.row("qp_cfg").get("state", 0)
        self.bench = QpBench(self.type, self.start)

    def refused(self, mask, end):
        reason = self.bench.refuse(mask, qp_state=end, cur_qp_state=self.start)
        assert self.bench.query().qp_state == self.start
        return reason


def starts(type_):
    """States that a QP of the type can be in: only unreliable ones have SQE."""
    return [state for state in S if type_ not in (T.RC, *XRC_TYPES) or state != S.SQE]


@pytest.mark.parametrize(
    ("type_", "start"),
    [(type_, start) for type_ in ALL for start in starts(type_)],
)
def test_every_mask(type_, start):
    """The required attributes alone; one missing; one more, of all that there are."""
    walker = Walker(type_, start)
    for end in S:
        if (type_, start, end) not in TABLE:
            for mask in (M.STATE, M.STATE | sum(M, M(0)) & ~M.CUR_STATE):
                assert f"No transition from {start.name} to {end.name}" in walker.refused(mask, end)
            continue
        required, optional = TABLE[type_, start, end]
        walker.allowed(M.STATE | required, end)
        for bit in M:
            if bit & M.STATE:
                continue
            if bit & required:
                assert f"missing {bit!r}" in walker.refused(M.STATE | required & ~bit, end)
            elif bit & NOT_OFFERED & optional:
                assert "path migration" in walker.refused(M.STATE | required | bit, end)
            elif bit & optional:
                walker.allowed(M.STATE | required | bit, end)
            else:
                reason = walker.refused(M.STATE | required | bit, end)
                assert f"not allowed {bit!r}" in reason or f"in {start.name}" in reason
        if optional & ~NOT_OFFERED:
            walker.allowed(M.STATE | required | optional & ~NOT_OFFERED, end)


@pytest.mark.parametrize(
    ("type_", "state"),
    [(type_, start) for type_ in ALL for start in starts(type_)],
)
def test_every_mask_without_state(type_, state):
    """Without STATE the QP stays where it is, whatever ``qp_state`` holds."""
    walker = Walker(type_, state)
    if (type_, state, state) not in TABLE:
        assert f"No transition from {state.name} to {state.name}" in walker.refused(M(0), S.ERR)
        return
    required, optional = TABLE[type_, state, state]
    assert not required
    for bit in M:
        if bit & optional & ~NOT_OFFERED:
            walker.allowed(bit, S.ERR)
        elif not bit & M.STATE:
            walker.refused(bit, S.ERR)


def test_tables_are_equal():
    """Both tables name the same transitions, also those that no QP can make."""
    ours = {edge: (one.required, one.optional) for edge, one in TRANSITIONS.items()}
    assert ours == TABLE
    with pytest.raises(Refused, match="No transition from SQE to RTS"):
        next_state(S.SQE, T.RC, M.STATE, {"qp_state": S.RTS, "cur_qp_state": S.SQE})


def test_unknown_bits():
    bench = QpBench()
    for bit in range(26, 32):
        assert "unknown bits" in bench.refuse(M.STATE | 1 << bit, qp_state=S.ERR)


@pytest.mark.parametrize("start", [S.RTR, S.RTS, S.SQD, S.SQE])
def test_current_state_is_compared(start):
    """CUR_STATE must name the state that the QP is in, also one that the hardware has chosen."""
    walker = Walker(T.UD, start)
    required, _ = TABLE[T.UD, start, S.RTS]
    mask = M.STATE | M.CUR_STATE | required
    for claim in [*S, 7, 255]:
        if claim != start:
            reason = walker.bench.refuse(mask, qp_state=S.RTS, cur_qp_state=claim)
            assert f"but the QP is in {start.name}" in reason
    walker.allowed(mask, S.RTS)


@pytest.mark.parametrize("type_", [T.UD, T.GSI])
@pytest.mark.parametrize("qkey", [0, 1, 0x80010000, 0xFFFFFFFF])
def test_qkeys(type_, qkey):
    """Every Q_Key may be set from the control path, privileged ones (bit 31) too (VR-7.5); QP1
    works with the well-known one whatever its driver says."""
    bench = QpBench(type_)

    def shown(value):
        assert bench.query().qkey == value
        row = bench.row("qp_cfg").get("qkey", 0)
        assert row == (value if type_ == T.UD else 0x80010000)

    bench.go(S.INIT, qkey=qkey)
    shown(qkey)
    for state in (S.RTR, S.RTS):
        bench.go(state)
    shown(qkey)
    bench.modify(M.QKEY, qkey=qkey ^ 5)
    shown(qkey ^ 5)
