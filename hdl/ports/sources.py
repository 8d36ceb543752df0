"""What differs by the kind of a receive source: one row for each kind."""

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.lib import data

from hdl.abi.pieces import FIELDS
from hdl.config import CardFeature, NicConfig

from .numbers import number_in, ordinal_in, receive_queue
from .operations import is_datagram
from .rows import SourceKind

__all__ = [
    "PIECES",
    "SOURCES",
    "SourceRules",
    "flushes",
    "has_wqes",
    "pieces_of",
    "place_of",
    "queue_of",
    "source_of",
]


@dataclass(frozen=True)
class SourceRules:
    """``feature``: a card must have it. ``private``: the WQEs are for one QP alone, so they end
    with it when it is flushed; those of other kinds stay for who takes from the source as well."""

    feature: CardFeature = CardFeature.BASE
    private: bool = False


#: Kind of source, as ``ReceiveSource.kind`` has it -> its rules. The numbers of all kinds are pair
#: indices, and a source has the receive queue of its pair.
SOURCES: dict[int, SourceRules] = {
    SourceKind.PRIVATE.value: SourceRules(private=True),
    SourceKind.SHARED.value: SourceRules(feature=CardFeature.SRQ),
}


#: How the requests of a receive source take several packets (MP WR), if they do.
PIECES = data.StructLayout(FIELDS)


def pieces_of(config: NicConfig, cfg) -> data.View:
    """The ``PIECES`` of the source in a ``QpCfg``, on a card with MP WR. They lie in bits that mean
    nothing for the type: only datagrams have a Q_Key, and they have no address vector."""
    word = Mux(is_datagram(config, cfg.type), cfg.av.dmac, cfg.qkey)
    return data.View(PIECES, word[: PIECES.size])


def _is_one_of(source, kinds: Mapping[int, SourceRules]) -> Value:
    """Whether ``source`` is of one of the ``kinds``."""
    kind = Value.cast(source.kind)
    return Cat(Const(0), (kind == one for one in kinds)).any()


def has_wqes(config: NicConfig, source) -> Value:
    """Whether a ``ReceiveSource`` can have WQEs on this card."""
    return _is_one_of(source, {k: v for k, v in SOURCES.items() if v.feature in config.features})


def flushes(source) -> Value:
    """Whether a flush of a QP ends the WQEs of its ``ReceiveSource``."""
    return _is_one_of(source, {k: v for k, v in SOURCES.items() if v.private})


def queue_of(config: NicConfig, number: Value) -> Value:
    """The virtqueue of receive source ``number``. Sources of all kinds are numbered together: a
    shared one has the receive queue of a pair that is no QP's, so no two ever have the same."""
    return receive_queue(config, number)


def place_of(config: NicConfig, queue: Value) -> Value:
    """The place of virtqueue ``queue`` among those of all QPs, where receive source ``number`` has
    ``Cat(1, number)``; any other is not a source's, and one with bit 15 no QP's."""
    nth = number_in(config, "queues", queue) - config.sq_queue(0)
    place = Cat(nth[: config.number_bits["qps"] + 1], ordinal_in(config, "queues", queue))
    return Cat(place, Const(0, 15 - len(place)), nth[-1])


def source_of(config: NicConfig, queue: Value) -> tuple[Value, Value]:
    """Whether virtqueue ``queue`` is a receive source's, and the number of the source."""
    place = place_of(config, queue)
    return place[0] & ~place[15], place[1:15]
