"""A vfio-user client, written from the protocol's specification alone (QEMU's
docs/interop/vfio-user.rst): what a guest's virtual machine does with a card.

It shares no code with the server. ``VfioPlatform`` lets the guest's driver of ``sim.guest`` use it.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import select
import socket
import struct
import time

import numpy as np

from sim.guest.driver.memory import GuestMemory
from sim.guest.driver.platform import Message

VERSION, DMA_MAP, DMA_UNMAP, GET_INFO, GET_REGION_INFO = 1, 2, 3, 4, 5
GET_IRQ_INFO, SET_IRQS, REGION_READ, REGION_WRITE = 7, 8, 9, 10
DMA_READ, DMA_WRITE, RESET, WRITE_MULTI = 11, 12, 13, 15
REPLY, NO_REPLY, ERROR = 1, 16, 32
CONFIG = 7
INTX, MSIX = 0, 2
NONE, BOOL, EVENTFD, MASK, UNMASK, TRIGGER = 1, 2, 4, 8, 16, 32
PATIENCE_S = 300


class VfioError(Exception):
    """The server's answer is an error; ``number`` is its errno."""

    def __init__(self, command, number):
        super().__init__(f"command {command}: {os.strerror(number)}")
        self.number = number


class VfioGone(Exception):
    """The server has closed the connection."""


class VfioClient:
    """One connection. ``memory``: a function that finds the bytes at a bus address, for a server
    that has to ask for them; ``asked`` counts by command what it has asked. ``friends`` are other
    clients of the same thread, whose servers must not wait for it either."""

    def __init__(self, path, capabilities=None, *, greet=True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        self.asking = None
        self.memory = None
        self.asked = {}
        self.friends = []
        self._number = 100
        if greet:
            if capabilities is None:
                capabilities = {"max_msg_fds": 8, "max_data_xfer_size": 1 << 20, "pgsizes": 4096}
            self.capabilities = self.greet(capabilities)

    def greet(self, capabilities):
        text = json.dumps({"capabilities": capabilities}).encode() + b"\0"
        body, files = self.request(VERSION, struct.pack("=HH", 0, 0) + text, files_back=True)
        major, minor = struct.unpack_from("=HH", body)
        assert (major, minor) == (0, 0) and body[-1:] == b"\0"
        found = json.loads(body[4:-1])["capabilities"]
        twin = found.get("twin_socket", {})
        if twin.get("supported"):
            self.asking = socket.socket(fileno=files[twin["fd_index"]])
            self.asking.settimeout(PATIENCE_S)
        return found

    def send(self, command, body=b"", files=(), *, flags=0, size=None, number=None):
        self._number += 1
        number = self._number if number is None else number
        size = 16 + len(body) if size is None else size
        data = struct.pack("=HHIII", number, command, size, flags, 0) + body
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
        self.socket.sendmsg([data], beside if files else [])
        return number

    def receive(self, line):
        """The next message on a socket, with what came beside it."""
        header, files = self._exactly(line, 16)
        number, command, size, flags, error = struct.unpack("=HHIII", header)
        body, more = self._exactly(line, size - 16)
        return number, command, flags, error, body, files + more

    @staticmethod
    def _exactly(line, count):
        data, files = b"", array.array("i")
        while len(data) < count:
            try:
                part, beside, _, _ = line.recvmsg(count - len(data), socket.CMSG_SPACE(64))
            except ConnectionError as error:
                raise VfioGone from error
            if not part:
                raise VfioGone
            data += part
            for _, _, octets in beside:
                files.frombytes(octets)
        return data, list(files)

    def request(self, command, body=b"", files=(), *, files_back=False, flags=0):
        """Send a command and wait for its answer's body; serve the server's own meanwhile."""
        number = self.send(command, body, files, flags=flags)
        found = self.answer(number, command)
        return found if files_back else found[0]

    def answer(self, number, command):
        """The answer to a command that was sent; what servers ask meanwhile is answered."""
        while (found := self.serve(PATIENCE_S)) is None:
            pass
        their, what, flags, error, body, came = found
        assert (their, what) == (number, command)
        if flags & ERROR:
            assert not body
            raise VfioError(command, error)
        return body, came

    def serve(self, seconds):
        """Answer one message of a server, this one's or a friend's; or return this one's answer."""
        lines = {
            line: client
            for client in (self, *self.friends)
            for line in (client.asking, client.socket)
            if line is not None
        }
        ready = select.select(lines, [], [], seconds)[0]
        assert ready or seconds < PATIENCE_S, "no answer"
        for line in ready[:1]:
            message = self.receive(line)
            if message[2] & REPLY:
                assert lines[line] is self
                return message
            lines[line]._answer(line, message[0], message[1], message[4])
        return None

    def _answer(self, line, number, command, body):
        """Answer the server's DMA_READ or DMA_WRITE."""
        self.asked[command] = self.asked.get(command, 0) + 1
        addr, count = struct.unpack_from("=QQ", body)
        place = self.memory(addr, count)
        answer = body[:16]
        if command == DMA_READ:
            answer += bytes(place)
        else:
            place[:] = np.frombuffer(body[16:], np.uint8)
        line.sendall(struct.pack("=HHIII", number, command, 16 + len(answer), REPLY, 0) + answer)

    def map(self, addr, size, file=None, offset=0, rights=3):
        body = struct.pack("=IIQQQ", 32, rights, offset, addr, size)
        assert self.request(DMA_MAP, body, [] if file is None else [file]) == b""

    def unmap(self, addr, size, flags=0):
        body = struct.pack("=IIQQ", 24, flags, addr, size)
        assert self.request(DMA_UNMAP, body) == body

    def info(self):
        """Flags, number of regions, number of kinds of interrupts."""
        return struct.unpack("=IIII", self.request(GET_INFO, struct.pack("=IIII", 16, 0, 0, 0)))[1:]

    def region(self, index):
        """Flags and size."""
        body = self.request(GET_REGION_INFO, struct.pack("=IIIIQQ", 32, 0, index, 0, 0, 0))
        size, flags, found, _, length, _ = struct.unpack("=IIIIQQ", body)
        assert (size, found) == (32, index)
        return flags, length

    def irq(self, index):
        """Flags and count."""
        body = self.request(GET_IRQ_INFO, struct.pack("=IIII", 16, 0, index, 0))
        size, flags, found, count = struct.unpack("=IIII", body)
        assert (size, found) == (16, index)
        return flags, count

    def set_irqs(self, index, start, count, flags, files=(), chosen=b""):
        body = struct.pack("=IIIII", 20 + len(chosen), flags, index, start, count) + chosen
        assert self.request(SET_IRQS, body, files) == b""

    def read(self, region, offset, count):
        head = struct.pack("=QII", offset, region, count)
        body = self.request(REGION_READ, head)
        assert body[:16] == head and len(body) == 16 + count
        return body[16:]

    def write(self, region, offset, data):
        head = struct.pack("=QII", offset, region, len(data))
        assert self.request(REGION_WRITE, head + data) == head

    def reset(self):
        assert self.request(RESET) == b""

    def close(self):
        self.socket.close()
        if self.asking is not None:
            self.asking.close()


class VfioPlatform:
    """A guest whose card a client has; implements ``sim.guest.driver.platform.Platform``.

    Memory is a memfd, of which the server gets ``pieces`` equal pieces from ``base`` on; with
    ``messages`` it gets no descriptors. The MSI-X table is emulated here, as a virtual machine does
    that: the server hears of vectors by SET_IRQS.
    """

    def __init__(self, path, *, size=16 << 20, base=1 << 30, pieces=4, messages=False, twin=False):
        wishes = {"max_msg_fds": 8, "twin_socket": {"supported": twin}}
        self.client = VfioClient(path, wishes)
        self.file = os.memfd_create("guest")
        os.ftruncate(self.file, size)
        self._area = mmap.mmap(self.file, size)
        octets = np.frombuffer(self._area, np.uint8)
        self.memory = GuestMemory(octets, base=base)
        self.client.memory = lambda addr, count: octets[addr - base :][:count]
        self.pieces = [(base + i * size // pieces, size // pieces) for i in range(pieces)]
        for addr, length in self.pieces:
            file = None if messages else self.file
            self.client.map(addr, length, file, 0 if messages else addr - base)
        self.mmio, self.interrupts = self, self
        self._handlers, self._events, self._table, self._wanted = {}, {}, {}, {}
        self._start = time.monotonic()

    # Registers

    async def read(self, function, bar, addr, size):
        return int.from_bytes(self.client.read(bar, addr, size), "little")

    async def write(self, function, bar, addr, size, value):
        if bar == 0 and 0x8000 <= addr < 0x8200:
            self._table_written(addr - 0x8000, value)
        else:
            self.client.write(bar, addr, value.to_bytes(size, "little"))

    def _table_written(self, at, value):
        """A word of the MSI-X table: an unmasked vector gets a descriptor, a masked one none."""
        vector, word = divmod(at, 16)
        self._table[vector, word // 4] = value
        if word != 12:
            return
        if value & 1:
            self.client.set_irqs(MSIX, vector, 1, EVENTFD | TRIGGER)
            self._drop(vector)
        else:
            self._events[vector] = event = os.eventfd(0, os.EFD_NONBLOCK)
            self.client.set_irqs(MSIX, vector, 1, EVENTFD | TRIGGER, [event])

    def _drop(self, vector):
        event = self._events.pop(vector, None)
        if event is not None:
            os.close(event)

    # Interrupts

    def allocate(self, handler):
        message = Message(0xFEE0_0000, len(self._handlers))
        self._handlers[message.data] = handler
        return message

    def release(self, message):
        del self._handlers[message.data]

    def now(self):
        return int(1e9 * (time.monotonic() - self._start))

    async def wait_event(self, timeout_ns):
        self.client.serve(0.001)
        self.deliver()

    def deliver(self, seconds=0.0):
        """Call the handlers of what has come; how many."""
        poll = select.poll()
        vectors = {event: vector for vector, event in self._events.items()}
        for event in vectors:
            poll.register(event, select.POLLIN)
        count = 0
        for event, _ in poll.poll(1000 * seconds):
            os.eventfd_read(event)
            self._handlers[self._table[vectors[event], 2]]()
            count += 1
        return count

    def close(self):
        self.client.close()
        for vector in list(self._events):
            self._drop(vector)
        os.close(self.file)


def run(work):
    """The result of a coroutine that never sleeps: everything here waits where it is."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("It sleeps")
