"""The tables of docs/abi.md: ``python -m hdl.abi.docs`` prints them, the site has them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from enum import Enum, EnumType
from types import ModuleType

from hdl.abi import enums, virtio_pci, virtio_rdma
from hdl.abi.layout import Struct
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import Operation

_WORK_REQUESTS = """\
The rows of `WORK_REQUESTS` in `hdl/abi/operations.py`. The packets are those of a message's first,
middle and last packet and of a message of one packet; a request with one packet goes out as that
packet whatever its length is. What a packet asks of the other side is in [wire.md](wire.md). A card
without the feature completes the request with LOC_QP_OP_ERR. So does one without the service.
"""


def _struct_table(struct: Struct) -> Iterator[str]:
    yield f"### `{struct.name}`, {struct.size} bytes\n"
    yield "| offset | size | field | type | |"
    yield "|---|---|---|---|---|"
    for place in struct.places():
        kind = place.kind.type_name
        yield f"| {place.offset} | {place.size} | `{place.path}` | {kind} | {place.note} |"
    yield ""


def _enumerations(module: ModuleType) -> Iterator[str]:
    for cls in vars(module).values():
        if not isinstance(cls, EnumType) or cls.__module__ != module.__name__:
            continue
        summary = (cls.__doc__ or "").split("\n")[0].split("Spec:")[0].replace("``", "`").strip()
        yield f"### `{cls.__name__}`\n"
        if summary:
            yield f"{summary}\n"
        members: list[Enum] = list(cls)
        numbers = ", ".join(f"{item.name} {_number(item.value)}" for item in members)
        yield textwrap.fill(numbers, 100, break_on_hyphens=False) + "\n"


def _work_requests() -> Iterator[str]:
    columns = ("code", "opcode", "class", "services", "packets", "completion", "feature")
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for code, request in sorted(WORK_REQUESTS.items()):
        services = " ".join(service.name for service in request.services) or "-"
        packets = " ".join(Operation(low).name for low in request.packets.values()) or "-"
        row = (_number(code), request.name, request.kind.name, services, packets)
        yield f"| {' | '.join((*row, request.completion.name, request.feature.value))} |"
    yield ""


def _number(value: int) -> str:
    return str(value) if value < 0x20 else f"{value:#x}"


def tables() -> str:
    """All tables, in Markdown."""
    lines = ["## Control commands\n"]
    lines += ["| number | command | request | response |", "|---|---|---|---|"]
    for command, structs in virtio_rdma.COMMANDS.items():
        names = ["-" if s is virtio_rdma.NOTHING else f"`{s.name}`" for s in structs]
        lines.append(f"| {command.value} | {command.name} | {names[0]} | {names[1]} |")
    lines.append("\n## Commands of extensions\n")
    lines += ["| number | command | feature | request | response |", "|---|---|---|---|---|"]
    for feature, commands in virtio_rdma.EXTENSIONS.items():
        for command, structs in commands.items():
            names = ["-" if s is virtio_rdma.NOTHING else f"`{s.name}`" for s in structs]
            row = (command.value, command.name, feature.name, *names)
            lines.append(f"| {' | '.join(map(str, row))} |")
    lines.append("\n## Structures of virtio-rdma\n")
    for struct in virtio_rdma.STRUCTS:
        lines += _struct_table(struct)
    lines.append("## Additions to virtio-rdma\n")
    for struct in virtio_rdma.ADDITIONS:
        lines += _struct_table(struct)
    lines.append("## Numbers of virtio-rdma\n")
    lines += _enumerations(enums)
    lines.append("## Work requests\n")
    lines.append(_WORK_REQUESTS)
    lines += _work_requests()
    lines.append("## Structures of virtio over PCI\n")
    for struct in virtio_pci.STRUCTS:
        lines += _struct_table(struct)
    lines.append("## Numbers of virtio over PCI\n")
    lines += _enumerations(virtio_pci)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(tables(), end="")
