"""The description of a network that misbehaves."""

import math
from dataclasses import fields

import pytest

from sim.models.behaviour import HostBehaviour
from sim.models.impairments import _BOUNDS, ROLES, Drop, Impairments


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", Impairments()),
        ("loss=1%", Impairments(loss=0.01)),
        (
            "loss=0.001,burst=3,reorder=16,seed=7",
            Impairments(loss=0.001, burst=3, reorder=16, seed=7),
        ),
        ("drop=ack", Impairments(drop=Drop("ack"))),
        ("drop=write_last:3", Impairments(drop=Drop("write_last", 3))),
        ("drop=read:3-5,gbps=10", Impairments(drop=Drop("read", 3, 3), gbps=10)),
        ("drop=nak:2-", Impairments(drop=Drop("nak", 2, 1 << 32))),
        ("delay_us=1.5,jitter_us=2", Impairments(delay_us=1.5, jitter_us=2)),
        ("pause_us=5,pause_every_us=50", Impairments(pause_us=5, pause_every_us=50)),
    ],
)
def test_text(text, expected):
    assert Impairments.parse(text) == expected


@pytest.mark.parametrize(
    "text, message",
    [
        ("lose=1%", "No impairment 'lose=1%'; there are loss=, burst="),
        ("loss", "No impairment 'loss'"),
        ("loss=1%,loss=2%", "given twice"),
        ("loss=much", "Not a number: 'much'"),
        ("loss=101%", "loss must be 0 to 1, not 1.01"),
        ("burst=0", "burst must be 1 to 4294967296, not 0"),
        ("gbps=0", "gbps must be 0.001 to 8000, not 0"),
        ("every=-1", "every must be 0 to 4294967296, not -1"),
        ("burst=1.5", "Not a number: '1.5'"),
        ("pause_us=5", "pause_us must be less than pause_every_us"),
        ("pause_us=5,pause_every_us=5", "pause_us must be less than pause_every_us"),
        ("pause_every_us=5", "pause_us must be less than pause_every_us, and neither be 0"),
        ("pause_us=-1,pause_every_us=5", "pause_us must be 0 to 10000000, not -1"),
        ("drop=syn", "No role 'syn' of a packet; there are ack, "),
        ("drop=ack:x", "Not packets of a role"),
        ("drop=ack:3-2", "Packets have numbers from 1"),
        (f"drop=ack:{10**20}", "Packets have numbers from 1"),
        ("seed=-1", "seed must be 0 to"),
        (f"seed={10**30}", "seed must be 0 to"),
    ],
)
def test_text_that_means_nothing(text, message):
    with pytest.raises(ValueError, match=message):
        Impairments.parse(text)


NUMBERS = [one.name for one in fields(Impairments) if one.name != "drop"]


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-inf", "NaN%", "inf%", "1e400", "-1e400"])
@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_is_infinite_or_none(name, value):
    with pytest.raises(ValueError, match="Not a number"):
        Impairments.parse(f"{name}={value}")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, -1])
@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_is_out_of_bounds(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        Impairments(**{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, -1])
@pytest.mark.parametrize("name", [one.name for one in fields(HostBehaviour)])
def test_a_host_has_bounds(name, value):
    with pytest.raises(ValueError, match=name):
        HostBehaviour(**{name: value})


def test_extremes_fit_the_model():
    """The largest numbers, added as the model adds them, are no more than 64 bits."""
    most = {name: high for name, (_, high) in _BOUNDS.items()}
    for value in Impairments(**most | {"pause_us": 1}).words(seed=1 << 20).values():
        assert 0 <= value < 1 << 63
    assert Impairments(gbps=_BOUNDS["gbps"][1]).words()["ps_per_byte"] == 1
    assert all(0 <= one < 1 << 62 for one in HostBehaviour(read_gbps=0.001).settings().values())


def test_roles_are_those_of_the_wire():
    assert ROLES["write_last"] == (1 << 8, 0)
    assert ROLES["read_response"] == (0xF << 13, 0)
    assert ROLES["rnr"] == (0, 2)
    assert ROLES["send"] == (0x3F | 3 << 22, 0)


def test_only_what_changes_something_is_on():
    assert not Impairments(seed=9).words()["on"]
    assert Impairments(loss=0.5).words()["on"]
    assert Impairments(loss=1).words()["loss"] == 1 << 32
