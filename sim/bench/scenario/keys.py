"""Keys that requests make valid and invalid: fast regions and memory windows over what a side sends
and receives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from hdl.abi.enums import Access, MwType, SendFlags, WcStatus, WrOpcode
from sim.bench.scenario.plan import Way, Wrong, reads
from sim.guest.verbs import CQ, MR, MW, PD, QP, FastMR, SendWR

__all__ = ["RIGHTS", "Key", "KeyState", "Keys", "Want", "wanted"]

REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE
RIGHTS = Access.LOCAL_WRITE | REMOTE


class KeyState(Enum):
    """What a key is as far as completions say it."""

    FREE = "nobody can use it"
    VALID = "registered, or bound"
    UNKNOWN = "one or the other: a request that changes it has not succeeded"


@dataclass(eq=False)
class Key:
    """The key of a fast region over ``base``, or of a window of it. ``newest``: the last request
    that changes it."""

    place: FastMR | MW
    base: MR
    state: KeyState = KeyState.FREE
    newest: object = None

    def open_wr(self, wrong: Wrong = Wrong.NOTHING) -> SendWR:
        """A request that makes it valid; of one that is ``wrong`` the key stays what it was."""
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


@dataclass(frozen=True)
class Want:
    """A key that a way needs: of its own side or the ``peer``'s, over its ``sink`` or source; of a
    fast region or of a ``window``. The peer's window serves all of its queue pairs (type 1); one of
    the way's own is for its own queue pair (type 2)."""

    peer: bool
    number: int
    sink: bool
    window: bool = False

    @property
    def kind(self) -> tuple[bool, bool, bool]:
        """What makes a key fit."""
        return self.peer, self.sink, self.window


def wanted(way: Way) -> Iterator[Want]:
    """The keys that the messages of a way name: those of the peer are registered before it."""
    for peer in (False, True):
        users: dict[int, bool] = {}
        windows: set[int] = set()
        for message in way.messages:
            number = message.peer if peer else message.own
            if number is not None:
                lands = message.opcode == WrOpcode.RDMA_WRITE if peer else reads(message.opcode)
                users[number] = users.get(number, False) or lands
                windows |= {number} if message.window else set()
        yield from (Want(peer, number, sink, number in windows) for number, sink in users.items())


class Keys:
    """The keys of one side: ``up`` makes them, ``take`` hands them out.

    ``qp`` is connected and does nothing else: it registers keys that the peer is to use, and at
    the end those of which requests say that they are free.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[bool, bool, bool], list[Key]] = {}
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
    async def _place(pd: PD, base: MR, want: Want) -> FastMR | MW:
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
            if key.state == KeyState.VALID and isinstance(key.place, FastMR):
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
