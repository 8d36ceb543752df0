"""Two sides that share one memory: what ``sim.tools.interop.traffic`` may ask of NIC and guest.

Requests are carried out where they are posted. ``spoil`` is called with every completion and every
piece of data that goes over, and may change them: what a faulty side would do.
"""

from __future__ import annotations

from typing import Any

from sim.tools.interop.parties import Party


class Fabric:
    def __init__(self):
        self.clients = [FakeClient(self, index) for index in (0, 1)]
        self.parties = tuple(Party(name, c) for name, c in zip(("one", "other"), self.clients))

    def spoil_data(self, data: bytes) -> bytes:
        return data

    def spoil_completion(self, wc: dict[str, Any]) -> dict[str, Any] | None:
        return wc


class FakeClient:
    def __init__(self, fabric: Fabric, index: int):
        self.fabric, self.index = fabric, index
        self.mrs: dict[int, bytearray] = {}
        self.addresses: dict[int, int] = {}
        self.receives: dict[int, list[dict[str, Any]]] = {}
        self.peers: dict[int, int] = {}
        self.found: list[dict[str, Any]] = []
        self.number = 0

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        return getattr(self, f"_{op}")(**fields) or {}

    def write(self, mr: int, data: bytes, offset: int = 0) -> None:
        self.mrs[mr][offset : offset + len(data)] = data

    def read(self, mr: int, length: int, offset: int = 0) -> bytes:
        return bytes(self.mrs[mr][offset : offset + length])

    def _info(self):
        return {"mac": f"02:00:00:00:00:0{self.index}", "gids": ["::ffff:10.0.0.1", "fd00::1"]}

    def _reg_mr(self, length, access):
        self.number += 1
        self.mrs[self.number] = bytearray(length)
        return {"mr": self.number, "addr": self.number << 32, "rkey": self.number}

    def _dereg_mr(self, mr):
        del self.mrs[mr]

    def _create_qp(self, **_):
        self.number += 1
        self.receives[self.number] = []
        return {"qp": self.number, "qpn": self.number}

    def _destroy_qp(self, qp):
        del self.receives[qp]

    def _connect(self, qp, dest_qpn, **_):
        self.peers[qp] = dest_qpn

    def _post_recv(self, qp, wr_id, sge):
        self.receives[qp].append({"wr_id": wr_id, "sge": sge})

    def _post_send(self, qp, wr_id, opcode, sge, flags, remote_addr=0, rkey=0, imm=0):
        peer = self.fabric.clients[1 - self.index]
        size = sum(length for _, _, length in sge)
        if opcode == "RDMA_READ":
            data = self.fabric.spoil_data(peer.read(rkey, size, remote_addr & 0xFFFFFFFF))
            self._scatter(sge, data)
        else:
            data = b"".join(self.read(mr, length, offset) for mr, offset, length in sge)
            data = self.fabric.spoil_data(data)
            taken = None
            if opcode.startswith("SEND") or opcode.endswith("IMM"):
                taken = peer.receives[self.peers[qp]].pop(0)
            if opcode.startswith("SEND"):
                assert taken is not None
                peer._scatter(taken["sge"], data)
            else:
                peer.write(rkey, data, remote_addr & 0xFFFFFFFF)
            if taken is not None:
                with_imm = opcode.endswith("IMM")
                name = "RECV" if opcode.startswith("SEND") else "RECV_RDMA_WITH_IMM"
                peer._complete(self.peers[qp], taken["wr_id"], name, size, imm, with_imm)
        self._complete(qp, wr_id, opcode.removesuffix("_WITH_IMM"), size)

    def _scatter(self, sge, data: bytes) -> None:
        for mr, offset, length in sge:
            self.write(mr, data[:length], offset)
            data = data[length:]

    def _complete(self, qp, wr_id, opcode, size, imm=0, with_imm=False) -> None:
        wc = {
            "wr_id": wr_id,
            "status": "SUCCESS",
            "opcode": opcode,
            "byte_len": size,
            "imm": imm,
            "qp_num": qp,
            "flags": ["WITH_IMM"] if with_imm else [],
        }
        if (spoilt := self.fabric.spoil_completion(wc)) is not None:
            self.found.append(spoilt)

    def _poll(self, n, timeout_ms):
        taken, self.found = self.found[:n], self.found[n:]
        return {"wc": taken}
