"""The whole NIC: rooms wired together, nothing else.

What flows between them and who waits for whom: docs/architecture.md.
"""

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.activation import ActivationList
from hdl.common.arbiter import StreamArbiter
from hdl.common.fifo import StreamFifo
from hdl.common.fork import StreamFork
from hdl.common.quiesce import Quiesce
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.context.counter_bank import CounterBank
from hdl.context.gid import GidTable
from hdl.context.mirror import ProgramMirror
from hdl.context.table import Table
from hdl.counters import NAMES, connect_counters
from hdl.csr.management import Management
from hdl.egress.egress import Egress
from hdl.host.mmio import MmioRouter
from hdl.host.read import ReadEngine
from hdl.host.read_merge import ReadMerge
from hdl.host.reset import ResetSequence
from hdl.host.virtio import VirtioFunction
from hdl.host.write import WriteEngine
from hdl.ingress.ingress import Ingress
from hdl.mac.guards import RxGuard, TxGuard
from hdl.memory.gather import Gather
from hdl.memory.scatter import Scatter
from hdl.ports.host import STREAM_DATA, HostPort
from hdl.ports.jobs import Activation, Interrupt, QueueError
from hdl.ports.packet import packet_stream
from hdl.ports.rows import MrRow, QpAck, QpCfg, QpFetch, QpReply, QpRx, QpTx, ReadResource
from hdl.queues.completion import CompletionEngine
from hdl.queues.control import ControlEngine
from hdl.queues.doorbell import DoorbellRouter
from hdl.queues.receive import RecvFetch
from hdl.queues.send import SendFetch
from hdl.transport.outstanding import OutstandingTable
from hdl.transport.qp_counters import QpCounters
from hdl.transport.receive import Receive
from hdl.transport.receive_types import ReceiveFlags
from hdl.transport.replier import Replier
from hdl.transport.requester import Requester
from hdl.transport.scheduler import Scheduler
from hdl.transport.tx_arbiter import TxArbiter

__all__ = ["Nic"]


class Nic(wiring.Component):
    """One card's core: host port on one side, MAC streams on the other.

    Members: ``host`` (``HostPort``), ``mac_tx`` Out and ``mac_rx`` In (frames without FCS),
    ``intx`` Out (level, of the RDMA function without MSI-X), ``link_up`` In.
    Reset: everything; a device reset by the driver resets the rooms, not the management function.
    """

    def __init__(self, *, config: NicConfig):
        self.config = config
        super().__init__(
            {
                "host": Out(HostPort(config.width)),
                "mac_tx": Out(packet_stream(config.width)),
                "mac_rx": In(packet_stream(config.width)),
                "intx": Out(1),
                "link_up": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        room_reset = Signal()

        def add(name: str, component):
            """A component that only the card's own reset resets."""
            m.submodules[name] = component
            return component

        def room(name: str, component):
            """A component that a device reset resets too."""
            m.submodules[name] = ResetInserter(room_reset)(component)
            return component

        def table(name: str, row, depth: int, index_width: int, **kwargs):
            return room(name, Table(row=row, depth=depth, index_width=index_width, **kwargs))

        def connect(*pairs):
            for one, other in pairs:
                wiring.connect(m, one, other)

        half = config.read_tags // 2  # what a room waits for never queues behind payload in bulk
        reads = add("reads", ReadEngine(config=config, clients=6, tags=half, direct=(0, 2, 3, 4)))
        bulk = ReadEngine(config=config, clients=1, tags=half, first_tag=half, address_lanes=True)
        add("bulk_reads", bulk)
        read_port = add("read_port", ReadMerge(config=config))
        writes = add("writes", WriteEngine(config=config, clients=6, placed=(0,), narrow=(3, 4, 5)))
        mmio = add("mmio", MmioRouter())
        virtio = add("virtio", VirtioFunction(config=config, reads=3, counters=len(NAMES)))
        management = add("management", Management(config=config))
        reset = add("reset", ResetSequence())
        tx_guard = add("tx_guard", TxGuard(width=config.width))

        rx_guard = room("rx_guard", RxGuard(width=config.width))
        ingress = room("ingress", Ingress(config=config))
        egress = room("egress", Egress(config=config))
        gids = room("gids", GidTable(config=config))
        scheduler = room("scheduler", Scheduler(config=config))
        requester = room("requester", Requester(config=config))
        outstanding = room("outstanding", OutstandingTable(config=config))
        replier = room("replier", Replier(config=config))
        tx_arbiter = room("tx_arbiter", TxArbiter())
        receive = room("receive", Receive(config=config))
        qp_counters = room("qp_counters", QpCounters(config=config))
        counters = room("counter_bank", CounterBank(names=NAMES))
        pokes = room("pokes", ActivationList(qps=config.qps, sets=5, held=True))
        gather = room("gather", Gather(config=config))
        scatter = room("scatter", Scatter(config=config))
        send_fetch = room("send_fetch", SendFetch(config=config))
        recv_fetch = room("recv_fetch", RecvFetch(config=config))
        completion = room("completion", CompletionEngine(config=config))
        control = room("control", ControlEngine(config=config, stream_id=STREAM_DATA))
        doorbells = room(
            "doorbells", DoorbellRouter(config=config, receive_flags=ReceiveFlags.FLUSH.value)
        )

        qps = config.qps
        qp_cfg = table("qp_cfg", QpCfg, qps, 14, reads=4, owned=False)
        qp_fetch = table("qp_fetch", QpFetch, qps, 14)
        qp_tx = table("qp_tx", QpTx, qps, 14, reads=2)
        qp_ack = table("qp_ack", QpAck, qps, 14, reads=3)
        qp_rx = table("qp_rx", QpRx, qps, 14, reads=3)
        qp_rx_ahead = table("qp_rx_ahead", QpRx, qps, 14)
        qp_reply = table("qp_reply", QpReply, qps, 14, reads=2)
        resources = table("resources", ReadResource, config.read_resources, 16, reads=2)
        mrs = table("mrs", MrRow, config.mrs, 16, reads=2, owned=False)

        qp_rx_both = room("qp_rx_both", ProgramMirror(row=QpRx, index_width=14))
        releases = room("releases", StreamArbiter(shape=8, inputs=2))
        wakes = room("wakes", StreamFifo(shape=14, depth=8))
        replies = room("replies", StreamArbiter(shape=Activation, inputs=2))
        interrupts = room("interrupts", StreamArbiter(shape=Interrupt, inputs=2))
        queue_errors = room("queue_errors", StreamArbiter(shape=QueueError, inputs=4))
        queue_resets = room("queue_resets", StreamFork(shape=16, outputs=4))
        drain = room("drain", Quiesce(fronts=3, parts=3))
        invalidate = room("invalidate", Quiesce(fronts=0, parts=2))

        # Host port.
        m.d.comb += [
            self.host.rd_req.valid.eq(read_port.rd_req.valid),
            self.host.rd_req.payload.eq(read_port.rd_req.payload),
            read_port.rd_req.ready.eq(self.host.rd_req.ready),
            read_port.rd_rsp.valid.eq(self.host.rd_rsp.valid),
            read_port.rd_rsp.payload.eq(self.host.rd_rsp.payload),
            self.host.wr.valid.eq(writes.wr.valid),
            self.host.wr.payload.eq(writes.wr.payload),
            writes.wr.ready.eq(self.host.wr.ready),
        ]
        connect(
            (wiring.flipped(self.host.mmio), mmio.mmio),
            (mmio.guest, virtio.bus),
            (mmio.csr, management.bus),
            (recv_fetch.read_client, reads.client0),
            (scatter.table_client, reads.client1),
            (completion.read_client, reads.client2),
            (control.read_client, reads.client3),
            (send_fetch.read_client, reads.client4),
            (gather.table_client, reads.client5),
            (gather.read_client, bulk.client0),
            (reads.rd_req, read_port.req0),
            (bulk.rd_req, read_port.req1),
            (read_port.rsp0, reads.rd_rsp),
            (read_port.rsp1, bulk.rd_rsp),
            (scatter.write_client, writes.client0),
            (completion.write_client, writes.client1),
            (control.write_client, writes.client2),
            (virtio.write, writes.client3),
            (send_fetch.write_client, writes.client4),
            (recv_fetch.write_client, writes.client5),
        )

        # Virtqueues.
        connect(
            (virtio.doorbell, doorbells.i),
            (doorbells.control, control.doorbell),
            (doorbells.send, scheduler.doorbell),
            (recv_fetch.queue_read, virtio.queue_read0),
            (send_fetch.queue_read, virtio.queue_read1),
            (completion.queue_read, virtio.queue_read2),
            (control.queue_read, virtio.control_read),
            (virtio.queue_reset, queue_resets.i),
            (queue_resets.o0, recv_fetch.queue_reset),
            (queue_resets.o1, send_fetch.queue_reset),
            (queue_resets.o2, completion.queue_reset),
            (queue_resets.o3, control.queue_reset),
            (recv_fetch.error, queue_errors.i0),
            (send_fetch.error, queue_errors.i1),
            (completion.error, queue_errors.i2),
            (control.error, queue_errors.i3),
            (queue_errors.o, virtio.queue_error),
            (completion.interrupt, interrupts.i0),
            (control.interrupt, interrupts.i1),
            (interrupts.o, virtio.interrupt),
        )
        m.d.comb += virtio.queue_reset_done.eq(queue_resets.done)
        m.d.comb += control.function.eq(FUNCTION_RDMA)
        for engine in (recv_fetch, send_fetch, completion, control):
            m.d.comb += engine.event_idx.eq(virtio.event_idx)
            m.d.comb += engine.indirect.eq(virtio.indirect_desc)
        m.d.comb += send_fetch.in_order.eq(virtio.in_order)

        # Sending.
        connect(
            (scheduler.fetch_req, send_fetch.req),
            (send_fetch.rsp, scheduler.fetch_rsp),
            (send_fetch.sink, recv_fetch.sink),
            (scheduler.wqe, requester.wqe),
            (requester.rewind, scheduler.rewind),
            (requester.started, scheduler.started),
            (scheduler.release, releases.i0),
            (requester.release, releases.i1),
            (releases.o, send_fetch.release),
            (requester.append, outstanding.append),
            (outstanding.appended, requester.appended),
            (requester.finish, outstanding.finish),
            (requester.fail, outstanding.fail),
            (requester.job, tx_arbiter.job0),
            (tx_arbiter.checked0, requester.checked),
            (replier.job, tx_arbiter.job1),
            (tx_arbiter.checked1, replier.checked),
            (tx_arbiter.job, gather.job),
            (gather.checked, tx_arbiter.checked),
            (gather.header, egress.header),
            (gather.payload, egress.payload),
            (egress.o, tx_guard.i),
            (tx_guard.o, wiring.flipped(self.mac_tx)),
        )
        m.d.comb += [
            requester.room.eq(outstanding.room),
            recv_fetch.forget.eq(send_fetch.forget),
            recv_fetch.fetched.eq(send_fetch.rsp.valid & send_fetch.rsp.ready),
            tx_guard.source_reset.eq(room_reset),
        ]
        self._slots(m, gather, send_fetch)

        # Receiving.
        connect(
            (wiring.flipped(self.mac_rx), rx_guard.i),
            (rx_guard.o, ingress.i),
            (ingress.header, receive.header),
            (ingress.payload, scatter.payload),
            (receive.fetch_req, recv_fetch.req),
            (recv_fetch.rsp, receive.fetch_rsp),
            (receive.line_use, recv_fetch.line_use),
            (receive.head_req, outstanding.head_req),
            (outstanding.head_rsp, receive.head_rsp),
            (receive.pop, outstanding.pop),
            (receive.scatter_job, scatter.job),
            (scatter.checked, receive.scatter_checked),
            (receive.effects, scatter.effects),
            (scatter.completion, completion.i),
            (scatter.reply, replies.i0),
            (replies.o, replier.activate),
            (receive.wake, wakes.i),
            (wakes.o, scheduler.wake),
            (receive.counted, qp_counters.counted),
            (virtio.qp_counters, qp_counters.guest),
            (virtio.counters, counters.guest),
            (management.counted, counters.program),
            (management.command.clear_counters, qp_counters.clear),
            (doorbells.receive, pokes.set0),
            (doorbells.ahead, recv_fetch.doorbell),
            (outstanding.poke, pokes.set1),
            (receive.repoke, pokes.set2),
            (pokes.o, receive.poke),
        )
        m.d.comb += [
            # A CQ that overflows breaks the QPs whose completions are lost.
            pokes.set4.valid.eq(completion.cq_error.valid),
            pokes.set4.payload.qp.eq(completion.cq_error.payload.qp[: ceil_log2(qps)]),
            pokes.set4.payload.flags.eq(ReceiveFlags.FAIL.value),
            completion.cq_error.ready.eq(pokes.set4.ready),
            receive.sequence_nak.ready.eq(1),
        ]
        self._slots(m, scatter, recv_fetch)

        # Tables.
        connect(
            (receive.cfg, qp_cfg.read0),
            (scheduler.cfg, qp_cfg.read1),
            (requester.cfg, qp_cfg.read2),
            (replier.cfg, qp_cfg.read3),
            (scheduler.row, qp_fetch.read0),
            (scheduler.row_write, qp_fetch.write),
            (requester.row, qp_tx.read0),
            (scheduler.tx, qp_tx.read1),
            (requester.row_write, qp_tx.write),
            (receive.ack_read, qp_ack.read0),
            (receive.ack_write, qp_ack.write),
            (scheduler.ack, qp_ack.read1),
            (requester.ack, qp_ack.read2),
            (receive.rx_read, qp_rx.read0),
            (receive.rx_write, qp_rx.write),
            (receive.ahead_read, qp_rx_ahead.read0),
            (receive.ahead_write, qp_rx_ahead.write),
            (qp_rx_both.first, qp_rx.program),
            (qp_rx_both.second, qp_rx_ahead.program),
            (requester.rx, qp_rx.read1),
            (replier.rx, qp_rx.read2),
            (replier.row, qp_reply.read0),
            (replier.row_write, qp_reply.write),
            (receive.reply, qp_reply.read1),
            (receive.resource_read, resources.read0),
            (receive.resource_write, resources.write),
            (replier.resource, resources.read1),
            (gather.mr, mrs.read0),
            (scatter.mr, mrs.read1),
            (egress.gid, gids.read),
        )
        m.d.comb += ingress.gids.eq(gids.rows)

        # Management.
        for name, target in (
            ("qp_cfg", qp_cfg.program),
            ("qp_fetch", qp_fetch.program),
            ("qp_tx", qp_tx.program),
            ("qp_ack", qp_ack.program),
            ("qp_rx", qp_rx_both.program),
            ("qp_reply", qp_reply.program),
            ("mr", mrs.program),
            ("cq", completion.cq_program),
            ("used", completion.used_program),
            ("queue", virtio.program),
            ("gid", gids.program),
            ("qp_counters", qp_counters.program),
        ):
            wiring.connect(m, getattr(management, name).program, target)
        self._management(m, management, control, completion, scheduler, replies, pokes, requester)
        m.d.comb += [
            drain.start.eq(management.command.drain.start),
            drain.turned.eq(Cat(requester.turned, replier.turned, receive.turned)),
            receive.hold.eq(drain.wanted[2]),
            management.command.drain.done.eq(drain.done),
            invalidate.start.eq(management.command.invalidate.start),
            management.command.invalidate.done.eq(invalidate.done),
            drain.part_done.eq(
                Cat(
                    gather.drain_done,
                    scatter.drain_done & ~receive.mending,
                    requester.drain_done,
                )
            ),
            invalidate.part_done.eq(Cat(gather.invalidate_done, scatter.invalidate_done)),
        ]
        for part in (gather, scatter, requester):
            m.d.comb += part.drain_start.eq(drain.part_start)
        for part in (gather, scatter):
            m.d.comb += [
                part.invalidate_start.eq(invalidate.part_start),
                part.invalidate_mr.eq(management.command.invalidate.argument),
            ]
        wiring.connect(m, management.command.drop, outstanding.drop)
        mac_address = Cat(management.port.mac_low, management.port.mac_high)
        m.d.comb += [
            egress.mac_address.eq(mac_address),
            virtio.mac.eq(mac_address),
            ingress.lossless.eq(management.port.control_lossless),
            management.port.status_link_up.eq(self.link_up),
            self.intx.eq(virtio.intx),
            management.core.function_resets.eq(virtio.reset_count),
            management.core.function_status_device.eq(virtio.status),
            management.core.function_status_resetting.eq(virtio.resetting),
            management.core.needs_reset_queue.eq(virtio.needs_reset_queue),
            management.core.needs_reset_cause.eq(virtio.needs_reset_cause),
            management.core.needs_reset_active.eq(virtio.needs_reset),
        ]

        # Reset.
        tables = [qp_cfg, qp_fetch, qp_tx, qp_ack, qp_rx, qp_rx_ahead, qp_reply, resources]
        tables += [mrs, gids, outstanding, pokes, qp_counters, counters]
        m.d.comb += [
            reset.request.eq(virtio.reset_request),
            virtio.reset_done.eq(reset.done),
            reset.reads_idle.eq(reads.idle & bulk.idle),
            reset.writes_idle.eq(writes.idle),
            reset.tables_ready.eq(Cat(table.ready for table in tables).all()),
            room_reset.eq(reset.room_reset),
            writes.abort.eq(reset.abort),
        ]
        for engine in (reads, bulk):
            m.d.comb += [
                engine.hold.eq(reset.hold),
                engine.writes_accepted.eq(writes.accepted),
                engine.writes_issued.eq(writes.issued),
            ]

        connect_counters(
            m,
            counters,
            ingress=ingress,
            egress=egress,
            receive=receive,
            requester=requester,
            replier=replier,
            gather=gather,
            scatter=scatter,
            completion=completion,
            control=control,
            doorbells=doorbells,
        )
        return m

    @staticmethod
    def _slots(m, reader, store):
        """The WQE lines of a fetch engine, read by the memory room."""
        m.d.comb += [
            store.slot.eq(reader.slot),
            store.slot_enable.eq(reader.slot_enable),
            reader.slot_data.eq(store.slot_data),
        ]

    @staticmethod
    def _management(m, management, control, completion, scheduler, replies, pokes, requester):
        """Mailbox and commands."""
        mailbox, command = management.mailbox, management.command
        m.d.comb += [
            mailbox.pending.eq(control.pending),
            mailbox.request_length.eq(control.request_length),
            mailbox.writable_length.eq(control.writable_length),
            control.response_length.eq(mailbox.response_length),
            control.done.eq(mailbox.done),
        ]
        wiring.connect(m, control.request, mailbox.request)
        wiring.connect(m, control.response, mailbox.response)
        wiring.connect(m, command.arm_cq, completion.arm)
        wiring.connect(m, command.restart, requester.restart)
        wiring.connect(m, command.activate_reply, replies.i1)
        wiring.connect(m, command.activate_receive, pokes.set3)
        send, activate = command.activate_send, scheduler.activate
        m.d.comb += [
            activate.valid.eq(send.valid),
            activate.payload.qp.eq(send.payload.qp),
            activate.payload.flags.eq(send.payload.flags),
            send.ready.eq(activate.ready),
        ]
