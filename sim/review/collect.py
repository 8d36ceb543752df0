"""The facts of a tree: registers, ABI, costs, speeds, tests, of any revision.

``./rocinante review`` runs this file with the Python of this checkout and the packages of the tree
that is asked, so that the same questions are put to both revisions. It imports nothing of ``sim``.
What a tree cannot answer is a section with ``missing``, the reason.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from enum import EnumType
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["MISSING", "collect"]

#: Key of a section that the tree cannot answer; its value says why.
MISSING = "missing"


def collect(tree: Path, cards: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return all facts. tree: the folder with ``docs`` and ``tests``; its packages are those that
    Python finds. cards: name -> fields of ``NicConfig`` that are not the default."""
    return {
        "version": _asked(_versions),
        "cards": {name: _asked(partial(_card, chosen)) for name, chosen in cards.items()},
        "abi": _asked(_abi),
        "cost": _asked(lambda: json.loads((tree / "tests/data/synth.json").read_text())),
        "timing": _asked(lambda: _timing(tree)),
        "speed": _asked(lambda: _speed(tree)),
        "requirements": _asked(lambda: tomllib.loads((tree / "tests/testplan.toml").read_text())),
        "proofs": _asked(_proofs),
        "faults": _asked(_faults),
        "tests": _asked(lambda: sorted(_tests(tree))),
        "limits": _asked(lambda: _limits(tree)),
        "coverage": _asked(lambda: json.loads((tree / "tests/data/coverage.json").read_text())),
        "code": _asked(lambda: json.loads((tree / "tests/data/code_coverage.json").read_text())),
        "sequences": _asked(lambda: json.loads((tree / "tests/data/sequences.json").read_text())),
    }


def _asked(question: Callable[[], Any]) -> Any:
    """The answer, or why there is none: another revision may lack what is asked for."""
    try:
        return question()
    except (ImportError, AttributeError, OSError, TypeError, ValueError, KeyError) as error:
        return {MISSING: f"{type(error).__name__}: {error}"}


def _versions() -> dict[str, Any]:
    from hdl.abi import ABI_VERSION
    from hdl.config import VERSION
    from hdl.csr.blocks import MAP_VERSION

    return {"gateware": VERSION, "virtio-rdma ABI": ABI_VERSION, "register map": MAP_VERSION}


def _card(chosen: dict[str, Any]) -> dict[str, Any]:
    """A card's configuration and what follows from it."""
    from hdl.abi.limits import device_limits
    from hdl.config import NicConfig

    known = {field.name for field in dataclasses.fields(NicConfig)}
    config = NicConfig(**{name: value for name, value in chosen.items() if name in known})
    guest = config.guest
    queues = {
        "control": "0",
        "completion": f"1 to {guest.cqs}",
        "send and receive": f"{config.sq_queue(0)} to {config.rq_queue(guest.qps - 1)}",
    }
    if config.events:
        queues["event"] = str(config.event_queue)
    return {
        "config": dataclasses.asdict(config),
        "not known": sorted(chosen.keys() - known),
        "features": sorted(feature.value for feature in config.features),
        "limits": device_limits(guest),
        "functions": {
            "network": "0",
            "RDMA": f"1 to {config.functions}",
            "management": str(config.management_function),
        },
        "queues": queues,
        "registers": _registers(config),
    }


def _registers(config: Any) -> dict[str, Any]:
    """Block -> address, version and its items; a window has words and no fields."""
    from hdl.csr.blocks import PAGES, all_blocks
    from hdl.csr.describe import BLOCK_BYTES, Register

    def item(offset: int, one: Any) -> dict[str, Any]:
        facts: dict[str, Any] = {"offset": offset, "words": one.words, "text": one.description}
        if not isinstance(one, Register):
            return facts | {"access": one.access.value}
        fields = {
            field.name: {
                "low": field.low,
                "width": field.width,
                "access": field.access.value,
                "reset": field.reset,
                "text": field.description,
            }
            for field in one.fields
        }
        return facts | {"fields": fields}

    return {
        name: {
            "address": PAGES[name] * BLOCK_BYTES,
            "version": block.version,
            "text": block.description,
            "items": {one.name: item(offset, one) for offset, one in block.places()},
        }
        for name, block in all_blocks(config).items()
    }


def _abi() -> dict[str, Any]:
    """Structures that the guest's driver and the device share, and the numbers in them."""
    from hdl.abi import enums, virtio_rdma

    structs = {
        struct.name: {
            "size": struct.size,
            "fields": {
                place.path: {
                    "offset": place.offset,
                    "size": place.size,
                    "type": place.kind.type_name,
                    "text": place.note,
                }
                for place in struct.places()
            },
        }
        for struct in (*virtio_rdma.STRUCTS, *virtio_rdma.ADDITIONS)
    }
    numbers = {
        name: {member: int(found[member].value) for member in found.__members__}
        for name, found in vars(enums).items()
        if isinstance(found, EnumType) and found.__module__ == enums.__name__
    }
    return {"structures": structs, "numbers": numbers}


def _timing(tree: Path) -> dict[str, Any]:
    """Board -> the clock that it needs and what is estimated, in MHz."""
    boards = json.loads((tree / "tests/data/timing.json").read_text())
    return {
        name: {"needed": board["clock_mhz"], "estimate": board["fmax_mhz"]}
        for name, board in boards.items()
    }


def _speed(tree: Path) -> dict[str, Any]:
    """Command -> its recorded figures."""
    rows = json.loads((tree / "tests/data/perf.json").read_text())["rows"]
    return {
        row["command"]: {key: row[key] for key in ("table", "what", "tolerance", "figures")}
        for row in rows
    }


def _of_the_tree(name: str) -> Any:
    """A module of the tree that is asked: this package needs none of its tests."""
    return importlib.import_module(name)


def _proofs() -> dict[str, str]:
    return {proof.name: proof.says for proof in _of_the_tree("tests.proofs.catalogue").PROOFS}


def _faults() -> dict[str, dict[str, Any]]:
    return {
        fault.name: {"what": fault.what, "where": fault.where, "tests": list(fault.tests)}
        for fault in _of_the_tree("tests.faults.catalogue").FAULTS
    }


def _tests(tree: Path) -> Iterator[str]:
    """Each test by its file and function: of pytest, and of cocotb in a bench."""
    for path in sorted((tree / "tests").rglob("*.py")):
        bench = path.name.startswith("bench_")
        if not (bench or path.name.startswith("test_")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
            if "cocotb" in marks if bench else node.name.startswith("test_"):
                yield f"{path.relative_to(tree).as_posix()}::{node.name}"


def _limits(tree: Path) -> dict[str, list[str]]:
    """Section of docs/limits.md -> its points, in Markdown."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", (tree / "docs/limits.md").read_text(), flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        points = re.split(r"^- ", text, flags=re.M)[1:]
        found[title.strip()] = [" ".join(one.split("\n\n")[0].split()) for one in points]
    return found


if __name__ == "__main__":
    folder, asked = sys.argv[1:]
    json.dump(collect(Path(folder), json.loads(asked)), sys.stdout)
