"""The tables of docs/cm.md: ``python -m hdl.abi.mad_docs`` prints them, the site has them."""

from __future__ import annotations

from hdl.abi import mad
from hdl.wire.docs import header_section


def tables() -> str:
    """All tables, in Markdown: the messages, then the fields of each."""
    lines = ["| attribute | message | private data |", "|---|---|---|"]
    lines += [
        f"| {attribute:04X}h | {kind.name} | {mad.private_size(kind)} bytes |"
        for attribute, kind in mad.MESSAGES.items()
    ]
    lines.append("")
    for header in (mad.MAD, *mad.MESSAGES.values(), mad.IP_ADDRESSES):
        lines += header_section(header)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(tables(), end="")
