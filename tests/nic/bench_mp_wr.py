"""Receive requests that take several packets, between two whole cards."""

import json
from dataclasses import replace
from pathlib import Path

import cocotb
from cocotb.triggers import Timer

from sim.guest.verbs import WC
from tests.mp_wr_source import Completed
from tests.nic.mp_wr import MpWrPair

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "mp_wr.json").read_text())


def vector(name, qp):
    """Completions of the specification's examples, by their place."""
    found = {int(n): WC.unpack(bytes.fromhex(octets)) for n, octets in VECTORS[name].items()}
    return {n: replace(Completed.of(wc), qp=qp) for n, wc in found.items()}


async def example(p, name, lengths, first=0xA0):
    """Messages of these lengths: what completes is what the model and the example say."""
    await p.send(lengths)
    found = await p.check()
    for n, expected in vector(name, p.pairs[0][1].qp_num).items():
        assert found[n] == replace(expected, wr_id=expected.wr_id - first + 0xA0), (name, n)


@cocotb.test()
async def t_m1_example_a(dut):
    """T-M1, example A, case a: 128 messages of 512 bytes take a request. The next one finds none,
    and comes when there is one."""
    p = await MpWrPair.up(dut, 65536, 512)
    await p.post()
    await example(p, "a", [512] * 128)
    await p.pairs[0][0].post_send(p.request(0, 512))
    await Timer(30, "us")
    assert (await p.nodes[1].counters())["out_of_buffer"] > 0
    await p.post()
    p.source.message(p.bytes(0, 512), p.mtu, p.pairs[0][1].qp_num)
    await p.good()
    await p.check()
    await p.well()


@cocotb.test()
async def t_m1_example_a_long(dut):
    """T-M1, example A, cases b and c: a message of 12,000 bytes is three pieces; the sixth goes on
    in the next request."""
    p = await MpWrPair.up(dut, 65536, 512)
    await p.post(2)
    await example(p, "c", [12000] * 6)
    assert vector("b", 0) == {n: vector("c", 0)[n] for n in range(3)}
    assert p.source.at == 8192
    await p.well()


@cocotb.test()
async def t_m1_example_a_segments(dut):
    """T-M1, example A, case d: 700 bytes are two segments."""
    p = await MpWrPair.up(dut, 65536, 512)
    await p.post(2)
    await example(p, "d", [700] * 65)
    await p.well()


@cocotb.test()
async def t_m1_example_a_closes(dut):
    """T-M1, example A, case e: a packet that does not fit closes the request."""
    p = await MpWrPair.up(dut, 65536, 512)
    await p.post(2)
    await example(p, "e", [4096] * 15 + [3500, 1024])
    await p.well()
