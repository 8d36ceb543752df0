"""The world around simulated cards: hosts (the driver's ``Platform``), the wire, the deadline.

Runs inside a cocotb simulation whose top holds ``host_model`` and ``link_model``
(``sim/bench/testbench.py`` makes such a top). Models run compiled; Python wakes only for events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import cocotb
from cocotb.simtime import get_sim_time
from cocotb.task import current_task
from cocotb.triggers import Event, First, Timer, ValueChange

from hdl.bounds import within
from sim.guest.driver import platform
from sim.guest.driver.memory import GuestMemory
from sim.guest.driver.platform import Message
from sim.models import native
from sim.models.behaviour import HostBehaviour
from sim.models.impairments import Impairments
from sim.models.mmio import Mmio
from sim.models.spaces import Guest, Space

__all__ = ["Deadline", "Fault", "Host", "Interrupts", "Mmio", "Wire"]

log = logging.getLogger("rocinante.platform")

MSI_WINDOW = 0xFEE0_0000
_BROKEN = {
    1: "a read uses a tag that is outstanding",
    2: "a read has no length or crosses 4 KiB",
    3: "a register access was answered that nobody made",
    4: "a write burst does not begin with first, or begins inside another",
    5: "a write beat is unaligned or without bytes",
    6: "a write burst has no length or crosses 4 KiB",
    7: "a write burst's beats are not consecutive",
    8: "a write burst's length is wrong",
    9: "a frame's first, last or keep is wrong",
}


def now_ns() -> int:
    """Simulated time in ns."""
    return int(get_sim_time("ns"))


@dataclass(frozen=True)
class Fault:
    """A card's access to an address without memory. ``time`` in ps."""

    write: bool
    addr: int
    length: int
    time: int


class Interrupts:
    """Messages of one host; implements ``sim.guest.driver.platform.Interrupts``."""

    def __init__(self) -> None:
        self._handlers: dict[Message, Callable[[], None]] = {}
        self._count = 0
        self.received = 0
        self.spurious: list[tuple[Message, int]] = []  # and the time in ps

    def allocate(self, handler: Callable[[], None]) -> Message:
        """A new message; ``handler`` is called each time it arrives."""
        number = self._count
        self._count += 1
        message = Message(MSI_WINDOW + 4 * (number % 1024), 0x4000 + number)
        self._handlers[message] = handler
        return message

    def release(self, message: Message) -> None:
        """Later arrivals count as spurious."""
        del self._handlers[message]

    def arrived(self, addr: int, data: int, time: int) -> None:
        """The model has seen a write into the MSI window."""
        self.received += 1
        message = Message(addr, data)
        if (handler := self._handlers.get(message)) is not None:
            handler()
        else:
            self.spurious.append((message, time))


class Host:
    """One host with its card; implements ``sim.guest.driver.platform.Platform``.

    index: the ``ID`` of its ``host_model``. signal: the model's ``event_o``.
    size: bytes of memory, from physical address ``base`` on. heap: how much of it serves contiguous
    allocations. shuffle: seed of the order in which pages are given out, None = ascending.
    ``faults`` lists accesses of the card outside memory. A card that breaks the rules of the host
    port fails the test.
    """

    def __init__(
        self,
        index: int,
        signal: Any,
        *,
        size: int = 256 << 20,
        base: int = 0,
        heap: int | None = None,
        shuffle: int | None = 1,
    ):
        self.index = index
        octets = native.memory(index, base, size)
        self.memory = GuestMemory(octets, base=base, heap=heap, seed=shuffle)
        self._registers = Mmio(index)
        #: What the driver reaches registers by; a development tool may put its own here.
        self.mmio: platform.Mmio = self._registers
        self.interrupts = Interrupts()
        self.faults: list[Fault] = []
        self._watches: list[Callable[[int], None]] = []
        #: Functions whose guests are other programs.
        self._spaces: dict[int, Space] = {}
        self.settings: Any = native.structure(native.HostSettings, "host_settings", index)
        self._stats = native.structure(native.HostStats, "host_stats", index)
        self._signal = signal
        self._arrived = Event()
        self._arrivals = 0
        self._least_ns = 0
        self._seen: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        native.events("host_event", index)  # left over from an earlier test
        native.library().host_unwatch(index)
        native.clear(self._stats)
        self.set()
        self._task = cocotb.start_soon(self._dispatch())

    @property
    def stats(self) -> Any:
        """What the host has counted until now (``sim.models.native.HostStats``)."""
        native.library().clock_wake()
        return self._stats

    def set(self, **behaviour: Any) -> None:
        """Behave as ``HostBehaviour(**behaviour)`` says; what is not named gets its default."""
        for name, value in HostBehaviour(**behaviour).settings().items():
            setattr(self.settings, name, value)
        native.library().host_reseed(self.index)

    def watch(self, addr: int, size: int, handler: Callable[[int], None]) -> None:
        """From now on call ``handler`` when the card writes any of these bytes of memory.

        It is called with the time in ps, in the cycle in which the write becomes visible.
        """
        if not 1 <= size <= self.memory.bytes.size:
            raise ValueError(f"Cannot watch {size} bytes")
        native.library().host_watch(self.index, len(self._watches), addr, size)
        self._watches.append(handler)

    def lend(self, function: int, guest: Guest) -> Space:
        """Let a function reach the memory of ``guest`` alone, which hears its interrupts too."""
        self._spaces[function] = Space(self.index, function, guest)
        return self._spaces[function]

    def now(self) -> int:
        """Time in ns."""
        return now_ns()

    async def wait_event(self, timeout_ns: int) -> None:
        """Sleep until an interrupt has arrived since this task's last call, or the time is over."""
        task = current_task()
        if self._seen.get(task, 0) == self._arrivals:
            await First(self._arrived.wait(), Timer(max(1, timeout_ns, self._least_ns), "ns"))
        self._seen[task] = self._arrivals

    def doze(self, least_ns: int) -> None:
        """From now on who waits for events sleeps for ``least_ns`` at least: nothing will come.

        0: as long as each asks for, as in the beginning; who sleeps now looks again at once.
        """
        self._least_ns = least_ns
        if not least_ns:
            self._arrived.set()
            self._arrived.clear()

    def stop(self) -> None:
        """Take no more events: somebody else becomes this host."""
        self._task.cancel()

    async def _dispatch(self) -> None:
        while True:
            await ValueChange(self._signal)
            for event in native.events("host_event", self.index):
                self._handle(event)

    def _space(self, event: native.Event) -> Space | None:
        """The space that an event belongs to."""
        if event.kind == native.FETCH:
            return self._spaces[event.value >> 32]
        named = event.kind in (native.INTERRUPT, native.STORE)
        return self._spaces.get(event.id) if named else None

    def _handle(self, event: native.Event) -> None:
        if (space := self._space(event)) is not None:
            space.happened(event)
        elif event.kind == native.MMIO:
            self._registers.answered(event.id, event.value)
        elif event.kind == native.WRITTEN:
            self._watches[event.id](event.time)
        elif event.kind == native.INTERRUPT:
            self.interrupts.arrived(event.addr, event.value, event.time)
            self._arrivals += 1
            self._arrived.set()
            self._arrived.clear()
        elif event.kind in (native.READ_FAULT, native.WRITE_FAULT):
            write = event.kind == native.WRITE_FAULT
            self.faults.append(Fault(write, event.addr, event.value, event.time))
            log.info("host %d: %r", self.index, self.faults[-1])
        else:
            raise AssertionError(
                f"Card of host {self.index}: {_BROKEN[event.value]} "
                f"(address {event.addr:#x}, {event.time / 1000:g} ns)"
            )


class Wire:
    """A card's end of the wire.

    index: the ``ID`` of its ``link_model``; signal: that model's ``event_o``. Without ``connect``
    the far end is Python: ``inject`` sends frames to the card, ``receive`` takes those it sent.
    ``outward``, ``inward``: what impairments have done to frames from the card, and to injected
    ones (``native.ImpairStats``).
    """

    def __init__(self, index: int, signal: Any):
        self.index = index
        self.settings: Any = native.structure(native.LinkSettings, "link_settings", index)
        self.stats: Any = native.structure(native.LinkStats, "link_stats", index)
        self.outward: Any = native.structure(native.ImpairStats, "link_impair_stats", index, 0)
        self.inward: Any = native.structure(native.ImpairStats, "link_impair_stats", index, 1)
        self._signal = signal
        self._arrived = Event()
        self._times: list[int] = []
        native.events("link_event", index)
        native.clear(self.stats)
        while self.take() is not None:  # left over from an earlier test
            pass
        self.set()
        self.impair()
        self._task = cocotb.start_soon(self._dispatch())

    def set(
        self,
        *,
        gbps: float = 100,
        delay_ns: float = 100,
        buffer_bytes: int = 1 << 20,
        stall_tx: float = 0,
        stall_rx: float = 0,
        seed: int = 1,
    ) -> None:
        """Set what comes after this card's transmit side; what is not named returns to its default.

        buffer_bytes: what may wait for this card's receive side before the sender is held off.
        stall_*: share of cycles in which a beat is refused, or offered late.
        """
        within("gbps", gbps, 0.001, 8000)
        within("delay_ns", delay_ns, 0, 10**10)
        if not 0 <= stall_tx < 1 or not 0 <= stall_rx < 1:
            raise ValueError(f"Shares must be 0 to less than 1, not {stall_tx} and {stall_rx}")
        self.settings.ps_per_byte = round(8000 / gbps)
        self.settings.delay_ps = int(delay_ns * 1000)
        self.settings.buffer_bytes = buffer_bytes
        self.settings.stall_tx = int(stall_tx * 256)
        self.settings.stall_rx = int(stall_rx * 256)
        self.settings.seed = seed
        native.library().link_reseed(self.index)

    def impair(self, outward: Impairments | None = None, inward: Impairments | None = None) -> None:
        """What becomes of frames that the card sends, and of those that Python injects.

        None: they arrive. Frames that are on their way already are not changed.
        """
        for direction, chosen in enumerate((outward, inward)):
            settings = native.structure(
                native.ImpairSettings, "link_impair_settings", self.index, direction
            )
            words = (chosen or Impairments()).words(seed=2 * self.index + direction)
            for name, value in words.items():
                setattr(settings, name, value)
        native.library().link_impair(self.index)

    def connect(self, other: Wire) -> None:
        """Join two ends; settings of each hold for what it sends."""
        native.library().clock_wake()
        self.settings.peer = other.index
        other.settings.peer = self.index

    def disconnect(self) -> None:
        """Let Python be the far end."""
        native.library().clock_wake()
        self.settings.peer = (1 << 64) - 1

    def hold(self, held: bool) -> None:
        """Let the far end take no more of what this card sends, or take it again."""
        native.library().clock_wake()
        self.settings.stall_tx = 256 if held else 0  # of 256 cycles

    def under_way(self, *, to_card: bool) -> int:
        """Bytes of frames on their way to the card (not taken by it yet), or from it to Python."""
        native.library().clock_wake()
        return int(native.library().link_under_way(self.index, to_card))

    def inject(self, frame: bytes, *, error: bool = False, earliest_ns: float = 0) -> None:
        """Send a frame (no FCS) to the card, after those before it and not before ``earliest_ns``.

        error: it arrives with a bad FCS.
        """
        if not 1 <= len(frame) <= 16384:
            raise ValueError(f"Frame must have 1 to 16384 bytes, not {len(frame)}")
        native.library().link_inject(
            self.index, int(earliest_ns * 1000), bytes(frame), len(frame), error
        )

    async def receive(self, timeout_ns: int) -> tuple[bytes, int]:
        """The next frame from the card, and when its last bit arrived in ps.

        TimeoutError after ``timeout_ns``.
        """
        ends = now_ns() + timeout_ns
        while (frame := self.take()) is None:
            left = ends - now_ns()
            if left <= 0:
                raise TimeoutError(f"No frame from card {self.index} within {timeout_ns} ns")
            await First(self._arrived.wait(), Timer(left, "ns"))
        return frame

    def arrival(self) -> Any:
        """Trigger: the next frame from the card has arrived."""
        return self._arrived.wait()

    @staticmethod
    def capture(path: str) -> None:
        """Record all frames of all wires, until ``end_capture``, as a nanosecond pcap."""
        if not native.library().link_capture(str(path).encode()):
            raise OSError(f"Cannot write {path}")

    @staticmethod
    def end_capture() -> None:
        """Complete the file."""
        native.library().link_capture_end()

    def take(self) -> tuple[bytes, int] | None:
        """A frame that has come from the card, as ``receive`` has it; None without waiting."""
        arrival = native.c_uint64()
        size = native.library().link_receive(self.index, None, native.byref(arrival))
        if not size:
            return None
        buffer = bytearray(size)
        view = (native.c_uint8 * size).from_buffer(buffer)
        native.library().link_receive(self.index, view, native.byref(arrival))
        del view
        return bytes(buffer), arrival.value

    def stop(self) -> None:
        """Take no more events: somebody else becomes this end."""
        self._task.cancel()

    async def _dispatch(self) -> None:
        while True:
            await ValueChange(self._signal)
            for event in native.events("link_event", self.index):
                if event.kind == native.PROTOCOL:
                    raise AssertionError(
                        f"Card {self.index}: {_BROKEN[event.value]} "
                        f"(frame {event.addr}, {event.time / 1000:g} ns)"
                    )
            self._arrived.set()
            self._arrived.clear()


class Deadline:
    """Fails the test after ``cycles`` cycles of ``period_ps`` unless it ends or cancels before.

    report: called then; what it returns becomes part of the failure (which rooms wait for what).
    A report that must read registers may be async.
    """

    def __init__(self, cycles: int, period_ps: int, report: Callable[[], Any] | None = None):
        if cycles < 1:
            raise ValueError(f"Deadline must be at least 1 cycle, not {cycles!r}")
        self._cycles, self._period_ps, self.report = cycles, period_ps, report
        self._task = cocotb.start_soon(self._watch())

    def cancel(self) -> None:
        """The work is done."""
        self._task.cancel()

    async def _watch(self) -> None:
        await Timer(self._cycles * self._period_ps, "ps")
        text = ""
        if self.report is not None:
            text = self.report()
            if hasattr(text, "__await__"):
                text = await text
        raise AssertionError(f"Deadline of {self._cycles} cycles has passed\n{text}")
