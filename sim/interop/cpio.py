"""Archives that a Linux kernel unpacks as its first file system ("newc" of cpio(5)).

Spec: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

__all__ = ["Node", "archive", "listing"]

_MAGIC = b"070701"
_HEADER = 110  # the magic and 13 numbers of 8 hexadecimal digits
_END = "TRAILER!!!"


class Node:
    """One entry: ``mode`` with its file type, ``data`` of a file or target of a link."""

    def __init__(self, mode: int, data: bytes = b"") -> None:
        self.mode, self.data = mode, data

    @classmethod
    def file(cls, data: bytes, *, executable: bool = False) -> Node:
        """A regular file."""
        return cls(stat.S_IFREG | (0o755 if executable else 0o644), data)

    @classmethod
    def link(cls, target: str) -> Node:
        """A symbolic link."""
        return cls(stat.S_IFLNK | 0o777, target.encode())

    @classmethod
    def folder(cls) -> Node:
        """A directory."""
        return cls(stat.S_IFDIR | 0o755)


def archive(nodes: Mapping[str, Node]) -> bytes:
    """The archive of ``nodes`` (absolute path -> entry); folders they need are added.

    Equal contents give equal bytes. ValueError for a path that is not absolute and plain.
    """
    entries: dict[str, Node] = {}
    for path, node in sorted(nodes.items()):
        pure = PurePosixPath(path)
        if not pure.is_absolute() or ".." in pure.parts or len(pure.parts) < 2:
            raise ValueError(f"Not a plain absolute path: {path!r}")
        for parent in reversed(pure.parents[:-1]):
            entries.setdefault(str(parent), Node.folder())
        entries[str(pure)] = node
    parts = [_record(i, path[1:], node) for i, (path, node) in enumerate(sorted(entries.items()))]
    return b"".join([*parts, _record(0, _END, Node(0))])


def listing(data: bytes) -> Iterator[tuple[str, Node]]:
    """Yield (absolute path, entry) of an archive; ValueError when it is cut or not of this kind."""
    place = 0
    while True:
        header = data[place : place + _HEADER]
        if len(header) < _HEADER or header[:6] != _MAGIC:
            raise ValueError(f"No cpio header at byte {place}")
        numbers = [int(header[at : at + 8], 16) for at in range(6, _HEADER, 8)]
        mode, size, name_size = numbers[1], numbers[6], numbers[11]
        name = data[place + _HEADER : place + _HEADER + name_size - 1].decode()
        begin = place + _padded(_HEADER + name_size)
        place = begin + _padded(size)
        if name == _END:
            return
        if place > len(data):
            raise ValueError(f"{name} is cut")
        yield f"/{name}", Node(mode, data[begin : begin + size])


def _padded(size: int) -> int:
    return -(-size // 4) * 4


def _record(number: int, name: str, node: Node) -> bytes:
    raw = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(node.mode) else 1
    fields = (number, node.mode, 0, 0, links, 0, len(node.data), 0, 0, 0, 0, len(raw), 0)
    head = _MAGIC + b"".join(b"%08X" % value for value in fields) + raw
    return head.ljust(_padded(len(head)), b"\0") + node.data.ljust(_padded(len(node.data)), b"\0")
