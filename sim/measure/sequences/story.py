"""From what two host ports and the line have seen to the steps of a sequence.

A step is an arrow between two of ``LANES`` at a time, with a text. All of it is plain data, as it
is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from hdl.abi import mad
from hdl.wire.opcodes import ROCE_OPCODES, Kind
from sim.models.port_log import Access, AccessKind
from sim.wire.packets import dissect

__all__ = ["LANES", "Names", "Step", "of_frame", "of_port", "steps"]

#: From left to right.
LANES = ("driver A", "host A", "card A", "card B", "host B", "driver B")
_MSI = range(0xFEE00000, 0xFEF00000)
_GSI_QPN = 1
#: What bits 6 and 5 of an ACKNOWLEDGE's syndrome say (IBTA vol 1, 9.7.5.1.1), and codes of a NAK.
_ACK, _RNR, _NAK = 0, 1, 3
_NAKS = ("PSN sequence error", "invalid request", "remote access error", "remote operational error")


@dataclass(frozen=True, order=True)
class Step:
    """``time`` in ns. ``source`` and ``target``: numbers of ``LANES``; the same: it happens there.
    ``until``: of a packet, when its last bit has arrived. ``lost``: it does not arrive."""

    time: float
    source: int
    target: int
    text: str
    until: float | None = None
    lost: bool = False

    @property
    def of_memory(self) -> bool:
        """Whether a card reads or writes its host's memory."""
        return (self.source, self.target) in ((2, 1), (3, 4))

    def json(self, begin: float) -> dict[str, Any]:
        """As it is recorded: times count from ``begin``."""
        found: dict[str, Any] = {
            "ns": round(self.time - begin, 1),
            "from": self.source,
            "to": self.target,
            "text": self.text,
        }
        if self.until is not None:
            found["until"] = round(self.until - begin, 1)
        return found | ({"lost": True} if self.lost else {})


@dataclass
class Names:
    """What lies where in a host's memory, and what its virtqueues are called."""

    areas: list[tuple[range, str]] = field(default_factory=list)
    queues: dict[int, str] = field(default_factory=dict)

    def area(self, addr: int, size: int, name: str) -> None:
        """Name ``size`` bytes; the first name of an address counts."""
        self.areas.append((range(addr, addr + size), name))

    def of(self, addr: int) -> str:
        """The name of what lies at an address."""
        return next((name for area, name in self.areas if addr in area), "memory")


def of_port(side: int, accesses: Iterable[Access], names: Names, management: int) -> list[Step]:
    """Steps of one host port. side: 0 is A. Accesses of the firmware to registers are left out."""
    driver, host, card = (0, 1, 2) if side == 0 else (5, 4, 3)
    found = []
    for one in accesses:
        time = one.time / 1000
        if one.kind is AccessKind.REGISTER:
            if one.function != management:
                queue = names.queues.get(one.value & 0xFFFF, "a queue")
                found.append(Step(time, driver, card, f"doorbell: {queue}"))
        elif one.kind is AccessKind.READ:
            found.append(Step(time, card, host, f"reads {names.of(one.addr)}, {one.value} B"))
        elif one.addr in _MSI:
            found.append(Step(time, card, driver, "interrupt"))
        else:
            found.append(Step(time, card, host, f"writes {names.of(one.addr)}, {one.value} B"))
    return found


def of_frame(
    time: float, frame: bytes, line_gbps: float, delay_ns: float, lost: bool = False
) -> Step:
    """The step of a frame; the last byte of its source's MAC address is 1 for A and 2 for B."""
    found = dissect(frame)
    took = 8 * (len(frame) + 4) / line_gbps + delay_ns  # with FCS
    source, target = (2, 3) if frame[11] == 1 else (3, 2)
    return Step(time, source, target, _packet(found.fields, found.payload), time + took, lost)


def _packet(fields: Any, payload: bytes) -> str:
    row = ROCE_OPCODES[fields["opcode"]]
    if fields["dest_qp"] == _GSI_QPN:
        return mad.unpack(payload).kind.name
    words = row.name.removeprefix(f"{row.transport.name}_").replace("_", " ")
    text = f"{words}, PSN {fields['psn']:#x}"
    if row.kind is Kind.ACKNOWLEDGE:
        kind, value = fields["syndrome"] >> 5 & 3, fields["syndrome"] & 31
        said = {_ACK: "ACK", _RNR: "RNR NAK", _NAK: f"NAK: {_NAKS[min(value, 3)]}"}[kind]
        return text.replace(words, said)
    return f"{text}, {len(payload)} B" if payload else text


def steps(found: Iterable[Step]) -> list[dict[str, Any]]:
    """Return the steps in their order as they are recorded. Times count from the first one.

    Equal ones that follow each other, as the writes of a long payload, are one with their number
    (``times``).
    """
    ordered = sorted(found)
    begin = ordered[0].time
    rows = []
    for (source, target, text, _), some in groupby(
        ordered, lambda one: (one.source, one.target, one.text, one.until is not None)
    ):
        same: Sequence[Step] = list(some)
        if same[0].until is not None or source == target:
            rows += [one.json(begin) for one in same]
            continue
        more: dict[str, Any] = {}
        if len(same) > 1:
            more = {"times": len(same), "last": round(same[-1].time - begin, 1)}
        rows.append(Step(same[0].time, source, target, text).json(begin) | more)
    return rows
