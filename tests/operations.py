"""Rows of the operation tables as the structures that travel, for models and expectations."""

from __future__ import annotations

from typing import Any

from hdl.abi.operations import WORK_REQUESTS
from hdl.ports.operations import RequestOperation, request_fields
from tests.transport.rows import unpack

__all__ = ["request_row"]


def request_row(opcode: int) -> dict[str, Any]:
    """The ``RequestOperation`` of a WR opcode, all fields as numbers."""
    fields = request_fields(WORK_REQUESTS.get(opcode))
    return unpack(RequestOperation, RequestOperation.const(fields).as_value().value)
