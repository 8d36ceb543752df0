"""A card whose network function has a driver beside that of the RDMA function."""

from __future__ import annotations

import random

import cocotb

from firmware.network_commands import SYMMETRIC_KEY
from hdl.abi.virtio_net import MTU, HashType, NetStatus, RxCommand
from hdl.abi.virtio_pci import NetFeature, Status
from hdl.config import NicConfig
from hdl.ports.jobs import QueueErrorCause
from sim.bench.system import System
from sim.guest.driver.device import DriverOptions
from sim.guest.driver.errors import CommandError, NeedsReset
from sim.guest.net import ALL_FEATURES, NetDevice, NetOptions
from sim.guest.net.device import WHOLE
from tests.network import packets
from tests.network.toeplitz import Spread
from tests.nic.pair import Pair
from tests.slow import QUICK

#: The cards of ``./rocinante guest --network 2``: one model serves these tests and guests.
CONFIG = NicConfig(width=64, network=2)
OTHER = bytes.fromhex("020000001234")
GROUP = bytes.fromhex("01005e000001")


async def up(dut, options: NetOptions | None = None, **bench) -> tuple[System, list[NetDevice]]:
    """Both cards with all drivers: RDMA's are in the system's nodes, the network's are listed."""
    system = await System.start(dut, CONFIG, **bench)
    for node in system.nodes:
        node.host.set(mmio_latency_ns=0)
    return system, [await NetDevice.start_up(node.host, options) for node in system.nodes]


async def state(node) -> dict:
    """What the registers say that the function receives."""
    chosen = await node.registers.network.filter()
    return {"modes": set(chosen.modes), "mac": chosen.mac}


DEFAULT = {"modes": set(), "mac": None}


@cocotb.test()
async def driver_comes_up(dut):
    """The device configuration, the control queue, and what is refused."""
    system, (device, _) = await up(dut)
    node = system.nodes[0]
    config = device.config
    assert config.mac == node.mac
    assert (config.mtu, config.max_virtqueue_pairs) == (MTU, 2)
    assert config.status == NetStatus.LINK_UP
    assert (config.rss_max_key_size, config.rss_max_indirection_table_length) == (40, 128)
    assert config.supported_hash_types == 63
    assert await state(node) == DEFAULT
    await device.set_mode(RxCommand.PROMISC, True)
    await device.set_mac(OTHER)
    await device.set_table([OTHER], [GROUP])
    await device.set_pairs(1)
    await device.set_pairs(2)
    assert await state(node) == {"modes": {"promiscuous"}, "mac": OTHER}
    assert (await device.read_config()).mac == OTHER
    for command in (device.set_pairs(3), device.set_spreading(HashType(0), b"", [2])):
        try:
            await command
            raise AssertionError("it has two pairs")
        except CommandError:
            pass
    assert not node.host.faults


@cocotb.test(skip=QUICK)
async def resets_leave_the_other_function_alone(dut):
    """The network function is reset while RDMA works, and the other way round."""
    system, devices = await up(dut)
    pair = await Pair(system.nodes, 1).make()
    rng = random.Random(1)
    for number in range(3):
        await devices[0].set_mode(RxCommand.ALLMULTI, True)
        task = cocotb.start_soon(pair.exchange(rng))
        if number:  # with a command on its way
            command = cocotb.start_soon(devices[0].set_mac(OTHER))
            await system.testbench.cycles(rng.randrange(1500))
            command.cancel()
        await devices[0].close()
        await task
        assert await state(system.nodes[0]) == DEFAULT
        assert (await system.nodes[0].registers.network.state()).status == 0
        devices[0] = await NetDevice.start_up(system.nodes[0].host)
    await devices[0].set_mac(OTHER)
    await system.nodes[0].context.close()
    assert (await state(system.nodes[0]))["mac"] == OTHER
    await devices[0].set_mode(RxCommand.NOBCAST, True)
    assert await devices[0].status() & Status.DRIVER_OK


@cocotb.test()
async def broken_control_queue(dut):
    """Garbage in the control queue's ring stops this function alone, until it is reset."""
    system, devices = await up(dut)
    node, device = system.nodes[0], devices[0]
    pair = await Pair(system.nodes, 1).make()
    queue = device.control.queue
    queue._avail_idx[0] = (queue.next_avail + 300) & 0xFFFF
    await device.notify(queue)
    try:
        await device.wait_until(lambda: False, "its end", timeout_ns=100_000)
        raise AssertionError("the ring is broken")
    except NeedsReset:
        pass
    broken = await node.registers.network.needs_reset()
    assert broken["active"] and broken["queue"] == 2 * CONFIG.network
    assert broken["cause"] != QueueErrorCause.NONE
    await pair.exchange(random.Random(2))
    await device.close()
    devices[0] = await NetDevice.start_up(node.host)
    await devices[0].set_mac(OTHER)


BROADCAST = b"\xff" * 6
#: Of local experiments (IEEE 802).
ETHERTYPE = b"\x88\xb5"
LENGTHS = (60, 61, 63, 64, 65, 71, 127, 128, 129, 511, 1000, 1514, 9014)
#: Where header and frame are cut into descriptors: not at all, behind the header as Linux does, at
#: odd places, in the header too.
CUTS = ((), (12,), (12, 14, 1, 30), (1, 5, 7, 3, 20))


def frame_of(rng: random.Random, to: bytes, by: bytes, length: int) -> bytes:
    """An Ethernet frame without FCS."""
    return to + by + ETHERTYPE + rng.randbytes(length - 14)


async def counted(node) -> dict[str, int]:
    return await node.registers.network.counters()


@cocotb.test()
async def frames_of_all_lengths(dut):
    """Both ways, cut and indirect, in buffers of odd places, which one frame fills many of."""
    rng = random.Random(5)
    system, devices = await up(dut, NetOptions(buffer_bytes=700, unaligned=3))
    macs = [node.mac for node in system.nodes]
    for indirect in (False, True):
        for cuts in CUTS:
            for length in LENGTHS:
                pair = rng.randrange(2)
                frames = [frame_of(rng, macs[1 - i], macs[i], length) for i in range(2)]
                for i, device in enumerate(devices):
                    await device.send(frames[i], pair=pair, pieces=cuts, indirect=indirect)
                for i, device in enumerate(devices):
                    got = await next_frame(device)
                    assert got == frames[1 - i], (indirect, cuts, length, len(got))
    for device in devices:
        for pair in range(2):
            await device.sent(pair)
    total = len(CUTS) * 2 * len(LENGTHS)
    for node in system.nodes:
        found = await counted(node)
        assert (found["net_rx_frames"], found["net_tx_frames"]) == (total, total), found
        size = 2 * len(CUTS) * sum(LENGTHS)
        assert (found["net_rx_bytes_low"], found["net_tx_bytes_low"]) == (size, size), found
        assert not found["net_tx_errors"] and not found["net_rx_drops_queue"], found
        assert not node.host.faults, node.host.faults


async def next_frame(device: NetDevice) -> bytes:
    """The next frame of any pair: which one it comes to is the card's choice."""

    def come() -> bool:
        for pair in range(device.pairs):
            device._reap_received(pair)
        return any(device.frames)

    await device.wait_until(come, "a frame received")
    for pair in range(device.pairs):
        await device.queue(pair, transmit=False).kick()
    return next(frames.popleft() for frames in device.frames if frames)


@cocotb.test(skip=QUICK)
async def checksums_on_the_way(dut):
    """The card that receives a packet tells its driver whether the checksums are right; and no
    driver that has not asked for it."""
    rng = random.Random(12)
    system, devices = await up(dut)
    for device in devices:
        await device.set_mode(RxCommand.PROMISC, True)
    frames = [
        shape.build(rng)
        for shape in (
            *(
                packets.Shape(version, protocol, payload=rng.randrange(60, 1400))
                for version in (4, 6)
                for protocol in (packets.TCP, packets.UDP, packets.ICMP)
            ),
            packets.Shape(4, packets.TCP, packets.TAGS[1], options=3, payload=99),
            packets.Shape(6, packets.UDP, packets.TAGS[3], payload=1000),
            packets.Shape(4, packets.UDP, payload=64, fragment=0x2000),
            packets.Shape(4, packets.TCP, payload=8000),
        )
    ]
    frames += [packets.spoilt(frame, rng.randrange(40, len(frame)), rng) for frame in frames]
    for frame in frames:
        source = rng.randrange(2)
        before = devices[1 - source].right
        await devices[source].send(frame, pieces=(12,))
        assert await next_frame(devices[1 - source]) == frame
        assert devices[1 - source].right - before == packets.right(frame)
    assert sum(device.right for device in devices) >= 7
    await devices[1].close()
    driver = DriverOptions(features=ALL_FEATURES & ~NetFeature.GUEST_CSUM.mask)
    devices[1] = await NetDevice.start_up(system.nodes[1].host, NetOptions(driver=driver))
    await devices[1].set_mode(RxCommand.PROMISC, True)
    for frame in frames[:6]:
        await devices[0].send(frame)
        assert await next_frame(devices[1]) == frame
    assert devices[1].right == 0


@cocotb.test(skip=QUICK)
async def flows_are_spread(dut):
    """A frame comes to the queue that its driver has asked for: with a key and a table of its own,
    the longest that there may be, or of all pairs alike."""
    rng = random.Random(14)
    system, (sender, device) = await up(dut)
    for one in (sender, device):
        await one.set_mode(RxCommand.PROMISC, True)
    even = Spread(63, SYMMETRIC_KEY, tuple(n % 2 for n in range(128)))
    own = Spread(63, rng.randbytes(40), tuple(rng.randrange(2) for _ in range(128)), 1)
    ipv6_alone = Spread(8, rng.randbytes(40), (0, 1, 1, 0), 1)
    one_pair = Spread(63, SYMMETRIC_KEY, (0,) * 128)

    async def goes(spread: Spread) -> None:
        queues = set()
        for number in range(16):
            shape = packets.Shape((4, 6)[number % 2], (6, 17)[number // 2 % 2], payload=20)
            frame = shape.build(rng)
            await sender.send(frame)
            found = await device.receive(spread.pair(frame))
            assert found == frame
            queues.add(spread.pair(frame))
        assert len(queues) == 1 + (max(spread.table) > 0)

    await goes(even)  # what ``start_up`` has asked for
    for spread in (own, ipv6_alone):
        await device.set_spreading(
            HashType(spread.types), spread.key, spread.table, other=spread.other
        )
        await goes(spread)
    await device.set_pairs(1)
    await goes(one_pair)
    # Without MQ the control queue is where RSS puts it.
    await device.close()
    driver = DriverOptions(features=ALL_FEATURES & ~NetFeature.MQ.mask)
    device = await NetDevice.start_up(system.nodes[1].host, NetOptions(driver=driver))
    await device.set_mode(RxCommand.PROMISC, True)
    await device.set_spreading(HashType(63), own.key, own.table, other=own.other)
    await goes(own)


@cocotb.test(skip=QUICK)
async def whole_buffers(dut):
    """Without MRG_RXBUF each frame has one buffer, which holds the longest."""
    features = ALL_FEATURES & ~(NetFeature.MRG_RXBUF.mask | NetFeature.MQ.mask)
    driver = DriverOptions(features=features)
    rng = random.Random(6)
    options = NetOptions(driver=driver, buffers=8, buffer_bytes=WHOLE, unaligned=5)
    system, devices = await up(dut, options)
    macs = [node.mac for node in system.nodes]
    for length in LENGTHS:
        frame = frame_of(rng, macs[1], macs[0], length)
        await devices[0].send(frame)
        assert await next_frame(devices[1]) == frame


@cocotb.test()
async def beside_rdma(dut):
    """Frames and messages share the wire; none is lost, and each byte is right."""
    rng = random.Random(7)
    system, devices = await up(dut)
    rdma = await Pair(system.nodes, 3).make()
    macs = [node.mac for node in system.nodes]
    running = True

    async def messages() -> int:
        rounds = 0
        while running:
            await rdma.exchange(rng)
            rounds += 1
        return rounds

    task = cocotb.start_soon(messages())
    for number in range(60):
        source = number % 2
        frame = frame_of(rng, macs[1 - source], macs[source], rng.choice(LENGTHS[:-1]))
        await devices[source].send(frame, pieces=(12,))
        assert await next_frame(devices[1 - source]) == frame
    running = False
    assert await task > 2


@cocotb.test(skip=QUICK)
async def only_what_is_wanted(dut):
    """The filter: own address, broadcast, groups, the table, and the modes."""
    rng = random.Random(8)
    system, devices = await up(dut)
    sender, device = devices
    mac = system.nodes[1].mac
    count = 0

    async def passes(to: bytes) -> bool:
        """Whether a frame to this address is received; one that is, always comes behind it."""
        nonlocal count
        frame, last = (frame_of(rng, one, OTHER, 100) for one in (to, mac))
        await sender.send(frame)
        await sender.send(last)
        first = await next_frame(device)
        if first == last:
            count += 1
            return False
        assert first == frame
        assert await next_frame(device) == last
        return True

    await device.set_pairs(1)  # frames of one queue keep their order
    assert not await passes(OTHER) and await passes(BROADCAST) and not await passes(GROUP)
    await device.set_table([OTHER], [GROUP])
    assert await passes(OTHER) and await passes(GROUP)
    await device.set_table([], [])
    assert not await passes(OTHER) and not await passes(GROUP)
    await device.set_mode(RxCommand.ALLMULTI, True)
    assert await passes(GROUP) and not await passes(OTHER)
    await device.set_mode(RxCommand.ALLMULTI, False)
    await device.set_mode(RxCommand.NOBCAST, True)
    assert not await passes(BROADCAST)
    await device.set_mode(RxCommand.PROMISC, True)
    assert await passes(OTHER) and await passes(BROADCAST)
    found = await counted(system.nodes[1])
    assert found["net_rx_filtered"] == count, found


@cocotb.test()
async def without_buffers(dut):
    """A driver without buffers loses frames and nothing else: neither other frames nor RDMA."""
    rng = random.Random(9)
    system, devices = await up(dut, NetOptions(buffers=4, queue_size=16))
    rdma = await Pair(system.nodes, 4).make()
    macs = [node.mac for node in system.nodes]
    frames = [frame_of(rng, macs[1], macs[0], 200 + n) for n in range(12)]
    await devices[1].set_pairs(1)
    for frame in frames:
        await devices[0].send(frame)
    await devices[0].sent()
    await rdma.exchange(rng)
    found = await counted(system.nodes[1])
    assert found["net_rx_frames"] + found["net_rx_drops_queue"] == len(frames), found
    assert found["net_rx_drops_queue"], found
    for n in range(found["net_rx_frames"]):
        assert await next_frame(devices[1]) == frames[n]
    last = frame_of(rng, macs[1], macs[0], 300)
    await devices[0].send(last)
    assert await next_frame(devices[1]) == last


@cocotb.test()
async def garbage_in_its_rings(dut):
    """A broken ring stops the function; a chain that is no frame is returned and counted."""
    rng = random.Random(10)
    system, devices = await up(dut)
    rdma = await Pair(system.nodes, 5).make()
    node, device = system.nodes[0], devices[0]
    for short in (b"", b"123"):  # less than a frame
        await device.send(short)
    await device.send(bytes(10_000))
    await device.sent()
    assert (await counted(node))["net_tx_errors"] == 3
    for transmit in (False, True):
        queue = device.queue(0, transmit=transmit)
        queue._avail_idx[0] = (queue.next_avail + 1000) & 0xFFFF
        await device.notify(queue)
        await system.testbench.cycles(3000)
        assert await device.status() & Status.DEVICE_NEEDS_RESET
        assert (await node.registers.network.needs_reset())["queue"] == queue.index
        await rdma.exchange(rng)
        await device.close()
        device = await NetDevice.start_up(node.host)
        frame = frame_of(rng, system.nodes[1].mac, node.mac, 500)
        await device.send(frame)
        assert await next_frame(devices[1]) == frame


@cocotb.test()
async def link_goes_down(dut):
    """The driver is told, by its status and an interrupt."""
    system, (device, _) = await up(dut)
    link, before = dut.nic0_link_up, device.interrupts[0]
    generation = await device.common_read("config_generation")
    for number, up_now in enumerate((0, 1), 1):
        link.value = up_now
        await system.testbench.cycles(500)
        assert (await device.read_config()).status == (NetStatus.LINK_UP if up_now else 0)
        assert await device.common_read("config_generation") == generation + number
        assert device.interrupts[0] == before + number
