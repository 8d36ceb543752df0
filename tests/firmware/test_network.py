"""The control queue of the network function: what each command sets, and what is refused."""

import struct

import pytest

from firmware.device import Filter, FunctionState, Request, Steering
from firmware.identity import configuration, read_config
from firmware.network_commands import SYMMETRIC_KEY, NetworkCommands
from firmware.network_registers import NetworkRegisters
from firmware.registers import Registers
from firmware.service import Firmware
from hdl.abi.virtio_net import ControlAck, MacCommand, MqCommand, NetClass, RxCommand
from hdl.abi.virtio_pci import NetFeature
from hdl.config import FUNCTION_NET, FUNCTION_RDMA, NET_ADDRESSES, NicConfig
from hdl.csr.map import CsrMap
from hdl.csr.network import NET_REQUEST_WORDS
from tests.firmware.fake_hardware import FakeHardware, finish
from tests.firmware.test_registers import FakeBus

PAIRS = 4
CONFIG = NicConfig(qps=16, cqs=8, mrs=32, gids=4, queue_size=64, network=PAIRS)
ALL = sum(
    feature.mask
    for feature in (
        NetFeature.CTRL_RX,
        NetFeature.CTRL_RX_EXTRA,
        NetFeature.CTRL_MAC_ADDR,
        NetFeature.MQ,
        NetFeature.RSS,
    )
)
MAC = bytes.fromhex("020000000007")


class FakeNetwork:
    """Implements ``firmware.device.NetworkHardware``."""

    def __init__(self):
        self.features, self.waits, self.begun = ALL, False, 0
        self.inbox, self.outbox = [], []
        self.chosen, self.addresses, self.steering = Filter(), [], Steering()

    async def state(self):
        return FunctionState(self.begun, self.waits, self.waits, self.features, 15)

    async def reset_done(self):
        assert self.waits
        self.waits = False

    async def request(self):
        return self.inbox[0] if self.inbox else None

    async def respond(self, response):
        self.inbox.pop(0)
        self.outbox.append(response)

    async def filter(self):
        return self.chosen

    def state_of_settings(self):
        return self.chosen, self.addresses, self.steering

    async def set_filter(self, chosen):
        self.chosen = chosen

    async def set_steering(self, steering):
        self.steering = steering

    async def set_addresses(self, addresses):
        self.addresses = list(addresses)


class Bench:
    def __init__(self):
        self.hardware = FakeNetwork()
        self.commands = NetworkCommands(self.hardware, PAIRS)

    def ask(self, class_, command, body=b"", *, length=None):
        data = bytes((class_, command)) + body
        request = Request(FUNCTION_NET, data[: 4 * NET_REQUEST_WORDS], length or len(data), 1)
        self.hardware.inbox.append(request)
        assert finish(self.commands.step())
        (answer,) = self.hardware.outbox.pop()
        return answer

    def ok(self, *command, **more):
        assert self.ask(*command, **more) == ControlAck.OK, self.commands.refusal
        assert not self.commands.refusal

    def err(self, *command, **more):
        before = self.hardware.state_of_settings()
        assert self.ask(*command, **more) == ControlAck.ERR
        assert self.hardware.state_of_settings() == before
        return self.commands.refusal


def table(unicast, multicast):
    """The two lists of addresses as the driver sends them."""
    return b"".join(
        len(those).to_bytes(4, "little") + b"".join(those) for those in (unicast, multicast)
    )


def stations(count, group=False):
    return [bytes((1 if group else 2, 0, 0, 0, 0, n)) for n in range(count)]


def test_modes():
    bench, on = Bench(), set()
    names = {
        RxCommand.PROMISC: "promiscuous",
        RxCommand.ALLMULTI: "all_multicast",
        RxCommand.ALLUNI: "all_unicast",
        RxCommand.NOMULTI: "no_multicast",
        RxCommand.NOUNI: "no_unicast",
        RxCommand.NOBCAST: "no_broadcast",
    }
    for command, name in names.items():
        bench.ok(NetClass.RX, command, b"\1")
        on.add(name)
        assert bench.hardware.chosen == Filter(frozenset(on))
    bench.ok(NetClass.RX, RxCommand.PROMISC, b"\0")
    assert bench.hardware.chosen.modes == on - {"promiscuous"}
    assert "on or off" in bench.err(NetClass.RX, RxCommand.PROMISC, b"\2")
    assert "2 bytes, not 1" in bench.err(NetClass.RX, RxCommand.PROMISC, b"\1\0")
    assert "0 bytes, not 1" in bench.err(NetClass.RX, RxCommand.PROMISC)
    assert "No command 0.6" in bench.err(NetClass.RX, 6, b"\1")


def test_own_address():
    bench = Bench()
    bench.ok(NetClass.MAC, MacCommand.ADDR_SET, MAC)
    assert bench.hardware.chosen == Filter(mac=MAC)
    for bad in (bytes(6), bytes.fromhex("010000000007"), b"\xff" * 6):
        assert "no station" in bench.err(NetClass.MAC, MacCommand.ADDR_SET, bad)
    assert "5 bytes" in bench.err(NetClass.MAC, MacCommand.ADDR_SET, MAC[:5])


@pytest.mark.parametrize(
    ("unicast", "multicast", "kept", "spilled"),
    [
        (0, 0, 0, set()),
        (3, 4, 7, set()),
        (NET_ADDRESSES, 0, NET_ADDRESSES, set()),
        (2, NET_ADDRESSES - 1, 2, {"all_multicast"}),
        (NET_ADDRESSES + 1, 3, 3, {"all_unicast"}),
        (20, 20, 0, {"all_unicast", "all_multicast"}),
        (1, 60, 1, {"all_multicast"}),  # longer than the mailbox
        (60, 1, 0, {"all_unicast"}),
    ],
)
def test_table(unicast, multicast, kept, spilled):
    bench = Bench()
    lists = stations(unicast), stations(multicast, group=True)
    bench.ok(NetClass.RX, RxCommand.NOBCAST, b"\1")
    bench.ok(NetClass.MAC, MacCommand.TABLE_SET, table(*lists))
    assert spilled <= bench.hardware.chosen.modes
    if unicast < 60:  # else nobody knows how many groups there are
        assert bench.hardware.chosen.modes == spilled | {"no_broadcast"}
        fits = [mac for mac in lists[0] + lists[1] if mac in bench.hardware.addresses]
        assert bench.hardware.addresses == fits and len(fits) == kept
    # What did not fit is forgotten with the next table; what the driver wants is not.
    bench.ok(NetClass.MAC, MacCommand.TABLE_SET, table([MAC], []))
    assert bench.hardware.addresses == [MAC]
    assert bench.hardware.chosen.modes == {"no_broadcast"}


def test_broken_tables():
    bench, good = Bench(), table(stations(2), stations(1, group=True))
    for cut in range(len(good)):
        bench.err(NetClass.MAC, MacCommand.TABLE_SET, good[:cut])
    assert "1 bytes behind" in bench.err(NetClass.MAC, MacCommand.TABLE_SET, good + b"x")
    huge = (1 << 31).to_bytes(4, "little") + good[4:]
    assert "addresses in" in bench.err(NetClass.MAC, MacCommand.TABLE_SET, huge)


def test_pairs():
    bench = Bench()
    for pairs in (1, 2, 3, 4):
        bench.ok(NetClass.MQ, MqCommand.VQ_PAIRS_SET, pairs.to_bytes(2, "little"))
        set_ = bench.hardware.steering
        assert (set_.types, set_.key, set_.other) == (63, SYMMETRIC_KEY, 0)
        assert len(set_.table) == 128
        counts = [set_.table.count(pair) for pair in range(pairs)]
        assert sum(counts) == 128 and max(counts) - min(counts) <= 1
    for pairs in (0, PAIRS + 1, 0x8001):
        refusal = bench.err(NetClass.MQ, MqCommand.VQ_PAIRS_SET, pairs.to_bytes(2, "little"))
        assert f"not {pairs}" in refusal


def spreading(types=63, mask=127, other=0, table=None, send=PAIRS, key=bytes(range(40)), size=None):
    """The command as the driver sends it."""
    entries = [n % PAIRS for n in range(mask + 1)] if table is None else table
    return (
        struct.pack("<IHH", types, mask, other)
        + struct.pack(f"<{len(entries)}H", *entries)
        + struct.pack("<HB", send, len(key) if size is None else size)
        + key
    )


def test_spreading():
    bench, command = Bench(), (NetClass.MQ, MqCommand.RSS_CONFIG)
    bench.ok(*command, spreading())
    table = tuple(n % PAIRS for n in range(128))
    assert bench.hardware.steering == Steering(63, bytes(range(40)), table)
    bench.ok(*command, spreading(5, 3, 2, [3, 2, 1, 0], 1, b"\x12\x34"))
    assert bench.hardware.steering == Steering(5, b"\x12\x34" + bytes(38), (3, 2, 1, 0), 2)
    bench.ok(*command, spreading(0, 0, 1, [0], key=b""))
    assert bench.hardware.steering == Steering(0, bytes(40), (0,), 1)
    for body, why in (
        (spreading(64), "types 0x40"),
        (spreading(mask=2), "not 3"),
        (spreading(mask=255), "not 256"),
        (spreading(mask=0xFFFF, table=[0]), "not 65536"),
        (spreading(other=PAIRS), f"not {PAIRS + 1}"),
        (spreading(mask=1, table=[0, PAIRS]), f"not {PAIRS + 1}"),
        (spreading(mask=1, table=[0xFFFF, 0]), "not 65536"),
        (spreading(send=0), "send must be 1 to 4, not 0"),
        (spreading(send=PAIRS + 1), "send must be"),
        (spreading(key=bytes(41)), "key of 41"),
        (spreading(size=39), "key of 39"),
        (spreading(size=41), "key of 41"),
    ):
        assert why in bench.err(*command, body), body
    good = spreading(mask=7)
    for cut in range(len(good)):
        bench.err(*command, good[:cut])
    bench.err(*command, good + b"x")
    bench.err(*command, spreading(), length=600)
    assert len(spreading()) + 2 <= 4 * NET_REQUEST_WORDS


def test_what_is_not_negotiated_is_refused():
    bench = Bench()
    commands = (
        (NetClass.RX, RxCommand.PROMISC, b"\1", NetFeature.CTRL_RX),
        (NetClass.RX, RxCommand.NOUNI, b"\1", NetFeature.CTRL_RX_EXTRA),
        (NetClass.MAC, MacCommand.ADDR_SET, MAC, NetFeature.CTRL_MAC_ADDR),
        (NetClass.MAC, MacCommand.TABLE_SET, table([], []), NetFeature.CTRL_RX),
        (NetClass.MQ, MqCommand.VQ_PAIRS_SET, b"\1\0", NetFeature.MQ),
        (NetClass.MQ, MqCommand.RSS_CONFIG, spreading(), NetFeature.RSS),
    )
    for class_, command, body, feature in commands:
        bench.hardware.features = ALL & ~feature.mask
        assert feature.name in bench.err(class_, command, body)
        bench.hardware.features = feature.mask
        bench.ok(class_, command, body)
    for class_ in (NetClass.VLAN, NetClass.ANNOUNCE, 77):
        assert "No command" in bench.err(class_, 0)
    bench.hardware.inbox.append(Request(FUNCTION_NET, b"\0", 1, 1))
    assert finish(bench.commands.step())
    assert bench.hardware.outbox == [bytes([ControlAck.ERR])]


def test_reset_sets_the_defaults():
    bench = Bench()
    bench.ok(NetClass.RX, RxCommand.PROMISC, b"\1")
    bench.ok(NetClass.MAC, MacCommand.ADDR_SET, MAC)
    bench.ok(NetClass.MAC, MacCommand.TABLE_SET, table(stations(3), []))
    bench.ok(NetClass.MQ, MqCommand.RSS_CONFIG, spreading())
    bench.hardware.waits = True
    bench.hardware.inbox.append(Request(FUNCTION_NET, b"\0\0\1", 3, 1))
    assert finish(bench.commands.step())
    assert bench.hardware.outbox == [b""], "its driver has gone"
    assert bench.hardware.state_of_settings() == (Filter(), [], Steering())
    assert not bench.hardware.waits and bench.commands.resets == 1
    assert not finish(bench.commands.step())
    bench.ok(NetClass.RX, RxCommand.ALLMULTI, b"\1")
    assert bench.hardware.chosen.modes == {"all_multicast"}


def test_a_new_firmware_goes_on_with_what_is_set():
    bench = Bench()
    bench.ok(NetClass.RX, RxCommand.PROMISC, b"\1")
    bench.ok(NetClass.MAC, MacCommand.ADDR_SET, MAC)
    bench.commands = NetworkCommands(bench.hardware, PAIRS)
    bench.ok(NetClass.RX, RxCommand.NOUNI, b"\1")
    assert bench.hardware.chosen == Filter(frozenset({"promiscuous", "no_unicast"}), MAC)


def test_the_loop_serves_both_functions():
    hardware = FakeHardware()
    hardware.network = FakeNetwork()
    firmware = Firmware(hardware, CONFIG)
    assert not finish(firmware.step())
    hardware.network.inbox.append(Request(FUNCTION_NET, bytes((0, 0, 1)), 3, 1))
    hardware.inbox.append(Request(FUNCTION_RDMA, b"M", 1, 200))
    assert finish(firmware.step())
    assert hardware.network.outbox == [bytes([ControlAck.OK])] and hardware.outbox == [b"\1"]
    # The RDMA function shares the card: its reset waits for the firmware.
    hardware.waiting.add(FUNCTION_RDMA)
    while finish(firmware.step()):
        pass
    assert not hardware.waiting and firmware.resets == 1 and firmware.network.resets == 0


def test_registers():
    bus = FakeBus(CONFIG)
    network = NetworkRegisters(Registers(bus, CONFIG), CONFIG)
    assert finish(network.filter()) == Filter()
    chosen = Filter(frozenset({"all_unicast", "no_broadcast"}), MAC)
    finish(network.set_filter(chosen))
    assert finish(network.filter()) == chosen
    finish(network.set_addresses(stations(2)))
    valid = [bus.values[f"network.address{n}_high.valid"] for n in range(NET_ADDRESSES)]
    assert valid == [1, 1] + [0] * (NET_ADDRESSES - 2)
    finish(network.set_steering(Steering(9, bytes(range(1, 41)), (1, 2, 3, 0) * 4, 3)))
    assert bus.values["network.key0.value"] == 0x04030201
    assert bus.values["network.key9.value"] == 0x28272625
    assert bus.values["network.entries1.value"] == 0x0321_0321
    steering = {name: bus.values[f"network.steering.{name}"] for name in ("types", "mask", "other")}
    assert steering == {"types": 9, "mask": 15, "other": 3}
    finish(network.set_mtu(9000))
    assert bus.values["network.mtu.value"] == 9000


def test_a_card_says_how_many_pairs_it_has():
    for config in (CONFIG, NicConfig()):
        bus = FakeBus(config)
        assert finish(read_config(bus)) == config
        found = finish(configuration(bus, CsrMap(config)))
        assert found["network"] == config.network
