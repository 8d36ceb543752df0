"""``./rocinante verilog``: writes the NIC as a core, with all that another design needs of it."""

from __future__ import annotations

import dataclasses
import re
import warnings
from pathlib import Path

import click
from amaranth.hdl import UnusedElaboratable

from hdl.axi_nic import AxiNic
from hdl.common.constraints import clock_paths, sdc, xdc
from sim.make.core import wrapper
from sim.make.core.keywords import KEYWORDS
from sim.make.core.settings import CoreSettings, read_settings
from sim.rtl.env import BuildError
from sim.rtl.verilog import Rtl, module_ports, sources
from sim.tools import console, outputs
from sim.tools.checkout import commit

__all__ = ["verilog", "write_core"]

_PACKAGE = """\
# Packages {name} as an IP core for AMD Vivado: vivado -mode batch -source package.tcl
# The buses, clocks and resets follow from the attributes of the ports.
set here [file dirname [file normalize [info script]]]
create_project -in_memory -force package_{name}
add_files -norecurse [file join $here {name}.sv]
add_files -norecurse -fileset constrs_1 [file join $here {name}.xdc]
set_property USED_IN {{implementation}} [get_files {name}.xdc]
set_property PROCESSING_ORDER LATE [get_files {name}.xdc]
set_property top {name} [current_fileset]
ipx::package_project -root_dir [file join $here ip] -vendor rocinante -library nic \\
    -taxonomy /Communication_&_Networking -import_files -force
set core [ipx::current_core]
set_property name {name} $core
set_property display_name "Rocinante RDMA NIC" $core
set_property description "RoCE v2, {width} bits, AXI on both sides" $core
set_property supported_families {{virtexuplus Beta zynquplus Beta virtexuplusHBM Beta}} $core
ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::check_integrity $core
ipx::save_core $core
"""
_NO_PATHS = "# The core has one clock: none of its paths needs a constraint of its own.\n"


def write_core(settings: CoreSettings, folder: Path, name: str) -> list[Path]:
    """Write all files of a core into ``folder``; returns their names.

    Raises BuildError when the gateware does not elaborate.
    """
    parameters, clocks = settings.parameters(), settings.clocks()
    paths = sources(Rtl(AxiNic, parameters, name=f"{name}_core"))
    text = "\n".join(path.read_text() for path in paths)
    if re.search(rf"^\s*module\s+\\?{name}\b", text, re.MULTILINE):
        raise BuildError(f"A module inside of the core is called {name} already")
    ports = wrapper.core_ports(module_ports(text, f"{name}_core"))
    crossings = clock_paths(AxiNic(**parameters))
    contents = (
        wrapper.source(name, ports, clocks, text),
        wrapper.template(name, ports),
        wrapper.port_list(name, ports, clocks),
        xdc(crossings, clocks) if crossings else _NO_PATHS,
        sdc(crossings, clocks) if crossings else _NO_PATHS,
        _PACKAGE.format(name=name, width=settings.config.width),
    )
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / file for file in _files(name)]
    for path, content in zip(paths, contents, strict=True):
        outputs.write_text(path, content)
    return paths


def _files(name: str) -> tuple[str, ...]:
    """The names of a core's files."""
    own = (f"{name}.sv", f"{name}_template.sv", "ports.md", f"{name}.xdc", f"{name}.sdc")
    return (*own, "package.tcl")


def _identifier(_context: click.Context, _option: click.Parameter, text: str) -> str:
    """A callback: refuses what is no plain Verilog name, or a word of the language."""
    if not (text.isidentifier() and text.isascii()) or text in KEYWORDS:
        raise click.BadParameter(f"{text!r} is no name of a Verilog module")
    return text


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="TOML: fields of NicConfig, and a table [core].",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="DIR",
    help="Where the files go; it is made if it is not there.",
)
@click.option(
    "--name", default="rocinante", show_default=True, callback=_identifier, help="Of the module."
)
def verilog(file: Path, output: Path, name: str) -> None:
    """Write the NIC with AXI ports as a core for a design of your own.

    One Verilog file, a list of its ports, a template, timing constraints (XDC and SDC) and a script
    that packages it for Vivado. docs/core.md explains them.
    """
    # A core is made here for its settings and its clocks; another process elaborates it.
    warnings.simplefilter("ignore", UnusedElaboratable)
    with console.stops():
        settings = read_settings(file)
        try:
            AxiNic(**settings.parameters())
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        outputs.require_folder(output, _files(name))
    try:
        with console.progress(f"Generating the core at {settings.config.width} bits") as show:
            show("elaborating the gateware, which takes a minute or two at 512 bits")
            config = settings.config
            if not config.commit:
                config = dataclasses.replace(config, commit=commit())
            paths = write_core(dataclasses.replace(settings, config=config), output, name)
    except BuildError as error:
        raise click.ClickException(str(error)) from None
    click.echo("\n".join(map(str, paths)))
