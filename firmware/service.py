"""The firmware's main loop.

firmware = Firmware(Registers(bus, config), config)
await firmware.run(idle)          # for ever; or ``await firmware.step()`` now and then
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from firmware.commands import Commands
from firmware.device import Hardware, HardwareError
from firmware.functions import FunctionConnections, FunctionHardware
from firmware.hints import Hints
from firmware.machine import Machine
from firmware.network_commands import NetworkCommands
from firmware.objects import Limits
from firmware.release import Release
from hdl.abi.enums import QpType
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.wire.opcodes import QP_TRANSPORT, services

#: The card's counter of the requests that it has given to the firmware.
REQUEST_COUNTER = "control_requests"
#: Packets of connections of DC that are served in a step, at most.
PACKETS = 8
#: Steps with the same device reset of the only function before it counts as stuck.
PATIENCE = 100_000


def served_types(config: NicConfig) -> frozenset[QpType]:
    """The types of QPs that the card has."""
    served = services(config)
    return frozenset(kind for kind, service in QP_TRANSPORT.items() if service in served)


class GuestFunction:
    """What the firmware has for one guest function: its commands, and the resets seen of it.

    ``number`` is the PCI function. ``hints`` choose the numbers of the next objects.
    """

    def __init__(self, number: int, commands: Commands, hints: Hints):
        self.number, self.commands, self.hints = number, commands, hints
        self.resets: int | None = None
        #: Takes away what the function has, while its device reset waits for that.
        self.release: Release | None = None

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

    def set_pkey(self, index: int, pkey: int | None) -> None:
        """Set entry ``index`` of the P_Key table; None: it has none. Bit 15 says full member.

        QPs that use the entry have the new P_Key after the firmware's next step. Without one they
        accept no packet. A device reset leaves the table alone. ValueError for what does not exist.
        """
        self.commands.pkeys.set(index, pkey)


class Keeper(Protocol):
    """Keeps a journal of what a firmware does (``firmware.takeover``)."""

    def changed(self, function: GuestFunction) -> None:
        """Writes down what has changed of the function, if anything has."""

    def answered(self, function: GuestFunction, request: int, response: bytes) -> None:
        """Writes down the answer that a request is about to be given, and what it has changed.

        request: its number, as the card counts them.
        """


class Firmware:
    """Serves the control queues of one NIC's guest functions, which are in ``functions``.

    ``network`` does so for the network function of a card that has one. ``machine``: time and
    random numbers, None: those of the process.

    ``served`` counts requests, ``refusal`` says why the last one was refused, if it was, and
    ``resets`` counts the device resets that were seen to. A function in reset holds neither the
    others nor ``step``, which does a bounded part of what there is to do. Errors: HardwareError,
    and any mistake of the firmware itself, end ``run``: the heartbeat stops.
    """

    def __init__(
        self,
        hardware: Hardware,
        config: NicConfig,
        *,
        qp_types: frozenset[QpType] | None = None,
        machine: Machine | None = None,
    ):
        self.hardware, self._machine = hardware, machine or Machine()
        self._connections = hardware.connections if config.dc else None
        if qp_types is None:
            qp_types = served_types(config)
        limits = Limits.of(config.guest, qp_types)
        self.functions = [
            self._function(ordinal, config, limits) for ordinal in range(config.functions)
        ]
        self.network = None
        if config.network:
            assert hardware.network is not None, "the card says that it has a network function"
            self.network = NetworkCommands(hardware.network, config.network)
        self._shared = config.shared
        self._queue_bits, self._gids = config.number_bits["queues"], config.guest.gids
        self.served, self.resets, self.refusal = 0, 0, ""
        #: Of a card that is one function's: the device reset that goes on, how often it was looked
        #: at, and whether a command was under way when it began.
        self._ending, self._looks, self._raced = 0, 0, False
        #: Writes down what changes; None: nobody does.
        self.keeper: Keeper | None = None

    def _function(self, ordinal: int, config: NicConfig, limits: Limits) -> GuestFunction:
        hardware, hints = FunctionHardware(self.hardware, config, ordinal), Hints(limits.config)

        def foreign(gid: bytes) -> bool:
            others = (one for n, one in enumerate(self.functions) if n != ordinal)
            return any(gid in other.commands.objects.gids.values() for other in others)

        async def features() -> int:
            return (await self.hardware.function_state(FUNCTION_RDMA + ordinal)).features

        connections = None
        if config.dc:
            assert self._connections is not None, "the card says that it has DC"
            connections = FunctionConnections(self._connections, config, ordinal)
        commands = Commands(
            hardware,
            limits,
            hints,
            features=features,
            foreign=foreign,
            connections=connections,
            machine=self._machine,
        )
        return GuestFunction(FUNCTION_RDMA + ordinal, commands, hints)

    async def step(self) -> bool:
        """Looks for resets and for one request; whether there was something to do, or is still."""
        acted = await self._step()
        if self.keeper is not None:
            for function in self.functions:
                self.keeper.changed(function)
        return acted

    async def _step(self) -> bool:
        await self.hardware.beat()
        if self._alone and await self._reset_of_all(raced=False):
            return True
        acted = self.network is not None and await self.network.step()
        for function in self.functions:
            acted |= not self._alone and await self._reset(function)
            if function.release is None:
                await function.commands.settle_pkeys()
            await function.commands.events.step()
        await self._connect()
        request = await self.hardware.request()
        acted |= await self._see_to_broken_queue()
        if request is None:
            return acted
        asking = [one for one in self.functions if one.number == request.function]
        if not asking:
            raise HardwareError(f"A request of function {request.function}, which does not exist")
        if asking[0].release is not None:
            await self.hardware.respond(b"")  # its driver has gone
            return True
        commands = asking[0].commands
        response = await commands.serve(request)
        self.refusal = commands.refusal
        if self._alone and await self._reset_of_all(raced=True):
            return True  # the reset took the request away
        if self.keeper is not None:
            number = await self.hardware.counter(REQUEST_COUNTER)
            self.keeper.answered(asking[0], number, response)
        await self.hardware.respond(response)
        self.served += 1
        return True

    @property
    def connects(self) -> bool:
        """Whether the card has DC."""
        return self._connections is not None

    @property
    def connecting(self) -> bool:
        """Whether an initiator of DC has a connection, or makes or ends one, or a target's end has
        just failed and says so again."""
        services = (one.commands.dc for one in self.functions)
        return any(service is not None and service.connecting for service in services)

    async def _connect(self) -> None:
        """Goes on with the connections of DC: packets that have come, and those of each function
        that has any."""
        if self._connections is None:
            return
        services = {
            one.number: (ordinal, one.commands.dc)
            for ordinal, one in enumerate(self.functions)
            if one.release is None
        }
        for _ in range(PACKETS):
            if (packet := await self._connections.received()) is None:
                break
            ordinal, service = services.get(packet["function"], (0, None))
            if service is not None:
                own = packet["gid_index"] - ordinal * self._gids
                await service.received({**packet, "gid_index": own})
        for _, service in services.values():
            if service is not None and service.busy:
                await service.step()

    async def _see_to_broken_queue(self) -> bool:
        """Sees to a virtqueue that the card has found broken, as far as one step goes; whether
        there is one. Of a function that is being reset, all that it has is taken away anyway."""
        queue = await self.hardware.broken_queue()
        if queue is None:
            return False
        ordinal, number = divmod(queue, 1 << self._queue_bits)
        function = self.functions[ordinal]
        if function.release is not None or not await function.commands.queue_errors.step(number):
            await self.hardware.broken_queue_done()
        return True

    async def run(self, idle: Callable[[], Awaitable[None]]) -> None:
        """Serves for ever; ``idle`` is awaited whenever there is nothing to do."""
        while True:
            if not await self.step():
                await idle()

    @property
    def _alone(self) -> bool:
        """The card is one function's: the hardware resets that by itself, with all its tables."""
        return not self._shared

    async def _reset_of_all(self, *, raced: bool) -> bool:
        """Sees to a device reset of the only function; whether one goes on, or has just ended.

        The hardware clears the tables, and all objects are forgotten at the end of it. ``raced``: a
        command was under way and may have written rows after they were cleared, so they are cleared
        once more.
        """
        (function,) = self.functions
        if await self.hardware.resets(function.number) == function.resets:
            return False
        state = await self.hardware.function_state(function.number)
        self._raced |= raced
        if state.resetting:
            self._looks = self._looks + 1 if state.resets == self._ending else 1
            self._ending = state.resets
            if self._looks > PATIENCE:
                raise HardwareError("The device reset does not end")
            return True
        first, function.resets = function.resets is None, state.resets
        rows = function.commands.forget()
        if self._raced:
            for table, index in rows:
                await self.hardware.write_row(table, index, {})
        self._looks, self._raced = 0, False
        self.resets += not first
        return not first

    async def _reset(self, function: GuestFunction) -> bool:
        """Sees to a device reset of one of several functions; whether there was something to do.

        The firmware takes away what the function has, a part in each step, and then lets the reset
        end. It does not wait for that end: the driver may have begun the next one by then.
        """
        state = await self.hardware.function_state(function.number)
        if not state.waits and function.release is None:
            first, before = function.resets is None, function.resets
            function.resets = state.resets
            return before != state.resets and not first
        if function.release is None:
            await self.begin_release(function)
        assert function.release is not None
        if await function.release.go_on():
            # No other reset of it can have begun.
            function.resets = await self.hardware.resets(function.number)
            await self.hardware.reset_done(function.number)
            function.release = None
            self.resets += 1
        return True

    async def begin_release(self, function: GuestFunction) -> None:
        """Begins to take away what a function has, whose device reset waits for that."""
        # No further request of the function comes, but one may be here. The engine drops the
        # control queue of that request only when it is answered.
        request = await self.hardware.request()
        if request is not None and request.function == function.number:
            await self.hardware.respond(b"")
        function.release = function.commands.begin_release()

    async def release(self, function: GuestFunction) -> None:
        """Takes away what a function has, whose device reset waits for that, and the rows of all
        objects that it could have. The reset goes on waiting."""
        await self.begin_release(function)
        assert function.release is not None
        while not await function.release.go_on():
            pass
        function.release = None
        await function.commands.sweep()
