"""Rows of RAMs, found by their scopes."""

import numpy as np
import pytest

from sim.bulk import memories
from sim.bulk.memories import Memory


@pytest.fixture
def arrays(monkeypatch):
    """Memories of a simulation that there is not: two copies, and a RAM in two parts of two."""
    found = {f"nic.small.copy{i}": np.zeros((8, 2), np.uint8) for i in range(2)}
    for part, rows in (("below", 16), ("above", 3)):
        found |= {f"nic.deep.{part}.copy{i}": np.zeros((rows, 2), np.uint8) for i in range(2)}
    monkeypatch.setattr(memories, "scopes", lambda: tuple(found))
    monkeypatch.setattr(memories, "words", found.__getitem__)
    return found


def test_a_row_is_written_in_all_copies(arrays):
    memory = Memory("nic.small")
    memory.write(7, 0x1234)
    assert memory.read(7) == 0x1234
    assert memory.rows == 8
    for i in range(2):
        assert arrays[f"nic.small.copy{i}"].nonzero()[0].tolist() == [7, 7]
    with pytest.raises(IndexError, match="Row 8 of 8"):
        memory.read(8)
    with pytest.raises(KeyError, match=r"No memory nic\.none"):
        Memory("nic.small", "nic.none")


def test_rows_above_a_power_of_two_lie_in_a_memory_of_their_own(arrays):
    memory = Memory("nic.deep")
    assert memory.rows == 19
    for index in range(19):
        memory.write(index, 0x100 + index)
    assert [memory.read(index) for index in range(19)] == [0x100 + index for index in range(19)]
    for i in range(2):
        assert arrays[f"nic.deep.above.copy{i}"].tolist() == [[16, 1], [17, 1], [18, 1]]
        assert arrays[f"nic.deep.below.copy{i}"][15].tolist() == [15, 1]
    with pytest.raises(IndexError, match="Row 19 of 19"):
        memory.write(19, 0)
