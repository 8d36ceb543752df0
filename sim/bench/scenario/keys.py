"""Keys that requests make valid and invalid: fast regions, memory windows and indirect keys over
what a side sends and receives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, pairwise

from hdl.abi.enums import Access, MwType, SendFlags, WcStatus, WrOpcode
from hdl.abi.mkeys import LayoutFlags
from sim.bench.scenario.plan import Way, Wrong, reads
from sim.guest.verbs import CQ, MR, MW, PD, QP, SGE, FastMR, Interleaved, Mkey, SendWR

__all__ = ["RIGHTS", "Key", "KeyState", "Keys", "Want", "wanted"]

#: Whose it is, what it is over, and what kind of key it is: see ``Want``.
Kind = tuple[bool, bool, bool, bool]

#: Entries that a layout has at most: of a list, and of rows, whose bytes are from the first number
#: up to the second one. A packet of 4096 bytes lies in less than 64 of them, the most it may.
MOST_CUTS, ROW_CUTS, ROW_BYTES = 16, 4, (300, 3000)
#: The key of entries that have no bytes.
NO_KEY = 0xFFFF_FFFF
REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE
RIGHTS = Access.LOCAL_WRITE | REMOTE


class KeyState(Enum):
    """What a key is as far as completions say it."""

    FREE = "nobody can use it"
    VALID = "registered, or bound"
    UNKNOWN = "one or the other: a request that changes it has not succeeded"


@dataclass(eq=False)
class Key:
    """The key of a fast region over ``base``, of a window of it, or an indirect one that stands for
    its bytes. ``newest``: the last request that changes it. ``laid``: layouts that it was given."""

    place: FastMR | MW | Mkey
    base: MR
    state: KeyState = KeyState.FREE
    newest: object = None
    laid: int = 0

    def open_wr(
        self, wrong: Wrong = Wrong.NOTHING, opcode: WrOpcode = WrOpcode.MKEY_LIST
    ) -> SendWR:
        """A request that makes it valid; of one that is ``wrong`` the key stays what it was.
        ``opcode``: how an indirect key gets its layout."""
        if isinstance(self.place, Mkey):
            free = LayoutFlags.CHECK_FREE if wrong == Wrong.TAKEN else LayoutFlags(0)
            self.laid += 1
            rng = random.Random(f"{self.place.key} {self.base.length} {self.laid}")
            return identity_wr(self.place, self.base, opcode, free, rng)
        if isinstance(self.place, FastMR):
            return self.place.reg_wr(RIGHTS, new_tag=wrong == Wrong.NOTHING)
        key, length = self.place.key, self.base.length + (wrong == Wrong.BOUNDS)
        wr = self.place.bind_wr(self.base, 0, length, REMOTE)
        if wrong != Wrong.NOTHING:
            self.place.key = key
        return wr

    def posted(self, request: object) -> None:
        """A request that changes it is on its way."""
        self.newest, self.state = request, KeyState.UNKNOWN

    def changed(self, request: object, state: KeyState) -> None:
        """A request has succeeded; what comes behind it may have changed the key again."""
        if self.newest is request:
            self.state = state


def identity_wr(
    mkey: Mkey, base: MR, opcode: WrOpcode, flags: LayoutFlags, rng: random.Random
) -> SendWR:
    """A request that gives an indirect key a layout in which the offset of a byte is that in
    ``base``, cut anywhere: a list in which entries of no bytes have no key, or rows whose entries
    skip each other."""

    def cut(length: int, most: int) -> list[int]:
        cuts = sorted(rng.randrange(1, length) for _ in range(rng.randrange(most)))
        return [b - a for a, b in pairwise([0, *cuts, length])]

    row = base.length if opcode == WrOpcode.MKEY_LIST else rng.randrange(*ROW_BYTES)
    counts = cut(row, MOST_CUTS if opcode == WrOpcode.MKEY_LIST else ROW_CUTS)
    starts = accumulate(counts, initial=base.iova)
    if opcode == WrOpcode.MKEY_LIST:
        entries = [
            SGE(at, n, base.lkey if n else NO_KEY) for at, n in zip(starts, counts, strict=False)
        ]
        return mkey.list_wr(entries, RIGHTS, flags=flags)
    rows = [Interleaved(at, n, row - n, base.lkey) for at, n in zip(starts, counts, strict=False)]
    return mkey.interleaved_wr(rows, -(-base.length // row), RIGHTS, flags=flags)


@dataclass(frozen=True)
class Want:
    """A key that a way needs: of its own side or the ``peer``'s, over its ``sink`` or source; of a
    fast region, of a ``window``, or an indirect one (``layout``). The peer's window serves all of
    its queue pairs (type 1); one of the way's own is for its own queue pair (type 2)."""

    peer: bool
    number: int
    sink: bool
    window: bool = False
    layout: bool = False

    @property
    def kind(self) -> Kind:
        """What makes a key fit."""
        return self.peer, self.sink, self.window, self.layout


def wanted(way: Way) -> Iterator[Want]:
    """The keys that the messages of a way name: those of the peer are registered before it."""
    for peer in (False, True):
        users: dict[int, bool] = {}
        windows, layouts = set[int](), set[int]()
        for message in way.messages:
            number = message.peer if peer else message.own
            if number is not None:
                lands = message.opcode == WrOpcode.RDMA_WRITE if peer else reads(message.opcode)
                users[number] = users.get(number, False) or lands
                windows |= {number} if message.window else set()
                layouts |= {number} if message.layout else set()
        for number, sink in users.items():
            yield Want(peer, number, sink, number in windows, number in layouts)


class Keys:
    """The keys of one side: ``up`` makes them, ``take`` hands them out.

    ``qp`` is connected and does nothing else: it registers keys that the peer is to use, and at
    the end those of which requests say that they are free.
    """

    def __init__(self) -> None:
        self._free: dict[Kind, list[Key]] = {}
        self._taken: list[Key] = []
        self._numbers = 0

    async def up(self, pd: PD, bases: tuple[MR, MR], wants: list[Want], qp: QP, cq: CQ) -> None:
        """A key for each of ``wants`` over ``bases``, source and sink."""
        for want in wants:
            base = bases[want.sink]
            key = Key(await self._place(pd, base, want), base)
            if want.peer:
                await self._execute(qp, cq, key.open_wr(), "a key that is free")
                key.state = KeyState.VALID
            self._free.setdefault(want.kind, []).append(key)

    @staticmethod
    async def _place(pd: PD, base: MR, want: Want) -> FastMR | MW | Mkey:
        if want.layout:
            return await Mkey.create(pd, MOST_CUTS, remote_invalidate=True)
        if want.window:
            return await MW.create(pd, MwType.TYPE_1 if want.peer else MwType.TYPE_2)
        fast = await FastMR.create(pd, len(base.buffer.pages))
        await fast.map_over(base)
        return fast

    def take(self, want: Want) -> Key:
        """A key that nobody has."""
        key = self._free[want.kind].pop()
        self._taken.append(key)
        return key

    async def settled(self, qp: QP, cq: CQ) -> None:
        """Nothing moves any more: each key is what completions say. Of a window that a queue pair
        has bound only that one can say so; one of type 1 can be bound again."""
        for key in self._taken:
            said = f"key {key.place.key:#x} ({key.state.name})"
            if key.state == KeyState.VALID and not isinstance(key.place, MW):
                await self._execute(qp, cq, key.place.local_inv_wr(), said)
            tied = isinstance(key.place, MW) and key.place.kind is not MwType.TYPE_1
            if key.state == KeyState.FREE or (key.state == KeyState.VALID and not tied):
                await self._execute(qp, cq, key.open_wr(), said)
        for key in (*self._taken, *(key for keys in self._free.values() for key in keys)):
            await key.place.close()

    async def _execute(self, qp: QP, cq: CQ, wr: SendWR, said: str) -> None:
        self._numbers += 1
        wr.wr_id, wr.send_flags = self._numbers, SendFlags.SIGNALED
        await qp.post_send(wr)
        (wc,) = await cq.wait(1)
        assert wc.wr_id == wr.wr_id
        assert wc.status == WcStatus.SUCCESS, f"{said}: {WrOpcode(wr.opcode).name}: {wc.status!r}"
