"""cocotb side of test_loop.py: packets of all kinds, with gaps and stalls everywhere."""

from __future__ import annotations

import os
import random

import cocotb
from amaranth.hdl import Shape
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles

from hdl.common.count import COUNT
from hdl.ingress.counters import IngressCounters
from hdl.ports.headers import GidRow, RxHeader, TxHeader
from sim.bench.packet_stream import Sink, Source, beats, never, packets, sometimes
from tests.fields import pack, unpack

os.environ["EGRESS_WIDTH"] = os.environ["LOOP_WIDTH"]

from tests.egress.bench_egress import MAC, OPCODES, PEER_MAC, PEERS, SIZE, SOURCES, WIDTH, Packet


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def loop(dut):
    width = Shape.cast(GidRow).width
    own = peers = 0
    for n, one in enumerate(SOURCES):
        vlan = one["vlan"]
        row = {"valid": 1, "gid": one["gid"], "vlan_valid": int(vlan is not None)}
        own |= pack(GidRow, row | {"vlan_id": vlan or 0}) << n * width
    for n, gid in enumerate(PEERS):
        peers |= pack(GidRow, {"valid": 1, "gid": gid, "function": 3 + n}) << n * width
    dut.gids.value, dut.peer_gids.value = own, peers
    dut.mac_address.value = int.from_bytes(MAC, "little")
    dut.peer_mac_address.value = int.from_bytes(PEER_MAC, "little")
    dut.rst.value = 1
    header, payload = Source(dut, "header"), Source(dut, "payload")
    rx_header, rx_payload = Sink(dut, "rx_header"), Sink(dut, "rx_payload")
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0
    cocotb.start_soon(rx_header.run())
    cocotb.start_soon(rx_payload.run())

    rng = random.Random(11)
    total = 0
    for gap, stall in ((0, 0), (0.5, 0), (0, 0.7), (0.4, 0.4)):
        header.idle = sometimes(gap, 1) if gap else never
        payload.idle = sometimes(gap, 2) if gap else never
        rx_header.stall = sometimes(stall, 3) if stall else never
        rx_payload.stall = sometimes(stall, 4) if stall else never
        sent = [Packet(rng, opcode=opcode) for opcode in OPCODES for _ in range(2)]
        sent += [Packet(rng, opcode=0x01, length=n) for n in (4096, SIZE, 4095, 1, 256)]
        rng.shuffle(sent)
        words = [word for packet in sent for word in beats(packet.payload, WIDTH)]
        rows = [pack(TxHeader, packet.row) for packet in sent]
        tasks = [cocotb.start_soon(header.run(rows)), cocotb.start_soon(payload.run(words))]
        for task in tasks:
            await task
        arrive = sum(len(beats(packet.arrives_payload, WIDTH)) for packet in sent)
        while len(rx_header.words) < total + len(sent) or len(rx_payload.words) < arrive:
            await ClockCycles(dut.clk, 10)
        await ClockCycles(dut.clk, 100)
        bodies = [body for body, _ in packets(rx_payload.words, WIDTH)]
        rx_payload.words.clear()
        for packet, word in zip(sent, rx_header.words[total:], strict=True):
            got = unpack(RxHeader, word)
            names = ("opcode", "solicited", "ack_request", "pkey", "dest_qp", "psn")
            wanted = {name: packet.row[name] for name in names} | packet.arrives
            wanted["length"] = len(packet.arrives_payload)
            for name, value in wanted.items():
                want = int.from_bytes(value, "little") if isinstance(value, bytes) else value
                key = "imm" if name == "rkey" and packet.opcode in (0x16, 0x17) else name
                assert got[key] == want, f"{name}: {got[key]:#x} is not {want:#x}"
            address = packet.row["av"]
            v6 = PEERS.index(address["dgid"])
            assert (got["ipv6"], got["gid_index"], got["function"]) == (v6, v6, 3 + v6)
            assert got["traffic_class"] == address["traffic_class"]
            assert got["hop_limit"] == address["hop_limit"]
            assert got["src_mac"] == int.from_bytes(MAC, "little")
            source = SOURCES[address["sgid_index"]]["gid"]
            assert got["src_gid"] == int.from_bytes(source, "little")
            if packet.arrives_payload:
                assert bodies.pop(0) == packet.arrives_payload
        assert not bodies
        total += len(sent)
    counted = unpack(IngressCounters, int(dut.counters.value))
    assert {name for name, count in counted.items() if count} == {"packets", "bytes"}
    assert counted["packets"] == total % (1 << COUNT)
