"""Host and link models, platform and testbench, in Verilator on small test cards."""

import pytest

from hdl.config import NicConfig
from sim.build import Rtl, run
from sim.pcap import read_pcap, write_pcap
from sim.testbench import build, top_source


def config(width: int) -> NicConfig:
    return NicConfig(width=width, read_tags=16, read_bytes=256, write_bytes=256)


@pytest.mark.parametrize("width", [64, 512])
def test_models(width):
    model = build(
        Rtl("tests.sim.echo:Echo", {"config": config(width)}), config=config(width), nics=2
    )
    run(model, test_module="tests.sim.bench_models", extra_env={"WIDTH": str(width)})


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
