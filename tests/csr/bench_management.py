"""All register blocks behind their bus; Python plays the rooms."""

from __future__ import annotations

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from hdl.config import VERSION
from hdl.csr.blocks import MAGIC, PAGES, TABLES, row_bits
from hdl.csr.describe import Access
from hdl.csr.mailbox_block import MAILBOX_WORDS
from hdl.csr.map import CsrMap, row_map
from tests.csr.test_management import CONFIG, NAMES

NOTHING = 0xFFFF_FFFF
#: Cycles from taking a request to its response, and of a remote register a few more.
LATENCY = 3  # of a table's window one more
#: Cycles that the windows' RAM takes to clear itself, and a row to move between it and the table.
CLEAR, MOVE = 520, 30
#: Commands that leave on a stream.
STREAMS = (
    "arm_cq",
    "activate_send",
    "activate_receive",
    "activate_reply",
    "drop",
    "drop_queue",
)


class Bus:
    """The firmware's side; everything happens at falling edges."""

    def __init__(self, dut):
        self.dut = dut
        self.map = CsrMap(CONFIG, **NAMES)

    async def tick(self, count: int = 1) -> None:
        for _ in range(count):
            await FallingEdge(self.dut.clk)

    async def until(self, signal, limit: int = MOVE) -> None:
        for _ in range(limit):
            if int(signal.value):
                return
            await self.tick()
        raise AssertionError(f"{signal._name} is 0 for {limit} cycles")

    async def access(self, addr: int, data: int | None = None, *, patient: bool = False) -> int:
        dut = self.dut
        write = data is not None
        dut.bus__req__payload.value = addr | write << 20 | (data or 0) << 21
        dut.bus__req__valid.value = 1
        waited = 0
        while not int(dut.bus__req__ready.value):
            await self.tick()
            waited += 1
            assert waited < 8
        await self.tick()
        dut.bus__req__valid.value = 0
        window = not addr % 4 and addr >> 12 in {PAGES[table] for table in TABLES}
        for _ in range(LATENCY - 1 + window):
            assert not int(dut.bus__rsp__valid.value)
            await self.tick()
        while patient and not int(dut.bus__rsp__valid.value):
            await self.tick()
        assert int(dut.bus__rsp__valid.value)
        answer = int(dut.bus__rsp__payload.value)
        await self.tick()
        return answer

    async def read(self, path: str, word: int = 0, *, patient: bool = False) -> int:
        return await self.access(self.map.address(path, word), patient=patient)

    async def write(self, path: str, value: int, word: int = 0) -> None:
        await self.access(self.map.address(path, word), value)

    async def fields(self, path: str) -> dict[str, int]:
        return self.map.decode(path, await self.read(path))

    async def shadow(self, table: str) -> int:
        words = [await self.read(f"{table}.row", i) for i in range(row_map(table).words)]
        return sum(word << 32 * i for i, word in enumerate(words))

    async def idle(self, table: str) -> dict[str, int]:
        """The status when the table's command is done."""
        for _ in range(MOVE):
            status = await self.fields(f"{table}.status")
            if not status["busy"]:
                return status
        raise AssertionError(f"{table} stays busy")


async def begin(dut) -> Bus:
    for name in inputs():
        getattr(dut, name).value = 0
    dut.bus__rsp__ready.value = 1
    dut.rst.value = 1
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    bus = Bus(dut)
    cocotb.start_soon(deadline(bus))
    await bus.tick(2)
    dut.rst.value = 0
    await bus.until(dut.bus__req__ready, CLEAR)
    return bus


async def deadline(bus) -> None:
    await bus.tick(100_000)
    raise AssertionError("Not finished after 100000 cycles")


def inputs() -> list[str]:
    """Members that the rooms drive."""
    names = [f"command__{name}__ready" for name in STREAMS]
    names += ["counted__done", "counted__read_row"]
    names += ["bus__req__valid", "command__drain__done", "command__invalidate__done"]
    names += [f"{table}__program__done" for table in TABLES]
    names += [f"{table}__program__read_row" for table in TABLES]
    names += ["mailbox__pending", "mailbox__request__enable", "mailbox__response__enable"]
    blocks = CsrMap(CONFIG, **NAMES).blocks
    watching = ("trace", "latency", "parity")
    names += [
        f"{one}__{window.name}__read_data" for one in watching for window in blocks[one].windows
    ]
    for block in ("core", "port", "counters", "debug", *watching):
        for register in blocks[block].registers:
            names += [
                f"{block}__{register.member(field.name)}"
                for field in register.fields
                if field.access in (Access.RO, Access.W1C) and not register.remote
            ]
    return names


@cocotb.test()
async def every_block_can_be_discovered(dut):
    bus = await begin(dut)
    pages = {PAGES[name]: block for name, block in bus.map.blocks.items()}
    for page, block in pages.items():
        assert await bus.access(page << 12) == block.number << 16 | block.version
    for page in set(range(256)) - set(pages):
        assert await bus.access(page << 12) == NOTHING
        assert await bus.access(page << 12, 5) == NOTHING
    assert await bus.read("core.magic") == MAGIC
    for field in ("width", "clock_hz", "qps", "queue_size", "max_inline", "quantum", "commit"):
        assert await bus.read(f"core.config_{field}") == getattr(CONFIG, field)
    major, minor, patch = (int(part) for part in VERSION.split("."))
    version = {"major": major, "minor": minor, "patch": patch}
    assert await bus.fields("core.version") == version
    for table, info in TABLES.items():
        assert await bus.read(f"{table}.entries") == info.entries(CONFIG)
        assert await bus.fields(f"{table}.geometry") == {
            "table": info.number,
            "row_bits": row_bits(table),
        }


@cocotb.test()
async def slow_window(dut):
    """The bus waits a cycle more for a window that takes as long, and for no other register."""
    bus = await begin(dut)

    async def answer():
        for _ in range(30):
            await bus.tick()
            if int(dut.trace__data__enable.value):
                index = int(dut.trace__data__index.value)
                await bus.tick()
                dut.trace__data__read_data.value = 0xBAD
                await bus.tick()
                dut.trace__data__read_data.value = 0x1000 + index

    for word in (0, 5, 31):
        task = cocotb.start_soon(answer())
        assert await bus.read("trace.data", word, patient=True) == 0x1000 + word
        task.cancel()
        dut.trace__data__read_data.value = 0
    assert await bus.read("trace.snap") == 128
    dut.trace__facts_length.value = 77
    assert await bus.fields("trace.facts") == {"length": 77, "reason": 0, "error": 0}


@cocotb.test()
async def addresses_without_a_register(dut):
    bus = await begin(dut)
    for name, block in bus.map.blocks.items():
        used = set()
        for offset, item in block.places():
            used |= set(range(offset, offset + 4 * item.words, 4))
        end = max(used)
        for offset in [*range(0, end + 12, 4), 0xFF8, 0xFFC]:
            if offset not in used:
                assert await bus.access(PAGES[name] << 12 | offset) == NOTHING, (name, offset)
        for offset in (1, 2, 3, 5):  # not a multiple of 4
            assert await bus.access(PAGES[name] << 12 | offset) == NOTHING


@cocotb.test()
async def written_values_reach_the_members(dut):
    bus = await begin(dut)
    await bus.write("core.scratch", 0xA5A5_5A5A)
    assert await bus.read("core.scratch") == 0xA5A5_5A5A
    await bus.write("port.mac_high", 0xFFFF_1234)
    assert await bus.read("port.mac_high") == 0x1234
    assert int(dut.port__mac_high.value) == 0x1234
    await bus.write("core.magic", 0)
    assert await bus.read("core.magic") == MAGIC
    beats = []

    async def count():
        while True:
            await bus.tick()
            if int(dut.core__heartbeat_write.value):
                beats.append(int(dut.core__heartbeat.value))

    counting = cocotb.start_soon(count())
    for i in (7, 7, 9):
        await bus.write("core.heartbeat", i)
    await bus.write("core.scratch", 1)
    await bus.tick(3)
    assert beats == [7, 7, 9]
    counting.cancel()
    dut.core__function0_needs_reset_queue.value = 0x1234
    dut.core__function0_needs_reset_cause.value = 9
    dut.core__function0_needs_reset_active.value = 1
    dut.core__function0_status_device.value = 0xF
    dut.core__function0_status_features.value = 0x8001
    await bus.tick()
    assert await bus.fields("core.function0_needs_reset") == {
        "queue": 0x1234,
        "cause": 9,
        "active": 1,
    }
    status = await bus.fields("core.function0_status")
    assert (status["device"], status["features"]) == (0xF, 0x8001)


@cocotb.test()
async def words_by_name(dut):
    bus = await begin(dut)
    for i, name in enumerate(NAMES["debug_names"]):
        getattr(dut, f"debug__{name}").value = 0xFFFF_FF00 + i
    await bus.tick()
    for i, name in enumerate(NAMES["debug_names"]):
        assert await bus.read(f"debug.{name}") == 0xFFFF_FF00 + i


@cocotb.test()
async def counters_by_name(dut):
    """The bus waits for a counter as long as its owner needs; a write has no effect."""
    bus = await begin(dut)
    asked = []

    async def owner():
        while True:
            await bus.tick()
            dut.counted__done.value = 0
            if int(dut.counted__read.value) and not int(dut.counted__done.value):
                for _ in range(len(asked) % 7):
                    await bus.tick()
                    assert int(dut.counted__read.value)
                index = int(dut.counted__index.value)
                asked.append(index)
                dut.counted__read_row.value = 0xFFFF_FF00 + index
                dut.counted__done.value = 1
                await bus.tick()
                dut.counted__done.value = 0
                dut.counted__read_row.value = 0

    cocotb.start_soon(owner())
    names = [f"port.{name}" for name in NAMES["port_counters"]]
    names += [f"counters.{name}" for name in NAMES["counter_names"]]
    for i, name in enumerate(names):
        await bus.write(name, 0x1234)
        assert len(asked) == i
        assert await bus.read(name, patient=True) == 0xFFFF_FF00 + i
        assert asked[i:] == [i]
    assert await bus.read("core.magic") == MAGIC


async def answer(bus, dut, table, index, row):
    """The table's answer to a read command, when it comes to it."""
    program = f"{table}__program__"
    await bus.until(getattr(dut, program + "read"), 2 * MOVE)
    assert int(getattr(dut, program + "index").value) == index
    getattr(dut, program + "read_row").value = row
    getattr(dut, program + "done").value = 1
    await bus.tick()
    getattr(dut, program + "done").value = 0
    getattr(dut, program + "read_row").value = 0
    await bus.tick()
    assert not int(getattr(dut, program + "read").value)


async def read_row(bus, dut, table, index, row):
    """Fill the shadow from the table."""
    await bus.write(f"{table}.index", index)
    await bus.write(f"{table}.command", 1)
    await answer(bus, dut, table, index, row)
    assert await bus.idle(table) == {"busy": 0, "error": 0}


@cocotb.test()
async def windows_read_change_and_commit(dut):
    bus = await begin(dut)
    rng = random.Random(cocotb.RANDOM_SEED)
    shadows = dict.fromkeys(TABLES, 0)
    for table, info in TABLES.items():
        assert await bus.shadow(table) == 0
        assert await bus.read(f"{table}.index") == 0
        bits, layout = row_bits(table), row_map(table)
        index = info.entries(CONFIG) - 1
        row = rng.getrandbits(bits)
        await read_row(bus, dut, table, index, row)
        assert await bus.shadow(table) == row
        values = {name: rng.getrandbits(f.width) for name, f in layout.fields.items()}
        for i, word in enumerate(layout.pack(values)):
            await bus.write(f"{table}.row", word, i)
        await bus.write(f"{table}.command", 2)
        await bus.until(getattr(dut, f"{table}__program__write"))
        for _ in range(20):  # held, with all bits in place, until the table has a turn
            assert int(getattr(dut, f"{table}__program__write").value)
            row = int(getattr(dut, f"{table}__program__row").value)
            found = [row >> 32 * i & NOTHING for i in range(layout.words)]
            assert layout.unpack(found) == values
            assert int(getattr(dut, f"{table}__program__index").value) == index
            await bus.tick()
        # Nothing moves the row under the table's eyes.
        assert await bus.fields(f"{table}.status") == {"busy": 1, "error": 0}
        await bus.write(f"{table}.row", 0)
        await bus.write(f"{table}.index", 0)
        await bus.write(f"{table}.command", 1)
        assert int(getattr(dut, f"{table}__program__row").value) == row
        assert int(getattr(dut, f"{table}__program__index").value) == index
        assert not int(getattr(dut, f"{table}__program__read").value)
        getattr(dut, f"{table}__program__done").value = 1
        await bus.tick()
        getattr(dut, f"{table}__program__done").value = 0
        await bus.tick()
        assert not int(getattr(dut, f"{table}__program__write").value)
        assert await bus.fields(f"{table}.status") == {"busy": 0, "error": 0}
        shadows[table] = row
    for table, row in shadows.items():  # each window has its own
        assert await bus.shadow(table) == row


@cocotb.test()
async def windows_keep_the_bits_of_the_row(dut):
    bus = await begin(dut)
    for _ in range(2):
        for table, info in TABLES.items():
            assert await bus.shadow(table) == 0
            for i in range(row_map(table).words):
                await bus.write(f"{table}.row", NOTHING, i)
            await bus.write(f"{table}.index", NOTHING)
            assert await bus.shadow(table) == (1 << row_bits(table)) - 1
            assert await bus.read(f"{table}.index") == (1 << info.index_width) - 1
            assert await bus.read(f"{table}.command") == 0
            await bus.write(f"{table}.entries", 0)
            assert await bus.read(f"{table}.entries") == info.entries(CONFIG)
        dut.rst.value = 1
        await bus.tick()
        dut.rst.value = 0
        await bus.until(dut.bus__req__ready, CLEAR)


@cocotb.test()
async def windows_wait_for_each_other(dut):
    """A command for every table while the first one's has no turn: none is lost, and each has the
    row and the index that were there when it was given."""
    bus = await begin(dut)
    rng = random.Random(cocotb.RANDOM_SEED)
    committed = set(rng.sample(list(TABLES), 6))
    indices = {table: rng.randrange(info.entries(CONFIG)) for table, info in TABLES.items()}
    rows = {table: rng.getrandbits(row_bits(table)) for table in TABLES}
    order = rng.sample(list(TABLES), len(TABLES))
    for table in order:
        for i in range(row_map(table).words if table in committed else 0):
            await bus.write(f"{table}.row", rows[table] >> 32 * i & NOTHING, i)
        await bus.write(f"{table}.index", indices[table])
        await bus.write(f"{table}.command", 2 if table in committed else 1)
        await bus.write(f"{table}.row", 0)
        await bus.write(f"{table}.index", 0)
        await bus.write(f"{table}.command", 1)
        assert await bus.fields(f"{table}.status") == {"busy": 1, "error": 0}
    for table in order:
        if table in committed:
            await bus.until(getattr(dut, f"{table}__program__write"), 2 * MOVE)
            assert int(getattr(dut, f"{table}__program__row").value) == rows[table]
            assert int(getattr(dut, f"{table}__program__index").value) == indices[table]
            getattr(dut, f"{table}__program__done").value = 1
            await bus.tick()
            getattr(dut, f"{table}__program__done").value = 0
        else:
            await answer(bus, dut, table, indices[table], rows[table])
    for table in order:
        assert await bus.idle(table) == {"busy": 0, "error": 0}
        assert await bus.shadow(table) == rows[table]
    await bus.tick(MOVE)
    for table in order:
        assert not int(getattr(dut, f"{table}__program__read").value)
        assert not int(getattr(dut, f"{table}__program__write").value)


@cocotb.test()
async def windows_refuse_rows_beyond_the_table(dut):
    bus = await begin(dut)
    for table, info in TABLES.items():
        entries = info.entries(CONFIG)
        for index in {entries, (1 << info.index_width) - 1}:
            if index < 1 << info.index_width and index >= entries:
                for command in (1, 2, 3):
                    await bus.write(f"{table}.index", index)
                    await bus.write(f"{table}.row", command)
                    await bus.write(f"{table}.command", command)
                    assert await bus.idle(table) == {"busy": 0, "error": 1}
                    for _ in range(MOVE):
                        assert not int(getattr(dut, f"{table}__program__read").value)
                        assert not int(getattr(dut, f"{table}__program__write").value)
                        await bus.tick()
                    assert await bus.read(f"{table}.row") == command
        await read_row(bus, dut, table, 0, 1)
        assert await bus.fields(f"{table}.status") == {"busy": 0, "error": 0}


@cocotb.test()
async def mailbox(dut):
    bus = await begin(dut)
    rng = random.Random(cocotb.RANDOM_SEED)
    request = [rng.getrandbits(32) for _ in range(MAILBOX_WORDS)]
    response = [rng.getrandbits(32) for _ in range(MAILBOX_WORDS)]
    dones = []

    async def count():
        while True:
            await bus.tick()
            if int(dut.mailbox__done.value):
                dones.append(int(dut.mailbox__response_length.value))

    cocotb.start_soon(count())
    await bus.write("mailbox.control", 1)
    await bus.tick(3)
    assert dones == [], "nothing was pending"
    for i, word in enumerate(request):
        dut.mailbox__request__index.value = i
        dut.mailbox__request__row.value = word
        dut.mailbox__request__enable.value = 1
        await bus.tick()
    dut.mailbox__request__enable.value = 0
    dut.mailbox__pending.value = 1
    dut.mailbox__request_length.value = 137
    dut.mailbox__writable_length.value = 0x1_0001
    await bus.tick()
    assert await bus.read("mailbox.status") == 1
    assert await bus.read("mailbox.request_length") == 137
    assert await bus.read("mailbox.writable_length") == 0x1_0001
    await bus.write("mailbox.request", 0, 3)  # read-only
    found = [await bus.read("mailbox.request", i) for i in range(MAILBOX_WORDS)]
    assert found == request
    for i, word in enumerate(response):
        await bus.write("mailbox.response", word, i)
    await bus.write("mailbox.response_length", 201)
    await bus.write("mailbox.control", 1)
    await bus.tick(3)
    assert dones == [201]
    for i, word in enumerate(response):
        dut.mailbox__response__index.value = i
        dut.mailbox__response__enable.value = 1
        await bus.tick()
        assert int(dut.mailbox__response__row.value) == word
    dut.mailbox__response__enable.value = 0


@cocotb.test()
async def commands(dut):
    bus = await begin(dut)
    streams = {
        "arm_cq": ({"cq": 5, "flags": 2}, 5 | 2 << 14),
        "activate_send": ({"qp": 9, "flags": 3}, 9 | 3 << 14),
        "activate_receive": ({"qp": 1, "flags": 8}, 1 | 8 << 14),
        "activate_reply": ({"qp": 0x3FFF, "flags": 1}, 0x3FFF | 1 << 14),
        "drop": ({"qp": 0x1234}, 0x1234),
        "drop_queue": ({"queue": 0x8765}, 0x8765 | 1 << 16),
    }
    assert set(streams) == set(STREAMS)
    for name, (fields, payload) in streams.items():
        valid = getattr(dut, f"command__{name}__valid")
        assert not int(valid.value)
        await bus.write(f"command.{name}", bus.map.encode(f"command.{name}", **fields))
        assert int(valid.value)
        assert int(getattr(dut, f"command__{name}__payload").value) == payload
        assert (await bus.fields("command.busy"))[name] == 1
        assert await bus.read("command.ignored") == 0
        await bus.write(f"command.{name}", 0)  # too early
        assert int(getattr(dut, f"command__{name}__payload").value) == payload
        ignored = await bus.read("command.ignored")
        assert ignored == await bus.read("command.busy")
        await bus.write("command.ignored", ignored)
        assert await bus.read("command.ignored") == 0
        getattr(dut, f"command__{name}__ready").value = 1
        await bus.tick()
        getattr(dut, f"command__{name}__ready").value = 0
        assert not int(valid.value)
        assert await bus.read("command.busy") == 0
    for name, value in (("drain", 1), ("invalidate", 0xBEEF)):
        start, done = (getattr(dut, f"command__{name}__{member}") for member in ("start", "done"))
        await bus.write(f"command.{name}", value)
        assert int(start.value)
        if name == "invalidate":
            assert int(dut.command__invalidate__argument.value) == 0xBEEF
        assert (await bus.fields("command.busy"))[name] == 1
        await bus.tick(10)
        assert int(start.value)
        done.value = 1
        await bus.tick()
        done.value = 0
        assert not int(start.value)
        assert await bus.read("command.busy") == 0
