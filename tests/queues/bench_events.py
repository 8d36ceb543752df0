"""ControlEngine in Verilator: what the firmware posts to the event queue, and looks at."""

from __future__ import annotations

import os
import struct

import cocotb

from hdl.abi.virtio_rdma import EVENT
from hdl.ports.jobs import QueueErrorCause
from sim.bench.pins import number
from tests.queues.bench_control import ControlBench
from tests.queues.host import Queue
from tests.queues.top import small_config

EVENTS = small_config(int(os.environ.get("WIDTH", "64"))).event_queue
#: The event's words begin there in the RAM of the mailbox.
RECORD = 64


class EventBench(ControlBench):
    """``target`` is the event queue; the bench plays the firmware's registers."""

    def __init__(self, dut, *, vector=5, **options):
        super().__init__(dut, **options)
        self.target = self.queues[EVENTS] = Queue(self.memory, EVENTS, 16, vector)
        self.ended = False

    def begin(self, queue: int, position: int, record: bytes = b"", *, look: int = 0) -> None:
        """Ask for an operation."""
        for place, (word,) in enumerate(struct.iter_unpack("<I", record)):
            self.response[RECORD + place] = word
        self.dut.control__post__queue.value = queue
        self.dut.control__post__position.value = position & 0xFFFF
        self.dut.control__post__look.value = look
        self.dut.control__post__start.value = 1
        self.ended = False

    def cycle(self):
        super().cycle()
        if number(self.dut.control__post__done):
            self.dut.control__post__start.value = 0
            self.ended = True

    async def done(self) -> bool:
        """Wait for its end; whether it was a success."""
        await self.until(lambda: self.ended, 3000, "the end of an operation")
        return bool(number(self.dut.control__post__success))

    async def post(self, record: bytes) -> bool:
        """Post one event."""
        self.begin(EVENTS, 0, record)
        return await self.done()

    def buffer(self, *sizes: int, readable: bool = False, indirect=None):
        """Give the device a buffer in pieces; returns (address, length) of each."""
        parts = [(self.memory.alloc(n + 3) + 1, n) for n in sizes]
        chain = [(a, n, not readable) for a, n in parts]
        self.target.offer(self.target.chain(chain, indirect_from=indirect, rng=self.rng))
        return parts


@cocotb.test()
async def events(dut):
    """Each event fills the next buffer, of any shape, and interrupts; without one nothing is
    written, and the next buffer gets the next event."""
    for event_idx, stall in ((0, 0.0), (1, 0.3)):
        bench = EventBench(dut, seed=8 + event_idx, stall=stall, event_idx=event_idx)
        await bench.start(again=bool(event_idx))
        rng, queue = bench.rng, bench.target
        shapes = [(16,), (3, 13), (1,) * 12 + (60,), (64,), (9,), (16,), (2, 30)]
        for count, sizes in enumerate(shapes):
            bench.memory.log.clear()
            assert not await bench.post(rng.randbytes(EVENT.size))
            written = sum(len(d) for _, d, _ in bench.memory.log)
            assert written == (2 if event_idx else 0), "no more than avail_event"
            parts = bench.buffer(*sizes, indirect=0 if len(sizes) > 2 else None)
            queue.set_used_event(count)
            record = rng.randbytes(EVENT.size)
            assert await bench.post(record)
            assert queue.used_index() == count + 1
            room = min(sum(sizes), EVENT.size)
            assert queue.used(count)[1] == room
            assert b"".join(bench.memory.get(a, n) for a, n in parts)[:room] == record[:room]
            await bench.cycles(100)
            assert bench.interrupts.items == [{"function": bench.function, "vector": 5}]
            bench.interrupts.items.clear()
            queue.spare = list(range(16))
        assert not bench.errors.items and not number(dut.control__requests)
        bench.ports.clear()


@cocotb.test()
async def beside_requests(dut):
    """An event waits while a request is with the firmware, and a request while an event is being
    written; neither disturbs the other."""
    bench = EventBench(dut, seed=4)
    await bench.start()
    for turn in range(12):
        request, record = bench.rng.randbytes(20), bench.rng.randbytes(EVENT.size)
        (place, _), *_ = bench.buffer(EVENT.size)
        early = turn % 2
        await bench.until(lambda: number(dut.control__idle), 3000, "idle")
        if early:
            bench.begin(EVENTS, 0, record)
        bench.offer(request, (40,))
        bench.ring()
        if early:
            await bench.cycles(turn * 9)
            assert await bench.done()
        await bench.pending()
        if not early:
            bench.begin(EVENTS, 0, record)
            await bench.cycles(200)
            assert not bench.ended
        words = {k: v for k, v in bench.response.items() if k >= RECORD}
        await bench.answer(b"\0" * 9)
        bench.response |= words
        if not early:
            assert await bench.done()
        await bench.used(turn + 1)
        assert bench.requested(20) == request and bench.memory.get(place, EVENT.size) == record
        assert bench.target.used_index() == turn + 1
        bench.queue.spare, bench.target.spare = list(range(64)), list(range(16))
    assert not bench.errors.items


@cocotb.test()
async def looks(dut):
    """The avail index of any queue is read, also behind the wrap, and nothing else happens."""
    bench = EventBench(dut, seed=6)
    await bench.start()
    other = bench.queues[7] = Queue(bench.memory, 7, 32)
    for index, used in ((0, 0), (5, 0), (32, 0), (40, 31), (3, 0xFFF0), (0xFFFF, 0xFFF0)):
        other.set_index(index)
        bench.memory.log.clear()
        bench.begin(7, used, look=1)
        assert await bench.done()
        assert number(dut.control__post__available) == index
        assert not bench.memory.log and not bench.errors.items
    other.set_index(70)
    bench.begin(7, 3, look=1)
    assert not await bench.done(), "more than the ring holds"
    assert not bench.errors.items, "that is for its own engine to say"
    other.enabled = False
    bench.begin(7, 3, look=1)
    assert await bench.done()
    assert number(dut.control__post__available) == 3, "a queue without a driver has nothing"


@cocotb.test()
async def broken_event_queue(dut):
    """A queue that is not as it should be is reported, and the firmware told that nothing was
    written. A reset of the queue waits for the end of what is posted."""
    bench = EventBench(dut, seed=7, latency=30)
    await bench.start()
    bench.buffer(16, readable=True)
    assert not await bench.post(b"x" * 16)
    wanted = {"queue": EVENTS, "cause": QueueErrorCause.DIRECTION.value}
    assert bench.errors.items.pop() == wanted
    bench.target = bench.queues[EVENTS] = Queue(bench.memory, EVENTS, 16, 5)
    bench.buffer(16)
    bench.begin(EVENTS, 0, b"y" * 16)
    await bench.cycles(40)
    bench.reset.queue.append(EVENTS)
    await bench.cycles(20)
    assert not bench.reset.taken
    assert await bench.done()
    await bench.until(lambda: bench.reset.taken == 1, 50, "reset")
    assert bench.target.used_index() == 1
    bench.target = bench.queues[EVENTS] = Queue(bench.memory, EVENTS, 8, 5)
    (place, _), *_ = bench.buffer(16)
    assert await bench.post(b"z" * 16), "it begins at 0 again"
    assert bench.memory.get(place, 16) == b"z" * 16 and bench.target.used(0)[1] == 16
    bench.offer(b"hello", (3,))
    bench.ring()
    await bench.pending()
    await bench.answer(b"yes")
    await bench.used(1)
