"""The network function's registers, as operations with a meaning: ``NetworkHardware``."""

from __future__ import annotations

from firmware.device import Filter, FunctionState, Request, Steering
from firmware.mailbox import Mailbox, OnBus
from hdl.abi.virtio_net import HASH_KEY_BYTES
from hdl.config import FUNCTION_NET, NET_ADDRESSES, NicConfig
from hdl.csr.map import CsrMap
from hdl.csr.network import NET_ENTRIES, NET_MODES
from hdl.ports.counter_names import NET_COUNTERS

__all__ = ["NetworkRegisters"]


class NetworkRegisters:
    """``NetworkHardware`` on the bus of ``owner``. Errors: HardwareError."""

    def __init__(self, owner: OnBus, config: NicConfig):
        self._owner, self._map, self._pairs = owner, CsrMap(config), config.network
        self._mailbox = Mailbox(
            owner, self._map, lambda head, words: set(range(words)), "network_mailbox"
        )

    async def _read(self, path: str) -> dict[str, int]:
        return self._map.decode(path, await self._owner.bus.read(self._map.address(path)))

    async def _write(self, path: str, **values: int) -> None:
        word = self._map.encode(path, **values)
        await self._owner.bus.write(self._map.address(path), word)

    async def state(self) -> FunctionState:
        """See ``NetworkHardware``."""
        status = await self._read("network.status")
        high = (await self._read("network.features_high"))["value"]
        return FunctionState(
            (await self._read("network.resets"))["value"],
            bool(status["resetting"]),
            bool(status["waits"]),
            high << 32 | (await self._read("network.features"))["value"],
            status["device"],
        )

    async def reset_done(self) -> None:
        """See ``NetworkHardware``."""
        await self._write("network.control", reset_done=1)

    async def request(self) -> Request | None:
        """See ``NetworkHardware``."""
        status = await self._read("network_mailbox.status")
        return await self._mailbox.request(FUNCTION_NET) if status["pending"] else None

    async def respond(self, response: bytes) -> None:
        """See ``NetworkHardware``."""
        await self._mailbox.respond(response)

    async def filter(self) -> Filter:
        """See ``NetworkHardware``."""
        mode = await self._read("network.mode")
        low, high = await self._read("network.mac_low"), await self._read("network.mac_high")
        mac = (high["value"] << 32 | low["value"]).to_bytes(6, "little")
        on = frozenset(name for name in NET_MODES if mode[name])
        return Filter(on, mac if mode["own_mac"] else None)

    async def set_filter(self, chosen: Filter) -> None:
        """See ``NetworkHardware``."""
        if chosen.mac is not None:
            await self._address("network.mac", chosen.mac)
        modes = {name: int(name in chosen.modes) for name in NET_MODES}
        await self._write(
            "network.mode",
            **modes,
            own_mac=int(chosen.mac is not None),
        )

    async def set_steering(self, steering: Steering) -> None:
        """See ``NetworkHardware``. With one pair there is nothing to set."""
        if self._pairs == 1:
            return
        for n in range(HASH_KEY_BYTES // 4):
            word = int.from_bytes(steering.key[4 * n : 4 * n + 4], "little")
            await self._write(f"network.key{n}", value=word)
        for n in range(-(-len(steering.table) // NET_ENTRIES)):
            pairs = steering.table[NET_ENTRIES * n : NET_ENTRIES * (n + 1)]
            word = sum(pair << 32 // NET_ENTRIES * place for place, pair in enumerate(pairs))
            await self._write(f"network.entries{n}", value=word)
        await self._write(
            "network.steering",
            types=steering.types,
            mask=len(steering.table) - 1,
            other=steering.other,
        )

    async def set_addresses(self, addresses: list[bytes]) -> None:
        """See ``NetworkHardware``."""
        for n in range(NET_ADDRESSES):
            path = f"network.address{n}"
            if n < len(addresses):
                await self._write(f"{path}_high", value=0)  # half an address is nobody's
                await self._address(path, addresses[n], valid=1)
            else:
                await self._write(f"{path}_high", value=0)

    async def _address(self, path: str, mac: bytes, **more: int) -> None:
        await self._write(f"{path}_low", value=int.from_bytes(mac[:4], "little"))
        await self._write(f"{path}_high", value=int.from_bytes(mac[4:], "little"), **more)

    async def set_mtu(self, mtu: int) -> None:
        """Set the MTU that the driver is told, bytes."""
        await self._write("network.mtu", value=mtu)

    async def counters(self) -> dict[str, int]:
        """What is counted of the function, by name."""
        return {name: (await self._read(f"network.{name}"))["value"] for name in NET_COUNTERS}

    async def needs_reset(self) -> dict[str, int]:
        """Whether a virtqueue has been stopped (``active``), which first, and why."""
        return await self._read("network.needs_reset")
