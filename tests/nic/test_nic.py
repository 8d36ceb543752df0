"""The whole NIC at widths 64 and 512: one model for each width, many benches."""

import pytest

from hdl.config import NicConfig
from sim.bench import coverage, testbench
from sim.rtl.build import Rtl, lint, run

BENCHES = [
    "every_operation_at_the_edges",
    "inline_and_unsignalled",
    "every_mtu_and_both_ip_versions",
    "remote_errors",
    "local_errors",
    "receive_errors",
    "modify_to_error_flushes",
    "reset_stops_a_message",
    "completion_events",
    "reset_at_any_moment",
    "restart_at_every_packet",
    "cq_overflow",
    "full_rate",
]

#: What no bit of the data path's width changes: at the width that builds and simulates sooner.
#: Rings at 512 bits are tests/queues' matter.
NARROW = [
    "counters_of_each_qp",
    "reads_behind_an_error",
    "queue_pairs_come_and_go",
    "everything_comes_and_goes",
    "partitions",
    "dropped_requests_stay_dropped",
    "ring_shapes",
    "broken_rings",
]

#: Replays that a beat's width can change. The others are of what the comparison takes from a
#: capture.
REPLAYS = ["golden/wide=True", "golden_retries/wide=True", "requests_ahead_of_responses"]


def model(width: int):
    """The model that the demonstration uses as well."""
    return testbench.build(config=NicConfig(width=width))


@pytest.mark.parametrize("width", [64, 512])
def test_cards_take_turns(width):
    """Verilator's text is still what ``sim.rtl.interleave`` knows: else models are slow, unseen."""
    assert "two instances take turns" in (model(width).folder / "build.log").read_text()


@pytest.mark.parametrize(
    ("width", "part"), [(64, 0), (64, 1), (512, 0), pytest.param(512, 1, marks=pytest.mark.slow)]
)
def test_two_nics(width, part):
    """In two parts, so that two processes share the work once the model is there."""
    done = run(
        model(width),
        test_module="tests.nic.bench_nic",
        testcase=(BENCHES + (NARROW if width == 64 else []))[part::2],
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )
    seen = set(coverage.load([done.folder / coverage.FILE])) & set(coverage.bins())
    assert {"request", "command", "completion", "packet", "answer"} <= {one[0] for one in seen}


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "feature",
    [
        "arming",
        "atomics",
        "cm",
        "events",
        "fast_regions",
        "loopback",
        "multicast",
        "page_tables",
        "queue_errors",
        "read_behind_write",
        "regions",
        "resize",
        "services",
        "srq",
        "statuses",
        "windows",
    ],
)
def test_feature(feature, width):
    """What a card may lack; the data path is that of all."""
    run(
        model(width),
        test_module=f"tests.nic.bench_{feature}",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=600,
    )


def test_short_messages_beside_bulk():
    """At 512 bits, as the line of 100 Gb/s is what they wait for."""
    run(
        model(512),
        test_module="tests.nic.bench_mixed",
        extra_env={"ROCINANTE_WIDTH": "512"},
        timeout_s=900,
    )


def test_everything_that_coverage_counts():
    """At 512 bits: most of it are long messages, which take fewer cycles there."""
    run(
        model(512),
        test_module="tests.nic.bench_coverage",
        extra_env={"ROCINANTE_WIDTH": "512"},
        timeout_s=900,
    )


@pytest.mark.slow
def test_everything_a_hundred_times():
    run(
        model(64),
        test_module="tests.nic.bench_nic",
        testcase=["everything_comes_and_goes"],
        extra_env={"ROCINANTE_WIDTH": "64", "ROCINANTE_TURNS": "10"},
        timeout_s=900,
    )


@pytest.mark.parametrize(
    "width, replays",
    [
        pytest.param(64, None, id="64"),
        pytest.param(512, REPLAYS, id="512", marks=pytest.mark.slow),
        pytest.param(512, None, id="512-all", marks=pytest.mark.slow),
    ],
)
def test_recorded_traffic(width, replays):
    """Every suitable capture from both sides; every mutation of one is reported."""
    run(
        model(width),
        test_module="tests.nic.bench_replay",
        testcase=replays,
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )


def test_recorded_without_answers():
    """UC, UD, QP1 and keys that go, at the width that simulates sooner: services are the same."""
    run(
        model(64),
        test_module="tests.nic.bench_replay_unanswered",
        extra_env={"ROCINANTE_WIDTH": "64"},
        timeout_s=900,
    )


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
def test_recorded_here(width):
    """What two cards have said to one another, replayed into one of them."""
    run(
        model(width),
        test_module="tests.nic.bench_recorded",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )


def test_recorded_on_a_bad_network():
    """The same with losses, at the width that simulates sooner: it is the inference it tests."""
    run(
        model(64),
        test_module="tests.nic.bench_replay_loss",
        extra_env={"ROCINANTE_WIDTH": "64"},
        timeout_s=600,
    )


def test_lint():
    """A card with all that there is converts and passes lint: each table and number has room for as
    many objects and functions as there can be.

    Here at 256 bits. Models have passed lint when they are built (64 and 512 bits, by default and
    with two functions), tests/make/test_core.py does it at 128 bits.
    """
    most = {"qps": 16384, "cqs": 16384, "mrs": 65536, "functions": 4}
    most |= {"outstanding": 65536, "read_resources": 65536}
    most |= {"trace_frames": 64, "latency": True, "parity": True, "packed": True}
    lint(Rtl("hdl.nic:Nic", {"config": NicConfig(width=256, **most)}, "nic"))
