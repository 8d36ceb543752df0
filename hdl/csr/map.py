"""The registers as the firmware sees them: names to addresses, fields and rows to numbers.

>>> from hdl.config import NicConfig
>>> csr = CsrMap(NicConfig())
>>> hex(csr.address("mailbox.status")), csr.field("core.function0_needs_reset", "queue").width
('0x2004', 16)
>>> csr.encode("command.arm_cq", cq=5, flags=2)
32773

Gateware is not needed: only the rows of the tables load Amaranth, for their layouts
(``row_layouts``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from hdl.config import NicConfig

from .blocks import MAGIC, PAGES, TABLES, all_blocks
from .describe import BLOCK_BYTES, Block, Field
from .row_layouts import RowField, row_layout_of

__all__ = ["MAGIC", "TABLES", "CsrMap", "RowField", "RowMap", "row_map"]


class RowMap:
    """One table's row: field values to the shadow's words and back.

    Enumerations are their numbers. Errors: ValueError for an unknown field or a value that does not
    fit; both name table, field and value.
    """

    def __init__(self, table: str, fields: Sequence[RowField], bits: int):
        self.table = table
        self.bits = bits
        self.words = -(-bits // 32)
        self.fields = {field.path: field for field in fields}

    def pack(self, values: Mapping[str, int] | None = None, /, **more: int) -> list[int]:
        """The row's words; a field that is not given is 0."""
        number = self.pack_number(values, **more)
        return [number >> 32 * i & 0xFFFF_FFFF for i in range(self.words)]

    def pack_number(self, values: Mapping[str, int] | None = None, /, **more: int) -> int:
        """The row as one number, as in the gateware."""
        number = 0
        for path, value in {**(values or {}), **more}.items():
            field = self.fields.get(path)
            if field is None:
                raise ValueError(f"Row of {self.table} has no field {path!r} (value {value!r})")
            if not 0 <= value < 1 << field.width:
                raise ValueError(f"{self.table}.{path} must fit {field.width} bits, not {value!r}")
            number |= int(value) << field.low
        return number

    def words_of(self, *paths: str) -> list[int]:
        """The words in which these fields are."""
        found: set[int] = set()
        for path in paths:
            field = self.fields[path]
            found.update(range(field.low // 32, (field.low + field.width - 1) // 32 + 1))
        return sorted(found)

    def unpack(self, row: Sequence[int]) -> dict[str, int]:
        """Field values of the words of a row."""
        if len(row) != self.words:
            raise ValueError(f"Row of {self.table} has {self.words} words, not {len(row)}")
        return self.unpack_number(sum(word << 32 * i for i, word in enumerate(row)))

    def unpack_number(self, number: int) -> dict[str, int]:
        """Field values of a row that is one number; bits beyond the row are ignored."""
        return {
            path: number >> field.low & (1 << field.width) - 1
            for path, field in self.fields.items()
        }


@cache
def row_map(table: str) -> RowMap:
    """The row of ``table`` (a name of ``TABLES``); a flat row has one field, ``value``."""
    info = TABLES[table]
    layout = row_layout_of(info.row, info.bits)
    return RowMap(table, layout.fields, layout.bits)


class CsrMap:
    """Addresses and fields of one configuration's registers; paths are ``block.register``.

    Errors: KeyError for an unknown path, ValueError for a value that does not fit.
    """

    def __init__(self, config: NicConfig, **names: tuple[str, ...]):
        self.blocks: dict[str, Block] = all_blocks(config, **names)

    def _split(self, path: str) -> tuple[Block, str]:
        block, _, name = path.partition(".")
        if block not in self.blocks:
            raise KeyError(f"No block {block!r}, only {', '.join(self.blocks)}")
        return self.blocks[block], name

    def address(self, path: str, word: int = 0) -> int:
        """Byte address of a register, or of word ``word`` of a window."""
        block, name = self._split(path)
        for item in block.items:
            if item.name == name:
                if not 0 <= word < item.words:
                    raise ValueError(f"{path} has {item.words} words, not a word {word!r}")
                return PAGES[block.name] * BLOCK_BYTES + block.offset(name) + 4 * word
        raise KeyError(f"Block {block.name!r} has no register {name!r}")

    def words(self, path: str) -> int:
        """How many words a window has."""
        block, name = self._split(path)
        for item in block.windows:
            if item.name == name:
                return item.words
        raise KeyError(f"Block {block.name!r} has no window {name!r}")

    def field(self, path: str, name: str) -> Field:
        """The field ``name`` of a register."""
        block, register = self._split(path)
        return block.register(register).field(name)

    def encode(self, path: str, **values: int) -> int:
        """The register's word with the given fields, all others 0."""
        word = 0
        for name, value in values.items():
            field = self.field(path, name)
            if not 0 <= value < 1 << field.width:
                raise ValueError(f"{path}.{name} must fit {field.width} bits, not {value!r}")
            word |= value << field.low
        return word

    def decode(self, path: str, word: int) -> dict[str, int]:
        """The register's fields out of its word."""
        block, name = self._split(path)
        return {
            field.name: (word & field.mask) >> field.low for field in block.register(name).fields
        }

    def names(self, block: str) -> tuple[str, ...]:
        """Names of a block's registers, ``id`` included."""
        return tuple(register.name for register in self.blocks[block].registers)
