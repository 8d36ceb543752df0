"""Rows of RAMs, found by their scopes."""

import numpy as np
import pytest

from hdl.common.ram import SPLIT_ROWS, Ram
from sim.bench.bulk import memories
from sim.bench.bulk.memories import Memory

#: Rows of a RAM that lies in two parts, as ``hdl.common.ram`` names them.
ROWS = SPLIT_ROWS + 3


def submodules(component):
    """The submodules of a component in generated Verilog, by name."""
    return {name: one for name, (one, _source) in component._named_submodules.items()}


@pytest.fixture
def arrays(monkeypatch):
    """Memories of a simulation that there is not: a RAM of two copies, and a deep one's."""
    found = {f"nic.small.copy{i}": np.zeros((8, 2), np.uint8) for i in range(2)}
    parts = submodules(Ram(shape=16, depth=ROWS, reads=2).elaborate("verilog"))
    for (part, ram), rows in zip(parts.items(), (SPLIT_ROWS, 3), strict=True):
        for copy in submodules(ram.elaborate("verilog")):
            found[f"nic.deep.{part}.{copy}"] = np.zeros((rows, 2), np.uint8)
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
    assert memory.rows == ROWS
    for index in range(ROWS):
        memory.write(index, 0xFFFF - index)
    assert [memory.read(index) for index in range(ROWS)] == [0xFFFF - n for n in range(ROWS)]
    deep = [array for name, array in arrays.items() if name.startswith("nic.deep.")]
    assert sorted(len(array) for array in deep) == [3, 3, SPLIT_ROWS, SPLIT_ROWS]
    for array in deep:
        first = 0 if len(array) == SPLIT_ROWS else SPLIT_ROWS
        assert array.view("<u2")[:, 0].tolist() == [
            0xFFFF - index for index in range(first, first + len(array))
        ]
    with pytest.raises(IndexError, match=f"Row {ROWS} of {ROWS}"):
        memory.write(ROWS, 0)
