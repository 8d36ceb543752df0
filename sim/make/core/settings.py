"""What a user chooses for a core: a file in TOML."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hdl.bounds import WORD, within
from hdl.config import NicConfig

__all__ = ["CoreSettings", "read_settings"]


@dataclass(frozen=True, kw_only=True)
class CoreSettings:
    """A core: its NIC, and what is around it. ``mac_clock_hz``: of the MAC's own clocks, 0: the
    streams have the core's. The others: see ``hdl.axi_nic.AxiNic``."""

    config: NicConfig
    mac_clock_hz: int = 0
    interrupts: int = 0
    interrupt_window: int = 0
    write_bursts: int = 32

    def parameters(self) -> dict[str, Any]:
        """Return the arguments of ``AxiNic``."""
        return {
            "config": self.config,
            "mac_clocks": bool(self.mac_clock_hz),
            "interrupts": self.interrupts,
            "interrupt_window": self.interrupt_window,
            "write_bursts": self.write_bursts,
        }

    def clocks(self) -> dict[str, int]:
        """Return the frequency of each clock domain, Hz."""
        names = ("mac_tx", "mac_rx") if self.mac_clock_hz else ()
        return {"sync": self.config.clock_hz} | {name: self.mac_clock_hz for name in names}


def read_settings(path: Path) -> CoreSettings:
    """Return what a file says: fields of ``NicConfig``; in ``[core]``, those of ``CoreSettings``.

    Raises ValueError with the file's name and what is wrong in it.
    """
    try:
        said = tomllib.loads(path.read_text())
        core = said.pop("core", {})
        if not isinstance(core, dict):
            raise ValueError("core must be a table: [core]")
        nic = [field.name for field in fields(NicConfig)]
        around = [field.name for field in fields(CoreSettings) if field.name != "config"]
        _refuse_unknown(said, nic, "")
        _refuse_unknown(core, around, " in [core]")
        for name, value in core.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} must be a whole number from 0 on, not {value!r}")
            within(name, value, 0, WORD - 1)
        return CoreSettings(config=NicConfig(**said), **core)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _refuse_unknown(said: dict[str, Any], known: list[str], where: str) -> None:
    """Raise ValueError for a field that does not exist."""
    for name in said:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"There is no field {name!r}{where}; {hint}")
