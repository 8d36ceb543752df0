"""Two queue pairs, each kind of request once: a program that knows nothing but pyverbs.

Run it with ``./rocinante pyverbs examples/pyverbs_hello.py``. On a machine with an RDMA card and
rdma-core's own pyverbs it runs with plain ``python3``. With two devices one is the client and the
other the server; with one device it talks to itself.
"""

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
SIZE = 4096


class Side:
    """A device with all that one end of a connection needs; the server has a shared queue."""

    def __init__(self, name, *, server):
        self.context = d.Context(name=name)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 100)
        self.mr = MR(self.pd, SIZE, ACCESS)
        self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=16))) if server else None
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, srq=self.srq,
                          cap=QPCap(max_send_wr=16, max_recv_wr=16))  # fmt: skip
        self.qp = QP(self.pd, init)
        self.gid = self.context.query_gid(port_num=1, index=0)

    def connect(self, peer):
        """Brings the queue pair to RTS."""
        attr = QPAttr(port_num=1, path_mtu=e.IBV_MTU_1024)
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num = peer.qp.qp_num
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        route = GlobalRoute(dgid=peer.gid, sgid_index=0)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.qp.to_rts(attr)

    def sge(self, offset=0, length=SIZE):
        """A part of the region."""
        return SGE(self.mr.buf + offset, length, self.mr.lkey)

    def wait(self):
        """The next completion."""
        while True:
            count, found = self.cq.poll()
            if count:
                return found[0]

    def request(self, opcode, peer, text_length):
        """Posts one request over the first bytes of both regions, and waits for its completion."""
        wr = SendWR(opcode=opcode, num_sge=1, sg=[self.sge(length=text_length)])
        if opcode != e.IBV_WR_SEND:
            wr.set_wr_rdma(peer.mr.rkey, peer.mr.buf)
        self.qp.post_send(wr)
        return self.wait()


def main():
    """Prints what each request has done."""
    names = [device.name.decode() for device in d.get_device_list()]
    client, server = Side(names[0], server=False), Side(names[-1], server=True)
    client.connect(server)
    server.connect(client)
    print(f"{names[0]} QP {client.qp.qp_num} -> {names[-1]} QP {server.qp.qp_num}")

    text = b"Hello, remote memory!"
    client.mr.write(text, len(text))
    done = client.request(e.IBV_WR_RDMA_WRITE, server, len(text))
    print("WRITE", done.status, server.mr.read(len(text), 0).decode())

    text = b"Hello, reader!"
    server.mr.write(text, len(text))
    done = client.request(e.IBV_WR_RDMA_READ, server, len(text))
    print("READ", done.status, client.mr.read(len(text), 0).decode())

    text = b"Hello, shared queue!"
    client.mr.write(text, len(text))
    server.srq.post_recv(RecvWR(wr_id=7, num_sge=1, sg=[server.sge(offset=64, length=256)]))
    done = client.request(e.IBV_WR_SEND, server, len(text))
    received = server.wait()
    found = server.mr.read(received.byte_len, 64).decode()
    print("SEND", done.status, "RECV", received.status, f"wr_id {received.wr_id}", found)

    try:
        client.context.query_port(9)
    except PyverbsRDMAError as error:
        print("refused:", error)
    wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[client.sge(length=8)])
    wr.set_wr_rdma(server.mr.rkey ^ 1, server.mr.buf)
    client.qp.post_send(wr)
    print("wrong key:", client.wait().status == e.IBV_WC_REM_ACCESS_ERR)
    client.context.close()
    server.context.close()


if __name__ == "__main__":
    main()
