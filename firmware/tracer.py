"""The trace of a card: its start and stop, and the frames that it holds.

Registers: ``hdl/csr/diagnostics.py``. They are nobody else's, so a firmware may run beside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from firmware.device import HardwareError
from firmware.identity import Bus
from hdl.config import TRACE_BYTES, NicConfig
from hdl.csr.map import CsrMap
from hdl.ports.counter_names import COUNTER_TEXTS, DROP_REASONS

__all__ = ["TracedFrame", "Tracer"]


@dataclass(frozen=True)
class TracedFrame:
    """One frame. ``time`` in cycles of its first beat; ``length`` in bytes without FCS, of which
    ``octets`` has the first; ``reason``: the counter that has counted it as dropped, or nothing;
    ``error``: it was marked as bad, by the MAC or for it."""

    time: int
    received: bool
    octets: bytes
    length: int
    reason: str = ""
    error: bool = False

    @property
    def comment(self) -> str:
        """What there is to say of it, for a reader."""
        if self.reason:
            text = COUNTER_TEXTS[self.reason].removeprefix("dropped: ")
            return f"dropped, {self.reason}: {text}"
        if self.error:
            return "sent as a bad frame, for its receiver to drop"
        return ""


class Tracer:
    """The trace of the card that ``bus`` leads to. HardwareError if the card has none."""

    def __init__(self, bus: Bus, config: NicConfig):
        if not config.trace_frames:
            raise HardwareError("The card has no trace: its configuration has trace_frames 0")
        self._bus, self._frames, self._map = bus, config.trace_frames, CsrMap(config)

    async def _read(self, name: str, word: int = 0) -> int:
        return await self._bus.read(self._map.address(f"trace.{name}", word))

    async def _fields(self, name: str) -> dict[str, int]:
        return self._map.decode(f"trace.{name}", await self._read(name))

    async def _write(self, name: str, **values: int) -> None:
        path = f"trace.{name}"
        await self._bus.write(self._map.address(path), self._map.encode(path, **values))

    async def start(self, *, snap: int = TRACE_BYTES, stop_at: Iterable[str] = ()) -> None:
        """Forget all frames and record those that begin from now on.

        snap: bytes of each. stop_at: names of ``DROP_REASONS``; a frame that is dropped for one of
        them ends the trace. ValueError for what cannot be.
        """
        if not 0 <= snap <= TRACE_BYTES:
            raise ValueError(f"A trace has 0 to {TRACE_BYTES} bytes of a frame, not {snap!r}")
        mask = 0
        for name in stop_at:
            if name not in DROP_REASONS:
                raise ValueError(f"No frame is dropped for {name!r}")
            mask |= 1 << DROP_REASONS.index(name)
        await self._write("snap", value=snap)
        await self._write("stop_reasons", value=mask)
        await self._write("control", start=1)

    async def stop(self) -> None:
        """Record no frame that begins from now on."""
        await self._write("control", stop=1)

    async def running(self) -> bool:
        """Whether frames that begin are recorded."""
        return bool((await self._fields("status"))["running"])

    async def dropped(self) -> bool:
        """Whether a dropped frame has ended it."""
        return bool((await self._fields("status"))["dropped"])

    async def now(self) -> int:
        """The card's time in cycles."""
        while True:
            high, low = await self._read("now_high"), await self._read("now_low")
            if await self._read("now_high") == high:
                return high << 32 | low

    async def frames(self) -> list[TracedFrame]:
        """The frames of both directions by their times; the trace must have been stopped."""
        snap = await self._read("snap")
        found = [
            await self._frame(slot, received, snap)
            for received in (False, True)
            for slot in await self._slots("received" if received else "sent")
        ]
        return sorted(found, key=lambda one: one.time)

    async def _slots(self, ring: str) -> list[int]:
        """The slots of a ring, the oldest frame's first."""
        state = await self._fields(ring)
        place = state["next"]
        # A frame that has begun and does not end may have changed the oldest.
        return [*(range(place + 1, self._frames) if state["full"] else ()), *range(place)]

    async def _frame(self, slot: int, received: bool, snap: int) -> TracedFrame:
        await self._write("select", frame=slot, received=int(received))
        time = await self._read("time_low") | await self._read("time_high") << 32
        facts = await self._fields("facts")
        kept = min(snap, facts["length"])
        words = [await self._read("data", word) for word in range(-(-kept // 4))]
        octets = b"".join(word.to_bytes(4, "little") for word in words)[:kept]
        reason = DROP_REASONS[facts["reason"] - 1] if facts["reason"] else ""
        return TracedFrame(time, received, octets, facts["length"], reason, bool(facts["error"]))
