"""Has two instances of one module in a verilated design take turns, function by function.

A program of its own: the build runs it in Verilator's folder, between Verilator and the compiler.
Verilator evaluates the first instance as a whole and then the second. Their code is the same
(``sim.rtl.twins``) and many times as large as a processor's first cache, so each of them fetches
it anew. Here each function works on both instances before the next one begins, and the second
finds the code in the cache: two cards of 64 bits simulate in a ninth less time.

The turns change nothing, because what changes places has nothing in common: neither block of
functions writes what the other one uses. C++ of ours, of which that is not known, is called by one
function of each block at most, and they keep their order. Blocks of which this cannot be shown
stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

_FUNCTION = re.compile(r"^void (?P<name>\w+)\(\w+\* vlSelf\) \{\n(?P<body>.*?)^\}\n", re.M | re.S)
_EVALUATION = re.compile(
    r"^void Vtop___024root___eval_nba\(Vtop___024root\* vlSelf\) \{\n.*?^\}\n", re.M | re.S
)
#: A call: of a function of an instance with that, or of a function of the top.
_CALL = r"        (?P<name>\w+)\((?:\(&vlSymsp->(?P<instance>TOP__\w+)\)|vlSelf)\);\n"
#: Functions that run when a clock has had an edge: statements that are calls, and nothing else.
_BLOCK = re.compile(
    r"    (?P<condition>if \(\(\d+ULL & vlSelfRef\.__VnbaTriggered\[0U\]\)\) \{)\n"
    rf"(?P<calls>(?:{re.sub('[?]P<[a-z]+>', '?:', _CALL)})+)    \}}\n"
)
_OWN = "vlSelfRef"
_MEMBER = rf"\b({_OWN}|TOP(?:__\w+)?)\s*\.\s*(\w+)"
_COPIED = re.compile(rf"= (?:vlSymsp->)?{_MEMBER};")
#: Calls that may use anything: of C++ of ours, and of other functions of Verilator's.
_DPI = re.compile(r"\bVtop_\w*Vdpi\w*\(")
_INNER = re.compile(r"\bVtop_(?!\w*Vdpi)\w+\(")

Members = set[tuple[str, str]]  #: (object, member)


class SharedError(Exception):
    """Two blocks of functions may have something in common."""


def _members(body: str, owner: str) -> tuple[Members, Members]:
    """What a function of ``owner`` uses, and those of them that it may write.

    What is all of an assignment's right side is read; of everything else that is not known.
    """
    read = {place.start(1) for place in _COPIED.finditer(body)}
    used: Members = set()
    written: Members = set()
    for place in re.finditer(_MEMBER, body):
        member = (owner if place[1] == _OWN else place[1], place[2])
        used.add(member)
        if place.start(1) not in read:
            written.add(member)
    return used, written


def _independent(blocks: Sequence[Sequence[re.Match[str]]], bodies: Mapping[str, str]) -> None:
    """Raises SharedError unless the calls of the one block may run amid those of the other."""
    used: list[Members] = []
    written: list[Members] = []
    outside = []
    for calls in blocks:
        if any(call["name"] not in bodies for call in calls):
            raise SharedError
        outside.append([place for place, call in enumerate(calls) if not call["instance"]])
        inside = [bodies[call["name"]] for call in calls if call["instance"]]
        if any(_DPI.search(body) for body in inside):
            raise SharedError
        if any(_INNER.search(bodies[call["name"]]) for call in calls):
            raise SharedError
        pairs = [_members(bodies[call["name"]], call["instance"] or "TOP") for call in calls]
        used.append(set().union(*(pair[0] for pair in pairs)))
        written.append(set().union(*(pair[1] for pair in pairs)))
    if used[0] & written[1] or used[1] & written[0]:
        raise SharedError
    if outside[0] != outside[1] or len(outside[0]) > 1:
        raise SharedError


def interleaved(text: str, bodies: Mapping[str, str]) -> str:
    """The function that evaluates a cycle, with its first two blocks of calls taking turns.

    bodies: of all functions of the design, by name.
    """
    first, second = [*_BLOCK.finditer(text), None, None][:2]
    if first is None or second is None or first.end() != second.start():
        return text
    calls = [[*re.finditer(_CALL, block["calls"])] for block in (first, second)]
    try:
        _independent(calls, bodies)
    except SharedError:
        return text
    turns = "".join(
        f"    {block['condition']}\n{call[0]}    }}\n"
        for pair in zip_longest(*calls)
        for block, call in zip((first, second), pair, strict=True)
        if call
    )
    return text[: first.start()] + turns + text[second.end() :]


def interleave(folder: Path) -> bool:
    """Rewrite the C++ files of ``folder``; returns whether anything has changed."""
    texts = {path: path.read_text() for path in sorted(folder.glob("Vtop_*.cpp"))}
    bodies = {
        found["name"]: found["body"]
        for text in texts.values()
        for found in _FUNCTION.finditer(text)
    }
    changed = False
    for path, text in texts.items():
        after = _EVALUATION.sub(lambda found: interleaved(found[0], bodies), text)
        if after != text:
            path.write_text(after)
            changed = True
    return changed


if __name__ == "__main__":
    print("two instances take turns" if interleave(Path()) else "no instances take turns")
