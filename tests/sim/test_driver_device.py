"""The driver against a function in Python: negotiation, queues, interrupts, broken devices."""

import asyncio
import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl.abi import virtio_pci, virtio_rdma
from hdl.abi.enums import ControlCommand, RdmaFeature
from hdl.abi.virtio_pci import CapId, CfgType, Feature, Status
from hdl.ports.counter_names import COUNTERS, PORT_COUNTERS, QP_COUNTERS, RDMA_CORE_NAMES
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.driver.errors import CommandError, DeviceError, DriverTimeout, NeedsReset, RdmaError
from sim.guest.driver.rdma import RdmaDevice
from sim.guest.driver.virtqueue import RingPolicy
from sim.guest.verbs import Context
from tests.sim.fake_device import CONFIG, FakeRdma
from tests.sim.fake_pci import FakePlatform

FAST = {"timeout_ns": 20_000}


def run(coroutine):
    return asyncio.run(coroutine)


def start(device, **options):
    return run(RdmaDevice.start_up(device.platform, 1, DriverOptions(**FAST, **options)))


def test_start_up():
    device = FakeRdma()
    driver = start(device)
    assert device.status == 0x0F
    assert device.driver_features == ALL_FEATURES & device.offered == driver.features
    assert ALL_FEATURES & ~device.offered == RdmaFeature.PUSH.mask
    assert driver.config.max_qp == CONFIG["max_qp"]
    assert driver.config.sys_image_guid == CONFIG["sys_image_guid"]
    assert driver.vectors == 4
    assert device.queues[0].values["queue_msix_vector"] == 1
    assert [driver.cq_vector(i) for i in range(4)] == [2, 3, 2, 3]
    assert run(driver.command(ControlCommand.QUERY_PORT, port=1)).gid_tbl_len == 8
    with pytest.raises(CommandError, match="QUERY_PORT refused with response 0x01") as caught:
        run(driver.command(ControlCommand.QUERY_PORT, port=2))
    assert caught.value.errno == errno.EINVAL
    run(driver.close())
    assert device.status == 0 and device.msix_control == 0
    assert not device.memory._sizes


BITS = [f.mask for f in Feature if f.mask & ALL_FEATURES]


@settings(max_examples=40, deadline=None)
@given(
    offered=st.sets(st.sampled_from(BITS)),
    wanted=st.sets(st.sampled_from(BITS)),
    vectors=st.integers(0, 6),
    entries=st.integers(1, 5),
    split=st.lists(st.integers(1, 60), max_size=4),
    indirect=st.booleans(),
    shuffle=st.none() | st.integers(0, 5),
    no_notify=st.booleans(),
)
def test_any_negotiation(offered, wanted, vectors, entries, split, indirect, shuffle, no_notify):
    """Control commands work whatever was negotiated and however rings are used."""
    device = FakeRdma(
        vectors=entries, offered=sum(offered | {Feature.VERSION_1.mask}), queue_size=16
    )
    device.no_notify = no_notify
    policy = RingPolicy(split=tuple(split), indirect=indirect, shuffle=shuffle)
    driver = start(device, features=sum(wanted), vectors=vectors, policy=policy)
    assert driver.features == sum((offered & wanted) | {Feature.VERSION_1.mask})
    assert driver.vectors == min(vectors, entries)

    async def several():
        port, pkey, pd = await asyncio.gather(
            driver.command(ControlCommand.QUERY_PORT, port=1),
            driver.command(ControlCommand.QUERY_PKEY, port=1),
            driver.command(ControlCommand.CREATE_PD),
        )
        assert (port.max_mtu, pkey.pkey, pd.pdn) == (5, 0xFFFF, 0)
        for index in range(20):
            await driver.command(ControlCommand.ADD_GID, gid=bytes(16), index=index)

    run(several())
    assert len(device.gids) == 20
    assert (len(device.queues[0].doorbells) <= 3) is no_notify
    if indirect and Feature.INDIRECT_DESC.mask in offered & wanted:
        assert not device.chains_seen["direct"]
    else:
        assert not device.chains_seen["indirect"]
    if split:
        assert device.chains_seen["longest"] >= 3


def test_interrupt_driven_without_polling():
    """With a poll interval of a second an answer still comes at once."""
    device = FakeRdma()
    driver = run(RdmaDevice.start_up(device.platform, 1, DriverOptions(poll_ns=10**9)))
    before = driver.interrupts[1]
    run(driver.command(ControlCommand.CREATE_PD))
    assert driver.interrupts[1] == before + 1


@pytest.mark.parametrize("features", [0, Feature.NOTIFICATION_DATA.mask])
def test_doorbell_format(features):
    """The queue's number alone, or with the whole 16-bit available index behind it (2.9)."""
    device = FakeRdma()
    driver = start(device, features=features)
    written = []

    async def write(*access):
        written.append(access)

    device.platform.write = write
    for index in (1, 0x7FFF, 0x8000, 0xFFFF):
        driver.control._next_avail = index
        run(driver.notify(driver.control))
        size, value = (4, index << 16) if features else (2, 0)
        assert written.pop() == (1, 2, 0x1000, size, value)
    driver.control.doorbell, driver.control.index = 4 * 7, 7
    run(driver.notify(driver.control))
    assert written.pop() == (1, 2, 0x101C, size, 0xFFFF0007 if features else 7)


def test_config_at_any_offset():
    """Unaligned fields are read with their own size (VR-2.7); writes have no effect."""
    device = FakeRdma()
    driver = start(device)
    for place in virtio_rdma.CONFIG.places():
        if place.size in (1, 2, 4):
            assert run(driver.config_read(place.offset, place.size)) == CONFIG.get(place.path, 0)
    run(driver.config_write(0, 4, 77))
    assert run(driver.config_read(0, 4)) == 1


def test_counters():
    device = FakeRdma()
    driver = start(device)
    with pytest.raises(RdmaError, match="Function 1 shows no counters") as caught:
        run(driver.counters())
    assert caught.value.errno == errno.EOPNOTSUPP
    names = PORT_COUNTERS + COUNTERS
    device.counters = list(range(100, 100 + len(names)))
    expected = {name: 100 + i for i, name in enumerate(names)}
    for name in ("rx_bytes", "tx_bytes"):
        expected[name] = expected.pop(f"{name}_low") | expected.pop(f"{name}_high") << 32
    assert run(driver.counters()) == expected
    # A device that counts more, and one that counts less, than the driver knows.
    device.counters.append(7)
    assert run(driver.counters()) == expected
    del device.counters[len(PORT_COUNTERS) :]
    assert list(run(driver.counters()))[-1] == "tx_bytes"


def test_counter_of_64_bits_that_counts_on():
    device = FakeRdma()
    driver = start(device)
    low, high = (PORT_COUNTERS.index(f"rx_bytes_{half}") for half in ("low", "high"))
    device.counters = [0] * len(PORT_COUNTERS)
    device.counters[low] = 0xFFFFFFFF
    read, word = [], device.counter_word

    def counting(addr):
        value = word(addr)
        read.append((addr - virtio_rdma.COUNTER_OFFSET) // 4 - 4)
        if read[-1] == low and high not in read:  # carries between the two halves
            device.counters[low], device.counters[high] = 5, 1
        return value

    device.counter_word = counting
    assert run(driver.counters())["rx_bytes"] in (0xFFFFFFFF, 1 << 32 | 5)


def test_hw_counters():
    device = FakeRdma()
    device.counters = [1000 + i for i in range(len(PORT_COUNTERS + COUNTERS))]
    ours = run(start(device).counters())
    context = run(Context.open(device.platform, 1))
    theirs = run(context.hw_counters())
    assert len(theirs) == len(ours)
    assert theirs["port_rcv_packets"] == ours["rx_packets"]
    assert theirs["port_xmit_data"] == ours["tx_bytes"] // 4
    assert theirs["out_of_sequence"] == ours["out_of_sequence"]
    assert set(RDMA_CORE_NAMES) <= set(ours)


def test_counters_of_a_qp():
    device = FakeRdma()
    driver = start(device)
    with pytest.raises(RdmaError, match="no counters"):
        run(driver.qp_counters(5))
    device.counters = [0] * len(PORT_COUNTERS + COUNTERS)
    assert run(driver.qp_counters(5)) == {}  # an older device counts for the port only
    device.qp_counters = {5: list(range(len(QP_COUNTERS))), 6: [7] * len(QP_COUNTERS)}
    assert run(driver.qp_counters(5)) == {name: i for i, name in enumerate(QP_COUNTERS)}
    assert set(run(driver.qp_counters(6)).values()) == {7}


def test_window_in_configuration_space():
    device = FakeRdma()
    driver = start(device)
    common = driver.windows[CfgType.COMMON]
    status = common.offset + virtio_pci.COMMON_CFG.offset("device_status")
    assert run(driver.window_read(common.bar, status, 1)) == 0x0F
    run(driver.window_write(common.bar, status, 1, 0))
    assert device.status == 0


def test_reset_takes_its_time():
    device = FakeRdma()
    device.reset_reads = 5
    start(device)
    device.reset_reads = 10**6
    with pytest.raises(DriverTimeout, match="Device reset: device_status still reads 0xff"):
        start(device)


def test_wrong_device():
    device = FakeRdma()
    with pytest.raises(RdmaError, match="Function 0 is ffff:ffff, not 1af4:106a") as caught:
        run(RdmaDevice.start_up(device.platform, 0))
    assert caught.value.errno == errno.ENODEV


def broken_header(device):
    device.space[virtio_pci.PCI_HEADER.offset("status")] = 0


def loop(device):
    cap = device.cap_addr[CfgType.ISR]
    device.space[cap + 1] = 0x40


def into_header(device):
    device.space[device.cap_addr[CfgType.COMMON] + 1] = 0x10


def no_notify_cap(device):
    device.space[device.cap_addr[CfgType.NOTIFY]] = CapId.MSI


def reserved_bar(device):
    device.space[device.cap_addr[CfgType.DEVICE] + 4] = 6


def short_common(device):
    cap = device.cap_addr[CfgType.COMMON]
    device.space[cap + 12] = 0x20


def odd_notify(device):
    device.space[device.cap_addr[CfgType.NOTIFY] + 8] |= 1


def odd_multiplier(device):
    device.space[device.cap_addr[CfgType.NOTIFY] + 16] = 6


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (broken_header, "Function 1 has no capability list"),
        (loop, "Capability list of function 1 is broken at 0x[0-9a-f]+, after 48 entries"),
        (into_header, "broken at 0x10, after 1 entries"),
        (no_notify_cap, "has no NOTIFY capability"),
        (reserved_bar, "has no DEVICE capability"),
        (short_common, "COMMON has 32 bytes, needs 56"),
        (odd_notify, "NOTIFY is at 0x1001, not 2-aligned"),
        (odd_multiplier, "notify_off_multiplier must be 0 or an even power of 2: 6"),
    ],
)
def test_broken_capabilities(breaks, message):
    device = FakeRdma()
    breaks(device)
    with pytest.raises(DeviceError, match=message):
        start(device)


def test_first_capability_of_a_kind_counts():
    device = FakeRdma()
    second = bytearray(device.space[0x40:0x50])
    second[8] = 0x99
    end = device.msix_addr + 12
    second[1] = 0
    device.space[end : end + 16] = second
    device.space[device.msix_addr + 1] = end
    assert start(device).windows[CfgType.COMMON].offset == 0


def test_no_version_1():
    device = FakeRdma(offered=Feature.EVENT_IDX.mask)
    with pytest.raises(DeviceError, match="does not offer VERSION_1: features 0x20000000"):
        start(device)
    assert device.status & Status.FAILED


def test_features_refused():
    device = FakeRdma()
    device.refuse = Feature.IN_ORDER.mask
    with pytest.raises(DeviceError, match="does not take features"):
        start(device)
    start(device, features=ALL_FEATURES & ~Feature.IN_ORDER.mask)


def test_bad_config():
    device = FakeRdma()
    device.config = virtio_rdma.CONFIG.pack(max_cq=16385, max_qp=1)
    with pytest.raises(DeviceError, match="max_cq must be 1 to 16384, not 16385"):
        start(device)


def test_queues():
    device = FakeRdma(queue_size=64)
    driver = start(device)
    with pytest.raises(RdmaError, match="Device has no queue 999") as caught:
        run(driver.setup_queue(999))
    assert caught.value.errno == errno.ENXIO
    with pytest.raises(RdmaError, match="Queue 3 takes 64 entries, not 128") as caught:
        run(driver.setup_queue(3, size=128))
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(RdmaError, match="no vector 9 for queue 3") as caught:
        run(driver.setup_queue(3, vector=9))
    assert caught.value.errno == errno.ENOSPC
    queue = run(driver.setup_queue(3, size=8, vector=2))
    assert device.queues[3].values["queue_size"] == 8
    assert device.queues[3].values["queue_desc"] == queue.desc > 1 << 32
    with pytest.raises(RdmaError, match="Queue 0 takes|no queue|in use") as caught:
        run(driver.setup_queue(99))
    run(driver.release_queue(3))
    assert not device.queues[3].values.get("queue_enable")
    assert run(driver.setup_queue(3, size=64)).size == 64
    assert run(driver.queue_size(3)) == 64


def test_queue_size_is_rounded_down():
    device = FakeRdma(queue_size=48)
    assert start(device).control.size == 32


def test_needs_reset():
    device = FakeRdma()
    driver = start(device)
    device.answer = lambda request, room: device.fail() or b""
    with pytest.raises((NeedsReset, DeviceError), match="needs a reset|without a response"):
        run(driver.command(ControlCommand.CREATE_PD))
    device.serve = lambda index: None
    with pytest.raises(NeedsReset, match="needs a reset \\(CREATE_PD answered\\)"):
        run(driver.command(ControlCommand.CREATE_PD))


def test_silent_device():
    device = FakeRdma()
    driver = start(device)
    device.serve = lambda index: None
    with pytest.raises(DriverTimeout, match="QUERY_PKEY answered not within 20000 ns"):
        run(driver.command(ControlCommand.QUERY_PKEY, port=1))
    assert device.platform.time < 100_000


def test_short_response():
    device = FakeRdma()
    driver = start(device)
    device.answer = lambda request, room: b"\0\1"
    with pytest.raises(DeviceError, match="CREATE_PD: only 2 bytes of response"):
        run(driver.command(ControlCommand.CREATE_PD))
    device.answer = lambda request, room: b"\xea"
    with pytest.raises(CommandError, match="response 0xea"):
        run(driver.command(ControlCommand.CREATE_PD))
    device.answer = lambda request, room: b""
    with pytest.raises(DeviceError, match="without a response byte"):
        run(driver.command(ControlCommand.CREATE_PD))


@pytest.mark.parametrize("split", [(), (1,), (2, 3), (1, 1, 1, 1, 1, 1), (100,)])
def test_raw_requests(split):
    device = FakeRdma()
    driver = start(device)
    policy = RingPolicy(split=split)

    def ask(request, room):
        return run(driver.channel.request(request, room, policy=policy))

    assert ask(b"\x01\x01", 162).written == 162
    assert ask(b"\x01", 162).response == 1
    assert ask(b"\x01\x01", 5).response == 1
    assert ask(b"\xff" * 40, 3).data == b"\1"
    assert ask(b"", 3).response == 1
    assert ask(b"\x04", 0).written == 0
    with pytest.raises(RdmaError, match="empty control request"):
        ask(b"", 0)
    assert len(device.memory._sizes) == 3


def test_commands_of_many_tasks():
    device = FakeRdma(queue_size=4)
    driver = run(RdmaDevice.start_up(device.platform, 1, DriverOptions(vectors=1)))

    async def everything():
        add = ControlCommand.ADD_GID
        await asyncio.gather(
            *(driver.command(add, gid=bytes(16), index=index) for index in range(50))
        )

    run(everything())
    assert len(device.gids) == 50


def test_config_generation():
    """A configuration that changes while it is read is read again."""
    device = FakeRdma()
    generations = iter([1, 2, 2, 2])
    original = device.mmio_read

    def read(bar, addr, size):
        if bar == 2 and addr == virtio_pci.COMMON_CFG.offset("config_generation"):
            return next(generations)
        return original(bar, addr, size)

    device.mmio_read = read
    assert start(device).config.max_cq == CONFIG["max_cq"]
    generations = iter(range(100))
    with pytest.raises(DeviceError, match="configuration changes all the time"):
        start(device)


def test_memory_full():
    device = FakeRdma(FakePlatform(size=1 << 16), queue_size=32768)
    with pytest.raises(RdmaError, match="contiguous bytes of guest memory") as caught:
        start(device)
    assert caught.value.errno == errno.ENOMEM
