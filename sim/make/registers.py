"""``./rocinante registers``: the register map as SystemRDL, C header and HTML pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from hdl.config import NicConfig
from hdl.csr.rdl import TOP, system_rdl
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["compile_rdl", "described", "registers", "write_header", "write_html", "write_rdl"]

#: The exporter's pages load MathJax from a network and call it for each register. No description
#: here has a formula, so an empty one stands in.
_MATHJAX = re.compile(r"<script async[^>]*MathJax\.js.*?</script>.*?</script>", re.DOTALL)
_NO_MATHJAX = "<script>var MathJax = {Hub: {Queue: function () {}}};</script>"


def described(width: int = 512) -> NicConfig:
    """The configuration whose registers are shown: the default one, with all blocks."""
    return NicConfig(width=width, trace_frames=256, latency=True, parity=True)


def write_rdl(path: Path, config: NicConfig | None = None) -> None:
    """Write the SystemRDL of ``config`` to ``path``."""
    outputs.write_text(path, system_rdl(config))


def compile_rdl(path: Path) -> Any:
    """Compile a SystemRDL file; returns the root of systemrdl-compiler's tree.

    Errors: ``systemrdl.RDLCompileError``; the compiler prints line and reason.
    """
    from systemrdl import RDLCompiler

    compiler = RDLCompiler()
    compiler.compile_file(str(path))
    return compiler.elaborate()


def write_header(root: Any, path: Path) -> None:
    """Write the C header: one packed struct for each block; position, width and mask of fields."""
    from peakrdl_cheader.exporter import CHeaderExporter

    CHeaderExporter().export(root.top, str(path))


def write_html(root: Any, folder: Path, home: str | None = None) -> None:
    """Write the pages into ``folder``; ``home`` is the address that their home button opens."""
    from peakrdl_html import HTMLExporter

    more = {"home_url": home} if home else {}
    HTMLExporter().export(root, str(folder), title="Registers", footer="Rocinante", **more)
    index = folder / "index.html"
    index.write_text(_MATHJAX.sub(_NO_MATHJAX, index.read_text()))


@click.command()
@console.width_option
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the files; default: registers in the folder of all that is built.",
)
def registers(width: int, output: Path | None) -> None:
    """Write the register map as SystemRDL, as a C header and as HTML pages."""
    with console.stops():
        config = described(width)
        folder = output or env.build_root() / "registers"
        outputs.require_folder(folder, (f"{TOP}.rdl", f"{TOP}.h"))
    folder.mkdir(parents=True, exist_ok=True)
    rdl, header, pages = folder / f"{TOP}.rdl", folder / f"{TOP}.h", folder / "html"
    write_rdl(rdl, config)
    root = compile_rdl(rdl)
    write_header(root, header)
    write_html(root, pages)
    for path in (rdl, header, pages / "index.html"):
        click.echo(path)
