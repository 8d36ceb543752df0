"""Writes the tables of docs/abi.md: ``python -m hdl.abi.docs`` prints the page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from enum import Enum, EnumType
from types import ModuleType

from hdl.abi import enums, virtio_pci, virtio_rdma
from hdl.abi.layout import Struct
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import Operation

_INTRODUCTION = """\
# The ABI between guest and device

This page lists the structures and numbers that a guest's driver and the device share. It is written
by `python -m hdl.abi.docs > docs/abi.md` from the descriptions in `hdl/abi`, and a test keeps it
current.

```mermaid
flowchart LR
    driver -- "control queue: request, response" --> firmware
    driver -- "send queue: cmd_post_send, sge" --> card
    driver -- "receive queue: cmd_post_recv, sge" --> card
    card -- "completion queue: virtio_rdma_cq_req" --> driver
    card -- "configuration space, BARs" --> driver
```

The ABI has version {version}. Layouts are packed and little-endian. Offsets and sizes are in bytes.
A union shows all its members, which share the same bytes.

## How the parts are used

- A control request is the command byte and its request structure (readable), then the response byte
  and the response structure (writable), split over descriptors in any way.
- A send queue element is `cmd_post_send` and `num_sge` times `sge`. With INLINE the payload itself
  follows and `num_sge` is 0. A receive queue element is `cmd_post_recv` and its SGEs.
- A completion is one `virtio_rdma_cq_req` in a buffer that the driver put into the queue.
- Virtqueues: 0 is the control queue, `1 + cqn` a completion queue, `1 + max_cq + 2 * pair` a send
  queue and the next one its receive queue. `pair` is the low bits of the queue pair number; pair 0
  is unused and pair 1 is the general services interface.
- A memory key is the region number above an 8-bit tag. `pages` is the address of a flat array of
  le64 page addresses; pages have 4096 bytes and the first one begins at `start` mod 4096.
- `imm_data`, GIDs, MAC addresses and `sys_image_guid` are raw bytes. They are copied and never
  swapped.

## C header

    ./rocinante header -o virtio_rdma.h

The header has these structures as packed C structs, named `struct virtio_rdma_...`, the numbers as
macros, and macros for the numbers of the virtqueues. It needs C11 or C++11, and GCC's or clang's
attribute `packed`. Fields of several bytes have the types `vrdma_le16`, `vrdma_le32` and
`vrdma_le64`, which are little-endian on any machine; in the Linux kernel they are its own types.
`VIRTIO_RDMA_COUNTERS` lists the counters of the card in the order of their words.
`tests/abi/test_cheader.py` compares each offset and size with the tables of the specification.
"""


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


def page() -> str:
    """The whole of docs/abi.md."""
    lines = [_INTRODUCTION.format(version=virtio_rdma.ABI_VERSION)]
    lines.append("## Control commands\n")
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
    print(page(), end="")
