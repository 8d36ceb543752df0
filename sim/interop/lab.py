"""Guest, endpoint and the wire between them, up and ready."""

from __future__ import annotations

import contextlib
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from sim.endpoint import peer
from sim.endpoint.client import EndpointClient, OtherFunction
from sim.interop.client import AgentError, GuestClient, ProtocolError
from sim.interop.guest import BOOT_SECONDS, Guest, GuestError
from sim.interop.image import GuestImage
from sim.interop.parties import Party
from sim.interop.relay import Relay

__all__ = ["Lab"]

_NIC_MAC, _GUEST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
_NIC_ADDRESSES = ("10.0.0.1", "fd00::1")
#: Of further functions of the card.
_FUNCTION_ADDRESSES = ("10.0.0.3", "10.0.0.4", "10.0.0.5")
_GUEST_ADDRESSES = ("10.0.0.2/24", "fd00::2/64")
#: Wall-clock time for an answer of the endpoint, its start included, seconds.
_ENDPOINT_SECONDS = 60.0
#: Code of the time-outs of both sides on a network that loses packets: 67 ms, as is usual.
TIMEOUT = 14
#: How long the report of a failure may wait for a side that may be the cause of it, seconds.
_REPORT_SECONDS = 5.0


class Lab:
    """``parties`` are NIC and guest, in this order; ``relay`` records what passes between them.

    The guest starts while the endpoint does. ``boot_seconds``: until its agent answered. Raises
    GuestError, with the console's last lines, when the guest does not come up. ``functions``: of
    the card; the others are ``beside`` the first one.
    """

    def __init__(
        self, image: GuestImage, width: int, timer_scale: float = 1.0, functions: int = 1
    ) -> None:
        self.functions = functions
        self._stack = contextlib.ExitStack()
        self._until = math.inf
        began, others = time.monotonic(), _FUNCTION_ADDRESSES[: functions - 1]
        try:
            folder = Path(
                self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rocinante"))
            )
            self._guest = self._stack.enter_context(
                Guest(image, folder, mac=_GUEST_MAC, addresses=_GUEST_ADDRESSES)
            )
            self._client = GuestClient(self._guest.control)
            path = folder / "wire"
            listener = self._stack.enter_context(peer.listen(str(path)))
            listener.settimeout(_ENDPOINT_SECONDS)
            self._endpoint = self._stack.enter_context(
                EndpointClient(
                    *("--wire", f"unix:{path}", "--width", str(width), "--mac", _NIC_MAC),
                    *("--timer-scale", str(timer_scale)),
                    *(word for address in _NIC_ADDRESSES for word in ("--ip", address)),
                    *(word for address in others for word in ("--function-ip", address)),
                    program=(sys.executable, "-P", "-m", "sim.tools.cli"),
                    timeout=_ENDPOINT_SECONDS,
                )
            )
            guest = self._first_answer()
            self.boot_seconds = time.monotonic() - began
            nic = Party("NIC", self._endpoint)
            nic.beside = [
                Party(f"NIC's function {number}", OtherFunction(self._endpoint, number))
                for number in range(1, functions)
            ]
            wire, _ = listener.accept()
            self._stack.callback(wire.close)
            self.relay = Relay(wire, self._guest.wire)
            self._stack.callback(self.relay.close)
            self.parties = (nic, guest)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End guest and endpoint."""
        self._stack.close()

    @property
    def until(self) -> float:
        """When no answer of either side is waited for any more (``time.monotonic``)."""
        return self._until

    @until.setter
    def until(self, until: float) -> None:
        self._until = self._client.until = self._endpoint.until = until

    @contextlib.contextmanager
    def network(self, what: str) -> Iterator[None]:
        """Let the network do that to frames meanwhile (as ``--impair`` has it), with time-outs."""
        self._endpoint.call("impair", what=what)
        for party in (*self.parties, *self.parties[0].beside):
            party.timeout = TIMEOUT if what else 0
        yield
        with contextlib.suppress(OSError, RuntimeError):  # what has failed is not used again
            self._endpoint.call("impair", what="")

    def nic_counters(self) -> dict[str, int]:
        """Those of the card's functions, added up, and of its wire."""
        found: dict[str, int] = self._endpoint.call("counters")["counters"]
        for party in self.parties[0].beside:
            for name, value in party.client.call("counters")["counters"].items():
                if not name.startswith("wire_"):
                    found[name] += value
        return found

    def report(self) -> str:
        """How both sides and the wire stand, for a scenario that has failed, or was stopped."""
        self.until = time.monotonic() + 2 * _REPORT_SECONDS
        lines = [f"wire: {self.relay.ended or 'passes frames'}"]
        lines += [f"guest's counters: {self._counters(self._client, patience=_REPORT_SECONDS)}"]
        if self._endpoint.process.poll() is None:
            lines += [f"NIC's counters: {self._counters(self._endpoint)}"]
        else:
            lines += ["endpoint:", *(f"  | {line}" for line in self._endpoint.messages[-12:])]
        return "\n".join([*lines, "guest's console:", self._guest.last_lines()])

    def _first_answer(self) -> Party:
        try:
            self._client.call("info", patience=BOOT_SECONDS)
        except ProtocolError as error:
            raise self._guest.error(f"The guest has not come up ({error})") from None
        except AgentError as error:
            raise GuestError(f"The guest's agent: {error}\n{self._guest.last_lines()}") from None
        return Party("guest", self._client, tells_state=True, linux=True)

    def _counters(self, client: Any, **how: float) -> str:
        try:
            found = client.call("counters", **how)
        except (OSError, RuntimeError) as error:
            return f"not to be had ({error})"
        counters = found.get("counters", found)
        return ", ".join(f"{name} {value}" for name, value in counters.items() if value)
