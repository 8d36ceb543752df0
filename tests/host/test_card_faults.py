"""Clients of ``rocinante card`` that are broken, slow, or die: nobody else notices."""

import errno
import itertools
import os
import random
import struct
import time
from pathlib import Path

import pytest

from hdl.abi import virtio_pci as abi
from hdl.abi.enums import WrOpcode
from hdl.abi.virtio_pci import Status
from tests.host import vfio_client as vfio
from tests.host.vfio_client import VfioClient, VfioGone
from tests.host.vfio_guest import LENGTH, Served, exchange, pair

PAGE = 4096
VERSION = struct.pack("=HH", 0, 0)
GOOD = VERSION + b'{"capabilities":{}}\0'


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """Two cards of one function each, joined by a wire."""
    served = Served(tmp_path_factory.mktemp("card"), "--cards", "2")
    yield served
    assert served.close() == 0


@pytest.fixture
def paths(card):
    return [card.path(0), card.path(1)]


def ended(card, before, *words):
    """Wait until a connection has ended for a reason with these words."""
    card.says("the connection has ended", before + 1)
    line = [one for one in card.text.splitlines() if "the connection has ended" in one][before]
    assert all(word in line for word in words), line


def endings(card):
    return card.text.count("the connection has ended")


def works(card):
    """The function serves whoever comes next, as new."""
    before = endings(card)
    client = VfioClient(card.path())
    assert client.read(vfio.CONFIG, 0, 4) == struct.pack("<HH", abi.VENDOR_ID, abi.DEVICE_ID_RDMA)
    assert client.read(vfio.CONFIG, 4, 2) == bytes(2)
    client.close()
    ended(card, before)


def header(size, number=1, command=vfio.VERSION, flags=0):
    return struct.pack("=HHIII", number, command, size, flags, 0)


@pytest.mark.parametrize(
    "octets,why",
    [
        (header(0), "a message has 16 to"),
        (header(15), "a message has 16 to"),
        (header(0xFFFFFFFF), "a message has 16 to"),
        (bytes(16), "a message has 16 to"),
        (header(20, command=vfio.REGION_READ) + bytes(4), "not VERSION"),
        (header(16 + len(GOOD), flags=1) + GOOD, "an answer with id 1"),
        (header(16 + len(GOOD), flags=2) + GOOD, "not VERSION"),
        (header(16), "its VERSION makes no sense"),
        (header(20) + struct.pack("=HH", 1, 0), "it speaks version 1"),
        (header(24) + VERSION + b"[1]\0", "its VERSION makes no sense"),
        (header(24) + VERSION + b"\xff\xfe\xfd\0", "its VERSION makes no sense"),
        (header(20 + (1 << 20)) + VERSION + b"[" * (1 << 20), "its VERSION makes no sense"),
    ],
)
def test_garbage_ends_the_connection(card, octets, why):
    before = endings(card)
    client = VfioClient(card.path(), greet=False)
    client.socket.sendall(octets)
    with pytest.raises(VfioGone):
        client.receive(client.socket)
    ended(card, before, why)
    client.close()
    works(card)


def test_random_octets(card):
    """Of any length, before and after a good VERSION; the next client is good."""
    rng = random.Random(5)
    for n in range(24):
        before = endings(card)
        client = VfioClient(card.path(), greet=n % 2 == 0)
        octets = rng.randbytes(rng.randrange(1, 400))
        if n % 3:  # a header that could be
            octets = header(16 + len(octets), command=rng.randrange(20)) + octets
        client.socket.sendall(octets)
        client.close()
        ended(card, before)
    works(card)


def test_commands_that_make_no_sense_are_refused(card):
    """A body of any length for any command: an answer to each, and the connection stays."""
    before = endings(card)
    client = VfioClient(card.path())
    rng = random.Random(6)
    for command in [*range(2, 11), *range(13, 40), 0xFFFF]:
        for length in (0, 1, 8, 20, 32, 33):
            number = client.send(command, rng.randbytes(length))
            _, what, flags, error, body, _ = client.receive(client.socket)
            assert what == command and number
            if flags & vfio.ERROR:
                assert error in (errno.EINVAL, errno.ENOTSUP, errno.ENOENT) and not body
    assert client.info() == (3, 9, 5)
    client.close()
    ended(card, before, "it has gone")
    works(card)


def test_a_message_may_come_byte_by_byte(card):
    before = endings(card)
    client = VfioClient(card.path(), greet=False)
    for one in header(16 + len(GOOD)) + GOOD:
        client.socket.sendall(bytes([one]))
    assert client.receive(client.socket)[:3] == (1, vfio.VERSION, vfio.REPLY)
    client.socket.sendall(header(32, command=vfio.REGION_READ)[:9])
    client.close()
    ended(card, before, "in the middle of a message")
    works(card)


def test_too_many_descriptors(card):
    before = endings(card)
    client = VfioClient(card.path())
    events = [os.eventfd(0) for _ in range(40)]
    client.send(vfio.SET_IRQS, struct.pack("=IIIII", 20, 36, vfio.MSIX, 0, 40), events)
    with pytest.raises(VfioGone):
        client.receive(client.socket)
    ended(card, before, "file descriptors")
    client.close()
    for one in events:
        os.close(one)
    works(card)


def test_nothing_is_left_of_a_client(card):
    """Descriptors and mappings of the server are as before, whatever a client has left open."""

    def held():
        folder = f"/proc/{simulation(card)}"
        maps = Path(folder, "maps").read_text()
        return len(os.listdir(f"{folder}/fd")), maps.count("memfd")

    works(card)
    before = held()
    for twin in (False, True):
        ends = endings(card)
        client = VfioClient(card.path(), {"twin_socket": {"supported": twin}})
        file, event = os.memfd_create("guest"), os.eventfd(0)
        os.ftruncate(file, 16 * PAGE)
        for n in range(8):
            client.map((1 + 2 * n) * PAGE, PAGE, file)
        client.set_irqs(vfio.MSIX, 0, 4, vfio.EVENTFD | vfio.TRIGGER, [event] * 4)
        client.set_irqs(vfio.INTX, 0, 1, vfio.EVENTFD | vfio.TRIGGER, [event])
        client.send(99, b"", [file, event])  # refused, and closed
        assert client.receive(client.socket)[3] == errno.ENOTSUP
        assert held() > before
        client.close()
        os.close(file)
        os.close(event)
        ended(card, ends)
        assert held() == before


def simulation(card):
    """The simulation's process, which the command has started."""
    found = [card.process.pid]
    while found:
        pid = found.pop()
        if b"testbench" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
            return pid
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    raise AssertionError("No simulation")


def test_a_second_client_is_turned_away(card):
    before = endings(card)
    client = VfioClient(card.path())
    with pytest.raises(VfioGone):
        VfioClient(card.path())
    card.says("a second client is turned away")
    assert client.info() == (3, 9, 5)
    client.close()
    ended(card, before)
    works(card)


def test_a_client_comes_at_once_when_another_goes(card):
    """It waits while the function is reset, and finds nothing of the one before."""
    before = endings(card)
    for n in range(5):
        client = VfioClient(card.path())
        assert client.read(0, abi.COMMON_CFG.place("device_status").offset, 1) == bytes(1), n
        client.write(0, abi.COMMON_CFG.place("device_status").offset, bytes([3]))
        client.close()
    ended(card, before + 4)


def leave(card, guests):
    for guest in guests:
        before = endings(card)
        guest.platform.client.friends = []
        guest.close()
        ended(card, before)


def test_a_guest_dies_in_traffic(card, paths):
    """Killed in the middle of an access, with WRITEs of its peer on their way: the peer's guest
    sees its request fail, and the next guest on either function is served."""
    for n in range(3):
        a, b = guests = pair(paths)
        exchange(a, b, n)
        a.platform.client.friends = b.platform.client.friends = []
        before = endings(card)
        head = struct.pack("=QII", 4 * a.qp.qp_num, 2, 2) + bytes(2)
        a.platform.client.send(vfio.REGION_WRITE, head)  # nobody waits for the answer
        b.post(WrOpcode.RDMA_WRITE, a, LENGTH - 64)
        a.platform.client.socket.close()
        ended(card, before)
        leave(card, [b])
    a, b = guests = pair(paths)
    exchange(b, a, 9)
    leave(card, guests)


def test_memory_goes_away_under_the_card(card, paths):
    """A guest takes away its memory, or cuts its file, under rings and regions in use."""
    a, b = guests = pair(paths)
    exchange(a, b)
    os.ftruncate(b.platform.file, PAGE)
    a.post(WrOpcode.RDMA_WRITE, b, 9000)
    a.good()
    for addr, size in a.platform.pieces:
        a.platform.client.unmap(addr, size)
    a.post(WrOpcode.RDMA_WRITE, b, 100)
    place = abi.COMMON_CFG.place("device_status").offset
    assert a.platform.client.read(0, place, 1)[0] & Status.DEVICE_NEEDS_RESET
    leave(card, [a])
    assert "reads of memory that was not mapped" in card.text
    before = endings(card)
    b.platform.client.close()
    ended(card, before)
    guests = pair(paths)
    exchange(*guests)
    leave(card, guests)


def test_a_client_that_answers_nothing_holds_nobody(card, paths):
    """The card asks it for its memory, and it does not answer: the other card's client goes on."""
    a, b = pair(paths, messages=True)
    exchange(a, b)
    a.platform.client.friends = b.platform.client.friends = []
    number = a.platform.client.send(
        vfio.REGION_WRITE, struct.pack("=QII", 4 * a.qp.qp_num, 2, 4) + bytes(4)
    )
    b.platform.client.send(vfio.REGION_WRITE, struct.pack("=QII", 0, 2, 4) + bytes(4))
    time.sleep(0.2)
    assert number
    before = endings(card)
    b.platform.client.socket.close()
    ended(card, before)
    other = VfioClient(card.path(1))
    for _ in range(20):
        assert other.info() == (3, 9, 5)
        assert other.read(vfio.CONFIG, 0, 2) == struct.pack("<H", abi.VENDOR_ID)
    before = endings(card)
    other.close()
    ended(card, before)
    before = endings(card)
    a.platform.client.socket.close()
    ended(card, before)
    works(card)


def asked_for_ever(client):
    """Send commands until no more are taken; how many."""
    for sent in itertools.count():
        try:
            client.send(vfio.GET_INFO, struct.pack("=IIII", 16, 0, 0, 0))
        except TimeoutError:
            return sent


def test_a_client_that_reads_nothing(card):
    """Its answers wait for it; more of its commands are not read meanwhile."""
    before = endings(card)
    client = VfioClient(card.path())
    client.socket.settimeout(0.3)
    sent = asked_for_ever(client)
    assert 1000 < sent < 1_000_000
    other = VfioClient(card.path(1))
    assert other.info() == (3, 9, 5)
    other.close()
    ended(card, before)
    client.close()
    ended(card, before + 1)
    works(card)
