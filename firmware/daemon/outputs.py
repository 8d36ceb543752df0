"""Files that are written at the end of something: whether they can be is found out before it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["require_file"]

#: What is written to find out whether there is room.
_PROBE = b"\n" * 4096


def require_file(path: Path) -> None:
    """Raises OSError, with the file's name, unless ``path`` can be written now.

    A file that is there keeps its contents, one that is not is not there afterwards. Of a device
    that is no terminal a line is written. A pipe or a socket is taken as it is.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        _try_new(path)
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
    try:
        if stat.S_ISCHR(mode) and not os.isatty(descriptor):
            _write(descriptor, b"\n", path)
    finally:
        os.close(descriptor)


def _try_new(path: Path) -> None:
    """Makes the file, with something in it, and takes it away again."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        _write(descriptor, _PROBE, path)
    finally:
        os.close(descriptor)
        path.unlink()


def _write(descriptor: int, octets: bytes, path: Path) -> None:
    try:
        os.write(descriptor, octets)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
