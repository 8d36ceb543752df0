"""The journal: what a firmware must know of a card in use and cannot read back from it.

A file of JSON lines. The first one names the card's life; each further one says what a command, a
reset or an event has changed (``firmware.records``), and what a request was answered. A line is
written before the answer is given, in one piece; a last line without its end counts for nothing.
The whole file is replaced when a firmware begins with it, and when it has grown
(``LINES_PER_OBJECT``). It need not outlast the host's power: the card does not either.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from firmware.device import HardwareError
from firmware.records import Record, merge

__all__ = ["Answer", "Journal", "JournalError", "Past"]

VERSION = 1
#: The file is written anew when it has this many lines, and as many again for each object.
LINES, LINES_PER_OBJECT = 1000, 4


class JournalError(HardwareError):
    """The journal cannot be read or written, or does not fit the card."""


@dataclass(frozen=True)
class Answer:
    """The last answer: to which request, by the card's count of them, and what it was."""

    request: int
    response: bytes


@dataclass
class Past:
    """What a journal tells. ``mark``: of the card's life; ``config``: of the card; ``functions``:
    what each guest function had, by its number, and ``resets``: how many device resets it had."""

    mark: int
    config: dict[str, int]
    functions: dict[int, Record] = field(default_factory=dict)
    resets: dict[int, int] = field(default_factory=dict)
    answer: Answer | None = None

    def add(self, line: Record) -> None:
        """What has happened then."""
        number = line["function"]
        merge(self.functions.setdefault(number, {}), line["changed"])
        self.resets[number] = line["resets"]
        if "answered" in line:
            self.answer = Answer(line["answered"], bytes.fromhex(line["response"]))


class Journal:
    """The file ``path``. Errors: JournalError."""

    def __init__(self, path: Path):
        self.path = path
        self._file: int | None = None
        self._lines = self._most = 0

    def read(self) -> Past | None:
        """What the file tells; None when there is none."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror}") from None
        lines = text.split(b"\n")[:-1]  # behind the last end of a line there is nothing whole
        number = 0
        try:
            head = json.loads(lines[0])
            if head["version"] != VERSION:
                raise JournalError(f"{self.path}: version {head['version']}, not {VERSION}")
            past = Past(head["mark"], head["config"])
            for number, line in enumerate(lines[1:], 1):  # noqa: B007
                past.add(json.loads(line))
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise JournalError(f"{self.path}:{number + 1}: {error!r}") from None
        return past

    def begin(self, past: Past) -> None:
        """Replace the file by one that tells the same as ``past``, in one step."""
        new = self.path.with_name(self.path.name + ".new")
        head = {"version": VERSION, "mark": past.mark, "config": past.config}
        lines: list[Record] = [head]
        for number, resets in past.resets.items():
            changed = past.functions.get(number, {})
            lines.append({"function": number, "resets": resets, "changed": changed})
        if past.answer is not None:
            answer = {"answered": past.answer.request, "response": past.answer.response.hex()}
            lines[-1] |= answer
        self.close()
        try:
            self._file = os.open(
                new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            for line in lines:
                self._write(line)
            os.replace(new, self.path)
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror}") from None
        count = sum(len(made) for one in past.functions.values() for made in one.values())
        self._lines, self._most = 0, LINES + LINES_PER_OBJECT * count

    @property
    def grown(self) -> bool:
        """Whether the file has become much longer than what it tells."""
        return self._lines >= self._most

    def add(self, line: Record) -> None:
        """Append what has happened."""
        try:
            self._write(line)
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror}") from None
        self._lines += 1

    def _write(self, line: Record) -> None:
        assert self._file is not None
        octets = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if os.write(self._file, octets) != len(octets):
            raise JournalError(f"{self.path}: there is no room for a line")

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
