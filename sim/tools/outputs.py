"""What commands write: tried before any work, and one line on standard error when it fails later.

A command names its outputs to ``require_file`` or ``require_folder`` when its other options are
known to be good. ``written`` stands around each command (``sim.tools.cli``).
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from firmware.daemon import outputs

__all__ = ["Unwritable", "require_file", "require_folder", "write_text", "written"]

#: What a file system says of what cannot be written.
_REASONS = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EPERM,
        errno.EROFS,
    }
)


class Unwritable(ValueError):
    """An output that cannot be written, and why."""


def require_file(path: Path) -> None:
    """Raise Unwritable unless the file can be written now; ``-`` is standard output."""
    if str(path) == "-":
        return
    folder = path.absolute().parent
    if not folder.is_dir():
        raise Unwritable(f"{path}: there is no folder {folder}")
    try:
        outputs.require_file(path)
    except OSError as error:
        raise Unwritable(f"{path} cannot be written: {error.strerror}") from None


def require_folder(path: Path, files: Iterable[str] = ()) -> None:
    """Raise Unwritable unless files can be made in the folder, with these names at least.

    Folders that are not there are made, and taken away again.
    """
    made: list[Path] = []
    try:
        missing = [one for one in (path, *path.parents) if not os.path.lexists(one)]
        for folder in reversed(missing):
            folder.mkdir()
            made.append(folder)
        for name in files or (f".{os.getpid()}",):
            outputs.require_file(path / name)
    except OSError as error:
        what = error.filename or path
        raise Unwritable(f"{what} cannot be written: {error.strerror}") from None
    finally:
        for folder in reversed(made):
            folder.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write a file; OSError names it, also when it is the disk that is full."""
    try:
        path.write_text(text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def written() -> Iterator[None]:
    """Turn a failure to write, as of a disk that has become full, into one line and status 1."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REASONS:
            raise
        what = f"{error.filename}: " if error.filename else ""
        raise click.ClickException(f"{what}{error.strerror}") from error
    except sqlite3.OperationalError as error:
        raise click.ClickException(f"The database: {error}") from error
