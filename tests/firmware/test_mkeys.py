"""CREATE_MKEY, and what other commands do with an indirect key (docs/extensions.md). T-K16, and of
T-K9 what the command refuses."""

import asyncio
import dataclasses
import json

import pytest

from firmware import records
from hdl.abi.enums import Access, RdmaFeature
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpType as T
from hdl.abi.limits import device_limits
from hdl.abi.mkeys import LAYOUTS_AT
from hdl.config import NicConfig
from hdl.ports.keys import LAYOUT
from hdl.ports.rows import MrRow, MrType
from tests.firmware.fake_hardware import CONFIG
from tests.firmware.test_qp import QpBench

CARD = dataclasses.replace(CONFIG, mkeys=True)
FEATURES = RdmaFeature.MKEY.mask | RdmaFeature.REREG_MR.mask
GOOD = dict(pdn=0, flags=0, max_entries=8, table=0)
FIRST = CARD.mrs - CARD.layouts


class MkeyBench(QpBench):
    """A PD and a QP on a card with indirect keys."""

    def __init__(self, *, features=FEATURES):
        super().__init__(T.RC, config=CARD)
        self.hardware.features = features

    def make(self, **fields):
        return self.ok(X.CREATE_MKEY, **GOOD | fields)


@pytest.mark.parametrize("flags", [0, 1])
def test_a_key_has_no_layout_at_first(flags):
    bench = MkeyBench()
    made = bench.make(flags=flags, max_entries=5, table=64)
    assert made.mrn == FIRST
    assert made.lkey == made.rkey and made.lkey >> 8 == made.mrn and made.lkey & 0xFF
    assert made.max_entries == 5
    row = {"type": MrType.MKEY_FREE.value, "function": 1, "tag": made.lkey & 0xFF}
    found = bench.hardware.row("mr", made.mrn)
    layout = LAYOUT.from_bits(found.pop("block"))
    assert found == row | ({"bind": 1} if flags else {})
    fields = {name: layout[name] for name in LAYOUT.members}
    assert fields == {"row_bytes": 0, "most": 5, "entries": 0, "generation": 0}


def test_a_layout_fits_the_row():
    assert LAYOUT.size == MrRow.as_shape()["block"].width
    most = device_limits(NicConfig(mkeys=True))["max_mkey_entries"]
    assert most.bit_length() <= LAYOUT["most"].width


def test_refused():
    bench = MkeyBench()
    limit = device_limits(CARD)["max_mkey_entries"]
    assert limit == CARD.max_sge and not device_limits(CONFIG)["max_mkey_entries"]
    for fields, text in (
        ({"pdn": 9}, "No PD"),
        ({"flags": 2}, "flags 0x2"),
        ({"max_entries": 0}, "not within"),
        ({"max_entries": limit + 1}, "not within"),
        ({"table": 32}, "not a multiple"),
        ({"reserved_gap": [1]}, "reserved"),
        ({"reserved": [0, 1]}, "reserved"),
    ):
        assert text in bench.err(X.CREATE_MKEY, **GOOD | fields)
    bench.make(max_entries=limit)


def test_a_driver_that_does_not_know_it():
    bench = MkeyBench(features=0)
    assert "unknown command" in bench.err(X.CREATE_MKEY, **GOOD)


def test_numbers():
    """The last numbers of the regions; a number that was given back is given again, with another
    tag."""
    bench = MkeyBench()
    made = [bench.make() for _ in range(CARD.layouts)]
    assert [one.mrn for one in made] == list(range(FIRST, CARD.mrs))
    assert "in use" in bench.err(X.CREATE_MKEY, **GOOD)
    bench.ok(C.DEREG_MR, mrn=made[1].mrn)
    again = bench.make()
    assert again.mrn == made[1].mrn and again.lkey != made[1].lkey


def test_regions_go_first():
    """Regions take the numbers of indirect keys only when there are no others."""
    bench = MkeyBench()
    region = dict(pdn=0, start=0x1000, length=4096, virt_addr=0x1000, pages=0x8000, npages=1)
    numbers = [
        bench.ok(C.REG_USER_MR, **region, access_flags=Access.LOCAL_WRITE).mrn
        for _ in range(CARD.mrs - 1)
    ]
    assert numbers == list(range(CARD.mrs - 1))
    assert bench.make().mrn == CARD.mrs - 1
    assert "in use" in bench.err(X.CREATE_MKEY, **GOOD)


def test_what_other_commands_do():
    """T-K16: DEREG_MR destroys it when no access is under way; a PD is not destroyed before;
    MAP_MR_SG and REREG_MR are for regions."""
    bench = MkeyBench()
    pd = bench.ok(C.CREATE_PD).pdn
    made = bench.make(pdn=pd)
    mapping = dict(mrn=made.mrn, npages=1, start=0x1000, length=4096, pages=0x8000)
    assert "not from CREATE_MR" in bench.err(C.MAP_MR_SG, **mapping)
    assert "not from REG_USER_MR" in bench.err(X.REREG_MR, mrn=made.mrn, flags=4)
    assert "is used by" in bench.err(C.DESTROY_PD, pdn=pd)
    bench.ok(C.DEREG_MR, mrn=made.mrn)
    assert bench.hardware.row("mr", made.mrn) == {}
    assert bench.hardware.log[-2:] == [("write", "mr", made.mrn), ("invalidate", made.mrn)]
    bench.ok(C.DESTROY_PD, pdn=pd)


@pytest.mark.parametrize("features, may", [(FEATURES, 1), (0, 0)])
def test_who_may_set_layouts(features, may):
    """QPs of type RC alone, of a driver that has taken the feature."""
    bench = MkeyBench(features=features)
    for type_, wanted in ((T.RC, may), (T.UC, 0)):
        pair = bench.create(type_) % CARD.qps
        assert bench.hardware.row("qp_cfg", pair).get("qkey", 0) >> LAYOUTS_AT == wanted


def test_another_firmware_goes_on():
    """What the firmware knows of the key survives it."""
    bench = MkeyBench()
    made = bench.make(max_entries=3)
    whole = records.Record()
    records.merge(whole, records.everything(bench.function.commands))
    whole = json.loads(json.dumps(whole))
    other = MkeyBench()
    other.function.commands.forget()
    records.restore(other.function.commands, whole)
    assert other.function.commands.objects.mrs.get(made.mrn).entries == 3


def test_rows_of_a_function_that_is_released():
    bench = MkeyBench()
    made = bench.make()
    asyncio.run(bench.hardware.write_row("mr", made.mrn, {"type": MrType.MKEY.value}))
    assert ("mr", made.mrn) in bench.function.commands.forget()
