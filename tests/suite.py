"""``./rocinante test``: the test suite, by pytest."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys

import click
import pytest

from hdl.bounds import WORD, within
from sim.rtl import env, reached
from sim.tools import console
from sim.tools.checkout import copy_work_tree

__all__ = ["test"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--slow", is_flag=True, help="Run the slow tests as well.")
@console.waves_option
@click.option(
    "--code-coverage",
    "code",
    is_flag=True,
    help="Count the branches entered, for `coverage --code`; contracts rest.",
)
@click.option("--seed", metavar="N|random", help="Seed of all random tests; default 1.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST ARGUMENTS]...")
def test(slow: bool, waves: bool, code: bool, seed: str | None, arguments: tuple[str, ...]) -> None:
    """Run the test suite, or the part that further arguments (pytest's own) choose.

    Paths are relative to the repository: ./rocinante test tests/ingress -k groups
    """
    with console.stops():
        env.require_compiler()
        if waves:
            env.require_waves()
        environment = {**os.environ, **_test_environment(seed, waves, code)}
    command = [sys.executable, "-m", "pytest", *_workers(arguments), *(["--slow"] * slow)]
    if seed is not None:
        command += [f"--hypothesis-seed={environment['COCOTB_RANDOM_SEED']}"]
    folder = env.REPO
    if not env.CHECKOUT:
        folder = env.build_root() / "checkout"
        shutil.rmtree(folder, ignore_errors=True)
        copy_work_tree(folder)
    status = subprocess.call([*command, *arguments], cwd=folder, env=environment)
    if status == pytest.ExitCode.NO_TESTS_COLLECTED:
        console.err.print("Error: no test is chosen by these arguments", style="red")
    sys.exit(status)


def _workers(arguments: tuple[str, ...]) -> list[str]:
    """Two test processes, unless the arguments say how many or name a single test."""
    if any(argument.startswith("-n") for argument in arguments):
        return []
    single = len(arguments) == 1 and "::" in arguments[0]
    return [] if single else ["-n", "2", "--dist", "worksteal"]


def _test_environment(seed: str | None, waves: bool, code: bool) -> dict[str, str]:
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
    if code:
        settings[reached.SETTING] = "1"
    return settings
