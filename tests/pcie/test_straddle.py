"""RC with straddle against a plain model, in Amaranth's simulator."""

import random
from dataclasses import dataclass, field

import pytest

from hdl.pcie.bus import packet_beat
from hdl.pcie.descriptors import rc_descriptor, rc_user
from hdl.pcie.straddle import Unstraddle
from tests.simulate import Prepared, simulate

QUARTERS, WORDS = 4, 16
HEAD_BITS = rc_descriptor().size
UNSTRADDLE = Prepared(Unstraddle())


@dataclass(eq=False)
class Packet:
    """A completion; ``abort``: a beat that it has a part of is discontinued."""

    head: int
    data: list[int]
    abort: int = 0

    @property
    def words(self) -> list[int]:
        """The descriptor's and the data's."""
        return [self.head >> 32 * n & 0xFFFF_FFFF for n in range(HEAD_BITS // 32)] + self.data

    @property
    def chunks(self) -> list[list[int]]:
        """The data of each beat that comes out."""
        return [self.data[n : n + WORDS] for n in range(0, max(1, len(self.data)), WORDS)]


@dataclass
class Beat:
    """A beat of the block; ``parts``: the packets that it has a part of."""

    words: list[int] = field(default_factory=lambda: [0] * WORDS)
    sop: list[int] = field(default_factory=list)
    eop: list[int] = field(default_factory=list)
    parts: list[Packet] = field(default_factory=list)
    discontinue: int = 0

    def payload(self) -> dict:
        user = {
            "sop": (1 << len(self.sop)) - 1,
            "sop_ptr": sum(quarter << 2 * n for n, quarter in enumerate(self.sop)),
            "eop": (1 << len(self.eop)) - 1,
            "eop_ptr": sum(word << 4 * n for n, word in enumerate(self.eop)),
            "discontinue": self.discontinue,
        }
        octets = sum(word << 32 * n for n, word in enumerate(self.words))
        return packet_beat(rc_user()).const({"data": octets, "user": user})


def straddled(packets, rng, gap) -> list[Beat]:
    """The packets one behind the other, with idle quarters before some."""
    beats, quarter = [Beat()], 0
    for packet in packets:
        while rng.random() < gap:
            quarter += 1
        for n, word in enumerate(packet.words):
            at = quarter + n // 4
            while at // QUARTERS >= len(beats):
                beats.append(Beat(words=[rng.getrandbits(32) for _ in range(WORDS)]))
            beat = beats[at // QUARTERS]
            beat.words[at % QUARTERS * 4 + n % 4] = word
            if n == 0:
                beat.sop.append(at % QUARTERS)
            if packet not in beat.parts:
                beat.parts.append(packet)
        beat.eop.append(at % QUARTERS * 4 + n % 4)
        quarter = at + 1
    return beats


def random_packets(rng, count, sizes) -> list[Packet]:
    return [
        Packet(rng.getrandbits(HEAD_BITS), [rng.getrandbits(32) for _ in range(rng.choice(sizes))])
        for _ in range(count)
    ]


def play(packets, beats, rng, *, idle=0.0, stall=0.0) -> list[int]:
    """Compare what comes out with ``packets``; returns the cycles with a beat."""
    dut, cycles = UNSTRADDLE.component, []
    wanted = [
        (packet, chunk, n == len(packet.chunks) - 1)
        for packet in packets
        for n, chunk in enumerate(packet.chunks)
    ]

    async def block(ctx):
        for beat in beats:
            while rng.random() < idle:
                await ctx.tick()
            ctx.set(dut.i.payload, beat.payload())
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

    async def user(ctx):
        first, cycle = True, 0
        for packet, chunk, last in wanted:
            while True:
                ctx.set(dut.o.ready, rng.random() >= stall)
                sampled = ctx.tick().sample(dut.o.payload, dut.o.valid, dut.o.ready)
                *_, found, valid, ready = await sampled
                cycle += 1
                if valid and ready:
                    break
            cycles.append(cycle)
            octets = int(found.data)
            assert [octets >> 32 * n & 0xFFFF_FFFF for n in range(len(chunk))] == chunk
            assert found.last == last
            if first:
                assert found.head.as_value().value == packet.head
            if last:
                assert found.abort == packet.abort
            first = last
        ctx.set(dut.o.ready, 1)
        for _ in range(20):
            *_, valid = await ctx.tick().sample(dut.o.valid)
            assert not valid, "more than all"

    simulate(UNSTRADDLE, user, block, deadline=20_000)
    return cycles


@pytest.mark.parametrize("gap", [0, 0.5, 0.9])
@pytest.mark.parametrize("idle, stall", [(0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3)])
def test_any_packets(gap, idle, stall):
    """Descriptors alone, data that end in each word, one to four packets in a beat."""
    rng = random.Random(1)
    packets = random_packets(rng, 150, [0, 1, 1, 1, 1, 1, 2, 3, 4, 5, 13, 16, 17, 29, 30, 80])
    beats = straddled(packets, rng, gap)
    for beat in beats:
        if rng.random() < 0.1:
            beat.discontinue = 1
            for packet in beat.parts:
                packet.abort = 1
    assert {len(beat.sop) for beat in beats} == set(range(5)) or gap
    play(packets, beats, rng, idle=idle, stall=stall)


@pytest.mark.parametrize("size", [16, 64, 128, 256])
def test_straddle_costs_nothing(size):
    """Packets of whole beats of data: each cycle takes a beat of the block."""
    rng = random.Random(2)
    packets = random_packets(rng, 60, [size])
    beats = straddled(packets, rng, gap=0)
    cycles = play(packets, beats, rng)
    assert cycles[-1] - cycles[0] <= len(beats) + 1


def test_packets_of_one_quarter():
    """Four of them in each beat take four cycles."""
    rng = random.Random(3)
    packets = random_packets(rng, 80, [1])
    cycles = play(packets, straddled(packets, rng, gap=0), rng)
    assert cycles[-1] - cycles[0] == 79


def test_without_straddle():
    """Each packet begins with a beat: as many cycles as beats."""
    rng = random.Random(4)
    packets = random_packets(rng, 60, [1, 5, 14, 16, 64])
    beats = [beat for packet in packets for beat in straddled([packet], rng, gap=0)]
    cycles = play(packets, beats, rng)
    assert cycles[-1] - cycles[0] <= len(beats)
