"""The send side of the transport room wired together, with models of what surrounds it."""

from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from functools import cache

from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring

from hdl.abi.enums import QpType, WrOpcode
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.activations import ReceiveFlags
from hdl.ports.jobs import Destination, FetchStatus, TxSource
from hdl.ports.rows import QpState
from hdl.transport.outstanding.sinks import SinkPool
from hdl.transport.outstanding.table import OutstandingTable
from hdl.transport.recovery.go_back_n import GO_BACK_N
from hdl.transport.recovery.policy import Recovery
from hdl.transport.send.generations import RequestGenerations
from hdl.transport.send.requester import Requester
from hdl.transport.send.scheduler import Scheduler
from tests.context.late import CACHED, Window, context_of, seed, slower
from tests.operations import request_row
from tests.simulate import Prepared, fields, simulate

CONFIG = NicConfig(
    width=64,
    qps=8,
    cqs=4,
    mrs=16,
    gids=2,
    send_lines=4,
    outstanding=8,
    read_sinks=8,
    long_sinks=2,
    quantum=4,
    max_rd_atomic=4,
)


class SendSide(Elaboratable):
    """Scheduler, requester, outstanding table and the QP tables, which may answer ``late``."""

    def __init__(
        self, config: NicConfig = CONFIG, recovery: Recovery = GO_BACK_N, paced=False, late=0
    ):
        self.config = config
        self.scheduler = Scheduler(config=config, paced=paced)
        # The requester of a card with a cache, which is never as small as this one.
        mine = replace(config, qps=32, hot_qps=16) if late >= CACHED else config
        self.requester = Requester(config=mine, recovery=recovery, paced=paced)
        self.spent = Ram(shape=1, depth=config.qps, reads=2) if paced else None
        self.outstanding = OutstandingTable(config=config)
        self.sinks = SinkPool(config=config)
        self.generations = RequestGenerations(config=config)
        self.destinations = Ram(shape=Destination, depth=config.send_lines, forward=False)
        self.context = context_of(config, late)
        self.cfg, self.fetch, self.tx, self.ack, self.rx = (
            Window(self.context, f"qp_{name}") for name in ("cfg", "fetch", "tx", "ack", "rx")
        )

    def elaborate(self, platform):
        m = Module()
        parts = ("scheduler", "requester", "outstanding", "sinks", "generations", "destinations")
        for name in (*parts, "context"):
            setattr(m.submodules, name, getattr(self, name))
        s, r, o = self.scheduler, self.requester, self.outstanding
        for a, b in (
            (s.wqe, r.wqe),
            (r.rewind, s.rewind),
            (r.started, s.started),
            (r.append, o.append),
            (o.places, r.places),
            (o.dropped, self.sinks.dropped),
            (self.sinks.short, r.short_sinks),
            (self.sinks.long, r.long_sinks),
            (r.finish, o.finish),
            (r.fail, o.fail),
            (s.context, self.context.scheduler),
            (r.context, self.context.requester),
            (s.row_write, self.fetch.write),
            (r.row_write, self.tx.write),
            (r.packet_generation, self.generations.requester),
        ):
            wiring.connect(m, a, b)
        read = self.destinations.read0
        m.d.comb += [
            read.index.eq(r.destination.index),
            read.enable.eq(r.destination.enable),
            r.destination.row.eq(read.row),
        ]
        if self.spent:
            m.submodules.spent = self.spent
            for port, table in ((s.spent, self.spent.read0), (r.spent, self.spent.read1)):
                m.d.comb += [
                    table.index.eq(port.index),
                    table.enable.eq(port.enable),
                    port.row.eq(table.row),
                ]
        m.d.comb += [
            r.gone_back.ready.eq(1),
            s.moves.eq(r.moves),
            r.any_sinks.eq(self.sinks.any),
            r.others.eq(s.others),
            self.generations.advance.eq(r.advance),
        ]
        return m


def wqe(opcode=WrOpcode.SEND, length=10, **fields) -> dict:
    """A decoded send WQE."""
    base = {"opcode": int(opcode), "length": length, "num_sge": 1, "signaled": 1}
    return base | fields


async def gather_model(ctx, sender, world):
    """Takes jobs into ``world.handed``, then ``world.jobs`` unless ``world.refuse`` gives a status.

    Answers in order, each ``world.delay`` cycles after its job, for ``world.most`` jobs at a time;
    the replier's jobs without payload have none (TxArbiter). ``world.cycles``: when each job was
    taken."""
    waiting, cycle, offered, leaving = deque(), 0, False, deque()
    told = hasattr(sender, "sent")

    def drive():
        if told:
            leaves = bool(leaving) and leaving[0][0] <= cycle
            ctx.set(sender.sent, leaves)
            ctx.set(sender.spoiled, leaves and leaving[0][1])
            if leaves:
                leaving.popleft()
        ctx.set(sender.job.ready, len(waiting) < world.most)

    drive()
    async for *_, valid, ready, bits, taken in ctx.tick().sample(
        sender.job.valid, sender.job.ready, sender.job.payload.as_value(), sender.checked.ready
    ):
        cycle += 1
        if offered and taken:
            offered = False
            ctx.set(sender.checked.valid, 0)
        if valid and ready:
            job = fields(sender.job.payload, bits)
            world.handed.append(job)
            world.cycles.append(cycle)
            waiting.append((cycle + world.delay, job))
        if waiting and waiting[0][0] <= cycle and not offered:
            _, job = waiting.popleft()
            status = world.refuse(job) if world.refuse else 0
            if not status:
                world.jobs.append(job)
                if job.header.told:
                    spoiled = bool(world.spoil and world.spoil(job))
                    leaving.append((cycle + world.sending, spoiled))
            if not (world.silent and job.source == TxSource.NONE):
                offered = True
                ctx.set(sender.checked.payload.status, status)
                ctx.set(sender.checked.valid, 1)
        drive()


@dataclass
class World:
    """Models of the fetch engine, the gather and the completer around a ``SendSide``."""

    dut: SendSide
    queues: dict = field(default_factory=lambda: defaultdict(list))
    handed: list = field(default_factory=list)  # jobs taken
    jobs: list = field(default_factory=list)  # those found good
    lines: set = field(default_factory=set)
    pokes: list = field(default_factory=list)
    refuse: object = None  # job -> WC status
    spoil: object = None  # job -> whether its payload cannot be read
    silent = False  # jobs without payload get no answer
    delay: int = 8  # of the gather's answers
    most: int = 8  # jobs that it has at a time
    holds: bool = False  # sinks of READs that have ended
    sending: int = 20  # from an answer to the packet's way
    cycles: list = field(default_factory=list)  # when it took each
    fetch_delay: int = 20
    lanes: int = 4
    cycle: int = 0
    asked: list = field(default_factory=list)  # (cycle, QP, position) of each WQE asked for
    polled: list = field(default_factory=list)  # likewise, of each index
    under_way: deque = field(default_factory=deque)  # of the fetch engine: due cycle, request

    async def requests(self, ctx):
        s, cycle = self.dut.scheduler, 0
        ctx.set(s.fetch_req.ready, 1)
        async for *_, valid, ready, bits in ctx.tick().sample(
            s.fetch_req.valid, s.fetch_req.ready, s.fetch_req.payload.as_value()
        ):
            cycle += 1
            self.cycle = cycle
            if valid and ready:
                request = fields(s.fetch_req.payload, bits)
                assert request.queue == 1 + self.dut.config.cqs + 2 * request.qp
                # The avail index is looked at only when nothing is known, and early.
                known = (request.known - request.position) & 0xFFFF
                if 0 < known <= self.dut.config.queue_size:
                    self.asked.append((cycle, request.qp, request.position))
                    self.under_way.append((cycle + self.fetch_delay, request, request.known))
                else:
                    self.polled.append((cycle, request.qp, request.position))
                    posted = len(self.queues[request.qp])
                    self.under_way.append((cycle + self.fetch_delay, request, posted))
            ctx.set(s.fetch_req.ready, len(self.under_way) < self.lanes)

    async def answers(self, ctx):
        s, free = self.dut.scheduler, deque(range(self.dut.config.send_lines))
        while True:
            if not self.under_way or self.under_way[0][0] > self.cycle:
                async for _ in ctx.tick():
                    if self.under_way and self.under_way[0][0] <= self.cycle:
                        break
            _, request, available = self.under_way[0]
            queue = self.queues[request.qp]
            answer = {"qp": request.qp, "position": request.position, "available": available}
            if request.position >= len(queue) or request.known == request.position:
                answer["status"] = FetchStatus.EMPTY
                answer["poll"] = request.known == request.position
                if not answer["poll"]:  # the index is read then
                    answer["available"] = len(queue)
            else:
                element = dict(queue[request.position])
                error, destination = element.pop("error", 0), element.pop("destination", {})
                element["operation"] = request_row(element.pop("opcode"), self.dut.config)
                answer |= {"wqe": element, "head": 100 + request.position}
                if error:
                    answer |= {"status": FetchStatus.WQE_ERROR, "error": error}
                else:
                    while not free:
                        while self.lines:
                            free.append(self.lines.pop())
                        await ctx.tick()
                    answer |= {"status": FetchStatus.OK, "line": free.popleft()}
                    write = self.dut.destinations.write
                    ctx.set(write.index, answer["line"])
                    ctx.set(write.row, destination)
                    ctx.set(write.enable, 1)
            self.under_way.popleft()
            ctx.set(s.fetch_rsp.payload, answer)
            ctx.set(s.fetch_rsp.valid, 1)
            await ctx.tick().until(s.fetch_rsp.ready)
            ctx.set(s.fetch_rsp.valid, 0)

    async def releases(self, ctx):
        ports = (self.dut.scheduler.release, self.dut.requester.release)
        for port in ports:
            ctx.set(port.ready, 1)
        async for *_, v0, p0, v1, p1 in ctx.tick().sample(
            ports[0].valid, ports[0].payload, ports[1].valid, ports[1].payload
        ):
            for valid, line in ((v0, p0), (v1, p1)):
                if valid:
                    assert line not in self.lines, f"line {line} released twice"
                    self.lines.add(line)

    async def returns(self, ctx):
        """Gives the sink of each READ back as soon as its entry is popped, unless it ``holds``
        them, and sees that no other READ has it until then."""
        back, append, pop = self.dut.sinks.back, self.dut.requester.append, self.dut.outstanding.pop
        lists, used, ended = defaultdict(deque), set(), deque()
        async for *_, valid, ready, bits, popped, qp, taken in ctx.tick().sample(
            append.valid,
            append.ready,
            append.payload.as_value(),
            pop.valid & pop.ready,
            pop.payload.qp,
            back.valid & back.ready,
        ):
            if valid and ready:
                appended = fields(append.payload, bits)
                entry, sink = appended.entry, None
                if entry.data:
                    sink = (entry.sink.number, entry.sink.long)
                    assert sink not in used, f"two READs have the sink {sink}"
                    used.add(sink)
                lists[appended.qp].append(sink)
            if popped and (sink := lists[qp].popleft()):
                used.remove(sink)
                ended.append({"number": sink[0], "long": sink[1]})
            if taken:
                ctx.set(back.valid, 0)
                ended.popleft()
            elif ended and not self.holds:
                ctx.set(back.payload, ended[0])
                ctx.set(back.valid, 1)

    async def gather(self, ctx):
        await gather_model(ctx, self.dut.requester, self)

    async def poked(self, ctx):
        o = self.dut.outstanding
        ctx.set(o.poke.ready, 1)
        while True:
            *_, poke = await ctx.tick().sample(o.poke.payload).until(o.poke.valid)
            assert poke.flags == ReceiveFlags.FINISH
            self.pokes.append(poke.qp)

    @property
    def models(self):
        models = (self.requests, self.answers, self.releases, self.returns)
        return (*models, self.gather, self.poked)

    # What a test does.

    async def start(self, ctx):
        for table in (self.dut.cfg, self.dut.tx, self.dut.outstanding, self.dut.sinks):
            while not ctx.get(table.ready):
                await ctx.tick()

    async def program(self, ctx, table, qp, **row):
        ctx.set(table.program.index, qp)
        ctx.set(table.program.row, row)
        ctx.set(table.program.write, 1)
        await ctx.tick().until(table.program.done)
        ctx.set(table.program.write, 0)

    async def configure(self, ctx, qp, **cfg):
        """The firmware writes the QP's configuration."""
        defaults = {
            "state": QpState.RTS,
            "type": QpType.RC,
            "path_mtu": 1,
            "max_send_sge": 4,
            "max_inline": 64,
            "max_rd_atomic": 2,
            "dest_qpn": 0x4000 + qp,
            "pkey": 0xFFFF,
            "signal_all": 0,
        }
        await self.program(ctx, self.dut.cfg, qp, **(defaults | cfg))

    async def connect(self, ctx, qp, *, psn=0x100, **cfg):
        await self.configure(ctx, qp, **cfg)
        await self.program(ctx, self.dut.tx, qp, psn=psn)

    async def ring(self, ctx, qp, next_index=None):
        port = self.dut.scheduler.doorbell
        flags, data = (1, 0) if next_index is None else (9, next_index)
        ctx.set(port.payload, {"qp": qp, "flags": flags, "data": data})
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def restart(self, ctx, qp):
        """The QP goes back to its oldest unacknowledged packet."""
        port = self.dut.requester.restart
        ctx.set(port.payload, qp)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def acknowledge(self, ctx, qp, **row):
        """The completer writes its row; into a cache the firmware does, as no completer has the QP
        at hand."""
        ack = self.dut.ack
        if seed() >= CACHED:
            await self.program(ctx, ack, qp, **row)
            return
        ctx.set(ack.write.index, qp)
        ctx.set(ack.write.row, row)
        ctx.set(ack.write.enable, 1)
        await ctx.tick()
        ctx.set(ack.write.enable, 0)

    async def wake(self, ctx, qp, **row):
        await self.acknowledge(ctx, qp, **row)
        port = self.dut.scheduler.wake
        ctx.set(port.payload, qp)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def oldest(self, ctx, qp, *, stopped=0):
        o = self.dut.outstanding
        ctx.set(o.head_req.payload, {"qp": qp, "stopped": stopped})
        ctx.set(o.head_req.valid, 1)
        await ctx.tick().until(o.head_req.ready)
        ctx.set(o.head_req.valid, 0)
        ctx.set(o.head_rsp.ready, 1)
        *_, answer = await ctx.tick().sample(o.head_rsp.payload).until(o.head_rsp.valid)
        ctx.set(o.head_rsp.ready, 0)
        await ctx.tick().repeat(4)  # as the completer, which comes before the requester
        return answer.entry if answer.valid else None

    async def pop(self, ctx, qp):
        o = self.dut.outstanding
        ctx.set(o.pop.payload, {"qp": qp})
        ctx.set(o.pop.valid, 1)
        await ctx.tick().until(o.pop.ready)
        ctx.set(o.pop.valid, 0)

    async def until(self, ctx, condition, limit=3000):
        cycle, limit = 0, limit * slower()
        if condition():
            return
        async for _ in ctx.tick():
            cycle += 1
            if cycle == limit:
                break
            if condition():
                return
        raise AssertionError(f"not reached; {len(self.jobs)} jobs, pokes {self.pokes}")


@cache
def send_side(config: NicConfig, recovery: Recovery = GO_BACK_N, paced=False, late=0) -> Prepared:
    """The ``SendSide`` of all scenarios with this configuration, policy and back end."""
    return Prepared(SendSide(config, recovery, paced, late))


def run(
    scenario,
    deadline=40_000,
    config: NicConfig = CONFIG,
    world=World,
    recovery=GO_BACK_N,
    paced=False,
) -> None:
    """Runs ``scenario(ctx, world)`` around a ``SendSide``."""
    side = send_side(config, recovery, paced, seed())
    world = world(side.component)

    async def bench(ctx):
        await world.start(ctx)
        await scenario(ctx, world)

    simulate(side, bench, deadline=deadline * slower(), background=world.models)
