"""CREATE_MR and MAP_MR_SG: rows, responses, and every reason to refuse them."""

import asyncio
from dataclasses import replace

import pytest

from hdl.abi.enums import Access, DeviceCap
from hdl.abi.enums import ControlCommand as C
from hdl.abi.limits import MAX_FAST_PAGES, MAX_MR_SIZE, device_limits
from hdl.ports.rows import MrType
from tests.firmware.fake_hardware import CONFIG, Bench

WITHOUT = replace(CONFIG, fast_registration=False)


def fast(**fields):
    """A bench with a PD and a region of at most 4 pages in it."""
    bench = Bench()
    bench.ok(C.CREATE_PD)
    made = bench.ok(C.CREATE_MR, **({"pdn": 0, "access_flags": 0, "max_num_sg": 4} | fields))
    return bench, made


def mapping(mrn, **fields):
    """10 000 bytes from 0x123 on."""
    base = {"mrn": mrn, "npages": 3, "start": 0x7F00_0000_0123, "length": 10_000, "pages": 0x8000}
    return base | fields


def change(bench, mrn, **fields):
    """The hardware changes the row, as work requests make it."""
    row = asyncio.run(bench.hardware.read_row("mr", mrn))
    asyncio.run(bench.hardware.write_row("mr", mrn, row | fields))


def test_a_region_has_keys_and_no_access():
    bench, made = fast(max_num_sg=MAX_FAST_PAGES)
    assert made.lkey == made.rkey and made.lkey >> 8 == made.mrn
    row = {"type": MrType.FREE.value, "function": 1, "tag": made.lkey & 0xFF}
    assert bench.hardware.row("mr", made.mrn) == row
    assert "used by 1" in bench.err(C.DESTROY_PD, pdn=0)
    bench.ok(C.DEREG_MR, mrn=made.mrn)
    assert bench.hardware.row("mr", made.mrn) == {}
    bench.ok(C.DESTROY_PD, pdn=0)


@pytest.mark.parametrize("state", [MrType.FREE, MrType.FAST])
def test_a_mapping_takes_the_key_away_and_keeps_it_in_mind(state):
    """Whatever the hardware has made of the row: nobody reaches the new pages with the old key,
    and who holds it may still invalidate it."""
    bench, made = fast()
    change(bench, made.mrn, type=state.value, tag=0x5A, access=7, va=1, length=2, block=8)
    answer = bench.ok(C.MAP_MR_SG, **mapping(made.mrn))
    assert answer.npages == 3
    assert bench.hardware.row("mr", made.mrn) == {
        "type": MrType.FREE.value,
        "function": 1,
        "tag": 0x5A,
        "va": 0x7F00_0000_0123,
        "length": 10_000,
        "start": 0x123,
        "block": 0x8000 // 64,
    }
    assert bench.hardware.log[-2:] == [("write", "mr", made.mrn), ("invalidate", made.mrn)]


def test_a_zero_based_region_begins_at_zero():
    bench, made = fast(access_flags=Access.ZERO_BASED)
    bench.ok(C.MAP_MR_SG, **mapping(made.mrn))
    row = bench.hardware.row("mr", made.mrn)
    assert "va" not in row and row["start"] == 0x123


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pdn": 1}, "No PD 0x1"),
        ({"max_num_sg": 0}, "max_fast_reg_page_list_len"),
        ({"max_num_sg": MAX_FAST_PAGES + 1}, "max_fast_reg_page_list_len"),
        ({"access_flags": Access.REMOTE_WRITE}, "needs local write"),
        ({"access_flags": Access.ON_DEMAND}, "not supported"),
    ],
)
def test_regions_refused(fields, reason):
    bench = Bench()
    bench.ok(C.CREATE_PD)
    asked = {"pdn": 0, "access_flags": Access.LOCAL_WRITE, "max_num_sg": 4} | fields
    assert reason in bench.err(C.CREATE_MR, **asked)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mrn": 1}, "No MR 0x1"),
        ({"npages": 5, "length": 4 * 4096 + 1}, "5 pages in a region of 4"),
        ({"npages": 2}, "2 pages for 10000 bytes from offset 291"),
        ({"npages": 4}, "4 pages for"),
        ({"npages": 0, "length": 0}, "max_mr_size"),
        ({"length": MAX_MR_SIZE + 1}, "max_mr_size"),
        ({"start": (1 << 64) - 0xEDD, "length": 10_000}, "wraps"),
        ({"pages": 0x8004}, "not aligned to 8"),
        ({"pages": (1 << 64) - 16}, "wraps"),
    ],
)
def test_mappings_refused(fields, reason):
    bench, made = fast()
    assert reason in bench.err(C.MAP_MR_SG, **mapping(**({"mrn": made.mrn} | fields)))


def test_other_regions_take_no_mapping():
    bench = Bench()
    bench.ok(C.CREATE_PD)
    user = {"pdn": 0, "access_flags": 1, "start": 0, "length": 1, "pages": 0, "npages": 1}
    for made in (bench.ok(C.REG_USER_MR, **user), bench.ok(C.GET_DMA_MR, pdn=0, access_flags=1)):
        assert "not from CREATE_MR" in bench.err(C.MAP_MR_SG, **mapping(made.mrn))


def test_a_card_without_the_feature_refuses_both():
    bench = Bench(config=WITHOUT)
    bench.ok(C.CREATE_PD)
    assert "MEM_MGT" in bench.err(C.CREATE_MR, pdn=0, access_flags=1, max_num_sg=4)
    assert "MEM_MGT" in bench.err(C.MAP_MR_SG, mrn=0, npages=1)


def test_what_the_driver_is_told():
    for config, has in ((CONFIG, True), (WITHOUT, False)):
        limits = device_limits(config)
        assert bool(limits["device_cap_flags"] & DeviceCap.MEM_MGT_EXTENSIONS) == has
        assert limits["max_fast_reg_page_list_len"] == (MAX_FAST_PAGES if has else 0)
