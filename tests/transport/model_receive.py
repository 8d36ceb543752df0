"""Reference model of the receive side: what RC responder and requester do with each packet.

Plain Python, packet by packet, from IBTA vol 1, chapter 9, and from the observed behaviour of
Linux. Rows are dictionaries with the names of the hardware's tables; all else is independent of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from .model_unanswered import Datagram, Unanswered

Row = dict[str, Any]

PSN = 1 << 24
SENDS, WRITES, READ = {*range(0x00, 0x06), 0x16, 0x17}, range(0x06, 0x0C), 0x0C
DATA, ACKNOWLEDGE = {*range(0x0D, 0x11), 0x12}, 0x11
ATOMICS, ATOMIC_ACK = {0x13: 1, 0x14: 0}, 0x12  # whether it compares
RESPONSES = range(0x0D, 0x13)
REQUESTS = {*range(0x00, 0x0D), 0x13, 0x14, 0x16, 0x17}
WITH_IMM, WITH_INV = {0x03, 0x05, 0x09, 0x0B}, {0x16, 0x17}
#: Operations by the type of the QP.
KNOWN = {1: {4, 5}, 2: {*REQUESTS, *RESPONSES}, 3: {*range(0x00, 0x0C)}, 4: {4, 5}}
FIRST, MIDDLE = {0x00, 0x06}, {0x01, 0x07}
LAST, ONLY = {0x02, 0x03, 0x08, 0x09, 0x16}, {0x04, 0x05, 0x0A, 0x0B, 0x17}
ATOMIC_WRS = {5, 6}  # work requests,
FETCHES = {4, 11, *ATOMIC_WRS}  # and those that data answer; READs: 11 invalidates a key
LOCAL = {7, 0x20}  # those without a packet
COMPLETIONS = {
    0: 1,
    1: 1,
    2: 0,
    3: 0,
    4: 2,
    5: 3,
    6: 4,
    7: 6,
    9: 0,
    11: 2,
    0x20: 10,
}  # of work requests
RESET, INIT, RTR, RTS, SQD, SQE, ERR = range(7)
SINK, LONG_SINK = 1, 2  # stores of SGEs
NONE, DISCARD, LINE, KEY, CHECK_READ, ATOMIC = range(6)
FETCH_OK, EMPTY, WQE_ERROR, QUEUE_ERROR = range(4)
SUCCESS, LOC_LEN_ERR, LOC_QP_OP_ERR, LOC_PROT_ERR, FLUSHED, BAD_RESP = 0, 1, 2, 4, 5, 7
REM_INV_REQ, REM_ACCESS, REM_OP, RETRY_EXCEEDED, RNR_EXCEEDED = 9, 10, 11, 12, 13
FINISH, FLUSH = 1, 2
FAIL, TIMEOUT = 4, 8
NEXT, AGAIN = range(2)
IN_SEND = 1
GSI, RC, UC, UD = 1, 2, 3, 4  # types of QPs
SERVICES = {RC: 0, UC: 1, UD: 3, GSI: 3}
#: WQEs that nothing answers which a poke finishes, at most.
SENT_BY_POKE = 16


def sub(a: int, b: int) -> int:
    """PSN distance from b to a, signed."""
    distance = (a - b) % PSN
    return distance - PSN if distance >= PSN // 2 else distance


def mtu_of(cfg: Row) -> int:
    return 128 << cfg["path_mtu"]


def packets_of(length: int, mtu: int) -> int:
    return max(1, -(-length // mtu))


@dataclass
class Element:
    """A WQE in a ring. ``status``: of the fetch; ``check``: of the scatter's look at its keys."""

    length: int = 0
    wr_id: int = 0
    head: int = 0
    line: int = 0
    num_sge: int = 1
    status: int = FETCH_OK
    error: int = 0
    check: int = SUCCESS


@dataclass
class Result:
    """What a packet or poke brings about."""

    jobs: list[Row] = field(default_factory=list)
    effects: list[Row] = field(default_factory=list)
    # What is fetched: the choice, the source, the held head.
    fetches: list[tuple[int, int, int]] = field(default_factory=list)
    pops: int = 0
    wakes: int = 0
    repoke: int = 0
    naks: list[int] = field(default_factory=list)  # QPs that go back
    timers: list[tuple[str, int, int]] = field(default_factory=list)  # kind, code, idle
    timeouts: list[tuple[int, int]] = field(default_factory=list)  # code, idle, with the pops
    atomics: list[Row] = field(default_factory=list)
    backs: list[int] = field(default_factory=list)  # sinks of READs that have ended


class World:
    """Rows of all QPs, rings, outstanding WQEs and keys; ``packet`` and ``poke`` move it on."""

    def __init__(self, *, qps: int, cqs: int, blank: dict[str, Row]):
        self.qps, self.cqs = qps, cqs
        self.cfg = {i: dict(blank["cfg"]) for i in range(qps)}
        self.rx = {i: dict(blank["rx"]) for i in range(qps)}
        self.ack = {i: dict(blank["ack"]) for i in range(qps)}
        self.reply = {i: dict(blank["reply"]) for i in range(qps)}
        # What has left the card: behind the newest packet, and behind the last that asks.
        self.sent = {i: {"psn": 0, "asked": 0, "waits": 0} for i in range(qps)}
        self.pool: dict[int, Row] = {}
        self.recv: dict[int, dict[int, Element]] = defaultdict(dict)  # of each receive source,
        self.next: dict[int, int] = defaultdict(int)  # and the position that it goes on at
        self.sinks: dict[int, Element] = {}  # by number
        self.outstanding: dict[int, list[Row]] = defaultdict(list)
        self.keys: dict[int, tuple[int, int, int]] = {}  # key -> va, length, access
        self.revocable: set[int] = set()  # keys that can be invalidated, again and again
        self.counters: Counter[str] = Counter()
        self._fetched = Element()
        self._behind: int | None = None  # PSN behind the packet in hand; None: a poke

    # What the hardware's neighbours answer.

    def fetch(self, asked: tuple[int, int, int], next_of: dict[int, int]) -> Element:
        """The element that is asked for; the next one is taken."""
        choice, number, head = asked
        ring = self.recv[number]
        if choice == AGAIN:
            return next(one for one in ring.values() if one.head == head)
        position = next_of[number]
        element = ring.get(position, Element(status=EMPTY))
        if element.status not in (EMPTY, QUEUE_ERROR):
            next_of[number] = (position + 1) % 65536
        return element

    def _take(self, qp: int, out: Result) -> Element:
        """The receive WQE that the QP holds, or else the next one of its source."""
        rx, number = self.rx[qp], self.cfg[qp]["source"]["number"]
        asked = (NEXT, number, 0)
        if rx["message"] == IN_SEND or rx["held"]:
            asked = (AGAIN, number, rx["head"])
        out.fetches.append(asked)
        element = self.fetch(asked, self.next)
        rx["head"] = element.head
        return element

    def check(self, job: Row, element: Element) -> int:
        """WC status of a scatter job; ``element`` is the one in its line."""
        if job["kind"] == LINE:
            too_long = job["offset"] + job["length"] > element.length
            return LOC_LEN_ERR if too_long else element.check
        if job["kind"] in (KEY, CHECK_READ, ATOMIC):
            va, length, access = self.keys.get(job["key"], (0, 0, 0))
            inside = va <= job["va"] and job["va"] + job["offset"] <= va + length
            wanted = {KEY: 2, CHECK_READ: 4, ATOMIC: 8}[job["kind"]]
            return SUCCESS if inside and access & wanted else REM_ACCESS
        return SUCCESS

    # Packets.

    def packet(self, h: Row) -> Result:
        """A received packet."""
        out, self._behind = Result(), (h["psn"] + 1) % PSN
        qp = (h["dest_qp"] & 0x3FFF) % self.qps
        cfg = self.cfg[qp]
        op, is_response = h["opcode"] & 31, h["opcode"] & 31 in RESPONSES
        datagram, addresses = cfg["type"] in (UD, GSI), (h["src_gid"], h["gid_index"])
        states = (RTS, SQD, SQE) if is_response else (RTR, RTS, SQD, SQE)
        keys = h["pkey"], cfg["pkey"]
        pkey_fits = keys[0] & 0x7FFF == keys[1] & 0x7FFF != 0 and (keys[0] | keys[1]) & 0x8000
        if cfg["type"] == GSI:
            pkey_fits = h["pkey_hit"]  # a member of all of its function's partitions
        if cfg["qpn"] != h["dest_qp"] or not h["dest_qp"] & 0x3FFF:
            cause = "unknown_qp"
        elif cfg["function"] != h["function"]:
            cause = "wrong_function"
        elif h["opcode"] >> 5 != SERVICES.get(cfg["type"]) or op not in KNOWN[cfg["type"]]:
            cause = "wrong_transport"
        elif cfg["state"] not in states or self.deaf(qp):
            cause = "qp_state"
        elif not (datagram or addresses == (cfg["av"]["dgid"], cfg["av"]["sgid_index"])):
            cause = "address_mismatch"
        elif not pkey_fits:
            cause = "bad_pkey"
        elif datagram and h["qkey"] != cfg["qkey"]:
            cause = "bad_qkey"
        elif is_response:
            self._response(qp, h, out)
            return out
        elif cfg["type"] != RC:
            (Datagram if datagram else Unanswered)(self, qp, h, out).request()
            return out
        else:
            self._request(qp, h, out)
            return out
        self.counters[cause] += 1
        self._drop(h, cfg, out)
        out.effects.append({})
        return out

    def _drop(self, h: Row, cfg: Row, out: Result) -> None:
        out.jobs.append({"kind": DISCARD if h["length"] else NONE, "length": h["length"]})

    def _completion(self, qp: int, **fields: Any) -> Row:
        cfg = self.cfg[qp]
        base = {"qp_num": cfg["qpn"], "ring": 1, "function": cfg["function"], "emit": 1}
        base |= dict.fromkeys(("vendor_error", "flags", "byte_len"), 0)
        return base | fields

    # Responder.

    def _request(self, qp: int, h: Row, out: Result) -> None:
        rx, cfg = self.rx[qp], self.cfg[qp]
        op = h["opcode"] & 31
        distance = sub(h["psn"], rx["psn"])
        if distance < 0:
            self.counters["duplicate_request"] += 1
            self._drop(h, cfg, out)
            if op == READ or op in ATOMICS:
                self._read_again(qp, h, out)
            else:
                out.effects.append({"ack": 1})
            return
        if distance > 0:
            self._drop(h, cfg, out)
            self._gap(qp, out)
            return
        if self._invalid(qp, h):
            self._drop(h, cfg, out)
            self._fail(qp, 0x61, out)
            return
        if op == READ or op in ATOMICS:
            self._read(qp, h, out)
        elif op in SENDS:
            self._send(qp, h, out)
        else:
            self._write(qp, h, out)

    def _gap(self, qp: int, out: Result) -> None:
        rx = self.rx[qp]
        self.counters["out_of_sequence"] += 1
        out.effects.append({} if rx["nak_sent"] else {"nak": 1})
        if not rx["nak_sent"]:
            rx.update(nak_sent=1, syndrome=0x60)

    def _fail(self, qp: int, syndrome: int, out: Result, **effect: Any) -> None:
        names = {0x61: "invalid_request", 0x62: "access_errors", 0x63: "operational_errors"}
        self.counters[f"resp_remote_{names[syndrome]}"] += 1
        self.rx[qp].update(error=1, syndrome=syndrome)
        out.effects.append({"nak": 1, **effect})
        out.repoke = FINISH | FLUSH

    def _refuse(self, qp: int, out: Result, **effect: Any) -> None:
        """The check of a request, or of a key to invalidate, is not good."""
        self.rx[qp]["message"] = 0
        self._fail(qp, 0x62, out, discard=1, **effect)

    def _invalid(self, qp: int, h: Row) -> bool:
        """Whether the packet is answered 61h."""
        rx, cfg, op, length = self.rx[qp], self.cfg[qp], h["opcode"] & 31, h["length"]
        mtu = mtu_of(cfg)
        if op not in {*SENDS, *WRITES, READ, *ATOMICS}:
            return True
        going_on = op in MIDDLE | LAST
        kind = {0: range(0), 1: SENDS, 2: WRITES}[rx["message"]]
        if going_on != bool(kind) or (going_on and op not in kind):
            return True
        if op in FIRST | MIDDLE and length != mtu:
            return True
        if op in LAST and not 1 <= length <= mtu:
            return True
        if (op in ONLY and length > mtu) or (op in {READ, *ATOMICS} and length):
            return True
        if op in WRITES:
            if not cfg["remote_write"]:
                return True
            total = rx["dma_length"] if going_on else h["dma_length"]
            placed = (rx["offset"] if going_on else 0) + length
            if (not going_on and total > 1 << 31) or placed > total:
                return True
            return (placed == total) != (op in LAST | ONLY)
        if op == READ or op in ATOMICS:
            if op == READ and (not cfg["remote_read"] or h["dma_length"] > 1 << 31):
                return True
            if op in ATOMICS and (not cfg["remote_atomic"] or h["va"] % 8):
                return True
            unanswered = (rx["read_tail"] - self.reply[qp]["answered"]) % 256
            return unanswered >= cfg["max_dest_rd_atomic"]
        return False

    def _numbered(self, qp: int) -> bool:
        """READs answered again and new ones have all numbers."""
        rx, reply = self.rx[qp], self.reply[qp]
        following = (rx["read_tail"] + 1) % 256
        asked = rx["replay_seq"] != reply["replay_seq"]
        return following == reply["read_head"] or (asked and following == rx["replay"])

    def _read(self, qp: int, h: Row, out: Result) -> None:
        """A READ or an atomic."""
        rx, cfg, op = self.rx[qp], self.cfg[qp], h["opcode"] & 31
        length = 8 if op in ATOMICS else h["dma_length"]
        if self._numbered(qp):
            self._drop(h, cfg, out)
            self._gap(qp, out)
            return
        job = {"kind": NONE, "length": 0}
        if length:
            job = {"kind": CHECK_READ, "length": 0, "va": h["va"], "key": h["rkey"]}
            job |= {"offset": length, "pd": cfg["pd"], "function": cfg["function"]}
        if op in ATOMICS:
            job |= {"kind": ATOMIC, "length": 8}
        out.jobs.append(job)
        slots = cfg["max_dest_rd_atomic"]
        resource = {name: h[name] for name in ("va", "rkey", "psn")}
        resource |= {"length": length, "msn": (rx["msn"] + 1) % PSN}
        # The domain is kept on cards with XRC alone.
        resource |= {"number": rx["read_tail"], "atomic": int(op in ATOMICS), "pd": 0}
        resource["single"] = int(packets_of(length, mtu_of(cfg)) == 1)
        # Written before the check has come; a free one until ``read_tail`` counts it.
        place = cfg["read_base"] + rx["read_tail"] % slots
        self.pool[place] = resource
        if op in ATOMICS:
            atomic = {"compares": ATOMICS[op], "resource": place}
            out.atomics.append(atomic | {name: h[name] for name in ("swap_add", "compare")})
        if self.check(job, self._fetched):
            self._refuse(qp, out)
            return
        rx["read_tail"] = (rx["read_tail"] + 1) % 256
        rx["read_wrapped"] |= rx["read_tail"] == slots
        rx["psn"] = (rx["psn"] + packets_of(length, mtu_of(cfg))) % PSN
        rx["msn"] = (rx["msn"] + 1) % PSN
        rx["nak_sent"] = 0
        self.counters["rx_read_requests"] += op == READ
        out.effects.append({"read": 1})

    def _read_again(self, qp: int, h: Row, out: Result) -> None:
        rx, cfg, reply = self.rx[qp], self.cfg[qp], self.reply[qp]
        held = cfg["max_dest_rd_atomic"] if rx["read_wrapped"] else rx["read_tail"]
        mtu, atomic = mtu_of(cfg), int(h["opcode"] & 31 in ATOMICS)
        length = 8 if atomic else h["dma_length"]
        for back in range(1, held + 1):
            number = (rx["read_tail"] - back) % 256
            saved = self.pool[cfg["read_base"] + number % cfg["max_dest_rd_atomic"]]
            skip = (h["psn"] - saved["psn"]) % PSN
            offset = skip * mtu
            inside = offset + length <= saved["length"]
            inside &= bool(length) or not saved["length"]
            inside &= saved["atomic"] == atomic
            if saved["rkey"] == h["rkey"] and h["va"] == saved["va"] + offset and inside:
                break
        else:
            self.counters["duplicate_read_lost"] += 1
            out.effects.append({})
            return
        ahead = (rx["read_tail"] - reply["read_head"]) % 256  # not answered yet
        asked = (rx["read_tail"] - rx["replay"]) % 256
        pending = rx["replay_seq"] != reply["replay_seq"]
        if back < ahead or (pending and (asked, -rx["replay_skip"]) >= (back, -skip)):
            out.effects.append({"read": 1})
            return
        rx.update(replay=number, replay_skip=skip, replay_seq=rx["replay_seq"] % 15 + 1)
        out.effects.append({"read": 1, "replay": 1})

    def _receive_wqe(self, qp: int, h: Row, out: Result) -> Element | None:
        """The receive WQE for the packet; without one the packet has been answered."""
        rx, cfg = self.rx[qp], self.cfg[qp]
        self._fetched = element = self._take(qp, out)
        if element.status == EMPTY:
            self._drop(h, cfg, out)
            self.counters["out_of_buffer"] += 1
            rx.update(nak_sent=1, syndrome=0x20 | cfg["min_rnr_timer"])
            out.effects.append({"nak": 1})
            return None
        if element.status == QUEUE_ERROR:
            self._drop(h, cfg, out)
            self._fail(qp, 0x63, out)
            return None
        if element.status == WQE_ERROR:
            self._drop(h, cfg, out)
            self._receive_failed(qp, element, element.error, out)
            return None
        return element

    def _receive_failed(
        self, qp: int, element: Element, status: int, out: Result, *, discard: int = 0
    ) -> None:
        done = self._receive_cqe(qp, element, status=status, solicited=1)
        if status == LOC_LEN_ERR:
            self.counters["resp_local_length_error"] += 1
        self._fail(qp, 0x63, out, complete=done, discard=discard)

    def _receive_cqe(self, qp: int, element: Element, **fields: Any) -> Row:
        rx, cfg = self.rx[qp], self.cfg[qp]
        rx["message"] = 0
        if fields["status"]:
            self.counters["resp_cqe_error"] += 1
        if fields["status"] == FLUSHED:
            self.counters["resp_cqe_flush_error"] += 1
        base = {"cq": cfg["recv_cq"], "wr_id": element.wr_id, "head": element.head}
        queue = 2 + self.cqs + 2 * cfg["source"]["number"]
        return self._completion(qp, queue=queue, **base, **fields)

    def _accept(self, qp: int, h: Row, out: Result, element: Element | None) -> None:
        """The packet's payload is on its way: PSN, MSN, reply, completion."""
        rx, cfg, op = self.rx[qp], self.cfg[qp], h["opcode"] & 31
        ends = op in LAST | ONLY
        effect: Row = {"ack": 1} if h["ack_request"] else {}
        total = rx["offset"] + h["length"] if op in MIDDLE | LAST else h["length"]
        if ends and element:
            fields: Row = {"status": 0, "solicited": h["solicited"], "byte_len": total}
            fields |= {"opcode": 129 if op in WRITES else 128, "src_qp": cfg["dest_qpn"]}
            fields |= {"pkey_index": 0, "sl": 0}
            fields["flags"] = 2 if op in WITH_IMM else 8 if op in WITH_INV else 0
            if op in WITH_IMM | WITH_INV:
                fields["imm"] = h["imm"]
            effect["complete"] = self._receive_cqe(qp, element, **fields)
        out.effects.append(effect)
        rx["ack_psn"], rx["psn"] = rx["psn"], (rx["psn"] + 1) % PSN
        rx["msn"] = rx["ack_msn"] = (rx["msn"] + ends) % PSN
        rx["nak_sent"] = 0
        rx["offset"] = 0 if ends else total
        rx["message"] = 0 if ends else 1 if op in SENDS else 2
        if op in FIRST | ONLY:
            name = "send" if op in SENDS else "write"
            self.counters[f"rx_{name}_requests"] += 1

    def _send(self, qp: int, h: Row, out: Result) -> None:
        rx, cfg = self.rx[qp], self.cfg[qp]
        element = self._receive_wqe(qp, h, out)
        if element is None:
            return
        offset = rx["offset"] if h["opcode"] & 31 in MIDDLE | LAST else 0
        if offset + h["length"] > element.length:
            self._drop(h, cfg, out)
            self._receive_failed(qp, element, LOC_LEN_ERR, out)
            return
        job = {"kind": NONE, "length": 0}
        if h["length"]:
            job = {"kind": LINE, "length": h["length"], "line": element.line, "offset": offset}
            job |= {"num_sge": element.num_sge, "pd": cfg["recv_pd"], "function": cfg["function"]}
        out.jobs.append(job)
        if status := self.check(job, element):
            self._receive_failed(qp, element, status, out, discard=1)
            return
        if h["opcode"] & 31 in WITH_INV and h["imm"] not in self.revocable:
            done = self._receive_cqe(qp, element, status=REM_INV_REQ, solicited=1)
            self._refuse(qp, out, complete=done)
            return
        self._accept(qp, h, out, element)

    def _write(self, qp: int, h: Row, out: Result) -> None:
        rx, cfg, op = self.rx[qp], self.cfg[qp], h["opcode"] & 31
        element = None
        if op in WITH_IMM:
            element = self._receive_wqe(qp, h, out)
            if element is None:
                return
        source = h if op in FIRST | ONLY else rx
        offset = 0 if op in FIRST | ONLY else rx["offset"]
        job = {"kind": NONE, "length": 0}
        if h["length"]:
            job = {"kind": KEY, "length": h["length"], "va": source["va"] + offset}
            job |= {"key": source["rkey"], "offset": source["dma_length"] - offset}
            job |= {"pd": cfg["pd"], "function": cfg["function"]}
        out.jobs.append(job)
        if self.check(job, self._fetched):
            done = {"complete": self._receive_cqe(qp, element, status=FLUSHED)} if element else {}
            self._refuse(qp, out, **done)
            return
        if op in FIRST | ONLY:
            rx.update(va=h["va"], rkey=h["rkey"], dma_length=h["dma_length"])
        self._accept(qp, h, out, element)

    # Completer.

    def _finish(self, qp: int, status: int, out: Result, *, job: Row | None) -> None:
        """The oldest WQE ends; ``job``: the packet's own, or an empty one."""
        cfg, ack, entry = self.cfg[qp], self.ack[qp], self.outstanding[qp].pop(0)
        idle = self._idle(qp)
        out.jobs.append(job or {"kind": NONE, "length": 0})
        fields: Row = {"status": status, "emit": 1 if entry["signaled"] or status else 0}
        if status:
            self.counters["req_cqe_error"] += 1
            self.counters["req_cqe_flush_error"] += status == FLUSHED
        else:
            fields["opcode"] = COMPLETIONS[entry["opcode"]]
            fields["byte_len"] = entry["length"]
        done = self._completion(
            qp,
            cq=cfg["send_cq"],
            wr_id=entry["wr_id"],
            head=entry["head"],
            queue=1 + self.cqs + 2 * qp,
            solicited=1 if status else 0,
            **fields,
        )
        out.effects.append({"complete": done})
        out.pops += 1
        if entry["opcode"] in FETCHES:
            out.backs.append(entry["sink"]["number"])
        out.timeouts.append((0 if ack["waiting"] else cfg["timeout"], idle))
        out.wakes = 1  # for all that the packet finishes
        ack["wake_generation"] = (ack["wake_generation"] + 1) % 256
        ack["reads"] = (ack["reads"] + (entry["opcode"] in FETCHES)) % 256
        ack["read_begun"] = ack["resent"] = ack["status"] = 0
        ack["position"] = (ack["position"] + 1) % 65536
        ack["start"] = (entry["last_psn"] + 1) % PSN
        self._forget(qp)
        if status:
            out.repoke |= FINISH if ack["error"] else FINISH | FLUSH
            ack["error"] = 1
        elif sub(entry["last_psn"], ack["psn"]) >= 0:
            ack["psn"] = (entry["last_psn"] + 1) % PSN

    def _response(self, qp: int, h: Row, out: Result) -> None:
        op, syndrome = h["opcode"] & 31, h["syndrome"]
        if op in DATA:
            kind = "data"
        elif op != ACKNOWLEDGE or h["length"]:
            kind = ""
        else:
            kind = {0: "ack", 1: "rnr", 3: "nak"}.get(syndrome >> 5, "")
            if kind == "nak" and syndrome > 0x63:
                kind = ""
        if kind:
            self._answer(qp, h, kind, out)
        else:
            self.counters["unexpected_response"] += 1
        if not out.jobs or (op in DATA and not any(job.get("own") for job in out.jobs)):
            self._drop(h, self.cfg[qp], out)
            out.effects.append({})

    def _answer(self, qp: int, h: Row, kind: str, out: Result) -> None:
        ack, psn = self.ack[qp], h["psn"]
        # Everything up to this PSN is acknowledged.
        upto = psn if kind == "ack" else (psn - 1) % PSN
        while True:
            entry = self.outstanding[qp][0] if self.outstanding[qp] else None
            if entry is None or sub(psn, ack["psn"]) < 0:
                stale = kind == "ack" and sub(psn, ack["psn"]) < 0
                self.counters["unexpected_response"] += not stale
                return
            if sub(psn, self.sent[qp]["psn"]) >= 0:
                self.counters["unexpected_response"] += 1  # a ghost
                return
            if entry["status"]:
                out.repoke |= FINISH
                self.counters["unexpected_response"] += kind == "data"
                return
            if entry["opcode"] in FETCHES or not entry["complete"]:
                break
            if sub(upto, entry["last_psn"]) < 0:
                break
            last = entry["last_psn"]
            self._finish(qp, SUCCESS, out, job=None)
            if kind == "ack" and last == psn:
                return
        is_read, inside = entry["opcode"] in FETCHES, sub(psn, entry["last_psn"]) <= 0
        if kind == "data":
            if not (is_read and entry["complete"]):
                self.counters["unexpected_response"] += 1
            elif not inside or psn != ack["psn"]:
                self._lost(qp, out)
            else:
                self._read_data(qp, h, entry, out)
        elif not inside:
            if is_read and entry["complete"]:
                self._lost(qp, out)
            else:
                self.counters["unexpected_response"] += 1
        elif kind == "ack":
            if is_read:
                self._lost(qp, out)
            else:
                ack["psn"] = (psn + 1) % PSN
                self._progress(qp, out)
        else:
            self._nak(qp, h, entry, out)

    def _lost(self, qp: int, out: Result) -> None:
        ack = self.ack[qp]
        if not (ack["recovering"] or ack["waiting"]):
            self.counters["implied_nak_seq_err"] += 1
            self._retry(qp, out)

    def _retry(self, qp: int, out: Result) -> None:
        """The QP goes back, if it may."""
        ack = self.ack[qp]
        if ack["retries"] == self.cfg[qp]["retry_count"]:
            self.counters["req_transport_retries_exceeded"] += 1
            self._give_up(qp, RETRY_EXCEEDED, out)
        else:
            ack.update(recovering=1, resent=1, retries=ack["retries"] + 1)
            out.naks.append(qp)
            self._rest(qp, out)

    def _give_up(self, qp: int, status: int, out: Result) -> None:
        if self.outstanding[qp][0]["complete"]:
            self._finish(qp, status, out, job=None)
        else:
            self.ack[qp].update(error=1, status=status)
            out.repoke = FINISH | FLUSH

    def _forget(self, qp: int) -> None:
        self.ack[qp].update(recovering=0, retries=0, rnr_retries=0)

    def _progress(self, qp: int, out: Result) -> None:
        self._forget(qp)
        self._time(qp, out)

    def _time(self, qp: int, out: Result) -> None:
        """The QP waits for an answer from now on, unless it waits for its peer."""
        if self.cfg[qp]["timeout"] and not self.ack[qp]["waiting"]:
            out.timers = [("ANSWER", self.cfg[qp]["timeout"], self._idle(qp))]

    def _idle(self, qp: int) -> int:
        """Whether nothing that has left is awaited behind the packet in hand, if there is one."""
        sent, behind = self.sent[qp], self._behind
        if behind is None:
            behind = self.ack[qp]["psn"]
        return int(not sent["waits"] or sub(sent["asked"], behind) <= 0)

    def _rest(self, qp: int, out: Result) -> None:
        """The QP waits for no answer before it has sent again."""
        if not self.ack[qp]["waiting"]:
            out.timers = [("OFF", 0, 0)]

    def _nak(self, qp: int, h: Row, entry: Row, out: Result) -> None:
        ack, syndrome = self.ack[qp], h["syndrome"]
        moves = entry["opcode"] not in FETCHES and ack["psn"] != h["psn"]
        if moves:
            ack["psn"] = h["psn"]
            self._progress(qp, out)
        if syndrome == 0x60:
            self.counters["packet_seq_err"] += 1
            if moves or not (ack["recovering"] or ack["waiting"]):
                self._retry(qp, out)
            return
        if syndrome >> 5 == 1:
            self.counters["rnr_nak"] += 1
            if ack["waiting"] and not moves:
                return
            if self.cfg[qp]["rnr_retry"] == ack["rnr_retries"] != 7:
                self.counters["req_rnr_retries_exceeded"] += 1
                self._give_up(qp, RNR_EXCEEDED, out)
                return
            ack.update(recovering=1, resent=1, waiting=1)
            ack["rnr_retries"] = min(7, ack["rnr_retries"] + 1)
            out.naks.append(qp)
            out.timers = [("PAUSE", syndrome & 31, 0)]
            return
        else:
            name = {1: "invalid_request", 2: "access_errors", 3: "operational_errors"}
            self.counters[f"req_remote_{name[syndrome & 31]}"] += 1
            status = {1: REM_INV_REQ, 2: REM_ACCESS, 3: REM_OP}[syndrome & 31]
        self._give_up(qp, status, out)

    def _read_data(self, qp: int, h: Row, entry: Row, out: Result) -> None:
        cfg, ack, op = self.cfg[qp], self.ack[qp], h["opcode"] & 31
        mtu = mtu_of(cfg)
        offset = (h["psn"] - entry["first_psn"]) % PSN * mtu
        final = h["psn"] == entry["last_psn"]
        expected = {(0, 0): 0x0E, (0, 1): 0x0F, (1, 0): 0x0D, (1, 1): 0x10}
        if entry["opcode"] in ATOMIC_WRS:
            expected = {(1, 1): ATOMIC_ACK}
        length = entry["length"] - offset if final else mtu
        drop = {"kind": DISCARD if h["length"] else NONE, "length": h["length"], "own": 1}
        begins = {not ack["read_begun"], ack["resent"] or not ack["read_begun"]}
        if op not in {expected.get((first, final)) for first in begins} or h["length"] != length:
            self.counters["bad_response"] += 1
            self._finish(qp, BAD_RESP, out, job=drop)
            return
        status, job = SUCCESS, drop
        if length:
            sink = entry["sink"]
            self._fetched = element = self.sinks[sink["number"]]
            job = {"kind": LINE, "length": length, "line": sink["number"], "offset": offset}
            job |= {"num_sge": entry["num_sge"], "pd": cfg["pd"], "own": 1}
            job |= {"function": cfg["function"], "store": LONG_SINK if sink["long"] else SINK}
            status = self.check(job, element)
        revokes = final and not status and entry["opcode"] == 11
        if revokes and entry["key"] not in self.revocable:
            status, job = LOC_PROT_ERR, job | {"refused": 1}
        refused = status and (job["kind"] == LINE or "refused" in job)
        if final or (status and not refused):
            self._finish(qp, status, out, job=job)
            if refused:
                out.effects[-1]["discard"] = 1
                ack["psn"] = (h["psn"] + 1) % PSN
            return
        out.jobs.append(job)
        out.effects.append({})
        ack.update(psn=(h["psn"] + 1) % PSN, read_begun=1)
        self._progress(qp, out)
        if refused:  # the WQE ends with a poke
            out.effects[-1]["discard"] = 1
            ack.update(error=1, status=status)
            out.repoke = FINISH | FLUSH

    # Pokes.

    def poke(self, qp: int, flags: int) -> list[Result]:
        """A poke: one result for each half of it that did something."""
        results, self._behind = [], None
        if flags & FAIL and not self.rx[qp]["error"]:
            self.rx[qp]["error"] = 1
            flags |= FINISH | FLUSH
        if flags & FINISH:
            results.append(Result())
            self._poke_finish(qp, results[-1])
        if flags & TIMEOUT:
            results.append(Result())
            self._poke_timeout(qp, results[-1])
        if flags & FLUSH and self.deaf(qp):
            results.append(Result())
            self._poke_flush(qp, results[-1])
        return results

    def deaf(self, qp: int) -> bool:
        """Whether the receive side has stopped: not by an error of a send that nobody answers."""
        sends_failed = self.ack[qp]["error"] and self.cfg[qp]["type"] == RC
        return self.cfg[qp]["state"] == ERR or bool(self.rx[qp]["error"] or sends_failed)

    def in_error(self, qp: int) -> bool:
        """Whether the send side has stopped."""
        return self.cfg[qp]["state"] == ERR or bool(self.rx[qp]["error"] or self.ack[qp]["error"])

    def _poke_finish(self, qp: int, out: Result) -> None:
        ack = self.ack[qp]
        for _ in range(SENT_BY_POKE if self.cfg[qp]["type"] != RC else 0):
            entry = self.outstanding[qp][0] if self.outstanding[qp] else None
            stopped = ack["error"] or ack["status"] or (entry["status"] if entry else 0)
            if stopped or entry is None or not entry["complete"]:
                break
            self._finish(qp, SUCCESS, out, job=None)
        else:
            out.repoke |= FINISH if out.pops else 0
        entry = self.outstanding[qp][0] if self.outstanding[qp] else None
        if out.repoke or entry is None or not entry["complete"]:
            return
        acknowledged = sub(entry["last_psn"], ack["psn"]) < 0
        acknowledged &= entry["opcode"] not in FETCHES and not self.in_error(qp)
        status = ack["status"] or entry["status"]
        if not status and not acknowledged:
            if not self.in_error(qp):
                return
            status = FLUSHED
        self._finish(qp, status, out, job=None)
        out.repoke |= FINISH

    def _poke_timeout(self, qp: int, out: Result) -> None:
        ack = self.ack[qp]
        entry = self.outstanding[qp][0] if self.outstanding[qp] else None
        if self.in_error(qp):
            return
        if ack["waiting"]:
            ack.update(waiting=0, recovering=1, resent=1)
            out.naks.append(qp)
            self._rest(qp, out)
        elif entry and not entry["status"]:
            done = sub(entry["last_psn"], ack["psn"]) < 0
            sent = self.sent[qp]
            if not sent["waits"] or sub(sent["asked"], ack["psn"]) <= 0:
                return  # all that has left is answered
            if entry["opcode"] in FETCHES or not done:
                self.counters["local_ack_timeout_err"] += 1
                self._retry(qp, out)

    def _poke_flush(self, qp: int, out: Result) -> None:
        shared = self.cfg[qp]["source"]["kind"] != 0
        if shared and self.rx[qp]["message"] != IN_SEND and not self.rx[qp]["held"]:
            return
        element = self._take(qp, out)
        if element.status in (EMPTY, QUEUE_ERROR):
            return
        out.jobs.append({"kind": NONE, "length": 0})
        done = self._receive_cqe(qp, element, status=FLUSHED, solicited=1)
        self.rx[qp]["held"] = 0
        out.effects.append({"complete": done})
        out.repoke = FLUSH
