"""Two sides that share one memory: what ``sim.interop.traffic`` may ask of NIC and guest.

Requests are carried out where they are posted. ``spoil`` is called with every completion and every
piece of data that goes over, and may change them: what a faulty side would do.
"""

from __future__ import annotations

from typing import Any

from hdl.wire.headers import IPV6
from sim.guest.verbs import gid_bytes
from sim.interop.parties import Party

GIDS = ["::ffff:10.0.0.1", "fd00::1"]


class Fabric:
    def __init__(self):
        self.clients = [FakeClient(self, index) for index in (0, 1)]
        self.parties = tuple(Party(name, c) for name, c in zip(("one", "other"), self.clients))

    def spoil_data(self, data: bytes) -> bytes:
        return data

    def spoil_completion(self, wc: dict[str, Any]) -> dict[str, Any] | None:
        return wc

    def spoil_grh(self, grh: bytes) -> bytes:
        return grh

    def invalidates(self) -> bool:
        return True


class FakeClient:
    def __init__(self, fabric: Fabric, index: int):
        self.fabric, self.index = fabric, index
        self.mrs: dict[int, bytearray] = {}
        self.addresses: dict[int, int] = {}
        self.receives: dict[int, list[dict[str, Any]]] = {}
        self.peers: dict[int, int] = {}
        self.kinds: dict[int, str] = {}
        self.keys: set[int] = set()
        self.found: list[dict[str, Any]] = []
        self.number = 0

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        return getattr(self, f"_{op}")(**fields) or {}

    def write(self, mr: int, data: bytes, offset: int = 0) -> None:
        self.mrs[mr][offset : offset + len(data)] = data

    def read(self, mr: int, length: int, offset: int = 0) -> bytes:
        return bytes(self.mrs[mr][offset : offset + length])

    def _info(self):
        return {"mac": f"02:00:00:00:00:0{self.index}", "gids": GIDS}

    def _reg_mr(self, length, access, fast=False):
        self.number += 1
        self.mrs[self.number] = bytearray(length)
        if not fast:
            self.keys.add(self.number)
        return {"mr": self.number, "addr": self.number << 32, "rkey": self.number}

    def _dereg_mr(self, mr):
        del self.mrs[mr]

    def _create_srq(self, max_wr):
        self.number += 1
        self.receives[self.number] = []
        return {"srq": self.number}

    def _destroy_srq(self, srq):
        del self.receives[srq]

    def _create_qp(self, type, srq=None, **_):
        self.number += 1
        self.receives[self.number] = [] if srq is None else self.receives[srq]
        self.kinds[self.number] = type
        return {"qp": self.number, "qpn": self.number}

    def _destroy_qp(self, qp):
        del self.receives[qp]

    def _connect(self, qp, dest_qpn, **_):
        self.peers[qp] = dest_qpn

    def _post_recv(self, wr_id, sge, qp=None, srq=None):
        self.receives[qp or srq].append({"wr_id": wr_id, "sge": sge})

    def _post_send(self, qp, wr_id, opcode, flags, sge=(), rkey=0, mr=0, access=(), **rest):
        peer = self.fabric.clients[1 - self.index]
        size = sum(length for _, _, length in sge)
        status = "SUCCESS"
        if opcode == "REG_MR":
            self.keys.add(mr)
        elif opcode == "LOCAL_INV":
            self._end(rest["invalidate_rkey"])
        elif opcode.startswith("SEND"):
            self._send(peer, qp, opcode, sge, **rest)
        elif rkey not in peer.keys:
            status = "REM_ACCESS_ERR"
        else:
            ends = rest.pop("invalidate_rkey", None)
            self._one_sided(peer, qp, opcode, sge, rkey, **rest)
            if ends is not None:
                self._end(ends)
        done = {"ATOMIC_CMP_AND_SWP": "COMP_SWAP", "ATOMIC_FETCH_AND_ADD": "FETCH_ADD"}
        name = done.get(opcode, opcode.removesuffix("_WITH_IMM").removesuffix("_WITH_INV"))
        self._complete(qp, wr_id, name, size, status=status)
        return {"rkey": mr}

    def _end(self, key: int) -> None:
        if self.fabric.invalidates():
            self.keys.remove(key)

    def _data(self, sge) -> bytes:
        data = b"".join(self.read(mr, length, offset) for mr, offset, length in sge)
        return self.fabric.spoil_data(data)

    def _send(self, peer, qp, opcode, sge, imm=0, ah=None, invalidate_rkey=None) -> None:
        there = self.peers[qp] if ah is None else ah["dest_qpn"]
        data = self._data(sge)
        flags = []
        if self.kinds[qp] == "UD":
            gid = gid_bytes(ah["dest_gid"])
            data, flags = self.fabric.spoil_grh(grh_of(gid)) + data, ["GRH"]
        taken = peer.receives[there].pop(0)
        peer._scatter(taken["sge"], data)
        more = {"src_qp": qp}
        if invalidate_rkey is not None:
            peer._end(invalidate_rkey)
            flags, more["invalidated_rkey"] = ["WITH_INV"], invalidate_rkey
        flags += ["WITH_IMM"] * opcode.endswith("IMM")
        peer._complete(there, taken["wr_id"], "RECV", len(data), imm=imm, flags=flags, **more)

    def _one_sided(self, peer, qp, opcode, sge, rkey, remote_addr, imm=0, **operands) -> None:
        size, place = sum(length for _, _, length in sge), remote_addr & 0xFFFFFFFF
        if opcode.startswith("RDMA_WRITE"):
            peer.write(rkey, self._data(sge), place)
            if opcode.endswith("IMM"):
                there = self.peers[qp]
                taken, name = peer.receives[there].pop(0), "RECV_RDMA_WITH_IMM"
                peer._complete(there, taken["wr_id"], name, size, imm=imm, flags=["WITH_IMM"])
            return
        before = peer.read(rkey, size, place)
        if opcode.startswith("ATOMIC"):
            assert size == 8 and place % 8 == 0
            peer.write(rkey, atomic(opcode, before, **operands), place)
        self._scatter(sge, self.fabric.spoil_data(before))

    def _scatter(self, sge, data: bytes) -> None:
        for mr, offset, length in sge:
            self.write(mr, data[:length], offset)
            data = data[length:]

    def _complete(self, qp, wr_id, opcode, size, *, status="SUCCESS", **more) -> None:
        wc = {"wr_id": wr_id, "status": status, "opcode": opcode, "byte_len": size, "qp_num": qp}
        wc |= {"imm": 0, "invalidated_rkey": 0, "src_qp": 0, "flags": []} | more
        if (spoilt := self.fabric.spoil_completion(wc)) is not None:
            self.found.append(spoilt)

    def _poll(self, n, timeout_ms):
        taken, self.found = self.found[:n], self.found[n:]
        return {"wc": taken}


def atomic(opcode: str, before: bytes, compare_add: int, swap: int = 0) -> bytes:
    value = int.from_bytes(before, "little")
    if opcode == "ATOMIC_FETCH_AND_ADD":
        return ((value + compare_add) & (1 << 64) - 1).to_bytes(8, "little")
    return (swap if value == compare_add else value).to_bytes(8, "little")


def grh_of(gid: bytes) -> bytes:
    """The 40 bytes in front of a datagram from and to a GID; of IPv4 only its header counts."""
    if not gid.startswith(bytes(10) + b"\xff\xff"):
        number = int.from_bytes(gid, "big")
        return IPV6.pack(version=6, source=number, destination=number)
    header = bytearray(bytes.fromhex("45000000000000004011 0000") + 2 * gid[12:])
    total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, 20, 2))
    header[10:12] = (0xFFFF - (total & 0xFFFF) - (total >> 16)).to_bytes(2, "big")
    return bytes(20) + bytes(header)
