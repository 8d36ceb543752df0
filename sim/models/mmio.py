"""Accesses of a simulated host to the registers of its card."""

from __future__ import annotations

from cocotb.triggers import Event

from hdl.abi.push import PUSH_BAR
from sim.models import native

__all__ = ["Mmio"]


class Mmio:
    """Register accesses of one host; implements ``sim.guest.driver.platform.Mmio``.

    A write takes no simulated time here: it is queued and arrives after the host's MMIO latency, in
    the order of the calls. A read returns when its completion has come back; device writes that
    were issued before it are visible then.
    """

    def __init__(self, index: int):
        self._index = index
        self._count = 0
        self._reads: dict[int, tuple[Event, list[int]]] = {}

    async def read(self, function: int, bar: int, addr: int, size: int) -> int:
        """Read ``size`` (1, 2, 4) bytes that lie within one aligned word."""
        access = self._push(function, bar, addr, size, 0, False)
        done, value = Event(), list[int]()
        self._reads[access] = (done, value)
        await done.wait()
        return value[0]

    async def write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        """Posted write."""
        if not 0 <= value < 1 << (8 * size):
            raise ValueError(f"value {value:#x} does not fit into {size} bytes")
        self._push(function, bar, addr, size, value, True)

    async def write_combined(self, function: int, bar: int, addr: int, data: bytes) -> None:
        """Posted write in one piece to a push window."""
        if bar != PUSH_BAR or not 0 <= addr < 1 << 32 or not data:
            raise ValueError(f"No push window: bar {bar}, {len(data)} bytes at {addr:#x}")
        native.library().host_push(self._index, function, addr, bytes(data), len(data))

    def answered(self, access: int, value: int) -> None:
        """The model has a read's completion."""
        done, result = self._reads.pop(access)
        result.append(value)
        done.set()

    def _push(self, function: int, bar: int, addr: int, size: int, value: int, write: bool) -> int:
        if size not in (1, 2, 4) or addr % 4 + size > 4:
            raise ValueError(f"Access of {size} bytes at {addr:#x} is not within an aligned word")
        if not (0 <= bar <= 7 and 0 <= function < 256 and 0 <= addr < 1 << 32):
            raise ValueError(f"No such place: function {function}, bar {bar}, addr {addr:#x}")
        self._count += 1
        native.library().host_mmio(
            self._index, self._count, function, bar, addr, size, write, value
        )
        return self._count
