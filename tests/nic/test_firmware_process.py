"""The firmware as a process of its own on the registers of the whole NIC."""

import pytest

from sim.rtl.build import run
from tests.nic.test_nic import model

BENCHES = ["commands_and_traffic", "killed_in_mid_traffic", "killed_in_mid_command"]


@pytest.mark.parametrize("bench", BENCHES)
def test_process(bench, tmp_path):
    run(
        model(64),
        test_module="tests.nic.bench_firmware_process",
        testcase=bench,
        extra_env={"ROCINANTE_WIDTH": "64", "ROCINANTE_FOLDER": str(tmp_path)},
        timeout_s=1800,  # two processes take turns, so a busy machine makes it long
    )
