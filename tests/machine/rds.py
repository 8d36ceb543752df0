"""Reliable Datagram Sockets between two guests, with the kernel's own RDMA transport below.

Without an argument it answers what comes, until a message says that it is over. With the address
of such a one it sends messages of many lengths, has each byte compared, and pings the kernel there
as ``rds-ping`` does: what goes to port 0 is answered by the kernel. The module is rds_rdma.
"""

import hashlib
import socket
import subprocess
import sys
import time

PORT, PING, OVER = 4000, 0, b"over"
LENGTHS = (1, 63, 4096, 4097, 30_000, 65_536, 200_000)
PINGS = 5


def pattern(length: int) -> bytes:
    """Bytes that are their length's own."""
    seed = length.to_bytes(4, "big")
    blocks = (length + 31) // 32
    return b"".join(hashlib.sha256(seed + bytes([i % 256])).digest() for i in range(blocks))[
        :length
    ]


def opened(address: str, port: int) -> socket.socket:
    """A socket of that address, which chooses the device."""
    subprocess.run(["modprobe", "rds_rdma"], check=True)
    made = socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        made.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
    made.bind((address, port))
    made.settimeout(60)
    return made


def answer() -> None:
    """Send back all that comes."""
    here = opened("10.0.0.1", PORT)
    while True:
        data, peer = here.recvfrom(1 << 20)
        here.sendto(data, peer)
        if data == OVER:
            return


def ask(address: str) -> None:
    """Messages there and back, one by one and then all at once; pings."""
    here = opened("10.0.0.2", PORT)
    peer = (address, PORT)

    def back(data: bytes) -> None:
        found = here.recv(1 << 20)
        assert found == data, f"{len(found)} bytes came back, not the {len(data)} sent"

    for length in LENGTHS:
        here.sendto(pattern(length), peer)
        back(pattern(length))
        print(f"{length} bytes: the same", flush=True)
    for length in LENGTHS:
        here.sendto(pattern(length), peer)
    for length in LENGTHS:
        back(pattern(length))
    print("all at once: the same", flush=True)
    for number in range(PINGS):
        begun = time.monotonic()
        here.sendto(b"", (address, PING))
        _, (_, port) = here.recvfrom(64)
        assert port == PING
        print(f"ping {number}: {(time.monotonic() - begun) * 1e6:.0f} us", flush=True)
    here.sendto(OVER, peer)
    back(OVER)


if __name__ == "__main__":
    ask(sys.argv[1]) if len(sys.argv) > 1 else answer()
