"""Who looks on at what a driver asks of its device."""

from __future__ import annotations

from typing import Any, Protocol

from hdl.abi.enums import QpType
from hdl.abi.virtio_rdma import AnyCommand

__all__ = ["Observer"]


class Observer(Protocol):
    """Told of each control command, request and completion; it changes nothing."""

    def commanded(self, command: AnyCommand, response: int) -> None:
        """A control command was answered with this response byte."""

    def posted(self, qp_type: QpType, request: Any) -> None:
        """A send request (``sim.guest.verbs.wr.SendWR``) is about to be posted."""

    def completed(self, completion: Any) -> None:
        """A completion (``sim.guest.verbs.wr.WC``) was polled."""

    def counted(self, counters: dict[str, int]) -> None:
        """The device's counters were read."""
