"""The kernel module and the provider, compiled for a guest, by their own Makefiles."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from sim.rtl.env import REPO, ToolError
from sim.rtl.verilog import digest

__all__ = [
    "LOADER",
    "SOURCES",
    "build_module",
    "build_provider",
    "has",
    "source_key",
    "unpack_source",
]

#: Sources of both, if they are there; each folder has a Makefile.
SOURCES = REPO / "sim/guest/linux"
LOADER = "ld-linux-x86-64.so.2"
_ERROR_LINES = 3


def has(part: str) -> bool:
    """Whether there are sources of a part, kernel or provider."""
    return (SOURCES / part / "Makefile").exists()


def source_key() -> str:
    """Known by the contents of the sources and of what generates their header."""
    files = [*_files(SOURCES), *_files(REPO / "hdl/abi")]
    return digest(*(part for path in files for part in (path.name, path.read_bytes())))


def build_module(headers: Path, kernel: str, work: Path) -> Path:
    """The module for a kernel whose header packages were unpacked in ``headers``."""
    _wrap_programs(headers)
    tree = headers / f"usr/src/linux-headers-{kernel}"
    if not tree.is_dir():
        raise ToolError(f"The packages of the kernel's headers have no {tree.name}")
    _complete(headers, tree)
    _make("kernel", f"KDIR={tree}", f"O={work}", "CC=gcc", *_left_out())
    module = _made(work / "rocinante.ko")
    subprocess.run(["strip", "--strip-debug", str(module)], check=True)
    return module


def build_provider(source: Path, libraries: Path, work: Path, *settings: str) -> list[Path]:
    """The provider and the file that names it to libibverbs.

    source: of rdma-core. libraries: a folder with the guest's libibverbs.so.1. settings: more
    variables for make.
    """
    _make("provider", f"RDMA_CORE={source}", f"LIBS={libraries}", f"O={work}", *settings)
    return [_made(work / name) for name in ("librocinante-rdmav34.so", "rocinante.driver")]


def unpack_source(archive: Path, target: Path) -> Path:
    """The folder of a source package's upstream archive."""
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    (folder,) = [path for path in target.iterdir() if path.is_dir()]
    return folder


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc")


def _left_out() -> list[str]:
    """What a kernel's configuration asks for that a module does without: a table of its types,
    which needs one more program, and what this machine's compiler may not know."""
    settings = ["CONFIG_DEBUG_INFO_BTF_MODULES="]
    known = ["gcc", "-fmin-function-alignment=16", "-E", "-x", "c", os.devnull]
    if subprocess.run(known, capture_output=True, check=False).returncode:
        settings.append("CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=")
    return settings


def _wrap_programs(headers: Path) -> None:
    """Let programs of the kernel's build run with the libraries of their own release.

    They may be newer than this machine's.
    """
    loader = headers / "usr/lib64" / LOADER
    if not loader.exists():
        loader = headers / "lib64" / LOADER
    paths = [headers / f"{top}lib/x86_64-linux-gnu" for top in ("", "usr/")]
    for path in sorted(headers.glob("usr/lib/linux-kbuild-*/**/*")):
        own = path.with_name(f"{path.name}.packaged")
        if path.suffix == ".packaged" or own.exists() or not _is_program(path):
            continue
        path.rename(own)
        path.write_text(
            "#!/bin/sh\n"
            f'exec "{loader}" --argv0 "$0" --library-path "{paths[0]}:{paths[1]}" "{own}" "$@"\n'
        )
        path.chmod(0o755)


def _is_program(path: Path) -> bool:
    if path.is_symlink() or not path.is_file() or not path.stat().st_mode & 0o100:
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _complete(headers: Path, tree: Path) -> None:
    """Let the headers' links and Makefile name what was unpacked beside them."""
    for path in tree.iterdir():
        target = Path(os.readlink(path)) if path.is_symlink() else Path()
        if target.is_absolute():
            path.unlink()
            path.symlink_to(headers / target.relative_to("/"))
    makefile = tree / "Makefile"
    text = makefile.read_text()
    makefile.write_text(text.replace("include /usr/src/", f"include {headers}/usr/src/"))


def _make(part: str, *settings: str) -> None:
    for tool, package in (("make", "make"), ("gcc", "gcc")):
        if shutil.which(tool) is None:
            raise ToolError(f"{tool} not found: apt-get install {package}")
    done = subprocess.run(
        ["make", "-C", str(SOURCES / part), f"PYTHON={sys.executable}", *settings],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "PYTHONPATH": str(REPO)},
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "rror" in line] or [done.stderr]
        raise ToolError(
            f"The guest's {part} part does not compile: " + "\n".join(lines[:_ERROR_LINES])
        )


def _made(path: Path) -> Path:
    if not path.exists():
        raise ToolError(f"The guest's Makefiles have not made {path.name}")
    return path
