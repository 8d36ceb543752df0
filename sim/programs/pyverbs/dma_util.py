"""Ordered accesses to memory by address."""

from sim.programs.pyverbs.mem_alloc import write32, write64

__all__ = [
    "mmio_write32_as_be",
    "mmio_write64_as_be",
    "udma_from_dev_barrier",
    "udma_to_dev_barrier",
]


def mmio_write32_as_be(addr: int, val: int) -> None:
    """Write 32 bits, the first byte on the highest place."""
    write32(addr, int.from_bytes(val.to_bytes(4, "big"), "little"))


def mmio_write64_as_be(addr: int, val: int) -> None:
    """Write 64 bits, the first byte on the highest place."""
    write64(addr, int.from_bytes(val.to_bytes(8, "big"), "little"))


def udma_to_dev_barrier() -> None:
    """Nothing: the card sees each byte when it is written."""


def udma_from_dev_barrier() -> None:
    """Nothing."""
