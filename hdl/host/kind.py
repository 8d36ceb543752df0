"""What a PCI function of virtio is, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.lib import wiring

from .config_space import ConfigImage

__all__ = ["FunctionKind"]


@dataclass(frozen=True)
class FunctionKind:
    """What distinguishes one kind of function from another; ``hdl/host/kinds.py`` has them.

    Attributes:
        image: contents of its configuration space.
        offered: features that it offers, as a mask.
        exclusive: masks of features that a driver must not take together.
        needs: pairs of masks: a driver must not take the first feature without the second one.
        type_features: how many of the first features, which are the device type's own, are shown.
        queues: number of its virtqueues. vectors: number of its MSI-X vectors.
        control: one engine reads the rows of its control and event queue alone.
        device: makes its device configuration, which has ``port``, ``changed`` and ``facts``.
        facts: what the device configuration is told: name of the member -> bits.
        device_bytes: size of the device configuration.
        arming: mask of the feature with which a doorbell of four bytes arms a completion queue.
    """

    image: ConfigImage
    offered: int
    exclusive: tuple[int, ...]
    type_features: int
    queues: int
    vectors: int
    control: bool
    device: Callable[[], wiring.Component]
    facts: dict[str, int]
    device_bytes: int
    needs: tuple[tuple[int, int], ...] = ()
    arming: int = 0
