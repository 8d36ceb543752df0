"""Page lists of two levels: REG_USER_MR_TABLE and REREG_MR (docs/extensions.md)."""

import pytest

from hdl.abi.enums import Access, RdmaFeature, ReregFlags
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.config import NicConfig
from hdl.host.virtio_common import offered_features
from tests.firmware.fake_hardware import Bench

TABLE, SIZES = RdmaFeature.TWO_LEVEL.mask, RdmaFeature.PAGE_SIZES.mask
FEATURES = TABLE | SIZES | RdmaFeature.REREG_MR.mask
KIB_4, MIB_2, GIB_1 = 12, 21, 30
ENTRIES = 512  # of a page of the list


def region(**change):
    """A region of one byte in the last entry of a page of its list, and one in the next page's."""
    shift = change.get("page_shift") or KIB_4
    length = ((ENTRIES - 1) << shift) + 2
    asked = dict(start=(5 << shift) - 1, length=length, virt_addr=0x1000, pages=0x8018)
    asked |= dict(npages=ENTRIES + 1, levels=2)
    return dict(pdn=0, access_flags=Access.LOCAL_WRITE) | asked | change


def bench(features=FEATURES):
    made = Bench()
    made.hardware.features = features
    made.ok(C.CREATE_PD)
    return made


@pytest.mark.parametrize("shift", [0, KIB_4, MIB_2, GIB_1])
@pytest.mark.parametrize("levels", [1, 2])
def test_the_row_says_where_the_first_byte_is(shift, levels):
    """The last byte of the page in the first entry, counted from the beginning of the 64 bytes that
    the list's fourth entry is in."""
    card = bench()
    card.ok(X.REG_USER_MR_TABLE, **region(page_shift=shift, levels=levels))
    row, page = card.hardware.row("mr", 0), 1 << (shift or KIB_4)
    assert row.get("two_level", 0) == levels - 1 and row["block"] == 0x8000 // 64
    assert row["start"] == 3 * page * (ENTRIES if levels == 2 else 1) + page - 1
    assert row.get("page_size", 0) == {KIB_4: 0, MIB_2: 1, GIB_1: 2}[shift or KIB_4]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"levels": 0}, "levels 0"),
        ({"levels": 3}, "levels 3"),
        ({"page_shift": 13}, "page_shift 13"),
        ({"npages": ENTRIES}, "512 pages for"),
        ({"npages": 2}, "2 pages for"),
        ({"pages": 0x8004}, "not aligned to 8"),
        ({"pages": (1 << 64) - 8}, "wraps around"),
        ({"access_flags": Access.REMOTE_WRITE}, "needs local write"),
        ({"pdn": 3}, "No PD"),
    ],
)
def test_refused(change, reason):
    assert reason in bench().err(X.REG_USER_MR_TABLE, **region(**change))


def test_a_first_level_may_end_where_memory_does():
    card = bench()
    card.ok(X.REG_USER_MR_TABLE, **region(pages=(1 << 64) - 16))
    assert card.hardware.row("mr", 0)["block"] == (1 << 58) - 1


def test_larger_pages_need_their_own_feature():
    card = bench(TABLE)
    assert "PAGE_SIZES" in card.err(X.REG_USER_MR_TABLE, **region(page_shift=MIB_2))
    card.ok(X.REG_USER_MR_TABLE, **region())


def test_a_region_gets_another_list():
    card = bench()
    flat = {k: v for k, v in region().items() if k not in ("page_shift", "levels")}
    card.ok(C.REG_USER_MR, **flat)
    change = dict(mrn=0, **flat)
    two = ReregFlags.TRANSLATION | ReregFlags.TWO_LEVEL
    card.ok(X.REREG_MR, **change, flags=two)
    row = card.hardware.row("mr", 0)
    assert row["two_level"] and row["start"] == ((3 * ENTRIES + 1) << KIB_4) - 1
    card.ok(X.REREG_MR, mrn=0, flags=ReregFlags.ACCESS, access_flags=0)
    assert card.hardware.row("mr", 0)["two_level"]
    card.ok(X.REREG_MR, **change, flags=ReregFlags.TRANSLATION)
    assert "two_level" not in card.hardware.row("mr", 0)
    for flags in (ReregFlags.TWO_LEVEL, ReregFlags.TWO_LEVEL | ReregFlags.PD):
        assert "TWO_LEVEL without" in card.err(X.REREG_MR, **change, flags=flags)


def test_a_card_without_it_does_not_offer_it():
    offered = [offered_features(config) for config in (NicConfig(), NicConfig(two_level=False))]
    assert offered[0] ^ offered[1] == RdmaFeature.TWO_LEVEL.mask


def test_without_the_feature():
    card = bench(FEATURES & ~TABLE)
    assert "unknown command 46" in card.err(X.REG_USER_MR_TABLE, **region())
    card.ok(C.REG_USER_MR, **{k: v for k, v in region().items() if k != "levels"})
    flags = ReregFlags.TRANSLATION | ReregFlags.TWO_LEVEL
    fields = {k: v for k, v in region().items() if k != "levels"}
    assert "not negotiated" in card.err(X.REREG_MR, mrn=0, flags=flags, **fields)
