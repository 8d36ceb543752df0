"""What drives a push window: who writes pieces, who asks, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hdl.abi.push import PUSH_PIECE, PUSH_SLOT_BYTES
from hdl.abi.virtio_rdma import POST_SEND
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.ports.activations import SendFlags
from hdl.ports.counter_names import PUSH_COUNTS
from hdl.queues.push.window import PushWindow
from tests.simulate import Prepared, simulate

__all__ = ["CONFIGS", "Asked", "Beat", "Bench", "beats", "play"]

CONFIGS = {
    width: NicConfig(width=width, qps=32, cqs=4, functions=2, push=True) for width in (64, 512)
}
WINDOWS: dict[int, Prepared] = {}


@dataclass(frozen=True)
class Beat:
    """A beat of the window: what the host has written of it."""

    function: int
    addr: int
    data: int
    strb: int


@dataclass(frozen=True)
class Asked:
    """An answer of the window; ``element`` is what it gave, if it was taken."""

    hit: bool
    head: int = 0
    element: bytes = b""


def beats(width: int, function: int, pair: int, number: int, piece: bytes, at: int = 0) -> list:
    """The beats of ``piece``, or of a part that begins ``at`` bytes behind its begin."""
    lanes, addr = width // 8, PUSH_SLOT_BYTES * pair + PUSH_PIECE.size * number + at
    found, done = [], 0
    while done < len(piece):
        lane = (addr + done) % lanes
        part = piece[done : done + lanes - lane]
        found.append(
            Beat(
                function,
                addr + done - lane,
                int.from_bytes(part, "little") << 8 * lane,
                ((1 << len(part)) - 1) << lane,
            )
        )
        done += len(part)
    return found


@dataclass
class Bench:
    """A window in a simulation. ``rings``: time, QP and avail index (None: without) of each
    doorbell; ``counts``: as the card's registers have them."""

    dut: PushWindow
    ctx: object
    width: int
    rings: list[tuple[int, int, int | None]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PUSH_COUNTS, 0))
    time: int = 0

    async def cycle(self) -> None:
        """One clock; what comes out is noted."""
        ctx, dut = self.ctx, self.dut
        if ctx.get(dut.ring.valid) and ctx.get(dut.ring.ready):
            ring = ctx.get(dut.ring.payload)
            following = ring.data if ring.flags & SendFlags.NEXT.value else None
            assert ring.flags & SendFlags.DOORBELL.value
            self.rings.append((self.time, ring.qp, following))
        for name in self.counts:
            self.counts[name] += ctx.get(getattr(dut.counts, name))
        await ctx.tick()
        self.time += 1

    async def idle(self, cycles: int) -> None:
        """Nothing happens for a while."""
        for _ in range(cycles):
            await self.cycle()

    async def write(self, *given: Beat) -> None:
        """The host writes."""
        ctx, port = self.ctx, self.dut.push.beats
        for one in given:
            ctx.set(port.payload.function, one.function)
            ctx.set(port.payload.addr, one.addr)
            ctx.set(port.payload.data, one.data)
            ctx.set(port.payload.strb, one.strb)
            ctx.set(port.valid, 1)
            while not ctx.get(port.ready):
                await self.cycle()
            await self.cycle()
            ctx.set(port.valid, 0)

    async def push(self, function: int, pair: int, pieces: dict[int, bytes]) -> None:
        """Write pieces, whole, in this order."""
        for number, piece in pieces.items():
            await self.write(*beats(self.width, function, pair, number, piece))

    async def ask(self, qp: int, position: int, *, take: bool = True) -> Asked:
        """A WQE is asked for; one that is taken is read and given back."""
        ctx, port = self.ctx, self.dut.port
        ctx.set(port.qp, qp)
        ctx.set(port.position, position)
        ctx.set(port.take, take)
        ctx.set(port.ask, 1)
        hit, entry = ctx.get(port.hit), ctx.get(port.entry)
        head, length = ctx.get(port.head), ctx.get(port.length)
        await self.cycle()
        ctx.set(port.ask, 0)
        if not (hit and take):
            return Asked(bool(hit))
        found = b""
        for row in range(-(-length // 64)):
            ctx.set(port.row.index, 4 * entry + row)
            ctx.set(port.row.enable, 1)
            await self.cycle()
            ctx.set(port.row.enable, 0)
            found += ctx.get(port.row.row).to_bytes(64, "little")
        ctx.set(port.released, entry)
        ctx.set(port.release, 1)
        await self.cycle()
        ctx.set(port.release, 0)
        return Asked(True, head, found[:length])


def play(width: int, scene: Callable, *, deadline: int = 20_000) -> None:
    """Simulate a window in which both functions may push."""
    if width not in WINDOWS:
        WINDOWS[width] = Prepared(PushWindow(config=CONFIGS[width], least=POST_SEND.size))
    prepared = WINDOWS[width]

    async def run(ctx):
        dut = prepared.component
        ctx.set(dut.push.pushes, 0b11)
        ctx.set(dut.ring.ready, 1)
        await scene(Bench(dut, ctx, width))

    simulate(prepared, run, deadline=deadline)


#: Number of the first function that pushes.
FIRST = FUNCTION_RDMA
