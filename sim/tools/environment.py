"""``./rocinante info`` and ``clean``: what this checkout builds with, and what it has built."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import click
from rich.table import Table

from hdl.config import NicConfig
from hdl.csr.texts import config_texts
from sim.rtl import env
from sim.tools import console

__all__ = ["clean", "info", "meanings"]


def meanings() -> dict[str, str]:
    """What each field of ``NicConfig`` means: the first sentence of what stands beside it."""
    fields = {field.name for field in dataclasses.fields(NicConfig)}
    return {
        name: text.partition(". ")[0].replace("``", "")
        for name, text in config_texts().items()
        if name in fields
    }


@click.command()
@console.card_options
@console.json_option
def info(profile: str | None, config: NicConfig, json_file: Path | None) -> None:
    """Show the configuration of a card, the ABI versions and the tool versions."""
    from hdl.abi import ABI_VERSION

    facts = {
        "configuration": dataclasses.asdict(config),
        "abi": {"virtio-rdma": ABI_VERSION},
        "tools": env.tool_versions(),
    }
    console.write_json(json_file, facts)
    if str(json_file) == "-":
        return
    of = {"configuration": f"configuration of the profile {profile}"} if profile else {}
    for title, values in facts.items():
        table = Table(
            title=of.get(title, title), title_justify="left", show_header=False, min_width=40
        )
        words = meanings() if title == "configuration" else {}
        for name, value in values.items():
            table.add_row(name, str(value), *([words[name]] if words else []))
        console.out.print(table)


@click.command()
def clean() -> None:
    """Remove all that was built (the environment stays)."""
    shutil.rmtree(env.build_root(), ignore_errors=True)
