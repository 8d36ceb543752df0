"""The registers as SystemRDL 2.0: ``./rocinante registers`` writes the file, header and pages.

Other tools read SystemRDL: PeakRDL renders it as HTML and as a C header, and register models for
UVM or cocotb are made from it. A test compiles the text and compares it with the description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from hdl.config import NicConfig

from .blocks import CONFIG, PAGES, TABLES, all_blocks
from .describe import BLOCK_BYTES, Access, Block, Field, Register, Window
from .map import row_map
from .texts import config_texts, row_texts

__all__ = ["ROW_WINDOW", "TOP", "described", "sentence", "system_rdl", "title"]

#: Name of the outermost address map, and of the files made from it.
TOP = "rocinante"
#: The window of a table that holds one row; it is exported with the row's fields.
ROW_WINDOW = "row"

_ABOUT = "BAR 0, accesses of 32 bits. An address without a register reads as all ones."
#: Each access as SystemRDL properties. The precedence says that the hardware's setting wins.
_PROPERTIES = {
    Access.CONST: "sw = r; hw = na;",
    Access.RO: "sw = r; hw = w;",
    Access.RW: "sw = rw; hw = r;",
    Access.WO: "sw = w; hw = r;",
    Access.W1C: "sw = rw; hw = w; onwrite = woclr; stickybit; precedence = hw;",
    Access.PULSE: "sw = w; hw = r; singlepulse;",
}
#: The accesses whose fields have a value after reset that the description fixes.
_WITH_RESET = (Access.CONST, Access.RW, Access.WO, Access.W1C, Access.PULSE)
#: Words of the language; a name that is one of them is written with a backslash (clause 4.5).
_WORDS = (
    "abstract accesstype addressingtype addrmap alias all bit boolean bothedge compact component "
    "componentwidth constraint default encode enum external false field fullalign hw inside "
    "internal level longint mem na negedge nonsticky number onreadtype onwritetype posedge "
    "precedencetype property r rclr ref reg regalign regfile rset ruser rw rw1 signal string "
    "struct sw this true type unsigned w w1 wclr woclr woset wot wr wset wuser wzc wzs wzt"
)
_RESERVED = frozenset(_WORDS.split())


def sentence(description: str) -> str:
    """Return a description as a sentence: it begins with a capital letter and ends with a stop."""
    return f"{description[:1].upper()}{description[1:].rstrip('.')}." if description else ""


def title(description: str) -> str:
    """Return what a reader sees in a list: the sentence up to where it goes on about details."""
    return re.split(r"[.;] |\.$", sentence(description).replace("`", ""))[0]


def _text(description: str) -> str:
    """``desc``, the whole sentence, and ``name``, its beginning."""
    parts = {"name": title(description), "desc": sentence(description)}
    quoted = ((key, text.replace("\\", "\\\\").replace('"', '\\"')) for key, text in parts.items())
    return "".join(f'{key} = "{text}"; ' for key, text in quoted if text)


def _name(name: str) -> str:
    plain = name.replace(".", "_")
    return f"\\{plain}" if plain in _RESERVED else plain


def _field(field: Field, *, strobe: bool) -> str:
    """One field. ``swmod`` stands for the gateware's ``<register>_write``."""
    if field.access is Access.PULSE and field.width > 1:
        raise ValueError(f"A pulse has one bit in SystemRDL; {field.name!r} has {field.width}")
    reset = f" = {field.reset:#x}" if field.access in _WITH_RESET else ""
    modified = " swmod;" if strobe and field.writable else ""
    place = f"{_name(field.name)}[{field.low + field.width - 1}:{field.low}]"
    properties = f"{_text(field.description)}{_PROPERTIES[field.access]}{modified}"
    return f"            field {{ {properties} }} {place}{reset};"


def _register(offset: int, register: Register) -> Iterator[str]:
    yield f"        reg {{ {_text(register.description)}".rstrip()
    for field in register.fields:
        yield _field(field, strobe=register.strobe)
    yield f"        }} {_name(register.name)} @ {offset:#x};"


def _row(offset: int, window: Window, table: str) -> Iterator[str]:
    """A table's row as one wide register: its fields cross the borders of the 32-bit words."""
    row = row_map(table)
    width = 32 << (window.words - 1).bit_length()
    yield f"        reg {{ {_text(window.description)}regwidth = {width}; accesswidth = 32;"
    texts = row_texts(TABLES[table].row)
    for field in row.fields.values():
        place = f"{_name(field.path)}[{field.low + field.width - 1}:{field.low}]"
        about = _text(texts[field.path])
        yield f"            field {{ {about}{_PROPERTIES[window.access]} }} {place};"
    yield f"        }} {_name(window.name)} @ {offset:#x};"


def _window(offset: int, window: Window) -> Iterator[str]:
    """The words of a window as an array of registers: exporters of IP-XACT leave out a memory that
    stands among registers."""
    about = _text(window.description)
    yield f"        external reg {{ {about}".rstrip()
    yield f"            field {{ {about}{_PROPERTIES[window.access]} }} value[31:0];"
    yield f"        }} {_name(window.name)}[{window.words}] @ {offset:#x} += 4;"


def described(block: Block, register: Register) -> Register:
    """Return the register; one of the configuration's with the description from there."""
    if block.name != "core" or not register.name.startswith(CONFIG):
        return register
    text = config_texts()[register.name.removeprefix(CONFIG)]
    return replace(
        register, description=text, fields=(replace(register.fields[0], description=text),)
    )


def _block(block: Block) -> Iterator[str]:
    yield f"    addrmap {{ {_text(block.description)}".rstrip()
    for offset, item in block.places():
        if isinstance(item, Register):
            yield from _register(offset, described(block, item))
        elif block.name in TABLES and item.name == ROW_WINDOW:
            yield from _row(offset, item, block.name)
        else:
            yield from _window(offset, item)
    yield f"    }} {_name(block.name)} @ {PAGES[block.name] * BLOCK_BYTES:#x};"


def system_rdl(config: NicConfig | None = None, **names: tuple[str, ...]) -> str:
    """The register map of ``config`` (default: the default NIC) as SystemRDL 2.0.

    ``names`` replaces names of counters, as in ``all_blocks``. A constant that describes the
    configuration has its value as reset. Errors: ValueError for a pulse of more than one bit.
    """
    lines = [
        "// Written by `./rocinante registers` from the descriptions in hdl/csr.",
        f"addrmap {TOP} {{",
        '    name = "Registers of the management function";',
        f'    desc = "{_ABOUT}";',
        "    littleendian; lsb0;",
        "    default regwidth = 32; default accesswidth = 32;",
    ]
    for block in all_blocks(config or NicConfig(), **names).values():
        lines += _block(block)
    lines.append("};")
    return "\n".join(line.rstrip() for line in lines) + "\n"
