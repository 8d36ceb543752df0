"""What the device configuration tells."""

import pytest

from hdl.abi.limits import device_limits
from hdl.config import NicConfig


@pytest.mark.parametrize("lacking", [{"mcast": False}, {"ud": False}])
def test_what_there_is_no_command_for_is_0(lacking):
    """Multicast groups of a card without them (VR-2.6, E-21)."""
    limits = device_limits(NicConfig(**lacking))
    names = ("max_mcast_grp", "max_mcast_qp_attach", "max_total_mcast_qp_attach")
    assert [limits[name] for name in names] == [0] * 3


def test_multicast_groups():
    """Of a function, as many as its share of the card's, with eight members each."""
    names = ("max_mcast_grp", "max_mcast_qp_attach", "max_total_mcast_qp_attach")
    for functions, groups in ((1, 32), (2, 16), (3, 8)):
        limits = device_limits(NicConfig(groups=32, functions=functions).guest)
        assert [limits[name] for name in names] == [groups, 8, 8 * groups]


def test_shared_receive_queues():
    """One for each pair of a user, as large as any queue; none without the switch (E-37)."""
    names = ("max_srq", "max_srq_wr", "max_srq_sge")
    limits = device_limits(NicConfig(qps=64, queue_size=512, max_sge=4))
    assert [limits[name] for name in names] == [62, 512, 4]
    limits = device_limits(NicConfig(srq=False))
    assert [limits[name] for name in names] == [0] * 3
