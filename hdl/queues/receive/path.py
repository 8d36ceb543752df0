"""The way of a receive WQE from a known position into its line."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import WQE_LINE_BITS, FetchStatus, QueueErrorCause, RecvWqe, WqeRead

from ..ring.packed import is_packed, place_of
from ..ring.read import ReadShare
from ..ring.types import FastPathJob
from ..wqe.fast_path import wqe_path
from ..wqe.slow_path import SlowPath, WqeFound
from ..wqe.types import WqeJob

__all__ = ["Arrival", "HeldWqe", "RecvPath", "Tag"]

SLOTS = 32


class Arrival(data.Struct):
    """What became of the job of ``line``. Not ``reported``: given up, as its chain is not for the
    fast path and nobody waited for it."""

    line: WQE_LINE_BITS
    reported: 1
    queue: 16
    position: 16
    head: 16
    found: WqeFound


class HeldWqe(data.Struct):
    """A receive WQE that a message holds. Its head names it as long as it is held: until then the
    driver cannot use that again, unlike its place in the avail ring. Of a packed queue ``head`` is
    its position: until then nothing is written into the ring there."""

    function: 8
    queue: 16
    head: 16


class Tag(data.Struct):
    """Whose WQE a line holds, and the answer for it. ``position`` is the head in the line of one
    that is held."""

    queue: 16
    position: 16
    head: 16
    wqe: RecvWqe


class RecvPath(wiring.Component):
    """FastPath for receive WQEs, a SlowPath for what it leaves over, and the lines.

    Members: ``i`` jobs, each with a line of its own; ``held``: such for a WQE that a message holds,
    with its head as the position; it goes straight to the slow path. ``arrived`` with
    ``arrived_valid`` (a cycle): what became of one, after its last slot was written, at most every
    other cycle; ``good``: it is a WQE, its tag is written now. ``waits``, ``wanted``: the line
    whose asker waits: only its chain goes into the slow path, so it never stands behind one that is
    fetched ahead. Others are given up. ``tag``: read port of the tags; ``slot``, ``slot_enable``,
    ``slot_data``: of the lines (1 cycle each). ``flush`` forgets ring entries (nothing may be
    inside).
    Latency: two to three host reads and 36 cycles, the slow path two more. Throughput: as FastPath.
    Nothing inside waits for anything but host reads. Errors: in ``arrived``. Reset: empty.
    """

    def __init__(self, *, config: NicConfig, depth: int):
        self._config, self._depth = config, depth
        super().__init__(
            {
                "i": In(stream.Signature(FastPathJob)),
                "held": In(stream.Signature(FastPathJob)),
                "arrived": Out(Arrival),
                "arrived_valid": Out(1),
                "waits": In(1),
                "wanted": In(WQE_LINE_BITS),
                "good": Out(1),
                "tag": In(TableRead(WQE_LINE_BITS, Tag)),
                "slot": In(WqeRead),
                "slot_enable": In(1),
                "slot_data": Out(128),
                "flush": In(1),
                "read_client": Out(ReadClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.fast = fast = wqe_path(config=config, depth=self._depth, receive=True)
        m.submodules.share = share = ReadShare(
            width=config.width, clients=5, depth=max(8, 4 * self._depth)
        )
        connect(m, share.read_client, flipped(self.read_client))
        connect(m, flipped(self.i), fast.i)
        for k in range(3):
            connect(m, getattr(fast, f"read_client{k}"), getattr(share, f"client{k}"))
        verdict, job = fast.o.payload, fast.job
        m.d.comb += fast.flush.eq(self.flush)

        # What the fast path leaves over goes to the slow path if its asker waits, else it is given
        # up. There is one who asks, so the slow path is free for what is demanded, and for what is
        # held.
        m.submodules.slow = slow = SlowPath(config=config)
        connect(m, slow.read_client0, share.client3)
        connect(m, slow.read_client1, share.client4)
        for_slow, demanded, given_up, arrived_last = (Signal() for _ in range(4))
        owner, chain = Signal(Arrival, reset_less=True), slow.i.payload
        slow_job, head = Signal(WqeJob), Signal(16)
        m.d.comb += [slow_job.eq(job), head.eq(verdict.head)]
        with m.If(self.held.valid):
            m.d.comb += head.eq(self.held.payload.request.position)
            m.d.comb += [
                slow_job[name].eq(self.held.payload[name])
                for name in ("request", "line", "size_log2", "rules", "desc")
            ]
        m.d.comb += [
            for_slow.eq(verdict.odd & ~verdict.failed),
            demanded.eq(for_slow & self.waits & (job.line == self.wanted)),
            given_up.eq(for_slow & ~demanded),
            slow.i.valid.eq(self.held.valid | (fast.o.valid & demanded)),
            self.held.ready.eq(slow.i.ready),
            chain.function.eq(slow_job.request.function),
            chain.desc.eq(slow_job.desc),
            chain.size_log2.eq(slow_job.size_log2),
            chain.rules.eq(slow_job.rules),
            chain.head.eq(Mux(is_packed(self._config, slow_job.rules), place_of(slow_job), head)),
            chain.receive.eq(1),
            slow.o.ready.eq(~arrived_last),
            fast.o.ready.eq(
                Mux(demanded, slow.i.ready & ~self.held.valid, ~slow.o.valid & ~arrived_last)
            ),
            self.arrived_valid.eq(~arrived_last & (slow.o.valid | (fast.o.valid & ~demanded))),
        ]
        m.d.sync += arrived_last.eq(self.arrived_valid)
        with m.If(slow.i.valid & slow.i.ready):
            m.d.sync += [
                owner.line.eq(slow_job.line),
                owner.queue.eq(slow_job.request.queue),
                owner.position.eq(slow_job.request.position),
                owner.head.eq(head),
            ]
        arrived = self.arrived
        with m.If(slow.o.valid):
            m.d.comb += [
                arrived.eq(owner),
                arrived.reported.eq(1),
                arrived.found.eq(slow.o.payload),
            ]
        with m.Else():
            m.d.comb += [
                arrived.line.eq(job.line),
                arrived.reported.eq(~given_up),
                arrived.queue.eq(job.request.queue),
                arrived.position.eq(job.request.position),
                arrived.head.eq(verdict.head),
                arrived.found.status.eq(
                    Mux(verdict.failed | given_up, FetchStatus.QUEUE_ERROR, FetchStatus.OK)
                ),
                arrived.found.cause.eq(QueueErrorCause.HOST_READ),
                arrived.found.wqe.eq(verdict.wqe),
            ]

        # The head of a packed queue's WQE is the buffer's id, which its descriptor tells.
        of_packed = Signal()
        with m.If(slow.i.valid & slow.i.ready):
            m.d.sync += of_packed.eq(is_packed(self._config, slow_job.rules))
        with m.If(slow.o.valid & of_packed):
            m.d.comb += self.arrived.head.eq(slow.id)
        self._keep_slots(m, owner)
        self._keep_tags(m)
        return m

    def _keep_slots(self, m: Module, owner) -> None:
        """The slots of the lines, of which the fast path's cannot wait."""
        config, fast, slow = self._config, m.submodules.fast, m.submodules.slow
        bits = ceil_log2(config.recv_lines)
        # A line that is read is not written: ``line_use`` of RecvFetch.
        depth = SLOTS * config.recv_lines
        m.submodules.slots = slots = Ram(shape=128, depth=depth, forward=False)
        written = slots.write
        with m.If(fast.slot_valid):
            m.d.comb += [
                written.enable.eq(1),
                written.index.eq(Cat(fast.slot.slot, fast.slot_line[:bits])),
                written.row.eq(fast.slot.data),
            ]
        with m.Elif(slow.slot.valid):
            m.d.comb += [
                slow.slot.ready.eq(1),
                written.enable.eq(1),
                written.index.eq(Cat(slow.slot.payload.slot, owner.line[:bits])),
                written.row.eq(slow.slot.payload.data),
            ]
        m.d.comb += [
            slots.read0.index.eq(Cat(self.slot.slot, self.slot.line[:bits])),
            slots.read0.enable.eq(self.slot_enable),
            self.slot_data.eq(slots.read0.row),
        ]

    def _keep_tags(self, m: Module) -> None:
        """What each line holds."""
        config, arrived = self._config, self.arrived
        # Tags. One that is read as it is written is of a line that still seems busy.
        m.submodules.tags = tags = Ram(shape=Tag, depth=config.recv_lines, forward=False)
        kept = tags.write.row
        m.d.comb += [
            self.good.eq(
                self.arrived_valid & arrived.reported & (arrived.found.status == FetchStatus.OK)
            ),
            tags.write.enable.eq(self.good),
            tags.write.index.eq(arrived.line),
            tags.read0.index.eq(self.tag.index),
            tags.read0.enable.eq(self.tag.enable),
            self.tag.row.eq(tags.read0.row),
        ]
        for name in ("queue", "position", "head"):
            m.d.comb += kept[name].eq(arrived[name])
        for name in ("num_sge", "wr_id", "length"):
            m.d.comb += kept.wqe[name].eq(arrived.found.wqe[name])
