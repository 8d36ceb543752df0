"""Exceptions with a text and an errno."""

from __future__ import annotations

import os

__all__ = ["PyverbsError", "PyverbsRDMAError", "PyverbsUserError"]


class PyverbsError(Exception):
    """Any error of this package. ``error_code``: what says how it failed, or -1."""

    def __init__(self, msg: str = "", error_code: int = -1):
        super().__init__(msg)
        self._error_code = error_code

    @property
    def error_code(self) -> int:
        """An errno."""
        return self._error_code


class PyverbsRDMAError(PyverbsError):
    """A verb has failed; its text ends with the errno and what that means."""

    def __init__(self, msg: str = "", error_code: int | None = None):
        if error_code is None:
            super().__init__(msg)
            return
        super().__init__(f"{msg}. Errno: {error_code}, {os.strerror(abs(error_code))}", error_code)


class PyverbsUserError(PyverbsError):
    """The program has asked for what makes no sense."""
