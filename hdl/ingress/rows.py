"""What is kept of a packet's headers until its user takes it."""

from amaranth.lib import data

from hdl.ports.headers import IN_VA, RxHeader

__all__ = ["KEPT", "expanded"]

#: ``RxHeader`` without them. ``length`` counts the payload alone, ``total`` the GRH area of a
#: ``datagram`` too. They are worked out before, as what a header's user decides by them is late.
#: Of a ``multicast`` datagram ``dest_qp`` is a ``found_groups`` (``GroupMatch``).
KEPT = data.StructLayout(
    {name: field.shape for name, field in data.Layout.cast(RxHeader) if name not in IN_VA}
    | {"datagram": 1, "multicast": 1, "total": data.Layout.cast(RxHeader)["length"].shape}
)


def expanded(header, kept) -> list:
    """Assignments of the ``RxHeader`` ``header`` from a row of ``KEPT``."""
    fields = [name for name, _ in data.Layout.cast(RxHeader)]
    return [
        header[name].eq(kept.va[IN_VA[name]] if name in IN_VA else kept[name]) for name in fields
    ]
