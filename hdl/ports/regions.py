"""What the transport asks of the owner of the regions' keys (``hdl.context.region_keys``)."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .numbers import QpNumber
from .rows import PlacementRights

__all__ = ["KEY_USERS", "RegionKeyPort", "RegionKeyPorts", "RegionRequest"]

#: Who asks, in the order of their precedence.
KEY_USERS = ("commit", "requester")


class RegionRequest(data.Struct):
    """Change the state of a region that CREATE_MR has made, or of a memory window.

    ``register``: the region ``mrn``, which must be free, gets ``key`` and ``access`` (bits of
    ``MrRow.access``); it keeps its pages. ``bind``: the window that ``key`` names gets that key,
    ``access``, and the ``length`` bytes from ``va`` on of the region whose key is ``lkey``.
    Otherwise what ``key`` names becomes free; a window that is bound must be bound to ``qp``.
    Everything must be of ``function`` and ``pd``."""

    register: 1
    bind: 1
    function: 8
    pd: 16
    key: 32
    mrn: 32
    access: 4
    flush: PlacementRights  # as ``access``
    qp: QpNumber
    lkey: 32
    va: 64
    length: 64
    zero_based: 1  # the window's addresses begin at 0


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
