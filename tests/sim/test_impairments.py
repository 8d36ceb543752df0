"""The description of a network that misbehaves."""

import pytest

from sim.models.impairments import ROLES, Drop, Impairments


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
        ("loss=101%", "loss must be between 0 and 1"),
        ("burst=0", "burst and gbps must be more than 0"),
        ("gbps=0", "burst and gbps must be more than 0"),
        ("every=-1", "every must not be negative"),
        ("burst=1.5", "Not a number: '1.5'"),
        ("pause_us=5", "pause_us must be less than pause_every_us"),
        ("pause_us=5,pause_every_us=5", "pause_us must be less than pause_every_us"),
        ("pause_every_us=5", "pause_us must be less than pause_every_us, and neither be 0"),
        ("pause_us=-1,pause_every_us=5", "pause_us must not be negative"),
        ("drop=syn", "No role 'syn' of a packet; there are ack, "),
        ("drop=ack:x", "Not packets of a role"),
        ("drop=ack:3-2", "Packets have numbers from 1"),
    ],
)
def test_text_that_means_nothing(text, message):
    with pytest.raises(ValueError, match=message):
        Impairments.parse(text)


def test_roles_are_those_of_the_wire():
    assert ROLES["write_last"] == (1 << 8, 0)
    assert ROLES["read_response"] == (0xF << 13, 0)
    assert ROLES["rnr"] == (0, 2)
    assert ROLES["send"] == (0x3F | 3 << 22, 0)


def test_only_what_changes_something_is_on():
    assert not Impairments(seed=9).words()["on"]
    assert Impairments(loss=0.5).words()["on"]
    assert Impairments(loss=1).words()["loss"] == 1 << 32
