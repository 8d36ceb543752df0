"""Options of perf, and what follows from them for a size."""

from __future__ import annotations

from typing import Any

import pytest

from hdl.config import NicConfig
from hdl.wire.opcodes import ATOMIC_BYTES
from sim.measure.perf.plan import (
    IN_FLIGHT,
    LARGEST_REGION,
    MANY,
    SWEEP,
    USUAL_QPS,
    Plan,
)
from sim.measure.perf.report import warnings
from sim.measure.perf.verbs import OPERATIONS


def plan(op: str = "write_bw", size: int = 64, **options: Any) -> Plan:
    return Plan(op=op, sizes=(size,), **options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"op": "add_bw"}, "Operation must be one of write_bw, .*, not 'add_bw'"),
        ({"op": "atomic_bw", "size": 16}, "--size of an atomic must be 8"),
        ({"op": "atomic_bw", "size": 8, "inline": 4}, "--inline is for what is sent"),
        ({"op": "atomic_bw", "size": 8, "miss_qps": 1}, "--miss-qps is for write_bw and read_bw"),
        ({"op": "atomic_bw", "size": 8, "atomic_type": "ADD"}, "--atomic-type must be FETCH_AND"),
        ({"connection": "RD"}, "--connection must be RC, UC, UD, XRC, DC, not 'RD'"),
        ({"connection": "DC", "bidirectional": True}, "DC goes one way"),
        ({"op": "send_bw", "connection": "DC", "use_srq": True}, "DC: not with --use-srq"),
        ({"targets": 2}, "--targets .of DC. must be 1 to 1, not 2"),
        ({"connection": "DC", "targets": 63}, "--targets .of DC. must be 1 to 62, not 63"),
        ({"connection": "XRC", "bidirectional": True}, "XRC goes one way"),
        ({"op": "read_bw", "connection": "UC"}, "UC has no read: not with read_bw"),
        ({"op": "write_lat", "connection": "UD"}, "UD has no write: not with write_lat"),
        ({"connection": "UC", "impair": "loss=1%"}, "--impair needs RC: UC sends nothing again"),
        ({"op": "send_bw", "connection": "UD", "size": 4097}, "--size of a datagram must be at"),
        ({"use_srq": True}, "--use-srq is for send_bw: not with write_bw"),
        ({"op": "read_bw", "mkey": 4}, "--mkey is for one size of write_bw and send_bw"),
        ({"mkey": 4, "sges": 2}, "--mkey is for one size of write_bw and send_bw"),
        ({"mkey": 33}, "--mkey must be"),
        ({"mkey": 4, "qps": 16}, "the number of places with --mkey"),
        ({"mp_wr": True}, "--mp-wr is for send_bw of RC and UC alone: not with write_bw"),
        ({"op": "send_bw", "mp_wr": True, "use_srq": True}, "--mp-wr is for send_bw of RC and UC"),
        ({"op": "send_bw", "mp_wr": True, "size": 4097}, "--size with --mp-wr must be at most"),
        ({"sges": 33}, "--sges must be 1 to 32, not 33"),
        ({"op": "flush_bw", "tx_depth": 1025}, "--tx-depth must be 1 to 1024, not 1025"),
        ({"op": "flush_bw", "inline": 9}, "--inline is for what is sent"),
        ({"op": "flush_lat", "connection": "UC"}, "UC has no flush: not with flush_lat"),
        ({"op": "atomic_write_bw", "size": 9}, "--size of an atomic must be 8"),
        ({"op": "atomic_write_bw", "size": 8, "sges": 2}, "--sges is for bandwidth"),
        ({"size": 3, "sges": 4}, "--sges must be 1 to 3, not 4"),
        ({"op": "read_lat", "sges": 2}, "--sges is for bandwidth"),
        ({"op": "atomic_bw", "size": 8, "sges": 2}, "--sges is for bandwidth"),
        ({"inline": 64, "sges": 2}, "--sges is for bandwidth"),
        ({"one_word": True}, "--one-word is for atomic_bw"),
        (
            {"op": "atomic_bw", "size": 8, "one_word": True, "atomic_type": "CMP_AND_SWAP"},
            "--one-word is for FETCH_AND_ADD",
        ),
        ({"size": 0}, "--size must be 1 to 8388608, not 0"),
        ({"size": (1 << 23) + 1}, "--size must be 1 to 8388608, not 8388609"),
        ({"mtu": 1500}, "--mtu must be one of 256, 512, 1024, 2048, 4096, not 1500"),
        ({"qps": 0}, "--qps must be 1 to 16382, not 0"),
        ({"qps": 16383}, "--qps must be 1 to 16382, not 16383"),
        ({"tx_depth": 0}, "--tx-depth must be 1 to 2048, not 0"),
        ({"tx_depth": 2049}, "--tx-depth must be 1 to 2048, not 2049"),
        ({"cq_mod": 0}, "--cq-mod must be 1 to 4096, not 0"),
        ({"post_list": 0}, "--post-list must be 1 to 4096, not 0"),
        ({"iters": 0}, "--iters must be 1 to"),
        ({"inline": 513}, "--inline must be 0 to 512, not 513"),
        ({"op": "read_bw", "inline": 4}, "--inline is for what is sent"),
        ({"op": "write_lat", "qps": 2}, "--qps is for bandwidth: not with write_lat"),
        ({"op": "read_lat", "bidirectional": True}, "--bidirectional is for bandwidth"),
        ({"op": "write_lat", "busy": True}, "--busy is for bandwidth: not with write_lat"),
        ({"width": 100}, "width must be one of"),
        ({"clock_mhz": 0}, "--clock-mhz must be 1"),
        ({"line_gbps": 0}, "--line-gbps must be"),
        ({"host_gbps": -1}, "--host-gbps must be"),
        ({"host_latency_ns": -1}, "--host-latency-ns must be"),
        ({"host_latency_ns": float("nan")}, "--host-latency-ns must be"),
        (
            {"size": 1 << 23, "qps": 16},
            "16 QPs with messages of 8388608 bytes need",
        ),
        ({"op": "send_bw", "places": 4096}, "--places is for write_bw and read_bw"),
        ({"size": 64, "places": 100}, "--places must be 160 to 1048576, not 100"),
        ({"size": 65, "place_step": 64}, "--place-step must be 65 to 16777216, not 64"),
        ({"op": "send_bw", "miss_qps": 1}, "--miss-qps is for write_bw and read_bw"),
        ({"op": "write_lat", "miss_qps": 1}, "--miss-qps is for write_bw and read_bw"),
        ({"miss_qps": 2}, "--miss-qps must be 0 to 1, not 2"),
        ({"qps": 64, "miss_qps": 26}, "--miss-qps must be 0 to 25, not 26"),
        ({"size": 40000, "miss_qps": 1}, "--size with --miss-qps must be 1 to 32768, not 40000"),
        ({"qp_timeout": 32}, "--qp-timeout must be 0 to 31, not 32"),
        ({"impair": "luck=1%"}, "No impairment 'luck=1%'"),
        ({"without": ("version_1",)}, "--without must be one of notification_data"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        plan(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 4096, 65536, 1 << 20, 1 << 23])
@pytest.mark.parametrize("tx_depth", [1, 3, 128, 2048])
def test_shapes_hold_together(op: str, size: int, tx_depth: int) -> None:
    """A slot is free again before it is used; completions come; the timed part is not the last."""
    if op.startswith("atomic"):
        size = ATOMIC_BYTES
    if op.startswith("flush"):  # a message takes two requests
        tx_depth = min(tx_depth, 1024)
    p = plan(op, size, tx_depth=tx_depth)
    shape = p.shape(size)
    assert 1 <= shape.signal <= shape.depth <= tx_depth or p.latency
    assert 1 <= shape.batch <= shape.depth
    assert shape.slots > shape.depth
    assert shape.stride % 64 == 0 and shape.stride >= size
    assert p.region(size) <= LARGEST_REGION
    assert p.latency or shape.depth <= max(2, IN_FLIGHT // size)
    assert p.cqs >= 1 and p.cq_entries <= p.config.queue_size


def test_places_as_told() -> None:
    """So many, so far apart; what is outstanding stays."""
    p = plan(size=64, places=4096, place_step=32768)
    shape = p.shape(64)
    assert (shape.slots, shape.stride, shape.depth) == (4096, 32768, 128)
    assert p.region(64) == 1 << 27 and shape.warm >= 4096
    assert plan(size=64, without=("in_order",)).features != plan(size=64).features


@pytest.mark.parametrize("misses", [1, 3, 25])
def test_places_that_always_miss(misses: int) -> None:
    """A line of the direct-mapped cache is another's before its place is used again."""
    p = plan(size=64, qps=30, miss_qps=misses)
    usual, cached = plan(size=64, qps=30), p.config.translation_lines
    assert p.places_of(29, 64) == usual.places_of(29, 64)
    assert usual.region(64) <= p.places_of(0, 64)[0] < p.region(64) <= LARGEST_REGION
    mine = [p.places_of(n, 64) for n in range(misses)]
    assert max(map(max, mine)) + 64 <= p.region(64)
    assert min(map(len, mine)) >= p.shape(64).least_slots
    # All QPs in turn, round by round: what the cache holds when a place comes again.
    held: dict[int, int] = {}
    for sequence in range(2 * len(mine[0])):
        for places in mine:
            line = places[sequence % len(places)] // (8 * 4096)
            assert held.get(line % cached) != line
            held[line % cached] = line


def test_what_the_table_asks_for_is_not_cut() -> None:
    """Depth 128, a doorbell for 16, every 16th signalled, up to 64 KiB and 64 QPs."""
    for size, qps in ((64, 64), (65536, 1), (64, 1)):
        shape = plan(size=size, qps=qps).shape(size)
        assert (shape.depth, shape.batch, shape.signal) == (128, 16, 16)
    assert plan(size=65536, iters=7).shape(65536).timed == 7
    assert plan(size=64, qps=64, iters=7).shape(64).timed == 7 * 64


@pytest.mark.parametrize("qps", [1, 2, 64, 126])
def test_receives_of_all_fit_into_a_shared_queue(qps: int) -> None:
    p = plan("send_bw", qps=qps, use_srq=True)
    assert qps * p.shape(64).slots <= p.config.queue_size
    assert p.shape(64).slots > p.shape(64).depth


def test_places_of_datagrams_begin_with_the_grh_area() -> None:
    p = plan("send_bw", 64, connection="UD")
    assert (p.area, p.shape(64).stride, p.sweep().sizes[-1]) == (40, 128, 4096)


def test_what_completes_before_it_arrives_has_more_places() -> None:
    """A place is not used again while its last message may be on the way."""
    usual, early = plan().shape(64), plan(connection="UC").shape(64)
    assert early.slots - usual.slots == 256 and early.depth == usual.depth


def test_many_completions_are_spread_over_cqs() -> None:
    p = plan("send_bw", qps=126, cq_mod=1)
    assert p.cqs > 1 and p.cqs * p.cq_entries >= 126 * (128 + p.shape(64).slots)


def test_many_queue_pairs_are_another_card() -> None:
    """Few requests on each, its share of the READs, and room for it all."""
    usual, many = plan(size=4096, qps=USUAL_QPS), plan(size=4096, qps=MANY["qps"] - 2)
    assert usual.config.qps == NicConfig().qps and many.config.qps == MANY["qps"]
    shape = many.shape(4096)
    assert (shape.depth, shape.batch, shape.signal) == (1, 1, 1)
    assert many.qps * shape.depth <= many.config.outstanding
    assert many.qps * many.max_rd_atomic <= many.config.read_resources
    assert (plan().max_rd_atomic, usual.max_rd_atomic, many.max_rd_atomic) == (16, 8, 4)
    # Every line of a region is in the translation cache, with lines to spare.
    assert 2 * many.region(4096) <= many.config.translation_lines * 8 * 4096


def test_sweep_and_scan() -> None:
    assert plan().sweep().sizes == SWEEP == tuple(2**n for n in range(1, 21))
    assert max(plan(qps=126).sweep().sizes) < SWEEP[-1]
    assert [one.qps for one in plan(size=100).scan()] == [1, 2, 4, 8, 16, 32, 64]
    # Each row once: captures are named by size and QPs.
    assert [one.qps for one in plan(size=64, qps=4).scan()] == [1, 2, 8, 16, 32, 64]
    assert plan("send_lat").scan() == []


def test_json_there_and_back() -> None:
    p = plan("send_bw", 100, qps=3, bidirectional=True, line_gbps=25, iters=5)
    assert Plan.from_json(p.to_json()) == p


def test_line_rate_is_what_the_wire_model_can_do() -> None:
    assert plan(line_gbps=100).line == 100
    assert plan(line_gbps=30).line == 8000 / 267


def test_few_messages_give_a_warning() -> None:
    """Fewer than are outstanding: their rate is that of how they were posted."""
    assert warnings(plan(size=64)) == warnings(plan(size=64, iters=128)) == []
    assert warnings(plan("read_lat", iters=1)) == []
    (text,) = warnings(plan(size=64, iters=127))
    assert text.startswith("--iters 127 is below the 128 messages of 64 bytes")
    for qps in (1, 64, 126):
        shape = plan(size=64, qps=qps).shape(64)
        assert shape.timed >= shape.depth * qps


def test_sends_warm_up_past_what_is_fetched_ahead() -> None:
    """Receives that the card had before the first message are no part of what is timed."""
    for qps in (1, 2, 4, 16, 64):
        shape = plan("send_bw", 64, qps=qps).shape(64)
        assert qps * shape.warm >= 4 * min(qps * shape.slots, 1024)
    assert plan("send_bw", 65536).shape(65536).warm == plan(size=65536).shape(65536).warm


def test_a_latency_test_does_not_use_up_its_ring() -> None:
    shape = plan("read_lat").shape(64)
    assert plan("read_lat").cq_entries > shape.warm + shape.timed


def test_a_slow_line_is_waited_for() -> None:
    """A run counts as stalled only when a slow line or host had time for what is under way."""
    options = {"op": "write_bw", "sizes": (1 << 20,), "cq_mod": 4, "post_list": 4}
    for slow in ({"line_gbps": 0.5}, {"host_gbps": 0.5}):
        assert Plan(**options, **slow).patience_us > 4 * (8 << 20) / 500
    assert Plan(**options).patience_us < 3000


@pytest.mark.parametrize("size", [64, 4097])
def test_a_bad_network_is_waited_for_in_whole_microseconds(size: int) -> None:
    """A timer refuses a time that is no multiple of the simulation's step."""
    lossy = Plan(op="read_bw", sizes=(size,), qps=64, impair="loss=1%", host_latency_ns=333.3)
    assert isinstance(lossy.patience_us, int) and lossy.patience_us > 1000
