"""What a card says that it is: the registers that every card has at the same places."""

from __future__ import annotations

from typing import Any, Protocol

from firmware.device import HardwareError
from hdl.config import SWITCHES, NicConfig
from hdl.csr.blocks import MAGIC, MAP_VERSION, PAGES
from hdl.csr.context import context
from hdl.csr.describe import BLOCK_BYTES
from hdl.csr.map import CsrMap
from hdl.csr.network import network

__all__ = ["CONFIG", "Bus", "configuration", "read_config"]

#: Begins the names of the registers with the configuration.
CONFIG = "config_"
#: Value of an address without a register.
NOTHING = 0xFFFF_FFFF
#: Numbers that only a card has whose one is not 0: block, and register in it.
_OPTIONAL = {
    "hot_qps": (context(NicConfig()), "hot_qps"),
    "network": (network(NicConfig()), "pairs"),
}


class Bus(Protocol):
    """32-bit registers; ``addr`` is a byte address in the management function's space."""

    async def read(self, addr: int) -> int:
        """Reads a register; later than every write before it."""

    async def write(self, addr: int, value: int) -> None:
        """Writes a register."""


async def configuration(bus: Bus, csr: CsrMap) -> dict[str, int]:
    """What the card says of its configuration; HardwareError if it is none of ours."""
    for path, wanted in (("core.magic", MAGIC), ("core.map_version", MAP_VERSION)):
        found = await bus.read(csr.address(path))
        if found != wanted:
            nothing = " (nothing answers there)" if found == NOTHING else ""
            raise HardwareError(f"{path} is {found:#010x}, not {wanted:#010x}{nothing}")
    names = [name for name in csr.names("core") if name.startswith(CONFIG)]
    numbers = {}
    for name, (block, register) in _OPTIONAL.items():
        number = await bus.read(PAGES[block.name] * BLOCK_BYTES + block.offset(register))
        numbers[name] = 0 if number == NOTHING else number
    return {
        name.removeprefix(CONFIG): await bus.read(csr.address(f"core.{name}")) for name in names
    } | numbers


async def read_config(bus: Bus) -> NicConfig:
    """The configuration of the card that ``bus`` leads to, as it says itself.

    HardwareError if there is no card, or one that this firmware does not know.
    """
    # The places of these registers are the same for each configuration.
    found: dict[str, Any] = dict(await configuration(bus, CsrMap(NicConfig())))
    for name in found.keys() & SWITCHES:
        found[name] = bool(found[name])
    try:
        return NicConfig(**found)
    except ValueError as error:
        raise HardwareError(f"The card's configuration cannot be: {error}") from None
