"""All deliberate faults, from the tables in ``tests/faults/rooms``: one of them for each room."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

from tests.faults.fault import Fault
from tests.force import chosen

__all__ = [
    "FAULTS",
    "FAULT_ROOMS",
    "INTEROP",
    "TABLES",
    "campaign_faults",
    "install",
    "install_chosen",
    "live",
    "of_room",
]

#: One WRITE each way between the whole NIC and Linux, nothing changed on the way.
INTEROP = "tests/interop/test_interop.py::test_what_a_faulty_card_sends_is_noticed"

#: The faults of each room, by the name of its file.
TABLES: dict[str, tuple[Fault, ...]] = {
    path.stem: importlib.import_module(f"tests.faults.rooms.{path.stem}").FAULTS
    for path in sorted((Path(__file__).parent / "rooms").glob("[!_]*.py"))
}

#: The rooms: a large one has several tables, ``room`` and ``room_part``.
FAULT_ROOMS = tuple(dict.fromkeys(name.partition("_")[0] for name in TABLES))

FAULTS: tuple[Fault, ...] = tuple(fault for table in TABLES.values() for fault in table)


def install(name: str) -> None:
    """Install the force of the fault of that name in this process."""
    for one in FAULTS:
        if one.name == name and one.force is not None:
            one.force.install()


def campaign_faults() -> dict[int, Fault]:
    """Return the faults that a campaign must find, by their number in ``+fault=N``."""
    return dict(enumerate((one for one in FAULTS if one.campaign), 1))


def install_chosen(place: str) -> None:
    """Install those of a campaign that are in the file ``place``; a simulation chooses one."""
    for number, one in campaign_faults().items():
        if one.place == place and one.force is not None:
            replace(one.force, change=chosen(one.force.change, number)).install()


def of_room(room: str) -> list[Fault]:
    """Return the faults of one of ``FAULT_ROOMS``."""
    tables = (table for name, table in TABLES.items() if name.partition("_")[0] == room)
    return [fault for table in tables for fault in table]


def live() -> list[Fault]:
    """Return the faults that an exchange with the Linux guest must notice, with that test."""
    return [replace(one, tests=(INTEROP,)) for one in FAULTS if one.live]
