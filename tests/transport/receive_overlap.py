"""Drives ``ReceiveSide`` with bursts, so that packets are taken while earlier checks are awaited.

What a burst brings about must be what the reference model says packet by packet: payload in the
same places in the same order, the same completions on each queue, the same replies, the same rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from hdl.transport.receive.types import Counters
from tests.fields import unpack

from .model_receive import ATOMIC, CHECK_READ, KEY, LINE, RC, Result, Row
from .receive_harness import Harness, Seen, told
from .receive_side import CONFIG

__all__ = ["Overlap"]

_REPLIES = ("ack", "nak", "read", "replay")
#: A QP in error drops a packet before it looks at these; which of them is counted for a packet
#: that was on its way when its QP failed is left open.
_SAME = ("qp_state", "address_mismatch", "bad_pkey")
#: What an ACK that a later one replaces no longer says.
_OF_ACKS = ("unexpected_response", "implied_nak_seq_err")


class Overlap(Harness):
    """``burst`` feeds packets without a pause and compares when all is settled."""

    def __init__(self, dut: Any, **options: Any):
        super().__init__(dut, **options)
        self._left: list[Row] = []
        self._expected: list[tuple[int, Result]] = []
        self.taken: list[int] = []  # cycles
        self.left_out = 0  # ACKs that a later reply covered
        self.ahead_most = 0  # most jobs without their effects
        self.lines_most = 0  # of those, most that read a line

    async def burst(self, make: Callable[[], Row], packets: int) -> Seen:
        """Feed ``packets`` of ``make``, each made for the world that those before leave behind."""
        self.sync()
        self._left, self._expected = [], []
        pokes: dict[int, int] = {}
        for _ in range(packets):
            header = make()
            qp = (header["dest_qp"] & 0x3FFF) % CONFIG.qps
            self._left.append(header)
            self._expect(qp, [self.world.packet(header)], pokes)
        while pokes:
            qp, flags = pokes.popitem()
            self._expect(qp, self.world.poke(qp, flags), pokes)
        while self._left or not self.idle:
            if self._left and self._header is None:
                self.offer(self._left.pop(0))
            await self.step()
        return self.done[-1]

    def _expect(self, qp: int, results: list[Result], pokes: dict[int, int]) -> None:
        for result in results:
            self._expected.append((qp, result))
            if result.repoke:
                pokes[qp] = pokes.get(qp, 0) | result.repoke

    def _may_offer(self) -> bool:
        return True

    def _over(self) -> bool:
        waiting = self._left or self._header or self._offered or self.pokes
        return not (waiting or self._in["header"] or self._in["poke"])

    def _begin(self, what: str) -> None:
        if what == "header":
            assert self._header is not None
            qp = (self._header[0]["dest_qp"] & 0x3FFF) % CONFIG.qps
            self._header = None
        else:
            assert self._offered is not None
            qp = self._offered[0]
            self._offered = None
        self.taken.append(self.cycle)
        if self._seen is None:
            self._seen, self._started = Seen("burst", qp), self.cycle
        self._seen.qp = qp

    def _about(self, qp: int) -> None:
        pass  # any

    def _output(self, name: str) -> None:
        super()._output(name)
        assert self._seen is not None
        jobs = self._seen.jobs[len(self._seen.effects) :]
        self.ahead_most = max(self.ahead_most, len(jobs))
        self.lines_most = max(self.lines_most, sum(job["kind"] == LINE for job in jobs))

    def _finish(self) -> None:
        seen, world = self._seen, self.world
        assert seen is not None
        self._seen = None
        seen.cycles = self.cycle - self._started
        assert len(seen.jobs) == len(seen.effects)
        got = list(zip(seen.jobs, seen.effects, strict=True))
        wanted = [
            (qp, job, effect)
            for qp, result in self._expected
            for job, effect in zip(result.jobs, result.effects, strict=True)
        ]
        self._compare(
            "placed",
            [job for job, effect in got if _placed(job, effect)],
            [job for _, job, effect in wanted if _placed(job, effect)],
        )
        queues = (defaultdict(list), defaultdict(list))
        for _, effect in got:
            if effect["complete"]:
                queues[0][effect["completion"]["queue"]].append(effect["completion"])
        for _, _, effect in wanted:
            if "complete" in effect:
                queues[1][effect["complete"]["queue"]].append(effect["complete"])
        for queue in queues[0].keys() | queues[1].keys():
            self._compare(f"completions of queue {queue}", queues[0][queue], queues[1][queue])
        for qp in range(CONFIG.qps):
            self._compare_replies(
                [e["flags"] for _, e in got if e["reply"] and e["qp"] == qp],
                [
                    {name: effect.get(name, 0) for name in _REPLIES}
                    for of, _, effect in wanted
                    if of == qp and any(effect.get(name) for name in _REPLIES)
                ],
            )
            answered = world.cfg[qp]["type"] in (0, RC)
            rows = [told(one[qp], answered=answered) for one in (self.rx, self.ahead, world.rx)]
            assert rows[0] == rows[1] == rows[2], (qp, *rows)
            assert self.outstanding[qp] == world.outstanding[qp]
            names = ("reads", "wake_generation") if world.in_error(qp) else self.ack[qp].keys()
            for name in names:
                assert self.ack[qp][name] == world.ack[qp][name], (qp, name)
            if not world.in_error(qp):
                tail = world.rx[qp]["read_tail"]
                base, slots = world.cfg[qp]["read_base"], world.cfg[qp]["max_dest_rd_atomic"]
                held = range(slots if world.rx[qp]["read_wrapped"] else min(tail, slots))
                for at in (base + n for n in held):
                    assert self.pool[at] == world.pool[at], (qp, at)
        self.done.append(seen)

    def _compare_replies(self, got: list[Row], wanted: list[Row]) -> None:
        """Those of a QP; an ACK may be left out when a later reply covers it."""
        left = list(got)
        for number, reply in enumerate(reversed(wanted)):
            if left and left[-1] == reply:
                left.pop()
                continue
            acks = reply["ack"] and sum(reply.values()) == 1
            assert number and acks, f"replies {got}, expected {wanted}"
            self.left_out += 1
        assert not left, f"replies {got}, expected {wanted}"

    @staticmethod
    def _compare(what: str, got: list[Row], wanted: list[Row]) -> None:
        assert len(got) == len(wanted), f"{what}: {got}, expected {wanted}"
        for one, other in zip(got, wanted, strict=True):
            differs = {k: (one[k], v) for k, v in other.items() if k in one and one[k] != v}
            assert not differs, f"{what} (got, expected): {differs} in {got}"

    def counters(self) -> dict[str, int]:
        """The hardware's counters, which must be the model's."""
        got = unpack(Counters, int(self.dut.counters.value))
        merged = int(self.dut.merged_acks.value)
        for name in got.keys() - _SAME:
            missing = self.world.counters.get(name, 0) - got[name]
            assert 0 <= missing <= (merged if name in _OF_ACKS else 0), (name, missing, merged)
        # An ACK that was replaced on its way is not dropped itself when its QP turns out to fail.
        missing = sum(self.world.counters.get(n, 0) - got[n] for n in _SAME)
        assert 0 <= missing <= merged, (missing, merged)
        return got


def _placed(job: Row, effect: Row) -> bool:
    return job["kind"] in (LINE, KEY, CHECK_READ, ATOMIC) and not effect.get("discard")
