"""The demonstration on the cards with a name, whose model nothing else needs, on the one with every
feature, and what it leaves out on a card that lacks something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boards.profiles import PROFILES
from hdl.config import SWITCHES, NicConfig
from sim.bench.cards import EVERYTHING
from sim.measure.demo.command import LONGEST, play, show
from sim.measure.demo.crowd import AREA, CQS, MESSAGES, QPS
from sim.measure.demo.rows import OPERATIONS, SERVICES, SIZES, left_out, sizes_of
from sim.measure.demo.scope import Crowd, Scope, lacking
from sim.tools import console

#: Bytes of the longest message where a test is in the usual run: many packets of the lowest MTU.
USUAL = 1024
#: Why the default card leaves rows out.
LEFT_OUT = {"no placement", "no xrc", "no mp_wr", "no dc", "no mkeys"}
#: Switch -> those that need it.
NEED = {
    "atomics": {"placement", "xrc", "dc"},
    "srq": {"xrc", "dc"},
    "fast_registration": {"xrc", "dc", "mkeys"},
}
#: Replays of the recorded traffic: each side of each capture that holds some.
REPLAYS = 65


def played(config: NicConfig, folder: Path, longest: int = LONGEST) -> dict[str, Any]:
    """The demonstration; each message that the card can send has come, byte for byte."""
    facts = play(config, folder / "demo.pcap", longest=longest)
    scope = Scope(config)
    rows = [(row["op"], row["size"]) for row in facts["rows"]]
    sizes = sizes_of(scope, longest)
    missing = left_out(scope)
    assert rows == [
        *((name, size) for name in OPERATIONS for size in sizes),
        *((one.name, one.size) for one in SERVICES if not one.lacks(scope)),
    ]
    services = [one for one in missing if one["op"] not in OPERATIONS]
    assert len(services) + len(rows) == len(OPERATIONS) * len(sizes) + len(SERVICES)
    assert facts["rows_left_out"] == missing
    assert facts["packets"] > 0 and facts["bad_icrc"] == 0
    crowd = scope.crowd(QPS, CQS, MESSAGES, AREA)
    assert facts["many"]["qps"] == crowd.qps and facts["many"]["cqs"] == crowd.cqs
    assert facts["many"]["messages"] == 2 * crowd.qps * MESSAGES
    assert all(report["good"] for report in facts["replays"])
    assert len(facts["replays"]) == (0 if lacking(config) else REPLAYS)
    return facts


@pytest.mark.slow
def test_smallest(tmp_path: Path) -> None:
    """A card of which each number is as low as it can be loses nothing, in short messages."""
    facts = played(PROFILES["smallest"], tmp_path, USUAL)
    with console.out.capture() as said:
        show(facts | {"profile": "smallest"}, Path("demo.pcap"))
    text = " ".join(said.get().split())
    assert "Two NICs of the profile smallest, 64 bit" in text
    assert "Left out (no atomics): FETCH_ADD of 8 B; CMP_SWAP of 8 B" in text
    assert "recorded Linux traffic" in text


@pytest.mark.slow
def test_smallest_and_long_messages(tmp_path: Path) -> None:
    played(PROFILES["smallest"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROFILES if name != "smallest"])
def test_profile(name: str, tmp_path: Path) -> None:
    """Nothing is left out but what no profile has."""
    facts = played(PROFILES[name], tmp_path)
    off = {f"no {one}" for one in SWITCHES if not getattr(PROFILES[name], one)}
    assert {one["why"] for one in facts["rows_left_out"]} == off & LEFT_OUT
    assert not facts["replays_left_out"]


@pytest.mark.slow
def test_every_feature(tmp_path: Path) -> None:
    """The card that has all of them leaves nothing out."""
    facts = played(EVERYTHING, tmp_path, USUAL)
    assert not facts["rows_left_out"] and not facts["replays_left_out"]
    named = {"WRITE, FLUSH", "XRC SEND", "SEND, MP WR", "DC SEND", "WRITE, MKEY"}
    assert named <= {one["op"] for one in facts["rows"]}


@pytest.mark.slow
def test_two_wqes_ahead(tmp_path: Path) -> None:
    """Of receive queues as many are read at a time as of send queues, and no more."""
    played(NicConfig(width=64, wqes_ahead=2), tmp_path, USUAL)


def test_what_is_left_out() -> None:
    """Each service that needs a switch is left out without it, with the switch as the reason."""
    everything = NicConfig(placement=True, xrc=True, mp_wr=True, dc=True, mkeys=True)
    assert not left_out(Scope(everything)) and not lacking(NicConfig())
    assert {one["why"] for one in left_out(Scope(NicConfig()))} == LEFT_OUT
    for name in SWITCHES:
        off = {name} | NEED.get(name, set())
        config = replace(everything, **dict.fromkeys(off, False))
        missing = {one["op"] for one in left_out(Scope(config))}
        assert missing == {one.name for one in SERVICES if off & {f.value for f in one.features}}
        for one in left_out(Scope(config)):
            assert set(one["why"].removeprefix("no ").split(", ")) <= off
    short = replace(everything, mtu=1024)
    assert {one["why"] for one in left_out(Scope(short))} == {"mtu below 4096"}
    few = left_out(Scope(replace(everything, mrs=4)))
    assert [one["op"] for one in few] == ["SEND_INV", "WRITE, MKEY"]
    assert "atomics" in lacking(NicConfig(atomics=False))
    assert lacking(NicConfig(qps=64)) == "qps below the default card's"
    assert not lacking(
        NicConfig(qps=1024, functions=4, cqs=128, mrs=4096, gids=64, read_resources=4096)
    )


def test_a_row_has_no_more_than_1024_packets() -> None:
    """So a card with short packets sends fewer of the long messages, and none of the longest."""
    assert sizes_of(Scope(NicConfig()), LONGEST) == SIZES
    assert sizes_of(Scope(NicConfig(mtu=256)), LONGEST) == {
        **{size: 32 for size in SIZES if size <= 4096},
        65536: 4,
    }
    assert list(sizes_of(Scope(NicConfig()), USUAL)) == [size for size in SIZES if size <= USUAL]


def test_the_crowd_fits_into_the_card() -> None:
    """As many queue pairs as there are, and their completions fit into the queues."""
    usual = NicConfig()
    assert Scope(usual).crowd(QPS, CQS, MESSAGES, AREA) == Crowd(64, 16, 6)
    assert Scope(PROFILES["smallest"]).crowd(QPS, CQS, MESSAGES, AREA) == Crowd(2, 2, 2)
    few = replace(usual, cqs=2, queue_size=16)
    assert Scope(few).crowd(QPS, CQS, MESSAGES, AREA) == Crowd(16, 2, 1)
    assert Scope(replace(usual, read_resources=16)).crowd(QPS, CQS, MESSAGES, AREA).qps == 16
