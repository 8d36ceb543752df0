"""``Hardware`` on the register bus, against a bus in Python and against the gateware."""

import asyncio

import pytest

from firmware.device import HardwareError
from firmware.qp import FIELDS
from firmware.registers import Registers
from firmware.service import Firmware
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ControlCommand as C
from hdl.config import NicConfig
from hdl.csr.blocks import PAGES, TABLES
from hdl.csr.describe import BLOCK_BYTES, Access
from hdl.csr.map import CsrMap, row_map

CONFIG = NicConfig(qps=16, cqs=8, mrs=32, gids=4, queue_size=64, read_resources=64)


class FakeBus:
    """The registers as hdl/csr/blocks.py describes them, with slow tables and commands."""

    def __init__(self, config=CONFIG, delay=3):
        self.map = CsrMap(config)
        self.delay = delay
        self.places = {}
        for name, block in self.map.blocks.items():
            for offset, item in block.places():
                for word in range(item.words):
                    addr = PAGES[name] * BLOCK_BYTES + offset + 4 * word
                    self.places[addr] = (name, item, word)
        self.values = {}
        self.rows = {name: {} for name in TABLES}
        self.shadows = {name: [0] * row_map(name).words for name in TABLES}
        self.busy = {}
        self.log = []
        self.request, self.writable = None, 0
        self.response, self.answer = {}, None

    def _reading(self, path, item):
        value = 0
        for field in item.fields:
            name = f"{path}.{field.name}"
            found = field.reset if field.access is Access.CONST else self.values.get(name, 0)
            if name in self.busy:
                found = int(self.busy[name] > 0)
                self.busy[name] -= 1
                if self.busy[name] < 0:
                    del self.busy[name]
            value |= found << field.low
        return value

    async def read(self, addr):
        name, item, word = self.places.get(addr, (None, None, 0))
        if name is None:
            return 0xFFFFFFFF
        path = f"{name}.{item.name}"
        if name in TABLES and item.name == "row":
            return self.shadows[name][word]
        if path == "mailbox.request":
            return int.from_bytes(self.request[4 * word : 4 * word + 4], "little")
        if path == "mailbox.status":
            return self.map.encode(path, pending=int(self.request is not None), function=1)
        if path == "mailbox.request_length":
            return len(self.request)
        if path == "mailbox.writable_length":
            return self.writable
        return self._reading(path, item)

    async def write(self, addr, value):
        name, item, word = self.places[addr]
        path = f"{name}.{item.name}"
        if name in TABLES and item.name == "row":
            self.shadows[name][word] = value
        elif path == "mailbox.response":
            self.response[word] = value
        elif path == "mailbox.control":
            size = self.values["mailbox.response_length.value"]
            data = b"".join(self.response[i].to_bytes(4, "little") for i in range(-(-size // 4)))
            self.answer, self.request = data[:size], None
        elif name in TABLES and item.name == "command":
            self._table(name, value)
        elif name == "command":
            assert f"command.busy.{item.name}" not in self.busy, "written while busy"
            self.log.append((item.name, *self.map.decode(path, value).values()))
            if item.name == "drop_queue_restart":
                return  # a setting for the next one
            self.busy[f"command.busy.{item.name}"] = self.delay
        else:
            for field, part in self.map.decode(path, value).items():
                self.values[f"{path}.{field}"] = part

    def _table(self, name, command):
        index = self.values.get(f"{name}.index.value", 0)
        self.busy[f"{name}.status.busy"] = self.delay
        entries = TABLES[name].entries(CONFIG)
        self.values[f"{name}.status.error"] = int(index >= entries)
        if command & 1:
            self.shadows[name] = list(self.rows[name].get(index, [0] * row_map(name).words))
        else:
            self.rows[name][index] = list(self.shadows[name])


def run(coroutine):
    return asyncio.run(coroutine)


def test_rows():
    bus = FakeBus()
    registers = Registers(bus, CONFIG)
    row = {"state": 3, "qpn": 0xABCDEF, "av.dgid": 1 << 127 | 5, "av.udp_source": 0xC001}
    run(registers.write_row("qp_cfg", 7, row))
    found = run(registers.read_row("qp_cfg", 7))
    assert {name: value for name, value in found.items() if value} == row
    assert not any(run(registers.read_row("qp_cfg", 8)).values())
    assert run(registers.read_row("used", 3)) == {"value": 0}
    with pytest.raises(HardwareError, match="qp_cfg has no row 16"):
        run(registers.read_row("qp_cfg", 16))
    with pytest.raises(ValueError, match="qp_cfg.state must fit 3 bits, not 8"):
        run(registers.write_row("qp_cfg", 0, {"state": 8}))


def test_commands():
    bus = FakeBus()
    registers = Registers(bus, CONFIG)

    async def main():
        await registers.arm_cq(5, 2)
        await registers.wake(9)
        await registers.drop(9)
        await registers.write_row("used", 17, {"value": 0xABC})
        await registers.drop_queue(17)
        await registers.drop_queue(17, restart=True)
        await registers.drain()
        await registers.invalidate(31)
        await registers.drain()

    run(main())
    assert bus.log == [
        ("arm_cq", 5, 2),
        ("activate_send", 9, 3),
        ("activate_receive", 9, 3),
        ("drop", 9),
        ("drop_queue_restart", 0),
        ("drop_queue", 17, 0xABC),
        ("drop_queue_restart", 1),
        ("drop_queue", 17, 0),
        ("drain", 1),
        ("invalidate", 31),
        ("drain", 1),
    ]


def test_a_command_left_behind():
    """One that is still going on when the firmware starts is waited for, not lost."""
    bus = FakeBus()
    bus.busy["command.busy.drop"] = 7
    run(Registers(bus, CONFIG).drop(4))
    assert bus.log == [("drop", 4)]


def test_stuck(monkeypatch):
    monkeypatch.setattr("firmware.registers.PATIENCE", 20)
    registers = Registers(FakeBus(delay=100), CONFIG)
    with pytest.raises(HardwareError, match="drain: command.busy.drain stays set"):
        run(registers.drain())
    with pytest.raises(HardwareError, match="mr row 3: mr.status.busy stays set"):
        run(registers.read_row("mr", 3))


def test_check():
    bus = FakeBus()
    run(Registers(bus, CONFIG).check())
    with pytest.raises(HardwareError, match="core.config_qps is 16, not 32"):
        run(Registers(bus, NicConfig(qps=32, cqs=8, mrs=32, gids=4)).check())
    bus.places.clear()
    with pytest.raises(HardwareError, match="core.magic is 0xffffffff, not 0x524f4349"):
        run(Registers(bus, CONFIG).check())


def test_state_and_beat():
    bus = FakeBus()
    registers = Registers(bus, CONFIG)
    bus.values |= {"core.function0_resets.value": 7, "core.function0_status.resetting": 1}
    bus.values["core.function0_status.features"] = 1
    state = run(registers.function_state(1))
    assert (state.resets, state.resetting, state.features) == (7, True, 1)
    assert not run(registers.link_up())
    bus.values["port.status.link_up"] = 1
    assert run(registers.link_up())
    run(registers.beat())
    run(registers.beat())
    assert bus.values["core.heartbeat.value"] == 2


@pytest.mark.parametrize("size", [0, 1, 4, 5, 138, 255, 256, 300, 5000])
def test_requests(size):
    bus = FakeBus()
    registers = Registers(bus, CONFIG)
    assert run(registers.request()) is None
    bus.request, bus.writable = bytes(i % 251 for i in range(size)), 77
    request = run(registers.request())
    assert request.data == bus.request[:256]
    assert (request.length, request.writable, request.function) == (size, 77, 1)
    run(registers.respond(bytes(range(9))))
    assert bus.answer == bytes(range(9)) and bus.request is None
    with pytest.raises(HardwareError, match="257 bytes does not fit"):
        run(registers.respond(bytes(257)))


@pytest.mark.parametrize("mask", [0, 1, 1 << 7, 0x121181 | 1 << 15, (1 << 26) - 1])
def test_attributes_that_are_not_named_are_not_read(mask):
    """Of MODIFY_QP, the words with what the mask names come as they are, others may be 0."""
    bus = Counting()
    registers = Registers(bus, CONFIG)
    whole = bytes([C.MODIFY_QP]) + abi.CMD_MODIFY_QP.pack(qpn=5, attr_mask=mask)[:8]
    whole += bytes(range(1, 130))
    bus.request, bus.writable = whole, 1
    found = run(registers.request()).data
    assert len(found) == len(whole) and found[:12] == whole[:12]
    got, sent = (abi.CMD_MODIFY_QP.unpack(data[1:]).attrs for data in (found, whole))
    names = [name for bit, names in FIELDS.items() if mask & bit for name in names]
    names += ["qp_state"] * (mask & 1) + ["cur_qp_state"] * (mask >> 1 & 1)
    for name in names:
        assert got[name] == sent[name], name
    for size in (1, 8, 9, 11, 12, 13, 40):  # short ones are refused by whoever parses them
        bus.request = whole[:size]
        assert len(run(registers.request()).data) == size
    bus.request, bus.reads = whole, 0
    run(registers.request())
    assert bus.reads <= (10 if mask in (0, 1) else 3 + -(-len(whole) // 4))


class Counting(FakeBus):
    """Counts accesses."""

    reads = writes = 0

    async def read(self, addr):
        self.reads += 1
        return await super().read(addr)

    async def write(self, addr, value):
        self.writes += 1
        await super().write(addr, value)


def test_words_that_are_there_are_not_written_again():
    bus = Counting()
    registers = Registers(bus, CONFIG)
    rows = {"state": 3, "qpn": 5, "av.dgid": 77}, {"state": 3, "qpn": 6, "av.dgid": 77}
    bus.shadows["qp_cfg"] = [0xFFFFFFFF] * 16  # what a firmware before this one has left
    run(registers.write_row("qp_cfg", 1, rows[0]))
    bus.writes = 0
    run(registers.write_row("qp_cfg", 2, rows[1]))
    assert bus.writes <= 4  # index, command, and what differs
    run(registers.write_row("qp_cfg", 2, rows[1]))
    for index, row in zip((1, 2), rows, strict=True):
        found = run(registers.read_row("qp_cfg", index))
        assert {name: value for name, value in found.items() if value} == row
    # A read changes the shadow: of which only some words may be known then.
    bus.rows["qp_cfg"][3] = row_map("qp_cfg").pack(state=6, qkey=9)
    assert run(registers.read_fields("qp_cfg", 3, "state", "qkey")) == {"state": 6, "qkey": 9}
    run(registers.write_row("qp_cfg", 4, rows[1]))
    assert run(registers.read_row("qp_cfg", 4))["qkey"] == 0
    assert run(registers.read_row("qp_cfg", 3))["state"] == 6
    run(registers.write_row("qp_cfg", 4, rows[0]))
    assert run(registers.read_row("qp_cfg", 4))["state"] == 3


@pytest.mark.parametrize("what", ["drain", "respond", "resets", "wake"])
def test_rows_are_written_before_what_follows(what):
    """A command and the answer wait for the rows; so does the look at the counter of resets."""
    bus = FakeBus(delay=5)
    registers = Registers(bus, CONFIG)

    async def main():
        await registers.write_row("mr", 3, {"tag": 5})
        assert "mr.status.busy" in bus.busy
        bus.request = b""
        calls = {
            "drain": registers.drain,
            "respond": lambda: registers.respond(b"\0"),
            "resets": lambda: registers.resets(1),
            "wake": lambda: registers.wake(3),
        }
        await calls[what]()
        assert "mr.status.busy" not in bus.busy

    run(main())


class Stopping(Counting):
    """Stops whoever accesses it, once, before or after the access with the number ``at``."""

    at, late = 0, False

    async def read(self, addr):
        return await self._access(super().read(addr))

    async def write(self, addr, value):
        await self._access(super().write(addr, value))

    async def _access(self, work):
        self.at -= 1
        if self.at == 0 and not self.late:
            work.close()
            raise asyncio.CancelledError
        found = await work
        if self.at == 0:
            raise asyncio.CancelledError
        return found


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("again", "place"), [(1, 4), (2, 4), (0, 2), (0, 3)])
@pytest.mark.parametrize("at", range(1, 40))
def test_stopped_at_any_access(at, again, place, late):
    """Whoever runs the firmware may stop it anywhere; what it writes later is right."""
    bus = Stopping()
    registers = Registers(bus, CONFIG)
    rows = [{"state": n, "qkey": 0x1111_1111 * n, "av.dgid": n << 99 | 1} for n in range(1, 4)]
    rows.append(rows[again])  # which may be the one that was not written to its end
    run(registers.write_row("qp_cfg", 1, rows[0]))
    bus.at, bus.late = at, late

    async def begun():
        await registers.write_row("qp_cfg", 2, rows[1])
        await registers.read_fields("qp_cfg", 1, "state")
        await registers.write_row("qp_cfg", 3, rows[2])
        await registers.read_row("qp_cfg", 1)

    try:
        run(begun())
        stopped = False
    except asyncio.CancelledError:
        stopped = True
    bus.at = 0
    run(registers.write_row("qp_cfg", place, rows[3]))
    run(registers.drain())
    rows[place - 1] = rows[3]
    for index in {1, 2, 3, place}:
        found = row_map("qp_cfg").unpack(bus.rows["qp_cfg"].get(index, [0] * 16))
        there = {name: value for name, value in found.items() if value}
        assert there == rows[index - 1] or (stopped and index in {2, 3} - {place} and not there), (
            index
        )


def test_a_row_that_does_not_exist_is_noticed_later():
    registers = Registers(FakeBus(), CONFIG)
    run(registers.write_row("mr", CONFIG.mrs, {"tag": 5}))
    with pytest.raises(HardwareError, match="mr has no row 32"):
        run(registers.drain())


def test_a_whole_qp():
    """The firmware on the bus: everything up to RTS, and gone again."""
    bus = FakeBus()
    firmware = Firmware(Registers(bus, CONFIG), CONFIG)

    async def ask(command, **fields):
        asked, answered = abi.COMMANDS[command]
        bus.request, bus.writable = bytes([command]) + asked.pack(fields), 1 + answered.size
        assert await firmware.step()
        assert bus.answer[0] == 0, firmware.refusal
        return answered.unpack(bus.answer[1:])

    async def main():
        await firmware.step()
        await drive(ask)

    run(main())
    left = {name: [row for row in rows.values() if any(row)] for name, rows in bus.rows.items()}
    assert left.pop("qp_fetch") and left.pop("qp_tx")  # the generation of what was fetched
    assert {name for name, rows in left.items() if rows} == {"pkey"}


async def drive(ask):
    """A QP's life, as one driver's commands; ``ask`` sends one and returns its response data."""
    assert (await ask(C.QUERY_PORT, port=1)).gid_tbl_len == CONFIG.gids
    await ask(C.CREATE_PD)
    await ask(C.CREATE_CQ, cqe=8)
    region = dict(access_flags=7, length=5000, npages=2, pages=0x1000)
    assert (await ask(C.REG_USER_MR, **region)).lkey == 1
    await ask(C.ADD_GID, gid=b"\1" * 16, gid_type=2, index=0, port_num=1)
    qpn = (await ask(C.CREATE_QP, qp_type=2, max_send_wr=4, max_recv_wr=4)).qpn
    ah = dict(grh=dict(dgid=b"\2" * 16), port_num=1, ah_flags=1)
    attrs = dict(ah_attr=ah, port_num=1, path_mtu=5, dest_qp_num=9, rq_psn=5, sq_psn=6)
    for state, mask in ((1, 0x39), (2, 0x121181 | 1 << 15), (3, 0x10E01 | 1 << 13)):
        attrs["qp_state"] = state
        await ask(C.MODIFY_QP, qpn=qpn, attr_mask=mask, attrs=attrs)
    attr = (await ask(C.QUERY_QP, qpn=qpn)).attr
    assert (attr.qp_state, attr.rq_psn, attr.sq_psn) == (3, 5, 6)
    await ask(C.REQ_NOTIFY_CQ, cqn=0, flags=2)
    await ask(C.DESTROY_QP, qpn=qpn)
    await ask(C.DEL_GID, index=0, port=1)
    await ask(C.DEREG_MR, mrn=0)
    await ask(C.DESTROY_CQ, cqn=0)
    await ask(C.DESTROY_PD, pdn=0)


def test_an_event_of_a_firmware_before():
    """What it has begun ends first, so that its result is not taken for another's."""
    bus = FakeBus()
    bus.busy["mailbox.post_status.busy"] = 2
    registers = Registers(bus, CONFIG)
    assert not run(registers.begin_post(CONFIG.event_queue))
    assert not run(registers.begin_post(CONFIG.event_queue))
    assert "mailbox.post.queue" not in bus.values
    assert run(registers.begin_post(CONFIG.event_queue))
    assert bus.values["mailbox.post.queue"] == CONFIG.event_queue
    assert not run(registers.begin_post(CONFIG.event_queue))
