"""Reference model of the services without answers: what their responder does with a request.

Plain Python, packet by packet, from IBTA vol 1, 9.8.2 (UC), and from the behaviour of Linux.
``World`` of model_receive.py holds the rows; here nobody is told of what goes wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model_receive import Element, Result, Row, World

__all__ = ["LEFT_OPEN", "Datagram", "Unanswered"]

SENDS, WRITES = range(0x00, 0x06), range(0x06, 0x0C)
FIRST, MIDDLE, LAST, ONLY = {0x00, 0x06}, {0x01, 0x07}, {0x02, 0x03, 0x08, 0x09}, {4, 5, 0xA, 0xB}
WITH_IMM = {0x03, 0x05, 0x09, 0x0B}
NONE, DISCARD, LINE, KEY = range(4)
EMPTY, WQE_ERROR, QUEUE_ERROR = 1, 2, 3
LOC_LEN_ERR, IN_SEND, IN_WRITE = 1, 1, 2
FINISH_AND_FLUSH = 3
PSN = 1 << 24
#: Fields of a row that mean nothing to a service without answers.
LEFT_OPEN = ("msn", "ack_psn", "ack_msn", "nak_sent", "syndrome", "offset")


class Unanswered:
    """A request of UC in ``world``: it is executed, or dropped and counted."""

    more_flags = 0

    def __init__(self, world: World, qp: int, header: Row, out: Result):
        self.world, self.qp, self.h, self.out = world, qp, header, out
        self.cfg, self.rx, self.op = world.cfg[qp], world.rx[qp], header["opcode"] & 31
        self.expected = 0  # PSN

    def request(self) -> None:
        """What becomes of it."""
        before = dict(self.rx)
        skips = self._skips()
        known = self._in_order()
        self.expected, self.rx["psn"] = self.rx["psn"], (self.h["psn"] + 1) % PSN
        if not known:
            self._drop("out_of_sequence")
        elif self._invalid():
            self._drop("resp_remote_invalid_request")
        elif self.op in SENDS:
            self._send(skips)
        elif not self._write(skips, before):
            self.rx["psn"] = self.expected

    def _skips(self) -> bool:
        """Packets are missing before it."""
        return self._begins and self.h["psn"] != self.rx["psn"]

    @property
    def _begins(self) -> bool:
        return self.op in FIRST | ONLY

    def _in_order(self) -> bool:
        """A beginning always is; what it breaks off leaves its WQE to the next message."""
        if self._begins:
            return True
        kinds: dict[int, Any] = {0: (), IN_SEND: SENDS, IN_WRITE: WRITES}
        return self.h["psn"] == self.rx["psn"] and self.op in kinds[self.rx["message"]]

    def _invalid(self) -> bool:
        mtu, length = 128 << self.cfg["path_mtu"], self.h["length"]
        if self.op in FIRST | MIDDLE:
            bad = length != mtu
        else:
            bad = length > mtu or (self.op in LAST and not length)
        if self.op in WRITES:
            total = self.h["dma_length"] if self._begins else self.rx["dma_length"]
            placed = length if self._begins else self.rx["offset"] + length
            bad |= not self.cfg["remote_write"] or placed > total or total > 1 << 31
            bad |= (placed == total) != (self.op in LAST | ONLY)
        return bad

    def _break_off(self) -> None:
        self.rx["held"] |= int(self.rx["message"] == IN_SEND)
        self.rx["message"] = 0

    def _drop(self, cause: str) -> None:
        self.world.counters[cause] += 1
        self._break_off()
        length = self.h["length"]
        self.out.jobs.append({"kind": DISCARD if length else NONE, "length": length})
        self.out.effects.append({})

    def _take(self) -> Element | None:
        """The receive WQE; None: the packet has been dropped, or has stopped its QP."""
        world, rx = self.world, self.rx
        element = world._take(self.qp, self.out)
        if element.status == EMPTY:
            self._drop("out_of_buffer")
            return None
        if element.status == QUEUE_ERROR:
            self._stop()
            return None
        rx["held"] = 1
        if element.status == WQE_ERROR:
            self._stop(element, element.error)
        else:
            return element
        return None

    def _stop(self, element: Element | None = None, status: int = 0, *, discard: int = 0) -> None:
        """The receive queue is not as it should be: its owner's fault."""
        effect: Row = {"discard": discard}
        if not discard:
            self._drop("resp_remote_operational_errors")
            self.out.effects.pop()
        else:
            self.world.counters["resp_remote_operational_errors"] += 1
            self.rx["psn"] = self.expected
        if element:
            effect["complete"] = self.world._receive_cqe(
                self.qp, element, status=status, solicited=1
            )
            self.world.counters["resp_local_length_error"] += status == LOC_LEN_ERR
            self.rx["held"] = 0
        self.rx["error"] = 1
        self.out.effects.append(effect)
        self.out.repoke = FINISH_AND_FLUSH

    def _job(self, **fields: Any) -> Row:
        """Where the payload goes."""
        if not self.h["length"]:
            return {"kind": NONE, "length": 0}
        pd = "recv_pd" if fields["kind"] == LINE else "pd"
        whose = {"pd": self.cfg[pd], "function": self.cfg["function"]}
        return {"length": self.h["length"]} | whose | fields

    def _source(self) -> Row:
        """Who has sent it."""
        return {"src_qp": self.cfg["dest_qpn"], "pkey_index": 0, "sl": 0}

    def _accept(self, skips: bool, element: Element | None) -> None:
        rx, h, world = self.rx, self.h, self.world
        ends = self.op in LAST | ONLY
        total = h["length"] if self._begins else rx["offset"] + h["length"]
        effect: Row = {}
        if ends and element:
            imm = self.op in WITH_IMM
            fields: Row = {"status": 0, "solicited": h["solicited"], "byte_len": total}
            fields |= {"opcode": 129 if self.op in WRITES else 128, "flags": 2 if imm else 0}
            fields |= self._source() | ({"imm": h["imm"]} if imm else {})
            fields["flags"] |= self.more_flags
            effect["complete"] = world._receive_cqe(self.qp, element, **fields)
            rx["held"] = 0
        self.out.effects.append(effect)
        rx["offset"] = 0 if ends else total
        rx["message"] = 0 if ends else IN_SEND if self.op in SENDS else IN_WRITE
        if rx["message"] == IN_SEND:
            rx["held"] = 0
        if self._begins:
            world.counters["rx_send_requests" if self.op in SENDS else "rx_write_requests"] += 1
            world.counters["out_of_sequence"] += skips

    def _send(self, skips: bool) -> None:
        element = self._take()
        if element is None:
            return
        offset = 0 if self._begins else self.rx["offset"]
        if offset + self.h["length"] > element.length:
            self._too_long(element)
            return
        where = {"kind": LINE, "line": element.line, "num_sge": element.num_sge}
        job = self._job(**where, offset=offset)
        status = self.world.check(job, element)
        if status:
            self.out.jobs.append(job)
            self._stop(element, status, discard=1)
            return
        self.out.jobs.append(job)
        self._accept(skips, element)

    def _too_long(self, element: Element) -> None:
        self._stop(element, LOC_LEN_ERR)

    def _write(self, skips: bool, before: Row) -> bool:
        """Whether its key allows it."""
        world, rx, element = self.world, self.rx, None
        if self.op in WITH_IMM:
            if self._begins:
                self._break_off()
            element = self._take()
            if element is None:
                return True
        source, offset = (self.h, 0) if self._begins else (rx, rx["offset"])
        where = {"kind": KEY, "va": source["va"] + offset, "key": source["rkey"]}
        job = self._job(**where, offset=source["dma_length"] - offset)
        self.out.jobs.append(job)
        if world.check(job, world._fetched):
            taken = element is not None or before["held"] or before["message"] == IN_SEND
            rx.update(before, message=0, held=int(taken), head=rx["head"])
            world.counters["resp_remote_access_errors"] += 1
            self.out.effects.append({"discard": 1})
            self.out.repoke = FINISH_AND_FLUSH
            return False
        if self._begins:
            self._break_off()
            rx.update({"va": self.h["va"], "rkey": self.h["rkey"]})
            rx["dma_length"] = self.h["dma_length"]
        self._accept(skips, element)
        return True


class Datagram(Unanswered):
    """A datagram: a message in one packet, from anybody, whose PSN means nothing. ``length`` has
    the 40 bytes of the GRH area in it."""

    more_flags = 1  # there is a GRH

    def _skips(self) -> bool:
        return False

    def _invalid(self) -> bool:
        return False

    def _source(self) -> Row:
        h = self.h
        return {"src_qp": h["src_qp"], "pkey_index": h["pkey_index"], "sl": h["priority"]}

    def _too_long(self, element: Element) -> None:
        """Its sender must not break the QP, nor use up a WQE."""
        self.world.counters["resp_local_length_error"] += 1
        self._drop("resp_remote_operational_errors")
