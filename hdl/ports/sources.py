"""What differs by the kind of a receive source: one row for each kind."""

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Value

from hdl.config import CardFeature, NicConfig

from .rows import SourceKind

__all__ = ["SOURCES", "SourceRules", "flushes", "has_wqes"]


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
