"""What a library depends on, from its symbols and the symbols files of Debian's packages.

The same as dpkg-shlibdeps works out, for packages that are unpacked and not installed.

Spec: deb-symbols(5), dpkg-shlibdeps(1).
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sim.rtl.env import ToolError

__all__ = ["depends"]

_MINIMUM = "#MINVER#"
#: A line of objdump: address, flags, section, size, version, name.
_UNDEFINED = re.compile(
    r"^[0-9a-f]{16} (.{7}) \*UND\*\t[0-9a-f]{16}[ ]+(?:\(?([\w.]+)\)?[ ]+)?(\S+)$", re.MULTILINE
)


@dataclass
class _Library:
    """One of a symbols file. templates: dependencies by number. symbols: version and number."""

    templates: list[str]
    symbols: dict[str, tuple[str, int]] = field(default_factory=dict)


def depends(library: Path, packages: Iterable[Path]) -> str:
    """The field Depends for a package with a shared library.

    packages: folders with the control files of packages that it may depend on. Raises ToolError: a
    library or a symbol that none of them has.
    """
    known: dict[str, _Library] = {}
    for package in packages:
        known |= _libraries((package / "symbols").read_text())
    needed = re.findall(r"^\s+NEEDED\s+(\S+)$", _objdump("-p", library), re.MULTILINE)
    if strange := sorted(set(needed) - known.keys()):
        raise ToolError(f"{library.name} needs {strange[0]}, which is in none of the packages")
    wanted: dict[str, set[str]] = {}
    for soname in needed:
        wanted.setdefault(known[soname].templates[0], set())
    for symbol, weak in _undefined(library):
        owners = [known[soname] for soname in needed if symbol in known[soname].symbols]
        if owners:
            version, number = owners[0].symbols[symbol]
            wanted.setdefault(owners[0].templates[number], set()).add(version)
        elif not weak:
            raise ToolError(f"{library.name} needs {symbol}, which the release's libraries lack")
    return ", ".join(sorted(_filled(*one) for one in wanted.items()))


def _libraries(text: str) -> dict[str, _Library]:
    """The libraries of a symbols file, by their names for the loader."""
    found: dict[str, _Library] = {}
    library = _Library([])
    for line in text.splitlines():
        if line.startswith("| "):
            library.templates.append(line[2:].strip())
        elif line.startswith(" "):
            symbol, version, *number = line.split()
            library.symbols[symbol] = (version, int(number[0]) if number else 0)
        elif line and not line.startswith(("*", "#")):
            soname, _, template = line.partition(" ")
            library = found[soname] = _Library([template.strip()])
    return found


def _undefined(library: Path) -> list[tuple[str, bool]]:
    """Symbols with their versions that a library takes from others, and whether they are weak.

    A symbol without a version has the name of a base for one, as in symbols files.
    """
    return [
        (f"{name}@{version or 'Base'}", "w" in flags)
        for flags, version, name in _UNDEFINED.findall(_objdump("-T", library))
    ]


def _filled(template: str, versions: set[str]) -> str:
    """A dependency with the newest version that is asked for; a minimum of 0 is none."""
    newest = functools.reduce(_newer, versions, "0")
    minimum = "" if newest == "0" else f"(>= {newest})"
    return template.replace(_MINIMUM, minimum).strip()


def _newer(one: str, other: str) -> str:
    command = ["dpkg", "--compare-versions", one, "ge", other]
    return one if subprocess.run(command, check=False).returncode == 0 else other


def _objdump(option: str, library: Path) -> str:
    done = subprocess.run(
        ["env", "LC_ALL=C", "objdump", "-w", option, library],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ToolError(f"objdump {library.name}: {done.stderr.strip()}")
    return done.stdout
