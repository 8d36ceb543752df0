"""Dynamic connections (extension DC)."""

from __future__ import annotations

from enum import IntFlag

__all__ = ["DcFlags"]


class DcFlags(IntFlag):
    """``create_flags`` of CREATE_QP, of an initiator: it has streams."""

    STREAMS = 1 << 0
