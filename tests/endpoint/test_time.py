"""Time of an endpoint: while a timer of the card runs it goes on with the wall clock."""

import errno
import itertools
import random
import threading
import time

import pytest

from hdl.abi.mad import ATTRIBUTES
from sim.endpoint.frames import Deframer, framed
from sim.wire.packets import build, dissect, gid_bytes
from tests.endpoint.test_endpoint import (
    OURS,
    PATIENCE_MS,
    RIGHTS,
    THEIRS,
    Alone,
    Side,
    busy,
    start,
)

#: Our queue pair's time-out: 67.1 ms. A timer of the card runs out between 1 and 1.25 times of that
#: (docs/retry.md); what is more here the machine may take, which has other work.
TIMEOUT, TIMEOUT_S = 14, 4.096e-6 * 2**14
#: RNR timer (IBTA vol 1, table 46) of 40.96 ms.
RNR_CODE, RNR_S = 24, 0.04096
#: How many times longer than asked for all may take, on a machine that has other work; a second
#: and less, so many seconds.
SLOW = 20
REQ, REJ = ATTRIBUTES["REQ"], ATTRIBUTES["REJ"]
OURS_GID, THEIRS_GID = gid_bytes("10.0.0.1"), gid_bytes("10.0.0.9")


class Talk:
    """A queue pair of the endpoint whose peer is the test."""

    def __init__(self, alone, far, **connect):
        self.call, self.far, self.frames = alone.client.call, far, Deframer()
        self.client = alone.client
        self.mr = self.call("reg_mr", length=10_000, access=RIGHTS)
        qp = self.call("create_qp")
        self.qp, self.qpn = qp["qp"], qp["qpn"]
        there = dict(dest_qpn=9, dest_gid="10.0.0.9", dest_mac=THEIRS)
        self.call("connect", qp=self.qp, **there, **{"timeout": TIMEOUT, **connect})

    def write(self, length=100):
        sge = [[self.mr["mr"], 0, length]]
        self.call("post_send", qp=self.qp, opcode="RDMA_WRITE", sge=sge, rkey=5, remote_addr=0x1000)

    def packet(self):
        """The next packet of the card, and when it came."""
        while True:
            found = self.frames.feed(self.far.recv(1 << 16))
            if found:
                (frame,) = found
                return dissect(frame), time.monotonic()

    def answer(self, psn, syndrome=0x1F):
        frame = build(
            0x11,
            src_mac=bytes.fromhex(THEIRS.replace(":", "")),
            dst_mac=bytes.fromhex(OURS.replace(":", "")),
            src_gid=THEIRS_GID,
            dst_gid=OURS_GID,
            dest_qp=self.qpn,
            pkey=0xFFFF,
            psn=psn,
            syndrome=syndrome,
            msn=psn + 1,
        )
        self.far.sendall(framed(frame))

    def done(self):
        (wc,) = self.client.wait(1, PATIENCE_MS)
        return wc["status"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    one = Alone(tmp_path_factory.mktemp("time"))
    yield one
    assert one.client.close() == 0


def test_a_lost_frame_is_sent_again_when_its_time_has_passed(alone):
    """The peer swallows it four times, and then answers: the time-outs come by the wall clock."""
    with alone.plug() as far:
        talk = Talk(alone, far)
        talk.write()
        packets = [talk.packet() for _ in range(4)]
        assert {packet.fields["psn"] for packet, _ in packets} == {0}
        gaps = [b[1] - a[1] for a, b in itertools.pairwise(packets)]
        print("sent again after", *(f"{1000 * gap:.1f} ms" for gap in gaps))
        assert min(gaps) > 0.95 * TIMEOUT_S
        assert sorted(gaps)[1] < SLOW * TIMEOUT_S
        talk.answer(0)
        assert talk.done() == "SUCCESS"


def test_a_pause_for_an_rnr_nak_takes_its_time(alone):
    """Four pauses: none is too short. The shortest is not too long, whatever the machine does."""
    with alone.plug() as far:
        talk = Talk(alone, far, timeout=0)
        talk.write()
        _, sent = talk.packet()
        pauses = []
        for _ in range(4):
            talk.answer(0, 0x20 | RNR_CODE)
            packet, again = talk.packet()
            assert packet.fields["psn"] == 0
            pauses.append(again - sent)
            sent = again
        assert 0.95 * RNR_S < min(pauses) < SLOW * RNR_S, pauses
        talk.answer(0)
        assert talk.done() == "SUCCESS"


def test_retries_end_without_any_other_traffic(alone):
    """Nobody answers and nobody asks: the completion in error comes by itself, inside a poll."""
    with alone.plug() as far:
        talk = Talk(alone, far, timeout=10, retry_cnt=3)
        talk.write()
        began = time.monotonic()
        assert talk.done() == "RETRY_EXC_ERR"
        assert time.monotonic() - began < SLOW


def test_a_connection_manager_does_not_hold_time_up(alone):
    """It looks at its queue pair all the time; the wall clock is followed all the same."""
    alone.client.call("cm_listen", port=7471)
    with alone.plug() as far:
        talk = Talk(alone, far, timeout=15, retry_cnt=1)  # twice 134 to 168 ms
        talk.write()
        began = time.monotonic()
        assert talk.done() == "RETRY_EXC_ERR"
        assert time.monotonic() - began < SLOW


def test_a_lost_message_of_the_connection_manager_comes_again(alone):
    """After 4.3 s of the wall clock, while the client waits for the connection."""
    with alone.plug() as far:
        qp = alone.client.call("create_qp")
        where = dict(qp=qp["qp"], dest_gid="10.0.0.9", port=7471)
        alone.client.call("cm_neighbour", gid="10.0.0.9", mac=THEIRS)
        talk = Talk(alone, far, timeout=0)  # for its packets
        came = []

        def listen():
            while not came or came[-1][0] != REJ:  # nobody waits any more
                packet, at = talk.packet()
                assert packet.fields["dest_qp"] == 1
                came.append((int.from_bytes(packet.payload[16:18], "big"), at))

        listener = threading.Thread(target=listen)
        listener.start()
        with pytest.raises(OSError) as refused:
            alone.client.call("cm_connect", **where, timeout_ms=12_000)
        assert refused.value.errno == errno.ETIMEDOUT
        listener.join(PATIENCE_MS / 1000)
        assert {what for what, _ in came[:-1]} == {REQ} and len(came) in (3, 4)
        assert 4.2 < came[1][1] - came[0][1] < 12


def test_with_nothing_outstanding_time_stands_still(alone):
    with alone.plug() as far:
        talk = Talk(alone, far)
        talk.write()
        talk.packet()
        talk.answer(0)
        assert talk.done() == "SUCCESS"
        time.sleep(0.3)
        before = talk.call("info")["time_ns"], busy(alone.client.process.pid)
        time.sleep(1)
        after = talk.call("info")["time_ns"], busy(alone.client.process.pid)
        assert after[0] - before[0] < 100_000
        assert after[1] - before[1] < 0.2


def test_simulated_time_is_never_ahead_of_the_wall_clock(alone):
    """While a timer runs that will not end soon: it follows, and not in jumps to its end."""
    with alone.plug() as far:
        talk = Talk(alone, far, timeout=20)  # 4.3 s
        talk.write()
        talk.packet()
        began, first = time.monotonic(), talk.call("info")["time_ns"]
        time.sleep(1)
        last = talk.call("info")["time_ns"]
        passed = 1e9 * (time.monotonic() - began)
        print(f"of {passed / 1e6:.0f} ms {(last - first) / 1e6:.0f} ms are simulated")
        assert passed / SLOW < last - first <= passed
        talk.answer(0)
        assert talk.done() == "SUCCESS"


def test_timers_can_be_slower_and_faster(tmp_path):
    """--timer-scale 0.25: a time-out of 67 ms comes after 17 ms."""
    fast = Alone(tmp_path, "--timer-scale", "0.25")
    with fast.plug() as far:
        talk = Talk(fast, far)
        talk.write()
        talk.packet()
        began, first = time.monotonic(), talk.call("info")["time_ns"]
        for _ in range(4):
            talk.packet()
        last = talk.call("info")["time_ns"]
        least = 4 * 0.25 * TIMEOUT_S
        assert 0.95 * least < 1e-9 * (last - first) < 1.4 * least
        assert time.monotonic() - began > 0.95 * least
        talk.answer(0)
        assert talk.done() == "SUCCESS"
    assert fast.client.close() == 0


def test_two_endpoints_on_a_network_that_loses_packets(tmp_path):
    """--impair at one, a request at the other: both lose, and everything arrives."""
    path = tmp_path / "wire"
    ends = [
        start(path, "--listen", "--impair", "loss=3%,duplicate=3%,seed=5"),
        start(path, "--mac", "02:00:00:00:00:02", "--ip", "10.0.0.2"),
    ]
    a, b = (Side(client) for client in ends)
    b.client.call("impair", what="reorder=4,overtaken=10%,pause_us=5,pause_every_us=20")
    qa, qb = a.qp(), b.qp()
    for side, qp, other, its in ((a, qa, b, qb), (b, qb, a, qa)):
        side.connect(qp, other, its, path_mtu=256, timeout=12)
    data = random.Random(3).randbytes(60_000)
    a.write(0, data)
    a.post(qa, "RDMA_WRITE", [(0, 30_000)], b, at=0)
    a.post(qa, "RDMA_READ", [(100_000, 10_000)], b, at=0)
    b.receive(qb, 40_000, 30_000)
    a.post(qa, "SEND", [(30_000, 30_000)])
    assert [wc["opcode"] for wc in a.good(3)] == ["RDMA_WRITE", "RDMA_READ", "SEND"]
    assert [wc["opcode"] for wc in b.good()] == ["RECV"]
    assert b.read(0, 30_000) == data[:30_000] == a.read(0, 30_000)
    assert a.read(100_000, 10_000) == data[:10_000]
    assert b.read(40_000, 30_000) == data[30_000:]
    counters = [side.client.call("counters")["counters"] for side in (a, b)]
    assert counters[0]["wire_gone_out"] > 0 and counters[0]["wire_gone_in"] > 0
    assert counters[0]["wire_duplicated_out"] > 0
    assert counters[1]["wire_gone_out"] == 0 < counters[1]["wire_overtaken_out"]
    assert [client.close() for client in ends] == [0, 0]
