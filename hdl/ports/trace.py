"""Between the trace of frames, the ingress and the registers."""

from amaranth.lib import data
from amaranth.lib.wiring import In, Out, Signature
from amaranth.utils import ceil_log2

from hdl.common.packet import packet_beat
from hdl.config import TRACE_BYTES

from .counter_names import DROP_REASONS

__all__ = ["TIME_BITS", "FrameFacts", "FrameTap", "TracePort", "Verdict"]

#: Bits of a time stamp: cycles since the card was configured, 13 days at 250 MHz.
TIME_BITS = 48


class FrameTap(Signature):
    """A copy of the beats that pass somewhere: ``valid`` in the cycle in which one does."""

    def __init__(self, width: int):
        super().__init__({"valid": Out(1), "beat": Out(packet_beat(width))})


class Verdict(data.Struct):
    """What the ingress has decided about its next frame: nothing in ``reasons`` delivers it."""

    valid: 1
    reasons: len(DROP_REASONS)  # at most one is set


class FrameFacts(data.Struct):
    """What the trace knows of a frame beside its bytes."""

    time: TIME_BITS  # of its first beat
    length: 16  # bytes without FCS, modulo 65536
    reason: range(len(DROP_REASONS) + 1)  # 0: not dropped; else the number in DROP_REASONS, plus 1
    error: 1  # marked as bad on its last beat


class TracePort(Signature):
    """The trace's controls and its reading, seen from the registers; see ``Trace``."""

    def __init__(self, frames: int):
        index = ceil_log2(frames)
        super().__init__(
            {
                "start": Out(1),
                "stop": Out(1),
                "snap": Out(range(TRACE_BYTES + 1)),
                "stop_reasons": Out(len(DROP_REASONS)),
                "running": In(1),
                "dropped": In(1),
                "now": In(TIME_BITS),
                "sent_next": In(index),
                "sent_full": In(1),
                "received_next": In(index),
                "received_full": In(1),
                "received": Out(1),
                "frame": Out(index),
                "facts": In(FrameFacts),
                "read": Out(1),
                "word": Out(ceil_log2(TRACE_BYTES // 4)),
                "data": In(32),
            }
        )
