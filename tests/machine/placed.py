"""FLUSH and ATOMIC WRITE between two guests, by pyverbs: each side asks the other in turn.

Arguments: the device, and on the second side the first one's address. Each side writes 3000 bytes
into the other's region, flushes that range, then the whole region, writes a word atomically, and
reads all of it back. With Soft-RoCE nothing is flushed: it counts the headers of a FLUSH twice in
the ICRC, so no other device takes its FLUSH, nor it theirs.
"""

import random
import socket
import sys

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import (
    IBV_ACCESS_FLUSH_GLOBAL,
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_FLUSH_GLOBAL,
    IBV_FLUSH_MR,
    IBV_FLUSH_RANGE,
    IBV_MTU_1024,
    IBV_QP_EX_WITH_ATOMIC_WRITE,
    IBV_QP_EX_WITH_FLUSH,
    IBV_QP_EX_WITH_RDMA_READ,
    IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
from pyverbs.wr import SGE

PORT, LENGTH, WRITTEN, WORD_AT = 18600, 8192, 3000, 4096
ACCESS = (
    IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_FLUSH_GLOBAL
)
OPERATIONS = (
    IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_FLUSH
    | IBV_QP_EX_WITH_ATOMIC_WRITE
)
#: What each side writes, and the word.
DATA = [random.Random(side).randbytes(WRITTEN) for side in (0, 1)]
WORDS = [b"first!!!", b"second!!"]


def gid_index(context, port):
    """The index of the first address that is no link-local one."""
    indices = [entry.gid_index for entry in context.query_gid_table(32)]
    return next(n for n in indices if "fe80" not in str(context.query_gid(port, n)))


class Side:
    """One end: its queue pair, what it writes from (the first half) and the peer writes into."""

    def __init__(self, name, peer):
        self.side, self.stream = int(peer is not None), self._meet(peer)
        self.context = Context(name=name)
        self.pd, self.cq = PD(self.context), CQ(self.context, 16)
        self.mr = MR(self.pd, 2 * LENGTH, ACCESS)
        cap = QPCap(max_send_wr=8, max_recv_wr=1)
        init = QPInitAttrEx(
            qp_type=IBV_QPT_RC,
            scq=self.cq,
            rcq=self.cq,
            cap=cap,
            pd=self.pd,
            sq_sig_all=0,
            comp_mask=IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            send_ops_flags=OPERATIONS,
        )
        self.qp = QPEx(self.context, init)
        index = gid_index(self.context, 1)
        gid = str(self.context.query_gid(1, index))
        self.say(f"{name} {self.qp.qp_num} {gid} {self.mr.buf} {self.mr.rkey}")
        there, number, other, address, rkey = self.hear().split()
        self.flushes = not any(device.startswith("rxe") for device in (name, there))
        self.address, self.rkey = int(address) + LENGTH, int(rkey)
        route = GlobalRoute(dgid=GID(other), sgid_index=index, hop_limit=64)
        attr = QPAttr(port_num=1, cur_qp_state=0)
        attr.qp_access_flags, attr.dest_qp_num = ACCESS, int(number)
        attr.path_mtu, attr.min_rnr_timer = IBV_MTU_1024, 12
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 20, 7, 7
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)
        self.meet()

    @staticmethod
    def _meet(peer):
        if peer is not None:
            return socket.create_connection((peer, PORT), 60).makefile("rw")
        with socket.create_server(("", PORT)) as listener:
            return listener.accept()[0].makefile("rw")

    def say(self, line):
        self.stream.write(line + "\n")
        self.stream.flush()

    def hear(self):
        return self.stream.readline()

    def meet(self):
        """Both sides have come here."""
        self.say("here")
        assert self.hear() == "here\n"

    def run(self, what, *operations):
        """The operations, the last of which is signalled, to their good end."""
        self.qp.wr_start()
        for place, (operation, sge) in enumerate(operations, 1):
            self.qp.wr_id = place
            self.qp.wr_flags = IBV_SEND_SIGNALED if place == len(operations) else 0
            operation()
            if sge:
                self.qp.wr_set_sge(SGE(*sge, self.mr.lkey))
        self.qp.wr_complete()
        found = []
        while not found:
            found = self.cq.poll(1)[1]
        assert found[0].status == IBV_WC_SUCCESS, (what, found[0].status)

    def ask(self):
        """Write, flush, write a word, and read back what is there then."""
        qp, rkey, at = self.qp, self.rkey, self.address
        self.mr.write(DATA[self.side], WRITTEN)
        flushes = (
            (lambda: qp.wr_flush(rkey, at, WRITTEN, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE), None),
            (lambda: qp.wr_flush(rkey, at, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR), None),
        )
        self.run(
            "WRITE",
            (lambda: qp.wr_rdma_write(rkey, at), (self.mr.buf, WRITTEN)),
            *(flushes if self.flushes else ()),
        )
        word = WORDS[self.side]
        self.run("ATOMIC WRITE", (lambda: qp.wr_atomic_write(rkey, at + WORD_AT, word), None))
        self.run("READ", (lambda: qp.wr_rdma_read(rkey, at), (self.mr.buf, LENGTH)))
        back = self.mr.read(LENGTH, 0)
        assert back[:WRITTEN] == DATA[self.side] and back[WORD_AT : WORD_AT + 8] == word

    def look(self):
        """What the peer has left here."""
        there = self.mr.read(LENGTH, LENGTH)
        assert there[:WRITTEN] == DATA[1 - self.side], "other bytes than the peer has written"
        assert there[WORD_AT : WORD_AT + 8] == WORDS[1 - self.side]


if __name__ == "__main__":
    end = Side(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    for turn in (0, 1):
        if turn == end.side:
            end.ask()
        end.meet()
        if turn != end.side:
            end.look()
    print("placed and found", flush=True)
