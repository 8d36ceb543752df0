"""The rules of the house: who may import whom, how long a file is, what no file may name."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sim.rtl.env import REPO

SHARED = {"config", "ports", "wire", "abi", "common", "csr"}  # what every room may import
DATA = {"wire", "abi"}  # definitions only: serve gateware, firmware, driver, tests and documents
#: Room -> what it has of another one, as it is one engine for all kinds of queues.
LENT = {"network": ("hdl.queues.ring",)}
LINES = 120  # of a function, its ``elaborate`` included
ARGUMENTS = 7  # of a function
LONGEST = 450  # lines of a file under hdl/, firmware/ and sim/
TEXT = {".py", ".md", ".sv", ".v", ".cpp", ".hpp", ".h", ".toml", ".yml", ".yaml", ".sh", ""}
SKIPPED = {".git", ".venv", ".build", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def python_files(folder: str) -> list[Path]:
    return sorted((REPO / folder).rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(REPO).as_posix()


@cache
def _parse(path: Path) -> ast.Module:
    """The file's syntax tree; once more when CPython 3.11 miscounts its own recursion.

    ``SystemError: AST constructor recursion depth mismatch`` comes now and then when a garbage
    collection falls into the parser (python/cpython issue 106905).
    """
    try:
        return ast.parse(path.read_text(), str(path))
    except SystemError:
        return ast.parse(path.read_text(), str(path))


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """Line and full dotted name of everything a file imports, wherever in the file."""
    package = list(path.relative_to(REPO).with_suffix("").parts[:-1])
    found = []
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            names = [*base, *filter(None, [node.module])]
            found += [(node.lineno, ".".join([*names, alias.name])) for alias in node.names]
    return found


def breaches(path: Path, allowed) -> list[str]:
    """Return ``file:line imports name`` for every import which ``allowed`` refuses."""
    return [
        f"{name(path)}:{line} imports {module}"
        for line, module in imports(path)
        if not allowed(module)
    ]


def within(module: str, *packages: str) -> bool:
    """Tell whether ``module`` is one of ``packages`` or inside of one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("room", sorted(p.name for p in (REPO / "hdl").iterdir() if p.is_dir()))
def test_room_imports_nothing_sideways(room: str) -> None:
    """Rooms meet only in hdl/nic.py, but for what one lends another."""
    open_to = [*(f"hdl.{one}" for one in {*SHARED, room}), *LENT.get(room, ())]

    def allowed(module: str) -> bool:
        return not within(module, "hdl") or within(module, *open_to)

    assert not [one for path in python_files(f"hdl/{room}") for one in breaches(path, allowed)]


@pytest.mark.parametrize("room", sorted(p.name for p in (REPO / "hdl").iterdir() if p.is_dir()))
def test_each_state_says_what_happens_in_it(room: str) -> None:
    """A comment beside it begins with its name: "IDLE: takes a job; ends with it."."""
    silent = []
    for path in python_files(f"hdl/{room}"):
        lines = [line.strip() for line in path.read_text().splitlines()]
        for number, line in enumerate(lines):
            if state := re.match(r'with m\.State\("([\w-]+)"\)', line):
                above = itertools.takewhile(lambda one: one[:1] == "#", reversed(lines[:number]))
                below = itertools.takewhile(lambda one: one[:1] == "#", lines[number + 1 :])
                told = f"# {state[1]}:"
                if not any(one.startswith(told) for one in (*above, *below)):
                    silent.append(f"{name(path)}:{number + 1} {state[1]}")
    assert not silent


@pytest.mark.parametrize("room", sorted({p.parent.parent.name for p in REPO.glob("hdl/*/*/*.py")}))
def test_folders_of_a_room_have_an_order(room: str) -> None:
    """What a folder imports of the others of its room does not import it, nor does the room's own
    top level come below them."""
    below: dict[str, set[str]] = {}
    for path in python_files(f"hdl/{room}"):
        folder = path.relative_to(REPO / "hdl" / room).parts[:-1]
        parts = [module.split(".") for _line, module in imports(path)]
        inside = [one for one in parts if one[:2] == ["hdl", room] and len(one) > 2]
        folders = {one[2] if (REPO / "hdl" / room / one[2]).is_dir() else "" for one in inside}
        mine = folder[0] if folder else ""
        below.setdefault(mine, set()).update(folders - {mine})
    while leaves := {one for one, others in below.items() if not others & below.keys()}:
        below = {one: others for one, others in below.items() if one not in leaves}
    assert not below, f"These import each other: {below}"


@pytest.mark.parametrize("room", sorted(DATA))
def test_definitions_are_plain_data(room: str) -> None:
    """hdl/wire and hdl/abi: of Amaranth the shapes at most, of the house themselves.

    A file ``gateware.py`` may hold their view for gateware; nothing else there depends on it.
    """

    def allowed(module: str) -> bool:
        if within(module, "amaranth"):
            return within(module, "amaranth.lib.data", "amaranth.lib.enum", "amaranth.hdl.unsigned")
        if within(module, *(f"hdl.{one}.gateware" for one in DATA)):
            return False
        return not within(module, "hdl") or within(
            module, "hdl.config", *(f"hdl.{one}" for one in DATA)
        )

    plain = [path for path in python_files(f"hdl/{room}") if path.name != "gateware.py"]
    assert not [one for path in plain for one in breaches(path, allowed)]


def test_gateware_knows_no_user_of_it() -> None:
    def allowed(module: str) -> bool:
        return not within(module, "sim", "firmware", "tests", "boards", "cocotb")

    assert not [one for path in python_files("hdl") for one in breaches(path, allowed)]


def test_firmware_runs_without_gateware_and_simulation() -> None:
    """It runs on a card's processor or in a daemon: definitions only, nothing simulated."""

    def allowed(module: str) -> bool:
        if within(module, "hdl"):
            plain = ("abi", "wire", "csr", "ports", "config", "bounds")
            return within(module, *(f"hdl.{one}" for one in plain))
        return not within(module, "sim", "tests", "amaranth", "cocotb")

    assert not [one for path in python_files("firmware") for one in breaches(path, allowed)]


#: What every command needs to build a model, to run it and to speak with it.
RUNS = {"bench", "rtl", "models", "guest", "wire"}

#: Folders of sim/, and which of the others each may import. The order is from the bottom up.
SIM = {
    "guest": set(),
    "wire": set(),
    "models": {"guest"},
    "rtl": {"models"},
    "bench": RUNS - {"bench"},
    "tools": {"rtl", "models"},  # what commands share; the command line names them, as text
    "make": {"tools", "rtl"},  # never simulates
    "review": {"tools", "make", "rtl"},  # reads what is recorded
    "campaign": {"tools", *RUNS},
    "replay": {"tools", *RUNS},
    "measure": {"tools", "replay", *RUNS},
    "explore": {"tools", "make", "campaign", "measure", *RUNS},
    "endpoint": {"tools", *RUNS},
    "host": {"tools", "endpoint", *RUNS},
    "interop": {"tools", "endpoint", *RUNS},
    "machine": {"tools", "make", "endpoint", "interop", *RUNS},
    "programs": {"tools", "endpoint", "machine", *RUNS},
    "board": {"tools", "make", "endpoint", *RUNS},
}


def test_sim_has_exactly_the_folders_of_its_plan() -> None:
    assert {path.parent.name for path in (REPO / "sim").glob("*/*.py")} == set(SIM)


def test_plan_of_sim_is_from_the_bottom_up() -> None:
    """A folder may import only what stands above it in the table: so there is no circle."""
    order = list(SIM)
    assert not {
        (folder, used)
        for folder in order
        for used in SIM[folder]
        if order.index(used) >= order.index(folder)
    }


@pytest.mark.parametrize("folder", list(SIM))
def test_arrows_in_sim_point_one_way(folder: str) -> None:
    open_to = [f"sim.{one}" for one in {*SIM[folder], folder}]

    def allowed(module: str) -> bool:
        return not within(module, "sim") or within(module, *open_to)

    assert not [one for path in python_files(f"sim/{folder}") for one in breaches(path, allowed)]


@pytest.mark.parametrize("folder", ["hdl", "firmware", "boards", *(f"sim/{one}" for one in SIM)])
def test_files_import_in_no_circle(folder: str) -> None:
    """Imports for the type checker count: a circle of types is a circle for a reader."""
    files = {
        name(path).removesuffix(".py").replace("/", "."): path
        for path in python_files(folder)
        if path.name != "__init__.py"
    }
    uses = {
        file: {one for one in files for _, module in imports(path) if within(module, one)}
        for file, path in files.items()
    }
    assert not circles(uses)


def circles(uses: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left of ``uses`` when all that uses nothing more is taken away, again and again."""
    while done := {one for one, used in uses.items() if not used & uses.keys()}:
        uses = {one: used for one, used in uses.items() if one not in done}
    return uses


def parents() -> list[str]:
    """Every folder of Python code with two folders of it inside; "" is the repository."""
    tops = ("hdl", "firmware", "boards", "sim", "tests")
    packages = {name(path.parent) for top in tops for path in python_files(top)}
    above = Counter(package.rpartition("/")[0] for package in packages)
    return sorted(folder for folder, inside in above.items() if inside > 1)


@pytest.mark.parametrize("parent", parents())
def test_rooms_import_in_no_circle(parent: str) -> None:
    """Folders side by side: if one uses another, nothing in that one leads back to it.

    What the parent's own files import does not count: they join the rooms. Numbers of the wire and
    of the driver's interface describe one another, and count as one room; their files are in no
    circle.
    """
    prefix = parent.replace("/", ".") + "." * bool(parent)
    rooms = [path.name for path in (REPO / parent).iterdir() if (path / "__init__.py").is_file()]
    uses: dict[str, set[str]] = defaultdict(set)
    for room in rooms:
        for path in python_files(f"{parent}/{room}".lstrip("/")):
            for _, module in imports(path):
                uses[_one(parent, room)] |= {
                    _one(parent, other) for other in rooms if within(module, prefix + other)
                }
    assert not circles({room: used - {room} for room, used in uses.items()})


def _one(parent: str, room: str) -> str:
    return "data" if parent == "hdl" and room in DATA else room


def test_product_code_replaces_nothing_behind_its_back() -> None:
    """What can be replaced has an interface for it; patches are for tests."""

    def allowed(module: str) -> bool:
        return not within(module, "unittest.mock", "mock")

    product = [path for folder in ("hdl", "firmware", "sim") for path in python_files(folder)]
    assert not [one for path in product for one in breaches(path, allowed)]


def test_guest_knows_definitions_only() -> None:
    """Driver and verbs run on any platform: they know what a guest's kernel would know."""

    def allowed(module: str) -> bool:
        if within(module, "hdl"):
            plain = ("hdl.abi", "hdl.csr", "hdl.ports.counter_names", "hdl.bridge.protocol")
            return within(module, *plain)
        return not within(module, "firmware", "tests", "amaranth", "cocotb")

    assert not [one for path in python_files("sim/guest") for one in breaches(path, allowed)]


@pytest.mark.parametrize("folder", ["hdl", "firmware", "sim"])
def test_files_are_short(folder: str) -> None:
    long = {
        name(path): lines
        for path in (REPO / folder).rglob("*")
        if path.suffix in (".py", ".sv", ".v", ".cpp", ".hpp")
        and (lines := len(path.read_text().splitlines())) > LONGEST
    }
    assert not long


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file, methods and inner ones too."""
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many arguments a caller may give; ``self`` is not one of them."""
    given = function.args.posonlyargs + function.args.args
    return (
        len(given)
        - (bool(given) and given[0].arg in ("self", "cls"))
        + len(function.args.kwonlyargs)
    )


@pytest.mark.parametrize("folder", ["hdl", "firmware", "sim"])
def test_functions_are_short(folder: str) -> None:
    """At most ``LINES`` lines and ``ARGUMENTS`` arguments."""
    long = {
        f"{name(path)}:{function.name}"
        for path in python_files(folder)
        for function in functions(path)
        if function.end_lineno - function.lineno + 1 > LINES or arguments(function) > ARGUMENTS
    }
    assert long == set(), "too long, or too many arguments"


def project_files() -> list[Path]:
    """All text files of the project: those git knows or would add, or all if there is no git."""
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        paths = [REPO / line for line in done.stdout.splitlines()]
    else:
        paths = [path for path in REPO.rglob("*") if not SKIPPED & set(path.parts)]
    return [path for path in paths if path.is_file() and path.suffix in TEXT]


def test_no_file_names_a_place_outside() -> None:
    """A path of one person's machine, or of what is not in the repository, helps nobody."""
    places = re.compile(r"(?<![\w.])/(home|root|Users|work)/\w|\.\./" + "shared")
    found = [
        f"{name(path)}:{number}: {line.strip()[:80]}"
        for path in project_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if places.search(line)
    ]
    assert not found
