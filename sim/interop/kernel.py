"""A packaged Linux kernel: its image without compression, its modules in loading order."""

from __future__ import annotations

import gzip
import lzma
import re
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sim.interop.packages import require_commands
from sim.rtl.env import ToolError

__all__ = ["image", "loading_order", "module_files", "read_module"]

_ELF = b"\x7fELF"
_XZ, _GZIP, _ZSTD = b"\xfd7zXZ\0", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def image(packaged: bytes) -> bytes:
    """The ELF image inside a bzImage: the guest then need not decompress it, which takes seconds.

    Without an ELF image in it the file is returned as it is. ToolError when it is no bzImage.
    Spec: Linux, Documentation/arch/x86/boot.rst: header, setup_sects, payload_offset and
    payload_length.
    """
    if packaged[0x202:0x206] != b"HdrS":
        raise ToolError(f"Not a Linux kernel for x86: it begins with {packaged[:4].hex()}")
    begin = (packaged[0x1F1] + 1) * 512
    offset, length = struct.unpack_from("<II", packaged, 0x248)
    inner = decompressed(packaged[begin + offset : begin + offset + length])
    return inner if inner.startswith(_ELF) else packaged


def decompressed(data: bytes) -> bytes:
    """``data`` without its compression by xz, gzip or zstd, if it has one.

    The four bytes of length that a bzImage puts behind the compressed data are passed over.
    """
    if data.startswith(_XZ):
        return lzma.LZMADecompressor().decompress(data)
    if data.startswith(_GZIP):
        return gzip.decompress(data)
    if data.startswith(_ZSTD):
        require_commands({"zstd": "zstd"})
        done = subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=False)
        return done.stdout  # its status complains of the length behind
    return data


def module_files(root: Path) -> dict[str, Path]:
    """Module name -> file, of all modules under ``root`` (unpacked packages)."""
    return {
        _name(path.name.partition(".ko")[0]): path
        for folder in ("lib/modules", "usr/lib/modules")
        for path in (root / folder).glob("*/kernel/**/*.ko*")
    }


def read_module(path: Path) -> bytes:
    """A module as the kernel loads it."""
    return decompressed(path.read_bytes())


def loading_order(wanted: Iterable[str], files: dict[str, Path]) -> list[str]:
    """``wanted`` modules and all that they depend on, each behind what it depends on.

    Names without a file are taken for built in. (The packages come without modules.dep, but the
    modules say the same themselves.)
    """
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order or name not in files:
            return
        found = re.search(rb"\0depends=([^\0]*)\0", read_module(files[name]))
        for other in (found[1].decode() if found else "").split(","):
            visit(_name(other))
        order.append(name)

    for name in wanted:
        visit(_name(name))
    return order


def _name(name: str) -> str:
    return name.replace("-", "_")
