"""Writes docs/wire.md: ``python -m hdl.wire.docs`` prints the page."""

from __future__ import annotations

from . import constants
from .headers import HEADERS, Header
from .opcodes import OPCODES, ROCE_OPCODES, Opcode

_INTRODUCTION = """\
# Packets (room `wire`)

This page says what packets look like. It is written by `python -m hdl.wire.docs > docs/wire.md`
from the tables in `hdl/wire`, and a test keeps it current. The tables are plain data. Gateware,
firmware, simulation and this page read the same ones.

```mermaid
flowchart LR
    eth["Ethernet 14,<br>VLAN 4 or none"] --- ip["IPv4 20<br>or IPv6 40"] --- udp[UDP 8]
    udp --- bth[BTH 12]
    bth --- extended[extended headers] --- payload --- pad["pad 0-3"] --- icrc[ICRC 4]
```

| file | what it holds |
|---|---|
| `headers.py` | header layouts: field -> byte, bit, width; `pack` and `unpack` for bytes |
| `opcodes.py` | opcode -> service, class, place, headers, payload, PSNs, answer, rights |
| `constants.py` | ports, EtherTypes, syndromes, timers, sizes; what the ICRC masks |
| `gateware.py` | `get`, `raw`, `build`: fields out of and into flat Amaranth vectors |

Offsets are in bytes from the start of the header. Bit 0 is the most significant bit of a byte, as
the standards draw it. All numbers are big-endian on the wire.

Each header behind Ethernet is a multiple of four bytes long. Payload and ICRC therefore start 2
modulo 4 bytes into the frame, never in lane 0.

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


def page() -> str:
    """The whole of docs/wire.md."""
    variant = "\n".join(
        f"- {header.name}: {', '.join(fields)}"
        for header, fields in constants.VARIANT_FIELDS.items()
    )
    lines = [_INTRODUCTION.format(variant=variant, initial=constants.ICRC_INITIAL)]
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
    print(page(), end="")
