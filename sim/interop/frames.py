"""What the frames of a capture must be: RoCE with a good ICRC, nothing a dissector trips over."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sim.wire.packets import ROCE_PORT, reseal

__all__ = ["icrc_faults", "is_roce", "msn_faults", "requests", "tshark_faults"]

_TSHARK_SECONDS = 120
#: RC opcodes: those that end a message (a READ or an atomic is one packet), those that are looked
#: at here.
_ENDS_MESSAGE = {0x02, 0x03, 0x04, 0x05, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x13, 0x14, 0x16, 0x17}
_READ_REQUEST, _ACK, _ATOMIC_ACK = 0x0C, 0x11, 0x12
#: All requests: SEND, WRITE, READ; atomics; SEND with invalidate.
_REQUESTS = {*range(_READ_REQUEST + 1), 0x13, 0x14, 0x16, 0x17}
_PSNS = 1 << 24
#: The first packet of a READ response, its only one, ACK, the answer to an atomic.
_WITH_AETH = {0x0D, 0x10, _ACK, _ATOMIC_ACK}
#: Syndromes from here on are RNR NAK and NAK.
_NOT_ACK = 0x20
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


def requests(frames: Iterable[bytes], mac: bytes) -> int:
    """Request packets of RC that the card ``mac`` has sent. (Untagged frames.)"""
    return sum(
        is_roce(frame) and frame[6:12] == mac and _bth(frame)[0] in _REQUESTS for frame in frames
    )


def _bth(frame: bytes) -> bytes:
    """An untagged RoCE frame from its BTH on."""
    return frame[42:] if frame[12:14] == b"\x08\x00" else frame[62:]


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


class _Requests:
    """The messages that a peer has sent to one queue pair, counted as its MSN counts them."""

    def __init__(self) -> None:
        self._next: tuple[int, int] | None = None  # the next PSN, and how much later it may be
        self.count = 0

    def take(self, bth: bytes) -> int:
        """Count a request packet; one that does not follow begins a new connection."""
        psn = int.from_bytes(bth[9:12], "big")
        if self._next is not None and (psn - self._next[0]) % _PSNS > self._next[1]:
            self.count = 0
        self.count += bth[0] in _ENDS_MESSAGE
        # How many PSNs a READ takes follows from its length and the path MTU, at least 256.
        read = int.from_bytes(bth[24:28], "big") // 256 if bth[0] == _READ_REQUEST else 0
        self._next = (psn + 1) % _PSNS, read
        return self.count


def msn_faults(frames: Iterable[bytes], mac: bytes) -> list[str]:
    """``frame N: ...`` for each response of the card ``mac`` whose MSN is not the right one.

    Soft-RoCE does not look at it. An ACK has the number of messages that had come to an end with
    the PSN that it acknowledges; a READ response at least those up to its request, at most all so
    far. PSNs of connections that are open at the same time must differ. (Untagged frames.)
    Spec: IBTA 1.5, 9.7.7.1 (MSN).
    """
    requests: dict[int, _Requests] = {}
    ended: dict[int, tuple[_Requests, int]] = {}
    faults = []
    for number, frame in enumerate(frames, 1):
        if not is_roce(frame):
            continue
        bth = _bth(frame)
        opcode, psn = bth[0], int.from_bytes(bth[9:12], "big")
        if frame[6:12] != mac:
            if opcode in _REQUESTS:
                queue = requests.setdefault(int.from_bytes(bth[5:8], "big"), _Requests())
                ended[psn] = queue, queue.take(bth)
        elif opcode in _WITH_AETH and bth[12] < _NOT_ACK and psn in ended:
            queue, least = ended[psn]
            most = least if opcode == _ACK else queue.count
            msn = int.from_bytes(bth[13:16], "big")
            if not least <= msn <= most:
                faults.append(f"frame {number}: MSN {msn}, not {least}")
    return faults
