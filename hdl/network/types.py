"""Rows that the parts of the network function's data path pass on."""

from amaranth.lib import data

from hdl.abi.virtio_net import LARGEST_MTU
from hdl.abi.virtio_net_header import NET_HEADER
from hdl.ports.jobs import QueueErrorCause
from hdl.ports.network import PAIR_BITS

__all__ = [
    "FRAME_FACTS",
    "HEADER_BYTES",
    "LENGTH_BITS",
    "LONGEST_FRAME",
    "PAIR_BITS",
    "SHORTEST_FRAME",
    "Broken",
    "Buffer",
    "Found",
    "Returned",
]

#: Bytes of ``virtio_net_hdr`` with VERSION_1 (Virtio 1.2, 5.1.6).
HEADER_BYTES = NET_HEADER.size
#: A frame without FCS: its Ethernet header alone, and the largest MTU behind it and a VLAN tag.
SHORTEST_FRAME, LONGEST_FRAME = 14, LARGEST_MTU + 18
#: Bits of the length of a frame with its header.
LENGTH_BITS = 14


class Buffer(data.Struct):
    """A buffer of a chain of ``pair``. ``length``: bytes, as many as 2**17 - 1. ``broken``: none,
    and the chain ends here, as it is no good: its queue has been stopped."""

    pair: PAIR_BITS
    head: 16
    addr: 64
    length: 17
    first: 1
    last: 1
    broken: 1


class Broken(data.Struct):
    """The queue of ``pair`` is broken."""

    pair: PAIR_BITS
    cause: QueueErrorCause


class Returned(data.Struct):
    """Chain ``head`` goes back with ``length`` bytes written. ``last``: of the frame; only then
    may the driver see it."""

    pair: PAIR_BITS
    head: 16
    length: LENGTH_BITS
    last: 1


class Found(data.Struct):
    """What has been found out of a received frame: the ``pair`` that it goes to, and whether its
    checksums are ``right``, as far as anybody wants to know."""

    pair: PAIR_BITS
    right: 1


#: What is known of a received frame in the store.
FRAME_FACTS = data.StructLayout({"length": LENGTH_BITS, "side": Found})
