"""Packets for ``Receive``: one QP's view of its peer, and random traffic of several QPs."""

from __future__ import annotations

import random
from typing import Any

from .model_receive import (
    ACKNOWLEDGE,
    ATOMIC_ACK,
    ATOMIC_WRS,
    ATOMICS,
    FETCHES,
    GSI,
    IN_SEND,
    LOCAL,
    QUEUE_ERROR,
    RC,
    READ,
    RTS,
    SERVICES,
    UD,
    WITH_INV,
    WQE_ERROR,
    Element,
    Row,
    World,
    mtu_of,
    packets_of,
    sub,
)

__all__ = ["GID", "KEY_ALL", "PEER_GID", "WORD", "Peer", "Traffic", "make_qp"]

PEER_GID = int.from_bytes(b"\0" * 10 + b"\xff\xff\x0a\0\0\x02", "little")
GID = 2  # row of the GID table
QKEY = 0x80010000
KEY_ALL = 0x1234_5601
KEY_READ_ONLY = 0x1234_5702
KEY_FAST = 0x1234_5803  # may be invalidated
BUFFER, BUFFER_BYTES = 0x7F00_0000_1003, 1 << 20
WORD = BUFFER + 5  # of atomics
LAST_VA = (1 << 64) - (1 << 32)
PSN = 1 << 24


def make_qp(world: World, qp: int, **fields: Any) -> None:
    """A QP in RTS between this NIC and its peer, MTU 256; rows as firmware leaves them."""
    slots = fields.get("max_dest_rd_atomic", 4)
    cfg = {
        "state": RTS,
        "type": 2,
        "function": 1,
        "pd": 0x100 + qp,
        "recv_pd": 0x200 + qp,
        "send_cq": 1,
        "recv_cq": 2,
        "path_mtu": 1,
        "qpn": 0x5A1500 + qp,  # the pair index is in the low bits only
        "dest_qpn": 0xABC000 + qp,
        "pkey": 0xFFFF,
        "remote_write": 1,
        "remote_read": 1,
        "remote_atomic": 1,
        "max_rd_atomic": 4,
        "max_dest_rd_atomic": slots,
        "read_base": 8 * qp,
        "min_rnr_timer": 12,
        "rnr_retry": 7,
        "retry_count": 7,
        "timeout": 14,
    }
    psn = fields.pop("psn", 0x100)
    sq_psn = fields.pop("sq_psn", 0x200)
    position = fields.pop("position", 0)
    world.cfg[qp] = _zero(world.cfg[qp]) | cfg
    world.cfg[qp]["av"] = _zero(world.cfg[qp]["av"]) | {"dgid": PEER_GID, "sgid_index": GID}
    world.cfg[qp] |= fields
    world.cfg[qp]["source"] = {"kind": 0, "number": qp} | fields.get("source", {})
    world.next[world.cfg[qp]["source"]["number"]] = position
    world.rx[qp] = _zero(world.rx[qp]) | {"psn": psn, "ack_psn": (psn - 1) % PSN}
    world.ack[qp] = _zero(world.ack[qp]) | {"psn": sq_psn, "start": sq_psn}
    world.reply[qp] = _zero(world.reply[qp])
    world.sent[qp] = {"psn": sq_psn, "asked": sq_psn, "waits": 0}
    world.recv[qp].clear()
    world.outstanding[qp].clear()
    world.keys[KEY_ALL] = (BUFFER, BUFFER_BYTES, 15)
    world.keys[KEY_READ_ONLY] = (BUFFER, BUFFER_BYTES, 4)
    world.revocable.add(KEY_FAST)


def _zero(row: Row) -> Row:
    return {k: _zero(v) if isinstance(v, dict) else 0 for k, v in row.items()}


class Peer:
    """Builds the packets that the QP's peer would send."""

    def __init__(self, world: World, qp: int):
        self.world, self.qp = world, qp

    def packet(self, opcode: int, *, ahead: int = 0, **fields: Any) -> Row:
        """A request with the expected PSN plus ``ahead``."""
        cfg, rx = self.world.cfg[self.qp], self.world.rx[self.qp]
        opcode |= SERVICES[cfg["type"]] << 5
        names = ("length", "ack_request", "solicited", "imm", "va", "rkey", "dma_length")
        names += ("syndrome", "msn", "swap_add", "compare", "src_qp", "pkey_index", "priority")
        header = dict.fromkeys(names, 0) | {
            "opcode": opcode,
            "dest_qp": cfg["qpn"],
            "psn": (rx["psn"] + ahead) % PSN,
            "pkey": 0xFFFF,
            "pkey_hit": 1,
            "function": cfg["function"],
            "gid_index": GID,
            "src_gid": PEER_GID,
            "qkey": cfg["qkey"],
        }
        if opcode & 0x1F in (0x06, 0x0A, 0x0B, READ):
            header |= {"va": BUFFER, "rkey": KEY_ALL}
        if opcode in WITH_INV:
            fields = {"imm": KEY_FAST} | fields
        if opcode in ATOMICS:
            header |= {"va": WORD, "rkey": KEY_ALL, "swap_add": 2**63 + rx["psn"], "compare": 5}
        return header | fields

    def answer(self, opcode: int = ACKNOWLEDGE, *, ahead: int = 0, **fields: Any) -> Row:
        """A response with the oldest unacknowledged PSN plus ``ahead``; an ACK by default."""
        psn = (self.world.ack[self.qp]["psn"] + ahead) % PSN
        return self.packet(opcode, **({"psn": psn, "syndrome": 0x1F, "msn": 1} | fields))

    def post_recv(self, length: int = 1000, **fields: Any) -> Element:
        """A receive WQE behind those that are there."""
        number = self.world.cfg[self.qp]["source"]["number"]
        ring, start = self.world.recv[number], self.world.next[number]
        position = start
        while position in ring:
            position = (position + 1) % 65536
        for old in [at for at in ring if 40000 < (at - start) % 65536 < 65530]:
            del ring[old]
        ring[position] = self._element(position, length, **fields)
        return ring[position]

    def _element(self, position: int, length: int, **fields: Any) -> Element:
        base = {"wr_id": 0xFEED_0000_0000_0000 + position, "head": position * 7 % 65536}
        return Element(length=length, line=64 * self.qp + position % 64, **(base | fields))

    def post_send(self, opcode: int, length: int, *, sink: Row | None = None, **fields: Any) -> Row:
        """An outstanding WQE, all packets sent. Opcodes: WR opcodes of the ABI."""
        entries, cfg = self.world.outstanding[self.qp], self.world.cfg[self.qp]
        first = self.world.ack[self.qp]["psn"]
        position = 0
        if entries:
            first = (entries[-1]["last_psn"] + 1) % PSN
            position = (entries[-1]["position"] + 1) % 65536
        packets = 0 if opcode in LOCAL else packets_of(length, mtu_of(cfg))
        last = (first + packets - 1) % PSN
        entry = {
            "position": position,
            "head": position * 3 % 256,
            "wr_id": 0xBEEF_0000_0000_0000 + position,
            "opcode": opcode,
            "signaled": 1,
            "length": length,
            "first_psn": first,
            "last_psn": last,
            "complete": 1,
            "status": 0,
            "function": cfg["function"],
            "key": KEY_FAST,
        } | fields
        entries.append(entry)
        behind = (last + 1) % PSN
        self.world.sent[self.qp] = {"psn": behind, "asked": behind, "waits": 1}
        number, num_sge = 64 * self.qp + position % 64, 1 + position % 7
        entry |= {"num_sge": num_sge, "sink": {"number": number, "long": int(num_sge > 4)}}
        self.world.sinks[number] = self._element(position, length, **(sink or {}))
        return entry


class Traffic:
    """Random packets for the QPs ``qps``; called once for each, with ``left`` in all. ``types``: of
    these QPs (RC by default).

    Mostly what a good peer sends, with duplicates, gaps and errors among it; a QP that has stopped
    is set up again after a while.
    """

    def __init__(
        self,
        world: World,
        qps: list[int],
        *,
        seed: int,
        left: int,
        errors: float,
        types: tuple[int, ...] = (),
    ):
        self.world, self.left, self.errors = world, left, errors
        self.rng = random.Random(seed)
        self.peers = [Peer(world, qp) for qp in qps]
        self.history: dict[int, list[Row]] = {qp: [] for qp in qps}
        self.dead: dict[int, int] = {qp: 0 for qp in qps}
        self.keys: dict[int, int] = {}  # by QP: one for all of memory
        self.types = dict(zip(qps, types or [RC] * len(qps), strict=True))
        for peer in self.peers:
            self._set_up(peer)

    def _set_up(self, peer: Peer) -> None:
        rng, near = self.rng, PSN - self.rng.randrange(1, 20)
        answered = self.types[peer.qp] == RC
        make_qp(
            self.world,
            peer.qp,
            psn=near,
            sq_psn=near,
            position=65536 - rng.randrange(1, 6),
            rnr_retry=rng.choice((0, 1, 7)),
            retry_count=rng.choice((0, 1, 7)),
            timeout=rng.choice((0, 14)) if answered else 0,
            type=self.types[peer.qp],
            qkey=QKEY,
            max_dest_rd_atomic=rng.choice((1, 2, 4, 8)),
            path_mtu=rng.choice((1, 1, 2, 3, 4, 5)),
        )
        self.history[peer.qp].clear()
        self.keys[peer.qp] = key = rng.getrandbits(32)
        self.world.keys[key] = (0, 1 << 64, 15)
        msn = rng.getrandbits(24)  # many messages have passed
        self.world.rx[peer.qp].update(msn=msn, ack_msn=msn)

    def __call__(self):
        if not self.left:
            return None
        self.left -= 1
        peer = self.rng.choice(self.peers)
        world, qp = self.world, peer.qp
        if world.in_error(qp):
            self.dead[qp] += 1
            if self.dead[qp] > 6:
                self.dead[qp] = 0
                return self._blind(peer), lambda _: self._set_up(peer)
        header = self._some(peer)
        return header, lambda _: self._outside(peer)

    def prepare(self) -> None:
        """Set up QPs that have stopped (most of them), and let the others do what they do."""
        for peer in self.peers:
            if self.world.in_error(peer.qp) and self.rng.random() < 0.7:
                self._set_up(peer)
            for _ in range(4):
                self._outside(peer)
            for entry in self.world.outstanding[peer.qp]:
                # Else a poke decides what becomes of it, and when that comes is left open.
                entry.update(complete=1, status=0)

    def any(self) -> Row:
        """A packet for the world as it is now."""
        return self._some(self.rng.choice(self.peers))

    def _some(self, peer: Peer) -> Row:
        answered = self.types[peer.qp] == RC and self.rng.random() < 0.4
        header = self._response(peer) if answered else self._request(peer)
        return self._spoil(header) if self.rng.random() < self.errors else header

    def _blind(self, peer: Peer) -> Row:
        return peer.packet(0x04, length=1, psn=self.rng.randrange(PSN))

    def _outside(self, peer: Peer) -> None:
        """What others do meanwhile: driver, requester, replier."""
        rng, world, qp = self.rng, self.world, peer.qp
        while rng.random() < 0.4 and len(world.recv[qp]) < 100:
            kind = {}
            if rng.random() < self.errors:
                kind = rng.choice(
                    ({"status": WQE_ERROR, "error": 2}, {"status": QUEUE_ERROR}, {"check": 4})
                )
            small = rng.random() < self.errors * 2
            peer.post_recv(rng.choice((0, 100, 600)) if small else 9000, **kind)
        entries = world.outstanding[qp]
        for one in entries:
            if not one["complete"] and rng.random() < 0.5:
                one["complete"] = 1
        stopped = entries and (entries[-1]["status"] or not entries[-1]["complete"])
        if rng.random() < 0.5 and len(entries) < 5 and not stopped and not world.in_error(qp):
            fields: Row = {"signaled": rng.randrange(2), "complete": int(rng.random() < 0.9)}
            sink = {}
            if rng.random() < self.errors:
                fields |= {"status": 4, "complete": 1}
            if rng.random() < self.errors:
                sink = {"check": 4}
            mtu = mtu_of(world.cfg[qp])
            length = rng.choice((0, 1, mtu - 1, mtu, mtu + 1, rng.randint(1, 6 * mtu)))
            if rng.random() < self.errors:
                fields["key"] = KEY_ALL
            reliable = (0, 1, 2, 3, 4, 4, 5, 6, 9, 11, 0x20)
            opcode = rng.choice(reliable if self.types[qp] == RC else (0, 1, 2, 3, 0x20))
            length = 8 if opcode in ATOMIC_WRS else 0 if opcode in LOCAL else length
            peer.post_send(opcode, length, sink=sink, **fields)
        self._skip(qp)
        rx, reply = world.rx[qp], world.reply[qp]
        if rng.random() < 0.5:
            if rx["replay_seq"] != reply["replay_seq"]:
                reply["replay_seq"], reply["read_head"] = rx["replay_seq"], rx["replay"]
                reply["packet"] = rx["replay_skip"]
            elif reply["read_head"] != rx["read_tail"]:
                new = reply["read_head"] == reply["answered"]
                reply["read_head"] = (reply["read_head"] + 1) % 256
                reply["packet"] = 0
                if new:
                    reply["answered"] = reply["read_head"]

    def _skip(self, qp: int) -> None:
        """A message that has begun may be a long one, of which all but the end has passed."""
        rng, rx = self.rng, self.world.rx[qp]
        if not rx["message"] or rng.random() < 0.7:
            return
        rx["offset"] = (1 << rng.randint(14, 31)) - rng.randint(1, 2 * mtu_of(self.world.cfg[qp]))
        if rx["message"] == IN_SEND:
            ring = self.world.recv[self.world.cfg[qp]["source"]["number"]]
            held = next(one for one in ring.values() if one.head == rx["head"])
            held.length = (1 << 32) - 1
        else:
            rx["dma_length"] = min(1 << 31, rx["offset"] + rng.randint(1, 10_000))
            rx["rkey"], rx["va"] = self._anywhere(qp)

    def _anywhere(self, qp: int) -> tuple[int, int]:
        """A key and an address that any message fits behind."""
        return self.keys[qp], self.rng.getrandbits(64) % (LAST_VA + 1)

    def _request(self, peer: Peer) -> Row:
        rng, history = self.rng, self.history[peer.qp]
        choice = rng.random()
        if choice < 0.12 and history:
            header = dict(rng.choice(history[-12:]))
            if header["opcode"] == READ and rng.random() < 0.7:
                self._part(header, mtu_of(self.world.cfg[peer.qp]))
            return header
        header = self._next(peer)
        if choice < 0.2:
            header["psn"] = (header["psn"] + rng.randrange(1, 6)) % PSN
        else:
            history.append(dict(header))
        return header

    def _part(self, header: Row, mtu: int) -> None:
        skip = self.rng.randrange(packets_of(header["dma_length"], mtu))
        header["psn"] = (header["psn"] + skip) % PSN
        header["va"] += skip * mtu
        header["dma_length"] -= skip * mtu

    def _next(self, peer: Peer) -> Row:
        """The next packet of a good peer."""
        rng, world = self.rng, self.world
        rx, mtu = world.rx[peer.qp], mtu_of(world.cfg[peer.qp])
        fields: Row = {"ack_request": rng.randrange(2), "imm": rng.getrandbits(32)}
        fields["solicited"] = rng.randrange(2)
        if self.types[peer.qp] in (UD, GSI):
            fields |= {"src_qp": rng.getrandbits(24), "src_gid": rng.getrandbits(128)}
            fields |= {"pkey_index": rng.randrange(16), "priority": rng.randrange(8)}
            length = 40 + rng.choice((0, 1, 256, 4096))
            return peer.packet(rng.choice((0x04, 0x05)), length=length, **fields)
        if rx["message"] == 1:
            if rng.random() < 0.5:
                return peer.packet(0x01, length=mtu, **fields)
            return self._last_send(peer, rng.choice((2, 3, 0x16)), (1, mtu), fields)
        if rx["message"] == 2:
            rest = rx["dma_length"] - rx["offset"]
            if rest > mtu:
                return peer.packet(0x07, length=mtu, **fields)
            return peer.packet(rng.choice((8, 9)), length=rest, **fields)
        if rng.random() < 0.5:
            fields["rkey"], fields["va"] = self._anywhere(peer.qp)
        opcodes = (0x00, 0x04, 0x05, 0x06, 0x06, 0x0A, 0x0B)
        reliable = (0x17, READ, READ, *ATOMICS)
        opcode = rng.choice((*opcodes, *reliable) if self.types[peer.qp] == RC else opcodes)
        if opcode in ATOMICS:
            words = {name: rng.getrandbits(64) for name in ("swap_add", "compare")}
            word = {"va": fields["va"] & ~7 if "va" in fields else WORD + 8 * rng.randrange(9)}
            return peer.packet(opcode, **(fields | word | words))
        if opcode == 0x00:
            return peer.packet(opcode, length=mtu, **fields)
        if opcode in (0x04, 0x05, 0x17):
            return self._last_send(peer, opcode, (0, 1, 50, mtu), fields)
        if opcode == 0x06:
            total = mtu + rng.choice((1, mtu, 3 * mtu - 1))
            return peer.packet(opcode, length=mtu, dma_length=total, **fields)
        length = rng.choice((0, 1, mtu))
        if opcode == READ:
            anything = rng.getrandbits(rng.randint(1, 30))
            length = rng.choice((0, 1, mtu, 5 * mtu - 3, anything))
            return peer.packet(opcode, dma_length=length, **fields)
        return peer.packet(opcode, length=length, dma_length=length, **fields)

    def _last_send(self, peer: Peer, opcode: int, lengths: tuple[int, ...], fields: Row) -> Row:
        if opcode in WITH_INV:
            fields["imm"] = KEY_ALL if self.rng.random() < self.errors else KEY_FAST
        return peer.packet(opcode, length=self.rng.choice(lengths), **fields)

    def _response(self, peer: Peer) -> Row:
        rng, world = self.rng, self.world
        entries, ack = world.outstanding[peer.qp], world.ack[peer.qp]
        if not entries:
            return peer.answer(ahead=rng.choice((-1, 0, 3)))
        choice = rng.random()
        if choice < 0.05:
            return peer.answer(ahead=rng.randrange(5), syndrome=rng.choice((0x60, 0x60, 0x2C)))
        if choice < 0.05 + self.errors:
            return peer.answer(ahead=rng.randrange(5), syndrome=rng.choice((0x61, 0x62, 0x63)))
        reads = [one for one in entries if one["opcode"] in FETCHES]
        if reads and choice < 0.8:
            return self._data(peer, reads[0], ack)
        one = rng.choice(entries)
        span = max(0, sub(one["last_psn"], ack["psn"]))
        return peer.answer(ahead=rng.choice((span, span, rng.randint(0, span))))

    def _data(self, peer: Peer, read: Row, ack: Row) -> Row:
        mtu, psn = mtu_of(self.world.cfg[peer.qp]), read["first_psn"]
        begun = ack["read_begun"] and self.world.outstanding[peer.qp][0] is read
        if begun:
            psn = ack["psn"]
        if self.rng.random() < 0.05:
            psn = (psn + 1) % PSN
        final = psn == read["last_psn"]
        rest = read["length"] - (psn - read["first_psn"]) % PSN * mtu
        opcode = {(0, 0): 0x0D, (0, 1): 0x10, (1, 0): 0x0E, (1, 1): 0x0F}[int(begun), int(final)]
        if read["opcode"] in ATOMIC_WRS and self.rng.random() >= self.errors:
            opcode = ATOMIC_ACK
        return peer.answer(opcode, psn=psn, length=rest % (mtu + 1) if final else mtu)

    def _spoil(self, header: Row) -> Row:
        """One field of the header is not what it should be."""
        rng = self.rng
        name, value = rng.choice(
            (
                ("opcode", rng.choice((*range(0x18), *(0x24, 0x64, 0x1F) * 3))),
                ("length", rng.choice((0, 1, 255, 256, 257, 300))),
                ("dma_length", rng.choice((0, 1, 257, 1 << 31, (1 << 31) + 1))),
                ("rkey", rng.choice((KEY_READ_ONLY, 0))),
                ("rkey", rng.choice((KEY_READ_ONLY, 0))),
                ("rkey", rng.choice((KEY_READ_ONLY, 0))),
                ("va", header.get("va", 0) + rng.choice((1, BUFFER_BYTES, -1))),
                ("psn", rng.randrange(PSN)),
                ("dest_qp", header["dest_qp"] ^ rng.choice((1 << 20, 7))),
                ("function", 2),
                ("gid_index", 1),
                ("src_gid", 1),
                ("pkey", rng.choice((0x7FFF, 0xFFFE, 0x8000))),
                ("pkey_hit", 0),
                ("syndrome", rng.randrange(256)),
                ("qkey", header["qkey"] ^ 1 << rng.randrange(32)),
            )
        )
        return header | {name: value % (1 << 64) if name == "va" else value}
