"""Why a QP is activated: the flags of the lists of QPs that need service, by their names."""

from amaranth.lib import enum

from hdl.common.activation import FLAG_DATA
from hdl.config import ACTIVATION_FLAGS

__all__ = ["FINISH_AND_FLUSH", "ReceiveFlags", "SendFlags"]


class SendFlags(enum.IntFlag, shape=ACTIVATION_FLAGS):
    """Why the scheduler looks at a QP."""

    DOORBELL = 1
    WAKE = 2  # the completer has finished an operation, or the firmware has changed the QP
    AGAIN = 4  # there may be more to fetch, or its rate limiter has credit again
    NEXT = FLAG_DATA  # the activation carries the avail index (NOTIFICATION_DATA)


class ReceiveFlags(enum.IntFlag, shape=ACTIVATION_FLAGS):
    """Why the receive side is poked for a QP."""

    FINISH = 1  # the oldest outstanding WQE may be one to finish without a packet
    FLUSH = 2  # the QP is, or may be, in error: flush its receive queue
    FAIL = 4  # the QP must stop: a completion of it was lost (VR-4.11)
    TIMEOUT = 8  # its timer has run out


FINISH_AND_FLUSH = (ReceiveFlags.FINISH | ReceiveFlags.FLUSH).value
