"""Host and link models, platform and testbench, in Verilator on small test cards."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from hdl.config import NicConfig
from sim.bench.testbench import build, top_source
from sim.rtl.build import Rtl, run
from sim.wire.pcap import read_pcap, write_pcap


class Recorded(NamedTuple):
    """What a bench has written, its capture, and how the clock ran."""

    trace: list
    capture: bytes
    clock: dict[str, int]


def recorded(model, test_module: str, trace: Path, *, jump: str, **settings) -> Recorded:
    """Run a bench that writes a trace, and its only capture beside it."""
    environment = {name: str(value) for name, value in settings.items()}
    environment |= {"TRACE": str(trace), "ROCINANTE_JUMP": jump}
    results = run(model, test_module=test_module, extra_env=environment)
    found = json.loads(trace.read_text())
    (capture,) = results.folder.glob("*.pcap")
    return Recorded(found["trace"], capture.read_bytes(), found["clock"])


def both(model, test_module: str, folder: Path, **settings) -> tuple[Recorded, Recorded]:
    """With all cycles, and with idle ones left out: what happened, and when, is the same."""
    every, jumped = (
        recorded(model, test_module, folder / jump, jump=jump, **settings) for jump in ("0", "1")
    )
    assert jumped.trace == every.trace and jumped.capture == every.capture
    assert jumped.clock["cycles"] == every.clock["cycles"]
    assert every.clock["skipped"] == every.clock["slept"] == 0
    return every, jumped


def config(width: int) -> NicConfig:
    return NicConfig(width=width, read_tags=16, read_bytes=256, write_bytes=256)


@pytest.mark.parametrize("width", [64, 512])
def test_models(width):
    model = build(
        Rtl("tests.sim.echo:Echo", {"config": config(width)}), config=config(width), nics=2
    )
    run(model, test_module="tests.sim.bench_models", extra_env={"WIDTH": str(width)})
    run(model, test_module="tests.sim.bench_impairments", extra_env={"WIDTH": str(width)})


@pytest.mark.parametrize("width, seed", [(64, 1), (64, 2), (512, 3)])
def test_jumps_change_nothing(width, seed, tmp_path):
    """With idle cycles left out everything happens as without, and when."""
    model = build(
        Rtl("tests.sim.echo:Echo", {"config": config(width)}), config=config(width), nics=2
    )
    every, jumped = both(model, "tests.sim.bench_jump", tmp_path, WIDTH=width, SEED=seed)
    assert len(every.trace) > 60 and len(every.capture) > 2000
    assert jumped.clock["skipped"] > 0.5 * every.clock["cycles"]


def test_top_refuses_other_widths():
    with pytest.raises(ValueError, match="mac_tx__payload must have 579 bits at width 512, not 75"):
        top_source({"mac_tx__payload": ("output", 75)}, module="nic", width=512, nics=1)


def test_pcap_files(tmp_path):
    frames = [(5, b"abc"), (1_000_000_007, bytes(60))]
    path = tmp_path / "x.pcap"
    write_pcap(path, frames)
    assert list(read_pcap(path)) == frames
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="cut frame"):
        list(read_pcap(path))
    path.write_bytes(b"\0" * 40)
    with pytest.raises(ValueError, match="no capture"):
        list(read_pcap(path))
