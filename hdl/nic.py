"""The whole NIC: five boxes and the network side, joined and nothing else.

The boxes are the host side, the queues, the transport, the memory box and the tables. What flows
between them is in ``hdl/ports/boxes.py``; who waits for whom is in docs/architecture.md.
"""

from amaranth.hdl import Module, ResetInserter, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.count import COUNT
from hdl.common.packet import packet_stream
from hdl.common.streams import passes
from hdl.config import NicConfig
from hdl.context.tables import Tables
from hdl.counters import connect_counters
from hdl.egress.egress import Egress
from hdl.host.host_side import HostSide
from hdl.ingress.ingress import Ingress
from hdl.mac.border import MacBorder
from hdl.mac.latency import Latency
from hdl.memory.memory import Memory
from hdl.network_function import NetworkFunction
from hdl.ports.activations import ReceiveFlags
from hdl.ports.boxes import ENGINES
from hdl.ports.host import HostPort
from hdl.ports.latency import packet_key
from hdl.queues.queues import Queues
from hdl.transport.connections import Connections
from hdl.transport.transport import Transport

__all__ = ["BOXES", "Nic"]

#: The boxes by the name they have below the top.
BOXES = ("host_side", "queues", "transport", "memory", "tables")


class Nic(wiring.Component):
    """One card's core: host port on one side, MAC streams on the other.

    Parameters: ``around``: the counters (of ``AROUND`` in ``hdl/ports/counter_names.py``) that the
    adapters around it have.
    Members: ``host`` (``HostPort``), ``mac_tx`` Out and ``mac_rx`` In (frames without FCS),
    ``intx`` Out (level, of each function without MSI-X), ``link_up`` In; ``flr`` In,
    ``flr_clean``, ``flr_over`` Out: function-level resets, see ``HostSide``;
    ``around`` In, if there are any: what these counters count, modulo 2**``COUNT``.
    Reset: everything; a device reset of the only guest function resets the rooms, not the
    management function.
    """

    def __init__(self, *, config: NicConfig, around: tuple[str, ...] = ()):
        self.config = config
        counts = data.StructLayout(dict.fromkeys(around, COUNT))
        super().__init__(
            {
                **({"around": In(counts)} if around else {}),
                "host": Out(HostPort(config.width, push=config.push)),
                "mac_tx": Out(packet_stream(config.width)),
                "mac_rx": In(packet_stream(config.width)),
                "intx": Out(config.driven),
                "link_up": In(1),
                "flr": In(config.driven),
                "flr_clean": Out(config.driven),
                "flr_over": Out(config.driven),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.host_side = host_side = HostSide(config=config)
        m.submodules.tables = tables = Tables(config=config)
        m.submodules.border = border = MacBorder(config=config)

        def room(name: str, component):
            """A component that a device reset resets too."""
            m.submodules[name] = ResetInserter(host_side.room_reset)(component)
            return component

        queues = room("queues", Queues(config=config, receive_flags=ReceiveFlags.FLUSH.value))
        transport = room("transport", Transport(config=config))
        memory = room("memory", Memory(config=config))
        ingress = room("ingress", Ingress(config=config))
        egress = room("egress", Egress(config=config))

        # The host and the boxes that use it.
        connect(m, host_side.host, flipped(self.host))
        for engine in ENGINES:
            connect(m, getattr(queues, engine), getattr(host_side, engine))
        connect(m, memory.host, host_side.memory)
        connect(m, host_side.doorbell, queues.doorbell)
        connect(m, host_side.queue_reset, queues.queue_reset)

        # Work: from the queues through the transport to memory, and back.
        connect(m, queues.doorbell_send, transport.doorbell_send)
        connect(m, queues.doorbell_receive, transport.doorbell_receive)
        connect(m, transport.send_fetch, queues.send_fetch)
        connect(m, transport.recv_fetch, queues.recv_fetch)
        connect(m, transport.tx, memory.tx)
        connect(m, transport.rx, memory.rx)
        connect(m, transport.memory_drain, memory.drain)
        connect(m, memory.send_lines, queues.send_lines)
        connect(m, memory.recv_lines, queues.recv_lines)
        connect(m, memory.completions, queues.completions)
        connect(m, memory.reply, transport.reply)
        connect(m, queues.lost, transport.lost)

        # The network side.
        connect(m, flipped(self.mac_rx), border.mac_rx)
        connect(m, border.received, ingress.i)
        if not config.dc:
            connect(m, ingress.header, transport.header)
            connect(m, transport.answer, egress.answer)
        connect(m, ingress.payload, memory.received)
        connect(m, memory.header, egress.header)
        connect(m, memory.payload, egress.payload)
        connect(m, egress.o, border.sent)
        connect(m, egress.departed, transport.departed)
        connect(m, border.mac_tx, flipped(self.mac_tx))

        # Tables and the firmware's registers. A card that has broken keeps its rows.
        rows_reset = host_side.room_reset
        if config.parity:
            rows_reset = rows_reset & ~host_side.halted
        connect(m, transport.tables, tables.qps)
        connect(m, memory.tables, tables.mrs)
        connect(m, transport.region_keys, tables.region_keys)
        connect(m, egress.gid, tables.gid)
        connect(m, ingress.pkeys, tables.pkeys)
        connect(m, ingress.group_rows, tables.group_rows)
        connect(m, host_side.csr, tables.csr)
        for n in range(config.functions):
            connect(m, getattr(host_side, f"status{n}"), getattr(tables, f"status{n}"))
        connect(m, host_side.counters, tables.counters)
        connect(m, host_side.qp_counters, transport.guest_counters)
        connect(m, tables.qp_counters, transport.qp_counters)
        connect(m, tables.queue_rows, host_side.queue_rows)
        connect(m, tables.cq_rows, queues.cq_rows)
        connect(m, tables.used_indices, queues.used_indices)
        connect(m, queues.mailbox, tables.mailbox)
        connect(m, tables.queue_command, queues.command)
        connect(m, tables.transport_command, transport.command)
        connect(m, tables.memory_command, memory.command)
        m.d.comb += [
            ingress.gids.eq(tables.gids),
            ingress.groups.eq(tables.groups),
            *(
                fact[name].eq(row[name])
                for fact, row in zip(transport.gids, tables.gids, strict=True)
                for name in ("valid", "ipv4")
            ),
            ingress.mac_address.eq(tables.mac_address),
            ingress.lossless.eq(tables.lossless),
            egress.mac_address.eq(tables.mac_address),
            transport.sent.eq(egress.sent),
            transport.spoiled.eq(egress.spoiled),
            tables.link_up.eq(self.link_up),
            tables.room_reset.eq(rows_reset),
            host_side.tables_ready.eq(tables.ready & transport.ready),
            border.core_reset.eq(host_side.room_reset),
            border.mac_address.eq(tables.mac_address),
            border.loopback.eq(tables.loopback),
            border.groups.eq(tables.any_group),
            self.intx.eq(host_side.intx),
            host_side.flr.eq(self.flr),
            self.flr_clean.eq(host_side.flr_clean),
            self.flr_over.eq(host_side.flr_over),
        ]
        self._connect_switches(m)
        connect_counters(
            m,
            tables,
            ingress=ingress.counters,
            egress=egress.counters,
            border=border,
            boxes=(transport, memory, queues, host_side),
            around=self._around(),
        )
        return m

    def _network(self, m) -> None:
        """The network function, which shares the wire with what RDMA sends and takes."""
        rooms = m.submodules
        host_side, tables, ingress = rooms.host_side, rooms.tables, rooms.ingress
        m.submodules.network = network = NetworkFunction(config=self.config)
        connect(m, network.host, host_side.network)
        connect(m, host_side.network_status, tables.network_status)
        connect(m, network.mailbox, tables.network_mailbox)
        connect(m, tables.network, network.tables)
        connect(m, network.sent, rooms.border.network)
        m.d.comb += [
            network.received.valid.eq(passes(ingress.i)),
            network.received.beat.eq(ingress.i.payload),
            network.verdict.eq(ingress.verdict),
            network.core_reset.eq(host_side.room_reset),
        ]

    def _connections(self, m) -> None:
        """Packets that open and close connections of DC pass between the wire and the firmware."""
        rooms = m.submodules
        room_reset = ResetInserter(rooms.host_side.room_reset)
        connections = Connections(config=self.config)
        m.submodules.connections = room_reset(connections)
        connect(m, rooms.ingress.header, connections.header)
        connect(m, connections.passed, rooms.transport.header)
        connect(m, rooms.transport.answer, connections.answer)
        connect(m, connections.o, rooms.egress.answer)
        connect(m, rooms.tables.connections, connections.port)
        m.d.comb += connections.apart.eq(rooms.transport.apart)

    def _connect_switches(self, m) -> None:
        """What only some cards have."""
        config, rooms = self.config, m.submodules
        host_side, tables, border = rooms.host_side, rooms.tables, rooms.border
        if config.network:
            self._network(m)
        if config.dc:
            self._connections(m)
        if config.events:
            connect(m, rooms.queues.dropped, host_side.dropped)
            connect(m, host_side.broken_queue, tables.broken_queue)
        if config.mp_wr:
            dropped, told = rooms.queues.dropped, rooms.transport.dropped
            m.d.comb += [told.valid.eq(dropped.valid), told.queue.eq(dropped.queue)]
        if config.mkeys:
            connect(m, rooms.transport.layout_lines, rooms.queues.layout_lines)
            m.d.comb += rooms.memory.layout.eq(rooms.transport.layout)
        if config.push:
            connect(m, host_side.push, rooms.queues.push)
            connect(m, rooms.queues.pushed, tables.pushed)
        if config.hot_qps:
            connect(m, tables.context, host_side.context)
        if config.parity:
            m.d.comb += [host_side.broken.eq(tables.broken), tables.halted.eq(host_side.halted)]
        if config.trace_frames:
            connect(m, tables.trace, border.trace)
            m.d.comb += border.verdict.eq(rooms.ingress.verdict)
        if config.latency:
            m.submodules.latency = latency = Latency(before=Ingress.KEPT_LATENCY)
            connect(m, tables.latency, latency.port)
            m.d.comb += latency.core_reset.eq(host_side.room_reset)
            self._watch(m, latency)

    def _around(self) -> dict[str, Value]:
        """Counts of the adapters around the core, by name."""
        if "around" not in self.signature.members:
            return {}
        return {name: self.around[name] for name in self.around.shape().members}

    def _watch(self, m, latency) -> None:
        """What passes between the boxes, to the measurement of latencies."""
        rooms = m.submodules
        queues, transport = rooms.queues, rooms.transport
        ingress, egress = rooms.ingress, rooms.egress
        doorbell, job = queues.doorbell_send, transport.tx.job
        send, payload = latency.send, ingress.payload
        m.d.comb += [
            send.doorbell.eq(passes(doorbell)),
            send.doorbell_qp.eq(doorbell.p.qp),
            send.job.eq(passes(job) & job.p.request),
            send.job_qp.eq(job.p.qp),
            send.job_key.eq(packet_key(job.p.header)),
            send.header.eq(egress.enters),
            send.header_key.eq(egress.entering),
            send.frame.eq(passes(egress.o) & egress.o.p.first),
            latency.receive.eq(ingress.steps),
            latency.taken.eq(passes(payload) & payload.p.last),
        ]
