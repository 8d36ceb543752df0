"""The card's network function under Linux' own driver, one thing a boot. All are slow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machine.debian import run

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("interface.sh").read_text()
CARDS = ("--cards", "2", "--network", "2")
TRIES = ("mtu", "down_and_up", "facts", "vlan", "reload", "data", "filter", "pairs", "spread")


def counters(err: str, card: int) -> dict[str, int]:
    """Those that a card has told, by name."""
    (line,) = re.findall(rf"^card {card}: (.*)$", err, re.M)
    return {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", line)}


@pytest.mark.parametrize("name", TRIES)
def test_stock_driver(name):
    out, err = run(*CARDS, "bash", "-c", f"{SCRIPT}\n{name}")
    for card in (0, 1):
        counted = counters(err, card)
        assert counted["net_rx_frames"] and counted["net_tx_frames"], err
        assert "net_tx_errors" not in counted, err
    _LOOKS.get(name, lambda out, err: None)(out, err)


def _mtu(out, err):
    codes = re.findall(r"active_mtu:\s+(\d+)", out)
    assert codes == ["1024", "1024", "4096", "4096"], out


def _facts(out, err):
    assert "driver: virtio_net" in out and "Speed: 10000Mb/s" in out, out
    assert "Link detected: yes" in out
    assert re.search(r"rx_queue_0_packets: [1-9]", out)


def _data(out, err):
    assert out.count(": the same") == 4, out
    names, values = (line.split() for line in out.splitlines() if line.startswith("Tcp: "))
    assert dict(zip(names, values, strict=True))["InCsumErrors"] == "0", out


def _filter(out, err):
    assert counters(err, 1)["net_rx_filtered"] >= 9, err


def _pairs(out, err):
    found = re.findall(r"rx_queue_(\d)_packets: (\d+)", out)
    assert {number for number, count in found if int(count) >= 8} == {"0", "1"}, out


def _spread(out, err):
    """Frames that the first queue, and the second one, had more after each choice of queues."""
    found = [int(count) for count in re.findall(r"rx_queue_\d_packets: (\d+)", out)]
    pairs = [tuple(found[n : n + 2]) for n in range(0, len(found), 2)]
    assert len(pairs) == 3, out
    second = pairs[1][0] - pairs[0][0], pairs[1][1] - pairs[0][1]
    third = pairs[2][0] - pairs[1][0], pairs[2][1] - pairs[1][1]
    assert pairs[0][1] >= 32 and second[0] >= 32 and second[1] == 0, out
    assert min(third) >= 8, out


_LOOKS = {
    "mtu": _mtu,
    "facts": _facts,
    "data": _data,
    "filter": _filter,
    "pairs": _pairs,
    "spread": _spread,
}


def test_bytes_by_iperf3():
    """Both ways, through two cards in one guest."""
    client = ("iperf3", "-c", "server", "-n", "400K", "--bidir")
    out, _ = run("--network", "2", "iperf3", "-s", "-1", "::", *client)
    assert re.search(r"^client: .*receiver", out, re.M), out


def test_two_guests():
    """Each has a card, with a clock of its own: ARP, echoes, TCP, RDMA."""
    script = "ping -c 3 -W 30 server && ping -c 3 -W 30 fd00::1 && ip neigh"
    out, err = run("--peer", "card", "--network", "2", "sleep", "1", "::", "bash", "-c", script)
    assert out.count("3 received") == 2 and "lladdr 02:00:00:00:00:01" in out, out
    assert counters(err, 0)["net_rx_frames"] >= 6, err
    out, _ = run("--peer", "card", "--network", "2", "rping", "-v", "-C", "2")
    assert "rdma-ping-1" in out, out
