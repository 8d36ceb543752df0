"""Ports of a board's top and the balls that they have, from its platform."""

from __future__ import annotations

from collections.abc import Iterator

from amaranth.build.dsl import Pins, Subsignal

__all__ = ["balls", "leaves", "port_balls"]


def leaves(platform) -> Iterator[tuple[str, Subsignal]]:
    """Each subsignal with pins, under the name of its port: resource_subsignal."""
    for resource in platform.resources.values():
        for sub in resource.ios:
            yield f"{resource.name}_{sub.name}", sub


def balls(port: str, sub: Subsignal) -> dict[str, str]:
    """Return the ball of each bit of a port; a port of one bit has no index."""
    names = [name for one in sub.ios if isinstance(one, Pins) for name in one.names]
    if len(names) == 1:
        return {port: names[0]}
    return {f"{port}[{n}]": name for n, name in enumerate(names)}


def port_balls(platform) -> dict[str, str]:
    """Return the ball of each port of the board's top, of wide ports that of each bit."""
    return {bit: ball for port, sub in leaves(platform) for bit, ball in balls(port, sub).items()}
