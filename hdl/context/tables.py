"""The tables: every row that rooms share, the counters, and the firmware's registers for them."""

from amaranth.hdl import Cat, Module, ResetInserter, Shape, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.contract import keeps_offers
from hdl.common.count import BYTES
from hdl.common.tables import CsrBus, TableProgram, TableRead
from hdl.config import QP_BITS, NicConfig
from hdl.csr.command import MemoryCommands, QueueCommands, TransportCommands
from hdl.csr.mailbox import MailboxPort
from hdl.csr.management import Management
from hdl.csr.network import NET_REQUEST_WORDS
from hdl.ports.boxes import (
    RESOURCE_READERS,
    BrokenQueue,
    ContextHost,
    FunctionStatus,
    MemoryTables,
    QpTables,
)
from hdl.ports.connections import ConnectionPort
from hdl.ports.context import QP_MACHINES, QP_PINS, QP_TABLES
from hdl.ports.counter_names import (
    COUNTER_INDEX,
    COUNTERS,
    NET_COUNTERS,
    PORT_COUNTERS,
    QP_COUNTER_INDEX,
)
from hdl.ports.headers import GidRow, GroupAddress, GroupRow, PkeyRow
from hdl.ports.latency import LatencyPort
from hdl.ports.network_boxes import NetworkStatus, NetworkTables
from hdl.ports.numbers import CqNumber
from hdl.ports.push import PushCounts
from hdl.ports.regions import RegionKeyPorts
from hdl.ports.rows import CqRow, MrRow, QpRx, QueueRow, ReadResource, kept_bits
from hdl.ports.trace import TracePort

from .cached.host_store import HostStore
from .cached_context import CachedContext, record_layout
from .connections import connect_connections
from .counter_bank import CounterBank
from .gid import GidTable
from .groups import GroupTable
from .mirror import ProgramMirror
from .network import connect_network
from .ram_context import RamContext
from .region_keys import RegionKeys
from .table import Table
from .watch import connect_latency, connect_parity, connect_push, connect_trace

__all__ = ["NAMES", "Tables"]

#: Every counter in the order of its number.
NAMES = PORT_COUNTERS + COUNTERS
#: The regions' readers, in the order of their ports.
MR_READERS = ("gather", "scatter")
#: Tables that other boxes own: member of this box -> name of the firmware's window.
ELSEWHERE = {
    "cq_rows": "cq",
    "used_indices": "used",
    "queue_rows": "queue",
    "qp_counters": "qp_counters",
}


class Tables(wiring.Component):
    """Rows of QPs, regions and GIDs, the counter bank and the management registers.

    Members: ``qps`` In: the transport's looks and writes (``QpTables``); ``mrs`` In: the memory
    box's reads; ``region_keys`` In: changes of their keys; ``gid`` In: egress reads; ``gids`` Out:
    all of them, for ingress; ``pkeys`` In: its reads; ``groups`` Out, ``group_rows`` In: the
    multicast groups, for it too; ``any_group`` Out: there are some. ``cq_rows``, ``used_indices``,
    ``queue_rows``, ``qp_counters`` Out: the firmware's view of tables in other boxes. ``mailbox``,
    ``queue_command``, ``transport_command``, ``memory_command``: the firmware and the boxes.
    ``csr`` In: the register bus; ``counters`` In: the guest's reader of counters, whose ``values``
    In come from the rooms (``NAMES``). ``status0``.. In: the guest functions'. ``mac_address``,
    ``lossless``, ``loopback`` Out, ``link_up`` In: the Ethernet port. ``trace``, ``latency``
    Out and ``pushed`` In, if there are such; ``connections`` Out, of a card with DC. ``room_reset``
    In clears the tables, not the registers; ``ready`` Out: all tables here are cleared. ``context``
    Out: host memory with rows of QPs, if not all are on chip. ``broken`` Out: a row with a wrong
    bit has been read, if that is looked for; ``halted`` In: the rooms stand still for that.
    ``broken_queue`` In, of a card with events: a virtqueue that the firmware is to see to.
    Of a card with a network function: ``network``, ``network_status``, ``network_mailbox``.
    Reset: rows are cleared one a cycle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {f"status{n}": In(FunctionStatus()) for n in range(config.functions)}
            | {
                "qps": In(QpTables(pins=config.hot_qps != 0)),
                "mrs": In(MemoryTables()),
                "region_keys": In(RegionKeyPorts()),
                "gid": In(TableRead(8, GidRow)),
                "gids": Out(data.ArrayLayout(GidRow, config.gids)),
                "pkeys": In(TableRead(8, PkeyRow)),
                "groups": Out(data.ArrayLayout(GroupAddress, config.groups)),
                "group_rows": In(TableRead(8, GroupRow)),
                "any_group": Out(1),
                "cq_rows": Out(TableProgram(CqNumber, CqRow)),
                "used_indices": Out(TableProgram(16, 16)),
                "queue_rows": Out(TableProgram(16, QueueRow)),
                "qp_counters": Out(TableProgram(QP_COUNTER_INDEX, 32)),
                "mailbox": In(MailboxPort(posts=config.events)),
                "queue_command": Out(QueueCommands()),
                "transport_command": Out(TransportCommands()),
                "memory_command": Out(MemoryCommands()),
                "csr": In(CsrBus()),
                "counters": In(TableProgram(COUNTER_INDEX, 32)),
                "values": In(data.ArrayLayout(BYTES, len(NAMES))),
                "mac_address": Out(48),
                "lossless": Out(1),
                "loopback": Out(1),
                "link_up": In(1),
                "room_reset": In(1),
                "ready": Out(1),
            }
            | ({"trace": Out(TracePort(config.trace_frames))} if config.trace_frames else {})
            | ({"latency": Out(LatencyPort())} if config.latency else {})
            | ({"pushed": In(PushCounts())} if config.push else {})
            | ({"connections": Out(ConnectionPort())} if config.dc else {})
            | ({"broken": Out(1), "halted": In(1)} if config.parity else {})
            | ({"context": Out(ContextHost(config))} if config.hot_qps else {})
            | ({"broken_queue": In(BrokenQueue())} if config.events else {})
            | (
                {
                    "network": Out(NetworkTables()),
                    "network_status": In(NetworkStatus()),
                    "network_mailbox": In(MailboxPort(posts=False, words=NET_REQUEST_WORDS)),
                }
                if config.network
                else {}
            )
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.management = management = Management(config=config)
        self._ready: list[Signal] = []
        # Tables in which a wrong bit has been seen, and what makes them store one.
        self._bad: dict[str, Value] = {}
        self._spoils: list[Value] = []
        programs = self._qp_tables(m)

        kept = kept_bits(config)
        mrs = self._room(
            m,
            "mrs",
            Table(
                row=MrRow,
                depth=config.mrs,
                index_width=16,
                reads=len(MR_READERS),
                owned=False,
                kept=kept["mrs"],
                parity=config.parity,
            ),
        )
        if config.parity:
            self._bad["mrs"] = mrs.bad
            self._spoils.append(mrs.spoil)
        for number, reader in enumerate(MR_READERS):
            connect(m, flipped(getattr(self.mrs, reader)), getattr(mrs, f"read{number}"))
        gids = self._room(m, "gids", GidTable(config=config))
        connect(m, flipped(self.gid), gids.read)
        m.d.comb += self.gids.eq(gids.rows)
        bank = self._room(m, "counter_bank", CounterBank(names=NAMES))
        connect(m, flipped(self.counters), bank.guest)
        connect(m, management.counted, bank.program)
        m.d.comb += bank.values.eq(self.values)
        m.d.comb += self.ready.eq(Cat(self._ready).all())

        programs |= {"mr": mrs.program, "gid": gids.program}
        if config.ud:
            # It lives through a device reset: whoever runs the card sets it.
            m.submodules.pkeys = pkeys = Table(
                row=PkeyRow, depth=config.functions, index_width=8, owned=False
            )
            self._ready.append(pkeys.ready)
            connect(m, flipped(self.pkeys), pkeys.read0)
            programs["pkey"] = pkeys.program
        if config.multicast:
            groups = self._room(m, "groups", GroupTable(config=config))
            connect(m, flipped(self.group_rows), groups.read)
            m.d.comb += [self.groups.eq(groups.addresses), self.any_group.eq(groups.any)]
            programs["group"] = groups.program
        if config.fast_registration:
            keys = self._room(m, "region_keys", RegionKeys(config=config))
            connect(m, keys.table, mrs.program)
            connect(m, flipped(self.region_keys), keys.ports)
            programs["mr"] = keys.program
        programs |= {name: flipped(getattr(self, own)) for own, name in ELSEWHERE.items()}
        for name, program in programs.items():
            connect(m, getattr(management, name).program, program)
        self._registers(m, management)
        keeps_offers(m, platform, self)
        return m

    def _room(self, m, name: str, component):
        """A component that a device reset resets too, and whose ``ready`` counts."""
        m.submodules[name] = ResetInserter(self.room_reset)(component)
        if "ready" in component.signature.members:
            self._ready.append(component.ready)
        return component

    def _qp_tables(self, m) -> dict:
        """What the transport reads and writes; returns the firmware's window of each table."""
        config = self._config
        backs = CachedContext if config.hot_qps else RamContext
        context = self._room(m, "qp_context", backs(config=config))
        if config.hot_qps:
            self._hot(m, context)
        for machine in QP_MACHINES:
            connect(m, flipped(getattr(self.qps, machine)), getattr(context, machine))
        for name, table in QP_TABLES.items():
            if table.owner:
                write = f"{name}_write"
                connect(m, flipped(getattr(self.qps, write)), getattr(context, write))
        # No window: rows of the hardware alone.
        resources = self._room(
            m,
            "resources",
            Table(
                row=ReadResource,
                depth=config.read_resources,
                index_width=16,
                reads=len(RESOURCE_READERS),
                kept=kept_bits(config)["resources"],
                parity=config.parity,
            ),
        )
        for number, reader in enumerate(RESOURCE_READERS):
            port = getattr(self.qps, f"resources_{reader}")
            connect(m, flipped(port), getattr(resources, f"read{number}"))
        connect(m, flipped(self.qps.resources_write), resources.write)
        if config.parity:
            self._bad |= {name: context.bad[name] for name in QP_TABLES}
            self._bad["resources"] = resources.bad
            self._spoils += [context.spoil, resources.spoil]
        programs = {name: getattr(context, name) for name in QP_TABLES}
        # The firmware writes the responder's row and its speculative copy as one.
        both = self._room(m, "qp_rx_both", ProgramMirror(row=QpRx, index_width=QP_BITS))
        connect(m, both.first, programs["qp_rx"])
        connect(m, both.second, programs.pop("qp_rx_ahead"))
        programs["qp_rx"] = both.program
        return programs

    def _hot(self, m, context) -> None:
        """The memory in which the rows are that are not on chip."""
        bits = Shape.cast(record_layout()).width
        store = self._room(m, "qp_records", HostStore(config=self._config, bits=bits))
        connect(m, context.store, store.store)
        connect(m, store.read_client, flipped(self.context.reads))
        connect(m, store.write_client, flipped(self.context.writes))
        for name in QP_PINS:
            connect(m, flipped(getattr(self.qps, f"{name}_pin")), getattr(context, f"{name}_pin"))
        block = m.submodules.management.context
        m.d.comb += [
            store.base.eq(Cat(block.base_low, block.base_high)),
            store.enable.eq(block.control_enable),
        ]
        for name in ("missed", "lost"):
            count = getattr(block, name)
            with m.If(getattr(context, name)):
                m.d.sync += count.eq(count + 1)

    def _registers(self, m, management) -> None:
        """Mailbox, commands, port and state of the guest functions."""
        connect(m, flipped(self.csr), management.bus)
        mailbox, mine = management.mailbox, self.mailbox
        connect(m, flipped(mine.request), mailbox.request)
        connect(m, flipped(mine.response), mailbox.response)
        m.d.comb += [
            mailbox.pending.eq(mine.pending),
            mailbox.function.eq(mine.function),
            mailbox.request_length.eq(mine.request_length),
            mailbox.writable_length.eq(mine.writable_length),
            mine.response_length.eq(mailbox.response_length),
            mine.done.eq(mailbox.done),
        ]
        if self._config.events:
            connect(m, mailbox.post, flipped(mine.post))
            connect(m, flipped(self.broken_queue), mailbox.broken)
        for group in (self.queue_command, self.transport_command, self.memory_command):
            for name, member in group.signature.members.items():
                mine, theirs = getattr(group, name), getattr(management.command, name)
                if member.is_port:
                    m.d.comb += mine.eq(theirs)
                else:
                    connect(m, theirs, flipped(mine))
        port, core = management.port, management.core
        m.d.comb += [
            self.mac_address.eq(Cat(port.mac_low, port.mac_high)),
            self.lossless.eq(port.control_lossless),
            self.loopback.eq(port.control_loopback),
            port.status_link_up.eq(self.link_up),
        ]
        for n in range(self._config.functions):
            self._function(m, core, n)
        if self._config.trace_frames:
            connect_trace(m, management.trace, self.trace)
        if self._config.latency:
            connect_latency(m, management.latency, self.latency)
        if self._config.push:
            connect_push(m, management.push, self.pushed)
        if self._config.dc:
            connect_connections(m, management.connections, self.connections)
        if self._config.network:
            m.submodules.network_bank = bank = CounterBank(names=NET_COUNTERS)
            connect_network(m, management, bank, self)
        if self._config.parity:
            connect_parity(m, management.parity, (self._bad, self._spoils), self)

    def _function(self, m, core, n: int) -> None:
        """State of a guest function, and the end of its reset."""
        status = getattr(self, f"status{n}")
        shown = {
            "resets": status.reset_count,
            "status_device": status.status,
            "status_resetting": status.resetting,
            "status_waits": status.reset_request,
            "status_features": status.features,
            "needs_reset_queue": status.needs_reset_queue,
            "needs_reset_cause": status.needs_reset_cause,
            "needs_reset_active": status.needs_reset,
        }
        m.d.comb += [getattr(core, f"function{n}_{name}").eq(shown[name]) for name in shown]
        m.d.comb += [
            status.mac.eq(self.mac_address),
            status.reset_done.eq(getattr(core, f"function{n}_control_reset_done")),
        ]
