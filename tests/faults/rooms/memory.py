"""Deliberate faults of hdl/memory."""

from tests.faults.fault import Fault
from tests.force import Force, like, masked, stuck

__all__ = ["FAULTS"]

FUNCTIONS = ("tests/nic/test_functions.py::test_two_functions",)
KEYS = ("tests/memory/test_translate.py",)
INDIRECT = "tests/memory/test_indirect_keys.py"
LAYOUT = "tests/memory/test_layout.py"
GATHER = ("tests/memory/test_memory.py::test_room[64-gather]",)
SCATTER = ("tests/memory/test_memory.py::test_room[64-scatter]",)
ATOMIC = ("tests/memory/test_atomic.py",)
IN_TURN = ("tests/memory/test_atomics_and_writes.py",)
WINDOW = ("tests/memory/test_read_window.py",)

FAULTS = (
    # What a peer or a guest may touch.
    Fault(
        name="range-unchecked",
        what="a region's end is not checked",
        force=Force("hdl.memory.keys:KeyCheck", "furthest", stuck((1 << 65) - 1)),
        tests=KEYS,
    ),
    Fault(
        name="pd-unchecked",
        what="a key of another protection domain is accepted",
        force=Force("hdl.memory.keys:KeyCheck", "row.pd", like("asked.0.pd")),
        tests=KEYS,
    ),
    Fault(
        name="tag-unchecked",
        what="a key that has been given back is accepted",
        force=Force("hdl.memory.keys:KeyCheck", "row.tag", like("asked.0.key")),
        tests=KEYS,
    ),
    Fault(
        name="access-unchecked",
        what="a region that may only be read is written",
        force=Force("hdl.memory.keys:KeyCheck", "row.access", stuck(0xF)),
        tests=KEYS,
    ),
    Fault(
        name="atomic-across-pages",
        what="an atomic's word may lie in two pages",
        force=Force("hdl.memory.keys:KeyCheck", "whole", stuck(1)),
        tests=("tests/memory/test_translate.py::test_atomics_of_regions_that_begin_at_any_byte",),
    ),
    Fault(
        name="entry-not-refused",
        what="bytes that no entry of an indirect key has are taken from what lies behind it",
        force=Force("hdl.memory.resolve:KeyResolve", "refused", stuck(0)),
        tests=(f"{INDIRECT}::test_an_error_in_the_second_entry_leaves_no_byte",),
    ),
    Fault(
        name="entries-unlimited",
        what="a packet may have more ranges of entries than there is room for",
        force=Force("hdl.memory.resolve:KeyResolve", "excess", stuck(0)),
        tests=(f"{INDIRECT}::test_ranges_of_a_packet_are_limited",),
    ),
    Fault(
        name="read-of-the-other-client",
        what="what comes back for the walk of an indirect key's entries goes to the page cache",
        force=Force("hdl.memory.share:ReadShare", "owners.r_data", stuck(0)),
        tests=(f"{INDIRECT}::test_entries_of_regions_with_pages",),
    ),
    Fault(
        name="layout-of-before",
        what="an access uses the entries of a layout that its key had not, or has no more",
        force=Force("hdl.memory.layout:LayoutReader", "stale", stuck(0)),
        tests=(f"{LAYOUT}::test_entries_of_another_layout",),
    ),
    Fault(
        name="layout-without-rows",
        what="all rows of an interleaved layout lie where the first one lies",
        force=Force("hdl.memory.layout:LayoutWalk", "times", stuck(0)),
        tests=(f"{LAYOUT}::test_ranges",),
    ),
    Fault(
        name="layout-walked-for-ever",
        what="a layout whose entries have no bytes is walked again and again",
        force=Force("hdl.memory.layout:LayoutWalk", "barren", stuck(0)),
        tests=(f"{LAYOUT}::test_entries_without_bytes",),
    ),
    Fault(
        name="page-size-ignored",
        what="all pages have 4 KiB",
        force=Force("hdl.memory.keys:KeyCheck", "page_size", stuck(0)),
        tests=("tests/memory/test_page_sizes.py::test_where_the_bytes_are",),
    ),
    Fault(
        name="large-page-not-aligned",
        what="an entry for a page of 2 MiB need only be a multiple of 4 KiB",
        because="it is a function of the line, not a signal",
        file="hdl/memory/fill.py",
        old="(odd[1] & page_size.any())",
        new="(odd[1] & page_size[1])",
        tests=("tests/memory/test_page_sizes.py::test_a_page_that_is_not_aligned_is_refused",),
    ),
    Fault(
        name="second-level-ignored",
        what="a page list of two levels is taken for one of one",
        force=Force("hdl.memory.keys:KeyCheck", "two_level", stuck(0)),
        tests=("tests/memory/test_two_levels.py::test_where_the_bytes_are",),
    ),
    Fault(
        name="first-level-unchecked",
        what="an entry of the first level counts though it is odd or could not be read",
        force=Force("hdl.memory.lines:LineReads", "bad", stuck(0)),
        tests=("tests/memory/test_two_levels.py::test_an_entry_that_names_nothing",),
    ),
    Fault(
        name="first-level-taken-for-a-line",
        what="the answer of a first level is taken for the line of a list",
        force=Force("hdl.memory.lines:LineReads", "is_first", stuck(0)),
        tests=("tests/memory/test_two_levels.py::test_what_a_miss_costs",),
    ),
    # Order of what the guest sees.
    Fault(
        name="cqe-before-payload",
        what="a packet's CQE may be written before its payload",
        force=Force("hdl.memory.scatter:Scatter", "release.written", like("answered")),
        tests=SCATTER,
    ),
    Fault(
        name="stale-packets-sent",
        what="what a QP had handed over before it went back goes out",
        force=Force("hdl.memory.gate:PacketGate", "stale", stuck(0)),
        tests=GATHER,
    ),
    Fault(
        name="packets-of-every-generation-dropped",
        what="a QP that has gone back drops the packets of the others too",
        force=Force("hdl.memory.gate:PacketGate", "generation.index", stuck(1)),
        tests=GATHER,
    ),
    Fault(
        name="word-at-work-read-again",
        what="an atomic reads a word from the host that another one is about to write",
        force=Force("hdl.memory.atomic:AtomicUnit", "match", stuck(0)),
        tests=ATOMIC,
    ),
    Fault(
        name="swapped-though-unequal",
        what="a compare and swap writes its word whatever it has found",
        force=Force("hdl.memory.atomic:AtomicUnit", "equal", stuck(1)),
        tests=ATOMIC,
    ),
    Fault(
        name="write-passes-an-atomic",
        what="payload of a QP is written while an atomic in front of it is at work",
        force=Force("hdl.memory.cut:Cutter", "may_write", stuck(1)),
        tests=IN_TURN,
    ),
    Fault(
        name="flush-right-unchecked",
        what="a region that may not be flushed for persistence is",
        force=Force("hdl.memory.keys:KeyCheck", "row.flush", stuck(3)),
        tests=(f"{IN_TURN[0]}::test_rights_of_a_flush",),
    ),
    Fault(
        name="whole-bus-flushed",
        what="a FLUSH of a whole region of the bus reads address 0",
        force=Force("hdl.memory.keys:KeyCheck", "asked.0.whole", stuck(0)),
        tests=(f"{IN_TURN[0]}::test_rights_of_a_flush",),
    ),
    Fault(
        name="flush-passes-an-atomic-write",
        what="a FLUSH reads while an ATOMIC WRITE in front of it is at work",
        force=Force("hdl.memory.cut:Cutter", "busy", stuck(0)),
        tests=(f"{IN_TURN[0]}::test_a_flush_waits_for_words_of_its_qp",),
    ),
    Fault(
        name="atomic-write-adds",
        what="an ATOMIC WRITE adds its word to what it finds, and a FLUSH takes what is at work",
        force=Force("hdl.memory.atomic:AtomicUnit", "at.use", stuck(0)),
        tests=(f"{IN_TURN[0]}::test_a_flush_waits_for_words_of_its_qp",),
    ),
    Fault(
        name="flush-counts-as-a-change",
        what="the end of a FLUSH is taken for that of an atomic",
        force=Force("hdl.memory.atomic:AtomicUnit", "changed", like("done")),
        tests=IN_TURN,
    ),
    Fault(
        name="writes-wait-for-a-flush",
        what="what is behind a FLUSH waits as if it changed its word",
        force=Force("hdl.memory.atomic:AtomicUnit", "changes", stuck((1 << 32) - 1)),
        tests=(f"{IN_TURN[0]}::test_nobody_waits_for_a_flush",),
    ),
    Fault(
        name="answered-before-executed",
        what="the effects of an atomic do not wait until it has been executed",
        force=Force("hdl.memory.order:PacketOrder", "atomic", stuck(0)),
        tests=IN_TURN,
    ),
    Fault(
        name="undone-atomic-executed",
        what="an atomic that is rolled back is executed all the same",
        force=Force("hdl.memory.scatter:Scatter", "cutter.plan.payload.drop", stuck(0)),
        tests=IN_TURN,
    ),
    Fault(
        name="operands-of-a-refused-atomic",
        what="the operands of an atomic whose sink is refused go out with the next inline packet",
        force=Force("hdl.memory.fetch:PayloadFetch", "sources.i.payload.drop", stuck(0)),
        tests=GATHER,
    ),
    Fault(
        name="window-stays-closed",
        what="a host that becomes slow is not asked for more ahead",
        force=Force("hdl.memory.window:ReadWindow", "dry", stuck(0)),
        tests=WINDOW,
    ),
    Fault(
        name="discarded-payload-written",
        what="payload is written although its effects say otherwise",
        force=Force("hdl.memory.scatter:Scatter", "effects.payload.discard", stuck(0)),
        tests=SCATTER,
    ),
    # Several functions on a card: see the configuration of the bench.
    Fault(
        name="keys-of-the-first-function",
        what="a key names a region of the first function, whoever asks",
        force=Force("hdl.memory.resolve:KeyLookup", "mr.index", masked(0x1F)),
        tests=FUNCTIONS,
    ),
    Fault(
        name="window-of-any-qp",
        what="a window of type 2 serves every queue pair",
        force=Force("hdl.memory.keys:KeyCheck", "row.qp", like("asked.0.qp")),
        tests=("tests/memory/test_windows.py::test_who_may_use_it",),
    ),
    Fault(
        name="windows-share-their-pages",
        what="the cache of pages takes the windows of all regions for those of one",
        force=Force("hdl.memory.keys:KeyCheck", "row.parent", stuck(0)),
        tests=("tests/memory/test_windows.py::test_it_uses_the_pages_of_its_region",),
    ),
)
