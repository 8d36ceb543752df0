"""The network functions of served cards, beside their functions for RDMA."""

import random
from types import SimpleNamespace

import pytest
from scapy.layers.l2 import ARP, Ether

from hdl.abi.virtio_net import RxCommand
from sim.bench import testbench
from sim.guest.driver.device import DriverOptions
from sim.guest.net import ALL_FEATURES, NetDevice, NetOptions
from sim.host.network import Network
from sim.models import native
from tests.host.vfio_client import PATIENCE_S, VfioPlatform, run
from tests.host.vfio_guest import COMMAND, Served, exchange, pair
from tests.nic.bench_network import CONFIG, frame_of, next_frame

BIG = 9000
OPTIONS = NetOptions(DriverOptions(features=ALL_FEATURES, timeout_ns=PATIENCE_S * 10**9))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    testbench.build(config=CONFIG)
    program = [*COMMAND, "--cards", "2", "--network", str(CONFIG.network), "--mtu", str(BIG)]
    program += ["--width", str(CONFIG.width), "--socket"]
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
    assert [device.config.mtu for device in devices] == [BIG, BIG]
    assert macs == [guest.mac for guest in rdma]
    for number in range(6):
        source = number % 2
        frame = frame_of(rng, macs[1 - source], macs[source], 60 + 300 * number)
        run(devices[source].send(frame, pieces=(12,)))
        assert run(next_frame(devices[1 - source])) == frame
        exchange(*rdma, seed=number, length=1000)
    # A doorbell is answered when the frame has come, however early the sender has its interrupt.
    run(devices[0].sent())
    devices[0].queue(0, transmit=True).enable_interrupts()
    frame = frame_of(rng, macs[1], macs[0], BIG)
    run(devices[0].send(frame))
    for number in range(devices[1].pairs):
        devices[1]._reap_received(number)
    assert any(devices[1].frames)
    assert run(next_frame(devices[1])) == frame
    # The guest of a network function goes: a function-level reset, which nobody else notices.
    run(devices[0].set_mode(RxCommand.PROMISC, True))
    platforms[0].close()
    exchange(*rdma, seed=99, length=1000)
    platforms[0] = VfioPlatform(served.path(0, 0))
    devices[0] = run(NetDevice.start_up(platforms[0], OPTIONS))
    frame = frame_of(rng, macs[0], macs[1], 1000)
    run(devices[1].send(frame))
    assert run(next_frame(devices[0])) == frame
    platforms[1].client.reset()  # by name this time
    exchange(*rdma, seed=100, length=1000)
    for one in (*platforms, *rdma):
        one.close()
    served.says("the connection has ended", 5)
    assert "its device reset goes on" not in served.text
    assert "not mapped" not in served.text


@pytest.mark.parametrize("network", [None, "registers"])
def test_whose_are_the_frames_of_a_peer(network, monkeypatch):
    """A guest's network function gets ARP too; without one the server answers in its place."""
    monkeypatch.setattr(native, "library", lambda: SimpleNamespace(clock_idle=lambda: True))
    mac, gid = bytes((2, 0, 0, 0, 0, 1)), bytes(10) + b"\xff\xff" + bytes((10, 0, 0, 1))
    objects = SimpleNamespace(gids={0: gid})
    function = SimpleNamespace(commands=SimpleNamespace(objects=objects))
    node = SimpleNamespace(
        mac=mac,
        registers=SimpleNamespace(network=network),
        firmware=SimpleNamespace(functions=[function]),
    )
    ask = bytes(Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(hwdst=mac, pdst="10.0.0.1"))
    injected, sent = [], []
    peer = SimpleNamespace(service=lambda *, reading: [ask], send=sent.append)
    Network(SimpleNamespace(inject=injected.append), peer, node).service()
    if network is None:
        assert not injected and Ether(sent[0])[ARP].psrc == "10.0.0.1"
    else:
        assert injected == [ask] and not sent
