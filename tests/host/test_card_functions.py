"""Several functions of served cards, and a card whose wire is a socket."""

import signal
import subprocess
import sys

import pytest

from hdl.abi import virtio_pci as abi
from hdl.abi.enums import WrOpcode
from hdl.abi.virtio_pci import Status
from sim.bench import testbench
from sim.bench.cards import FUNCTIONS
from tests.host import vfio_client as vfio
from tests.host.vfio_client import VfioClient, run
from tests.host.vfio_guest import COMMAND, LENGTH, Guest, Served, exchange, pair


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    testbench.build(config=FUNCTIONS)
    program = [
        sys.executable,
        "-P",
        "-m",
        "tests.host.serve_functions",
        "sim.bench.cards:FUNCTIONS",
    ]
    served = Served(tmp_path_factory.mktemp("card"), command=program)
    yield served
    assert served.close() == 0


@pytest.fixture
def serve():
    """Starts ``rocinante card``; what it has started ends with the test."""
    started = []

    def start(*arguments):
        started.append(Served(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.mark.slow
def test_each_function_has_a_guest_of_its_own(served):
    """Two guests with the same addresses in their memory, and the same numbers of everything; one
    is reset, dies and comes back while the other goes on."""
    first = pair([served.path(card, 1) for card in (0, 1)], (1, 1))
    second = [
        Guest(served.path(card, 2), f"10.0.1.{card + 1}", bytes((2, 0, 0, 0, 0, card + 1)), 2)
        for card in (0, 1)
    ]
    assert first[0].qp.qp_num == second[0].qp.qp_num
    assert first[0].cq.queue.desc == second[0].cq.queue.desc
    for one, other in (second, second[::-1]):
        one.connect(other)
    for seed in range(3):
        exchange(*first, seed)
        exchange(*second, seed + 100)
    first[0].platform.client.reset()
    place = abi.COMMON_CFG.place("device_status").offset
    assert first[0].platform.client.read(0, place, 1) == bytes(1)
    exchange(*second, 7)
    first[0].close()
    exchange(*second, 8)
    served.says("the connection has ended")
    again = VfioClient(served.path(0, 1))
    assert again.read(0, place, 1) == bytes(1)
    assert again.read(vfio.CONFIG, 4, 2) == bytes(2)
    again.close()
    served.says("the connection has ended", 2)
    exchange(*second, 9)
    for guest in (first[1], *second):
        assert not guest.platform.client.read(0, place, 1)[0] & Status.DEVICE_NEEDS_RESET
        guest.close()
    served.says("the connection has ended", 5)
    assert "not mapped" not in served.text
    assert "its device reset goes on" not in served.text


def test_a_wire_to_another_process(serve, tmp_path):
    """Two cards in processes of their own, joined by a socket; one is gone for a while, and the
    other's guest is served meanwhile."""
    wire = f"unix:{tmp_path / 'wire'}"
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    cards = [
        serve(folders[0], "--wire", wire, "--listen"),
        serve(folders[1], "--wire", wire, "--mac", "02:00:00:00:00:02"),
    ]
    cards[0].says("a peer is connected")
    guests = pair([card.path() for card in cards])
    exchange(*guests)
    exchange(*guests[::-1], 2)
    guests[1].close()
    assert cards[1].close() == 0 and not cards[1].path().exists()
    cards[0].says("the peer has")
    guests[0].post(WrOpcode.RDMA_WRITE, guests[1], 64)
    assert run(guests[0].context.device.status()) & Status.DRIVER_OK
    guests[0].close()
    cards[0].says("the connection has ended")
    assert cards[0].close(signal.SIGINT) == 0 and not cards[0].path().exists()


def test_what_is_lost_is_sent_again(serve, tmp_path):
    """Nothing but a timer runs when a packet is lost: simulated time follows the wall clock."""
    card = serve(tmp_path, "--cards", "2", "--impair", "loss=10%,seed=3", "--timer-scale", "0.1")
    a, b = guests = pair([card.path(0), card.path(1)])
    for seed in range(3):
        exchange(a, b, seed, length=20_000)
    for guest in guests:
        guest.close()
    assert card.close() == 0


def test_an_access_is_held_back_no_longer_than_the_bound(serve, tmp_path):
    """With a bound of a microsecond a doorbell is answered before its work is done."""
    card = serve(tmp_path, "--cards", "2", "--bound", "1")
    a, b = guests = pair([card.path(0), card.path(1)])
    a.post(WrOpcode.RDMA_WRITE, b, LENGTH - 4096)
    assert not run(a.cq.poll(1))
    a.good()
    for guest in guests:
        guest.close()
    assert card.close() == 0


@pytest.mark.parametrize(
    "arguments,why",
    [
        (("--socket", "{}", "--cards", "2", "--wire", "unix:w"), "two cards are joined"),
        (("--socket", "{}", "--listen"), "there is no --wire"),
        (("--socket", "{}", "--wire", "w"), "must be unix:PATH"),
        (("--socket", "{}/" + "d" * 100), "107 bytes at most"),
        (("--socket", "{}/no/folder"), "No such file"),
        (("--socket", "{}", "--functions", "5"), "5 is not in the range"),
        (("--socket", "{}", "--bound", "nan"), "Not a number"),
        ((), "Missing option '--socket'"),
    ],
)
def test_bad_arguments_are_a_line_and_status_2(arguments, why, tmp_path):
    found = subprocess.run(
        [*COMMAND, *(one.format(tmp_path) for one in arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 2 and why in found.stderr, found.stderr
    assert found.stderr.count("\n") == 1
