"""The queue registers of the common configuration, answered from the card's own rows."""

from __future__ import annotations

from hdl.abi import virtio_pci as abi
from hdl.config import NicConfig
from hdl.csr.map import row_map
from sim.bench.bulk.memories import Memory
from sim.guest.driver.pci import Window
from sim.guest.driver.platform import Mmio

__all__ = ["QueueRegisters"]

_ADDRESSES = {"queue_desc": "desc", "queue_driver": "driver", "queue_device": "device"}


class QueueRegisters:
    """Implements ``sim.guest.driver.platform.Mmio``: queue registers here, the others on ``mmio``.

    Follows ``hdl/host/virtio_queues.py``, for what a driver does that sets queues up: a queue is
    chosen, sized, placed and enabled. ValueError for anything else (a queue's reset, registers of a
    queue that does not exist, rings that are not aligned): that needs the card.
    """

    def __init__(
        self, mmio: Mmio, config: NicConfig, rows: Memory, function: int, common: Window
    ) -> None:
        self._mmio, self._config, self._rows = mmio, config, rows
        self._place = (function, common.bar)
        self._names: dict[int, tuple[str, int]] = {}
        for place in abi.COMMON_CFG.places():
            if place.path.startswith("queue_") or place.path == "num_queues":
                for half in range(0, place.size, 4):
                    self._names[common.offset + place.offset + half] = (place.path, 8 * half)
        self._selected = 0
        self._row: dict[str, int] = {}

    async def read(self, function: int, bar: int, addr: int, size: int) -> int:
        """Read a register."""
        name, _low = self._names.get(addr, ("", 0))
        if (function, bar) != self._place or not name:
            return await self._mmio.read(function, bar, addr, size)
        if name == "num_queues":
            return self._config.queues
        row = self._chosen()
        answers = {
            "queue_size": 1 << row["size_log2"],
            "queue_msix_vector": row["vector"],
            "queue_enable": row["enabled"],
            "queue_notify_off": self._selected,
        }
        if name not in answers:
            raise ValueError(f"{name} cannot be read while loading")
        return answers[name]

    async def write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        """Write a register."""
        name, low = self._names.get(addr, ("", 0))
        if (function, bar) != self._place or not name:
            await self._mmio.write(function, bar, addr, size, value)
        elif name == "queue_select":  # the card knows too which one was the last
            await self._mmio.write(function, bar, addr, size, value)
            self._selected, self._row = value, {}
        else:
            row = self._chosen()
            self._change(row, name, low, value)
            self._rows.write(self._selected, row_map("queue").pack_number(row))

    def _chosen(self) -> dict[str, int]:
        if not self._row:
            if self._selected >= self._config.queues:
                raise ValueError(f"Queue {self._selected} does not exist")
            self._row = row_map("queue").unpack_number(self._rows.read(self._selected))
        return self._row

    def _change(self, row: dict[str, int], name: str, low: int, value: int) -> None:
        if name == "queue_msix_vector":
            row["vector"] = value if value < self._config.vectors else abi.NO_VECTOR
        elif row["enabled"]:
            raise ValueError(f"{name} of queue {self._selected}, which is enabled")
        elif name == "queue_size" and value.bit_count() == 1 and value <= self._config.queue_size:
            row["size_log2"] = value.bit_length() - 1
        elif name in _ADDRESSES:
            field = _ADDRESSES[name]
            row[field] = row[field] & ~(0xFFFF_FFFF << low) | value << low
        elif name == "queue_enable" and value == 1 and self._aligned(row):
            row["enabled"] = 1
        else:
            raise ValueError(f"{name} of queue {self._selected} cannot be {value:#x} while loading")

    @staticmethod
    def _aligned(row: dict[str, int]) -> bool:
        aligns = (abi.DESC_ALIGN, abi.AVAIL_ALIGN, abi.USED_ALIGN)
        return not any(
            row[name] % align for name, align in zip(_ADDRESSES.values(), aligns, strict=True)
        )
