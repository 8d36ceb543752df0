"""What a served card tells when it is asked by a signal."""

import re
import signal

from hdl.abi.enums import WrOpcode
from tests.host.vfio_guest import Served, pair


def test_counters_and_where_it_stands(tmp_path):
    """Counters of both cards, in the middle of a guest's work, and the stall report before them."""
    card = Served(tmp_path, "--cards", "2")
    a, b = guests = pair([card.path(0), card.path(1)])
    a.post(WrOpcode.RDMA_WRITE, b, 5000)
    a.good()
    card.process.send_signal(signal.SIGUSR2)
    card.says("ns of simulated time so far")
    assert re.search(r"^card 0: .*requests_sent [1-9]", card.text, re.M), card.text
    assert re.search(r"^card 1: .*rx_write_requests [1-9]", card.text, re.M)
    assert "Card 0" not in card.text
    card.process.send_signal(signal.SIGUSR1)
    card.says("ns of simulated time so far", 2)
    assert "Card 0" in card.text and re.search(r"^  wire: tx_frames [1-9]", card.text, re.M)
    a.post(WrOpcode.RDMA_WRITE, b, 5000)
    a.good()
    for guest in guests:
        guest.close()
    assert card.close() == 0
