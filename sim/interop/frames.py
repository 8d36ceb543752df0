"""What the frames of a capture must be: RoCE with a good ICRC, nothing a dissector trips over."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sim.packets import ROCE_PORT, reseal

__all__ = ["icrc_faults", "is_roce", "tshark_faults"]

_TSHARK_SECONDS = 120
_FAULT = "_ws.malformed || _ws.expert.severity == error"


def is_roce(frame: bytes) -> bool:
    """Whether an untagged frame is UDP to RoCE's port over IPv4 (without options) or IPv6."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        protocol, port = frame[23:24], frame[36:38]
    elif kind == b"\x86\xdd":
        protocol, port = frame[20:21], frame[56:58]
    else:
        return False
    return protocol == b"\x11" and port == ROCE_PORT.to_bytes(2, "big")


def icrc_faults(frames: Iterable[bytes]) -> list[str]:
    """``frame N: ...`` for each RoCE frame whose ICRC or IPv4 header checksum is wrong.

    Frames count from 1, as Wireshark's do.
    """
    return [
        f"frame {number}: wrong ICRC or IPv4 checksum"
        for number, frame in enumerate(frames, 1)
        if is_roce(frame) and reseal(frame) != frame
    ]


def tshark_faults(path: Path) -> list[str] | None:
    """What tshark finds malformed or in error in a capture; None when there is no tshark.

    A UDP checksum of 0 over IPv6 is no error here: RoCE v2 allows it, Linux sends it. Nor is what
    other dissectors say that guess from a payload's first bytes that it is theirs.
    """
    if shutil.which("tshark") is None:
        return None
    command = ["tshark", "-r", str(path)]
    command += ["-o", "udp.ignore_ipv6_zero_checksum:TRUE", "-Y", _FAULT]
    command += ["-T", "fields", "-e", "frame.protocols", "-e", "frame.number"]
    command += ["-e", "_ws.expert.message"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TSHARK_SECONDS
        )
    except subprocess.TimeoutExpired:
        return [f"tshark has not ended after {_TSHARK_SECONDS} s"]
    if done.returncode:
        return [f"tshark: {done.stderr.strip().splitlines()[-1:]}"]
    faults = []
    for line in done.stdout.splitlines():
        protocols, number, message = line.split("\t")
        if protocols.partition(":infiniband")[2] in ("", ":data"):
            faults.append(f"frame {number}: {message}")
    return faults
