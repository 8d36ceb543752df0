"""What a service manager is told: systemd's notification protocol (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time

__all__ = ["ServiceManager"]


class ServiceManager:
    """Tells the service manager of ``environment`` how the daemon fares; without one, nobody.

    NOTIFY_SOCKET is a path, or a name in the abstract name space that begins with @. With
    WATCHDOG_USEC (and WATCHDOG_PID, if it is there, this process) ``alive`` must be called more
    often than that; it passes on a sign of life when half of the time is over.
    """

    def __init__(self, environment: dict[str, str]):
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        period = environment.get("WATCHDOG_USEC", "")
        #: Seconds between two signs of life; None: nobody waits for them.
        self.pace = int(period) / 2e6 if self._socket and ours and period.isdigit() else None
        self._last = 0.0

    def tell(self, **state: str) -> None:
        """Send assignments, as in READY=1. Nobody listens any more: that does not matter here."""
        if self._socket is None:
            return
        text = "\n".join(f"{name}={value}" for name, value in state.items())
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError:
            return

    def alive(self) -> None:
        """The daemon has gone through its loop."""
        now = time.monotonic()
        if self.pace is not None and now - self._last >= self.pace:
            self._last = now
            self.tell(WATCHDOG="1")

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
