"""Writes docs/registers.md: ``python -m hdl.csr.docs`` prints the page."""

from __future__ import annotations

from collections.abc import Iterator

from hdl.config import NicConfig

from .blocks import PAGES, TABLES, all_blocks
from .describe import BLOCK_BYTES, Block, Register
from .map import row_map

__all__ = ["page"]

_INTRODUCTION = """\
# Registers of the management function

Written by `python -m hdl.csr.docs` from the descriptions in `hdl/csr`; a test keeps it current.
BAR 0 of function 2, 32-bit accesses only. A block has a page of 4096 bytes and starts with `id`.
An address without a register reads 0xFFFFFFFF. Offsets are bytes from the start of the block.

Access: `const` fixed; `ro` driven by the hardware; `rw` read and written; `wo` reads as 0;
`w1c` set by the hardware, cleared by writing ones; `pulse` acts once for each one written.
"""


def _registers(block: Block) -> Iterator[str]:
    yield "| offset | register | bits | field | access | reset | |"
    yield "|---|---|---|---|---|---|---|"
    for offset, item in block.places():
        if not isinstance(item, Register):
            end = offset + 4 * item.words - 4
            yield (
                f"| {offset:#05x} - {end:#05x} | `{item.name}` | {item.words} words | |"
                f" {item.access.value} | | {item.description} |"
            )
            continue
        first = True
        for field in item.fields:
            place = f"{offset:#05x}" if first else ""
            name = f"`{item.name}`" if first else ""
            bits = f"{field.low + field.width - 1}:{field.low}" if field.width > 1 else field.low
            inner = "" if field.name == "value" else f"`{field.name}`"
            fixed = not item.name.startswith("config_") and item.name not in ("geometry", "entries")
            reset = f"{field.reset:#x}" if fixed and field.access.value in ("const", "rw") else ""
            notes = [field.description] + ([item.description] if first else [])
            note = "; ".join(filter(None, notes))
            yield (
                f"| {place} | {name} | {bits} | {inner} | {field.access.value} | {reset} | {note} |"
            )
            first = False
    yield ""


def page() -> str:
    """The whole of docs/registers.md."""
    blocks = all_blocks(NicConfig())
    lines = [_INTRODUCTION, "| address | block | kind | |", "|---|---|---|---|"]
    for name, block in blocks.items():
        address = f"{PAGES[name] * BLOCK_BYTES:#07x}"
        lines.append(f"| {address} | `{name}` | {block.number} | {block.description} |")
    lines.append("")
    for name, block in blocks.items():
        if name not in TABLES:
            lines += [f"## `{name}`\n", f"{block.description}.\n", *_registers(block)]
    window = next(iter(TABLES))
    lines += ["## Window of a table\n"]
    lines += ["The same registers for every table; `row` is as long as the table's row.\n"]
    lines += [line for line in _registers(blocks[window]) if "`row`" not in line][:-1]
    start = blocks[window].offset("row")
    lines += [f"| {start:#05x} - | `row` | | | rw | | shadow row, bits 31:0 first |", ""]
    lines += ["### Rows\n", "Lowest bit and width of each field.\n"]
    for table in TABLES:
        row = row_map(table)
        fields = ", ".join(f"`{f.path}` {f.low}+{f.width}" for f in row.fields.values())
        lines.append(f"- `{table}` ({row.bits} bits): {fields}")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
