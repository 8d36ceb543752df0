"""Plays one side of a trace on one card, inside a simulation.

The other side's packets go in byte for byte, each after everything that the card's machine had
sent before it in the capture has been sent by the card. Work requests are posted when their first
packet is due. Hints give the card the recorded QPN, keys and addresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hdl.abi.enums import Access, Mtu, QpType, SendFlags, WcStatus, WrOpcode
from hdl.config import NicConfig
from sim.driver.errors import DeviceError, RdmaError
from sim.packets import dissect
from sim.replay.compare import Difference, Report, ack_like, acks_agree, differences, is_ack
from sim.replay.trace import PSN_MASK, Message, Packet, Trace, Unsuitable
from sim.system import Node
from sim.testbench import Testbench
from sim.verbs import (
    CQ,
    MR,
    QP,
    SGE,
    AHAttr,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)

__all__ = ["play"]

#: Simulated time the card has for each packet, ns.
PATIENCE_NS = 200_000
#: Simulated time for the last completions, ns.
COMPLETION_NS = 300_000
#: Simulated time without a packet after the last one, to see that nothing else comes.
QUIET_NS = 20_000
PAGE = 4096
#: READs each side may have outstanding; recorded machines have 1 to 16.
READS = 16


class _Player:
    """State of one replay. ``side`` is the machine whose place the card takes."""

    def __init__(self, testbench: Testbench, trace: Trace, side: int):
        self.testbench, self.trace, self.number = testbench, trace, side
        self.side, self.other = trace.sides[side], trace.sides[1 - side]
        self.report = Report(trace.path.name, "AB"[side])
        self.report.packets = sum(p.side == side for p in trace.packets)
        self.wire = testbench.wires[0]
        self.node = Node(testbench, 0, address=_address(self.side.gid), mac=self.side.mac)
        self.qp: QP
        self.cq: CQ
        self.local: MR
        self.regions: dict[int, MR] = {}
        self.places: dict[int, int] = {}  # id(message) -> offset in the local region
        self.acked = -1  # PSN up to which the card has acknowledged, in order of arrival
        self.waiting: list[Packet] = []  # recorded ACKs that no ACK of the card covers yet
        self.early: list[bytes] = []  # frames of the card that are not due yet

    async def set_up(self, config: NicConfig) -> None:
        """Driver up, QP connected, memory as it was before the first packet."""
        await self.node.start()
        self.node.host.set(mmio_latency_ns=0)
        hints = self.node.firmware.hints
        ctx = self.node.context
        pd = await ctx.alloc_pd()
        wanted = len(self.side.messages) + sum(m.takes_receive for m in self.other.messages)
        self.cq = await CQ.create(ctx, min(config.queue_size, max(16, wanted + 1)))
        access = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
        for rkey, (low, high) in self.other.regions().items():
            try:
                hints.mr_key(rkey)
            except ValueError as error:
                raise Unsuitable(f"{self.trace.path.name}: {error}") from None
            mr = await MR.create(pd, high - low, access, offset=low % PAGE, virt_addr=low)
            self.regions[rkey] = mr
        self._remote_contents()

        size, takes = 1, [m for m in self.other.messages if m.takes_receive]
        for message in [*self.side.messages, *takes]:
            self.places[id(message)] = size
            size += message.length + 5  # odd distances: no packet finds its data aligned
        self.local = await MR.create(pd, size, Access.LOCAL_WRITE, offset=3)
        for message in self.side.messages:
            if message.opcode != WrOpcode.RDMA_READ:
                self.local.write(bytes(message.data), self.places[id(message)])
        hints.qpn(self.side.qpn)
        responder = self.number
        hints.start(qp_rx={"msn": self.trace.first_msn(responder)})
        cap = QPCap(
            max_send_wr=min(config.queue_size, max(1, len(self.side.messages))),
            max_recv_wr=min(config.queue_size, max(1, len(takes))),
            max_send_sge=1,
            max_recv_sge=1,
        )
        self.qp = await QP.create(pd, QPInitAttr(QpType.RC, self.cq, self.cq, cap, 1))
        first = [m[0].first_psn if m else 0 for m in (self.side.messages, self.other.messages)]
        network = next(p for p in self.trace.packets if p.side == self.number).parts.fields
        route = GlobalRoute(dgid=self.other.gid, traffic_class=network["traffic_class"])
        await self.qp.to_rts(
            QPAttr(
                path_mtu=next(mtu for mtu in Mtu if mtu.octets == self.trace.mtu),
                dest_qp_num=self.other.qpn,
                sq_psn=first[0],
                rq_psn=first[1],
                max_rd_atomic=READS,
                max_dest_rd_atomic=READS,
                qp_access_flags=access,
                ah_attr=AHAttr(gr=route, roce_dmac=self.other.mac),
            )
        )
        self.acked = first[1] - 1 & PSN_MASK
        for number, message in enumerate(takes):
            sge = SGE(self.local.iova + self.places[id(message)], message.length, self.local.lkey)
            await self.qp.post_recv(RecvWR(1000 + number, [sge] if message.length else []))
        self.node.stop_firmware()

    def _remote_contents(self) -> None:
        """What the other side will READ, unless it writes it itself first."""
        written: dict[int, np.ndarray[Any, Any]] = {
            rkey: np.zeros(mr.length, bool) for rkey, mr in self.regions.items()
        }
        for message in self.other.messages:
            if not message.rkey or not message.length:
                continue
            mr = self.regions[message.rkey]
            at = message.va - mr.iova
            seen = written[message.rkey][at : at + message.length]
            if message.opcode == WrOpcode.RDMA_READ:
                data = mr.read(message.length, at)
                fresh = np.frombuffer(bytes(message.data), np.uint8)
                data[~seen] = fresh[~seen]
                mr.write(data, at)
            seen[:] = True  # later READs see what was read or written before

    async def run(self) -> None:
        """Walk the capture."""
        posted = 0
        for packet in self.trace.packets:
            if packet.side != self.number:
                await self._settle()
                self.wire.inject(packet.frame)
                self.report.fed += 1
                continue
            messages = self.side.messages
            if posted < len(messages) and messages[posted].packets[0] is packet:
                await self.qp.post_send(self._request(messages[posted], posted))
                posted += 1
            if is_ack(packet.op):
                self.waiting.append(packet)
            else:
                await self._expect(packet)
        await self._settle()
        if not self.report.error:
            await self._quiet()
            await self._completions()
        self._memory()

    def _request(self, message: Message, number: int) -> SendWR:
        sge = SGE(self.local.iova + self.places[id(message)], message.length, self.local.lkey)
        flags = SendFlags.SIGNALED
        if message.solicited:
            flags |= SendFlags.SOLICITED
        request = SendWR(number, message.opcode, [sge] if message.length else [], flags)
        request.imm_data = int.from_bytes(message.imm, "big")
        if message.opcode not in (WrOpcode.SEND, WrOpcode.SEND_WITH_IMM):
            request.set_wr_rdma(message.rkey, message.va)
        return request

    async def _frame(self, why: str) -> bytes | None:
        """The card's next frame; None, with a difference, when none comes."""
        try:
            frame, _ = await self.wire.receive(PATIENCE_NS)
        except TimeoutError:
            self.report.error = f"no packet from the card: {why}"
            return None
        return frame

    async def _expect(self, packet: Packet) -> None:
        """The next frame that is no ACK must be ``packet``."""
        while not self.report.error:
            frame = self.early.pop(0) if self.early else await self._frame(f"packet {packet.index}")
            if frame is None:
                return
            if self._take_ack(frame):
                continue
            found = differences(packet, frame, self.report)
            self.report.differences += found
            self.report.agreed += not found
            return

    def _take_ack(self, frame: bytes) -> bool:
        """Whether the frame is an ACK; it then covers recorded ones."""
        fields = dissect(frame).fields
        if not is_ack(fields["opcode"] & 0x1F) or fields["syndrome"] >> 5:
            return False
        psn = fields["psn"]
        self.acked = psn
        index = self.waiting[0].index if self.waiting else len(self.trace.packets)
        found = acks_agree(self.trace, self.number, frame, index)
        while self.waiting and psn - self.waiting[0].psn & PSN_MASK < 1 << 23:
            recorded = self.waiting.pop(0)
            if recorded.psn == psn:
                found += differences(recorded, frame, self.report)
            else:
                self.report.note("ack coalescing")
                found += differences(ack_like(recorded, frame), frame, self.report)
            self.report.agreed += not found
        self.report.differences += found
        return True

    async def _settle(self) -> None:
        """Wait until every recorded ACK so far has been covered."""
        while self.waiting and not self.report.error:
            newest = self.waiting[-1].psn
            if self.acked - newest & PSN_MASK < 1 << 23:
                for _ in self.waiting:
                    self.report.note("ack coalescing")
                self.report.agreed += len(self.waiting)
                self.waiting.clear()
                return
            frame = await self._frame(f"ACK for PSN {newest:#x} (packet {self.waiting[-1].index})")
            if frame is not None and not self._take_ack(frame):
                self.early.append(frame)

    async def _quiet(self) -> None:
        """Nothing but ACKs may come any more."""
        while True:
            try:
                frame = self.early.pop(0) if self.early else (await self.wire.receive(QUIET_NS))[0]
            except TimeoutError:
                return
            if not self._take_ack(frame):
                parts = dissect(frame)
                self.report.differences.append(
                    Difference(len(self.trace.packets), "extra packet", None, parts.fields)
                )

    async def _completions(self) -> None:
        wanted = len(self.side.messages) + sum(m.takes_receive for m in self.other.messages)
        try:
            found = await self.cq.wait(wanted, timeout_ns=COMPLETION_NS) if wanted else []
        except (RdmaError, DeviceError) as error:
            self.report.error = self.report.error or f"completions: {error}"
            return
        for wc in found:
            if wc.status != WcStatus.SUCCESS:
                self._differs(f"completion of {wc.wr_id}", "SUCCESS", wc.status)

    def _differs(self, what: str, recorded: object, sent: object) -> None:
        self.report.differences.append(Difference(len(self.trace.packets), what, recorded, sent))

    def _memory(self) -> None:
        """Final memory: what was received, read and written, byte for byte."""
        for message in self.side.messages:
            if message.opcode == WrOpcode.RDMA_READ:
                self._same(message, "data read", self.local, self.places[id(message)])
        for message in self.other.messages:
            if message.opcode in (WrOpcode.SEND, WrOpcode.SEND_WITH_IMM):
                self._same(message, "data received", self.local, self.places[id(message)])
        wanted = {rkey: mr.read(mr.length) for rkey, mr in self.regions.items()}
        for message in self.other.messages:
            write = message.opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM)
            if write and message.length:
                at = message.va - self.regions[message.rkey].iova
                data = np.frombuffer(bytes(message.data), np.uint8)
                wanted[message.rkey][at : at + message.length] = data
        for rkey, mr in self.regions.items():
            different = np.flatnonzero(mr.read(mr.length) != wanted[rkey])
            if different.size:
                at = int(different[0])
                self._differs(
                    f"memory under rkey {rkey:#x} at byte {at}", wanted[rkey][at], mr.read(1, at)[0]
                )

    def _same(self, message: Message, what: str, mr: MR, offset: int) -> None:
        data = mr.read(message.length, offset)
        different = np.flatnonzero(data != np.frombuffer(bytes(message.data), np.uint8))
        if different.size:
            at = int(different[0])
            self._differs(
                f"{what}, message with PSN {message.first_psn:#x}, byte {at}",
                message.data[at],
                data[at],
            )


def _address(gid: bytes) -> str:
    """The IP address of a GID."""
    if gid[:12] == bytes(10) + b"\xff\xff":
        return ".".join(str(byte) for byte in gid[12:])
    return ":".join(gid[i : i + 2].hex() for i in range(0, 16, 2))


async def play(testbench: Testbench, trace: Trace, side: int) -> Report:
    """Play ``side`` (0: the machine that sends first) of ``trace`` on a card that has just been
    reset.

    Raises Unsuitable when the card cannot have the recorded numbers.
    """
    player = _Player(testbench, trace, side)
    await player.set_up(testbench.config)
    await player.run()
    return player.report
