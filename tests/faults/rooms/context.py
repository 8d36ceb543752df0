"""Deliberate faults of hdl/context."""

from tests.faults.fault import Fault
from tests.force import Force, stuck

__all__ = ["FAULTS"]

GIDS = ("tests/common/test_ram.py::test_gids_and_none_beyond_the_table",)
PARITY = ("tests/context/test_parity.py",)
ROW_CACHE = "tests/context/test_row_cache.py::"
REGION_KEYS = ("tests/context/test_region_keys.py",)

FAULTS = (
    # Parity of the tables' rows.
    Fault(
        name="wrong-bit-unseen",
        what="a row with a wrong bit is used",
        force=Force("hdl.context.parity:RowParity", "bad", stuck(0)),
        tests=PARITY,
    ),
    Fault(
        name="copies-for-nobody",
        what="frames to groups turn round when nobody on the card is a member of a group",
        force=Force("hdl.context.groups:GroupTable", "any", stuck(1)),
        tests=("tests/context/test_groups.py",),
    ),
    Fault(
        name="tour-forgotten",
        what="a room's counter that nobody reads wraps unseen",
        force=Force("hdl.context.counter_bank:CounterBank", "again", stuck(0)),
        tests=("tests/context/test_counter_bank.py",),
    ),
    Fault(
        name="wrap-not-counted",
        what="the upper half of a 64-bit counter stays when the lower one wraps",
        force=Force("hdl.context.counter_bank:CounterBank", "wrapped", stuck(0)),
        tests=("tests/context/test_counter_bank.py",),
    ),
    Fault(
        name="gid-beyond-the-table",
        what="the number of a GID row beyond the table names a row in it",
        force=Force("hdl.context.gid:GidTable", "beyond", stuck(0)),
        tests=GIDS,
    ),
    # Keys that work requests change.
    Fault(
        name="keys-stay-as-they-are",
        what="a key is said to be registered or invalid, and its region's row is not written",
        force=Force("hdl.context.region_keys:RegionKeys", "table.write", stuck(0)),
        tests=REGION_KEYS,
    ),
    Fault(
        name="keys-of-any-pd",
        what="a key may be invalidated from any PD",
        force=Force("hdl.context.region_keys:RegionKeys", "facts.pd", stuck((1 << 6) - 1)),
        tests=REGION_KEYS,
    ),
    Fault(
        name="layouts-of-too-many-entries",
        what="an indirect key gets more entries than it has room for",
        force=Force("hdl.context.region_keys:RegionKeys", "fits", stuck(1)),
        tests=(f"{REGION_KEYS[0]}::test_every_change_is_as_the_rows_allow[0-config1]",),
    ),
    Fault(
        name="window-beyond-its-region",
        what="a window may have more bytes than its region",
        force=Force("hdl.context.region_keys:RegionKeys", "furthest", stuck((1 << 65) - 1)),
        tests=("tests/context/test_windows.py",),
    ),
    # Rows of a few QPs on chip.
    Fault(
        name="changed-rows-leave-unsaved",
        what="the rows of a QP that leave the cache are never stored",
        force=Force("hdl.context.cached.places:Places", "soiled", stuck(0)),
        tests=(f"{ROW_CACHE}test_a_store_that_is_seldom_ready",),
    ),
    Fault(
        name="rows-in-use-leave",
        what="the rows of a QP leave the cache while a machine has them at hand",
        force=Force("hdl.context.cached.look:Look", "pins", stuck(0)),
        tests=(f"{ROW_CACHE}test_a_store_that_is_seldom_ready",),
    ),
    Fault(
        name="place-taken-open",
        what="a place answers looks in the cycle in which it is taken for another QP",
        force=Force("hdl.context.cached.places:Places", "open", stuck((1 << 16) - 1)),
        tests=(f"{ROW_CACHE}test_each_answer_has_the_newest_rows",),
    ),
    Fault(
        name="lost-record-used",
        what="a record that cannot be read is taken for the QP's rows",
        force=Force("hdl.context.cached.record:RecordIn", "zeros", stuck(0)),
        tests=(f"{ROW_CACHE}test_a_record_that_cannot_be_read_is_zeros",),
    ),
)
