"""A headless Chromium without a network: what a page has become when its scripts have run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

#: Names that distributions give it.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless",
    "--no-sandbox",  # the pages are ours, and root has no other way
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no name leads anywhere
    # Time of the page until it is looked at, ms; it passes as fast as the scripts allow.
    "--virtual-time-budget=20000",
)


def _chromium() -> str:
    """The browser's path; skips the test where there is none."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip(f"no browser: apt-get install {_NAMES[0]}")


def document(page: Path | str, home: Path) -> str:
    """The HTML of ``page``, a file or an address, after its scripts.

    ``home``: a folder for the browser's own files.
    """
    address = page if isinstance(page, str) else page.absolute().as_uri()
    profile = f"--user-data-dir={home / 'profile'}"
    command = [_chromium(), *_OPTIONS, profile, "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve ``folder`` on this machine alone; yields its address."""
    handler = partial(_Silent, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_words: object) -> None:
        """Requests are no part of a test's output."""
