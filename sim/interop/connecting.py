"""Programs of rdma-core that connect by librdmacm, and the card as their other side."""

from __future__ import annotations

import errno
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim.interop.parties import RIGHTS, Party, Region
from sim.interop.traffic import Mismatch, Tally, completions

__all__ = ["PROGRAMS", "Program", "connected"]

#: What rping sends of a buffer: address, key, size. Spec: rdma-core, librdmacm/examples/rping.c.
_INFO = struct.Struct(">QII")
_COUNT, _SIZE = 10, 100
#: Bytes of a receive: a message, and what is in front of a datagram.
_SLOT, _GRH = 256, 40
#: Q_Key of RDMA_PS_UDP.
_UDP_QKEY = 0x01234567
#: wr_id of sends from here on; of receives: their slots.
_SENDS = 1000
#: Code of the time-out that both queue pairs get, as the card is slow: 4.3 s.
_ACK_TIMEOUT = 20
#: For a step of a connection, and for a program's end, ms of the wall clock.
_PATIENCE_MS = 30_000


class _Card:
    """The card's end: a queue pair with all its receives posted, and memory."""

    def __init__(self, parties: tuple[Party, Party], kind: str, receives: int) -> None:
        self.party, self.guest = parties
        self.call = self.party.client.call
        self.inbox = Region.register(self.party, receives * _SLOT)
        self.memory = Region.register(self.party, 2 * _SIZE, RIGHTS)
        made = self.call("create_qp", type=kind)
        self.qp, self.qpn = made["qp"], made["qpn"]
        self.call("modify", qp=self.qp, state="INIT", access=list(RIGHTS), qkey=_UDP_QKEY)
        for slot in range(receives):
            sge = [[self.inbox.mr, slot * _SLOT, _SLOT]]
            self.call("post_recv", qp=self.qp, wr_id=slot, sge=sge)
        self._received = self._sent = 0
        self._early: list[dict[str, Any]] = []  # completions that nobody has waited for yet
        self.conn: int | None = None
        self.call("cm_neighbour", gid=self.guest.gid(False), mac=self.guest.mac)

    def accept(self, port: int) -> None:
        """Take the connection that the guest's program asks for."""
        self.conn = self.call("cm_request", port=port, timeout_ms=_PATIENCE_MS)["conn"]
        self.call("cm_accept", conn=self.conn, qp=self.qp, timeout_ms=_PATIENCE_MS)

    def connect(self, port: int) -> None:
        """Connect to the guest's program."""
        self.conn = self.ask("cm_connect", port, timeout=_ACK_TIMEOUT)["conn"]

    def ask(self, what: str, port: int, **more: int) -> dict[str, Any]:
        """Ask the guest's program, which may not listen yet."""
        deadline = time.monotonic() + _PATIENCE_MS / 1000
        where = {"qp": self.qp, "dest_gid": self.guest.gid(False), "port": port, **more}
        while True:
            try:
                return self.call(what, **where, timeout_ms=_PATIENCE_MS)
            except OSError as error:
                if error.errno != errno.ECONNREFUSED or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def send(self, opcode: str, sge: list[list[int]], **more: Any) -> None:
        """Post a request."""
        self._sent += 1
        number = _SENDS + self._sent
        self.call(
            "post_send",
            qp=self.qp,
            wr_id=number,
            opcode=opcode,
            sge=sge,
            flags=["SIGNALED"],
            **more,
        )

    def finish(self, sends: int, receives: int) -> list[dict[str, Any]]:
        """Wait for so many completions of each queue; those of receives.

        What comes early is kept: where an ACK is lost, the peer's next message may come before it.
        """
        while (missing := self._missing(sends, receives)) > 0:
            found = completions(self.party, missing)
            if bad := [wc for wc in found if wc["status"] != "SUCCESS"]:
                raise Mismatch(f"NIC: {bad[0]}")
            self._early += found
        received = [wc for wc in self._early if wc["wr_id"] < _SENDS][:receives]
        sent = [wc for wc in self._early if wc["wr_id"] >= _SENDS][:sends]
        self._early = [wc for wc in self._early if wc not in received and wc not in sent]
        slots = list(range(self._received, self._received + receives))
        if [wc["wr_id"] for wc in received] != slots:
            raise Mismatch(f"NIC: completions {received}, not of the receives {slots}")
        self._received += receives
        return received

    def _missing(self, sends: int, receives: int) -> int:
        """How many completions at least have not come."""
        received = sum(wc["wr_id"] < _SENDS for wc in self._early)
        sent = len(self._early) - received
        return max(0, sends - sent) + max(0, receives - received)

    def last(self, size: int) -> bytes:
        """The message in the receive that has completed last."""
        place = (self._received - 1) * _SLOT
        return self.party.client.read(self.inbox.mr, size, place)

    def close(self) -> None:
        """End the connection and give everything back."""
        if self.conn is not None:
            self.call("cm_disconnect", conn=self.conn, timeout_ms=_PATIENCE_MS)
        self.call("destroy_qp", qp=self.qp)
        for region in (self.inbox, self.memory):
            self.call("dereg_mr", mr=region.mr)


def _text(number: int) -> bytes:
    """What rping fills its buffer with, as far as it is the same in all versions."""
    return f"rdma-ping-{number}: ".encode()


def _listen(card: _Card, port: int) -> None:
    card.call("cm_listen", port=port)


def _serve_pings(card: _Card, port: int) -> None:
    """rping's server: READ what the client offers, WRITE it to where the client says."""
    card.accept(port)
    mr = card.memory.mr
    for number in range(_COUNT):
        for opcode in ("RDMA_READ", "RDMA_WRITE"):
            card.finish(0, 1)
            address, rkey, size = _INFO.unpack(card.last(_INFO.size))
            if size != _SIZE:
                raise Mismatch(f"NIC: rping offers {size} bytes, not {_SIZE}")
            card.send(opcode, [[mr, 0, size]], remote_addr=address, rkey=rkey)
            card.finish(1, 0)
            found = card.party.client.read(mr, size)
            if not found.startswith(_text(number)):
                raise Mismatch(f"NIC: ping {number} is {found[:20]!r}")
            card.send("SEND", [[mr, 0, _INFO.size]])
            card.finish(1, 0)


def _ping(card: _Card, port: int) -> None:
    """rping's client: offer a buffer, then another one, which must be the same afterwards."""
    card.connect(port)
    there = Region.register(card.party, _INFO.size)
    for number in range(_COUNT):
        text = (_text(number) * _SIZE)[: _SIZE - 1] + b"\0"
        card.memory.write(text + bytes(_SIZE))
        for place in (0, _SIZE):
            there.write(_INFO.pack(card.memory.addr + place, card.memory.rkey, _SIZE))
            card.send("SEND", [[there.mr, 0, _INFO.size]])
            card.finish(1, 1)
        if card.memory.read() != 2 * text:
            raise Mismatch(f"NIC: ping {number} has come back otherwise")
    card.call("dereg_mr", mr=there.mr)


def _send_all(card: _Card, **more: Any) -> None:
    for _ in range(_COUNT):
        card.send("SEND" if not more else "SEND_WITH_IMM", [[card.memory.mr, 0, _SIZE]], **more)


def _all_of(card: _Card, size: int) -> list[dict[str, Any]]:
    found = card.finish(0, _COUNT)
    if wrong := [wc for wc in found if wc["byte_len"] != size]:
        raise Mismatch(f"NIC: a message of {wrong[0]['byte_len']} bytes, not {size}")
    return found


def _serve_messages(card: _Card, port: int) -> None:
    """ucmatose's server: it sends first."""
    card.accept(port)
    _send_all(card)
    card.finish(_COUNT, 0)
    _all_of(card, _SIZE)


def _exchange_messages(card: _Card, port: int) -> None:
    """ucmatose's client."""
    card.connect(port)
    _all_of(card, _SIZE)
    _send_all(card)
    card.finish(_COUNT, 0)


def _ready_for_datagrams(card: _Card) -> None:
    route = {"dest_gid": card.guest.gid(False), "dest_mac": card.guest.mac, "dest_qpn": 0}
    card.call("connect", qp=card.qp, qkey=_UDP_QKEY, **route)


def _send_datagrams(card: _Card, qpn: int, qkey: int) -> None:
    """As udaddy does, with the own number as immediate data."""
    way = {"dest_gid": card.guest.gid(False), "dest_mac": card.guest.mac}
    _send_all(card, imm=card.qpn, ah={**way, "dest_qpn": qpn, "qkey": qkey})
    card.finish(_COUNT, 0)


def _offer_datagrams(card: _Card, port: int) -> None:
    _ready_for_datagrams(card)
    card.call("cm_serve", port=port, qp=card.qp)


def _serve_datagrams(card: _Card, port: int) -> None:
    """udaddy's server: its number is asked for by SIDR."""
    first = _all_of(card, _GRH + _SIZE)[0]
    if first["imm"] != first["src_qp"]:
        raise Mismatch(f"NIC: the immediate data is {first['imm']}, the sender {first['src_qp']}")
    _send_datagrams(card, first["src_qp"], _UDP_QKEY)


def _exchange_datagrams(card: _Card, port: int) -> None:
    """udaddy's client."""
    _ready_for_datagrams(card)
    found = card.ask("cm_resolve", port)
    if found["qkey"] != _UDP_QKEY:
        raise Mismatch(f"NIC: SIDR says the Q_Key {found['qkey']:#x}, not {_UDP_QKEY:#x}")
    _send_datagrams(card, found["qpn"], found["qkey"])
    _all_of(card, _GRH + _SIZE)


@dataclass(frozen=True)
class Program:
    """A program of the guest: ``argv`` with {card}, {guest} and {port}, and what the card does.

    prepare: before the program starts. messages: that arrive at both sides. done: what the program
    must say.
    """

    name: str
    what: str
    argv: str
    port: int
    act: Callable[[_Card, int], None]
    prepare: Callable[[_Card, int], None] = lambda card, port: None
    kind: str = "RC"
    receives: int = _COUNT
    messages: int = 2 * _COUNT
    done: str = ""

    @property
    def resends(self) -> bool:
        """Whether Linux may send again what was not lost: a connection has a time-out, which
        ``rdma_rxe`` does not restart with each packet."""
        return self.kind == "RC"


_PING = f"-C {_COUNT} -S {_SIZE} -v -V -p {{port}}"
_MANY = f"-C {_COUNT} -S {_SIZE}"
#: Where udaddy listens and asks; it cannot be told another one.
_UDADDY_PORT = 7174
PROGRAMS = (
    Program(
        name="rping-to-card",
        what="rping -c in the guest, to the card's listener",
        argv=f"rping -c -a {{card}} {_PING}",
        port=7471,
        act=_serve_pings,
        prepare=_listen,
        receives=2 * _COUNT,
        messages=6 * _COUNT,
        done=f"ping data: rdma-ping-{_COUNT - 1}: ",
    ),
    Program(
        name="rping-from-card",
        what="the card connects to rping -s in the guest",
        argv=f"rping -s -a {{guest}} {_PING}",
        port=7472,
        act=_ping,
        receives=2 * _COUNT,
        messages=6 * _COUNT,
        done=f"server ping data: rdma-ping-{_COUNT - 1}: ",
    ),
    Program(
        name="ucmatose-to-card",
        what="ucmatose in the guest connects to the card's listener",
        argv=f"ucmatose -s {{card}} -p {{port}} {_MANY}",
        port=7473,
        act=_serve_messages,
        prepare=_listen,
        done="return status 0",
    ),
    Program(
        name="ucmatose-from-card",
        what="the card connects to ucmatose in the guest",
        argv=f"ucmatose -p {{port}} {_MANY}",
        port=7474,
        act=_exchange_messages,
        done="return status 0",
    ),
    Program(
        name="udaddy-to-card",
        what="udaddy in the guest finds the card's datagram service by SIDR",
        argv=f"udaddy -s {{card}} {_MANY}",
        port=_UDADDY_PORT,
        act=_serve_datagrams,
        prepare=_offer_datagrams,
        kind="UD",
        done="return status 0",
    ),
    Program(
        name="udaddy-from-card",
        what="the card finds udaddy in the guest by SIDR",
        argv=f"udaddy {_MANY}",
        port=_UDADDY_PORT,
        act=_exchange_datagrams,
        kind="UD",
        done="return status 0",
    ),
)


def connected(parties: tuple[Party, Party], tally: Tally, *, program: Program) -> None:
    """Run a program against the card; both must come to a good end. Raises Mismatch."""
    nic, guest = parties
    card = _Card(parties, program.kind, program.receives)
    program.prepare(card, program.port)
    ends = {
        side: party.gid(False).removeprefix("::ffff:")
        for side, party in (("card", nic), ("guest", guest))
    }
    argv = program.argv.format(port=program.port, **ends).split()
    started = guest.client.call("run", argv=argv)["program"]
    failure: Exception | None = None
    try:
        program.act(card, program.port)
        card.close()
    except (Mismatch, OSError) as error:
        failure = error
    wait = 100 if failure else _PATIENCE_MS
    ended = guest.client.call("finish", program=started, timeout_ms=wait)
    said = bytes.fromhex(ended["data"]).decode(errors="replace")
    if failure is not None:
        raise Mismatch(f"{failure}\n{argv[0]} said:\n{said}")
    if ended["status"] or program.done not in said:
        raise Mismatch(f"{argv[0]} ended with status {ended['status']}:\n{said}")
    tally.messages += program.messages
    tally.bytes_verified += program.messages * _SIZE
