"""``rocinante endpoint`` as a whole: processes, sockets, the NIC in simulation."""

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import time

import pytest
from scapy.layers.l2 import ARP, Ether

from hdl.config import NicConfig
from sim.bench import testbench
from sim.endpoint.client import EndpointClient, EndpointError, EndpointGone
from sim.endpoint.frames import Deframer, framed
from sim.wire.packets import dissect
from sim.wire.pcap import read_pcap

COMMAND = (sys.executable, "-P", "-m", "sim.tools.cli")
RIGHTS = ["LOCAL_WRITE", "REMOTE_READ", "REMOTE_WRITE"]
OURS, THEIRS = "02:00:00:00:00:01", "02:00:00:00:00:99"
#: Bytes of each region, and how long a completion may take on a machine that has other work.
AREA, PATIENCE_MS = 1 << 18, 120_000


def start(path, *arguments, width=64):
    testbench.build(config=NicConfig(width=width))  # so that no time limit includes it
    wire = ("--wire", f"unix:{path}", "--width", str(width))
    return EndpointClient(*wire, *arguments, program=COMMAND, timeout=120)


class Side:
    """One of two endpoints: its client, its region."""

    def __init__(self, client):
        self.client = client
        self.info = client.call("info")
        self.mr = client.call("reg_mr", length=AREA, access=RIGHTS)
        self.psn = 0xFFFFF0  # wraps soon

    def qp(self, **create):
        return self.client.call("create_qp", max_send_wr=32, max_recv_wr=32, **create)

    def connect(self, qp, other, other_qp, *, gid=0, **more):
        self.client.call(
            "connect",
            qp=qp["qp"],
            dest_qpn=other_qp["qpn"],
            dest_gid=other.info["gids"][gid],
            dest_mac=other.info["mac"],
            sq_psn=self.psn,
            rq_psn=other.psn,
            **more,
        )

    def post(self, qp, opcode, parts, other=None, at=0, **more):
        if other is not None:
            more |= {"remote_addr": other.mr["addr"] + at, "rkey": other.mr["rkey"]}
        sge = [[self.mr["mr"], offset, length] for offset, length in parts]
        self.client.call("post_send", qp=qp["qp"], opcode=opcode, sge=sge, **more)

    def receive(self, qp, offset, length, wr_id=0):
        sge = [[self.mr["mr"], offset, length]]
        self.client.call("post_recv", qp=qp["qp"], wr_id=wr_id, sge=sge)

    def good(self, count=1):
        found = self.client.wait(count, PATIENCE_MS)
        assert {wc["status"] for wc in found} == {"SUCCESS"}, found
        return found

    def read(self, offset, length):
        return self.client.read(self.mr["mr"], length, offset)

    def write(self, offset, data):
        self.client.write(self.mr["mr"], data, offset)


class Two:
    """Two endpoints on one wire."""

    def __init__(self, folder, width):
        path = folder / "wire"
        self.pcap = folder / "a.pcap"
        clients = [
            start(path, "--listen", "--ip", "10.0.0.1", "--ip", "fd00::1", "--pcap",
                  str(self.pcap), width=width),
            start(path, "--mac", "02:00:00:00:00:02", "--ip", "10.0.0.2", "--ip", "fd00::2",
                  width=width),
        ]  # fmt: skip
        self.sides = [Side(client) for client in clients]

    def connected(self, **more):
        qps = [side.qp() for side in self.sides]
        for i, side in enumerate(self.sides):
            side.connect(qps[i], self.sides[1 - i], qps[1 - i], **more)
        return qps

    def close(self):
        return [side.client.close() for side in self.sides]


@pytest.fixture(scope="module", params=[64, 512])
def two(request, tmp_path_factory):
    pair = Two(tmp_path_factory.mktemp("two"), request.param)
    yield pair
    pair.close()


@pytest.mark.parametrize("gid, mtu", [(0, 1024), (1, 4096)], ids=["ipv4", "ipv6"])
def test_every_operation_both_ways(two, gid, mtu):
    qps = two.connected(gid=gid, path_mtu=mtu)
    rng = random.Random(mtu)
    for i, size in ((0, 1), (1, 3000), (0, 20_001)):
        a, b = two.sides[i], two.sides[1 - i]
        qa, qb = qps[i], qps[1 - i]
        data = rng.randbytes(size)
        cut = rng.randrange(size)
        parts = [(7, cut), (7 + cut, size - cut)]
        a.write(7, data)

        a.post(qa, "RDMA_WRITE", parts, b, at=101)
        assert a.good()[0]["opcode"] == "RDMA_WRITE"
        assert b.read(101, size) == data

        a.post(qa, "RDMA_READ", [(100_000, size)], b, at=101)
        assert a.good()[0]["opcode"] == "RDMA_READ"
        assert a.read(100_000, size) == data

        b.receive(qb, 50_003, size + 5, wr_id=77)
        a.post(qa, "SEND_WITH_IMM", parts, imm=0x01020304)
        a.good()
        (wc,) = b.good()
        assert (wc["wr_id"], wc["opcode"], wc["byte_len"]) == (77, "RECV", size)
        assert wc["imm"] == 0x01020304 and "WITH_IMM" in wc["flags"]
        assert wc["qp_num"] == qb["qpn"]
        assert b.read(50_003, size) == data

        b.receive(qb, 0, 0, wr_id=78)
        a.post(qa, "RDMA_WRITE_WITH_IMM", parts, b, at=150_000, imm=5)
        a.good()
        (wc,) = b.good()
        assert (wc["wr_id"], wc["opcode"], wc["imm"]) == (78, "RECV_RDMA_WITH_IMM", 5)
        assert b.read(150_000, size) == data


def test_messages_of_no_bytes(two):
    a, b = two.sides
    qa, qb = two.connected()
    b.receive(qb, 0, 100)
    a.post(qa, "SEND", [])
    a.post(qa, "RDMA_WRITE", [], b)
    a.post(qa, "RDMA_READ", [], b)
    a.good(3)
    assert b.good()[0]["byte_len"] == 0


def test_eight_queue_pairs_at_once(two):
    a, b = two.sides
    pairs = [two.connected() for _ in range(8)]
    data = random.Random(8).randbytes(AREA // 2)
    a.write(0, data)
    stride = len(data) // 8
    for n, (qa, _) in enumerate(pairs):
        for half in (0, 1):
            at = n * stride + half * (stride // 2)
            a.post(qa, "RDMA_WRITE", [(at, stride // 2)], b, at=at, wr_id=2 * n + half)
    found = a.good(16)
    assert sorted(wc["wr_id"] for wc in found) == list(range(16))
    for qa, _ in pairs:
        own = [wc["wr_id"] for wc in found if wc["qp_num"] == qa["qpn"]]
        assert own == sorted(own)
    assert b.read(0, len(data)) == data


@pytest.mark.parametrize(
    "at, key, status",
    [(0, 0x100, "REM_ACCESS_ERR"), (AREA - 10, 0, "REM_ACCESS_ERR"), (-1, 0, "REM_ACCESS_ERR")],
    ids=["key", "end", "begin"],
)
def test_refused_by_the_other_side(two, at, key, status):
    a, b = two.sides
    qa, qb = two.connected()
    remote = {"remote_addr": b.mr["addr"] + at, "rkey": b.mr["rkey"] ^ key}
    a.post(qa, "RDMA_WRITE", [(0, 20)], wr_id=1, **remote)
    a.post(qa, "SEND", [(0, 20)], wr_id=2)
    found = a.client.wait(2, PATIENCE_MS)
    assert [(wc["wr_id"], wc["status"]) for wc in found] == [(1, status), (2, "WR_FLUSH_ERR")]
    b.receive(qb, 0, 10, wr_id=3)
    b.client.call("modify", qp=qb["qp"], state="ERR")
    assert b.client.wait(1, PATIENCE_MS)[0]["status"] == "WR_FLUSH_ERR"
    # and once more from the beginning
    for side, qp in zip(two.sides, (qa, qb), strict=True):
        side.client.call("modify", qp=qp["qp"], state="RESET")
    a.connect(qa, b, qb)
    b.connect(qb, a, qa)
    a.post(qa, "RDMA_WRITE", [(0, 20)], b)
    a.good()


def test_refused_on_this_side(two):
    a, b = two.sides
    qa, _ = two.connected()
    a.post(qa, "RDMA_WRITE", [(AREA - 5, 10)], b)
    assert a.client.wait(1, PATIENCE_MS)[0]["status"] == "LOC_PROT_ERR"
    with pytest.raises(EndpointError, match="No transition from ERR to INIT") as caught:
        a.connect(qa, b, {"qpn": 1})
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(EndpointError, match="QP type 0 is not supported"):
        a.client.call("create_qp", type="SMI")


def test_counters_and_capture(two):
    """Last: the capture is complete when its endpoint has ended."""
    a, b = (side.client.call("counters")["counters"] for side in two.sides)
    assert a["wire_connections"] == b["wire_connections"] == 1
    assert a["wire_frames_out"] == b["wire_frames_in"] == a["tx_packets"] == b["rx_packets"]
    assert b["wire_frames_out"] == a["wire_frames_in"] == b["tx_packets"] == a["rx_packets"]
    assert a["wire_drops"] == b["wire_drops"] == 0
    assert two.close() == [0, 0]
    frames = [dissect(frame) for _, frame in read_pcap(two.pcap)]
    assert len(frames) == a["wire_frames_in"] + a["wire_frames_out"] > 0
    assert all(frame.icrc_good for frame in frames)


# One endpoint, and whoever is at the other end ---------------------------------------------------


class Alone:
    """A listening endpoint whose far end is a socket of the test."""

    def __init__(self, folder, *arguments):
        self.path = folder / "wire"
        began = time.monotonic()
        self.client = start(self.path, "--listen", *arguments)
        self.client.call("info")
        self.took = time.monotonic() - began
        self.worked = busy(self.client.process.pid)

    def plug(self):
        """Another peer, once the endpoint has noticed that the one before has gone."""
        self.state("down")
        far = socket.socket(socket.AF_UNIX)
        far.settimeout(30)
        far.connect(str(self.path))
        self.state("connected")
        return far

    def state(self, wanted):
        for _ in range(100):
            if self.client.call("info")["wire"] == wanted:
                return
            time.sleep(0.05)
        raise AssertionError(f"The wire is not {wanted}: {self.client.messages}")

    def said(self, text):
        """Wait for a last message with ``text``: it comes on a stream of its own."""
        for _ in range(100):
            if text in self.client.messages[-1]:
                return
            time.sleep(0.05)
        raise AssertionError(f"{text!r} was not said: {self.client.messages}")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    one = Alone(tmp_path_factory.mktemp("alone"))
    yield one
    assert one.client.close() == 0
    assert not one.path.exists()


def who_has(target="10.0.0.1"):
    return bytes(Ether(src=THEIRS, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=THEIRS, pdst=target))


def answer(far):
    deframer = Deframer()
    while True:
        data = far.recv(1 << 16)
        assert data, "the endpoint has closed the connection"
        if found := deframer.feed(data):
            return [Ether(frame) for frame in found]


def test_address_resolution(alone):
    with alone.plug() as far:
        far.sendall(framed(who_has("10.0.0.2")) + framed(who_has()))
        (reply,) = answer(far)
        assert reply[ARP].hwsrc == OURS and reply[ARP].psrc == "10.0.0.1"


def test_a_frame_byte_by_byte_and_many_at_once(alone):
    with alone.plug() as far:
        for octet in framed(who_has()):
            far.sendall(bytes([octet]))
            time.sleep(0.001)
        assert len(answer(far)) == 1
        far.sendall(framed(who_has()) * 500)
        count = 0
        while count < 500:
            count += len(answer(far))


@pytest.mark.parametrize(
    ("mac", "counter"), [(OURS, "rx_drops_ethertype"), ("02:00:00:00:00:77", "rx_drops_mac")]
)
def test_frames_that_are_not_for_the_card_are_counted_by_it(alone, mac, counter):
    def drops():
        return alone.client.call("counters")["counters"][counter]

    before = drops()
    with alone.plug() as far:
        head = bytes.fromhex(mac.replace(":", ""))
        sizes = (14, 15, 60, 1514, 9000, 16384)
        far.sendall(b"".join(framed(head.ljust(size, b"\0")) for size in sizes))
        for _ in range(50):
            if drops() == before + 6:
                break
            time.sleep(0.1)
        assert drops() == before + 6


@pytest.mark.parametrize("length", [1 << 31, 0, 13, 16385])
def test_an_impossible_length_ends_the_connection_not_the_endpoint(alone, length):
    with alone.plug() as far:
        far.sendall(length.to_bytes(4, "big") + bytes(1000))
        assert far.recv(100) == b""
    alone.state("down")
    alone.said(f"not {length}")
    test_address_resolution(alone)


def test_a_peer_that_goes_inside_a_frame(alone):
    with alone.plug() as far:
        far.sendall(framed(who_has())[:30])
    alone.state("down")
    alone.said("has closed the connection inside a frame")
    test_address_resolution(alone)


def test_without_a_peer_frames_are_lost_and_requests_served(alone):
    """The card sends; nobody answers; the poll ends in time; the next request is served."""
    alone.state("down")
    call = alone.client.call
    before = call("counters")["counters"]["wire_drops"]
    mr = call("reg_mr", length=10_000, access=RIGHTS)["mr"]
    qp = call("create_qp")["qp"]
    call("connect", qp=qp, dest_qpn=9, dest_gid="10.0.0.9", dest_mac=THEIRS, timeout=0)
    call("post_send", qp=qp, opcode="RDMA_WRITE", sge=[[mr, 0, 9000]], rkey=5, remote_addr=6)
    began = time.monotonic()
    assert call("poll", n=1, timeout_ms=700)["wc"] == []
    assert 0.7 <= time.monotonic() - began < 10
    assert call("counters")["counters"]["wire_drops"] == before + 9
    call("modify", qp=qp, state="ERR")
    assert alone.client.wait(1, PATIENCE_MS)[0]["status"] == "WR_FLUSH_ERR"


def test_a_peer_that_does_not_read_for_a_while(alone):
    """2 MiB into a socket that nobody empties: the card is held and everything comes to rest,
    requests are served; then all of it arrives.
    """
    call, size = alone.client.call, 1 << 20
    mr = call("reg_mr", length=size, access=RIGHTS)["mr"]
    qp = call("create_qp")["qp"]
    there = dict(dest_qpn=9, dest_gid="10.0.0.9", dest_mac=THEIRS, path_mtu=4096, timeout=0)
    before = call("counters")["counters"]
    with alone.plug() as far:
        call("connect", qp=qp, **there)
        for _ in range(2):
            call("post_send", qp=qp, opcode="RDMA_WRITE", sge=[[mr, 0, size]])
        times = [0, 1]
        while times[-2] != times[-1]:
            assert len(times) < 300, "it sends on and on"
            time.sleep(1)
            times.append(call("info")["time_ns"])
        sent = call("counters")["counters"]["wire_frames_out"] - before["wire_frames_out"]
        assert 250 < sent < 400  # 1 MiB and what the system's buffers take
        deframer, frames = Deframer(), 512
        while frames:
            frames -= len(deframer.feed(far.recv(1 << 20)))
        call("modify", qp=qp, state="ERR")
        assert {wc["status"] for wc in alone.client.wait(2, PATIENCE_MS)} == {"WR_FLUSH_ERR"}
        after = call("counters")["counters"]
        assert after["wire_frames_out"] - before["wire_frames_out"] == 512
        assert after["wire_drops"] == before["wire_drops"]


# The client's side -------------------------------------------------------------------------------


def test_malformed_lines(alone):
    for line in (b"", b"{", b"\xff\xfe", b'{"op":"fly"}', b"x" * 100_000_000):
        alone.client.send_line(line)
        with pytest.raises(EndpointError) as caught:
            alone.client.reply()
        assert caught.value.errno in (errno.EBADMSG, errno.EOPNOTSUPP, errno.EMSGSIZE)
    assert alone.client.call("info")["mac"] == OURS


def test_replies_come_in_the_order_of_requests(alone):
    lines = [b'{"op":"poll","n":1,"timeout_ms":300}', b'{"op":"create_qp"}', b"?", b'{"op":"info"}']
    for line in lines:
        alone.client.send_line(line)
    assert alone.client.reply() == {"wc": []}
    assert "qpn" in alone.client.reply()
    with pytest.raises(EndpointError):
        alone.client.reply()
    assert alone.client.reply()["mac"] == OURS


def test_much_memory(alone):
    mr = alone.client.call("reg_mr", length=128 << 20, access=RIGHTS)["mr"]
    data = os.urandom(1 << 20)
    for offset in (0, (128 << 20) - len(data)):
        alone.client.write(mr, data, offset)
        assert alone.client.read(mr, len(data), offset) == data
    with pytest.raises(EndpointError) as caught:
        alone.client.call("reg_mr", length=8 << 30)
    assert caught.value.errno == errno.ENOMEM
    assert alone.client.call("dereg_mr", mr=mr) == {}


def processes(pid):
    """A process and all that descend from it."""
    found = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                for child in file.read().split():
                    found += processes(int(child))
    except FileNotFoundError:
        pass  # it has ended meanwhile
    return found


def busy(pid):
    """Processor time of a process and its children so far, s."""
    ticks = 0
    for one in processes(pid):
        with open(f"/proc/{one}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def test_a_quick_start_and_no_work_no_processor_time(alone):
    """5 s are promised on a machine without other work; there processor time is most of it."""
    pid = alone.client.process.pid
    time.sleep(0.5)
    before = busy(pid)
    time.sleep(2)
    idle = busy(pid) - before
    alone.client.send_line(b'{"op":"poll","n":1,"timeout_ms":2500}')
    time.sleep(0.5)
    before = busy(pid)
    time.sleep(2)
    polling = busy(pid) - before
    alone.client.reply()
    print(f"info after {alone.took:.1f} s, {alone.worked:.1f} s of them processor time")
    print(f"of 2 s: idle {idle:.2f} s, in a poll {polling:.2f} s")
    assert alone.worked < 4 and idle < 0.2 and polling < 0.2


def alive(pids):
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}/cmdline")
            and open(f"/proc/{pid}/cmdline").read()]  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_end_all_of_it(tmp_path, number):
    """In the middle of a poll; not even SIGKILL leaves a simulation behind."""
    client = start(tmp_path / "wire", "--listen")
    client.call("info")
    client.send_line(b'{"op":"poll","n":1,"timeout_ms":60000}')
    everything = processes(client.process.pid)
    assert len(everything) > 1
    client.process.send_signal(number)
    client.process.wait(20)
    for _ in range(100):
        if not alive(everything):
            break
        time.sleep(0.1)
    assert not alive(everything)
    assert client.close() == (-number if number == signal.SIGKILL else 0)


def _finished(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, **more)


def test_quit_and_the_end_of_input(tmp_path):
    command = [*COMMAND, "endpoint", "--wire", f"unix:{tmp_path}/wire", "--width", "64"]
    for lines in ('{"op":"info"}\n{"op":"quit"}\n{"op":"info"}\n', '{"op":"info"}\n{"op":"info"}'):
        done = _finished(command, input=lines)
        assert done.returncode == 0, done.stderr
        replies = done.stdout.splitlines()
        assert len(replies) == 2 and all(reply.startswith("{") for reply in replies)


def test_a_client_that_has_gone_is_noticed(tmp_path):
    client = start(tmp_path / "wire", "--listen")
    client.call("quit")
    assert client.process.wait(20) == 0
    with pytest.raises(EndpointGone):
        client.call("info")
    client.close()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--wire", "tcp:1"], "must be unix:PATH"),
        (["--wire", "unix:"], "must be unix:PATH"),
        (["--wire", "unix:/nonexistent/wire", "--listen"], "No such file or directory"),
        (["--wire", "unix:/" + "x" * 200, "--listen"], "path too long"),
        (["--wire", "unix:w", "--ip", "10.0.0"], "does not appear to be an IPv4 or IPv6 address"),
        (["--wire", "unix:w", "--ip", "224.0.0.1"], "must be the address of one host"),
        (["--wire", "unix:w", "--mac", "2:0"], "must be a MAC address"),
        (["--wire", "unix:w", "--mac", "01:00:00:00:00:00"], "must be the address of one card"),
        (["--wire", "unix:w", "--pcap", "/nonexistent/x.pcap"], "there is no folder"),
        (["--wire", "unix:w", *["--ip", "10.0.0.1"] * 17], "17 addresses, the NIC has 16 GIDs"),
        ([], "--wire"),
    ],
)
def test_bad_arguments(arguments, said):
    done = _finished([*COMMAND, "endpoint", *arguments])
    assert done.returncode == 2 and done.stdout == ""
    assert said in " ".join(done.stderr.split()), done.stderr
