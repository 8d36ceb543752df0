"""ALLOC_MW and DEALLOC_MW, and what bound windows refuse (docs/extensions.md)."""

import asyncio

import pytest

from hdl.abi.enums import Access, DeviceCap, MwType, RdmaFeature, ReregFlags
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.limits import device_limits
from hdl.config import NicConfig
from hdl.ports.rows import MrType
from tests.firmware.fake_hardware import CONFIG
from tests.firmware.test_qp import QpBench

FEATURES = RdmaFeature.MW.mask | RdmaFeature.REREG_MR.mask
LOCAL, BIND = Access.LOCAL_WRITE, Access.MW_BIND
REGION = dict(pdn=0, start=0x1000, length=4096, virt_addr=0x1000, pages=0x8000, npages=1)
SECOND = (MwType.TYPE_2, MwType.TYPE_2A)
FREE = {MwType.TYPE_1: MrType.WINDOW_1} | dict.fromkeys(SECOND, MrType.WINDOW_2)
BOUND = {MwType.TYPE_1: MrType.BOUND_1} | dict.fromkeys(SECOND, MrType.BOUND_2)


class WindowBench(QpBench):
    """A PD, a QP in RTS, a region that may have windows, and windows of it."""

    def __init__(self):
        super().__init__()
        self.hardware.features = FEATURES
        self.mrn = self.ok(C.REG_USER_MR, **REGION, access_flags=LOCAL | BIND).mrn

    def alloc(self, kind, pdn=0):
        return self.ok(X.ALLOC_MW, pdn=pdn, type=kind)

    def bind(self, window, kind, *, qp=0):
        """The hardware binds it, as a work request makes it."""
        card = self.hardware
        row = asyncio.run(card.read_row("mr", window.mwn))
        new = row | {"type": BOUND[kind].value, "parent": self.mrn, "qp": qp, "length": 4}
        asyncio.run(card.write_row("mr", window.mwn, new))


@pytest.mark.parametrize("kind", MwType)
def test_a_window_is_not_bound_at_first(kind):
    bench = WindowBench()
    made = bench.alloc(kind)
    assert made.rkey >> 8 == made.mwn and made.rkey & 0xFF
    row = {"type": FREE[kind].value, "function": 1, "tag": made.rkey & 0xFF}
    assert bench.hardware.row("mr", made.mwn) == row
    bench.ok(X.DEALLOC_MW, mwn=made.mwn)
    assert bench.hardware.row("mr", made.mwn) == {}
    assert bench.hardware.log[-2:] == [("write", "mr", made.mwn), ("invalidate", made.mwn)]
    assert bench.alloc(kind).rkey != made.rkey


def test_refused():
    bench = WindowBench()
    for kind in (0, 4):
        assert f"type {kind}" in bench.err(X.ALLOC_MW, pdn=0, type=kind)
    assert "No PD" in bench.err(X.ALLOC_MW, pdn=9, type=1)
    assert "is not a window" in bench.err(X.DEALLOC_MW, mwn=bench.mrn)
    assert "No MR" in bench.err(X.DEALLOC_MW, mwn=9)
    window = bench.alloc(MwType.TYPE_2).mwn
    assert "is a window" in bench.err(C.DEREG_MR, mrn=window)
    assert "is a window" in bench.err(X.REREG_MR, mrn=window, flags=ReregFlags.ACCESS)
    assert "is not from CREATE_MR" in bench.err(C.MAP_MR_SG, mrn=window, npages=1)


def test_they_share_the_numbers_of_the_regions_and_count_for_the_domain():
    bench = WindowBench()
    bench.ok(C.CREATE_PD)
    windows = [bench.alloc(MwType.TYPE_1, pdn=1) for _ in range(CONFIG.mrs - 1)]
    assert "All 32 MRs are in use" in bench.err(X.ALLOC_MW, pdn=1, type=1)
    assert "used by 31 objects" in bench.err(C.DESTROY_PD, pdn=1)
    for window in windows:
        bench.ok(X.DEALLOC_MW, mwn=window.mwn)
    bench.ok(C.DESTROY_PD, pdn=1)


@pytest.mark.parametrize("kind", MwType)
def test_a_region_stays_while_a_window_is_bound(kind):
    """Neither DEREG_MR nor REREG_MR, and the region is afterwards as it was."""
    bench = WindowBench()
    window = bench.alloc(kind)
    bench.bind(window, kind)
    before = bench.hardware.row("mr", bench.mrn)
    assert before["bind"] == 1
    found = bench.err(C.DEREG_MR, mrn=bench.mrn)
    assert found == f"window {window.mwn} is bound to MR {bench.mrn}"
    for flags in (ReregFlags.TRANSLATION, ReregFlags.PD, ReregFlags.ACCESS):
        changes = REGION | {"pdn": 0, "access_flags": LOCAL}
        assert "is bound" in bench.err(X.REREG_MR, mrn=bench.mrn, flags=flags, **changes)
    assert bench.hardware.row("mr", bench.mrn) == before
    other = bench.ok(C.REG_USER_MR, **REGION, access_flags=LOCAL | BIND).mrn
    bench.ok(C.DEREG_MR, mrn=other)
    bench.ok(X.DEALLOC_MW, mwn=window.mwn)
    bench.ok(C.DEREG_MR, mrn=bench.mrn)


@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_window_that_is_bound_meanwhile(when):
    """Bound when the windows are looked at for the first time or the second, or never: the second
    look comes when no window can be bound any more."""
    bench = WindowBench()
    window = bench.alloc(MwType.TYPE_1)
    card, seen = bench.hardware, []
    read, before = card.read_fields, card.row("mr", bench.mrn)

    async def read_fields(table, index, *names):
        row = await read(table, index, *names)
        if len(seen) == when:
            row |= {"type": MrType.BOUND_1.value, "parent": bench.mrn}
        seen.append(card.row("mr", bench.mrn).get("bind", 0))
        return row

    card.read_fields = read_fields
    response = bench.raw(bytes([C.DEREG_MR]) + bench.mrn.to_bytes(4, "little"), 1)
    assert response == bytes([when < 2]) and seen == [1, 0][: when + 1]
    assert card.row("mr", bench.mrn) == (before if when < 2 else {})
    assert card.row("mr", window.mwn)


def test_the_right_to_have_windows():
    bench = WindowBench()
    change = dict(mrn=bench.mrn, flags=ReregFlags.ACCESS)
    bench.ok(X.REREG_MR, **change, access_flags=LOCAL)
    assert "bind" not in bench.hardware.row("mr", bench.mrn)
    bench.ok(X.REREG_MR, **change, access_flags=LOCAL | BIND)
    bench.ok(X.REREG_MR, mrn=bench.mrn, flags=ReregFlags.PD, pdn=0)
    assert bench.hardware.row("mr", bench.mrn)["bind"] == 1


@pytest.mark.parametrize("kind", SECOND)
def test_a_queue_pair_takes_its_windows_with_it(kind):
    """Those of type 2 that it has bound; the pair's next owner must not reach through them."""
    bench = WindowBench()
    mine, other = (bench.alloc(kind) for _ in range(2))
    first = bench.alloc(MwType.TYPE_1)
    pair = bench.qpn % CONFIG.qps
    bench.bind(mine, kind, qp=pair)
    bench.bind(other, kind, qp=pair + 1)
    bench.bind(first, MwType.TYPE_1, qp=pair)
    bench.ok(C.DESTROY_QP, qpn=bench.qpn)
    free = {"type": MrType.WINDOW_2.value, "function": 1, "tag": mine.rkey & 0xFF}
    assert bench.hardware.row("mr", mine.mwn) == free
    assert bench.hardware.row("mr", other.mwn)["type"] == MrType.BOUND_2.value
    assert bench.hardware.row("mr", first.mwn)["type"] == MrType.BOUND_1.value


def test_what_the_driver_is_told():
    both = DeviceCap.MEM_WINDOW_TYPE_2A | DeviceCap.MEM_WINDOW_TYPE_2B
    both |= DeviceCap.MEM_WINDOW
    told, lacking = device_limits(NicConfig()), device_limits(NicConfig(mw=False))
    assert told["max_mw"] == told["max_mr"] and told["device_cap_flags"] & both == both
    assert lacking["max_mw"] == 0 and not lacking["device_cap_flags"] & both
    assert not device_limits(NicConfig(fast_registration=False))["max_mw"]


def test_without_the_feature():
    bench = WindowBench()
    bench.hardware.features = 0
    for command in (X.ALLOC_MW, X.DEALLOC_MW):
        assert "unknown command" in bench.err(command)


@pytest.mark.parametrize("feature", [RdmaFeature.MW, RdmaFeature.SRQ])
def test_only_with_the_feature_may_queue_pairs_bind(feature):
    """Without it BIND_MW is an unknown opcode (VR-4.4)."""
    bench = WindowBench()
    bench.hardware.features = feature.mask
    qpn = bench.create()
    row = bench.hardware.row("qp_cfg", qpn % CONFIG.qps)
    assert row.get("binds", 0) == (feature is RdmaFeature.MW)
