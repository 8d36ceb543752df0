"""The driver's half of a split ring against a plain ring walker."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_pci import Feature
from sim.guest.driver.errors import RdmaError, RingError
from sim.guest.driver.memory import view
from sim.guest.driver.virtqueue import RingPolicy, Segment, SplitQueue, Used, split_segments
from tests.sim.fake_pci import FakePci, FakePlatform


class Bench:
    """A driver queue and a device that looks at it in the same memory."""

    def __init__(self, size, policy=None, memory_size=16 << 20):
        policy = policy or RingPolicy()
        self.platform = FakePlatform(size=memory_size)
        self.memory = self.platform.memory
        self.device = FakePci(self.platform, queues=1, config=b"", queue_size=32768)
        self.queue = SplitQueue(self.memory, index=0, size=size, policy=policy)
        features = Feature.INDIRECT_DESC.mask if policy.indirect else 0
        features |= Feature.EVENT_IDX.mask if policy.event_idx else 0
        features |= Feature.IN_ORDER.mask if policy.in_order else 0
        self.device.driver_features = features
        self.device.queues[0].values |= {
            "queue_enable": 1,
            "queue_size": size,
            "queue_desc": self.queue.desc,
            "queue_driver": self.queue.avail,
            "queue_device": self.queue.used,
        }

    def buffer(self, data):
        addr = self.memory.alloc(len(data))
        view(self.memory, addr, len(data))[:] = np.frombuffer(data, np.uint8)
        return addr

    def put_used(self, idx, head, written):
        """A used element as a broken device writes it."""
        size = self.queue.size
        element = abi.USED_ELEMENT.pack(id=head, len=written)
        self.device.store(self.queue.used + 4 + 8 * ((idx - 1) % size), element)
        self.device.store(self.queue.used + 2, (idx & 0xFFFF).to_bytes(2, "little"))


POLICIES = [
    RingPolicy(),
    RingPolicy(split=(1, 3)),
    RingPolicy(split=(1, 3), indirect=True, event_idx=True),
    RingPolicy(in_order=True, event_idx=True),
    RingPolicy(shuffle=5),
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("size", [1, 2, 4, 256, 4096])
def test_wrap(size, policy):
    """Around the ring as full as it gets."""
    bench = Bench(size, policy)
    pieces = 4 if policy.split else 2
    per_chain = 1 if policy.indirect else pieces
    if pieces > size:
        with pytest.raises(RdmaError, match=f"at most {size} descriptors, not {pieces}"):
            bench.queue.add([Segment(bench.memory.base, 5), Segment(bench.memory.base, 4)], 0)
        return
    chains = size // per_chain
    addr = bench.buffer(b"request..")
    token = 0
    for _ in range(3 if size <= 1024 else 2):
        first = token
        for _ in range(chains):
            bench.queue.add([Segment(addr, 5), Segment(addr + 5, 4, writable=True)], token)
            token += 1
        bench.queue.publish()
        with pytest.raises(RdmaError, match=f"{per_chain} descriptors needed, 0 free"):
            bench.queue.add([Segment(addr, 5), Segment(addr, 4)], "too many")
        assert not bench.queue.has_used()
        for _ in range(chains):
            chain = bench.device.take(0)
            assert bench.device.gather(chain) == b"reque"
            assert bench.device.scatter(chain, b"back") == 4
            bench.device.give_back(0, chain.head, 4)
        assert bench.device.take(0) is None
        assert bench.queue.reap() == [Used(i, 4) for i in range(first, token)]
        assert bench.queue.outstanding == 0 and bench.queue.free_descriptors == size


def test_largest_ring():
    test_wrap(32768, RingPolicy())


@pytest.mark.parametrize("policy", [RingPolicy(), RingPolicy(event_idx=True)], ids=str)
def test_indices_wrap_at_65536(policy):
    bench = Bench(4, policy)
    addr = bench.buffer(b"abc")
    for token in range(66000):
        bench.queue.add([Segment(addr, 3)], token)
        bench.queue.publish()
        assert bench.queue.kick_due()
        bench.device.give_back(0, bench.device.take(0).head, 0)
        assert bench.queue.reap() == [Used(token, 0)]
        bench.device.take(0)
    assert bench.queue.next_avail == 66000 - 65536


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=6),
    split=st.lists(st.integers(1, 30), max_size=8),
    indirect=st.booleans(),
    shuffle=st.none() | st.integers(0, 9),
)
def test_any_split_keeps_the_bytes(parts, split, indirect, shuffle):
    parts.sort(key=lambda part: part[1])
    policy = RingPolicy(split=tuple(split), indirect=indirect, shuffle=shuffle)
    bench = Bench(64, policy, memory_size=1 << 20)
    segments, sent = [], b""
    for i, (size, writable) in enumerate(parts):
        data = bytes((7 * i + j) % 256 for j in range(size))
        segments.append(Segment(bench.buffer(data), size, writable))
        sent += b"" if writable else data
    room = sum(size for size, writable in parts if writable)
    bench.queue.add(segments, "x")
    bench.queue.publish()
    chain = bench.device.take(0)
    assert bench.device.gather(chain) == sent
    answer = bytes(range(100, 256))[:room]
    assert bench.device.scatter(chain, answer) == len(answer)
    bench.device.give_back(0, chain.head, len(answer))
    assert bench.queue.reap() == [Used("x", len(answer))]
    received = b"".join(
        view(bench.memory, s.addr, s.size).tobytes() for s in segments if s.writable
    )
    assert received[: len(answer)] == answer


def test_split_points():
    segments = [Segment(100, 10), Segment(200, 5, writable=True)]
    assert split_segments(segments, (1, 12)) == [
        Segment(100, 1),
        Segment(101, 9),
        Segment(200, 3, writable=True),
        Segment(203, 2, writable=True),
    ]
    assert split_segments(segments, (10, 2)) == [
        Segment(100, 10),
        Segment(200, 2, writable=True),
        Segment(202, 3, writable=True),
    ]
    assert split_segments(segments, (99,)) == segments
    with pytest.raises(ValueError, match="at least 1 byte, not \\(0,\\)"):
        split_segments(segments, (0,))


def test_out_of_order_completion():
    bench = Bench(8, RingPolicy(split=(1,)))
    addr = bench.buffer(b"abc")
    for token in "pqrs":
        bench.queue.add([Segment(addr, 3)], token)
    bench.queue.publish()
    chains = [bench.device.take(0) for _ in range(4)]
    for i in (2, 0, 3, 1):
        bench.device.give_back(0, chains[i].head, 0)
    assert bench.queue.pending == [*"pqrs"]
    assert [used.token for used in bench.queue.reap(limit=3)] == ["r", "p", "s"]
    assert bench.queue.pending == ["q"]
    assert [used.token for used in bench.queue.reap()] == ["q"]
    assert bench.queue.pending == []


def test_in_order_batch():
    """One used element may give back several buffers; it stands in the first one's place."""
    bench = Bench(4, RingPolicy(in_order=True))
    addr = bench.buffer(b"abcdefgh")
    for _ in range(5):
        for token in range(3):
            bench.queue.add([Segment(addr, 8, writable=True)], token)
        bench.queue.publish()
        heads = [bench.device.take(0).head for _ in range(3)]
        bench.device.give_back(0, heads[2], 2, count=3)
        assert bench.queue.reap() == [Used(0, 8), Used(1, 8), Used(2, 2)]


@pytest.mark.parametrize(
    ("idx", "head", "written", "message"),
    [
        (1, 4, 0, "id 4, which is no descriptor"),
        (1, 0xFFFFFFFF, 0, "id 4294967295, which is no descriptor"),
        (1, 3, 0, "id 3, which is not the head of an outstanding chain"),
        (1, 0, 9, "id 0, says 9 bytes were written, but the chain has 8 writable"),
        (3, 0, 0, "used index 3 is 3 past the last one seen, but only 2 chains"),
        (-1, 0, 0, "used index 65535 is 65535 past"),
    ],
)
def test_malformed_used_elements(idx, head, written, message):
    bench = Bench(4)
    addr = bench.buffer(bytes(8))
    for token in range(2):
        bench.queue.add([Segment(addr, 8, writable=True)], token)
    bench.queue.publish()
    bench.put_used(idx, head, written)
    with pytest.raises(RingError, match=message):
        bench.queue.reap()


def test_duplicate_used_element():
    bench = Bench(4)
    addr = bench.buffer(bytes(8))
    for token in range(3):
        bench.queue.add([Segment(addr, 8, writable=True)], token)
    bench.queue.publish()
    bench.put_used(1, 1, 0)
    bench.put_used(2, 1, 0)
    with pytest.raises(RingError, match="element 1 has id 1, which is not the head of an outst"):
        bench.queue.reap()


def test_in_order_violation():
    bench = Bench(4, RingPolicy(in_order=True))
    addr = bench.buffer(bytes(8))
    for token in range(2):
        bench.queue.add([Segment(addr, 8)], token)
    bench.queue.publish()
    bench.put_used(1, 1, 0)
    with pytest.raises(RingError, match="id 1, a batch of 2, but the used index allows 1"):
        bench.queue.reap()


def test_kicks_without_event_idx():
    bench = Bench(4)
    addr = bench.buffer(bytes(8))
    assert not bench.queue.kick_due()
    for no_notify in (False, True):
        bench.device.no_notify = no_notify
        bench.device.take(0)
        bench.queue.add([Segment(addr, 8)], 0)
        bench.queue.publish()
        assert bench.queue.kick_due() is not no_notify
        assert not bench.queue.kick_due()
        bench.device.give_back(0, bench.device.take(0).head, 0)
        bench.queue.reap()


def test_kicks_with_event_idx():
    bench = Bench(8, RingPolicy(event_idx=True))
    addr = bench.buffer(bytes(8))
    for _ in range(200):
        bench.device.take(0)
        bench.queue.add([Segment(addr, 8)], 0)
        bench.queue.publish()
        assert bench.queue.kick_due()
        bench.queue.add([Segment(addr, 8)], 1)
        bench.queue.publish()
        assert not bench.queue.kick_due()
        for _ in range(2):
            bench.device.give_back(0, bench.device.take(0).head, 0)
        bench.queue.reap()
        bench.queue.add([Segment(addr, 8)], 2)
        bench.queue.publish()
        assert not bench.queue.kick_due()
        bench.device.give_back(0, bench.device.take(0).head, 0)
        bench.queue.reap()


@pytest.mark.parametrize("event_idx", [False, True])
def test_interrupt_suppression(event_idx):
    bench = Bench(8, RingPolicy(event_idx=event_idx))
    addr = bench.buffer(bytes(8))

    def complete():
        bench.queue.add([Segment(addr, 8)], 0)
        bench.queue.publish()
        return bench.device.give_back(0, bench.device.take(0).head, 0)

    for _ in range(200):
        bench.queue.disable_interrupts()
        assert not complete()
        assert not bench.queue.enable_interrupts()
        bench.queue.reap()
        assert bench.queue.enable_interrupts()
        assert complete()
        bench.queue.reap()
        assert bench.queue.enable_interrupts(after=1)
        assert complete() is not event_idx
        assert complete()
        bench.queue.reap()


def test_abandon_and_go_on():
    bench = Bench(4, RingPolicy(indirect=True, split=(2,)))
    addr = bench.buffer(bytes(8))
    for token in range(4):
        bench.queue.add([Segment(addr, 8)], token)
    bench.queue.publish()
    bench.device.give_back(0, bench.device.take(0).head, 0)
    bench.device.queues[0].seen = 1
    assert bench.queue.abandon() == [0, 1, 2, 3]
    assert bench.queue.free_descriptors == 4 and not bench.queue.has_used()
    assert not bench.queue.kick_due()
    bench.queue.add([Segment(addr, 8)], "later")
    bench.queue.publish()
    assert bench.queue.kick_due()
    bench.device.give_back(0, bench.device.take(0).head, 0)
    assert bench.queue.reap() == [Used("later", 0)]


def test_first_doorbell_after_abandoning():
    """The device's avail_event is ahead of the index that was taken back: it must not count."""
    bench = Bench(8, RingPolicy(event_idx=True))
    addr = bench.buffer(bytes(8))
    for token in range(5):
        bench.queue.add([Segment(addr, 8)], token)
    bench.queue.publish()
    while bench.device.take(0):
        pass
    bench.queue.abandon()
    bench.device.queues[0].seen = bench.device.queues[0].used
    for due in (True, False):
        bench.queue.add([Segment(addr, 8)], "later")
        bench.queue.publish()
        assert bench.queue.kick_due() is due


def test_memory_is_given_back():
    bench = Bench(64, RingPolicy(indirect=True, split=(1, 1)))
    addr = bench.buffer(bytes(8))
    bench.queue.add([Segment(addr, 8)], 0)
    bench.queue.close()
    bench.memory.free(addr)
    assert len(bench.memory._holes) == 1 and not bench.memory._sizes


@pytest.mark.parametrize("size", [0, 3, -4, 65536])
def test_bad_sizes(size):
    with pytest.raises(ValueError, match=f"not {size}"):
        Bench(size)


def test_shuffle_contradicts_in_order():
    with pytest.raises(ValueError, match="ring order"):
        Bench(4, RingPolicy(shuffle=1, in_order=True))


def test_empty_chain():
    with pytest.raises(ValueError, match="at least one segment"):
        Bench(4).queue.add([], 0)
