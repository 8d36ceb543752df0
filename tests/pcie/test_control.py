"""FunctionControl and ConfigExtend against a card of registers, in Amaranth's simulator."""

import random

import pytest

from hdl.abi import virtio_pci as abi
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.pcie.control import FunctionControl
from hdl.pcie.extend import FIRST_REGISTER, ConfigExtend, capability
from hdl.pcie.places import Places
from hdl.pcie_nic import places
from hdl.ports.host import BAR_CONFIG
from tests.simulate import simulate

CONFIG = NicConfig(functions=2)
MSIX = {1: 0x98, 2: 0x98}
PLACES = Places(bar=0, window=0x3000, window_bytes=256, msix=(*MSIX.values(),))
COMMAND = abi.PCI_HEADER.offset("command")
PATIENCE = 200


class Card:
    """Registers by (function, BAR, address). A function-level reset clears a function's ``words``
    after ``clears`` cycles, and is over after ``lasts`` more, if at all."""

    def __init__(self, dut, rng, functions):
        self.dut, self.rng, self.functions = dut, rng, functions
        self.words, self.log = {}, []
        self.clears, self.lasts = 10, 40

    async def serve(self, ctx):
        dut = self.dut.card
        while True:
            ctx.set(dut.req.ready, self.rng.random() < 0.5)
            offered = ctx.tick().sample(dut.req.valid & dut.req.ready, dut.req.payload)
            _, _, taken, got = await offered
            if not taken:
                continue
            ctx.set(dut.req.ready, 0)
            key = got.function, got.bar, got.addr
            self.log.append((key, got.write))
            if got.write:
                mask = sum(0xFF << 8 * n for n in range(4) if got.strb >> n & 1)
                self.words[key] = self.words.get(key, 0) & ~mask | got.data & mask
                continue
            ctx.set(dut.rsp.payload, self.words.get(key, hash(key) & 0xFFFF_FFFF))
            ctx.set(dut.rsp.valid, 1)
            await ctx.tick().until(dut.rsp.ready)
            ctx.set(dut.rsp.valid, 0)

    async def reset(self, ctx):
        """Answer the resets of the functions with a driver."""
        since = [0] * len(self.functions)
        while True:
            await ctx.tick()
            asked = ctx.get(self.dut.flr)
            for n, pf in enumerate(self.functions):
                since[n] = since[n] + 1 if asked >> n & 1 else 0
                if since[n]:
                    for key in self.words:
                        self.words[key] = 0 if key[0] == pf else self.words[key]
            clean = sum((at > self.clears) << n for n, at in enumerate(since))
            over = sum((at > self.clears + self.lasts) << n for n, at in enumerate(since))
            ctx.set(self.dut.flr_clean, clean)
            ctx.set(self.dut.flr_over, over)


async def access(ctx, dut, function, bar, addr, write=None, strb=15):
    """An access of the host; returns what a read gives."""
    request = {"function": function, "bar": bar, "addr": addr, "strb": strb}
    request |= {"write": write is not None, "data": write or 0}
    ctx.set(dut.mmio.req.payload, request)
    ctx.set(dut.mmio.req.valid, 1)
    await ctx.tick().until(dut.mmio.req.ready)
    ctx.set(dut.mmio.req.valid, 0)
    if write is None:
        ctx.set(dut.mmio.rsp.ready, 1)
        (value,) = await ctx.tick().sample(dut.mmio.rsp.payload).until(dut.mmio.rsp.valid)
        ctx.set(dut.mmio.rsp.ready, 0)
        return value
    return None


def bench(body, config=CONFIG, places=PLACES):
    dut = FunctionControl(config=config, places=places, patience=PATIENCE)
    card = Card(dut, random.Random(1), config.driven_functions)

    async def run(ctx):
        await body(ctx, dut, card)

    simulate(dut, run, background=[card.serve, card.reset], deadline=20_000)


def test_what_the_block_says_reaches_the_card():
    """Command and MSI-X of each guest function follow the block, between the host's accesses."""

    async def body(ctx, dut, card):
        rng = random.Random(2)
        for _ in range(40):
            status, enable, mask = (rng.getrandbits(bits) for bits in (16, 4, 4))
            ctx.set(dut.function_status, status)
            ctx.set(dut.msix_enable, enable)
            ctx.set(dut.msix_mask, mask)
            for n in range(rng.randint(0, 6)):
                place = (rng.choice([1, 2, 3]), 2, 4 * n)
                await access(ctx, dut, *place, write=n + 1)
                assert await access(ctx, dut, *place) == n + 1
            await ctx.tick().repeat(80)
            for pf in range(FUNCTION_RDMA, CONFIG.management_function):
                command = card.words.get((pf, BAR_CONFIG, COMMAND), 2)
                control = card.words.get((pf, BAR_CONFIG, MSIX[pf]), 0)
                bits = status >> 4 * pf
                assert command == 2 | (bits >> 2 & 1) << 2 | (bits >> 3 & 1) << 10
                assert control == (enable >> pf & 1) << 31 | (mask >> pf & 1) << 30
        functions = {key[0] for key, _ in card.log if key[1] == BAR_CONFIG}
        assert functions == {1, 2}

    bench(body)


def test_function_level_reset():
    """A guest function's reset ends with its device reset, other functions have none."""

    async def body(ctx, dut, card):
        for pf in (0, 3):
            ctx.set(dut.flr_in_process, 1 << pf)
            await ctx.tick().until(dut.flr_done[pf])
            ctx.set(dut.flr_in_process, 0)
            await ctx.tick().repeat(2)
        assert not card.log
        for count, pf in enumerate((1, 2, 1)):
            ctx.set(dut.flr_in_process, 1 << pf)
            # The host uses another function meanwhile.
            for n in range(10):
                await access(ctx, dut, 3, 0, 4 * n, write=n)
                assert ctx.get(dut.flr) == 1 << pf - FUNCTION_RDMA
            while not ctx.get(dut.flr_over):
                assert not ctx.get(dut.flr_done)
                await ctx.tick()
            await ctx.tick().until(dut.flr_done == 1 << pf)
            ctx.set(dut.flr_in_process, 0)
            await ctx.tick().repeat(50)
            assert ctx.get(dut.resets) == count + 1
            assert ctx.get(dut.flr_done) == ctx.get(dut.flr) == 0

    bench(body)


def test_a_function_level_reset_waits_only_so_long():
    """It ends when patience does, though not before the function has cleared its registers; of two
    at a time each has its own end."""

    async def body(ctx, dut, card):
        card.lasts = 1 << 30
        for clears, least in ((10, PATIENCE), (3 * PATIENCE, 3 * PATIENCE)):
            card.clears = clears
            ctx.set(dut.flr_in_process, 0b0010)
            await ctx.tick().repeat(50)
            ctx.set(dut.flr_in_process, 0b0110)
            cycles, ends = 50, {}
            while len(ends) < 2:
                await ctx.tick()
                cycles += 1
                for pf in (1, 2):
                    if ctx.get(dut.flr_done[pf]):
                        ends[pf] = cycles
                        ctx.set(dut.flr_in_process, 0b0100 if pf == 1 else 0)
            assert least < ends[1] < least + 20 and 40 < ends[2] - ends[1] < 60
            await ctx.tick().repeat(20)

    bench(body)


def test_settings_after_a_function_level_reset():
    """What the block says then reaches the function, which knows nothing any more, also if it says
    the same as before and if it was being told when the reset began."""

    async def body(ctx, dut, card):
        for wait in range(1, 40):
            ctx.set(dut.function_status, 0x0FF0)
            ctx.set(dut.msix_enable, 0b0110)
            await ctx.tick().repeat(wait)
            ctx.set(dut.flr_in_process, 0b0010)
            await ctx.tick().until(dut.flr_done[1])
            ctx.set(dut.flr_in_process, 0)
            await ctx.tick().repeat(80)
            for pf in (1, 2):
                assert card.words[pf, BAR_CONFIG, COMMAND] == 2 | 1 << 2 | 1 << 10
                assert card.words[pf, BAR_CONFIG, MSIX[pf]] == 1 << 31
            ctx.set(dut.function_status, 0)
            ctx.set(dut.msix_enable, 0)
            await ctx.tick().repeat(wait)

    bench(body)


def test_a_network_function():
    """Function 0 is served beside that of RDMA: each has its own place of MSI-X, its own reset, and
    its own window. The third function is nobody's."""
    config = NicConfig(network=2)
    msix = {1: 0x98, 0: 0x84}
    own = Places(bar=0, window=0x3000, window_bytes=256, msix=(*msix.values(),))

    async def body(ctx, dut, card):
        ctx.set(dut.function_status, 0xF4C)
        ctx.set(dut.msix_enable, 0b101)
        ctx.set(dut.msix_mask, 0b111)
        await ctx.tick().repeat(120)
        for pf, master, enable in ((0, 3, 1), (1, 1, 0)):
            command = 2 | (master & 1) << 2 | (master >> 1) << 10
            assert card.words[pf, BAR_CONFIG, COMMAND] == command
            assert card.words[pf, BAR_CONFIG, msix[pf]] == enable << 31 | 1 << 30
        assert {key[0] for key, _ in card.log} == {0, 1}
        for count, (pf, bit) in enumerate(((0, 2), (1, 1), (0, 2))):
            ctx.set(dut.flr_in_process, 1 << pf)
            await ctx.tick().until(dut.flr != 0)
            assert ctx.get(dut.flr) == bit
            await ctx.tick().until(dut.flr_done == 1 << pf)
            ctx.set(dut.flr_in_process, 0)
            await ctx.tick().repeat(120)
            assert ctx.get(dut.resets) == count + 1
            assert card.words[pf, BAR_CONFIG, msix[pf]] >> 30 == 3 - 2 * pf
        for pf in range(3):
            card.log.clear()
            await access(ctx, dut, pf, 0, 0x3034)
            assert card.log == [((pf, BAR_CONFIG, 0x34) if pf < 2 else (pf, 0, 0x3034), 0)]

    bench(body, config, own)


def test_window():
    """The card's configuration space is readable in BAR 0 of a guest function, and only there."""

    async def body(ctx, dut, card):
        for pf in range(4):
            for addr in (0x2FFC, 0x3000, 0x3034, 0x30FC, 0x3100):
                inside = pf in (1, 2) and addr >> 8 == 0x30
                card.log.clear()
                card.words[pf, BAR_CONFIG, addr & 0xFF] = 1000 * pf + (addr & 0xFF)
                value = await access(ctx, dut, pf, 0, addr)
                place = (pf, BAR_CONFIG, addr & 0xFF) if inside else (pf, 0, addr)
                assert card.log == [(place, 0)]
                assert not inside or value == 1000 * pf + (addr & 0xFF)
                await access(ctx, dut, pf, 0, addr, write=7)
                await ctx.tick().repeat(5)
                assert not inside or card.words[place] == 1000 * pf + (addr & 0xFF)

    bench(body)


def test_capability():
    """The 16 bytes are those of the guest functions, and say where the window is."""
    dut = ConfigExtend(config=CONFIG, places=PLACES)

    async def body(ctx):
        for function in range(4):
            octets = b""
            for register in range(FIRST_REGISTER - 2, FIRST_REGISTER + 6):
                ctx.set(dut.function_number, function)
                ctx.set(dut.register_number, register)
                ctx.set(dut.read_received, 1)
                await ctx.tick()
                ctx.set(dut.read_received, 0)
                if ctx.get(dut.read_data_valid):
                    octets += ctx.get(dut.read_data).to_bytes(4, "little")
                await ctx.tick()
                assert not ctx.get(dut.read_data_valid)
            assert octets == (capability(PLACES) if function in (1, 2) else b"")
        cap = abi.VIRTIO_PCI_CAP.unpack(capability(PLACES))
        assert (cap.cap_vndr, cap.cap_next, cap.cap_len) == (9, 0, 16)
        assert (cap.cfg_type, cap.bar, cap.offset, cap.length) == (0xF0, 0, 0x3000, 256)

    simulate(dut, body)


def test_bad_parameters():
    with pytest.raises(ValueError, match="The block has 4 functions: not 3 guests"):
        FunctionControl(config=NicConfig(functions=3), places=PLACES, patience=1)
    with pytest.raises(ValueError, match="Places must be of 2 functions, not 1"):
        FunctionControl(config=NicConfig(network=1), places=places(NicConfig()), patience=1)
    with pytest.raises(ValueError, match="A window of 256 bytes cannot be at 0x3080"):
        Places(bar=0, window=0x3080, window_bytes=256, msix=())
