"""Headers of transaction layer packets, as P-Tile's streams carry them: four words, first word on
top (PCI Express Base Specification, "Transaction Layer Packet Definition").

The rest of the room knows requests and completions by the descriptors of ``..descriptors``, so
these functions translate.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data

from hdl.pcie.descriptors import (
    CompletionStatus,
    RcError,
    RequestType,
    cc_descriptor,
    cq_descriptor,
    rc_descriptor,
)

__all__ = [
    "COMPLETION",
    "HEADER_BITS",
    "completion",
    "completion_header",
    "identity",
    "is_completion",
    "request",
    "request_header",
]

HEADER_BITS = 128
#: Types, below the two bits that say whether data and a fourth word are there.
MEMORY, COMPLETION, MESSAGE = 0b00000, 0b01010, 0b10
#: What a request is called that is neither of memory nor posted (PG213, "Completer Request
#: Descriptor Formats").
OTHER_REQUEST = 2


def identity() -> data.StructLayout:
    """Requester ID or completer ID."""
    return data.StructLayout({"function": 3, "device": 5, "bus": 8})


def _common() -> dict[str, int]:
    """The first word, lowest bits first."""
    return {
        "words": 10, "at": 2, "attr": 2, "poisoned": 1, "digest": 1, "hint": 1, "light": 1,
        "attr2": 1, "tag8": 1, "tc": 3, "tag9": 1, "type": 5, "four": 1, "with_data": 1,
        "prefix": 1,
    }  # fmt: skip


def request_layout() -> data.StructLayout:
    """A request of memory. ``third`` and ``fourth`` are the address, or the lower half of it in
    ``third`` if ``four`` is 0."""
    return data.StructLayout(
        {
            "fourth": 32, "third": 32, "first_be": 4, "last_be": 4, "tag": 8,
            "requester": identity(), **_common(),
        }
    )  # fmt: skip


def completion_layout() -> data.StructLayout:
    """A completion, which has three words."""
    return data.StructLayout(
        {
            "fourth": 32, "lower_addr": 7, "reserved": 1, "tag": 8, "requester": 16,
            "byte_count": 12, "modified": 1, "status": 3, "completer": identity(), **_common(),
        }
    )  # fmt: skip


def is_completion(header):
    """Whether a packet is a completion; its locked kind is none that this card asks for."""
    return data.View(completion_layout(), header).type == COMPLETION


def _count(field):
    """A field of which 0 means as many as its bits can say, and one more."""
    return Cat(field, field == 0)


def request_header(m: Module, side, who) -> Signal:
    """Return the header of a request of the card; ``side``: as of ``Requests``; ``who``: the
    ``identity`` of its function. An address below 4 GiB has one word (2.2.4.1)."""
    head, header = side.head, Signal(request_layout())
    low, high = head.addr[:30] << 2, head.addr[30:]
    four = high != 0
    m.d.comb += [
        header.words.eq(head.words),
        header.with_data.eq(head.type == RequestType.MEM_WRITE),
        header.four.eq(four),
        header.requester.eq(who),
        header.tag.eq(head.tag),
        header.first_be.eq(side.first_be),
        header.last_be.eq(side.last_be),
        header.third.eq(Mux(four, high, low)),
        header.fourth.eq(Mux(four, low, 0)),
    ]
    return header


def completion_header(m: Module, descriptor, who) -> Signal:
    """Return the header of a completion of the card, of its ``cc_descriptor``."""
    done, header = Signal(cc_descriptor()), Signal(completion_layout())
    good = done.status == CompletionStatus.SC
    m.d.comb += [
        done.eq(descriptor),
        header.words.eq(done.words),
        header.with_data.eq(good),
        header.type.eq(COMPLETION),
        header.attr.eq(done.attr[:2]),
        header.attr2.eq(done.attr[2]),
        header.tc.eq(done.tc),
        header.completer.eq(who),
        header.status.eq(done.status),
        header.byte_count.eq(done.byte_count),
        header.requester.eq(done.requester),
        header.tag.eq(done.tag),
        header.lower_addr.eq(done.lower_addr),
    ]
    return header


def completion(m: Module, bits) -> Signal:
    """Return the ``rc_descriptor`` of a completion of the host.

    ``lower_addr`` has the seven bits of the header. A completion with another status than SC is the
    last one of its request. One that has no data, or more than its request lacks, has an error.
    """
    header, found = Signal(completion_layout()), Signal(rc_descriptor())
    words, good = Signal(11), header.status == CompletionStatus.SC
    count, first = _count(header.byte_count), header.lower_addr[:2]
    # The request lacks ``count[2:]`` words, and 0 to 2 that the other bytes touch. These are found
    # out apart from each other, as their sum would be one carry chain before another.
    touched, beyond = Signal(range(3)), Signal(signed(12))
    enough, more = Signal(), Signal()
    m.d.comb += [
        header.eq(bits),
        words.eq(Mux(header.with_data, _count(header.words), 0)),
        touched.eq((count[:2] + first + 3) >> 2),
        beyond.eq(words - count[2:]),
    ]
    for some in range(3):
        with m.If(touched == some):
            over = Cat(beyond[:2] > n for n in range(3))
            m.d.comb += [enough.eq(over[some - 1] if some else 1), more.eq(over[some])]
    whole = ~beyond[-1] & (enough | beyond[2:].any())
    excess = ~beyond[-1] & (more | beyond[2:].any())
    m.d.comb += [
        found.lower_addr.eq(header.lower_addr),
        found.byte_count.eq(count),
        found.words.eq(words),
        found.status.eq(header.status),
        found.poisoned.eq(header.poisoned),
        found.tag.eq(header.tag),
        found.completed.eq(~good | whole),
        found.error.eq(Mux(good & ((words == 0) | excess), RcError.NO_DATA, RcError.NONE)),
    ]
    return found


def request(m: Module, bits, *, function, bar, aperture) -> Signal:
    """Return the ``cq_descriptor`` of a request of the host. A poisoned write becomes a message:
    both are counted and dropped."""
    header, found = Signal(request_layout()), Signal(cq_descriptor())
    memory = header.type == MEMORY
    message = (header.type[3:] == MESSAGE) | (memory & header.with_data & header.poisoned)
    kind = Mux(header.with_data, RequestType.MEM_WRITE, RequestType.MEM_READ)
    m.d.comb += [
        header.eq(bits),
        found.at.eq(header.at),
        found.addr.eq(Mux(header.four, Cat(header.fourth[2:], header.third), header.third[2:])),
        found.words.eq(_count(header.words)),
        found.type.eq(Mux(message, RequestType.MSG, Mux(memory, kind, OTHER_REQUEST))),
        found.requester.eq(header.requester),
        found.tag.eq(header.tag),
        found.function.eq(function),
        found.bar.eq(bar),
        found.aperture.eq(aperture),
        found.tc.eq(header.tc),
        found.attr.eq(Cat(header.attr, header.attr2)),
    ]
    return found
