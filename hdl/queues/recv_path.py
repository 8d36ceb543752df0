"""The way of a receive WQE from a known position into its line."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import WQE_LINE_BITS, FetchStatus, QueueErrorCause, RecvWqe, WqeRead
from hdl.ports.tables import TableRead

from .chain import ChainLane, WqeFound
from .express import Express
from .read import ReadShare
from .types import ExpressJob

__all__ = ["Arrival", "RecvPath", "Tag"]

SLOTS = 32


class Arrival(data.Struct):
    """What became of the job of ``line``. Not ``told``: given up, as its chain is not for the
    express path and nobody waited for it."""

    line: WQE_LINE_BITS
    told: 1
    queue: 16
    position: 16
    head: 16
    found: WqeFound


class Tag(data.Struct):
    """Whose WQE a line holds, and the answer for it."""

    queue: 16
    position: 16
    head: 16
    wqe: RecvWqe


class RecvPath(wiring.Component):
    """Express for receive WQEs, a ChainLane for what it leaves over, and the lines.

    Members: ``i`` jobs, each with a line of its own; ``arrived`` with ``arrived_valid`` (a cycle):
    what became of one, after its last slot was written, at most every other cycle; ``good``: it is
    a WQE, its tag is written now. ``waits``, ``wanted``: the line whose asker waits: only its chain
    goes into the lane, so it never stands behind one that is fetched ahead. Others are given up.
    ``tag``: read port of the tags; ``slot``, ``slot_enable``, ``slot_data``: of the lines (1 cycle
    each). ``flush`` forgets ring entries (nothing may be inside). ``indirect``: negotiated.
    Latency: two to three host reads and 36 cycles, the lane two more. Throughput: as Express.
    Nothing inside waits for anything but host reads. Errors: in ``arrived``. Reset: empty.
    """

    def __init__(self, *, config: NicConfig, depth: int):
        self._config, self._depth = config, depth
        super().__init__(
            {
                "i": In(stream.Signature(ExpressJob)),
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
                "indirect": In(1),
                "read_client": Out(ReadClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        bits = ceil_log2(config.recv_lines)
        m.submodules.express = express = Express(config=config, depth=self._depth, receive=True)
        m.submodules.share = share = ReadShare(width=config.width, clients=5, depth=4 * self._depth)
        # A line that is read is not written: ``line_use`` of RecvFetch.
        depth = SLOTS * config.recv_lines
        m.submodules.slots = slots = Ram(shape=128, depth=depth, forward=False)
        connect(m, share.read_client, flipped(self.read_client))
        connect(m, flipped(self.i), express.i)
        for k in range(3):
            connect(m, getattr(express, f"read_client{k}"), getattr(share, f"client{k}"))
        verdict, job = express.o.payload, express.job
        m.d.comb += express.flush.eq(self.flush)

        # What the express path leaves over goes to the lane if its asker waits, else it is given
        # up. There is one who asks, so the lane is free for what is demanded.
        m.submodules.lane = lane = ChainLane(config=config)
        connect(m, lane.read_client0, share.client3)
        connect(m, lane.read_client1, share.client4)
        for_lane, demanded, given_up, arrived_last = (Signal() for _ in range(4))
        owner = Signal(Arrival, reset_less=True)
        m.d.comb += [
            for_lane.eq(verdict.odd & ~verdict.failed),
            demanded.eq(for_lane & self.waits & (job.line == self.wanted)),
            given_up.eq(for_lane & ~demanded),
            lane.indirect.eq(self.indirect),
            lane.i.valid.eq(express.o.valid & demanded),
            lane.i.payload.function.eq(job.request.function),
            lane.i.payload.desc.eq(job.desc),
            lane.i.payload.size_log2.eq(job.size_log2),
            lane.i.payload.head.eq(verdict.head),
            lane.i.payload.receive.eq(~job.request.send),
            lane.o.ready.eq(~arrived_last),
            express.o.ready.eq(Mux(demanded, lane.i.ready, ~lane.o.valid & ~arrived_last)),
            self.arrived_valid.eq(~arrived_last & (lane.o.valid | (express.o.valid & ~demanded))),
        ]
        m.d.sync += arrived_last.eq(self.arrived_valid)
        with m.If(lane.i.valid & lane.i.ready):
            m.d.sync += [
                owner.line.eq(job.line),
                owner.queue.eq(job.request.queue),
                owner.position.eq(job.request.position),
                owner.head.eq(verdict.head),
            ]
        arrived = self.arrived
        with m.If(lane.o.valid):
            m.d.comb += [arrived.eq(owner), arrived.told.eq(1), arrived.found.eq(lane.o.payload)]
        with m.Else():
            m.d.comb += [
                arrived.line.eq(job.line),
                arrived.told.eq(~given_up),
                arrived.queue.eq(job.request.queue),
                arrived.position.eq(job.request.position),
                arrived.head.eq(verdict.head),
                arrived.found.status.eq(
                    Mux(verdict.failed | given_up, FetchStatus.QUEUE_ERROR, FetchStatus.OK)
                ),
                arrived.found.cause.eq(QueueErrorCause.HOST_READ),
                arrived.found.wqe.eq(verdict.wqe),
            ]

        # Slots: the express path cannot wait.
        written = slots.write
        with m.If(express.slot_valid):
            m.d.comb += [
                written.enable.eq(1),
                written.index.eq(Cat(express.slot.slot, express.slot_line[:bits])),
                written.row.eq(express.slot.data),
            ]
        with m.Elif(lane.slot.valid):
            m.d.comb += [
                lane.slot.ready.eq(1),
                written.enable.eq(1),
                written.index.eq(Cat(lane.slot.payload.slot, owner.line[:bits])),
                written.row.eq(lane.slot.payload.data),
            ]

        # Tags. One that is read as it is written is of a line that still seems busy.
        m.submodules.tags = tags = Ram(shape=Tag, depth=config.recv_lines, forward=False)
        kept = tags.write.row
        m.d.comb += [
            self.good.eq(
                self.arrived_valid & arrived.told & (arrived.found.status == FetchStatus.OK)
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
        m.d.comb += [
            slots.read0.index.eq(Cat(self.slot.slot, self.slot.line[:bits])),
            slots.read0.enable.eq(self.slot_enable),
            self.slot_data.eq(slots.read0.row),
        ]
        return m
