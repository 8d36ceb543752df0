"""What CREATE_QP asks for of DC."""

from __future__ import annotations

from firmware.dc.streams import Streams
from firmware.objects import Limits, Refused
from hdl.abi.dc import DcFlags
from hdl.abi.enums import QpType
from hdl.abi.layout import Values

__all__ = ["asked_streams", "check_dynamic"]


def check_dynamic(v: Values) -> None:
    """Refuses what a type does not have of DC."""
    if v.dc_key and v.qp_type != QpType.DCT:
        raise Refused(f"dc_key must be 0, not {v.dc_key:#x}, of type {v.qp_type}")
    known = int(DcFlags.STREAMS) if v.qp_type == QpType.DCI else 0
    if v.create_flags & ~known:
        raise Refused(f"create_flags must be 0, not {v.create_flags}, of type {v.qp_type}")
    for name in ("log_streams", "log_errored"):
        if v[name] and not v.create_flags:
            raise Refused(f"{name} must be 0, not {v[name]}, without streams")
    if v.qp_type == QpType.DCT and not v.srqn:
        raise Refused("A target of DC needs an SRQ")


def asked_streams(limits: Limits, v: Values) -> Streams | None:
    """The streams of an initiator, if it has any. How many it has at a time changes nothing: all
    take their turn at its one channel."""
    if not v.create_flags:
        return None
    limits.check("max_dci_log_streams", v.log_streams)
    limits.check("max_dci_log_errored", v.log_errored)
    return Streams(1 << v.log_errored)
