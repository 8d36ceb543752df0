"""The tables of docs/wire.md: ``python -m hdl.wire.docs`` prints them, the site has them."""

from __future__ import annotations

from . import constants
from .headers import HEADERS, Header
from .opcodes import OPCODES, ROCE_OPCODES, Opcode

_ICRC = """\
## ICRC

The ICRC is the CRC-32 over 8 bytes FFh and then the IP packet without its last four bytes. It is
sent least significant byte first. These fields count as all ones:

{variant}

`icrc_masks` gives the same as three masks over the frame. The Ethernet bytes become leading zeros
there, and the start of the CRC register ({initial:08X}h, after the 8 bytes) is XORed into the first
four bytes of the IP header.
"""


_OPCODES = """\
Delivered: ingress takes the packet and hands it to the receive side. Feature: what a card must have
to execute it; what is delivered and not executed is refused there. Receive WQE: the packet takes
one.
"""


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _feature(row: Opcode) -> str:
    return row.feature.value if row.feature else "-"


def header_section(header: Header) -> list[str]:
    """A heading and the table of the fields of ``header``, as lines."""
    lines = [f"### {header.name}, {header.size} bytes\n"]
    lines += ["| byte | bit | width | field |", "|---|---|---|---|"]
    for field in header.fields.values():
        lines.append(f"| {field.byte} | {field.bit} | {field.width} | `{field.name}` |")
    return [*lines, ""]


def tables() -> str:
    """All tables, in Markdown."""
    variant = "\n".join(
        f"- {header.name}: {', '.join(fields)}"
        for header, fields in constants.VARIANT_FIELDS.items()
    )
    lines = [_ICRC.format(variant=variant, initial=constants.ICRC_INITIAL)]
    lines += ["## Opcodes\n"]
    lines += [_OPCODES]
    columns = ("code", "name", "class", "place", "extended headers", "payload", "PSNs", "answer")
    columns += ("rights", "receive WQE", "delivered", "feature")
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for code, opcode in sorted(OPCODES.items()):
        headers = " ".join(header.name for header in opcode.headers) or "-"
        row = (f"{code:02X}", opcode.name, opcode.kind.name, opcode.position.name, headers)
        row += (opcode.payload.value, opcode.psns.value, opcode.answer.value)
        row += (opcode.rights.name or "-", _yes(opcode.receive))
        row += (_yes(code in ROCE_OPCODES), _feature(opcode))
        lines.append(f"| {' | '.join(row)} |")
    lines += ["\n## Headers\n"]
    for header in HEADERS:
        lines += header_section(header)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(tables(), end="")
