"""What a process does to the pages of a mapped BAR, access by access (``one_access.cpp``)."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from firmware.daemon.bars import MappedBar
from sim.rtl.env import REPO
from tests.firmware.fake_hardware import finish

#: What a word holds before it is written, and what then: each byte of it changes.
BEFORE, AFTER = 0x04030201, 0x14131211


def lacking() -> str | None:
    """Why this cannot be observed here."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "single steps are written for Linux on x86-64"
    return None if shutil.which("g++") else "there is no g++"


def observed(path: str, accesses: list) -> list:
    """(read or write, offset, bytes changed) of each access that was seen, while a process does
    ``accesses`` with a ``MappedBar`` of the file ``path``."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/one_access.so"
        source = Path(__file__).with_suffix(".cpp")
        subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        done = subprocess.run(
            [sys.executable, "-m", "tests.firmware.one_access", library, path],
            input=json.dumps(accesses),
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPO,
            timeout=60,
            check=True,
        )
    return [tuple(one) for one in json.loads(done.stdout)]


def _main(library: str, path: str) -> None:
    watcher = ctypes.CDLL(library)
    bar = MappedBar(path)
    words = bar._words
    for _, addr, _ in (accesses := json.load(sys.stdin)):
        words[addr // 4] = BEFORE
    watcher.watch(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(bar._map))))
    for kind, addr, _ in accesses:
        access = bar.write(addr, AFTER) if kind == "write" else bar.read(addr)
        found = finish(access)
        assert kind == "write" or found in (BEFORE, AFTER), found
    seen = []
    numbers = [ctypes.c_long() for _ in range(3)]
    while watcher.take(ctypes.c_long(len(seen)), *map(ctypes.byref, numbers)):
        write, offset, changed = (number.value for number in numbers)
        seen.append(("write" if write else "read", offset, changed))
    print(json.dumps(seen), flush=True)
    os._exit(0)  # the pages are still closed to whoever tidies up


if __name__ == "__main__":
    _main(*sys.argv[1:])
