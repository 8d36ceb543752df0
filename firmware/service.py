"""The firmware's main loop.

firmware = Firmware(Registers(bus, config), config)
await firmware.run(idle)          # for ever; or ``await firmware.step()`` now and then
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from firmware.commands import Commands
from firmware.device import Hardware, HardwareError
from firmware.objects import Hints, Limits
from hdl.abi.enums import QpType
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.wire.opcodes import QP_TRANSPORT, SERVED

#: QP types whose service the hardware serves so far.
SERVED_TYPES = frozenset(kind for kind, service in QP_TRANSPORT.items() if service in SERVED)
#: Polls of a device reset before it counts as stuck.
PATIENCE = 100_000


class Firmware:
    """Serves the control queue of one NIC's guest function.

    ``hints`` choose the numbers of the next objects. ``served`` counts requests. Errors:
    HardwareError, and any mistake of the firmware itself, end ``run``: the heartbeat stops.
    """

    def __init__(
        self,
        hardware: Hardware,
        config: NicConfig,
        *,
        qp_types: frozenset[QpType] = SERVED_TYPES,
    ):
        self.hardware = hardware
        self.hints = Hints(config)
        self.commands = Commands(hardware, Limits.of(config, qp_types), self.hints)
        self.served = 0
        self._resets: int | None = None

    @property
    def refusal(self) -> str:
        """Why the last request was refused; empty when it was not."""
        return self.commands.refusal

    def set_vlan(self, index: int, vlan: int | None) -> None:
        """Tag what is sent from GID ``index`` with this VLAN, once the guest sets the GID.

        ADD_GID has no field for it (VR-3.33): whoever runs the card decides. The tag's priority is
        the service level of the address vector. 0 is a priority tag, None no tag. ValueError for
        what does not exist.
        """
        if not 0 <= index < self.commands.limits.config.gids:
            raise ValueError(f"No GID {index}")
        if vlan is None:
            self.commands.vlans.pop(index, None)
        elif 0 <= vlan < 4095:
            self.commands.vlans[index] = vlan
        else:
            raise ValueError(f"A VLAN must be 0 to 4094, not {vlan!r}")

    async def step(self) -> bool:
        """Looks for a reset and for one request; whether there was something to do."""
        await self.hardware.beat()
        if await self._reset_happened(raced=False):
            return True
        request = await self.hardware.request()
        if request is None:
            return False
        response = await self.commands.serve(request)
        if await self._reset_happened(raced=True):
            return True  # whoever asked has gone
        await self.hardware.respond(response)
        self.served += 1
        return True

    async def run(self, idle: Callable[[], Awaitable[None]]) -> None:
        """Serves for ever; ``idle`` is awaited whenever there is nothing to do."""
        while True:
            if not await self.step():
                await idle()

    async def _reset_happened(self, *, raced: bool) -> bool:
        """Forgets the function's objects after a device reset; the hardware clears its tables.

        ``raced``: a command was under way and may have written rows after they were cleared, so
        they are cleared once more.
        """
        state = await self.hardware.function_state(FUNCTION_RDMA)
        if state.resets == self._resets:
            return False
        first = self._resets is None
        for _ in range(PATIENCE):
            if not state.resetting:
                break
            state = await self.hardware.function_state(FUNCTION_RDMA)
        else:
            raise HardwareError("The device reset does not end")
        self._resets = state.resets
        rows = self.commands.objects.forget(FUNCTION_RDMA)
        if raced:
            for table, index in rows:
                await self.hardware.write_row(table, index, {})
        return not first
