"""The kinds of PCI functions that a card has."""

from hdl.abi.enums import RdmaFeature
from hdl.abi.virtio_net import NET_CONFIG
from hdl.abi.virtio_net import TYPE_FEATURES as NET_TYPE_FEATURES
from hdl.abi.virtio_pci import Feature, NetFeature
from hdl.abi.virtio_rdma import CONFIG, TYPE_FEATURES
from hdl.config import NicConfig

from .config_space import net_image, rdma_image
from .kind import FunctionKind
from .virtio_common import offered_features, transport_features
from .virtio_device_config import DeviceConfig
from .virtio_net_config import NetDeviceConfig

__all__ = ["network_features", "network_kind", "rdma_kind"]

#: What the network function offers of its device type's own features.
_NETWORK = (
    NetFeature.CSUM,
    NetFeature.GUEST_CSUM,
    NetFeature.MTU,
    NetFeature.MAC,
    NetFeature.MRG_RXBUF,
    NetFeature.STATUS,
    NetFeature.CTRL_VQ,
    NetFeature.CTRL_RX,
    NetFeature.CTRL_RX_EXTRA,
    NetFeature.CTRL_MAC_ADDR,
    NetFeature.SPEED_DUPLEX,
)


def rdma_kind(config: NicConfig) -> FunctionKind:
    """A guest function, of device 42; ``config``: what it has (``NicConfig.guest``)."""
    # The descriptor of a WQE that a message holds may be overwritten when another of the same
    # shared queue comes back.
    packed = Feature.RING_PACKED.mask
    exclusive = (RdmaFeature.SRQ.mask | packed,) if config.packed and config.srq else ()
    # A push names the place of its entry in an avail ring.
    exclusive += (RdmaFeature.PUSH.mask | packed,) if config.packed and config.push else ()
    with_queues = [RdmaFeature.XRC] * config.xrc + [RdmaFeature.DC] * config.dc
    return FunctionKind(
        image=rdma_image(config),
        offered=offered_features(config),
        exclusive=exclusive,
        needs=tuple((feature.mask, RdmaFeature.SRQ.mask) for feature in with_queues),
        type_features=TYPE_FEATURES,
        queues=config.queues,
        vectors=config.vectors,
        control=True,
        device=lambda: DeviceConfig(config=config),
        facts={"mac": 48},
        device_bytes=CONFIG.size,
        arming=RdmaFeature.ARM_CQ.mask,
    )


def network_features(config: NicConfig) -> int:
    """The feature word that the network function offers. Its data path has no packed rings."""
    own = sum(feature.mask for feature in _NETWORK)
    transport = transport_features(config) & ~Feature.RING_PACKED.mask
    spread = NetFeature.MQ.mask | NetFeature.RSS.mask
    return transport | own | spread * (config.network > 1)


def network_kind(config: NicConfig) -> FunctionKind:
    """The network function, of device 1."""
    return FunctionKind(
        image=net_image(config),
        offered=network_features(config),
        exclusive=(),
        needs=((NetFeature.RSS.mask, NetFeature.CTRL_VQ.mask),),
        type_features=NET_TYPE_FEATURES,
        queues=config.network_queues,
        vectors=config.network_vectors,
        control=False,
        device=lambda: NetDeviceConfig(config=config),
        facts={"mac": 48, "link": 1, "mtu": 16},
        device_bytes=NET_CONFIG.size,
    )
