"""Results of campaigns in an SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

__all__ = ["Result", "Store"]


@dataclass(frozen=True)
class Result:
    """How one seed has ended.

    ``version``: of gateware, models and scenarios (``sim.campaign.work.version``).
    ``outcome``: passed or failed. ``simulated_ns``, ``wall_seconds``: how long it took.
    ``scenario``: what was played, for a reader.
    """

    name: str
    seed: int
    version: str
    outcome: str
    failure: str
    simulated_ns: float
    wall_seconds: float
    host: str
    scenario: str

    @property
    def passed(self) -> bool:
        """Whether all was as it must be."""
        return self.outcome == "passed"


_COLUMNS = ", ".join(field.name for field in fields(Result))
_TABLE = f"create table if not exists results ({_COLUMNS}, primary key (name, seed, version))"


class Store:
    """A file of results, which may be there already. Each seed of a version is in it once.

    Raises ValueError for a file that is something else.
    """

    def __init__(self, path: Path):
        try:
            self._connection = sqlite3.connect(path)
        except sqlite3.Error as error:
            raise ValueError(f"{path}: {error}") from None
        try:
            with self._connection:
                self._connection.execute(_TABLE)
                self._connection.execute(f"select {_COLUMNS} from results limit 1")
                self._connection.execute("begin immediate")  # nothing is written, but could be
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise ValueError(f"{path} holds no results of a campaign: {error}") from None

    def add(self, results: Iterable[Result]) -> None:
        """Add results; one that is there already is replaced."""
        marks = ", ".join("?" * len(fields(Result)))
        with self._connection:
            self._connection.executemany(
                f"insert or replace into results ({_COLUMNS}) values ({marks})",
                [astuple(result) for result in results],
            )

    def results(self, name: str, version: str) -> dict[int, Result]:
        """Return the results of a campaign by seed, in order."""
        rows = self._connection.execute(
            f"select {_COLUMNS} from results where name = ? and version = ? order by seed",
            (name, version),
        )
        found = (Result(*row) for row in rows)
        return {result.seed: result for result in found}

    def all(self) -> list[Result]:
        """Return all results by campaign and seed."""
        rows = self._connection.execute(f"select {_COLUMNS} from results order by name, seed")
        return [Result(*row) for row in rows]

    def close(self) -> None:
        """End the use of the file."""
        self._connection.close()
