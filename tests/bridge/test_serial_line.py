"""SerialLine and Link over a pseudo terminal, whose other end is a bridge of Python."""

from __future__ import annotations

import asyncio
import os
import pty
import random
import threading
import tty

import pytest

from hdl.bridge.protocol import ANSWER, SYNC, Command, Status
from sim.guest.bridge.link import BridgeError, Link, check
from sim.guest.bridge.platform import BridgePlatform
from sim.guest.bridge.serial_line import SerialLine

REGISTER = 0x1234


def answer(request: bytes) -> bytes:
    """What the bridge says: registers hold their address, everything else is a bad request."""
    assert request[0] == SYNC and check(request[1:-2]) == request[-2:]
    good = request[1] == Command.READ_REGISTER
    data = request[3:7] if good else b""
    text = bytes((request[1], Status.OK if good else Status.BAD_REQUEST, len(data))) + data
    return bytes((ANSWER,)) + text + check(text)


@pytest.fixture
def port():
    """A terminal that answers requests of 9 bytes; the first byte of each answer comes alone."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)

    def serve() -> None:
        came = b""
        while True:
            try:
                came += os.read(ours, 64)
            except OSError:  # the terminal is closed
                return
            while len(came) >= 9:
                text, came = answer(came[:9]), came[9:]
                os.write(ours, text[:1])
                os.write(ours, text[1:])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield os.ttyname(theirs)
    os.close(theirs)
    os.close(ours)


def test_requests_of_several_tasks(port):
    async def main() -> None:
        line = SerialLine(port, 115200)
        link = Link(line)
        places = [REGISTER + 4 * n for n in range(20)]
        assert await asyncio.gather(*(link.read_register(one, 15) for one in places)) == places
        with pytest.raises(BridgeError, match="POLL at 0x0: BAD_REQUEST") as refused:
            await link.poll()
        assert refused.value.status is Status.BAD_REQUEST
        line.close()

    asyncio.run(main())


def test_a_board_that_says_nothing():
    ours, theirs = pty.openpty()
    tty.setraw(theirs)

    async def main() -> None:
        line = SerialLine(os.ttyname(theirs), 115200, timeout_s=0.05)
        with pytest.raises(BridgeError, match="READ_REGISTER at 0x1234: no answer"):
            await Link(line).read_register(REGISTER, 15)
        line.close()

    asyncio.run(main())
    os.close(theirs)
    os.close(ours)


class SlowBoard:
    """Memory behind a line on which each byte gives other tasks a turn."""

    def __init__(self) -> None:
        self.octets = bytearray(8192)
        self.seen: list[int] = []
        self._answer = b""

    def lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def send(self, octets: bytes) -> None:
        for _ in range(len(octets) % 5 + 1):
            await asyncio.sleep(0)
        command, count, at = octets[1], octets[2], int.from_bytes(octets[3:7], "little")
        data = b""
        if command == Command.WRITE_MEMORY:
            for n in range(count):
                word = octets[7 + 9 * n :][:9]
                for lane in range(8):
                    if word[8] >> lane & 1:
                        self.octets[at + 8 * n + lane] = word[lane]
            self.seen.append(self.octets[4096])
        else:
            data = bytes(4) + b"\xff" * 4
        text = bytes((command, Status.OK, len(data))) + data
        self._answer = bytes((ANSWER,)) + text + check(text)

    async def receive(self, count: int) -> bytes:
        await asyncio.sleep(0)
        octets, self._answer = self._answer[:count], self._answer[count:]
        return octets


def test_tasks_do_not_take_back_what_others_have_written():
    board = SlowBoard()

    rng = random.Random(1)

    async def main() -> None:
        host = BridgePlatform(Link(board), 8192, lambda: 0)

        async def driver(number: int) -> None:
            for n in range(1, 20):
                for _ in range(rng.randrange(200)):
                    await asyncio.sleep(0)
                host.memory.bytes[4096] += 1
                host.memory.bytes[1024 * number - 512] = n
                if number == 1:  # a long exchange, during which others begin and end
                    host.memory.bytes[0:512:16] = n
                await host.wait_event(0)

        await asyncio.gather(*(driver(number) for number in range(1, 5)))
        await host.flush()
        assert bytes(host.memory.bytes) == bytes(board.octets)

    asyncio.run(main())
    assert board.seen == sorted(board.seen) and board.seen[-1] == 4 * 19
