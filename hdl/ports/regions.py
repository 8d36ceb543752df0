"""What the transport asks of the owner of the regions' keys (``hdl.context.region_keys``)."""

from amaranth.hdl import Const, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.config import NicConfig

from .keys import LAYOUT
from .numbers import QpNumber
from .rows import PlacementRights

__all__ = [
    "KEY_USERS",
    "LAYOUT_REQUEST",
    "RegionKeyPort",
    "RegionKeyPorts",
    "RegionRequest",
    "asked_layout",
    "binds_window",
    "by_peer",
    "sets_layout",
]

#: Who asks, in the order of their precedence.
KEY_USERS = ("commit", "requester")


class RegionRequest(data.Struct):
    """Change the state of a region that CREATE_MR has made, or of a memory window.

    ``register``: the region ``mrn``, which must be free, gets ``key`` and ``access`` (bits of
    ``MrRow.access``); it keeps its pages. ``bind``: the window that ``key`` names gets that key,
    ``access``, and the ``length`` bytes from ``va`` on of the region whose key is ``lkey``.
    Otherwise what ``key`` names becomes free; a window that is bound must be bound to ``qp``.
    With both the indirect key ``mrn``, which must have ``key``, gets ``access`` and a layout of
    ``length`` bytes (``asked_layout``). Everything must be of ``function`` and ``pd``."""

    register: 1
    bind: 1
    function: 8
    pd: 16
    key: 32
    mrn: 32
    access: 4  # of an invalidation bit 0: a peer asks for it (``by_peer``)
    flush: PlacementRights  # as ``access``
    qp: QpNumber
    lkey: 32
    va: 64
    length: 64
    zero_based: 1  # the window's addresses begin at 0


#: ``va`` of a request that gives an indirect key a layout.
LAYOUT_REQUEST = data.StructLayout(
    {
        "layout": LAYOUT,  # but for ``most``
        "look": 1,  # nothing is changed: only whether it may be is asked
        "check_free": 1,  # not if it has one
        "unused": 4,
    }
)


def sets_layout(config: NicConfig, request) -> Value:
    """Whether a ``RegionRequest`` is about the layout of an indirect key."""
    return request.register & request.bind if config.mkeys else Const(0, 1)


def binds_window(config: NicConfig, request) -> Value:
    """Whether a ``RegionRequest`` is to bind a window."""
    return request.bind & ~request.register if config.mkeys else request.bind


def asked_layout(request) -> data.View:
    """The ``LAYOUT_REQUEST`` of a ``RegionRequest``."""
    return data.View(LAYOUT_REQUEST, request.va)


def by_peer(request) -> Value:
    """Whether an invalidation is asked for by a peer."""
    return request.access[0]


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
