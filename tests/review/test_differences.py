"""What of a change to the facts is lost, and what is gained."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from hdl.csr.blocks import PAGES
from sim.review.collect import MISSING, collect
from sim.review.differences import Difference, Verdict, differences
from sim.rtl.env import FILES

CARD = "small"
LOST, GAINED, OTHER = Verdict.LOST, Verdict.GAINED, Verdict.OTHER


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    found = collect(FILES, {CARD: {"width": 64}})
    assert not [one for one in (*found.values(), found["cards"][CARD]) if MISSING in one]
    return found


def changed(facts: Any, change: Callable[[Any], Any]) -> list[Difference]:
    new = copy.deepcopy(facts)
    change(new)
    return differences(facts, new)


def registers(facts: Any, block: str) -> Any:
    return facts["cards"][CARD]["registers"][block]


def item(facts: Any, block: str, name: str) -> Any:
    return registers(facts, block)["items"][name]


def set_in(place: Callable[[Any], Any], **values: Any) -> Callable[[Any], Any]:
    return lambda facts: place(facts).update(values)


def drop(place: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    return lambda facts: place(facts).pop(name)


def branches(facts: Any) -> list[list[str]]:
    """Those that are not entered: line and name."""
    return [one for row in facts["code"]["rows"] for one in row["missing"]]


CASES = {
    "a register has moved": (
        set_in(lambda f: item(f, "mailbox", "control"), offset=0x50),
        [("mailbox.control", LOST, "it has moved")],
    ),
    "a class of messages is not seen any more": (
        lambda f: f["coverage"]["rows"][0]["missing"].append(["RC", "a size"]),
        [("RC a size", LOST, "RC RDMA_WRITE: not seen")],
    ),
    "a table of what is to be seen is new": (
        lambda f: f["coverage"]["rows"].append({"what": "more", "bins": 3, "missing": []}),
        [("more", GAINED, "new")],
    ),
    "a branch is not entered any more": (
        lambda f: f["code"]["rows"][0]["missing"].append(["7", "Part.elaborate: m.If(self.go)"]),
        [(None, LOST, "not entered")],
    ),
    "a branch is in another line": (
        lambda f: [one.insert(0, one.pop(0) + "1") for one in branches(f)],
        [],
    ),
    "all branches of a new file are entered, and of another one more": (
        lambda f: (
            f["code"]["rows"].append({"what": "hdl/new.py", "bins": 3, "missing": []}),
            next(row for row in f["code"]["rows"] if row["missing"])["missing"].pop(),
        ),
        [(None, GAINED, "entered now, or gone")],
    ),
    "a scene goes another way": (
        lambda f: f["sequences"]["scenes"]["WRITE"].pop(),
        [("WRITE", OTHER, "other steps or times")],
    ),
    "a register is gone": (
        drop(lambda f: registers(f, "core")["items"], "scratch"),
        [("core.scratch", LOST, "gone")],
    ),
    "a register is new": (
        lambda f: registers(f, "core")["items"].update(
            more={"offset": 0x800, "words": 1, "fields": {}, "text": ""}
        ),
        [("core.more", GAINED, "new")],
    ),
    "a block has moved": (
        set_in(lambda f: registers(f, "mr"), address=0x55000),
        [("mr", LOST, "the block has moved")],
    ),
    "a block is gone": (
        drop(lambda f: f["cards"][CARD]["registers"], "debug"),
        [("debug", LOST, "the block is gone")],
    ),
    "a field has another access": (
        set_in(lambda f: item(f, "core", "scratch")["fields"]["value"], access="ro"),
        [("core.scratch.value", LOST, "another place or access")],
    ),
    "a field is wider": (
        set_in(lambda f: item(f, "port", "mac_high")["fields"]["value"], width=17),
        [("port.mac_high.value", GAINED, "wider")],
    ),
    "a field is narrower": (
        set_in(lambda f: item(f, "port", "mac_high")["fields"]["value"], width=15),
        [("port.mac_high.value", LOST, "narrower")],
    ),
    "a window is shorter": (
        set_in(lambda f: item(f, "mailbox", "request"), words=32),
        [("mailbox.request", LOST, "another window")],
    ),
    "a text is another": (set_in(lambda f: registers(f, "core"), text="another"), []),
    "a structure's field has moved": (
        set_in(lambda f: f["abi"]["structures"]["sge"]["fields"]["length"], offset=20),
        [("sge.length", LOST, "another place or type")],
    ),
    "a structure is longer": (
        set_in(lambda f: f["abi"]["structures"]["sge"], size=24),
        [("sge", LOST, "another size")],
    ),
    "a number is another": (
        set_in(lambda f: f["abi"]["numbers"]["Response"], OK=9),
        [("Response.OK", LOST, "another number")],
    ),
    "a part is dearer": (
        set_in(lambda f: f["cost"]["xcup width=64 small"]["egress"], lut=10**6),
        [("egress: lut", LOST, None)],
    ),
    "a part is cheaper": (
        set_in(lambda f: f["cost"]["xcup width=64 small"]["egress"], lut=100),
        [("egress: lut", GAINED, None)],
    ),
    "a clock is slower": (
        set_in(lambda f: f["timing"]["u55c"]["estimate"], usual=50),
        [("u55c: usual", LOST, None)],
    ),
    "a rate is lower": (
        set_in(lambda f: f["speed"]["read_bw -s 65536"]["figures"], gbps=90.0),
        [("read_bw -s 65536: gbps", LOST, None)],
    ),
    "a rate is lower within its tolerance": (
        set_in(lambda f: f["speed"]["read_bw -s 65536"]["figures"], gbps=97.9),
        [],
    ),
    "a latency is lower": (
        set_in(lambda f: f["speed"]["write_lat -s 64"]["figures"], p50=2000.0),
        [("write_lat -s 64: p50", GAINED, None)],
    ),
    "a row is not recorded any more": (
        drop(lambda f: f["speed"], "read_bw -s 65536"),
        [(f"read_bw -s 65536: {name}", LOST, None) for name in ("gbps", "mmsg_s", "ratio")],
    ),
    "a requirement is not shown any more": (
        set_in(lambda f: f["requirements"]["VR-0.1"], state="not built"),
        [("VR-0.1", LOST, None)],
    ),
    "a proof is gone": (drop(lambda f: f["proofs"], "skid"), [("skid", LOST, "gone")]),
    "a fault is gone": (drop(lambda f: f["faults"], "icrc-wrong"), [("icrc-wrong", LOST, "gone")]),
    "a test is gone": (
        lambda f: f["tests"].remove("tests/test_config.py::test_bad_value_is_named"),
        [("test_bad_value_is_named", LOST, "gone")],
    ),
    "a test is in another file": (
        lambda f: f.update(
            tests=[one.replace("tests/test_config.py::", "tests/x.py::")
                   if one.endswith("::test_bad_value_is_named") else one for one in f["tests"]]
        ),
        [("test_bad_value_is_named", OTHER, "in another file")],
    ),
    "a limit is told no more": (
        lambda f: f["limits"]["Not built"].pop(0),
        [(None, OTHER, "told no more")],
    ),
    "the configuration is another": (
        set_in(lambda f: f["cards"][CARD]["config"], qps=64),
        [("qps", OTHER, "changed")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_lost_or_gained(facts: Any, case: str) -> None:
    change, wanted = CASES[case]
    found = changed(facts, change)
    assert len(found) == len(wanted), found
    for one, (name, verdict, why) in zip(found, wanted, strict=True):
        assert one.verdict is verdict
        assert name in (None, one.name) and why in (None, one.why), one


def test_nothing_is_lost_of_what_is_the_same(facts: Any) -> None:
    assert differences(facts, copy.deepcopy(facts)) == []


def test_what_a_revision_cannot_tell_is_not_compared(facts: Any) -> None:
    older = facts | {"faults": {MISSING: "ImportError"}, "cards": {CARD: {MISSING: "ValueError"}}}
    assert differences(older, facts) == []


def test_losses_come_first(facts: Any) -> None:
    def change(new: Any) -> None:
        new["proofs"] = {"of another kind": ""} | new["proofs"]
        del new["proofs"]["skid"]

    assert [one.verdict for one in changed(facts, change)] == [LOST, GAINED]


def test_all_registers_are_asked_for(facts: Any) -> None:
    assert set(facts["cards"][CARD]["registers"]) <= set(PAGES)
    assert item(facts, "command", "arm_cq")["fields"]["flags"]["low"] == 14
