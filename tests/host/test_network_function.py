"""What kinds of functions there are, and adapters that cannot have one of them."""

import pytest

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_net import NET_CONFIG
from hdl.abi.virtio_pci import CapId, CfgType, Feature, NetFeature
from hdl.axi_nic import AxiNic
from hdl.config import NicConfig
from hdl.host.config_space import CLASS_ETHERNET, net_image
from hdl.host.kinds import network_kind, rdma_kind
from hdl.host.virtio_net_config import line_rate
from hdl.pcie_nic import PTileNic

CARD = NicConfig(network=2, packed=True)


def structures(image):
    """Type of each virtio structure -> its capability; and the MSI-X capability."""
    header = abi.PCI_HEADER.unpack(bytes(image.data[: abi.PCI_HEADER.size]))
    at, found = header.capabilities, {}
    while at:
        if image.data[at] == CapId.MSIX:
            return found, abi.MSIX_CAP.unpack(bytes(image.data[at : at + abi.MSIX_CAP.size]))
        cap = abi.VIRTIO_PCI_CAP.unpack(bytes(image.data[at : at + abi.VIRTIO_PCI_CAP.size]))
        found[CfgType(cap.cfg_type)] = cap
        at = cap.cap_next
    return found, None


def test_image_of_the_network_function():
    image = net_image(CARD)
    header = abi.PCI_HEADER.unpack(bytes(image.data[: abi.PCI_HEADER.size]))
    assert (header.vendor_id, header.device_id) == (0x1AF4, 0x1041)
    assert header.class_code == CLASS_ETHERNET
    found, msix = structures(image)
    assert set(found) == set(CfgType)
    assert found[CfgType.DEVICE].length == NET_CONFIG.size
    assert found[CfgType.NOTIFY].length == 4 * 5  # two pairs and the control queue
    assert msix.message_control + 1 == 6
    assert structures(net_image(NicConfig())) == ({}, None)


def test_features_of_each_kind():
    network, rdma = network_kind(CARD), rdma_kind(CARD)
    transport = Feature.VERSION_1.mask | Feature.RING_RESET.mask | Feature.EVENT_IDX.mask
    for kind in (network, rdma):
        assert kind.offered & transport == transport
    # The data path of frames has no packed rings.
    assert rdma.offered & Feature.RING_PACKED.mask
    assert not network.offered & Feature.RING_PACKED.mask
    spread = NetFeature.MQ.mask | NetFeature.RSS.mask
    assert network.offered & spread == spread
    assert not network_kind(NicConfig(network=1)).offered & spread
    assert (NetFeature.RSS.mask, NetFeature.CTRL_VQ.mask) in network.needs


@pytest.mark.parametrize(
    ("width", "clock_hz", "rate"),
    [(512, 250_000_000, 100_000), (64, 250_000_000, 10_000), (64, 125_000_000, 1000)],
)
def test_rate_of_the_port(width, clock_hz, rate):
    assert line_rate(NicConfig(width=width, clock_hz=clock_hz)) == rate


def test_adapters_refuse_what_is_not_built_there():
    with pytest.raises(ValueError, match="network must be 0 .*, not 2: it is not built yet"):
        AxiNic(config=NicConfig(network=2))


@pytest.mark.parametrize("core", [AxiNic, PTileNic])
def test_adapters_refuse_a_push_window(core):
    with pytest.raises(ValueError, match="push must be False .*: it is not built yet"):
        core(config=NicConfig(push=True))
