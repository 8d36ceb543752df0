"""What is kept of a packet's headers until its user takes it."""

from amaranth.hdl import Cat
from amaranth.lib import data

from hdl.ports.headers import RxHeader
from hdl.ports.shared import IN_VA, in_va

__all__ = ["ATOMIC_OR_GID", "KEPT", "RETH_OR_IP", "atomic_or_gid", "expanded", "reth_or_ip"]

#: ``RxHeader`` without them. ``length`` counts the payload alone, ``total`` the GRH area of a
#: ``datagram`` too. They are worked out before, as what a header's user decides by them is late.
#: Of a ``multicast`` datagram ``dest_qp`` is a ``found_groups`` (``GroupMatch``).
KEPT = data.StructLayout(
    {name: field.shape for name, field in data.Layout.cast(RxHeader) if name not in IN_VA}
    | {"datagram": 1, "multicast": 1, "total": data.Layout.cast(RxHeader)["length"].shape}
)

#: Key and length of a RETH, or what the GRH area of a datagram needs of its IP header and no other
#: field has: bytes 0 to 7 of an IPv6 header, or bytes 2 to 7 and the checksum of an IPv4 header.
RETH_OR_IP = data.UnionLayout(
    {
        "reth": data.StructLayout({name: KEPT[name].shape for name in ("rkey", "dma_length")}),
        "ipv6": 64,
        "ipv4": data.StructLayout({"middle": 48, "checksum": 16}),
    }
)
#: Operands of an AtomicETH, or the GID that a datagram goes to, for its GRH area.
ATOMIC_OR_GID = data.UnionLayout(
    {
        "atomic": data.StructLayout({name: KEPT[name].shape for name in ("swap_add", "compare")}),
        "gid": 128,
    }
)


def reth_or_ip(kept) -> data.View:
    """The ``RETH_OR_IP`` of a row of ``KEPT``."""
    return data.View(RETH_OR_IP, Cat(kept.rkey, kept.dma_length))


def atomic_or_gid(kept) -> data.View:
    """The ``ATOMIC_OR_GID`` of a row of ``KEPT``."""
    return data.View(ATOMIC_OR_GID, Cat(kept.swap_add, kept.compare))


def expanded(header, kept) -> list:
    """Assignments of the ``RxHeader`` ``header`` from a row of ``KEPT``."""
    fields = [name for name, _ in data.Layout.cast(RxHeader)]
    return [
        header[name].eq(in_va(kept)[IN_VA[name]][name] if name in IN_VA else kept[name])
        for name in fields
    ]
