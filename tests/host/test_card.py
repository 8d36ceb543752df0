"""``rocinante card``, used by a client that was written from the protocol's specification."""

import errno
import os
import struct
from dataclasses import replace

import numpy as np
import pytest

from hdl.abi import virtio_pci as abi
from hdl.abi.enums import WrOpcode
from hdl.abi.virtio_pci import CapId, CfgType, Isr
from hdl.config import NicConfig
from hdl.host.config_space import rdma_image
from sim.guest.driver.pci import PciFunction, find_windows
from tests.host import vfio_client as vfio
from tests.host.vfio_client import VfioClient, VfioError, VfioPlatform, run
from tests.host.vfio_guest import LENGTH, OPTIONS, Served, exchange, pair

PAGE = 4096
WITHOUT_VECTORS = replace(OPTIONS, vectors=0)


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """Two cards of one function each, joined by a wire."""
    served = Served(tmp_path_factory.mktemp("card"), "--cards", "2")
    yield served
    assert served.close() == 0


@pytest.fixture
def client(card):
    one = VfioClient(card.path())
    yield one
    leave(card, one)


def leave(card, client):
    """Close a connection, and wait until the function is free again."""
    before = card.text.count("the connection has ended")
    client.close()
    card.says("the connection has ended", before + 1)


def refused(number, work, *arguments, **more):
    with pytest.raises(VfioError) as found:
        work(*arguments, **more)
    assert found.value.number == number, os.strerror(found.value.number)


def test_device_is_described_as_the_rtl_has_it(client):
    config = NicConfig(width=64)
    assert client.capabilities == {
        "max_msg_fds": 16,
        "max_data_xfer_size": 1 << 20,
        "pgsizes": PAGE,
    }
    assert client.info() == (3, 9, 5)
    sizes = {0: 0x10000, 2: PAGE, vfio.CONFIG: 256}
    assert {i: client.region(i) for i in range(9)} == {
        i: (3, sizes[i]) if i in sizes else (0, 0) for i in range(9)
    }
    counts = {vfio.INTX: (7, 1), vfio.MSIX: (3, config.vectors)}
    assert {i: client.irq(i) for i in range(5)} == {i: counts.get(i, (0, 0)) for i in range(5)}
    image = rdma_image(config)
    window = image.window + abi.VIRTIO_PCI_CFG_CAP.offset("pci_cfg_data")
    found = bytearray(client.read(vfio.CONFIG, 0, 256))
    found[window : window + 4] = bytes(4)  # of a structure that nobody has chosen yet
    assert found == image.data


def test_driver_walks_the_capabilities(card):
    platform = VfioPlatform(card.path())
    pci = PciFunction(platform.mmio, 1)
    assert {*run(find_windows(pci))} == {*CfgType}
    assert [kind for kind, _ in run(pci.capabilities())] == [CapId.VENDOR] * 5 + [CapId.MSIX]
    platform.close()


def test_bars_are_sized_by_the_guest(client):
    at = abi.PCI_HEADER.place("bar").offset
    for bar, size in ((0, 0x10000), (1, 0), (2, PAGE)):
        client.write(vfio.CONFIG, at + 4 * bar, b"\xff" * 4)
        assert client.read(vfio.CONFIG, at + 4 * bar, 4) == struct.pack("<I", -size & 0xFFFFFFFF)


def test_accesses_of_any_size(client):
    """A field of two words, odd places, and several writes in one message."""
    select = abi.COMMON_CFG.place("queue_select").offset
    desc = abi.COMMON_CFG.place("queue_desc").offset
    client.write(0, select, struct.pack("<H", 0))
    client.write(0, desc, struct.pack("<Q", 0x1122334455667780))
    assert client.read(0, desc, 8) == struct.pack("<Q", 0x1122334455667780)
    whole = client.read(0, 0, 0x3C)
    for offset, count in ((1, 1), (1, 2), (2, 7), (0x13, 9), (desc, 16)):
        assert client.read(0, offset, count) == whole[offset : offset + count]
    writes = b"".join(
        struct.pack("=QII8s", desc + 4 * i, 0, 4, struct.pack("<I", 16 * (i + 1))) for i in (0, 1)
    )
    answer = client.request(vfio.WRITE_MULTI, struct.pack("=Q", 2) + writes)
    assert answer == struct.pack("=Q", 2)
    assert client.read(0, desc, 8) == struct.pack("<II", 16, 32)
    # Without an answer; the next one comes behind it.
    head = struct.pack("=QII", desc, 0, 4)
    client.send(vfio.REGION_WRITE, head + struct.pack("<I", 0x40), flags=vfio.NO_REPLY)
    assert client.read(0, desc, 4) == struct.pack("<I", 0x40)


def test_accesses_beyond_a_region_are_refused(client):
    for region, offset, count in ((0, 0x10000, 4), (0, 0xFFFE, 4), (1, 0, 4), (9, 0, 1),
                                  (vfio.CONFIG, 256, 4), (0, 0, 0), (0, 1 << 63, 8)):  # fmt: skip
        refused(errno.EINVAL, client.read, region, offset, count)
    refused(errno.EINVAL, client.write, vfio.CONFIG, 254, b"1234")


def test_reset_makes_the_function_new(client):
    select = abi.COMMON_CFG.place("driver_feature_select").offset
    client.write(0, select, struct.pack("<I", 1))
    client.write(vfio.CONFIG, 4, struct.pack("<H", 6))
    assert client.read(0, select, 4) != bytes(4) and client.read(vfio.CONFIG, 4, 2) != bytes(2)
    client.reset()
    assert client.read(0, select, 4) == bytes(4) and client.read(vfio.CONFIG, 4, 2) == bytes(2)
    refused(errno.EINVAL, client.request, vfio.RESET, b"?")


def test_memory_comes_and_goes_in_pieces(client):
    file = os.memfd_create("guest")
    os.ftruncate(file, 64 * PAGE)
    try:
        for n in range(32):
            client.map((64 - 2 * n) * PAGE, PAGE, file, 2 * n * PAGE, rights=1 + n % 3)
        refused(errno.EEXIST, client.map, 64 * PAGE, PAGE, file)
        refused(errno.EEXIST, client.map, 3 * PAGE, 4 * PAGE, file)
        client.map(1 << 40, 2 * PAGE)
        client.map(-PAGE & (1 << 64) - 1, PAGE)  # the last one that there is
        client.unmap(64 * PAGE, PAGE)
        refused(errno.ENOENT, client.unmap, 64 * PAGE, PAGE)
        refused(errno.EINVAL, client.unmap, 1 << 40, PAGE)  # a part
        client.unmap(32 * PAGE, 16 * PAGE)  # several
        client.unmap(1 << 40, 2 * PAGE)
        client.map(64 * PAGE, PAGE, file)
        client.unmap(0, 0, flags=2)
        refused(errno.ENOENT, client.unmap, 2 * PAGE, PAGE)
    finally:
        os.close(file)


def test_memory_that_cannot_be_is_refused(client, tmp_path):
    file = os.memfd_create("guest")
    os.ftruncate(file, 4 * PAGE)
    pipe = os.pipe()
    (tmp_path / "file").write_bytes(bytes(4 * PAGE))
    read_only = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        for addr, size, one, offset in (
            (PAGE + 1, PAGE, file, 0),
            (PAGE, PAGE - 1, file, 0),
            (PAGE, 0, file, 0),
            (PAGE, PAGE, file, 8),
            (PAGE, 5 * PAGE, file, 0),
            (PAGE, PAGE, file, -PAGE & (1 << 64) - 1),
            (-PAGE & (1 << 64) - 1, 2 * PAGE, file, 0),
            (PAGE, PAGE, pipe[0], 0),
        ):
            refused(errno.EINVAL, client.map, addr, size, one, offset)
        refused(errno.EINVAL, client.map, PAGE, PAGE, file, rights=0)
        refused(errno.EINVAL, client.map, PAGE, PAGE, file, rights=4)
        refused(errno.EACCES, client.map, PAGE, PAGE, read_only)
        client.map(PAGE, PAGE, read_only, rights=1)
    finally:
        for one in (file, *pipe, read_only):
            os.close(one)


@pytest.mark.parametrize(
    "command,size",
    [
        (vfio.DMA_MAP, 32),
        (vfio.DMA_UNMAP, 24),
        (vfio.GET_INFO, 16),
        (vfio.GET_REGION_INFO, 32),
        (vfio.GET_IRQ_INFO, 16),
        (vfio.SET_IRQS, 20),
    ],
)
def test_room_for_less_than_the_answer_is_refused(client, command, size):
    """argsz is at least the size of the fixed part, and so is the body."""
    body = struct.pack("=I", size - 1) + bytes(size - 4)
    refused(errno.EINVAL, client.request, command, body)
    refused(errno.EINVAL, client.request, command, struct.pack("=I", size) + bytes(size - 5))


def test_interrupts_are_checked(client):
    event, other = os.eventfd(0, os.EFD_NONBLOCK), os.pipe()
    on = vfio.EVENTFD | vfio.TRIGGER
    try:
        client.set_irqs(vfio.MSIX, 0, 1, on, [event])
        client.set_irqs(vfio.MSIX, 0, 1, vfio.NONE | vfio.TRIGGER)
        assert os.eventfd_read(event) == 1
        client.set_irqs(vfio.MSIX, 0, 3, vfio.BOOL | vfio.TRIGGER, chosen=b"\1\0\1")
        assert os.eventfd_read(event) == 1
        client.set_irqs(vfio.MSIX, 0, 0, vfio.NONE | vfio.TRIGGER)  # off
        client.set_irqs(vfio.MSIX, 0, 1, vfio.NONE | vfio.TRIGGER)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(event)
        for index, start, count, flags, files, chosen in (
            (vfio.MSIX, 32, 1, on, [event], b""),
            (vfio.MSIX, 0xFFFFFFFF, 1, on, [event], b""),
            (vfio.MSIX, 0, 2, on, [event], b""),
            (vfio.MSIX, 0, 1, on, [other[1]], b""),
            (vfio.MSIX, 0, 1, vfio.EVENTFD, [event], b""),
            (vfio.MSIX, 0, 1, on | vfio.MASK, [event], b""),
            (vfio.MSIX, 0, 1, on | 64, [event], b""),
            (vfio.MSIX, 0, 2, vfio.BOOL | vfio.TRIGGER, [], b"\1"),
            (1, 0, 1, on, [event], b""),
            (7, 0, 0, vfio.NONE | vfio.TRIGGER, [], b""),
        ):
            refused(errno.EINVAL, client.set_irqs, index, start, count, flags, files, chosen)
    finally:
        for one in (event, *other):
            os.close(one)


@pytest.fixture
def two(card):
    """Makes two connected guests, one on each card; both have left afterwards."""
    made = []

    def make(**more):
        made.extend(pair([card.path(0), card.path(1)], **more))
        return made

    yield make
    for guest in made:
        guest.platform.client.friends = []
        leave(card, guest)


def test_rdma_between_two_cards(card, two):
    """The guest's driver on either card: rings in the guests' own memory, data compared, and a
    completion's interrupt by its event descriptor."""
    a, b = two()
    for seed in range(3):
        exchange(a, b, seed)
        exchange(b, a, seed + 10, length=1 + 4000 * seed)
    run(a.cq.req_notify())
    a.platform.deliver()
    before = list(a.context.device.interrupts)
    a.post(WrOpcode.RDMA_WRITE, b, 64)
    assert a.platform.deliver(1) == 1
    after = a.context.device.interrupts
    vector = a.context.device.cq_vector(0)
    assert after[vector] == before[vector] + 1 and sum(after) == sum(before) + 1
    a.good()


@pytest.mark.parametrize("twin", [False, True])
def test_memory_without_descriptors_is_asked_for(two, twin):
    """The card's reads and writes become messages, on the same socket or on one of their own."""
    a, b = two(messages=True, twin=twin)
    exchange(a, b, length=2000)
    assert {*a.platform.client.asked} == {*b.platform.client.asked} == {11, 12}


def test_a_reset_in_traffic(card, two):
    """A function is reset with a WRITE of its own on its way; its guest begins anew."""
    a, b = two()
    exchange(a, b)
    head = struct.pack("=QII", 4 * a.qp.qp_num, 2, 2) + bytes(2)
    a.platform.client.friends = []
    for _ in range(3):
        a.platform.client.request(vfio.REGION_WRITE, head)
        a.platform.client.reset()
    place = abi.COMMON_CFG.place("device_status").offset
    assert a.platform.client.read(0, place, 1) == bytes(1)
    assert b.platform.client.read(0, place, 1) != bytes(1)


def test_vectors_outlive_a_reset(two):
    """A guest whose function is reset need not give its event descriptors again."""
    a, _ = two()
    client, event = a.platform.client, os.eventfd(0, os.EFD_NONBLOCK)
    client.set_irqs(vfio.MSIX, 9, 1, vfio.EVENTFD | vfio.TRIGGER, [event])
    client.reset()
    entry = client.read(0, 0x8000 + 9 * 16, 16)
    assert struct.unpack("<QII", entry) == (0xFEE00000 + 4 * 9, 9, 0)
    client.set_irqs(vfio.MSIX, 9, 1, vfio.NONE | vfio.MASK)
    assert client.read(0, 0x8000 + 9 * 16 + 12, 4) == struct.pack("<I", 1)
    client.set_irqs(vfio.MSIX, 9, 1, vfio.BOOL | vfio.UNMASK, chosen=b"\1")
    assert client.read(0, 0x8000 + 9 * 16 + 12, 4) == bytes(4)
    client.write(0, 0x8000 + 9 * 16, bytes(16))  # the table is the server's
    assert client.read(0, 0x8000 + 9 * 16, 16) == entry
    client.set_irqs(vfio.MSIX, 9, 1, vfio.EVENTFD | vfio.TRIGGER)
    assert client.read(0, 0x8000 + 9 * 16 + 12, 4) == struct.pack("<I", 1)
    os.close(event)


def test_a_driver_without_vectors_has_intx(two):
    """Its level is told once, and again when it is unmasked and has not been seen to."""
    a, b = two(options=WITHOUT_VECTORS)
    client, event = a.platform.client, os.eventfd(0, os.EFD_NONBLOCK)
    # The card tells of no queue without a vector, whether or not MSI-X is on.
    run(a.context.device.common_write("queue_select", a.cq.queue.index))
    run(a.context.device.common_write("queue_msix_vector", 3))
    client.set_irqs(vfio.INTX, 0, 1, vfio.EVENTFD | vfio.TRIGGER, [event])
    for _ in range(2):
        run(a.cq.req_notify())
        a.post(WrOpcode.RDMA_WRITE, b, 64)
        a.good()
    assert os.eventfd_read(event) == 1
    client.set_irqs(vfio.INTX, 0, 1, vfio.NONE | vfio.UNMASK)
    assert os.eventfd_read(event) == 1
    assert run(a.context.device.read_isr()) == Isr.QUEUE
    client.set_irqs(vfio.INTX, 0, 1, vfio.NONE | vfio.UNMASK)
    with pytest.raises(BlockingIOError):
        os.eventfd_read(event)
    os.close(event)


def test_a_doorbell_is_answered_when_its_work_is_done(two):
    """Without waiting for anything the guest finds its completion, and the peer its data."""
    a, b = two()
    a.mr.write(np.full(LENGTH, 7, np.uint8))
    a.post(WrOpcode.RDMA_WRITE, b, LENGTH - 4096)
    assert run(a.cq.poll(1))
    assert np.all(b.mr.read(LENGTH - 4096) == 7)
