"""The driver's half of a packed ring against a plain walker of its descriptors."""

import random
import struct

import pytest

from hdl.abi import virtio_pci as abi
from sim.guest.driver.errors import RdmaError, RingError
from sim.guest.driver.packed import PackedQueue
from sim.guest.driver.virtqueue import RingPolicy, Segment, Used
from tests.sim.fake_pci import FakePlatform

NEXT, WRITE, INDIRECT, AVAIL, USED = 1, 2, 4, 1 << 7, 1 << 15
ENABLE, DISABLE, DESC = range(3)


class Device:
    """Takes buffers and gives them back, as Virtio 1.2, 2.8 says; in any order."""

    def __init__(self, memory, queue):
        self.memory, self.queue, self.size = memory, queue, queue.size
        self.next = self.used = 0
        self.counts = {}

    def load(self, addr, count):
        at = addr - self.memory.base
        return self.memory.bytes[at : at + count].tobytes()

    def store(self, addr, data):
        at = addr - self.memory.base
        self.memory.bytes[at : at + len(data)] = list(data)

    def wrap(self, place):
        return place // self.size % 2 == 0

    def read(self, place, table=None):
        addr = (table or self.queue.desc) + 16 * (place if table else place % self.size)
        return struct.unpack("<QIHH", self.load(addr, 16))

    def take(self):
        """(id, pieces) of the next buffer; None if there is none."""
        *_, flags = self.read(self.next)
        if bool(flags & AVAIL) != self.wrap(self.next) or bool(flags & USED) == bool(flags & AVAIL):
            return None
        pieces, start = [], self.next
        while True:
            addr, length, name, flags = self.read(self.next)
            self.next += 1
            if flags & INDIRECT:
                assert not flags & NEXT and not pieces and length % 16 == 0
                rows = [self.read(n, addr) for n in range(length // 16)]
                pieces = [(a, n, bool(f & WRITE)) for a, n, _, f in rows]
            else:
                pieces.append((addr, length, bool(flags & WRITE)))
            if not flags & NEXT:
                break
        self.counts[name] = self.next - start
        return name, pieces

    def give_back(self, name, written, count=None):
        turn = AVAIL | USED if self.wrap(self.used) else 0
        flags = turn | (WRITE if written else 0)
        data = struct.pack("<IHH", written, name, flags)
        self.store(self.queue.desc + 16 * (self.used % self.size) + 8, data)
        self.used += self.counts.pop(name, 1) if count is None else count

    def ask(self, how, place=0):
        event = place % self.size | (1 << 15 if self.wrap(place) else 0)
        self.store(self.queue.used, struct.pack("<HH", event, how))

    def asked(self):
        return struct.unpack("<HH", self.load(self.queue.avail, 4))


def ring(size, **policy):
    platform = FakePlatform(size=4 << 20)
    queue = PackedQueue(platform.memory, index=3, size=size, policy=RingPolicy(**policy))
    return queue, Device(platform.memory, queue)


@pytest.mark.parametrize("size", [1, 2, 8, 256])
@pytest.mark.parametrize("policy", [{}, {"split": (1, 2)}, {"split": (1, 2), "indirect": True}])
def test_any_order_and_length(size, policy):
    queue, device = ring(size, **policy)
    rng, sent, kept, token = random.Random(size), {}, [], 0
    back = []
    for _ in range(600):
        pieces = [Segment(4096 + 64 * token, rng.randrange(3, 60), rng.random() < 0.5)]
        try:
            name = queue.add(pieces, token)
        except RdmaError:
            assert queue.free_descriptors < 3
        else:
            assert device.take() is None, "it is visible before it is published"
            queue.publish()
            sent[name] = (token, pieces[0])
            token += 1
            taken, got = device.take()
            assert taken == name
            assert got[0][0] == pieces[0].addr
            assert sum(length for _, length, _ in got) == pieces[0].size
            assert {writable for *_, writable in got} == {pieces[0].writable}
            kept.append(name)
        while kept and rng.random() < 0.45:
            name = kept.pop(rng.randrange(len(kept)))
            number, piece = sent.pop(name)
            written = piece.size if piece.writable else 0
            device.give_back(name, written)
            back.append(Used(number, written))
        assert queue.ready == len(back)
        if back and rng.random() < 0.6:
            assert queue.reap() == back
            back.clear()
    assert queue.outstanding == len(sent) + len(back)


def test_in_order_batches():
    queue, device = ring(8, in_order=True, split=(1,))
    for token in range(3):
        queue.add([Segment(64, 2, True)], token)
    queue.publish()
    names = [device.take()[0] for _ in range(3)]
    device.give_back(names[1], 1, count=4)
    assert queue.ready == 2
    assert queue.reap() == [Used(0, 2), Used(1, 1)]
    device.give_back(names[2], 0)
    assert queue.reap() == [Used(2, 0)] and queue.free_descriptors == 8


def test_notifications():
    """ENABLE, DISABLE, or for one descriptor, whose wrap counter counts."""
    queue, device = ring(4)
    for how, due in ((ENABLE, True), (DISABLE, False), (ENABLE, True)):
        device.ask(how)
        queue.add([Segment(64, 8)], 0)
        queue.publish()
        assert queue.kick_due() is due and not queue.kick_due()
        device.give_back(device.take()[0], 0)
        queue.reap()
    for place in range(3, 40):
        for asked, due in ((place, True), (place + 1, False), (place + 4, False)):
            queue._kicked = place
            device.ask(DESC, asked)
            if asked == place:
                queue.add([Segment(64, 8)], 0)
                queue.publish()
            assert queue.kick_due() is due, (place, asked)
        device.give_back(device.take()[0], 0)
        queue.reap()


def test_interrupts():
    queue, device = ring(4, event_idx=True)
    assert queue.enable_interrupts()
    assert device.asked() == (1 << 15, DESC)
    for token in range(4):
        queue.add([Segment(64, 8)], token)
    queue.publish()
    queue.enable_interrupts(after=2)
    assert device.asked() == (2 | 1 << 15, DESC)
    for _ in range(4):
        device.give_back(device.take()[0], 0)
    assert not queue.enable_interrupts()
    queue.reap()
    assert queue.enable_interrupts() and device.asked() == (0, DESC)
    queue.disable_interrupts()
    assert device.asked()[1] == DISABLE
    queue, device = ring(4)
    queue.enable_interrupts()
    assert device.asked()[1] == ENABLE


def test_both_go_on_after_abandon():
    queue, device = ring(4)
    for token in range(7):
        queue.add([Segment(64, 8)], token)
        queue.publish()
        if token < 4:
            device.give_back(device.take()[0], 0)
            assert queue.reap() == [Used(token, 0)]
    device.give_back(device.take()[0], 0)  # which the driver has not seen yet
    assert queue.abandon() == [4, 5, 6]
    device.next = device.used
    assert device.take() is None and queue.free_descriptors == 4
    name = queue.add([Segment(64, 8)], "new")
    queue.publish()
    assert queue.kick_due()
    assert device.take()[0] == name and device.take() is None


def test_broken_devices():
    queue, device = ring(4)
    name = queue.add([Segment(64, 8, True)], 0)
    queue.publish()
    device.give_back(name ^ 3, 0)
    with pytest.raises(RingError, match="used descriptor 0 has id"):
        queue.reap()
    device.used = 0
    device.give_back(name, 9)
    with pytest.raises(RingError, match="9 bytes were written, but the chain has 8"):
        queue.reap()
    with pytest.raises(ValueError, match="not 3"):
        ring(3)
    with pytest.raises(RdmaError, match="at most 4 descriptors, not 5"):
        queue.add([Segment(64, 1)] * 5, 0)
    assert abi.PACKED_DESC.size == 16
