"""The firmware on the real register blocks, in Amaranth's simulator; tables are rows in Python."""

from amaranth.hdl import Value
from amaranth.sim import Simulator

from firmware.pkeys import DEFAULT_PKEY
from firmware.registers import Registers
from firmware.service import Firmware
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ControlCommand
from hdl.csr.blocks import TABLES
from hdl.csr.management import Management
from hdl.csr.map import row_map
from hdl.ports.counter_names import COUNTERS, PORT_COUNTERS
from tests.firmware.test_registers import CONFIG, drive

DEADLINE = 50_000
COUNTER_NAMES = PORT_COUNTERS + COUNTERS
#: What the bank has counted.
COUNTED = {"rx_drops_pkey": 2, "bad_pkey": 10, "bad_qkey": 3, "rx_drops_icrc": 77}


class CsrMaster:
    """A bus master: one access at a time, by the stream rules."""

    def __init__(self, ctx, bus):
        self.ctx, self.bus = ctx, bus

    async def _access(self, addr, write, data):
        ctx, bus = self.ctx, self.bus
        ctx.set(bus.req.payload.addr, addr)
        ctx.set(bus.req.payload.write, write)
        ctx.set(bus.req.payload.data, data)
        ctx.set(bus.req.valid, 1)
        await ctx.tick().until(bus.req.ready)
        ctx.set(bus.req.valid, 0)
        ctx.set(bus.rsp.ready, 1)
        (answer,) = await ctx.tick().sample(bus.rsp.payload).until(bus.rsp.valid)
        ctx.set(bus.rsp.ready, 0)
        return int(answer)

    async def read(self, addr):
        return await self._access(addr, 0, 0)

    async def write(self, addr, value):
        await self._access(addr, 1, value)


class Rooms:
    """Stands in for everything behind the registers, a few cycles late."""

    def __init__(self, dut):
        self.dut = dut
        self.rows = {name: {} for name in TABLES}
        self.counters = {COUNTER_NAMES.index(name): value for name, value in COUNTED.items()}
        self.commands = []

    async def run(self, ctx):
        streams = (
            "arm_cq",
            "activate_send",
            "activate_receive",
            "drop",
            "drop_queue",
            "clear_counters",
        )
        for _ in range(DEADLINE):
            await ctx.tick()
            for name in TABLES:
                self._table(ctx, self.rows[name], getattr(self.dut, name).program)
            self._table(ctx, self.counters, self.dut.counted)
            for name in streams:
                self._answer(ctx, name, "valid", "ready")
            for name in ("drain", "invalidate"):
                self._answer(ctx, name, "start", "done")
        raise AssertionError(f"{DEADLINE} cycles have passed; the firmware did {self.commands}")

    def _table(self, ctx, rows, port):
        """One access of a table's window."""
        if ctx.get(port.done):
            ctx.set(port.done, 0)
            return
        index = ctx.get(port.index)
        if ctx.get(port.write):
            rows[index] = ctx.get(Value.cast(port.row))
        elif ctx.get(port.read):
            ctx.set(Value.cast(port.read_row), rows.get(index, 0))
        else:
            return
        ctx.set(port.done, 1)

    def _answer(self, ctx, name, asks, answers):
        """Takes one command: the answer is up for one cycle."""
        port = getattr(self.dut.command, name)
        answered = ctx.get(getattr(port, answers))
        if answered:
            self.commands.append(name)
        ctx.set(getattr(port, answers), ctx.get(getattr(port, asks)) and not answered)


def test_a_whole_qp():
    dut = Management(config=CONFIG)
    rooms = Rooms(dut)

    async def main(ctx):
        box = dut.mailbox
        firmware = Firmware(Registers(CsrMaster(ctx, dut.bus), CONFIG), CONFIG)
        await firmware.hardware.check()
        await firmware.step()

        async def send(request, writable):
            for i in range(0, len(request), 4):
                ctx.set(box.request.index, i // 4)
                ctx.set(box.request.row, int.from_bytes(request[i : i + 4], "little"))
                ctx.set(box.request.enable, 1)
                await ctx.tick()
            ctx.set(box.request.enable, 0)
            ctx.set(box.request_length, len(request))
            ctx.set(box.writable_length, writable)
            ctx.set(box.function, 1)
            ctx.set(box.pending, 1)
            assert await firmware.step()
            ctx.set(box.pending, 0)
            length, answer = ctx.get(box.response_length), b""
            for i in range(-(-length // 4)):
                ctx.set(box.response.index, i)
                ctx.set(box.response.enable, 1)
                await ctx.tick()
                answer += ctx.get(box.response.row).to_bytes(4, "little")
            return answer[:length]

        async def ask(command, **fields):
            asked, answered = abi.COMMANDS[command]
            answer = await send(bytes([command]) + asked.pack(fields), 1 + answered.size)
            assert answer[0] == 0, (command.name, firmware.refusal)
            return answered.unpack(answer[1:])

        await drive(ask)
        port = await ask(ControlCommand.QUERY_PORT, port=1)
        assert (port.bad_pkey_cntr, port.qkey_viol_cntr) == (12, 3)
        assert await send(b"\x0c\x01", 5) == b"\1"
        assert firmware.refusal == "MODIFY_QP needs 137 bytes, not 1"

    simulator = Simulator(dut)
    simulator.add_clock(4e-9)
    simulator.add_testbench(rooms.run, background=True)
    simulator.add_testbench(main)
    simulator.run()
    changed = ["activate_send", "activate_receive", "arm_cq", "drain", "drop"]
    dropped = ["drop_queue"] * 2
    assert rooms.commands == [
        "clear_counters",
        *changed,
        *dropped,
        "invalidate",
        "drain",
        "drop_queue",
    ]
    partitions = rooms.rows.pop("pkey")  # live on; all others are empty again
    assert partitions == {0: DEFAULT_PKEY}
    rows = {name: list(table.values()) for name, table in rooms.rows.items()}
    for name in ("qp_fetch", "qp_tx"):  # the generation of what was fetched lives on
        rows[name] = [row_map(name).unpack_number(row) for row in rows[name]]
        rows[name] = [any(row[one] for one in row if one != "generation") for row in rows[name]]
    assert not any(any(table) for table in rows.values())
