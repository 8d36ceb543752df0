"""What watches a running card, to its registers."""

from amaranth.hdl import Cat, Module

from hdl.common.count import increment
from hdl.csr.diagnostics import PARITY_TABLES
from hdl.ports.counter_names import PUSH_COUNTS

__all__ = ["connect_latency", "connect_parity", "connect_push", "connect_trace"]


def connect_trace(m: Module, block, port) -> None:
    """The registers of the block ``trace`` (``hdl/csr/diagnostics.py``) and the trace's port."""
    m.d.comb += [
        port.start.eq(block.control_start),
        port.stop.eq(block.control_stop),
        port.snap.eq(block.snap),
        port.stop_reasons.eq(block.stop_reasons),
        block.status_running.eq(port.running),
        block.status_dropped.eq(port.dropped),
        block.sent_next.eq(port.sent_next),
        block.sent_full.eq(port.sent_full),
        block.received_next.eq(port.received_next),
        block.received_full.eq(port.received_full),
        block.now_low.eq(port.now[:32]),
        block.now_high.eq(port.now[32:]),
        port.received.eq(block.select_received),
        port.frame.eq(block.select_frame),
        block.time_low.eq(port.facts.time[:32]),
        block.time_high.eq(port.facts.time[32:]),
        block.facts_length.eq(port.facts.length),
        block.facts_reason.eq(port.facts.reason),
        block.facts_error.eq(port.facts.error),
        port.read.eq(block.data.enable),
        port.word.eq(block.data.index),
        block.data.read_data.eq(port.data),
    ]


def connect_latency(m: Module, block, port) -> None:
    """The registers of the block ``latency`` and the histograms."""
    for name in ("send", "receive"):
        histogram, window = getattr(port, name), getattr(block, f"{name}_counts")
        m.d.comb += [
            histogram.counts.enable.eq(window.enable),
            histogram.counts.index.eq(window.index),
            window.read_data.eq(histogram.counts.row),
            getattr(block, f"{name}_sum_low").eq(histogram.sum[:32]),
            getattr(block, f"{name}_sum_high").eq(histogram.sum[32:]),
        ]


def connect_push(m: Module, block, events) -> None:
    """The registers of the block ``push`` and what they count."""
    for name in PUSH_COUNTS:
        with m.If(getattr(events, name)):
            increment(m, getattr(block, name))


def connect_parity(m: Module, block, tables: tuple[dict, list], box) -> None:
    """The registers of the block ``parity``; of the ``tables`` what says, by name, that there was a
    wrong row, and what makes them store one; and the box: its ``broken`` says that there was one,
    and ``halted`` that the rooms stand still."""
    found, spoils = tables
    bad = Cat(found[name] for name in PARITY_TABLES)
    errors = block.errors
    m.d.comb += [
        block.tables.eq(bad),
        block.status_broken.eq(box.halted),
        box.broken.eq(bad.any()),
        *(spoil.eq(block.control_spoil) for spoil in spoils),
    ]
    with m.If(bad.any() & ~box.halted & ~errors.all()):
        m.d.sync += errors.eq(errors + 1)
