"""What the transport asks of the owner of the regions' keys (``hdl.context.region_keys``)."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["KEY_USERS", "RegionKeyPort", "RegionKeyPorts", "RegionRequest"]

#: Who asks, in the order of their precedence.
KEY_USERS = ("commit", "requester")


class RegionRequest(data.Struct):
    """Change the state of a region that CREATE_MR has made.

    ``register``: the region ``mrn``, which must be free, gets ``key`` and ``access`` (bits of
    ``MrRow.access``). Otherwise the region that ``key`` names becomes free. Either way the region
    must be of ``function`` and ``pd``, and it keeps its pages."""

    register: 1
    function: 8
    pd: 16
    key: 32
    mrn: 32
    access: 4


class RegionKeyPort(wiring.Signature):
    """Seen from who asks. ``rsp``: whether it was done, exactly one answer for each request. Who
    reads the regions' rows from then on finds the new state."""

    def __init__(self):
        super().__init__(
            {
                "req": Out(stream.Signature(RegionRequest)),
                "rsp": In(stream.Signature(1, always_ready=True)),
            }
        )


class RegionKeyPorts(wiring.Signature):
    """A ``RegionKeyPort`` for each of ``KEY_USERS``, seen from the transport."""

    def __init__(self):
        super().__init__({name: Out(RegionKeyPort()) for name in KEY_USERS})
