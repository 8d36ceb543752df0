"""What rdma-core's pyverbs has and this card has not: it can be named, and refuses to be made."""

from __future__ import annotations

import errno
from functools import cache
from types import ModuleType
from typing import Any

from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError

__all__ = ["named", "namespace", "refusing"]


@cache
def refusing(name: str) -> Any:
    """A class that cannot be made: PyverbsRDMAError with EOPNOTSUPP."""

    class Refusing:
        def __init__(self, *_: object, **__: object):
            raise PyverbsRDMAError(f"{name} is not supported by this card", errno.EOPNOTSUPP)

    Refusing.__name__ = Refusing.__qualname__ = name
    return Refusing


class _Attr:
    """Attributes of something that cannot be made: they take anything."""

    def __init__(self, *_: object, **named: object):
        self.__dict__.update(named)


def named(name: str) -> Any:
    """What stands for a name of a module: 0 for a constant, a class that refuses, or attributes."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name.lstrip("_").isupper() or name.lstrip("_").split("_")[0].isupper():
        return 0
    return type(name, (_Attr,), {}) if name.endswith("Attr") else refusing(name)


class _Module(ModuleType):
    """A module whose names are classes that refuse, and whose constants are 0."""

    def __getattr__(self, name: str) -> Any:
        return named(name)


def namespace(name: str) -> ModuleType:
    """Such a module."""
    module = _Module(name, "Not on this card.")
    module.__path__ = []
    return module
