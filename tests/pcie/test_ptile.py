"""Headers, reads in flight, settings and virtio's window of P-Tile, in Amaranth's simulator."""

import random
from dataclasses import replace

import pytest
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

from hdl.config import NicConfig
from hdl.pcie.descriptors import RequestType
from hdl.pcie.progress import Progress
from hdl.pcie.ptile.host import PTileHost
from hdl.pcie.ptile.reads import MOST_BLOCKS, ReadsInFlight
from hdl.pcie.ptile.route import Route
from hdl.pcie.ptile.settings import Settings
from hdl.pcie.ptile.window import ConfigWindow
from tests.simulate import simulate

#: The highest bit of the type, which makes a message of a request of memory.
MESSAGE = 1 << 124


def header_of(tlp):
    """The header as the stream has it."""
    bits = int.from_bytes(tlp.pack_header().ljust(16, b"\0"), "big")
    return bits | (MESSAGE if getattr(tlp, "message", False) else 0)


def host_request(rng):
    """A request or a completion of the host, and what becomes of it."""
    tlp = Tlp()
    tlp.fmt_type = rng.choice(
        [TlpType.MEM_READ, TlpType.MEM_READ_64, TlpType.MEM_WRITE, TlpType.MEM_WRITE_64,
         TlpType.IO_READ, TlpType.CPL_DATA]
    )  # fmt: skip
    tlp.length = rng.choice([1, 1, 1, 2, 20])
    wide = tlp.fmt_type in (TlpType.MEM_READ_64, TlpType.MEM_WRITE_64)
    tlp.address = rng.getrandbits(64 if wide else 32) & ~3
    tlp.requester_id = PcieId(rng.randrange(256), rng.randrange(32), rng.randrange(8))
    tlp.tag, tlp.first_be = rng.randrange(256), rng.randrange(1, 16)
    tlp.last_be = 0 if tlp.length == 1 else 15
    tlp.ep = rng.random() < 0.2
    tlp.message = tlp.fmt_type == TlpType.MEM_WRITE_64 and rng.random() < 0.4
    return tlp


def test_route():
    """Completions go one way, requests the other, with their BAR's offset and first word."""
    rng = random.Random(1)
    sent = [host_request(rng) for _ in range(150)]
    facts = [(rng.choice([(1, 0), (1, 2), (3, 0)]), rng.getrandbits(32)) for _ in sent]
    sizes = {(1, 0): 16, (1, 2): 12, (3, 0): 20}
    dut, requests, completions = Route(bars=sizes), [], []

    async def block(ctx):
        for tlp, ((function, bar), word) in zip(sent, facts, strict=True):
            beats = -(-tlp.length // 16) if tlp.has_data() else 1
            for n in range(beats):
                ctx.set(dut.i.payload, {
                    "data": word if n == 0 else rng.getrandbits(512), "header": header_of(tlp),
                    "function": function, "bar": bar, "first": n == 0, "last": n == beats - 1,
                })  # fmt: skip
                ctx.set(dut.i.valid, 1)
                await ctx.tick().until(dut.i.ready)
                ctx.set(dut.i.valid, 0)

    async def registers(ctx):
        ctx.set(dut.completions.ready, 1)
        idle = 0
        while idle < 40:
            ctx.set(dut.requests.ready, rng.random() < 0.5)
            _, _, *got = await ctx.tick().sample(
                dut.requests.valid & dut.requests.ready, dut.requests.payload,
                dut.completions.valid & dut.completions.p.last, dut.completions.p.head,
            )  # fmt: skip
            idle = 0 if got[0] or got[2] else idle + 1
            if got[0]:
                requests.append(got[1])
            if got[2]:
                completions.append(got[3])

    simulate(dut, block, registers, deadline=20_000)
    asked = [(t, f) for t, f in zip(sent, facts, strict=True) if t.fmt_type != TlpType.CPL_DATA]
    assert len(asked) == len(requests) and len(completions) == len(sent) - len(asked)
    for (tlp, ((function, bar), word)), got in zip(asked, requests, strict=True):
        head = got.data
        assert head >> 2 & (1 << 62) - 1 == tlp.address >> 2
        kind = head >> 75 & 15
        memory = {TlpType.MEM_READ, TlpType.MEM_READ_64, TlpType.MEM_WRITE, TlpType.MEM_WRITE_64}
        write, known = tlp.has_data(), tlp.fmt_type in memory
        if known and not (write and (tlp.ep or tlp.message)):
            assert kind == (RequestType.MEM_WRITE if write else RequestType.MEM_READ)
        else:
            assert (kind >= RequestType.MSG) == known and kind > RequestType.MEM_WRITE
        assert (head >> 96 & 255, head >> 104 & 255, head >> 112 & 7) == (tlp.tag, function, bar)
        assert head >> 115 & 63 == sizes[function, bar]
        assert (head >> 128 & 0xFFFF_FFFF) == word
        assert (got.user.first_be, got.user.last_be) == (tlp.first_be, tlp.last_be)


def test_completion_headers():
    """Each kind of completion by its header: the last one, a part, refused, without data, too
    long."""
    request = Tlp()
    request.fmt_type, request.length, request.first_be, request.last_be = TlpType.MEM_READ, 8, 12, 3
    request.address, request.tag = 0x1234, 77

    def made(words, count, low, status=CplStatus.SC, kind=TlpType.CPL_DATA):
        tlp = Tlp()
        tlp.fmt_type, tlp.length, tlp.byte_count, tlp.lower_address = kind, words, count, low
        tlp.status, tlp.tag, tlp.requester_id = status, 77, PcieId(1, 0, 1)
        return tlp

    cases = [  # words, byte count, lowest address -> completed, error, words that are told
        (made(8, 28, 0x36), True, 0, 8),
        (made(4, 28, 0x36), False, 0, 4),
        (made(1024, 4096, 0), True, 0, 1024),
        (made(0, 28, 0, CplStatus.UR, TlpType.CPL), True, 0, 0),
        (made(0, 28, 0, CplStatus.SC, TlpType.CPL), False, 3, 0),
        (made(9, 28, 0x36), True, 3, 9),
    ]
    dut = Route(bars={})

    async def bench(ctx):
        for tlp, completed, error, words in cases:
            ctx.set(dut.i.payload, {"header": header_of(tlp), "first": 1, "last": 1})
            ctx.set(dut.i.valid, 1)
            await ctx.delay(1e-8)
            assert ctx.get(dut.completions.valid) and not ctx.get(dut.requests.valid)
            head = ctx.get(dut.completions.p.head)
            assert (head.completed, head.error, head.words) == (completed, error, words)
            assert (head.tag, head.status) == (77, int(tlp.status))
            assert head.byte_count == tlp.byte_count and head.lower_addr == tlp.lower_address

    simulate(dut, bench)


def test_reads_in_flight():
    """No more blocks are asked for than the buffer has room for."""
    config = NicConfig(width=512, read_tags=256, read_bytes=512)
    dut = ReadsInFlight(config=config)

    async def bench(ctx):
        rng, flying, used, full = random.Random(1), {}, 0, 0
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.may_ask, 1)
        for _ in range(3000):
            free = [tag for tag in range(256) if tag not in flying]
            tag = rng.choice(free) if free else None
            start = rng.randrange(4096)
            stop = rng.randint(start, min(4095, start + 511))
            ctx.set(dut.i.payload, {"tag": tag or 0, "addr": start, "stop": stop, "function": 1})
            ctx.set(dut.i.valid, tag is not None)
            over = rng.random() < 0.3 and flying
            one = rng.choice([*flying]) if over else 0
            ctx.set(dut.tag, one)
            ctx.set(dut.end, bool(over))
            _, _, taken, asked = await ctx.tick().sample(dut.i.valid & dut.i.ready, dut.asks)
            assert asked == taken
            if over:
                used -= flying.pop(one)
            if taken:
                flying[tag] = stop // 64 - start // 64 + 1
                used += flying[tag]
            assert used <= MOST_BLOCKS
            full += tag is not None and not taken
        assert full > 10  # the limit was reached

    simulate(dut, bench, deadline=10_000)


def test_progress():
    """What is left of each tag's piece, whatever was left when the tag was used last."""
    dut = Progress(tags=16)

    async def bench(ctx):
        rng, known = random.Random(1), {}
        for _ in range(3000):
            tag, start = rng.randrange(16), rng.randrange(4096)
            stop = rng.randint(start, min(4095, start + 511))
            begins = rng.random() < 0.4
            ctx.set(dut.begins.payload, {"tag": tag, "addr": start, "stop": stop})
            ctx.set(dut.begins.valid, begins)
            one = rng.choice([other for other in range(16) if other != tag])
            moves = one in known and rng.random() < 0.5
            if moves:
                ctx.set(dut.tag, one)
                await ctx.delay(1e-8)
                at, end = known[one]
                known_rest = ctx.get(dut.at)
                left = known_rest.latest if known_rest.moved else known_rest.first
                assert (left.low, left.bytes) == (at % 128, end - at)
                at = min(end, (at // 64 + rng.randint(1, 16)) * 64)
                rest = {"low": at % 128, "bytes": end - at}
                ctx.set(dut.moved.payload, {"tag": one, "rest": rest})
                known[one] = at, end
            ctx.set(dut.moved.valid, moves)
            await ctx.tick()
            if begins:
                known[tag] = start, stop + 1

    simulate(dut, bench, deadline=10_000)


def test_settings():
    """What P-Tile tells of each function; sizes are the least of the guests'."""
    dut = Settings(config=NicConfig(functions=2))

    async def bench(ctx):
        rng = random.Random(1)
        for _ in range(50):
            bus, device = rng.getrandbits(8), rng.getrandbits(5)
            sizes = {n: (rng.randrange(4), rng.randrange(4)) for n in range(4)}
            bits = {n: [rng.getrandbits(1) for _ in range(5)] for n in range(4)}
            for n in range(4):
                master, extended, intx, enable, mask = bits[n]
                payload, read = sizes[n]
                words = {
                    0: payload | read << 3 | extended << 6 | master << 7 | rng.getrandbits(8) << 8,
                    1: bus | device << 8,
                    2: intx << 13 | rng.getrandbits(13),
                    0xC: enable << 5 | mask << 6 | rng.getrandbits(5),
                    0xD: rng.getrandbits(16),
                }
                for address, word in words.items():
                    ctx.set(dut.tl_cfg_func, n)
                    ctx.set(dut.tl_cfg_add, address)
                    ctx.set(dut.tl_cfg_ctl, word)
                    await ctx.tick()
            await ctx.tick().repeat(2)
            for n, (master, _, intx, enable, mask) in bits.items():
                who = ctx.get(getattr(dut, f"identity{n}"))
                assert (who.bus, who.device, who.function) == (bus, device, n)
                assert ctx.get(dut.may_ask[n]) == master
                assert ctx.get(dut.function_status) >> 4 * n & 15 == master << 2 | intx << 3
                assert ctx.get(dut.msix_enable[n]) == enable and ctx.get(dut.msix_mask[n]) == mask
            assert ctx.get(dut.max_payload) == min(sizes[1][0], sizes[2][0])
            assert ctx.get(dut.max_read) == min(sizes[1][1], sizes[2][1])
            assert ctx.get(dut.extended_tags) == sum(bits[n][1] << n for n in range(4))

    simulate(dut, bench)


def test_window():
    """An access of virtio comes between those of the host; a bad one reaches no register."""
    dut = ConfigWindow()
    log = []

    async def card(ctx):
        while True:
            ctx.set(dut.card.req.ready, 1)
            (req,) = await ctx.tick().sample(dut.card.req.payload).until(dut.card.req.valid)
            ctx.set(dut.card.req.ready, 0)
            log.append((req.function, req.bar, req.addr, req.write, req.strb, req.data))
            if not req.write:
                await ctx.tick().repeat(3)
                ctx.set(dut.card.rsp.payload, 0x44332211)
                ctx.set(dut.card.rsp.valid, 1)
                await ctx.tick().until(dut.card.rsp.ready)
                ctx.set(dut.card.rsp.valid, 0)

    async def bench(ctx):
        async def access(bar, offset, length, value=None, vf=0):
            pins = {"pfnum": 1, "bar": bar, "baroffset": offset, "length": length, "vfaccess": vf}
            for name, one in (pins | {"cfgdata": value or 0}).items():
                ctx.set(getattr(dut, f"virtio_pcicfg_{name}"), one)
            strobe = dut.virtio_pcicfg_cfgrd if value is None else dut.virtio_pcicfg_cfgwr
            ctx.set(strobe, 1)
            await ctx.tick()
            ctx.set(strobe, 0)
            if value is None:
                got = (await ctx.tick().sample(dut.virtio_pcicfg_data, dut.virtio_pcicfg_rdbe)
                       .until(dut.virtio_pcicfg_rdack))  # fmt: skip
                return got
            await ctx.tick().repeat(8)
            return None

        assert await access(0, 0x14, 4) == (0x44332211, 15)
        data, enables = await access(0, 0x16, 2)
        assert (data & 0xFFFF, enables) == (0x4433, 3)
        data, enables = await access(2, 0x17, 1)
        assert (data & 0xFF, enables) == (0x44, 1)
        await access(0, 0x16, 2, 0xABCD)
        assert log == [
            (1, 0, 0x14, 0, 15, 0), (1, 0, 0x14, 0, 12, 0), (1, 2, 0x14, 0, 8, 0),
            (1, 0, 0x14, 1, 12, 0xABCD0000),
        ]  # fmt: skip
        log.clear()
        for bar, offset, length, vf in ((0, 1, 2, 0), (0, 2, 4, 0), (0, 0, 3, 0), (0, 0, 0, 0),
                                        (6, 0, 4, 0), (0, 0, 4, 1)):  # fmt: skip
            assert (await access(bar, offset, length, vf=vf))[0] == 0
            await access(bar, offset, length, 1, vf=vf)
        assert not log
        # The host is in the middle of a read when virtio writes.
        ctx.set(dut.mmio.req.payload, {"function": 3, "addr": 8})
        ctx.set(dut.mmio.req.valid, 1)
        await ctx.tick().until(dut.mmio.req.ready)
        ctx.set(dut.mmio.req.valid, 0)
        await access(0, 0, 1, 7)
        assert len(log) == 1
        ctx.set(dut.mmio.rsp.ready, 1)
        await ctx.tick().until(dut.mmio.rsp.valid)
        await ctx.tick().repeat(8)
        assert [one[:2] + one[3:4] for one in log] == [(3, 0, 0), (1, 0, 1)]

    simulate(dut, bench, background=(card,))


def test_bad_parameters():
    config = replace(NicConfig(), width=64)
    with pytest.raises(ValueError, match="Width must be 512 bits, not 64"):
        PTileHost(config=config, bars={})
