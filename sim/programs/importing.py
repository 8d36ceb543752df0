"""Makes ``import pyverbs`` find the package of this project, under that name and as one copy.

What ``pyverbs`` of rdma-core has and this card has not, can be imported all the same: its names are
classes that refuse.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from sim.programs.pyverbs.absent import namespace

__all__ = ["install"]

#: The name that programs import, and where it is.
_NAME, _HERE = "pyverbs", "sim.programs.pyverbs"
#: Below it any package and module can be imported, also one of which nothing is there.
_PROVIDERS = "pyverbs.providers"


class _Alias(Loader):
    """Loads a module of this project under its other name; it stays the same module."""

    def __init__(self, real: str):
        self._real = real
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


class _Absent(Loader):
    """Loads a module each of whose names refuses."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return namespace(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing more to do."""


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        if fullname != _NAME and not fullname.startswith(f"{_NAME}."):
            return None
        real = _HERE + fullname.removeprefix(_NAME)
        found = _find(real)
        if found is not None:
            is_package = found.submodule_search_locations is not None
            return ModuleSpec(fullname, _Alias(real), is_package=is_package)
        if fullname.startswith(f"{_PROVIDERS}."):
            return ModuleSpec(fullname, _Absent(), is_package=True)
        return None


def _find(real: str) -> ModuleSpec | None:
    try:
        return find_spec(real)
    except ModuleNotFoundError:  # its package is not there either
        return None


def install() -> None:
    """From now on ``pyverbs`` is this project's, also where another one is installed."""
    sys.meta_path.insert(0, _Finder())
