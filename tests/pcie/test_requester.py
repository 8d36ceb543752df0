"""Requests on RQ, several in a beat, against a plain model in Amaranth's simulator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect

from hdl.pcie.descriptors import WIDTH, RequestType, rq_descriptor, rq_user
from hdl.pcie.posted import READ
from hdl.pcie.requester import HEAD, Requester
from hdl.pcie.requests import Requests
from tests.simulate import Pin, Prepared, simulate

OCTETS, WORDS = WIDTH // 8, WIDTH // 32
HALF = WORDS // 2


class Path(wiring.Component):
    """What the host port asks for on its way to RQ."""

    def __init__(self):
        self.requests, self.requester = Requests(head=HEAD, straddle=True), Requester()
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.requests, m.submodules.requester = self.requests, self.requester
        connect(m, self.requests.o, self.requester.i)
        return m


PATH = Prepared(Path())


@dataclass
class Packet:
    """A request as it is on RQ; of a write, what its byte enables leave out is None."""

    write: bool
    addr: int
    words: int
    enables: tuple[int, int]
    octets: list[int | None] = field(default_factory=list)


@dataclass
class Burst:
    """A write, or a read when there are no ``octets`` but a ``stop``."""

    addr: int
    octets: bytes = b""
    stop: int = 0

    def packets(self, block: int) -> Iterator[Packet]:
        """One for each block of ``block`` bytes."""
        if not self.octets:
            length = (self.stop - self.addr) % 4096 + 1
            yield packet(self.addr, [None] * length, write=False)
            return
        at = 0
        while at < len(self.octets):
            here = block - (self.addr + at) % block
            yield packet(self.addr + at, list(self.octets[at : at + here]), write=True)
            at += here

    def beats(self) -> Iterator[dict]:
        """The beats of a write at the host port."""
        first, last = self.addr // OCTETS, (self.addr + len(self.octets) - 1) // OCTETS
        for n in range(first, last + 1):
            low = max(self.addr, n * OCTETS)
            high = min(self.addr + len(self.octets), (n + 1) * OCTETS)
            octets = self.octets[low - self.addr : high - self.addr]
            lane = low % OCTETS
            yield {
                "addr": n * OCTETS,
                "length": len(self.octets),
                "data": int.from_bytes(octets, "little") << 8 * lane,
                "strb": (1 << len(octets)) - 1 << lane,
                "first": n == first,
                "last": n == last,
            }


def packet(addr: int, octets: list[int | None], *, write: bool) -> Packet:
    """What is asked for with the bytes at ``addr``."""
    before, after = addr % 4, -(addr + len(octets)) % 4
    words = (before + len(octets) + after) // 4
    first, last = 0xF << before & 0xF, 0xF >> after
    enables = (first & last, 0) if words == 1 else (first, last)
    padded = [None] * before + octets + [None] * after
    return Packet(write, addr & ~3, words, enables, padded if write else [])


def received(beats: Sequence[tuple[int, int]]) -> list[Packet]:
    """The packets in beats of RQ, as (data, user)."""
    packets: list[Packet] = []
    words: list[int] | None = None  # of the packet that has begun
    enables = (0, 0)
    for octets, bits in beats:
        user = rq_user().from_bits(bits)
        lanes = [octets >> 32 * n & 0xFFFF_FFFF for n in range(WORDS)]
        assert user.sop in (0, 1) and user.eop in (0, 1, 3)  # no two begin in one beat
        ends = [user.eop_ptr & 15, user.eop_ptr >> 4][: user.eop.bit_count()]
        begin = 4 * user.sop_ptr
        if words is not None:
            words += lanes[: ends[0] + 1] if ends else lanes
            if ends:
                assert ends.pop(0) < (begin if user.sop else WORDS)
                packets.append(parsed(words, enables))
                words = None
        else:
            assert user.sop and begin == 0  # neither an idle beat nor an idle half
        if user.sop:
            assert words is None and begin in (0, HALF)
            words, enables = lanes[begin:], (user.first_be & 15, user.last_be & 15)
            write = words[2] >> 11 & 15 == RequestType.MEM_WRITE
            assert (user.seq_num0 != READ) == write
            if ends:
                packets.append(parsed(words[: ends.pop(0) + 1 - begin], enables))
                words = None
        assert not ends
    assert words is None
    return packets


def parsed(words: list[int], enables: tuple[int, int]) -> Packet:
    """The request of these words, descriptor and data."""
    head = sum(word << 32 * n for n, word in enumerate(words[:HEAD]))
    found = rq_descriptor().from_bits(head)
    write = found.type == RequestType.MEM_WRITE
    assert len(words) == HEAD + (found.words if write else 0)
    octets: list[int | None] = []
    for n, word in enumerate(words[HEAD:]):
        enable = enables[0] if n == 0 else enables[1] if n == found.words - 1 else 15
        octets += [word >> 8 * i & 255 if enable >> i & 1 else None for i in range(4)]
    return Packet(write, found.addr << 2, found.words, enables, octets)


def play(
    bursts: list[Burst], block: int, *, gap: float = 0, stall: float = 0
) -> tuple[list[tuple[int, int]], int]:
    """The beats of RQ, and the cycles from the first one to the last one."""
    rng = random.Random(1)
    requests, rq = PATH.component.requests, PATH.component.requester.rq
    count = sum(1 for burst in bursts for _ in burst.packets(block))
    beats: list[tuple[int, int]] = []
    times: list[int] = []

    def feed(port, values):
        async def bench(ctx):
            valid = Pin(ctx, port.valid)
            for value in values:
                while rng.random() < gap:
                    valid.drive(0)
                    await ctx.tick()
                ctx.set(port.payload, value)
                valid.drive(1)
                await ctx.tick().until(port.ready)
            valid.drive(0)

        return bench

    async def block_of_pcie(ctx):
        ctx.set(requests.may_write, 1)
        ctx.set(requests.max_payload, (block // 128).bit_length() - 1)
        ready, ended, now = Pin(ctx, rq.ready), 0, 0
        seen = (rq.valid & rq.ready, rq.payload.data, rq.payload.user.as_value())
        while ended < count:
            ready.drive(int(rng.random() >= stall))
            _, _, taken, octets, user = await ctx.tick().sample(*seen)
            now += 1
            if taken:
                beats.append((octets, user))
                times.append(now)
                ended += rq_user().from_bits(user).eop.bit_count()

    writes = [beat for burst in bursts if burst.octets for beat in burst.beats()]
    reads = [{"addr": one.addr, "stop": one.stop % 4096} for one in bursts if not one.octets]
    simulate(
        PATH,
        feed(requests.wr, writes),
        feed(requests.piece, reads),
        block_of_pcie,
        deadline=40_000,
    )
    return beats, times[-1] - times[0] + 1


def anything(rng: random.Random, count: int) -> list[Burst]:
    """Reads and writes of all lengths at any address, none across 4 KiB."""
    bursts = []
    for _ in range(count):
        length = rng.choice([1, 4, 60, 64, 65, 200, 256, 256, 300, 512])
        page = rng.getrandbits(40) << 12
        at = rng.randrange(4096 - length + 1)
        at -= rng.choice([0, at % 4, at % 64])
        if rng.random() < 0.7:
            bursts.append(Burst(page + at, rng.randbytes(length)))
        else:
            bursts.append(Burst(page + at, stop=at + length - 1))
    return bursts


@pytest.mark.parametrize("block", [128, 256, 1024])
@pytest.mark.parametrize("gap, stall", [(0, 0), (0.3, 0), (0, 0.5), (0.2, 0.3)])
def test_requests(block, gap, stall):
    """Each packet is whole, with its own descriptor, byte enables and data, in its order."""
    bursts = anything(random.Random(block), 150)
    beats, _ = play(bursts, block, gap=gap, stall=stall)
    found = received(beats)
    for kind in (True, False):
        wanted = [one for burst in bursts if bool(burst.octets) is kind
                  for one in burst.packets(block)]  # fmt: skip
        assert [one for one in found if one.write is kind] == wanted


@pytest.mark.parametrize(
    "length, offset, beats",
    [(256, 0, 9), (512, 0, 17), (128, 0, 5), (64, 0, 3), (240, 0, 8), (48, 0, 2), (256, 8, 10)],
)
def test_writes_share_beats(length, offset, beats):
    """Two writes of whole beats leave in half a beat less each, and in no more cycles than beats.

    A write that ends behind its descriptor without another beat has none to share, nor has one at
    an odd place, whose last words come in a beat of their own."""
    pairs = 12
    bursts = [Burst(4096 * n + offset, bytes(length)) for n in range(2 * pairs)]
    got, cycles = play(bursts, 1024)
    assert len(received(got)) == 2 * pairs
    assert (len(got), cycles) == (beats * pairs, beats * pairs)


def test_a_read_shares_a_beat():
    """It begins and ends in the upper half of a write's last beat."""
    bursts = [Burst(0, bytes(256)), Burst(8192, stop=511)] * 8
    beats, _ = play(bursts, 256)
    packets = received(beats)
    assert [one.write for one in packets] == [True, False] * 8 and len(beats) == 5 * 8
