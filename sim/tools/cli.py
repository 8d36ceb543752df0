"""The command line: ``./rocinante COMMAND``, or ``rocinante`` inside the environment.

Modules that take time to import are imported by the command that needs them.
"""

from __future__ import annotations

import dataclasses
import errno
import importlib
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from hdl.bounds import WORD, within
from hdl.config import NicConfig
from sim.rtl import env
from sim.tools import console, outputs


class _Later(click.Command):
    """A command of another module, imported when it is called and not before."""

    def __init__(self, name: str, module: str, text: str) -> None:
        super().__init__(name, help=text)
        self._module = module

    def make_context(
        self, info_name: str | None, args: list[str], *more: Any, **extra: Any
    ) -> click.Context:
        try:
            module = importlib.import_module(self._module)
        except ModuleNotFoundError as error:
            if error.name != self._module:
                raise
            raise console.UsageStop(f"This checkout has no {self.name} yet") from None
        command = getattr(module, str(self.name))
        return command.make_context(info_name, args, *more, **extra)


class _Commands(click.Group):
    """The commands. A wrong argument, and what a command cannot write, ends it with one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with outputs.written():
                return super().invoke(ctx)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise console.UsageStop(error.format_message()) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(env.package_version("rocinante"), prog_name="rocinante")
def rocinante() -> None:
    """Rocinante, an RDMA NIC: generate it, simulate it, test it."""


@rocinante.command()
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
        for name, value in values.items():
            table.add_row(name, str(value))
        console.out.print(table)


@rocinante.command(context_settings={"ignore_unknown_options": True})
@click.option("--slow", is_flag=True, help="Run the slow tests as well.")
@console.waves_option
@click.option("--seed", metavar="N|random", help="Seed of all random tests; default 1.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST ARGUMENTS]...")
def test(slow: bool, waves: bool, seed: str | None, arguments: tuple[str, ...]) -> None:
    """Run the test suite, or the part that further arguments (pytest's own) choose.

    Paths are relative to the repository: ./rocinante test tests/egress -k lengths
    """
    with console.stops():
        env.require_compiler()
        if waves:
            env.require_waves()
        environment = {**os.environ, **_test_environment(seed, waves)}
    command = [sys.executable, "-m", "pytest", *_workers(arguments), *(["--slow"] * slow)]
    if seed is not None:
        command += [f"--hypothesis-seed={environment['COCOTB_RANDOM_SEED']}"]
    sys.exit(subprocess.call([*command, *arguments], cwd=env.REPO, env=environment))


@rocinante.command()
@console.width_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=console.writable,
)
def rtl(width: int, output: Path | None) -> None:
    """Generate the Verilog of the whole NIC; prints the file's name.

    The file of -o holds the hand-written modules too; without -o all files are named.
    """
    from sim.rtl.verilog import Rtl, sources

    with console.stops():
        piece = Rtl("hdl.nic:Nic", {"config": NicConfig(width=width)}, name="nic")
    try:
        with console.progress(f"Generating the NIC at {width} bits"):
            paths = sources(piece)
    except env.BuildError as error:
        raise click.ClickException(str(error)) from None
    if output is not None:
        outputs.write_text(output, "\n".join(path.read_text() for path in paths))
        paths = [output]
    click.echo("\n".join(map(str, paths)))


@rocinante.command()
def clean() -> None:
    """Remove all that was built (the environment stays)."""
    shutil.rmtree(env.build_root(), ignore_errors=True)


#: The larger commands: name, module that holds it, help.
_COMMANDS = (
    ("demo", "sim.measure.demo.command", "Run two simulated NICs against each other."),
    ("replay", "sim.replay.command", "Put a card in the place of a machine of a capture."),
    ("perf", "sim.measure.perf.command", "Measure bandwidth, message rate and latency."),
    ("commands", "sim.measure.commands.command", "Measure how fast control commands are."),
    ("figures", "sim.measure.perf.table", "Measure the recorded figures again and compare."),
    ("campaign", "sim.campaign.command", "Play thousands of random scenarios, on a cluster."),
    (
        "coverage",
        "sim.measure.coverage",
        "What the simulations of the tests have seen and have not.",
    ),
    ("simspeed", "sim.measure.simspeed.command", "Measure how fast the simulation itself is."),
    ("synth", "sim.make.synth.command", "Measure what the gateware costs."),
    ("verilog", "sim.make.core.command", "Write the NIC as a core for a design of your own."),
    ("build", "sim.make.build.command", "Write what makes a bitstream for a board."),
    ("header", "sim.make.header", "Write the C header of the ABI for drivers, virtio_rdma.h."),
    ("registers", "sim.make.registers", "Write the registers as SystemRDL, C header and HTML."),
    ("docs", "sim.make.site", "Build the documentation as a site."),
    ("endpoint", "sim.endpoint.command", "Put one simulated NIC at any program's command."),
    ("bridge", "sim.board.bridge.command", "Put a board behind a UART at any program's command."),
    ("board", "sim.board.command", "Run a whole board in the simulation."),
    ("firmware", "sim.tools.firmware", "Serve the control queues of a card through its BAR."),
    ("trace", "sim.tools.trace", "Record the headers of the frames of a running card."),
    ("package", "sim.make.package", "Build the firmware's Debian package."),
    ("interop", "sim.interop.command", "Let a Linux guest and the simulated NIC talk."),
    ("prove", "tests.proofs.catalogue", "Prove properties of small components."),
    ("faults", "tests.faults", "Break the gateware: do tests notice?"),
)
for _name, _place, _help in _COMMANDS:
    rocinante.add_command(_Later(_name, _place, _help))


def _workers(arguments: tuple[str, ...]) -> list[str]:
    """Two test processes, unless the arguments say how many or name a single test."""
    if any(argument.startswith("-n") for argument in arguments):
        return []
    single = len(arguments) == 1 and "::" in arguments[0]
    return [] if single else ["-n", "2", "--dist", "worksteal"]


def _test_environment(seed: str | None, waves: bool) -> dict[str, str]:
    settings: dict[str, str] = {}
    if seed is not None:
        number = str(secrets.randbelow(2**31)) if seed == "random" else seed
        if not number.isdigit():
            raise ValueError(f"--seed must be a number or 'random', not {seed!r}")
        within("--seed", int(number), 0, WORD - 1)
        console.err.print(f"Seed: {number}", highlight=False)
        settings["COCOTB_RANDOM_SEED"] = number
    if waves:
        settings["ROCINANTE_WAVES"] = "1"
    return settings


def main() -> Any:
    """Run the command line (the console script's entry)."""
    try:
        return rocinante(prog_name="rocinante")
    finally:
        _end_of_output()


def _end_of_output() -> None:
    """Write what standard output still holds; if that cannot be, say so and end with status 1."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own flush
        if error.errno != errno.EPIPE:  # whoever read it has gone on purpose
            print(f"Error: standard output: {error.strerror}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
