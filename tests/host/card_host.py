"""The host of a ``Card``: register accesses of any size, and the guest driver's ``Platform``."""

from __future__ import annotations

from dataclasses import dataclass

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

from hdl.abi import virtio_pci as abi
from hdl.abi.layout import Struct
from hdl.abi.virtio_pci import Status
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.csr.map import CsrMap, row_map
from hdl.ports import jobs
from sim.guest.driver.platform import Message
from tests.fields import unpack
from tests.host.card import MANAGEMENT

#: The features of the device, as in the standard's table.
OFFERED = sum(1 << bit for bit in (0, *range(2, 9), 14, 15, 28, 29, 32, 33, 35, 36, 38, 40))
#: No read may take longer, whatever was accessed before.
READ_CYCLES = 40
#: Cycles after a posted write until it has reached its register.
GAP = 12
#: Cycles after reset until the management function answers: its windows' RAM clears itself.
WINDOWS = 520
#: Where the structures are in BAR 0; the walk of the capabilities checks it.
COMMON, ISR, DEVICE, PBA, COUNTERS, TABLE = 0x0000, 0x1000, 0x2000, 0x4000, 0x6000, 0x8000
NOTIFY_BAR = 2
#: Inputs that start at 0, streams that are taken at once.
QUIET = (
    "mmio__req__valid",
    "interrupt__valid",
    "queue_error__valid",
    "queue_reset_done",
    "reset_done",
    "flr",
    "queue_read0__enable",
    "queue_read1__enable",
    "control_read__enable",
)
ALWAYS_READY = ("mmio__rsp", "doorbell", "write__beat", "queue_reset")


@dataclass(frozen=True)
class Doorbell:
    """What the doorbell stream carried."""

    queue: int
    has_next: int
    next: int
    arms: int = 0


class Host:
    """Runs at the falling edge of the clock: what it reads is stable, what it sets is taken at the
    next rising edge."""

    def __init__(self, dut, config: NicConfig):
        self.dut, self.config = dut, config
        self.csr = CsrMap(config)
        self.cycles = 0
        self.slowest = 0
        self.mmio = self.interrupts = self
        self.doorbells: list[Doorbell] = []
        self.writes: list[tuple[int, int]] = []  # (address, data) of each message
        self.queue_resets: list[int] = []
        self.rooms = True  # something answers resets
        self.resetting = False  # the driver waits for the end of one
        self.at_once = False  # ... of queues in the cycle in which it takes them
        self.gap = GAP
        self._handlers: dict[Message, object] = {}

    @classmethod
    async def begin(cls, dut, config: NicConfig, deadline: int = 200_000) -> Host:
        """Reset the card; the test fails after ``deadline`` cycles."""
        self = cls(dut, config)
        for name in QUIET:
            getattr(dut, name).value = 0
        dut.counters__done.value = 1
        for name in ALWAYS_READY:
            getattr(dut, f"{name}__ready").value = 1
        dut.rst.value = 1
        cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
        await self.tick(2)
        dut.rst.value = 0
        await self.tick(WINDOWS)
        cocotb.start_soon(self._watch(deadline))
        cocotb.start_soon(self._answer_resets())
        cocotb.start_soon(self._answer_queue_resets())
        return self

    async def tick(self, count: int = 1) -> None:
        """Let ``count`` cycles pass."""
        for _ in range(count):
            await FallingEdge(self.dut.clk)

    async def _watch(self, deadline: int) -> None:
        """Count cycles and note what the card sends."""
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            await Timer(1, "ns")  # all inputs of this cycle are set
            self.cycles += 1
            assert self.cycles < deadline, f"Not finished after {deadline} cycles"
            if int(dut.doorbell__valid.value) & int(dut.doorbell__ready.value):
                bell = unpack(jobs.Doorbell, int(dut.doorbell__payload.value))
                self.doorbells.append(Doorbell(**bell))
            if int(dut.write__beat__valid.value) & int(dut.write__beat__ready.value):
                self._write(int(dut.write__beat__payload.value))

    def _write(self, beat: int) -> None:
        width = self.config.width
        low = 0
        fields = {}
        for name, bits in (
            ("stream_id", 4),
            ("function", 8),
            ("addr", 64),
            ("data", width),
            ("keep", width // 8),
            ("first", 1),
            ("last", 1),
        ):
            fields[name] = beat >> low & (1 << bits) - 1
            low += bits
        expected = {"stream_id": 0, "function": FUNCTION_RDMA, "keep": 0xF, "first": 1, "last": 1}
        assert {name: fields[name] for name in expected} == expected
        message = fields["addr"], fields["data"]
        self.writes.append(message)
        if (handler := self._handlers.get(Message(*message))) is not None:
            handler()

    async def _answer_resets(self) -> None:
        while True:
            await self.tick()
            if self.rooms and int(self.dut.reset_request.value):
                await self.tick(3)
                await self.pulse(self.dut.reset_done)

    async def _answer_queue_resets(self) -> None:
        dut = self.dut
        while True:
            taken = int(dut.queue_reset__valid.value) & int(dut.queue_reset__ready.value)
            queue = int(dut.queue_reset__payload.value)
            if taken and self.at_once:
                self.queue_resets.append(queue)
                await self.pulse(dut.queue_reset_done)
                continue
            await self.tick()
            if taken:
                self.queue_resets.append(queue)
                if self.rooms:
                    await self.tick(5)
                    await self.pulse(dut.queue_reset_done)

    async def pulse(self, signal) -> None:
        """One for a cycle."""
        signal.value = 1
        await self.tick()
        signal.value = 0

    async def send(self, name: str, payload: int, patience: int = READ_CYCLES) -> None:
        """Offer a beat on an input stream until it is taken."""
        getattr(self.dut, f"{name}__payload").value = payload
        getattr(self.dut, f"{name}__valid").value = 1
        waited = 0
        while not int(getattr(self.dut, f"{name}__ready").value):
            await self.tick()
            waited += 1
            assert waited < patience, f"{name} not taken"
        await self.tick()
        getattr(self.dut, f"{name}__valid").value = 0

    # Single accesses ----------------------------------------------------------------------------

    async def word(
        self, function: int, bar: int, addr: int, *, strb: int = 0xF, data: int | None = None
    ) -> int:
        """One access as the bus brings it; the answer of a read. Fails when it takes too long."""
        dut = self.dut
        write = data is not None
        payload = function | bar << 8 | addr << 11 | write << 43 | strb << 44 | (data or 0) << 48
        await self.send("mmio__req", payload)
        if write:
            await self.tick(self.gap)
            return 0
        waited = 0
        while not int(dut.mmio__rsp__valid.value):
            await self.tick()
            waited += 1
            assert waited < READ_CYCLES, f"Read of {function}:{bar}:{addr:#x} not answered"
        self.slowest = max(self.slowest, waited + 1)
        answer = int(dut.mmio__rsp__payload.value)
        await self.tick()
        return answer

    async def read(self, function: int, bar: int, addr: int, size: int) -> int:
        """``size`` bytes anywhere; a bus splits what crosses a word."""
        value = 0
        for at in range(addr & ~3, addr + size, 4):
            strb = sum(1 << i for i in range(4) if addr <= at + i < addr + size)
            word = await self.word(function, bar, at, strb=strb)
            for i in range(4):
                if strb >> i & 1:
                    value |= (word >> 8 * i & 0xFF) << 8 * (at + i - addr)
        return value

    async def write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        """``size`` bytes anywhere."""
        for at in range(addr & ~3, addr + size, 4):
            strb = data = 0
            for i in range(4):
                if addr <= at + i < addr + size:
                    strb |= 1 << i
                    data |= (value >> 8 * (at + i - addr) & 0xFF) << 8 * i
            await self.word(function, bar, at, strb=strb, data=data)

    # Structures ---------------------------------------------------------------------------------

    async def get(self, path: str) -> int:
        """A field of the common configuration."""
        return await self._field(abi.COMMON_CFG, COMMON, path, None)

    async def set(self, path: str, value: int) -> None:
        """Write a field of the common configuration, 64 bits as two halves."""
        await self._field(abi.COMMON_CFG, COMMON, path, value)

    async def entry(self, vector: int, path: str, value: int) -> None:
        """Write a field of the MSI-X table."""
        await self._field(abi.MSIX_ENTRY, TABLE + abi.MSIX_ENTRY.size * vector, path, value)

    async def entry_of(self, vector: int, path: str) -> int:
        """A field of the MSI-X table."""
        return await self._field(abi.MSIX_ENTRY, TABLE + abi.MSIX_ENTRY.size * vector, path, None)

    async def _field(self, struct: Struct, base: int, path: str, value: int | None) -> int:
        place = struct.place(path)
        result = 0
        for i in range(0, place.size, 4):
            at, size = base + place.offset + i, min(4, place.size)
            if value is None:
                result |= await self.read(FUNCTION_RDMA, 0, at, size) << 8 * i
            else:
                part = value >> 8 * i & (1 << 8 * size) - 1
                await self.write(FUNCTION_RDMA, 0, at, size, part)
        return result

    async def config_read(self, at: int, size: int) -> int:
        """Bytes of the RDMA function's configuration space."""
        return await self.read(FUNCTION_RDMA, abi.CONFIG_SPACE, at, size)

    async def config_write(self, at: int, size: int, value: int) -> None:
        """Write the RDMA function's configuration space."""
        await self.write(FUNCTION_RDMA, abi.CONFIG_SPACE, at, size, value)

    async def command(self, bits: int) -> None:
        """Write the PCI command register."""
        await self.config_write(abi.PCI_HEADER.offset("command"), 2, bits)

    async def csr_read(self, path: str, word: int = 0) -> int:
        """A management register."""
        return await self.word(MANAGEMENT, 0, self.csr.address(path, word))

    async def csr_write(self, path: str, value: int, word: int = 0) -> None:
        """Write a management register."""
        await self.word(MANAGEMENT, 0, self.csr.address(path, word), data=value)

    # What a driver does -------------------------------------------------------------------------

    async def reset(self) -> None:
        """Device reset, as a driver does it."""
        self.resetting = True
        await self.set("device_status", 0)
        while await self.get("device_status"):
            pass
        self.resetting = False

    async def function_reset(self) -> int:
        """Function-level reset, which ends with the device reset; returns the cycles until the
        function said that it is clean."""
        self.dut.flr.value = 1
        cycles = clean = 0
        while not (int(self.dut.flr_over.value) and int(self.dut.flr_clean.value)):
            await self.tick()
            cycles += 1
            assert cycles < 2000, "The function-level reset has no end"
            clean += not int(self.dut.flr_clean.value)
        self.dut.flr.value = 0
        await self.tick()
        return clean

    async def negotiate(self, features: int) -> int:
        """Write the features and FEATURES_OK; the status that results."""
        for half in (0, 1):
            await self.set("driver_feature_select", half)
            await self.set("driver_feature", features >> 32 * half & 0xFFFF_FFFF)
        before = Status.ACKNOWLEDGE | Status.DRIVER
        await self.set("device_status", before | Status.FEATURES_OK)
        return await self.get("device_status")

    async def start(self, features: int = OFFERED) -> None:
        """From reset to DRIVER_OK."""
        await self.reset()
        status = await self.negotiate(features)
        assert status & Status.FEATURES_OK
        await self.set("device_status", status | Status.DRIVER_OK)

    async def enable_queue(self, queue: int, *, size: int = 64, base: int = 0x1_0000_0000) -> None:
        """Set up one queue with rings from ``base`` on."""
        await self.set("queue_select", queue)
        await self.set("queue_size", size)
        await self.set("queue_desc", base)
        await self.set("queue_driver", base + 0x8000)
        await self.set("queue_device", base + 0xC000)
        await self.set("queue_enable", 1)

    async def ring(self, queue: int, size: int = 2, data: int = 0) -> None:
        """A doorbell."""
        await self.write(FUNCTION_RDMA, NOTIFY_BAR, 4 * queue, size, data)

    async def row(self, queue: int, port: int = 0, *, shown: bool = False) -> dict[str, int]:
        """A queue's row as an engine reads it: one cycle later. ``shown``: the firmware has read it
        last, so the control queue's engine reads it too, as it does its own two."""
        shown |= queue in (0, self.config.event_queue)
        names = [f"queue_read{port}", *(["control_read"] if shown else [])]
        for name in names:
            getattr(self.dut, f"{name}__index").value = queue
            getattr(self.dut, f"{name}__enable").value = 1
        await self.tick()
        for name in names:
            getattr(self.dut, f"{name}__enable").value = 0
        number, *control = (int(getattr(self.dut, f"{name}__row").value) for name in names)
        assert control in ([], [number]), "the control queue's engine reads another row"
        words = row_map("queue").words
        return self.row_of([number >> 32 * i & 0xFFFF_FFFF for i in range(words)])

    def row_of(self, words: list[int]) -> dict[str, int]:
        """A queue's row without its rules, which must be what the driver has accepted."""
        row = row_map("queue").unpack(words)
        found = [row.pop(f"rules.{name}") for name in ("event_idx", "in_order", "indirect")]
        assert sum(bit << i for i, bit in enumerate(found)) == int(self.dut.features.value)
        assert not row.pop("rules.packed") | row.pop("rules.wqe_format")
        return row

    # What the driver's platform needs -----------------------------------------------------------

    def now(self) -> int:
        """Time in ns."""
        return 4 * self.cycles

    async def wait_event(self, timeout_ns: int) -> None:
        """Let time pass."""
        await self.tick(max(1, min(timeout_ns, 100) // 4))

    def allocate(self, handler) -> Message:
        """A message of its own for ``handler``."""
        message = Message(0xFEE0_0000 + 16 * len(self._handlers), 0x4000 + len(self._handlers))
        self._handlers[message] = handler
        return message

    def release(self, message: Message) -> None:
        """End what ``allocate`` began."""
        del self._handlers[message]
