"""Keys that requests register and invalidate: fast regions over what a side sends and receives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from hdl.abi.enums import Access, SendFlags, WcStatus, WrOpcode
from sim.bench.scenario.plan import Way, reads
from sim.guest.verbs import CQ, MR, PD, QP, FastMR, SendWR

__all__ = ["RIGHTS", "Key", "KeyState", "Keys", "Want", "wanted"]

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE


class KeyState(Enum):
    """What a key is as far as completions say it."""

    FREE = "nobody can use it"
    VALID = "registered"
    UNKNOWN = "one or the other: a request that changes it has not succeeded"


@dataclass(eq=False)
class Key:
    """The key of a fast region over ``base``. ``newest``: the last request that changes it."""

    fast: FastMR
    base: MR
    state: KeyState = KeyState.FREE
    newest: object = None

    def posted(self, request: object) -> None:
        """A request that changes it is on its way."""
        self.newest, self.state = request, KeyState.UNKNOWN

    def changed(self, request: object, state: KeyState) -> None:
        """A request has succeeded; what comes behind it may have changed the key again."""
        if self.newest is request:
            self.state = state


@dataclass(frozen=True)
class Want:
    """A key that a way needs: of its own side or the ``peer``'s, over its ``sink`` or source."""

    peer: bool
    number: int
    sink: bool


def wanted(way: Way) -> Iterator[Want]:
    """The keys that the messages of a way name: those of the peer are registered before it."""
    for peer in (False, True):
        users: dict[int, bool] = {}
        for message in way.messages:
            number = message.peer if peer else message.own
            if number is not None:
                lands = message.opcode == WrOpcode.RDMA_WRITE if peer else reads(message.opcode)
                users[number] = users.get(number, False) or lands
        yield from (Want(peer, number, sink) for number, sink in users.items())


class Keys:
    """The keys of one side: ``up`` makes them, ``take`` hands them out.

    ``qp`` is connected and does nothing else: it registers keys that the peer is to use, and at
    the end those of which requests say that they are free.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[bool, bool], list[Key]] = {}
        self._taken: list[Key] = []
        self._numbers = 0

    async def up(self, pd: PD, bases: tuple[MR, MR], wants: list[Want], qp: QP, cq: CQ) -> None:
        """A key for each of ``wants`` over ``bases``, source and sink."""
        for want in wants:
            base = bases[want.sink]
            fast = await FastMR.create(pd, len(base.buffer.pages))
            await fast.map_over(base)
            key = Key(fast, base)
            if want.peer:
                await self._execute(qp, cq, fast.reg_wr(RIGHTS), "a key that is free")
                key.state = KeyState.VALID
            self._free.setdefault((want.peer, want.sink), []).append(key)

    def take(self, *, peer: bool, sink: bool) -> Key:
        """A key that nobody has."""
        key = self._free[peer, sink].pop()
        self._taken.append(key)
        return key

    async def settled(self, qp: QP, cq: CQ) -> None:
        """Nothing moves any more: each key is what completions say."""
        for key in self._taken:
            said = f"key {key.fast.key:#x} ({key.state.name})"
            if key.state == KeyState.VALID:
                await self._execute(qp, cq, key.fast.local_inv_wr(), said)
            if key.state != KeyState.UNKNOWN:
                await self._execute(qp, cq, key.fast.reg_wr(RIGHTS), said)
        for key in (*self._taken, *(key for keys in self._free.values() for key in keys)):
            await key.fast.close()

    async def _execute(self, qp: QP, cq: CQ, wr: SendWR, said: str) -> None:
        self._numbers += 1
        wr.wr_id, wr.send_flags = self._numbers, SendFlags.SIGNALED
        await qp.post_send(wr)
        (wc,) = await cq.wait(1)
        assert wc.wr_id == wr.wr_id
        assert wc.status == WcStatus.SUCCESS, f"{said}: {WrOpcode(wr.opcode).name}: {wc.status!r}"
