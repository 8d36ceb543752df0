"""The log of the daemon: one JSON object a line, on standard error."""

from __future__ import annotations

import datetime
import json
import logging
from typing import Any

__all__ = ["LEVELS", "log", "start"]

LEVELS = ("debug", "info", "warning", "error")
_LOGGER = logging.getLogger("rocinante.firmware")


def log(level: str, event: str, **fields: Any) -> None:
    """Write one line: ``event`` says what has happened, ``fields`` what belongs to it."""
    number = logging.getLevelNamesMapping()[level.upper()]
    _LOGGER.log(number, event, extra={"fields": fields})


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": moment.isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def start(level: str) -> None:
    """Write what is at least as grave as ``level``, all else of the program's too."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLine())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
