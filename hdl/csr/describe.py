"""What a register block looks like, in plain Python: the source of gateware, map and SystemRDL.

>>> block = Block("timer", 9, (Register("period", (rw("value", 32, "clocks"),)),))
>>> block.offset("period"), block.register("period").member("value")
(4, 'period')

Nothing here imports gateware.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

__all__ = [
    "BLOCK_BYTES",
    "ID_REGISTER",
    "Access",
    "Block",
    "Field",
    "Register",
    "Window",
    "const",
    "pulse",
    "ro",
    "rw",
    "w1c",
    "wo",
    "words",
]

#: A block owns one page of the 20-bit address space.
BLOCK_BYTES = 4096
#: Every block's first register.
ID_REGISTER = "id"


class Access(Enum):
    """Who drives a field, and which member it becomes in the gateware."""

    CONST = "const"  # fixed when the gateware is generated; no member
    RO = "ro"  # the hardware drives it: In
    RW = "rw"  # software writes and reads back: Out
    WO = "wo"  # software writes, reads as 0: Out
    W1C = "w1c"  # the hardware sets bits (In), writing ones clears them; setting wins
    PULSE = "pulse"  # writing ones gives a cycle of ones (Out); reads as 0


@dataclass(frozen=True)
class Field:
    """``width`` bits at bit ``low``. ``reset`` is the value of CONST and the first one of RW."""

    name: str
    width: int
    access: Access
    description: str = ""
    reset: int = 0
    low: int = -1  # -1: behind the field before

    def __post_init__(self) -> None:
        if not 1 <= self.width <= 32:
            raise ValueError(f"Field {self.name!r} must have 1 to 32 bits, not {self.width!r}")
        if not 0 <= self.reset < 1 << self.width:
            raise ValueError(f"Field {self.name!r} cannot hold its value {self.reset!r}")

    @property
    def mask(self) -> int:
        """The field's bits within its register."""
        return ((1 << self.width) - 1) << self.low

    @property
    def writable(self) -> bool:
        """Software's writes have an effect."""
        return self.access not in (Access.CONST, Access.RO)


def ro(name: str, width: int, description: str = "") -> Field:
    """A field the hardware drives."""
    return Field(name, width, Access.RO, description)


def rw(name: str, width: int, description: str = "", *, reset: int = 0) -> Field:
    """A field the software writes and reads back."""
    return Field(name, width, Access.RW, description, reset)


def wo(name: str, width: int, description: str = "") -> Field:
    """A field the software only writes."""
    return Field(name, width, Access.WO, description)


def const(name: str, width: int, value: int, description: str = "") -> Field:
    """A fixed number."""
    return Field(name, width, Access.CONST, description, value)


def w1c(name: str, width: int, description: str = "") -> Field:
    """Bits that the hardware sets and the software clears by writing ones."""
    return Field(name, width, Access.W1C, description)


def pulse(name: str, width: int, description: str = "") -> Field:
    """Bits that are one for a cycle when ones are written."""
    return Field(name, width, Access.PULSE, description)


@dataclass(frozen=True)
class Register:
    """One 32-bit word. A field named ``value`` stands for the register itself.

    A register and its only field share a description: each has the other's, if it has none.
    ``strobe``: the gateware gets a member ``<name>_write``, one in the first cycle in which the
    fields show what was written. ``remote``: the gateware has no member for it, but asks for it by
    its number (``CsrBlock``); such registers are read-only and follow one another. ``offset`` in
    bytes; -1: behind the item before.
    """

    name: str
    fields: tuple[Field, ...]
    description: str = ""
    strobe: bool = False
    remote: bool = False
    offset: int = -1

    def __post_init__(self) -> None:
        low = 0
        placed: list[Field] = []
        for item in self.fields:
            start = low if item.low < 0 else item.low
            low = start + item.width
            taken = placed[-1].low + placed[-1].width if placed else 0
            if low > 32 or start < taken:
                raise ValueError(f"Field {item.name!r} does not fit {self.name!r} at bit {start}")
            placed.append(
                Field(item.name, item.width, item.access, item.description, item.reset, start)
            )
        if len({item.name for item in placed}) != len(placed):
            raise ValueError(f"Register {self.name!r} has two fields of one name")
        if len(placed) == 1:
            text = placed[0].description or self.description
            placed = [replace(placed[0], description=text)]
            object.__setattr__(self, "description", self.description or text)
        object.__setattr__(self, "fields", tuple(placed))

    @property
    def words(self) -> int:
        """A register is one word."""
        return 1

    def field(self, name: str) -> Field:
        """The field ``name``; KeyError names the register."""
        for item in self.fields:
            if item.name == name:
                return item
        raise KeyError(f"Register {self.name!r} has no field {name!r}")

    def member(self, name: str) -> str:
        """Name of the gateware member of field ``name``."""
        return self.name if name == "value" else f"{self.name}_{name}"


@dataclass(frozen=True)
class Window:
    """``words`` consecutive words that the gateware serves itself, through a port (``WindowPort``).

    Access.RO loses writes; Access.WO reads as what the gateware returns for it. ``slow``: cycles
    that a read takes beyond the usual one.
    """

    name: str
    words: int
    access: Access
    description: str = ""
    offset: int = -1
    slow: int = 0


@dataclass(frozen=True)
class Block:
    """Registers and windows of one page; ``number`` tells software what kind of block it is.

    The first word is always the register ``id``: kind in bits 31:16, version in bits 15:0.
    Errors: ValueError for names or places that collide.
    """

    name: str
    number: int
    items: tuple[Register | Window, ...]
    description: str = ""
    version: int = 1
    _offsets: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        identity = Register(
            ID_REGISTER,
            (
                const("version", 16, self.version, "grows with every incompatible change"),
                const("kind", 16, self.number, "what this block is"),
            ),
            "kind and version of this block",
        )
        if not self.items or self.items[0].name != ID_REGISTER:
            object.__setattr__(self, "items", (identity, *self.items))
        offset = 0
        for item in self.items:
            if item.name in self._offsets:
                raise ValueError(f"Block {self.name!r} has two items named {item.name!r}")
            if isinstance(item, Window):  # its index is then a part of the address
                size = 4 << (item.words - 1).bit_length()
                offset = -(-offset // size) * size
            start = offset if item.offset < 0 else item.offset
            if start < offset or start % 4:
                raise ValueError(f"{self.name}.{item.name} cannot be at {start:#x}")
            self._offsets[item.name] = start
            offset = start + 4 * item.words
        if offset > BLOCK_BYTES:
            raise ValueError(f"Block {self.name!r} needs {offset} bytes, more than {BLOCK_BYTES}")

    def offset(self, name: str) -> int:
        """Byte offset of a register or window; KeyError names the block."""
        try:
            return self._offsets[name]
        except KeyError:
            raise KeyError(f"Block {self.name!r} has no register {name!r}") from None

    @cached_property
    def registers(self) -> tuple[Register, ...]:
        """The registers, without the windows."""
        return tuple(item for item in self.items if isinstance(item, Register))

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The windows."""
        return tuple(item for item in self.items if isinstance(item, Window))

    def register(self, name: str) -> Register:
        """The register ``name``; KeyError names the block."""
        for item in self.registers:
            if item.name == name:
                return item
        raise KeyError(f"Block {self.name!r} has no register {name!r}")

    def places(self) -> Iterator[tuple[int, Register | Window]]:
        """Every item with its byte offset, in order."""
        for item in self.items:
            yield self._offsets[item.name], item


def words(
    names: tuple[str, ...], texts: Mapping[str, str] | None = None, *, remote: bool = False
) -> tuple[Register, ...]:
    """One read-only 32-bit register for each name: counters, words of a report.

    texts: name -> its description, of as many as have one.
    """
    known = texts or {}
    return tuple(
        Register(name, (ro("value", 32),), known.get(name, ""), remote=remote) for name in names
    )
