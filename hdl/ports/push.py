"""What becomes of WQEs that come with their doorbell, as the registers count it."""

from amaranth.lib.wiring import Out, Signature

from .counter_names import PUSH_COUNTS

__all__ = ["PushCounts"]


class PushCounts(Signature):
    """A cycle for each event of ``PUSH_COUNTS``, seen from where it happens."""

    def __init__(self):
        super().__init__({name: Out(1) for name in PUSH_COUNTS})
