"""Has the instances of one module in a verilated design share their code.

A program of its own: the build runs it in Verilator's folder, between Verilator and the compiler.
Verilator writes the functions of each instance of a module, and they differ in nothing but names.
Here those of the first instance serve all: half as much is compiled, and a processor's cache holds
the code of two cards.

The functions of instance 1 are those of instance 0 when their text is the same except for
- temporary members (``__Vdfg...``) of the module's class, each under another name: the instance
  uses those of instance 0 instead, in whatever remains of its own code too,
- temporary variables of a function,
- members of the top, to which Verilator has moved a port, and the name of the instance in what a
  contract says that does not hold: a function that is shared chooses them by the instance that it
  works on.
A function that differs in anything else stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FUNCTION = re.compile(
    r"^(?P<head>(?:VL_ATTR_COLD )?void (?P<name>(?P<class>Vtop_\w+?)___\w+)"
    r"\((?P=class)\* vlSelf\)) \{\n(?P<body>.*?)^\}\n",
    re.M | re.S,
)
_INSTANCE = re.compile(r"__TOP__testbench__DOT__(?P<name>[a-z]+)(?P<number>[1-9])(?=__\d+$)")
_DEBUG = re.compile(r"^ *VL_DEBUG_IF\(.*?\);\n", re.M | re.S)
_TOKEN = re.compile(r"\w+|\S")
#: The name of a component, as an assertion says it.
_SCOPES = tuple(re.compile(rf'"(testbench\.[a-z]+){n}((?:\.[^"]*)?)"') for n in range(2))
_BODY = "    // Body\n"


class DifferError(Exception):
    """Two functions are not twins."""


@dataclass(frozen=True)
class Difference:
    """Names of one function -> those of its twin, as far as they differ."""

    members: dict[str, str]
    top: dict[str, str]


def difference(first: str, second: str) -> Difference:
    """Compare two functions' bodies; raises DifferError when they are not twins."""
    a, b = (
        _TOKEN.findall(scope.sub(r'"\1\2"', _DEBUG.sub("", body)))
        for scope, body in zip(_SCOPES, (first, second), strict=True)
    )
    if len(a) != len(b):
        raise DifferError
    members: dict[str, str] = {}
    top: dict[str, str] = {}
    local: dict[str, str] = {}
    for place, (x, y) in enumerate(zip(a, b, strict=True)):
        before = a[place - 2 : place]
        if not (x.isidentifier() and y.isidentifier()):
            found = None
        elif before == ["vlSelfRef", "."] and x.startswith("__Vdfg") and y.startswith("__Vdfg"):
            found = members
        elif before == ["TOP", "."]:
            found = top
        elif before[-1:] != ["."] and x.startswith("__V") and y.startswith("__V"):
            found = local
        else:
            found = None
        # Equal names count too: a name that stands for two of the twin's is none of its.
        if (x != y) if found is None else found.setdefault(x, y) != y:
            raise DifferError
    if any(len(set(names.values())) != len(names) for names in (local, members)):
        raise DifferError
    return Difference(members, {x: y for x, y in top.items() if x != y})


def shared(head: str, body: str, twin: str, top: dict[str, str]) -> str:
    """The function ``head`` for its own instance and for that of which ``twin`` is the member."""
    chosen = "".join(
        f"    auto& {name} = vlSelf == &vlSymsp->{twin} ? vlSymsp->TOP.{other} "
        f": vlSymsp->TOP.{name};\n"
        for name, other in top.items()
    )
    names = rf'(vlSelf == &vlSymsp->{twin} ? "\g<1>1\2" : "\g<1>0\2")'
    body = _SCOPES[0].sub(names, body)
    for name in top:
        body = re.sub(rf"\bvlSymsp->TOP\s*\.\s*{name}\b", name, body)
    before, mark, after = body.partition(_BODY)
    if not mark:
        raise DifferError
    return f"{head} {{\n{before}{chosen}{mark}{after}}}\n"


def _pairs(functions: dict[str, re.Match[str]]) -> Iterator[tuple[str, str, str]]:
    """Functions of instance 0, the same of a later one, and that instance's name."""
    for name in functions:
        if found := _INSTANCE.search(name):
            first = name[: found.start("number")] + "0" + name[found.end("number") :]
            if first in functions:
                yield first, name, f"TOP__testbench__DOT__{found['name']}{found['number']}"


def share(folder: Path) -> int:
    """Rewrite the C++ files of ``folder``; returns how many lines are not compiled any more.

    With more than two instances the second alone shares the code of the first.
    """
    texts = {path: path.read_text() for path in sorted(folder.glob("Vtop_*.cpp"))}
    functions = {
        match["name"]: match for text in texts.values() for match in _FUNCTION.finditer(text)
    }
    renamed: dict[str, str] = {}  # members of the second instance -> of the first
    changed: dict[str, str] = {}  # functions' texts before -> after
    for first, second, instance in _pairs(functions):
        if not instance.endswith("1"):
            continue
        one, two = functions[first], functions[second]
        try:
            found = difference(one["body"], two["body"])
            names = {y: x for x, y in found.members.items()}
            if any(renamed.get(y, x) != x for y, x in names.items()):
                raise DifferError
            text = shared(one["head"], one["body"], instance, found.top)
        except DifferError:
            continue
        renamed |= names
        changed[one[0]] = text
        changed[two[0]] = f"{one['head']};\n{two['head']} {{\n    {first}(vlSelf);\n}}\n"
    own = _Own(renamed)
    after = {
        path: own.rename(_FUNCTION.sub(lambda found: own.function(found, changed), text))
        for path, text in texts.items()
    }
    if not own.one_to_one():
        return 0
    for path, text in after.items():
        path.write_text(text)
    return sum(text.count("\n") - after[path].count("\n") for path, text in texts.items())


class _Own:
    """What remains of the second instance's own code, in which its members change their names."""

    def __init__(self, names: dict[str, str]):
        self._names = names
        self._kept: set[str] = set()

    def function(self, found: re.Match[str], changed: dict[str, str]) -> str:
        """A function as it will be."""
        if found[0] in changed:
            return changed[found[0]]
        if re.search(r"__TOP__testbench__DOT__[a-z]+1(__\d+)?$", found["name"]):
            return self._rename(found[0], r"\bvlSelfRef")
        return found[0]

    def rename(self, text: str) -> str:
        """The second instance's members where other code reaches for them."""
        return self._rename(text, r"\bTOP__testbench__DOT__[a-z]+1")

    def one_to_one(self) -> bool:
        """Whether no two members of the instance have become one."""
        values = set(self._names.values())
        return len(values) == len(self._names) and not values & self._kept

    def _rename(self, text: str, before: str) -> str:
        return re.sub(rf"({before}\s*\.\s*)(__Vdfg\w+)", self._renamed, text)

    def _renamed(self, found: re.Match[str]) -> str:
        if found[2] not in self._names:
            self._kept.add(found[2])
        return found[1] + self._names.get(found[2], found[2])


if __name__ == "__main__":
    print(f"{share(Path())} lines are shared")
