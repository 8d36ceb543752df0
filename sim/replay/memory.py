"""The memory of the machine whose place a card takes: set up, kept in step, compared at the end.

Regions that the peers touch, and one local region with a place for each message. Everything is
filled with a pattern first, so that a byte that is not written, or is written beside its place,
shows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from hdl.abi.enums import Access
from sim.guest.verbs import MR, PD, SGE, FastMR, SendWR
from sim.replay.compare import Difference
from sim.replay.facts import RegionFacts
from sim.replay.messages import Message
from sim.replay.plan import Run

__all__ = ["MachineMemory"]

PAGE = 4096
#: Distance between messages in the local region: odd, so that none finds its data aligned.
_GAP = 5


class _Region:
    """A region and what it should hold.

    ``written``: bytes that came from a peer's WRITE; ``landed``: those that must be there by now.
    """

    def __init__(self, mr: MR | FastMR, seed: int):
        self.mr = mr
        self.image = np.random.default_rng(seed).integers(0, 256, mr.length, np.uint8)
        self.written = np.zeros(mr.length, bool)
        self.landed = np.zeros(mr.length, bool)
        mr.write(self.image)

    def put(self, data: bytes | bytearray, at: int, which: Any = slice(None)) -> None:
        """The application of the card's machine writes, all bytes or ``which`` of them."""
        octets = np.frombuffer(bytes(data), np.uint8)
        span = slice(at, at + octets.size)
        now = self.mr.read(octets.size, at)
        now[which] = self.image[span][which] = octets[which]
        self.written[span][which] = False
        self.mr.write(now, at)

    def expect(self, data: bytes | bytearray, at: int) -> None:
        """The card will write."""
        octets = np.frombuffer(bytes(data), np.uint8)
        self.image[at : at + octets.size] = octets
        self.written[at : at + octets.size] = True
        self.landed[at : at + octets.size] = False

    def accept(self, at: int, size: int) -> None:
        """Whatever is there now is right."""
        self.image[at : at + size] = self.mr.read(size, at)

    def wrong(self, at: int = 0, size: int | None = None) -> tuple[int, int, int] | None:
        """First byte that is not as it should be: (place, wanted, found)."""
        size = self.image.size - at if size is None else size
        found = self.mr.read(size, at)
        bad = np.flatnonzero(found != self.image[at : at + size])
        if not bad.size:
            return None
        first = int(bad[0])
        return at + first, int(self.image[at + first]), int(found[first])


class MachineMemory:
    """All memory of one run. ``differences`` collects what was not as it should be.

    flush: returns when all that the card has written so far is in memory.
    """

    def __init__(self, run: Run, stated: list[RegionFacts], flush: Callable[[], Awaitable[object]]):
        self._flush = flush
        gids = {place.end.gid for place in run.places}
        self._run = run
        self._stated = {one.rkey: one for one in stated if one.gid in gids}
        self._regions: dict[int, _Region] = {}
        self._places: dict[int, int] = {}  # id(message) -> offset in the local region
        self._executed: set[int] = set()  # id(message) of atomics that the card has got
        self._local: _Region
        self.differences: list[Difference] = []
        #: Work requests that register the regions whose keys peers invalidate.
        self.registrations: list[SendWR] = []
        #: Bytes that the application must have written while the capture ran.
        self.changed = 0

    async def set_up(self, pd: PD, hints: Any) -> None:
        """Register all regions, with the recorded keys and addresses."""
        rights, taken = self._run.rights(), self._run.invalidated()
        for rkey, touched in self._run.regions().items():
            hints.mr_key(rkey)
            (low, high), access = touched, rights[rkey]
            if (facts := self._stated.get(rkey)) is not None:
                low, high = min(low, facts.base), max(high, facts.base + facts.length)
                access = facts.access
            span, offset = high - low, low % PAGE
            mr: MR | FastMR
            if rkey in taken:
                mr = await FastMR.create(pd, -(-(offset + span) // PAGE))
                await mr.map(span, offset=offset, virt_addr=low)
                self.registrations.append(mr.reg_wr(access, new_tag=False))
            else:
                mr = await MR.create(pd, span, access, offset=offset, virt_addr=low)
            region = self._regions[rkey] = _Region(mr, rkey)
            if facts is not None:
                region.put(facts.data, facts.base - low)
        size = 1
        for place in self._run.places:
            takes = [m for m in place.incoming if m.takes_receive and m.shares is None]
            for message in [*place.end.messages, *takes]:
                self._places[id(message)] = size
                size += self.room(message) + _GAP
            for message in place.incoming:
                if message.shares is not None:
                    self._places[id(message)] = self._places[id(message.shares)]
        self._local = _Region(await MR.create(pd, size, Access.LOCAL_WRITE, offset=3), 1)
        for place in self._run.places:
            for message in place.end.messages:
                if not message.read:
                    self._local.put(message.data, self._places[id(message)])

    def room(self, message: Message) -> int:
        """Bytes that a message needs in the local region."""
        size = max(message.least, len(message.prefix) + message.length)
        whole = message.whole or (message.writes and message.takes_receive)
        return size if whole else size + PAGE

    def sge(self, message: Message, size: int) -> list[SGE]:
        """``size`` bytes where the card's machine has a message's data, or wants it."""
        if not size:
            return []
        mr = self._local.mr
        return [SGE(mr.iova + self._places[id(message)], size, mr.lkey)]

    async def fed(self, message: Message) -> None:
        """A peer's message begins: what it finds, and what it leaves behind."""
        data = message.data[: message.taken]
        if message.takes_receive and not message.writes:
            self._local.expect(message.prefix + data, self._places[id(message)])
        if not message.length or message.rkey not in self._regions:
            return
        region = self._regions[message.rkey]
        at = message.va - region.mr.iova
        if message.writes:
            region.expect(data, at)
        elif message.read and id(message) not in self._executed:
            await self._show(message, region, at)
            if message.atomic and message.whole:
                self._executed.add(id(message))  # a copy finds the result that was saved
                region.expect(message.left, at)

    async def _show(self, message: Message, region: _Region, at: int) -> None:
        """What a READ returned was there: either it came from a peer, or the application wrote it.

        Bytes that a WRITE has left otherwise have been changed by the application since; the WRITE
        is verified before they are replaced.
        """
        data = np.frombuffer(bytes(message.data), np.uint8)
        span = slice(at, at + data.size)
        other = region.image[span] != data
        changed = other & region.written[span]
        if (changed & ~region.landed[span]).any():
            return  # the WRITE before it is still under way: nobody can have changed it
        if changed.any():
            await self._flush()
            self._verify(region, f"rkey {message.rkey:#x}", at, data.size)
            self.changed += int(changed.sum())
        if other.any():
            region.put(bytes(data), at, other)

    def landed(self, message: Message) -> None:
        """A peer's message has been acknowledged by the card."""
        if (message.writes or message.atomic) and message.length:
            region = self._regions[message.rkey]
            at = message.va - region.mr.iova
            region.landed[at : at + message.length] = True

    def read_done(self, message: Message, mtu: int) -> None:
        """One of the card's own READs has its data, or a part of it."""
        self._local.expect(message.data[: message.known * mtu], self._places[id(message)])

    def _verify(self, region: _Region, what: str, at: int = 0, size: int | None = None) -> None:
        if (wrong := region.wrong(at, size)) is not None:
            place, wanted, found = wrong
            self.differences.append(Difference(0, f"memory, {what}, byte {place}", wanted, found))

    def verify(self) -> dict[str, int]:
        """Compare all of it; returns what was compared."""
        for place in self._run.places:
            message = place.refused()
            if message is not None and message.takes_receive and not message.writes:
                end = message.receive_size  # what is behind the packets before it is undefined
                self._local.accept(self._places[id(message)] + message.taken, end - message.taken)
        for rkey, region in self._regions.items():
            self._verify(region, f"rkey {rkey:#x}")
        self._verify(self._local, "local buffers")
        sizes = [region.mr.length for region in (*self._regions.values(), self._local)]
        return {"regions": len(sizes), "bytes": sum(sizes), "changed_by_application": self.changed}
