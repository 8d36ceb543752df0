"""The registers as a C header: ``python -m hdl.csr.cheader`` prints it for the default NIC."""

from __future__ import annotations

from collections.abc import Iterator

from hdl.config import NicConfig

from .blocks import MAGIC, MAP_VERSION, PAGES, TABLES, all_blocks
from .describe import BLOCK_BYTES, Block, Register
from .map import row_map

__all__ = ["c_header"]

PREFIX = "ROCINANTE"
TABLE_REGISTERS = "TABLE"


def _define(*parts: str, value: int) -> str:
    name = "_".join((PREFIX, *parts)).upper().replace(".", "_")
    number = f"{value:#x}u" if value > 9 else f"{value}u"
    return f"#define {name:<58} {number}"


def _registers(name: str, block: Block) -> Iterator[str]:
    for offset, item in block.places():
        yield _define(name, item.name, value=offset)
        if not isinstance(item, Register):
            yield _define(name, item.name, "WORDS", value=item.words)
            continue
        for field in item.fields:
            if field.name == "value" and field.width == 32:
                continue
            path = (name, item.name) if field.name == "value" else (name, item.name, field.name)
            yield _define(*path, "SHIFT", value=field.low)
            yield _define(*path, "MASK", value=field.mask)


def _rows() -> Iterator[str]:
    yield "/* Rows of the tables: lowest bit and width of each field in the shadow row. */"
    for table in TABLES:
        row = row_map(table)
        yield ""
        yield _define("ROW", table, "WORDS", value=row.words)
        for field in row.fields.values():
            yield _define("ROW", table, field.path, "LOW", value=field.low)
            yield _define("ROW", table, field.path, "WIDTH", value=field.width)


def c_header(config: NicConfig | None = None, **names: tuple[str, ...]) -> str:
    """The text of the header. Offsets are bytes from the start of the block; the registers of a
    table's window are the same in each, so they are written once, as ``TABLE``."""
    blocks = all_blocks(config or NicConfig(), **names)
    lines = [
        "/* Registers of the management function, BAR 0. Written by hdl/csr/cheader.py. */",
        f"#ifndef {PREFIX}_CSR_H",
        f"#define {PREFIX}_CSR_H",
        "",
        _define("MAGIC", value=MAGIC),
        _define("MAP_VERSION", value=MAP_VERSION),
        "",
        "/* Start of each block. */",
    ]
    lines += [_define(name, "BASE", value=PAGES[name] * BLOCK_BYTES) for name in blocks]
    for name, block in blocks.items():
        if name in TABLES:
            continue
        lines += ["", f"/* {block.description} */", _define(name, "KIND", value=block.number)]
        lines += _registers(name, block)
    window = blocks[next(iter(TABLES))]
    lines += ["", "/* Window of a table */", _define(TABLE_REGISTERS, "KIND", value=window.number)]
    lines += [line for line in _registers(TABLE_REGISTERS, window) if "_ROW_WORDS" not in line]
    lines += ["", *_rows(), "", f"#endif /* {PREFIX}_CSR_H */"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(c_header(), end="")
