"""Where a simulation stands that has come to no end: rooms, hosts, wires.

Reads without simulated time, so it works in whatever state the cards are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim import probes
from sim.probes import Probe

__all__ = ["card_report", "stall_report"]

#: Statistics worth a line of their own; times and totals in beats are not.
_HOST = ("reads", "writes", "interrupts", "reads_outstanding", "writes_pending", "read_faults")
_HOST += ("write_faults",)
_WIRE = ("tx_frames", "tx_bad", "rx_frames", "protocol_errors")


def stall_report(testbench: Any) -> str:
    """All that is not at rest, card by card: state machines, levels, streams, host and wire."""
    found = probes.load()
    lines = []
    for i in range(4):
        card = testbench.dut._get(f"nic{i}")
        if card is None and i >= max(len(testbench.hosts), len(testbench.wires)):
            continue
        lines.append(f"Card {i}")
        if card is not None:
            lines += [f"  {line}" for line in card_report(card, found)]
        for kind, ends, names in (("host", testbench.hosts, _HOST), ("wire", testbench.wires, _WIRE)):
            for end in ends:
                if end.index == i:
                    lines.append(f"  {kind}: {_statistics(end.stats, names)}")
    return "\n".join(lines)


def card_report(card: Any, found: Sequence[Probe]) -> list[str]:
    """A line for each component of a card that is not at rest, by its place below the top."""
    said: dict[str, list[str]] = {}
    unread = 0
    for probe in found:
        values = [_value(card, probe.path, name) for name in (probe.signal, probe.ready) if name]
        if None in values:
            unread += 1
        elif text := probe.describe(*values):
            said.setdefault(_name(probe.path), []).append(text)
    lines = [f"{place}: {', '.join(texts)}" for place, texts in sorted(said.items())]
    if not lines:
        lines.append("everything is at rest" if found else "built without probes")
    if unread:
        lines.append(f"({unread} of {len(found)} probes cannot be read)")
    return lines


def _name(path: Sequence[str]) -> str:
    return ".".join(part.split("$")[0] for part in path) or "top"


def _value(card: Any, path: Sequence[str], signal: str) -> int | None:
    """A signal's value; None when the simulator has no such signal or no value for it."""
    handle = card
    for part in (*path, signal):
        handle = handle._get(part)
        if handle is None:
            return None
    try:
        return int(handle.value)
    except ValueError:  # X or Z
        return None


def _statistics(stats: Any, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {getattr(stats, name)}" for name in names)
