"""The registers of the management function: all blocks behind one bus."""

from types import SimpleNamespace

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, Signature

from hdl.common.tables import CsrBus, TableProgram
from hdl.config import NicConfig
from hdl.ports.counter_names import COUNTER_INDEX, COUNTERS, DEBUG, PORT_COUNTERS

from .block import CsrBlock
from .blocks import PAGES, TABLES, core, counters, debug, port
from .command import Commands
from .context import optional_blocks
from .fabric import CsrFabric
from .mailbox import Mailbox
from .mailbox_block import mailbox
from .table_windows import TableWindows

__all__ = ["Management"]


class Management(wiring.Component):
    """Every register block, with the members of each one grouped under the block's name.

    ``core``, ``port``, ``counters``, ``debug``: members as ``CsrBlock`` names them
    (``core.heartbeat``, ``port.mac_low``); ``mailbox``: see ``Mailbox``; ``command``: see
    ``Commands``; one member per table of ``TABLES``, with ``program``; ``counted`` Out: reads the
    counters, those of the port first; ``network_counted`` Out: those of the network function.
    Latency and errors of ``bus``: see ``CsrFabric``; the first request waits for the windows' RAM,
    512 cycles after reset. It is not reset by a function reset.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        port_counters: tuple[str, ...] = PORT_COUNTERS,
        counter_names: tuple[str, ...] = COUNTERS,
        debug_names: tuple[str, ...] = DEBUG,
    ):
        self._counted = {"port": len(port_counters), "counters": len(counter_names)}
        self._blocks = {
            "core": CsrBlock(block=core(config)),
            "port": CsrBlock(block=port(port_counters)),
            "mailbox": Mailbox(block=mailbox(config)),
            "command": Commands(config=config),
            "counters": CsrBlock(block=counters(counter_names)),
            "debug": CsrBlock(block=debug(debug_names)),
        }
        for name, block in optional_blocks(config).items():
            if name == "network_mailbox":
                self._blocks[name] = Mailbox(block=block)
            else:
                self._blocks[name] = CsrBlock(block=block)
        self._windows = TableWindows(config=config)
        windows = self._windows.signature.members
        super().__init__(
            {"bus": In(CsrBus()), "counted": Out(TableProgram(COUNTER_INDEX, 32))}
            | ({"network_counted": Out(TableProgram(COUNTER_INDEX, 32))} if config.network else {})
            | {name: Out(self._fields(block)) for name, block in self._blocks.items()}
            | {name: Out(Signature({"program": windows[name]})) for name in TABLES}
        )

    @staticmethod
    def _fields(block: wiring.Component) -> Signature:
        members = dict(block.signature.members.items())
        for name in ("bus", "remote"):
            members.pop(name, None)
        return Signature(members)

    def elaborate(self, platform):
        m = Module()
        tables = [PAGES[name] for name in TABLES]
        pages = {name: PAGES[name] for name in self._blocks}
        m.submodules.fabric = fabric = CsrFabric(
            pages=pages | {"windows": range(tables[0], tables[-1] + 1)}
        )
        m.submodules.windows = windows = self._windows
        wiring.connect(m, fabric.windows, windows.bus)
        wiring.connect(m, wiring.flipped(self.bus.rsp), fabric.bus.rsp)
        m.d.comb += [
            fabric.bus.req.payload.eq(self.bus.req.payload),
            fabric.bus.req.valid.eq(self.bus.req.valid & windows.ready),
            self.bus.req.ready.eq(fabric.bus.req.ready & windows.ready),
        ]
        for name in TABLES:
            wiring.connect(m, getattr(windows, name), wiring.flipped(getattr(self, name).program))
        for name, block in self._blocks.items():
            m.submodules[name] = block
            wiring.connect(m, getattr(fabric, name), block.bus)
            signature = self._fields(block)
            if not signature.members:
                continue
            members = {member: getattr(block, member) for member in signature.members}
            inside = SimpleNamespace(signature=signature, **members)
            wiring.connect(m, wiring.flipped(getattr(self, name)), inside)
        counted, first = self.counted, 0
        for name, count in self._counted.items():
            remote = self._blocks[name].remote
            m.d.comb += [remote.done.eq(counted.done), remote.read_row.eq(counted.read_row)]
            with m.If(remote.read):
                m.d.comb += [counted.read.eq(1), counted.index.eq(remote.index + first)]
            first += count
        if "network" in self._blocks:
            remote = self._blocks["network"].remote
            counted = self.network_counted
            m.d.comb += [
                counted.read.eq(remote.read),
                counted.index.eq(remote.index),
                remote.done.eq(counted.done),
                remote.read_row.eq(counted.read_row),
            ]
        return m
