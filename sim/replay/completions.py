"""What the completion queues say, against what the capture shows to have ended, and how."""

from __future__ import annotations

from hdl.abi.enums import WcFlags, WcOpcode, WcStatus
from hdl.abi.operations import WORK_REQUESTS
from sim.guest.driver.errors import DriverTimeout
from sim.guest.verbs import CQ, WC
from sim.replay.compare import Difference, Report
from sim.replay.messages import Message

__all__ = ["COMPLETION_NS", "RECEIVE", "Completions"]

#: Simulated time for the last completions, ns.
COMPLETION_NS = 300_000
#: wr_id of receives begin here.
RECEIVE = 1 << 32


class Completions:
    """Checks each completion as it comes; ``count``: how many have been checked."""

    def __init__(self, cqs: list[CQ], report: Report):
        self._cqs, self._report = cqs, report
        self._wanted: dict[tuple[int, int], tuple[Message, WcStatus]] = {}
        self.count = 0

    def sent(self, qpn: int, wr_id: int, message: Message, broken: bool) -> None:
        """A send request was posted; ``broken``: its QP is in error when the capture has ended."""
        if message.acknowledged:
            self._wanted[qpn, wr_id] = message, WcStatus.SUCCESS
        elif message.failure is not None:
            self._wanted[qpn, wr_id] = message, message.failure
        elif broken:
            self._wanted[qpn, wr_id] = message, WcStatus.WR_FLUSH_ERR

    def received(self, qpn: int, wr_id: int, message: Message, broken: bool) -> None:
        """A receive request was posted."""
        if message.received:
            self._wanted[qpn, wr_id] = message, WcStatus.SUCCESS
        elif message.refused and not message.writes:
            self._wanted[qpn, wr_id] = message, WcStatus.LOC_LEN_ERR
        elif broken:
            self._wanted[qpn, wr_id] = message, WcStatus.WR_FLUSH_ERR

    async def look(self) -> None:
        """Take what is there."""
        for cq in self._cqs:
            while found := await cq.poll(cq.cqe):
                for wc in found:
                    self._check(wc)

    async def wait(self, more_ns: int = 0) -> None:
        """Take the rest, which may take ``more_ns`` longer than usual."""
        for cq in self._cqs:
            await self.look()
            while self._wanted:
                try:
                    self._check(*await cq.wait(1, timeout_ns=COMPLETION_NS + more_ns))
                except DriverTimeout:
                    break
        for (qpn, wr_id), (message, status) in self._wanted.items():
            what = f"completion {wr_id:#x} of QP {qpn:#x}"
            self._differs(message.begins, what, status.name, None)

    def _check(self, wc: WC) -> None:
        message, status = self._wanted.pop((wc.qp_num, wc.wr_id), (None, None))
        what = f"completion {wc.wr_id:#x} of QP {wc.qp_num:#x}"
        if message is None or status is None:
            self._differs(0, what, None, wc.status.name)
            return
        self.count += 1
        if wc.status != status:
            self._differs(message.begins, what, status.name, wc.status.name)
        if wc.status != status or status != WcStatus.SUCCESS:
            return  # an error says nothing more
        wanted: dict[str, int] = {"opcode": WORK_REQUESTS[message.opcode].completion}
        if wc.wr_id >= RECEIVE:
            wanted = _receive(message)
        elif message.read:
            wanted["byte_len"] = message.length
        for name, value in wanted.items():
            if getattr(wc, name) != value:
                self._differs(message.begins, f"{name} of {what}", value, getattr(wc, name))

    def _differs(self, packet: int, what: str, recorded: object, sent: object) -> None:
        self._report.differences.append(Difference(packet, what, recorded, sent))


def _receive(message: Message) -> dict[str, int]:
    """What the completion of a receive says."""
    flags = WcFlags(0)
    wanted: dict[str, int] = {"opcode": WcOpcode.RECV}
    wanted["byte_len"] = len(message.prefix) + message.length
    if message.writes:
        wanted["opcode"] = WcOpcode.RECV_RDMA_WITH_IMM
    if WORK_REQUESTS[message.opcode].immediate:
        flags |= WcFlags.WITH_IMM
        wanted["imm_data"] = int.from_bytes(message.imm, "big")
    if message.invalidates is not None:
        flags |= WcFlags.WITH_INV
        wanted["invalidated_rkey"] = message.invalidates
    if message.route is not None:
        flags |= WcFlags.GRH
        wanted["src_qp"] = message.route.parts.fields["src_qp"]
    return wanted | {"wc_flags": flags}
