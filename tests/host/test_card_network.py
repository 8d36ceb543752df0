"""The network functions of served cards, beside their functions for RDMA."""

import random
import sys

import pytest

from hdl.abi.virtio_net import RxCommand
from sim.bench import testbench
from sim.guest.driver.device import DriverOptions
from sim.guest.net import ALL_FEATURES, NetDevice, NetOptions
from tests.host.vfio_client import PATIENCE_S, VfioPlatform, run
from tests.host.vfio_guest import Served, exchange, pair
from tests.nic.bench_network import CONFIG, frame_of, next_frame

OPTIONS = NetOptions(DriverOptions(features=ALL_FEATURES, timeout_ns=PATIENCE_S * 10**9))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    testbench.build(config=CONFIG, fast=False)
    program = [sys.executable, "-P", "-m", "tests.host.serve_functions", "tests.nic.bench_network"]
    served = Served(tmp_path_factory.mktemp("card"), command=program)
    yield served
    assert served.close() == 0


def test_frames_between_two_guests_beside_rdma(served):
    """Each function has a client of its own; the cards' wire joins both kinds."""
    assert "card0-function0: 1af4:1041" in served.text
    rdma = pair([served.path(0), served.path(1)])
    platforms = [VfioPlatform(served.path(card, 0)) for card in range(2)]
    devices = [run(NetDevice.start_up(platform, OPTIONS)) for platform in platforms]
    rng = random.Random(11)
    macs = [device.config.mac for device in devices]
    assert macs == [guest.mac for guest in rdma]
    for number in range(6):
        source = number % 2
        frame = frame_of(rng, macs[1 - source], macs[source], 60 + 300 * number)
        run(devices[source].send(frame, pieces=(12,)))
        assert run(next_frame(devices[1 - source])) == frame
        exchange(*rdma, seed=number, length=1000)
    # The guest of a network function goes: a function-level reset, which nobody else notices.
    run(devices[0].set_mode(RxCommand.PROMISC, True))
    platforms[0].close()
    exchange(*rdma, seed=99, length=1000)
    platforms[0] = VfioPlatform(served.path(0, 0))
    devices[0] = run(NetDevice.start_up(platforms[0], OPTIONS))
    frame = frame_of(rng, macs[0], macs[1], 1000)
    run(devices[1].send(frame))
    assert run(next_frame(devices[0])) == frame
    for one in (*platforms, *rdma):
        one.close()
