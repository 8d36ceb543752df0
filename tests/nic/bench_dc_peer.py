"""DC against a peer in Python that knows the wire alone: docs/extensions.md says what stands in a
packet and what its receiver does, and nothing here comes from the card's own definitions."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import WcStatus
from sim.guest.verbs import query_dct
from sim.wire import packets as pk
from tests.nic.dc import KEY, Dc
from tests.nic.initiator import WAIT_NS, frame_to

CONNECT, REPLY, DISCONNECT, CLOSED = 0xD8, 0xD9, 0xDA, 0xDB
DATA = 0xC0  # and the operation of RC
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0, 1, 2, 4
WRITE_ONLY, READ, READ_ONLY, ACK = 10, 12, 16, 17
ASKS, ANSWERS = struct.Struct(">BBBBIQQB3x"), struct.Struct(">BBBBIQB3x")
ENDS = struct.Struct(">BBHIQ")
NUMBERS = (0x22, 0x400017)  # of the peer's targets
#: Syndromes: of an ACK that says nothing about credits, and of a NAK, remote access error.
GOOD, REFUSED = 0x1F, 0x62


@dataclass
class Packet:
    """What stands in a frame: the BTH's fields, and what is behind it."""

    opcode: int
    dest: int
    ack_request: bool
    psn: int
    body: bytes

    @classmethod
    def of(cls, frame: bytes) -> Packet:
        end = 14 + struct.unpack_from(">H", frame, 16)[0]
        assert frame[end - 4 : end] == pk.icrc_of_frame(frame)
        bth, pad = frame[42:54], frame[43] >> 4 & 3
        dest, psn = (int.from_bytes(bth[at : at + 3], "big") for at in (5, 9))
        return cls(bth[0], dest, bool(bth[8] & 0x80), psn, frame[54 : end - 4 - pad])


class Peer:
    """Python in the place of the other card of ``side``."""

    @classmethod
    async def up(cls, dut, side, **options):
        self = cls()
        self.p = await Dc.up(dut, connect=False, **options)
        self.side, self.wire = side, self.p.system.testbench.wires[side]
        return self

    def say(self, opcode, dest, psn, body=b"", *, ack_request=0) -> None:
        """Send a packet to the card."""
        fields = {"dest_qp": dest, "psn": psn, "ack_request": ack_request}
        self.wire.inject(frame_to(self.p.nodes, self.side, opcode, body, **fields))

    async def hear(self, timeout_ns=WAIT_NS) -> Packet:
        """The next packet of the card."""
        return Packet.of((await self.wire.receive(timeout_ns))[0])

    async def silent(self, us=20) -> bool:
        """Whether the card says nothing for so long."""
        await Timer(us, "us")
        return self.wire.take() is None


@dataclass
class Context:
    """A connection as its target sees it. ``first``: PSN of its CONNECT, ``psn``: the next one;
    ``open``: it has not been ended."""

    number: int
    channel: int
    nonce: int
    first: int
    psn: int
    msn: int = 0
    open: bool = True
    message: bytearray = field(default_factory=bytearray)


class Targets(Peer):
    """Targets, all with the same key. ``got``: each message that was executed, with its target.
    ``loses``: of the packets of both directions, that share."""

    loses = 0.0

    def begin(self, numbers, seed=1):
        self.numbers, self.rng = numbers, random.Random(seed)
        self.contexts: list[Context] = []
        self.got: list[tuple[int, bytes]] = []
        self.of: dict[int, int] = {}  # context -> target
        cocotb.start_soon(self.serve())

    async def serve(self):
        while True:
            packet = await self.hear(10**9)
            if self.rng.random() < self.loses:
                continue
            for opcode, dest, psn, body in self.take(packet):
                if self.rng.random() >= self.loses:
                    self.say(opcode, dest, psn, body)
                if self.rng.random() < self.loses:
                    self.say(opcode, dest, psn, body)  # it comes twice

    def take(self, packet):
        """What a packet is answered with."""
        if packet.opcode == CONNECT:
            yield self.connect(packet)
            return
        context = next((one for one in self.contexts if one.number == packet.dest), None)
        assert context is not None, "the card sends to a number that nobody has given it"
        if packet.opcode == DISCONNECT:
            version, status, _, channel, nonce = ENDS.unpack(packet.body)
            assert (version, status, packet.ack_request) == (1, 0, True)
            assert (channel, nonce) == (context.channel, context.nonce)
            if context.open:
                assert packet.psn == context.psn, "it ends before all has been answered"
            body = ENDS.pack(1, 0 if context.open else 1, 0, context.number, context.nonce)
            context.open = False
            yield CLOSED, context.channel, packet.psn, body
            return
        assert context.open, "requests to a connection that has ended"
        yield from self.execute(context, packet)

    def connect(self, packet):
        version, flags, mtu, depth, channel, key, nonce, keep = ASKS.unpack(packet.body)
        assert (version, flags, packet.ack_request) == (1, 0, True)
        assert mtu == 3 and 10 <= keep <= 31 and packet.dest in self.numbers
        status, number = (0, 0) if key == KEY else (1, 0)
        if not status:
            known = [one for one in self.contexts if (one.channel, one.nonce) == (channel, nonce)]
            if not known:
                assert not any(one.open for one in self.contexts), "two at a time"
                assert nonce not in {one.nonce for one in self.contexts}
                number = 0x800033 + 5 * len(self.contexts)
                known = [Context(number, channel, nonce, packet.psn, packet.psn)]
                self.contexts += known
                self.of[number] = packet.dest
            assert known[0].first == packet.psn, "the same CONNECT has the same PSN"
            number = known[0].number
        granted = (0, 0) if status else (depth, keep)
        body = ANSWERS.pack(1, status, 0, granted[0], number, nonce, granted[1])
        return REPLY, channel, packet.psn, body

    def execute(self, context, packet):
        """A packet of a SEND, once and in its turn. Of what comes ahead nothing is said; a packet
        that has been taken already is acknowledged again."""
        operation = packet.opcode - DATA
        ahead = (packet.psn - context.psn) & 0xFFFFFF
        if 0 < ahead < 0x800000:
            return
        if not ahead:
            assert operation in (SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY)
            if operation in (SEND_FIRST, SEND_ONLY):
                context.message.clear()
            context.message += packet.body
            context.psn = (context.psn + 1) & 0xFFFFFF
            if operation in (SEND_LAST, SEND_ONLY):
                context.msn += 1
                self.got.append((self.of[context.number], bytes(context.message)))
        last = (context.psn - 1) & 0xFFFFFF
        yield DATA | ACK, context.channel, last, (GOOD << 24 | context.msn).to_bytes(4, "big")


async def messages(dut, count, loses):
    """So many messages of one initiator go to the peer's targets in turn, each exactly once."""
    p = await Targets.up(dut, 0)
    ways = [await p.p.way(p.p.targets[0], dctn=number) for number in NUMBERS]
    p.loses = loses
    p.begin(NUMBERS)
    expected = []
    for n in range(count):
        at, length, to = 100 * n, (7, 1024, 2500)[n % 3], n // 2 % 2
        await p.p.qp.post_send(p.p.send(at, length, n, way=ways[to]))
        expected.append((NUMBERS[to], bytes(p.p.data[at : at + length])))
    found = await p.p.cq.wait(count, timeout_ns=30_000_000)
    assert [(wc.wr_id, wc.status) for wc in found] == [(n, 0) for n in range(count)]
    assert p.got == expected
    assert len(p.contexts) >= count // 2, "each change of the target needs a connection"
    assert len({one.channel for one in p.contexts}) == len(p.contexts), "a number for each"
    for _ in range(100):
        if not any(one.open for one in p.contexts):
            break
        await Timer(20, "us")
    assert not any(one.open for one in p.contexts), "an idle connection ends"


@cocotb.test()
async def t_d1_a_target_on_the_wire(dut):
    """T-D1, T-D2: the card's initiator and a target that knows the wire alone."""
    await messages(dut, 8, 0)


@cocotb.test()
async def t_d6_a_target_that_loses(dut):
    """T-D6, T-D7: the same with a tenth of all packets lost in each direction, or doubled."""
    await messages(dut, 8, 0.1)


@cocotb.test()
async def t_d4_a_target_that_refuses(dut):
    """T-D4: a wrong key is refused, and the request says so."""
    p = await Targets.up(dut, 0)
    p.begin([0x22])
    way = await p.p.way(p.p.targets[0], dctn=0x22, key=KEY ^ 1)
    await p.p.qp.post_send(p.p.send(0, 64, 1, way=way))
    (wc,) = await p.p.done()
    assert (wc.wr_id, wc.status) == (1, WcStatus.REM_ACCESS_ERR)
    assert not p.contexts


class Initiator(Peer):
    """An initiator of one channel."""

    def begin(self, target, channel=0x400011):
        self.target, self.channel = target, channel

    async def connect(self, nonce, psn, *, key=KEY, version=1, mtu=3, times=1):
        """What the target says of it, each time."""
        body = ASKS.pack(version, 0, mtu, 4, self.channel, key, nonce, 20)
        found = []
        for _ in range(times):
            self.say(CONNECT, self.target.qp.qp_num, psn, body, ack_request=1)
            reply = await self.hear()
            assert (reply.opcode, reply.dest, reply.psn) == (REPLY, self.channel, psn)
            found.append(ANSWERS.unpack(reply.body))
        assert len(set(found)) == 1 and found[0][0] == 1 and found[0][5] == nonce
        return found[0]

    async def end(self, number, nonce, psn):
        """The status of the card's answer. Until then one that has failed may say so again."""
        self.say(DISCONNECT, number, psn, ENDS.pack(1, 0, 0, self.channel, nonce), ack_request=1)
        while (reply := await self.hear()).opcode == DATA | ACK:
            assert reply.body[0] == REFUSED
        assert (reply.opcode, reply.dest, reply.psn) == (CLOSED, self.channel, psn)
        version, status, _, of, same = ENDS.unpack(reply.body)
        assert (version, of, same) == (1, number, nonce)
        return status

    async def acknowledged(self, psn, msn, syndrome=GOOD):
        reply = await self.hear()
        assert (reply.opcode, reply.dest, reply.psn) == (DATA | ACK, self.channel, psn)
        assert reply.body == (syndrome << 24 | msn).to_bytes(4, "big")


@cocotb.test()
async def t_d1_an_initiator_on_the_wire(dut):
    """T-D1, T-D4, T-D9, T-D12: connections of a peer that knows the wire alone to the card's
    target: what is refused, what comes twice, messages, a bad key, the end, and what comes late."""
    p = await Initiator.up(dut, 1)
    (target,) = p.p.targets
    p.begin(target)
    await target.post(*range(4), size=2048)
    assert (await p.connect(1, 0x1000, key=KEY ^ 1 << 63))[1:5] == (1, 0, 0, 0)
    assert (await p.connect(2, 0x1000, version=2))[1:5] == (3, 0, 0, 0)
    assert (await p.connect(3, 0x1000, mtu=4))[1:5] == (3, 0, 0, 0)
    accepted = await p.connect(4, 0xFFFFFE, times=2)
    number, depth, keep = accepted[4], accepted[3], accepted[6]
    assert accepted[1] == 0 and number and 0 < depth <= 4 and 10 <= keep <= 20
    assert (await query_dct(target.qp)).connects == 1

    data = random.Random(5).randbytes(1500)
    p.say(DATA | SEND_FIRST, number, 0xFFFFFE, data[:1024])
    p.say(DATA | SEND_LAST, number, 0xFFFFFF, data[1024:], ack_request=1)
    await p.acknowledged(0xFFFFFF, 1)
    (wc,) = await target.done()
    assert (wc.status, wc.byte_len, wc.qp_num) == (0, 1500, target.qp.qp_num)
    assert bytes(target.mr.read(1500, 0)) == data
    p.say(DATA | SEND_LAST, number, 0xFFFFFF, data[1024:], ack_request=1)  # it comes twice
    await p.acknowledged(0xFFFFFF, 1)
    assert await target.cq.poll(1) == []

    reth = struct.pack(">QII", target.mr.iova + 4096, target.mr.rkey, 256)
    p.say(DATA | WRITE_ONLY, number, 0, reth + data[:256], ack_request=1)
    await p.acknowledged(0, 2)
    p.say(DATA | READ, number, 1, reth, ack_request=1)
    reply = await p.hear()
    assert (reply.opcode, reply.dest, reply.psn) == (DATA | READ_ONLY, p.channel, 1)
    assert reply.body[4:] == data[:256]

    wrong = struct.pack(">QII", target.mr.iova, target.mr.rkey ^ 0x100, 256)
    for _ in range(2):  # a connection that has failed says so again
        p.say(DATA | WRITE_ONLY, number, 2, wrong + data[:256], ack_request=1)
        await p.acknowledged(2, 3, syndrome=REFUSED)
    assert await p.end(number, 5, 2) == 1  # of another attempt
    assert await p.end(number, 4, 2) == 0
    assert await p.end(number, 4, 2) == 1
    p.say(DATA | SEND_ONLY, number, 2, data[:4], ack_request=1)
    assert await p.silent()
    again = await p.connect(6, 0x2000)
    assert again[1] == 0 and again[4] != number
    p.say(DATA | SEND_ONLY, again[4], 0x2000, data[:8], ack_request=1)
    await p.acknowledged(0x2000, 1)
    (wc,) = await target.done()
    assert (wc.status, wc.byte_len) == (WcStatus.SUCCESS, 8)
    assert await p.end(again[4], 6, 0x2001) == 0
    await p.p.well()
