"""The command line of ``rocinante simspeed``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from hdl.config import NicConfig
from sim.rtl import env
from sim.tools import console

__all__ = ["Speed", "compare", "measure", "simspeed"]

#: Real time for one simulation, s.
TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Speed:
    """One run: simulated cycles, the real seconds they took, bytes that were compared."""

    cycles: int
    seconds: float
    bytes_verified: int

    @property
    def rate(self) -> float:
        """Cycles a second."""
        return self.cycles / self.seconds

    def facts(self) -> dict[str, float]:
        """For JSON."""
        return {
            "cycles": self.cycles,
            "seconds": self.seconds,
            "cycles_per_s": self.rate,
            "bytes_verified": self.bytes_verified,
        }


@click.command()
@console.width_option
@click.option("-n", "--messages", type=int, default=512, show_default=True, help="WRITEs.")
@click.option("-s", "--size", type=int, default=4096, show_default=True, help="Bytes of each.")
@click.option("--one", is_flag=True, help="One NIC only, also with cocotbext-axi: builds sooner.")
@console.json_option
def simspeed(width: int, messages: int, size: int, one: bool, json_file: Path | None) -> None:
    """Measure how fast the simulation is: the same WRITEs on the same NICs with different models.

    Two NICs with the compiled models; the same two with cocotbext-axi's streams and memory; one
    NIC with the compiled models that writes to itself.
    """
    with console.stops():
        if messages < 1 or size < 1 or messages * size > 1 << 24:
            raise ValueError(f"Cannot measure {messages} messages of {size} bytes")
        env.require_compiler()
    try:
        nics = 1 if one else 2
        found = {
            "compiled": measure(width, messages, size, nics=nics),
            "cocotbext_axi": measure(width, messages, size, nics=nics, models=False),
        }
        if not one:
            found["one_nic"] = measure(width, messages, size, nics=1)
    except (env.BuildError, AssertionError) as error:
        raise click.ClickException(str(error)) from None
    ratios = compare(found["compiled"], found["cocotbext_axi"])
    facts: dict[str, Any] = {"width": width, "nics": nics, "messages": messages, "size": size}
    facts |= {name: speed.facts() for name, speed in found.items()} | ratios
    console.write_json(json_file, facts)
    if str(json_file) == "-":
        return
    table = Table(title=f"{messages} WRITEs of {console.octets(size)}, {width} bit")
    for head in ("models", "cycles", "seconds", "cycles/s", "bytes verified"):
        table.add_column(head, justify="left" if head == "models" else "right")
    number = "one NIC" if one else "two NICs"
    names = (f"{number}, compiled", f"{number}, cocotbext-axi", "one NIC, compiled")
    for name, speed in zip(names, found.values(), strict=not one):
        numbers = (f"{speed.cycles:,}", f"{speed.seconds:.2f}", f"{speed.rate:,.0f}")
        table.add_row(name, *numbers, f"{speed.bytes_verified:,}")
    console.out.print(table)
    console.out.print(
        f"Compiled against cocotbext-axi: {ratios['cycles_ratio']:.1f} times the cycles a second, "
        f"the same traffic in 1/{ratios['time_ratio']:.1f} of the time",
        highlight=False,
    )


def compare(compiled: Speed, other: Speed) -> dict[str, float]:
    """How many times as fast: cycles a second, and the time for the same traffic."""
    if compiled.bytes_verified != other.bytes_verified:
        raise AssertionError(f"Not the same traffic: {compiled} and {other}")
    return {
        "cycles_ratio": compiled.rate / other.rate,
        "time_ratio": other.seconds / compiled.seconds,
    }


def measure(width: int, messages: int, size: int, *, nics: int, models: bool = True) -> Speed:
    """Build, run, compare all bytes; BuildError or AssertionError with what went wrong."""
    from sim.bench import testbench
    from sim.bench.job import run_job

    what = f"{nics} NIC{'s' * (nics > 1)}, {'compiled models' if models else 'cocotbext-axi'}"
    with console.progress(f"Building {what}, {width} bits"):
        config = NicConfig(width=width)
        model = testbench.build(config=config, nics=nics, with_models=models, fast=nics > 1)
    with console.progress(f"Running {what}") as say:
        spec = {"width": width, "messages": messages, "size": size, "models": models}
        facts, _ = run_job(model, "sim.measure.simspeed.bench", spec, say, TIMEOUT_S)
    if facts["skipped"]:
        raise AssertionError(f"{facts['skipped']} cycles were left out of what was to be timed")
    return Speed(facts["cycles"], facts["seconds"], facts["bytes_verified"])
