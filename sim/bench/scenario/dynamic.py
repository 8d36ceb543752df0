"""A connection of a scenario that is dynamic: an initiator of DC and the targets it reaches."""

from __future__ import annotations

from hdl.abi.enums import WcStatus
from sim.bench.scenario.life import Connection, options_of
from sim.bench.system import connect_dynamic
from sim.guest.verbs import QP, DcDestination

__all__ = ["Dynamic"]


class Dynamic(Connection):
    """An initiator at one side, and at the other one targets, which take from its shared queue.

    A message goes to one of them, and the firmware connects anew when that is another one than
    before. The book of the initiator's peer is that of all targets, as an initiator's messages come
    in order whatever target they go to.
    """

    _targets: list[QP]
    _ways: list[DcDestination]

    @property
    def _asks(self) -> int:
        """The side of the initiator."""
        return self.life.attributes.initiator

    def explain(self, round_ns: int) -> None:
        """As others; a connection that ends in a message gives back the request that it holds."""
        super().explain(round_ns)
        self.books[1 - self._asks].reasons["end"] = WcStatus.WR_FLUSH_ERR

    def _left_alone(self, side: int) -> None:
        super()._left_alone(side)
        self.books[side].reasons["no target"] = WcStatus.REM_ACCESS_ERR

    async def _connect(self, qps: tuple[QP, QP] | None) -> None:
        assert qps is None, "these are never used again"
        asks, a = self._asks, self.life.attributes
        here, there = self.sides[asks], self.sides[1 - asks]
        assert there.pool is not None and there.pool.srq is not None, "targets share a queue"
        initiator, self._targets, self._ways = await connect_dynamic(
            there.node,
            (here.pd, there.pd),
            (here.cq, there.cq),
            there.pool.srq,
            options_of(a, here.flushes),
            a.targets,
        )
        self._posts[asks].destinations = [way.number for way in self._ways]
        ends = (initiator, self._targets[0])
        self.qps = (ends[asks], ends[1 - asks])

    def _share(self, side: int, qp: QP) -> None:
        ends = [qp] if side == self._asks else self._targets
        for number, one in enumerate(ends):
            super()._share(side, one)
            if (pool := self.sides[side].pool) is not None:
                pool.targets[one.qp_num] = number

    async def _drop(self, side: int, *, reset: bool = False) -> None:
        closed = self.books[side].closed
        for target in [] if closed or side == self._asks else self._targets[1:]:
            await target.close()
        await super()._drop(side, reset=reset)
        for way in [] if closed or side != self._asks else self._ways:
            await way.close()

    def _judge_counters(self, side: int, since: dict[str, int], lasted_ns: int) -> None:
        """A request may have failed in the firmware, which the card does not count."""
