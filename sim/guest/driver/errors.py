"""What can go wrong in the driver; everything is an OSError with an errno."""

from __future__ import annotations

import errno
import os


class RdmaError(OSError):
    """A verbs or driver call failed; ``errno`` says how, the text says with what.

    ``bad_wr`` is the work request that was refused, when one was.
    """

    bad_wr: object = None

    def __init__(self, code: int, text: str):
        super().__init__(code, f"{text} ({os.strerror(code)})")


class DeviceError(RdmaError):
    """The device does something the standard forbids; nothing it says can be trusted."""

    def __init__(self, text: str):
        super().__init__(errno.EIO, text)


class RingError(DeviceError):
    """The device put something impossible into a used ring."""


class NeedsReset(DeviceError):
    """The device has set DEVICE_NEEDS_RESET."""


class DriverTimeout(RdmaError):
    """Something did not happen in time."""

    def __init__(self, text: str):
        super().__init__(errno.ETIMEDOUT, text)


class CommandError(RdmaError):
    """The device answered a control command with an error; ``response`` is its response byte."""

    def __init__(self, command: str, response: int):
        super().__init__(errno.EINVAL, f"{command} refused with response {response:#04x}")
        self.command, self.response = command, response
