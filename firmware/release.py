"""What a guest function has is taken away, piece by piece, as its device reset asks.

Between two pieces the firmware serves the other functions, so none of them waits for what one
function has collected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from firmware.device import Operations
from firmware.objects import Limits, Objects, Qp
from firmware.qp_commands import QpCommands

__all__ = ["Release"]

#: Register accesses of all pieces that ``go_on`` does at a time, about.
_BUDGET = 64
#: Register accesses of one piece, about: a QP that is stopped, its counters, a region, a row, a
#: virtqueue.
_COSTS = {"qp": 32, "counters": 4, "mr": 4, "row": 4, "queue": 8}


class _Piece(NamedTuple):
    """One thing to do: ``what`` is the kind of it, ``number`` the function's own number."""

    what: str
    number: int
    table: str = ""


class Release:
    """Takes all objects from a function whose driver is away.

    ``go_on`` does a part of bounded length and says whether that was the last one. Nothing is under
    way or fetched ahead then, and all rings begin at 0. The function's virtqueues must not be
    notified, and a request of it must have been answered: its control queue is dropped too.
    ``forget`` removes the objects and names their rows (``Commands.forget``).
    Errors: HardwareError.
    """

    def __init__(
        self,
        hardware: Operations,
        limits: Limits,
        objects: Objects,
        qps: QpCommands,
        forget: Callable[[], list[tuple[str, int]]],
    ):
        self._hardware, self._limits, self._forget = hardware, limits, forget
        self._qps = qps
        self._owned: dict[int, Qp] = {qp.number: qp for qp in objects.qps.all()}
        self._work = deque(_Piece("qp", number) for number in self._owned)
        self._work.extend(_Piece("counters", number) for number in qps.take_counted())
        self._work.extend(_Piece("mr", mr.number) for mr in objects.mrs.all())
        self._forgotten = False

    async def go_on(self) -> bool:
        """Does the next pieces; whether none is left."""
        left = _BUDGET
        while left > 0:
            if not self._work and not self._forgotten:
                self._forgotten = True
                self._work.extend(_Piece("row", index, table) for table, index in self._forget())
                queues = range(self._limits.config.queues)
                self._work.extend(_Piece("queue", queue) for queue in queues)
            if not self._work:
                break
            piece = self._work.popleft()
            await self._do(piece)
            left -= _COSTS[piece.what]
        return self._forgotten and not self._work

    async def _do(self, piece: _Piece) -> None:
        hardware, index = self._hardware, piece.number
        match piece.what:
            case "qp":
                # No window is freed: the rows of all regions go.
                await self._qps.stop(self._owned[index], windows=False)
            case "counters":
                await hardware.clear_counters(index)
            case "mr":
                await hardware.write_row("mr", index, {})
                await hardware.invalidate(index)
            case "row":
                await hardware.write_row(piece.table, index, {})
            case "queue":
                if (await hardware.read_row("queue", index))["enabled"]:
                    await hardware.drop_queue(index, restart=True)
