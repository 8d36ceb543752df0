"""The partition keys of a guest function: which partitions its QPs can be in.

Spec: IBTA vol 1, 10.9 (partitioning); virtio-rdma VR-3.32. On Ethernet there is no subnet manager:
whoever runs the card sets the table.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["DEFAULT_PKEY", "PkeyTable"]

#: The default partition, full member: what entry 0 begins with.
DEFAULT_PKEY = 0xFFFF
#: Number of a partition within a P_Key; the bit above says full member. 0 is no partition.
_PARTITION = 0x7FFF


class PkeyTable:
    """P_Keys by index. An entry without one reads 0.

    ``changed`` holds the entries whose QPs still have the P_Key of before in their rows, ``told``
    the table as a journal has it.
    """

    def __init__(self, size: int):
        self._keys = [DEFAULT_PKEY] + [0] * (size - 1)
        self.changed: set[int] = set()
        self.told: list[int] | None = None

    def __getitem__(self, index: int) -> int:
        return self._keys[index]

    def row(self) -> dict[str, int]:
        """The table as the hardware has it, for QP1."""
        return {f"key{index}": key for index, key in enumerate(self._keys)}

    def set(self, index: int, pkey: int | None) -> None:
        """Gives an entry a P_Key, or none; ValueError for what does not exist."""
        if not 0 <= index < len(self._keys):
            raise ValueError(f"No P_Key {index}")
        if pkey is not None and not (0 < pkey <= 0xFFFF and pkey & _PARTITION):
            raise ValueError(f"A P_Key must have 16 bits and name a partition, not {pkey!r}")
        if self._keys[index] != (pkey or 0):
            self._keys[index] = pkey or 0
            self.changed.add(index)

    @property
    def all(self) -> tuple[int, ...]:
        """The P_Keys in the order of their entries, 0 where there is none."""
        return tuple(self._keys)

    def restore(self, keys: Sequence[int]) -> None:
        """Takes the table over from a firmware before this one: no QP waits for a change of it."""
        self._keys = list(keys)
