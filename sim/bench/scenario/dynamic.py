"""A connection of a scenario that is dynamic: an initiator of DC and the targets it reaches."""

from __future__ import annotations

from dataclasses import replace

from hdl.abi.enums import QpType, WcStatus
from sim.bench.scenario.life import Connection, options_of
from sim.guest.verbs import QP, AHAttr, DcDestination, GlobalRoute, QPAttr, QPInitAttr

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
        assert there.pool is not None, "targets take from a shared queue"
        options = options_of(a, here.flushes)
        node = there.node
        address = AHAttr(GlobalRoute(dgid=node.context.query_gid(1, 0)), roce_dmac=node.mac)
        attr = QPAttr(
            path_mtu=a.mtu,
            qp_access_flags=options.access,
            timeout=a.timeout,
            retry_cnt=a.retry_cnt,
            rnr_retry=a.rnr_retry,
            min_rnr_timer=a.min_rnr_timer,
            max_rd_atomic=a.max_rd_atomic,
            ah_attr=address,
        )
        init = QPInitAttr(QpType.DCI, here.cq, cap=replace(options.cap), sq_sig_all=0)
        initiator = await QP.create(here.pd, init, replace(attr))
        self._targets, self._ways = [], []
        for key in range(a.targets):
            init = QPInitAttr(QpType.DCT, rcq=there.cq, srq=there.pool.srq, dc_key=key)
            target = await QP.create(there.pd, init)
            await target.to_rtr(replace(attr))
            self._targets.append(target)
            self._ways.append(await DcDestination.create(here.pd, address, target.qp_num, key))
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
