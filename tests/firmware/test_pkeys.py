"""The P_Key table: set by whoever runs the card, used by QPs through their index."""

import pytest

from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from hdl.abi.limits import MAX_PKEYS
from hdl.config import NicConfig
from tests.firmware.fake_hardware import ALL_TYPES, Bench, finish
from tests.firmware.test_qp import QpBench


@pytest.mark.parametrize("type_", [T.RC, T.UC, T.UD, T.GSI])
def test_index_chooses_the_pkey(type_):
    """In every state in which MODIFY_QP may carry the index."""
    bench = QpBench(type_)
    for index, pkey in ((1, 0x8001), (2, 0x7FFF), (MAX_PKEYS - 1, 0xFFFE)):
        bench.function.set_pkey(index, pkey)
    bench.go(S.INIT, pkey_index=1)
    assert (bench.row("qp_cfg")["pkey"], bench.query().pkey_index) == (0x8001, 1)
    bench.modify(M.PKEY_INDEX, pkey_index=2)
    assert bench.row("qp_cfg")["pkey"] == 0x7FFF
    bench.go(S.RTR, bench.mask(S.RTR) | M.PKEY_INDEX, pkey_index=MAX_PKEYS - 1)
    assert bench.row("qp_cfg")["pkey"] == 0xFFFE
    bench.go(S.RTS)
    bench.go(S.SQD)
    bench.modify(M.PKEY_INDEX, pkey_index=0)
    assert bench.row("qp_cfg")["pkey"] == 0xFFFF


def test_index_without_a_pkey_is_refused():
    bench = QpBench()
    mask = bench.mask(S.INIT)
    assert "pkey_index 3 has no P_Key" in bench.refuse(mask, qp_state=S.INIT, pkey_index=3)
    assert "cannot be 16" in bench.refuse(mask, qp_state=S.INIT, pkey_index=MAX_PKEYS)
    bench.function.set_pkey(3, 0x8003)
    bench.go(S.INIT, pkey_index=3)
    bench.function.set_pkey(0, None)
    other = bench.create()
    bench.qpn = other
    assert "pkey_index 0 has no P_Key" in bench.refuse(mask, qp_state=S.INIT)


def test_a_change_reaches_the_qps_that_use_it():
    """At the next step, in the state that they are in; and nobody else."""
    bench = QpBench(state=S.RTS)
    other = bench.create()
    bench.function.set_pkey(1, 0x8005)
    fields = dict(qpn=other, attr_mask=bench.mask(S.INIT))
    bench.ok(C.MODIFY_QP, **fields, attrs=dict(qp_state=S.INIT, port_num=1, pkey_index=1))
    bench.hardware.log.clear()
    bench.function.set_pkey(1, 0x0005)
    finish(bench.firmware.step())
    assert bench.hardware.log == [("write", "pkey", 0), ("write", "qp_cfg", other % 16)]
    assert bench.hardware.row("qp_cfg", other % 16)["pkey"] == 0x0005
    bench.hardware.log.clear()
    finish(bench.firmware.step())
    assert not bench.hardware.log
    bench.function.set_pkey(0, 0x9000)
    finish(bench.firmware.step())
    row = bench.row("qp_cfg")
    assert (row["pkey"], row["state"]) == (0x9000, S.RTS)
    bench.function.set_pkey(0, None)
    finish(bench.firmware.step())
    assert "pkey" not in bench.row(
        "qp_cfg"
    )  # such a QP accepts nothing: hdl/transport/receive/intake_check.py


def test_the_hardware_has_the_table():
    """From the first step on, as QP1 takes packets of each of the function's partitions."""
    bench = Bench()
    firmware, hardware = bench.firmware, bench.hardware
    finish(firmware.step())
    assert hardware.row("pkey", 0) == {"key0": 0xFFFF}
    firmware.functions[0].set_pkey(MAX_PKEYS - 1, 0x8007)
    finish(firmware.step())
    assert hardware.row("pkey", 0) == {"key0": 0xFFFF, f"key{MAX_PKEYS - 1}": 0x8007}
    firmware.functions[0].set_pkey(0, None)
    finish(firmware.step())
    assert hardware.row("pkey", 0) == {f"key{MAX_PKEYS - 1}": 0x8007}


def test_each_function_has_its_own():
    bench = Bench(config=NicConfig(functions=2, qps=8, cqs=4, mrs=4, gids=2, vectors=8))
    bench.firmware.functions[1].set_pkey(2, 0x8002)
    finish(bench.firmware.step())
    finish(bench.firmware.step())
    rows = [bench.hardware.row("pkey", ordinal) for ordinal in (0, 1)]
    assert rows == [{"key0": 0xFFFF}, {"key0": 0xFFFF, "key2": 0x8002}]


def test_a_card_without_datagrams_has_no_table():
    bench = Bench(qp_types=ALL_TYPES - {T.UD, T.GSI})
    finish(bench.firmware.step())
    assert not bench.hardware.rows["pkey"]


def test_a_reset_leaves_the_table():
    bench = QpBench()
    bench.function.set_pkey(4, 0x8004)
    bench.hardware.resets_seen += 1
    finish(bench.firmware.step())
    assert bench.ok(C.QUERY_PKEY, port=1, index=4).pkey == 0x8004


@pytest.mark.parametrize(("index", "pkey"), [(-1, 1), (MAX_PKEYS, 1)])
def test_bad_index(index, pkey):
    with pytest.raises(ValueError, match=f"No P_Key {index}"):
        QpBench().function.set_pkey(index, pkey)


@pytest.mark.parametrize("pkey", [0, 0x8000, 0x10000, 0x18001, -1])
def test_bad_pkey(pkey):
    with pytest.raises(ValueError, match="16 bits and name a partition"):
        QpBench().function.set_pkey(0, pkey)
