"""Recorded Linux traffic into one card; and mutations of it, which must be noticed."""

import os
import random
from pathlib import Path

import cocotb

from hdl.config import NicConfig
from sim.packets import dissect, reseal
from sim.replay.compare import is_ack
from sim.replay.play import play
from sim.replay.trace import Trace, Unsuitable
from sim.testbench import Testbench

CONFIG = NicConfig(width=int(os.environ.get("ROCINANTE_WIDTH", "64")))
GOLDEN = Path(__file__).parents[1] / "data" / "golden"
#: Where the BTH begins: the captures have no VLAN tag, and the suitable ones IPv4.
BTH = 42
#: Loss-free captures of RC SEND, WRITE and READ.
SUITABLE = [
    "agent_read_64k",
    "agent_unsignaled",
    "agent_write_64k",
    "ib_read_bw_s20000o2",
    "ib_send_bw_s4096",
    "ib_write_bw_s20000",
    "ib_write_lat_s64",
    "rc_pingpong_s4096_m1024",
    "rc_pingpong_s4096_m256",
    "rc_pingpong_s64_m1024",
    "rc_pingpong_s65536_m1024",
]


async def replay(dut, trace, side):
    testbench = Testbench(dut, config=CONFIG, connect=False, memory=64 << 20)
    await testbench.start()
    deadline = testbench.deadline(1_000_000)
    report = await play(testbench, trace, side)
    deadline.cancel()
    testbench.stop()
    return report


@cocotb.test()
async def golden(dut):
    """Each capture from both sides agrees in every packet, in memory and in completions."""
    for name in SUITABLE:
        trace = Trace(GOLDEN / f"{name}.pcap")
        for side in (0, 1):
            report = await replay(dut, trace, side)
            assert report.good, (name, side, report.error, report.differences[:3], report.agreed)
            assert report.packets == sum(p.side == side for p in trace.packets)


@cocotb.test()
async def unsuitable(dut):
    """Every other capture is refused with a reason."""
    for path in sorted(GOLDEN.glob("*.pcap")):
        if path.stem in SUITABLE:
            continue
        try:
            Trace(path)
        except Unsuitable as error:
            dut._log.info("%s", error)
        else:
            raise AssertionError(f"{path.name} should not be suitable")
    await Testbench(dut, config=CONFIG, connect=False).start()


@cocotb.test()
async def mutations(dut):
    """One bit of one packet of each capture is flipped, its ICRC made right: that is noticed.

    Sides, requests and memory are those of the unchanged capture. A bit of a packet that the card
    should have sent; and one of the PSN or payload of a packet that is fed in.
    """
    rng = random.Random(11)
    for name in SUITABLE:
        for fed in (False, True):
            trace = Trace(GOLDEN / f"{name}.pcap")
            # A lost ACK is made good by the next, so a changed one that is fed in proves nothing.
            packet = rng.choice([p for p in trace.packets if not (fed and is_ack(p.op))])
            side = 1 - packet.side if fed else packet.side
            # Earlier payload may be overwritten by a later message to the same place.
            messages = trace.sides[packet.side].messages
            final = bool(messages) and packet in messages[-1].packets
            bit = _bit(rng, packet, fed, final)
            changed = bytearray(packet.frame)
            changed[bit // 8] ^= 1 << bit % 8
            packet.frame = reseal(bytes(changed))
            packet.parts = dissect(packet.frame)
            dut._log.info("%s: packet %d, byte %d, fed %s", name, packet.index, bit // 8, fed)
            report = await replay(dut, trace, side)
            assert not report.good, f"{name}: bit {bit} of packet {packet.index} went unnoticed"
            what = report.error or str(report.differences[0])
            dut._log.info("noticed: %s", what)


def _bit(rng, packet, fed, final):
    """A bit of the frame whose change matters."""
    payload = len(packet.frame) - 4 - len(packet.parts.payload) - (-len(packet.parts.payload) % 4)
    psn = range(BTH + 9, BTH + 12)
    while True:
        byte = rng.randrange(BTH, len(packet.frame) - 4)
        bit = rng.randrange(8)
        in_payload = payload <= byte < payload + len(packet.parts.payload)
        if fed and byte not in psn and not (final and in_payload):
            continue
        if not _free(byte - BTH, bit, packet):
            return 8 * byte + bit


def _free(byte, bit, packet):
    """MigReq, FECN, BECN and reserved bits, pad count (it breaks the frame's form), credit code."""
    credit = packet.op in (0x0D, 0x0F, 0x10, 0x11) and byte == 12 and bit < 5
    return byte == 4 or (byte == 8 and bit < 7) or (byte == 1 and bit != 7) or credit
