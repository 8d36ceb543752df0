"""One boot of Debian with two cards that runs what a user would: the proof of each run.

The same with more is in ``test_guest.py`` and ``test_interface.py``, which are slow.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machine.debian import run, sections

SCRIPT = "".join(Path(__file__).with_name(name).read_text() for name in ("pair.sh", "boot.sh"))
PROGRAMS = ("ibv_rc_pingpong", "ibv_ud_pingpong", "ib_write_bw", "rping")


@pytest.fixture(scope="module", params=["12", pytest.param("13", marks=pytest.mark.slow)])
def booted(request):
    """What each part of the script has said, and what the command says at its end."""
    words = ("--release", request.param, "--cards", "2", "--network", "2")
    out, err = run(*words, "bash", "-c", SCRIPT)
    return sections(out), err


def test_stock_driver_has_the_network_functions(booted):
    parts, _ = booted
    text = parts["interfaces"]
    assert text.count("Virtio 1.0 network device") == 2, text
    assert text.count("Kernel driver in use: virtio-pci") == 2
    assert "02:00:00:00:00:01" in text and "maxmtu 9000" in text, text
    assert "lladdr" not in text  # nobody has told anybody who the neighbours are


def test_frames_go_through_the_cards(booted):
    """ARP and neighbour discovery find the other card; echoes have up to 9000 bytes."""
    parts, err = booted
    assert parts["ping"].count("3 received") == 3, parts["ping"]
    for address in ("10.0.0.2", "fd00::2"):
        found = re.escape(address) + r" dev eth0 lladdr 02:00:00:00:00:02 "
        assert re.search(found, parts["neighbours"]), parts["neighbours"]
    for card in (0, 1):
        (line,) = re.findall(rf"^card {card}: .*$", err, re.M)
        counted = dict(re.findall(r"(net_\w+) (\d+)", line))
        assert int(counted["net_rx_frames"]) > 20 and int(counted["net_tx_frames"]) > 20, line
        assert not {"net_tx_errors", "net_rx_drops_queue", "net_rx_drops_buffer"} & set(counted)


def test_gids_are_the_interfaces_addresses(booted):
    parts, _ = booted
    text = parts["devices"]
    assert "PORT_ACTIVE" in text and re.search(r"active_mtu:\s+4096", text)
    for address in ("fe80::ff:fe00:1", "::ffff:10.0.0.1", "fd00::1"):
        assert re.search(rf"GID\[ +\d\]:\s+{address}, RoCE v2", text), text


@pytest.mark.parametrize("program", PROGRAMS)
def test_both_sides_of_a_program_end_well(booted, program):
    parts, _ = booted
    text = parts[program]
    assert f"status {program} 0 0\n" in text, text
    shows = {
        "ib_write_bw": r"^server:  4096 +20 ",
        "rping": r"^ping data: rdma-ping-1: BCDEF",
    }.get(program, r"^server: 20480 bytes in")
    assert re.search(shows, text, re.M), text
