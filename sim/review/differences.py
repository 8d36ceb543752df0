"""How the facts of two revisions differ, and what of that a reader of the older one loses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sim.review.collect import MISSING

__all__ = ["Difference", "Verdict", "differences"]

#: A part may grow by this much before it counts as dearer; that of ``synth``'s comparison.
COST_TOLERANCE = 0.05
#: Figures of which more is better; of the others, which are times, less is.
_RATES = {"gbps", "mmsg_s", "ratio"}


class Verdict(Enum):
    """What a difference is for those who rely on the older revision."""

    LOST = "lost"  # incompatible, dearer, slower, or not shown any more
    GAINED = "gained"  # new and compatible, cheaper, faster, or shown now
    OTHER = "other"  # neither


@dataclass(frozen=True)
class Difference:
    """One difference: in which section, of what, from what to what."""

    section: str
    name: str
    before: str
    after: str
    verdict: Verdict
    why: str

    @property
    def json(self) -> dict[str, str]:
        """Return it for ``review.json``."""
        return vars(self) | {"verdict": self.verdict.value}


def differences(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[Difference]:
    """Return all differences, those that lose something first in each section."""
    found = [
        *_pairs(base["version"], head["version"], "versions"),
        *_cards(base["cards"], head["cards"]),
        *_abi(base["abi"], head["abi"]),
        *_cost(base["cost"], head["cost"]),
        *_timing(base["timing"], head["timing"]),
        *_speed(base["speed"], head["speed"]),
        *_requirements(base["requirements"], head["requirements"]),
        *_shown(base["proofs"], head["proofs"], "proofs"),
        *_shown(base["faults"], head["faults"], "faults"),
        *_tests(base["tests"], head["tests"]),
        *_coverage(base["coverage"], head["coverage"]),
        *_code(base["code"], head["code"]),
        *_sequences(base["sequences"], head["sequences"]),
        *_limits(base["limits"], head["limits"]),
    ]
    sections = {one.section: number for number, one in reversed(list(enumerate(found)))}
    order = list(Verdict)
    return sorted(found, key=lambda one: (sections[one.section], order.index(one.verdict)))


def _told(*answers: Any) -> bool:
    """Whether both revisions have answered."""
    return not any(isinstance(one, Mapping) and MISSING in one for one in answers)


def _pairs(base: Any, head: Any, section: str) -> Iterator[Difference]:
    """Values by name, of which each may change."""
    if not _told(base, head):
        return
    for name in dict.fromkeys([*base, *head]):
        old, new = base.get(name), head.get(name)
        if old != new:
            words = "new" if old is None else "gone" if new is None else "changed"
            yield Difference(section, name, _text(old), _text(new), Verdict.OTHER, words)


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _cards(base: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[Difference]:
    for name, card in head.items():
        old = base.get(name, {MISSING: ""})
        if not _told(old, card):
            continue
        for part in ("config", "limits", "functions", "queues"):
            yield from _pairs(old[part], card[part], f"{name}: {part}")
        yield from _registers(old["registers"], card["registers"], f"{name}: registers")


def _registers(base: Any, head: Any, section: str) -> Iterator[Difference]:
    for name, old in base.items():
        new = head.get(name)
        if new is None:
            yield Difference(section, name, "a block", "-", Verdict.LOST, "the block is gone")
            continue
        if old["address"] != new["address"]:
            at = f"{old['address']:#x}", f"{new['address']:#x}"
            yield Difference(section, name, *at, Verdict.LOST, "the block has moved")
        if old["version"] != new["version"]:
            at = str(old["version"]), str(new["version"])
            yield Difference(section, f"{name}.id.version", *at, Verdict.OTHER, "its version")
        for item, register in old["items"].items():
            yield from _register(f"{name}.{item}", register, new["items"].get(item), section)
        for item in new["items"].keys() - old["items"].keys():
            offset = f"{new['items'][item]['offset']:#x}"
            yield Difference(section, f"{name}.{item}", "-", offset, Verdict.GAINED, "new")
    for name in head.keys() - base.keys():
        yield Difference(section, name, "-", "a block", Verdict.GAINED, "a new block")


def _register(name: str, old: Any, new: Any, section: str) -> Iterator[Difference]:
    """A register or a window: what software that knows the old one finds."""
    place = f"{old['offset']:#x}"
    if new is None:
        yield Difference(section, name, place, "-", Verdict.LOST, "gone")
        return
    if old["offset"] != new["offset"]:
        at = place, f"{new['offset']:#x}"
        yield Difference(section, name, *at, Verdict.LOST, "it has moved")
    if old["words"] > new["words"] or old.get("access") != new.get("access"):
        was, now = (
            f"{one['words']} words, {one.get('access', 'a register')}" for one in (old, new)
        )
        yield Difference(section, name, was, now, Verdict.LOST, "another window")
    fields, found = old.get("fields", {}), new.get("fields", {})
    for field in dict.fromkeys([*fields, *found]):
        yield from _field(f"{name}.{field}", fields.get(field), found.get(field), section)


def _field(name: str, old: Any, new: Any, section: str) -> Iterator[Difference]:
    """A field of a register. What a constant of the configuration says is told there."""
    if _bits(old) != _bits(new):
        lost, words = True, "another place or access"
        if old is None or new is None:
            lost, words = new is None, "new" if old is None else "gone"
        elif (old["low"], old["access"]) == (new["low"], new["access"]):
            lost = old["width"] > new["width"]
            words = "narrower" if lost else "wider"
        verdict = Verdict.LOST if lost else Verdict.GAINED
        yield Difference(section, name, _bits(old), _bits(new), verdict, words)
    elif old["reset"] != new["reset"] and not name.startswith(("core.config_", "core.version")):
        was, now = f"{old['reset']:#x}", f"{new['reset']:#x}"
        yield Difference(section, name, was, now, Verdict.OTHER, "another value")


def _bits(field: Mapping[str, Any] | None) -> str:
    if field is None:
        return "-"
    return f"[{field['low'] + field['width'] - 1}:{field['low']}] {field['access']}"


def _abi(base: Any, head: Any) -> Iterator[Difference]:
    if not _told(base, head):
        return
    for name, old in base["structures"].items():
        yield from _structure(name, old, head["structures"].get(name))
    for name in head["structures"].keys() - base["structures"].keys():
        yield Difference("ABI", name, "-", "a structure", Verdict.GAINED, "new")
    for name in dict.fromkeys([*base["numbers"], *head["numbers"]]):
        old, new = base["numbers"].get(name, {}), head["numbers"].get(name, {})
        for member in dict.fromkeys([*old, *new]):
            was, now = old.get(member), new.get(member)
            if was != now:
                verdict = Verdict.GAINED if was is None else Verdict.LOST
                words = "new" if was is None else "gone" if now is None else "another number"
                place = f"{name}.{member}"
                yield Difference("ABI", place, _text(was), _text(now), verdict, words)


def _structure(name: str, old: Any, new: Any) -> Iterator[Difference]:
    """A structure: its size, and the places of its fields."""
    if new is None:
        yield Difference("ABI", name, f"{old['size']} bytes", "-", Verdict.LOST, "gone")
        return
    if old["size"] != new["size"]:
        was, now = f"{old['size']} bytes", f"{new['size']} bytes"
        yield Difference("ABI", name, was, now, Verdict.LOST, "another size")
    for field in dict.fromkeys([*old["fields"], *new["fields"]]):
        was, now = _laid(old["fields"].get(field)), _laid(new["fields"].get(field))
        if was != now:
            verdict = Verdict.GAINED if was == "-" else Verdict.LOST
            words = "new" if was == "-" else "gone" if now == "-" else "another place or type"
            yield Difference("ABI", f"{name}.{field}", was, now, verdict, words)


def _laid(field: Mapping[str, Any] | None) -> str:
    return f"{field['type']} at {field['offset']}, {field['size']} bytes" if field else "-"


def _measured(
    section: str, name: str, old: float | None, new: float | None, more: bool, tolerance: float
) -> Iterator[Difference]:
    """A figure of which ``more`` is better, or less."""
    if old is None or new is None:
        if old != new:
            verdict = Verdict.OTHER if old is None else Verdict.LOST
            words = "new" if old is None else "not recorded any more"
            yield Difference(section, name, _figure(old), _figure(new), verdict, words)
        return
    if abs(new - old) <= tolerance * abs(old):
        return
    better = (new > old) == more
    share = f"{(new - old) / old:+.1%}" if old else "from 0"
    verdict = Verdict.GAINED if better else Verdict.LOST
    yield Difference(section, name, _figure(old), _figure(new), verdict, share)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}"


def _cost(base: Any, head: Any) -> Iterator[Difference]:
    if not _told(base, head):
        return
    for name in dict.fromkeys([*base, *head]):
        old, new = base.get(name, {}), head.get(name, {})
        for part in dict.fromkeys([*old, *new]):
            was, now = old.get(part, {}), new.get(part, {})
            for figure in dict.fromkeys([*was, *now]):
                if figure != "of":  # a hash of what the figures follow from
                    yield from _measured(
                        f"cost: {name}", f"{part}: {figure}", was.get(figure), now.get(figure),
                        False, COST_TOLERANCE,
                    )  # fmt: skip


def _timing(base: Any, head: Any) -> Iterator[Difference]:
    if not _told(base, head):
        return
    for board in dict.fromkeys([*base, *head]):
        was, now = (one.get(board, {}).get("estimate", {}) for one in (base, head))
        for case in dict.fromkeys([*was, *now]):
            pair = was.get(case), now.get(case)
            yield from _measured("clocks (MHz)", f"{board}: {case}", *pair, True, 0.01)


def _speed(base: Any, head: Any) -> Iterator[Difference]:
    if not _told(base, head):
        return
    for command in dict.fromkeys([*base, *head]):
        old, new = base.get(command), head.get(command)
        was, now = (one["figures"] if one else {} for one in (old, new))
        tolerance = (new or old)["tolerance"]
        for figure in dict.fromkeys([*was, *now]):
            pair = was.get(figure), now.get(figure)
            name = f"{command}: {figure}"
            yield from _measured("speed", name, *pair, figure in _RATES, tolerance)


def _requirements(base: Any, head: Any) -> Iterator[Difference]:
    if not _told(base, head):
        return
    for name, old in base.items():
        new = head.get(name, {"state": "gone"})
        if old["state"] != new["state"]:
            verdict = Verdict.GAINED if new["state"] == "tested" else Verdict.LOST
            states = old["state"], new["state"]
            yield Difference("requirements", name, *states, verdict, old["what"])
    for name in head.keys() - base.keys():
        state = head[name]["state"]
        yield Difference("requirements", name, "-", state, Verdict.OTHER, head[name]["what"])


def _shown(base: Any, head: Any, section: str) -> Iterator[Difference]:
    """What shows something as long as it is there."""
    if not _told(base, head):
        return
    for name in sorted(base.keys() - head.keys()):
        yield Difference(section, name, "there", "-", Verdict.LOST, "gone")
    for name in sorted(head.keys() - base.keys()):
        yield Difference(section, name, "-", "there", Verdict.GAINED, "new")


def _tests(base: Any, head: Any) -> Iterator[Difference]:
    """Tests by file and function; one that is found in another file has moved."""
    if not _told(base, head):
        return
    gone, new = set(base) - set(head), set(head) - set(base)
    places = {test.partition("::")[2]: test for test in sorted(new)}
    for test in sorted(gone):
        file, _, function = test.partition("::")
        if moved := places.pop(function, ""):
            new.discard(moved)
            to = moved.partition("::")[0]
            yield Difference("tests", function, file, to, Verdict.OTHER, "in another file")
        else:
            yield Difference("tests", function, file, "-", Verdict.LOST, "gone")
    for test in sorted(new):
        file, _, function = test.partition("::")
        yield Difference("tests", function, "-", file, Verdict.GAINED, "new")


def _coverage(base: Any, head: Any) -> Iterator[Difference]:
    """What simulations of the tests have seen, of what both revisions ask for."""
    if not _told(base, head):
        return
    was, now = ({row["what"]: row for row in one["rows"]} for one in (base, head))
    for what in dict.fromkeys([*was, *now]):
        if what not in was or what not in now:
            verdict, word = (Verdict.GAINED, "new") if what in now else (Verdict.LOST, "gone")
            before, after = (str(one[what]["bins"]) if what in one else "-" for one in (was, now))
            yield Difference("coverage", what, before, after, verdict, word)
            continue
        old, new = ({" ".join(one) for one in rows[what]["missing"]} for rows in (was, now))
        for name in sorted(new - old):
            yield Difference("coverage", name, "seen", "-", Verdict.LOST, f"{what}: not seen")
        for name in sorted(old - new):
            yield Difference("coverage", name, "-", "seen", Verdict.GAINED, f"{what}: seen now")


def _code(base: Any, head: Any) -> Iterator[Difference]:
    """Branches of each file of hdl/ by function and condition: their lines move."""
    if not _told(base, head):
        return
    was, now = ({row["what"]: row["missing"] for row in one["rows"]} for one in (base, head))
    for file in now:
        old, new = ({name for _, name in one.get(file, [])} for one in (was, now))
        for name in sorted(new - old):
            what = f"{file}: {name}"
            yield Difference("code coverage", what, "-", "-", Verdict.LOST, "not entered")
        for name in sorted(old - new):
            what = f"{file}: {name}"
            words = "entered now, or gone"
            yield Difference("code coverage", what, "not entered", "-", Verdict.GAINED, words)


def _sequences(base: Any, head: Any) -> Iterator[Difference]:
    """Recorded scenes whose steps are others."""
    if not _told(base, head):
        return
    was, now = base["scenes"], head["scenes"]
    for name in dict.fromkeys([*was, *now]):
        old, new = was.get(name), now.get(name)
        if old != new:
            before, after = (f"{len(one)} steps" if one else "-" for one in (old, new))
            words = "new" if old is None else "gone" if new is None else "other steps or times"
            yield Difference("sequences", name, before, after, Verdict.OTHER, words)


def _limits(base: Any, head: Any) -> Iterator[Difference]:
    if not _told(base, head):
        return
    old, new = ({point for points in one.values() for point in points} for one in (base, head))
    for point in sorted(old - new):
        yield Difference("known limits", point, "told", "-", Verdict.OTHER, "told no more")
    for point in sorted(new - old):
        yield Difference("known limits", point, "-", "told", Verdict.OTHER, "told now")
