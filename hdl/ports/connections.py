"""Between the registers and what serves the connections of DC."""

from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, Signature

from .headers import ReceivedControl, SentControl
from .numbers import QpNumber
from .shared import DC_NUMBER, DC_STREAM

__all__ = ["ConnectionPort"]


class ConnectionPort(Signature):
    """Seen from the registers. ``received``: packets that have come; ``sent``: those to send.
    ``qp``: of which ``asked``, ``destination`` and ``stream`` tell, a cycle later; ``forget``:
    pulse, nothing is asked by ``qp``. ``asks`` counts requests that were held, ``dropped`` packets
    without room."""

    def __init__(self):
        super().__init__(
            {
                "received": In(stream.Signature(ReceivedControl)),
                "sent": Out(stream.Signature(SentControl)),
                "qp": Out(QpNumber),
                "forget": Out(1),
                "asked": In(1),
                "destination": In(DC_NUMBER),
                "stream": In(DC_STREAM),
                "asks": In(8),
                "dropped": In(32),
            }
        )
