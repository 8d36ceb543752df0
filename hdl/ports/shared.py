"""Bits that several kinds of packet or work request have in common, as unions.

A row holds such bits once. Each kind of packet or work request is a member of the union, and who
deals with one kind reads and writes its member: so it is said what the bits are there.
"""

from amaranth.hdl import Cat, Const
from amaranth.lib import data

from hdl.abi import virtio_rdma
from hdl.abi.extensions import WR_BIND
from hdl.abi.layout import Struct, amaranth_layout
from hdl.abi.virtio_rdma import WR_RDMA, WR_REG, WR_UD

__all__ = ["BIND_FIELDS", "EX", "IN_VA", "OPERANDS", "VA", "ex", "in_va", "operands"]

#: ``imm`` of rows: ``imm_data`` is raw bytes; ``invalidate_rkey``, a number, is the key that the
#: packet or the work request invalidates.
EX: data.UnionLayout = amaranth_layout(virtio_rdma.EX)

#: ``va`` of headers.
VA = data.UnionLayout(
    {
        "address": 64,  # RETH, AtomicETH; of AtomicAckETH the value
        "aeth": data.StructLayout({"unused": 32, "msn": 24, "syndrome": 8}),
        "deth": data.StructLayout(
            {
                "src_qp": 24,
                # What ingress finds, in DETH's reserved byte.
                "priority": 3,
                "pkey_index": 4,
                "pkey_hit": 1,
                "qkey": 32,
            }
        ),
    }
)
#: Fields of extended headers that lie in ``va`` -> the member of ``VA`` that has them.
IN_VA = {
    name: member for member in ("aeth", "deth") for name, _ in VA[member].shape if name != "unused"
}

#: The beginning of a send WQE's ``wr``, as far as a card keeps it, by what the work request is.
OPERANDS = data.UnionLayout(
    {
        "rdma": amaranth_layout(WR_RDMA),
        "ud": amaranth_layout(Struct("wr_ud", *WR_UD.fields[:2])),  # but for the address vector
        "reg": amaranth_layout(WR_REG),
        "bind": amaranth_layout(WR_BIND),
    }
)
#: Fields of a ``Destination`` in which the operands of BIND_MW go on.
BIND_FIELDS = ("pd", "flow_label", "traffic_class", "sl", "dgid")


def ex(row) -> data.View:
    """The ``imm`` of a row, an ``EX``."""
    return data.View(EX, row.imm)


def in_va(row) -> data.View:
    """The ``va`` of a header, a ``VA``."""
    return data.View(VA, row.va)


def operands(wqe, destination=None) -> data.View:
    """The ``OPERANDS`` of a ``SendWqe``. BIND_MW has some where a datagram has its address vector,
    the ``Destination``; without one these are 0, and the other members are whole."""
    found = Cat(wqe.remote_addr, wqe.rkey)
    if destination is not None:
        found = Cat(found, (destination[name] for name in BIND_FIELDS))
    return data.View(OPERANDS, Cat(found, Const(0, OPERANDS.size))[: OPERANDS.size])
