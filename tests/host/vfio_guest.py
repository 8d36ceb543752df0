"""Guests of a served card: the guest's driver and verbs over vfio-user; and the command itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np

from hdl.abi.enums import Access, SendFlags, WcStatus, WrOpcode
from hdl.config import NicConfig
from sim.bench import testbench
from sim.guest.driver.device import DriverOptions
from sim.guest.verbs import (
    CQ,
    MR,
    QP,
    AHAttr,
    Context,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from tests.host.vfio_client import PATIENCE_S, VfioPlatform, run

COMMAND = (sys.executable, "-P", "-m", "sim.tools.cli", "card")
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
#: Times of the driver are those of the wall clock here.
OPTIONS = DriverOptions(timeout_ns=PATIENCE_S * 10**9)
LENGTH = 1 << 16


class Served:
    """``rocinante card`` in a process of its own. ``folder``: of the sockets and of its output.

    command: another one, which serves cards in the folder that it is given.
    """

    def __init__(self, folder, *arguments, command=None):
        self.folder, self._out = folder, folder / "stderr"
        if command is None:
            testbench.build(config=NicConfig(width=64))  # so that no time limit includes it
            command = [*COMMAND, *arguments, "--width", "64", "--socket"]
        command = [*command, str(folder)]
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(command, stderr=out, stdin=subprocess.DEVNULL)
        self.says("the card is served")

    @property
    def text(self):
        return self._out.read_text()

    def says(self, what, count=1):
        """Wait until it has said something that often."""
        until = time.monotonic() + PATIENCE_S
        while self.text.count(what) < count:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < until, (what, self.text)
            time.sleep(0.01)

    def path(self, card=0, function=1):
        return self.folder / f"card{card}-function{function}"

    def close(self, number=signal.SIGTERM):
        """End it in good order; its status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


class Guest:
    """A virtual machine that uses one function: its driver, a CQ, a region, a QP.

    ``more`` goes to ``VfioPlatform``.
    """

    def __init__(self, path, address, mac, function=1, options=OPTIONS, **more):
        self.platform = VfioPlatform(path, **more)
        self.mac = mac
        self.context = run(Context.open(self.platform, function, options=options))
        run(self.context.add_gid(0, address))
        self.pd = run(self.context.alloc_pd())
        self.cq = run(CQ.create(self.context, 64))
        self.mr = run(MR.create(self.pd, LENGTH, RIGHTS, offset=123))
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=4, max_recv_sge=4)
        self.qp = run(QP.create(self.pd, QPInitAttr(scq=self.cq, rcq=self.cq, cap=cap)))

    def connect(self, peer, **attributes):
        way = AHAttr(GlobalRoute(peer.context.query_gid(1, 0)), roce_dmac=peer.mac)
        attr = QPAttr(dest_qp_num=peer.qp.qp_num, ah_attr=way, qp_access_flags=RIGHTS, **attributes)
        run(self.qp.to_rts(attr))

    def post(self, opcode, peer, length, at=0):
        wr = SendWR(7, opcode, [self.mr.sge(at, length)], SendFlags.SIGNALED)
        if opcode == WrOpcode.SEND:
            run(peer.qp.post_recv(RecvWR(8, [peer.mr.sge(at, length)])))
        else:
            wr.set_wr_rdma(peer.mr.rkey, peer.mr.iova + at)
        run(self.qp.post_send(wr))

    def good(self):
        (found,) = run(self.cq.wait(1))
        assert found.status == WcStatus.SUCCESS, found

    def close(self):
        self.platform.close()


def pair(paths, functions=(1, 1), **more):
    """Two guests, connected."""
    guests = [
        Guest(path, f"10.0.0.{i + 1}", bytes((2, 0, 0, 0, 0, i + 1)), function, **more)
        for i, (path, function) in enumerate(zip(paths, functions, strict=True))
    ]
    for i in (0, 1):
        if more.get("messages"):
            guests[i].platform.client.friends = [guests[1 - i].platform.client]
        guests[i].connect(guests[1 - i])
    return guests


def exchange(a, b, seed=1, length=5000, at=11):
    """A WRITE, a SEND and a READ from a to b, each byte compared."""
    rng = np.random.default_rng(seed)
    for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.SEND, WrOpcode.RDMA_READ):
        source, sink = (b, a) if opcode == WrOpcode.RDMA_READ else (a, b)
        source.mr.write(rng.integers(0, 256, length, np.uint8), at)
        a.post(opcode, b, length, at)
        a.good()
        if opcode == WrOpcode.SEND:
            b.good()
        assert np.array_equal(sink.mr.read(length, at), source.mr.read(length, at)), opcode


def descriptors():
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))
