"""P-Tile's streams and the link partner's credits against plain models, in Amaranth's simulator."""

import random

import pytest
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

from hdl.pcie.descriptors import CompletionStatus
from hdl.pcie.ptile.bus import RX_LATENCY, SEGMENT, TX_LATENCY
from hdl.pcie.ptile.credits import Credits
from hdl.pcie.ptile.receive import Receive
from hdl.pcie.ptile.transmit import Transmit
from tests.simulate import simulate

HEADER = 128


def beats_of(packets, rng, gaps):
    """Beats of P-Tile with two segments each; a packet is (header, segments)."""
    segments = [
        (header, data, n == 0, n == len(parts) - 1)
        for header, parts in packets
        for n, data in enumerate(parts)
    ]
    while segments:
        beat = [segments.pop(0)]
        ends = beat[0][3]
        if segments and (not ends or rng.random() >= gaps):
            beat.append(segments.pop(0))
        yield beat
        while rng.random() < gaps and ends:
            yield []


@pytest.mark.parametrize("gaps", [0, 0.4])
@pytest.mark.parametrize("stall", [0, 0.6])
def test_receive(gaps, stall):
    """Packets of one to nine segments, two in a beat or not, held or not: each begins in lane 0."""
    rng = random.Random(1)
    packets = [
        (rng.getrandbits(HEADER), [rng.getrandbits(SEGMENT) for _ in range(n)])
        for n in rng.choices([1, 2, 3, 9], k=120)
    ]
    dut, got = Receive(), []

    async def block(ctx):
        """Gives a beat when ready was there RX_LATENCY cycles ago."""
        ready = [0] * RX_LATENCY
        for beat in beats_of(packets, rng, gaps):
            while True:
                ready.append(ctx.get(dut.rx_st_ready))
                if ready.pop(0):
                    break
                ctx.set(dut.rx_st_valid, 0)
                await ctx.tick()
            for name, width, field in (("data", SEGMENT, 1), ("hdr", HEADER, 0), ("sop", 1, 2),
                                       ("eop", 1, 3)):  # fmt: skip
                value = sum(one[field] << width * n for n, one in enumerate(beat))
                ctx.set(getattr(dut, f"rx_st_{name}"), value)
            ctx.set(dut.rx_st_valid, (1 << len(beat)) - 1)
            await ctx.tick()
        ctx.set(dut.rx_st_valid, 0)

    async def user(ctx):
        while len(got) < len(packets):
            packet = []
            while not packet or not packet[-1].last:
                ctx.set(dut.o.ready, rng.random() >= stall)
                _, _, taken, beat = await ctx.tick().sample(
                    dut.o.valid & dut.o.ready, dut.o.payload
                )
                if taken:
                    assert beat.first == (not packet)
                    packet.append(beat)
            got.append(
                (packet[0].header, sum(b.data << 512 * n for n, b in enumerate(packet)), packet)
            )

    simulate(dut, block, user, deadline=20_000)
    for (header, parts), (seen, data, beats) in zip(packets, got, strict=True):
        assert seen == header and len(beats) == (len(parts) + 1) // 2
        expected = sum(part << SEGMENT * n for n, part in enumerate(parts))
        assert data % (1 << SEGMENT * len(parts)) == expected


def requests(rng, count):
    """Requests of the card as (beats of ``Requests``, the packet's header and words)."""
    for _ in range(count):
        write = rng.random() < 0.6
        words = rng.choice([1, 3, 8, 9, 16, 64]) if write else rng.randint(1, 128)
        addr = rng.choice([rng.getrandbits(30), rng.getrandbits(62)])
        head = {"addr": addr, "words": words, "type": int(write), "requester": 1, "tag": 5}
        data = [rng.getrandbits(32) for _ in range(words if write else 0)]
        side = {"head": head, "sequence": {"write": write}, "first_be": 15, "last_be": 3,
                "end": (words - 1) % 16}  # fmt: skip
        beats = max(1, -(-len(data) // 16))
        yield head, data, [
            {"data": sum(word << 32 * i for i, word in enumerate(data[16 * n :][:16])),
             "side": side, "first": n == 0, "last": n == beats - 1}
            for n in range(beats)
        ]  # fmt: skip


@pytest.mark.parametrize("busy", [0.3, 1])
def test_transmit(busy):
    """Packets are whole and without gaps, in cycles that are given, as far as credits go."""
    rng = random.Random(1)
    sent, packets, limits = list(requests(rng, 80)), [], {0: 10, 4: 60}
    spent = {0: 0, 4: 0}
    dut = Transmit()

    async def card(ctx):
        ctx.set(dut.may_write, 1)
        ctx.set(dut.who, {"bus": 7, "device": 3, "function": 1})
        for _, _, beats in sent:
            for beat in beats:
                while rng.random() >= busy:
                    await ctx.tick()
                ctx.set(dut.requests.payload, beat)
                ctx.set(dut.requests.valid, 1)
                await ctx.tick().until(dut.requests.ready)
                ctx.set(dut.requests.valid, 0)

    async def block(ctx):
        ready, packet = [0] * TX_LATENCY, None
        while len(packets) < len(sent):
            now = rng.random() < 0.7
            index = rng.choice([0, 4])
            limits[index] += rng.randint(0, 1 if index == 0 else 12)
            if limits[index] - spent[index] > 60:
                limits[index] = spent[index] + 60
            ctx.set(dut.tx_cdts_limit, limits[index])
            ctx.set(dut.tx_cdts_limit_tdm_idx, index)
            ctx.set(dut.tx_st_ready, now)
            _, _, valid, sop, eop, header, data = await ctx.tick().sample(
                dut.tx_st_valid, dut.tx_st_sop, dut.tx_st_eop, dut.tx_st_hdr, dut.tx_st_data
            )
            ready.append(now)
            given = ready.pop(0)
            assert given or not valid
            assert valid or not (given and packet)  # no gap
            if not valid:
                continue
            if packet is None:
                assert sop == 1
                packet = (header % (1 << HEADER), [])
            packet[1].append(data)
            if eop:
                assert eop == (2 if valid == 3 else 1)
                packets.append(packet)
                words = packet[0] >> 96 & 0x3FF
                if packet[0] >> 126 & 1:
                    spent[0], spent[4] = spent[0] + 1, spent[4] + (words + 3) // 4
                    assert spent[0] <= limits[0] and spent[4] <= limits[4]
                packet = None

    async def in_line(ctx):
        """A write is done when its last beat is in line, where no answer can overtake it."""
        while True:
            _, _, valid, ready, beat, done = await ctx.tick().sample(
                dut.requests.valid, dut.requests.ready, dut.requests.payload, dut.done
            )
            assert done == (valid and ready and beat.last and beat.side.sequence.write)

    simulate(dut, card, block, deadline=20_000, background=(in_line,))
    for (head, data, _), (header, beats) in zip(sent, packets, strict=True):
        tlp = Tlp.unpack_header(header.to_bytes(16, "big"))
        assert tlp.address == head["addr"] << 2 and tlp.length == head["words"]
        assert (tlp.requester_id, tlp.tag) == (PcieId(7, 3, 1), 5)
        assert tlp.has_data() == bool(data) and (tlp.first_be, tlp.last_be) == (15, 3)
        words = [beat >> 32 * i & 0xFFFF_FFFF for beat in beats for i in range(16)]
        assert words[: len(data)] == data


def test_completions_do_not_wait_for_requests():
    """Without posted credits an answer goes into line, and counts its own credits."""
    dut = Transmit()
    descriptor = {"lower": 0x24, "status": int(CompletionStatus.SC)}

    async def bench(ctx):
        head = {"byte_count": 4, "words": 1, "requester": 0xBEEF, "tag": 9, "function": 2}
        head["lower_addr"] = descriptor["lower"]
        ctx.set(dut.completions.payload, {"head": head, "data": 0xCAFE, "words": 1})
        ctx.set(dut.completer, {"bus": 7, "device": 0, "function": 2})
        ctx.set(dut.tx_st_ready, 1)
        for index in (2, 6):  # one credit of each
            ctx.set(dut.tx_cdts_limit, 1)
            ctx.set(dut.tx_cdts_limit_tdm_idx, index)
            await ctx.tick()
        await ctx.tick().repeat(2)
        ctx.set(dut.completions.valid, 1)
        await ctx.tick().until(dut.completions.ready)
        await ctx.tick().until(dut.tx_st_valid == 1)
        header = ctx.get(dut.tx_st_hdr) % (1 << HEADER)
        ctx.set(dut.completions.valid, 1)
        for _ in range(20):  # the second has no credit
            await ctx.tick()
            assert not ctx.get(dut.completions.ready) and not ctx.get(dut.tx_st_valid)
        tlp = Tlp.unpack_header(header.to_bytes(16, "big"))
        assert tlp.fmt_type == TlpType.CPL_DATA and tlp.length == 1
        assert (tlp.tag, tlp.requester_id) == (9, PcieId.from_int(0xBEEF))
        assert (tlp.completer_id, tlp.byte_count) == (PcieId(7, 0, 2), 4)
        assert tlp.lower_address == 0x24 and tlp.status == CplStatus.SC

    simulate(dut, bench)


def test_credits():
    """Credits are enough if the limit, modulo its size, leaves as many; 0 for ever is infinite."""
    dut = Credits(index=4, bits=12, most=64)

    async def bench(ctx):
        rng, limit, spent = random.Random(1), 0, 0
        ctx.set(dut.index, 4)
        ctx.set(dut.need, 64)
        ctx.set(dut.asks, 1)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.enough)
        limit = 100
        for _ in range(3000):
            limit += rng.randint(0, 40) if limit - spent < 1000 else 0
            ctx.set(dut.index, 4)
            ctx.set(dut.limit, limit % 4096)
            await ctx.tick()
            ctx.set(dut.index, rng.choice([0, 1, 5]))
            ctx.set(dut.limit, rng.getrandbits(16))
            need = rng.randint(1, 64)
            ctx.set(dut.need, need)
            await ctx.tick().repeat(2)
            # As often as there are enough, in every other cycle.
            for _ in range(6):
                if ctx.get(dut.enough):
                    spent += need
                    assert spent <= limit
                    ctx.set(dut.spend, 1)
                    await ctx.tick()
                    ctx.set(dut.spend, 0)
                    assert not ctx.get(dut.enough)
                else:
                    assert need > limit - spent
                await ctx.tick()
        assert limit > 3 * 4096

    simulate(dut, bench, deadline=60_000)
