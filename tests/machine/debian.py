"""Guests as tests start them."""

from __future__ import annotations

import re

import pytest

from tests.machine.test_command import guest


def run(*words, status=0):
    """Output and messages of a guest that ends with ``status``; skips without packages."""
    done = guest("--timeout", "300", *words)
    reasons = ("E: ", "package sources", "apt-get not found")
    if done.returncode == 2 and any(reason in done.stderr for reason in reasons):
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


def sections(text: str) -> dict[str, str]:
    """What stands behind each line "== NAME", without the colours of Debian 13's iproute2."""
    text = re.sub(r"\r|\x1b\[[0-9;]*m", "", text)
    _, *parts = re.split(r"^== (.*)\n", text, flags=re.M)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def sides_of(text: str) -> tuple[str, str]:
    """What the server and what the client have said, without their names."""
    lines = text.replace("\r", "").splitlines()
    server, client = (
        [line.removeprefix(name) for line in lines if line.startswith(name)]
        for name in ("server: ", "client: ")
    )
    return "\n".join(server) + "\n", "\n".join(client) + "\n"
