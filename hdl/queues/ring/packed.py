"""Places and flags of a packed virtqueue, by positions that count on over its end.

A position counts descriptors, modulo 2**16. Its lower bits are the place in the ring, as they are
in a split one. The bit above them counts laps: the wrap counter is 1 in the first lap and in each
second one behind it (Virtio 1.2, 2.8.1).
"""

from amaranth.hdl import Cat, Const, Mux, Value

from hdl.abi.virtio_pci import PACKED_DESC, EventFlags, PackedFlags
from hdl.common.address import OFFSET_BITS, mask
from hdl.config import NicConfig

__all__ = [
    "AVAIL_BIT",
    "FLAGS_BYTES",
    "USED_BIT",
    "asked_event",
    "available",
    "event_position",
    "flags_offset",
    "is_packed",
    "off_wrap",
    "place_of",
    "two_laps",
    "used_base",
    "used_flags",
    "wrap_counter",
]

FLAGS_OFFSET, FLAGS_BYTES = PACKED_DESC.offset("flags"), 2
AVAIL_BIT, USED_BIT = (flag.bit_length() - 1 for flag in (PackedFlags.AVAIL, PackedFlags.USED))


def is_packed(config: NicConfig, rules) -> Value:
    """Whether the ring with these ``RingRules`` is packed. On a card without packed rings none is,
    and nothing is built for them: this is the place that knows."""
    return rules.packed if config.packed else Const(0)


def used_base(config: NicConfig, row) -> Value:
    """Where buffers of the queue of ``row`` go back to: its used ring, or its only one."""
    return Mux(is_packed(config, row.rules), row.desc, row.device)


def wrap_counter(position: Value, size_log2: Value) -> Value:
    """The wrap counter at ``position``."""
    return ~position.bit_select(size_log2, 1)


def place_of(job) -> Value:
    """Where the descriptor of a job lies in its ring."""
    return job.request.position & mask(job.size_log2)


def off_wrap(position: Value, size_log2: Value) -> Value:
    """Place and wrap counter, as in an event suppression structure (2.8.14)."""
    return Cat((position & mask(size_log2))[:15], wrap_counter(position, size_log2))


def asked_event(position: Value, size_log2: Value) -> Value:
    """The event suppression structure that asks for a notification of ``position``."""
    return Cat(off_wrap(position, size_log2), Const(EventFlags.DESC, 16))


def two_laps(size_log2: Value) -> Value:
    """Ones below the bit above the lap's: positions are compared in these."""
    return Cat(Const(1, 1), mask(size_log2))[:16]


def event_position(event: Value, size_log2: Value) -> Value:
    """The position, of two laps, that an event suppression structure names."""
    return (event[:15] | (~event[15] << size_log2))[:16]


def available(flags: Value, wrap: Value) -> Value:
    """Whether these are the flags of an available descriptor where the wrap counter is ``wrap``."""
    return (flags[AVAIL_BIT] == wrap) & (flags[USED_BIT] != wrap)


def used_flags(written: Value, position: Value, size_log2: Value) -> Value:
    """Flags of a used descriptor at ``position``; ``written``: its buffer was written to."""
    wrap = wrap_counter(position, size_log2)
    return Cat(Const(0, 1), written, Const(0, 5), wrap, Const(0, 7), wrap)


def flags_offset(position: Value, size_log2: Value) -> Value:
    """Bytes from the ring to the flags of the descriptor at ``position``."""
    return Cat(Const(FLAGS_OFFSET, 4), position & mask(size_log2))[:OFFSET_BITS]
