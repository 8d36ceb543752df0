"""What the endpoint's requests need of the simulation, or of whatever else the device is in."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from sim.endpoint.connections import Background
from sim.models.impairments import Impairments

__all__ = ["World"]


class World(Protocol):
    """What a session needs besides the device."""

    #: Of a queue pair unless it is asked for; the device does not tell its limit.
    max_inline_data: int

    async def wait(self, until: float) -> None:
        """Let the device go on; returns at ``time.monotonic()`` = ``until`` at the latest.

        Returns early whenever something may have completed, but lets the device do first what it
        can do without anybody else.
        """

    async def shown(self) -> None:
        """Return when memory shows all that the device has acknowledged before."""

    def beside(self, work: Coroutine[Any, Any, Any]) -> Background:
        """Let something go on beside the requests."""

    def facts(self) -> dict[str, Any]:
        """What ``info`` shows beside addresses and limits."""

    def counters(self) -> dict[str, int]:
        """Counters beside those of the device."""

    def impair(self, what: Impairments) -> None:
        """Let the network do that to frames from now on, both ways."""

    def refusal(self) -> str:
        """Why the device refused the last control command; empty when that is not known."""
