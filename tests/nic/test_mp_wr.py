"""The whole NIC with receive requests that take several packets: T-M1 to T-M16, as far as they need
two cards; each bench has the name of its scenario. ``tests/firmware/test_mp_wr.py`` has those of
the commands."""

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from sim.rtl.build import run

#: Of each bench what runs at 512 bits in each run: packets in flight, losses, shared queues.
WIDE = {
    "mp_wr": [
        "t_m2_bad_network",
        "t_m2_each_packet_is_lost_or_doubled",
        "t_m4_longer_than_buffers",
        "t_m14_random",
    ],
    "mp_wr_shared": [
        "t_m4_senders_in_turn",
        "undone_packets_give_back",
        "undone_packets_end_requests",
        "receive_queue_that_packets_name",
    ],
}


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bench", ["mp_wr", "mp_wr_shared"])
def test_mp_wr(bench, width):
    run(
        testbench.build(config=NicConfig(width=width, xrc=True, mp_wr=True)),
        test_module=f"tests.nic.bench_{bench}",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )


@pytest.mark.parametrize("bench", WIDE)
def test_wide(bench):
    run(
        testbench.build(config=NicConfig(width=512, xrc=True, mp_wr=True)),
        test_module=f"tests.nic.bench_{bench}",
        testcase=WIDE[bench],
        extra_env={"ROCINANTE_WIDTH": "512"},
        timeout_s=900,
    )
