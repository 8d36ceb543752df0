"""The whole NIC with receive requests that take several packets: T-M1 to T-M16, as far as they need
two cards; each bench has the name of its scenario. ``tests/firmware/test_mp_wr.py`` has those of
the commands."""

import pytest

from tests.nic.features import WIDTHS, play

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


@WIDTHS
@pytest.mark.parametrize("bench", ["mp_wr", "mp_wr_shared"])
def test_mp_wr(bench, width):
    play(bench, width)


@pytest.mark.slow
@pytest.mark.parametrize("bench", WIDE)
def test_wide(bench):
    play(bench, 512, WIDE[bench])
