"""Constraints for AMD Vivado from a board's platform. Spec: UG903, UG912."""

from __future__ import annotations

from collections.abc import Iterator

from amaranth.build.dsl import Clock, Pins, Subsignal

__all__ = ["pin_constraints", "port_balls"]


def _leaves(platform) -> Iterator[tuple[str, Subsignal]]:
    """Each subsignal with pins, under the name of its port: resource_subsignal."""
    for resource in platform.resources.values():
        for sub in resource.ios:
            yield f"{resource.name}_{sub.name}", sub


def port_balls(platform) -> dict[str, str]:
    """Return the ball of each port of the board's top."""
    return {
        port: one.names[0]
        for port, sub in _leaves(platform)
        for one in sub.ios
        if isinstance(one, Pins)
    }


def pin_constraints(platform) -> str:
    """Return XDC that places each port, and tells the period of each clock at a pin."""
    balls, lines = port_balls(platform), []
    for port, sub in _leaves(platform):
        lines.append(f"set_property PACKAGE_PIN {balls[port]} [get_ports {port}]")
        lines += [f"set_property {name} {value} [get_ports {port}]"
                  for name, value in sub.attrs.items()]  # fmt: skip
        if isinstance(sub.clock, Clock):
            period = sub.clock.period * 1e9
            lines.append(f"create_clock -name {port} -period {period:.3f} [get_ports {port}]")
    return "\n".join([*lines, ""])
