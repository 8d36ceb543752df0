"""Completions that come after their reads were given up, and what the host allows each function.

What the host does here, PCI Express allows: it may answer as late as it likes, in as many parts as
it likes. Whatever it does, no read may ever return other bytes than its own without an error.
"""

import cocotb
from cocotb.triggers import RisingEdge
from cocotbext.pcie.core.tlp import Tlp
from cocotbext.pcie.xilinx.us.tlp import ErrorCode

from tests.pcie.bench_pcie import FUNCTION, PTILE, SIZE, Bench

PAGE = 4096
TAGS = 64


class Late(Bench):
    """A host that holds back completions."""

    async def start(self, cycles=900_000):
        await super().start(cycles)
        self.held = []
        self.rc.split_on_all_rcb = True
        await self.sizes(256, 512)

    def count(self, name):
        return int(getattr(self.dut, f"nic0_{name}").value)

    def in_quarantine(self):
        return self.count("tags_quarantined") - self.count("tags_returned")

    def hold(self, chosen=lambda tlp, asked: True):
        """Hold back the completions that ``chosen`` says, until they are released."""

        def change(tlp):
            if chosen(tlp, self.link.asked[tlp.tag]):
                self.held.append(tlp)
                return None
            return tlp

        self.link.change = change

    def let_pass(self):
        self.link.change = lambda tlp: tlp

    async def release(self):
        """What was held back comes now, in its order, and what comes behind it as well."""
        while self.held:
            await self.give(self.held.pop(0))
        self.let_pass()

    async def give(self, tlp):
        """A completion comes, not faster than the block takes them."""
        await self.link.deliver(tlp)
        await self.cycles(6)

    def page(self, n):
        return self.base + PAGE * n

    async def fill(self, at, count=2 * TAGS + 8, length=256):
        """Use each tag several times, at the same place of other pages, and compare all data."""
        for n in range(count):
            place = self.page(1 + n % (SIZE // PAGE - 1)) + at
            self.readers[n % len(self.readers)].read(place, length)

    def parts(self, at, length):
        """How many completions the host makes of a read."""
        return (at + length - 1) // 64 - at // 64 + 1


@cocotb.test()
async def a_late_completion_is_nobodys(dut):
    """Completions of a read that was given up come at every place of the traffic behind it, whole
    or from any part on, also of a read that is asked for in pieces: each later read has its own
    bytes, and the tag comes back when the late completions have come whole."""
    bench = Late(dut)
    await bench.start()
    rng, lost = bench.rng, 0
    for at, length, read in (
        (0, 64, 512),
        (192, 256, 512),
        (68, 200, 512),
        (0, 512, 512),
        (0, 512, 128),
        (68, 400, 256),
    ):
        await bench.sizes(256, read)
        for first in {0, bench.parts(at, length) // 2, bench.parts(at, length) - 1}:
            seen = 0

            def some(tlp, asked, first=first):
                nonlocal seen
                seen += 1
                return seen > first

            bench.hold(some)
            bench.readers[0].read(bench.page(0) + at, length)
            await bench.finish()
            bench.check(bad=lambda request: True)
            lost += 1
            assert bench.count("timeouts") == lost and bench.in_quarantine() == 1
            # Reads that end at the same place; the late ones come before, between or behind theirs.
            late, bench.held = bench.held, []
            assert late
            bench.hold()
            await bench.fill(at, length=length)
            await bench.cycles(rng.choice([200, 600]))
            for tlp in late[: len(late) // 2]:
                await bench.give(tlp)
            await bench.cycles(50)
            assert bench.in_quarantine() == 1
            await bench.release()
            await bench.cycles(rng.choice([0, 50]))
            for tlp in late[len(late) // 2 :]:
                await bench.give(tlp)
            await bench.finish()
            bench.check()
            assert bench.in_quarantine() == 0
    assert bench.count("denials") == 0


@cocotb.test(skip=PTILE)
async def the_block_holds_a_request(dut):
    """The block's own timeout may be far longer than the card's, or none: a tag whose request it
    holds is not used. When the block has given it up, a completion may still come."""
    bench = Late(dut)
    await bench.start()
    link, block = bench.link, bench.block
    for code in (ErrorCode.TIMEOUT, ErrorCode.FLR):
        bench.hold()
        bench.readers[0].read(bench.page(0), 256)
        await bench.finish()
        bench.check(bad=lambda request: True)
        late, bench.held = bench.held, []
        (tag,) = (n for n, one in enumerate(block.active_request) if one)
        bench.let_pass()
        for gone in (False, True):
            if gone:
                block.end_request(tag, code)
                await bench.cycles(50)
            link.asked.clear()
            await bench.fill(0)
            await bench.finish()
            bench.check()
            assert tag not in link.asked and len(link.asked) > 50
        for tlp in late:
            await link.deliver(tlp)
        await bench.fill(0)
        await bench.finish()
        bench.check()
        assert tag not in link.asked
    assert bench.in_quarantine() == 2
    # The block gives up first: the read ends at once.
    bench.hold()
    bench.readers[0].read(bench.page(0), 64)
    await bench.cycles(200)
    (tag,) = (n for n, one in enumerate(block.active_request) if one)
    block.end_request(tag, ErrorCode.TIMEOUT)
    await bench.cycles(200)
    assert bench.readers[0].done
    bench.check(bad=lambda request: True)
    bench.let_pass()
    link.asked.clear()
    for n, tlp in enumerate(bench.held * 3):
        bench.readers[n % 3].read(bench.page(3), 64)
        await link.deliver(Tlp(tlp))
        await bench.fill(0, length=64)
    await bench.finish()
    bench.check()
    assert tag not in link.asked


@cocotb.test()
async def a_lost_part(dut):
    """A completion in the middle is lost and the others come: the tag is not used again, for what
    is lost may be late."""
    bench = Late(dut)
    await bench.start()
    lost, seen = [], 0

    def change(tlp):
        nonlocal seen
        seen += 1
        if seen != 2:
            return tlp
        lost.append(tlp)
        return None

    bench.link.change = change
    bench.readers[0].read(bench.page(0), 256)
    await bench.finish()
    bench.check(bad=lambda request: True)
    assert len(lost) == 1
    bench.hold()
    await bench.fill(0)
    await bench.cycles(300)
    await bench.give(lost[0])
    await bench.release()
    await bench.finish()
    bench.check()


@cocotb.test()
async def no_tag_is_left(dut):
    """The host answers nothing until each tag is in quarantine: reads then fail at once, and
    nothing waits. When the late completions have come, everything works again."""
    bench = Late(dut)
    await bench.start(1_500_000)
    readers = bench.readers
    bench.hold()
    for n in range(TAGS):
        readers[n % len(readers)].read(bench.page(n % 16), 64)
    await bench.finish()
    bench.check(bad=lambda request: True)
    assert bench.in_quarantine() == TAGS and bench.count("denials") == 0
    asked = len(bench.link.sizes)
    for _ in range(3):
        for n in range(20):
            readers[n % len(readers)].read(bench.page(1), 300)
        await bench.cycles(500)
        assert not any(one.waiting or one.pending for one in readers)
        bench.check(bad=lambda request: True)
    assert bench.count("denials") >= 60 and len(bench.link.sizes) == asked
    # Writes and registers go on.
    bench.writers[0].write(bench.page(2), bytes(range(100)))
    await bench.finish()
    bench.check()
    assert await bench.functions[FUNCTION].bar_window[0].read(0, 4) == bytes(4)
    await bench.give(bench.held.pop(0))
    bench.let_pass()
    await bench.cycles(100)
    assert bench.in_quarantine() == TAGS - 1
    readers[0].read(bench.page(1), 64)
    await bench.finish()
    bench.check()


@cocotb.test()
async def a_reset_begins_anew(dut):
    """Behind a reset of the link each tag is free: what was asked for before it has no answer."""
    bench = Late(dut)
    await bench.start()
    assert bench.in_quarantine() == 0 and bench.count("denials") == 0
    await bench.fill(0)
    await bench.finish()
    bench.check()


@cocotb.test()
async def what_a_function_may(dut):
    """Sizes and tags are those of the function that asks, whatever function 0 has."""
    bench = Late(dut)
    await bench.start()
    rng, link, functions = bench.rng, bench.link, bench.block.functions
    for code, others, extended in ((0, 3, False), (1, 2, True), (2, 2, False), (0, 3, True)):
        for n, function in enumerate(functions):
            one = code if n == FUNCTION else others
            capability = function.pcie_cap
            capability.max_payload_size = capability.max_read_request_size = one
            capability.extended_tag_field_enable = n != FUNCTION or extended
        bench.rc.max_payload_size = code
        await bench.cycles(300)
        link.asked.clear()
        link.sizes.clear()
        for n in range(80):
            bench.readers[n % 3].read(bench.base + rng.randrange(SIZE // 2 - 512), 512)
            at = bench.base + SIZE // 2 + rng.randrange(SIZE // 2 - 512)
            bench.writers[n % 2].write(at, rng.randbytes(512))
        await bench.finish()
        bench.check()
        for write, most in ((True, 256), (False, 512)):
            assert max(size for kind, size in link.sizes if kind == write) <= 128 << code
            assert (
                max(size for kind, size in link.sizes if kind == write) > min(most, 128 << code) - 8
            )
        assert (max(link.asked) >= 32) == extended
    assert bench.counters() == {} and bench.count("denials") == 0


@cocotb.test(skip=PTILE)
async def reads_without_credit(dut):
    """The link partner takes no reads: none gets in line on RQ, and writes go on. It takes as many
    as there are credits for."""
    bench = Late(dut)
    await bench.start()
    block = bench.block
    for credits in (0, 3):
        block.read_credits = credits
        await bench.cycles(20)
        send, passed = block.send, []

        async def counted(tlp, send=send, passed=passed):
            if not tlp.data and tlp.is_nonposted():
                passed.append(tlp)
                block.read_credits -= 1
                assert block.read_credits >= 0
            await send(tlp)

        block.send = counted
        for n in range(12):
            bench.readers[n % 3].read(bench.page(n), 512)
            bench.writers[n % 2].write(bench.page(n) + 1024, bench.rng.randbytes(600))
        while any(writer.waiting or writer.busy for writer in bench.writers):
            await bench.cycles(10)
        await bench.cycles(500)
        assert len(passed) == credits and len(bench.log) == 12
        block.send = send
        for _ in range(4):
            block.read_credits = 15
            await RisingEdge(dut.clk)
        await bench.finish()
        bench.check()


@cocotb.test()
async def requests_pass_answers(dut):
    """The host takes no writes until the card has taken all of the host's: what stands behind a
    read that waits for the card's writes goes on, and the answer still comes behind them."""
    bench = Late(dut)
    await bench.start()
    window, sink = bench.functions[FUNCTION].bar_window[0], bench.block.sink
    sink.pause = True
    await bench.cycles(50)
    for n in range(40):
        bench.writers[n % 2].write(bench.page(n % 16), bench.rng.randbytes(256))
    await bench.cycles(150)
    reads = [cocotb.start_soon(window.read(4, 4)) for _ in range(20)]
    await bench.cycles(200)
    await window.write(0, bytes([1, 2, 3, 4]))
    await bench.cycles(300)
    assert dut.nic0_word.value == 0x04030201
    assert not any(one.done() for one in reads)
    sink.pause = False
    assert await window.read(0, 4) == bytes([1, 2, 3, 4])
    await bench.finish()
    assert all(one.done() for one in reads)
    bench.check()
    assert not dut.nic0_lost_writes.value
