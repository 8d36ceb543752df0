"""``Hardware`` on the register bus of the management function. Registers: ``hdl/csr/blocks.py``."""

from __future__ import annotations

from dataclasses import dataclass

from firmware.dc.registers import ConnectionRegisters
from firmware.device import FunctionState, HardwareError, Posted, Request, Row
from firmware.identity import CONFIG, Bus, configuration
from firmware.mailbox import Mailbox
from firmware.network_registers import NetworkRegisters
from firmware.requests import needed_words
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.csr.blocks import PAGES, VERSION_BITS
from hdl.csr.context import RECORD_BYTES
from hdl.csr.describe import BLOCK_BYTES
from hdl.csr.diagnostics import PARITY_TABLES
from hdl.csr.map import TABLES, CsrMap, row_map
from hdl.ports.counter_names import (
    COUNTERS,
    LATENCY_BUCKETS,
    PORT_COUNTERS,
    PUSH_COUNTS,
    QP_COUNTER_SLOTS,
    QP_COUNTERS,
)

#: Reads of a busy register before the hardware counts as dead.
PATIENCE = 100_000
#: Bytes of the address space that hold registers.
SPACE = (max(PAGES.values()) + 1) * BLOCK_BYTES
#: Flags of an activation of the send side (doorbell, wake) and of the receive side (finish, flush).
_SEND_CHANGED = 3
_RECEIVE_CHANGED = 3
_RECEIVE_FLUSH = 2


@dataclass
class _Window:
    """What is known of a table's window. None: nothing; ``words`` are those of its shadow.

    Nothing is known while an access is under way, as whoever runs the firmware may stop it there.
    """

    index: int | None = None
    words: list[int] | None = None
    busy: bool = True  # it may be


class Registers:
    """The hardware's operations as register accesses.

    ``bus`` may be replaced between calls. One command at a time: callers do not overlap calls.
    Errors: HardwareError when a register stays busy or the bus does not lead to this NIC.
    """

    def __init__(self, bus: Bus, config: NicConfig):
        self.bus, self.config = bus, config
        self._map = CsrMap(config)
        self._mailbox = Mailbox(self, self._map, needed_words)
        self._beats = 0
        #: ``begin_post`` has begun something; None: a firmware before this one may have.
        self._posting: bool | None = None
        self._broken = False  # a virtqueue is, as the mailbox has said
        #: Of a card that has a network function.
        self.network = NetworkRegisters(self, config) if config.network else None
        #: Of a card with DC.
        self.connections = ConnectionRegisters(self, config) if config.dc else None
        self.forget()

    async def _read(self, path: str, word: int = 0) -> int:
        return await self.bus.read(self._map.address(path, word))

    async def _fields(self, path: str) -> dict[str, int]:
        return self._map.decode(path, await self._read(path))

    async def _write(self, path: str, **values: int) -> None:
        await self.bus.write(self._map.address(path), self._map.encode(path, **values))

    async def _wait(self, path: str, field: str, what: str) -> dict[str, int]:
        """The register's fields once ``field`` is 0."""
        for _ in range(PATIENCE):
            fields = await self._fields(path)
            if not fields[field]:
                return fields
        raise HardwareError(f"{what}: {path}.{field} stays set")

    async def check(self) -> None:
        """Raises HardwareError unless the bus leads to a NIC of this configuration."""
        for field, found in (await configuration(self.bus, self._map)).items():
            wanted = getattr(self.config, field)
            if found != wanted:
                raise HardwareError(f"core.{CONFIG}{field} is {found}, not {wanted}")

    async def version(self) -> str:
        """The version of the card's gateware."""
        found = await self._fields("core.version")
        return ".".join(str(found[name]) for name in reversed(VERSION_BITS))

    @property
    def commit(self) -> str:
        """The commit that the card is generated from: 8 hexadecimal digits, or nothing."""
        return f"{self.config.commit:08x}" if self.config.commit else ""

    def forget(self) -> None:
        """Assumes nothing of the windows any more: another one has used them."""
        self._windows = {table: _Window() for table in TABLES}

    # Mailbox ------------------------------------------------------------------------------------

    async def function_state(self, function: int) -> FunctionState:
        """Resets of a guest function."""
        name = self._function(function)
        resets = await self._read(f"{name}_resets")
        status = await self._fields(f"{name}_status")
        return FunctionState(
            resets,
            bool(status["resetting"]),
            bool(status["waits"]),
            status["features"],
            status["device"],
        )

    async def resets(self, function: int) -> int:
        """How many device resets of a guest function there were, when all rows written so far
        are in their tables: a reset that comes later clears them."""
        await self._settle()
        return await self._read(f"{self._function(function)}_resets")

    async def reset_done(self, function: int) -> None:
        """Ends the device reset of a function."""
        await self._write(f"{self._function(function)}_control", reset_done=1)

    @staticmethod
    def _function(function: int) -> str:
        return f"core.function{function - FUNCTION_RDMA}"

    async def request(self) -> Request | None:
        """The request in the mailbox."""
        status = await self._fields("mailbox.status")
        self._broken = bool(status.get("broken"))
        if not status["pending"]:
            return None
        return await self._mailbox.request(status["function"])

    async def respond(self, response: bytes) -> None:
        """Writes the response and says that it is complete."""
        await self._settle()
        await self._mailbox.respond(response)

    async def broken_queue(self) -> int | None:
        """The virtqueue that is to be seen to: nothing is read while there is none."""
        if not self._broken:
            return None
        broken = await self._fields("mailbox.broken")
        return broken["queue"] if broken["valid"] else None

    async def broken_queue_done(self) -> None:
        """Lets the card tell of the next one."""
        await self._write("mailbox.control", broken_done=1)

    async def needs_reset(self, function: int = FUNCTION_RDMA) -> dict[str, int]:
        """Whether a virtqueue of a function has been stopped (``active``), which first, and why."""
        return await self._fields(f"{self._function(function)}_needs_reset")

    async def beat(self) -> None:
        """Counts up the heartbeat register."""
        self._beats = self._beats + 1 & 0xFFFF_FFFF
        await self._write("core.heartbeat", value=self._beats)

    async def mark(self) -> int:
        """The scratch register."""
        return await self._read("core.scratch")

    async def set_mark(self, number: int) -> None:
        """Writes the scratch register."""
        await self._write("core.scratch", value=number)

    async def link_up(self) -> bool:
        """The port's link state."""
        return bool((await self._fields("port.status"))["link_up"])

    async def set_port(self, mac: bytes, *, lossless: bool, loopback: bool = True) -> None:
        """Sets the port's MAC address, and whether the link holds frames back or loses them.

        loopback: frames to this address stay on the card, if its configuration has the switch.
        """
        if len(mac) != 6:
            raise ValueError(f"A MAC address has 6 bytes, not {mac!r}")
        await self._write("port.mac_low", value=int.from_bytes(mac[:4], "little"))
        await self._write("port.mac_high", value=int.from_bytes(mac[4:], "little"))
        await self._write("port.control", enable=1, lossless=int(lossless), loopback=int(loopback))

    @property
    def context_bytes(self) -> int:
        """Bytes of memory that the card needs for rows of QPs that are not on chip."""
        return self.config.qps * RECORD_BYTES if self.config.hot_qps else 0

    async def set_context_memory(self, address: int) -> None:
        """Gives the card ``context_bytes`` bytes from the bus address ``address`` on: before any
        QP is used, and for as long as the card is.

        ValueError if the address is not a multiple of their number.
        """
        if address % self.context_bytes:
            raise ValueError(f"{address:#x} is no multiple of {self.context_bytes:#x}")
        await self._write("context.base_low", value=address & 0xFFFF_FFFF)
        await self._write("context.base_high", value=address >> 32)
        await self._write("context.control", enable=1)

    async def context_counts(self) -> tuple[int, int]:
        """How often rows of a QP had to be brought, and how many of these were lost."""
        return await self._read("context.missed"), await self._read("context.lost")

    async def set_timer_scale(self, scale: float) -> None:
        """Makes the QPs' timers last ``scale`` times as long as their codes say (1: as they say).

        ValueError when their tick, 1.024 us x ``scale``, is no number of cycles from 1 to 65535.
        """
        cycles = round(self.config.clock_hz * 1.024e-6 * scale)
        if not 1 <= cycles < 1 << 16:
            raise ValueError(f"A timer scale of {scale:g} makes ticks of {cycles} cycles")
        await self._write("command.timer_tick", cycles=cycles)

    async def counters(self) -> dict[str, int]:
        """Every counter of the port and of the rooms by name."""
        return {name: await self.counter(name) for name in PORT_COUNTERS + COUNTERS}

    async def counter(self, name: str) -> int:
        """One of them."""
        return await self._read(f"{'port' if name in PORT_COUNTERS else 'counters'}.{name}")

    async def pushes(self) -> dict[str, int]:
        """What has become of WQEs that came with their doorbell, of a card that takes them so."""
        return {name: await self._read(f"push.{name}") for name in PUSH_COUNTS}

    async def parity_errors(self) -> tuple[int, list[str], bool]:
        """Rows that were read with a wrong bit, the tables in which such rows were, and whether the
        card stands still for that."""
        errors, tables = await self._read("parity.errors"), await self._read("parity.tables")
        names = [name for n, name in enumerate(PARITY_TABLES) if tables >> n & 1]
        return errors, names, await self.broken()

    async def broken(self) -> bool:
        """Whether the card stands still, as a row of a table had a wrong bit."""
        return bool((await self._fields("parity.status"))["broken"])

    async def histogram(self, name: str) -> tuple[list[int], int]:
        """Counts and sum of the latencies ``name``, send or receive; both wrap."""
        path = f"latency.{name}"
        words = range(LATENCY_BUCKETS)
        counts = [await self._read(f"{path}_counts", word) for word in words]
        for _ in range(PATIENCE):
            high, low = await self._read(f"{path}_sum_high"), await self._read(f"{path}_sum_low")
            if await self._read(f"{path}_sum_high") == high:
                return counts, high << 32 | low
        raise HardwareError(f"{path}_sum_high is another one at each look")

    # Tables -------------------------------------------------------------------------------------

    async def read_row(self, table: str, index: int) -> dict[str, int]:
        """Reads a row through its window."""
        await self._table_command(table, index, read=1)
        await self._settle(table)
        words = [await self._read(f"{table}.row", i) for i in range(row_map(table).words)]
        self._windows[table].words = words
        return row_map(table).unpack(words)

    async def read_fields(self, table: str, index: int, *names: str) -> dict[str, int]:
        """Reads only the words of a row in which these fields are."""
        await self._table_command(table, index, read=1)
        await self._settle(table)
        row = row_map(table)
        words = [0] * row.words
        for i in row.words_of(*names):
            words[i] = await self._read(f"{table}.row", i)
        found = row.unpack(words)
        return {name: found[name] for name in names}

    async def write_row(self, table: str, index: int, row: Row) -> None:
        """Commits a row; words that the window's shadow holds already are not written again.

        Returns before the commit has ended. The next use of the window waits for that, and so does
        whatever is to come after it: a command, the response.
        """
        words, window = row_map(table).pack(row), self._windows[table]
        await self._settle(table)
        known, window.words = window.words, None
        for i, word in enumerate(words):
            if known is None or known[i] != word:
                await self.bus.write(self._map.address(f"{table}.row", i), word)
        await self._table_command(table, index, commit=1)
        window.words = words

    async def _table_command(self, table: str, index: int, **command: int) -> None:
        await self._settle(table)
        window = self._windows[table]
        known, window.index, window.words = window.index, None, None
        window.busy = True
        if index != known:
            await self._write(f"{table}.index", value=index)
        await self._write(f"{table}.command", **command)
        window.index = index

    async def _settle(self, *tables: str) -> None:
        """Waits until the commands given to these windows (default: to all) have ended."""
        for table in tables or TABLES:
            window = self._windows[table]
            if not window.busy:
                continue
            status = await self._wait(f"{table}.status", "busy", f"{table} row {window.index}")
            window.busy = False
            if status["error"] and window.index is not None:
                raise HardwareError(f"{table} has no row {window.index}")

    # Commands -----------------------------------------------------------------------------------

    async def _command(self, name: str, field: str | None = None, **values: int) -> None:
        """Gives a command and waits until it has been taken, or done."""
        await self._begin(name, field, **values)
        await self._wait("command.busy", field or name, name)

    async def _begin(self, name: str, field: str | None = None, **values: int) -> None:
        """Gives a command, behind the rows that were written before it."""
        await self._settle()
        await self._wait("command.busy", field or name, name)
        await self._write(f"command.{name}", **values)

    async def arm_cq(self, cqn: int, flags: int) -> None:
        """Arms a completion queue."""
        await self._command("arm_cq", cq=cqn, flags=flags)

    async def wake(self, pair: int) -> None:
        """Activates the send and the receive side of a QP."""
        await self._begin("activate_send", qp=pair, flags=_SEND_CHANGED)
        await self._begin("activate_receive", qp=pair, flags=_RECEIVE_CHANGED)

    async def flush(self, pair: int) -> None:
        """Activates the receive side of a QP, to flush what it holds."""
        await self._command("activate_receive", qp=pair, flags=_RECEIVE_FLUSH)

    async def drop(self, pair: int) -> None:
        """Gives back a QP's outstanding requests."""
        await self._command("drop", qp=pair)

    async def drop_queue(self, queue: int, *, restart: bool = False) -> None:
        """Makes the hardware forget what it has fetched of a virtqueue, and go on at its used index
        (E-18), or with ``restart`` at 0."""
        await self._write("command.drop_queue_restart", value=int(restart))
        position = 0 if restart else (await self.read_row("used", queue))["value"]
        await self._command("drop_queue", queue=queue, position=position)

    async def clear_counters(self, pair: int) -> None:
        """Lets a QP's counters begin at 0."""
        await self._command("clear_counters", qp=pair)

    async def qp_counters(self, pair: int) -> dict[str, int]:
        """The counters of one QP by name."""
        first = pair * QP_COUNTER_SLOTS
        return {
            name: (await self.read_row("qp_counters", first + i))["value"]
            for i, name in enumerate(QP_COUNTERS)
        }

    async def drain(self) -> None:
        """Waits for all DMA admitted so far."""
        await self._command("drain", start=1)

    async def begin_post(
        self, queue: int, *, record: bytes | None = None, position: int = 0
    ) -> bool:
        """Begins to write an event, or to read an avail index."""
        if self._posting is None:
            if (await self._fields("mailbox.post_status"))["busy"]:
                return False
            self._posting = False
        if self._posting:
            return False
        for i in range(0, len(record or b""), 4):
            word = int.from_bytes((record or b"")[i : i + 4], "little")
            await self.bus.write(self._map.address("mailbox.record", i // 4), word)
        if record is None:
            await self.read_fields("queue", queue, "enabled")  # its row is what is looked at
            await self._write("mailbox.post_position", value=position)
        await self._write("mailbox.post", queue=queue, look=int(record is None))
        self._posting = True
        return True

    async def post_result(self) -> Posted | None:
        """Whether what was begun has ended, and how."""
        status = await self._fields("mailbox.post_status")
        if status["busy"]:
            return None
        self._posting = False
        return Posted(bool(status["success"]), status["available"])

    async def invalidate(self, mrn: int) -> None:
        """Drops a region's translations and waits for its DMA."""
        await self._command("invalidate", mr=mrn)
