"""Writes the C header of the ABI: ``python -m hdl.abi.cheader`` prints ``virtio_rdma.h``.

The header holds the structures that a driver and the device share, as packed structs, and the
numbers in them. It needs C11 or C++11, and GCC's attribute ``packed``, which clang has too. Code
of the Linux kernel includes it as well: fields have the kernel's little-endian types there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum, EnumType

from hdl.abi import enums, push, virtio_rdma
from hdl.abi.layout import Array, Bytes, Field, Kind, Scalar, Struct, Union

__all__ = ["c_header", "c_name"]

PREFIX = "virtio_rdma_"
#: Scalars by size. Those of several bytes are little-endian on any machine.
_TYPES = {1: "uint8_t", 2: "vrdma_le16", 4: "vrdma_le32", 8: "vrdma_le64"}
#: Numbers of ``virtio_rdma`` and ``push`` that no enumeration holds.
_CONSTANTS = (
    "ABI_VERSION",
    "MAX_CQ_LIMIT",
    "MAX_QP_LIMIT",
    "KEY_TAG_BITS",
    "GSI_QP_INDEX",
    "FIRST_USER_QP_INDEX",
    "QPN_BITS",
    "PSN_BITS",
    "PAGE_SIZE",
    "PAGE_ENTRY_SIZE",
    "TABLE_PAGE_SIZE",
    "GRH_SIZE",
    "CONTROL_QUEUE",
    "COUNTER_BAR",
    "COUNTER_OFFSET",
    "COUNTER_MAGIC",
    "COUNTER_VERSION",
    "QP_COUNTER_OFFSET",
    "ARM_SEEN_BITS",
    "CFG_TYPE_PUSH",
    "PUSH_BAR",
    "PUSH_MAGIC",
    "PUSH_MOST_BYTES",
    "PUSH_SLOT_BYTES",
)

_HEAD = """\
/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 OR BSD-2-Clause */
/*
 * The virtio-rdma ABI of Rocinante: what a guest's driver and the device share.
 * Written by "./rocinante header" from hdl/abi; docs/abi.md explains the structures.
 * Structures are packed. Fields of several bytes are little-endian; arrays of uint8_t are raw.
 */
#ifndef VIRTIO_RDMA_H
#define VIRTIO_RDMA_H

#ifdef __KERNEL__
#include <linux/types.h>

typedef __le16 vrdma_le16;
typedef __le32 vrdma_le32;
typedef __le64 vrdma_le64;
#else
#include <stddef.h>
#include <stdint.h>

typedef uint16_t vrdma_le16;
typedef uint32_t vrdma_le32;
typedef uint64_t vrdma_le64;
#endif
"""

_QUEUES = """
/* Virtqueues: of a completion queue, of the send and the receive queue of a pair, of events. */
#define VIRTIO_RDMA_CQ_QUEUE(cqn) (1 + (cqn))
#define VIRTIO_RDMA_SQ_QUEUE(pair, max_cq) (1 + (max_cq) + 2 * (pair))
#define VIRTIO_RDMA_RQ_QUEUE(pair, max_cq) (VIRTIO_RDMA_SQ_QUEUE(pair, max_cq) + 1)
#define VIRTIO_RDMA_EVENT_QUEUE(max_cq, max_qp) (VIRTIO_RDMA_SQ_QUEUE(max_qp, max_cq))
"""


def c_name(kind: Struct | Union) -> str:
    """The name of a structure in C: that of the specification, with a prefix if it has none."""
    return kind.name if kind.name.startswith(PREFIX) else PREFIX + kind.name


def c_header(counters: Sequence[tuple[str, int]] = ()) -> str:
    """The whole of ``virtio_rdma.h``.

    counters: name and words of 32 bits of each counter behind ``counter_window``, in their order.
    """
    lines = [_HEAD]
    numbers = vars(push) | vars(virtio_rdma)
    lines += [_define(name, numbers[name]) for name in _CONSTANTS]
    lines.append(_QUEUES)
    for cls in vars(enums).values():
        if isinstance(cls, EnumType) and cls.__module__ == enums.__name__:
            lines += [*_enumeration(cls), ""]
    declared: set[str] = set()
    header = (virtio_rdma.REQUEST_HEADER, virtio_rdma.RESPONSE_HEADER)
    for struct in (*header, *virtio_rdma.STRUCTS, *virtio_rdma.ADDITIONS):
        lines += _declarations(struct, declared)
    lines += [*_counters(counters), "", "#endif /* VIRTIO_RDMA_H */"]
    return "\n".join(lines) + "\n"


def _counters(counters: Sequence[tuple[str, int]]) -> Iterator[str]:
    """A macro that calls another one for each counter."""
    yield "/* Counters behind struct virtio_rdma_counter_window: X(name, words of 32 bits). */"
    calls = [f"\tX({name}, {words})" for name, words in counters]
    yield " \\\n".join([f"#define {PREFIX.upper()}COUNTERS(X)", *calls])


def _define(name: str, value: int) -> str:
    suffix = "" if value < 1 << 31 else "u" if value < 1 << 32 else "ull"
    number = str(value) if value < 1 << 8 else f"{value:#x}"
    return f"#define {PREFIX.upper()}{name} {number}{suffix}"


def _enumeration(cls: EnumType) -> Iterator[str]:
    text = " ".join((cls.__doc__ or "").replace("``", "").split("Spec:")[0].split())
    summary = re.sub(r"\s*VR-[^ ]*$", "", text)
    if summary:
        yield f"/* {summary} */"
    prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).upper()
    members: list[Enum] = list(cls)
    for item in members:
        yield _define(f"{prefix}_{item.name}", int(item.value))


def _declarations(kind: Struct | Union, declared: set[str]) -> Iterator[str]:
    """A structure behind those inside it, each once."""
    if kind.name in declared:
        return
    declared.add(kind.name)
    for field in kind.fields:
        if isinstance(field.kind, (Struct, Union)):
            yield from _declarations(field.kind, declared)
    word = "union" if isinstance(kind, Union) else "struct"
    yield f"{word} {c_name(kind)} {{ /* {kind.size} bytes */"
    yield from map(_member, kind.fields)
    yield "} __attribute__((packed));\n"


def _member(field: Field) -> str:
    note = f" /* {field.note} */" if field.note else ""
    return f"\t{_declarator(field.name, field.kind)};{note}"


def _declarator(name: str, kind: Kind) -> str:
    match kind:
        case Scalar():
            return f"{_TYPES[kind.size]} {name}"
        case Bytes():
            return f"uint8_t {name}[{kind.size}]"
        case Array():
            return f"{_TYPES[kind.element.size]} {name}[{kind.count}]"
        case Union():
            return f"union {c_name(kind)} {name}"
        case Struct():
            return f"struct {c_name(kind)} {name}"
    raise ValueError(f"{name}: a {kind.type_name} has no type in C")


if __name__ == "__main__":
    print(c_header(), end="")
