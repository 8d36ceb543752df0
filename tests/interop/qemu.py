"""QEMU for tests that need a guest."""

from __future__ import annotations

import os
import shutil

import pytest

from sim.interop.guest import require_qemu
from sim.rtl.env import ToolError

__all__ = ["need_qemu"]


def need_qemu() -> None:
    """Installs it where that is allowed; only elsewhere the test is skipped."""
    try:
        require_qemu()
    except ToolError as error:
        if os.geteuid() == 0 and shutil.which("apt-get"):
            raise
        pytest.skip(str(error))
