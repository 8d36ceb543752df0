"""Memory of the process by address: the C library's allocator, and mmap."""

from __future__ import annotations

import ctypes
import mmap as _mmap

from sim.programs.pyverbs.pyverbs_error import PyverbsError

__all__ = [
    "MAP_ANONYMOUS_",
    "MAP_HUGETLB_",
    "MAP_PRIVATE_",
    "PROT_EXEC_",
    "PROT_READ_",
    "PROT_WRITE_",
    "free",
    "madvise",
    "malloc",
    "mmap",
    "munmap",
    "posix_memalign",
]

PROT_EXEC_, PROT_READ_, PROT_WRITE_ = _mmap.PROT_EXEC, _mmap.PROT_READ, _mmap.PROT_WRITE
MAP_PRIVATE_, MAP_ANONYMOUS_, MAP_SHARED_ = (
    _mmap.MAP_PRIVATE,
    _mmap.MAP_ANONYMOUS,
    _mmap.MAP_SHARED,
)
MAP_HUGETLB_ = 0x40000
MADV_DONTNEED_ = _mmap.MADV_DONTNEED
_FAILED = ctypes.c_void_p(-1).value

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = _LIBC.malloc.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    ctypes.c_long,
]


def mmap(
    addr: int = 0,
    length: int = 100,
    prot: int = PROT_READ_ | PROT_WRITE_,
    flags: int = MAP_PRIVATE_ | MAP_ANONYMOUS_,
    fd: int = -1,
    offset: int = 0,
) -> int:
    """The address of a mapping; PyverbsError."""
    found = _LIBC.mmap(addr or None, length, prot, flags, fd, offset)
    if found == _FAILED:
        raise PyverbsError(f"Failed to mmap {length} bytes", ctypes.get_errno())
    return int(found)


def munmap(addr: int, length: int) -> None:
    """End a mapping; PyverbsError."""
    if _LIBC.munmap(ctypes.c_void_p(addr), ctypes.c_size_t(length)):
        raise PyverbsError("Failed to munmap", ctypes.get_errno())


def madvise(addr: int, length: int, flags: int = MADV_DONTNEED_) -> None:
    """Advise the kernel; PyverbsError."""
    if _LIBC.madvise(ctypes.c_void_p(addr), ctypes.c_size_t(length), flags):
        raise PyverbsError("Failed to madvise", ctypes.get_errno())


def malloc(size: int) -> int:
    """The address of so many bytes; PyverbsError."""
    found = _LIBC.malloc(ctypes.c_size_t(size))
    if not found:
        raise PyverbsError(f"Failed to allocate {size} bytes")
    return int(found)


def posix_memalign(size: int, alignment: int = 8) -> int:
    """The address of so many bytes, a multiple of ``alignment``; PyverbsError."""
    found = ctypes.c_void_p()
    aligned, length = ctypes.c_size_t(alignment), ctypes.c_size_t(size)
    error = _LIBC.posix_memalign(ctypes.byref(found), aligned, length)
    if error or not found.value:
        raise PyverbsError(f"Failed to allocate {size} bytes", error)
    ctypes.memset(found, 0, size)
    return found.value


def free(ptr: int) -> None:
    """Give back what ``malloc`` or ``posix_memalign`` returned."""
    _LIBC.free(ctypes.c_void_p(ptr))


def writebyte(addr: int, data: int) -> None:
    """Write a byte."""
    ctypes.c_uint8.from_address(addr).value = data


def read32(addr: int) -> int:
    """Read 32 bits."""
    return ctypes.c_uint32.from_address(addr).value


def write32(addr: int, data: int) -> None:
    """Write 32 bits."""
    ctypes.c_uint32.from_address(addr).value = data


def writebe32(addr: int, val: int, offset: int = 0) -> None:
    """Write 32 bits, the highest byte first; ``offset`` in words of 32 bits."""
    write32(addr + 4 * offset, int.from_bytes(val.to_bytes(4, "big"), "little"))


def writebe64(addr: int, val: int, offset: int = 0) -> None:
    """Write 64 bits, the highest byte first; ``offset`` in words of 64 bits."""
    write64(addr + 8 * offset, int.from_bytes(val.to_bytes(8, "big"), "little"))


def write(addr: int, data: str | bytes, length: int, offset: int = 0) -> None:
    """Write bytes."""
    octets = data.encode() if isinstance(data, str) else bytes(data)
    ctypes.memmove(addr + offset, octets, min(length, len(octets)))


def read(addr: int, length: int, offset: int = 0) -> bytes:
    """Read bytes."""
    return ctypes.string_at(addr + offset, length)


def read64(addr: int) -> int:
    """Read 64 bits."""
    return ctypes.c_uint64.from_address(addr).value


def write64(addr: int, data: int) -> None:
    """Write 64 bits."""
    ctypes.c_uint64.from_address(addr).value = data
