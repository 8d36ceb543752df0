"""What is kept of a packet's headers until its user takes it."""

from amaranth.lib import data

from hdl.ports.headers import RxHeader

__all__ = ["KEPT", "expanded"]

#: Fields of extended headers at the place of RETH, with the bits of ``va`` that hold them.
IN_VA = {
    "syndrome": slice(56, 64),  # AETH
    "msn": slice(32, 56),
    "qkey": slice(32, 64),  # DETH
    "src_qp": slice(0, 24),
}

#: ``RxHeader`` without them.
KEPT = data.StructLayout(
    {name: field.shape for name, field in data.Layout.cast(RxHeader) if name not in IN_VA}
)


def expanded(header, kept) -> list:
    """Assignments of the ``RxHeader`` ``header`` from a row of ``KEPT``."""
    fields = [name for name, _ in data.Layout.cast(RxHeader)]
    return [
        header[name].eq(kept.va[IN_VA[name]] if name in IN_VA else kept[name]) for name in fields
    ]
