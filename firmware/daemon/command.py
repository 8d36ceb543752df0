"""``rocinante firmware``, and ``rocinante-firmware`` of the package: the daemon's command line."""

from __future__ import annotations

import asyncio
import json
import logging

from firmware.daemon import logs
from firmware.daemon.service import SettingError, examine, serve
from firmware.daemon.settings import settings
from firmware.device import HardwareError

__all__ = ["main"]


def main(arguments: list[str] | None = None, program: str = "rocinante-firmware") -> int:
    """Serve a card until a signal; the exit status: 0, or 1 when the card or an option is bad."""
    chosen = settings(arguments, program)
    logs.start(chosen.level)
    try:
        if chosen.check:
            print(json.dumps(asyncio.run(examine(chosen))))
        else:
            asyncio.run(serve(chosen))
    except (HardwareError, SettingError) as error:
        logs.log("error", str(error))
        return 1
    except Exception:
        logging.getLogger("rocinante.firmware").exception("the firmware has a mistake")
        return 1
    return 0
