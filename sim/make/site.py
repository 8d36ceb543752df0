"""``./rocinante docs``: the documentation as a site; mkdocs reads this file for its hooks too.

The hooks add what lies outside of docs/: README.md and CHANGELOG.md become pages; the examples and
PeakRDL's pages of the registers become files of the site, so that links to all of them are checked.
Tables that follow from definitions are made here, and stand in no file.
Mermaid, which draws the diagrams, becomes a file of the site too: the theme would load it from a
network.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import logging
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import click

from sim.make.registers import compile_rdl, described, write_html, write_rdl
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["MERMAID", "build", "docs", "mermaid", "on_files", "on_page_markdown"]

CONFIG = env.FILES / "mkdocs.yml"
#: Files outside of docs/ that become pages, with the names that the site gives them.
PAGES = {"README.md": "overview.md", "CHANGELOG.md": "changelog.md"}
#: Other files that pages link to; the site gets a copy.
COPIED = (
    "LICENSE",
    *sorted(
        path.relative_to(env.FILES).as_posix()
        for path in (env.FILES / "examples").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ),
)
REGISTERS = "registers"
#: The script that draws the diagrams, where mkdocs.yml names it.
MERMAID = "assets/javascripts/mermaid.js"
#: The package of it as npm has it; docs/toolchain.md says how to take another version.
_PACKAGE = Path(__file__).with_name("mermaid.tgz")
_PACKAGE_NAME = "@mermaid-js/tiny 11.16.0"
#: The package's hash, as npm writes it.
_INTEGRITY = "sha512-" + (
    "57cNG6Rip/Fz32YEHcoUV2XDyGyEWjnpQdU4F0PjOxGXfH8Qp5NdNwA1O6wx1FOlREPYp/Z61TNwu+dLsy54WQ=="
)

#: In a page: the tables that a module has for it (``tables``) come here.
_TABLES = re.compile(r"^<!-- tables: ([\w.]+) -->$", re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)\s#]+)")


def mermaid(package: Path = _PACKAGE) -> bytes:
    """The script out of npm's package. Raises ValueError when it is not the pinned package."""
    digest = hashlib.sha512(package.read_bytes()).digest()
    if f"sha512-{base64.b64encode(digest).decode()}" != _INTEGRITY:
        raise ValueError(f"{package.name} is not {_PACKAGE_NAME}: its hash differs")
    with tarfile.open(package) as archive:
        script = archive.extractfile("package/dist/mermaid.tiny.js")
        assert script is not None
        return script.read()


def on_files(files: Any, config: Any) -> Any:
    """Hook of mkdocs: add the pages and files that do not lie in docs/."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        text = (env.FILES / source).read_text()
        files.append(File.generated(config, page, content=text))
    for name in COPIED:
        files.append(File.generated(config, name, content=(env.FILES / name).read_text()))
    files.append(File.generated(config, MERMAID, content=mermaid()))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_rdl(folder / "map.rdl", described())
        write_html(compile_rdl(folder / "map.rdl"), folder / REGISTERS, home="../index.html")
        for path in sorted((folder / REGISTERS).rglob("*")):
            if path.is_file():
                name = path.relative_to(folder).as_posix()
                files.append(File.generated(config, name, content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, **_more: Any) -> str:
    """Hook of mkdocs: links between docs/ and the repository's root become links of the site, and
    pages get the tables that are made from definitions."""
    sources = {page: source for source, page in PAGES.items()}
    folder = env.FILES if page.file.src_uri in sources else env.FILES / "docs"

    def place(link: re.Match[str]) -> str:
        target = link[2]
        if "://" in target:
            return link[0]
        path = (folder / target).resolve()
        for name in (*PAGES, *COPIED):
            if path == env.FILES / name:
                return link[1] + PAGES.get(name, name)
        if path.is_relative_to(env.FILES / "docs"):
            return link[1] + path.relative_to(env.FILES / "docs").as_posix()
        return link[0]  # mkdocs finds it, or warns

    return _LINK.sub(place, _TABLES.sub(_tables, markdown))


def _tables(place: re.Match[str]) -> str:
    found: str = importlib.import_module(place[1]).tables()
    return found.rstrip()


def build(folder: Path, settings: Path = CONFIG) -> None:
    """Build the site that the file ``settings`` describes into ``folder``.

    Errors: mkdocs's ``Abort`` when a link, an anchor or a page of the navigation does not exist.
    """
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    # An installation has this file elsewhere than the settings say.
    config = load_config(str(settings), site_dir=str(folder), hooks=[__file__])
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build_site(config)
    finally:
        config.plugins.on_shutdown()


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of the site; default: site in the folder of all that is built.",
)
def docs(output: Path | None) -> None:
    """Build the documentation as a site and check its links."""
    from mkdocs.exceptions import MkDocsException

    folder = (output or env.build_root() / "site").absolute()
    with console.stops():
        outputs.require_folder(folder)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        with console.progress("Building the site"):
            build(folder)
    except MkDocsException as error:
        raise click.ClickException(str(error)) from None
    click.echo(folder / "index.html")
