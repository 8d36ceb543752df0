"""Bounded waiting on top of ``Platform.wait_event``."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from sim.guest.driver.errors import DriverTimeout
from sim.guest.driver.platform import Platform

#: How long to sleep at most before looking again, in ns: also finds what raises no interrupt.
POLL_NS = 1_000


async def wait_until(
    platform: Platform,
    condition: Callable[[], bool],
    timeout_ns: int,
    what: str,
    poll_ns: int = POLL_NS,
) -> None:
    """Returns once ``condition()`` holds; DriverTimeout that names ``what`` after ``timeout_ns``.

    The condition looks at memory only; whatever it raises is passed on.
    """
    deadline = platform.now() + timeout_ns
    while not condition():
        left = deadline - platform.now()
        if left <= 0:
            raise DriverTimeout(f"{what} not within {timeout_ns} ns")
        await platform.wait_event(min(poll_ns, left))


class Lock:
    """Keeps tasks out of each other's register sequences; not bound to an event loop."""

    def __init__(self, platform: Platform, timeout_ns: int = 1_000_000_000):
        self._platform, self._timeout_ns = platform, timeout_ns
        self._held = False

    async def __aenter__(self) -> None:
        if self._held:
            await wait_until(
                self._platform, lambda: not self._held, self._timeout_ns, "Lock released"
            )
        self._held = True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held = False
