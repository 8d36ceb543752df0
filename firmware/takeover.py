"""How a firmware goes on where another has stopped: on a card whose queue pairs are in use.

The card goes on by itself without a firmware, and its tables say where each queue pair stands. What
they do not say is in the journal of the firmware before (``firmware.journal``). The journal is of
this card and this life of it when the card still has its mark.

A command may have been interrupted anywhere. The request is still in the mailbox then. If the
journal has its answer, that is given. If not, the command is carried out once more from the
beginning. Nothing of it is in the journal, and each of its steps may be taken twice, but for two:
the rows that a queue pair starts from belong to the rooms once its state is committed, so they are
not written again (``QpCommands.modify``). The row of a region that is taken away is kept in the
journal before (``WindowCommands.keep``).
"""

from __future__ import annotations

import dataclasses
import secrets
from functools import partial

from firmware.commands import Commands
from firmware.device import HardwareError
from firmware.journal import Answer, Journal, JournalError, Past
from firmware.mcast_commands import group_row
from firmware.objects import Cq, Mr, Pd, Qp, Refused
from firmware.records import Record, changes, everything, merge, restore
from firmware.service import REQUEST_COUNTER, Firmware, GuestFunction
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import QpType
from hdl.abi.layout import Values
from hdl.config import NicConfig
from hdl.wire.opcodes import QP_CODE

__all__ = ["JournalKeeper", "check_unused"]


class JournalKeeper:
    """Keeps the journal of ``firmware``, which begins with what the one before has left."""

    def __init__(self, firmware: Firmware, journal: Journal, config: NicConfig):
        self._firmware, self._journal = firmware, journal
        self._config = dataclasses.asdict(config)
        self._mark = 0
        self._answer: Answer | None = None

    async def begin(self) -> bool:
        """Takes over what the journal tells of this card; whether there was something.

        Raises JournalError when it does not fit the card, HardwareError when there is none and the
        card is in use.
        """
        past, mark = self._journal.read(), await self._firmware.hardware.mark()
        mine = past is not None and mark == past.mark
        if past is None or not mine:
            await check_unused(self._firmware)
            self._mark = secrets.randbelow((1 << 32) - 1) + 1
            self._keep()
            await self._firmware.hardware.set_mark(self._mark)
            return False
        if past.config != self._config:
            raise JournalError(f"{self._journal.path} is of a card with another configuration")
        self._mark, self._answer = past.mark, past.answer
        try:
            await self._restore(past)
        except (KeyError, TypeError, ValueError, Refused) as error:
            raise JournalError(f"{self._journal.path}: {error!r}") from None
        self._keep()
        await self._finish()
        return True

    def _keep(self) -> None:
        """The journal begins anew, and is kept from now on."""
        functions = self._firmware.functions
        whole: dict[int, Record] = {function.number: {} for function in functions}
        for function in functions:
            merge(whole[function.number], everything(function.commands))
            function.commands.objects.checkpoint = partial(self._add, function, under_way=True)
        resets = {one.number: -1 if one.resets is None else one.resets for one in functions}
        self._journal.begin(Past(self._mark, self._config, whole, resets, self._answer))
        self._told = resets
        self._firmware.keeper = self

    def changed(self, function: GuestFunction) -> None:
        """See ``firmware.service.Keeper``."""
        self._add(function)

    def answered(self, function: GuestFunction, request: int, response: bytes) -> None:
        """See ``firmware.service.Keeper``."""
        self._answer = Answer(request, response)
        self._add(function, self._answer)

    def _add(
        self, function: GuestFunction, answer: Answer | None = None, *, under_way: bool = False
    ) -> None:
        changed = changes(function.commands, under_way=under_way)
        resets = function.resets
        resets = -1 if resets is None else resets
        if not changed and answer is None and resets == self._told[function.number]:
            return
        self._told[function.number] = resets
        line: Record = {"function": function.number, "resets": resets, "changed": changed}
        if answer is not None:
            line |= {"answered": answer.request, "response": answer.response.hex()}
        self._journal.add(line)
        if self._journal.grown and not under_way:
            self._keep()

    # Taking over --------------------------------------------------------------------------------

    async def _restore(self, past: Past) -> None:
        hardware = self._firmware.hardware
        pending = await hardware.request() is not None
        # A broken virtqueue changes the state of queue pairs without a request.
        pending |= await hardware.broken_queue() is not None
        for function in self._firmware.functions:
            commands = function.commands
            if function.number not in past.resets:
                raise ValueError(f"nothing is told of function {function.number}")
            resets = past.resets[function.number]
            function.resets = None if resets < 0 else resets
            restore(commands, past.functions.get(function.number, {}))
            state = await hardware.function_state(function.number)
            if state.resets != resets or state.waits:
                # The firmware sees the reset in its next step; here is what it has not seen: what
                # a command that was interrupted by it may have made.
                if state.waits:
                    await self._firmware.release(function)
                else:
                    commands.forget()
                    await commands.sweep()
                continue
            if not pending:
                await self._compare(function)
            if commands.dc is not None:
                await commands.dc.take_over(past.functions.get(function.number, {}))

    async def _compare(self, function: GuestFunction) -> None:
        """Raises ValueError unless the card's rows are those of the objects."""
        hardware, objects = function.commands.hardware, function.commands.objects
        for qp in objects.qps.all():
            owner = qp.pd or qp.xrcd
            names = {"type": QP_CODE[qp.type], "pd": 0 if owner is None else owner.number}
            if qp.type not in (QpType.DCI, QpType.DCT):  # whose connections have the others
                names |= {"state": qp.state, "qpn": qp.qpn}
            row = await hardware.read_fields("qp_cfg", qp.number, *names)
            if row != names:
                raise ValueError(f"qp_cfg row {qp.number} of the card is {row}, not {names}")
        for mr in objects.mrs.all():
            row = await hardware.read_fields("mr", mr.number, "type", "pd")
            if not row["type"] or row["pd"] != mr.pd.number:
                raise ValueError(f"mr row {mr.number} of the card is {row}, of PD {mr.pd.number}")
        for group in objects.groups.all():
            wanted = group_row(group)
            row = await hardware.read_row("group", group.number)
            if row != wanted:
                raise ValueError(f"group row {group.number} of the card is {row}, not {wanted}")

    async def _finish(self) -> None:
        """Answers the request that the firmware before has left, if it has left one."""
        firmware, hardware = self._firmware, self._firmware.hardware
        if await hardware.request() is None:
            return
        number = await hardware.counter(REQUEST_COUNTER)
        if self._answer is not None and self._answer.request == number:
            await hardware.respond(self._answer.response)
            return
        for function in firmware.functions:
            function.commands.objects.redoing = True
        await firmware.step()
        for function in firmware.functions:
            function.commands.objects.redoing = False


async def check_unused(firmware: Firmware) -> None:
    """Raises HardwareError when a function has objects that this firmware knows nothing of.

    A function whose device reset waits loses them: its driver has gone.
    """
    for function in firmware.functions:
        commands = function.commands
        hardware, config = commands.hardware, commands.limits.config
        state = await firmware.hardware.function_state(function.number)
        if not (state.status or state.waits):
            continue
        found = {
            table: [
                index
                for index in range(count)
                if (await hardware.read_fields(table, index, field))[field]
            ]
            for table, count, field in (("qp_cfg", config.qps, "qpn"), ("mr", config.mrs, "type"))
        }
        if not any(found.values()):
            continue
        if not state.waits:
            raise HardwareError(
                f"Function {function.number} has {len(found['qp_cfg'])} queue pairs and "
                f"{len(found['mr'])} regions of a firmware before, and there is no journal of "
                "them: reset the device (unload its driver) first"
            )
        _adopt(commands, found["qp_cfg"], found["mr"])
        await firmware.release(function)


def _adopt(commands: Commands, pairs: list[int], regions: list[int]) -> None:
    """Makes objects of rows of which nothing else is known, so that they can be released."""
    nothing = Values(abi.QP_ATTR.unpack(bytes(abi.QP_ATTR.size)))
    init = dict.fromkeys((one.name for one in abi.CMD_CREATE_QP.fields), 0)
    for pair in pairs:
        commands.objects.qps.add(lambda: Qp(Pd(), Cq(), Cq(), dict(init), nothing), pair)
    for region in regions:
        commands.objects.mrs.add(lambda: Mr(Pd()), region)
