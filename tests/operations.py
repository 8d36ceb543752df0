"""Rows of the operation tables as the structures that travel, for models and expectations."""

from __future__ import annotations

from typing import Any

from hdl.abi.operations import WORK_REQUESTS
from hdl.config import NicConfig
from hdl.ports.operations import RequestOperation, request_fields
from tests.fields import unpack

__all__ = ["request_row"]


def request_row(opcode: int, config: NicConfig | None = None) -> dict[str, Any]:
    """The ``RequestOperation`` of a WR opcode, of a card as it is by default or of this one."""
    fields = request_fields(WORK_REQUESTS.get(opcode), config or NicConfig())
    return unpack(RequestOperation, RequestOperation.const(fields).as_value().value)
