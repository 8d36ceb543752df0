"""The completer against the descriptors of cocotbext-pcie, in Amaranth's simulator."""

import random

import pytest
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId
from cocotbext.pcie.xilinx.us.interface import UsPcieFrame
from cocotbext.pcie.xilinx.us.tlp import Tlp_us

from hdl.abi.push import PUSH_BAR
from hdl.pcie.completer import Completer
from tests.simulate import simulate

APERTURE = 14


def request(rng, kind, words=1):
    """A request of the host, as the block would describe it."""
    tlp = Tlp_us(Tlp())
    tlp.fmt_type, tlp.length = kind, words
    # No packet crosses 4 KiB (2.2.7).
    tlp.address = rng.getrandbits(52) << 12 | 4 * rng.randrange(1025 - words)
    tlp.requester_id = PcieId(rng.randrange(256), rng.randrange(32), rng.randrange(8))
    tlp.completer_id = PcieId(0, 0, rng.randrange(8))
    tlp.tag, tlp.bar_id, tlp.bar_aperture = rng.randrange(256), rng.randrange(6), APERTURE
    if words == 1:
        tlp.first_be, tlp.last_be = rng.randrange(16), 0
    else:
        tlp.first_be, tlp.last_be = rng.randrange(1, 16), rng.randrange(1, 16)
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
    """The TLP of a packet of CC, and its words."""
    frame, words = UsPcieFrame(), payload.words
    head = payload.head.as_bits()
    frame.data = [head >> 32 * i & 0xFFFFFFFF for i in range(3)]
    frame.data += [payload.data >> 32 * i & 0xFFFFFFFF for i in range(words)]
    return Tlp_us.unpack_us_cc(frame), frame.data


READ, WRITE = TlpType.MEM_READ_64, TlpType.MEM_WRITE_64


def traffic(rng):
    """Requests of all kinds: of one word, several words and beats, other types, cut off, and with
    byte enables that no packet may have."""
    lengths = {READ: (1, 1, 2, 3, 16, 17, 18, 40, 1024), WRITE: (1, 1, 2, 3, 4, 5, 6, 13, 40)}
    for _ in range(400):
        kind = rng.choice([READ, READ, READ, WRITE, WRITE, WRITE, TlpType.IO_READ])
        tlp = request(rng, kind, rng.choice(lengths.get(kind, (1,))))
        tlp.discontinue = tlp.length > 12 and kind == WRITE and rng.random() < 0.3
        if rng.random() < 0.1:
            if tlp.length == 1:
                tlp.last_be = rng.randrange(1, 16)
            elif rng.random() < 0.5:
                tlp.first_be = 0
            else:
                tlp.last_be = 0
        yield tlp


def is_legal(tlp):
    """Whether a card must carry the request out: byte enables as PCI Express Base, 2.2.5, and no
    more words than a processor's access of 64 bytes to read, 16 to write, at any offset."""
    if tlp.fmt_type not in (READ, WRITE) or tlp.length > {READ: 17, WRITE: 5}[tlp.fmt_type]:
        return False
    if tlp.length == 1:
        return tlp.last_be == 0
    return tlp.first_be != 0 and tlp.last_be != 0


def words_of(tlp):
    """(address, byte enables) of each word that the card is to access."""
    for n in range(tlp.length):
        enables = tlp.first_be if n == 0 else tlp.last_be if n == tlp.length - 1 else 15
        if enables or tlp.fmt_type == READ:
            yield (tlp.address + 4 * n) % (1 << APERTURE), enables


def content(addr):
    """What the registers hold."""
    return addr * 0x9E3779B1 & 0xFFFFFFFF


def host(dut, sent):
    """Who gives the block's requests to the completer, without gaps."""

    async def feed(ctx):
        for tlp in sent:
            for beat in beats(tlp):
                ctx.set(dut.cq.payload, beat)
                ctx.set(dut.cq.valid, 1)
                await ctx.tick().until(dut.cq.ready)
                ctx.set(dut.cq.valid, 0)

    return feed


@pytest.mark.parametrize("stall", [0, 0.5])
def test_completer(stall):
    """Each request becomes its access and its completion, in order, or is refused and counted."""
    rng = random.Random(1)
    sent = list(traffic(rng))
    legal = [t for t in sent if is_legal(t) and not t.discontinue]
    answered = [t for t in sent if t.fmt_type != WRITE]
    accesses, completions, refused = [], [], 0
    dut = Completer()

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
                    ctx.set(dut.mmio.rsp.payload, content(got.addr))
                    ctx.set(dut.mmio.rsp.valid, 1)
                    await ctx.tick().until(dut.mmio.rsp.ready)
                    ctx.set(dut.mmio.rsp.valid, 0)

    async def block(ctx):
        nonlocal refused
        idle = 0
        while idle < 300:
            ctx.set(dut.cc.ready, rng.random() >= stall)
            _, _, valid, ready, got, no, busy = await ctx.tick().sample(
                dut.cc.valid, dut.cc.ready, dut.cc.payload, dut.refused, dut.cq.valid
            )
            refused += no
            idle = 0 if busy else idle + 1
            if valid and ready:
                completions.append(completion(got))

    simulate(dut, host(dut, sent), block, background=(card,), deadline=60_000)
    wanted = [(tlp, place, be) for tlp in legal for place, be in words_of(tlp)]
    assert len(accesses) == len(wanted)
    for got, (tlp, place, be) in zip(accesses, wanted, strict=True):
        assert (got.addr, got.strb) == (place, be)
        assert (got.function, got.bar) == (tlp.completer_id.function, tlp.bar_id)
        assert got.write == (tlp.fmt_type == WRITE)
        if got.write:
            at = (place - tlp.address) % (1 << APERTURE)
            assert got.data == int.from_bytes(tlp.data[at : at + 4], "little")
    assert refused == sum(not is_legal(t) and not t.discontinue for t in sent) > 50
    assert len(completions) == len(answered)
    for (done, words), tlp in zip(completions, answered, strict=True):
        assert (done.tag, done.requester_id) == (tlp.tag, tlp.requester_id)
        reads = tlp.fmt_type == READ
        if reads and (is_legal(tlp) or (tlp.first_be and tlp.last_be)):
            # The bytes from the first that is enabled to the last (2.3.1.1), also of a refusal.
            first = tlp.get_first_be_offset() if tlp.first_be else 0
            assert done.byte_count == tlp.get_be_byte_count()
            assert done.lower_address == (tlp.address + first) % 128
        elif not reads:
            assert (done.byte_count, done.lower_address) == (4, 0)
        if not is_legal(tlp):
            assert (done.status, done.length) == (CplStatus.UR, 0)
            assert words[4:] == tlp.pack_us_cq().data[:4]
            continue
        assert (done.status, done.length) == (CplStatus.SC, tlp.length)
        expected = [content(place) for place, _ in words_of(tlp)]
        assert [int.from_bytes(done.data[4 * n :][:4], "little") for n in range(tlp.length)] == (
            expected
        )


def pushes(rng):
    """Writes to a push window: pieces, parts of them, several of them, at odd places, cut off."""
    for _ in range(150):
        tlp = request(rng, WRITE, rng.choice((16, 16, 16, 1, 2, 5, 15, 17, 32, 64)))
        tlp.bar_id = PUSH_BAR
        if rng.random() < 0.7:
            tlp.address &= ~63
        if rng.random() < 0.7:
            tlp.first_be, tlp.last_be = 15, 15 * (tlp.length > 1)
        tlp.discontinue = tlp.length > 12 and rng.random() < 0.1
        yield tlp
        if rng.random() < 0.3:
            yield request(rng, WRITE, 2)


@pytest.mark.parametrize("stall", [0, 0.5])
def test_push_window(stall):
    """A write of 64 aligned bytes is a whole beat, any other one of which a part is missing, at the
    same slot; none is an access, and accesses between them stay what they are."""
    rng = random.Random(2)
    sent = list(pushes(rng))
    dut = Completer(push=True)
    found, accesses, refused = [], 0, 0

    async def card(ctx):
        nonlocal accesses, refused
        idle = 0
        ctx.set(dut.cc.ready, 1)
        while idle < 300:
            ready = rng.random() >= stall
            ctx.set(dut.push.ready, ready)
            ctx.set(dut.mmio.req.ready, ready)
            _, _, valid, got, access, no, busy = await ctx.tick().sample(
                dut.push.valid, dut.push.payload, dut.mmio.req.valid, dut.refused, dut.cq.valid
            )
            refused += no
            idle = 0 if busy else idle + 1
            accesses += access and ready
            if valid and ready:
                found.append(got)

    simulate(dut, host(dut, sent), card, deadline=60_000)
    wanted = [tlp for tlp in sent if tlp.bar_id == PUSH_BAR and not tlp.discontinue]
    wanted = [tlp for tlp in wanted if tlp.fmt_type == WRITE]
    assert len(found) == len(wanted)
    whole = 0
    for got, tlp in zip(found, wanted, strict=True):
        at = tlp.address % (1 << APERTURE)
        assert (got.function, got.addr) == (tlp.completer_id.function, at & ~63)
        good = (tlp.length, at % 64, tlp.first_be, tlp.last_be) == (16, 0, 15, 15)
        assert got.strb == ((1 << 64) - 1 if good else 1)
        if good:
            assert got.data == int.from_bytes(tlp.data, "little")
        whole += good
    assert whole > 20 and len(found) > 2 * whole and refused == 0
    others = [tlp for tlp in sent if tlp.bar_id != PUSH_BAR]
    assert accesses == sum(len(list(words_of(tlp))) for tlp in others)
