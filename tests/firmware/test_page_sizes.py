"""Pages of 2 MiB and 1 GiB: REG_USER_MR_PAGES and REREG_MR (docs/extensions.md)."""

import pytest

from hdl.abi.enums import Access, RdmaFeature, ReregFlags
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.limits import device_limits
from hdl.config import NicConfig
from hdl.host.virtio_common import offered_features
from tests.firmware.fake_hardware import Bench

FEATURES = RdmaFeature.PAGE_SIZES.mask | RdmaFeature.REREG_MR.mask
KIB_4, MIB_2, GIB_1 = 12, 21, 30


def region(**change):
    """A region of one byte in the first of its pages and one in the next."""
    shift = change.get("page_shift") or KIB_4
    asked = dict(start=(5 << shift) - 1, length=2, virt_addr=0x1000, pages=0x8018, npages=2)
    return dict(pdn=0, access_flags=Access.LOCAL_WRITE) | asked | change


def bench(features=FEATURES):
    made = Bench()
    made.hardware.features = features
    made.ok(C.CREATE_PD)
    return made


@pytest.mark.parametrize(("shift", "number"), [(0, 0), (KIB_4, 0), (MIB_2, 1), (GIB_1, 2)])
def test_the_row_says_where_the_first_byte_is(shift, number):
    """The last byte of the page that the fourth entry of a 64-byte block names."""
    card = bench()
    card.ok(X.REG_USER_MR_PAGES, **region(page_shift=shift))
    row = card.hardware.row("mr", 0)
    assert row.get("page_size", 0) == number and row["block"] == 0x8000 // 64
    assert row["start"] == (4 << (shift or KIB_4)) - 1
    assert (row["va"], row["length"]) == (0x1000, 2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"page_shift": 13}, "page_shift 13"),
        ({"page_shift": 31}, "page_shift 31"),
        ({"page_shift": MIB_2, "npages": 1}, "1 pages for 2 bytes"),
        ({"page_shift": GIB_1, "length": 1}, "2 pages for 1 bytes"),
        ({"page_shift": MIB_2, "length": (1 << MIB_2) + 2}, "2 pages for"),
        ({"page_shift": MIB_2, "pages": 0x8004}, "not aligned to 8"),
        ({"page_shift": MIB_2, "access_flags": Access.REMOTE_WRITE}, "needs local write"),
    ],
)
def test_refused(change, reason):
    assert reason in bench().err(X.REG_USER_MR_PAGES, **region(**change))


def test_a_region_gets_pages_of_another_size():
    card = bench()
    card.ok(C.REG_USER_MR, **{k: v for k, v in region().items() if k != "page_shift"})
    change = dict(mrn=0, flags=ReregFlags.TRANSLATION, **region(page_shift=GIB_1))
    card.ok(X.REREG_MR, **change)
    row = card.hardware.row("mr", 0)
    assert (row["page_size"], row["start"]) == (2, (4 << GIB_1) - 1)
    card.ok(X.REREG_MR, mrn=0, flags=ReregFlags.ACCESS, access_flags=0)
    assert card.hardware.row("mr", 0)["page_size"] == 2
    card.ok(X.REREG_MR, **change | {"page_shift": 0, "start": 0xFFF})
    assert "page_size" not in card.hardware.row("mr", 0)
    assert "page_shift 20" in card.err(X.REREG_MR, **change | {"page_shift": 20})


def test_without_the_feature():
    card = bench(RdmaFeature.REREG_MR.mask)
    assert "unknown command 41" in card.err(X.REG_USER_MR_PAGES, **region())


def test_what_the_driver_is_told():
    assert device_limits(NicConfig())["page_size_cap"] == 1 << 12 | 1 << 21 | 1 << 30
    lacking = NicConfig(page_sizes=False)
    assert device_limits(lacking)["page_size_cap"] == 1 << 12
    offered = [offered_features(config) for config in (NicConfig(), lacking)]
    assert offered[0] ^ offered[1] == RdmaFeature.PAGE_SIZES.mask
