"""The bulk loader: driver and firmware as always, without the traffic between them and the card.

    with bulk(node_a), bulk(node_b):
        ...                     # CQ.create, QP.create, modify, connect: thousands of them

Inside the block, the driver's control requests are handed to the firmware's own command code
directly, and what would go through a register window row by row is read and written in the
card's memories at once: the rows of the QPs, the used indices, the virtqueues' rows. All other
register accesses (wakes, counters, CQ rows, regions, doorbells) reach the card as usual, in
order. So tables, driver and firmware end as the command path would leave them, which
``tests/nic/bench_bulk.py`` checks byte for byte; what differs is where the control queue's
rings stand. A development tool: a guest has no such way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from firmware.commands import Commands
from firmware.device import Request, Row
from firmware.functions import FunctionHardware
from firmware.registers import Registers
from hdl.abi.virtio_pci import CfgType
from hdl.csr.map import row_map
from sim.bench.bulk.memories import Memory
from sim.bench.bulk.queues import QueueRegisters
from sim.guest.driver.control import CommandResult

if TYPE_CHECKING:
    from sim.bench.system import Node

__all__ = ["TABLES", "DirectTables", "bulk"]

#: Tables (``hdl.csr.blocks.TABLES``) with a row for each QP or queue -> the RAMs that hold them.
TABLES = {
    "qp_cfg": ("tables.qp_context.qp_cfg.rows",),
    "qp_fetch": ("tables.qp_context.qp_fetch.rows",),
    "qp_tx": ("tables.qp_context.qp_tx.rows",),
    "qp_ack": ("tables.qp_context.qp_ack.rows",),
    "qp_sent": ("tables.qp_context.qp_sent.rows",),
    "qp_rx": ("tables.qp_context.qp_rx.rows", "tables.qp_context.qp_rx_ahead.rows"),
    "qp_reply": ("tables.qp_context.qp_reply.rows",),
    "used": ("queues.completion.tables.indices",),
    "queue": ("host_side.guests.function0.queues.rows",),
}


class DirectTables(Registers):
    """``firmware.device.Hardware`` whose tables of ``TABLES`` are the card's memories themselves.

    A write takes effect at once; whoever uses it sees to it that no room is at work on the row.
    """

    def __init__(self, node: Node):
        super().__init__(node.testbench.management[node.index], node.testbench.config)
        card = f"testbench.nic{node.index}"
        self.memories = {
            table: Memory(*(f"{card}.{place}" for place in places))
            for table, places in TABLES.items()
        }

    async def _command(self, name: str, field: str | None = None, **values: int) -> None:
        """Give a command and wait until it is taken; so none is busy before it."""
        await self._settle()
        await self._write(f"command.{name}", **values)
        await self._wait("command.busy", field or name, name)

    async def read_row(self, table: str, index: int) -> dict[str, int]:
        """Read a row from the first copy."""
        if (memory := self.memories.get(table)) is None:
            return await super().read_row(table, index)
        return row_map(table).unpack_number(memory.read(index))

    async def read_fields(self, table: str, index: int, *names: str) -> dict[str, int]:
        """Read some fields of a row."""
        if table not in self.memories:
            return await super().read_fields(table, index, *names)
        row = await self.read_row(table, index)
        return {name: row[name] for name in names}

    async def write_row(self, table: str, index: int, row: Row) -> None:
        """Write a row into all copies."""
        if (memory := self.memories.get(table)) is None:
            await super().write_row(table, index, row)
        else:
            memory.write(index, row_map(table).pack_number(row))


class DirectCommands:
    """The firmware's command code as the way of control requests; see ``CommandChannel``."""

    def __init__(self, commands: Commands, function: int):
        self._commands, self._function = commands, function

    async def request(
        self, request: bytes, response_size: int, name: str = "request"
    ) -> CommandResult:
        """Serve the request at once."""
        asked = Request(self._function, request, len(request), response_size)
        response = await self._commands.serve(asked)
        return CommandResult(len(response), response)


@contextmanager
def bulk(node: Node) -> Iterator[None]:
    """Inside the block, what the node's driver asks of its card takes next to no time.

    The firmware's task stands still meanwhile and goes on behind the block, if there was one.
    ValueError for a card with more than one function.
    """
    if node.testbench.config.functions > 1:
        raise ValueError("Cards with more than one function cannot be loaded in bulk")
    tables, device = DirectTables(node), node.context.device
    served = node.function.commands
    hardware = FunctionHardware(tables, node.testbench.config, node.ordinal)
    commands = Commands(hardware, served.limits, node.function.hints, features=served.features)
    commands.objects, commands.vlans, commands.pkeys = served.objects, served.vlans, served.pkeys

    running = node.firmware_runs
    node.stop_firmware()
    queues = QueueRegisters(
        node.host.mmio,
        node.testbench.config,
        tables.memories["queue"],
        node.function.number,
        device.windows[CfgType.COMMON],
    )
    usual = device.channel, node.host.mmio
    device.channel, node.host.mmio = DirectCommands(commands, node.function.number), queues
    try:
        yield
    finally:
        device.channel, node.host.mmio = usual
        node.registers.forget()
        if running:
            node.start_firmware()
