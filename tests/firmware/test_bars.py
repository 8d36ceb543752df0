"""The BAR of a card as a bus: mapped, and on a socket."""

import asyncio
import contextlib
import mmap
import os
import socket
import struct

import pytest

from firmware.daemon.bars import (
    ANSWER,
    BAR_BYTES,
    REQUEST,
    BarError,
    MappedBar,
    SocketBar,
    open_bar,
)
from firmware.daemon.interrupts import Interrupts
from tests.firmware import one_access

PAGE = mmap.PAGESIZE


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "resource0"
    path.write_bytes(bytes(BAR_BYTES))
    return path


def run(coroutine):
    return asyncio.run(coroutine)


@contextlib.contextmanager
def mapped(path, **where):
    bar = MappedBar(str(path), **where)
    try:
        yield bar
    finally:
        bar.close()


@pytest.mark.parametrize("offset", [0, PAGE, PAGE + 4, 8])
def test_words_at_their_place(file, offset):
    """Little-endian words, and nothing beside them is touched."""
    with mapped(file, offset=offset, size=BAR_BYTES - 2 * PAGE) as bar:
        run(bar.write(0x2004, 0x11223344))
        run(bar.write(0x0, 0xFFFFFFFF))
        run(bar.write(bar.size - 4, 0x80000001))
        assert run(bar.read(0x2004)) == 0x11223344
        assert run(bar.read(0x2008)) == 0
    expected = bytearray(BAR_BYTES)
    for addr, value in ((0x2004, 0x11223344), (0, 0xFFFFFFFF), (bar.size - 4, 0x80000001)):
        struct.pack_into("<I", expected, offset + addr, value)
    assert file.read_bytes() == expected


def test_each_access_is_one_of_four_bytes(file):
    """Counted by the processor: the page may not be touched, and each instruction that does is
    let through one by one."""
    if (reason := one_access.lacking()) is not None:
        pytest.skip(reason)
    expected = [("write", 0x10, 4), ("write", 0xFFC, 4), ("read", 0x10, 0), ("read", 0xFFC, 0)]
    assert one_access.observed(str(file), expected) == expected


@pytest.mark.parametrize(
    ("addr", "value"), [(2, 0), (-4, 0), (BAR_BYTES, 0), (0, 1 << 32), (0, -1), (0x100001, 0)]
)
def test_what_is_no_register(file, addr, value):
    with mapped(file) as bar:
        with pytest.raises(ValueError, match=r"No register at|no word of 32 bits"):
            run(bar.write(addr, value))
    assert not any(file.read_bytes())


def test_what_cannot_be_mapped(file, tmp_path):
    for where, why in (
        ({"offset": 2}, "offset must be a multiple of 4, not 0x2"),
        ({"offset": -4}, "offset must be a multiple of 4"),
        ({"size": 6}, "size must be a multiple of 4, not 0x6"),
        ({"size": 0}, "size must be a multiple of 4"),
        ({"offset": 4}, "0x100000 bytes, not 0x100000 from offset 0x4 on"),
    ):
        with pytest.raises(BarError, match=why):
            MappedBar(str(file), **where)
    for path, why in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(BarError, match=why):
            MappedBar(str(path))
        with pytest.raises(BarError, match=why):
            run(open_bar(str(path)))
    with mapped(file), pytest.raises(BarError, match="another firmware serves this card"):
        MappedBar(str(file))
    MappedBar(str(file)).close()


def test_size_of_the_file(file):
    async def size(**where):
        bar = await open_bar(str(file), **where)
        bar.close()
        return bar.size

    assert run(size()) == BAR_BYTES
    assert run(size(offset=PAGE)) == BAR_BYTES - PAGE
    assert run(size(size=PAGE)) == PAGE
    with pytest.raises(BarError, match="size must be a multiple of 4, not 0x0"):
        run(size(offset=BAR_BYTES))


def served(path, script):
    """What a ``SocketBar`` makes of ``script``, and all bytes that the other end has got."""
    got = bytearray()

    async def serve(reader, writer):
        while len(octets := await reader.read(REQUEST.size)) == REQUEST.size:
            got.extend(octets)
            what, addr, _ = REQUEST.unpack(octets)
            if addr == 0xFFFC:
                break
            if what == 0:
                writer.write(ANSWER.pack(addr ^ 0xFFFFFFFF))
        writer.close()

    async def main():
        async with await asyncio.start_unix_server(serve, path):
            bar = await SocketBar.connect(str(path))
            try:
                return await script(bar)
            finally:
                bar.close()

    return run(main()), bytes(got)


def test_socket(tmp_path):
    async def script(bar):
        await bar.write(0x2004, 0x11223344)
        with pytest.raises(ValueError, match="No register at 0x2"):
            await bar.read(2)
        return await bar.read(0x8)

    value, octets = served(tmp_path / "bar", script)
    assert value == 0xFFFFFFF7
    assert octets.hex() == "010000000420000044332211" + "000000000800000000000000"


def test_socket_whose_other_end_goes(tmp_path):
    async def script(bar):
        with pytest.raises(BarError, match="the other end has gone"):
            await bar.read(0xFFFC)

        async def write():
            while True:
                await bar.write(0, 0)
                await asyncio.sleep(0)

        with pytest.raises(BarError, match="the other end has gone"):
            await write()

    served(tmp_path / "bar", script)
    with pytest.raises(BarError, match="No such file"):
        run(open_bar(f"unix:{tmp_path}/none"))
    with pytest.raises(BarError, match="neither offset nor size"):
        run(open_bar(f"unix:{tmp_path}/bar", offset=4))


def test_interrupts_end_a_wait():
    """A UIO device: reads give counts, and each interrupt is let through by a write."""
    ours, device = socket.socketpair()

    async def main():
        loop = asyncio.get_running_loop()
        interrupts = Interrupts(ours.fileno())
        assert interrupts.given
        assert device.recv(8) == struct.pack("=i", 1)
        loop.call_later(0.01, device.send, struct.pack("=i", 1))
        began = loop.time()
        await interrupts.wait(30)
        assert loop.time() - began < 20
        assert (interrupts.count, device.recv(8)) == (1, struct.pack("=i", 1))
        await interrupts.wait(0.01)  # none: the time
        device.close()
        await interrupts.wait(30)
        assert not interrupts.given  # the device has gone
        interrupts.close()

    with ours, device:
        run(main())


def test_without_interrupts_time_decides(file):
    async def main():
        began = asyncio.get_running_loop().time()
        reading = os.open(file, os.O_RDONLY)
        for descriptor in (None, reading):  # a device whose write fails has none
            interrupts = Interrupts(descriptor)
            assert not interrupts.given
            await interrupts.wait(0.01)
            interrupts.close()
        os.close(reading)
        assert asyncio.get_running_loop().time() - began >= 0.02

    run(main())
    assert not any(file.read_bytes())
    with mapped(file) as bar:
        assert bar.device is None  # nothing is written to a regular file to find that out
