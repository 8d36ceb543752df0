"""The completer against the descriptors of cocotbext-pcie, in Amaranth's simulator."""

import random

import pytest
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId
from cocotbext.pcie.xilinx.us.interface import UsPcieFrame
from cocotbext.pcie.xilinx.us.tlp import Tlp_us

from hdl.pcie.completer import Completer
from tests.simulate import simulate

APERTURE = 14


def request(rng, kind, words=1):
    """A request of the host, as the block would describe it."""
    tlp = Tlp_us(Tlp())
    tlp.fmt_type, tlp.length = kind, words
    tlp.address = rng.getrandbits(64) & ~3
    tlp.requester_id = PcieId(rng.randrange(256), rng.randrange(32), rng.randrange(8))
    tlp.completer_id = PcieId(0, 0, rng.randrange(8))
    tlp.tag, tlp.bar_id, tlp.bar_aperture = rng.randrange(256), rng.randrange(6), APERTURE
    tlp.first_be = rng.choice([1, 2, 4, 8, 3, 12, 15, 0] if words == 1 else [8, 12, 14, 15])
    tlp.last_be = 0 if words == 1 else rng.choice([1, 3, 7, 15])
    if kind in (TlpType.MEM_WRITE_64, TlpType.IO_WRITE):
        tlp.data = bytearray(rng.randbytes(4 * words))
    return tlp


def beats(tlp):
    """The beats of CQ that carry ``tlp``."""
    words = tlp.pack_us_cq().data
    for start in range(0, len(words), 16):
        part = words[start : start + 16]
        value = sum(word << 32 * i for i, word in enumerate(part))
        user = {"first_be": tlp.first_be, "last_be": tlp.last_be} if start == 0 else {}
        yield {
            "data": value,
            "user": user | {"discontinue": tlp.discontinue},
            "last": start + 16 >= len(words),
        }


def completion(payload):
    """The TLP of a packet of CC."""
    frame = UsPcieFrame()
    frame.data = [payload.data >> 32 * i & 0xFFFFFFFF for i in range(payload.words)]
    return Tlp_us.unpack_us_cc(frame), frame.data


def traffic(rng):
    """Requests of all kinds: one word, several words and beats, other types, cut off."""
    kinds = [(TlpType.MEM_READ_64, 1), (TlpType.MEM_WRITE_64, 1)] * 4
    kinds += [(TlpType.MEM_READ_64, 2), (TlpType.MEM_READ_64, 1024), (TlpType.MEM_WRITE_64, 40)]
    kinds += [(TlpType.IO_READ, 1), (TlpType.MEM_READ_64, 33)]
    kinds += [(TlpType.IO_WRITE, 1)]
    for _ in range(150):
        tlp = request(rng, *rng.choice(kinds))
        tlp.discontinue = len(tlp.data) > 48 and rng.random() < 0.3
        yield tlp


@pytest.mark.parametrize("stall", [0, 0.5])
def test_completer(stall):
    """Each request becomes its access and its completion, in order, or is refused and counted."""
    rng = random.Random(1)
    sent = list(traffic(rng))
    one = [t for t in sent if t.length == 1 and t.fmt_type.name.startswith("MEM")]
    answered = [t for t in sent if t.fmt_type != TlpType.MEM_WRITE_64]
    accesses, completions, refused = [], [], 0
    dut = Completer()

    async def host(ctx):
        for tlp in sent:
            for beat in beats(tlp):
                ctx.set(dut.cq.payload, beat)
                ctx.set(dut.cq.valid, 1)
                await ctx.tick().until(dut.cq.ready)
                ctx.set(dut.cq.valid, 0)

    async def card(ctx):
        while True:
            ctx.set(dut.mmio.req.ready, rng.random() >= stall)
            _, _, valid, ready, got = await ctx.tick().sample(
                dut.mmio.req.valid, dut.mmio.req.ready, dut.mmio.req.payload
            )
            if valid and ready:
                accesses.append(got)
                if not got.write:
                    ctx.set(dut.mmio.req.ready, 0)
                    ctx.set(dut.mmio.rsp.payload, got.addr ^ 0xABCD0000)
                    ctx.set(dut.mmio.rsp.valid, 1)
                    await ctx.tick().until(dut.mmio.rsp.ready)
                    ctx.set(dut.mmio.rsp.valid, 0)

    async def block(ctx):
        nonlocal refused
        idle = 0
        while idle < 50:
            ctx.set(dut.cc.ready, rng.random() >= stall)
            _, _, valid, ready, got, no, busy = await ctx.tick().sample(
                dut.cc.valid, dut.cc.ready, dut.cc.payload, dut.refused, dut.cq.valid
            )
            refused += no
            idle = 0 if busy else idle + 1
            if valid and ready:
                completions.append(completion(got))

    simulate(dut, host, block, background=(card,), deadline=20_000)
    wanted = [t for t in one if t.fmt_type == TlpType.MEM_READ_64 or t.first_be]
    assert len(accesses) == len(wanted)
    for got, tlp in zip(accesses, wanted, strict=True):
        assert got.addr == tlp.address % (1 << APERTURE)
        assert (got.function, got.bar) == (tlp.completer_id.function, tlp.bar_id)
        assert got.strb == tlp.first_be
        assert got.write == (tlp.fmt_type == TlpType.MEM_WRITE_64)
        if got.write:
            assert got.data == int.from_bytes(tlp.data, "little")
    assert refused == sum(t not in one and not t.discontinue for t in sent)
    assert len(completions) == len(answered)
    for (done, words), tlp in zip(completions, answered, strict=True):
        assert (done.tag, done.requester_id) == (tlp.tag, tlp.requester_id)
        if tlp not in one:
            assert (done.status, done.length) == (CplStatus.UR, 0)
            # Of a read of memory what it has asked for, of anything else a word without a place.
            read = tlp.fmt_type == TlpType.MEM_READ_64
            assert done.byte_count == (tlp.get_be_byte_count() if read else 4)
            place = tlp.address % 128 + tlp.get_first_be_offset()
            assert done.lower_address == (place if read else 0)
            assert words[4:] == tlp.pack_us_cq().data[:4]
            continue
        assert (done.status, done.length) == (CplStatus.SC, 1)
        assert int.from_bytes(done.data, "little") == tlp.address % (1 << APERTURE) ^ 0xABCD0000
        assert done.byte_count == tlp.get_be_byte_count()
        first = tlp.get_first_be_offset() if tlp.first_be else 0
        assert done.lower_address == tlp.address % 128 + first
