"""Acknowledgements as dense as 100 Gb/s allows, into a transport that is slower."""

from __future__ import annotations

import cocotb

from sim.bench.packet_stream import Pattern, every
from sim.wire import packets as pk
from tests.ingress.bench_ingress import Bench, check

#: Cycles that Receive takes for an acknowledgement (docs/receive.md).
ACK_CYCLES = 11
#: 10 us at 250 MHz.
CYCLES = 2500


def spaced(cycles: float) -> Pattern:
    """A word each ``cycles`` cycles on average, as evenly as whole cycles allow."""
    state = [0.0]

    def gap() -> bool:
        state[0] += 1
        if state[0] < cycles:
            return True
        state[0] -= cycles
        return False

    return gap


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def acknowledgements_at_line_rate(dut):
    """None is lost in 10 us, and nothing is held back."""
    frames = [pk.build(0x11, psn=n, msn=n) for n in range(200)]
    line = 8 * (max(60, len(frames[0])) + 24) / 100  # ns
    count = int(CYCLES * 4 / line)
    bench = Bench(dut, idle=spaced(line / 4), header_stall=every(ACK_CYCLES))
    await bench.start()
    sent = [frames[n % 200] for n in range(count)]
    await bench.send(sent)
    took = bench.header.cycle
    assert bench.source.stalls == 0 and took < 1.01 * CYCLES + 20
    await bench.settle(100)
    check(bench.received(), sent)
    assert set(bench.counted()) == {"packets", "bytes"}
    dut._log.info("%d acknowledgements in %d cycles", count, took)
