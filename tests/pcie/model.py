"""cocotbext-pcie 0.2.16 under cocotb 2.1, and a link that does what the specification allows."""

import itertools
import random
from collections.abc import Collection

import cocotb
from cocotb.task import Task
from cocotb.triggers import RisingEdge, Timer
from cocotbext.axi import AxiStreamBus
from cocotbext.pcie.core.tlp import Tlp, TlpType

__all__ = ["Campaign", "Link", "UserBus", "pace"]

COMPLETIONS = (TlpType.CPL, TlpType.CPL_DATA)

# The models ask tasks for this, by a name that cocotb 2.1 has no more.
Task._finished = property(Task.done)


class UserBus(AxiStreamBus):
    """A user stream of the block. The models calculate with samples, so these are integers."""

    def sample(self, obj, strict=False):
        super().sample(obj, strict)
        for name in ("tdata", "tkeep", "tuser", "tlast"):
            setattr(obj, name, int(getattr(obj, name)))


class Link:
    """What the root complex sends is late, in another order, or changed on its way.

    Completions of one tag stay in order. ``change`` gets each one and returns it, or None to lose
    it. Requests are checked against the limits of the specification; ``asked`` has the newest one
    of each tag. ``functions``: those that may ask for something. ``held_ns``: how long the block
    holds each write, while completions of the card go by.
    """

    def __init__(self, device, rng: random.Random, functions: Collection[int]):
        self.device, self.rng, self.functions = device, rng, functions
        self.shuffle, self.change = False, lambda tlp: tlp
        self.sizes, self.waiting, self.asked = [], [], {}
        self.held_ns, self._newest = 0, None
        self._receive, self._send = device.upstream_recv, device.send
        device.upstream_recv, device.send = self.receive, self.send
        # The model has one port, which asks for this by name.
        device.upstream_port.rx_handler = self.receive

    async def receive(self, tlp):
        if tlp.fmt_type not in COMPLETIONS:
            await self._receive(tlp)
            return
        self._newest = Tlp(tlp)
        changed = self.change(tlp)
        if changed is None:
            tlp.release_fc()
            return
        self.waiting.append(changed)
        if self.shuffle and len(self.waiting) < 8:
            cocotb.start_soon(self._later())
        else:
            await self._one()

    async def deliver(self, tlp):
        """Deliver a completion as it is."""
        await self._receive(tlp)

    async def repeat(self):
        """Deliver the newest completion a second time."""
        await self._receive(self._newest)

    async def _later(self):
        await Timer(self.rng.randint(1, 2000), "ns")
        await self._one()

    async def _one(self):
        if self.waiting:
            tag = self.rng.choice(self.waiting).tag
            index = next(i for i, one in enumerate(self.waiting) if one.tag == tag)
            await self._receive(self.waiting.pop(index))

    async def send(self, tlp):
        if tlp.fmt_type not in COMPLETIONS:
            capability = self.device.functions[0].pcie_cap
            self.asked[tlp.tag] = tlp
            code = capability.max_payload_size if tlp.data else capability.max_read_request_size
            assert tlp.length * 4 <= 128 << code, tlp
            assert tlp.address % 4096 + tlp.length * 4 <= 4096, tlp
            assert (tlp.length == 1) == (tlp.last_be == 0), tlp
            assert tlp.first_be and not tlp.attr, tlp
            assert tlp.requester_id.function in self.functions
            assert len(tlp.data) in (0, tlp.length * 4)
            self.sizes.append((bool(tlp.data), tlp.length * 4))
            if self.held_ns and tlp.data:
                await Timer(self.held_ns, "ns")
        await self._send(tlp)


async def pace(bench, prefix, work):
    """Cycles a beat on the pins of a stream in the steady state of ``work``, and cycles in which
    the block held it."""
    names = {name: f"nic0_{prefix}_{name}" for name in ("valid", "ready")}  # of P-Tile
    if not hasattr(bench.dut, names["valid"]):
        names = {name: f"nic0_{prefix}__t{name}" for name in names}
    valid, ready = (getattr(bench.dut, name) for name in names.values())
    # P-Tile's beats are for a ready of some cycles before: each one is taken.
    always = "__" not in names["valid"]
    beats, held, cycle = [], 0, 0

    async def watch():
        nonlocal held, cycle
        while True:
            await RisingEdge(bench.dut.clk)
            cycle += 1
            if int(valid.value):
                if always or ready.value == 1:
                    beats.append(cycle)
                else:
                    held += 1

    task = cocotb.start_soon(watch())
    work()
    await bench.finish()
    task.cancel()
    steady = beats[len(beats) // 4 : -len(beats) // 4]
    return len(beats), (steady[-1] - steady[0]) / (len(steady) - 1), held


class Campaign:
    """Spoils completions at random; ``spoiled``: slots of 1 KiB whose read must fail."""

    def __init__(self, bench):
        self.bench, self.rng = bench, bench.rng
        self.spoiled, self.over, self.late = set(), [], []
        self.kinds = dict.fromkeys(("poisoned", "malformed", "refused", "lost", "late"), 0)
        self.next_kind = itertools.cycle(self.kinds)

    def change(self, tlp):
        asked = self.bench.link.asked[tlp.tag]
        if any(one is asked for one in self.over):  # nothing more comes of this request
            return None
        if self.rng.random() > 0.05:
            return tlp
        kind = next(self.next_kind)
        self.kinds[kind] += 1
        self.spoiled.add((asked.address - self.bench.base) // 1024)
        if kind == "poisoned":
            tlp.ep = True
            return tlp
        if kind == "malformed":
            tlp.lower_address ^= 4
            return tlp
        self.over.append(asked)
        if kind == "refused":
            return Tlp.create_ca_completion_for_tlp(asked, tlp.completer_id)
        self.bench.block.forget(tlp.tag)
        if kind == "late":
            self.late.append(tlp)
        return None
