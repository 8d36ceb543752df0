"""What differs by the kind of a key: one row for each kind, decoded once a row has been read; and
what an indirect key has beside its row."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data, enum

from hdl.abi.mkeys import LAYOUT_FIELDS
from hdl.config import CardFeature, NicConfig

from .numbers import ordinal_of
from .rows import MrType

__all__ = [
    "GENERATION",
    "KEYS",
    "LAYOUT",
    "KeyKind",
    "KeyRules",
    "LayoutEntry",
    "LayoutWrite",
    "Resolves",
    "decode_key",
    "indirect_kinds",
    "layout_of",
    "layout_place",
]


class Resolves(enum.Enum, shape=2):
    """What an address under a key is. With the first, nothing: the key may not be used."""

    NOTHING = 0
    BUS = 1  # an address of the bus
    PAGES = 2  # a place in pages, which a list in host memory names
    ENTRIES = 3  # a place in a layout: each of its entries is a range under another key


@dataclass(frozen=True)
class KeyRules:
    """``feature``: a card must have it. ``window``: the key is for peers alone. ``changes``: work
    requests may change the key, and a window of such a kind is for one QP's peer."""

    resolves: Resolves = Resolves.NOTHING
    feature: CardFeature = CardFeature.BASE
    window: bool = False
    changes: bool = False


#: Kind of a key, as ``MrRow.type`` has it -> its rules.
KEYS: dict[int, KeyRules] = {
    MrType.INVALID.value: KeyRules(),
    MrType.DMA.value: KeyRules(Resolves.BUS),
    MrType.PAGES.value: KeyRules(Resolves.PAGES),
    MrType.FREE.value: KeyRules(feature=CardFeature.FAST_REGISTRATION, changes=True),
    MrType.MKEY_FREE.value: KeyRules(feature=CardFeature.MKEYS, changes=True),
    MrType.MKEY.value: KeyRules(Resolves.ENTRIES, CardFeature.MKEYS, changes=True),
    MrType.FAST.value: KeyRules(Resolves.PAGES, CardFeature.FAST_REGISTRATION, changes=True),
    MrType.WINDOW_1.value: KeyRules(feature=CardFeature.MW, window=True),
    MrType.BOUND_1.value: KeyRules(Resolves.PAGES, CardFeature.MW, window=True),
    MrType.WINDOW_2.value: KeyRules(feature=CardFeature.MW, window=True, changes=True),
    MrType.BOUND_2.value: KeyRules(Resolves.PAGES, CardFeature.MW, window=True, changes=True),
}


class KeyKind(data.Struct):
    """A kind of key, decoded. All zeros: a key that cannot be used."""

    bus: 1
    pages: 1
    entries: 1
    window: 1
    changes: 1


#: ``block`` of a ``MrRow`` that is an indirect key's: its layout.
LAYOUT = data.StructLayout(LAYOUT_FIELDS)
#: Bits of a layout's generation.
GENERATION = LAYOUT_FIELDS["generation"]


class LayoutEntry(data.Struct):
    """An entry of a layout, as it lies on the card: ``count`` bytes at ``addr`` under ``key``, and
    ``stride`` bytes on those of the next row."""

    addr: 64
    count: 32
    stride: 32
    key: 32
    generation: GENERATION


class LayoutWrite(data.Struct):
    """With ``valid`` the entry at ``place`` (``layout_place``) becomes ``entry``."""

    valid: 1
    place: 15
    entry: LayoutEntry


def layout_of(row) -> data.View:
    """What a ``MrRow`` of an indirect key says of its layout, a ``LAYOUT``."""
    return data.View(LAYOUT, row.block)


def layout_place(config: NicConfig, function: Value, key: Value, nth: Value) -> Value:
    """Where the ``nth`` entry of a function's indirect key is. Indirect keys have the last numbers
    of their function's regions, as many as there are ``layouts``, which is a power of two."""
    bits, slots = (config.layouts - 1).bit_length(), (config.max_sge - 1).bit_length()
    return Cat(nth[:slots], key[8 : 8 + bits], ordinal_of(config, function))


def _kinds(config: NicConfig) -> dict[int, KeyRules]:
    """The kinds that keys of this card can be of."""
    return {kind: rules for kind, rules in KEYS.items() if rules.feature in config.features}


def indirect_kinds(config: NicConfig) -> list[int]:
    """Return the kinds of this card whose keys resolve to entries."""
    return [kind for kind, rules in _kinds(config).items() if rules.resolves is Resolves.ENTRIES]


def decode_key(config: NicConfig, kind) -> data.View:
    """Return what is asked of a kind of key, a ``MrRow.type`` of this card, as ``KeyKind``.

    A property that one bit of the number tells costs nothing; the numbers of today are chosen so.
    """
    value, kinds = Value.cast(kind), _kinds(config)

    def told(has: Callable[[KeyRules], bool]) -> Value:
        having = {number for number, rules in kinds.items() if has(rules)}
        for bit in range(len(value) if having else 0):
            if having == {number for number in kinds if number >> bit & 1}:
                return value[bit]
        return Cat(Const(0), (value == number for number in sorted(having))).any()

    fields = {
        "bus": told(lambda rules: rules.resolves is Resolves.BUS),
        "pages": told(lambda rules: rules.resolves is Resolves.PAGES),
        "entries": told(lambda rules: rules.resolves is Resolves.ENTRIES),
        "window": told(lambda rules: rules.window),
        "changes": told(lambda rules: rules.changes),
    }
    layout = data.Layout.cast(KeyKind)
    assert [*fields] == [name for name, _ in layout]
    return data.View(layout, Cat(fields.values()))
