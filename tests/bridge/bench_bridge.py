"""Registers, memory, interrupts and garbage over the UART; the host port's rules beside it."""

import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from hdl.bridge.protocol import MESSAGE_WINDOW, SYNC, Command, Status
from hdl.ports.host import MmioRequest, edge_read_beat, edge_read_request, edge_write_beat
from sim.guest.bridge.link import BridgeError, Link, check
from sim.guest.bridge.platform import BridgePlatform
from sim.guest.driver.memory import view
from sim.models.uart import UartLine
from tests.bridge.test_bridge import DIVISOR, SIZE
from tests.fields import pack, unpack

PERIOD_PS = 20_000


class Card:
    """A card with 32-bit registers in a dictionary, that reads and writes memory when told to."""

    def __init__(self, dut):
        self.dut, self.registers, self.accesses = dut, {}, []
        self.answered = {}
        for name in ("rd_req__valid", "wr__valid", "mmio__req__ready", "mmio__rsp__valid"):
            getattr(dut, f"host__{name}").value = 0
        cocotb.start_soon(self._mmio())
        cocotb.start_soon(self._answers())

    async def _mmio(self):
        dut = self.dut
        dut.host__mmio__req__ready.value = 1
        while True:
            await RisingEdge(dut.clk)
            if not (
                int(dut.host__mmio__req__valid.value) and int(dut.host__mmio__req__ready.value)
            ):
                continue
            access = unpack(MmioRequest, int(dut.host__mmio__req__payload.value))
            self.accesses.append(access)
            key = (access["function"], access["bar"], access["addr"])
            if access["write"]:
                self.registers[key] = access["data"]
                continue
            dut.host__mmio__req__ready.value = 0
            await ClockCycles(dut.clk, 3)
            dut.host__mmio__rsp__payload.value = self.registers.get(key, 0xFFFF_FFFF)
            dut.host__mmio__rsp__valid.value = 1
            while True:
                await RisingEdge(dut.clk)
                if int(dut.host__mmio__rsp__ready.value):
                    break
            dut.host__mmio__rsp__valid.value = 0
            dut.host__mmio__req__ready.value = 1

    async def _answers(self):
        while True:
            await RisingEdge(self.dut.clk)
            if int(self.dut.host__rd_rsp__valid.value):
                beat = unpack(edge_read_beat(64), int(self.dut.host__rd_rsp__payload.value))
                self.answered.setdefault(beat["tag"], []).append(beat)

    async def _offer(self, name, payload):
        getattr(self.dut, f"host__{name}__payload").value = payload
        getattr(self.dut, f"host__{name}__valid").value = 1
        while True:
            await RisingEdge(self.dut.clk)
            if int(getattr(self.dut, f"host__{name}__ready").value):
                break
        getattr(self.dut, f"host__{name}__valid").value = 0

    async def write(self, addr: int, octets: bytes) -> None:
        first, end = addr // 8, -(-(addr + len(octets)) // 8)
        padded = bytes(addr % 8) + octets
        for n in range(first, end):
            part = padded[8 * (n - first) :][:8]
            lanes = [8 * n + lane >= addr and lane < len(part) for lane in range(8)]
            await self._offer(
                "wr",
                pack(
                    edge_write_beat(64),
                    {
                        "addr": 8 * n,
                        "length": len(octets),
                        "data": part,
                        "strb": sum(lane << at for at, lane in enumerate(lanes)),
                        "first": n == first,
                        "last": n == end - 1,
                    },
                ),
            )

    async def read(self, tag: int, addr: int, length: int) -> tuple[bytes, bool]:
        self.answered.pop(tag, None)
        await self._offer(
            "rd_req", pack(edge_read_request(), {"tag": tag, "addr": addr, "length": length})
        )
        beats = self.answered.setdefault(tag, [])
        while not (beats and beats[-1]["last"]):
            await RisingEdge(self.dut.clk)
        octets = b"".join(beat["data"].to_bytes(8, "little") for beat in beats)
        return octets[addr % 8 :][:length], bool(beats[-1]["error"])


async def start(dut) -> tuple[Card, UartLine, Link]:
    cocotb.start_soon(Clock(dut.clk, PERIOD_PS, unit="ps").start())
    line = UartLine(dut.rx, dut.tx, bit_ps=DIVISOR * PERIOD_PS, patience=60)
    card = Card(dut)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 60 * DIVISOR)  # the line is idle, as its receiver must find it
    return card, line, Link(line)


async def refused(work) -> Status | None:
    try:
        await work
    except BridgeError as error:
        return error.status
    raise AssertionError("The bridge has not refused")


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def registers(dut):
    card, _, link = await start(dut)
    await link.write_register(0x0123_4568, 0xF, 0x89AB_CDEF)
    access = card.accesses[-1]
    assert (access["function"] << 23 | access["bar"] << 20 | access["addr"]) == 0x0123_4568
    assert access["data"] == 0x89AB_CDEF and access["strb"] == 0xF
    assert await link.read_register(0x0123_4568, 0x4) == 0x89AB_CDEF
    assert card.accesses[-1]["strb"] == 4 and not card.accesses[-1]["write"]
    assert await link.read_register(0, 0xF) == 0xFFFF_FFFF


@cocotb.test(timeout_time=60, timeout_unit="ms")
async def memory(dut):
    """Words of any number from both sides, bytes of a word, reads of any place and length."""
    card, _, link = await start(dut)
    rng = random.Random(1)
    model = bytearray(rng.randbytes(SIZE // 16))
    await link.write_memory(0, bytes(model), b"\xff" * (len(model) // 8))
    for n in range(12):
        at, size = rng.randrange(400), rng.randrange(1, 100)
        octets = rng.randbytes(size)
        await card.write(at, octets)
        model[at : at + size] = octets
        at, size = rng.randrange(400), rng.randrange(1, 100)
        assert await card.read(n, at, size) == (bytes(model[at : at + size]), False)
    await link.write_memory(64, bytes(range(8)), b"\x81")
    model[64], model[71] = 0, 7
    assert await link.read_memory(0, len(model) // 8) == bytes(model)
    _, error = await card.read(3, SIZE, 8)
    assert error
    await card.write(SIZE + 64, b"lost")
    assert await link.read_memory(64, 1) == bytes(model[64:72])


@cocotb.test(timeout_time=60, timeout_unit="ms")
async def what_the_card_has_written_is_told(dut):
    card, _, link = await start(dut)
    while (await link.poll())[1] is not None:  # left over from another test
        pass
    await card.write(100, b"hello")
    await card.write(4000, b"there")
    await card.write(MESSAGE_WINDOW + 4 * 5, b"\x05\0\0\0")
    await card.write(MESSAGE_WINDOW + 4 * 30, b"\x1e\0\0\0")
    seen, interrupts = {}, 0
    while True:
        messages, block, octets = await link.poll()
        interrupts |= messages
        if block is None:
            break
        assert block not in seen and len(octets) == 64
        seen[block] = octets
    assert set(seen) == {1, 62} and interrupts == 1 << 5 | 1 << 30
    assert seen[1][36:41] == b"hello" and seen[62][32:37] == b"there"
    assert await link.poll() == (0, None, b"")


@cocotb.test(timeout_time=60, timeout_unit="ms")
async def a_request_that_is_damaged_is_not_executed(dut):
    card, line, link = await start(dut)
    await link.write_memory(0, bytes(8), b"\xff")
    text = bytes((Command.WRITE_MEMORY, 1)) + bytes(4) + b"whatever" + b"\xff"
    good = bytes((SYNC,)) + text + check(text)
    for place in (3, 9, len(good) - 1):  # the address, the data, the check
        await line.send(good[:place] + bytes((good[place] ^ 0x10,)) + good[place + 1 :])
        answer = await line.receive(6)
        assert answer[2] == Status.BAD_CHECK and check(answer[1:4]) == answer[4:]
        assert await link.read_memory(0, 1) == bytes(8)
    await line.send(good[:-1])
    await line.send(good[-1:], stop=0)
    assert (await line.receive(6))[2] == Status.BAD_CHECK
    assert await refused(link._request(Command.READ_MEMORY, 0, 0)) is Status.BAD_REQUEST
    assert await refused(link._request(Command.READ_MEMORY, 17, 0)) is Status.BAD_REQUEST
    unknown = bytes((9, 0)) + bytes(4)
    await line.send(bytes((SYNC,)) + unknown + check(unknown))
    assert (await line.receive(6))[1:3] == bytes((9, Status.BAD_REQUEST))
    assert await refused(link.read_memory(SIZE, 1)) is Status.BAD_ADDRESS
    assert await refused(link.read_memory(4, 1)) is Status.BAD_ADDRESS
    assert not card.accesses


@cocotb.test(timeout_time=60, timeout_unit="ms")
async def garbage_is_skipped(dut):
    _, line, link = await start(dut)
    rng = random.Random(2)
    await link.write_memory(0, b"constant", b"\xff")
    for n in range(6):
        garbage = bytes(octet for octet in rng.randbytes(12) if octet != SYNC)
        await line.send(garbage)
        # The beginning of a request, of which nothing more comes: it is given up.
        await line.send(bytes((SYNC,)) + rng.randbytes(n))
        await Timer(20 * 10 * DIVISOR * PERIOD_PS, "ps")
        assert await link.read_memory(0, 1) == b"constant"
    dut.rx.value = 0  # a break
    await Timer(40 * DIVISOR * PERIOD_PS, "ps")
    dut.rx.value = 1
    await Timer(4 * DIVISOR * PERIOD_PS, "ps")
    assert await link.read_memory(0, 1) == b"constant"


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def a_platform_shares_its_memory(dut):
    """What the driver writes is there before its register access; what the card writes comes back
    beside it, and the word that tells of others is passed on last."""
    card, _, link = await start(dut)
    bridge = BridgePlatform(link, SIZE, lambda: 0)
    await bridge.memory.clear()
    calls, order = [], []
    message = bridge.interrupts.allocate(lambda: calls.append(1))
    addr = 512
    view(bridge.memory, addr, 16)[:] = np.arange(16)
    bridge.memory.written_last(addr, 2)
    write = link.write_memory

    async def watched(place, octets, strobes):
        order.append((place, strobes))
        await write(place, octets, strobes)

    link.write_memory = watched
    await bridge.mmio.write(1, 0, 0x40, 2, 0xBEEF)
    assert card.accesses[-1]["strb"] == 3 and card.accesses[-1]["data"] == 0xBEEF
    assert order == [(512, b"\xfc\xff"), (512, b"\x02")]  # byte 0 is 0 on both sides
    await card.write(addr + 4, b"card")
    await card.write(message.address, message.data.to_bytes(4, "little"))
    view(bridge.memory, addr + 8, 2)[:] = 99
    await bridge.wait_event(0)
    assert view(bridge.memory, addr + 4, 6).tobytes() == b"cardcc" and calls == [1]
    assert (await card.read(0, addr + 4, 6))[0] == b"cardcc"
    await card.write(addr + 4, b"CARD")
    assert await bridge.mmio.read(1, 0, 0x40, 2) == 0xBEEF
    assert view(bridge.memory, addr + 4, 4).tobytes() == b"CARD"
