"""Guest memory: the allocator and buffers made of scattered pages."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.guest.driver.errors import RdmaError
from sim.guest.driver.memory import GuestMemory, PagedBuffer, view


def memory(pages=16, **options):
    return GuestMemory(np.zeros(pages * 4096, np.uint8), **options)


def test_alloc_is_aligned_zeroed_and_disjoint():
    mem = memory()
    mem.bytes[:] = 0xFF
    taken = []
    for size, align in ((1, 1), (5, 16), (100, 4), (1000, 1024), (3, 2)):
        addr = mem.alloc(size, align)
        assert addr % align == 0 and addr >= 4096
        assert not view(mem, addr, size).any()
        for other, other_size in taken:
            assert addr + size <= other or other + other_size <= addr
        taken.append((addr, size))
    for addr, _ in taken:
        mem.free(addr)
    assert mem._holes == [(4096, 8 * 4096)]


@given(st.lists(st.tuples(st.integers(1, 900), st.integers(0, 5)), max_size=60), st.randoms())
def test_free_joins_holes(requests, random):
    mem = memory(base=1 << 40)
    taken = []
    for size, shift in requests:
        try:
            taken.append(mem.alloc(size, 1 << shift))
        except RdmaError:
            assert not any(end - start >= size + 31 for start, end in mem._holes)
        if taken and random.random() < 0.4:
            mem.free(taken.pop(random.randrange(len(taken))))
        spans = sorted([(a, a + mem._sizes[a]) for a in taken] + mem._holes)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    random.shuffle(taken)
    for addr in taken:
        mem.free(addr)
    assert mem._holes == [(1 << 40, (1 << 40) + 8 * 4096)]


def test_pages_are_shuffled_and_unique():
    mem = memory(pages=64, heap=4096, base=1 << 40)
    pages = mem.alloc_pages(63)
    assert sorted(pages) == [(1 << 40) + 4096 * i for i in range(1, 64)]
    assert list(pages) != sorted(pages)
    with pytest.raises(RdmaError, match="No 1 pages left, only 0"):
        mem.alloc_pages(1)
    mem.free_pages(pages)
    assert len(mem.alloc_pages(63)) == 63
    assert list(memory(seed=None).alloc_pages(3)) == [8 * 4096, 9 * 4096, 10 * 4096]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: memory(base=5), "base must be a multiple of 4096, not 0x5"),
        (lambda: GuestMemory(np.zeros(5000, np.uint8)), "whole pages of uint8, not 5000 bytes"),
        (lambda: memory(heap=1 << 20), "heap must be 4096 to 65536 bytes, not 1048576"),
        (lambda: memory().alloc(0), "Cannot allocate 0 bytes"),
        (lambda: memory().alloc(8, 3), "aligned to 3"),
        (lambda: memory().alloc_pages(0), "Cannot allocate 0 pages"),
        (lambda: memory().free(4096), "0x1000 was not allocated"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_outside():
    mem = memory(base=1 << 20)
    for addr, size in ((0, 1), ((1 << 20) - 1, 4), ((1 << 20) + 16 * 4096 - 3, 4), (1 << 63, 1)):
        with pytest.raises(RdmaError, match="outside guest memory"):
            view(mem, addr, size)
    with pytest.raises(RdmaError, match="No 70000 contiguous bytes"):
        mem.alloc(70000)


@settings(deadline=None)
@given(
    start=st.integers(0, 4095),
    size=st.integers(1, 5 * 4096),
    data=st.data(),
)
def test_paged_buffer(start, size, data):
    """Against a copy byte by byte through the page list."""
    mem = memory(pages=32, base=1 << 33)
    pages = mem.alloc_pages(-(-(start + size) // 4096))
    buffer = PagedBuffer(mem, pages, start, size)
    offset = data.draw(st.integers(0, size))
    length = data.draw(st.integers(0, size - offset))
    payload = (np.arange(length) * 7 + 3).astype(np.uint8)
    buffer.write(payload, offset)
    expected = np.zeros_like(mem.bytes)
    for i in range(length):
        page, at = divmod(start + offset + i, 4096)
        expected[int(pages[page]) - mem.base + at] = payload[i]
    assert np.array_equal(mem.bytes, expected)
    assert np.array_equal(buffer.read(length, offset), payload)
    with pytest.raises(RdmaError, match=f"of a buffer of {size}"):
        buffer.read(size - offset + 1, offset)
