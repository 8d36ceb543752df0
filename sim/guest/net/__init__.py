"""A driver in Python for the card's network function."""

from sim.guest.net.device import ALL_FEATURES, NetDevice, NetOptions

__all__ = ["ALL_FEATURES", "NetDevice", "NetOptions"]
