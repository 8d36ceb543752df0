"""REREG_MR: what changes, what stays, and every refusal (docs/extensions.md)."""

import pytest

from hdl.abi.enums import Access, RdmaFeature, ReregFlags
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from tests.firmware.fake_hardware import Bench

LOCAL, WRITE, READ = Access.LOCAL_WRITE, Access.REMOTE_WRITE, Access.REMOTE_READ
OLD = dict(start=0x1123, length=10000, virt_addr=0x7F00_0000_0123, pages=0x8000, npages=3)
NEW = dict(start=0x5FFF, length=2, virt_addr=0x1234, pages=0x9008, npages=2)
ALL = ReregFlags.TRANSLATION | ReregFlags.PD | ReregFlags.ACCESS


class RegionBench(Bench):
    """Two PDs, and in the first of them region 0, which peers may read."""

    def __init__(self):
        super().__init__()
        self.hardware.features = RdmaFeature.REREG_MR.mask
        for _ in range(2):
            self.ok(C.CREATE_PD)
        self.key = self.ok(C.REG_USER_MR, pdn=0, access_flags=LOCAL | READ, **OLD).lkey
        self.before = self.hardware.row("mr", 0)

    def change(self, **fields):
        """The keys, and the fields of the row that are different now."""
        keys = self.ok(X.REREG_MR, mrn=0, **fields)
        row = self.hardware.row("mr", 0)
        assert keys.lkey == self.key
        assert row["tag"] == keys.lkey & 0xFF
        names = (self.before.keys() | row.keys()) - {"tag"}
        return keys, {n: row.get(n, 0) for n in names if row.get(n, 0) != self.before.get(n, 0)}


def test_without_the_feature():
    bench = RegionBench()
    bench.hardware.features = ~RdmaFeature.REREG_MR.mask & 0xFFFF
    assert bench.err(X.REREG_MR, mrn=0, flags=ALL) == "unknown command 40"


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        (
            ReregFlags.TRANSLATION,
            dict(va=0x1234, length=2, start=0x1FFF, block=0x9008 // 64),
        ),
        (ReregFlags.PD, dict(pd=1)),
        (ReregFlags.ACCESS, dict(access=LOCAL | WRITE)),
    ],
)
def test_what_is_not_named_stays(flags, changed):
    bench = RegionBench()
    keys, found = bench.change(flags=flags, pdn=1, access_flags=LOCAL | WRITE, **NEW)
    assert found == changed and keys.rkey == keys.lkey


def test_no_key_is_valid_while_pages_are_forgotten():
    bench = RegionBench()
    seen = []
    forget = bench.hardware.invalidate

    async def invalidate(mrn):
        seen.append((mrn, bench.hardware.row("mr", mrn).get("type", 0)))
        await forget(mrn)

    bench.hardware.invalidate = invalidate
    bench.change(flags=ALL, pdn=1, access_flags=LOCAL, **NEW)
    assert seen == [(0, 0)]


def test_remote_key_goes_with_the_rights():
    keys, found = RegionBench().change(flags=ReregFlags.ACCESS, access_flags=LOCAL)
    assert found == {"access": LOCAL} and keys.rkey == 0


def test_zero_based():
    flags = ReregFlags.TRANSLATION | ReregFlags.ACCESS
    _, found = RegionBench().change(
        flags=flags, access_flags=LOCAL | READ | Access.ZERO_BASED, **NEW
    )
    assert found["va"] == 0


def test_the_domains_count_it():
    bench = RegionBench()
    bench.change(flags=ReregFlags.PD, pdn=1)
    bench.ok(C.DESTROY_PD, pdn=0)
    assert "used by 1 objects" in bench.err(C.DESTROY_PD, pdn=1)
    bench.ok(C.DEREG_MR, mrn=0)
    bench.ok(C.DESTROY_PD, pdn=1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mrn": 5}, "No MR"),
        ({"flags": 0}, "flags 0x0"),
        ({"flags": 8 | ALL}, "flags 0xf"),
        ({"page_shift": 12}, "reserved without PAGE_SIZES"),
        ({"pdn": 2}, "No PD"),
        ({"access_flags": WRITE}, "needs local write"),
        ({"length": 0}, "max_mr_size"),
        ({"npages": 3}, "3 pages for 2 bytes"),
        ({"pages": 0x9004}, "not aligned"),
        ({"virt_addr": (1 << 64) - 1}, "wraps around"),
        ({"flags": ReregFlags.ACCESS, "access_flags": Access.ZERO_BASED}, "TRANSLATION"),
    ],
)
def test_refused(fields, reason):
    fields = dict(mrn=0, flags=ALL, pdn=1, access_flags=LOCAL, **NEW) | fields
    assert reason in RegionBench().err(X.REREG_MR, **fields)


def test_other_kinds_of_region_are_refused():
    bench = RegionBench()
    dma = bench.ok(C.GET_DMA_MR, pdn=0, access_flags=LOCAL).mrn
    fast = bench.ok(C.CREATE_MR, pdn=0, access_flags=LOCAL, max_num_sg=4).mrn
    for mrn in (dma, fast):
        assert "not from REG_USER_MR" in bench.err(X.REREG_MR, mrn=mrn, flags=ReregFlags.PD, pdn=1)
