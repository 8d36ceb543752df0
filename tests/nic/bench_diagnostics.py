"""What watches a running card, in the whole NIC: on the cards of ``bench_functions``."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import cocotb
import numpy as np

from firmware.daemon.trace import capture
from firmware.tracer import Tracer
from hdl.abi.enums import WrOpcode
from hdl.abi.virtio_pci import Status
from hdl.config import FUNCTION_RDMA
from hdl.ports.jobs import QueueErrorCause
from sim.bench.system import System
from sim.wire import packets as pk
from sim.wire.pcap import read_capture
from tests.nic.card import FUNCTIONS
from tests.nic.pair import Pair
from tests.slow import QUICK

SNAP = 70


async def up(dut) -> tuple[System, Pair]:
    system = await System.start(dut, FUNCTIONS)
    for node in system.nodes:
        node.host.set(mmio_latency_ns=0)
    return system, await Pair(system.nodes, 1).make()


def tracer(node) -> Tracer:
    return Tracer(node.testbench.management[node.index], FUNCTIONS)


def bad_frames(node) -> dict[str, list[bytes]]:
    """Frames that a card drops, by the counter."""
    good = node.mac + pk.build(0x0A, payload=b"abc", dst_gid=pk.gid_bytes(node.address))[6:]
    wrong = good[:-1] + bytes([good[-1] ^ 1])
    return {
        "rx_drops_icrc": [wrong, wrong],
        "rx_drops_mac": [b"\2\2\2\2\2\2" + good[6:]],
        "rx_drops_ethertype": [node.mac + bytes(54)],
    }


def octets(frames, received: bool, dropped: bool = False) -> list[tuple[int, bytes]]:
    return [
        (one.length, one.octets)
        for one in frames
        if one.received == received and bool(one.reason) == dropped
    ]


@cocotb.test()
async def both_ends_of_a_wire(dut):
    """What one card says it has sent, the other says has come, and why it has dropped the rest."""
    system, pair = await up(dut)
    b = system.nodes[1]
    tracers = [tracer(node) for node in system.nodes]
    before = await b.counters()
    for one in tracers:
        await one.start(snap=SNAP)
    bad = bad_frames(b)
    for frames in bad.values():
        for frame in frames:
            system.testbench.wires[b.index].inject(frame)
        await pair.exchange(random.Random(1))
    await system.testbench.cycles(3000)
    for one in tracers:
        await one.stop()
        assert not await one.running() and not await one.dropped()
    here, there = [await one.frames() for one in tracers]
    counted = Counter({n: v - before[n] for n, v in (await b.counters()).items()})
    wanted = [(len(frame), frame[:SNAP]) for frames in bad.values() for frame in frames]
    assert octets(there, True, dropped=True) == wanted[-FUNCTIONS.trace_frames :]
    assert {name: counted[name] for name in counted if "drops" in name and counted[name]} == {
        name: len(frames) for name, frames in bad.items()
    }
    assert Counter(one.reason for one in there if one.reason) == {
        name: len(frames) for name, frames in bad.items()
    }
    for sender, receiver in ((here, there), (there, here)):
        sent, came = octets(sender, False), octets(receiver, True)
        count = min(len(sent), len(came))
        assert count > 8 and sent[-count:] == came[-count:]
        assert all(len(head) == min(SNAP, length) for length, head in sent)
    times = [one.time for one in there]
    assert times == sorted(times) and times[-1] < await tracers[1].now()

    file = Path("trace.pcapng")
    hz = FUNCTIONS.clock_hz
    file.write_bytes(capture(there, card="a", now=times[-1], time_ns=times[-1] * 4, hz=hz))
    assert [(one.length, one.frame) for one in read_capture(file)] == [
        (one.length, one.octets) for one in there
    ]


@cocotb.test()
async def a_drop_ends_it(dut):
    """The dropped frame is among the last ones; what has come behind it is not there."""
    system, pair = await up(dut)
    b = system.nodes[1]
    one = tracer(b)
    await one.start(stop_at=("rx_drops_icrc",))
    bad = bad_frames(b)
    wire = system.testbench.wires[b.index]
    wire.inject(bad["rx_drops_mac"][0])
    await pair.exchange(random.Random(2))
    assert await one.running()
    wire.inject(bad["rx_drops_icrc"][0])
    await pair.exchange(random.Random(3))
    assert not await one.running() and await one.dropped()
    frames = await one.frames()
    reasons = [one.reason for one in frames if one.received][-4:]
    assert "rx_drops_icrc" in reasons
    await one.start()
    assert await one.running() and not await one.dropped() and await one.frames() == []


@cocotb.test()
async def latencies(dut):
    """Messages that follow one another on idle cards are measured one by one."""
    system, pair = await up(dut)
    a, b = system.nodes
    before = [await node.registers.histogram(name) for node, name in ((a, "send"), (b, "receive"))]
    count = 12
    for n in range(count):
        await pair.post(WrOpcode.RDMA_WRITE, 0, 1 + 8 * n)
        await pair.good()
        await system.testbench.cycles(500)
    after = [await node.registers.histogram(name) for node, name in ((a, "send"), (b, "receive"))]
    for (old, old_sum), (new, new_sum) in zip(before, after, strict=True):
        counts = [now - then for then, now in zip(old, new, strict=True)]
        cycles = new_sum - old_sum
        assert sum(counts) == count
        assert sum(one << n - 1 for n, one in enumerate(counts) if one) <= cycles
        assert cycles < sum(one << n for n, one in enumerate(counts) if one)
        assert 20 * count < cycles < 2000 * count, cycles
    # What only passes the other way is not measured.
    assert sum((await b.registers.histogram("send"))[0]) == 0


async def spoil(node, table: str) -> None:
    """Store each row of ``table`` that is in use again, with a wrong bit."""
    node.rest_firmware(True)
    await node.testbench.cycles(500)
    registers = node.registers
    control = registers._map.address("parity.control")
    used = "type" if table == "mr" else "state"
    where = table if table == "mr" else "qp_cfg"
    count = FUNCTIONS.mrs if table == "mr" else FUNCTIONS.qps
    rows = [n for n in range(count) if (await registers.read_fields(where, n, used))[used]]
    assert rows
    for n in rows:
        row = await registers.read_row(table, n)
        await registers.bus.write(control, 1)
        await registers.write_row(table, n, row)
        await registers._settle(table)
        await registers.bus.write(control, 0)


@cocotb.test()
@cocotb.parametrize(where=["0 qp_tx", "1 mr"] if QUICK else ["0 qp_tx", "0 mr", "1 qp_rx", "1 mr"])
async def a_wrong_bit(dut, where):
    """The card that reads it stands still and says so; nothing comes of it, at either end."""
    side, table = int(where[0]), where[2:]
    system, pair = await up(dut)
    await pair.exchange(random.Random(4))
    await system.testbench.cycles(3000)
    node = system.nodes[side]
    assert await node.registers.parity_errors() == (0, [], False)
    await spoil(node, table)  # which is seen at once if somebody reads the row all the time
    memory = [mr.read(mr.length) for mr in pair.mrs]
    watching = tracer(system.nodes[1 - side])
    await watching.start()
    await pair.post(WrOpcode.RDMA_WRITE, 64, 3000)
    await system.testbench.cycles(20_000)
    errors, tables, broken = await node.registers.parity_errors()
    assert 0 < errors < 50 and broken and set(tables) <= {table, f"{table}s", f"{table}_ahead"}, (
        tables
    )
    for n in range(FUNCTIONS.functions):
        state = await node.registers.needs_reset(FUNCTION_RDMA + n)
        assert state["active"] and state["cause"] == QueueErrorCause.PARITY.value, state
    assert await node.context.device.status() & Status.DEVICE_NEEDS_RESET
    await watching.stop()
    assert not [one for one in await watching.frames() if one.received], "something has left"
    assert all(
        np.array_equal(mr.read(mr.length), old) for mr, old in zip(pair.mrs, memory, strict=True)
    )
    other = system.nodes[1 - side].registers
    assert await other.parity_errors() == (0, [], False)
