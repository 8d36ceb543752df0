"""The block diagram of a card, from its elaborated top: what is joined with what, and how wide."""

from __future__ import annotations

import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Fragment, Module, UnusedElaboratable, Value
from amaranth.hdl._ast import Assign, SignalDict
from amaranth.lib import wiring

from hdl.config import NicConfig
from hdl.nic import Nic

__all__ = ["Flow", "flows", "mermaid"]

#: What the card's own ports are called.
OUTSIDE = {"host": "host", "mac_tx": "MAC", "mac_rx": "MAC"}
_STREAM = ("payload", "valid", "ready")


@dataclass
class Flow:
    """What goes from one block to another. streams: their names, and bits of each payload; bits: of
    all other signals."""

    source: str
    target: str
    streams: dict[str, int] = field(default_factory=dict)
    bits: int = 0

    @property
    def json(self) -> dict[str, Any]:
        """Return it for ``review.json``."""
        return vars(self)


class _Blocks(Nic):
    """A top whose blocks are not elaborated: how they are joined is all that is asked."""

    blocks: dict[str, Any]

    def elaborate(self, platform: Any) -> Module:
        m = super().elaborate(platform)
        self.blocks = {name: block for name, (block, *_) in m._named_submodules.items()}
        m._named_submodules.clear()
        m._anon_submodules.clear()
        return m


def flows(config: NicConfig) -> list[Flow]:
    """Return what flows between the blocks of a card of ``config`` and its outside."""
    warnings.simplefilter("ignore", UnusedElaboratable)  # the blocks: warned of when they go
    top = _Blocks(config=config)
    fragment = Fragment.get(top, None)
    owners: Any = SignalDict()
    for name, block in top.blocks.items():
        _own(owners, name, _component(block))
    _own(owners, "", top)
    found: dict[tuple[str, str], Flow] = {}
    for statement in fragment.statements.get("comb", ()):
        if not isinstance(statement, Assign):
            continue
        targets = [owners[one] for one in statement._lhs_signals() if one in owners]
        sources = [owners[one] for one in statement._rhs_signals() if one in owners]
        for target, _ in targets:
            for source, path in sources:
                if source != target:
                    flow = found.setdefault((source, target), Flow(source, target))
                    _note(flow, path, len(statement.lhs))
    return [flow for flow in found.values() if flow.streams]


def _component(block: Any) -> Any:
    """Return a block without what puts a reset into it."""
    return block if isinstance(block, wiring.Component) else _component(block._elaboratable_)


def _own(owners: Any, name: str, component: Any) -> None:
    """Say of each signal of a component's members whose it is, and its path."""
    for path, _, value in component.signature.flatten(component):
        words = [str(word) for word in path]
        block = name or OUTSIDE.get(words[0], "outside")
        signals = Value.cast(value)._rhs_signals()
        for signal in signals:
            owners[signal] = block, words


def _note(flow: Flow, path: list[str], width: int) -> None:
    """Count what an assignment carries: the payload of a stream by the stream's name."""
    name = ".".join(path[:-1])
    if path[-1] == "payload":
        flow.streams[name] = width
    elif path[-1] not in _STREAM:
        flow.bits += width


def mermaid(found: list[Flow]) -> str:
    """Return the diagram: an arrow for the streams from one block to another, with their bits."""
    lines = ["flowchart LR"]
    ends: dict[str, str] = {}
    for flow in found:
        for name in (flow.source, flow.target):
            outside = name in (*OUTSIDE.values(), "outside")
            ends[name] = f'{_id(name)}["{name}"]' if not outside else f'{_id(name)}(["{name}"])'
    lines += [f"    {text}" for text in ends.values()]
    joined: dict[tuple[str, str], list[str]] = defaultdict(list)
    for flow in found:
        widest = max(flow.streams.values())
        count = len(flow.streams)
        text = f"{widest} bit" if count == 1 else f"{count} streams, to {widest} bit"
        joined[flow.source, flow.target].append(text)
    for (source, target), texts in joined.items():
        lines.append(f'    {_id(source)} -- "{"; ".join(texts)}" --> {_id(target)}')
    return "\n".join(lines)


def _id(name: str) -> str:
    return f"block_{name}"
